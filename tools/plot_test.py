#!/usr/bin/env python3
"""plot draws a file of metrics, and answers each bad input with one line."""
import os
import subprocess
import sys
import tempfile

PLOT = os.path.join("tools", "plot")
GOOD = '{"step": 1, "loss": 2.5, "expert_load": [0.5, 0.5]}\n{"step": 2, "loss": 2.0, "expert_load": [0.4, 0.6]}\n'

# Name, content of the file of metrics, and a part of the error.
BAD = [
    ("empty", "", "no steps in it"),
    ("no object", "[]\n", "line 1: got array; need an object with \"step\""),
    ("a number", "5\n", "line 1: got number 5; need an object"),
    ("a text", '"step"\n', 'line 1: got string "step"; need an object'),
    ("null", "null\n", "line 1: got null; need an object"),
    ("not JSON", "step 1\n", "line 1: metrics: not valid JSON"),
    ("cut short", GOOD + '{"step": 3, "lo', "line 3: metrics: not valid JSON"),
    ("no step", '{"loss": 1}\n', 'line 1: "step" is missing; need a number'),
    ("step is a text", '{"step": "1", "loss": 1}\n', 'line 1: step is string "1"; need a number'),
    ("step is null", '{"step": null, "loss": 1}\n', "line 1: step is null; need a number"),
    ("loss is a text", '{"step": 1, "loss": "low"}\n', 'line 1: loss is string "low"; need a number'),
    ("loss is a list", '{"step": 1, "loss": [1]}\n', "line 1: loss is array; need a number"),
    ("loss is a long text", '{"step": 1, "loss": "%s"}\n' % ("a" * 10000), "loss is string \"aaa"),
    ("loss is NaN", '{"step": 1, "loss": NaN}\n', "line 1: metrics: not valid JSON"),
    ("loss is infinite", '{"step": 1, "loss": Infinity}\n', "line 1: metrics: not valid JSON"),
    ("loss is huge", '{"step": 1, "loss": 1e400}\n', "number overflow"),
    ("loss is large", '{"step": 1, "loss": 1e40}\n', "loss is 1e+40; need a number below 1e30"),
    ("step is huge", '{"step": ' + "9" * 400 + ', "loss": 1}\n', "number overflow"),
    ("loss is a bool", '{"step": 1, "loss": true}\n', "line 1: loss is boolean true; need a number"),
    ("held-out loss is a text", GOOD + '{"step": 2, "eval_loss": "x"}\n',
     'line 3: eval_loss is string "x"; need a number'),
    ("load is a number", '{"step": 1, "loss": 1, "expert_load": 3}\n', "expert_load is number 3; need a list"),
    ("load has texts", '{"step": 1, "loss": 1, "expert_load": [1, "a"]}\n',
     'expert_load[1] is string "a"; need a number'),
    ("load by layer is a text", '{"step": 1, "loss": 1, "max_over_mean_by_layer": [1, "a"]}\n',
     'max_over_mean_by_layer[1] is string "a"; need a number'),
    ("deep", "[" * 100000 + "\n", "nested deeper"),
    ("only evaluations", '{"step": 1, "eval_loss": 2}\n', "no steps in it"),
    ("bytes", b"\xff\xfe\x00", "line 1: metrics: not valid JSON"),
]


def run(metrics, out):
    done = subprocess.run([PLOT, "--metrics", metrics, "--out", out], capture_output=True, text=True, errors="replace")
    return done.returncode, done.stderr


def main():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        path, out = os.path.join(folder, "m.jsonl"), os.path.join(folder, "m.svg")

        def write(content):
            with open(path, "wb") as f:
                f.write(content if isinstance(content, bytes) else content.encode())

        def expect_error(name, code, errors, part=""):
            one_line = errors.count("\n") == 1 and len(errors) < 1000
            if code != 1 or not one_line or not errors.startswith("plot: ") or part not in errors:
                failures.append(f"{name}: exit code {code}: {errors}")

        for name, content, part in BAD:
            write(content)
            expect_error(name, *run(path, out), part)
        expect_error("no file", *run(os.path.join(folder, "none"), out))
        expect_error("a folder", *run(folder, out))
        write(GOOD)
        expect_error("no folder for the drawing", *run(path, os.path.join(folder, "no", "m.svg")))
        code, errors = run(path, out)
        if code != 0 or errors or "<svg" not in open(out, encoding="utf-8").read():
            failures.append(f"good input: exit code {code}: {errors}")
    print("\n".join(failures) or "all well")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
