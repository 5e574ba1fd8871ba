#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pfattn beside its peers on one GPU, in one process, on the same torch tensors.

    python3 bench/peers.py path/to/libpfattn.so [--rows forward,jvp,...] [--types f16,bf16] [--peers cuDNN,...]
                           [--json FILE]

Each row times ours and what it is set against in turn (A B A B ...), takes medians, and prints ours, the other and
the ratio, in TFLOP/s (FLOPs as in docs/mathematics.md) unless it says otherwise. Inputs are random normal. The values
that are timed are also compared with the peer's, or with a float32 computation in torch where there is no peer. A row
that fails says why and stops no other. The summary sets the worst row of each kind against its bar (bars.py).
"""
import argparse
import sys

import torch

from measure import Bench, release
from pfattn_torch import Library
from rows import ROWS
from torch_peers import NAMES


def names_from(known):
    """A comma-separated list of known names."""
    def parse(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return names
    return parse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--rows", type=names_from(ROWS), default=list(ROWS), help=",".join(ROWS))
    parser.add_argument("--types", type=names_from(("f16", "bf16")), default=["f16", "bf16"],
                        help="of forward, jvp and backward; bf16 at N 4096 alone")
    parser.add_argument("--peers", type=names_from(NAMES), default=list(NAMES),
                        help=f"those that the bias rows use, of {','.join(NAMES)}")
    parser.add_argument("--json", help="written again after each set of rows")
    options = parser.parse_args()
    torch.manual_seed(0)
    bench = Bench(Library(options.library), options.types, options.peers)
    print(f"{'':44s} {'ours':>6s} {'other':>6s} {'':10s} ratio")
    for name in options.rows:
        with bench.group(name):
            ROWS[name](bench)
        release()
        if options.json:
            bench.write_json(options.json)
    bench.print_summary()
    return any("failed" in row or row["wrong"] for row in bench.rows)


if __name__ == "__main__":
    sys.exit(main())
