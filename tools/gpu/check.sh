#!/usr/bin/env bash
# All checks that need a GPU, on a machine that has one: tests, small tests under NVIDIA's sanitizer, and benchmarks
# beside PyTorch's. Writes one JSON file, and updates it after each part.
#
#   tools/gpu/check.sh --pack DIR      builds everything needed into DIR (below 60 MB); needs no GPU
#   DIR/check.sh [--out FILE] [--only PART,PART] [--minutes N]
#                                      runs there, or on any x86-64 Linux with an NVIDIA driver to which DIR was copied
#
# Parts, most valuable first: ops attention train verify runtime products flex steps memory chains memcheck racecheck synccheck
# torch. Each has its own time limit; together they take at most N minutes (9). Parts left out are reported.
# Exit code: 0 all held, 1 something failed, 2 bad usage, 77 there is no GPU.
set -u -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
all="ops attention train verify runtime products flex steps memory chains memcheck racecheck synccheck torch"
usage() {
  echo "check.sh: $1" >&2
  sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

pack=
out=gpu_check.json
only=$all
minutes=9
while [ $# -gt 0 ]; do
  case $1 in
    --pack | --out | --only | --minutes)
      [ $# -ge 2 ] || usage "$1 needs a value"
      case $1 in
        --pack) pack=$2 ;;
        --out) out=$2 ;;
        --only) only=${2//,/ } ;;
        --minutes) minutes=$2 ;;
      esac
      shift 2
      ;;
    *) usage "unknown flag $1" ;;
  esac
done
case $minutes in '' | *[!0-9]*) usage "--minutes: got '$minutes'; need a whole number" ;; esac
for part in $only; do
  case " $all " in *" $part "*) ;; *) usage "--only: there is no part '$part'; there are $all" ;; esac
done

if [ -n "$pack" ]; then
  mkdir -p "$pack" || exit 1
  pack=$(cd "$pack" && pwd)
  cd "$here/../.." || exit 1
  for program in gpu_test bench summary; do
    rm -rf "${pack:?}/$program"
    ${WEFT_BAZEL:-./bazelw} run -- //tools:package "//tools/gpu:$program" --out "$pack/$program" || exit 1
    strip "$pack/$program"/bin/* 2>/dev/null
    strip --strip-unneeded "$pack/$program"/lib/* 2>/dev/null
  done
  cp tools/gpu/check.sh tools/gpu/torch_bench.py "$pack/" || exit 1
  size=$(du -sm "$pack" | cut -f1)
  echo "$pack: $size MB"
  [ "$size" -lt 60 ] || { echo "check.sh: $size MB; need less than 60" >&2; exit 1; }
  exit 0
fi

for program in gpu_test bench summary; do
  [ -x "$here/$program/bin/$program" ] || { echo "check.sh: $program is missing; build everything with --pack DIR" >&2; exit 2; }
done
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export WEFT_GPU_CHECK=1 HOME=${HOME:-$work}
export WEFT_CACHE=${WEFT_CACHE:-$work/kernels}
failed=0

# Test for a GPU by running no test.
"$here/gpu_test/bin/gpu_test" --gtest_filter=none > "$work/device.log" 2>&1
if [ $? -eq 77 ]; then
  cat "$work/device.log"
  exit 77
fi
nvidia-smi --query-gpu=name,driver_version,power.limit,clocks.max.sm --format=csv,noheader > "$work/gpu.txt" 2> /dev/null
end=$((SECONDS + 60 * minutes))

# record NAME STATUS SECONDS WHY: adds the row of a part, and writes the JSON so far.
record() {
  printf '%s\t%s\t%s\t%s\n' "$@" >> "$work/parts.tsv"
  case $2 in held | skipped) ;; *) failed=1 ;; esac
  "$here/summary/bin/summary" "$work" > "$work/summary.json" 2> "$work/summary.log" && cp "$work/summary.json" "$out"
  echo "== $1: $2 ${4:+($4)}"
}

# The seconds for a part: the smaller of its limit and the remaining time; empty if that is too little.
allowed() {
  local left=$((end - SECONDS))
  [ "$left" -ge 5 ] && echo $((left < $1 ? left : $1))
}

# run NAME SECONDS COMMAND...: sets `code`.
run() {
  local name=$1 limit=$2 log="$work/$1.log"
  shift 2
  timeout -k 5 "$limit" "$@" >> "$log" 2>&1 < /dev/null
  code=$?
}

verdict() {
  case $1 in
    0) echo held ;;
    124 | 137) echo "timed out" ;;
    *) if [ "$1" -gt 128 ]; then echo crashed; else echo failed; fi ;;
  esac
}

# tests NAME SECONDS FILTER: if a process crashes, hangs or loses the device, a new one runs the remaining tests.
tests() {
  local begin=$SECONDS limit skip='' seen='' worst=0 why=''
  : > "$work/$1.log"
  while limit=$(allowed $(($2 - (SECONDS - begin)))) && [ -n "$limit" ] && [ "$limit" -gt 0 ]; do
    run "$1" "$limit" "$here/gpu_test/bin/gpu_test" --gtest_color=no --gtest_filter="$3${skip:+-$skip}"
    [ "$code" -eq 0 ] || worst=$code
    case $code in 0 | 1 | 77 | 124 | 137) break ;; esac
    skip=$(sed -n 's/^\[ RUN      \] \([^ ]*\).*/\1/p' "$work/$1.log" | sort -u | paste -sd:)
    [ "$skip" != "$seen" ] || break
    seen=$skip
    why="a test ended its process, with code $code"
  done
  [ -n "$limit" ] || { [ -n "$seen" ] || { record "$1" "not run" 0 "no time was left"; return; }; worst=124; }
  record "$1" "$(verdict "$worst")" $((SECONDS - begin)) "$why"
}

bench() {
  local begin=$SECONDS limit
  limit=$(allowed "$2") && [ -n "$limit" ] || { record "$1" "not run" 0 "no time was left"; return; }
  run "$1" "$limit" "$here/bench/bin/bench" --only "$1" --json "$work/bench_$1.json"
  cat "$work/$1.log"
  record "$1" "$(verdict "$code")" $((SECONDS - begin)) ""
}

sanitize() {
  local begin=$SECONDS limit tool
  tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null)
  [ -n "$tool" ] || { record "$1" skipped 0 "there is no compute-sanitizer"; return; }
  limit=$(allowed "$2") && [ -n "$limit" ] || { record "$1" "not run" 0 "no time was left"; return; }
  run "$1" "$limit" env WEFT_GPU_CHECK_SMALL=1 WEFT_GPU_TEST_SECONDS=600 "$tool" --tool "$1" --error-exitcode 9 \
    "$here/gpu_test/bin/gpu_test" --gtest_color=no --gtest_filter="$3"
  grep -m 20 '=========' "$work/$1.log"
  record "$1" "$(verdict "$code")" $((SECONDS - begin)) ""
}

torch() {
  local begin=$SECONDS limit
  command -v python3 > /dev/null || { record torch skipped 0 "there is no python3"; return; }
  limit=$(allowed 30) && [ -n "$limit" ] || { record torch "not run" 0 "no time was left"; return; }
  run torch "$limit" python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())'
  [ "$code" -eq 0 ] || { record torch skipped $((SECONDS - begin)) "there is no PyTorch with CUDA"; return; }
  limit=$(allowed "$1") && [ -n "$limit" ] || { record torch "not run" 0 "no time was left"; return; }
  run torch "$limit" python3 "$here/torch_bench.py" --json "$work/torch.json"
  cat "$work/torch.log"
  record torch "$(verdict "$code")" $((SECONDS - begin)) ""
}

for part in $all; do
  case " $only " in *" $part "*) ;; *) continue ;; esac
  case $part in
    ops) tests ops 120 '*SmallOps*' ;;
    attention) tests attention 60 '*Attention*' ;;
    train) tests train 150 '*Train.*' ;;
    verify) tests verify 60 '*Verify*' ;;
    runtime) tests runtime 30 '*DriverSuite.*' ;;
    products) bench products 40 ;;
    flex) bench flex 40 ;;
    steps) bench steps 60 ;;
    memory) bench memory 40 ;;
    chains) bench chains 40 ;;
    memcheck) sanitize memcheck 60 '*SmallTrain.*:*Attention*/Small*:*DriverSuite.*' ;;
    racecheck) sanitize racecheck 60 '*Attention*/Small*:*SmallTrain.ReplayedIsQueued*' ;;
    synccheck) sanitize synccheck 60 '*Attention*/Small*:*SmallTrain.ReplayedIsQueued*' ;;
    torch) torch 90 ;;
  esac
done
"$here/summary/bin/summary" "$work" --table
[ -s "$out" ] || { echo "check.sh: no JSON was written: $(cat "$work/summary.log")" >&2; failed=1; }
echo "== $out; exit $failed"
exit $failed
