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

for picture in $(grep -oE '\]\([^)]+\.(svg|png)\)' README.md | sed 's/^](//; s/)$//'); do
  [[ -s $picture ]] || fail "README.md shows $picture, which is not there"
done
exit $((failures > 0))
