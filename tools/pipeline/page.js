// Draws the results of distributed/pipeline: the data contains the tables of actions and their times. Nothing here
// makes or times a schedule; the only formula is the closed form of a fixed batch.
const KINDS = ['F', 'I', 'W', 'B'];
// Fills of the kinds; the second, third, ... stage of a rank is darker. The four fills differ in lightness.
const FILLS = [[59, 110, 165], [251, 209, 155], [120, 180, 115], [246, 198, 198]];
const STROKES = ['#3b6ea5', '#d95f02', '#3f8f3a', '#c43c3c', '#2b9a93', '#8e5a9b', '#7d5a45'];
const DASHES = ['', '7 4', '2 3', '10 3 2 3', '14 4', '4 2', '1 4'];
const SIZES = [16, 32, 64, 128, 250, 500, 1000, 2000, 4000, 8000, 16000];  // numbers of sequences and of GPUs
let data;

function fill(kind, chunk) {
  const scale = 1 / (1 + 0.35 * chunk);
  return `rgb(${FILLS[kind].map((c) => Math.round(c * scale)).join(' ')})`;
}

/// The generator's results for a schedule, p and m; null if the schedule does not exist for them.
function tableOf(schedule, p, m) {
  const row = schedule.tables[p - 1] && schedule.tables[p - 1][m - 1];
  if (!row) return null;
  const [makespan, bubble, own, efficiency, peak, ranks] = row;
  return {makespan, bubble, own, efficiency, peak, ranks};
}

/// The actions of a rank, from the text of page_data.cc.
function actionsOf(text, chunks) {
  const counts = {}, actions = [];
  let at = 0;
  for (const [, gap, letter] of text.matchAll(/([-+.0-9e]*)([A-Z])/g)) {
    const code = letter.charCodeAt(0) - 65, kind = code % 4, chunk = code >> 2;
    if (gap) at += Number(gap);
    const time = data.times[kind] / chunks;
    // B and I of a stage count together, since a schedule may have both.
    const key = `${kind === 3 ? 1 : kind} ${chunk}`;
    const microbatch = counts[key] = (counts[key] ?? -1) + 1;
    if (kind === 3) counts[`2 ${chunk}`] = (counts[`2 ${chunk}`] ?? -1) + 1;
    actions.push({kind, chunk, microbatch, begin: at, end: at + time});
    at += time;
  }
  return actions;
}

function state() {
  const p = Number(byName('ranks').value);
  const batch = SIZES[byName('batch').value], gpus = SIZES[byName('gpus').value];
  const fixedBatch = byName('fixed-batch').checked;
  const exact = fixedBatch ? batch * p / gpus : Number(byName('microbatches').value);
  const m = Math.min(Math.max(1, Math.floor(exact)), data.most_microbatches);
  const chosen = data.schedules.filter((s) => byName(`use-${s.name}`).checked);
  return {p, m, exact, batch, gpus, fixedBatch, chosen};
}

function number(x) { return String(Number(x.toPrecision(4))); }
function percent(x) { return `${(100 * x).toFixed(1)} %`; }

function showFigures({p, m, chosen}) {
  const head = el('tr', {}, ...['', 'step', 'bubble', 'own bubble', 'efficiency', 'bubble / ideal', 'activations']
    .map((text) => el('th', {}, text)));
  const rows = chosen.map((s) => {
    const t = tableOf(s, p, m);
    const cells = t ? [number(t.makespan), number(t.bubble), number(t.own), percent(t.efficiency),
      (1 / t.efficiency - 1).toFixed(4), number(t.peak)] : ['needs more microbatches', '', '', '', '', ''];
    return el('tr', {}, el('td', {}, s.name), ...cells.map((c) => el('td', {}, c)));
  });
  byName('figures').replaceChildren(head, ...rows);
}

function drawSchedule(schedule, table, longest) {
  const canvas = el('canvas', {role: 'img', 'aria-label': `${schedule.name}: idle ${percent(1 - table.efficiency)}`});
  const rows = table.ranks.split(' '), rowHeight = 20, left = 54;
  const width = Math.max(600, byName('drawings').clientWidth), height = rows.length * rowHeight + 4;
  const scale = window.devicePixelRatio || 1, pixels = (width - left - 4) / longest;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.height = `${height}px`;
  const g = canvas.getContext('2d');
  g.scale(scale, scale);
  g.font = '11px system-ui, "DejaVu Sans", sans-serif';
  g.textBaseline = 'middle';
  rows.forEach((row, r) => {
    const y = r * rowHeight + 2;
    g.fillStyle = '#1b2129';
    g.textAlign = 'left';
    g.fillText(`rank ${r}`, 0, y + rowHeight / 2);
    g.textAlign = 'center';
    g.fillStyle = '#f2f2f2';
    g.fillRect(left, y, longest * pixels, rowHeight - 2);
    for (const a of actionsOf(row, schedule.chunks)) {
      const x = left + a.begin * pixels, w = (a.end - a.begin) * pixels;
      g.fillStyle = fill(a.kind, a.chunk);
      g.fillRect(x, y, w, rowHeight - 2);
      if (w >= 4) {
        g.strokeStyle = '#333';
        g.lineWidth = 0.5;
        g.strokeRect(x, y, w, rowHeight - 2);
      }
      const text = w >= 26 ? `${KINDS[a.kind]}${a.microbatch}` : String(a.microbatch);
      if (w < 7 * text.length + 1) continue;
      g.fillStyle = a.kind === 0 ? '#fff' : '#111';
      g.fillText(text, x + w / 2, y + rowHeight / 2);
    }
  });
  const kinds = [...new Set(table.ranks.match(/[A-Z]/g))].sort();
  const key = el('span', {class: 'key'});
  for (const letter of kinds) {
    const code = letter.charCodeAt(0) - 65;
    key.append(el('i', {style: `background:${fill(code % 4, code >> 2)}`}),
      KINDS[code % 4] + (schedule.chunks > 1 ? `, stage ${(code >> 2) + 1}` : ''));
  }
  return [el('h3', {}, `${schedule.name}: idle ${percent(1 - table.efficiency)}, activations ${number(table.peak)}`),
    key, canvas];
}

function drawSchedules({p, m, chosen}) {
  const found = chosen.map((s) => [s, tableOf(s, p, m)]).filter(([, t]) => t);
  const longest = Math.max(...found.map(([, t]) => t.makespan));
  byName('drawings').replaceChildren(...found.flatMap(([s, t]) => drawSchedule(s, t, longest)));
}

/// Lines over whole numbers: series are {name, points: [[x, y], ...]}; `at` is marked.
function lineChart(series, {most, top, label, at}) {
  const width = 900, height = 260, left = 50, right = 190, bottom = 34;
  const x = (v) => left + (width - left - right) * v / most;
  const y = (v) => height - bottom - (height - bottom - 8) * v / top;
  let s = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${label}">`;
  for (let k = 0; k <= 5; ++k) {
    const v = top * k / 5;
    s += `<line x1="${left}" x2="${width - right}" y1="${y(v)}" y2="${y(v)}" stroke="#ddd"/>`
       + `<text x="${left - 6}" y="${y(v) + 4}" text-anchor="end">${v.toFixed(2)}</text>`;
  }
  for (let k = 0; k <= 8; ++k) {
    const v = Math.round(most * k / 8);
    s += `<text x="${x(v)}" y="${height - bottom + 16}" text-anchor="middle">${v}</text>`;
  }
  s += `<text x="${(left + width - right) / 2}" y="${height - 3}" text-anchor="middle">${label}</text>`;
  s += `<line x1="${x(at)}" x2="${x(at)}" y1="8" y2="${height - bottom}" stroke="#999"/>`;
  series.forEach(({name, points}, i) => {
    const style = `stroke="${STROKES[i % 7]}" stroke-width="2" stroke-dasharray="${DASHES[i % 7]}" fill="none"`;
    s += `<polyline points="${points.map(([a, b]) => `${x(a)},${y(b)}`).join(' ')}" ${style}/>`;
    const row = 16 + 18 * i;
    s += `<line x1="${width - right + 10}" x2="${width - right + 40}" y1="${row}" y2="${row}" ${style}/>`
       + `<text x="${width - right + 46}" y="${row + 4}">${name}</text>`;
  });
  return s + '</svg>';
}

function drawEfficiency({p, m, chosen}) {
  byName('efficiency-title').textContent = `Efficiency over microbatches, ${p} stages`;
  const series = chosen.map((s) => {
    const points = [];
    for (let k = 1; k <= data.most_microbatches; ++k) {
      const t = tableOf(s, p, k);
      if (t) points.push([k, t.efficiency]);
    }
    return {name: s.name, points};
  });
  byName('efficiency').innerHTML =
    lineChart(series, {most: data.most_microbatches, top: 1, label: 'microbatches', at: m});
}

function drawBatch({p, batch, gpus, chosen}) {
  byName('batch-title').textContent =
    `Bubble / ideal over stages, batch of ${batch} sequences on ${gpus} GPUs: m = ${number(batch / gpus)} p`;
  const series = [];
  for (const s of chosen) {
    const points = [];
    for (let k = 1; k <= data.most_ranks; ++k) {
      const t = Number.isInteger(batch * k / gpus) ? tableOf(s, k, batch * k / gpus) : null;
      if (t) points.push([k, 1 / t.efficiency - 1]);
    }
    if (points.length) series.push({name: s.name, points});
  }
  const closed = [];
  for (let k = 1; k <= data.most_ranks; ++k) closed.push([k, gpus / batch * (1 - 1 / k)]);
  series.push({name: '(G/B)(1 - 1/p)', points: closed});
  const top = Math.max(...series.flatMap((s) => s.points.map(([, y]) => y)));
  byName('batch-chart').innerHTML = lineChart(series, {most: data.most_ranks, top: top || 1, label: 'stages', at: p});
}

function show() {
  const s = state();
  byName('ranks-value').textContent = s.p;
  byName('microbatches-value').textContent = byName('microbatches').value;
  byName('batch-value').textContent = s.batch;
  byName('gpus-value').textContent = s.gpus;
  byName('microbatches').disabled = s.fixedBatch;
  byName('batch').disabled = byName('gpus').disabled = !s.fixedBatch;
  byName('note').textContent = s.exact === s.m ? `p = ${s.p}, m = ${s.m}`
    : `p = ${s.p}, m = B p / G = ${number(s.exact)}; the tables have whole numbers from 1 to `
      + `${data.most_microbatches}: m = ${s.m} is shown`;
  showFigures(s);
  drawSchedules(s);
  drawEfficiency(s);
  drawBatch(s);
}

async function start() {
  try {
    data = await unpackData();
  } catch (error) {
    return showMessage(error.message);
  }
  byName('ranks').max = data.most_ranks;
  byName('ranks').value = data.ranks;
  byName('microbatches').max = data.most_microbatches;
  byName('microbatches').value = data.microbatches;
  for (const id of ['batch', 'gpus']) byName(id).max = SIZES.length - 1;
  byName('batch').value = SIZES.indexOf(4000);
  byName('gpus').value = SIZES.indexOf(2000);
  for (const s of data.schedules) {
    const box = el('input', {type: 'checkbox', id: `use-${s.name}`});
    box.checked = data.chosen.includes(s.name);
    byName('choice').append(el('label', {}, box, ` ${s.name}`));
  }
  const [f, i, w, b] = data.times.map(number);
  byName('words').textContent = `F: forward (${f}), I: gradient of the inputs (${i}), W: of the weights (${w}), `
    + `B: both (${b}), all for one microbatch on one rank; a transfer takes ${number(data.wire)}. The numbers in the `
    + 'boxes are microbatches. Bubble: idle time of the worst rank until all have ended, as in a step that commits on '
    + 'all at once; own bubble: inside its own first and last action. Idle: the mean share of the ranks, 1 less the '
    + 'efficiency; bubble / ideal: this over the efficiency. Activations: the most that a rank keeps, in microbatches '
    + 'of its share of the depth.';
  const hash = new URLSearchParams(location.hash.slice(1));
  for (const id of ['ranks', 'microbatches', 'batch', 'gpus']) if (hash.has(id)) byName(id).value = hash.get(id);
  if (hash.get('mode') === 'batch') byName('fixed-batch').checked = true;
  byName('controls').addEventListener('input', show);
  window.addEventListener('resize', show);
  show();
}

start();
