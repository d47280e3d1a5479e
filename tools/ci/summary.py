#!/usr/bin/env python3
"""summary.py (TESTLOGS STATUS)...: counts the test cases in all test.xml files; prints `N passed, N failed, N skipped`.

STATUS is the exit code of `bazel test`, or `stopped` if a run may end early. If it is another code than 0 and no test
case failed, the build or a test's process failed, which counts as one failure. Exits with 0 only if nothing failed and
tests passed in each run; a stopped run may have none.
"""
import pathlib
import sys
import xml.etree.ElementTree as ET


def count(testlogs):
    passed = failed = skipped = 0
    for path in sorted(pathlib.Path(testlogs).rglob("test.xml")):
        try:
            cases = list(ET.parse(path).getroot().iter("testcase"))
        except ET.ParseError as error:
            print(f"summary: {path}: {error}")
            failed += 1
            continue
        for case in cases:
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
            elif case.find("skipped") is not None or case.get("status") == "notrun":
                skipped += 1
            else:
                passed += 1
    return passed, failed, skipped


def main():
    runs = list(zip(sys.argv[1::2], sys.argv[2::2]))
    if not runs or len(sys.argv) % 2 == 0 or not all(s.isdigit() or s == "stopped" for _, s in runs):
        sys.exit("usage: summary.py (TESTLOGS STATUS)...")
    totals, empty = [0, 0, 0], False
    for testlogs, status in runs:
        passed, failed, skipped = count(testlogs)
        stopped = status == "stopped"
        if not stopped and int(status) and not failed:
            print(f"summary: no test case failed, but bazel ended with {status}: a failed build, or a test's process")
            failed = 1
        empty |= not passed and not stopped
        totals = [a + b for a, b in zip(totals, (passed, failed, skipped))]
    print("{} passed, {} failed, {} skipped".format(*totals))
    return 1 if totals[1] or empty else 0


if __name__ == "__main__":
    sys.exit(main())
