#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run nvcc and keep what ptxas says of registers, spills and shared memory.

    compile_kernel.py REPORT NVCC ARGUMENT...

The report goes to the file REPORT; only warnings, errors and what a failed run said reach the terminal.
"""
import subprocess
import sys


def main():
    report, command = sys.argv[1], sys.argv[2:]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with open(report, "w", encoding="utf-8") as out:
        out.write(run.stdout)
    for line in run.stdout.splitlines():
        if run.returncode != 0 or "warning" in line.lower() or "error" in line.lower():
            print(line, file=sys.stderr)
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
