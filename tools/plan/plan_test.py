#!/usr/bin/env python3
"""plan: the output of inference, the timeline and saved plans, and one line for each bad input."""
import json
import os
import re
import subprocess
import sys
import tempfile

PLAN = os.path.join("tools", "plan", "plan")
SMALL = ["--model", "llama-8b", "--gpus", "16", "--batch", "16", "--top", "1", "--mesh", "fsdp16"]

# Arguments after --inference, and a part of the error.
BAD = [
    (["--what_if", "context=abc"], "--what_if: got 'context=abc'"),
    (["--what_if", "context=100"], "--what_if: context is 100; need more than the generated tokens, 1024"),
    (["--what_if", "context="], "--what_if: got 'context='"),
    (["--what_if", "kv_heads=3"], "--what_if: kv_heads is 3; need a divisor of heads, 32"),
    (["--what_if", "seq=8192"],
     "--what_if: got 'seq=8192'; with --inference, need kv_heads=1,8,H or context=8192,32768"),
    (["--what_if", "8"], "--what_if: got '8'"),
    (["--timeline", "x.html"], "--timeline"),
]


def run(*args):
    return subprocess.run([PLAN, *args], capture_output=True, text=True, timeout=120)


def check(good, *what):
    if not good:
        print("plan_test:", *what)
        sys.exit(1)


def ways(svg):
    """(name, whether it fits) of the timelines in a picture, in order."""
    return [(name, "does not fit" not in rest)
            for name, rest in re.findall(r">([^<>]*) on \d+ x h100-sxm: (exposed [^<>]*)", svg)]


def good(*args):
    done = run(*args)
    check(done.returncode == 0, args, done.stdout, done.stderr)
    return done.stdout


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        text = good("--model", "llama-8b", "--inference", "--json", path, "--usd_per_gpu_hour", "2",
                    "--what_if", "kv_heads=1,8,H,context=8192,32768")
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        rows = data["what_if"]
        check([(r["context"], r["kv_heads"]) for r in rows]
              == [(c, h) for c in (8192, 32768) for h in (1, 8, 32)], rows)
        for r in rows:
            # 2 x layers x heads x head_dim x 2 bytes; the batch fills the memory beside the weights.
            check(r["kv_bytes_per_token"] == 2 * 32 * r["kv_heads"] * 128 * 2, r)
            check(r["kv_bytes_per_sequence"] == r["kv_bytes_per_token"] * r["context"], r)
            if r["kv_heads"] == 8:  # other numbers of heads change the weights, too
                left = 0.94 * 80e9 - data["weight_bytes"]
                check(r["sequences_that_fit"] == left // r["kv_bytes_per_sequence"], r)
            check(f"context {r['context']}, kv_heads {r['kv_heads']}" in text, text)
        # Four times the context: a quarter of the sequences, and keys and values bound all of them with many heads.
        check(rows[5]["bound_by"] == "keys and values" and rows[0]["bound_by"] != "communication", rows)
        check([b["batch"] for b in data["batches"]][:3] == [1, 2, 4] and data["batches"][0]["bound_by"] == "weights",
              data["batches"][0])
        check(data["batches"][0]["usd_per_1e6_tokens"] > data["batches"][5]["usd_per_1e6_tokens"], data["batches"])

        page, picture = os.path.join(folder, "time.html"), os.path.join(folder, "time.svg")
        text = good(*SMALL, "--timeline", page)
        check("memory 3000 GB/s (data sheet 3350)" in text and "132 multiprocessors, L2 50 MB, 5 stacks of HBM" in text,
              text)
        good(*SMALL, "--timeline", picture)
        with open(page, encoding="utf-8") as file:
            html = file.read()
        check("default-src 'none'" in html and not re.search(r"(src|href)=", html), html[:2000])
        with open(picture, encoding="utf-8") as file:
            svg = file.read()
        rows = ways(svg)
        check([name for name, fits in rows if fits] == ["best plan, ZeRO-3", "tp8 and DDP"], rows)
        check(sorted(name for name, fits in rows[2:]) == ["DDP", "ZeRO-1"], rows)
        # A sequence on each GPU: llama-70b needs more than the four ways.
        good("--model", "llama-70b", "--gpus", "64", "--timeline", picture)
        with open(picture, encoding="utf-8") as file:
            rows = ways(file.read())
        check(len(rows) == 5 and rows[0][0].startswith("best plan, "), rows)
        check([fits for _, fits in rows] == [True] + 4 * [False], rows)
        for name in ("DDP", "ZeRO-1", "ZeRO-3", "tp8 and DDP"):
            check(f"{name} on 16 x h100-sxm" in svg, name)
        titles = re.findall(r"<title>(.*?)</title>", svg, re.S)
        for start in ("forward 0", "backward 5", "gather weights of forward 1", "reduce gradients of head",
                      "collectives in forward 0", "gather new weights", "update", "wait for"):
            check(any(t.startswith(start) for t in titles), start, titles[:20])
    with tempfile.TemporaryDirectory() as folder:  # gpt2 has dropout, and its parts are planned on meta
        saved = os.path.join(folder, "saved.plan")
        good("--model", "gpt2", "--gpus", "8", "--batch", "64", "--mesh", "dp8", "--microbatches", "2", "--save_plan",
             saved)
        check(os.path.getsize(saved) > 0, saved)
    with tempfile.TemporaryDirectory() as folder:  # what if: the table shows the unchanged workload
        path = os.path.join(folder, "out.json")
        text = good("--model", "llama-70b", "--gpus", "8", "--batch", "64", "--what_if", "memory=10x,gpus=4x,8x",
                    "--json", path)
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        rows = data["what_if"]
        check([r["change"] for r in rows] == ["as it is", "memory=10x", "gpus=4x", "gpus=8x", "memory=10x,gpus=4x",
                                              "memory=10x,gpus=8x"], rows)
        check("fits nowhere" in text and "8 x h100-sxm" in text and "plans" not in data and rows[0]["best"] is None,
              text)
        check([r["gpus"] for r in rows] == [8, 8, 32, 64, 32, 64], rows)
        for r in rows[1:]:
            line = next(one for one in text.splitlines() if one.startswith(r["change"] + " "))
            check(r["best"]["mesh"] in line and f"{100 * r['best']['mfu']:.1f}%" in line, line, r)
        check(rows[4]["best"]["step_seconds"] <= rows[2]["best"]["step_seconds"], rows)

        # The saved plan is the plan for the unchanged machine, and the printed command trains with it.
        small = ["--model", "llama_tiny", "--gpus", "4", "--gpu", "cpu", "--dtype", "f32", "--batch", "8", "--mesh",
                 "pp2,fsdp2", "--what_if", "memory=2x,batch=2x", "--json", path, "--save_plan"]
        saved = os.path.join(folder, "saved.plan")
        text = good(*small, saved)
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        check(data["what_if"][0]["best"] == data["plans"][0], data)
        command = text.splitlines()[-1].split()
        check(command[:4] == ["./bazelw", "run", "//models/llama:train", "--"], command)
        check(f"--plan {saved} --config llama_tiny --batch_size 8 --seq_len 64" in text, text)
        done = subprocess.run([os.path.join("models", "llama", "train"), *command[4:], "--steps", "1", "--eval_every",
                               "0", "--checkpoint_every", "0", "--sample", "0", "--ranks", "threads"],
                              capture_output=True, text=True, timeout=120)
        check(done.returncode == 0 and "4 ranks as pp2,fsdp2" in done.stdout and "note:" not in done.stdout, done)

        # Without --gpus, the GPUs that hold a sequence; each row of what if at its own batch, and all rows at one.
        text = good("--model", "llama-70b", "--inference", "--json", path, "--what_if", "context=2048,4096")
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        check(data["gpus"] == 2 and "2 x h100-sxm, the number needed; 150 GB usable of 160 GB" in text, text)
        check([r["common_batch"] for r in data["what_if"]] == [data["what_if"][1]["sequences_that_fit"]] * 2, data)
        check(data["what_if"][1]["step_seconds_at_common_batch"] == data["what_if"][1]["step_seconds"], data)
        check(data["what_if"][0]["step_seconds_at_common_batch"] < data["what_if"][0]["step_seconds"], data)
        one = data["batches"][0]
        check(abs(sum(one[f"{part}_seconds"] for part in ("weight", "cache", "communication", "launch"))
                  - one["step_seconds"]) < 1e-9, one)
        wide = good("--model", "llama-70b", "--inference", "--memory_margin", "0.2")
        check("4 x h100-sxm, the number needed; 256 GB usable of 320 GB" in wide, wide)
    for args, part in BAD:
        done = run("--model", "llama-8b", "--inference", *args)
        check(done.returncode == 2 and done.stderr.count("\n") == 1 and part in done.stderr, args, done)
    print("plan_test: ok")


main()
