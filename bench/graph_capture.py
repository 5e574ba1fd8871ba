#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That calls can be captured in a CUDA graph: replays with new contents equal direct calls bit for bit.

    python3 bench/graph_capture.py path/to/libpfattn.so
"""
import sys

import torch

from pfattn_torch import BACKWARD, BACKWARD_JVP, FORWARD, Library

SHAPES = [(2, 3, 200, 64), (1, 4, 333, 128), (1, 2, 130, 40)]


def calls(lib, shape, dtype):
    """Every operation on one set of tensors: (name, call, outputs)."""
    t = {name: torch.randn(shape, device="cuda").to(dtype)
         for name in ("q", "k", "v", "tq", "tk", "tv", "dout", "tdout")}
    out = {name: torch.empty_like(t["q"]) for name in ("o", "to", "dq", "dk", "dv", "tdq", "tdk", "tdv")}
    stats = {name: torch.empty(shape[:3], device="cuda") for name in ("lse", "tlse")}
    mask = (torch.rand(1, 1, shape[2], shape[2], device="cuda") < 0.8).to(torch.uint8)
    primal = {name: t[name] for name in "qkv"}
    tangents = {name: t[name] for name in ("tq", "tk", "tv")}
    common = dict(causal=True, mask=mask)
    yield t, [
        lib.prepare(FORWARD, **primal, **tangents, **common, o=out["o"], lse=stats["lse"], to=out["to"],
                    tlse=stats["tlse"]),
        lib.prepare(BACKWARD, **primal, **common, o=out["o"], lse=stats["lse"], dout=t["dout"],
                    dq=out["dq"], dk=out["dk"], dv=out["dv"], deterministic=True),
        lib.prepare(BACKWARD_JVP, **primal, **tangents, **common, o=out["o"], lse=stats["lse"],
                    to=out["to"], tlse=stats["tlse"], dout=t["dout"], tdout=t["tdout"],
                    tdq=out["tdq"], tdk=out["tdk"], tdv=out["tdv"], deterministic=True),
    ], {**out, **stats}


def main():
    lib, failures = Library(sys.argv[1]), 0
    for shape in SHAPES:
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            for inputs, operations, outputs in calls(lib, shape, dtype):
                for call in operations:
                    call()
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    for call in operations:
                        call()
                for x in inputs.values():
                    x.copy_(torch.randn(shape, device="cuda"))
                for x in outputs.values():
                    x.fill_(float("nan"))
                graph.replay()
                torch.cuda.synchronize()
                replayed = {name: x.clone() for name, x in outputs.items()}
                for call in operations:
                    call()
                torch.cuda.synchronize()
                for name, x in outputs.items():
                    same = torch.equal(replayed[name], x) and not x.isnan().any()
                    failures += not same
                    if not same:
                        print(f"{shape} {dtype} {name}: a replay differs from a direct call")
    print("graph capture:", f"{failures} failures" if failures else "replays equal direct calls")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
