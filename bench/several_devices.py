#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That one process may use several GPUs at once, by several handles and threads.

    python3 bench/several_devices.py path/to/libpfattn.so

Two threads a device, each with a handle of its own, repeat forward and deterministic backward on a stream of their own
while all others do: each result is right, by attention in float32 in torch, and the same bits every time. A call leaves
the thread's current device as it was, also where the handle is another device's. With one GPU only the last is left
out.
"""
import sys
from concurrent.futures import ThreadPoolExecutor

import torch

from measure import error
from pfattn_torch import BACKWARD, FORWARD, Library
from torch_peers import dense

THREADS, REPEATS = 2, 30
SHAPES = [(2, 3, 520, 64), (1, 4, 333, 128)]
LIMIT = 1e-2  # of the norm of the difference over the norm, in f16


class Problem:
    """Attention of f16 tensors on one device, and what it has to give."""

    def __init__(self, path: str, device: int, seed: int):
        with torch.cuda.device(device):
            self.lib = Library(path)
            torch.manual_seed(seed)
            shape = SHAPES[seed % len(SHAPES)]
            self.q, self.k, self.v, self.dout = (torch.randn(shape, device="cuda").half() for _ in range(4))
            leaves = [x.float().requires_grad_() for x in (self.q, self.k, self.v)]
            out = dense(*leaves, causal=True)
            self.expected = [out.detach(), *torch.autograd.grad(out, leaves, self.dout.float())]
            self.results = [torch.full_like(self.q, float("nan")) for _ in range(4)]
            lse = torch.empty(shape[:3], device="cuda")
            inputs = dict(q=self.q, k=self.k, v=self.v, causal=True)
            o, dq, dk, dv = self.results
            self.calls = [self.lib.prepare(FORWARD, **inputs, o=o, lse=lse),
                          self.lib.prepare(BACKWARD, **inputs, o=o, lse=lse, dout=self.dout, dq=dq, dk=dk, dv=dv,
                                           deterministic=True)]

    def run(self) -> list[torch.Tensor]:
        for call in self.calls:
            call()
        torch.cuda.current_stream().synchronize()
        return [x.clone() for x in self.results]

    def faults(self, results: list[torch.Tensor]) -> int:
        return sum(not error(x, y) < LIMIT for x, y in zip(results, self.expected))


def repeat(path: str, device: int, seed: int) -> list[str]:
    """One thread's work; returns what is wrong."""
    torch.cuda.set_device(device)
    problem = Problem(path, device, seed)
    with torch.cuda.stream(torch.cuda.Stream()):
        first = problem.run()
        if problem.faults(first):
            return [f"device {device}, thread {seed}: wrong results"]
        for _ in range(REPEATS):
            for x in problem.results:
                x.fill_(float("nan"))
            if not all(torch.equal(x, y) for x, y in zip(problem.run(), first)):
                return [f"device {device}, thread {seed}: results differ from the first run's"]
    return []


def call_from_another_device(path: str, device: int) -> list[str]:
    """A handle of `device`, on a stream of it, called while device 0 is current."""
    problem, faults = Problem(path, device, 0), []
    stream = torch.cuda.Stream(device)
    for call in problem.calls:
        problem.lib.check(call.call(*call.arguments, stream.cuda_stream))
    if torch.cuda.current_device() != 0:
        faults.append(f"device {device}: a call made device {torch.cuda.current_device()} current in place of 0")
    stream.synchronize()
    if problem.faults(problem.results):
        faults.append(f"device {device}: wrong results where device 0 is current")
    return faults


def main() -> int:
    path, count = sys.argv[1], torch.cuda.device_count()
    numbers = range(THREADS * count)
    with ThreadPoolExecutor(len(numbers)) as pool:
        faults = sum(pool.map(lambda n: repeat(path, n % count, n), numbers), [])
    torch.cuda.set_device(0)
    for device in range(1, count):
        faults += call_from_another_device(path, device)
    print(f"{count} devices, {len(numbers)} threads:", "; ".join(faults) or "all results right and repeated")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
