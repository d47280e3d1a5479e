#!/usr/bin/env python3
"""moe: the causes of the gap add up, rows by rank are those of V29, and contradictions are one line."""
import json
import os
import subprocess
import sys
import tempfile

MOE = os.path.join("tools", "moe", "moe")
STEP = ["--config", "moe_tiny", "--batch_size", "2", "--seq_len", "16", "--rounds", "1"]

BAD = [
    (["--route", "uneven"], "--route"),
    (["--config", "gpt_tiny"], "--config is 'gpt_tiny'; need one of"),
    (["--ranks", "4"], "--ranks is a flag of --load and --layouts"),
    (["--load", "--ranks", "3"], "--ranks is 3; need a divisor of --experts, 8"),
    (["--layouts", "--ranks", "3"], "--ranks is 3; need a divisor of the 8 experts"),
    (["--layouts", "--load"], "--load and --layouts are two studies"),
    (["--load", "--mesh", "ep2"], "--load has its own layer"),
    (["--capacity_factor", "-1"], "--capacity_factor"),
    (["--rounds", "0"], "--rounds"),
    (["x"], "x"),
]


def main():
    failures = []

    def run(args):
        done = subprocess.run([MOE, *args], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def check(ok, name, seen):
        if not ok:
            failures.append(f"{name}: {seen}")

    with tempfile.TemporaryDirectory() as folder:
        data, chart = os.path.join(folder, "a.json"), os.path.join(folder, "a.svg")
        files = ["--json", data, "--svg", chart]

        def figures():
            with open(data, encoding="utf-8") as f, open(chart, encoding="utf-8") as picture:
                check("<svg" in picture.read(), "picture", "no SVG")
                return json.load(f)

        for more in [], ["--route", "skew:0.9", "--capacity_factor", "2"], ["--mesh", "ep2"]:
            code, out, err = run([*STEP, *more, *files])
            check(code == 0 and "small products" in out, more, err or out)
            if code:
                continue
            f = figures()
            total = sum(f["causes"].values()) + f["rest_ms"]
            check(abs(total - f["gap_ms"]) < 1e-9, more, f)
            check((f["causes"]["padding"] > 0) == ("--capacity_factor" in more), more, f)
            check((f["causes"]["exchange"] > 0) == ("--mesh" in more), more, f)
        code, out, err = run(["--load", "--rounds", "1", *files])
        check(code == 0, "load", err)
        if code == 0:
            routes = {r["route"]: r for r in figures()["routes"]}
            check(set(routes["balanced"]["rows"]) == {512}, "balanced", routes)
            # V29: 7.2, within five standard deviations of 4096 draws.
            check(abs(routes["skew:0.9"]["most_over_mean"] - 7.2) < 0.2, "skew", routes)
            check(all(sum(r["rows"]) == 4096 for r in routes.values()), "rows", routes)
        code, out, err = run(["--layouts", "--batch_size", "4", "--ranks", "4", "--json", data])
        check(code == 0, "layouts", err)
        if code == 0:
            dp, tp, ep = json.load(open(data, encoding="utf-8"))["layouts"]
            check(dp["expert_bytes"] == 4 * ep["expert_bytes"] == tp["expert_bytes"], "experts", (dp, tp, ep))
            check(ep["rows_of_an_expert"] == 4 * dp["rows_of_an_expert"] == 128, "rows", (dp, ep))
            check(ep["peak_bytes"] < dp["peak_bytes"] and ep["idle_bytes"] < dp["idle_bytes"], "memory", (dp, ep))
    for args, part in BAD:
        code, out, err = run(args)
        check(code == 2 and not out and err.count("\n") == 1 and part in err, args, err)
    print("\n".join(failures) or "all well")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
