#!/usr/bin/env python3
"""Dependencies between packages follow the table tools/lint/layers.txt, and none leads to test support.

Bazel's query prints the edges of the programs and libraries listed in tools/lint/BUILD.
"""
import re
import unittest

TABLE = "tools/lint/layers.txt"
EDGES = "tools/lint/edges.txt"


def read_table(text):
    """Returns {row: rows it may use, including itself}. A row may name only rows above it."""
    reach = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        row, _, named = line.partition(":")
        if row in reach:
            raise ValueError(f"{TABLE}:{number}: {row} is listed twice")
        reach[row] = {row}
        for other in named.split():
            if other not in reach or other == row:
                raise ValueError(f"{TABLE}:{number}: {row} names {other}, which is no row above it")
            reach[row] |= reach[other]
    return reach


def row_of(package, table):
    if package in table:
        return package
    parts = package.split("/")
    for n in range(len(parts), 0, -1):
        if "/".join(parts[:n]) + "/*" in table:
            return "/".join(parts[:n]) + "/*"
    return None


def problems(edges, table):
    """`edges`: pairs of labels. Returns one sentence for each edge between packages that the table does not allow."""
    found = {}
    for user, used in edges:
        packages = [label[2:].split(":")[0] or "." for label in (user, used)]
        if packages[0] == packages[1]:
            continue
        rows = [row_of(p, table) for p in packages]
        for package, row in zip(packages, rows):
            if row is None:
                found[package] = f"{package} is in no row of {TABLE}: give it one"
        if "testing" in packages[1].split("/"):
            found[tuple(packages)] = f"{packages[0]} ships and must not depend on {packages[1]} ({user} -> {used})"
        if None not in rows and rows[1] not in table[rows[0]]:
            found[tuple(packages)] = f"{packages[0]} must not depend on {packages[1]} ({user} -> {used}); see {TABLE}"
    return list(found.values())


def read_edges(text):
    return re.findall(r'"(//[^"]*)" -> "(//[^"]*)"', text)


class DepsTest(unittest.TestCase):
    def test_repository(self):
        with open(TABLE) as table, open(EDGES) as edges:
            edges = read_edges(edges.read())
            self.assertTrue(edges, "the query printed no edges")
            found = problems(edges, read_table(table.read()))
        if found:
            self.fail("\n" + "\n".join(found))

    def test_rules(self):
        table = read_table("third_party/*:\na: third_party/*\nb: a\nc: a\n.: b c\n")
        self.assertEqual(problems([("//b:x", "//a:y"), ("//b:x", "//third_party/absl:base"), ("//:w", "//a:y")], table), [])
        self.assertRegex(problems([("//a:x", "//b:y")], table)[0], "^a must not depend on b")
        self.assertRegex(problems([("//b:x", "//c:y")], table)[0], "^b must not depend on c")
        self.assertRegex(problems([("//a:x", "//a/testing:y")], read_table("a/testing:\na: a/testing\n"))[0], "^a ships")
        self.assertRegex(problems([("//b:x", "//new/room:y")], table)[0], "^new/room is in no row")
        with self.assertRaisesRegex(ValueError, "a names b"):
            read_table("a: b\nb:\n")


if __name__ == "__main__":
    unittest.main()
