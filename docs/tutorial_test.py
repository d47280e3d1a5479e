#!/usr/bin/env python3
"""Each cpp block of docs/NAME.md is in docs/NAME.cc, with any indentation, and that program runs; NAME is tutorial or
training. A block about a published model is in the example that tools/package_test.py runs."""
import os
import re
import subprocess
import unittest


def lines(text):
    return [line.strip() for line in text.strip().split("\n")]


class TutorialTest(unittest.TestCase):
    def test_blocks(self):
        with open("models/examples/published_model.cc") as source:
            example = lines(source.read())
        for name, least in (("tutorial", 11), ("training", 4)):
            with open(f"docs/{name}.md") as page, open(f"docs/{name}.cc") as source:
                text, program = page.read(), lines(source.read()) + [""] + example
            self.assertNotIn("```c++", text, "need ```cpp, so that the block is tested")
            blocks = re.findall(r"^```cpp\n(.*?)^```$", text, re.M | re.S)
            self.assertGreaterEqual(len(blocks), least)
            for block in map(lines, blocks):
                starts = range(len(program) - len(block) + 1)
                self.assertTrue(any(program[i:i + len(block)] == block for i in starts),
                                f"docs/{name}.cc does not have this block of the page:\n" + "\n".join(block))

    def test_programs(self):
        for name in ("tutorial", "training"):
            subprocess.run([os.path.abspath(f"docs/{name}")], cwd=os.environ["TEST_TMPDIR"], check=True)


if __name__ == "__main__":
    unittest.main()
