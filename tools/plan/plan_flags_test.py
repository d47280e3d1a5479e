#!/usr/bin/env python3
"""plan: a flag of the plan of a training step is an error with --inference, and the reverse."""
import os
import subprocess
import sys

PLAN = os.path.join("tools", "plan", "plan")
STEP = ["batch", "batch_tokens", "seq", "microbatches", "host_us", "kw_per_gpu", "measure", "top", "replicas",
        "replica_gbit", "replica_latency_us"]
STEP_TEXT = [("schedule", "1f1b"), ("recompute", "full"), ("mesh", "tp2"), ("curve", "a"),
             ("collectives", "a"), ("timeline", "a"), ("save_plan", "a")]
INFERENCE = [("prompt", "5"), ("generated", "5"), ("kv_dtype", "fp8")]


def run(args):
    done = subprocess.run([PLAN, *args], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def main():
    failures = []

    def refused(args, want):
        got = run(args)
        if got != (2, "", f"plan: {want}\n"):
            failures.append(f"{args}: {got}; need 2 and {want}")

    for name, value in [(name, "1") for name in STEP] + STEP_TEXT:
        refused(["--inference", f"--{name}", value],
                f"--{name} is a flag of the plan of a training step; this is --inference")
    refused(["--inference", "--noasync_tp"],
            "--async_tp is a flag of the plan of a training step; this is --inference")
    for name, value in INFERENCE:
        refused([f"--{name}", value], f"--{name} is a flag of --inference; this is the plan of a training step")
    for name, value in (("seq", "1025"), ("what_if", "seq=1025")):
        refused(["--model", "gpt2", "--gpus", "8", f"--{name}", value],
                f"--{name}: got 1025 tokens of a sequence; need at most 1024, the positions of gpt2")
    refused(["--inference", "--model", "gpt2", "--prompt", "5000"],
            "--prompt: got 5001 tokens of a sequence; need at most 1024, the positions of gpt2")
    refused(["--inference", "--model", "gpt2", "--what_if", "context=100000"],
            "--what_if: got 100000 tokens of a sequence; need at most 1024, the positions of gpt2")
    for args in (["--inference", "--model", "gpt2"], ["--gpus", "2", "--mesh", "tp2", "--model", "gpt2", "--top", "1"],
                 ["--inference", "--model", "gpt2", "--prompt", "5", "--gpu", "h200", "--usd_per_gpu_hour", "2"]):
        code, out, err = run(args)
        if code or not out or err:
            failures.append(f"{args}: {code} {err}")
    print("\n".join(failures) or "all well")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
