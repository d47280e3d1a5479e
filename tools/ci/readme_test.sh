#!/usr/bin/env bash
# Tests the samples of README.md, docs/mesh.md and docs/gpu.md: the model is an example that builds and learns, CI runs
# the test command, and the programs print the outputs.
set -u
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

block=$(awk '/^```cpp$/ {on = 1; next} /^```$/ {on = 0} on' README.md)
[[ $block == "$(cat models/examples/first_model.cc)" ]] || {
  fail "the README's model differs from models/examples/first_model.cc"
  diff <(echo "$block") models/examples/first_model.cc | head
}
grep -qF './bazelw test //...' README.md || fail "README.md lacks the test command"
grep -qE '^tests .* --config=ci //[.]{3}$' .ci/run || fail ".ci/run does not run the README's test command"

out=$(models/examples/first_model) || fail "first_model: exit code $?"
loss=$(sed -n 's/^step 500  loss \(.*\)/\1/p' <<<"$out")
awk -v l="$loss" 'BEGIN {exit !(l != "" && l < 0.02)}' ||
  fail "first_model learned to a loss of '$loss'; need below 0.02"

# The outputs of programs on a mesh: the rows that the programs print, without times and predictions.
rows() {
  grep -E ' [0-9]+ x |(all_to_all|all_reduce) +(tp|ep) ' |
    sed -E 's/ +(exposed|[0-9]+% behind|[0-9.]+ ms$).*//; s/over its link.*//; s/ +/ /g'
}
models/moe/train --mesh dp2,ep2 --ranks threads --batch_size 8 --seq_len 64 --steps 1 --sample 0 --eval_every 0 \
    --checkpoint_every 0 --show_plan >plan.txt ||
  fail "train --mesh: exit code $?"
{ models/examples/raw_tp; models/examples/raw_ep; } >by_hand.txt || fail "raw_tp, raw_ep: exit code $?"
shown=$(rows <docs/mesh.md)
[[ $(wc -l <<<"$shown") -ge 20 ]] || fail "docs/mesh.md shows too little of a plan: $shown"
printed=$(cat plan.txt by_hand.txt | rows)
while read -r row; do
  grep -qF -- "$row" <<<"$printed" || fail "docs/mesh.md: the programs do not print '$row'"
done <<<"$shown"
places() { grep -oE '[a-z_]+ at [a-z_]+\.cc:[0-9]+:' | sort -u; }
placed=$(places <docs/mesh.md)
[[ $(wc -l <<<"$placed") -ge 3 ]] || fail "docs/mesh.md shows too few reasons of collectives: $placed"
while read -r place; do
  places <plan.txt | grep -qxF -- "$place" ||
    fail "docs/mesh.md: '$place' is not a reason of the plan: $(places <plan.txt)"
done <<<"$placed"

# The page on GPUs: its kernel is the printer's output, its error is the trainer's on a machine without a GPU.
kernel=$(awk '/^```c\+\+$/ {on = 1; next} /^```$/ {on = 0} on' docs/gpu.md)
[[ $kernel == "$(cat compiler/targets/cuda/print/testdata/gelu_mul.golden)" ]] ||
  fail "the kernel of docs/gpu.md differs from gelu_mul.golden"
said=$(models/moe/train --device cuda --steps 1 --sample 0 --eval_every 0 --checkpoint_every 0 2>&1 >/dev/null)
code=$?
if [[ $said == *libcuda.so.1* ]]; then
  [[ $code -eq 2 ]] || fail "train --device cuda: exit code $code; need 2"
  grep -qF -- "$said" docs/gpu.md || fail "docs/gpu.md does not show '$said'"
fi
exit $((failures > 0))
