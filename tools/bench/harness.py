"""Shared by the benchmark scripts: building programs, timing the two sides in turn, medians and tables."""
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Failure(Exception):
    """Prints one line for the user and exits."""


def run(command, what, **options):
    """Standard output of a command that must succeed."""
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          **options)
    if done.returncode:
        tail = (done.stderr.strip() or done.stdout.strip()).splitlines()[-12:]
        raise Failure(f"{what} failed:\n  " + "\n  ".join(tail))
    return done.stdout


def build(bazel, *targets):
    """Builds targets with the bazel command line `bazel` and returns the paths of their programs."""
    command = shlex.split(bazel)
    run([*command, "build", *targets], "building " + " ".join(targets), cwd=ROOT)
    folder = pathlib.Path(run([*command, "info", "bazel-bin"], "bazel info", cwd=ROOT).strip())
    return [folder / t[2:].replace(":", "/") for t in targets]


class Side:
    """A process that answers each line with one JSON object, so that two of them can take turns."""

    def __init__(self, command, environment=None):
        self.command = [str(c) for c in command]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        bufsize=1, env=environment, cwd=ROOT)

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise Failure(f"{' '.join(self.command)} ended with status {self.process.wait()}")
        return json.loads(line)

    def ask(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.read()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def run_main(name, main):
    """Calls main(); a Failure ends the program `name` with its line."""
    try:
        main()
    except Failure as failure:
        sys.exit(f"{name}: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)


def median(values):
    return statistics.median(values)


def run_daily_loop(program, rounds=5):
    """(seconds from start to the first result, µs of one eager add) of a daily_loop program: medians over `rounds`."""
    first, add = [], []
    for _ in range(rounds):
        begin = time.perf_counter()
        process = subprocess.Popen([str(program)], stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline()
        first.append(time.perf_counter() - begin)
        rest = process.stdout.read()
        if process.wait() or not line.startswith("loss "):
            raise Failure(f"{program} ended with status {process.returncode}")
        add.append(median([float(l.split()[1]) for l in rest.splitlines() if l.startswith("add ")]))
    return median(first), median(add)


def folder_size(folder):
    """Bytes of all files below a folder, links not followed."""
    return sum(f.stat().st_size for f in pathlib.Path(folder).rglob("*") if f.is_file() and not f.is_symlink())


def machine():
    """The facts about this machine that the numbers depend on."""
    flags, model = [], platform.machine()
    for line in open("/proc/cpuinfo"):
        if line.startswith("flags"):
            flags = line.split()
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "features": [f for f in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16") if f in flags]}


def busy():
    """Share of the processors that other programs used during half a second."""
    def read():
        fields = [int(v) for v in open("/proc/stat").readline().split()[1:9]]
        return sum(fields), fields[3] + fields[4]
    total, idle = read()
    time.sleep(0.5)
    total_now, idle_now = read()
    return 1 - (idle_now - idle) / max(1, total_now - total)


def warn_if_busy():
    """Warns if other programs run, and returns their share. PyTorch's threads spin while they wait and suffer most."""
    share = busy()
    if share > 0.1:
        print(f"warning: other programs use {share:.0%} of this machine; these figures will not repeat", flush=True)
    return share


def number(v):
    if v is None:
        return ""
    if v == 0 or abs(v) >= 1000:
        return f"{v:.0f}"
    return f"{v:.4g}"


def print_table(header, rows):
    """Rows of strings and numbers under a header; the first column is left-aligned."""
    text = [header] + [[c if isinstance(c, str) else number(c) for c in r] for r in rows]
    widths = [max(len(r[c]) for r in text) for c in range(len(header))]
    for r in text:
        print("  ".join(s.ljust(w) if c == 0 else s.rjust(w) for c, (s, w) in enumerate(zip(r, widths))).rstrip())


def verdict(value, goal):
    return "" if goal is None or value is None else "met" if value <= goal else "missed"


def write_json(path, value):
    if path:
        path = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), path)
        path.write_text(json.dumps(value, indent=1) + "\n")
