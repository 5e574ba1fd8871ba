# SPDX-License-Identifier: Apache-2.0
"""Run a program and compare what it prints: check_output.py EXPECTED PROGRAM [ARGUMENT]...

EXPECTED is a file. Runs of white space count as one space."""
import subprocess
import sys


def main():
    with open(sys.argv[1]) as file:
        want = file.read().split()
    result = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE, text=True, check=False)
    sys.stdout.write(result.stdout)
    if result.returncode != 0:
        print(f"exit status {result.returncode}")
        return 1
    if result.stdout.split() != want:
        print("expected: " + " ".join(want))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
