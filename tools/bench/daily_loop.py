#!/usr/bin/env python3
"""Measures a user's build loop with Weft: packages //:weft, builds one file outside the repository, and runs it.

Prints the time to compile and link, from start to the first result, of one eager add, and the size of the package,
each beside its goal. Needs cmake.
"""
import argparse
import pathlib
import shutil
import tempfile
import time

import harness

# name, unit, goal
ROWS = {
    "compile_and_link": ("s", 3),
    "start_to_first_result": ("s", 0.05),
    "eager_add_16": ("us", 0.20),
    "ships": ("MB", 60),
}


def measure(package, work, rounds=5):
    """The rows of ROWS for the package in folder `package`, building in folder `work`."""
    source, build = work / "source", work / "build"
    shutil.copytree(harness.HERE / "daily_loop", source)
    harness.run(["cmake", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={package}", "-DCMAKE_BUILD_TYPE=Release"],
                "cmake")
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        harness.run(["cmake", "--build", build, "--clean-first"], "building the user's file")
        seconds.append(time.perf_counter() - begin)
    first, add = harness.run_daily_loop(build / "daily_loop", rounds)
    return {"compile_and_link": harness.median(seconds), "start_to_first_result": first, "eager_add_16": add,
            "ships": sum(f.stat().st_size for f in (package / "lib").glob("*.so*")) / 1e6}


def make_package(bazel, folder):
    harness.run([*bazel.split(), "run", "//tools:package", "--", "//:weft", "--out", folder], "packaging //:weft",
                cwd=harness.ROOT)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", metavar="DIR",
                        help="an existing package from //tools:package -- //:weft --out DIR")
    parser.add_argument("--bazel", default=str(harness.ROOT / "bazelw"), help="how to call bazel (default ./bazelw)")
    parser.add_argument("--json", metavar="FILE", help="also write the results to this file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weft_daily_loop_") as folder:
        work = pathlib.Path(folder)
        package = pathlib.Path(args.package).resolve() if args.package else make_package(args.bazel, work / "package")
        busy = harness.warn_if_busy()
        result = measure(package, work)
    harness.print_table(["", "value", "unit", "goal", ""],
                        [[name, result[name], unit, goal, harness.verdict(result[name], goal)]
                         for name, (unit, goal) in ROWS.items()])
    harness.write_json(args.json, {"benchmark": "daily_loop", "machine": harness.machine(), "busy_before": busy,
                                   "rows": [{"name": n, "value": result[n], "unit": u, "goal": g}
                                            for n, (u, g) in ROWS.items()]})


if __name__ == "__main__":
    harness.run_main("daily_loop", main)
