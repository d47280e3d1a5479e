#!/usr/bin/env bash
# Layers split by hand equal one device and the compiled plan, and report their collectives:
# raw_test.sh RAW_TP RAW_EP RAW_1F1B
set -u
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
# close TEXT N: TEXT has N differences, all below 1024 x 2^-24, the error of sums of 1024 f32 terms in another order.
close() {
  local differences
  mapfile -t differences < <(grep -oE '[0-9]\.[0-9]e[-+][0-9]+' <<<"$1")
  [[ ${#differences[@]} -eq $2 ]] &&
    awk 'BEGIN { for (i = 1; i < ARGC; ++i) if (ARGV[i] > 6.1e-5) exit 1 }' "${differences[@]}"
}
# Rows of collectives, "KIND AXES COUNT BYTES": measured and planned.
ran() { grep -E "^[a-z].* ms$" <<<"$1" | awk '{print $1, $2, $3, $4}'; }
planned() { grep -E " planned$" <<<"$1" | awk '{print $1, $2, $3, $4}'; }

for ranks in 1 2 4; do
  out=$("$1" --ranks $ranks) || fail "raw_tp: exit code $?"
  close "$out" 28 || fail "raw_tp, $ranks ranks: $out"
  # x, or dx, or y: 256 tokens of 256 floats. Row-parallel y has 1024 columns.
  want=$(printf '%s\n' "all_reduce tp 1 262144" "all_reduce tp 1 1048576" "all_reduce tp 2 524288")
  [[ $(ran "$out" | head -3) == "$want" ]] || fail "raw_tp: $out"
  # The gathered hidden values, the sums of y and dx, and the gradient of the hidden values: twice the sandwich's.
  pair=$(printf '%s\n' "all_reduce tp 2 524288" "all_gather tp 1 1048576" "reduce_scatter tp 1 1048576" | sort)
  [[ $(ran "$out" | tail -3 | sort) == "$pair" ]] || fail "raw_tp: pair: $out"
  grep -qE "^pair: .* 2 +4$" <<<"$out" || fail "raw_tp: collectives of the pair: $out"
  grep -qE "^sandwich: .* 1 +2$" <<<"$out" || fail "raw_tp: collectives of the sandwich: $out"
  [[ $(ran "$out" | sed -n '4,5p') == $(printf '%s\n' "all_gather tp 2 524288" "reduce_scatter tp 2 524288") ]] ||
    fail "raw_tp: sequence: $out"
  [[ $ranks == 1 || $(planned "$out") == "$want" ]] || fail "raw_tp: planned otherwise: $out"
  out=$("$2" --ranks $ranks) || fail "raw_ep: exit code $?"
  close "$out" 10 || fail "raw_ep, $ranks ranks: $out"
  # One exchange of counts; rows there and back, forward and backward.
  grep -qE "^all_to_all +ep +5 " <<<"$out" || fail "raw_ep: $out"
  [[ $ranks == 1 || $(planned "$out" | sort) == $(ran "$out" | sort) ]] || fail "raw_ep: planned otherwise: $out"
  out=$("$2" --ranks $ranks --skew 0.9) || fail "raw_ep --skew: exit code $?"
  close "$out" 10 || fail "raw_ep --skew, $ranks ranks: $out"
  # 0.9 of the 2 T choices of each rank's T tokens select expert 0 on rank 0, within 5 standard deviations.
  grep -E "^ +[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+ ms$" <<<"$out" | awk -v n=$ranks '
    { sum += $2; if ($1 == 0) first = $2 }
    END { all = 256 * n; want = 0.9 + 0.1 / 7 * (8 / n - 1); off = first / all - want
          exit !(NR == n && sum == all && off < 1.5 / sqrt(all) && off > -1.5 / sqrt(all)) }' ||
    fail "raw_ep --skew: rows: $out"
done
for ranks in 1 2 4; do
  for microbatches in 2 8; do
    out=$("$3" --ranks $ranks --microbatches $microbatches) || fail "raw_1f1b: exit code $?"
    grep -q "loss and 8 weights have the same bits" <<<"$out" || fail "raw_1f1b, $ranks ranks: $out"
  done
done
"$3" --ranks 3 2>/dev/null && fail "raw_1f1b accepted 3 ranks"
"$2" --skew 1.5 2>/dev/null && fail "raw_ep accepted --skew 1.5"
"$1" --ranks 3 2>/dev/null && fail "raw_tp accepted 3 ranks"
exit $((failures > 0))
