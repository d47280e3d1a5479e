#!/usr/bin/env python3
"""pipeline: figures of the schedules (vectors V9 and V42 to V48), tables of the page, one line for each bad input."""
import base64
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile

PIPELINE = os.path.join("tools", "pipeline", "pipeline")

# Vector, schedule, stages, microbatches, other flags, and bubble, own bubble, activations.
FIGURES = [
    ("V42", "gpipe", 4, 8, [], 9, 9, 8),
    ("V42", "gpipe", 8, 32, [], 21, 21, 32),
    ("V43", "1f1b", 4, 8, [], 9, 9, 4),
    ("V43", "1f1b", 4, 8, ["--forward", "2", "--input", "3"], 18, 18, 4),
    ("V44", "interleaved_1f1b", 4, 8, [], 4.5, 4.5, 5.5),
    ("V44", "interleaved_1f1b", 4, 8, ["--stages_per_rank", "4"], 2.25, 2.25, 4.75),
    ("V45", "zb_h1", 8, 32, [], 7, 7, 8),
    ("V46", "zb_2p", 4, 8, [], 3, 0, 7),
    ("V47", "zb_v", 4, 8, [], 1.5, 0, 4),
    ("V48", "dualpipe_v", 4, 8, ["--pairs"], 3, 3, 4.5),
    ("V48", "dualpipe_v", 4, 8, [], 1.5, 1.5, 4.5),
]

# Arguments, and a part of the error.
BAD = [
    (["--stages", "0"], "--stages"),
    (["--microbatches", "100000"], "--microbatches"),
    (["--forward", "-1"], "--forward: got '-1'"),
    (["--forward", "1,,1,1"], "--forward: got '1,,1,1'"),
    (["--forward", "1,1"], "--forward: got 2 times; need one, or one for each of the 4 stages"),
    (["--forward", "nan"], "--forward"),
    (["--forward", "0", "--input", "0", "--weight", "0"], "are all 0; need a time above 0"),
    (["--schedule", "zb-v"], "--schedule: no schedule has the name 'zb-v'; need one of"),
    (["--schedule", "zb-v"], "did you mean zb_v?"),
    (["--schedule", "dualpipe_v", "--microbatches", "7"], "need 2 for each rank, 8 or more"),
    (["--pairs", "--schedule", "1f1b"], "--pairs works with dualpipe_v only"),
    (["--pairs", "--microbatches", "4"], "--pairs works with dualpipe_v only"),
    (["--stages_per_rank", "3", "--schedule", "1f1b"], "--stages_per_rank works with interleaved_1f1b only"),
    (["--html", "/tmp/x.html", "--forward", "1,1,1,2"], "--html has a slider for the stages"),
    (["--html", "/tmp/x.html", "--stages", "17"], "--html has up to 16 stages"),
    (["1f1b"], "1f1b"),
]


def decode(text, times, chunks):
    """The actions of a rank, as page.js reads them: kind, chunk, begin, end."""
    at, actions = 0, []
    for gap, letter in re.findall(r"([-+.0-9e]*)([A-Z])", text):
        code = ord(letter) - ord("A")
        at += float(gap or 0)
        end = at + times[code % 4] / chunks
        actions.append(("FIWB"[code % 4], code // 4, at, end))
        at = end
    return actions


def main():
    failures = []

    def run(args):
        done = subprocess.run([PIPELINE, *args], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def check(ok, name, seen):
        if not ok:
            failures.append(f"{name}: {seen}")

    with tempfile.TemporaryDirectory() as folder:
        data, chart, page = (os.path.join(folder, name) for name in ("a.json", "a.svg", "a.html"))

        def figures(args):
            code, _, err = run([*args, "--json", data])
            check(code == 0 and not err, args, err)
            with open(data, encoding="utf-8") as f:
                return json.load(f)

        for vector, name, stages, microbatches, flags, *expected in FIGURES:
            args = ["--schedule", name, "--stages", str(stages), "--microbatches", str(microbatches), *flags]
            one = figures(args)["schedules"][0]
            check([one["bubble"], one["own"], one["activations"]] == expected, f"{vector} {args}", one["bubble"])
        # V9: (p - 1) / (m + p - 1).
        one = figures(["--schedule", "gpipe", "--stages", "16", "--microbatches", "64"])["schedules"][0]
        check(abs(1 - one["efficiency"] - 0.1899) < 5e-5, "V9", one["efficiency"])
        # The last part is slower: if every rank has such a part, the bubble equals the slow part's bubble.
        uneven = figures(["--schedule", "1f1b", "--forward", "1,1,1,2"])["schedules"][0]
        check(uneven["ranks"][3]["busy"] == 8 * 4 and uneven["ranks"][0]["busy"] == 8 * 3, "uneven", uneven["ranks"])

        # Its charts show the ranks' mean idle time, which is less than the bubble, the worst rank's idle time.
        check(run(["--schedule", "1f1b", "--forward", "1,1,1,2", "--svg", chart])[0] == 0, "uneven", "fails")
        idle = f"idle {100 * (1 - uneven['efficiency']):.1f}%"
        check(uneven["bubble"] / uneven["step"] > 1 - uneven["efficiency"] + 0.04, "uneven", uneven["bubble"])
        drawn = open(chart, encoding="utf-8").read()
        check(idle in drawn and "ubble" not in drawn, idle, "is not in the chart")

        times = ["--forward", "2", "--input", "3", "--wire", "0.25"]
        code, out, err = run([*times, "--svg", chart, "--html", page])
        check(code == 0 and not err, "page", err)
        check("rank 3  " in out and "F0 " in out and "zb_2p" in out, "text", out)
        check(open(chart, encoding="utf-8").read().count("<g transform") >= 9, "svg", "has too few panels")
        text = open(page, encoding="utf-8").read()
        check("/*SCRIPT*/" not in text and "http://" not in text.replace("http://www.w3.org", ""), "page",
              "asks a host")
        packed = re.search(r'<script id="data"[^>]*>([^<]*)<', text)[1]
        shown = json.loads(gzip.decompress(base64.b64decode(packed)))
        for stages, microbatches in ((4, 8), (1, 1), (3, 7), (16, 64)):
            exact = figures([*times, "--stages", str(stages), "--microbatches", str(microbatches)])
            for one in exact["schedules"]:
                found = next(s for s in shown["schedules"] if s["name"] == one["name"])
                makespan, bubble, own, _, peak, ranks = found["tables"][stages - 1][microbatches - 1]
                check((makespan, bubble, own, peak) ==
                      (one["step"], one["bubble"], one["own"], one["activations"]), one["name"], makespan)
                for rank, row in zip(one["ranks"], ranks.split(" "), strict=True):
                    decoded = decode(row, shown["times"], found["chunks"])
                    for a, (kind, chunk, begin, end) in zip(rank["actions"], decoded, strict=True):
                        check(kind == a["kind"] and chunk == a["stage"] // stages and abs(begin - a["begin"]) < 1e-4 and
                              abs(end - a["end"]) < 1e-4, f"{one['name']} {stages} {microbatches}", a)
        exists = [bool(t) for t in shown["schedules"][6]["tables"][3]]
        check(exists == [m >= 8 for m in range(1, 65)], "dualpipe_v", exists)
    for args, part in BAD:
        code, out, err = run(args)
        check(code == 2 and not out and err.count("\n") == 1 and part in err, args, err)
    print("\n".join(failures[:20]) or "all well")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
