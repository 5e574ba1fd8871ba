# SPDX-License-Identifier: Apache-2.0
"""Add up the results of several Meson test logs: count_tests.py FAILURES TESTLOG.json ...

FAILURES counts the steps that failed as a whole. Prints each test that failed or was skipped and
ends with "N passed, N failed, N skipped"; fails where a test or a step failed or none ran."""
import json
import sys

PASSED, SKIPPED = {"OK", "EXPECTEDFAIL"}, {"SKIP"}


def main():
    steps_failed = int(sys.argv[1])
    passed, failed, skipped, missing = 0, 0, 0, 0
    for path in sys.argv[2:]:
        try:
            lines = open(path).read().splitlines()
        except FileNotFoundError:
            missing += 1
            print(f"{path} is missing: its build failed")
            continue
        for test in map(json.loads, lines):
            if test["result"] in PASSED:
                passed += 1
            elif test["result"] in SKIPPED:
                skipped += 1
                why = (test.get("stdout") or "no reason given").strip().splitlines()[-1]
                print(f"skipped {path.split('/')[0]}: {test['name']}: {why}")
            else:
                failed += 1
                print(f"{test['result'].lower()} {path.split('/')[0]}: {test['name']}")
    print(f"{passed} passed, {failed + missing} failed, {skipped} skipped")
    return 1 if failed or missing or steps_failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
