#!/usr/bin/env python3
"""Tests which runs of lines count as duplicates."""
import unittest

import duplicates

RUN = """int sum(const Row& row) {
  int total = 0;
  for (int v : row.values) {
    if (v < 0) continue;
    total += v;
  }
  check(total, "sum");
  return total;
}
"""
OTHER = "void other(int a) {\n  print(a);\n}\n"


class DuplicatesTest(unittest.TestCase):
    def test_exact(self):
        found = duplicates.find({"a.cc": OTHER + RUN, "b.cc": RUN})
        self.assertEqual(found, [(True, 7, ("a.cc", 4), ("b.cc", 1))])
        self.assertEqual(duplicates.find({"a.cc": RUN + OTHER + RUN}), [(True, 7, ("a.cc", 1), ("a.cc", 13))])

    def test_same_shape(self):
        names = RUN.replace("total", "count").replace('"sum"', '"number"').replace("0", "7")
        self.assertEqual(duplicates.find({"a.cc": RUN, "b.cc": names}), [(False, 7, ("a.cc", 1), ("b.cc", 1))])

    def test_others(self):
        mixed = RUN.replace("total += v", "v += total")  # the same names in other places
        self.assertEqual(duplicates.find({"a.cc": RUN, "b.cc": mixed}), [])
        short = "\n".join(RUN.splitlines()[:5])
        self.assertEqual(duplicates.find({"a.cc": RUN, "b.cc": short}), [])
        table = "".join(f"  row({n}, name{n});\n" for n in range(20))
        self.assertEqual(duplicates.find({"a.cc": table, "b.cc": table}), [])


if __name__ == "__main__":
    unittest.main()
