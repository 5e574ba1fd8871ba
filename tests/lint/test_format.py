# SPDX-License-Identifier: Apache-2.0
"""Every C, C++ and device source is as clang-format 14 leaves it.

usage: test_format.py SOURCE_ROOT [CLANG_FORMAT]
Other versions format differently; where version 14 is not found the test is skipped.
"""
import os
import subprocess
import sys

root = sys.argv[1]
if len(sys.argv) < 3:
    print("skipped: clang-format 14 is not here")
    sys.exit(77)

files = []
for tree in ["bindings", "examples", "include", "src", "tests", "tools"]:
    for folder, _, names in os.walk(os.path.join(root, tree)):
        files += [
            os.path.join(folder, name)
            for name in names
            if name.endswith((".c", ".h", ".cu", ".cuh", ".hip", ".cpp", ".hpp"))
        ]

run = subprocess.run(
    [sys.argv[2], "--dry-run", "--Werror", "--ferror-limit=1", *sorted(files)],
    capture_output=True,
    text=True,
)
print(run.stderr or f"{len(files)} files are formatted")
sys.exit(1 if run.returncode else 0)
