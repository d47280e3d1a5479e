#!/usr/bin/env python3
"""diloco_loss.py TRAIN: the held-out loss of DiLoCo on Shakespeare beside data parallelism, at equal tokens.

TRAIN is //models/gpt:train. All runs have the same steps and the same batch, which the replicas share. Data
parallelism is one device with this batch, because dp only sums the same terms in another order. Prints the loss at the
end, the mean over seeds, beside the goals: within 1 % of data parallelism or the spread of its seeds with f32 and int8,
2 % with int4. Writes chart.json for //tools:plot. Runs of --folder that have ended are not made again, so a second call
goes on, and --minutes 0 only reads them. No run begins after --minutes."""
import argparse
import concurrent.futures
import contextlib
import itertools
import json
import pathlib
import statistics
import subprocess
import time

GOALS = {"f32": 1, "int8": 1, "int4": 2}  # per cent
DP = ("dp", 1, 1, "f32")


def name_of(method, seed):
    return "-".join(map(str, (*method, seed)))


def curve(o, method, seed):
    """[(step, held-out loss)] of a run that has ended; otherwise empty."""
    rows = []
    with contextlib.suppress(OSError):
        for line in (o.folder / f"{name_of(method, seed)}.jsonl").read_text().splitlines():
            if "eval_loss" in (row := json.loads(line)):
                rows.append((row["step"], row["eval_loss"]))
    return rows if rows and rows[-1][0] == o.steps else []


def train(o, method, seed):
    kind, replicas, every, wire = method
    name = name_of(method, seed)
    flags = {"config": o.config, "steps": o.steps, "batch_size": o.batch_size, "seq_len": o.seq_len, "seed": seed,
             "threads": 1, "sample": 0, "eval_every": o.steps // 10, "checkpoint_every": o.steps, "keep": 1,
             "checkpoint_dir": o.folder / name, "metrics": o.folder / f"{name}.jsonl"}
    if kind == "replica":
        flags.update(mesh=f"replica{replicas}", diloco=every, outer_wire=wire, outer_lr=o.outer_lr,
                     outer_momentum=o.outer_momentum)
    if o.set:
        flags["set"] = o.set
    begin = time.monotonic()
    with open(o.folder / f"{name}.log", "wb") as log:
        code = subprocess.call([o.train, *(f"--{k}={v}" for k, v in flags.items())], stdout=log, stderr=log)
    if code or not curve(o, method, seed):
        raise RuntimeError(f"FAILED: {name} has ended with code {code}: {o.folder / name}.log")
    print(f"{name}: {curve(o, method, seed)[-1][1]:.4f} in {time.monotonic() - begin:.0f} s", flush=True)


def label(method):
    kind, replicas, every, wire = method
    return "data parallel" if kind == "dp" else f"R {replicas}, H {every}, {wire}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train")
    defaults = {"folder": pathlib.Path("/tmp/diloco_loss"), "config": "gpt_shakespeare", "set": "", "steps": 1000,
                "batch_size": 16, "seq_len": 128, "seeds": 3, "outer_lr": 0.7, "outer_momentum": 0.9, "minutes": 90.0,
                "jobs": 1}
    for flag, value in defaults.items():
        parser.add_argument(f"--{flag}", type=type(value), default=value)
    parser.add_argument("--replicas", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--every", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--wires", nargs="+", default=list(GOALS))
    o = parser.parse_args()
    o.folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * o.minutes
    methods = [("replica", r, h, w) for h, r, w in itertools.product(o.every, o.replicas, o.wires)]
    seeds = range(1, o.seeds + 1)

    def train_in_time(run):
        if not curve(o, *run) and time.monotonic() < end:
            train(o, *run)

    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        list(pool.map(train_in_time, [(DP, s) for s in seeds] + [(m, s) for s in seeds for m in methods]))

    curves = {m: c for m in [DP, *methods] if (c := {s: k for s in seeds if (k := curve(o, m, s))})}
    last = {m: {s: k[-1][1] for s, k in c.items()} for m, c in curves.items()}
    base = last[DP]
    spread = 100 * (max(base.values()) - min(base.values())) / statistics.mean(base.values())
    print(f"{'method':16} {'seeds':>5} {'loss':>7} {'spread':>7} {'beside dp':>9} {'goal':>7}")
    beside = {}
    for m, loss in last.items():
        mean = statistics.mean(loss.values())
        text = f"{label(m):16} {len(loss):5} {mean:7.4f} {max(loss.values()) - min(loss.values()):7.4f}"
        if m != DP:  # the same seeds have the same first weights and rows
            beside[m] = 100 * (mean / statistics.mean(base[s] for s in loss) - 1)
            goal = max(GOALS[m[3]], spread if m[3] != "int4" else 0)
            text += f" {beside[m]:+8.2f}% {goal:6.2f}%{'' if beside[m] <= goal else ' missed'}"
        print(text)

    def mean_curve(c):
        return [[step * o.batch_size * o.seq_len / 1e6, statistics.mean(losses)]
                for step, losses in ((rows[0][0], [loss for _, loss in rows]) for rows in zip(*c.values()))]

    lines = [{"label": label(m), "points": mean_curve(c)[1:]} for m, c in curves.items() if m == DP or m[3] == "f32"]
    ends = [y for line in lines for _, y in line["points"]]
    panels = [{"title": f"Held-out loss, {o.steps} steps", "x": {"label": "million tokens", "from": 0,
                                               "to": o.steps * o.batch_size * o.seq_len / 1e6},
               "y": {"label": "loss in nats", "from": min(ends) - 0.02, "to": max(ends) + 0.02}, "lines": lines}]
    if beside:
        low, high = min(0, *beside.values()), max(2, *beside.values())
        dots = [{"label": label(DP), "points": [[i, 0] for i in range(len(o.wires))]}]  # the colours of the first panel
        for r, h in dict.fromkeys(m[1:3] for m in beside):
            dots.append({"label": f"R {r}, H {h}",
                         "points": [[o.wires.index(m[3]), y] for m, y in beside.items() if m[1:3] == (r, h)]})
        panels.append({
            "title": f"After {o.steps} steps, over data parallelism", "x": {"label": "wire", "names": o.wires},
            "y": {"label": "per cent", "from": low - 0.5, "to": high + 0.5}, "dots": dots,
            "limits": [{"label": "" if i else "goal", "points": [[i - 0.4, GOALS[w]], [i + 0.4, GOALS[w]]]}
                       for i, w in enumerate(o.wires)]})
    (o.folder / "chart.json").write_text(json.dumps({"panels": panels}))


if __name__ == "__main__":
    main()
