// State of the page and its changes. The other page_*.js files draw it and read the user's input.

const app = {
  file: null, trees: [], tree: null, view: null, byId: new Map(),
  graph: -1,          // -1 until the file is read
  selected: null,     // id of a box, or null
  node: -1,           // selected node, or -1
  totals: false,      // the panel shows the totals of the graph
  color: 'class', mirror: true,
  matches: null,      // Set of nodes that the search found, or null
  x: 0, y: 0, scale: 1,
};

async function readData() {
  let json;
  try {
    json = await unpackData();
  } catch (error) {
    throw new DataError(error.message);
  }
  return readFile(json);
}

async function start() {
  readHash();
  try {
    app.file = await readData();
    document.title = app.file.title;
    byName('title').textContent = app.file.title;
    byName('title').title = app.file.title;
    const choice = byName('graph');
    app.file.names.forEach((name, i) => choice.append(el('option', {value: i}, name)));
    byName('graph-choice').hidden = app.file.names.length < 2;
    app.graph = graphToShow();
    connectInput();
    connectSearch();
    const node = app.node;
    openGraph(app.graph);
    if (app.tree && node >= 0) goToNode(node);
    if (app.tree && app.query) searchFor(app.query);
    document.documentElement.dataset.ready = Math.round(performance.now());
  } catch (error) {
    showMessage(error instanceof DataError ? error.message : `The page failed: ${error.message}`);
  }
}

/// The graph of a page without a choice in its address: the joint graph, in a dump the last one (05_joint_cse).
function firstGraph() {
  return Math.max(0, app.file.names.findLastIndex((name) => /^(\d+_)?joint(_|$)/.test(name)));
}

/// The graph that the address chooses.
function graphToShow() {
  return app.graph < 0 ? firstGraph() : Math.min(app.graph, app.file.names.length - 1);
}

/// Shows another graph of the file.
function openGraph(index) {
  app.graph = index;
  byName('graph').value = index;
  showMessage('');
  try {
    if (!app.trees[index]) {
      const tree = buildTree(readGraph(app.file.graphs[index], app.file.names[index]));
      openAtStart(tree);
      app.trees[index] = tree;
    }
  } catch (error) {
    app.tree = app.view = null;
    clearStage();
    showMessage(error instanceof DataError ? error.message : `The page failed: ${error.message}`);
    return;
  }
  app.tree = app.trees[index];
  app.selected = null;
  app.node = -1;
  byName('note').textContent = byName('note').title = app.tree.m.note;
  relayout();
  showStart();
  showPanel();
  repeatSearch();
  if (!app.tree.m.n) showMessage('This graph has no nodes.');
}

/// Computes the drawing again. The box `keep` stays where it is on the screen.
function relayout(keep) {
  const before = keep && app.byId.get(keep);
  app.view = layoutView(app.tree, {mirror: app.mirror});
  app.byId = new Map(app.view.all.map((box) => [box.id, box]));
  const after = keep && app.byId.get(keep);
  if (before && after) {
    app.x += (before.x - after.x) * app.scale;
    app.y += (before.y - after.y) * app.scale;
  }
  if (app.node >= 0) {
    const box = app.view.boxOf[app.node];
    app.selected = box ? box.id : null;
  }
  draw();
}

function toggleBox(box) {
  if (box.kind === 'node') {
    selectNode(box.node);
    return;
  }
  box.item.open = !box.item.open;
  relayout(box.id);
  focusBox(box.id);
}

/// Unfolds the fold of a box, or folds the scopes that equal the box.
function toggleFold(box) {
  for (let at = box; at; at = at.parent) {
    const item = at.item;
    const fold = item && item.kind === 'fold' ? item : item && item.fold;
    if (!fold) continue;
    const unfolded = !fold.unfolded;
    for (const one of sameScopes(app.tree, fold)) {
      one.unfolded = unfolded;
      if (unfolded) one.members.forEach((member) => { member.open = false; });
    }
    const shown = fold.unfolded ? `g${fold.members[fold.shown].id}` : `f${fold.id}`;
    app.node = -1;
    app.selected = shown;
    relayout(null);
    centreOn(shown);
    focusBox(shown);
    showPanel();
    return;
  }
}

/// Shows another member of an open fold.
function chooseMember(fold, index) {
  showMember(app.tree, fold, index);
  relayout(`f${fold.id}`);
  showPanel();
}

/// Closes the scope around a box.
function closeAround(box) {
  const at = box.open && box.kind !== 'lane' ? box : box.parent;
  if (!at || at.kind === 'lane') return;
  at.item.open = false;
  app.node = -1;
  app.selected = at.id;
  relayout(at.id);
  focusBox(at.id);
  showPanel();
}

function selectNode(id) {
  app.node = id;
  app.totals = false;
  const box = app.view.boxOf[id];
  app.selected = box ? box.id : null;
  writeHash();
  draw();
  showPanel();
}

function selectBox(box) {
  app.node = -1;
  app.totals = false;
  app.selected = box.id;
  writeHash();
  draw();
  showPanel();
}

function clearSelection() {
  app.node = -1;
  app.selected = null;
  app.totals = false;
  writeHash();
  draw();
  showPanel();
}

function toggleTotals() {
  const show = !app.totals;
  clearSelection();
  app.totals = show;
  showPanel();
}

/// Opens the scopes around a node, selects it and moves it to the centre.
function goToNode(id) {
  if (!(id >= 0 && id < app.tree.m.n)) return;
  reveal(app.tree, id);
  app.node = id;
  app.totals = false;
  relayout();
  showPanel();
  if (app.selected) centreOn(app.selected, true);
  writeHash();
}

function readHash() {
  const given = new URLSearchParams(location.hash.slice(1));
  const number = (key) => (/^\d+$/.test(given.get(key) || '') ? Number(given.get(key)) : -1);
  app.node = number('node');
  app.graph = number('graph');
  if (['class', 'time', 'bytes', 'phase'].includes(given.get('color'))) app.color = given.get('color');
  if (['light', 'dark'].includes(given.get('theme'))) setTheme(given.get('theme'));
  else setTheme(matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
  app.query = given.get('search') || '';
}

function writeHash() {
  const given = new URLSearchParams(location.hash.slice(1));
  given.delete('search');
  if (app.node >= 0) given.set('node', app.node);
  else given.delete('node');
  if (app.graph !== firstGraph()) given.set('graph', app.graph);
  else given.delete('graph');
  // replaceState: otherwise each click would be an entry of the history.
  history.replaceState(null, '', `#${given}`);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

document.addEventListener('DOMContentLoaded', start);
window.addEventListener('hashchange', () => {
  const graph = app.graph;
  readHash();
  if (!app.file) return;
  app.graph = graphToShow();
  const node = app.node;
  if (app.graph !== graph) openGraph(app.graph);
  if (node >= 0 && app.tree) goToNode(node);
});
