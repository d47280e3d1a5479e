// Colours of boxes and the legend. A colour is a class of page.css; the text on it has a class of its own.

const STEPS = 6;

/// Steps of the scale of time or bytes: a step is a factor of 10 (time) or 16 (bytes); the last step contains the
/// largest scope.
function scaleOf(kind) {
  const m = app.tree.m;
  const costs = kind === 'time' ? m.us : m.bytes;
  let most = 0;
  for (const lane of app.tree.lanes) {
    if (!lane) continue;
    const total = kind === 'time' ? lane.us : lane.bytes;
    if (total > most) most = total;
  }
  if (!(most > 0)) return null;
  const factor = kind === 'time' ? 10 : 16;
  const top = Math.floor(Math.log(most) / Math.log(factor) + 1e-9);
  const limits = [];
  for (let k = 1; k < STEPS; ++k) limits.push(factor ** (top - STEPS + 1 + k));
  return {costs, limits, text: kind === 'time' ? timeText : bytesText};
}

function stepOf(scale, value) {
  let step = 0;
  while (step < scale.limits.length && value >= scale.limits[step]) ++step;
  return step;
}

/// [class of the fill, class of the text] of a closed box.
function colorOf(box, scale) {
  const m = app.tree.m;
  const isNode = box.kind === 'node';
  if (app.color === 'phase') return [`p${box.lane}`, `v${box.lane}`];
  if (app.color === 'class') {
    return isNode ? [`c${m.cls[box.node]}`, `t${m.cls[box.node]}`] : ['g', 'h'];
  }
  if (!scale) return ['g', 'h'];
  let value = NaN;
  if (!isNode) {
    value = app.color === 'time' ? box.item.us : box.item.bytes;
  } else {
    // A chip has no box of its own: its cost counts for its node.
    for (const id of [box.node, ...box.chips]) {
      if (scale.costs[id] >= 0) value = (value || 0) + scale.costs[id];
    }
  }
  if (!(value >= 0)) return ['g', 'h'];
  const step = stepOf(scale, value);
  return [`s${step}`, `u${step}`];
}

function showLegend(scale) {
  const entries = [];
  let head = '';
  if (app.color === 'class') {
    head = 'Class of op. The bar of a scope shows the shares of its nodes.';
    CLASSES.forEach((name, k) => entries.push([`--c${k}`, name]));
  } else if (app.color === 'phase') {
    head = 'Phase';
    PHASES.forEach((name, k) => entries.push([`--p${k}`, name]));
  } else if (!scale) {
    head = app.color === 'time' ? 'No times: a scheduled graph with its record has them.' : 'The data has no bytes.';
  } else {
    const kind = app.tree.m.timeKind, how = kind === 'predicted' ? '; --record gives measured times' : '';
    head = app.color === 'time' ? `Time of a box (${kind}${how})` : 'Bytes that a box reads and writes';
    for (let k = 0; k < STEPS; ++k) {
      entries.push([`--s${k}`, k ? `from ${scale.text(scale.limits[k - 1])}` : `below ${scale.text(scale.limits[0])}`]);
    }
    entries.push(['--group', 'not known']);
  }
  byName('legend').replaceChildren(
    el('p', {}, head),
    el('ul', {}, ...entries.map(([color, text]) => el('li', {}, el('i', {style: `background:var(${color})`}), text))));
}
