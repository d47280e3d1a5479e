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
# Metrics without the clock's values.
plain() { sed -E 's/"ranks":\{[^}]*\},?//g; s/"(step_ms|tokens_per_s|mfu)":[^,}]*,?//g' "$1"; }
same() { cmp -s <(plain "$1") <(plain "$2") || { fail "$3"; diff <(plain "$1") <(plain "$2") | head -6; }; }
# same_state FOLDER OTHER TEXT [STEP]: equal tensors in both checkpoints of STEP, or of step 4.
same_state() {
  for f in model optimizer; do
    cmp -s "$1/step_${4:-4}/$f.safetensors" "$2/step_${4:-4}/$f.safetensors" || fail "$3: $f.safetensors differs"
  done
}
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

"$train" "${flags[@]}" --checkpoint_every 5 --checkpoint_dir whole --metrics whole.jsonl >whole.txt 2>&1 ||
  fail "train: $(tail -3 whole.txt)"
[[ $(lines whole.jsonl) == 24 ]] || fail "24 lines of metrics expected, got $(lines whole.jsonl)"
first=$(sed -n 1p whole.jsonl | grep -oE '"loss":[0-9.]+' | cut -d: -f2)
last=$(sed -n 24p whole.jsonl | grep -oE '"loss":[0-9.]+' | cut -d: -f2)
[[ -n $first && -n $last ]] || fail "no loss in the metrics"
grep -q '^--lr=0.01$' whole/step_24/run.flags && ! grep -q checkpoint_dir whole/step_24/run.flags ||
  fail "run.flags: $(cat whole/step_24/run.flags)"
[[ $(ls whole | wc -l) == 3 ]] || fail "--keep 3 left: $(ls whole)"

"$train" "${flags[@]}" --compile=false --checkpoint_every 0 --metrics eager.jsonl >eager.txt 2>&1 ||
  fail "train --compile=false: $(tail -3 eager.txt)"
same whole.jsonl eager.jsonl "--compile=false differs from --compile=true"

"$train" "${flags[@]}" --threads 1 --checkpoint_every 0 --metrics one.jsonl >one.txt 2>&1 ||
  fail "train --threads 1: $(tail -3 one.txt)"
same whole.jsonl one.jsonl "one thread differs from two"

# 16-bit activations: the same compiled or not, and learning.
for dtype in bf16 f16; do
  for compiled in true false; do
    "$train" "${flags[@]}" --steps 8 --dtype $dtype --numerics eager --microbatches 2 --compile=$compiled \
        --checkpoint_every 0 --metrics $dtype-$compiled.jsonl >h.txt 2>&1 ||
      fail "$dtype: $(tail -1 h.txt)"
  done
  same $dtype-true.jsonl $dtype-false.jsonl "$dtype: --compile=false differs from --compile=true"
done

# Sums that do not depend on order: near the plain run, the same for any number of threads.
for threads in 1 2; do
  "$train" "${flags[@]}" --steps 4 --verify_numerics --threads $threads --checkpoint_every 0 --metrics v$threads.jsonl \
      >v.txt 2>&1 ||
    fail "train --verify_numerics: $(tail -1 v.txt)"
done
same v1.jsonl v2.jsonl "--verify_numerics: one thread differs from two"
[[ $(grep -oE '"loss":[0-9]+\.[0-9]{3}' v1.jsonl | head -1) == \
    "$(grep -oE '"loss":[0-9]+\.[0-9]{3}' whole.jsonl | head -1)" ]] ||
  fail "--verify_numerics: another first loss"
expect 2 "--verify_numerics: got --compile=false" "$train" "${flags[@]}" --verify_numerics --compile=false

# A pipeline gives the bits of one device with the same number of microbatches.
piped=("${flags[@]}" --steps 4 --threads 2 --checkpoint_every 4 --eval_every 2)
"$train" "${piped[@]}" --microbatches 2 --checkpoint_dir parts --metrics parts.jsonl >p.txt 2>&1 ||
  fail "train --microbatches 2: $(tail -1 p.txt)"
for schedule in 1f1b zb_h1; do
  "$train" "${piped[@]}" --mesh pp2 --ranks threads --microbatches 2 --pipeline $schedule --checkpoint_dir $schedule \
      --metrics $schedule.jsonl >p.txt 2>&1 ||
    fail "train --mesh pp2: $(tail -1 p.txt)"
  same parts.jsonl $schedule.jsonl "--mesh pp2 --pipeline $schedule differs from --microbatches 2"
  same_state parts $schedule "$schedule differs from --microbatches 2"
done
expect 2 "--microbatches: got 3; need a divisor of --batch_size, which is 4" "$train" "${piped[@]}" --mesh pp2 \
  --microbatches 3
expect 2 "--microbatches: got 1; need 2 or more on mesh pp2" "$train" "${piped[@]}" --mesh pp2 --microbatches 1
expect 2 "--pipeline: dualpipe_v: got 2 microbatches for 2 ranks" "$train" "${piped[@]}" --mesh pp2 --microbatches 2 \
  --pipeline dualpipe_v
expect 2 "--stages: got 'blocks.1'; need --mesh with a dimension pp as well" "$train" "${piped[@]}" --stages blocks.1
expect 1 "stages: 'nothing' is no module" "$train" "${piped[@]}" --mesh pp2 --stages nothing --checkpoint_dir no_stages

# Over a mesh the losses equal one device's losses up to rounding, with --verify_numerics to the bit. A checkpoint
# resumes on any mesh or without one.
short=(--steps 4 --threads 2 --checkpoint_every 2 --keep 0)
losses() { grep -oE '"loss":[0-9.e-]+' "$1" | cut -d: -f2; }
near() {
  [[ $(lines "$1") == "$(lines "$2")" ]] && paste <(losses "$1") <(losses "$2") |
    awk '{d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $2) exit 1}'
}
"$train" "${flags[@]}" "${short[@]}" --metrics m1.jsonl --checkpoint_dir m1 >m1.txt 2>&1 ||
  fail "train: $(tail -1 m1.txt)"
"$train" "${flags[@]}" "${short[@]}" --verify_numerics --metrics e1.jsonl --checkpoint_dir e1 >e1.txt 2>&1 ||
  fail "train --verify_numerics: $(tail -1 e1.txt)"
meshes=(dp2,tp2)
[[ $config == moe_* ]] && meshes+=(dp2,ep2)
for mesh in "${meshes[@]}"; do
  on=(--mesh "$mesh" --ranks threads)
  "$train" "${flags[@]}" "${short[@]}" "${on[@]}" --metrics "m-$mesh.jsonl" --checkpoint_dir "m-$mesh" \
      --show_plan --save_plan "$mesh.plan" >m.txt 2>&1 ||
    fail "--mesh $mesh: $(tail -1 m.txt)"
  near "m-$mesh.jsonl" m1.jsonl || fail "--mesh $mesh: losses $(losses "m-$mesh.jsonl") instead of $(losses m1.jsonl)"
  grep -q "^plan over $mesh: 4 ranks" m.txt && grep -q "^peak memory of a rank: .* (planned)" m.txt ||
    fail "--show_plan: $(cat m.txt)"
  "$train" "${flags[@]}" "${short[@]}" --plan "$mesh.plan" --ranks threads --checkpoint_every 0 \
      --metrics "p-$mesh.jsonl" >p.txt 2>&1 ||
    fail "--plan: $(tail -1 p.txt)"
  same "m-$mesh.jsonl" "p-$mesh.jsonl" "--plan $mesh.plan differs from --mesh $mesh"
  grep -q "^note:" p.txt && fail "--plan: $(grep '^note:' p.txt)"
  "$train" "${flags[@]}" "${short[@]}" "${on[@]}" --verify_numerics --metrics "e-$mesh.jsonl" \
      --checkpoint_dir "e-$mesh" >e.txt 2>&1 ||
    fail "--mesh $mesh --verify_numerics: $(tail -1 e.txt)"
  same "e-$mesh.jsonl" e1.jsonl "--verify_numerics: --mesh $mesh differs from one device"
  same_state "e-$mesh" e1 "--verify_numerics --mesh $mesh"
  mkdir -p "off-$mesh" "on-$mesh"
  cp -r "e-$mesh/step_2" "off-$mesh/" && cp -r e1/step_2 "on-$mesh/"
  "$train" "${flags[@]}" "${short[@]}" --verify_numerics --resume --checkpoint_dir "off-$mesh" >off.txt 2>&1 ||
    fail "resume without a mesh: $(tail -1 off.txt)"
  "$train" "${flags[@]}" "${short[@]}" "${on[@]}" --verify_numerics --resume --checkpoint_dir "on-$mesh" >on.txt 2>&1 ||
    fail "resume on $mesh: $(tail -1 on.txt)"
  grep -q "^resumed from " off.txt && grep -q "^resumed from " on.txt || fail "not resumed: $(cat off.txt on.txt)"
  same_state "off-$mesh" e1 "written on $mesh, resumed without"
  same_state "on-$mesh" e1 "written without a mesh, resumed on $mesh"
done
# Fields of the configuration: a resumed run keeps them, with the biases of its experts.
if [[ $config == moe_* ]]; then
  even=("${flags[@]}" --steps 4 --threads 2 --checkpoint_every 2 --keep 0)
  "$train" "${even[@]}" --set aux_loss=0 --set bias_rate=0.25,capacity_factor=0.5 --checkpoint_dir even \
      --metrics even.jsonl >b.txt 2>&1 ||
    fail "--set bias_rate: $(tail -1 b.txt)"
  [[ $(grep -cE '"aux_loss":0.0,.*"dropped":0\.[1-9]' even.jsonl) == 4 ]] ||
    fail "--set aux_loss=0 --set capacity_factor=0.5: $(cat even.jsonl)"
  mkdir -p resumed-even && cp -r even/step_2 resumed-even/
  "$train" "${flags[@]}" --steps 4 --threads 2 --checkpoint_every 2 --keep 0 --resume --checkpoint_dir resumed-even \
      >b.txt 2>&1 ||
    fail "resume with biases: $(tail -1 b.txt)"
  same_state even resumed-even "resumed with biases"
  expect 2 "--set: field 'bias_rate' is '-0.5'; need a number, 0 or more" "$train" "${even[@]}" --set bias_rate=-0.5
  expect 2 "--set: field 'route' is 'best'; need learned, balanced, zipf:S with S from 0 to 10" "$train" "${even[@]}" \
    --set route=best
  expect 2 "--set: got aux_loss=0.5; need 0, as the resumed run in" "$train" --resume --checkpoint_dir resumed-even \
    --set aux_loss=0.5
else
  expect 2 "--set: no field 'bias_rate'; need one of " "$train" "${flags[@]}" --set bias_rate=0.1
fi
expect 2 "--set: no field 'layer' (did you mean layers?); need one of " "$train" "${flags[@]}" --set layer=1
expect 2 "--set: field 'layers' is '0'; need a whole number from 1 to 10000" "$train" "${flags[@]}" --set layers=0
expect 2 "--set: got 'layers'; need NAME=VALUE" "$train" "${flags[@]}" --set layers
expect 2 "--set: field 'dim' is '61'; need a multiple of heads" "$train" "${flags[@]}" --set dim=61
"$train" "${flags[@]}" --set layers=1 --steps 1 --checkpoint_every 0 >set.txt 2>&1 ||
  fail "--set layers=1: $(tail -1 set.txt)"
# Ranks as processes: metrics and checkpoints of threads, to the byte.
for ranks in threads processes gloo; do
  on=(--ranks $ranks)
  [[ $ranks == gloo ]] && on=(--ranks processes --transport gloo)
  "$train" "${flags[@]}" "${short[@]}" --mesh dp2,tp2 "${on[@]}" --eval_every 2 --metrics r-$ranks.jsonl \
      --checkpoint_dir r-$ranks >r-$ranks.txt 2>&1 ||
    fail "--ranks $ranks: $(tail -1 r-$ranks.txt)"
done
same r-threads.jsonl r-processes.jsonl "--ranks processes differs from threads"
same_state r-threads r-processes "--ranks processes"
same_state r-threads r-gloo "--transport gloo"
for ranks in threads processes; do  # rates and shares of four ranks, in each line of metrics and at the end
  four='\[[^],]+(,[^],]+){3}\]'
  [[ $(grep -cE "\"ranks\":\\{\"tokens_per_s\":$four,\"exposed\":$four,\"waiting\":$four\\}" r-$ranks.jsonl) == 4 ]] ||
    fail "metrics of ranks: $(head -1 r-$ranks.jsonl)"
  [[ $(grep -cE "^ +[0-3] +[0-9]+ +[0-9.]+% +[0-9.]+%$" r-$ranks.txt) == 4 ]] ||
    fail "no table of ranks: $(cat r-$ranks.txt)"
done
[[ $(grep -c "held-out loss" r-processes.txt) == 2 ]] || fail "not one line of progress: $(cat r-processes.txt)"
# The rates that mfu needs are measured before the ranks. Ranks do not wait for them. Without kept rates, metrics lack
# mfu.
for run in r-threads r-processes; do
  grep -q '"mfu":' $run.jsonl || fail "no mfu: $(head -1 $run.jsonl)"
done
WEFT_CACHE=off "$train" "${flags[@]}" --steps 1 --mesh dp2 --checkpoint_every 0 --metrics rates.jsonl >r.txt 2>&1 ||
  fail "no kept rates: $(tail -1 r.txt)"
grep -q "^--metrics will lack mfu: " r.txt && ! grep -q '"mfu":' rates.jsonl ||
  fail "no kept rates: $(cat r.txt rates.jsonl)"
"$train" "${flags[@]}" "${short[@]}" --mesh dp2,tp2 --ranks processes --resume --steps 6 --checkpoint_dir r-threads \
    >r.txt 2>&1 ||
  fail "resume as processes: $(tail -1 r.txt)"
grep -q "^resumed from .*step_4" r.txt && [[ -d r-threads/step_6 ]] || fail "not resumed as processes: $(cat r.txt)"
"$train" "${flags[@]}" --steps 4 --mesh dp2 --checkpoint_every 0 --profile_steps 2-3 --profile_out p.json >p.txt 2>&1 ||
  fail "a profile of processes: $(tail -1 p.txt)"
grep -q "^rank 1  *[0-9.]* " p.txt && grep -q '"name":"rank 1"' p.json ||
  fail "no rank 1 in a profile of processes: $(cat p.txt)"
# Rings of asynchronous tensor parallelism: losses as without, to rounding; the same bits for threads and processes.
for async in off threads processes; do
  ranks=(--ranks $async --async_tp on)
  [[ $async == off ]] && ranks=(--ranks threads --async_tp off)
  "$train" "${flags[@]}" "${short[@]}" --checkpoint_every 0 --mesh tp2 "${ranks[@]}" \
      --show_plan --metrics a-$async.jsonl >a-$async.txt 2>&1 ||
    fail "${ranks[*]}: $(tail -1 a-$async.txt)"
done
same a-threads.jsonl a-processes.jsonl "--async_tp on: processes differ from threads"
near a-threads.jsonl a-off.jsonl ||
  fail "--async_tp on: losses $(losses a-threads.jsonl) instead of $(losses a-off.jsonl)"
[[ $(grep -c "a ring with its product" a-off.txt) == 0 ]] || fail "--async_tp off: $(cat a-off.txt)"
grep -q "a ring with its product" a-threads.txt && grep -q "in rings with their products" a-threads.txt ||
  fail "--async_tp on: $(cat a-threads.txt)"
expect 2 "--async_tp: got 'yes'; need auto, on or off" "$train" "${flags[@]}" --mesh tp2 --async_tp yes
expect 2 "--async_tp: got on; need --mesh as well" "$train" "${flags[@]}" --async_tp on
expect 2 "--async_tp: got on; need a mesh without pp" "$train" "${flags[@]}" --mesh pp2 --async_tp on
expect 2 "--ranks: got 'fibres'; need threads or processes" "$train" "${flags[@]}" --mesh dp2 --ranks fibres
expect 1 "--checkpoint_dir: cannot create folder 'whole.txt': Not a directory" "$train" "${flags[@]}" --mesh dp4 \
  --checkpoint_dir whole.txt
# A rank that is killed ends all; the last line names it. Ctrl-C ends all at one step.
long=("$train" "${flags[@]}" --steps 100000 --mesh dp2 --ranks processes --checkpoint_every 0)
rank_pid() {  # the process of a rank of the job that process $1 launched
  local pid
  for pid in $(pgrep -P "$1"); do tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "RANK=$2" && echo "$pid"; done
}
for what in killed interrupted; do
  "${long[@]}" --metrics $what.jsonl >$what.txt 2>$what.err &
  job=$!
  for ((i = 0; i < 600; ++i)); do (($(lines $what.jsonl) > 3)) && break; sleep 0.1; done
  rank=$(rank_pid $job 1)
  if [[ $what == killed ]]; then kill -9 "$rank"; else kill -INT $job; fi
  got=0
  wait $job || got=$?
  if [[ $what == killed ]]; then
    [[ $got == 137 ]] || fail "a killed rank: exit code $got: $(cat $what.err)"
    grep -q "rank 1 (pid $rank) was killed by signal 9" $what.err || fail "a killed rank: $(cat $what.err)"
    tail -1 $what.err | grep -q "dead: rank 1 (host .*, pid $rank) died" || fail "no diagnosis: $(cat $what.err)"
  else
    [[ $got == 130 ]] || fail "Ctrl-C of processes: exit code $got: $(cat $what.err)"
    grep -q "^interrupted after step" $what.txt || fail "Ctrl-C of processes: $(cat $what.txt $what.err)"
  fi
  [[ ! -e /proc/$rank ]] || fail "rank 1 outlives its job"
done
# Other launchers: torchrun's variables, without their names in the error if ranks fit together.
torchrun() {
  local rank=$1
  shift
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    "$train" "${flags[@]}" "${short[@]}" --checkpoint_every 0 "$@"
}
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
torchrun 1 --mesh dp2,tp2 >t1.txt 2>&1 &
torchrun 0 --mesh dp2,tp2 --metrics torchrun.jsonl >t0.txt 2>&1 || fail "torchrun: $(tail -1 t0.txt)"
wait $! || fail "torchrun, rank 1: $(tail -1 t1.txt)"
[[ ! -s t1.txt ]] || fail "torchrun, rank 1 prints: $(cat t1.txt)"
torchrun 1 --mesh dp2 --lr 0.5 >t1.txt 2>&1 &
expect 1 ") has --lr 0.5 and the others have 0.01; need equal values on all ranks" torchrun 0 --mesh dp2
wait $! && fail "another --lr on rank 1: exit code 0"
# Each host has a file of this name and size, with another word in the middle.
on_host() { (cd "host$1" && torchrun "$@"); }
for host in 0 1; do mkdir host$host && { seq 1000; echo "word $host"; seq 1000; } >host$host/corpus.txt; done
corpus=(--mesh dp2 --set vocab=256 --data corpus.txt)
on_host 1 "${corpus[@]}" >t1.txt 2>&1 &
expect 1 " has the content of --data 1 file, 7793 bytes, checksum " on_host 0 "${corpus[@]}"
wait $! && fail "another corpus on rank 1: exit code 0"
apart=(--mesh dp2 --checkpoint_every 2 --checkpoint_dir apart)
on_host 1 "${apart[@]}" >t1.txt 2>&1 &
expect 1 "--checkpoint_dir: rank 1 (host $HOSTNAME) does not see a file that rank 0 has made in 'apart'; need one " \
  on_host 0 "${apart[@]}"
wait $! && fail "another --checkpoint_dir on rank 1: exit code 0"
ls -A host0/apart | grep seen && fail "files are left in --checkpoint_dir"
expect 2 "--mesh: got none; need a mesh with a rank for each process: torchrun has started 2 processes" torchrun 0
expect 2 "--ranks: got 'threads'; need processes: torchrun has started 2 processes" torchrun 0 --mesh dp2 \
  --ranks threads
on=("$train" "${flags[@]}" --checkpoint_every 0)
expect 2 \
  "a batch of 4 (argument i32[4, 16]) does not divide over dp (3 ranks); the nearest batches that do are 3 and 6" \
  "${on[@]}" --mesh dp3
expect 2 "does not divide over dp (8 ranks); the least that does is 8" "${on[@]}" --mesh dp8
expect 2 \
  "sequences of 16 (argument i32[4, 16]) do not divide over cp (3 ranks); the nearest lengths that do are 15 and 18" \
  "${on[@]}" --mesh cp3
expect 2 "--mesh zz2: no strategy for dimension 'zz'; need dp, fsdp, ep, tp, cp, pp or replica" "${on[@]}" --mesh zz2
expect 2 "--mesh: mesh: " "${on[@]}" --mesh dp2,dp2
expect 2 "--mesh: mesh: 'replica' is not the first dimension; need it there, as in replica2,fsdp2" "${on[@]}" --mesh dp2,replica2
expect 2 "--mesh: got dp2; need --compile" "${on[@]}" --mesh dp2 --compile=false
expect 2 "--mesh dp2 does not work with --device cuda: meshes run on the CPU; drop one flag" "${on[@]}" --mesh dp2 \
  --device cuda
for timeout in 0 -1 nan 1e+10; do
  expect 2 "--timeout: got '$timeout'; need a number above 0 and at most 1000000000 (with --mesh, seconds" "${on[@]}" \
    --mesh dp2 --timeout "$timeout"
done
expect 2 "--timeout: got 'soon'; need a number" "${on[@]}" --mesh dp2 --timeout soon
expect 2 "--timeout: got 5; need --mesh" "${on[@]}" --timeout 5
expect 2 "--seq_len: got 1000000000; need at most the model's context of" "${on[@]}" --seq_len 1000000000
expect 2 "--batch_size: got 1000000000; need at most " "${on[@]}" --batch_size 1000000000
expect 2 "$config with --set dim=65536,vocab=67108864; need a smaller model: its weights and the moments of the " \
  "${on[@]}" --set vocab=67108864,dim=65536
"${on[@]}" --steps 1 --mesh dp2 --ranks threads --timeout 90.5 >t.txt 2>&1 || fail "--timeout 90.5: $(tail -1 t.txt)"
expect 2 "--forbid: got 'allgather'; need KIND@DIMENSION" "${on[@]}" --mesh dp2 --forbid allgather
expect 2 "--forbid: 'allgather@dpp' names the mesh dimension 'dpp'; need dp, or *" "${on[@]}" --mesh dp2 \
  --forbid allgather@dpp
expect 2 "--forbid: got allgather@dp; need --mesh" "${on[@]}" --forbid allgather@dp
"${on[@]}" --steps 1 --mesh dp2 --ranks threads --forbid allgather@dp,alltoall@dp >f.txt 2>&1 ||
  fail "--forbid what is not there: $(tail -1 f.txt)"
expect 1 "forbid: 'allreduce@dp:gradients' forbids the all-reduce of" "${on[@]}" --mesh dp2 \
  --forbid allgather@dp,allreduce@dp:gradients
expect 2 "--mesh: got dp2; drop the flag: --plan dp2,tp2.plan has mesh dp2,tp2" "${on[@]}" --mesh dp2 \
  --plan dp2,tp2.plan
"${on[@]}" --steps 2 --mesh cp2 --ranks threads --cp ring --save_plan ring.plan --metrics r1.jsonl >r.txt 2>&1 ||
  fail "--cp ring: $(tail -1 r.txt)"
"${on[@]}" --steps 2 --ranks threads --plan ring.plan --metrics r2.jsonl >r.txt 2>&1 ||
  fail "--plan ring.plan: $(tail -1 r.txt)"
same r1.jsonl r2.jsonl "--plan ring.plan differs from --cp ring"
grep -q "^note:" r.txt && fail "--plan ring.plan: $(grep '^note:' r.txt)"
expect 1 "no.plan" "${on[@]}" --plan no.plan
echo "mesh dp2" >bad.plan
expect 1 "bad.plan: plan, line 1: got 'mesh dp2'; need 'weft plan 1'" "${on[@]}" --plan bad.plan
"${on[@]}" --steps 1 --mesh tp2 --ranks threads --sequence false >t.txt 2>&1 ||
  fail "--sequence false: $(tail -1 t.txt)"
expect 2 "--plan: got dp2,tp2.plan of mesh dp2,tp2; need --compile" "${on[@]}" --plan dp2,tp2.plan --compile=false
expect 2 "--plan dp2,tp2.plan: mesh dp2,tp2: a batch of 3" "${on[@]}" --plan dp2,tp2.plan --batch_size 3
expect 2 "WEFT_DEBUG: got '7'; need 0, 1 or 2" env WEFT_DEBUG=7 "${on[@]}"

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
"$train" "${flags[@]}" --checkpoint_every 5 --checkpoint_dir killed --metrics killed.jsonl --resume >killed.txt 2>&1 ||
  fail "resume: $(tail -3 killed.txt)"
same whole.jsonl killed.jsonl "killed and resumed differs from uninterrupted"
same_state whole killed "killed and resumed" 24

# --restarts starts killed processes again, from the newest checkpoint: files of an undisturbed run, and nothing else.
hundred=("${flags[@]}" --steps 100 --checkpoint_every 20 --keep 0)
for mesh in none dp2; do
  on=(); [[ $mesh == none ]] || on=(--mesh $mesh)
  "$train" "${hundred[@]}" "${on[@]}" --checkpoint_dir calm-$mesh --metrics calm-$mesh.jsonl >calm.txt 2>&1 ||
    fail "100 steps on $mesh: $(tail -1 calm.txt)"
  "$train" "${hundred[@]}" "${on[@]}" --restarts 3 --checkpoint_dir again-$mesh --metrics again-$mesh.jsonl \
    >again.txt 2>again.err &
  pid=$!
  for stop in 30 50 70; do
    while kill -0 $pid 2>/dev/null && (($(lines again-$mesh.jsonl) < stop)); do sleep 0.005; done
    victim=$(pgrep -P $pid | shuf -n 1)
    [[ -z $victim ]] || kill -9 "$victim" 2>/dev/null
  done
  wait $pid || fail "--restarts on $mesh: $(tail -1 again.err)"
  again="starting again from step [0-9]+, 2 restarts left"
  grep -qE "^[a-z_]+: rank [01] \(pid [0-9]+\) was killed by signal 9 \(Killed\); $again$" again.err ||
    fail "--restarts on $mesh, no restart: $(cat again.err again.txt)"
  grep -v "; starting again from " again.err && fail "--restarts on $mesh: $(cat again.err)"
  same calm-$mesh.jsonl again-$mesh.jsonl "--restarts on $mesh: other metrics"
  [[ ! -e again-$mesh.jsonl.1 && $(ls again-$mesh) == "$(ls calm-$mesh)" ]] ||
    fail "--restarts on $mesh left $(ls . again-$mesh)"
  for file in calm-$mesh/step_*/*; do
    cmp -s "$file" "again-${file#calm-}" || fail "--restarts on $mesh: $file differs"
  done
done
"$train" "${flags[@]}" --steps 100000 --restarts 3 --checkpoint_every 5 --checkpoint_dir asked --metrics asked.jsonl \
  >asked.txt 2>asked.err &
pid=$!
while kill -0 $pid 2>/dev/null && (($(lines asked.jsonl) < 3)); do sleep 0.005; done
kill -INT $pid; wait $pid; [[ $? == 130 ]] || fail "Ctrl-C with --restarts: $(cat asked.err)"
grep -q "^interrupted after step" asked.txt && [[ ! -s asked.err ]] ||
  fail "Ctrl-C with --restarts: $(cat asked.txt asked.err)"
expect 1 "nothing was changed" "$train" "${flags[@]}" --lr 1e30 --warmup 0 --restarts 3 --checkpoint_every 5 \
  --checkpoint_dir lr
expect 2 "--restarts: got 3; need --checkpoint_every above 0 or auto" "$train" "${flags[@]}" --restarts 3 \
  --checkpoint_every 0
expect 2 "--restarts: got 3; need no --profile_steps" "$train" "${flags[@]}" --restarts 3 --profile_steps 1-2 \
  --checkpoint_dir lr2
expect 2 "--restarts: got 3; drop --restarts: torchrun has started 2 processes of this program and restarts the job itself; pass --resume" \
  torchrun 0 --mesh dp2 --restarts 3 --checkpoint_every 2 --checkpoint_dir lr2

# Ctrl-C, SIGTERM and SIGHUP save; the exit code is the signal's.
"$train" "${flags[@]}" --steps 100000 --checkpoint_every 0 --checkpoint_dir none --metrics c.jsonl >c.txt 2>&1 &
pid=$!
while kill -0 $pid 2>/dev/null && (($(lines c.jsonl) < 3)); do sleep 0.005; done
kill -INT $pid; wait $pid; [[ $? == 130 ]] || fail "exit code of a run that Ctrl-C ended"
for end in HUP:129 INT:130 TERM:143; do
  signal=${end%:*}
  env --default-signal=HUP "$train" "${flags[@]}" --steps 100000 --checkpoint_every auto \
    --checkpoint_dir "stopped-$signal" --metrics d.jsonl >d.txt 2>&1 &
  pid=$!
  while kill -0 $pid 2>/dev/null && (($(lines d.jsonl) < 3)); do sleep 0.005; done
  if [[ $signal == HUP ]]; then  # the second of two runs is refused
    expect 1 "stopped-HUP is in use by process $pid" "$train" "${flags[@]}" --checkpoint_dir stopped-HUP
    expect 1 "d.jsonl: another run writes this file" "$train" "${flags[@]}" --checkpoint_every 0 --metrics d.jsonl
  fi
  kill -$signal $pid; kill -$signal $pid 2>/dev/null  # `timeout` sends it twice
  wait $pid; [[ $? == "${end#*:}" ]] || fail "exit code of a run that SIG$signal ended"
  grep -q "go on with --resume" d.txt || fail "SIG$signal: $(tail -2 d.txt)"
  ls "stopped-$signal"/step_*/state.json >/dev/null 2>&1 || fail "SIG$signal left no checkpoint"
  rm -f d.jsonl
done

# A signal ends a run at once that is planning its first step.
for mesh in none dp2; do
  [[ $config == gpt_tiny ]] || continue
  more=(); [[ $mesh == none ]] || more=(--mesh $mesh)
  : >d.txt  # The loop below must not read the lines of an earlier run.
  "$train" "${flags[@]}" --steps 100000 --set layers=2000 --checkpoint_every 0 "${more[@]}" >d.txt 2>&1 &
  pid=$!
  while kill -0 $pid 2>/dev/null && ! grep -q parameters d.txt; do sleep 0.005; done
  kill -TERM $pid; wait $pid; [[ $? == 143 ]] || fail "exit code of a run that SIGTERM ended while it planned"
  ! grep -q interrupted d.txt || fail "mesh $mesh: SIGTERM waited for the first step: $(tail -2 d.txt)"
done

# A folder that is removed under a run: another run may take it, and the first one then leaves it alone.
"$train" "${flags[@]}" --steps 100000 --checkpoint_every 200 --keep 1 --checkpoint_dir taken --metrics d.jsonl \
  >d.txt 2>&1 &
pid=$!
while kill -0 $pid 2>/dev/null && (($(lines d.jsonl) < 3)); do sleep 0.005; done
kill -STOP $pid
rm -r taken
"$train" "${flags[@]}" --steps 4 --checkpoint_every 2 --checkpoint_dir taken >e.txt 2>&1 ||
  fail "the second run in a folder: $(tail -2 e.txt)"
kill -CONT $pid
wait $pid; [[ $? == 1 ]] || fail "exit code of a run whose folder another one took"
grep -q "taken was removed while this process used it, and another process has used it since" d.txt ||
  fail "not refused: $(tail -2 d.txt)"
[[ $(ls taken) == "$(printf 'step_2\nstep_4')" ]] || fail "the first run changed the second one's folder: $(ls taken)"
rm -f d.jsonl

# Nothing of a user's is locked, truncated or removed.
mkdir -p mine/lock mine/tmp && echo precious >mine/notes && ln -s ../notes mine/lock/.lock &&
  mkdir -p mine/tmp/weft-job-run123/step_2
expect 1 ".lock': it is a symbolic link; need a file" "$train" "${flags[@]}" --checkpoint_dir mine/lock
[[ $(cat mine/notes) == precious ]] || fail "the target of a link was changed"
TMPDIR=$PWD/mine/tmp "$train" "${flags[@]}" --steps 2 --mesh dp2 --checkpoint_every 0 >d.txt 2>&1 ||
  fail "a job beside a user's folder: $(tail -2 d.txt)"
[[ $(ls mine/tmp) == weft-job-run123 && -d mine/tmp/weft-job-run123/step_2 ]] ||
  fail "a job changed TMPDIR: $(ls mine/tmp)"

# Paths may have any bytes.
latin=$'caf\xe9.txt' bare=(--config "$config" --set vocab=256 --batch_size 4 --seq_len 16)
for i in $(seq 2000); do echo "line $i of a text"; done >"$latin"
"$train" "${bare[@]}" --data "$latin" --steps 2 --checkpoint_every 2 --checkpoint_dir $'r\xe9' >d.txt 2>&1 ||
  fail "bytes in paths: $(tail -2 d.txt)"
"$train" "${bare[@]}" --steps 4 --checkpoint_every 2 --resume --checkpoint_dir $'r\xe9' >d.txt 2>&1 ||
  fail "resume with bytes in paths: $(tail -2 d.txt)"
grep -q "^resumed from" d.txt && ! grep -q "^note: --data" d.txt ||
  fail "the path of the data has changed: $(cat d.txt)"

# In a job, a signal to any of its processes.
"$train" "${flags[@]}" --steps 100000 --mesh dp2 --checkpoint_every auto --checkpoint_dir stopped-rank \
  --metrics d.jsonl >d.txt 2>&1 &
pid=$!
while kill -0 $pid 2>/dev/null && (($(lines d.jsonl) < 3)); do sleep 0.005; done
kill -TERM "$(pgrep -P $pid | tail -1)"
wait $pid; [[ $? == 143 ]] || fail "exit code of a job with a rank that SIGTERM ended: $(tail -2 d.txt)"
grep -q "go on with --resume" d.txt || fail "SIGTERM of a rank: $(tail -2 d.txt)"
ls stopped-rank/step_*/state.json >/dev/null 2>&1 || fail "SIGTERM of a rank left no checkpoint"
rm -f d.jsonl

# So does a reader of the output that ends.
for every in 0 auto; do
  "$train" "${flags[@]}" --steps 100000 --checkpoint_every $every --checkpoint_dir "piped-$every" 2>err.txt | head -1 \
    >head.txt
  [[ ${PIPESTATUS[0]} == 1 ]] || fail "exit code of a run without a reader"
  [[ $(wc -l <err.txt) == 1 ]] && grep -q "standard output was closed; stopped after step [0-9]*; " err.txt ||
    fail "no reader: $(cat err.txt)"
done
ls piped-auto/step_*/state.json >/dev/null 2>&1 && grep -q "go on with --resume" err.txt ||
  fail "a run without a reader left no checkpoint"

# A resumed run takes the flags of its run; one that is given wins, and the difference is printed.
mkdir again && cp -r whole/step_20 again/ || fail "no whole/step_20"
"$train" --config "$config" --data synthetic --checkpoint_every 5 --checkpoint_dir again --resume >again.txt 2>&1 ||
  fail "resume without flags: $(tail -3 again.txt)"
grep -q "^24 steps of 4 x 16 tokens" again.txt || fail "resume without flags: $(cat again.txt)"
grep -q "^note:" again.txt && fail "resume without flags: $(cat again.txt)"
same_state whole again "resume without flags" 24
"$train" --checkpoint_every 0 --checkpoint_dir again --resume --steps 25 --lr 0.02 >again.txt 2>&1 ||
  fail "resume with --lr: $(tail -3 again.txt)"
grep -qF "note: --lr was '0.01' and is now '0.02'" again.txt &&
  grep -qF "note: --steps was '24' and is now '25'" again.txt ||
  fail "resume with --lr: $(cat again.txt)"

# A finished run has nothing left to do.
for more in "" "--steps 1"; do
  "$train" --checkpoint_dir whole --resume $more >again.txt 2>&1 ||
    fail "resume of a finished run: $(tail -3 again.txt)"
  grep -q "^nothing left to do: step 24 is done; raise --steps" again.txt ||
    fail "resume of a finished run: $(cat again.txt)"
done

# If descriptors are closed, files contain only their own content, and output that cannot be printed is a failure.
"$train" "${flags[@]}" --checkpoint_every 5 --checkpoint_dir closed --metrics closed.jsonl >&- 2>&- <&-
[[ $? == 1 ]] || fail "exit code with a closed standard output"
same whole.jsonl closed.jsonl "metrics with closed descriptors"
same_state whole closed "closed descriptors" 24
"$generate" --checkpoint closed --max_new_tokens 1 >g.txt 2>&1 ||
  fail "state.json with closed descriptors: $(cat g.txt)"

# Only our checkpoints and metrics files are replaced. Lines after the checkpoint's step and damaged lines are cut.
mkdir -p own/step_5
expect 1 "own/step_5 is not a checkpoint: it has no state.json" "$train" "${flags[@]}" --checkpoint_dir own
mkdir lost && cp -r whole/step_20 lost/ && rm lost/step_20/model.safetensors
for every in 0 5; do
  expect 1 "lost/step_20 is not a checkpoint: it has no model.safetensors" "$train" "${flags[@]}" \
    --checkpoint_dir lost --checkpoint_every $every --resume
done
expect 1 "lost/step_20 is not a checkpoint: it has no model.safetensors" "$generate" --checkpoint lost
echo "my notes" >notes.txt
expect 1 "notes.txt: exists and is not a metrics file" "$train" "${flags[@]}" --checkpoint_every 0 --metrics notes.txt
[[ $(cat notes.txt) == "my notes" ]] || fail "notes.txt was changed"
{ cat whole.jsonl; printf '{"step":25,"loss":1}\n{"step":26,"lo'; } >moved.jsonl
"$train" --checkpoint_dir whole --resume --metrics moved.jsonl >moved.txt 2>&1 ||
  fail "later metrics: $(tail -1 moved.txt)"
cmp -s moved.jsonl whole.jsonl || fail "later metrics stay: $(tail -2 moved.jsonl)"
printf '{"step":25,"loss":1}\n' >later.jsonl
"$train" --checkpoint_dir whole --resume --metrics later.jsonl >later.txt 2>&1 ||
  fail "later metrics only: $(tail -1 later.txt)"
grep -q "^--metrics has no line up to the step of the checkpoint: the metrics of an earlier run are kept in .*later.jsonl.1$" \
    later.txt && [[ $(lines later.jsonl.1) == 1 ]] ||
  fail "later metrics only: $(cat later.txt)"
grep -q metrics_bytes whole/step_24/state.json && fail "metrics_bytes in state.json"

# Pipes and devices are refused at once; a full standard output is a failure; a small stack is enough.
mkfifo pipe
expect 1 "pipe': it is a pipe; need a file" "$score" --checkpoint whole --text pipe
expect 1 "pipe': it is a pipe; need a file" "$train" "${flags[@]}" --plan pipe
expect 1 "pipe': it is a pipe; need a file" "$train" "${flags[@]}" --checkpoint_every 0 --metrics pipe
expect 1 "/dev/null': it is a device; need a file" "$train" "${flags[@]}" --checkpoint_every 0 --metrics /dev/null
"$train" --config list >/dev/full 2>err.txt; [[ $? == 1 ]] || fail "exit code with a full standard output"
grep -q "cannot write to standard output: No space left on device" err.txt ||
  fail "full standard output: $(cat err.txt)"
(ulimit -s 128 && "$train" "${flags[@]}" --steps 2 --checkpoint_every 0 >stack.txt 2>&1) ||
  fail "ulimit -s 128: $(tail -3 stack.txt)"

# Reading a checkpoint: always the same text, and scores that fit it.
"$generate" --checkpoint whole --prompt "AB" --max_new_tokens 40 --temperature 0 --json >g1.json 2>&1 ||
  fail "generate: $(cat g1.json)"
"$generate" --checkpoint whole/step_24 --prompt "AB" --max_new_tokens 40 --temperature 0 --json >g2.json 2>&1
[[ $(sed 's/"timings.*//' g1.json) == "$(sed 's/"timings.*//' g2.json)" ]] || fail "greedy text differs from run to run"
echo '{% for m in messages %}{{ m.content }}{% endfor %}' >chat.jinja
"$generate" --checkpoint whole --chat --chat_template chat.jinja --system S --prompt AB --max_new_tokens 4 \
    --json >g3.json 2>&1 ||
  fail "generate --chat: $(cat g3.json)"
grep -q '"finish":"length","timings":' g3.json || fail "generate --chat printed: $(cat g3.json)"
expect 1 "--chat: the model has no chat template" "$generate" --checkpoint whole --chat --prompt A
expect 2 "--system: need --chat" "$generate" --checkpoint whole --system S --prompt A
printf '{"context": "AB ", "continuation": "CD"}\n{"context": "A", "continuation": "B"}\n' >pairs.jsonl
"$score" --checkpoint whole --pairs pairs.jsonl >p.jsonl 2>&1 || fail "score --pairs: $(cat p.jsonl)"
[[ $(lines p.jsonl) == 2 ]] && grep -q '"tokens":3' p.jsonl && grep -q '"tokens":1' p.jsonl ||
  fail "score --pairs printed: $(cat p.jsonl)"
echo '{"context": "A"}' >pairs.jsonl
expect 1 "pairs.jsonl:1" "$score" --checkpoint whole --pairs pairs.jsonl
seq 1 60 | tr '\n' ' ' >ids.txt
"$score" --checkpoint whole --tokens ids.txt --out s.jsonl >s.txt 2>&1 || fail "score: $(cat s.txt)"
[[ $(lines s.jsonl) == 60 ]] || fail "score wrote $(lines s.jsonl) lines instead of 59 + 1"
expect 2 "--tokens and --out name the same file: './ids.txt'" "$score" --checkpoint whole --tokens ids.txt \
  --out ./ids.txt
echo "1 2 99999" >far.txt
expect 1 "far.txt: has token 99999; the model has tokens 0 to" "$score" --checkpoint whole --tokens far.txt
expect 1 "no/s.jsonl" "$score" --checkpoint whole --tokens ids.txt --out no/s.jsonl
grep -q '"perplexity"' s.txt || fail "score printed: $(cat s.txt)"

"$train" --config list | grep -q "^$config" || fail "--config list does not list $config"
expect 2 "unknown flag --stesp; did you mean --steps?" "$train" --stesp 3
expect 2 "--config: got 'gtp'; need one of" "$train" --config gtp
expect 2 "--dtype: got 'f23'" "$train" --dtype f23
expect 2 "--device: got 'gpu'; need cpu, cuda or cuda:N" "$train" --device gpu
CUDA_VISIBLE_DEVICES= expect 2 "--device cuda: " "$train" --device cuda  # no GPU, or none to be seen: one line says why
for program in "$generate" "$score --text ids.txt"; do
  expect 2 "--device: got 'gpu'; need cpu, cuda or cuda:N" $program --checkpoint whole --device gpu
  CUDA_VISIBLE_DEVICES= expect 2 "--device cuda: " $program --checkpoint whole --device cuda
done
for flag in batch_size steps seq_len keep lr memory_budget check_capture threads; do
  expect 2 "--$flag: got '-1'; need a" "$train" "--$flag=-1"
done
for flag in warmup eval_every sample; do
  expect 2 "--$flag: got '-2'; need a whole number, -1 or more (" "$train" "--$flag=-2"
done
expect 2 "--microbatches: got '-1'; need a whole number, 0 or more (" "$train" --microbatches=-1
expect 2 "--batch_size: got '9223372036854775807'; need a whole number from 0 to 1000000000 (" "$train" \
  --batch_size=9223372036854775807
for program in "$train" "$generate" "$score"; do
  expect 2 "--threads: got '100000'; need a whole number from 0 to 4096 (" "$program" --threads=100000
done
expect 2 "--top_p: got '0'; need a number above 0 and at most 1 (" "$generate" --top_p 0
expect 2 "--temperature: got 'nan'; need a number, 0 or more (" "$generate" --temperature nan
expect 2 "a divisor of --batch_size" "$train" "${flags[@]}" --microbatches 3
expect 2 "add --resume to continue" "$train" "${flags[@]}" --checkpoint_dir whole
expect 1 "no/such/file" "$train" --data no/such/file
expect 1 "memory" "$train" "${flags[@]}" --checkpoint_every 0 --memory_budget 1000
expect 2 "need one of --checkpoint, a folder that a train program wrote, and --hf" "$generate"
expect 2 "need one of --checkpoint, a folder that a train program wrote, and --hf" "$generate" --checkpoint whole \
  --hf whole --tokens ids.txt
expect 1 "whole: no config.json; need a folder that transformers wrote" "$generate" --hf whole
expect 2 "need one of --prompt TEXT and --tokens FILE" "$generate" --checkpoint whole --prompt A --tokens ids.txt
expect 2 "--context: got 8; need --hf" "$generate" --checkpoint whole --context 8
expect 1 "whole: no config.json; need a folder that transformers wrote" "$generate" --hf whole --tokens ids.txt
expect 1 "no checkpoint here" "$generate" --checkpoint empty
expect 2 "need one of --text FILE, --tokens FILE and --pairs FILE" "$score" --checkpoint whole
cp -r whole/step_24 damaged
truncate -s -100 damaged/model.safetensors
expect 1 "damaged/model.safetensors" "$generate" --checkpoint damaged
cp whole/step_24/model.safetensors damaged/
printf '\377' | dd of=damaged/model.safetensors bs=1 seek=$(($(stat -c %s damaged/model.safetensors) - 50)) \
  conv=notrunc status=none
expect 1 "damaged/model.safetensors" "$generate" --checkpoint damaged
echo '{' >damaged/state.json
expect 1 "damaged/state.json" "$generate" --checkpoint damaged

((failures == 0)) && echo "all well"
exit $((failures > 0))
