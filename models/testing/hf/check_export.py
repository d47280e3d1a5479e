#!/usr/bin/env python3
"""Checks the files that //tools:export wrote of a model of bytes. A folder: the log-probabilities of tokens in
transformers, also with one form of rotary settings alone, and the ids of texts. A GGUF file: llama.cpp's greedy tokens,
and its ids.

Run it by hand, with torch, transformers and tokenizers installed, or with xllamacpp for a GGUF file:
  ./bazelw run //tools:export -- --checkpoint RUN --out FOLDER
  ./bazelw run //models/FAMILY:score -- --checkpoint RUN --tokens ids.txt --out scores.jsonl
  python models/testing/hf/check_export.py FOLDER ids.txt scores.jsonl

  ./bazelw run //tools:export -- --checkpoint RUN --out MODEL.gguf
  ./bazelw run //models/FAMILY:generate -- --checkpoint RUN --prompt TEXT --temperature 0 --max_new_tokens 64 --json
  python models/testing/hf/check_export.py MODEL.gguf FILE      # a line of the last command's output for each TEXT
"""
import json
import os
import random
import shutil
import sys
import tempfile
import urllib.request

TOLERANCE = 1e-4


def texts():
    """Characters of all lengths in UTF-8, which have all bytes that it uses."""
    random.seed(1)
    yield "".join(map(chr, range(128))) * 2 + "Grüße, 日本\r\n 🙂"
    for _ in range(300):
        most = random.choice([0x80, 0x100, 0x800, 0xD800, 0x110000])
        codes = [random.randrange(most) for _ in range(random.randrange(1, 50))]
        yield "".join(chr(c) for c in codes if not 0xD800 <= c < 0xE000)


def log_probabilities(folder, ids):
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                              attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double()
    return torch.log_softmax(logits[:-1], -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def variants(folder):
    """The folder, and copies with one form of rotary settings."""
    import transformers
    yield "as written", folder
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    if "rope_parameters" not in config:
        return
    forms = [("rope_theta", ["rope_parameters"])]
    if int(transformers.__version__.split(".")[0]) >= 5:  # transformers 4 does not read rope_parameters
        forms.append(("rope_parameters", ["rope_theta", "rope_scaling"]))
    for name, fields in forms:
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(folder, copy, dirs_exist_ok=True)
            with open(os.path.join(copy, "config.json"), "w", encoding="utf-8") as file:
                json.dump({k: v for k, v in config.items() if k not in fields}, file)
            yield "only " + name, copy


def check_folder(folder, ids_file, scores_file):
    import tokenizers
    import torch
    import transformers
    from transformers.convert_slow_tokenizer import bytes_to_unicode
    with open(ids_file, encoding="utf-8") as file:
        ids = [int(i) for i in file.read().split()]
    with open(scores_file, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    weft = torch.tensor([line["logprob"] for line in lines if "logprob" in line], dtype=torch.float64)
    print("transformers", transformers.__version__, "tokenizers", tokenizers.__version__)
    for name, path in variants(folder):
        difference = (log_probabilities(path, ids) - weft).abs().max().item()
        print(f"{name}: {len(weft)} log-probabilities, largest difference {difference:.2e}")
        assert difference <= TOLERANCE
    t = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    auto = transformers.AutoTokenizer.from_pretrained(folder)
    for text in texts():
        assert t.encode(text).ids == auto(text)["input_ids"] == list(text.encode()), "other ids than bytes"
        assert t.decode(list(text.encode()), skip_special_tokens=False) == text
    level = {c: b for b, c in enumerate(sorted(t.get_vocab(), key=t.get_vocab().get))}
    assert level == {c: b for b, c in bytes_to_unicode().items()}, "other characters for bytes"
    print("tokenizer.json: all 256 bytes have their ids")


def llama_cpp(path):
    """A function (name, body) that sends a request to a server of llama.cpp with this model and returns its tokens."""
    import xllamacpp as llama
    options = llama.CommonParams()
    options.model.path = path
    options.cache_type_k = options.cache_type_v = llama.ggml_type.GGML_TYPE_F32
    options.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    options.n_ctx, options.n_gpu_layers, options.n_parallel, options.port, options.verbosity = 0, 0, 1, 0, 1
    server = llama.Server(options)

    def post(name, body):
        request = urllib.request.Request(f"{server.listening_address}/{name}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))["tokens"]

    return post


def greedy_tokens(post, prompt, count):
    return post("completion", {"prompt": prompt, "n_predict": count, "temperature": 0, "samplers": ["temperature"],
                               "ignore_eos": True, "return_tokens": True})


def check_gguf(path, generated_file):
    post = llama_cpp(path)
    with open(generated_file, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    for line in lines:
        tokens = greedy_tokens(post, line["prompt_ids"], len(line["ids"]))
        assert tokens == line["ids"], f"other tokens after {line['prompt_ids']}: {tokens}"
    print(f"{len(lines)} prompts have the same {sum(len(line['ids']) for line in lines)} greedy tokens")
    for text in texts():
        ids = post("tokenize", {"content": text, "add_special": True})
        assert ids == list(text.encode()), f"other ids than bytes: {ids}"
    print("tokenizer: all texts have the ids of their bytes")


if __name__ == "__main__":
    (check_gguf if sys.argv[1].endswith(".gguf") else check_folder)(*sys.argv[1:])
