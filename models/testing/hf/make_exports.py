#!/usr/bin/env python3
"""Writes fixtures/exports/NAME: three models after 50 steps as //tools:export writes them, with the results of other
programs. exports_test.cc compares.

Run it by hand, in this order; FOLDER receives the runs and their GGUF files:
  python models/testing/hf/make_exports.py train FOLDER
  python models/testing/hf/make_exports.py llama.cpp FOLDER    # with xllamacpp and xxhash installed
  python models/testing/hf/make_exports.py transformers        # with torch and transformers 4.57 installed; then with 5

greedy.json has llama.cpp's greedy tokens from the GGUF file in f32, and the checksum of the file. expected.safetensors
has the logits of transformers, for each version that has run; a version also checks the folder with one form of rotary
settings alone, and that rounding decides neither the greedy tokens nor the choice of experts.
"""
import glob
import json
import os
import shutil
import subprocess
import sys

from check_export import greedy_tokens, llama_cpp, variants

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
EXPORTS = os.path.join(HERE, "fixtures/exports")
SMALL = "dim=32,layers=2,heads=4,context=64"
MODELS = {  # a rope_theta that no program takes by itself
    "gpt": f"{SMALL},ffn=128,rms_norm=false,bias=true,tied=false",
    "llama": f"{SMALL},kv_heads=2,ffn=64,rope_theta=700",
    "moe": f"{SMALL},kv_heads=2,experts=4,ffn=24,rope_theta=700",
}
LEARNT = "To be, or not to be: that is the question: "  # short: 50 steps learn words of it
TEXT = b"Whether 'tis nob"
PROMPTS = [b"To be", b"that is", b"Question: "]
NEW_TOKENS = 40
MARGIN = 1e-3  # logits of programs differ by 1e-6


def folder_of(name):
    return os.path.join(EXPORTS, name)


def train(work):
    work = os.path.abspath(work)
    os.makedirs(EXPORTS, exist_ok=True)
    text = os.path.join(work, "text.txt")
    with open(text, "w", encoding="utf-8") as file:
        file.write(LEARNT * 3000)

    def run(target, *flags):
        subprocess.run(["./bazelw", "run", target, "--", *flags], cwd=ROOT, check=True)

    for name, fields in MODELS.items():
        checkpoints = os.path.join(work, name)
        run(f"//models/{name}:train", "--config", f"{name}_shakespeare", "--set", fields, "--data", text, "--steps",
            "50", "--lr", "0.01", "--seed", "1", "--sample", "0", "--checkpoint_dir", checkpoints)
        shutil.rmtree(folder_of(name), ignore_errors=True)
        for out in (folder_of(name), checkpoints + ".gguf"):
            run("//tools:export", "--checkpoint", checkpoints, "--out", out)


def run_llama_cpp(work):
    import xllamacpp
    import xxhash
    for name in MODELS:
        path = os.path.join(work, name + ".gguf")
        with open(path, "rb") as file:
            checksum = xxhash.xxh3_64_hexdigest(file.read())
        post = llama_cpp(path)
        prompts = [list(p) for p in PROMPTS]
        result = dict(xllamacpp=xllamacpp.__version__, gguf_xxh3=checksum, prompts=prompts,
                      ids=[greedy_tokens(post, p, NEW_TOKENS) for p in prompts])
        assert all(len(ids) == NEW_TOKENS for ids in result["ids"])
        print(name, *[bytes(ids) for ids in result["ids"]])
        with open(os.path.join(folder_of(name), "greedy.json"), "w", encoding="utf-8") as file:
            file.write("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in result.items()) + "\n}\n")


def run_transformers():
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    torch.set_grad_enabled(False)
    for name in MODELS:
        expected_path = os.path.join(folder_of(name), "expected.safetensors")
        expected = load_file(expected_path) if os.path.exists(expected_path) else {}
        tokens = torch.tensor([list(TEXT)])
        logits = None
        for form, path in variants(folder_of(name)):
            model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32,
                                                                      attn_implementation="eager").eval()
            own = model(tokens).logits
            if logits is None:
                logits = own
            difference = (own - logits).abs().max().item()
            print(f"transformers {transformers.__version__}, {name}, {form}: difference {difference:.1e}")
            assert difference <= 1e-6
        with open(os.path.join(folder_of(name), "greedy.json"), encoding="utf-8") as file:
            greedy = json.load(file)
        for prompt, ids in zip(greedy["prompts"], greedy["ids"]):
            out = model(torch.tensor([prompt + ids]), **(dict(output_router_logits=True) if name == "moe" else {}))
            best = out.logits[0, len(prompt) - 1:-1].topk(2)
            assert best.indices[:, 0].tolist() == ids, "other greedy tokens than llama.cpp's"
            margins = [best.values[:, 0] - best.values[:, 1]]
            for router in getattr(out, "router_logits", None) or ():
                chosen = router.topk(3).values
                margins.append(chosen[:, 1] - chosen[:, 2])
            least = min(m.min().item() for m in margins)
            print(f"  greedy tokens after {bytes(prompt)}: least margin {least:.1e}")
            assert least > MARGIN, "rounding decides"
        expected |= {"tokens": tokens, "logits." + transformers.__version__: logits.contiguous()}
        save_file(expected, expected_path)
        print(name, sum(os.path.getsize(f) for f in glob.glob(folder_of(name) + "/*")), "bytes")


if __name__ == "__main__":
    {"train": train, "llama.cpp": run_llama_cpp, "transformers": run_transformers}[sys.argv[1]](*sys.argv[2:])
