#!/usr/bin/env python3
"""Small experiments about a machine's bounds, each with a table and a plot.

  intensity     one multiply repeated K times, fused and op by op: the K at which the time doubles
  shares        time in matrix products and in the rest of each model's training step, without and with fusion
  gemm          rate of matrix products by size and dtype, and the effect of zeros, uniform and normal data
  contractions  log-space product, L1 distance and max-plus beside a matrix product of the same size

Plots are written to tools/bench/plots, or to the folder of --out.
"""
import argparse
import json
import os
import pathlib
import re
import sys
import tempfile

import harness

MODELS = [(m, d) for m in ("gpt_tiny", "gpt_base", "moe_small") for d in ("f32", "bf16")]


def measure(program, *flags, environment=None):
    """Runs a benchmark, prints its table, and returns its rows by name."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "result.json"
        print(harness.run([program, *flags, "--json", file], program.name, env={**os.environ, **(environment or {})}))
        return {row["name"]: row for row in json.loads(file.read_text())["rows"]}


def numbered(rows, prefix, column="value"):
    """(number, value) of the rows called `prefix NUMBER`."""
    found = ((re.fullmatch(re.escape(prefix) + r" (\d+)", name), row) for name, row in rows.items())
    return [(int(match[1]), row[column]) for match, row in found if match and row.get(column) is not None]


def span(*series):
    values = [v for points in series for _, v in points]
    return min(values), max(values)


def axis(label, low, high, base=0):
    return {"label": label, "from": low, "to": high, "base": base}


def series(label, points):
    return {"label": label, "points": points}


def draw(bazel, file, panels):
    """Draws the panels, which tools/draw/chart_files.h describes, as SVG."""
    plot, = harness.build(bazel, "//tools:plot")
    with tempfile.TemporaryDirectory() as folder:
        chart = pathlib.Path(folder) / "chart.json"
        chart.write_text(json.dumps({"panels": panels}))
        harness.run([plot, "--chart", chart, "--out", file.resolve()], "plot")


def intensity(bazel, out):
    rows = measure(*harness.build(bazel, "//tools/bench:intensity"))
    fused, unfused, bound = numbered(rows, "fused"), numbered(rows, "unfused"), numbered(rows, "fused", "bound")
    low, high = span(fused, unfused, bound)
    doubles = rows["K that doubles the time"]
    draw(bazel, out / "intensity.svg", [{
        "title": f"One multiply K times over 32M f32: twice the time at K = {doubles['value']:.0f}, "
                 f"by the roofline {doubles['bound']:.0f}",
        "x": axis("K", 1, fused[-1][0], 2), "y": axis("ms", low * 0.8, high * 1.2, 10),
        "lines": [series("op by op", unfused), series("fused", fused)], "limits": [series("roofline", bound)]}])


def shares(bazel, out):
    program, = harness.build(bazel, "//tools/bench:train_step")
    found = []
    for model, dtype in MODELS:
        flags = ["--config", model, "--dtype", dtype, "--profile", "--bound=false",
                 "--steps", "40" if model == "gpt_tiny" else "6"]
        for name, disable in (("unfused", "fuse"), ("fused", "")):
            rows = measure(program, *flags, environment={"WEFT_DISABLE": disable})
            found.append((model, dtype, name, rows["in_products"]["value"], rows["in_the_rest"]["value"]))
    print(f"{'':16} {'products ms':>12} {'rest ms':>9} {'rest share':>11}")
    for model, dtype, name, products, rest in found:
        print(f"{model + ' ' + dtype:16} {products:12.1f} {rest:9.1f} {rest / (products + rest):11.0%}  {name}")
    bars = []
    for i in range(len(MODELS)):
        whole = sum(found[2 * i][3:])
        for side in (0, 1):
            parts = [[k, 100 * v / whole] for k, v in enumerate(found[2 * i + side][3:])]
            bars.append({"at": i + (side - 0.5) * 0.38, "parts": parts})
    draw(bazel, out / "shares.svg", [{
        "title": "Time of a training step of GPT (tiny, base) and MoE: products and the rest (unfused = 100 %)",
        "x": {"names": [f"{m.removeprefix('gpt_').removesuffix('_small')} {d}" for m, d in MODELS],
              "label": "left: op by op, right: fused"},
        "y": axis("%", 0, 100),
        "bars": {"labels": ["products, attention", "the rest"], "width": 0.32, "bars": bars}}])


def gemm(bazel, out):
    rows = measure(*harness.build(bazel, "//tools/bench:gemm"))
    square = re.compile(r"(\w+) square (\d+)x.*")
    rates = {}
    for name, row in rows.items():
        if match := square.fullmatch(name):
            rates.setdefault(match[1], []).append((int(match[2]), row["value"]))
    low, high = span(*rates.values())
    rates = dict(sorted(rates.items()))
    kinds = ["zeros", "uniform", "normal"]
    bars = []
    for k, dtype in enumerate(rates):
        values = [next(r["value"] for n, r in rows.items() if n.startswith(f"{dtype} data {kind}")) for kind in kinds]
        bars += [{"at": i + (k - 0.5) * 0.34, "parts": [[k, 100 * v / values[-1]]]} for i, v in enumerate(values)]
    draw(bazel, out / "gemm.svg", [
        {"title": "Rate of square products by size", "x": axis("rows and columns", 8, 2048, 2),
         "y": axis("GFLOP/s", low * 0.8, high * 1.3, 10), "lines": [series(*rate) for rate in rates.items()]},
        {"title": "Rate of a product of 1024 x 1024 by the content of its operands (normal = 100 %)",
         "x": {"names": kinds}, "y": axis("%", 0, 125), "bars": {"labels": list(rates), "width": 0.3, "bars": bars}}])


def contractions(bazel, out):
    rows = measure(*harness.build(bazel, "//tools/bench:contractions"))
    panels = []
    for suffix, title in (("", "forward"), (" forward and backward", "forward and backward")):
        kinds = {}
        for name, row in rows.items():
            if (match := re.fullmatch(r"(.+?) (\d+)" + suffix, name)) and match[1] != "product":
                kinds.setdefault(match[1], []).append((int(match[2]), row["value"] / row["bound"]))
        low, high = span(*kinds.values())
        sizes = [n for n, _ in next(iter(kinds.values()))]
        panels.append({
            "title": f"Time in units of a matrix product of the same size, {title}",
            "x": axis("rows and columns", sizes[0], sizes[-1], 2),
            "y": axis("times", min(low * 0.8, 1), max(high * 1.2, 20), 2),
            "lines": [series(*kind) for kind in kinds.items()],
            "limits": [series("15 x", [(sizes[0], 15), (sizes[-1], 15)])]})
    draw(bazel, out / "contractions.svg", panels)


def main():
    groups = {f.__name__: f for f in (intensity, shares, gemm, contractions)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", nargs="*", metavar="GROUP", help=f"{', '.join(groups)}; all by default")
    parser.add_argument("--bazel", default="./bazelw", help="how to call bazel (default ./bazelw)")
    parser.add_argument("--out", type=pathlib.Path, default=harness.HERE / "plots", help="folder of the plots")
    args = parser.parse_args()
    for name in args.group:
        if name not in groups:
            parser.error(f"no group {name}; there are {', '.join(groups)}")
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        for name in args.group or groups:
            groups[name](args.bazel, args.out)
            print(f"wrote {args.out / name}.svg\n")
    except harness.Failure as failure:
        sys.exit(f"micro: {failure}")


if __name__ == "__main__":
    main()
