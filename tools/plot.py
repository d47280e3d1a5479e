#!/usr/bin/env python3
"""Draws a metrics file (one JSON object a line, as --metrics writes it) as SVG: loss by step and, for mixtures of
experts, the share of tokens by expert.

usage: plot --metrics FILE.jsonl --out FILE.svg [--title TEXT]
"""
import argparse
import json
import os
import sys

from chart import COLOURS, HEIGHT, Chart, write_svg


def number(value):
    """`value` if it is a number that can be drawn; otherwise a ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e30:
        raise ValueError
    return float(value)


def read(path):
    """The points (step, value) of training and of evaluation, and (step, shares of the experts)."""
    train, held_out, load, line = [], [], [], 0
    try:
        with open(path, encoding="utf-8") as f:
            for line, text in enumerate(f, 1):
                row = json.loads(text)
                step = number(row["step"])
                if "eval_loss" in row:
                    held_out.append((step, number(row["eval_loss"])))
                elif row.get("loss") is not None:
                    train.append((step, number(row["loss"])))
                    load.append((step, [number(share) for share in row.get("expert_load") or []]))
    except OSError as error:
        sys.exit(f"plot: {path}: {error.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sys.exit(f"plot: {path}: line {line or 1} is not a line of metrics")
    if not train:
        sys.exit(f"plot: {path}: no steps in it")
    return train, held_out, load


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--title", default="Loss")
    args = parser.parse_args()
    base = os.environ.get("BUILD_WORKING_DIRECTORY", ".")
    train, held_out, load = read(os.path.join(base, args.metrics))
    steps = max(s for s, _ in train)
    values = [v for _, v in train + held_out]
    panels = [Chart(args.title, (0, steps), (min(0, min(values)), max(values)), "step", legend=130)]
    panels[0].line(train, "training", COLOURS[0])
    if held_out:
        panels[0].dots(held_out, "held out", COLOURS[1])
    experts = len(load[-1][1])
    if experts:
        most = max(max(v) for _, v in load if v) * 1.1
        panels.append(Chart("Share of tokens by expert", (0, steps), (0, most), "step", top=HEIGHT, legend=130))
        for e in range(experts):
            points = [(s, v[e]) for s, v in load if len(v) == experts]
            panels[1].line(points, f"expert {e}", COLOURS[e % len(COLOURS)])
    out = os.path.join(base, args.out)
    try:
        write_svg(out, panels)
    except OSError as error:
        sys.exit(f"plot: {out}: {error.strerror}")


if __name__ == "__main__":
    main()
