#!/usr/bin/env python3
"""Dependencies between packages follow the table tools/lint/layers.bzl, and none leads to test support.

Bazel's query prints the edges of the programs and libraries listed in tools/lint/BUILD.
"""
import os
import re
import types
import unittest

TABLE = "tools/lint/layers.bzl"
EDGES = "tools/lint/edges.txt"


def run_table(text):
    """The names that layers.bzl defines; it is a program in Python too."""
    names = {"struct": types.SimpleNamespace}
    exec(compile(text, TABLE, "exec"), names)
    return names


def read_layers(text):
    return run_table(text)["LAYERS"]


with open(os.path.join(os.path.dirname(os.path.realpath(__file__)), "layers.bzl")) as _file:
    _table = run_table(_file.read())
LAYERS, TEST_SUPPORT, row_of = _table["LAYERS"], _table["TEST_SUPPORT"], _table["row_of"]


def check_layers(layers):
    """Returns {row: rows it may use, itself too unless its packages are apart}. A row names only rows above it, and the
    core names no wing."""
    reach = {}
    for name, row in layers.items():
        reach[name] = set() if row.apart else {name}
        for other in row.uses + row.wings:
            if other not in reach:
                raise ValueError(f"{TABLE}: {name} names {other}, which is no row above it")
            if other in row.uses and layers[other].wing and not row.wing:
                raise ValueError(f"{TABLE}: {name} is in the core and names the wing {other}; need it in `wings`")
            reach[name].add(other)
            reach[name] |= {r for r in reach[other] if row.wing or other in row.wings or not layers[r].wing}
    return reach


def rows_of_tests(layers, reach):
    """Returns {row: rows that its tests may use}; `reach` is the result of check_layers."""
    out = {}
    for name, row in layers.items():
        out[name] = reach[name] | {TEST_SUPPORT}
        for other in row.tests:
            if other not in layers:
                raise ValueError(f"{TABLE}: the tests of {name} name {other}, which is no row")
            out[name] |= reach[other] | {other}
    return out


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
        with open(EDGES) as file:
            edges = read_edges(file.read())
        self.assertTrue(edges, "the query printed no edges")
        found = problems(edges, check_layers(LAYERS))
        if found:
            self.fail("\n" + "\n".join(found))

    def test_rules(self):
        def parsed(**rows):
            head = "def room(uses=[], wing=False, wings=[], tests=[], apart=False):\n    return struct(**locals())\n"
            rows = "".join(f"'{name}': room({row}),\n" for name, row in rows.items())
            return read_layers(f"{head}LAYERS = {{{rows}}}")

        def table(**rows):
            return check_layers(parsed(**rows))

        layers = table(**{"third_party/*": "", "a": "['third_party/*']", "b": "['a']", "c": "['a'], wing=True",
                          ".": "['b'], wings=['c']"})
        allowed = [("//b:x", "//a:y"), ("//b:x", "//third_party/absl:base"), ("//:w", "//c:y")]
        self.assertEqual(problems(allowed, layers), [])
        self.assertRegex(problems([("//a:x", "//b:y")], layers)[0], "^a must not depend on b")
        self.assertRegex(problems([("//b:x", "//c:y")], layers)[0], "^b must not depend on c")
        shipping = table(**{"a/testing": "", "a": "['a/testing']"})
        self.assertRegex(problems([("//a:x", "//a/testing:y")], shipping)[0], "^a ships")
        self.assertRegex(problems([("//b:x", "//new/room:y")], layers)[0], "^new/room is in no row")
        with self.assertRaisesRegex(ValueError, "a names b"):
            table(a="['b']", b="")
        with self.assertRaisesRegex(ValueError, "a is in the core and names the wing w"):
            table(w="[], wing=True", a="['w']")
        # Packages of one row may use each other, unless they are apart.
        for apart, found in ("", 0), ("apart=True", 1):
            layers = table(**{"m/*": apart, "n": "['m/*']"})
            self.assertEqual(len(problems([("//m/a:x", "//m/b:y"), ("//n:x", "//m/b:y")], layers)), found)
        # Only the row that names a wing may use it.
        layers = table(w="[], wing=True", a="[], wings=['w']", b="['a']")
        self.assertRegex(problems([("//b:x", "//w:y")], layers)[0], "^b must not depend on w")
        # Tests may use wings and rows below.
        layers = parsed(a="tests=['c']", b="", w="[], wing=True", c="['b'], wings=['w']")
        self.assertEqual(rows_of_tests(layers, check_layers(layers))["a"], {"a", "b", "c", "w", TEST_SUPPORT})
        with self.assertRaisesRegex(ValueError, "the tests of a name b"):
            layers = parsed(a="tests=['b']")
            rows_of_tests(layers, check_layers(layers))


if __name__ == "__main__":
    unittest.main()
