#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sum up what several runs of `pfattn check --json` say: count_checks.py FILE..."""
import collections
import json
import sys


def main():
    verdicts = ("passed", "failed", "skipped")
    counts = collections.defaultdict(collections.Counter)
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as f:
            for backend in json.load(f)["backends"]:
                for group in backend["groups"]:
                    for name in (group["operation"], "all"):
                        counts[name].update({v: group[v] for v in verdicts})
    for name in sorted(counts, key=lambda name: (name == "all", name)):
        print(f"{name:14s}", *(f"{counts[name][v]:6d} {v}" for v in verdicts))


if __name__ == "__main__":
    main()
