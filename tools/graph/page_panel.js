// The panel at the side, with all facts about a node. page_totals.js contains its part for scopes.

const MOST_LINKS = 60;

function showPanel() {
  const panel = byName('panel');
  const box = app.selected ? app.byId.get(app.selected) : null;
  const wasHidden = panel.hidden;
  panel.hidden = app.node < 0 && !box && !app.totals;
  if (panel.hidden) return;
  panel.replaceChildren(...(app.totals ? graphPanel() : app.node >= 0 ? nodePanel(app.node) : groupPanel(box)));
  panel.scrollTop = 0;
  // The panel takes width from the drawing: the selected box must not move below it.
  if (wasHidden && box && !overlap(boundsOf(box), shownPart(-0.02))) centreOn(box.id);
}

function panelTop(title) {
  return el('div', {class: 'top'}, el('h2', {}, title),
            el('button', {type: 'button', 'aria-label': 'Close details', onclick: clearSelection}, '\u00d7'));
}

/// A list of terms; rows without a value are left out.
function facts(rows) {
  const children = [];
  for (const [name, value] of rows) {
    if (value === '' || value === null || value === undefined) continue;
    children.push(el('dt', {}, name), el('dd', {}, value));
  }
  return el('dl', {}, ...children);
}

function nodeLink(id, text) {
  const m = app.tree.m;
  const types = nodeTypes(m, id).join(', ');
  const label = labelOf(m, id);
  return el('li', {}, el('button', {type: 'button', onclick: () => goToNode(id)},
                         el('span', {class: 'link'}, `${text}${id} ${m.ops[m.op[id]]}${label ? ` ${label}` : ''}`),
                         el('span', {class: 'count'}, shorten(types, 24))));
}

function linkList(title, ids, texts) {
  if (!ids.length) return [];
  const shown = ids.slice(0, MOST_LINKS).map((id, k) => nodeLink(id, texts ? texts[k] : ''));
  if (ids.length > MOST_LINKS) shown.push(el('li', {class: 'count'}, `and ${ids.length - MOST_LINKS} more`));
  return [el('h3', {}, `${title} (${ids.length})`), el('ul', {class: 'list'}, ...shown)];
}

function typeRows(m, id) {
  return nodeTypes(m, id).map((text, k) => {
    const match = /^([^[\]]+)(\[.*\])$/.exec(text);
    const value = match ? `${match[2]} of ${match[1]}` : text;
    return [m.results[id].length > 1 ? `result ${k}` : 'type', value];
  });
}

function flopsText(flops) {
  const units = ['', 'K', 'M', 'G', 'T', 'P'];
  let k = 0;
  for (; flops >= 1000 && k < units.length - 1; ++k) flops /= 1000;
  return `${Number(flops.toPrecision(3))} ${units[k]}FLOP`;
}

function costRows(d) {
  const known = (value) => typeof value === 'number' && Number.isFinite(value);
  const rows = [];
  if (known(d.bytes)) rows.push(['bytes', `${bytesText(d.bytes)} (${d.bytes.toLocaleString('en')})`]);
  if (known(d.flops)) rows.push(['FLOPs', `${d.at_most ? 'at most ' : ''}${flopsText(d.flops)}`]);
  if (known(d.flops) && known(d.bytes) && d.bytes > 0) {
    rows.push(['intensity', `${Number((d.flops / d.bytes).toPrecision(3))} FLOP per byte`]);
  }
  if (known(d.predicted_us)) rows.push(['predicted time', timeText(d.predicted_us)]);
  if (known(d.measured_us)) rows.push(['measured time', timeText(d.measured_us)]);
  if (known(d.predicted_us) && known(d.measured_us) && d.measured_us > 0) {
    rows.push(['of the roofline', `${Math.round(100 * d.predicted_us / d.measured_us)} %`]);
  }
  return rows;
}

/// Why the node is not in other kernels.
function whyRows(d) {
  const why = Array.isArray(d.why) ? d.why.filter((text) => typeof text === 'string') : [];
  if (!why.length) return [];
  return [el('h3', {}, 'Why not one kernel'), el('ul', {}, ...why.map((text) => el('li', {}, text)))];
}

/// The scope of a node, a link to its box.
function scopeLink(m, id) {
  const path = m.scopes[m.scope[id]];
  if (!path) return '';
  const box = app.view.boxOf[id] && app.view.boxOf[id].parent;
  if (!box || box.kind === 'lane') return path;
  return el('button', {type: 'button', onclick: () => { selectBox(box); centreOn(box.id); }}, path);
}

function nodesOfKernel(m, kernel, id) {
  const ids = Object.keys(m.details).map(Number);
  return ids.filter((other) => other !== id && m.details[other] && m.details[other].kernel === kernel);
}

function kernelSource(number, text) {
  return [el('h3', {}, `Kernel ${number}`), el('pre', {tabindex: 0, 'aria-label': 'Kernel source'}, text)];
}

function nodePanel(id) {
  const m = app.tree.m;
  const d = m.details[id] && typeof m.details[id] === 'object' ? m.details[id] : {};
  const text = (value) => (typeof value === 'string' ? value : '');
  const operands = [];
  const texts = [];
  for (let k = m.start[id]; k < m.start[id + 1]; ++k) {
    operands.push(m.from[k]);
    texts.push(m.results[m.from[k]].length > 1 ? `result ${m.result[k]} of ` : '');
  }
  const readers = Array.from(new Set(m.reader.slice(m.readStart[id], m.readStart[id + 1])));
  const uses = [];
  m.outputs.forEach((output, k) => { if (output[0] === id) uses.push(`output ${k}`); });
  m.writes.forEach((write) => { if (write[1][0] === id) uses.push(`written to ${write[0]}`); });
  const cost = costRows(d);
  const kernel = Number.isInteger(d.kernel) ? m.kernels[d.kernel] : null;
  return [
    panelTop(`${m.ops[m.op[id]]}${labelOf(m, id) ? ` ${labelOf(m, id)}` : ''}`),
    facts([
      ['node', String(id)],
      ...typeRows(m, id),
      ['name', labelOf(m, id)],
      ['class', CLASSES[m.cls[id]]],
      ['phase', PHASES[m.phase[id]]],
      ['placement', text(d.placement)],
      ['scope', scopeLink(m, id)],
      ['line', m.lines[m.line[id]]],
      ['attributes', text(d.attrs)],
      ['ops', text(d.ops)],
      ['used as', uses.join(', ')],
    ]),
    ...(cost.length ? [el('h3', {}, 'Cost'), facts(cost)] : []),
    ...whyRows(d),
    ...linkList('Operands', operands, texts),
    ...linkList('Readers', readers),
    ...(Number.isInteger(d.kernel) ? linkList('Other nodes of this kernel', nodesOfKernel(m, d.kernel, id)) : []),
    ...(typeof kernel === 'string' ? kernelSource(d.kernel, kernel) : []),
  ];
}
