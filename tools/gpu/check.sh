#!/usr/bin/env bash
# All checks that need a GPU, on a machine that has one: tests, benchmarks beside PyTorch's, and small tests under
# NVIDIA's sanitizer. Writes one JSON file, and updates it after each part.
#
#   tools/gpu/check.sh --pack DIR [--sm 90,100]
#                          builds everything needed into DIR, and DIR.tar.xz of at most 20 MB; needs no GPU. Carries the
#                          benchmarks' kernels for these GPUs (80: A100, 90: H100 and H200, 100: B200; by default 90)
#   DIR/check.sh [--minutes N] [--only PART,PART] [--out FILE] [--keep FOLDER] [--merge FILE]
#                          runs there, or on any x86-64 Linux with an NVIDIA driver to which DIR was copied
#   DIR/check.sh --list    prints the parts of such a run in their order, with their limits in seconds
#
# Together the parts take at most N minutes. From 24 on (the default) all parts run; with less, the parts that fit into
# 7, and the others are reported as left out. --only names parts to run, with their limits of 24 minutes. Limits become
# smaller in proportion if their sum is more than N minutes. Parts named *_mma run without the kernels for sm_90a.
# --keep writes the JSON and all files (logs.tar.gz) to FOLDER. --merge takes such a file of an earlier call on the same
# kind of GPU: its results stay, except for the parts that run now. Compiled kernels are stored in WEFT_CACHE (by
# default $TMPDIR/weft_gpu_kernels) and stay there; kernels in DIR/kernels are copied to it first.
# Exit code: 0 all parts of this call held, 1 something failed (racecheck does not count), 2 bad usage, 77 no GPU.
set -u -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# The parts in their order, and their limits in seconds in 24 minutes and in 7. 0: left out.
table='runtime 40 15
attention 90 40
steps 60 25
flex 40 25
products 40 15
memory 40 20
chains 40 0
attention_mma 90 0
steps_mma 60 0
flex_mma 40 0
verify 75 40
train 150 60
ops 120 40
large_ops 90 0
torch 240 70
memcheck 90 50
synccheck 60 0
racecheck 60 0'
grace=5 # seconds after the limit of a test until its process is killed
usage() {
  echo "check.sh: $1" >&2
  sed -n '2,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}
whole() { case $2 in '' | *[!0-9]*) usage "$1: got '$2'; need a whole number" ;; esac; }

pack=
sm=90
out=gpu_check.json
keep=
merge=
only=
minutes=24
list=
while [ $# -gt 0 ]; do
  case $1 in
    --list) list=1 && shift ;;
    --pack | --sm | --out | --keep | --merge | --only | --minutes)
      [ $# -ge 2 ] || usage "$1 needs a value"
      case $1 in
        --pack) pack=$2 ;;
        --sm) sm=${2//,/ } ;;
        --out) out=$2 ;;
        --keep) keep=$2 ;;
        --merge) merge=$2 ;;
        --only) only=${2//,/ } ;;
        --minutes) whole "$1" "$2" && minutes=$((10#$2)) ;;
      esac
      shift 2
      ;;
    *) usage "unknown flag $1" ;;
  esac
done
all=
declare -A limits # limits of the selected parts
sum=0
while read -r part long short; do
  all="${all:+$all }$part"
  case " ${only:-$part} " in *" $part "*) ;; *) continue ;; esac
  limits[$part]=$long
  [ -n "$only" ] || [ "$minutes" -ge 24 ] || limits[$part]=$short
  sum=$((sum + limits[$part]))
done <<< "$table"
for part in $only; do
  case " $all " in *" $part "*) ;; *) usage "--only: there is no part '$part'; there are $all" ;; esac
done
left_out=
room=$((minutes > 0 ? 60 * minutes - 15 : 0)) # the start takes up to 15 s
for part in $all; do
  [ -n "${limits[$part]-}" ] || continue
  [ "${limits[$part]}" -gt 0 ] || left_out="$left_out $part"
  [ "$sum" -le "$room" ] || limits[$part]=$((limits[$part] * room / sum))
  [ -z "$list" ] || echo "$part ${limits[$part]}"
done
[ -z "$list" ] || exit 0

if [ -n "$pack" ]; then
  mkdir -p "$pack" || exit 1
  pack=$(cd "$pack" && pwd)
  mark=$pack/.weft_gpu_check # folders in it are replaced
  if [ ! -f "$mark" ] && [ -n "$(ls -A "$pack")" ]; then
    echo "check.sh: $pack is not empty and is no pack; need a new folder, or one of an earlier --pack" >&2
    exit 2
  fi
  : > "$mark" && mkdir -p "$pack/lib" || exit 1
  cd "$here/../.." || exit 1
  bazel=${WEFT_BAZEL:-./bazelw}
  for target in //tools/gpu:gpu_test //tools/gpu:bench //tools/gpu:summary //tools/profile //tools:doctor; do
    program=${target##*[/:]}
    rm -rf "${pack:?}/$program"
    $bazel run -- //tools:package "$target" --out "$pack/$program" || exit 1
    cp "$pack/$program"/lib/* "$pack/lib/" && rm -r "${pack:?}/$program/lib" || exit 1
    ln -s ../lib "$pack/$program/lib" || exit 1
  done
  cp tools/gpu/check.sh tools/gpu/torch_bench.py "$pack/" || exit 1
  rm -rf "$pack/kernels"
  for arch in $sm; do
    WEFT_CACHE=$pack/kernels $bazel run -- //tools/gpu:kernels --sm "$arch"
    case $? in 0) ;; 77) echo "$pack carries no kernels" ;; *) exit 1 ;; esac
  done
  tar -C "$(dirname "$pack")" -c "$(basename "$pack")" | xz -9e > "$pack.tar.xz" || exit 1
  size=$(wc -c < "$pack.tar.xz")
  echo "$pack: $(du -sm "$pack" | cut -f1) MB; $pack.tar.xz: $size bytes"
  [ "$size" -le 20000000 ] || { echo "check.sh: $pack.tar.xz has $size bytes; need at most 20000000" >&2; exit 1; }
  exit 0
fi

for program in gpu_test bench summary; do
  [ -x "$here/$program/bin/$program" ] && continue
  echo "check.sh: $program is missing; build everything with --pack DIR" >&2
  exit 2
done
work=$(mktemp -d) || exit 1
child=
trap '[ -z "$child" ] || kill -KILL -- "-$child" 2> /dev/null; rm -rf "$work"' EXIT
[ -z "$keep" ] || mkdir -p "$keep" || exit 1
export WEFT_GPU_CHECK=1 HOME=${HOME:-$work}
export WEFT_CACHE=${WEFT_CACHE:-${TMPDIR:-/tmp}/weft_gpu_kernels}
[ ! -d "$here/kernels" ] || { (umask 077 && mkdir -p "$WEFT_CACHE") && cp -r "$here/kernels/." "$WEFT_CACHE/"; }
# A virtual environment with PyTorch has NVRTC and cuBLASLt too; Weft looks for them below VIRTUAL_ENV.
if [ -z "${VIRTUAL_ENV:-}" ] && command -v python3 > /dev/null; then
  VIRTUAL_ENV=$(python3 -c 'import sys; print(sys.prefix)') && export VIRTUAL_ENV
fi
failed=0

# Test for a GPU by running no test.
timeout -k 5 20 "$here/gpu_test/bin/gpu_test" --gtest_filter=none > "$work/device.log" 2>&1
if [ $? -eq 77 ]; then
  cat "$work/device.log"
  exit 77
fi
facts=name,driver_version,power.limit,clocks.max.sm
gpu=$(timeout 10 nvidia-smi --query-gpu=$facts --format=csv,noheader 2> /dev/null)
if [ -n "$merge" ]; then
  tar -C "$work" -xzf "$merge" || exit 2
  before=$(cat "$work/gpu.txt")
  [ "${before%%,*}" = "${gpu%%,*}" ] || usage "--merge: the results of $merge are of '$before'; this GPU is '$gpu'"
fi
echo "$gpu" > "$work/gpu.txt"
end=$((60 * minutes)) # in SECONDS

# record STATUS SECONDS WHY: adds the row of the part, and writes the JSON so far.
record() {
  [ ! -e "$work/parts.tsv" ] || sed -i "/^$part\t/d" "$work/parts.tsv" # the row of an earlier call
  printf '%s\t%s\t%s\t%s\n' "$part" "$@" >> "$work/parts.tsv"
  case $part:$1 in *:held | *:skipped | *:"left out" | racecheck:*) ;; *) failed=1 ;; esac
  "$here/summary/bin/summary" "$work" > "$work/summary.json" 2> "$work/summary.log" && cp "$work/summary.json" "$out"
  if [ -n "$keep" ]; then
    cp "$work/summary.json" "$keep/gpu_check.json"
    tar -C "$work" -czf "$keep/logs.new" . && mv "$keep/logs.new" "$keep/logs.tar.gz"
  fi
  echo "== $part: $1 in $2 s ${3:+($3)}"
}

# The seconds for a part: the smaller of its limit and the remaining time; empty if that is too little.
allowed() {
  local left=$((end - SECONDS))
  [ "$left" -ge 5 ] && echo $((left < $1 ? left : $1))
}

# run SECONDS QUIET COMMAND...: sets `code`. Kills the command's process group after SECONDS, or if its log does not
# grow for QUIET seconds. Does not wait for a process that the driver does not let end.
run() {
  local limit=$1 quiet=$2 log="$work/$part.log" begin=$SECONDS since=$SECONDS size=0 now
  shift 2
  timeout -k 5 "$limit" "$@" >> "$log" 2>&1 < /dev/null &
  child=$!
  while kill -0 "$child" 2> /dev/null; do
    sleep 0.1
    now=$(wc -c < "$log")
    [ "$now" -eq "$size" ] || { size=$now && since=$SECONDS; }
    [ $((SECONDS - since)) -gt "$quiet" ] || [ $((SECONDS - begin)) -gt $((limit + 10)) ] || continue
    kill -KILL -- "-$child"
    break
  done
  { wait "$child"; } 2> /dev/null
  code=$?
  child=
}

verdict() {
  case $1 in
    0) echo held ;;
    124 | 137) echo "timed out" ;;
    *) if [ "$1" -gt 128 ]; then echo crashed; else echo failed; fi ;;
  esac
}

# tests EACH FILTER: a test gets EACH seconds, at most half of the part's. If one crashes, hangs or loses the device, a
# new process runs the remaining tests.
tests() {
  local each=$((2 * $1 > seconds ? seconds / 2 : $1)) begin=$SECONDS limit skip='' seen worst=0 why='' left=1
  while limit=$(allowed $((seconds - (SECONDS - begin)))) && [ "$limit" -gt 0 ]; do
    run "$limit" $((each + grace)) env WEFT_GPU_TEST_SECONDS="$each" \
      "$here/gpu_test/bin/gpu_test" --gtest_color=no --gtest_filter="$2${skip:+-$skip}"
    [ "$code" -eq 0 ] || worst=$code
    left=
    case $code in 0 | 1 | 77) break ;; esac
    seen=$skip
    skip=$(sed -n 's/^\[ RUN      \] \([^ ]*\).*/\1/p' "$work/$part.log" | sort -u | paste -sd:)
    why="a test ended its process, with code $code"
    [ "$skip" != "$seen" ] || break
    left=1
  done
  if [ ! -s "$work/$part.log" ] && [ -n "$left" ]; then
    record "not run" 0 "no time was left"
    return
  fi
  [ -z "$left" ] || why="$why; no time was left for the remaining tests"
  [ "$worst" -ne 0 ] || grep -q '^\[ RUN ' "$work/$part.log" || { worst=1 && why="no test ran"; }
  record "$(verdict "$worst")" $((SECONDS - begin)) "$why"
}

# whole_part COMMAND...: runs the part as one process. False if no time was left.
whole_part() {
  local begin=$SECONDS limit
  limit=$(allowed "$seconds") || { record "not run" 0 "no time was left"; return 1; }
  run "$limit" "$limit" "$@"
  took=$((SECONDS - begin))
}

bench() {
  whole_part "$here/bench/bin/bench" --only "${part%_mma}" --json "$work/bench_$part.json" || return
  cat "$work/$part.log"
  record "$(verdict "$code")" "$took" ""
}

sanitize() {
  local tool flags='' why=''
  tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null)
  [ -n "$tool" ] || { record skipped 0 "there is no compute-sanitizer"; return; }
  case $part in
    memcheck) flags='--report-api-errors no' ;; # some tests cause such errors on purpose
    racecheck) why="for information: it does not know all ways in which kernels synchronize" ;;
  esac
  # shellcheck disable=SC2086
  whole_part env WEFT_GPU_CHECK_SMALL=1 WEFT_GPU_TEST_SECONDS=600 "$tool" --tool "$part" $flags --error-exitcode 9 \
    "$here/gpu_test/bin/gpu_test" --gtest_color=no --gtest_filter="$1" || return
  grep -m 20 '=========' "$work/$part.log"
  record "$(verdict "$code")" "$took" "$why"
}

torch() {
  command -v python3 > /dev/null || { record skipped 0 "there is no python3"; return; }
  local limit cases=steps,attention,products,memory
  limit=$(allowed "$seconds") || limit=0
  case $left_out in *chains*) ;; *) cases=$cases,chains ;; esac
  whole_part python3 "$here/torch_bench.py" --only $cases --json "$work/torch.json" --seconds $((limit - 5)) || return
  cat "$work/torch.log"
  if [ "$code" -eq 77 ]; then
    record skipped "$took" "there is no PyTorch with CUDA"
  else
    record "$(verdict "$code")" "$took" ""
  fi
}

cuda=${WEFT_CUDA:-}
for part in $all; do
  seconds=${limits[$part]-}
  [ -n "$seconds" ] || continue
  case " $left_out " in *" $part "*) record "left out" 0 "" && continue ;; esac
  rm -f "$work/$part.log" "$work/$part.json" "$work/bench_$part.json" # files of an earlier call
  case $part in *_mma) export WEFT_CUDA=${cuda:+$cuda,}sm80 ;; *) export WEFT_CUDA=$cuda ;; esac
  case $part in
    runtime)
      tests 10 'Libraries.*:*DriverSuite.*'
      grep -E '^(NVRTC|cuBLASLt) ' "$work/runtime.log"
      ;;
    ops) tests 20 '*SmallOps*' ;;
    large_ops) tests 20 '*LargeOps*' ;;
    attention | attention_mma) tests 15 '*Attention*:*Grouped*' ;;
    verify) tests 25 '*Verify*' ;;
    train) tests 40 '*Train.*' ;;
    memcheck) sanitize '*SmallTrain.*:*Attention*/Small*:*Grouped*:*DriverSuite.*' ;;
    racecheck | synccheck) sanitize '*Attention*/Small*:*Grouped*:*SmallTrain.ReplayedIsQueued*' ;;
    torch) torch ;;
    *) bench ;;
  esac
done
"$here/summary/bin/summary" "$work" --table
[ -s "$out" ] || { echo "check.sh: no JSON was written: $(cat "$work/summary.log")" >&2; failed=1; }
echo "== $out; exit $failed"
exit $failed
