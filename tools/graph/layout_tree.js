// The tree of scopes of each lane (forward, backward, update): the boxes, the groups of equal boxes, and the boxes that
// are open at the start. Pure functions and plain objects without DOM.
//
// An item is a node (its number), a group or a fold. A group is a scope or, where a scope has too many nodes of its
// own, a run of consecutive nodes. A fold stands for groups that are equal up to a number in their name.

const VIEW_OPS = new Set(['reshape', 'permute', 'broadcast', 'slice', 'window', 'view', 'transpose', 'squeeze']);
const MOST_NODES = 60;   // nodes of a scope without runs
const SHORT_RUN = 50;
const RUN = 200;
const RUN_OF_RUNS = 2000;
const MOST_RUNS = 50;
const MOST_ITEMS = 150;  // items of a scope without runs, including scopes
const MOST_AT_START = 60;

/// Lane and scope in which each node is drawn, usually the node's own. A constant or cell that its lane does not read
/// is drawn at its first reader, and a constant or cell without a scope in the scope of its first reader. Otherwise the
/// state of the optimiser would fill the forward lane.
function drawnPlaces(m) {
  const lane = Int32Array.from(m.phase);
  const scope = Int32Array.from(m.scope);
  for (let id = 0; id < m.n; ++id) {
    if (m.start[id] < m.start[id + 1] || m.ops[m.op[id]] === 'input') continue;
    let first = -1;
    for (let k = m.readStart[id]; k < m.readStart[id + 1]; ++k) {
      const reader = m.reader[k];
      if (first < 0) first = reader;
      if (m.phase[reader] !== m.phase[id]) continue;
      first = reader;
      break;
    }
    if (first < 0) continue;
    lane[id] = m.phase[first];
    if (!m.scopes[m.scope[id]]) scope[id] = m.scope[first];
  }
  return {lane, scope};
}

/// For each node: the node at which it is drawn, itself or, for a chip, its only reader in the lane. Chips are
/// constants, cells and views.
function chipHosts(m, place) {
  const host = new Int32Array(m.n);
  const isOutput = new Uint8Array(m.n);
  for (const [id] of m.outputs) isOutput[id] = 1;
  const isView = m.ops.map((op) => VIEW_OPS.has(op));
  const isInput = m.ops.map((op) => op === 'input');
  for (let id = m.n - 1; id >= 0; --id) {
    host[id] = id;
    const operands = m.start[id + 1] - m.start[id];
    const leaf = operands === 0;
    if (isOutput[id] || !(leaf || (isView[m.op[id]] && operands === 1))) continue;
    let only = -1;
    let several = false;
    for (let k = m.readStart[id]; k < m.readStart[id + 1]; ++k) {
      const reader = m.reader[k];
      if (place.lane[reader] !== place.lane[id]) continue;
      if (only >= 0 && only !== reader) several = true;
      only = reader;
    }
    if (only < 0 || several) continue;
    const at = host[only];
    const anywhere = leaf && !isInput[m.op[id]];
    if (anywhere || place.scope[id] === place.scope[at]) host[id] = at;
  }
  return host;
}

function newGroup(tree, kind, lane, path) {
  const group = {kind, id: tree.groups.length, lane, path, groups: [], own: [], nodes: [], all: [], items: [],
                 open: false, us: NaN, bytes: NaN, classes: null, text: ''};
  tree.groups.push(group);
  return group;
}

/// The lanes with their groups, folds and totals.
function buildTree(m) {
  const drawn = drawnPlaces(m);
  const tree = {m, groups: [], folds: [], host: chipHosts(m, drawn), drawn, lanes: []};
  const known = new Map();
  const groupAt = (lane, path) => {
    const key = lane + path;
    let group = known.get(key);
    if (group) return group;
    group = newGroup(tree, path ? 'group' : 'lane', lane, path);
    known.set(key, group);
    if (path) {
      const dot = path.lastIndexOf('.');
      groupAt(lane, dot < 0 ? '' : path.slice(0, dot)).groups.push(group);
    } else {
      group.open = true;
      tree.lanes[lane] = group;
    }
    return group;
  };
  const cache = PHASES.map(() => new Array(m.scopes.length));
  for (let id = 0; id < m.n; ++id) {
    const at = tree.host[id];
    const lane = drawn.lane[at];
    const scope = drawn.scope[at];
    const group = cache[lane][scope] || (cache[lane][scope] = groupAt(lane, m.scopes[scope]));
    group.own.push(id);
    if (at === id) group.nodes.push(id);
  }
  tree.lanes = PHASES.map((_, lane) => tree.lanes[lane] || null);
  for (const lane of tree.lanes) {
    if (lane) finishGroup(tree, lane);
  }
  // A scope that stays a box in one lane stays one in all lanes, so the items are found twice.
  const kept = new Set();
  for (let round = 0; round < 2; ++round) {
    for (const lane of tree.lanes) {
      if (lane) addItems(lane, kept);
    }
  }
  for (const group of tree.groups.slice()) {
    if (group.kind !== 'run' && group.items.length > MOST_ITEMS) group.items = runsOfItems(tree, group);
  }
  return tree;
}

/// Runs of consecutive items in place of the items of a scope that has too many scopes.
function runsOfItems(tree, group) {
  const length = Math.max(SHORT_RUN, Math.ceil(group.items.length / MOST_RUNS));
  const name = (item) => (typeof item === 'number' ? `node ${item}` : item.text || item.path);
  const runs = [];
  for (let k = 0; k < group.items.length; k += length) {
    const part = group.items.slice(k, k + length);
    const text = `${part.length} from ${name(part[0])} to ${name(part[part.length - 1])}`;
    const run = newGroup(tree, 'run', group.lane, `${group.path}#${text}`);
    run.text = text;
    run.items = part;
    const chips = new Set(part.filter((item) => typeof item === 'number'));
    run.all = group.own.filter((id) => chips.has(tree.host[id]));
    run.all = run.all.concat(part.flatMap((item) => (typeof item === 'number' ? [] : item.all))).sort((a, b) => a - b);
    addTotals(tree.m, run);
    runs.push(run);
  }
  return runs;
}

function finishGroup(tree, group) {
  group.groups.forEach((child) => finishGroup(tree, child));
  group.all = group.own.slice();
  for (const child of group.groups) {
    for (const id of child.all) group.all.push(id);
  }
  group.all.sort((a, b) => a - b);
  addTotals(tree.m, group);
  group.groups.sort((a, b) => a.all[0] - b.all[0]);
  group.loose = group.nodes.length > MOST_NODES ? runsOf(tree, group) : group.nodes;
  group.folded = foldEqual(tree, group);
}

/// Items of the group and of all groups below it. `kept`: scopes that are a box in some lane.
function addItems(group, kept) {
  group.groups.forEach((child) => addItems(child, kept));
  const items = group.loose.concat(group.folded.flatMap((item) => hoisted(item, kept)));
  group.items = items.sort((a, b) => firstNode(a) - firstNode(b));
}

function firstNode(item) {
  return typeof item === 'number' ? item : item.all[0];
}

function addTotals(m, group) {
  let us = 0;
  let bytes = 0;
  let timed = false;
  let sized = false;
  const classes = new Array(CLASSES.length).fill(0);
  for (const id of group.all) {
    ++classes[m.cls[id]];
    if (m.us[id] >= 0) {
      us += m.us[id];
      timed = true;
    }
    if (m.bytes[id] >= 0) {
      bytes += m.bytes[id];
      sized = true;
    }
  }
  group.us = timed ? us : NaN;
  group.bytes = sized ? bytes : NaN;
  group.classes = classes;
}

/// Groups of consecutive nodes in place of the nodes of a scope that has too many.
function runsOf(tree, group) {
  const length = group.nodes.length <= SHORT_RUN * MOST_RUNS / 2 ? SHORT_RUN : RUN;
  if (group.nodes.length <= length * MOST_RUNS) return cutRuns(tree, group, group.nodes, length);
  return cutRuns(tree, group, group.nodes, RUN_OF_RUNS).map((run) => {
    run.items = cutRuns(tree, run, run.nodes, length);
    return run;
  });
}

function cutRuns(tree, group, nodes, length) {
  const chips = new Map();
  for (const id of group.own) {
    const at = tree.host[id];
    if (at !== id) chips.set(at, (chips.get(at) || []).concat(id));
  }
  const runs = [];
  for (let k = 0; k < nodes.length; k += length) {
    const part = nodes.slice(k, k + length);
    const text = `nodes ${part[0]} to ${part[part.length - 1]}`;
    const run = newGroup(tree, 'run', group.lane, `${group.path}#${text}`);
    run.text = text;
    run.nodes = run.items = part;
    run.own = run.all = part.flatMap((id) => [...(chips.get(id) || []), id]).sort((a, b) => a - b);
    addTotals(tree.m, run);
    runs.push(run);
  }
  return runs;
}

/// The signature of a group; groups with equal signatures may be folded: ops, types, phases, scopes inside and operands
/// inside. The caller compares names. Operands from outside count as equal.
function signature(tree, group, place) {
  const m = tree.m;
  group.all.forEach((id, k) => { place[id] = k; });
  const codes = [];
  for (const id of group.all) {
    const scope = m.scopes[tree.drawn.scope[id]];
    codes.push(m.ops[m.op[id]], scope.startsWith(group.path) ? scope.slice(group.path.length) : '?', m.phase[id]);
    codes.push(nodeTypes(m, id).join(';'), tree.host[id] === id ? '' : 'chip');
    for (let k = m.start[id]; k < m.start[id + 1]; ++k) {
      const at = place[m.from[k]];
      codes.push(at >= 0 ? `${at}.${m.result[k]}` : 'outside');
    }
    codes.push('|');
  }
  for (const id of group.all) place[id] = -1;
  return codes.join(' ');
}

/// The group's children, with runs of equal neighbours replaced by folds. Neighbours: next in the order of the number.
function foldEqual(tree, group) {
  const families = new Map();
  for (const child of group.groups) {
    const label = child.path.slice(child.path.lastIndexOf('.') + 1);
    const match = /^(.*?)(\d+)(\D*)$/.exec(label);
    const key = match ? `${match[1]}#${match[3]}` : `=${label}`;
    if (!families.has(key)) families.set(key, []);
    families.get(key).push({child, number: match ? Number(match[2]) : 0});
  }
  const result = [];
  for (const [family, members] of families) {
    if (members.length < 2) {
      result.push(members[0].child);
      continue;
    }
    members.sort((a, b) => a.number - b.number);
    if (!tree.place) tree.place = new Int32Array(tree.m.n).fill(-1);
    let last = null;
    let text = '';
    for (const {child} of members) {
      const mine = signature(tree, child, tree.place);
      if (last && mine === text) {
        last.push(child);
      } else {
        result.push(last = [child]);
        // Two scopes like norm1 and norm2 have different places in a model; blocks.0 and blocks.1 do not.
        last.least = family === '#' ? 2 : 3;
      }
      text = mine;
    }
  }
  return result.flatMap((one) => {
    if (!Array.isArray(one)) return [one];
    return one.length < one.least ? one : [newFold(tree, group, one)];
  });
}

function newFold(tree, parent, members) {
  const all = members.flatMap((member) => member.all);
  const first = members[0].path;
  const last = members[members.length - 1].path;
  const fold = {kind: 'fold', id: tree.folds.length, lane: parent.lane, path: first, first, last, members, shown: 0,
                open: false, unfolded: false, all: all.sort((a, b) => a - b)};
  addTotals(tree.m, fold);
  for (const member of members) member.fold = fold;
  tree.folds.push(fold);
  return fold;
}

/// A group that would show only one box, or only a few numbered boxes, is replaced by them: "blocks" around "blocks.0
/// to blocks.31" adds no information.
function hoisted(item, kept) {
  if (item.kind !== 'group') return [item];
  const numbered = item.items.every((inner) => inner.kind === 'fold' || /(^|\.)\d+$/.test(inner.path));
  const few = item.items.length === 1 || (numbered && item.items.length <= 4);
  if (kept.has(item.path) || item.nodes.length || !few) {
    kept.add(item.path);
    return [item];
  }
  return item.items;
}

/// Items shown in place of a list of items: an unfolded fold shows its members.
function shownItems(items) {
  if (!items.some((item) => item.kind === 'fold' && item.unfolded)) return items;
  return items.flatMap((item) => (item.kind === 'fold' && item.unfolded ? item.members : [item]));
}

/// The group whose items an open box shows.
function contentOf(item) {
  return item.kind === 'fold' ? item.members[item.shown] : item;
}

/// Opens scopes, outer and large scopes first, while the number of visible boxes stays below MOST_AT_START. A scope
/// opens in all lanes or in none, but the update lane stays closed: it repeats the same few ops for each parameter.
function openAtStart(tree) {
  const lanes = tree.lanes.filter((lane) => lane);
  let visible = 0;
  const waiting = new Map();
  const add = (items, depth) => {
    for (const item of items) {
      if (typeof item === 'number' || (item.lane === 2 && lanes.length > 1)) continue;
      const key = item.kind === 'fold' ? item.path.replace(/\d+([^.\d]*)$/, '#$1') : item.path;
      if (!waiting.has(key)) waiting.set(key, {items: [], depth, size: 0});
      const one = waiting.get(key);
      one.items.push(item);
      one.size += item.all.length;
    }
  };
  for (const lane of lanes) {
    const items = shownItems(lane.items);
    visible += items.length;
    add(items, 0);
  }
  while (waiting.size) {
    let key = null;
    let best = null;
    for (const [k, one] of waiting) {
      if (!best || one.depth < best.depth || (one.depth === best.depth && one.size > best.size)) [key, best] = [k, one];
    }
    waiting.delete(key);
    const more = best.items.reduce((sum, item) => sum + shownItems(contentOf(item).items).length - 1, 0);
    if (visible + more >= MOST_AT_START) continue;
    visible += more;
    for (const item of best.items) {
      item.open = true;
      add(shownItems(contentOf(item).items), best.depth + 1);
    }
  }
}

/// Copies the open boxes of one member of a fold to another member, which has the same items in the same order.
function copyOpen(from, to) {
  from.items.forEach((item, k) => {
    const other = to.items[k];
    if (typeof item === 'number' || !other || other.kind !== item.kind) return;
    other.open = item.open;
    if (item.kind === 'fold') {
      other.unfolded = item.unfolded;
      other.shown = Math.min(item.shown, other.members.length - 1);
      item.members.forEach((member, i) => {
        if (!other.members[i]) return;
        other.members[i].open = member.open;
        copyOpen(member, other.members[i]);
      });
    } else {
      copyOpen(item, other);
    }
  });
}

/// The folds of all lanes that have a scope of this one: they change together, so that lanes keep equal heights.
function sameScopes(tree, fold) {
  const paths = new Set(fold.members.map((member) => member.path));
  return tree.folds.filter((one) => one.members.some((member) => paths.has(member.path)));
}

/// An open fold shows this member from now on, in all lanes.
function showMember(tree, fold, index) {
  const path = fold.members[index].path;
  for (const one of sameScopes(tree, fold)) {
    const at = one.members.findIndex((member) => member.path === path);
    if (at < 0 || at === one.shown) continue;
    copyOpen(one.members[one.shown], one.members[at]);
    one.shown = at;
  }
}

/// Chain of items from the lane's child down to the node, as they exist with the present folds. Null if not found.
function chainTo(tree, id) {
  const at = tree.host[id];
  const holds = (item) => typeof item !== 'number' && containsSorted(item.all, at);
  const chain = [];
  let group = tree.lanes[tree.drawn.lane[at]];
  while (group) {
    let items = group.items;
    if (items.includes(at)) return chain;
    let next = items.find(holds);
    if (!next) return null;
    chain.push(next);
    if (next.kind === 'fold') {
      next = next.members.find(holds);
      chain.push(next);
    }
    group = next;
  }
  return null;
}

function containsSorted(list, value) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (list[mid] < value) low = mid + 1;
    else high = mid;
  }
  return list[low] === value;
}

/// Opens all boxes around the node, and shows the member that contains it in each fold. Returns false if the node has
/// no box.
function reveal(tree, id) {
  const chain = chainTo(tree, id);
  if (!chain) return false;
  chain.forEach((item, k) => {
    if (item.kind !== 'fold') {
      if (!item.fold || item.fold.unfolded) item.open = true;
      return;
    }
    if (item.unfolded) return;
    showMember(tree, item, item.members.indexOf(chain[k + 1]));
    item.open = true;
  });
  return true;
}
