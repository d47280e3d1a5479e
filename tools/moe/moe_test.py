#!/usr/bin/env python3
"""moe: the causes of the gap add up, rows by rank equal V29, and contradictions are one line."""
import json
import os
import subprocess
import sys
import tempfile

MOE = os.path.join("tools", "moe", "moe")
STEP = ["--config", "moe_tiny", "--batch_size", "2", "--seq_len", "16", "--rounds", "1"]

BAD = [
    (["--set", "route=uneven"], "--set: field 'route' is 'uneven'; need learned, balanced, zipf:S"),
    (["--set", "capcity_factor=1"],
     "--set: no field 'capcity_factor' (did you mean capacity_factor?); need one of aux_loss"),
    (["--config", "gpt_tiny"], "--config is 'gpt_tiny'; need one of"),
    (["--ranks", "4"], "--ranks is a flag of --load and --layouts; this is the study of the gap"),
    (["--load", "--ranks", "3"], "--ranks is 3; need a divisor of the 8 experts"),
    (["--layouts", "--ranks", "3"], "--ranks is 3; need a divisor of the 8 experts"),
    (["--layouts", "--load"], "--load and --layouts exclude each other"),
    (["--load", "--mesh", "ep2"], "--mesh is a flag of the study of the gap and --remedies; this is --load"),
    (["--load", "--set", "layers=2"],
     "--set is a flag of the study of the gap, --layouts and --remedies; this is --load"),
    (["--remedies", "--config", "gpt_tiny"], "--config is 'gpt_tiny'; need one of"),
    (["--set", "capacity_factor=-1"], "--set: field 'capacity_factor' is '-1'; need a number, 0 or more"),
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

        for more in [], ["--set", "route=skew:0.9,capacity_factor=2"], ["--mesh", "ep2"]:
            code, out, err = run([*STEP, *more, *files])
            check(code == 0 and "small products" in out, more, err or out)
            if code:
                continue
            f = figures()
            total = sum(f["causes"].values()) + f["rest_ms"]
            check(abs(total - f["gap_ms"]) < 1e-9, more, f)
            check((f["causes"]["padding"] > 0) == ("--set" in more), more, f)
            check((f["causes"]["exchange"] > 0) == ("--mesh" in more), more, f)
        code, out, err = run(["--load", "--rounds", "1", *files])
        check(code == 0, "load", err)
        if code == 0:
            routes = {r["route"]: r for r in figures()["routes"]}
            check(set(routes["balanced"]["rows"]) == {512}, "balanced", routes)
            # V29: 7.2, within five standard deviations of 4096 draws.
            check(abs(routes["skew:0.9"]["most_over_mean"] - 7.2) < 0.2, "skew", routes)
            check(all(sum(r["rows"]) == 4096 for r in routes.values()), "rows", routes)
        # One layer with 4 experts; one expert has 0.9 of the choices at the start.
        tiny = ["--config", "moe_tiny", "--batch_size", "8", "--seq_len", "32", "--rounds", "1"]
        code, out, err = run(["--remedies", *tiny, "--steps", "60", "--set", "aux_loss=0.1", *files])
        check(code == 0 and "recovered" in out, "remedies", err)
        if code == 0:
            f = figures()
            check(abs(f["start_max_over_mean"] - 3.6) < 0.15, "start", f)
            nothing, drop, aux, bias = f["remedies"]
            check(drop["dropped"] > 0.2 and drop["slowest_rank"] == 1.25, "dropping", drop)
            check(all(r["dropped"] == 0 for r in (nothing, aux, bias)), "dropped", f)
            excess = nothing["max_over_mean"] - 1
            check(all(r["max_over_mean"] - 1 < 0.5 * excess for r in (aux, bias)), "balanced", f)
            check(all(len(r["loss_by_step"]) == 60 and r["loss"] < 4 for r in f["remedies"]), "loss", f)
        code, out, err = run(["--layouts", "--ranks", "4", "--seq_len", "32", "--rounds", "1", *files])
        check(code == 0, "layouts", err)
        if code == 0:
            dp, tp, ep = layouts = figures()["layouts"]
            check(dp["expert_bytes"] == 4 * ep["expert_bytes"] == 4 * tp["expert_bytes"], "experts", layouts)
            check(ep["peak_bytes"] < dp["peak_bytes"] and tp["idle_bytes"] == ep["idle_bytes"] < dp["idle_bytes"],
                  "memory", layouts)
            check(all(l["step_ms"] > 0 and l["peak_bytes"] == l["measured_peak_bytes"] for l in layouts),
                  "measured", layouts)
            dp, tp, ep = (l["sent_bytes_for_a_token"] for l in layouts)
            # V29: 4 layers send k d 4 (ep - 1) / ep bytes of a token four times.
            check(dp["experts"] < 100 and ep["experts"] > 4 * 4 * 2 * 256 * 4 * 3 / 4, "experts' bytes", layouts)
            check(tp["experts"] > 0 and tp["gradients"] < dp["gradients"], "slice", layouts)
    for args, part in BAD:
        code, out, err = run(args)
        check(code == 2 and not out and err.count("\n") == 1 and part in err, args, err)
    print("\n".join(failures) or "all well")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
