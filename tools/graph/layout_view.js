// The drawing as plain data: visible boxes with coordinates and the lines between them. Pure functions: no DOM.
//
// layoutView(tree, options) guarantees: boxes beside each other do not overlap, a box is inside its parent, and lines
// that are not marked `back` go in the direction of their lane (down; up in the backward lane if options.mirror).

const HEADER = 22;        // height of the title of an open box
const PAD = 12;
const ROW_GAP = 26;
const LANE_GAP = 90;
const LANE_HEADER = 30;
const CHIP_HEIGHT = 15;
const MOST_CHIPS = 4;
const CHAR = 6.6;         // width of a character of 11 px monospace text
const SMALL_CHAR = 6.05;  // width of a character of 10 px text
const MOST_CHARS = 26;

function shorten(text, most) {
  return text.length <= most ? text : text.slice(0, most - 1) + '\u2026';
}

function countText(count, one) {
  return `${count.toLocaleString('en')} ${one}${count === 1 ? '' : 's'}`;
}

/// Name of an item below the path of the box that contains it.
function itemTitle(item, parentPath) {
  const below = (path) => (parentPath && path.startsWith(`${parentPath}.`) ? path.slice(parentPath.length + 1) : path);
  if (item.kind === 'run') return item.text;
  if (item.kind !== 'fold') return below(item.path);
  return `${below(item.first)} to ${below(item.last)} (${item.members.length} equal)`;
}

function nodeTitle(m, id) {
  const label = labelOf(m, id);
  const op = m.ops[m.op[id]];
  return label && m.start[id] === m.start[id + 1] ? `${op} ${label.slice(label.lastIndexOf('.') + 1)}` : op;
}

function chipTitle(m, id) {
  const label = labelOf(m, id);
  if (label) return shorten(label.slice(label.lastIndexOf('.') + 1), 12);
  const d = m.details[id];
  const value = d && typeof d.attrs === 'string' ? /\bvalue=([^,]+)/.exec(d.attrs) : null;
  return shorten(value ? value[1] : m.ops[m.op[id]], 12);
}

function nodeBox(view, id, parent) {
  const m = view.tree.m;
  const chips = view.chips.get(id) || [];
  const types = nodeTypes(m, id);
  const box = {id: `n${id}`, kind: 'node', node: id, item: id, parent, lane: parent.lane, open: false, children: [],
               chips, title: shorten(nodeTitle(m, id), MOST_CHARS)};
  box.sub = shorten(types.length > 1 ? `${types[0]}, \u2026` : types[0] || '', MOST_CHARS);
  const shown = Math.min(chips.length, MOST_CHIPS);
  const names = chips.slice(0, shown).map((chip) => chipTitle(m, chip).length);
  box.chipWidth = shown ? Math.max(...names, 3) * SMALL_CHAR + 10 : 0;
  box.mainWidth = Math.max(56, box.title.length * CHAR, box.sub.length * SMALL_CHAR) + 14;
  const rows = shown + (chips.length > shown ? 1 : 0);
  box.w = box.chipWidth + box.mainWidth;
  box.h = Math.max(34, rows * CHIP_HEIGHT + 2);
  box.port = box.chipWidth + box.mainWidth / 2;
  return box;
}

function groupBox(view, item, parent) {
  const id = item.kind === 'fold' ? `f${item.id}` : `g${item.id}`;
  const parentPath = parent ? contentOf(parent.item).path : '';
  const box = {id, kind: item.kind, item, parent, lane: item.lane, open: item.open, children: [],
               title: itemTitle(item, parentPath.replace(/#.*/, ''))};
  if (item.kind === 'fold' && item.open) box.title += `; shown: ${contentOf(item).path}`;
  const parts = [countText(item.all.length, 'node')];
  if (item.us >= 0) parts.push(timeText(item.us));
  if (item.bytes >= 0) parts.push(bytesText(item.bytes));
  box.sub = parts.join(' \u00b7 ');
  box.headWidth = box.title.length * CHAR + 30;
  box.w = Math.max(110, (box.title.length + 2) * CHAR, box.sub.length * SMALL_CHAR) + 18;
  box.h = 46;
  box.port = box.w / 2;
  return box;
}

function timeText(us) {
  const [value, unit] = us < 1e3 ? [us, '\u00b5s'] : us < 1e6 ? [us / 1e3, 'ms'] : [us / 1e6, 's'];
  return `${Number(value.toPrecision(3))} ${unit}`;
}

function bytesText(bytes) {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let k = 0;
  for (; bytes >= 999.5 && k < units.length - 1; ++k) bytes /= 1000;
  return `${Number(bytes.toPrecision(3))} ${units[k]}`;
}

/// Makes the visible boxes below `box` and sets for each node the visible box that stands for it. Hidden members of an
/// open fold equal the shown member and share its boxes; `folded` contains the member of each node.
function addBoxes(view, box, content, folded) {
  for (const item of shownItems(content.items)) {
    if (typeof item === 'number') {
      const child = nodeBox(view, item, box);
      box.children.push(child);
      view.boxOf[item] = child;
      if (folded) view.folded[item] = folded;
      for (const chip of child.chips) {
        view.boxOf[chip] = child;
        if (folded) view.folded[chip] = folded;
      }
      continue;
    }
    const child = groupBox(view, item, box);
    box.children.push(child);
    if (!item.open) {
      for (const id of item.all) {
        view.boxOf[id] = child;
        if (folded) view.folded[id] = folded;
      }
      continue;
    }
    if (item.kind !== 'fold') {
      addBoxes(view, child, item, folded);
      continue;
    }
    const shown = contentOf(item);
    addBoxes(view, child, shown, {fold: item, member: item.shown, outer: folded});
    item.members.forEach((member, k) => {
      if (k === item.shown) return;
      const mine = {fold: item, member: k, outer: folded};
      member.all.forEach((id, i) => {
        view.boxOf[id] = view.boxOf[shown.all[i]];
        view.folded[id] = mine;
      });
    });
  }
}

/// True for an edge inside an open fold if the drawing shows it for the shown member, or if the edge connects two
/// members.
function hiddenByFold(a, b) {
  for (let x = a; x; x = x.outer) {
    for (let y = b; y; y = y.outer) {
      if (x.fold === y.fold) return x.member !== y.member || x.member !== x.fold.shown;
    }
  }
  return false;
}

/// Lines between visible boxes: one for each pair, with the number of values.
function collectEdges(view) {
  const m = view.tree.m;
  const byPair = new Map();
  view.all.forEach((box, i) => { box.number = i; });
  for (let id = 0; id < m.n; ++id) {
    const to = view.boxOf[id];
    if (!to) continue;
    for (let k = m.start[id]; k < m.start[id + 1]; ++k) {
      const source = m.from[k];
      const from = view.boxOf[source];
      if (!from || from === to) continue;
      if (view.folded[source] && view.folded[id] && hiddenByFold(view.folded[source], view.folded[id])) continue;
      const key = from.number * view.all.length + to.number;
      const edge = byPair.get(key);
      if (edge) ++edge.count;
      else byPair.set(key, {from, to, count: 1, cross: from.lane !== to.lane, back: false, path: ''});
    }
  }
  return Array.from(byPair.values());
}

/// The box that contains both ends, and its children around the ends.
function meeting(edge) {
  const above = [];
  for (let box = edge.from; box; box = box.parent) above.push(box);
  let to = edge.to;
  while (to.parent && !above.includes(to.parent)) to = to.parent;
  const at = to.parent;
  return {at, from: above[above.indexOf(at) - 1], to};
}

/// For each open box, the nets that its layout must connect. A line to another box leaves its parents one by one.
function collectNets(view) {
  const pairsAt = new Map();
  const inner = view.edges.filter((edge) => !edge.cross);
  for (const edge of inner) {
    edge.meet = meeting(edge);
    if (!pairsAt.has(edge.meet.at)) pairsAt.set(edge.meet.at, []);
    pairsAt.get(edge.meet.at).push(edge);
  }
  for (const box of view.open) {
    box.nets = new Map();
    box.children.forEach((child, i) => { child.index = i; });
  }
  for (const [box, edges] of pairsAt) {
    const back = backEdges(box.children.length, edges.map((edge) => [edge.meet.from.index, edge.meet.to.index]));
    edges.forEach((edge, k) => { edge.back = back[k]; });
  }
  const net = (box, key, from) => {
    if (!box.nets.has(key)) box.nets.set(key, {key, from, to: new Set(), out: false});
    return box.nets.get(key);
  };
  for (const edge of inner) {
    if (edge.back) continue;
    const key = edge.from.id;
    let child = edge.from;
    for (; child.parent !== edge.meet.at; child = child.parent) net(child.parent, key, child.index).out = true;
    net(edge.meet.at, key, child.index).to.add(edge.meet.to.index);
    for (child = edge.to; child.parent !== edge.meet.at; child = child.parent) {
      net(child.parent, key, -1).to.add(child.index);
    }
  }
}

/// Scopes of the update lane are independent: in one column they can have the heights of the forward lane.
function inColumn(box) {
  if (box.lane !== 2) return false;
  const scopes = box.children.filter((child) => child.kind === 'group' || child.kind === 'fold');
  const known = scopes.filter((child) => box.forward.has(child.item.path));
  return scopes.length === box.children.length && known.length * 2 >= scopes.length;
}

/// Rows and x coordinates inside an open box; its children must have theirs.
function arrangeBox(box) {
  const items = box.children.map((child) => ({
    w: child.w,
    enters: (key) => portOf(child, key, true),
    leaves: (key) => portOf(child, key, false),
  }));
  box.list = Array.from(box.nets.values(), (one) => ({...one, to: Array.from(one.to)}));
  box.plan = arrange(items, box.list, inColumn(box) ? 1 : 0);
  box.netIndex = new Map(box.list.map((one, k) => [one.key, k]));
  const inside = box.plan.width + 2 * PAD;
  box.w = Math.max(inside, box.headWidth || 0);
  box.port = box.w / 2;
  box.shift = (box.w - box.plan.width) / 2;
}

/// x offset at which the net of a box meets this box: an open box passes it on, a closed one joins all in the middle.
function portOf(box, key, entering) {
  if (!box.open) return box.port;
  const k = box.netIndex.get(key);
  const trunk = k === undefined ? null : box.plan.trunks[k];
  const slot = trunk && trunk.get(entering ? 0 : box.plan.rows - 1);
  return slot ? box.shift + slot.x : box.port;
}

/// Rows of a box from top to bottom of the drawing.
function visualRow(box, row) {
  return box.upward ? box.plan.rows - 1 - row : row;
}

function rowHeights(box) {
  const heights = new Array(box.plan.rows).fill(0);
  box.children.forEach((child, i) => {
    const at = visualRow(box, box.plan.row[i]);
    heights[at] = Math.max(heights[at], child.h);
  });
  const gaps = [];
  for (let at = 0; at + 1 < box.plan.rows; ++at) {
    const links = box.plan.linksAfter[box.upward ? box.plan.rows - 2 - at : at];
    const edge = at === 0 || at + 2 === box.plan.rows;
    gaps.push(edge ? PAD : ROW_GAP + Math.min(40, links));
  }
  return {heights, gaps};
}

/// Paths of the scopes that a box represents, below the scope of its parent box: fold members with different layers
/// have equal paths.
function innerPaths(box) {
  if (box.kind === 'node' || box.kind === 'run') return [];
  const members = box.kind === 'fold' ? box.item.members : [box.item];
  const outer = contentOf(box.parent.item).path.replace(/#.*/, '').length;
  return members.map((member) => member.path.slice(outer));
}

/// Pairs of children, one of each box, that show the same scope.
function matching(left, right) {
  const byPath = new Map();
  for (const child of left.children) {
    for (const path of innerPaths(child)) byPath.set(path, child);
  }
  const pairs = [];
  for (const child of right.children) {
    const path = innerPaths(child).find((one) => byPath.has(one));
    if (path !== undefined) pairs.push([byPath.get(path), child]);
  }
  return pairs;
}

/// The largest set of pairs of rows that increases on both sides.
function increasing(pairs) {
  pairs.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const best = pairs.map(() => 1);
  const before = pairs.map(() => -1);
  let end = -1;
  pairs.forEach((pair, i) => {
    for (let k = 0; k < i; ++k) {
      if (pairs[k][0] < pair[0] && pairs[k][1] < pair[1] && best[k] + 1 > best[i]) {
        best[i] = best[k] + 1;
        before[i] = k;
      }
    }
    if (end < 0 || best[i] > best[end]) end = i;
  });
  const chosen = [];
  for (; end >= 0; end = before[end]) chosen.push(pairs[end]);
  return chosen.reverse();
}

/// Heights and y of rows of two boxes beside each other, so that equal scopes have equal y. `right` may be null. The
/// rows of `guide` are fixed: rows of `left` move down to them if possible.
function measure(left, right, guide) {
  const sides = right ? [left, right] : [left];
  const pairs = right ? matching(left, right) : [];
  const guided = guide ? matching(guide, left) : [];
  const paired = new Set();
  for (const [a, b] of pairs) {
    if (!a.open || !b.open || paired.has(a) || paired.has(b)) continue;
    measure(a, b);
    paired.add(a);
    paired.add(b);
  }
  for (const side of sides) {
    for (const child of side.children) {
      if (!child.open || paired.has(child)) continue;
      const above = guided.find((pair) => pair[1] === child && pair[0].open);
      measure(child, null, above ? above[0] : null);
    }
  }
  const shape = sides.map(rowHeights);
  const rowOf = (box) => visualRow(box.parent, box.parent.plan.row[box.index]);
  const found = increasing(pairs.map(([a, b]) => [rowOf(a), rowOf(b)]));
  // Lanes with opposite orders have few common rows; to align these would only add empty space.
  const anchors = found.length * 2 > pairs.length ? found : [];
  for (const [a, b] of anchors) {
    shape[0].heights[a] = shape[1].heights[b] = Math.max(shape[0].heights[a], shape[1].heights[b]);
  }
  const tops = sides.map(() => []);
  const next = sides.map(() => 0);
  const y = sides.map((box) => (box.kind === 'lane' ? LANE_HEADER : HEADER));
  const advance = (s, until) => {
    for (; next[s] < until; ++next[s]) {
      tops[s][next[s]] = y[s];
      y[s] += shape[s].heights[next[s]] + (shape[s].gaps[next[s]] || 0);
    }
  };
  for (const anchor of anchors) {
    sides.forEach((_, s) => advance(s, anchor[s]));
    y.fill(Math.max(...y));
  }
  for (const [g, at] of increasing(guided.map(([a, b]) => [rowOf(a), rowOf(b)]))) {
    advance(0, at);
    y[0] = Math.max(y[0], guide.rowTop[g] + (guide.rowHeight[g] - shape[0].heights[at]) / 2);
  }
  sides.forEach((box, s) => {
    advance(s, box.plan.rows);
    box.rowTop = tops[s];
    box.rowHeight = shape[s].heights;
  });
  sides.forEach((box, s) => { box.h = anchors.length ? Math.max(...y) : y[s]; });
}

/// Absolute coordinates.
function place(box, x, y) {
  box.x = x;
  box.y = y;
  if (!box.open) return;
  box.children.forEach((child, i) => {
    const at = visualRow(box, box.plan.row[i]);
    place(child, x + box.shift + box.plan.x[i], y + box.rowTop[at] + (box.rowHeight[at] - child.h) / 2);
  });
}

/// Vertical pieces [x, y first, y last] of a net through the rows first .. end - 1 of an open box.
function passages(box, key, first, end, out) {
  const trunk = box.plan.trunks[box.netIndex.get(key)];
  if (!trunk) return;
  for (let r = first; r < end; ++r) {
    const slot = trunk.get(r);
    if (!slot) continue;
    const at = visualRow(box, r);
    let top = box.y + box.rowTop[at];
    let bottom = top + box.rowHeight[at];
    // The first and the last row reach to the border of the box.
    if (at === 0) top = box.y;
    if (at === box.plan.rows - 1) bottom = box.y + box.h;
    out.push(box.upward ? [box.x + box.shift + slot.x, bottom, top] : [box.x + box.shift + slot.x, top, bottom]);
  }
}

/// The vertical piece of a line between a box and the border of its row. Curves are then only between rows, where no
/// box is.
function besideBox(box, key, entering) {
  const {parent, upward} = box;
  const at = visualRow(parent, parent.plan.row[box.index]);
  const rowTop = parent.y + parent.rowTop[at];
  const x = box.x + portOf(box, key, entering);
  const below = entering === upward;
  const border = below ? box.y + box.h : box.y;
  const rowBorder = below ? rowTop + parent.rowHeight[at] : rowTop;
  return entering ? [x, rowBorder, border] : [x, border, rowBorder];
}

function routeInner(edge) {
  const {from, to, meet} = edge;
  const key = from.id;
  const points = [besideBox(from, key, false)];
  let child = from;
  for (; child.parent !== meet.at; child = child.parent) {
    passages(child.parent, key, child.parent.plan.row[child.index] + 1, child.parent.plan.rows, points);
    points.push(besideBox(child.parent, key, false));
  }
  const rows = meet.at.plan.row;
  passages(meet.at, key, rows[child.index] + 1, rows[meet.to.index], points);
  const down = [];
  for (child = to; child.parent !== meet.at; child = child.parent) down.push(child);
  points.push(besideBox(meet.to, key, true));
  for (const one of down.reverse()) {
    passages(one.parent, key, 0, one.parent.plan.row[one.index], points);
    points.push(besideBox(one, key, true));
  }
  return points;
}

const round = (value) => Math.round(value * 10) / 10;

function curve(points) {
  let path = `M${round(points[0][0])} ${round(points[0][1])}`;
  for (let k = 0; k < points.length; ++k) {
    const [x, first, last] = points[k];
    if (k) {
      const [beforeX, , beforeY] = points[k - 1];
      const mid = (beforeY + first) / 2;
      path += Math.abs(beforeX - x) < 0.5 ? `V${round(first)}`
        : `C${round(beforeX)} ${round(mid)} ${round(x)} ${round(mid)} ${round(x)} ${round(first)}`;
    }
    if (last !== first) path += `V${round(last)}`;
  }
  return path;
}

function sideways(a, ya, b, yb) {
  const mid = (a + b) / 2;
  return `M${round(a)} ${round(ya)}C${round(mid)} ${round(ya)} ${round(mid)} ${round(yb)} ${round(b)} ${round(yb)}`;
}

function route(edge) {
  const {from, to} = edge;
  if (edge.cross || edge.back) {
    const rightward = edge.cross ? from.x < to.x : true;
    const a = rightward ? from.x + from.w : from.x;
    const b = edge.cross ? (rightward ? to.x : to.x + to.w) : to.x + to.w;
    const [ya, yb] = [from.y + from.h / 2, to.y + to.h / 2];
    if (edge.cross) {
      edge.path = sideways(a, ya, b, yb);
    } else {
      const far = round(Math.max(a, b) + 30);
      edge.path = `M${round(a)} ${round(ya)}C${far} ${round(ya)} ${far} ${round(yb)} ${round(b)} ${round(yb)}`;
    }
    edge.bounds = [Math.min(a, b), Math.min(ya, yb), Math.max(a, b) + 30, Math.max(ya, yb)];
    return;
  }
  edge.points = routeInner(edge);
  edge.path = curve(edge.points);
  const xs = edge.points.map((p) => p[0]);
  const ys = edge.points.flatMap((p) => [p[1], p[2]]);
  edge.bounds = [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
}

/// options.mirror: the backward lane goes up, so that the boxes of a scope can have the same height in both lanes.
function layoutView(tree, options) {
  const view = {tree, boxOf: new Array(tree.m.n), folded: new Array(tree.m.n), chips: new Map(), all: [], open: []};
  tree.host.forEach((at, id) => {
    if (at === id) return;
    if (!view.chips.has(at)) view.chips.set(at, []);
    view.chips.get(at).push(id);
  });
  view.lanes = tree.lanes.filter((lane) => lane).map((lane) => {
    const box = groupBox(view, lane, null);
    box.title = PHASES[lane.lane];
    box.headWidth = (box.title.length + box.sub.length + 4) * 8.5;
    addBoxes(view, box, lane, null);
    return box;
  });
  const collect = (box, upward) => {
    box.upward = upward;
    if (box.kind !== 'lane') view.all.push(box);
    if (box.open) view.open.push(box);
    box.children.forEach((child) => collect(child, upward));
  };
  view.lanes.forEach((lane) => collect(lane, options.mirror && lane.lane === 1));
  const forward = new Set(tree.groups.filter((group) => group.lane === 0).map((group) => group.path));
  for (const box of view.open) box.forward = forward;
  view.edges = collectEdges(view);
  collectNets(view);
  for (let k = view.open.length - 1; k >= 0; --k) arrangeBox(view.open[k]);
  const lane = (k) => view.lanes.find((one) => one.lane === k) || null;
  if (lane(0) && lane(1)) measure(lane(0), lane(1));
  view.lanes.forEach((box) => { if (box.rowTop === undefined) measure(box, null, box.lane ? lane(0) : null); });
  let x = 0;
  for (const box of view.lanes) {
    place(box, x, 0);
    x += box.w + LANE_GAP;
  }
  view.edges.forEach(route);
  view.width = Math.max(0, x - LANE_GAP);
  view.height = Math.max(0, ...view.lanes.map((box) => box.h));
  return view;
}
