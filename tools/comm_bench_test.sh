#!/bin/sh
# Each transport prints its tables, with no wrong element.
set -e
out=$(tools/comm_bench --ranks 3 --max_bytes 65536 --factor 16 --seconds 0 --skew 0.5)
echo "$out"
for t in threads shared gloo; do
  test "$(echo "$out" | grep -c "^# .*, $t, 3 ranks")" = 8
done
# 7 collectives with 4 sizes and one barrier, of 3 transports.
test "$(echo "$out" | grep -c '^ .* 0$')" = 87
test "$(echo "$out" | grep -c '^ ')" = 87

# As in nccl-tests, the size is the size of all ranks; all_gather counts the elements of one rank.
test "$(echo "$out" | grep -A 5 "^# all_gather, threads" | awk '$3 == "float" {print $1 / 4 / 3 == $2}' | sort -u)" = 1
test "$(echo "$out" | grep -A 5 "^# all_reduce, threads" | awk '$3 == "float" {print $1 / 4 == $2}' | sort -u)" = 1

# A copy beside each collective, and the library beside all_reduce between processes.
out=$(tools/comm_bench --max_bytes 4 --seconds 0 --against copy)
echo "$out"
test "$(echo "$out" | grep '^ ' | awk 'NF == 10 && $8 == 0 && $10 > 0' | wc -l)" = 21
out=$(tools/comm_bench --max_bytes 4 --seconds 0 --against gloo)
echo "$out"
test "$(echo "$out" | grep '^ ' | awk 'NF == 10 && $8 == 0 && $10 > 0' | wc -l)" = 2

# No size to measure.
error=$(tools/comm_bench --min_bytes 100 --max_bytes 10 2>&1) && exit 1
test "$error" = "comm_bench: --max_bytes: got 10; need at least --min_bytes, 100"
