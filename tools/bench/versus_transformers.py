#!/usr/bin/env python3
"""Times prefill and decoding of a GGUF model: Weft's generate, other builds of it, and transformers, in turn.

    pip install torch transformers==5.24.0 accelerate gguf
    ./bazelw build //models/llama:generate
    python3 tools/bench/versus_transformers.py FILE.gguf [--threads N] [--rounds N] [--other GENERATE]

transformers computes with the dequantised weights. All sides read the same prompt and write greedy tokens. The table
contains the least times of the rounds. `--other` is the program of another commit.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMPT, NEW_TOKENS = 256, 128
DTYPES = ("f32", "bf16")


def weft(program, path, dtype, threads, ids):
    """Milliseconds of the prompt and of a token, the tokens, and the peak of memory in MB."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(" ".join(map(str, ids)))
        file.flush()
        flags = [f"--hf={path}", f"--tokens={file.name}", f"--dtype={dtype}", f"--max_new_tokens={NEW_TOKENS}",
                 "--temperature=0", "--json"]
        process = subprocess.Popen([program, *flags], stdout=subprocess.PIPE,
                                   env=os.environ | {"WEFT_THREADS": str(threads)})
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"{program} failed"
    out = json.loads(text)
    return out["timings"]["prompt_ms"], out["timings"]["token_ms"], out["ids"], usage.ru_maxrss * 1024 / 1e6


def transformers_side(path, dtype, threads):
    """A function of ids with the same results."""
    import torch
    import transformers
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype={"f32": torch.float32, "bf16": torch.bfloat16}[dtype]).eval()
    projection = model.model.layers[0].self_attn.q_proj
    assert type(projection) is torch.nn.Linear and projection.weight.is_floating_point(), "the weights stay quantised"

    def run(ids):
        begin = time.perf_counter()
        out = model(torch.tensor([ids]), use_cache=True, logits_to_keep=1)
        made = [out.logits[0, -1].argmax().item()]
        first = time.perf_counter()
        while len(made) < NEW_TOKENS and made[-1] != model.config.eos_token_id:
            out = model(torch.tensor([made[-1:]]), past_key_values=out.past_key_values, use_cache=True)
            made.append(out.logits[0, -1].argmax().item())
        return 1e3 * (first - begin), 1e3 * (time.perf_counter() - first) / max(1, len(made) - 1), made

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--other", type=pathlib.Path)
    options = parser.parse_args()
    path = options.model.resolve()
    programs = {"Weft": ROOT / "out/bin/models/llama/generate"}
    if options.other:
        programs["other Weft"] = options.other.resolve()
    choice = random.Random(1)
    ids = [choice.randrange(100, 30000) for _ in range(PROMPT)]
    print(f"prompt of {PROMPT}, {NEW_TOKENS} new tokens, {options.threads} threads, least of {options.rounds} rounds\n"
          "| dtype | side | prompt ms | token ms | peak RSS MB | same tokens as transformers |\n"
          "|---|---|---|---|---|---|")
    # The system counts the memory of a process from its fork, so memory is read before this process has a model. This
    # first run fills the cache of kernels, too.
    memory = {(dtype, name): weft(program, path, dtype, options.threads, ids)[3]
              for dtype in DTYPES for name, program in programs.items()}
    for dtype in DTYPES:
        sides = {name: lambda ids, p=program: weft(p, path, dtype, options.threads, ids)
                 for name, program in programs.items()}
        sides["transformers"] = transformers_side(path, dtype, options.threads)
        results = {name: [] for name in sides}
        for _ in range(options.rounds):
            for name, side in sides.items():
                results[name].append(side(ids))
        for name, runs in results.items():
            rss = f"{memory[dtype, name]:.0f}" if (dtype, name) in memory else ""
            equal = runs[0][2] == results["transformers"][0][2]
            print(f"| {dtype} | {name} | {min(r[0] for r in runs):.1f} | {min(r[1] for r in runs):.2f} | {rss} | "
                  f"{'yes' if equal else 'no'} |", flush=True)


if __name__ == "__main__":
    main()
