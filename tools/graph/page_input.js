// Mouse, wheel and keyboard.

const PAN = 80;

function connectInput() {
  connectMouse();
  connectButtons();
  document.addEventListener('keydown', onKey);
  new ResizeObserver(() => app.view && move()).observe(byName('stage'));
}

function boxUnder(target) {
  const made = target.closest ? target.closest('[data-box]') : null;
  return made ? app.byId.get(made.dataset.box) : null;
}

function connectMouse() {
  const stage = byName('stage');
  let from = null;
  let moved = false;
  stage.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    from = {x: event.clientX - app.x, y: event.clientY - app.y, startX: event.clientX, startY: event.clientY};
    moved = false;
  });
  stage.addEventListener('pointermove', (event) => {
    if (!from || !app.view) {
      showHint(event);
      return;
    }
    if (!moved && Math.hypot(event.clientX - from.startX, event.clientY - from.startY) < 4) return;
    if (!moved) {
      // Only a drag captures the pointer: a captured click would not reach the box.
      stage.setPointerCapture(event.pointerId);
      stage.classList.add('dragging');
      byName('hint').hidden = true;
    }
    moved = true;
    app.x = event.clientX - from.x;
    app.y = event.clientY - from.y;
    move();
  });
  const end = () => {
    from = null;
    stage.classList.remove('dragging');
  };
  stage.addEventListener('pointerup', end);
  stage.addEventListener('pointercancel', end);
  stage.addEventListener('pointerleave', () => { byName('hint').hidden = true; });
  stage.addEventListener('click', (event) => {
    if (moved || !app.view) return;
    const box = boxUnder(event.target);
    if (!box) return;
    if (event.target.dataset.node) selectNode(Number(event.target.dataset.node));
    else if (box.open && !event.target.classList.contains('head')) selectBox(box);
    else if (event.shiftKey && box.kind !== 'node') selectBox(box);
    else toggleBox(box);
    if (box.kind === 'node') focusBox(box.id);
  });
  stage.addEventListener('wheel', (event) => {
    event.preventDefault();
    if (!app.view) return;
    const {left, top} = windowRect();
    const lines = event.deltaMode === 1 ? 18 : 1;
    zoomBy(Math.exp(-event.deltaY * lines * 0.0015), event.clientX - left, event.clientY - top);
  }, {passive: false});
}

/// Text at the pointer: number of values of a line, full name of a chip.
function showHint(event) {
  const hint = byName('hint');
  let text = '';
  if (event.target.edge) {
    const edge = event.target.edge;
    text = `${edge.from.title} \u2192 ${edge.to.title}: ${countText(edge.count, 'value')}`;
  } else if (event.target.dataset && event.target.dataset.node) {
    const id = Number(event.target.dataset.node);
    const m = app.tree.m;
    text = `${m.ops[m.op[id]]} ${labelOf(m, id)} ${nodeTypes(m, id).join(', ')}`;
  } else if (app.view) {
    const box = boxUnder(event.target);
    if (box && app.scale < 0.6) text = `${box.title}\n${box.sub || ''}`;
  }
  hint.hidden = !text;
  if (!text) return;
  const {left, top, w} = windowRect();
  hint.textContent = text;
  hint.style.left = `${Math.min(event.clientX - left + 14, Math.max(0, w - 320))}px`;
  hint.style.top = `${event.clientY - top + 14}px`;
}

function toggleMirror() {
  app.mirror = !app.mirror;
  byName('mirror').setAttribute('aria-pressed', String(app.mirror));
  relayout(app.selected);
}

function toggleTheme() {
  setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
}

function toggleHelp(show) {
  const help = byName('help');
  help.hidden = show === undefined ? !help.hidden : !show;
  if (!help.hidden) byName('help-close').focus();
}

function connectButtons() {
  const click = (id, action) => byName(id).addEventListener('click', () => app.view && action());
  click('zoom-in', () => zoomBy(1.25));
  click('zoom-out', () => zoomBy(0.8));
  click('fit', fitAll);
  click('mirror', toggleMirror);
  click('totals', toggleTotals);
  byName('theme').addEventListener('click', toggleTheme);
  byName('help-button').addEventListener('click', () => toggleHelp());
  byName('help-close').addEventListener('click', () => toggleHelp(false));
  byName('graph').addEventListener('change', (event) => {
    openGraph(Number(event.target.value));
    writeHash();
  });
  byName('color').value = app.color;
  byName('color').addEventListener('change', (event) => {
    app.color = event.target.value;
    draw();
  });
}

/// The box that has the focus, or else the selected one.
function presentBox() {
  const active = document.activeElement;
  const id = active && active.dataset && active.dataset.box ? active.dataset.box : app.selected;
  return id ? app.byId.get(id) : null;
}

/// Tab visits all boxes in the order of the drawing, including boxes outside the window.
function onTab(event) {
  const stage = byName('stage');
  const active = document.activeElement;
  if (active !== stage && !stage.contains(active)) return;
  const boxes = app.view.all;
  const at = active === stage ? -1 : boxes.findIndex((box) => box.id === active.dataset.box);
  const next = at + (event.shiftKey ? -1 : 1);
  if (next >= boxes.length || (at < 0 && event.shiftKey)) return;
  event.preventDefault();
  if (next < 0) {
    stage.focus();
    return;
  }
  const box = boxes[next];
  if (!overlap(boundsOf(box), shownPart(-0.05))) centreOn(box.id);
  focusBox(box.id);
}

function onEscape() {
  if (!byName('help').hidden) toggleHelp(false);
  else if (!byName('matches').hidden) closeSearch();
  else if (app.selected || app.totals) clearSelection();
  byName('hint').hidden = true;
}

const KEYS = {
  'ArrowLeft': () => pan(PAN, 0),
  'ArrowRight': () => pan(-PAN, 0),
  'ArrowUp': () => pan(0, PAN),
  'ArrowDown': () => pan(0, -PAN),
  '+': () => zoomBy(1.25),
  '=': () => zoomBy(1.25),
  '-': () => zoomBy(0.8),
  '0': () => fitAll(),
  'b': () => toggleMirror(),
  't': () => toggleTheme(),
  'o': () => toggleTotals(),
  '?': () => toggleHelp(),
  '/': () => byName('search').focus(),
  'u': () => presentBox() && toggleFold(presentBox()),
  'c': () => presentBox() && closeAround(presentBox()),
  'i': () => presentBox() && (presentBox().kind === 'node' ? selectNode(presentBox().node) : selectBox(presentBox())),
};

function pan(dx, dy) {
  app.x += dx;
  app.y += dy;
  move();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !app.view) return;
  if (event.key === 'Escape') {
    onEscape();
    return;
  }
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === 'Tab') {
    onTab(event);
    return;
  }
  const box = event.target.dataset && event.target.dataset.box ? app.byId.get(event.target.dataset.box) : null;
  if (box && (event.key === 'Enter' || event.key === ' ')) {
    event.preventDefault();
    toggleBox(box);
    focusBox(box.id);
    return;
  }
  // In the panel the arrow keys scroll.
  if (event.key.startsWith('Arrow') && byName('panel').contains(event.target)) return;
  if (Object.hasOwn(KEYS, event.key)) {
    event.preventDefault();
    KEYS[event.key]();
  }
}
