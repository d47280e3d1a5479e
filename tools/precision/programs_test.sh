#!/bin/bash
# The program's output and files, and its errors: one line each, with exit code 2.
set -euo pipefail
precision=$PWD/tools/precision/precision
cd "$TEST_TMPDIR"

"$precision" --show formats,ops --repeats 2 --json p.json --svg p.svg > text
grep -q '^E4M3 .* 448 ' text
grep -q '^layer norm .*NVFP4' text
grep -q '"name": "MXFP4"' p.json
grep -q '</svg>' p.svg
"$precision" --show tensors,train,decode,reinforce --config gpt_tiny --batch_size 2 --seq_len 8 --steps 2 --tensors 2 \
  --reinforce_steps 2 --texts 2 --text_len 6 --json q.json --svg q.svg > text 2> progress
grep -q '^gradients .*FP16' text
grep -q '^f32, gradients in E5M2 ' text
grep -q '^REINFORCE, 2 steps of 2 texts of 6 tokens' text
grep -q '^reinforce bf16: 2 of 2 steps' progress
grep -q '"overflow"' q.json
grep -q 'Ranges of formats' q.svg

refused() {
  local want=$1 code=0
  shift
  "$precision" "$@" > out 2> err || code=$?
  [[ $code == 2 && $(wc -l < err) == 1 && ! -s out ]] && grep -qF -e "$want" err ||
    { echo "precision $*: exit code $code, wanted 2 and: $want"; cat out err; exit 1; }
}
refused "--show: got 'op'; need some of" --show op
refused "--show: got ''; need some of [formats, ops, tensors" --show ''
refused "--model is 'bert'; need one of" --show train --model bert
refused "--config is 'gpt_huge'; need one of" --show train --config gpt_huge
refused "--seq_len is 4096; need at most the context of gpt_tiny, 64" --show train --config gpt_tiny --seq_len 4096
refused "--text_len is 65; need at most the context of the model, 64" --show reinforce --config gpt_tiny --text_len 65
refused "--steps" --steps 0
refused "--model is a flag of tensors, train, decode and reinforce; this is formats and ops" --steps 500 --model llama
refused "--repeats is a flag of ops; this is formats" --show formats --repeats 5
refused "--text_len is a flag of reinforce; this is ops and train" --show train,ops --text_len 20
# A step that does not fit is refused before anything runs.
code=0
(ulimit -v 8000000; "$precision" --show tensors --config gpt2-xl) > out 2> err || code=$?
[[ $code == 1 && $(wc -l < err) == 1 && ! -s out ]] &&
  grep -q "needs .* GB at its peak, and this process may use 8.19 GB" err ||
  { echo "gpt2-xl: exit code $code"; cat out err; exit 1; }
echo passed
