'use strict';
// Joins the parts of the page as //tools:graph does, for tests and screenshots:
// node join_page.js mlp|gpt|odd|two|plain SIZE > x.html
const fs = require('fs');
const path = require('path');
const zlib = require('zlib');
const {sample} = require('./sample_data.js');

const folder = path.join(__dirname, '..');
const read = (name) => fs.readFileSync(path.join(folder, name), 'utf8');

/// The order of the parts of the script: layout*.js, then page*.js, each in alphabetical order.
function scriptParts() {
  const parts = fs.readdirSync(folder).filter((name) => /^(layout|page).*\.js$/.test(name));
  return parts.sort((a, b) => (a.slice(0, -3) < b.slice(0, -3) ? -1 : 1));
}

function joinPage(data) {
  const kit = (name) => read(`../draw/${name}`);
  const packed = zlib.gzipSync(JSON.stringify(data), {level: 9}).toString('base64');
  // Functions as replacements: `$&` in the text of a script must stay as it is.
  return kit('page_shell.html')
    .replace('>DATA<', () => `>${packed}<`)
    .replace('<title></title>', () => '<title>Graph</title>')
    .replace('/*STYLE*/', () => read('page.css'))
    .replace('/*SCRIPT*/', () => [kit('page_kit.js'), ...scriptParts().map(read)].join('\n'))
    .replace('<!--BODY-->', () => read('page.html'));
}

module.exports = {joinPage, scriptParts, read};

if (require.main === module) {
  process.stdout.write(joinPage(sample(process.argv[2] || 'gpt', Number(process.argv[3]) || 0)));
}
