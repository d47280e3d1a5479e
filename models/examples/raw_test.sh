#!/usr/bin/env bash
# The layers written by hand equal one device, and say what the collectives moved: raw_test.sh RAW_TP RAW_EP
set -u
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
# close TEXT N: it holds N differences, all below 1024 x 2^-24: sums of as many f32 terms, cut in another order.
close() {
  local differences
  mapfile -t differences < <(grep -oE '[0-9]\.[0-9]e[-+][0-9]+' <<<"$1")
  [[ ${#differences[@]} -eq $2 ]] && awk 'BEGIN { for (i = 1; i < ARGC; ++i) if (ARGV[i] > 6.1e-5) exit 1 }' "${differences[@]}"
}
# moved TEXT KIND AXES COUNT BYTES: how often within the text that row occurs.
moved() { grep -cE "^$2 +$3 +$4 +$5 " <<<"$1"; }

for ranks in 1 2 4; do
  out=$("$1" --ranks $ranks) || fail "raw_tp: exit code $?"
  close "$out" 14 || fail "raw_tp, $ranks ranks: $out"
  # x, or dx, or y: 256 tokens of 256 floats. Row-parallel y has 1024 columns.
  [[ $(moved "$out" all_reduce tp 1 262144) -eq 1 ]] || fail "raw_tp: column: $out"
  [[ $(moved "$out" all_reduce tp 1 1048576) -eq 1 ]] || fail "raw_tp: row: $out"
  [[ $(moved "$out" all_reduce tp 2 524288) -eq 1 ]] || fail "raw_tp: sandwich: $out"
  [[ $(moved "$out" all_gather tp 2 524288) -eq 1 ]] || fail "raw_tp: all_gather: $out"
  [[ $(moved "$out" reduce_scatter tp 2 524288) -eq 1 ]] || fail "raw_tp: reduce_scatter: $out"
  out=$("$2" --ranks $ranks) || fail "raw_ep: exit code $?"
  close "$out" 5 || fail "raw_ep, $ranks ranks: $out"
  # Counts once; rows there and back, forward and backward.
  grep -qE "^all_to_all +ep +5 " <<<"$out" || fail "raw_ep: $out"
done
"$1" --ranks 3 2>/dev/null && fail "raw_tp accepted 3 ranks"
exit $((failures > 0))
