#!/usr/bin/env python3
"""Reports the shape of the tree: lines per folder, long files, long lines, duplicates and phrases to replace.

./bazelw run //tools/lint:shape [-- [--at REV] [--base REV] [--list]]

--at reports on a commit instead of the work tree. --base adds the lines that each folder gained and lost since REV.
--list names each long line, pair of duplicates and phrase. The report never fails.
"""
import argparse
import collections
import io
import os
import subprocess
import tarfile

import duplicates
import english

SOURCES = (".h", ".cc", ".inc", ".py", ".bzl", ".sh", "BUILD", "WORKSPACE", "bazelw", "run")
TEXTS = SOURCES + (".md", ".js")
LONG = 600
COLUMNS = 120


def git(*args):
    return subprocess.run(["git", *args], check=True, stdout=subprocess.PIPE).stdout


def read(rev):
    """{path: text} of the sources and documents in the work tree, or in commit `rev`."""
    if rev:
        with tarfile.open(fileobj=io.BytesIO(git("archive", rev))) as tar:
            return {m.name: tar.extractfile(m).read().decode(errors="replace")
                    for m in tar.getmembers() if m.isfile() and m.name.endswith(TEXTS)}
    files = {}
    for path in git("ls-files").decode().splitlines():
        if path.endswith(TEXTS) and os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                files[path] = file.read()
    return files


def room(path):
    return "/".join(path.split("/")[:-1][:2]) or "."


def kind(path):
    """0: source, 1: test, 2: test support."""
    return 1 if "_test." in path else 2 if "testing" in path.split("/") or "testdata" in path.split("/") else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--at", help="report on this commit instead of the work tree")
    parser.add_argument("--base", help="a commit to compare with")
    parser.add_argument("--list", action="store_true", help="name each long line, pair of duplicates and phrase")
    args = parser.parse_args()
    os.chdir(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))

    lines, files = [collections.Counter() for _ in range(3)], collections.Counter()
    long_files, long_lines = [], []
    texts = read(args.at)
    sources = {path: text for path, text in texts.items() if path.endswith(SOURCES)}
    for path, text in sources.items():
        rows = text.splitlines()
        files[room(path)] += 1
        lines[kind(path)][room(path)] += len(rows)
        if len(rows) > LONG:
            long_files.append((len(rows), path))
        long_lines += [f"{path}:{n}" for n, row in enumerate(rows, 1) if len(row) > COLUMNS]
    added, removed = collections.Counter(), collections.Counter()
    if args.base:
        for row in git("diff", "--numstat", args.base, *([args.at] if args.at else [])).decode().splitlines():
            plus, minus, path = row.split("\t")
            if path.endswith(SOURCES) and plus != "-":
                added[room(path)] += int(plus)
                removed[room(path)] += int(minus)

    def show(name, *numbers):
        return f"{name:32}{numbers[0]:7}" + "".join(f"{n:9}" for n in numbers[1:])

    print(show("folder", "files", "lines", "tests", "support"))
    for folder in sorted(files.keys() | added.keys() | removed.keys()):
        change = f"   +{added[folder]} -{removed[folder]}" if added[folder] or removed[folder] else ""
        print(show(folder, files[folder], *(by[folder] for by in lines)) + change)
    print(show("all", sum(files.values()), *(sum(by.values()) for by in lines)))
    print(f"\nfiles over {LONG} lines: {len(long_files) or 'none'}")
    for n, path in sorted(long_files, reverse=True):
        print(f"{n:6}  {path}")
    print(f"lines over {COLUMNS} columns: {len(long_lines) or 'none'}")
    if args.list:
        print("".join(f"  {place}\n" for place in long_lines), end="")

    own = {path: text for path, text in sources.items()
           if kind(path) == 0 and not path.endswith("BUILD") and not path.startswith("third_party/")}
    pairs = duplicates.find(own)
    exact = sum(p[0] for p in pairs)
    print(f"pairs of {duplicates.RUN} or more shared lines: {exact} exact, "
          f"{len(pairs) - exact} but for names and numbers")
    if args.list:
        for same, count, a, b in pairs:
            print(f"  {'exact' if same else 'shape'} {count:4}  {a[0]}:{a[1]}  {b[0]}:{b[1]}")
    english.report(texts, args.list)


if __name__ == "__main__":
    main()
