# SPDX-License-Identifier: Apache-2.0
"""Every option that docs/command.md names is one that the command's own help lists:
check_command_doc.py docs/command.md PFATTN"""
import re
import subprocess
import sys

OPTION = re.compile(r"--[a-z][a-z0-9-]*")


def main():
    with open(sys.argv[1]) as file:
        named = set(OPTION.findall(file.read()))
    known = set()
    for command in ("info", "run", "check", "bench", "tune"):
        help_text = subprocess.run([sys.argv[2], command, "--help"], stdout=subprocess.PIPE,
                                   text=True, check=True).stdout
        known |= set(OPTION.findall(help_text))
    unknown = sorted(named - known)
    if unknown:
        print("docs/command.md names options that do not exist: " + ", ".join(unknown))
    return 1 if unknown or not named else 0


if __name__ == "__main__":
    sys.exit(main())
