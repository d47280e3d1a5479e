'use strict';
// Tests of the layout: node layout_test.js. Prints one line for each test; exits with 1 if one fails.
const assert = require('assert');
const vm = require('vm');
const {Builder, sample} = require('./sample_data.js');
const {joinPage, scriptParts, read} = require('./join_page.js');

const parts = scriptParts().filter((name) => name.startsWith('layout'));
const names = ['DataError', 'readFile', 'readGraph', 'buildTree', 'openAtStart', 'layoutView', 'reveal', 'contentOf',
               'shownItems', 'chainTo', 'arrange', 'backEdges', 'settle', 'crossings', 'bytesText', 'timeText'];
const layout = vm.runInThisContext(`${parts.map(read).join('\n')}\n({${names.join(', ')}})`);

const treeOf = (data) => layout.buildTree(layout.readGraph(data.graphs[0], 'joint'));

function opened(data) {
  const tree = treeOf(data);
  layout.openAtStart(tree);
  return tree;
}

function boxOf(view, title, lane) {
  const found = view.all.find((box) => box.title.split(/[ ;]/)[0] === title && box.lane === lane);
  assert(found, `no box ${title} in lane ${lane}; there are: ${view.all.map((box) => box.title).join(' | ')}`);
  return found;
}

/// Boxes beside each other are apart, and a box is inside its parent, below its title.
function checkBoxes(view) {
  for (const parent of view.open) {
    const children = parent.children.slice().sort((a, b) => a.y - b.y);
    children.forEach((a, i) => {
      assert([a.x, a.y, a.w, a.h].every(Number.isFinite), `${a.id} has no coordinates`);
      assert(a.x >= parent.x - 0.01 && a.x + a.w <= parent.x + parent.w + 0.01, `${a.id} leaves ${parent.id} sideways`);
      assert(a.y >= parent.y + 20 && a.y + a.h <= parent.y + parent.h + 0.01, `${a.id} leaves ${parent.id}`);
      for (let k = i + 1; k < children.length && children[k].y < a.y + a.h; ++k) {
        const b = children[k];
        assert(a.x + a.w <= b.x + 0.01 || b.x + b.w <= a.x + 0.01, `${a.id} and ${b.id} overlap`);
      }
    });
  }
  view.lanes.forEach((lane, k) => {
    if (k) assert(lane.x >= view.lanes[k - 1].x + view.lanes[k - 1].w, 'lanes overlap');
  });
}

/// Lines go in the direction of their lane at each point; returns the number of lines that may go against it.
function checkEdges(view) {
  let back = 0;
  for (const edge of view.edges) {
    assert(edge.path && edge.bounds.every(Number.isFinite), 'a line has no path');
    if (edge.cross) continue;
    if (edge.back) {
      ++back;
      continue;
    }
    const sign = edge.from.upward ? -1 : 1;
    let y = -Infinity;
    for (const [, first, last] of edge.points) {
      const forward = first * sign >= y - 0.01 && last * sign >= first * sign - 0.01;
      assert(forward, `line ${edge.from.id} ${edge.to.id} turns`);
      y = last * sign;
    }
  }
  return back;
}

/// Lines between scopes pass beside the boxes of each scope that they cross.
function linesThroughBoxes(view) {
  let hits = 0;
  const closed = view.all.filter((box) => !box.open);
  for (const edge of view.edges) {
    if (edge.cross || edge.back) continue;
    let before = null;
    for (const [x, first, last] of edge.points) {
      // The vertical piece, and the rectangle around the curve from the piece before.
      const pieces = [[x, x, first, last]];
      if (before) pieces.push([Math.min(x, before[0]), Math.max(x, before[0]), before[2], first]);
      for (const [left, right, a, b] of pieces) {
        const [top, bottom] = [Math.min(a, b), Math.max(a, b)];
        hits += closed.some((box) => right > box.x + 0.5 && left < box.x + box.w - 0.5
          && top < box.y + box.h - 0.5 && bottom > box.y + 0.5);
      }
      before = [x, first, last];
    }
  }
  return hits;
}

function checkView(tree, mirror) {
  const view = layout.layoutView(tree, {mirror});
  checkBoxes(view);
  return {view, back: checkEdges(view)};
}

function openAll(tree, most) {
  let opened = 0;
  for (const group of tree.groups.concat(tree.folds)) {
    if (opened++ < most) group.open = true;
  }
}

const tests = {
  'boxes do not overlap and lines go in the direction of the lane, at the start'() {
    for (const [kind, size] of [['mlp'], ['gpt', 3], ['gpt', 12], ['odd', 9], ['plain', 150], ['plain', 3000]]) {
      for (const mirror of [true, false]) {
        const {back} = checkView(opened(sample(kind, size)), mirror);
        assert.strictEqual(back, 0, `${kind}: lines against the direction`);
      }
    }
  },
  'the same with all scopes open, and no line crosses a box'() {
    for (const [kind, size] of [['mlp'], ['gpt', 3], ['odd', 9], ['plain', 1000]]) {
      const tree = treeOf(sample(kind, size));
      openAll(tree, 400);
      const {view, back} = checkView(tree, true);
      assert.strictEqual(back, 0);
      assert.strictEqual(linesThroughBoxes(view), 0);
    }
  },
  'without mirror, lines of all lanes go down'() {
    const view = layout.layoutView(opened(sample('gpt', 4)), {mirror: false});
    for (const edge of view.edges) {
      if (!edge.cross) assert(edge.to.y >= edge.from.y + edge.from.h, 'a line goes up');
    }
  },
  'with mirror, scopes have the same height in forward and backward'() {
    const view = layout.layoutView(opened(sample('gpt', 6)), {mirror: true});
    for (const title of ['embed', 'blocks.0', 'norm', 'head', 'loss', 'norm1', 'attn']) {
      const [f, b] = [boxOf(view, title, 0), boxOf(view, title, 1)];
      assert(Math.abs(f.y + f.h / 2 - b.y - b.h / 2) < 0.5, `${title}: ${f.y} and ${b.y}`);
    }
  },
  'equal layers are one fold'() {
    const tree = treeOf(sample('gpt', 32));
    const view = layout.layoutView(tree, {mirror: true});
    for (const lane of [0, 1, 2]) {
      assert.strictEqual(boxOf(view, 'blocks.0', lane).title, 'blocks.0 to blocks.31 (32 equal)');
      assert.strictEqual(view.all.filter((box) => box.lane === lane && box.title.startsWith('blocks')).length, 1);
    }
  },
  'the layer that differs stays visible by itself'() {
    const view = layout.layoutView(treeOf(sample('odd', 32)), {mirror: true});
    for (const lane of [0, 1]) {
      const blocks = view.all.filter((box) => box.lane === lane && box.title.startsWith('blocks'));
      assert.deepStrictEqual(blocks.map((box) => box.title).sort(),
                             ['blocks.0 to blocks.15 (16 equal)', 'blocks.16', 'blocks.17 to blocks.31 (15 equal)']);
    }
  },
  'an unfolded fold shows each layer'() {
    const tree = treeOf(sample('gpt', 8));
    tree.folds.filter((fold) => fold.path === 'blocks.0').forEach((fold) => { fold.unfolded = true; });
    const {view} = checkView(tree, true);
    assert.strictEqual(view.all.filter((box) => box.lane === 0 && /^blocks\.\d$/.test(box.title)).length, 8);
  },
  'an open fold counts lines of its members once inside, and all of them to other lanes'() {
    const tree = opened(sample('gpt', 5));
    const view = layout.layoutView(tree, {mirror: true});
    const attn = boxOf(view, 'attn', 0);
    const inside = view.edges.find((edge) => edge.to === attn && edge.from.title === 'norm1');
    assert.strictEqual(inside.count, 3);
    const [from, to] = [boxOf(view, 'norm1', 0), boxOf(view, 'norm1', 1)];
    const across = view.edges.find((edge) => edge.cross && edge.from === from && edge.to === to);
    assert.strictEqual(across.count % 5, 0);
  },
  'different types, ops or operands are not equal'() {
    const make = (change) => {
      const b = new Builder('joint');
      let x = b.add('input', 'f32[4]', []);
      for (let i = 0; i < 3; ++i) {
        x = b.in(`layer.${i}`, '', () => {
          const differs = (what) => change === what && i === 1;
          const y = b.add(differs('op') ? 'exp' : 'neg', differs('type') ? 'f32[5]' : 'f32[4]', [x]);
          return b.add('add', 'f32[4]', differs('operand') ? [y, y] : [x, y]);
        });
      }
      return treeOf({graphs: [b.graph]}).folds.length;
    };
    assert.strictEqual(make(''), 1);
    for (const change of ['op', 'type', 'operand']) assert.strictEqual(make(change), 0, change);
  },
  'a scope with too many nodes is split into runs of consecutive nodes'() {
    const tree = treeOf(sample('plain', 10000));
    const runs = tree.lanes[0].items;
    assert.strictEqual(runs.length, 50);
    assert.strictEqual(runs[0].text, 'nodes 0 to 199');
    assert.strictEqual(runs[49].text, 'nodes 9800 to 9999');
    const all = runs.flatMap((run) => run.all);
    assert.deepStrictEqual(all, Array.from({length: 10000}, (_, i) => i));
    const {view, back} = checkView(tree, true);
    assert.strictEqual(view.all.length, 50);
    assert.strictEqual(back, 0);
    assert(treeOf(sample('plain', 30000)).lanes[0].items.length <= 50);
  },
  'an open run of 200 nodes keeps the rules'() {
    const tree = treeOf(sample('plain', 10000));
    tree.lanes[0].items[7].open = true;
    assert.strictEqual(checkView(tree, true).view.all.length, 250);
  },
  'a scope with too many different scopes is split too'() {
    const b = new Builder('joint');
    let x = b.add('input', 'f32[4]', []);
    for (let i = 0; i < 700; ++i) x = b.in(`part${i}`, '', () => b.add(['exp', 'neg'][i % 2], 'f32[4]', [x]));
    const tree = treeOf({graphs: [b.graph]});
    assert(tree.lanes[0].items.length < 60);
    assert(layout.reveal(tree, 500));
    const {view, back} = checkView(tree, true);
    assert.strictEqual(view.boxOf[500].node, 500);
    assert.strictEqual(back, 0);
  },
  'many readers of one node do not spread the drawing'() {
    const b = new Builder('joint');
    const x = b.add('input', 'f32[4]', []);
    for (let i = 0; i < 140; ++i) b.in(`part${i}`, '', () => b.add('exp', `f32[${i}]`, [x]));
    const {view} = checkView(treeOf({graphs: [b.graph]}), true);
    assert(view.width < 3500 && view.height < 2000, `${view.width} x ${view.height}`);
  },
  'fewer than 60 boxes at the start, chips not counted'() {
    for (const [kind, size] of [['mlp'], ['gpt', 2], ['gpt', 40], ['odd', 32], ['plain', 10000], ['plain', 150]]) {
      const view = layout.layoutView(opened(sample(kind, size)), {mirror: true});
      const closed = view.all.filter((box) => !box.open).length;
      assert(closed < 60 && closed > 5, `${kind} ${size}: ${closed} boxes`);
    }
  },
  'each node has a box, and reveal opens it'() {
    for (const [kind, size] of [['mlp'], ['odd', 7], ['plain', 2500]]) {
      const tree = opened(sample(kind, size));
      const m = tree.m;
      for (let id = 0; id < m.n; id += 211) {
        assert(layout.reveal(tree, id));
        const view = layout.layoutView(tree, {mirror: true});
        const box = view.boxOf[id];
        assert.strictEqual(box.kind, 'node', `node ${id} is not visible`);
        assert(box.node === id || box.chips.includes(id), `node ${id} is shown by node ${box.node}`);
        assert(view.boxOf.every((one) => one), 'a node has no box');
      }
    }
  },
  'a weight with one reader is a chip; one with two readers is not'() {
    const b = new Builder('joint');
    const w = b.add('cell', 'f32[4]', [], 'w');
    const v = b.add('cell', 'f32[4]', [], 'v');
    const wide = b.add('broadcast', 'f32[4, 4]', [w]);
    const x = b.add('add', 'f32[4, 4]', [wide, v]);
    b.add('mul', 'f32[4, 4]', [x, v]);
    const view = layout.layoutView(treeOf({graphs: [b.graph]}), {mirror: true});
    assert.deepStrictEqual(view.all.map((box) => box.node), [v, x, x + 1]);
    assert.deepStrictEqual(view.boxOf[w].chips, [w, wide]);
  },
  'a cell that only the update reads is drawn there, in the scope of its reader'() {
    const b = new Builder('joint');
    const x = b.add('input', 'f32[4]', []);
    const g = b.in('net', '', () => b.add('exp', 'f32[4]', [x]));
    const state = b.add('cell', 'f32[4]', [], 'm');
    b.phase = 2;
    b.in('net', '', () => b.add('add', 'f32[4]', [b.add('mul', 'f32[4]', [state, g]), state]));
    const tree = treeOf({graphs: [b.graph]});
    assert.deepStrictEqual(tree.lanes[0].all, [x, g]);
    assert.deepStrictEqual(tree.lanes[2].items[0].nodes, [state, state + 1, state + 2]);
    assert(layout.reveal(tree, state));
    checkView(tree, true);
  },
  'a cycle of scopes has lines marked as back, the others go down'() {
    const b = new Builder('joint');
    const at = (scope, operands) => b.in(scope, '', () => b.add(operands.length ? 'exp' : 'input', 'f32[4]', operands));
    const x = at('a', []);
    const y = at('b', [x]);
    const z = at('a', [y]);
    at('c', [z]);
    const tree = treeOf({graphs: [b.graph]});
    assert.strictEqual(checkView(tree, true).back, 1);
    openAll(tree, 10);
    checkView(tree, true);
  },
  'bad data gives one sentence'() {
    const good = () => ({scopes: [''], lines: [''], ops: ['add'], types: ['f32[]'],
                         nodes: [[0, 0, 0, 0, [0], []], [0, 0, 0, 0, [0], [[0, 0]]]]});
    const cases = [
      [(g) => { g.nodes[1][5] = [[1, 0]]; }, 'Graph "joint": node 1: operand 0 does not refer to an earlier node.'],
      [(g) => { g.nodes[1][5] = [[0, 4]]; },
       'Graph "joint": node 1: operand 0 is result 4 of node 0, which it does not have.'],
      [(g) => { g.nodes[1][0] = 7; }, 'Graph "joint": node 1 has op 7, but there are 1 ops.'],
      [(g) => { g.nodes[1][1] = -1; }, 'Graph "joint": node 1 has scope -1, but there are 1 scopes.'],
      [(g) => { g.nodes[1][3] = 3; }, 'Graph "joint": node 1 has phase 3; need 0, 1 or 2.'],
      [(g) => { g.nodes[1] = null; }, 'Graph "joint": node 1 must be a list of six members.'],
      [(g) => { delete g.types; }, 'Graph "joint": member "types" is missing or is no list.'],
      [(g) => { g.outputs = [[9, 0]]; }, 'Graph "joint": an output refers to a node that does not exist.'],
      [(g) => { g.details = {99: {}}; }, 'Graph "joint": details are given for node 99, which does not exist.'],
    ];
    layout.readGraph(good(), 'joint');
    for (const [damage, text] of cases) {
      const g = good();
      damage(g);
      const isThis = (error) => error instanceof layout.DataError && error.message === text;
      assert.throws(() => layout.readGraph(g, 'joint'), isThis, text);
    }
    assert.throws(() => layout.readFile({}), layout.DataError);
    assert.throws(() => layout.readFile({graphs: []}), layout.DataError);
  },
  'damaged data is read or refused: 1,000 random changes'() {
    let seed = 7;
    const random = (n) => {
      seed = (seed * 48271) % 2147483647;
      return seed % n;
    };
    const text = JSON.stringify(sample('mlp').graphs[0]);
    const values = [null, -1, 1e9, 0.5, 'x', [], {}, true, [[0, 0]], [0]];
    for (let round = 0; round < 1000; ++round) {
      const g = JSON.parse(text);
      let at = g;
      for (let depth = random(5); depth >= 0; --depth) {
        const keys = Object.keys(at);
        const key = keys[random(keys.length)];
        if (key === undefined) break;
        if (depth === 0 || typeof at[key] !== 'object' || !at[key]) {
          at[key] = values[random(values.length)];
          break;
        }
        at = at[key];
      }
      try {
        const tree = treeOf({graphs: [g]});
        layout.openAtStart(tree);
        layout.layoutView(tree, {mirror: true});
      } catch (error) {
        assert(error instanceof layout.DataError, `round ${round}: ${error.stack}`);
        assert(/^Graph .*\.$/.test(error.message), error.message);
      }
    }
  },
  'an empty graph and a graph with only required members'() {
    const empty = {graphs: [{scopes: [''], lines: [''], ops: [], types: [], nodes: []}]};
    assert.strictEqual(layout.layoutView(opened(empty), {mirror: true}).all.length, 0);
  },
  'the page has all parts, no network and one place for data'() {
    const page = joinPage(sample('mlp'));
    assert(!page.includes('/*STYLE*/') && !page.includes('/*SCRIPT*/') && !page.includes('>DATA<'));
    assert.strictEqual(page.split('</script>').length, 3);
    assert(page.includes("default-src 'none'"));
    assert(!/https?:\/\/(?!www\.w3\.org\/2000\/svg)/.test(page), 'the page names an address');
  },
  'the page opens with the joint graph, or the graph of its address'() {
    const quiet = {addEventListener() {}};
    const page = vm.runInNewContext(`${read('page.js')}\n({app, graphToShow})`, {document: quiet, window: quiet});
    const shown = (names, graph) => {
      Object.assign(page.app, {file: {names}, graph});
      return page.graphToShow();
    };
    assert.strictEqual(shown(['captured', 'joint', 'fused'], -1), 1);
    assert.strictEqual(shown(['captured', 'joint', 'fused'], 0), 0);
    assert.strictEqual(shown(['captured', 'joint', 'fused'], 7), 2);
    assert.strictEqual(shown(['00_captured_start', '03_joint_grad', '05_joint_cse', '07_fused_fuse'], -1), 2);
    assert.strictEqual(shown(['one'], -1), 0);
  },
  'colours differ in lightness, and text on them can be read'() {
    const luminance = (hex) => {
      const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
        .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const lightness = (hex) => 116 * Math.cbrt(luminance(hex)) - 16;
    const themes = read('page.css').split(':root').filter((part) => part.includes('--c0: '))
      .map((part) => part.slice(0, part.indexOf('}')));
    assert.strictEqual(themes.length, 2);
    for (const theme of themes) {
      const color = (name) => new RegExp(`--${name}: (#[0-9a-f]{6})`).exec(theme)[1];
      for (const [fill, ink, count] of [['c', 't', 6], ['s', 'u', 6], ['p', 'v', 3]]) {
        for (let i = 0; i < count; ++i) {
          const [a, b] = [luminance(color(fill + i)), luminance(color(ink + i))];
          assert((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) >= 4.5, `text on ${fill}${i}`);
          for (let k = 0; k < i; ++k) {
            const apart = Math.abs(lightness(color(fill + i)) - lightness(color(fill + k)));
            assert(apart >= 6, `${fill}${i} and ${fill}${k} differ by ${apart.toFixed(1)}`);
          }
        }
      }
    }
  },
  'numbers have units'() {
    assert.strictEqual(layout.timeText(1234.5), '1.23 ms');
    assert.strictEqual(layout.timeText(0.25), '0.25 \u00b5s');
    assert.strictEqual(layout.bytesText(1536), '1.54 KB');
    assert.strictEqual(layout.bytesText(3 * 2 ** 30), '3.22 GB');
  },
};

let failed = 0;
for (const [name, body] of Object.entries(tests)) {
  try {
    body();
    console.log(`passed: ${name}`);
  } catch (error) {
    ++failed;
    console.log(`FAILED: ${name}\n  ${error.stack}`);
  }
}
process.exit(failed ? 1 : 0);
