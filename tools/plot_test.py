#!/usr/bin/env python3
"""plot draws a file of metrics, and answers each bad input with one line."""
import os
import subprocess
import sys
import tempfile

PLOT = os.path.join("tools", "plot")
GOOD = '{"step": 1, "loss": 2.5, "expert_load": [0.5, 0.5]}\n{"step": 2, "loss": 2.0, "expert_load": [0.4, 0.6]}\n'

# Name, and what the file of metrics has.
BAD = {
    "empty": "",
    "no object": "[]\n",
    "a number": "5\n",
    "a text": '"step"\n',
    "null": "null\n",
    "not JSON": "step 1\n",
    "cut short": GOOD + '{"step": 3, "lo',
    "no step": '{"loss": 1}\n',
    "step is a text": '{"step": "1", "loss": 1}\n',
    "step is null": '{"step": null, "loss": 1}\n',
    "loss is a text": '{"step": 1, "loss": "low"}\n',
    "loss is a list": '{"step": 1, "loss": [1]}\n',
    "loss is NaN": '{"step": 1, "loss": NaN}\n',
    "loss is infinite": '{"step": 1, "loss": Infinity}\n',
    "loss is huge": '{"step": 1, "loss": 1e400}\n',
    "step is huge": '{"step": ' + "9" * 400 + ', "loss": 1}\n',
    "loss is a bool": '{"step": 1, "loss": true}\n',
    "held-out loss is a text": GOOD + '{"step": 2, "eval_loss": "x"}\n',
    "load is a number": '{"step": 1, "loss": 1, "expert_load": 3}\n',
    "load has texts": '{"step": 1, "loss": 1, "expert_load": ["a"]}\n',
    "deep": "[" * 100000 + "\n",
    "only evaluations": '{"step": 1, "eval_loss": 2}\n',
    "bytes": b"\xff\xfe\x00",
}


def run(metrics, out):
    done = subprocess.run([PLOT, "--metrics", metrics, "--out", out], capture_output=True, text=True)
    return done.returncode, done.stderr


def main():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        path, out = os.path.join(folder, "m.jsonl"), os.path.join(folder, "m.svg")

        def write(content):
            with open(path, "wb") as f:
                f.write(content if isinstance(content, bytes) else content.encode())

        def expect_error(name, code, errors):
            if code != 1 or errors.count("\n") != 1 or not errors.startswith("plot: "):
                failures.append(f"{name}: exit code {code}: {errors}")

        for name, content in BAD.items():
            write(content)
            expect_error(name, *run(path, out))
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
