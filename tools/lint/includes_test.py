#!/usr/bin/env python3
"""A package names each package whose headers it includes, and tools/lint/layers.bzl allows it to files or to tests."""
import os
import pathlib
import re
import subprocess
import types
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


def forbidden(included, layers):
    """A sentence for each result of includes() that the table forbids, and for each row in `tests` without a use."""
    reach = deps_test.check_layers(layers)
    of_tests = deps_test.rows_of_tests(layers, reach)
    found, needed = [], set()
    for user, used, path, header in included:
        test = "_test." in path or "testing" in path.split("/")
        row, other = [deps_test.row_of(package or ".", layers) for package in (user, used)]
        if None in (row, other) or other not in (of_tests if test else reach)[row]:
            who = f"tests of {user}" if test else user
            found.append(f"{path} includes {header}; {deps_test.TABLE} does not allow {who} to use {used}")
        elif other not in reach[row]:
            needed.add((row, other))
    return found + [f"{deps_test.TABLE}: no test of {name} needs {other} in `tests`; drop it"
                    for name, row in layers.items() for other in row.tests if (name, other) not in needed]


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
        found = forbidden(includes(*read_tree()), deps_test.LAYERS)
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

    def test_rules_of_tests(self):
        def room(**fields):
            return types.SimpleNamespace(**{"uses": [], "wing": False, "apart": False, "wings": [], "tests": [], **fields})

        layers = {"ops": room(tests=["models"]), "models": room(uses=["ops"])}
        of_test = ("ops", "models", "ops/x_test.cc", "models/y.h")
        self.assertEqual(forbidden([of_test], layers), [])
        shipped = ("ops", "models", "ops/x.cc", "models/y.h")
        self.assertRegex(forbidden([of_test, shipped], layers)[0], "^ops/x.cc includes .* allow ops to use models$")
        self.assertRegex(forbidden([of_test], {**layers, "ops": room()})[0], "not allow tests of ops to use models$")
        self.assertRegex(forbidden([], layers)[0], "no test of ops needs models in `tests`; drop it$")
        self.assertRegex(forbidden([("new", "ops", "new/x_test.cc", "ops/y.h")], layers)[0], "^new/x_test.cc includes")


if __name__ == "__main__":
    unittest.main()
