#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the tables of docs/performance.md anew from what peers.py measured.

    bench/tables.py docs/performance/RUN.json docs/performance.md

What fills a table is said by its header, whose columns name lengths, peers or features, and by the first cell of each
of its rows; both stay as they are, and so do other tables and all text.
"""
import json
import sys
from collections.abc import Callable
from pathlib import Path

from bars import BARS, LONG

# By the first cell of the header: what the rows measured are called, and the words behind their case.
SWEEPS = {"forward": ("forward", ""), "forward + JVP": ("forward+JVP", ""), "backward": ("backward", ""),
          "deterministic backward": ("backward deterministic", ""), "piecewise forward": ("piecewise forward", ""),
          "piecewise backward": ("piecewise backward", ""), "e5m2 forward": ("forward", " e5m2"),
          "f32 forward": ("forward", " f32")}
# Columns of the table of biases.
BIASES = {"forward": "bias forward", "backward": "bias backward", "with dbias": "bias backward, dbias",
          "mask forward": "u8 mask forward", "mask backward": "u8 mask backward", "JVP": "JVP bias tbias"}

Cells = list[str]
Found = dict[str, dict]  # rows and bars of a run, by what they say they are


def sweep(header: Cells, label: str, found: Found) -> Cells:
    """Full / causal, ours and the ratio for each length, such as "N 512" or "N 4k"."""
    name, end = SWEEPS[header[0]]
    cells = []
    for column in header[1::2]:
        n = column.removeprefix("N ")
        case = f"{name} {label} N{int(n.removesuffix('k')) * (1024 if n.endswith('k') else 1)}"
        pair = [found[f"{case}{causal}{end}"] for causal in ("", " causal")]
        cells.append(" / ".join(f"{row['ours']:.0f}" for row in pair))
        cells.append(" / ".join(f"{row['ratio']:.2f}" for row in pair))
    return cells


def biases(header: Cells, label: str, found: Found) -> Cells:
    """Ours, and in columns "over ..." the ratio of the column before; empty where it was not measured."""
    cells, row = [], None
    for column in header[1:]:
        if column in BIASES:
            row = found.get(f"{BIASES[column]} {label} N{LONG[0]}")
            cells.append(f"{row['ours']:.0f}" if row else "")
        else:
            cells.append(f"{row['ratio']:.2f}" if row else "")
    return cells


def decode(header: Cells, label: str, found: Found) -> Cells:
    """TB/s and the ratio for each number of queries, such as "M 4"."""
    cells = []
    for column in header[1::2]:
        row = found[f"decode {label} {column.replace(' ', '')} N65536"]
        cells += [f"{row['ours'] / 1e3:.2f}", f"{row['ratio']:.2f}"]
    return cells


def verdict(_: Cells, label: str, found: Found) -> Cells:
    v = found[label]
    bar = next(bar for bar in BARS if bar.key == v["key"])
    where = f" ({v['where']})" if v["verdict"] == "missed" and v["where"] else ""
    return [f"{'below ' * bar.below}{v['bar']:g}", f"{v['value']:.{3 if bar.mean else 2}f}", v["verdict"] + where]


def filler(header: Cells) -> Callable[[Cells, str, Found], Cells] | None:
    """What fills the table."""
    if header[0] in SWEEPS and header[1].startswith("N "):
        return sweep
    if header[0] == "" and header[1] == "M 1":
        return decode
    if header[0] == "" and header[1] in BIASES:
        return biases
    return verdict if header[:2] == ["what", "bar"] else None


def split(line: str) -> Cells:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    run, page = Path(sys.argv[1]), Path(sys.argv[2])
    measured = json.loads(run.read_text(encoding="utf-8"))
    found = {row["what"]: row for row in measured["rows"] if "failed" not in row}
    found |= {bar["what"]: bar for bar in measured["bars"] if bar["value"] is not None}
    header, lines = None, []
    for line in page.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            header = None
        elif header is None:
            header = split(line)
        elif not line.startswith("|--") and (fill := filler(header)):
            label = split(line)[0]
            try:
                cells = fill(header, label, found)
            except KeyError as missing:
                sys.exit(f"{run}: {missing.args[0]!r}, for the row {label!r} of {page}, was not measured")
            line = f"| {' | '.join([label, *cells])} |"
        lines.append(line)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
