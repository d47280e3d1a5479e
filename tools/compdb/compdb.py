#!/usr/bin/env python3
"""Writes compile_commands.json for clangd:  compdb.py [TARGET_PATTERN] [BAZEL_FLAG...]   (default //...)

The commands are Bazel's own. Generated headers are found once their targets have been built.
"""
import json
import os
import pathlib
import subprocess
import sys

# Flags of g++ that clang does not know.
GCC_ONLY = {"-fno-canonical-system-headers", "-Wno-free-nonheap-object", "-Wunused-but-set-parameter"}


def main():
    here = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    root = pathlib.Path(here) if here else pathlib.Path(__file__).resolve().parents[2]
    pattern, flags = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("//...", [])

    def bazel(*args):
        run = subprocess.run([root / "bazelw", *args], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True)
        if run.returncode:
            sys.exit(run.stderr + "compdb: bazel " + args[0] + " failed")
        return run.stdout

    execution_root = bazel("info", *flags, "execution_root").strip()
    query = 'mnemonic("CppCompile", deps(%s))' % pattern
    actions = json.loads(bazel("aquery", "--output=jsonproto", *flags, query)).get("actions", [])
    entries = {}
    for action in actions:
        arguments = [a for a in action["arguments"] if a not in GCC_ONLY]
        # clang would read g++'s precompiled header beside this one, and fails on it.
        if "-include" in arguments:
            at = arguments.index("-include")
            del arguments[at : at + 2]
        source = arguments[arguments.index("-c") + 1]
        if source.startswith("external/"):
            continue
        # Use the path in the work tree, so that an editor opens the real file.
        file = str(root / source) if (root / source).exists() else source
        entries[file] = {
            "directory": execution_root,
            "file": file,
            "arguments": [file if a == source else a for a in arguments],
        }
    target = root / "compile_commands.json"
    target.write_text(json.dumps(list(entries.values()), indent=1) + "\n")
    print(f"{target}: {len(entries)} files")


if __name__ == "__main__":
    main()
