#!/usr/bin/env python3
"""summary.py FOLDER FAILED: the one JSON of a GPU check, from the logs and results that check.sh left in FOLDER."""
import datetime
import json
import pathlib
import platform
import sys


def read(path):
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def load(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def tests(found):
    """Counts, and the names and messages of what failed."""
    if found is None:
        return None
    failures, skipped, names = [], [], 0
    for suite in found.get("testsuites", []):
        for case in suite.get("testsuite", []):
            names += 1
            name = f"{suite['name']}.{case['name']}"
            if case.get("failures"):
                failures.append({"test": name, "message": case["failures"][0].get("failure", "")[:2000]})
            if case.get("result") == "SKIPPED":
                skipped.append(name)
    return {"run": names, "failed": failures, "skipped": skipped}


def beside(ours, theirs):
    """Rows that both have: our time (or rate) over PyTorch's."""
    rows = {r["name"]: r for r in (theirs or {}).get("rows", [])}
    return [{"name": r["name"], "weft": r["value"], "torch": rows[r["name"]]["value"], "unit": r["unit"],
             "ratio": r["value"] / rows[r["name"]]["value"] if rows[r["name"]]["value"] else None}
            for r in (ours or {}).get("rows", []) if r["name"] in rows and r["value"] is not None]


def main():
    work, failed = pathlib.Path(sys.argv[1]), sys.argv[2] != "0"
    ours, theirs = load(work / "bench.json"), load(work / "torch.json")
    sanitizer = {}
    for tool in ("memcheck", "racecheck", "synccheck"):
        log = read(work / f"{tool}.log")
        sanitizer[tool] = {"clean": log.rstrip().endswith("exit 0"), "skipped": "skipped" in log,
                           "log": [line for line in log.splitlines() if "=========" in line][:40]}
    print(json.dumps({
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "gpu": read(work / "gpu.txt").strip(), "host": platform.machine(), "held": not failed,
        "tests": tests(load(work / "tests.json")), "sanitizer": sanitizer, "bench": ours, "torch": theirs,
        "beside_torch": beside(ours, theirs)}, indent=1))


main()
