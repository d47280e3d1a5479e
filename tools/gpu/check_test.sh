#!/usr/bin/env bash
# Runs check.sh with fake programs in place of the pack's. Whatever happens in a part, the others run, the exit code
# reports it, and the JSON is complete. PATH has no python, torch, compute-sanitizer or nvidia-smi.
set -u
root=$(cd "${TEST_SRCDIR:-$(dirname "$0")/../..}/${TEST_WORKSPACE:-}" && pwd)
dir=$TEST_TMPDIR/pack
mkdir -p "$dir"/{gpu_test,bench,summary}/bin "$TEST_TMPDIR/path"
cp "$root/tools/gpu/check.sh" "$dir/"
cp "$root/tools/gpu/summary" "$dir/summary/bin/summary"
for tool in bash env sed sort paste cat cp rm mkdir mv mktemp dirname grep timeout ls sleep tr wc tar gzip; do
  ln -sf "$(command -v $tool)" "$TEST_TMPDIR/path/$tool"
done
fail() { echo "FAIL: $*"; exit 1; }
check() {  # EXPECTED_CODE ARGUMENTS...
  local want=$1
  shift
  (cd "$TEST_TMPDIR" && PATH="$TEST_TMPDIR/path" TMPDIR="$TEST_TMPDIR" LD_LIBRARY_PATH='' WEFT_CACHE='' \
    bash "$dir/check.sh" --out "$TEST_TMPDIR/out.json" "$@") > "$TEST_TMPDIR/log" 2>&1
  local code=$?
  [ "$code" -eq "$want" ] || { cat "$TEST_TMPDIR/log"; fail "check.sh $*: code $code, not $want"; }
}
whole() {
  python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert eval(sys.argv[2]), d' \
    "$TEST_TMPDIR/out.json" "$1" || fail "$1"
}
says() { grep -qF -- "$1" "$TEST_TMPDIR/log" || { cat "$TEST_TMPDIR/log"; fail "no '$1'"; }; }

# The error of bad usage names the bad argument.
check 2 --fast
says "unknown flag --fast"
check 2 --only ops,opz
says "there is no part 'opz'"
check 2 --minutes soon
says "need a whole number"
check 2 --only
says "--only needs a value"

# A folder of the user is not emptied.
mkdir -p "$TEST_TMPDIR/mine/kernels" && echo precious > "$TEST_TMPDIR/mine/kernels/notes"
check 2 --pack "$TEST_TMPDIR/mine"
says "mine is not empty and is no pack; need a new folder"
[ "$(cat "$TEST_TMPDIR/mine/kernels/notes")" = precious ] || fail "--pack changed a folder of the user"

# The kernels that are packed are compiled without a GPU, if there is NVRTC.
kernels=$TEST_TMPDIR/kernels
WEFT_GPU_CHECK_SMALL=1 WEFT_CACHE=$kernels "$root/tools/gpu/kernels" --only products > "$TEST_TMPDIR/log" 2>&1
case $? in
  0) ls "$kernels"/*.cubin > /dev/null || fail "no kernels" ;;
  77) says "skipped: NVRTC" ;;
  *) cat "$TEST_TMPDIR/log" && fail "kernels" ;;
esac

# Both columns have one order. Their sums leave time for the start. Limits are smaller where there is less time.
listed() {  # SECONDS NAMES_PATTERN ARGUMENTS...: the parts with time are NAMES_PATTERN, and take at most SECONDS.
  local most=$1 names=$2 found='' sum=0 part seconds
  shift 2
  check 0 --list "$@"
  while read -r part seconds; do
    sum=$((sum + seconds))
    [ "$seconds" -eq 0 ] || found="$found $part"
  done < "$TEST_TMPDIR/log"
  [ "$sum" -le "$most" ] || fail "$*: parts of $sum s; need at most $most"
  # shellcheck disable=SC2254
  case $found in $names) ;; *) fail "$*: the parts are$found" ;; esac
}
short=' runtime attention steps flex products memory verify train ops torch memcheck'
listed 400 "$short" --minutes 7
listed 225 "$short" --minutes 4
says "torch 39"
listed 1425 "${short// /* }*"
says "torch 240"
listed 225 ' steps flex' --minutes 4 --only flex,steps
says "steps 60"
listed 225 ' train ops torch' --minutes 4 --only train,ops,torch
listed 60 ' racecheck' --minutes 7 --only racecheck

# No GPU: the real program on this machine, or a fake that reports it.
rm -f "$TEST_TMPDIR/out.json"
printf '#!/bin/bash\necho "skipped: no NVIDIA driver"; exit 77\n' > "$dir/gpu_test/bin/gpu_test"
cp "$dir/gpu_test/bin/gpu_test" "$dir/bench/bin/bench"
chmod +x "$dir"/*/bin/*
check 77
says "no NVIDIA driver"
[ ! -e "$TEST_TMPDIR/out.json" ] || fail "a JSON without a GPU"

# Tests: SmallOps.b crashes and c still runs; Attention.a hangs and b still runs, except without the kernels for sm_90a;
# Verify.a ends its process as a hanging test does, and b fails; Train.* passes; DriverSuite fails.
cat > "$dir/gpu_test/bin/gpu_test" <<'FAKE'
#!/bin/bash
filter=
for a in "$@"; do case $a in --gtest_filter=*) filter=${a#*=} ;; esac; done
begin() { echo "[ RUN      ] $1"; }
pass() { begin "$1"; echo "[       OK ] $1 (1 ms)"; }
fails() { begin "$1"; echo "wrong \"quoted\" $(printf '\\\t\xff')"; echo "[  FAILED  ] $1 (2 ms)"; }
case $filter in
  none) exit 0 ;;
  *SmallOps*-*) pass SmallOps.c; exit 0 ;;
  *SmallOps*) pass SmallOps.a; begin SmallOps.b; echo "about to die"; kill -SEGV $$ ;;
  *Attention*-Attention.a) pass Attention.b; exit 0 ;;
  *Attention*)
    echo "[==========] Running 2 tests from 1 test suite."
    if [ "$WEFT_CUDA" = sm80 ]; then pass Attention.a; pass Attention.b; exit 0; fi
    begin Attention.a; sleep 60 ;;
  *Verify*-Verify.a) fails Verify.b; exit 1 ;;
  *Verify*) begin Verify.a; echo "[  FAILED  ] Verify.a (ended the process)"; exit 71 ;;
  *DriverSuite*) fails On.y; exit 1 ;;
  *) echo "$WEFT_GPU_TEST_SECONDS seconds, kernels in $WEFT_CACHE"; pass Train.z; exit 0 ;;
esac
FAKE
# Benchmarks: flex crashes after its first row, steps before its first. If there is a folder `hang`, products hangs
# after its first row.
cat > "$dir/bench/bin/bench" <<'FAKE'
#!/bin/bash
while [ $# -gt 0 ]; do case $1 in --only) part=$2 ;; --json) json=$2 ;; esac; shift; done
row='{"name": "'$part' row", "value": 2.0, "unit": "GB/s", "goal": 1.0}'
[ "$part" = steps ] && kill -ABRT $$
echo '{"benchmark": "gpu", "date": "2026-01-01", "facts": {"gpu": "a fake"}, "rows": ['"$row"']}' > "$json"
[ "$part$WEFT_CUDA" = flex ] && kill -SEGV $$
[ "$part" = products ] && [ -d "${0%/*}/hang" ] && sleep 60
exit 0
FAKE
sed -i 's/^grace=.*/grace=1/; s/tests 15 /tests 1 /; s/^products .*/products 2 2/' "$dir/check.sh"
mkdir "$dir/kernels"
echo carried > "$dir/kernels/a.cubin"
check 1 --keep "$TEST_TMPDIR/kept"
whole 'd["held"] is False and d["gpu_facts"] == "a fake"'
whole 'd["parts"]["ops"]["state"] == "crashed" and d["parts"]["ops"]["tests"]["passed"] == 2'
whole '[(t["test"], t["log"]) for t in d["parts"]["ops"]["tests"]["unfinished"]] == [("SmallOps.b", "about to die\n")]'
whole 'd["parts"]["attention"]["state"] == "timed out" and d["parts"]["attention"]["seconds"] < 30'
whole 'd["parts"]["attention"]["tests"]["of"] == 2 and d["parts"]["attention"]["tests"]["passed"] == 1'
whole 'd["parts"]["attention"]["tests"]["unfinished"][0]["test"] == "Attention.a"'
whole 'd["parts"]["attention_mma"]["state"] == "held" and d["parts"]["attention_mma"]["tests"]["passed"] == 2'
whole '[t["test"] for t in d["parts"]["verify"]["tests"]["failed"]] == ["Verify.a", "Verify.b"]'
whole 'd["parts"]["train"]["state"] == "held" and d["parts"]["train"]["tests"]["passed"] == 1'
whole 'd["parts"]["runtime"]["state"] == "failed" and "quoted" in d["parts"]["runtime"]["tests"]["failed"][0]["log"]'
whole 'd["parts"]["flex"]["state"] == "crashed" and d["parts"]["steps"]["state"] == "crashed"'
whole '[r["name"] for r in d["rows"]] == ["chains row", "flex row", "mma: flex row", "memory row", "products row"]'
whole 'd["rows"][0]["goal"] == 1 and "goal" not in d["rows"][2]'
whole 'd["parts"]["memcheck"]["state"] == d["parts"]["torch"]["state"] == "skipped"'
whole '"python3" in d["parts"]["torch"]["why"]'
whole 'list(d["parts"])[:3] == ["runtime", "attention", "steps"] and list(d["parts"])[-1] == "racecheck"'
says "met"
cmp "$TEST_TMPDIR/out.json" "$TEST_TMPDIR/kept/gpu_check.json" || fail "another JSON was kept"
tar -xzf "$TEST_TMPDIR/kept/logs.tar.gz" -C "$TEST_TMPDIR/kept" ./train.log ./bench_flex_mma.json ./parts.tsv ||
  fail "the logs are incomplete"
grep -q "^40 seconds, kernels in $TEST_TMPDIR/weft_gpu_kernels" "$TEST_TMPDIR/kept/train.log" || fail "environment"
[ -s "$TEST_TMPDIR/weft_gpu_kernels/a.cubin" ] || fail "the carried kernels were not copied"

# Seven minutes with a part that hangs: its row is kept, the other parts report, and the parts without time are left
# out. A second call replaces the results of its parts and keeps the other results. It refuses results of another GPU.
mkdir "$dir/bench/bin/hang"
check 1 --minutes 7 --keep "$TEST_TMPDIR/first"
in_state() { whole "' '.join(n for n, p in d['parts'].items() if p['state'] == '$1') == '$2'"; }
in_state "timed out" "attention products"
in_state "left out" "chains attention_mma steps_mma flex_mma large_ops synccheck racecheck"
whole 'd["parts"]["products"]["seconds"] < 15'
whole "[n for n, p in d['parts'].items() if p['state'] != 'left out'] == '$short'.split()"
whole '[r["name"] for r in d["rows"]] == ["flex row", "memory row", "products row"]'
whole 'd["parts"]["ops"]["tests"]["passed"] == 2 and d["parts"]["train"]["state"] == "held"'
rmdir "$dir/bench/bin/hang"
check 0 --minutes 4 --only products,chains --merge "$TEST_TMPDIR/first/logs.tar.gz"
whole 'd["held"] is False and d["parts"]["products"]["state"] == d["parts"]["chains"]["state"] == "held"'
whole '[r["name"] for r in d["rows"]] == ["chains row", "flex row", "memory row", "products row"]'
whole 'd["parts"]["attention"]["state"] == "timed out" and "log" not in d["parts"]["products"]'
printf '#!/bin/bash\necho "Another GPU, 1"\n' > "$TEST_TMPDIR/path/nvidia-smi"
chmod +x "$TEST_TMPDIR/path/nvidia-smi"
check 2 --only products --merge "$TEST_TMPDIR/first/logs.tar.gz"
says "this GPU is 'Another GPU, 1'"
rm "$TEST_TMPDIR/path/nvidia-smi"

# Findings of racecheck are recorded and do not count; findings of memcheck count. memcheck ignores errors of the API.
cat > "$TEST_TMPDIR/path/compute-sanitizer" <<'FAKE'
#!/bin/bash
echo "========= a finding of $*"
exit 9
FAKE
chmod +x "$TEST_TMPDIR/path/compute-sanitizer"
check 0 --only racecheck
whole 'd["held"] is True and d["parts"]["racecheck"]["state"] == "failed"'
whole '"a finding" in d["parts"]["racecheck"]["log"]'
check 1 --only memcheck
says "--report-api-errors no"

# PyTorch's rows without a counterpart are in the table too. Python names the virtual environment.
cat > "$TEST_TMPDIR/path/python3" <<'FAKE'
#!/bin/bash
[ "$1" != -c ] || { echo /fake/venv; exit 0; }
while [ $# -gt 0 ]; do case $1 in --json) json=$2 ;; esac; shift; done
row='{"name": "memory row", "value": 1.0, "unit": "GB/s"}, {"name": "sdpa", "value": 3.0, "unit": "TFLOP/s"}'
echo '{"torch": "0", "rows": ['"$row"'], "failed": {"slow": "'"$VIRTUAL_ENV"'"}, "left_out": []}' > "$json"
FAKE
chmod +x "$TEST_TMPDIR/path/python3"
VIRTUAL_ENV='' check 0 --only memory,torch --keep "$TEST_TMPDIR/kept_torch"
whole '[(r["name"], r["value"], r["torch"]) for r in d["rows"]] == [("memory row", 2, 1), ("sdpa", None, 3)]'
whole 'd["torch_failed"] == {"slow": "/fake/venv"} and "torch_left_out" not in d'
check 0 --only memory --merge "$TEST_TMPDIR/kept_torch/logs.tar.gz"
whole '[(r["name"], r["value"], r["torch"]) for r in d["rows"]] == [("memory row", 2, 1), ("sdpa", None, 3)]'
rm "$TEST_TMPDIR/path/python3"

# One selected part passes. Without any time nothing runs, and this is reported.
check 0 --only train
whole 'd["held"] is True and list(d["parts"]) == ["train"]'
check 1 --only train,memory --minutes 0
whole 'd["parts"]["train"]["state"] == d["parts"]["memory"]["state"] == "not run"'
echo PASS
