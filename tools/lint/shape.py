#!/usr/bin/env python3
"""The shape of the tree: lines per folder and the files over 600 lines.  ./bazelw run //tools/lint:shape [-- --base REV]

With --base, also how many lines each folder gained and lost since REV. Nothing fails: the report is for judgement.
"""
import argparse
import collections
import os
import subprocess

SOURCES = (".h", ".cc", ".inc", ".py", ".bzl", ".sh", "BUILD", "WORKSPACE", "bazelw", "run")
LONG = 600


def git(*args):
    return subprocess.run(["git", *args], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def room(path):
    return "/".join(path.split("/")[:-1][:2]) or "."


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", help="a commit to compare with")
    args = parser.parse_args()
    os.chdir(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))

    lines, tests, files = collections.Counter(), collections.Counter(), collections.Counter()
    long_files = []
    for path in git("ls-files"):
        if not path.endswith(SOURCES) or not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8", errors="replace") as file:
            n = sum(1 for _ in file)
        files[room(path)] += 1
        is_test = "_test." in path or "/testing/" in path
        (tests if is_test else lines)[room(path)] += n
        if n > LONG:
            long_files.append((n, path))
    added, removed = collections.Counter(), collections.Counter()
    if args.base:
        for row in git("diff", "--numstat", args.base):
            plus, minus, path = row.split("\t")
            if path.endswith(SOURCES) and plus != "-":
                added[room(path)] += int(plus)
                removed[room(path)] += int(minus)

    print(f"{'folder':32}{'files':>7}{'lines':>8}{'tests':>8}")
    for folder in sorted(files.keys() | added.keys() | removed.keys()):
        change = f"   +{added[folder]} -{removed[folder]}" if added[folder] or removed[folder] else ""
        print(f"{folder:32}{files[folder]:7}{lines[folder]:8}{tests[folder]:8}{change}")
    print(f"{'all':32}{sum(files.values()):7}{sum(lines.values()):8}{sum(tests.values()):8}")
    print(f"\nfiles over {LONG} lines: {len(long_files) or 'none'}")
    for n, path in sorted(long_files, reverse=True):
        print(f"{n:6}  {path}")


if __name__ == "__main__":
    main()
