// Totals of a scope and of the graph for the panel: time and bytes.

const MOST_TOTALS = 12;

/// Totals of nodes by a key (null: not counted), the largest first: by time if known, then by bytes, then by number.
function totalsBy(m, ids, keyOf) {
  const totals = new Map();
  for (const id of ids) {
    const key = keyOf(id);
    if (!key) continue;
    if (!totals.has(key)) totals.set(key, {key, count: 0, us: 0, bytes: 0});
    const one = totals.get(key);
    ++one.count;
    if (m.us[id] >= 0) one.us += m.us[id];
    if (m.bytes[id] >= 0) one.bytes += m.bytes[id];
  }
  return Array.from(totals.values()).sort((a, b) => b.us - a.us || b.bytes - a.bytes || b.count - a.count);
}

function costText(one, count) {
  const parts = [];
  if (count) parts.push(one.count.toLocaleString('en'));
  if (one.us > 0) parts.push(timeText(one.us));
  if (one.bytes > 0) parts.push(bytesText(one.bytes));
  return parts.join(' \u00b7 ');
}

function row(text, count, action) {
  return el('li', {}, el('button', {type: 'button', onclick: action}, el('span', {class: 'link'}, text),
                         el('span', {class: 'count'}, count)));
}

/// A list of totals; a click searches for the key.
function totalsList(title, totals) {
  if (!totals.length) return [];
  const rows = totals.slice(0, MOST_TOTALS).map((one) => row(one.key, costText(one, true), () => searchFor(one.key)));
  if (totals.length > MOST_TOTALS) rows.push(el('li', {class: 'count'}, `and ${totals.length - MOST_TOTALS} more`));
  return [el('h3', {}, title), el('ul', {class: 'list'}, ...rows)];
}

/// The nodes that take most time, or most bytes if no time is known.
function largestNodes(m, ids) {
  const of = (id) => ({us: m.us[id] || 0, bytes: m.bytes[id] || 0});
  const sorted = Array.from(ids).filter((id) => m.us[id] > 0 || m.bytes[id] > 0).sort((a, b) => {
    const [x, y] = [of(a), of(b)];
    return y.us - x.us || y.bytes - x.bytes || a - b;
  });
  if (!sorted.length) return [];
  const rows = sorted.slice(0, 8).map((id) => {
    const path = m.scopes[m.scope[id]];
    return row(`${id} ${m.ops[m.op[id]]}${path ? ` in ${path}` : ''}`, costText(of(id), false), () => goToNode(id));
  });
  return [el('h3', {}, 'Largest nodes'), el('ul', {class: 'list'}, ...rows)];
}

function percent(part, whole) {
  return whole > 0 ? ` (${Number((100 * part / whole).toPrecision(2))} % of the graph)` : '';
}

function totalOf(key) {
  return app.tree.lanes.reduce((sum, lane) => sum + (lane && lane[key] >= 0 ? lane[key] : 0), 0);
}

/// A bar with the shares of classes among nodes, with its text.
function classBar(m, ids) {
  const bar = el('div', {class: 'share', role: 'img', 'aria-label': 'Shares of classes'});
  const shares = [];
  CLASSES.forEach((name, k) => {
    let count = 0;
    for (const id of ids) count += m.cls[id] === k;
    if (!count) return;
    bar.append(el('i', {style: `background:var(--c${k});width:${100 * count / ids.length}%`}));
    shares.push(`${name} ${count.toLocaleString('en')}`);
  });
  return [bar, el('p', {class: 'mono'}, shares.join(', '))];
}

function groupButtons(box) {
  const item = box.item;
  const toggle = () => {
    toggleBox(box);
    showPanel();
  };
  const buttons = [el('button', {type: 'button', onclick: toggle}, item.open ? 'Close' : 'Open')];
  const fold = item.kind === 'fold' ? item : item.fold;
  if (fold && (item.kind === 'fold' || fold.unfolded)) {
    const text = fold.unfolded ? 'Fold equal scopes' : 'Unfold equal scopes';
    buttons.push(el('button', {type: 'button', onclick: () => toggleFold(box)}, text));
  }
  if (item.kind === 'fold') {
    const onchange = (event) => chooseMember(item, Number(event.target.value));
    const choice = el('select', {'aria-label': 'Member that is shown', onchange});
    item.members.forEach((member, k) => choice.append(el('option', {value: k}, member.path)));
    choice.value = item.shown;
    buttons.push(el('label', {}, 'shown: ', choice));
  }
  return el('div', {class: 'actions'}, ...buttons);
}

function groupPanel(box) {
  const m = app.tree.m;
  const item = box.item;
  return [
    panelTop(itemTitle(item, '')),
    groupButtons(box),
    facts([
      ['phase', PHASES[box.lane]],
      ['nodes', `${item.all.length.toLocaleString('en')}${percent(item.all.length, m.n)}`],
      ['time', item.us >= 0 ? `${timeText(item.us)}${percent(item.us, totalOf('us'))}, ${m.timeKind}` : ''],
      ['bytes', item.bytes >= 0 ? `${bytesText(item.bytes)}${percent(item.bytes, totalOf('bytes'))}` : ''],
    ]),
    ...classBar(m, item.all),
    ...totalsList('Ops', totalsBy(m, item.all, (id) => m.ops[m.op[id]])),
    ...totalsList('Lines', totalsBy(m, item.all, (id) => m.lines[m.line[id]])),
    ...largestNodes(m, item.all),
  ];
}

/// Results and written cells, as links.
function usesList(title, uses) {
  if (!uses.length) return [];
  const rows = uses.slice(0, MOST_LINKS).map(([text, id]) => row(text, `node ${id}`, () => goToNode(id)));
  if (uses.length > MOST_LINKS) rows.push(el('li', {class: 'count'}, `and ${uses.length - MOST_LINKS} more`));
  return [el('h3', {}, `${title} (${uses.length})`), el('ul', {class: 'list'}, ...rows)];
}

/// The outer three levels of a scope with `*` for numbers. The search understands `*`.
function scopeFamily(path) {
  return family(path.split('.').slice(0, 3).join('.'));
}

/// Copies and pairs of unfused kernels, with the traffic that they cost.
function missedList(m) {
  if (!m.missed.length) return [];
  const rows = m.missed.slice(0, MOST_LINKS).map((text) => el('li', {}, text));
  if (m.missed.length > MOST_LINKS) rows.push(el('li', {class: 'count'}, `and ${m.missed.length - MOST_LINKS} more`));
  return [el('h3', {}, 'Copies, and what is not one kernel'), el('ul', {class: 'list'}, ...rows)];
}

function graphPanel() {
  const m = app.tree.m;
  const ids = Array.from({length: m.n}, (_, id) => id);
  const lanes = app.view.lanes.map((lane) => [PHASES[lane.lane], lane.sub]);
  return [
    panelTop(`Graph ${m.name}`),
    m.note ? el('p', {}, m.note) : '',
    facts([['nodes', m.n.toLocaleString('en')], ...lanes, ['time is', m.timeKind]]),
    ...classBar(m, ids),
    ...totalsList('Scopes; * is any number', totalsBy(m, ids, (id) => scopeFamily(m.scopes[m.scope[id]]))),
    ...totalsList('Ops', totalsBy(m, ids, (id) => m.ops[m.op[id]])),
    ...totalsList('Lines', totalsBy(m, ids, (id) => m.lines[m.line[id]])),
    ...largestNodes(m, ids),
    ...missedList(m),
    ...usesList('Outputs', m.outputs.map((output, k) => [`output ${k}`, output[0]])),
    ...usesList('Written cells', m.writes.map((write) => [String(write[0]), write[1][0]])),
  ];
}
