/// The JSON that make_page() packed into the page. Every failure is an error of one sentence.
async function unpackData() {
  if (typeof DecompressionStream !== 'function')
    throw new Error('This browser cannot unpack the data: it has no DecompressionStream. '
      + 'Use Firefox 113, Chrome 80 or Safari 16.4, or later.');
  try {
    const text = document.getElementById('data').textContent.trim();
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    return JSON.parse(await new Response(stream).text());
  } catch (error) {
    throw new Error('The data in this page is damaged; write the page again.');
  }
}
