#!/usr/bin/env python3
"""Runs Weft and PyTorch in turn on the same work and prints Weft / PyTorch (below 1: Weft is faster or smaller).

Five groups: train (training steps), ops (memory-bound work and products), flex (FlexAttention), eager (the cost of one
call, with libtorch), daily (compiling and starting a user's C++ file, with libtorch). The two sides run in short turns,
under equal conditions. Every figure is a median. PyTorch is installed in its own virtual environment, which is created
from requirements.txt on first use (about 5 GB); nothing else in the project needs it.
"""
import argparse
import os
import pathlib
import subprocess
import tempfile
import time
import venv

import daily_loop
import harness

GROUPS = ("train", "ops", "flex", "eager", "daily")
# (configuration, dtype): goal as a share of PyTorch's best
TRAIN_GOALS = {
    ("gpt_tiny", "f32"): 0.70, ("gpt_tiny", "bf16"): 0.40,
    ("gpt_base", "f32"): 0.90, ("gpt_base", "bf16"): 0.45,
    ("moe_small", "f32"): 0.70, ("moe_small", "bf16"): 0.25,
    ("resnet", "f32"): 0.80, ("lstm", "f32"): 0.70,
}
OPS = ["mul_x1", "mul_x4", "mul_x16", "gelu_mul", "softmax", "layer_norm", "rms_norm_residual", "logsumexp",
       "sum_over_rows", "transpose_add", "pool_by_amax", "max_pool2d", "avg_pool2d", "index_select_last",
       "index_select_first", "flip", "roll", "transpose", "columns_by_2", "heads_to_front", "sum_over_columns",
       "cumsum", "randn"] + [f"matmul_{t}_{n}" for t in ("f32", "bf16") for n in (256, 512, 1024, 2048)]
FLEX = [f"{t} {c}{way}" for t in ("f32", "bf16") for way, cs in (
    ("", ("none", "alibi", "softcap", "causal", "window_256", "documents_300", "prefix_512")),
    (" backward", ("none", "causal")))
    for c in cs] + [f"{t} decode {b} {s} {g}{layout}" for t in ("f32", "bf16") for b in ("b1", "b8")
                    for s in ("s4096", "s16384") for g in ("gqa1", "gqa4", "mqa") for layout in ("", " paged")]
# Weft as a share of Weft without mods, and (none, causal backward) of PyTorch's scaled_dot_product_attention
FLEX_GOALS = {"alibi": 1.15, "softcap": 1.4, "causal": 0.6, "window_256": 0.22, "documents_300": 0.22,
              "prefix_512": 0.65}
SDPA_GOALS = {"f32 none": 0.9, "bf16 none": 0.7, "f32 causal backward": 0.8}
EAGER_GOALS = {"add_16": 0.20 / 0.38, "add_16_recording": 0.8}


def say(text):
    print(text, flush=True)


def python_with_torch(folder):
    """The Python of a virtual environment with the packages of requirements.txt. Creates it if it does not exist."""
    folder = pathlib.Path(folder).expanduser()
    python = folder / "bin" / "python"
    if not python.exists():
        say(f"making {folder} (some minutes, about 5 GB)")
        venv.create(folder, with_pip=True)
    if subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
        say("installing requirements.txt")
        harness.run([python, "-m", "pip", "install", "-q", "-r", harness.HERE / "requirements.txt"], "pip install")
    return python


def torch_environment():
    """Both sides get all cores. MKL's and OpenMP's threads sleep soon, so that the idle side uses no processor time."""
    return dict(os.environ, OMP_NUM_THREADS=str(len(os.sched_getaffinity(0))), KMP_BLOCKTIME="1")


def interleaved_steps(sides, seconds):
    """Medians of ms per step. The sides take turns of about two seconds until each has run for about `seconds`."""
    times = {name: [] for name in sides}
    turn = {}
    for name, side in sides.items():
        turn[name] = max(1, round(2000 / harness.median(side.ask(2)["ms"])))
    last = {}
    for _ in range(max(3, round(seconds / 2))):
        for name, side in sides.items():
            last[name] = side.ask(turn[name])
            times[name] += last[name]["ms"]
    return {name: harness.median(t) for name, t in times.items()}, last


def train(args, python, programs):
    say("\nTraining step (forward, backward, AdamW)")
    rows = []
    for (config, dtype), goal in TRAIN_GOALS.items():
        if args.only and args.only not in f"{config}_{dtype}":
            continue
        weft = [programs["train_step"], "--serve", f"--config={config}", f"--dtype={dtype}"]
        torch = [python, harness.HERE / "pytorch" / "train_step.py", config]
        commands = {"weft": weft, "weft eager": [*weft, "--compile=false"], "eager": [*torch, "eager", dtype]}
        if not args.no_compile:
            commands["compile"] = [*torch, "compile", dtype]
        busy = harness.warn_if_busy()
        sides, first = {}, {}
        try:
            for name, command in commands.items():
                sides[name] = harness.Side(command, torch_environment())
                first[name] = sides[name].read()
            if len({f["parameters"] for f in first.values()}) != 1:
                raise harness.Failure(f"{config}: the models differ: {first}")
            ms, last = interleaved_steps(sides, args.seconds)
        finally:
            for side in sides.values():
                side.close()
        best = min(ms["eager"], ms.get("compile", ms["eager"]))
        best_rss = min(last[n]["peak_rss_mb"] for n in ("eager", "compile") if n in last)
        row = {"name": f"{config} {dtype}", "unit": "ms", "weft": ms["weft"], "weft_eager": ms["weft eager"],
               "torch_eager": ms["eager"], "torch_compile": ms.get("compile"), "ratio": ms["weft"] / best, "goal": goal,
               "weft_start_s": first["weft"]["first_step_s"] - ms["weft"] / 1e3,
               "torch_eager_start_s": first["eager"]["first_step_s"],
               "torch_compile_start_s": first.get("compile", {}).get("first_step_s"),
               "weft_rss_mb": last["weft"]["peak_rss_mb"], "torch_rss_mb": best_rss,
               "weft_planned_mb": last["weft"]["planned_peak_bytes"] / 1e6,
               "weft_measured_mb": last["weft"]["measured_peak_bytes"] / 1e6,
               "losses": {n: l["loss"] for n, l in last.items()}, "busy_before": busy}
        rows.append(row)
        say(f"  {row['name']}: {row['weft']:.1f} ms, ratio {row['ratio']:.2f}")
    say("")
    harness.print_table(
        ["ms", "Weft", "Weft eager", "torch eager", "compile", "Weft/best", "goal", "", "start s", "torch", "compile",
         "RSS MB", "torch", "ratio"],
        [[r["name"], r["weft"], r["weft_eager"], r["torch_eager"], r["torch_compile"], r["ratio"], r["goal"],
          harness.verdict(r["ratio"], r["goal"]), r["weft_start_s"], r["torch_eager_start_s"],
          r["torch_compile_start_s"], r["weft_rss_mb"], r["torch_rss_mb"],
          r["weft_rss_mb"] / r["torch_rss_mb"]] for r in rows])
    return rows


def in_turn(args, commands, names, unfit=lambda side, name: False):
    """Yields (name, {side: answers}) of the sides that are not unfit for it, asked in turn. Compiled sides are asked
    once, because compiling is slow."""
    sides = {n: harness.Side(c, torch_environment()) for n, c in commands.items()}
    try:
        for name in names:
            if args.only and args.only not in name:
                continue
            answers = {n: [] for n in sides}
            for _ in range(args.rounds):
                for n, side in sides.items():
                    if not unfit(n, name) and not (answers[n] and n in ("torch_compile", "torch_flex")):
                        answers[n].append(side.ask(name))
            yield name, {n: a for n, a in answers.items() if a}
    finally:
        for side in sides.values():
            side.close()


def ops(args, python, programs):
    say("\nMemory-bound work and products")
    commands = {"weft": [programs["ops"], "--serve"], "weft_compiled": [programs["ops"], "--serve", "--compile"],
                "torch_eager": [python, harness.HERE / "pytorch" / "ops.py", "eager"]}
    if not args.no_compile:
        commands["torch_compile"] = [python, harness.HERE / "pytorch" / "ops.py", "compile"]
    rows = []
    for name, answers in in_turn(args, commands, OPS,
                                 lambda side, name: side == "torch_compile" and name.startswith("matmul")):
        ms = {n: harness.median([x["ms"] for x in a]) for n, a in answers.items()}
        rows.append({"name": name, "unit": "ms", **ms, "eager_ratio": ms["weft"] / ms["torch_eager"],
                     "ratio": min(ms["weft"], ms["weft_compiled"]) /
                     min(ms["torch_eager"], ms.get("torch_compile", 1e9))})
    harness.print_table(["ms", "Weft eager", "Weft compiled", "torch eager", "compile", "eager/eager", "best/best"],
                        [[r["name"], r["weft"], r["weft_compiled"], r["torch_eager"], r.get("torch_compile"),
                          r["eager_ratio"], r["ratio"]] for r in rows])
    return rows


def libtorch_compile(python, source, out):
    """Compiles and links a file against libtorch as an optimised program; returns seconds."""
    found = harness.run([python, "-c", "import torch; print(torch.__path__[0])"], "finding torch")
    folder = pathlib.Path(found.strip())
    lib, include = folder / "lib", folder / "include"
    begin = time.perf_counter()
    harness.run(["g++", "-std=c++20", "-O2", "-DNDEBUG", f"-I{include}", f"-I{include}/torch/csrc/api/include", source,
                 "-o", out, f"-L{lib}", "-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{lib}",
                 f"-Wl,-rpath-link,{lib}"], f"compiling {source} against libtorch")
    return time.perf_counter() - begin, lib


def eager(args, python, programs):
    say("\nOne eager call, against libtorch")
    rows = []
    with tempfile.TemporaryDirectory(prefix="weft_versus_") as folder:
        twin = pathlib.Path(folder) / "eager_overhead"
        libtorch_compile(python, harness.HERE / "pytorch" / "eager_overhead.cc", twin)
        weft, torch = {}, {}
        for _ in range(args.rounds):
            out = pathlib.Path(folder) / "weft.json"
            harness.run([programs["eager_overhead"], f"--json={out}"], "eager_overhead")
            for r in harness.json.loads(out.read_text())["rows"]:
                weft.setdefault(r["name"], []).append(r["value"])
            printed = harness.run([twin], "libtorch's eager_overhead", env=torch_environment())
            for name, ns in harness.json.loads(printed).items():
                torch.setdefault(name, []).append(ns)
    for name in weft:
        a, b = harness.median(weft[name]), harness.median(torch[name])
        rows.append({"name": name, "unit": "ns", "weft": a, "libtorch": b, "ratio": a / b,
                     "goal": EAGER_GOALS.get(name)})
    harness.print_table(["ns", "Weft", "libtorch", "Weft/libtorch", "goal", ""],
                        [[r["name"], r["weft"], r["libtorch"], r["ratio"], r["goal"],
                          harness.verdict(r["ratio"], r["goal"])] for r in rows])
    return rows


def daily(args, python, programs):
    say("\nThe daily loop: a user's one C++ file")
    with tempfile.TemporaryDirectory(prefix="weft_versus_") as folder:
        work = pathlib.Path(folder)
        package = (pathlib.Path(args.package).resolve() if args.package else
                   daily_loop.make_package(args.bazel, work / "package"))
        weft = daily_loop.measure(package, work)
        seconds, lib = libtorch_compile(python, harness.HERE / "pytorch" / "daily_loop.cc", work / "torch_loop")
        first, add = harness.run_daily_loop(work / "torch_loop", 3)
    torch = {"compile_and_link": seconds, "start_to_first_result": first, "eager_add_16": add,
             "ships": harness.folder_size(lib) / 1e6}
    rows = [{"name": n, "unit": unit, "weft": weft[n], "libtorch": torch[n], "ratio": weft[n] / torch[n], "goal": goal}
            for n, (unit, goal) in daily_loop.ROWS.items()]
    harness.print_table(["", "Weft", "libtorch", "unit", "Weft/libtorch", "goal", ""],
                        [[r["name"], r["weft"], r["libtorch"], r["unit"], r["ratio"], r["goal"],
                          harness.verdict(r["weft"], r["goal"])] for r in rows])
    return rows


def flex(args, python, programs):
    say("\nFlexAttention, B1 H8 S2048 D64 (backward: with forward; decode: one query of 8 heads, D128; x bound: time "
        "in units of reading the same bytes)")
    script = harness.HERE / "pytorch" / "flex.py"
    commands = {"weft": [programs["flex"], "--serve"], "torch_sdpa": [python, script, "sdpa"]}
    if not args.no_compile:
        commands["torch_flex"] = [python, script, "flex"]
    rows = []
    for name, answers in in_turn(args, commands, FLEX):
        bounds = [x["bound_ms"] for a in answers.values() for x in a if x.get("bound_ms")]
        times = {n: [x["ms"] for x in a if x["ms"] is not None] for n, a in answers.items()}
        row = {"name": name, "unit": "ms", **{n: harness.median(t) for n, t in times.items() if t}}
        base = next((r["weft"] for r in rows if r["name"] == name.split()[0] + " none"), row["weft"])
        row["of_none"] = None if " decode " in name else row["weft"] / base
        row["of_bound"] = row["weft"] / harness.median(bounds) if bounds else None
        best = min(row.get("torch_sdpa", 1e9), row.get("torch_flex", 1e9))
        row["ratio"] = row["weft"] / best if best < 1e9 else None
        row["goal"] = 1.25 if " decode " in name else SDPA_GOALS.get(name) or FLEX_GOALS.get(" ".join(name.split()[1:]))
        rows.append(row)
    harness.print_table(["ms", "Weft", "torch sdpa", "torch flex", "Weft/best", "of no mod", "x bound", "goal"],
                        [[r["name"], r["weft"], r.get("torch_sdpa"), r.get("torch_flex"), r["ratio"], r["of_none"],
                          r["of_bound"], r["goal"]] for r in rows])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"{', '.join(GROUPS)}; all by default")
    parser.add_argument("--venv", default="~/.cache/weft/bench-venv", metavar="DIR",
                        help="PyTorch's virtual environment")
    parser.add_argument("--bazel", default=str(harness.ROOT / "bazelw"), help="how to call bazel (default ./bazelw)")
    parser.add_argument("--package", metavar="DIR", help="a package of //:weft made earlier, for the daily loop")
    parser.add_argument("--only", default="", help="only training steps and ops whose names contain this")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side (default 3)")
    parser.add_argument("--seconds", type=float, default=16, help="time for each side of a training step (default 16)")
    parser.add_argument("--no-compile", action="store_true",
                        help="without torch.compile, which takes minutes to compile")
    parser.add_argument("--json", metavar="FILE", help="also write the results to this file")
    args = parser.parse_args()
    groups = args.groups or GROUPS
    for g in groups:
        if g not in GROUPS:
            parser.error(f"no group {g}; there are {', '.join(GROUPS)}")
    python = python_with_torch(args.venv)
    names = [n for n, g in (("train_step", "train"), ("ops", "ops"), ("flex", "flex"), ("eager_overhead", "eager"))
             if g in groups]
    programs = dict(zip(names, harness.build(args.bazel, *[f"//tools/bench:{n}" for n in names]))) if names else {}
    result = {"machine": harness.machine(),
              "torch": harness.run([python, "-c", "import torch; print(torch.__version__)"], "importing torch").strip()}
    say(f"{result['machine']}, torch {result['torch']}")
    for g in groups:
        result.setdefault("busy_before", {})[g] = harness.warn_if_busy()
        run = {"train": train, "ops": ops, "flex": flex, "eager": eager, "daily": daily}[g]
        result[g] = run(args, python, programs)
        harness.write_json(args.json, result)


if __name__ == "__main__":
    harness.run_main("versus_pytorch", main)
