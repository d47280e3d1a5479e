#!/usr/bin/env bash
# A trained model, exported and read again, has the loss of its checkpoint, to the last bit.
set -u
export=$PWD/tools/export/export train=$PWD/models/llama/train score=$PWD/models/llama/score
generate=$PWD/models/llama/generate tokenizer=$PWD/models/testing/hf/fixtures/tokenizers/gpt2.json
encode=$PWD/models/text/tokenizer
dir=${TEST_TMPDIR:-$(mktemp -d)}
cd "$dir" || exit 1
export WEFT_THREADS=2
failures=0

fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
expect() {
  local code=$1 text=$2 got=0
  shift 2
  "$@" >out.txt 2>err.txt </dev/null || got=$?
  [[ $got == "$code" ]] || fail "exit code $got instead of $code: $*: $(cat err.txt)"
  [[ -z $text ]] || grep -qF -- "$text" err.txt || fail "no '$text' in: $(cat err.txt)"
}

"$train" --config llama_shakespeare --data synthetic --batch_size 4 --seq_len 16 --steps 4 --seed 7 \
    --checkpoint_every 4 --checkpoint_dir run >t.txt 2>&1 ||
  fail "train: $(tail -3 t.txt)"
for i in $(seq 1 40); do echo $((i * 37 % 256)); done >ids.txt
loss=$("$score" --checkpoint run --tokens ids.txt) || fail "score --checkpoint"
expect 0 "" "$export" --checkpoint run --out hf
expect 0 "" "$export" --checkpoint run --out m.gguf
expect 0 "" "$export" --checkpoint run --out q.gguf --gguf q8_0
for path in hf m.gguf; do
  [[ $("$score" --hf $path --tokens ids.txt) == "$loss" ]] || fail "score --hf $path: another loss than $loss"
done
[[ $("$score" --hf hf --tokens ids.txt --copy_weights) == "$loss" ]] || fail "score --copy_weights: another loss"
expect 2 "--copy_weights: need --hf" "$score" --checkpoint run --tokens ids.txt --copy_weights
for file in config.json generation_config.json model.safetensors tokenizer.json tokenizer_config.json; do
  [[ -s hf/$file ]] || fail "no hf/$file"
done
[[ $(stat -c %s q.gguf) -lt $(($(stat -c %s m.gguf) * 2 / 5)) ]] || fail "q8_0 is not smaller than f32"
[[ $("$generate" --hf m.gguf --tokens ids.txt --max_new_tokens 8 --temperature 0) == \
    "$("$generate" --checkpoint run --tokens ids.txt --max_new_tokens 8 --temperature 0)" ]] ||
  fail "generate --hf m.gguf: other tokens"

# The tokenizer of the text goes with the model, and with models that are trained from its GGUF file.
seq 1 3000 >text.txt
ids() { "$encode" encode --tokenizer "$1" --text text.txt; }
cp "$tokenizer" own.json
run=(--data text.txt --batch_size 2 --seq_len 16 --steps 1 --sample 0)
"$train" --config llama_tiny --set vocab=2005,dim=16,layers=1,heads=2 --tokenizer own.json "${run[@]}" \
    --checkpoint_dir own >t.txt 2>&1 ||
  fail "train: $(tail -3 t.txt)"
expect 0 "" "$export" --checkpoint own --out own_hf
cmp -s own_hf/tokenizer.json "$tokenizer" || fail "own_hf/tokenizer.json is not the tokenizer of the run"
grep -q '"tokenizer_class": "PreTrainedTokenizerFast"' own_hf/tokenizer_config.json ||
  fail "own_hf/tokenizer_config.json has no class"
! grep -q '_token"' own_hf/tokenizer_config.json || fail "tokens of own_hf/tokenizer_config.json were invented"
expect 0 "" "$export" --checkpoint own --out own.gguf
[[ $(ids own.gguf) == "$(ids own.json)" ]] || fail "own.gguf: other ids"
"$train" --hf own.gguf "${run[@]}" --checkpoint_dir again >t.txt 2>&1 || fail "train --hf own.gguf: $(tail -3 t.txt)"
# A GGUF file whose pattern has an unknown name.
LC_ALL=C sed 's/gpt-2/other/' own.gguf >other.gguf
expect 1 "tokenizer.ggml.pre is 'other', which stands for no known pattern; need --pre gpt-2, llama-bpe" \
  "$score" --hf other.gguf --text text.txt
expect 0 "" "$score" --hf other.gguf --text text.txt --pre gpt-2
cp out.txt named.txt
expect 0 "" "$score" --hf own.gguf --text text.txt
cmp -s out.txt named.txt || fail "score --pre: $(cat out.txt named.txt)"
expect 2 "--pre: got gpt-2; need --hf and text" "$score" --hf other.gguf --tokens ids.txt --pre gpt-2
expect 1 "is 'nothing', which stands for no known pattern" "$generate" --hf own.gguf --prompt a --pre nothing
rm own.gguf
for out in again_hf again.gguf; do
  expect 0 "" "$export" --checkpoint again --out $out
  [[ ! -s err.txt ]] || fail "$out: $(cat err.txt)"
  [[ $(ids $out) == "$(ids own.json)" ]] || fail "$out: other ids"
done
for file in {own,again}_hf/{config,generation_config}.json; do
  grep -q '"eos_token_id": 0' $file || fail "no end token in $file: $(cat $file)"
done
grep -q '"eos_token_id": null' hf/config.json || fail "the bytes have an end token: $(cat hf/config.json)"
cp -r own_hf far && sed -i 's/"eos_token_id": 0/"eos_token_id": [1, 2005]/' far/*config.json
expect 0 "far: the end tokens 2005 are ignored: the model has tokens 0 to 2004" "$score" --hf far --tokens ids.txt
# A checkpoint that has none, as of earlier versions, and one whose file is gone.
rm -r own/step_1/tokenizer
expect 0 "" "$export" --checkpoint own --out old
cmp -s old/tokenizer.json "$tokenizer" || fail "old/tokenizer.json is not the tokenizer of the run"
rm own.json
expect 0 "lost: has no tokenizer: the run read its text with the tokenizer of" "$export" --checkpoint own --out lost
[[ ! -e lost/tokenizer.json ]] || fail "lost/tokenizer.json was invented"

expect 1 "hf: exists; need a new name" "$export" --checkpoint run --out hf
expect 2 "need --checkpoint DIR and --out DIR" "$export" --out new
expect 2 "--gguf: --out is new; need a name that ends with .gguf" "$export" --checkpoint run --out new --gguf q8_0
expect 2 "--dtype: need a folder as --out" "$export" --checkpoint run --out new.gguf --dtype bf16
expect 2 "--gguf: got 'q4_k'; need f32, bf16 or q8_0" "$export" --checkpoint run --out new.gguf --gguf q4_k
expect 1 "not a GGUF file" "$score" --hf "$(cp ids.txt bad.gguf && echo bad.gguf)" --tokens ids.txt
exit $((failures > 0))
