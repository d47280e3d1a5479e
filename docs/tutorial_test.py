#!/usr/bin/env python3
"""Each cpp block of docs/tutorial.md is in docs/tutorial.cc, with any indentation, and that program runs."""
import os
import re
import subprocess
import unittest


def lines(text):
    return [line.strip() for line in text.strip().split("\n")]


class TutorialTest(unittest.TestCase):
    def test_blocks(self):
        with open("docs/tutorial.md") as page, open("docs/tutorial.cc") as source:
            blocks = re.findall(r"^```cpp\n(.*?)^```$", page.read(), re.M | re.S)
            program = lines(source.read())
        self.assertGreater(len(blocks), 10)
        for block in map(lines, blocks):
            starts = range(len(program) - len(block) + 1)
            self.assertTrue(any(program[i:i + len(block)] == block for i in starts),
                            "docs/tutorial.cc does not have this block of the page:\n" + "\n".join(block))

    def test_program(self):
        subprocess.run([os.path.abspath("docs/tutorial")], cwd=os.environ["TEST_TMPDIR"], check=True)


if __name__ == "__main__":
    unittest.main()
