// Search by op, name, line, type and scope.

const MOST_ROWS = 40;
const search = {query: '', nodes: [], at: -1, entry: null};

function connectSearch() {
  const input = byName('search');
  let timer = 0;
  input.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => runSearch(input.value), 120);
  });
  input.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter') return;
    clearTimeout(timer);
    if (input.value.trim() !== search.query) runSearch(input.value);
    step(event.shiftKey ? -1 : 1);
  });
  byName('search-form').addEventListener('submit', (event) => event.preventDefault());
}

/// A function that tests whether a text contains the query. `*` in the query stands for a number.
function matcher(query) {
  if (!/[.]\*|\*[.]/.test(query)) return (text) => text.toLowerCase().includes(query);
  const parts = query.split('*').map((part) => part.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'));
  const pattern = new RegExp(parts.join('\\d+'), 'i');
  return (text) => pattern.test(text);
}

/// A name with `*` for its numbers: the names of 80 layers are one entry.
function family(name) {
  return name.replace(/(^|\.)\d+(?=\.|$)/g, '$1*');
}

/// Entries {kind, text, nodes} of one table of the graph whose text matches.
function entriesOf(m, kind, names, table, matches) {
  const found = new Map();
  const families = new Map();
  names.forEach((name, k) => {
    if (!name || !matches(name)) return;
    const text = kind === 'scope' ? family(name) : name;
    if (!families.has(text)) families.set(text, {kind, text, nodes: []});
    found.set(k, families.get(text));
  });
  if (!found.size) return [];
  for (let id = 0; id < m.n; ++id) {
    const entry = found.get(table[id]);
    if (entry) entry.nodes.push(id);
  }
  return Array.from(families.values());
}

function findEntries(m, query) {
  const matches = matcher(query);
  const entries = [
    ...entriesOf(m, 'op', m.ops, m.op, matches),
    ...entriesOf(m, 'line', m.lines, m.line, matches),
    ...entriesOf(m, 'scope', m.scopes, m.scope, matches),
  ];
  const names = new Map();
  for (const [key, label] of Object.entries(m.labels)) {
    const id = Number(key);
    if (typeof label !== 'string' || !matches(label) || !isIndex(id, m.n)) continue;
    const text = family(label);
    if (!names.has(text)) names.set(text, {kind: 'name', text, nodes: []});
    names.get(text).nodes.push(id);
  }
  entries.push(...names.values());
  const types = new Map();
  m.typeNames.forEach((name, k) => {
    if (matches(name)) types.set(k, {kind: 'type', text: name, nodes: []});
  });
  if (types.size) {
    for (let id = 0; id < m.n; ++id) {
      for (const type of new Set(m.results[id])) {
        if (types.has(type)) types.get(type).nodes.push(id);
      }
    }
  }
  entries.push(...types.values());
  return entries.filter((entry) => entry.nodes.length);
}

/// Also used by links: puts a text into the field and searches for it.
function searchFor(text) {
  byName('search').value = text;
  runSearch(text);
}

function repeatSearch() {
  if (search.query) runSearch(search.query);
}

function runSearch(text) {
  search.query = text.trim();
  const query = search.query.toLowerCase();
  if (!query || !app.tree) {
    closeSearch();
    return;
  }
  const entries = findEntries(app.tree.m, query);
  const kinds = ['op', 'name', 'line', 'type', 'scope'];
  // An exact hit first, then by kind, then the largest.
  entries.sort((a, b) => (b.text.toLowerCase() === query) - (a.text.toLowerCase() === query)
    || kinds.indexOf(a.kind) - kinds.indexOf(b.kind) || b.nodes.length - a.nodes.length);
  const all = new Set();
  for (const entry of entries) entry.nodes.forEach((id) => all.add(id));
  choose(Array.from(all).sort((a, b) => a - b));
  const list = byName('matches');
  const rows = entries.slice(0, MOST_ROWS).map(entryRow);
  search.entry = null;
  const more = entries.length - MOST_ROWS;
  if (more > 0) rows.push(el('li', {class: 'count'}, `and ${more} more entries`));
  list.replaceChildren(el('ul', {class: 'list'}, ...rows));
  list.hidden = !rows.length;
}

/// A row of the list. The first click makes the nodes of the entry the matches; each click selects the next match.
function entryRow(entry) {
  const onclick = (event) => {
    for (const other of byName('matches').querySelectorAll('[aria-current]')) other.removeAttribute('aria-current');
    event.currentTarget.setAttribute('aria-current', 'true');
    if (search.entry !== entry) choose(entry.nodes);
    search.entry = entry;
    step(1);
  };
  return el('li', {}, el('button', {type: 'button', onclick},
                         el('span', {}, el('span', {class: 'count'}, `${entry.kind} `), entry.text),
                         el('span', {class: 'count'}, entry.nodes.length.toLocaleString('en'))));
}

/// Makes these nodes the matches; Enter selects one after another.
function choose(nodes) {
  search.nodes = nodes;
  search.at = -1;
  app.matches = nodes.length ? new Set(nodes) : null;
  byName('search-count').textContent = nodes.length ? countText(nodes.length, 'node') : 'no match';
  draw();
}

function step(by) {
  const count = search.nodes.length;
  if (!count) return;
  search.at = search.at < 0 && by < 0 ? count - 1 : (search.at + by + count) % count;
  byName('search-count').textContent = `${search.at + 1} of ${countText(count, 'node')}`;
  goToNode(search.nodes[search.at]);
}

function closeSearch() {
  search.query = '';
  search.nodes = [];
  app.matches = null;
  byName('search').value = '';
  byName('search-count').textContent = '';
  byName('matches').hidden = true;
  byName('search').blur();
  draw();
}
