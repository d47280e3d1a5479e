#!/usr/bin/env python3
"""plan: given meshes, written files, and one line for each contradiction."""
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

# Meshes that a search over all would not try are priced too.
GOOD += [
    (["--model", "llama-8b", "--gpus", "32", "--batch", "32", "--mesh", "cp32"], ["\ncp32 m"]),
    (["--model", "llama-8b", "--gpus", "12", "--batch", "96", "--mesh", "pp2,dp6", "--schedule", "zb_h1"], ["pp2,dp6"]),
    (["--model", "llama-8b", "--gpus", "8", "--batch", "1024", "--mesh", "fsdp8", "--microbatches", "2", "--seq", "64"],
     ["fsdp8 m2"]),
]

# Replicas that may die: in a given mesh, or in all meshes of the search, over the link between them.
GOOD += [
    (["--model", "llama-8b", "--mesh", "replica2,fsdp16", "--batch", "64"],
     ["\nreplica2,fsdp16", "sums over replicas ", "replicaN: N replicas"]),
    (["--model", "llama-8b", "--gpus", "32", "--batch", "64", "--replicas", "4", "--replica_gbit", "8",
      "--replica_latency_us", "500"], ["between replicas 1 GB/s a GPU, 500 us a message\n", "\nreplica4,"]),
]

# Arguments, and a part of the error; exit code 2.
BAD = [
    (["--model", "llama-9"], "--model: got 'llama-9'"),
    (["--model", "llama-9", "--gpu", "/nowhere/x.json"], "--model: got 'llama-9'"),
    (["--gpu", "h101"], "--gpu: got 'h101'"),
    (["--gpu", "a100", "--dtype", "fp8"], "--dtype: got fp8; need a machine with 8-bit products; a100 has none"),
    (["--schedule", "zbv"], "--schedule: got zbv; need one of [gpipe"),
    (["--gpus", "8", "--mesh", "dp8", "--schedule", "zb_v"], "--schedule: got zb_v; need a --mesh with pp"),
    (["--what_if", "memory=1e-30x"], "--what_if: machine 'h100-sxm': memory is"),
    (["--what_if", "speed=2x"], "--what_if: got 'speed=2x'"),
    (SMALL + ["--gpus", "1", "--save_plan", "a.plan"], "--save_plan: got a.plan; need a plan of two GPUs or more"),
    (["--dtype", "fp8", "--save_plan", "a.plan"], "--save_plan: got --dtype fp8; need"),
    (["--dtype", "f32", "--tf32", "--save_plan", "a.plan"], "--save_plan: got --tf32; need"),
    (["--noasync_tp", "--save_plan", "a.plan"], "--save_plan: got --async_tp=false; need"),
    (["--recompute", "full", "--save_plan", "a.plan"], "--save_plan: got --recompute full; need"),
    (["--what_if", "gpus=2x,gpus=2x"], "--what_if: got 'gpus=2x', the second gpus; need each name once"),
    (["--what_if", "gpus=2x,"], "--what_if: got ''; need gpu_flops"),
    (["--measure", "1"], "--measure: got h100-sxm; need --gpu cpu"),
    (["--replicas", "2", "--mesh", "fsdp8"], "--replicas: got 2; need no --mesh, or replicas in it"),
    (["--replica_latency_us", "5"], "--replica_latency_us: got 5; need --replica_gbit"),
    (["--mesh", "rep2"], "--mesh: got rep2; need dimensions replica, dp, fsdp, tp, cp, ep and pp"),
    (SMALL + ["--recompute", "full", "--measure", "1"], "--measure: got --recompute full; need"),
]

# Arguments, and a part of the error; exit code 1.
FAILED = [
    (["--gpus", "6", "--batch", "6", "--mesh", "tp6"], "over 6 GPUs: tp6 m6: heads (64) does not divide over 6; "),
    (["--gpus", "128", "--batch", "128", "--mesh", "pp128"], "80 layers are fewer than 128 stages"),
    (["--gpus", "8", "--batch", "8", "--mesh", "fsdp8", "--microbatches", "3"], "sequences of a rank (1) does not"),
    (["--gpus", "8", "--replicas", "3"], "over 8 GPUs: replica3: GPUs (8) do not divide over 3; "),
    (["--model", "llama-70b", "--gpus", "8"], "llama-70b fits nowhere: of"),
    (["--model", "llama-70b", "--gpus", "8", "--what_if", "memory=1.1x"], "llama-70b fits nowhere: of"),
]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


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

        for args, part in FAILED:
            code, out, err = run(args, folder)
            check(code == 1 and not out and err.count("\n") == 1 and part in err, args, f"{code} {err}")

        # Heads that the GPUs of a node do not divide, and a user's machine with a preset's name.
        own = os.path.join(folder, "own.json")
        with open(own, "w", encoding="utf-8") as f:
            json.dump({"like": "h100-sxm", "name": "h100-sxm", "links": {"node": 3}}, f)
        pictures = {flag: os.path.join(folder, flag + ".svg") for flag in ["curve", "collectives", "timeline"]}
        code, _, err = run(["--model", "llama-8b", "--gpu", own, "--gpus", "6", "--batch", "96"]
                           + [f"--{flag}={path}" for flag, path in pictures.items()], folder)
        check(code == 0 and not err, "pictures", err)
        for flag, path in pictures.items():
            check("<svg" in open(path, encoding="utf-8").read(), flag, "is no picture")
        check("measured" not in open(pictures["collectives"], encoding="utf-8").read(), own, "has measured points")

        # The table comes first; the saved plan is the best plan that does not recompute layers.
        plan = os.path.join(folder, "b.plan")
        code, out, err = run(["--gpus", "64", "--batch", "64", "--mesh", "fsdp64", "--save_plan", plan], folder)
        check(code == 1 and "fsdp64 recompute" in out and err.count("\n") == 1 and not os.path.exists(plan)
              and "--save_plan: all plans that fit compute layers again" in err, "no plan to save", (out, err))
        with open(own, "w", encoding="utf-8") as f:
            json.dump({"like": "cpu", "memory": 3e7}, f)
        code, out, err = run(["--model", "llama_shakespeare", "--gpu", own, "--dtype", "f32", "--gpus", "4", "--batch",
                              "4", "--mesh", "pp4", "--save_plan", plan], folder)
        check(code == 0 and "the best plan computes layers again" in out and "pipeline 1f1b" in read(plan),
              "saved", out)

        # Changes in the machine's file that are not rates.
        for text, part in [({"like": "h100-sxm", "memory": 80}, '"memory" is 80; need bytes, such as 80e9'),
                           ({"bytes": 3e12, "flops": 1e13, "products": 1e14, "products16": 2e14,
                             "links": {"inner_bus": 2e11, "outer_bus": 2e10}}, '"memory" is missing or 0; need')]:
            with open(own, "w", encoding="utf-8") as f:
                json.dump(text, f)
            code, out, err = run(["--model", "llama-8b", "--gpu", own], folder)
            check(code == 1 and not out and err.startswith(f"plan: {own}: {part}"), part, err)

        # A plan of replicas is saved like others.
        plan = os.path.join(folder, "r.plan")
        code, out, err = run(SMALL + ["--mesh", "replica2,dp2", "--save_plan", plan], folder)
        check(code == 0 and not err and "mesh replica2,dp2" in read(plan), "plan of replicas", (out, err))

        # A plan is priced with a ring for cp, so the saved plan has a ring.
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
