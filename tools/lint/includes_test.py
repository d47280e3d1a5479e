#!/usr/bin/env python3
"""A package names each package whose headers it includes: no dependency comes by way of another package."""
import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(os.path.realpath(__file__)).parents[2]  # the work tree: this file is a link into it
FROM_RULES = {"framework/testing/fuzz.h"}  # the rules of fuzz tests add the dependency


def problems(sources, builds):
    """`sources`: {path: text}; `builds`: {package: text of BUILD}. Returns a sentence for each missing edge."""
    def package_of(path):
        folder = os.path.dirname(path)
        while folder not in builds:
            folder = os.path.dirname(folder)
        return folder

    names = {package: set(re.findall(r'"//([^":]*)[":]', text)) for package, text in builds.items()}
    found = {}
    for path, text in sources.items():
        for header in re.findall(r'^#include "([^"]+)"', text, re.M):
            user, used = package_of(path), package_of(header)
            if header in sources and header not in FROM_RULES and user != used and used not in names[user]:
                found[user, used] = f"{path} includes {header}; need a dependency on //{used} in {user}/BUILD"
    return list(found.values())


class IncludesTest(unittest.TestCase):
    def test_repository(self):
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "*.h", "*.cc", "*.inc",
                                 "*BUILD"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        texts = {path: (ROOT / path).read_text() for path in listed if (ROOT / path).is_file()}
        self.assertTrue(texts, "git lists no sources")
        builds = {os.path.dirname(path): texts.pop(path) for path in list(texts) if path.endswith("BUILD")}
        found = problems(texts, builds)
        if found:
            self.fail("\n" + "\n".join(found))

    def test_rules_of_cc(self):
        own_rules = "@rules_cc//cc:defs|native[.]cc_(library|binary|test)"
        run = subprocess.run(["git", "-C", ROOT, "grep", "-lE", own_rules, "--", "*BUILD", "*.bzl",
                              ":!third_party/shims", ":!tools/build_rules/cc.bzl"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(run.stdout, "", "load the rules from //tools/build_rules:cc.bzl")

    def test_rules(self):
        sources = {"a/x.h": "", "b/y.h": '#include "a/x.h"\n', "b/c/z.cc": '#include "b/y.h"\n'}
        self.assertEqual(problems(sources, {"a": "", "b": 'deps = ["//a:x"]', "b/c": 'deps = ["//b"]'}), [])
        self.assertEqual(problems(sources, {"a": "", "b": 'deps = ["//ab"]', "b/c": 'deps = ["//b:y"]'}),
                         ["b/y.h includes a/x.h; need a dependency on //a in b/BUILD"])


if __name__ == "__main__":
    unittest.main()
