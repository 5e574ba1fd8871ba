# SPDX-License-Identifier: Apache-2.0
"""What embed_images refuses: usage: test_embed_faults.py EMBED_IMAGES"""
import os
import subprocess
import sys
import tempfile

tool = sys.argv[1]


def check(files, status, message):
    out = os.path.join(directory, "out.c")
    run = subprocess.run(
        [tool, "--table", "t", "--output", out] + files, capture_output=True, text=True
    )
    assert run.returncode == status, (files, run)
    assert message in run.stderr, (files, run)
    assert not os.path.exists(out)


with tempfile.TemporaryDirectory() as directory:
    full = os.path.join(directory, "a.bin")
    empty = os.path.join(directory, "b.bin")
    with open(full, "w") as file:
        file.write("x")
    open(empty, "w").close()
    check([], 2, "usage")
    check([empty], 1, "b.bin: is empty")
    check([full, os.path.join(directory, "none")], 1, "none: cannot be read")
    check([full, "a=" + full], 1, "a.bin: has the same name as another image")
    check(['a"b=' + full], 1, "cannot be embedded")
