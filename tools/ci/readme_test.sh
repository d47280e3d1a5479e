#!/usr/bin/env bash
# The README is true: its model is the example that builds here and learns, its test command is what CI runs.
set -u
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

block=$(awk '/^```cpp$/ {on = 1; next} /^```$/ {on = 0} on' README.md)
[[ $block == "$(cat models/examples/first_model.cc)" ]] || {
  fail "the README's model differs from models/examples/first_model.cc"
  diff <(echo "$block") models/examples/first_model.cc | head
}
grep -qF './bazelw test //...' README.md || fail "README.md lacks the test command"
grep -qF './bazelw test //...' .ci/run || fail ".ci/run does not run the README's test command"

out=$(models/examples/first_model) || fail "first_model: exit code $?"
loss=$(sed -n 's/^step 500  loss \(.*\)/\1/p' <<<"$out")
awk -v l="$loss" 'BEGIN {exit !(l != "" && l < 0.02)}' || fail "first_model learned to a loss of '$loss'; need below 0.02"

# Blocks of programs over a mesh: their rows are those that the programs print, up to what a clock or a prediction says.
rows() { grep -E ' [0-9]+ x |(all_to_all|all_reduce) +(tp|ep) ' | sed -E 's/ +(exposed|[0-9]+% behind|[0-9.]+ ms$).*//; s/over its link.*//; s/ +/ /g'; }
models/moe/train --mesh dp2,ep2 --batch_size 8 --seq_len 64 --steps 1 --sample 0 --eval_every 0 --checkpoint_every 0 --show_plan >plan.txt || fail "train --mesh: exit code $?"
{ models/examples/raw_tp; models/examples/raw_ep; } >by_hand.txt || fail "raw_tp, raw_ep: exit code $?"
shown=$(awk '/^## / {on = /One model, any mesh/} on' README.md | rows)
[[ $(wc -l <<<"$shown") -ge 20 ]] || fail "README.md shows too little of a plan: $shown"
printed=$(cat plan.txt by_hand.txt | rows)
while read -r row; do
  grep -qF -- "$row" <<<"$printed" || fail "README.md: '$row' is not what the programs print"
done <<<"$shown"

# The section on GPUs: the kernel shown is what the printer makes, the sentence is what a trainer says without one.
kernel=$(awk '/^## / {gpu = /On an NVIDIA GPU/} /^```c\+\+$/ {on = gpu; next} /^```$/ {on = 0} on' README.md)
[[ $kernel == "$(cat compiler/targets/cuda/print/testdata/gelu_mul.golden)" ]] || fail "the README's kernel differs from gelu_mul.golden"
said=$(models/moe/train --device cuda --steps 1 --sample 0 --eval_every 0 --checkpoint_every 0 2>&1 >/dev/null)
code=$?
if [[ $said == *libcuda.so.1* ]]; then
  [[ $code -eq 2 ]] || fail "train --device cuda: exit code $code; need 2"
  grep -qF -- "$said" README.md || fail "README.md does not show '$said'"
fi

for picture in $(grep -oE '\]\([^)]+\.(svg|png)\)' README.md | sed 's/^](//; s/)$//'); do
  [[ -s $picture ]] || fail "README.md shows $picture, which is not there"
done
exit $((failures > 0))
