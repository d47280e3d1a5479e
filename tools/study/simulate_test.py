#!/usr/bin/env python3
"""simulate: each study prints its figures, writes JSON and a chart, and answers contradictions with one line."""
import json
import os
import subprocess
import sys
import tempfile

SIMULATE = os.path.join("tools", "study", "simulate")

# Arguments, and parts of the text.
GOOD = [
    ([], ["a failure every 14.4 min", "drop one of 625 replicas"]),
    (["--nodes", "8", "--interval", "100"],
     ["Dropping the only replica stops the training", "a checkpoint every 1.67 min", "drop the one replica"]),
    (["--nodes", "1"], ["1 node, 10 failures"]),
    (["--nodes", "1000000000"], ["every 8.64 ms        0.00%               -            -\n"]),
    (["--interval", "1e9"], ["a checkpoint every 1.16e+04 d        0.00%               -            -\n"]),
    (["--train_flops", "1e25", "--gpus", "1000000000"],
     ["restart all         0.00%        never          -          -\n"]),
    (["--train_flops", "1e24", "--gpus", "4"], ["4 GPUs (1 node)"]),
    (["--train_flops", "1e24", "--gpus", "9"], ["9 GPUs (2 nodes)"]),
    (["--train_flops", "1e24"], ["14.5 d", "1.39e+06", "72.3"]),
    (["--diloco"], ["3.5 GB", "35 MB", "streaming alone hides exchanges"]),
    (["--diloco", "--steps", "1e5"], ["100000 steps"]),
    (["--diloco", "--jitter", "0.1"], ["There is no closed form"]),
    (["--latency_wall"], ["at least 12 ms", "3.33 h"]),
    (["--tp_wall", "--gpu", "gb200"], ["nodes of 72"]),
    (["--faults", "100", "--drill_minutes", "1"],
     ["100 schedules, ", "None failed.", "4 replicas for 60 s, steps of 5 ms, a failure in each 15 s",
      "killed, its launcher reports it                8      3", "stopped, and continues"]),
    (["--faults", "1", "--seed", "7", "--drill_minutes", "0.1", "--drill_replicas", "2"],
     ["seed 7: ", " starts from step 0\n", "1 schedule, "]),
    (["--tp_wall"],
     ["134 MB", "841 us", "16   network", "Up to tp 8 a GPU's share is 70.0% or more, and under it beyond"]),
]

# Arguments, and a part of the error.
BAD = [
    (["--failures", "0"], "--failures"),
    (["--faults", "0"], "--faults: got '0'; need a whole number"),
    (["--faults", "5", "--diloco"], "--diloco and --faults exclude each other"),
    (["--faults", "5", "--stall", "1"], "--stall is a flag of the study of failures and --train_flops; this is --faults"),
    (["--drill_step", "0.1"], "--drill_step is a flag of --faults; this is the study of failures"),
    (["--faults", "1", "--drill_step", "0.002"], "--drill_step: got '0.002'; need a number from 0.003"),
    (["--faults", "1", "--drill_minutes", "1440"], "--drill_minutes 1440 has 17280000 steps; need at most 1000000"),
    (["--failures", "nan"], "--failures"),
    (["--checkpoint", "-1"], "--checkpoint"),
    (["--bandwidth_gbit", "0", "--diloco"], "--bandwidth_gbit"),
    (["--train_flops", "0"], "--train_flops"),
    (["--diloco", "--latency_wall"], "--diloco and --latency_wall exclude each other; give one"),
    (["--train_flops", "1e24", "--tp_wall"], "--train_flops and --tp_wall exclude each other"),
    (["--parameters", "1e9"], "--parameters is a flag of --diloco; this is the study of failures"),
    (["--diloco", "--nodes", "5"], "--nodes is a flag of the study of failures; this is --diloco"),
    (["--latency_wall", "--seed", "5"], "this is --latency_wall"),
    (["--diloco", "--overlap_steps", "11"], "--overlap_steps is 11; need 10 or less"),
    (["--diloco", "--overlap_steps", "0", "--fragments", "1000"],
     "--fragments is 1000; need at most 100, the --inner_st"),
    (["--diloco", "--replicas", "2.5"], "--replicas: got '2.5'; need a whole number from 2 to 1000000"),
    (["--nodes", "0.5"], "--nodes"),
    (["--diloco", "--overlap_steps", "0.5"], "--overlap_steps: got '0.5'; need a whole number"),
    (["--checkpoint", "-1"], "need a number from 1e-12 to 1e+30"),
    (["--interval", "1e-300"], "--interval: got 1e-300; need 0, or 0.001 or more"),
    (["--diloco", "--bandwidth_gbit", "1e-300"], "--bandwidth_gbit: got '1e-300'; need a number from 1e-12 to 1e+30"),
    (["--latency_wall", "--tokens_per_parameter", "1e-300"], "need a number from 1e-12 to 1e+30"),
    (["--tp_wall", "--gpu", "h999"], "--gpu: got h999; need a JSON file or one of [cpu, h100-sxm"),
    (["--tp_wall", "--gpu", "cpu"], "--gpu: got cpu; need GPUs"),
    (["--tp_wall", "--gpu_tflops", "100"], "--gpu_tflops is a flag of --train_flops and --latency_wall"),
    (["--replicas", "1", "--diloco"], "--replicas"),
    (["1e24"], "1e24"),
    (["--weft_isa", "avx2"], "unknown flag --weft_isa"),
]


def main():
    failures = []

    def run(args):
        done = subprocess.run([SIMULATE, *args], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def check(ok, name, seen):
        if not ok:
            failures.append(f"{name}: {seen}")

    with tempfile.TemporaryDirectory() as folder:
        data, chart = os.path.join(folder, "a.json"), os.path.join(folder, "a.svg")
        for args, parts in GOOD:
            code, out, err = run([*args, "--json", data, "--svg", chart])
            check(code == 0 and not err, args, err)
            for part in parts:
                check(part in out, f"{args} {part}", out)
            with open(data, encoding="utf-8") as f:
                figures = json.load(f)
            if "--train_flops" in args and "never" in out:
                check(figures["restart"]["days"] is None, args, figures)
            check(len(figures) > 1 and "<svg" in open(chart, encoding="utf-8").read(), args, figures)
            check(run(args)[1] == out, f"{args}: a second run", "differs")
        code, _, err = run(["--json", os.path.join(folder, "no", "a.json")])
        check(code == 1 and err.count("\n") == 1, "no folder", err)
    for args, part in BAD:
        code, out, err = run(args)
        check(code == 2 and not out and err.count("\n") == 1 and part in err, args, err)
    check(run(["--seed", "2"])[1] != run([])[1], "another seed", "has the same figures")
    print("\n".join(failures) or "all well")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
