#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw the results of `pfattn bench`, one picture a sweep.

    pfattn bench --preset flashattention --csv bench.csv
    scripts/plot_bench.py bench.csv [more.csv more.json ...] [--out DIR] [--format png|svg|pdf]

A sweep is every sequence length of one operation, type, head dimension, causal or not, with the same
features. Each picture has a line for every file and device that measured it, so several files compare
backends, versions, or another library written in the same columns. Needs matplotlib."""
import argparse
import csv
import json
import os
import sys

NUMBERS = ("batch", "heads", "kv_heads", "queries", "keys", "dim_qk", "dim_v", "causal")


def read_rows(path):
    """The rows of a CSV or JSON file, their values as text or numbers."""
    with open(path, encoding="utf-8", newline="") as file:
        if path.endswith(".json"):
            document = json.load(file)
            rows = [dict(row, preset=document.get("preset", "")) for row in document["rows"]]
        else:
            rows = list(csv.DictReader(file))
    for row in rows:
        for name in NUMBERS:
            row[name] = int(row[name])
        for name in ("seconds", "tflops", "gigabytes_per_second"):
            row[name] = float(row[name])
        row["piecewise"] = row.get("distance", "") not in ("", None)
    return rows


def sweep_of(row):
    return (row.get("preset", ""), row["op"], row["dtype"], row["dim_qk"], row["dim_v"],
            row["causal"], row["piecewise"], row["bias"])


def title_of(sweep):
    preset, op, dtype, dim_qk, dim_v, causal, piecewise, bias = sweep
    dim = f"D {dim_qk}" if dim_qk == dim_v else f"D {dim_qk}, E {dim_v}"
    words = [op, dtype, dim]
    if op != "merge":
        words.append("causal" if causal else "not causal")
    words += ["piecewise"] if piecewise else []
    words += [f"{bias} bias"] if bias not in ("none", "") else []
    return ", ".join(words) + (f" ({preset})" if preset else "")


def name_of(sweep):
    words = title_of(sweep).replace(",", "").replace("(", "").replace(")", "")
    return words.replace(" ", "-")


def collect(paths):
    """{sweep: {label of a line: [row, ...]}}"""
    sweeps = {}
    for path in paths:
        for row in read_rows(path):
            label = row["device"]
            if len(paths) > 1:
                label = f"{os.path.splitext(os.path.basename(path))[0]}, {label}"
            sweeps.setdefault(sweep_of(row), {}).setdefault(label, []).append(row)
    return sweeps


def draw(pyplot, sweep, lines, path):
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    # A merge has no FLOPs to speak of: memory bounds it.
    quantity, unit = ("gigabytes_per_second", "GB/s") if sweep[1] == "merge" else ("tflops", "TFLOP/s")
    lengths = sorted({row["keys"] for rows in lines.values() for row in rows})
    for label, rows in sorted(lines.items()):
        rows = sorted(rows, key=lambda row: row["keys"])
        axes.plot([row["keys"] for row in rows], [row[quantity] for row in rows], marker="o",
                  label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("sequence length")
    axes.set_ylabel(unit)
    axes.set_title(title_of(sweep))
    axes.grid(True, alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="CSV or JSON files of `pfattn bench`")
    parser.add_argument("--out", default=".", help="directory of the pictures (default: here)")
    parser.add_argument("--format", default="png", choices=("png", "svg", "pdf"))
    arguments = parser.parse_args()
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        sys.exit("plot_bench.py needs matplotlib: pip install matplotlib, or apt-get install "
                 "python3-matplotlib")
    try:
        sweeps = collect(arguments.files)
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"plot_bench.py: not a result of `pfattn bench`: {error}")
    os.makedirs(arguments.out, exist_ok=True)
    for sweep, lines in sorted(sweeps.items()):
        path = os.path.join(arguments.out, f"{name_of(sweep)}.{arguments.format}")
        draw(pyplot, sweep, lines, path)
        print(path)


if __name__ == "__main__":
    main()
