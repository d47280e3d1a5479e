#!/usr/bin/env python3
"""A package names each package whose headers it includes: no dependency comes by way of another package."""
import os
import pathlib
import re
import subprocess
import unittest

import deps_test

ROOT = pathlib.Path(os.path.realpath(__file__)).parents[2]  # the work tree: this file is a link into it
FOLDERS = ("compiler/", "distributed/", "docs/", "framework/", "models/", "ops/", "tools/", "weft.h")
FROM_RULES = {"framework/testing/fuzz.h"}  # the rules of fuzz tests add the dependency


def includes(sources, builds):
    """(including package, included package, file, header) of each #include between packages.

    `sources`: {path: text}; `builds`: {package: text of BUILD}.
    """
    def package_of(path):
        folder = os.path.dirname(path)
        while folder not in builds:
            folder = os.path.dirname(folder)
        return folder

    for path, text in sources.items():
        for header in re.findall(r'^#include "([^"]+)"', text, re.M):
            user, used = package_of(path), package_of(header)
            if header.startswith(FOLDERS) and user != used:
                yield user, used, path, header


def problems(sources, builds):
    """A sentence for each included package that the BUILD file does not name."""
    names = {package: set(re.findall(r'"//([^":]*)[":]', text)) for package, text in builds.items()}
    found = {}
    for user, used, path, header in includes(sources, builds):
        if header not in FROM_RULES and used not in names[user]:
            found[user, used] = f"{path} includes {header}; need a dependency on //{used} in {user}/BUILD"
    return list(found.values())


def read_tree():
    command = ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "*.h", "*.cc", "*.inc", "*BUILD"]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    texts = {path: (ROOT / path).read_text() for path in listed if (ROOT / path).is_file()}
    builds = {os.path.dirname(path): texts.pop(path) for path in list(texts) if path.endswith("BUILD")}
    return texts, builds


class IncludesTest(unittest.TestCase):
    def test_repository(self):
        texts, builds = read_tree()
        self.assertTrue(texts, "git lists no sources")
        found = problems(texts, builds)
        if found:
            self.fail("\n" + "\n".join(found))

    def test_layers(self):
        layers = deps_test.check_layers(deps_test.LAYERS)
        texts, builds = read_tree()
        shipped = {path: text for path, text in texts.items()
                   if "_test." not in path and "testing" not in path.split("/") and not path.startswith("tools/gpu/")}
        found = []
        for user, used, path, header in includes(shipped, builds):
            rows = [deps_test.row_of(package or ".", layers) for package in (user, used)]
            if None in rows or rows[1] not in layers[rows[0]]:
                found.append(f"{path} includes {header}; {deps_test.TABLE} does not allow {user} to use {used}")
        if found:
            self.fail("\n" + "\n".join(found))

    def test_rules_of_cc(self):
        own_rules = "@rules_cc//cc:defs|native[.]cc_(library|binary|test)"
        run = subprocess.run(["git", "-C", ROOT, "grep", "--untracked", "-lE", own_rules, "--", "*BUILD", "*.bzl",
                              ":!third_party/shims", ":!tools/build_rules/cc.bzl"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(run.stdout, "", "load the rules from //tools/build_rules:cc.bzl")

    def test_rules(self):
        sources = {"ops/y.h": '#include "framework/x.h"\n', "ops/c/z.cc": '#include "ops/y.h"\n'}
        builds = {"framework": "", "ops": 'deps = ["//framework:x"]', "ops/c": 'deps = ["//ops"]'}
        self.assertEqual(problems(sources, builds), [])
        self.assertEqual(problems(sources, {**builds, "ops": 'deps = ["//frame"]'}),
                         ["ops/y.h includes framework/x.h; need a dependency on //framework in ops/BUILD"])


if __name__ == "__main__":
    unittest.main()
