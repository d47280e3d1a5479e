#!/bin/bash
# Draws the pictures of a step in README.md anew: tools/docs/pictures.sh, from the root of the repository. Look at them
# before you commit them. Needs Debian's chromium-headless-shell for the picture of the page.
set -euo pipefail

step=(--model gpt --config gpt_base --batch_size 4)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

./bazelw build //tools:graph //tools:profile
out/bin/tools/profile/profile "${step[@]}" --by module --roofline docs/step_roofline.svg --memory docs/step_memory.svg
out/bin/tools/profile/profile "${step[@]}" --mesh dp2 --steps 1 --by class --trace docs/step_trace.svg
out/bin/tools/graph/graph "${step[@]}" --format html --out "$work/page.html"
chromium-headless-shell --no-sandbox --disable-gpu --hide-scrollbars --window-size=1400,800 \
  --virtual-time-budget=5000 --screenshot=docs/step_graph.png "file://$work/page.html#graph=1&theme=light" 2> /dev/null
ls -l docs/step_*
