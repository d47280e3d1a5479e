'use strict';
// Layered layout of the items of one box. Pure functions: no DOM, no state.
//
// arrange(items, nets) places items in rows so that every net that is not part of a cycle goes from a lower row number
// to a higher one, and gives x coordinates without overlaps. Nets that cross rows get a slot in each of these rows, so
// lines pass between the items. Row 0 and the last row hold only slots of nets that come from outside or leave.

const ITEM_GAP = 18;
const NET_GAP = 9;
const MOST_SLOTS = 5000;

/// Numbers of strongly connected components. `next[i]` lists the items that item i points to.
function components(next) {
  const n = next.length;
  const order = new Int32Array(n).fill(-1);
  const low = new Int32Array(n);
  const component = new Int32Array(n).fill(-1);
  const stack = [];
  let counter = 0;
  let found = 0;
  for (let start = 0; start < n; ++start) {
    if (order[start] >= 0) continue;
    // An explicit stack: chains of 10,000 items would exhaust the call stack.
    const work = [[start, 0]];
    order[start] = low[start] = counter++;
    stack.push(start);
    while (work.length) {
      const top = work[work.length - 1];
      const at = top[0];
      if (top[1] < next[at].length) {
        const to = next[at][top[1]++];
        if (order[to] < 0) {
          order[to] = low[to] = counter++;
          stack.push(to);
          work.push([to, 0]);
        } else if (component[to] < 0) {
          low[at] = Math.min(low[at], order[to]);
        }
        continue;
      }
      work.pop();
      if (work.length) {
        const above = work[work.length - 1][0];
        low[above] = Math.min(low[above], low[at]);
      }
      if (low[at] === order[at]) {
        let member;
        do {
          member = stack.pop();
          component[member] = found;
        } while (member !== at);
        ++found;
      }
    }
  }
  return component;
}

/// Marks the edges [from, to] that must be ignored to make the graph of the items acyclic: edges inside a cycle
/// against the order of the items.
function backEdges(count, edges) {
  const next = Array.from({length: count}, () => []);
  for (const [from, to] of edges) next[from].push(to);
  const component = components(next);
  return edges.map(([from, to]) => component[from] === component[to] && from >= to);
}

/// Row of each item, from 1. Longest path; items without predecessors move to their first reader; a row has a bounded
/// number of items, so that many independent items form a block and not one long row.
function rowsOf(count, nets, mostInRow) {
  const before = Array.from({length: count}, () => []);
  const after = Array.from({length: count}, () => []);
  const entered = new Uint8Array(count);
  for (const net of nets) {
    for (const to of net.to) {
      if (net.from < 0) {
        entered[to] = 1;
      } else {
        before[to].push(net.from);
        after[net.from].push(to);
      }
    }
  }
  const order = [];
  const open = new Int32Array(count);
  for (let i = 0; i < count; ++i) {
    open[i] = before[i].length;
    if (!open[i]) order.push(i);
  }
  const row = new Int32Array(count).fill(1);
  for (let k = 0; k < order.length; ++k) {
    for (const to of after[order[k]]) {
      row[to] = Math.max(row[to], row[order[k]] + 1);
      if (--open[to] === 0) order.push(to);
    }
  }
  for (let k = order.length - 1; k >= 0; --k) {
    const i = order[k];
    if (before[i].length || entered[i] || !after[i].length) continue;
    let first = Infinity;
    for (const to of after[i]) first = Math.min(first, row[to]);
    row[i] = Math.max(row[i], first - 1);
  }
  const most = mostInRow || Math.max(4, Math.ceil(1.3 * Math.sqrt(count)));
  const used = [];
  const wanted = Int32Array.from(row);
  order.sort((a, b) => wanted[a] - wanted[b] || a - b);
  for (const i of order) {
    let at = wanted[i];
    for (const from of before[i]) at = Math.max(at, row[from] + 1);
    while ((used[at] || 0) >= most) ++at;
    used[at] = (used[at] || 0) + 1;
    row[i] = at;
  }
  // Rows without items would be gaps.
  const compact = [];
  let last = 0;
  for (let at = 1; at < used.length; ++at) compact[at] = used[at] ? ++last : last;
  for (let i = 0; i < count; ++i) row[i] = compact[row[i]];
  return {row, rows: last + 2};
}

/// Slots of items and nets in rows, and the links between slots of adjacent rows.
function makeSlots(items, nets, row, rows) {
  const table = Array.from({length: rows}, () => []);
  const links = [];
  const ofItem = items.map((item, i) => {
    const slot = {item: i, net: -1, w: item.w, up: [], down: [], x: 0, place: 0};
    table[row[i]].push(slot);
    return slot;
  });
  const span = nets.map((net) => {
    const first = net.from < 0 ? 0 : row[net.from] + 1;
    let end = net.out ? rows : 0;
    for (const to of net.to) end = Math.max(end, row[to]);
    return [first, end];
  });
  // The longest nets lose their slots first if there are too many: their lines then cross items.
  let budget = MOST_SLOTS;
  const byLength = nets.map((_, k) => k).sort((a, b) => span[a][1] - span[a][0] - (span[b][1] - span[b][0]) || a - b);
  const trunks = nets.map(() => null);
  for (const k of byLength) {
    const [first, end] = span[k];
    budget -= Math.max(0, end - first);
    if (budget < 0) break;
    trunks[k] = new Map();
  }
  const link = (a, b, atA, atB, weight) => {
    const one = {a, b, atA, atB, weight};
    a.down.push(one);
    b.up.push(one);
    links.push(one);
  };
  nets.forEach((net, k) => {
    const trunk = trunks[k];
    const [first, end] = span[k];
    if (trunk) {
      for (let r = first; r < end; ++r) {
        const slot = {item: -1, net: k, w: 0, up: [], down: [], x: 0, place: 0};
        trunk.set(r, slot);
        // In the middle: slots of a net that has many readers then has them on both sides.
        table[r].splice((table[r].length + 1) >> 1, 0, slot);
        // A large weight keeps long lines straight; otherwise the items beside them would move each row a bit more.
        if (r > first) link(trunk.get(r - 1), slot, 0, 0, 20);
      }
      if (net.from >= 0 && first < end) {
        link(ofItem[net.from], trunk.get(first), items[net.from].leaves(net.key), 0, 2);
      }
    }
    for (const to of net.to) {
      const target = ofItem[to];
      if (net.from >= 0 && row[to] === row[net.from] + 1) {
        link(ofItem[net.from], target, items[net.from].leaves(net.key), items[to].enters(net.key), 1);
      } else if (trunk) {
        link(trunk.get(row[to] - 1), target, 0, items[to].enters(net.key), 2);
      }
    }
  });
  return {table, trunks, ofItem, links};
}

/// Number of crossings between a row and the next one: inversions, counted by a binary indexed tree.
function crossings(row, next) {
  const ends = [];
  for (const slot of row) {
    const here = slot.down.map((one) => one.b.place).sort((a, b) => a - b);
    for (const place of here) ends.push(place);
  }
  const tree = new Int32Array(next.length + 1);
  let count = 0;
  for (let k = 0; k < ends.length; ++k) {
    let larger = k;
    for (let i = ends[k] + 1; i > 0; i -= i & -i) larger -= tree[i];
    count += larger;
    for (let i = ends[k] + 1; i <= next.length; i += i & -i) ++tree[i];
  }
  return count;
}

/// Orders the slots of each row by sweeps: each slot goes to the mean place of its neighbours in the row before.
function orderRows(table) {
  const number = (row) => row.forEach((slot, i) => { slot.place = i; });
  table.forEach(number);
  const total = () => {
    let sum = 0;
    for (let r = 0; r + 1 < table.length; ++r) sum += crossings(table[r], table[r + 1]);
    return sum;
  };
  const sweep = (row, side, end) => {
    for (const slot of row) {
      let sum = 0;
      for (const one of slot[side]) sum += one[end].place;
      slot.key = slot[side].length ? sum / slot[side].length : slot.place;
    }
    row.sort((a, b) => a.key - b.key || a.place - b.place);
    number(row);
  };
  let best = table.map((row) => row.slice());
  let least = total();
  for (let round = 0, idle = 0; round < 12 && idle < 3 && least > 0; ++round) {
    for (let r = 1; r < table.length; ++r) sweep(table[r], 'up', 'a');
    for (let r = table.length - 2; r >= 0; --r) sweep(table[r], 'down', 'b');
    const now = total();
    ++idle;
    if (now < least) {
      least = now;
      best = table.map((row) => row.slice());
      idle = 0;
    }
  }
  best.forEach((row, r) => {
    table[r].splice(0, row.length, ...row);
    number(table[r]);
  });
}

function gapBetween(a, b) {
  if (a.item >= 0 && b.item >= 0) return ITEM_GAP;
  return a.item < 0 && b.item < 0 ? NET_GAP : NET_GAP + 3;
}

/// Gives the slots of a row the x nearest to their wishes that keeps order and gaps. Wishes that conflict are pooled to
/// their weighted mean (isotonic regression), which is the optimum for squared distances.
function settle(row) {
  const blocks = [];
  let offset = 0;
  row.forEach((slot, i) => {
    if (i) offset += row[i - 1].w + gapBetween(row[i - 1], slot);
    slot.offset = offset;
    let block = {sum: (slot.wish - offset) * slot.weight, weight: slot.weight, from: i};
    while (blocks.length) {
      const last = blocks[blocks.length - 1];
      if (last.sum / last.weight <= block.sum / block.weight) break;
      blocks.pop();
      block = {sum: last.sum + block.sum, weight: last.weight + block.weight, from: last.from};
    }
    blocks.push(block);
  });
  blocks.forEach((block, k) => {
    const end = k + 1 < blocks.length ? blocks[k + 1].from : row.length;
    for (let i = block.from; i < end; ++i) row[i].x = block.sum / block.weight + row[i].offset;
  });
}

function wishFrom(slot, sides) {
  let sum = 0;
  let weight = 0;
  for (const side of sides) {
    for (const one of slot[side]) {
      const x = side === 'up' ? one.a.x + one.atA - one.atB : one.b.x + one.atB - one.atA;
      sum += x * one.weight;
      weight += one.weight;
    }
  }
  slot.wish = weight ? sum / weight : slot.x;
  slot.weight = weight || 0.1;
}

/// x of all slots. Returns the width.
function placeRows(table) {
  for (const row of table) {
    let x = 0;
    row.forEach((slot, i) => {
      if (i) x += row[i - 1].w + gapBetween(row[i - 1], slot);
      slot.x = x;
    });
    const half = row.length ? (x + row[row.length - 1].w) / 2 : 0;
    for (const slot of row) slot.x -= half;
  }
  const pass = (row, sides) => {
    for (const slot of row) wishFrom(slot, sides);
    settle(row);
  };
  for (let round = 0; round < 5; ++round) {
    for (let r = 1; r < table.length; ++r) pass(table[r], ['up']);
    for (let r = table.length - 2; r >= 0; --r) pass(table[r], ['down']);
  }
  for (let round = 0; round < 2; ++round) {
    for (let r = 0; r < table.length; ++r) pass(table[r], ['up', 'down']);
  }
  let low = Infinity;
  let high = -Infinity;
  for (const row of table) {
    for (const slot of row) {
      low = Math.min(low, slot.x);
      high = Math.max(high, slot.x + slot.w);
    }
  }
  if (low === Infinity) return 0;
  for (const row of table) {
    for (const slot of row) slot.x -= low;
  }
  return high - low;
}

/// items: [{w, enters(key), leaves(key)}], the latter two give the x offset at which a net enters or leaves an item.
/// nets: [{key, from, to: [item], out}], from is -1 for nets from outside; out is true for nets that leave. They must
/// be acyclic (see backEdges). mostInRow: 0, or the number of items that a row may have.
/// Result: row of each item, x of each item, slots of nets by row, links between each row and the next, the width.
function arrange(items, nets, mostInRow) {
  const {row, rows} = rowsOf(items.length, nets, mostInRow);
  const {table, trunks, ofItem} = makeSlots(items, nets, row, rows);
  orderRows(table);
  const width = placeRows(table);
  const linksAfter = table.map((slots) => slots.reduce((sum, slot) => sum + slot.down.length, 0));
  return {row, rows, x: ofItem.map((slot) => slot.x), trunks, linksAfter, width};
}
