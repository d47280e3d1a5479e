#!/usr/bin/env bash
# Short runs of the attention examples confirm their comments: attention_test.sh PACKED_DOCUMENTS ALIBI PREFIX_LM
set -u
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
# holds CONDITION NUMBERS...: an awk condition over $1, $2, ...
holds() { local condition=$1; shift; [[ $# -gt 0 ]] && echo "$@" | awk "{exit !($condition)}"; }

out=$("$1" --steps 40) || fail "packed_documents: exit code $?"
read -r packed apart < <(sed -nE 's/^unseen documents: loss ([0-9.]+) packed, ([0-9.]+) one by one$/\1 \2/p' <<<"$out")
# Both are means of about 2000 f32 terms, in two orders.
holds '$1 < 3.4 && $1 - $2 < 5e-5 && $2 - $1 < 5e-5' "$packed" "$apart" || fail "packed_documents: $out"
grep -q "^1 captures" <<<"$out" || fail "packed_documents captured more than once: $out"

out=$("$2" --steps 50) || fail "alibi: exit code $?"
read -r short _ long < <(sed -nE 's/^alibi +([0-9.]+) +([0-9.]+) +([0-9.]+)$/\1 \2 \3/p' <<<"$out")
holds '$1 < 3.3 && $2 < $1 + 0.05' "$short" "$long" || fail "alibi: $out"

out=$("$3" --steps 120) || fail "prefix_lm: exit code $?"
loss=$(sed -nE 's/^step +100 +loss ([0-9.]+)$/\1/p' <<<"$out")
holds '$1 < 0.4' "$loss" || fail "prefix_lm: $out"
exit $((failures > 0))
