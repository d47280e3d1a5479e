#!/usr/bin/env bash
# The programs of one family, end to end: programs_test.sh TRAIN GENERATE SCORE CONFIG
# Same losses compiled or not; killed at any step and resumed = never stopped; Ctrl-C saves; bad input is one line.
set -u
train=$PWD/$1 generate=$PWD/$2 score=$PWD/$3 config=$4
dir=${TEST_TMPDIR:-$(mktemp -d)}
cd "$dir" || exit 1
export WEFT_THREADS=2
flags=(--config "$config" --data synthetic --batch_size 4 --seq_len 16 --steps 24 --lr 0.01 --seed 7)
failures=0

fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
# Metrics without what a clock says.
plain() { sed -E 's/"(step_ms|tokens_per_s|mfu)":[^,}]*,?//g' "$1"; }
same() { cmp -s <(plain "$1") <(plain "$2") || { fail "$3"; diff <(plain "$1") <(plain "$2") | head -6; }; }
lines() { [[ -f $1 ]] && wc -l <"$1" || echo 0; }
# expect CODE TEXT COMMAND...: exit code, and one line on stderr that contains TEXT.
expect() {
  local code=$1 text=$2 got=0
  shift 2
  "$@" >out.txt 2>err.txt </dev/null || got=$?
  [[ $got == "$code" ]] || fail "exit code $got instead of $code: $*: $(cat err.txt)"
  grep -qF -- "$text" err.txt || fail "no '$text' in: $(cat err.txt)"
  [[ $code == 0 || $(wc -l <err.txt) == 1 ]] || fail "more than one line: $(cat err.txt)"
}

"$train" "${flags[@]}" --checkpoint_every 5 --checkpoint_dir whole --metrics whole.jsonl >whole.txt 2>&1 || fail "train: $(tail -3 whole.txt)"
[[ $(lines whole.jsonl) == 24 ]] || fail "24 lines of metrics expected, got $(lines whole.jsonl)"
first=$(sed -n 1p whole.jsonl | grep -oE '"loss":[0-9.]+' | cut -d: -f2)
last=$(sed -n 24p whole.jsonl | grep -oE '"loss":[0-9.]+' | cut -d: -f2)
[[ -n $first && -n $last ]] || fail "no loss in the metrics"
[[ $(ls whole | wc -l) == 3 ]] || fail "--keep 3 left: $(ls whole)"

"$train" "${flags[@]}" --compile=false --checkpoint_every 0 --metrics eager.jsonl >eager.txt 2>&1 || fail "train --compile=false: $(tail -3 eager.txt)"
same whole.jsonl eager.jsonl "--compile=false differs from --compile=true"

"$train" "${flags[@]}" --threads 1 --checkpoint_every 0 --metrics one.jsonl >one.txt 2>&1 || fail "train --threads 1: $(tail -3 one.txt)"
same whole.jsonl one.jsonl "one thread differs from two"

# 16-bit activations: the same compiled or not, and learning.
for dtype in bf16 f16; do
  for compiled in true false; do
    "$train" "${flags[@]}" --steps 8 --dtype $dtype --numerics eager --grad_accum 2 --compile=$compiled --checkpoint_every 0 --metrics $dtype-$compiled.jsonl >h.txt 2>&1 || fail "$dtype: $(tail -1 h.txt)"
  done
  same $dtype-true.jsonl $dtype-false.jsonl "$dtype: --compile=false differs from --compile=true"
done

# Sums that do not depend on order: near the plain run, the same for any number of threads.
for threads in 1 2; do
  "$train" "${flags[@]}" --steps 4 --verify_numerics --threads $threads --checkpoint_every 0 --metrics v$threads.jsonl >v.txt 2>&1 || fail "train --verify_numerics: $(tail -1 v.txt)"
done
same v1.jsonl v2.jsonl "--verify_numerics: one thread differs from two"
[[ $(grep -oE '"loss":[0-9]+\.[0-9]{3}' v1.jsonl | head -1) == "$(grep -oE '"loss":[0-9]+\.[0-9]{3}' whole.jsonl | head -1)" ]] || fail "--verify_numerics: another first loss"
expect 2 "--verify_numerics: got --compile=false" "$train" "${flags[@]}" --verify_numerics --compile=false

# A loss that is no number stops the run and names the op.
expect 1 "nothing was changed" "$train" "${flags[@]}" --lr 1e30 --warmup 0 --checkpoint_every 0
grep -q "first" err.txt || fail "no op named: $(cat err.txt)"

# Killed again and again, resumed each time.
for stop in 2 8 13 21; do
  "$train" "${flags[@]}" --checkpoint_every 5 --checkpoint_dir killed --metrics killed.jsonl --resume >killed.txt 2>&1 &
  pid=$!
  while kill -0 $pid 2>/dev/null && (($(lines killed.jsonl) < stop)); do sleep 0.005; done
  kill -9 $pid 2>/dev/null
  wait $pid 2>/dev/null
done
"$train" "${flags[@]}" --checkpoint_every 5 --checkpoint_dir killed --metrics killed.jsonl --resume >killed.txt 2>&1 || fail "resume: $(tail -3 killed.txt)"
same whole.jsonl killed.jsonl "killed and resumed differs from uninterrupted"
for f in model optimizer; do cmp -s whole/step_24/$f.safetensors killed/step_24/$f.safetensors || fail "$f.safetensors differs after resume"; done

# Ctrl-C saves and exits cleanly.
"$train" "${flags[@]}" --steps 100000 --checkpoint_every 0 --checkpoint_dir none --metrics c.jsonl >c.txt 2>&1 &
pid=$!
while kill -0 $pid 2>/dev/null && (($(lines c.jsonl) < 3)); do sleep 0.005; done
kill -INT $pid; wait $pid || fail "exit code of an interrupted run"
"$train" "${flags[@]}" --steps 100000 --checkpoint_every auto --checkpoint_dir stopped --metrics d.jsonl >d.txt 2>&1 &
pid=$!
while kill -0 $pid 2>/dev/null && (($(lines d.jsonl) < 3)); do sleep 0.005; done
kill -INT $pid; wait $pid || fail "exit code of an interrupted run"
grep -q "go on with --resume" d.txt || fail "Ctrl-C: $(tail -2 d.txt)"
ls stopped/step_*/state.json >/dev/null 2>&1 || fail "Ctrl-C left no checkpoint"

# Reading a checkpoint: always the same text, and scores that fit it.
"$generate" --checkpoint whole --prompt "AB" --max_new_tokens 40 --temperature 0 --json >g1.json 2>&1 || fail "generate: $(cat g1.json)"
"$generate" --checkpoint whole/step_24 --prompt "AB" --max_new_tokens 40 --temperature 0 --json >g2.json 2>&1
cmp -s g1.json g2.json || fail "greedy text differs from run to run"
seq 1 60 | tr '\n' ' ' >ids.txt
"$score" --checkpoint whole --tokens ids.txt --out s.jsonl >s.txt 2>&1 || fail "score: $(cat s.txt)"
[[ $(lines s.jsonl) == 60 ]] || fail "score wrote $(lines s.jsonl) lines instead of 59 + 1"
grep -q '"perplexity"' s.txt || fail "score printed: $(cat s.txt)"

"$train" --config list | grep -q "^$config" || fail "--config list does not list $config"
expect 2 "unknown flag --stesp; did you mean --steps?" "$train" --stesp 3
expect 2 "--config: got 'gtp'; need one of" "$train" --config gtp
expect 2 "--dtype: got 'f23'" "$train" --dtype f23
expect 2 "a divisor of --batch_size" "$train" "${flags[@]}" --grad_accum 3
expect 2 "add --resume to go on" "$train" "${flags[@]}" --checkpoint_dir whole
expect 1 "no/such/file" "$train" --data no/such/file
expect 1 "memory" "$train" "${flags[@]}" --checkpoint_every 0 --memory_budget 1000
expect 2 "--checkpoint is needed" "$generate"
expect 1 "no checkpoint here" "$generate" --checkpoint empty
expect 2 "need one of --text FILE and --tokens FILE" "$score" --checkpoint whole
cp -r whole/step_24 damaged
truncate -s -100 damaged/model.safetensors
expect 1 "damaged/model.safetensors" "$generate" --checkpoint damaged
cp whole/step_24/model.safetensors damaged/
printf '\377' | dd of=damaged/model.safetensors bs=1 seek=$(($(stat -c %s damaged/model.safetensors) - 50)) conv=notrunc status=none
expect 1 "damaged/model.safetensors" "$generate" --checkpoint damaged
echo '{' >damaged/state.json
expect 1 "damaged/state.json" "$generate" --checkpoint damaged

((failures == 0)) && echo "all well"
exit $((failures > 0))
