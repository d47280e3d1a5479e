// Shows the planner's picture and table, and the title of the bar under the pointer.
const COLUMNS = ['', 'step', 'compute', 'contention', 'communication', 'hidden', 'exposed', 'exposed / step',
                 'memory'];
const row = (kind, cells) => el('tr', {}, ...cells.map((text) => el(kind, {}, text)));

/// The browser's own title would appear late, and over the box.
function showTitles() {
  const box = byName('box');
  for (const title of document.querySelectorAll('rect > title')) {
    const bar = title.parentNode, text = title.textContent.replaceAll('; ', '\n');
    title.remove();
    bar.setAttribute('aria-label', text);
    bar.addEventListener('pointermove', (event) => {
      box.textContent = text;
      box.hidden = false;
      box.style.left = `${Math.min(event.clientX + 14, window.innerWidth - box.offsetWidth - 8)}px`;
      box.style.top = `${Math.min(event.clientY + 14, window.innerHeight - box.offsetHeight - 8)}px`;
    });
    bar.addEventListener('pointerleave', () => { box.hidden = true; });
  }
}

unpackData().then((data) => {
  byName('title').textContent = data.title;
  byName('note').textContent = data.note;
  byName('figures').replaceChildren(row('th', COLUMNS), ...data.rows.map((cells) => row('td', cells)));
  byName('drawing').innerHTML = data.svg;
  showTitles();
}).catch((error) => showMessage(error.message));
