#!/usr/bin/env bash
# Runs check.sh with fake programs in place of the pack's. Whatever happens in a part, the others run, the exit code
# reports it, and the JSON is complete. PATH has no python, torch, compute-sanitizer or nvidia-smi.
set -u
root=$(cd "${TEST_SRCDIR:-$(dirname "$0")/../..}/${TEST_WORKSPACE:-}" && pwd)
dir=$TEST_TMPDIR/pack
mkdir -p "$dir"/{gpu_test,bench,summary}/bin "$TEST_TMPDIR/path"
cp "$root/tools/gpu/check.sh" "$dir/"
cp "$root/tools/gpu/summary" "$dir/summary/bin/summary"
for tool in bash env sed sort paste cat cp rm mktemp dirname grep timeout ls sleep tr; do
  ln -sf "$(command -v $tool)" "$TEST_TMPDIR/path/$tool"
done
fail() { echo "FAIL: $*"; exit 1; }
check() {  # EXPECTED_CODE ARGUMENTS...
  local want=$1
  shift
  (cd "$TEST_TMPDIR" && PATH="$TEST_TMPDIR/path" LD_LIBRARY_PATH= bash "$dir/check.sh" --out "$TEST_TMPDIR/out.json" "$@") > "$TEST_TMPDIR/log" 2>&1
  local code=$?
  [ "$code" -eq "$want" ] || { cat "$TEST_TMPDIR/log"; fail "check.sh $*: code $code, not $want"; }
}
whole() { python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert eval(sys.argv[2]), d' "$TEST_TMPDIR/out.json" "$1" || fail "$1"; }
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

# No GPU: the real program on this machine, or a fake that reports it.
rm -f "$TEST_TMPDIR/out.json"
printf '#!/bin/bash\necho "skipped: no NVIDIA driver"; exit 77\n' > "$dir/gpu_test/bin/gpu_test"
cp "$dir/gpu_test/bin/gpu_test" "$dir/bench/bin/bench"
chmod +x "$dir"/*/bin/*
check 77
says "no NVIDIA driver"
[ ! -e "$TEST_TMPDIR/out.json" ] || fail "a JSON without a GPU"

# Tests: SmallOps.b crashes and c still runs; Attention hangs; Train.* passes; DriverSuite fails.
cat > "$dir/gpu_test/bin/gpu_test" <<'FAKE'
#!/bin/bash
filter=
for a in "$@"; do case $a in --gtest_filter=*) filter=${a#*=} ;; esac; done
case $filter in
  none) exit 0 ;;
  *SmallOps*-*) echo "[ RUN      ] SmallOps.c"; echo "[       OK ] SmallOps.c (1 ms)"; exit 0 ;;
  *SmallOps*)
    echo "[ RUN      ] SmallOps.a"; echo "[       OK ] SmallOps.a (1 ms)"
    echo "[ RUN      ] SmallOps.b"; echo "about to die"; kill -SEGV $$ ;;
  *Attention*) echo "[ RUN      ] Attention.x/Small"; sleep 60 ;;
  *DriverSuite*) echo "[ RUN      ] On.y"; echo "wrong \"quoted\" $(printf '\\\t\xff')"; echo "[  FAILED  ] On.y (2 ms)"; exit 1 ;;
  *) echo "[ RUN      ] Train.z"; echo "[       OK ] Train.z (1 ms)"; exit 0 ;;
esac
FAKE
# Benchmarks: flex crashes after its first row, steps before its first.
cat > "$dir/bench/bin/bench" <<'FAKE'
#!/bin/bash
while [ $# -gt 0 ]; do case $1 in --only) part=$2 ;; --json) json=$2 ;; esac; shift; done
row='{"benchmark": "gpu", "date": "2026-01-01", "facts": {"gpu": "a fake"}, "rows": [{"name": "'$part' row", "value": 2.0, "unit": "GB/s", "goal": 1.0}]}'
[ "$part" = steps ] && kill -ABRT $$
echo "$row" > "$json"
[ "$part" = flex ] && kill -SEGV $$
exit 0
FAKE
sed -i 's/tests attention 60/tests attention 2/' "$dir/check.sh"
check 1
whole 'd["held"] is False and d["gpu_facts"] == "a fake"'
whole 'd["parts"]["ops"]["state"] == "crashed" and d["parts"]["ops"]["tests"]["passed"] == 2'
whole 'd["parts"]["ops"]["tests"]["unfinished"][0]["test"] == "SmallOps.b" and "about to die" in d["parts"]["ops"]["tests"]["unfinished"][0]["log"]'
whole 'd["parts"]["attention"]["state"] == "timed out"'
whole 'd["parts"]["train"]["state"] == "held" and d["parts"]["train"]["tests"]["passed"] == 1'
whole 'd["parts"]["runtime"]["state"] == "failed" and "quoted" in d["parts"]["runtime"]["tests"]["failed"][0]["log"]'
whole 'd["parts"]["flex"]["state"] == "crashed" and d["parts"]["steps"]["state"] == "crashed"'
whole '[r["name"] for r in d["rows"]] == ["chains row", "flex row", "memory row", "products row"] and d["rows"][0]["goal"] == 1'
whole 'd["parts"]["memcheck"]["state"] == d["parts"]["torch"]["state"] == "skipped" and "python3" in d["parts"]["torch"]["why"]'
says "met"

# One selected part passes. Without any time nothing runs, and this is reported.
check 0 --only train
whole 'd["held"] is True and list(d["parts"]) == ["train"]'
check 1 --only train,memory --minutes 0
whole 'd["parts"]["train"]["state"] == d["parts"]["memory"]["state"] == "not run"'
echo PASS
