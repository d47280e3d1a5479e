// Functions of all pages; make_page() puts them before the script of a page.
'use strict';

const byName = (id) => document.getElementById(id);

/// An element with properties and children; strings become text.
function el(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function showMessage(text) {
  byName('message').textContent = text;
  byName('message').hidden = !text;
}

/// The JSON that make_page() packed into the page. Every failure is an error of one sentence.
async function unpackData() {
  if (typeof DecompressionStream !== 'function')
    throw new Error('This browser cannot unpack the data: it has no DecompressionStream. '
      + 'Use Firefox 113, Chrome 80 or Safari 16.4, or later.');
  try {
    const text = byName('data').textContent.trim();
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    return JSON.parse(await new Response(stream).text());
  } catch (error) {
    throw new Error('The data in this page is damaged; write the page again.');
  }
}
