#!/bin/bash
# Takes pictures of the graph viewer with sample data, for a person to look at: screenshots.sh FOLDER
# Needs node and Debian's chromium-headless-shell.
set -euo pipefail

out=${1:?usage: screenshots.sh FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)

# page KIND SIZE: writes a page with sample data.
page() {
  node "$here/join_page.js" "$1" "$2" > "$out/$1_$2.html"
}

# picture NAME PAGE HASH: the hash chooses theme, colour, node, graph and search.
picture() {
  chromium-headless-shell --no-sandbox --disable-gpu --hide-scrollbars --window-size=1600,1000 \
    --virtual-time-budget=5000 --screenshot="$out/$1.png" "file://$out/$2.html#$3" 2> /dev/null
}

page mlp 0
page gpt 12
page gpt 80
page odd 32
page two 4
page plain 10000

picture mlp_light mlp_0 theme=light
picture mlp_time_dark mlp_0 'theme=dark&color=time'
picture gpt_light gpt_12 theme=light
picture gpt_dark gpt_12 theme=dark
picture gpt_bytes gpt_12 color=bytes
picture gpt_phase gpt_12 color=phase
picture gpt_node_light gpt_12 'theme=light&node=60'
picture gpt_node_dark gpt_12 'theme=dark&node=1400'
picture gpt_80_search gpt_80 'search=softmax'
picture odd_layer odd_32 theme=light
picture two_graphs two_4 'graph=1&node=300'
picture no_scopes plain_10000 theme=light
picture no_scopes_open plain_10000 node=5000
ls "$out"/*.png
