#!/usr/bin/env python3
"""Damaged and hostile files: programs print one line, end within the limit of time, and use at most 128 MB."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path.cwd()
TOKENIZER = ROOT / "models/text/tokenizer"
SCORE, GENERATE = ROOT / "models/llama/score", ROOT / "models/llama/generate"
FIXTURE, LETTERS = ROOT / "models/testing/hf/fixtures/llama3", ROOT / "models/hf/testdata/letters.json"
# Programs take less than a second; the limit finds work without end on machines of any speed.
SANITIZED = any(name.endswith("SAN_OPTIONS") for name in os.environ)  # takes more of both
SECONDS, BYTES = (60, 4 << 30) if SANITIZED else (10, 128 << 20)
HUGE = 1 << 63


# ---- GGUF ----


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def u32(n):
    return struct.pack("<I", n)


def u64(n):
    return struct.pack("<Q", n)


def strings(name, values):
    return key(name, 9, u32(8) + u64(len(values)) + b"".join(map(text, values)))


def numbers(name, kind, code, values):
    return key(name, 9, u32(kind) + struct.pack(f"<Q{len(values)}{code}", len(values), *values))


def gguf(keys=(), tensors=(), version=3, counts=None, data=4096):
    """A file of parts, which may be inconsistent. A tensor: name, dims, format, offset."""
    n_tensors, n_keys = counts or (len(tensors), len(keys))
    out = b"GGUF" + u32(version) + u64(n_tensors) + u64(n_keys) + b"".join(keys)
    for name, dims, kind, offset in tensors:
        out += text(name) + u32(len(dims)) + b"".join(map(u64, dims)) + u32(kind) + u64(offset)
    return out + bytes(-len(out) % 32) + bytes(data)


def llama(**changes):
    """The metadata of a model, with other values."""
    fields = dict(context_length=32, embedding_length=16, block_count=2, feed_forward_length=24, head_count=4)
    fields |= changes
    keys = [key("general.architecture", 8, text("llama")),
            key("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5))]
    for name, value in fields.items():
        keys.append(key("llama." + ("attention." if name == "head_count" else "") + name, 10, u64(value)))
    return keys


def words(tokens, types=None, merges=(), model="gpt2", **ids):
    keys = [key("tokenizer.ggml.model", 8, text(model)), key("tokenizer.ggml.pre", 8, text("gpt-2")),
            strings("tokenizer.ggml.tokens", tokens),
            numbers("tokenizer.ggml.token_type", 5, "i", types or [1] * len(tokens)),
            strings("tokenizer.ggml.merges", merges), numbers("tokenizer.ggml.scores", 6, "f", [0.0] * len(tokens))]
    return gguf(keys + [key(f"tokenizer.ggml.{name}_token_id", 10, u64(n)) for name, n in ids.items()])


EMBEDDING = ("token_embd.weight", [16, 40], 0, 0)
GGUF_FILES = {
    "product overflow": gguf(tensors=[("t", [1 << 32, 1 << 32], 0, 0)]),
    "product of bytes overflows": gguf(tensors=[("t", [1 << 61, 2], 0, 0)]),
    "alignment 2^30": gguf([key("general.alignment", 4, u32(1 << 30))]),
    "a text of 2^63 bytes": gguf([key("a", 8, u64(HUGE))]),
    "a list of 2^62 texts": gguf([key("a", 9, u32(8) + u64(HUGE >> 1))]),
    "lists of lists": gguf([key("a", 9, (u32(9) + u64(1)) * 100000)]),
    "2^60 tensors": gguf(counts=(1 << 60, 0)),
    "2^32 - 1 dims": gguf(counts=(1, 0), data=0) + text("t") + u32(2**32 - 1) + bytes(1000),
    "a tensor at 2^63": gguf(tensors=[("t", [4], 0, HUGE)]),
    "tensors that overlap": gguf(tensors=[("a", [64], 0, 0), ("b", [64], 0, 32)]),
    "a file that is cut": gguf(llama(), [("t", [1 << 20], 0, 0)]),
    "99999 files": gguf([key("split.count", 4, u32(99999))]),
    "10^9 layers": gguf(llama(block_count=10**9), [EMBEDDING]),
    "a dim of 2^62": gguf(llama(embedding_length=1 << 62), [EMBEDDING]),
    "2^63 heads": gguf(llama(head_count=HUGE), [EMBEDDING]),
}


# ---- folders ----


def tokenizer(**changes):
    """A tokenizer.json of two letters, with other parts."""
    t = dict(version="1.0", added_tokens=[], normalizer=None, pre_tokenizer=None, post_processor=None,
             decoder=dict(type="Fuse"), model=dict(type="BPE", vocab=dict(a=0, b=1, ab=2), merges=["a b"]))
    return t | changes


def split(pattern):
    return dict(type="Split", pattern=dict(Regex=pattern), behavior="Isolated", invert=False)


def safetensors(header, data=b""):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return u64(len(header)) + header + data


MODEL = dict(type="BPE", vocab=dict(a=0, b=1), merges=[])
TOKENIZERS = {
    "10^6 added tokens": tokenizer(added_tokens=[dict(id=i, content=f"<{i}>") for i in range(10**6)]),
    "10^5 nested lists": '{"added_tokens": ' + "[" * 10**5,
    "ids of 2^31": tokenizer(model=MODEL | dict(vocab=dict(a=0, b=2**31))),
    "two tokens of one id": tokenizer(model=MODEL | dict(vocab=dict(a=0, b=0))),
    "a merge that makes itself": tokenizer(model=MODEL | dict(merges=[["a", ""], ["", "a"]])),
    "a merge cycle": tokenizer(model=MODEL | dict(merges=["a b", "ab a", "aba b"])),
    "(a+)+$": tokenizer(pre_tokenizer=split("(a+)+$")),
    "10^4 nested groups": tokenizer(pre_tokenizer=split("(" * 10**4 + ")" * 10**4)),
    "a pattern with \\K": tokenizer(pre_tokenizer=split("(?=ab\\K)")),
    "10^3 repetitions of 10^3": tokenizer(pre_tokenizer=split("(?:(?:(?:a{1000}){1000}){1000})")),
    "a decoder that strips 2^62": tokenizer(decoder=dict(type="Strip", content="a", start=2**62, stop=0)),
}
MODELS = {  # files of a folder that differ from the fixture
    "a header of 2^63 bytes": {"model.safetensors": u64(HUGE) + b"{}"},
    "a shape overflows": {"model.safetensors": safetensors(
        {"t": dict(dtype="F32", shape=[1 << 32, 1 << 32], data_offsets=[0, 0])})},
    "data behind the end": {"model.safetensors": safetensors(
        {"t": dict(dtype="F32", shape=[1 << 40], data_offsets=[0, 1 << 42])})},
    "two tensors share bytes": {"model.safetensors": safetensors(
        {n: dict(dtype="F32", shape=[2], data_offsets=[0, 8]) for n in "ab"}, bytes(8))},
    "a nested header": {"model.safetensors": safetensors(b'{"a":' * 10**5)},
    "an index of other folders": {"model.safetensors.index.json": '{"weight_map": {"a": "../../model.safetensors"}}'},
    "10^9 layers": {"config.json": dict(num_hidden_layers=10**9)},
    "10^4 layers": {"config.json": dict(num_hidden_layers=10**4)},
    "10^18 tokens": {"config.json": dict(vocab_size=10**18)},
    "2^26 tokens": {"config.json": dict(vocab_size=1 << 26)},
    "no heads": {"config.json": dict(num_attention_heads=0)},
    "a theta of 0": {"config.json": dict(rope_parameters=dict(rope_type="default", rope_theta=0.0))},
    "an end token of 2^70": {"generation_config.json": '{"eos_token_id": %d}' % 2**70},
}
TEMPLATES = {
    "range(10**9)": "{% for i in range(10**9) %}x{% endfor %}",
    "a text of 10^12 bytes": "{{ 'a' * 10**12 }}",
    "texts that double": "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "a macro that calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a list in itself": "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}",
    "10^5 brackets": "{{ " + "(" * 10**5 + " }}",
    "blanks read again and again": "{% set a = ' ' * 16000000 %}{% for i in range(10**5) %}{{ a | int }}{% endfor %}",
}


def write(path, content):
    if not isinstance(content, (str, bytes)):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


# A process of its own starts the program: the peak of a process contains its parent's memory at the start.
START = """
import json, resource, subprocess, sys
p = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, capture_output=True)
r = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([p.returncode, p.stderr.decode(errors="replace"), r.ru_utime + r.ru_stime, r.ru_maxrss << 10]))
"""


def run(name, args):
    """Runs a program, which must end soon with one error; returns the problems."""
    out = subprocess.run([sys.executable, "-c", START, *map(str, args)], stdout=subprocess.PIPE, check=True).stdout
    code, error, seconds, peak = json.loads(out)
    lines = error.splitlines()
    print(f"{name}: {seconds:.2f} s, {peak >> 20} MB: {(lines or [''])[0][:200]}", flush=True)
    problems = []
    if code != 1:
        problems.append(f"exit code {code}")
    if len(lines) != 1 or len(lines[0]) > 1000:
        problems.append(f"{len(lines)} lines: {lines[:3]}")
    if seconds > SECONDS:
        problems.append(f"{seconds:.2f} s")
    if peak > BYTES:
        problems.append(f"{peak >> 20} MB")
    return [f"{name}: {p}" for p in problems]


def main():
    problems = []
    with tempfile.TemporaryDirectory() as temp:
        work = pathlib.Path(temp)
        ids, encode = work / "ids.txt", [TOKENIZER, "encode", "--text", work / "long.txt"]
        write(ids, "1 2 3")
        write(work / "long.txt", "a" * 5000 + "b")
        for name, content in GGUF_FILES.items():
            write(work / "bad.gguf", content)
            problems += run(f"GGUF: {name}", [SCORE, "--hf", work / "bad.gguf", "--tokens", ids])
        many = 10**6
        for name, content in {
                "10^6 added tokens": words([f"<{i}>" for i in range(many)], [3] * many),
                "merges of missing tokens": words(["a", "b"], merges=["a b"] * 10**5),
                "an end token of 2^40": words(["a", "b"], eos=1 << 40),
                "SentencePiece without scores": gguf([key("tokenizer.ggml.model", 8, text("llama")),
                                                      strings("tokenizer.ggml.tokens", ["a", "b"])]),
        }.items():
            write(work / "bad.gguf", content)
            problems += run(f"GGUF: {name}", encode + ["--tokenizer", work / "bad.gguf"])
        for name, content in TOKENIZERS.items():
            write(work / "tokenizer.json", content)
            problems += run(f"tokenizer.json: {name}", encode + ["--tokenizer", work / "tokenizer.json"])
        for name, files in MODELS.items():
            folder = work / "model"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for file in ("config.json", "model.safetensors"):
                shutil.copyfile(FIXTURE / file, folder / file)
            for file, content in files.items():
                if file == "config.json":
                    content = json.loads((folder / file).read_text()) | content
                write(folder / file, content)
            if "model.safetensors.index.json" in files:
                (folder / "model.safetensors").unlink()
            problems += run(f"model: {name}", [SCORE, "--hf", folder, "--tokens", ids])
        folder = work / "chat"
        folder.mkdir()
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(FIXTURE / file, folder / file)
        shutil.copyfile(LETTERS, folder / "tokenizer.json")
        for name, content in TEMPLATES.items():
            write(folder / "chat_template.jinja", content)
            problems += run(f"template: {name}", [GENERATE, "--hf", folder, "--chat", "--prompt", "hi"])
    print("\n".join(problems) or "all well")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
