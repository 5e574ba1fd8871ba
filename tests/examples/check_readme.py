# SPDX-License-Identifier: Apache-2.0
"""The C example in README.md is examples/attention.c word for word, so that what a reader copies is
what the tests compile and run: check_readme.py README.md examples/attention.c"""
import re
import sys


def main():
    readme, example = (open(path).read() for path in sys.argv[1:3])
    shown = re.search(r"^```c\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    if shown is None:
        print("README.md has no block of C")
        return 1
    if shown.group(1) != example.split("\n", 1)[1]:
        print("the C block of README.md differs from examples/attention.c")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
