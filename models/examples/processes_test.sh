#!/usr/bin/env bash
# processes_test.sh PROGRAM: a user's program as processes has the losses of one process, also if another launcher has
# started the processes. Different arguments of one process are an error.
set -u
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
# close A B: the losses of A and B differ by rounding only.
close() {
  paste <(awk '{print $4}' <<<"$1") <(awk '{print $4}' <<<"$2") |
    awk '{d = $1 - $2; if (d < 0) d = -d; if (!(d <= 1e-4 * $2)) exit 1}'
}
one=$("$1" dp1 20) || fail "dp1: exit code $?"
[[ $(wc -l <<<"$one") == 2 ]] || fail "dp1 prints: $one"
four=$("$1" fsdp2,tp2 20) || fail "fsdp2,tp2: exit code $?"
close "$four" "$one" || fail "fsdp2,tp2: $four instead of $one"
start() {
  local rank=$1
  shift
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@"
}
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
start 1 "$1" fsdp2,tp2 20 >other.txt 2>&1 &
two=$(start 0 "$1" fsdp2,tp2 20) || fail "two processes: exit code $?"
wait $! || fail "two processes, the second: $(cat other.txt)"
[[ $two == "$four" ]] || fail "four ranks of two processes: $two instead of $four"
start 1 "$1" dp2 7 >other.txt 2>&1 &
start 0 "$1" dp2 8 >out.txt 2>&1 && fail "other arguments: exit code 0"
wait
grep -qF "rank 1 (host " out.txt && grep -qF ") has the arguments dp2 7 and the others have dp2 8; need" out.txt ||
  fail "other arguments: $(cat out.txt)"
start 0 "$1" dp1 >out.txt 2>&1 && fail "dp1: exit code 0"
start 0 "$1" dp3 >out.txt 2>&1 && fail "dp3: exit code 0"
grep -qF "job: the mesh has 3 ranks, and torchrun has started 2 processes of this program; need" out.txt ||
  fail "dp3: $(cat out.txt)"
exit $((failures > 0))
