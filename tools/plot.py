#!/usr/bin/env python3
"""Draws a metrics file (one JSON object a line, as --metrics writes it) as SVG: loss by step and, for mixtures of
experts, the share of tokens by expert.

usage: plot --metrics FILE.jsonl --out FILE.svg [--title TEXT]
"""
import argparse
import json
import math
import os
import sys

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 760, 300, 60, 40, 44, 20
COLOURS = ["#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#bab0ac"]


def nice_ticks(lo, hi, count=6):
    """Multiples of 1, 2 or 5 times a power of ten, about `count` of them."""
    raw = max(hi - lo, 1e-12) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    return [i * step for i in range(math.ceil(lo / step - 1e-9), math.floor(hi / step + 1e-9) + 1)]


class Panel:
    def __init__(self, top, title, steps, lo, hi):
        self.top, self.steps, self.lo, self.hi = top, steps, lo, hi
        self.parts = [f'<text x="{LEFT}" y="{top + 24}" font-weight="bold">{title}</text>']
        y0, y1 = top + HEIGHT - BOTTOM, top + TOP
        for t in nice_ticks(lo, hi):
            self.parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(t):.1f}" y2="{self.y(t):.1f}" stroke="#ddd"/>'
                              f'<text x="{LEFT - 8}" y="{self.y(t) + 4:.1f}" text-anchor="end">{t:g}</text>')
        for t in nice_ticks(0, steps):
            self.parts.append(f'<text x="{self.x(t):.1f}" y="{y0 + 18}" text-anchor="middle">{t:g}</text>')
        self.parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y0}" y2="{y0}" stroke="#444"/>'
                          f'<line x1="{LEFT}" x2="{LEFT}" y1="{y0}" y2="{y1}" stroke="#444"/>'
                          f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{y0 + 36}" text-anchor="middle">step</text>')

    def x(self, step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / max(self.steps, 1)

    def y(self, v):
        return self.top + HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (v - self.lo) / max(self.hi - self.lo, 1e-12)

    def line(self, points, colour, label, row):
        path = " ".join(f"{self.x(s):.1f},{self.y(v):.1f}" for s, v in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        x = WIDTH - RIGHT - 130
        y = self.top + TOP + 6 + 16 * row
        self.parts.append(f'<line x1="{x}" x2="{x + 18}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"/>'
                          f'<text x="{x + 24}" y="{y + 4}">{label}</text>')

    def dots(self, points, colour, label, row):
        for s, v in points:
            self.parts.append(f'<circle cx="{self.x(s):.1f}" cy="{self.y(v):.1f}" r="4" fill="{colour}"/>')
        x = WIDTH - RIGHT - 130
        y = self.top + TOP + 6 + 16 * row
        self.parts.append(f'<circle cx="{x + 9}" cy="{y}" r="4" fill="{colour}"/><text x="{x + 24}" y="{y + 4}">{label}</text>')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--title", default="Loss")
    args = parser.parse_args()
    base = os.environ.get("BUILD_WORKING_DIRECTORY", ".")
    train, held_out, load = [], [], []
    path = os.path.join(base, args.metrics)
    try:
        with open(path, encoding="utf-8") as f:
            for number, text in enumerate(f, 1):
                row = json.loads(text)
                if "eval_loss" in row:
                    held_out.append((row["step"], row["eval_loss"]))
                elif row.get("loss") is not None:
                    train.append((row["step"], row["loss"]))
                    load.append((row["step"], row.get("expert_load") or []))
    except OSError as error:
        sys.exit(f"plot: {path}: {error.strerror}")
    except (ValueError, KeyError, TypeError):
        sys.exit(f"plot: {path}: line {number} is not a line of metrics")
    if not train:
        sys.exit(f"plot: {path}: no steps in it")
    steps = max(s for s, _ in train)
    values = [v for _, v in train + held_out]
    panels = [Panel(0, args.title, steps, min(0, min(values)), max(values))]
    panels[0].line(train, COLOURS[0], "training", 0)
    if held_out:
        panels[0].dots(held_out, COLOURS[1], "held out", 1)
    experts = len(load[-1][1])
    if experts:
        panels.append(Panel(HEIGHT, "Share of tokens by expert", steps, 0, max(max(v) for _, v in load if v) * 1.1))
        for e in range(experts):
            panels[1].line([(s, v[e]) for s, v in load if len(v) == experts], COLOURS[e % len(COLOURS)], f"expert {e}", e)
    height = HEIGHT * len(panels)
    svg = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
           'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
           + "".join("".join(p.parts) for p in panels) + "</svg>\n")
    with open(os.path.join(base, args.out), "w", encoding="utf-8") as f:
        f.write(svg)


if __name__ == "__main__":
    main()
