// Checks the data and turns a graph into tables. A program's output is read or refused with one sentence.

const PHASES = ['forward', 'backward', 'update'];
const CLASSES = ['contraction', 'normalisation', 'elementwise', 'movement', 'collective', 'other'];
const OTHER_CLASS = 5;
const MOST_LEVELS = 100;  // levels of scopes; functions that walk the tree are recursive

class DataError extends Error {}

function need(condition, text) {
  if (!condition) throw new DataError(text);
}

function isIndex(value, count) {
  return Number.isInteger(value) && value >= 0 && value < count;
}

function stringsOf(graph, where, member) {
  const list = graph[member];
  need(Array.isArray(list), `${where}: member "${member}" is missing or is no list.`);
  need(list.every((s) => typeof s === 'string'), `${where}: member "${member}" must hold only strings.`);
  return list;
}

/// Throws DataError if the file is no list of graphs.
function readFile(data) {
  need(data && typeof data === 'object' && Array.isArray(data.graphs), 'The data has no list "graphs".');
  need(data.graphs.length > 0, 'The data has no graph.');
  return {
    title: typeof data.title === 'string' && data.title ? data.title : 'Graph',
    names: data.graphs.map((g, i) => (g && typeof g.name === 'string' && g.name) || `graph ${i}`),
    graphs: data.graphs,
  };
}

function checkNode(where, node, id, m) {
  const at = `${where}: node ${id}`;
  need(Array.isArray(node) && node.length >= 6, `${at} must be a list of six members.`);
  const [op, scope, line, phase, types, operands] = node;
  need(isIndex(op, m.ops.length), `${at} has op ${op}, but there are ${m.ops.length} ops.`);
  need(isIndex(scope, m.scopes.length), `${at} has scope ${scope}, but there are ${m.scopes.length} scopes.`);
  need(isIndex(line, m.lines.length), `${at} has line ${line}, but there are ${m.lines.length} lines.`);
  need(isIndex(phase, PHASES.length), `${at} has phase ${phase}; need 0, 1 or 2.`);
  need(Array.isArray(types), `${at} has no list of types.`);
  for (const type of types) {
    need(isIndex(type, m.typeNames.length), `${at} has type ${type}, but there are ${m.typeNames.length} types.`);
  }
  need(Array.isArray(operands), `${at} has no list of operands.`);
  operands.forEach((operand, k) => {
    need(Array.isArray(operand) && isIndex(operand[0], id), `${at}: operand ${k} does not refer to an earlier node.`);
    need(isIndex(operand[1] || 0, m.results[operand[0]].length),
         `${at}: operand ${k} is result ${operand[1]} of node ${operand[0]}, which it does not have.`);
  });
}

function pairsOf(list, m, where) {
  const kept = Array.isArray(list) ? list : [];
  for (const pair of kept) {
    need(Array.isArray(pair) && isIndex(pair[0], m.n), `${where} refers to a node that does not exist.`);
  }
  return kept;
}

/// Tables of one graph: op, scope, line, phase by node; operands of node i are from[start[i] .. start[i + 1]);
/// its readers are reader[readStart[i] .. readStart[i + 1]). Unknown costs are NaN.
function readGraph(graph, name) {
  const where = `Graph "${name}"`;
  need(graph && typeof graph === 'object', `${where} is no object.`);
  const m = {name, note: typeof graph.note === 'string' ? graph.note : ''};
  m.scopes = stringsOf(graph, where, 'scopes');
  const deep = m.scopes.find((scope) => scope.split('.').length > MOST_LEVELS);
  need(deep === undefined, `${where}: a scope has more than ${MOST_LEVELS} levels.`);
  m.lines = stringsOf(graph, where, 'lines');
  m.ops = stringsOf(graph, where, 'ops');
  m.typeNames = stringsOf(graph, where, 'types');
  need(Array.isArray(graph.nodes), `${where}: member "nodes" is missing or is no list.`);
  const n = m.n = graph.nodes.length;
  for (const key of ['op', 'scope', 'line', 'phase']) m[key] = new Int32Array(n);
  m.start = new Int32Array(n + 1);
  m.results = new Array(n);
  const from = [];
  const result = [];
  graph.nodes.forEach((node, id) => {
    checkNode(where, node, id, m);
    [m.op[id], m.scope[id], m.line[id], m.phase[id], m.results[id]] = node;
    for (const operand of node[5]) {
      from.push(operand[0]);
      result.push(operand[1] || 0);
    }
    m.start[id + 1] = from.length;
  });
  m.from = Int32Array.from(from);
  m.result = Int32Array.from(result);
  addReaders(m);
  addCosts(m, graph);
  m.labels = graph.labels && typeof graph.labels === 'object' ? graph.labels : {};
  m.missed = Array.isArray(graph.missed) ? graph.missed.filter((text) => typeof text === 'string') : [];
  m.kernels = Array.isArray(graph.kernels) ? graph.kernels : [];
  m.outputs = pairsOf(graph.outputs, m, `${where}: an output`);
  m.writes = Array.isArray(graph.writes) ? graph.writes.filter(Array.isArray) : [];
  pairsOf(m.writes.map((write) => write[1]), m, `${where}: a write`);
  return m;
}

function addReaders(m) {
  m.readStart = new Int32Array(m.n + 1);
  for (const id of m.from) ++m.readStart[id + 1];
  for (let i = 0; i < m.n; ++i) m.readStart[i + 1] += m.readStart[i];
  const next = m.readStart.slice();
  m.reader = new Int32Array(m.from.length);
  for (let id = 0; id < m.n; ++id) {
    for (let k = m.start[id]; k < m.start[id + 1]; ++k) m.reader[next[m.from[k]]++] = id;
  }
}

function addCosts(m, graph) {
  const details = graph.details && typeof graph.details === 'object' ? graph.details : {};
  m.details = details;
  m.bytes = new Float64Array(m.n).fill(NaN);
  m.us = new Float64Array(m.n).fill(NaN);
  m.cls = new Uint8Array(m.n).fill(OTHER_CLASS);
  let measured = 0;
  let predicted = 0;
  for (const key of Object.keys(details)) {
    const id = Number(key);
    const d = details[key];
    need(isIndex(id, m.n), `Graph "${m.name}": details are given for node ${key}, which does not exist.`);
    if (!d || typeof d !== 'object') continue;
    if (Number.isFinite(d.bytes)) m.bytes[id] = d.bytes;
    if (Number.isFinite(d.measured_us)) {
      m.us[id] = d.measured_us;
      ++measured;
    } else if (Number.isFinite(d.predicted_us)) {
      m.us[id] = d.predicted_us;
      ++predicted;
    }
  }
  if (Array.isArray(graph.class)) {
    graph.class.slice(0, m.n).forEach((c, id) => { if (isIndex(c, OTHER_CLASS)) m.cls[id] = c; });
  }
  m.timeKind = measured ? (predicted ? 'measured, predicted where not measured' : 'measured')
    : (predicted ? 'predicted' : '');
}

function nodeTypes(m, id) {
  return m.results[id].map((type) => m.typeNames[type]);
}

function labelOf(m, id) {
  const label = m.labels[id];
  return typeof label === 'string' ? label : '';
}
