#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That calls can be captured in a CUDA graph, and that the library's own graphs of calls that repeat are right.

    python3 bench/graph_capture.py path/to/libpfattn.so

Replays of a captured graph with new contents equal direct calls bit for bit, also where the capturing thread makes
other calls meanwhile, on a stream that is not captured. Calls in turn on two sets of tensors that differ in their
addresses alone, on two streams, equal first calls of a new handle.
"""
import sys

import torch

from pfattn_torch import BACKWARD, BACKWARD_JVP, FORWARD, Library

SHAPES = [(2, 3, 200, 64), (1, 4, 333, 128), (1, 2, 130, 40)]
ROUNDS = 24


class Tensors:
    """The operands and results of every operation."""

    def __init__(self, shape, dtype):
        self.shape = shape
        self.inputs = {name: torch.randn(shape, device="cuda").to(dtype)
                       for name in ("q", "k", "v", "tq", "tk", "tv", "dout", "tdout")}
        self.mask = (torch.rand(1, 1, shape[2], shape[2], device="cuda") < 0.8).to(torch.uint8)
        self.outputs = {name: torch.empty_like(self.inputs["q"])
                        for name in ("o", "to", "dq", "dk", "dv", "tdq", "tdk", "tdv")}
        self.outputs |= {name: torch.empty(shape[:3], device="cuda") for name in ("lse", "tlse")}

    def prepare(self, lib):
        """A call of each operation."""
        t, out = self.inputs, self.outputs
        given = dict(q=t["q"], k=t["k"], v=t["v"], causal=True, mask=self.mask)
        tangents = {name: t[name] for name in ("tq", "tk", "tv")}
        saved = dict(o=out["o"], lse=out["lse"])
        tangents_saved = dict(to=out["to"], tlse=out["tlse"])
        return [
            lib.prepare(FORWARD, **given, **tangents, **saved, **tangents_saved),
            lib.prepare(BACKWARD, **given, **saved, dout=t["dout"], dq=out["dq"], dk=out["dk"], dv=out["dv"],
                        deterministic=True),
            lib.prepare(BACKWARD_JVP, **given, **tangents, **saved, **tangents_saved, dout=t["dout"],
                        tdout=t["tdout"], tdq=out["tdq"], tdk=out["tdk"], tdv=out["tdv"], deterministic=True),
        ]

    def renew(self):
        for x in self.inputs.values():
            x.copy_(torch.randn(self.shape, device="cuda"))

    def clear(self):
        for x in self.outputs.values():
            x.fill_(float("nan"))

    def results(self):
        torch.cuda.synchronize()
        return {name: x.clone() for name, x in self.outputs.items()}


def run(operations):
    for call in operations:
        call()


def differing(results, expected):
    """Names of results that are not as expected, or not there."""
    return [name for name, x in results.items() if not torch.equal(x, expected[name]) or x.isnan().any()]


def captured(path, shape, dtype):
    """What replays of a captured graph get wrong, and calls beside the capture."""
    tensors, beside, lib = Tensors(shape, dtype), Tensors(shape, dtype), Library(path)
    operations, operations_beside = tensors.prepare(lib), beside.prepare(Library(path))
    run(operations)
    run(operations_beside)
    expected = beside.results()
    beside.clear()
    torch.cuda.synchronize()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        run(operations)
        with torch.cuda.stream(side):
            for _ in range(2):
                run(operations_beside)
    wrong = [f"{name}: a call beside a capture differs" for name in differing(beside.results(), expected)]
    tensors.renew()
    tensors.clear()
    graph.replay()
    replayed = tensors.results()
    run(operations)
    return wrong + [f"{name}: a replay differs from a direct call"
                    for name in differing(tensors.results(), replayed)]


def repeated(path, shape, dtype):
    """What calls that repeat, at these addresses or those, get wrong."""
    lib, sets = Library(path), [Tensors(shape, dtype) for _ in range(2)]
    calls = [tensors.prepare(lib) for tensors in sets]
    expected = []
    for tensors in sets:
        tensors.clear()
        run(tensors.prepare(Library(path)))
        expected.append(tensors.results())
    streams, wrong = [torch.cuda.Stream() for _ in range(2)], set()
    for i in range(ROUNDS):
        for tensors in sets:
            tensors.clear()
        torch.cuda.synchronize()
        # One set twice, the other, or both in one stream or in two.
        order = [[0, 0], [1, 1], [0, 1], [1, 0, 1]][i % 4]
        for n in order:
            with torch.cuda.stream(streams[n if i % 8 > 5 else i // 12]):
                run(calls[n])
        for n in set(order):
            wrong |= {f"{name}: a repeated call differs from a first one"
                      for name in differing(sets[n].results(), expected[n])}
    return sorted(wrong)


def main():
    path, failures = sys.argv[1], 0
    for shape in SHAPES:
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            for test in (captured, repeated):
                for fault in test(path, shape, dtype):
                    print(f"{shape} {dtype} {fault}")
                    failures += 1
    print("graph capture:", f"{failures} failures" if failures else "replays and repeated calls equal direct calls")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
