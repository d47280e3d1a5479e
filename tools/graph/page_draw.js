// Draws the visible part of the view as SVG, and moves it. Only boxes and lines near the window are elements.

const SVG = 'http://www.w3.org/2000/svg';
const LEAST_TEXT_SCALE = 0.28;  // below it, text is not readable and costs time
const MOST_CROSS = 600;         // lines between lanes that are drawn at once

let drawn = null;  // the rectangle of the drawing that has elements

function shape(tag, properties, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const key in properties) made.setAttribute(key, properties[key]);
  for (const child of children) made.append(child);
  return made;
}

const rect = (x, y, w, h, cls, r) => shape('rect', {x, y, width: Math.max(0, w), height: h, class: cls, rx: r || 0});

function textAt(x, y, cls, content, anchor) {
  const made = shape('text', {x, y, class: cls});
  if (anchor) made.setAttribute('text-anchor', anchor);
  made.textContent = content;
  return made;
}

function clearStage() {
  byName('world').replaceChildren();
  byName('legend').replaceChildren();
}

function windowRect() {
  const frame = byName('stage').getBoundingClientRect();
  return {w: Math.max(1, frame.width), h: Math.max(1, frame.height), left: frame.left, top: frame.top};
}

/// The part of the drawing that the window shows, with a margin on each side as a share of the window.
function shownPart(margin) {
  const {w, h} = windowRect();
  const [dx, dy] = [w * margin, h * margin];
  return [-app.x - dx, -app.y - dy, w + dx - app.x, h + dy - app.y].map((value) => value / app.scale);
}

const overlap = (a, b) => a[0] <= b[2] && b[0] <= a[2] && a[1] <= b[3] && b[1] <= a[3];
const boundsOf = (box) => [box.x, box.y, box.x + box.w, box.y + box.h];

function draw() {
  if (!app.view) return;
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.box : null;
  drawn = {part: shownPart(0.6), text: app.scale >= LEAST_TEXT_SCALE};
  const scale = app.color === 'time' || app.color === 'bytes' ? scaleOf(app.color) : null;
  const back = [];
  const front = [];
  for (const lane of app.view.lanes) back.push(drawLane(lane));
  const matching = matchingBoxes();
  for (const box of app.view.all) {
    if (!overlap(boundsOf(box), drawn.part)) continue;
    if (box.open) back.push(drawOpen(box));
    else front.push(drawClosed(box, scale, matching));
  }
  byName('world').replaceChildren(...back, ...drawEdges(), ...front);
  showLegend(scale);
  move();
  if (focused) focusBox(focused);
}

function drawLane(lane) {
  const made = shape('g', {class: 'lane'}, rect(lane.x - 14, -8, lane.w + 28, app.view.height + 22, '', 6));
  const text = `${lane.title}: ${lane.sub}`;
  made.append(textAt(lane.x, 12, 'lane-name', text));
  return made;
}

function accessible(made, box, action) {
  made.setAttribute('tabindex', '-1');
  made.setAttribute('role', 'button');
  made.dataset.box = box.id;
  made.setAttribute('aria-label', `${PHASES[box.lane]}: ${box.title}. ${box.sub || ''}. ${action}`);
  if (box.kind !== 'node') made.setAttribute('aria-expanded', String(box.open));
}

function drawOpen(box) {
  let depth = 0;
  for (let at = box.parent; at; at = at.parent) ++depth;
  const selected = app.selected === box.id ? ' selected' : '';
  const made = shape('g', {class: `open${depth % 2 ? '' : ' odd'}${selected}`});
  made.append(rect(box.x, box.y, box.w, box.h, 'frame', 5));
  made.append(rect(box.x + 1, box.y + 1, box.w - 2, HEADER - 2, 'head', 4));
  if (drawn.text) made.append(textAt(box.x + 8, box.y + 15, '', `\u2212 ${box.title}`));
  accessible(made, box, 'Enter closes.');
  return made;
}

function drawClosed(box, scale, matching) {
  const [fill, ink] = colorOf(box, scale);
  const marks = `${app.selected === box.id ? ' selected' : ''}${matching && matching.has(box) ? ' match' : ''}`;
  const made = shape('g', {class: `box ${box.kind === 'node' ? 'leaf' : 'group'}${marks}`});
  if (box.kind === 'node') drawNode(made, box, fill, ink);
  else drawGroup(made, box, fill, ink, matching);
  accessible(made, box, box.kind === 'node' ? 'Enter shows details.' : 'Enter opens.');
  return made;
}

function drawNode(made, box, fill, ink) {
  const x = box.x + box.chipWidth;
  if (box.chipWidth) {
    const shown = box.chips.slice(0, MOST_CHIPS);
    const names = shown.map((chip) => chipTitle(app.tree.m, chip));
    if (box.chips.length > shown.length) names.push(`+${box.chips.length - shown.length}`);
    const top = box.y + (box.h - names.length * CHIP_HEIGHT) / 2;
    names.forEach((name, k) => {
      const cls = k < shown.length && shown[k] === app.node ? 'chip chosen' : 'chip';
      const chip = rect(box.x, top + k * CHIP_HEIGHT + 1, box.chipWidth + 3, CHIP_HEIGHT - 2, cls, 6);
      if (k < shown.length) chip.dataset.node = shown[k];
      made.append(chip);
      if (drawn.text) made.append(textAt(box.x + 5, top + k * CHIP_HEIGHT + 11, 'chip-text', name));
    });
  }
  made.append(rect(x, box.y, box.mainWidth, box.h, `main ${fill}`, 4));
  if (!drawn.text) return;
  const middle = x + box.mainWidth / 2;
  const y = box.y + box.h / 2;
  made.append(textAt(middle, y - 2, ink, box.title, 'middle'), textAt(middle, y + 11, `sub ${ink}`, box.sub, 'middle'));
}

function drawGroup(made, box, fill, ink, matching) {
  if (box.kind === 'fold') {
    for (const d of [6, 3]) made.append(rect(box.x + d, box.y + d, box.w, box.h, 'under', 5));
  }
  made.append(rect(box.x, box.y, box.w, box.h, `main ${fill}`, 5));
  if (app.color === 'class') {
    const total = box.item.all.length;
    let x = box.x + 8;
    box.item.classes.forEach((count, k) => {
      const w = (box.w - 16) * count / total;
      if (count) made.append(rect(x, box.y + box.h - 9, w, 5, `c${k}`));
      x += w;
    });
    made.append(rect(box.x + 8, box.y + box.h - 9, box.w - 16, 5, 'bar'));
  }
  if (!drawn.text) return;
  const found = matching ? matching.get(box) : 0;
  const title = found ? `+ ${box.title} [${found}]` : `+ ${box.title}`;
  made.append(textAt(box.x + 9, box.y + 16, ink, title), textAt(box.x + 9, box.y + 31, `sub ${ink}`, box.sub));
}

/// Boxes that contain matches of the search, with the number of matches.
function matchingBoxes() {
  if (!app.matches) return null;
  const found = new Map();
  for (const id of app.matches) {
    const box = app.view.boxOf[id];
    if (box) found.set(box, (found.get(box) || 0) + 1);
  }
  return found;
}

function drawEdges() {
  const made = [];
  const last = [];
  let cross = 0;
  for (const edge of app.view.edges) {
    const near = app.selected && (edge.from.id === app.selected || edge.to.id === app.selected);
    if (!near && !overlap(edge.bounds, drawn.part)) continue;
    if (edge.cross && !near && ++cross > MOST_CROSS) continue;
    const kind = `${edge.cross ? ' cross' : ''}${edge.back ? ' back' : ''}${near ? ' near' : ''}`;
    (near ? last : made).push(shape('path', {d: edge.path, class: `edge${kind}`}));
    const touch = shape('path', {d: edge.path, class: 'touch'});
    touch.edge = edge;
    made.push(touch);
  }
  return made.concat(last);
}

/// Applies the position; draws again when the window shows a part without elements.
function move() {
  const shift = `translate(${app.x.toFixed(2)} ${app.y.toFixed(2)})`;
  byName('world').setAttribute('transform', `${shift} scale(${app.scale.toFixed(4)})`);
  const part = shownPart(0.05);
  const known = drawn.part;
  const inside = part[0] >= known[0] && part[1] >= known[1] && part[2] <= known[2] && part[3] <= known[3];
  const much = part[2] - part[0] < (drawn.part[2] - drawn.part[0]) / 5;
  if ((inside && !much && drawn.text === app.scale >= LEAST_TEXT_SCALE) || move.waiting) return;
  move.waiting = true;
  requestAnimationFrame(() => {
    move.waiting = false;
    draw();
  });
}

function fitAll() {
  const {w, h} = windowRect();
  app.scale = Math.min(1.2, (w - 50) / (app.view.width + 1), (h - 100) / (app.view.height + 1));
  app.x = (w - app.view.width * app.scale) / 2;
  app.y = 24 * Math.min(1, app.scale) + 8;
  move();
}

/// The first view: all if text stays readable, otherwise the upper part, or the upper left one.
function showStart() {
  fitAll();
  const {w} = windowRect();
  const readable = Math.max(0.5, Math.min(0.8, (w - 50) / (app.view.width + 1)));
  if (app.scale >= readable) return;
  app.scale = readable;
  app.x = Math.max((w - app.view.width * app.scale) / 2, 24);
  move();
}

function zoomBy(factor, atX, atY) {
  const {w, h} = windowRect();
  const x = atX === undefined ? w / 2 : atX;
  const y = atY === undefined ? h / 2 : atY;
  const scale = Math.min(4, Math.max(0.02, app.scale * factor));
  app.x = x - (x - app.x) * scale / app.scale;
  app.y = y - (y - app.y) * scale / app.scale;
  app.scale = scale;
  move();
}

/// Moves a box to the centre; if `readable`, also zooms in until its text can be read.
function centreOn(id, readable) {
  const box = app.byId.get(id);
  if (!box) return;
  const {w, h} = windowRect();
  if (readable && app.scale < 0.6) app.scale = 0.8;
  app.x = w / 2 - (box.x + box.w / 2) * app.scale;
  app.y = h / 2 - (box.y + Math.min(box.h / 2, h / 3 / app.scale)) * app.scale;
  draw();
}

function elementOf(id) {
  for (const made of byName('world').children) {
    if (made.dataset.box === id) return made;
  }
  return null;
}

function focusBox(id) {
  const made = elementOf(id);
  if (made) made.focus({preventScroll: true});
}
