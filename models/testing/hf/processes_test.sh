#!/usr/bin/env bash
# processes_test.sh TRAIN: ranks that are processes train weights of transformers. Metrics and checkpoints equal the
# files of threads to the byte, and a run resumes.
set -u
train=$PWD/$1 hf=$PWD/models/testing/hf/fixtures/llama3
dir=${TEST_TMPDIR:-$(mktemp -d)}
cd "$dir" || exit 1
export WEFT_THREADS=2
flags=(--hf "$hf" --data synthetic --batch_size 4 --seq_len 16 --steps 4 --checkpoint_every 2 --keep 0)
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
plain() { sed -E 's/"ranks":\{[^}]*\},?//g; s/"(step_ms|tokens_per_s|mfu)":[^,}]*,?//g' "$1"; }

for mesh in dp2 tp2 fsdp2; do
  for ranks in threads processes; do
    "$train" "${flags[@]}" --mesh $mesh --ranks $ranks --metrics $mesh-$ranks.jsonl --checkpoint_dir $mesh-$ranks \
      >out.txt 2>&1 ||
      fail "$mesh $ranks: $(tail -3 out.txt)"
    [[ $(grep -c "^starting from the weights of $hf" out.txt) == 1 ]] || fail "$mesh $ranks: $(cat out.txt)"
  done
  cmp -s <(plain $mesh-threads.jsonl) <(plain $mesh-processes.jsonl) || fail "$mesh: processes differ from threads"
  for file in model.safetensors optimizer.safetensors origin.json; do
    cmp -s $mesh-threads/step_4/$file $mesh-processes/step_4/$file || fail "$mesh: $file differs"
  done
  "$train" --mesh $mesh --resume --steps 6 --checkpoint_dir $mesh-processes >out.txt 2>&1 ||
    fail "resume on $mesh: $(tail -3 out.txt)"
  [[ -d $mesh-processes/step_6 ]] && cmp -s $mesh-processes/step_{4,6}/origin.json ||
    fail "resume on $mesh: $(cat out.txt)"
  # A damaged file: the process that reads the block names it, and all end.
  file=$mesh-processes/step_6/model.safetensors got=0
  printf '\377\377\377\377' | dd of=$file bs=1 seek=$(($(stat -c %s $file) - 4)) conv=notrunc status=none
  timeout 60 "$train" --mesh $mesh --resume --steps 8 --checkpoint_dir $mesh-processes >out.txt 2>&1 || got=$?
  [[ $got == 1 ]] &&
    grep -q "step_6/model.safetensors: tensor '.*', bytes 0 to .*: the checksum differs: the file is damaged" out.txt ||
    fail "a damaged file on $mesh: exit code $got: $(tail -3 out.txt)"
done
# A run's flags repeat it, on another mesh too; a flag on the command line wins.
"$train" --flagfile tp2-threads/step_4/run.flags --ranks processes --checkpoint_dir again --metrics again.jsonl \
    >out.txt 2>&1 ||
  fail "--flagfile: $(tail -3 out.txt)"
cmp -s <(plain tp2-threads.jsonl) <(plain again.jsonl) ||
  fail "--flagfile: another run: $(cat tp2-threads/step_4/run.flags)"
cmp -s <(grep -v '^--ranks=' tp2-threads/step_4/run.flags) again/step_4/run.flags ||
  fail "run.flags: $(cat again/step_4/run.flags)"
grep -q "^--hf=$hf\$" tp2-processes/step_6/run.flags && grep -q '^--steps=6$' tp2-processes/step_6/run.flags &&
  ! grep -q '^--steps=4$' tp2-processes/step_6/run.flags ||
  fail "run.flags of a resumed run: $(cat tp2-processes/step_6/run.flags)"
# Hosts with other weights under one path: the run is refused.
for rank in 0 1; do mkdir -p host$rank/w && cp -L "$hf"/{config.json,model.safetensors} host$rank/w/; done
torchrun() {
  (cd host$1 && RANK=$1 WORLD_SIZE=2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    "$train" --hf w --data synthetic --batch_size 4 --seq_len 16 --steps 1 --checkpoint_every 0 --mesh dp2)
}
for change in none weights; do
  if [[ $change == weights ]]; then
    chmod u+w host1/w/model.safetensors
    printf '\1' | dd of=host1/w/model.safetensors bs=1 seek=$(($(stat -c %s host1/w/model.safetensors) - 50)) \
      conv=notrunc status=none
  fi
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  torchrun 1 >t1.txt 2>&1 &
  got=0
  torchrun 0 >t0.txt 2>&1 || got=$?
  wait $!
  if [[ $change == none ]]; then
    [[ $got == 0 ]] || fail "equal weights: $(tail -1 t0.txt)"
  else
    [[ $got == 1 ]] && grep -q "the weights of --hf" t0.txt ||
      fail "other weights under one path: exit code $got: $(tail -2 t0.txt)"
  fi
done
((failures == 0)) && echo "all well"
exit $((failures > 0))
