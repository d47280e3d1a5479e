#!/usr/bin/env python3
"""plan: each kind of question has its answer, files are written, and contradictions are answered with one line."""
import json
import os
import subprocess
import sys
import tempfile

PLAN = os.path.join("tools", "plan", "plan")
SMALL = ["--model", "llama_tiny", "--gpu", "cpu", "--dtype", "f32", "--batch", "8", "--seq", "64"]

# Arguments, and parts of the text.
GOOD = [
    (["--model", "llama-8b", "--gpus", "64"], ["llama-8b: 8.03 B parameters; 64 x h100-sxm", "advice: case 1"]),
    (SMALL + ["--gpus", "2", "--measure", "1"], ["measured here", "predicted by the partitioned graph"]),
    (["--inference", "--model", "llama-8b"], ["bound of decoding at batch 1"]),
]

# Arguments, and a part of the error; exit code 2.
BAD = [
    (["--model", "llama-9"], "--model: got 'llama-9'"),
    (["--gpu", "h101"], "--gpu: got 'h101'"),
    (SMALL + ["--gpus", "1", "--save_plan", "a.plan"], "--save_plan: got a.plan; need a plan of two GPUs or more"),
    (["--dtype", "fp8", "--save_plan", "a.plan"], "--save_plan: got --dtype fp8; need"),
    (["--dtype", "f32", "--tf32", "--save_plan", "a.plan"], "--save_plan: got --tf32; need"),
    (["--noasync_tp", "--save_plan", "a.plan"], "--save_plan: got --async_tp=false; need"),
    (["--recompute", "full", "--save_plan", "a.plan"], "--save_plan: got --recompute full; need"),
    (["--gpus", "64", "--batch", "64", "--mesh", "fsdp64", "--save_plan", "a.plan"],
     "--save_plan: got the best plan, fsdp64 recompute; need --recompute cheap"),
    (["--measure", "1"], "--measure: got h100-sxm; need --gpu cpu"),
    (SMALL + ["--recompute", "full", "--measure", "1"], "--measure: got --recompute full; need"),
]


def main():
    failures = []

    def run(args, folder):
        done = subprocess.run([os.path.abspath(PLAN), *args], capture_output=True, text=True, cwd=folder)
        return done.returncode, done.stdout, done.stderr

    def check(ok, name, seen):
        if not ok:
            failures.append(f"{name}: {seen}")

    with tempfile.TemporaryDirectory() as folder:
        for args, parts in GOOD:
            code, out, err = run(args, folder)
            check(code == 0 and not err, args, err)
            for part in parts:
                check(part in out, f"{args} {part}", out)
        for args, part in BAD:
            code, out, err = run(args, folder)
            check(code == 2 and not out and err.count("\n") == 1 and part in err, args, f"{code} {err}")
            check(not os.listdir(folder), args, "wrote a file")

        # A plan is priced with a ring for cp, so the saved plan has one.
        plan = os.path.join(folder, "a.plan")
        code, _, err = run(SMALL + ["--gpus", "2", "--mesh", "cp2", "--save_plan", plan], folder)
        check(code == 0 and "cp ring" in open(plan, encoding="utf-8").read(), "cp of a saved plan", err)

        data = os.path.join(folder, "a.json")
        code, _, err = run(["--model", "gpt2", "--gpus", "8", "--json", data], folder)
        with open(data, encoding="utf-8") as f:
            check(code == 0 and json.load(f)["plans"][0]["mesh"], "JSON", err)
    print("\n".join(failures) or "all well")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
