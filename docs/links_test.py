#!/usr/bin/env python3
"""Each relative link and picture of the pages leads to a file in git, and each #anchor to a heading of its page."""
import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(os.path.realpath(__file__)).parents[1]  # the work tree: this file is a link into it
MOST_README_LINES = 200


def prose(text):
    """The text without blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def anchors(text):
    """The anchors that GitHub gives to the headings."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page, text, files, read):
    """The links of a page that lead nowhere. `files` are the paths that exist; `read` gives the text of one."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "code", prose(text))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if target not in files and not any(f.startswith(target + "/") for f in files):
            found.append(f"{page}: {link}: no such file")
        elif anchor and anchor not in anchors(read(target)):
            found.append(f"{page}: {link}: no such heading")
    return found


class LinksTest(unittest.TestCase):
    def test_links(self):
        git = ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"]
        files = set(subprocess.run(git, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines())
        files = {f for f in files if (ROOT / f).is_file() and (ROOT / f).stat().st_size > 0}
        pages = sorted(f for f in files if f.endswith(".md") and os.path.dirname(f) in ("", "docs"))
        self.assertIn("README.md", pages)
        read = lambda path: (ROOT / path).read_text()
        found = [row for page in pages for row in broken(page, read(page), files, read)]
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_readme(self):
        lines = (ROOT / "README.md").read_text().splitlines()
        self.assertLessEqual(len(lines), MOST_README_LINES)
        self.assertIn("docs/tutorial.md", "\n".join(lines[:10]))

    def test_rules(self):
        page = "# A page\n[a](b.md) [c](#a-page) [d](d/)\n```\n[e](none)\n```\n[f](http://x)\n"
        self.assertEqual(broken("docs/a.md", page, {"docs/a.md", "docs/b.md", "docs/d/e"}, lambda path: page), [])
        self.assertEqual(broken("docs/a.md", "![x](x.svg) [b](b.md#c)", {"docs/b.md"}, lambda path: "# B\n"),
                         ["docs/a.md: x.svg: no such file", "docs/a.md: b.md#c: no such heading"])


if __name__ == "__main__":
    unittest.main()
