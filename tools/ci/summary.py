#!/usr/bin/env python3
"""summary.py TESTLOGS STATUS: adds up every test.xml under TESTLOGS and prints `N passed, N failed, N skipped`.

STATUS is the exit code of `bazel test`. Where it is not 0 and no test case failed, the build or a test's process did,
and that counts as one failure. Exits with 0 only if tests passed and nothing failed.
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
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        sys.exit("usage: summary.py TESTLOGS STATUS")
    passed, failed, skipped = count(sys.argv[1])
    status = int(sys.argv[2])
    if status and not failed:
        print(f"summary: no test case failed, but bazel ended with {status}: a failed build, or a test's process")
        failed = 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
