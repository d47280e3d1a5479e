#!/usr/bin/env python3
"""Paths and pages of the tree that comments and documents name exist."""
import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(os.path.realpath(__file__)).parents[2]  # the work tree: this file is a link into it
FOLDERS = "compiler|distributed|docs|framework|models|ops|third_party|tools"
# A path with a capital stands for several (compiler/passes/NAME.h); braces and stars name a set.
PATH = re.compile(rf"(?<![\w/.:~-])(?:{FOLDERS})(?:/[a-z0-9_.-]+)+(?![\w/*{{-])")
PAGE = re.compile(r"\b\w+\.md\b")
URL = re.compile(r"\w+://\S+")
COMMENT = {".h": "//", ".cc": "//", ".inc": "//", ".proto": "//", ".js": "//", ".py": "#", ".bzl": "#", ".sh": "#"}


def named(path, text):
    """(line, path or name of a page) for each one that a document, or a comment of a source, names."""
    mark = COMMENT.get(pathlib.PurePath(path).suffix, "#" if path.endswith("BUILD") else "")
    for number, line in enumerate(text.split("\n"), 1):
        line = URL.sub("", line)
        # Links of documents are relative; docs/links_test.py checks them.
        comment = line.partition(mark)[2] if mark else re.sub(r"\[[^]]*\]\([^)]*\)", "", line)
        for match in PATH.finditer(comment):
            yield number, match.group().rstrip(".")
        yield from ((number, page) for page in PAGE.findall(comment))


def exists(tree, name):
    return name in tree or any(name + suffix in tree for suffix in (".h", ".cc", ".py", ".proto"))


class PathsTest(unittest.TestCase):
    def test_repository(self):
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], check=True,
                                stdout=subprocess.PIPE, text=True).stdout.splitlines()
        tree = {str(folder) for path in listed for folder in (pathlib.PurePath(path), *pathlib.PurePath(path).parents)}
        tree |= {pathlib.PurePath(path).name for path in listed if path.endswith(".md")}
        # They name files that are gone, and files that a test makes up.
        skipped = ("CHANGELOG.md", "docs/links_test.py", "tools/lint/includes_test.py")
        read = [p for p in listed
                if p.endswith((*COMMENT, "BUILD", ".md")) and p not in skipped and (ROOT / p).is_file()]
        found = [f"{p}:{number}: there is no {name}" for p in read
                 for number, name in named(p, (ROOT / p).read_text(errors="replace")) if not exists(tree, name)]
        if found:
            self.fail("\n" + "\n".join(found))

    def test_rules(self):
        header = "ops/core/products/dot.h"
        self.assertEqual(list(named("a.h", f"int x;  // see {header}.\n")), [(1, header)])
        self.assertEqual(list(named("a.cc", "ops/core/products/dot.h;  // compiler/passes/NAME.h, ops/*.h")), [])
        self.assertEqual(list(named("a.h", "// rules.md 14, http://x.org/y.md\nread(\"z.md\");")), [(1, "rules.md")])
        self.assertTrue(exists({"ops/core", "ops/core/products/dot.h"}, "ops/core/products/dot"))


if __name__ == "__main__":
    unittest.main()
