#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pfattn beside its peers on one GPU, in one process, on the same torch tensors.

    python3 bench/peers.py path/to/libpfattn.so [--only forward,jvp,...] [--json FILE]

Each row times ours and the peer in turn (A B A B ...), takes medians, and prints ours, the peer and the ratio, in
TFLOP/s (FLOPs as in docs/mathematics.md). Inputs are random normal. The values that are timed are also compared
with the peer's, or with a float32 computation in torch where there is no peer.
"""
import argparse
import json
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

from pfattn_torch import BACKWARD, FORWARD, Library

TOKENS, HIDDEN, ROUNDS = 16384, 2048, 12


def normal(*shape, dtype=torch.float16):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def time_in_turn(*functions):
    """Median seconds of each, taking turns."""
    times = [[] for _ in functions]
    for f in functions:
        f()
        f()
    torch.cuda.synchronize()
    for _ in range(ROUNDS):
        for f, each in zip(functions, times):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            f()
            f()
            stop.record()
            stop.synchronize()
            each.append(start.elapsed_time(stop) / 2e3)
    return [statistics.median(each) for each in times]


def error(x, y):
    x, y = x.float(), y.float()
    return (torch.linalg.vector_norm(x - y) / torch.linalg.vector_norm(y)).item()


def dense_attention(q, k, v, causal):
    """O of one head in float32, the slow way."""
    s = q.float() @ k.float().transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        s += torch.full_like(s, float("-inf")).triu(1)
    return s.softmax(-1) @ v.float()


def flops(b, h, n, d, causal):
    return 4 * b * h * n * n * d * (0.5 if causal else 1)


class Bench:
    def __init__(self, lib):
        self.lib, self.rows = lib, []
        a, b = normal(8192, 8192), normal(8192, 8192)
        seconds, = time_in_turn(lambda: a @ b)
        self.matmul = 2 * 8192 ** 3 / seconds / 1e12
        print(f"fp16 matmul 8192^3: {self.matmul:.0f} TFLOP/s", flush=True)

    def row(self, what, ours, peer, ratio_to, errors):
        """TFLOP/s of ours and of the peer."""
        bad = [e for e in errors if not e < 1e-2]
        self.rows.append(dict(what=what, ours=ours, peer=peer, peer_name=ratio_to,
                              ratio=ours / peer, errors=errors, wrong=bool(bad)))
        print(f"{what:44s} {ours:6.0f} {peer:6.0f} {ratio_to:8s} {ours / peer:5.2f}  "
              f"err {max(errors):.1e}{'  WRONG' if bad else ''}", flush=True)

    def shapes(self, dims, lengths):
        for d in dims:
            for n in lengths:
                for causal in (False, True):
                    yield d, n, causal, (TOKENS // n, HIDDEN // d, n, d)

    def forward(self, dims=(64, 128, 256), lengths=(512, 1024, 2048, 4096, 16384)):
        for d, n, causal, shape in self.shapes(dims, lengths):
            q, k, v = (normal(*shape) for _ in range(3))
            o, lse = torch.empty_like(q), torch.empty(shape[:3], device="cuda")
            ours = self.lib.prepare(FORWARD, q=q, k=k, v=v, o=o, lse=lse, causal=causal)

            def peer():
                with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                    return sdpa(q, k, v, is_causal=causal)
            t, t_peer = time_in_turn(ours, peer)
            work = flops(*shape[:3], d, causal) / 1e12
            self.row(f"forward D{d} N{n} {'causal' if causal else ''}", work / t, work / t_peer,
                     "cuDNN", [error(o, peer())])

    def jvp(self, dims=(64, 128, 256), lengths=(4096, 16384)):
        for d, n, causal, shape in self.shapes(dims, lengths):
            q, k, v, tq, tk, tv = (normal(*shape) for _ in range(6))
            o, to = torch.empty_like(q), torch.empty_like(q)
            lse, tlse = (torch.empty(shape[:3], device="cuda") for _ in range(2))
            ours = self.lib.prepare(FORWARD, q=q, k=k, v=v, tq=tq, tk=tk, tv=tv, o=o, to=to,
                                    lse=lse, tlse=tlse, causal=causal)
            t, = time_in_turn(ours)
            head = [x[-1, -1, :1024].float() for x in (q, k, v, tq, tk, tv)] if causal else [
                x[-1, -1].float() for x in (q, k, v, tq, tk, tv)]
            rows = min(1024, n)
            head[0], head[3] = head[0][:rows], head[3][:rows]
            want, twant = torch.func.jvp(
                lambda a, b, c: dense_attention(a, b, c, causal), tuple(head[:3]), tuple(head[3:]))
            work = 3 * flops(*shape[:3], d, causal) / 1e12
            self.row(f"forward+JVP D{d} N{n} {'causal' if causal else ''}", work / t, self.matmul,
                     "matmul", [error(o[-1, -1, :rows], want), error(to[-1, -1, :rows], twant)])

    def backward(self, dims=(64, 128, 256), lengths=(4096, 16384), deterministic=False):
        for d, n, causal, shape in self.shapes(dims, lengths):
            q, k, v = (normal(*shape).requires_grad_() for _ in range(3))
            dout = normal(*shape)
            o, lse = torch.empty_like(q), torch.empty(shape[:3], device="cuda")
            grads = [torch.empty_like(q) for _ in range(3)]
            data = dict(q=q.detach(), k=k.detach(), v=v.detach())
            self.lib.prepare(FORWARD, **data, o=o.detach(), lse=lse, causal=causal)()
            ours = self.lib.prepare(BACKWARD, **data, o=o.detach(), lse=lse, dout=dout, dq=grads[0],
                                    dk=grads[1], dv=grads[2], causal=causal,
                                    deterministic=deterministic)
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                out = sdpa(q, k, v, is_causal=causal)

            def peer():
                return torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)
            t, t_peer = time_in_turn(ours, peer)
            work = 2.5 * flops(*shape[:3], d, causal) / 1e12
            name = "backward deterministic" if deterministic else "backward"
            self.row(f"{name} D{d} N{n} {'causal' if causal else ''}", work / t, work / t_peer,
                     "cuDNN", [error(a, b) for a, b in zip(grads, peer())])

    def deterministic(self):
        self.backward(dims=(64, 128), lengths=(4096,), deterministic=True)

    def piecewise(self, dims=(64, 128), lengths=(4096, 16384)):
        """Against our own kernel without pieces; threshold N/2."""
        for d, n, causal, shape in self.shapes(dims, lengths):
            q, k, v, q2, k2, dout = (normal(*shape) for _ in range(6))
            o, lse = torch.empty_like(q), torch.empty(shape[:3], device="cuda")
            plain = self.lib.prepare(FORWARD, q=q, k=k, v=v, o=o, lse=lse, causal=causal)
            ours = self.lib.prepare(FORWARD, q=q, k=k, v=v, q2=q2, k2=k2, distance=n // 2, o=o,
                                    lse=lse, causal=causal)
            t_plain, t = time_in_turn(plain, ours)
            work = flops(*shape[:3], d, causal) / 1e12
            rows = slice(n - 256, n)
            near, far = (x[-1, -1, rows].float() @ y[-1, -1].float().T / d ** 0.5
                         for x, y in ((q, k), (q2, k2)))
            i = torch.arange(n, device="cuda")
            x = i[rows, None] - i[None]
            s = torch.where(x >= n // 2, far, near)
            s = s.masked_fill(x < 0, float("-inf")) if causal else s
            ours()
            self.row(f"piecewise forward D{d} N{n} {'causal' if causal else ''}", work / t,
                     work / t_plain, "plain", [error(o[-1, -1, rows], s.softmax(-1) @ v[-1, -1].float())])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--only", default="forward,jvp,backward,deterministic,piecewise")
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.manual_seed(0)
    bench = Bench(Library(options.library))
    print(f"{'':44s} {'ours':>6s} {'peer':>6s} {'':8s} ratio")
    for name in options.only.split(","):
        getattr(bench, name)()
        torch.cuda.empty_cache()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(dict(device=torch.cuda.get_device_name(), torch=torch.__version__,
                           cudnn=torch.backends.cudnn.version(), matmul=bench.matmul,
                           rows=bench.rows), f, indent=1)
    return any(row["wrong"] for row in bench.rows)


if __name__ == "__main__":
    sys.exit(main())
