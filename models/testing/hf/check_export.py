#!/usr/bin/env python3
"""Checks a folder that //tools:export wrote: the log-probabilities of tokens, also with one form of rotary settings
alone, and the ids of a byte tokenizer.

Run it by hand, with torch, transformers and tokenizers installed:
  ./bazelw run //tools:export -- --checkpoint RUN --out FOLDER
  ./bazelw run //models/FAMILY:score -- --checkpoint RUN --tokens ids.txt --out scores.jsonl
  python models/testing/hf/check_export.py FOLDER ids.txt scores.jsonl
"""
import json
import os
import shutil
import sys
import tempfile

import tokenizers
import torch
import transformers

TOLERANCE = 1e-4


def log_probabilities(folder, ids):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                              attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double()
    return torch.log_softmax(logits[:-1], -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def variants(folder):
    """The folder, and copies with one form of rotary settings."""
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


def main():
    folder, ids_file, scores_file = sys.argv[1:]
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
    tokenizer = os.path.join(folder, "tokenizer.json")
    if os.path.exists(tokenizer):
        t = tokenizers.Tokenizer.from_file(tokenizer)
        text = "".join(map(chr, range(128))) * 2 + "Grüße, 日本\r\n 🙂"
        assert t.encode(text).ids == list(text.encode()), "other ids than bytes"
        assert t.decode(list(text.encode()), skip_special_tokens=False) == text
        level = {c: b for b, c in enumerate(sorted(t.get_vocab(), key=t.get_vocab().get))}
        from transformers.convert_slow_tokenizer import bytes_to_unicode
        assert level == {c: b for b, c in bytes_to_unicode().items()}, "other characters for bytes"
        print("tokenizer.json: all 256 bytes have their ids")
        auto = transformers.AutoTokenizer.from_pretrained(folder)
        assert auto(text)["input_ids"] == list(text.encode())


if __name__ == "__main__":
    main()
