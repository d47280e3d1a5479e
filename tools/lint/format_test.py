#!/usr/bin/env python3
"""All .h and .cc files have the format of clang-format 14 and no line of more than 120 columns."""
import os
import pathlib
import re
import subprocess
import unittest

COLUMNS = 120
ROOT = pathlib.Path(os.path.realpath(__file__)).parents[2]  # the work tree: this file is a link into it
FORMATTER = "clang-format-14"


def long_lines(path, text):
    return [f"{path}:{n}: {len(line)} columns; need at most {COLUMNS}"
            for n, line in enumerate(text.split("\n"), 1) if len(line) > COLUMNS]


class FormatTest(unittest.TestCase):
    def setUp(self):
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "*.h", "*.cc"], check=True,
                                stdout=subprocess.PIPE, text=True).stdout.splitlines()
        self.files = [path for path in listed if (ROOT / path).is_file()]
        self.assertTrue(self.files, "git lists no sources")

    def test_columns(self):
        found = [row for path in self.files for row in long_lines(path, (ROOT / path).read_text())]
        if found:
            self.fail("\n" + "\n".join(found))

    def test_format(self):
        run = subprocess.run([FORMATTER, "--dry-run", "--ferror-limit=1", *self.files], cwd=ROOT,
                             stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        changed = sorted(set(re.findall(r"^(.*?):\d+:\d+: warning: code should be clang-formatted", run.stderr, re.M)))
        if changed:
            self.fail(f"\nrun {FORMATTER} -i " + " ".join(changed))

    def test_rules(self):
        self.assertEqual(long_lines("a.h", "x" * 120 + "\n"), [])
        self.assertEqual(long_lines("a.h", "\n" + "é" * 121), ["a.h:2: 121 columns; need at most 120"])


if __name__ == "__main__":
    unittest.main()
