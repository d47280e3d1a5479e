'use strict';
// Graphs like a captured step's graphs, for tests and screenshots.
// As a program: node sample_data.js mlp|gpt|plain [layers or nodes] prints the JSON.

class Builder {
  constructor(name) {
    this.graph = {name, scopes: [''], lines: [''], ops: [], types: [], nodes: [], class: [], labels: {}, details: {},
                  kernels: [], outputs: [], writes: []};
    this.tables = {scopes: new Map([['', 0]]), lines: new Map([['', 0]]), ops: new Map(), types: new Map()};
    this.scope = '';
    this.phase = 0;
    this.line = '';
  }

  index(table, text) {
    const map = this.tables[table];
    if (!map.has(text)) {
      map.set(text, map.size);
      this.graph[table].push(text);
    }
    return map.get(text);
  }

  /// Adds a node and returns its number.
  add(op, type, operands, extra) {
    const g = this.graph;
    const id = g.nodes.length;
    g.nodes.push([this.index('ops', op), this.index('scopes', this.scope), this.index('lines', this.line), this.phase,
                  [this.index('types', type)], operands.map((at) => [at, 0])]);
    g.class.push(classOf(op));
    const dims = (/\[(.*)\]/.exec(type)[1] || '1').split(',').map(Number);
    const bytes = 4 * dims.reduce((a, b) => a * b, 1) * (1 + operands.length);
    if (operands.length) {
      const flops = op === 'dot' ? bytes * 200 : bytes / 4;
      const predicted = 0.5 + bytes / 2e6 + flops / 6e8;
      const measured = predicted * (1.1 + (id % 7) / 9);
      g.details[id] = {bytes, flops, predicted_us: round3(predicted), measured_us: round3(measured)};
      if (op === 'dot') Object.assign(g.details[id], {attrs: 'a=[1], b=[0]', kernel: 0, placement: 'Shard(0) over dp'});
    }
    if (op === 'constant') g.details[id] = {attrs: 'value=0.001, dtype=f32'};
    if (extra) g.labels[id] = extra;
    return id;
  }

  in(scope, line, body) {
    const kept = [this.scope, this.line];
    this.scope = this.scope && scope ? `${this.scope}.${scope}` : scope || this.scope;
    this.line = line || this.line;
    const result = body();
    [this.scope, this.line] = kept;
    return result;
  }
}

const round3 = (x) => Number(x.toPrecision(4));

function classOf(op) {
  if (op === 'dot' || op === 'attention') return 0;
  if (['rms_norm', 'softmax', 'sum', 'mean'].includes(op)) return 1;
  const pointwise = ['add', 'mul', 'sub', 'exp', 'gelu', 'rsqrt', 'neg', 'sqrt', 'div', 'maximum', 'select', 'log'];
  if (pointwise.includes(op)) return 2;
  if (['reshape', 'permute', 'broadcast', 'slice', 'concat', 'gather', 'scatter_add'].includes(op)) return 3;
  return op === 'all_reduce' ? 4 : -1;
}

/// One weight: a cell; its gradient is collected in `grads`.
function weight(b, params, name, type) {
  const full = b.scope ? `${b.scope}.${name}` : name;
  const id = b.add('cell', type, [], full);
  params.push({id, type, name: full, scope: b.scope});
  return id;
}

function linear(b, params, name, x, out, inner, rows) {
  return b.in(name, 'models/nn/layers/linear.cc:31', () => {
    const w = weight(b, params, 'weight', `f32[${inner}, ${out}]`);
    const bias = weight(b, params, 'bias', `f32[${out}]`);
    const y = b.add('dot', `f32[${rows}, ${out}]`, [x, w]);
    const wide = b.add('broadcast', `f32[${rows}, ${out}]`, [bias]);
    return {y: b.add('add', `f32[${rows}, ${out}]`, [y, wide]), x, w, bias, out, inner};
  });
}

function linearBackward(b, params, name, layer, g, rows) {
  return b.in(name, 'models/nn/layers/linear.cc:31', () => {
    const flat = b.add('permute', `f32[${layer.inner}, ${rows}]`, [layer.x]);
    const gw = b.add('dot', `f32[${layer.inner}, ${layer.out}]`, [flat, g]);
    const gb = b.add('sum', `f32[${layer.out}]`, [g]);
    const turned = b.add('permute', `f32[${layer.out}, ${layer.inner}]`, [layer.w]);
    const gx = b.add('dot', `f32[${rows}, ${layer.inner}]`, [g, turned]);
    params.find((p) => p.id === layer.w).grad = gw;
    params.find((p) => p.id === layer.bias).grad = gb;
    return gx;
  });
}

function norm(b, params, name, x, rows, width) {
  return b.in(name, 'models/nn/layers/norm.cc:18', () => {
    const type = `f32[${rows}, ${width}]`;
    const w = weight(b, params, 'weight', `f32[${width}]`);
    const square = b.add('mul', type, [x, x]);
    const mean = b.add('mean', `f32[${rows}, 1]`, [square]);
    const eps = b.add('constant', 'f32[]', []);
    const r = b.add('rsqrt', `f32[${rows}, 1]`, [b.add('add', `f32[${rows}, 1]`, [mean, eps])]);
    const scaled = b.add('mul', type, [x, b.add('broadcast', type, [r])]);
    return {y: b.add('mul', type, [scaled, b.add('broadcast', type, [w])]), r, scaled, w, x};
  });
}

function normBackward(b, params, name, n, g, rows, width) {
  return b.in(name, 'models/nn/layers/norm.cc:18', () => {
    const type = `f32[${rows}, ${width}]`;
    const gw = b.add('sum', `f32[${width}]`, [b.add('mul', type, [g, n.scaled])]);
    params.find((p) => p.id === n.w).grad = gw;
    const gs = b.add('mul', type, [g, b.add('broadcast', type, [n.w])]);
    const dots = b.add('mean', `f32[${rows}, 1]`, [b.add('mul', type, [gs, n.scaled])]);
    const part = b.add('mul', type, [n.scaled, b.add('broadcast', type, [dots])]);
    return b.add('mul', type, [b.add('sub', type, [gs, part]), b.add('broadcast', type, [n.r])]);
  });
}

/// Adam for one parameter.
function update(b, p) {
  b.in(p.scope, 'models/optim/adam.cc:77', () => {
    const state = (name) => b.add('cell', p.type, [], `${p.name}.${name}`);
    const [m, v] = [state('m'), state('v')];
    const c = () => b.add('constant', 'f32[]', []);
    const m1 = b.add('add', p.type, [b.add('mul', p.type, [m, c()]), b.add('mul', p.type, [p.grad, c()])]);
    const g2 = b.add('mul', p.type, [p.grad, p.grad]);
    const v1 = b.add('add', p.type, [b.add('mul', p.type, [v, c()]), b.add('mul', p.type, [g2, c()])]);
    const step = b.add('div', p.type, [m1, b.add('sqrt', p.type, [v1])]);
    const w = b.add('sub', p.type, [p.id, b.add('mul', p.type, [step, c()])]);
    b.graph.writes.push([p.name, [w, 0]], [`${p.name}.m`, [m1, 0]], [`${p.name}.v`, [v1, 0]]);
  });
}

const KERNEL = ['void kernel_3(const float* a, const float* b, float* c, long rows) {',
                '  for (long i = 0; i < rows; ++i) {', '    const __m512 x = _mm512_loadu_ps(a + 16 * i);',
                '    _mm512_storeu_ps(c + 16 * i, _mm512_fmadd_ps(x, _mm512_loadu_ps(b), x));', '  }', '}'].join('\n');

function mlp() {
  const b = new Builder('joint');
  const params = [];
  b.graph.kernels.push(KERNEL);
  let x = b.in('', 'models/mlp/model.cc:12', () => b.add('input', 'f32[64, 32]', [], 'x'));
  const target = b.add('input', 'f32[64, 10]', [], 'target');
  const layers = [];
  const sizes = [32, 128, 128, 10];
  for (let i = 0; i < 3; ++i) {
    const layer = linear(b, params, `net.${2 * i}`, x, sizes[i + 1], sizes[i], 64);
    layers.push(layer);
    x = layer.y;
    if (i < 2) {
      x = b.in(`net.${2 * i + 1}`, 'models/mlp/model.cc:15', () => b.add('gelu', `f32[64, ${sizes[i + 1]}]`, [x]));
    }
  }
  const inLoss = (body) => b.in('loss', 'models/mlp/train.cc:40', body);
  const diff = inLoss(() => b.add('sub', 'f32[64, 10]', [x, target]));
  const loss = inLoss(() => b.add('mean', 'f32[]', [b.add('mul', 'f32[64, 10]', [diff, diff])]));
  b.graph.outputs.push([loss, 0]);
  b.phase = 1;
  let g = inLoss(() => b.add('mul', 'f32[64, 10]', [diff, b.add('constant', 'f32[]', [])]));
  for (let i = 2; i >= 0; --i) {
    g = linearBackward(b, params, `net.${2 * i}`, layers[i], g, 64);
    if (!i) break;
    const y = layers[i - 1].y;
    g = b.in(`net.${2 * i - 1}`, 'models/mlp/model.cc:15', () => b.add('mul', `f32[64, ${sizes[i]}]`, [g, y]));
  }
  b.phase = 2;
  for (const p of params) update(b, p);
  return {title: 'MLP, one training step', graphs: [b.graph]};
}

function attention(b, params, x, rows, width) {
  return b.in('attn', 'models/gpt/model.cc:43', () => {
    const parts = ['q', 'k', 'v'].map((name) => linear(b, params, name, x, width, width, rows));
    const heads = parts.map((part) => {
      const split = b.add('reshape', `f32[8, ${rows / 8}, 4, ${width / 4}]`, [part.y]);
      return b.add('permute', `f32[8, 4, ${rows / 8}, ${width / 4}]`, [split]);
    });
    const scores = b.add('dot', `f32[8, 4, ${rows / 8}, ${rows / 8}]`, [heads[0], heads[1]]);
    const scale = b.add('constant', 'f32[]', []);
    const scaled = b.add('mul', `f32[8, 4, ${rows / 8}, ${rows / 8}]`, [scores, scale]);
    const p = b.add('softmax', `f32[8, 4, ${rows / 8}, ${rows / 8}]`, [scaled]);
    const mixed = b.add('dot', `f32[8, 4, ${rows / 8}, ${width / 4}]`, [p, heads[2]]);
    const turned = b.add('permute', `f32[8, ${rows / 8}, 4, ${width / 4}]`, [mixed]);
    const joined = b.add('reshape', `f32[${rows}, ${width}]`, [turned]);
    return {parts, heads, p, out: linear(b, params, 'out', joined, width, width, rows)};
  });
}

function attentionBackward(b, params, a, g, rows, width) {
  return b.in('attn', 'models/gpt/model.cc:43', () => {
    const head = `f32[8, 4, ${rows / 8}, ${width / 4}]`;
    const square = `f32[8, 4, ${rows / 8}, ${rows / 8}]`;
    const gm = linearBackward(b, params, 'out', a.out, g, rows);
    const split = b.add('permute', head, [b.add('reshape', `f32[8, ${rows / 8}, 4, ${width / 4}]`, [gm])]);
    const gv = b.add('dot', head, [a.p, split]);
    const gp = b.add('dot', square, [split, a.heads[2]]);
    const weighted = b.add('mul', square, [gp, a.p]);
    const sum = b.add('sum', `f32[8, 4, ${rows / 8}, 1]`, [weighted]);
    const gs = b.add('mul', square, [a.p, b.add('sub', square, [gp, sum])]);
    const gq = b.add('dot', head, [gs, a.heads[1]]);
    const gk = b.add('dot', head, [gs, a.heads[0]]);
    const back = [gq, gk, gv].map((one, i) => {
      const turned = b.add('permute', `f32[8, ${rows / 8}, 4, ${width / 4}]`, [one]);
      const flat = b.add('reshape', `f32[${rows}, ${width}]`, [turned]);
      return linearBackward(b, params, 'qkv'[i], a.parts[i], flat, rows);
    });
    const type = `f32[${rows}, ${width}]`;
    return b.add('add', type, [b.add('add', type, [back[0], back[1]]), back[2]]);
  });
}

/// A GPT with `layers` blocks; `odd` is the number of a block with another activation, or -1.
function gpt(layers, odd = -1) {
  const b = new Builder('joint');
  const params = [];
  const [rows, width] = [512, 128];
  const type = `f32[${rows}, ${width}]`;
  const wide = `f32[${rows}, ${4 * width}]`;
  b.graph.kernels.push(KERNEL);
  const tokens = b.in('', 'models/gpt/train.cc:88', () => b.add('input', `i32[${rows}]`, [], 'tokens'));
  const target = b.add('input', `i32[${rows}]`, [], 'target');
  let x = b.in('embed', 'models/gpt/model.cc:20',
               () => b.add('gather', type, [weight(b, params, 'table', `f32[1000, ${width}]`), tokens]));
  const blocks = [];
  for (let i = 0; i < layers; ++i) {
    b.in(`blocks.${i}`, 'models/gpt/model.cc:60', () => {
      const norm1 = norm(b, params, 'norm1', x, rows, width);
      const attn = attention(b, params, norm1.y, rows, width);
      x = b.add('add', type, [x, attn.out.y]);
      const norm2 = norm(b, params, 'norm2', x, rows, width);
      const mlpParts = b.in('mlp', 'models/gpt/model.cc:52', () => {
        const up = linear(b, params, 'up', norm2.y, 4 * width, width, rows);
        const active = b.add(i === odd ? 'maximum' : 'gelu', wide, [up.y]);
        return {up, active, down: linear(b, params, 'down', active, width, 4 * width, rows)};
      });
      x = b.add('add', type, [x, mlpParts.down.y]);
      blocks.push({norm1, attn, norm2, ...mlpParts});
    });
  }
  const last = norm(b, params, 'norm', x, rows, width);
  const head = linear(b, params, 'head', last.y, 1000, width, rows);
  const wideHead = `f32[${rows}, 1000]`;
  const inLoss = (body) => b.in('loss', 'models/gpt/train.cc:95', body);
  const p = inLoss(() => b.add('softmax', wideHead, [head.y]));
  const log = inLoss(() => b.add('log', wideHead, [p]));
  const loss = inLoss(() => b.add('mean', 'f32[]', [b.add('gather', `f32[${rows}]`, [log, target])]));
  b.graph.outputs.push([loss, 0]);
  b.phase = 1;
  let g = inLoss(() => b.add('sub', wideHead, [p, b.add('scatter_add', wideHead, [target])]));
  g = normBackward(b, params, 'norm', last, linearBackward(b, params, 'head', head, g, rows), rows, width);
  for (let i = layers - 1; i >= 0; --i) {
    const block = blocks[i];
    g = b.in(`blocks.${i}`, 'models/gpt/model.cc:60', () => {
      let inner = b.in('mlp', 'models/gpt/model.cc:52', () => {
        const back = linearBackward(b, params, 'down', block.down, g, rows);
        const bent = b.add(i === odd ? 'select' : 'mul', wide, [back, block.up.y]);
        return linearBackward(b, params, 'up', block.up, bent, rows);
      });
      inner = normBackward(b, params, 'norm2', block.norm2, inner, rows, width);
      const sum = b.add('add', type, [g, inner]);
      inner = attentionBackward(b, params, block.attn, sum, rows, width);
      inner = normBackward(b, params, 'norm1', block.norm1, inner, rows, width);
      return b.add('add', type, [sum, inner]);
    });
  }
  const table = params.find((param) => param.name === 'embed.table');
  table.grad = b.in('embed', 'models/gpt/model.cc:20', () => b.add('scatter_add', table.type, [g, tokens]));
  b.phase = 2;
  for (const param of params) update(b, param);
  return {title: `GPT, ${layers} layers, one training step`, graphs: [b.graph]};
}

/// Nodes without scopes; each reads up to two of the 30 nodes before it.
function plain(count) {
  const b = new Builder('captured');
  let seed = 1;
  const random = (n) => {
    seed = (seed * 48271) % 2147483647;
    return seed % n;
  };
  b.line = 'experiment.cc:7';
  for (let id = 0; id < count; ++id) {
    const op = ['add', 'mul', 'dot', 'exp', 'sub'][random(5)];
    if (id < 2) b.add('input', 'f32[64, 64]', [], `x${id}`);
    else b.add(op, 'f32[64, 64]', [id - 1 - random(Math.min(id, 30)), id - 1]);
  }
  b.graph.outputs.push([count - 1, 0]);
  return {title: `${count} nodes without scopes`, graphs: [b.graph]};
}

function sample(kind, size) {
  if (kind === 'mlp') return mlp();
  if (kind === 'plain') return plain(size || 10000);
  const data = gpt(size || 32, kind === 'odd' ? Math.floor((size || 32) / 2) : -1);
  if (kind === 'two') {
    data.graphs[0].note = 'After all passes on the graph; before fusion.';
    data.graphs.unshift({...plain(150).graphs[0], name: 'captured'});
  }
  return data;
}

module.exports = {Builder, sample};

if (require.main === module) {
  process.stdout.write(JSON.stringify(sample(process.argv[2] || 'gpt', Number(process.argv[3]) || 0)));
}
