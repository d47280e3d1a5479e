#!/usr/bin/env bash
# Everything that only a GPU can show, on a machine that has one: tests, NVIDIA's sanitizer on the small ones, benchmarks
# beside PyTorch's. Leaves one JSON.
#
#   tools/gpu/check.sh --pack DIR      builds and gathers all that is needed in DIR (below 60 MB); no GPU needed
#   DIR/check.sh [--out FILE]          runs there, or on any x86-64 Linux with an NVIDIA driver to which DIR was copied
#
# Exit code: 0 all held, 1 something failed, 77 there is no GPU.
set -u -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage() { sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

pack=
out=gpu_check.json
while [ $# -gt 0 ]; do
  case $1 in
    --pack) [ $# -ge 2 ] || usage; pack=$2; shift 2 ;;
    --out) [ $# -ge 2 ] || usage; out=$2; shift 2 ;;
    *) usage ;;
  esac
done

if [ -n "$pack" ]; then
  mkdir -p "$pack" || exit 1
  pack=$(cd "$pack" && pwd)
  cd "$here/../.." || exit 1
  for program in gpu_test bench; do
    rm -rf "${pack:?}/$program"
    ${WEFT_BAZEL:-./bazelw} run -- //tools:package "//tools/gpu:$program" --out "$pack/$program" || exit 1
    strip "$pack/$program"/bin/* 2>/dev/null
    strip --strip-unneeded "$pack/$program"/lib/* 2>/dev/null
  done
  cp tools/gpu/check.sh tools/gpu/torch_bench.py tools/gpu/summary.py "$pack/" || exit 1
  size=$(du -sm "$pack" | cut -f1)
  echo "$pack: $size MB"
  [ "$size" -lt 60 ] || { echo "check.sh: $size MB; need less than 60" >&2; exit 1; }
  exit 0
fi

[ -x "$here/gpu_test/bin/gpu_test" ] || { echo "check.sh: no programs beside it; make them with --pack DIR" >&2; exit 2; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export WEFT_GPU_CHECK=1 WEFT_CACHE=$work/kernels HOME=${HOME:-$work}
failed=0

echo "== tests"
"$here/gpu_test/bin/gpu_test" --gtest_output="json:$work/tests.json" 2>&1 | tee "$work/tests.log"
status=${PIPESTATUS[0]}
[ "$status" -ne 77 ] || exit 77
[ "$status" -eq 0 ] || failed=1

for tool in memcheck racecheck synccheck; do
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
  if [ -z "$sanitizer" ]; then
    echo "== $tool: skipped, there is no compute-sanitizer" | tee "$work/$tool.log"
    continue
  fi
  echo "== $tool"
  timeout 600 "$sanitizer" --tool "$tool" --error-exitcode 9 "$here/gpu_test/bin/gpu_test" --gtest_filter='*Small*:*DriverSuite.*' \
    > "$work/$tool.log" 2>&1
  status=$?
  echo "exit $status" | tee -a "$work/$tool.log"
  [ "$status" -eq 0 ] || { failed=1; grep -m 20 '=========' "$work/$tool.log"; }
done

echo "== benchmarks"
"$here/bench/bin/bench" --json "$work/bench.json" 2>&1 | tee "$work/bench.log"
[ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2> /dev/null; then
  python3 "$here/torch_bench.py" --json "$work/torch.json" 2>&1 | tee "$work/torch.log"
else
  echo "PyTorch with CUDA: not found" | tee "$work/torch.log"
fi

nvidia-smi --query-gpu=name,driver_version,power.limit,clocks.max.sm --format=csv,noheader > "$work/gpu.txt" 2> /dev/null
python3 "$here/summary.py" "$work" "$failed" > "$out" || failed=1
echo "== $out; exit $failed"
exit $failed
