#!/usr/bin/env python3
"""Encodes the same texts with Weft, tiktoken and `tokenizers` on one core, in turn, and compares the ids.

    pip install tokenizers tiktoken xxhash
    python3 tools/bench/versus_tokenizers.py FILE/tokenizer.json

tiktoken takes part where the vocabulary is GPT-2's kind: bytes, with ids in the order of merges.
"""
import gzip
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROUNDS = 3
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def byte_of_character():
    """GPT-2's table of bytes as characters."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): b for b in plain}
    for i, b in enumerate(b for b in range(256) if b not in plain):
        table[chr(256 + i)] = b
    return table


def tiktoken_of(config):
    import tiktoken
    pre, vocab = config["pre_tokenizer"], config["model"]["vocab"]
    if pre["type"] != "ByteLevel" or not pre.get("use_regex", True):
        return None
    table = byte_of_character()
    ranks = {bytes(table[c] for c in t): i for t, i in vocab.items()
             if all(c in table for c in t) and not t.startswith("<|")}
    return tiktoken.Encoding("file", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={})


def least(encode, text):
    """Seconds of processor time, and the ids."""
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        ids = encode(text)
        times.append(time.process_time() - begin)
    return min(times), ids


def main():
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import tokenizers
    import xxhash
    path = sys.argv[1]
    config = json.loads(pathlib.Path(path).read_text())
    hugging_face, tiktoken = tokenizers.Tokenizer.from_file(path), tiktoken_of(config)
    letters = random.Random(1)
    texts = {
        "Shakespeare": gzip.decompress((ROOT / "models/data/corpus/shakespeare.txt.gz").read_bytes()).decode(),
        "a x 10^6": "a" * 10**6,
        "letters x 10^6": "".join(letters.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(10**6)),
        "^ x 10^6": "^" * 10**6,
    }
    program = pathlib.Path(os.environ.get("WEFT_TOKENIZE", ROOT / "out/bin/tools/bench/tokenize"))
    print("| text | Weft s | MB/s | tiktoken s | tokenizers s | x tiktoken | x tokenizers |\n"
          "|---|---|---|---|---|---|---|")
    for name, text in texts.items():
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            run = [program, f"--tokenizer={path}", f"--text={file.name}", f"--rounds={ROUNDS}"]
            weft = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
        # tiktoken needs minutes for one long piece.
        other = least(tiktoken.encode_ordinary, text)[0] if tiktoken and name == "Shakespeare" else None
        seconds, ids = least(lambda t: hugging_face.encode(t, add_special_tokens=False).ids, text)
        if xxhash.xxh3_64_hexdigest(struct.pack(f"<{len(ids)}i", *ids)) != weft["xxh3"]:
            sys.exit(f"{name}: the ids differ")
        w = weft["encode_s"]
        print(f"| {name} | {w:.3f} | {len(text) / w / 1e6:.1f} | {f'{other:.3f}' if other else '–'} | {seconds:.3f} | "
              f"{f'{other / w:.1f}' if other else '–'} | {seconds / w:.0f} |", flush=True)


if __name__ == "__main__":
    main()
