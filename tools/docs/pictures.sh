#!/bin/bash
# Draws the pictures of docs/debugging.md and docs/study.md anew: tools/docs/pictures.sh, from the root of the
# repository. Look at them before you commit them. Needs Debian's chromium-headless-shell for the pictures of pages.
set -euo pipefail

step=(--model gpt --config gpt_base --batch_size 4)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

./bazelw build //tools:graph //tools:profile
out/bin/tools/profile/profile "${step[@]}" --by module --roofline docs/step_roofline.svg --memory docs/step_memory.svg
out/bin/tools/profile/profile "${step[@]}" --mesh dp2 --steps 1 --by class --trace docs/step_trace.svg
out/bin/tools/graph/graph "${step[@]}" --format html --out "$work/page.html"
chromium-headless-shell --no-sandbox --disable-gpu --hide-scrollbars --window-size=1400,800 \
  --virtual-time-budget=5000 --screenshot=docs/step_graph.png "file://$work/page.html#theme=light" 2> /dev/null
ls -l docs/step_*

# docs/study.md.
./bazelw build //tools:pipeline //tools:plan //tools:simulate
out/bin/tools/pipeline/pipeline --schedule 1f1b,interleaved_1f1b,zb_h1,zb_v --html "$work/page.html"
chromium-headless-shell --no-sandbox --disable-gpu --hide-scrollbars --window-size=1250,1250 \
  --virtual-time-budget=5000 --screenshot=docs/pipeline_page.png "file://$work/page.html" 2> /dev/null
out/bin/tools/plan/plan --model llama-8b --gpus 64 --batch 64 --timeline "$work/page.html"
chromium-headless-shell --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,1250 \
  --virtual-time-budget=5000 --screenshot=docs/plan_timeline.png "file://$work/page.html" 2> /dev/null
out/bin/tools/study/simulate --svg docs/failures.svg
out/bin/tools/study/simulate --diloco --svg docs/diloco.svg
./bazelw build //tools:moe
out/bin/tools/moe/moe --remedies --svg docs/moe_load.svg
out/bin/tools/moe/moe --layouts --ranks 4 --rounds 0 --svg docs/moe_layouts.svg
ls -l docs/pipeline_page.png docs/plan_timeline.png docs/failures.svg docs/diloco.svg docs/moe_*.svg
