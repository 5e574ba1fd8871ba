# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmark, a function for each set of them; ROWS names them all.

Each row says what it measures, which bars (bars.py) it counts for, and what ours is set against: peers of
torch_peers.py, or our own kernel without the feature.
"""
import gc
import statistics
import time

import torch

import torch_peers
from bars import BACKWARD as BACKWARD_FLOPS
from bars import BIAS_HIDDEN, BIAS_TOKENS, JVP, LONG, MATMUL, NOMINAL_BANDWIDTH, SHORT, Case, cases
from measure import Bench, error
from pfattn_torch import BACKWARD, FORWARD
from torch_peers import dense_backward, dense_forward, dense_jvp, last_head

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "e5m2": torch.float8_e5m2}


def normal(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def normals(case: Case, names: str) -> dict[str, torch.Tensor]:
    """Tensors of the case's shape by name."""
    return {name: normal(*case.shape, dtype=TYPES[case.dtype]) for name in names.split()}


def results(q: torch.Tensor, names: str = "o lse", dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """Outputs of a call with these queries by name."""
    return {name: torch.empty(q.shape[:3], device="cuda") if "lse" in name else torch.empty_like(q, dtype=dtype)
            for name in names.split()}


def grads(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"d{name}": torch.empty_like(x) for name, x in inputs.items()}


def with_tangents(inputs: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """A tangent for each input: by the input's own name, and as the library names them together with the inputs."""
    tangents = {name: torch.randn_like(x) for name, x in inputs.items()}
    return tangents, {**inputs, **{f"t{name}": x for name, x in tangents.items()}}


def rows_of(x: torch.Tensor) -> torch.Tensor:
    """What dense_forward computes of an output."""
    return last_head({"q": x})["q"]


def prepare_backward(bench: Bench, inputs: dict, dout: torch.Tensor, outputs: dict, **options):
    """Our backward, from the o and lse of a forward call made here."""
    saved = results(inputs["q"])
    deterministic = options.pop("deterministic", False)
    bench.lib.prepare(FORWARD, **inputs, **saved, **options)()
    return bench.lib.prepare(BACKWARD, **inputs, **saved, dout=dout, **outputs, deterministic=deterministic,
                             **options)


def errors_of(outputs: dict[str, torch.Tensor], want) -> list[float]:
    return [error(x, y) for x, y in zip(outputs.values(), want, strict=True)]


# ---- plain attention -------------------------------------------------------------------------


def forward(bench: Bench) -> None:
    for case in cases(lengths=SHORT + LONG, types=bench.types):
        bars = ("forward", "forward mean") if case.n in LONG else ("forward short",)
        with bench.attempt(f"forward {case}", *bars) as row:
            x = normals(case, "q k v")
            out = results(x["q"])
            ours = bench.lib.prepare(FORWARD, **x, **out, causal=case.causal)
            row.compare(case.flops, ours,
                        {"cuDNN": lambda: torch_peers.forward("cuDNN", **x, causal=case.causal)},
                        lambda peer: [error(out["o"], peer())], dtype=case.dtype)


def backward(bench: Bench) -> None:
    for case in cases(types=bench.types):
        with bench.attempt(f"backward {case}", "backward 256" if case.d == 256 else "backward") as row:
            x = normals(case, "q k v")
            out, dout = grads(x), torch.randn_like(x["q"])
            ours = prepare_backward(bench, x, dout, out, causal=case.causal)
            row.compare(BACKWARD_FLOPS * case.flops, ours,
                        {"cuDNN": lambda: torch_peers.backward("cuDNN", **x, dout=dout, causal=case.causal)},
                        lambda peer: errors_of(out, peer()), dtype=case.dtype)


def deterministic(bench: Bench) -> None:
    for case in cases():
        with bench.attempt(f"backward deterministic {case}", "deterministic") as row:
            x = normals(case, "q k v")
            out, default, dout = grads(x), grads(x), torch.randn_like(x["q"])
            ours, plain = (prepare_backward(bench, x, dout, to, causal=case.causal, deterministic=to is out)
                           for to in (out, default))
            row.compare(BACKWARD_FLOPS * case.flops, ours, {"default": lambda: plain},
                        lambda _: errors_of(out, default.values()))


def f32(bench: Bench) -> None:
    for case in cases(lengths=(SHORT[1], LONG[0]), types=["f32"]):
        with bench.attempt(f"forward {case}", "f32") as row:
            x = normals(case, "q k v")
            out = results(x["q"])
            ours = bench.lib.prepare(FORWARD, **x, **out, causal=case.causal)
            row.compare(case.flops, ours,
                        {"efficient": lambda: torch_peers.forward("efficient", **x, causal=case.causal)},
                        lambda peer: [error(out["o"], peer())], dtype="f32")


def e5m2(bench: Bench) -> None:
    """O in f16, as with f16 inputs."""
    for case in cases(types=["e5m2"]):
        with bench.attempt(f"forward {case}", "e5m2") as row:
            x = normals(case, "q k v")
            out, out16 = (results(x["q"], dtype=torch.float16) for _ in range(2))
            ours, plain = (bench.lib.prepare(FORWARD, **inputs, **to, causal=case.causal) for inputs, to in
                           ((x, out), ({name: t.half() for name, t in x.items()}, out16)))
            row.compare(case.flops, ours, {"f16": lambda: plain},
                        lambda _: [error(rows_of(out["o"]), dense_forward(x, causal=case.causal))], dtype="e5m2")


def gqa(bench: Bench, group: int = 8) -> None:
    """Against one head of keys and values for each head of queries."""
    for case in cases():
        causal = case.causal
        x = normals(case, "q k v")
        b, h, n, d = case.shape
        shared = dict(q=x["q"], k=normal(b, h // group, n, d), v=normal(b, h // group, n, d))
        with bench.attempt(f"GQA {group}:1 forward {case}", "gqa") as row:
            out, out_plain = results(x["q"]), results(x["q"])
            ours = bench.lib.prepare(FORWARD, **shared, **out, causal=causal)
            plain = bench.lib.prepare(FORWARD, **x, **out_plain, causal=causal)
            row.compare(case.flops, ours, {"plain": lambda: plain},
                        lambda _: [error(rows_of(out["o"]), dense_forward(shared, causal=causal))])
        with bench.attempt(f"GQA {group}:1 backward {case}", "gqa") as row:
            out, out_plain, dout = grads(shared), grads(x), torch.randn_like(x["q"])
            ours = prepare_backward(bench, shared, dout, out, causal=causal)
            plain = prepare_backward(bench, x, dout, out_plain, causal=causal)
            row.compare(BACKWARD_FLOPS * case.flops, ours, {"plain": lambda: plain},
                        lambda _: errors_of(out, torch_peers.backward("cuDNN", **shared, dout=dout, causal=causal,
                                                                      group=group)()))


# ---- tangents and piecewise attention --------------------------------------------------------


def jvp(bench: Bench) -> None:
    """Against a matmul; see bars.py."""
    for case in cases(types=bench.types):
        with bench.attempt(f"forward+JVP {case}", f"jvp {case.d}") as row:
            x = normals(case, "q k v")
            tangents, given = with_tangents(x)
            out = results(x["q"], "o lse to tlse")
            ours = bench.lib.prepare(FORWARD, **given, **out, causal=case.causal)
            row.compare(JVP * case.flops, ours, {"matmul": lambda: bench.matmul},
                        lambda _: errors_of({name: rows_of(out[name]) for name in ("o", "to")},
                                            dense_jvp(x, tangents, causal=case.causal)),
                        peer_work=2 * MATMUL ** 3, dtype=case.dtype)


def jvp_feature(bench: Bench, case: Case, name: str, bar: str, extra: dict, least_bytes: float = 0,
                **options) -> None:
    """JVP with further inputs against the plain one, or against the time to read `least_bytes` where that is more."""
    with bench.attempt(f"{name} {case}", bar) as row:
        plain_x = normals(case, "q k v")
        x = {**plain_x, **extra}
        tangents, given = with_tangents(x)
        out, out_plain = (results(x["q"], "o lse to tlse") for _ in range(2))
        ours = bench.lib.prepare(FORWARD, **given, **out, causal=case.causal, **options)
        plain_given = {key: given[key] for key in ("q", "k", "v", "tq", "tk", "tv")}
        plain = bench.lib.prepare(FORWARD, **plain_given, **out_plain, causal=case.causal)
        row.compare(JVP * case.flops, ours, {"plain": lambda: plain},
                    lambda _: errors_of({key: rows_of(out[key]) for key in ("o", "to")},
                                        dense_jvp(x, tangents, causal=case.causal, **options)),
                    least_seconds=least_bytes / bench.bandwidth)


def jvp_bias(bench: Bench) -> None:
    for case in cases(lengths=LONG[:1], tokens=BIAS_TOKENS, hidden=BIAS_HIDDEN):
        b, h, n, _ = case.shape
        read = 2 * b * h * n * n * 2 * (0.5 if case.causal else 1)  # bias and tangent
        jvp_feature(bench, case, "JVP bias tbias", "jvp bias", dict(bias=normal(b, h, n, n)), read)


def jvp_piecewise(bench: Bench) -> None:
    for case in cases():
        jvp_feature(bench, case, "JVP piecewise", "jvp piecewise", normals(case, "q2 k2"), distance=case.n // 2)


def piecewise(bench: Bench) -> None:
    """Forward and backward against our own without pieces; threshold N/2. The bar is that of causal attention."""
    for case in cases():
        x = normals(case, "q k v q2 k2")
        plain_x = {name: x[name] for name in "qkv"}
        options = dict(causal=case.causal, distance=case.n // 2)
        with bench.attempt(f"piecewise forward {case}", *["piecewise forward"] * case.causal) as row:
            out, out_plain = results(x["q"]), results(x["q"])
            ours = bench.lib.prepare(FORWARD, **x, **out, **options)
            plain = bench.lib.prepare(FORWARD, **plain_x, **out_plain, causal=case.causal)
            row.compare(case.flops, ours, {"plain": lambda: plain},
                        lambda _: [error(rows_of(out["o"]), dense_forward(x, **options))])
        with bench.attempt(f"piecewise backward {case}", *["piecewise backward"] * case.causal) as row:
            out, out_plain, dout = grads(x), grads(plain_x), torch.randn_like(x["q"])
            ours = prepare_backward(bench, x, dout, out, **options)
            plain = prepare_backward(bench, plain_x, dout, out_plain, causal=case.causal)
            row.compare(BACKWARD_FLOPS * case.flops, ours, {"plain": lambda: plain},
                        lambda _: errors_of({name: g[-1, -1] for name, g in out.items()},
                                            dense_backward(x, dout, **options).values()))


# ---- bias and mask ---------------------------------------------------------------------------


def bias_cases():
    return cases(dims=(64, 128), lengths=LONG[:1], causal=(False,), tokens=BIAS_TOKENS, hidden=BIAS_HIDDEN)


def bias(bench: Bench) -> None:
    """A dense f16 bias of [B,H,N,N] against every peer that takes one; last, since compiling takes its time."""
    for case in bias_cases():
        x = normals(case, "q k v")
        x["bias"] = normal(*case.shape[:2], case.n, case.n)
        peers = bench.allowed
        with bench.attempt(f"bias forward {case}", f"bias forward {case.d}") as row:
            out = results(x["q"])
            ours = bench.lib.prepare(FORWARD, **x, **out)
            row.compare(case.flops, ours, {peer: lambda peer=peer: torch_peers.forward(peer, **x) for peer in peers},
                        lambda peer: [error(out["o"], peer())])
        for dbias in (False, True):
            name, bar = ("bias backward, dbias", "dbias") if dbias else ("bias backward", "bias backward")
            with bench.attempt(f"{name} {case}", bar) as row:
                dout = torch.randn_like(x["q"])
                out = grads(x if dbias else {key: x[key] for key in "qkv"})
                ours = prepare_backward(bench, x, dout, out)
                builders = {peer: lambda peer=peer: torch_peers.backward(peer, **x, dout=dout, dbias=dbias)
                            for peer in peers}
                row.compare(BACKWARD_FLOPS * case.flops, ours, builders, lambda peer: errors_of(out, peer()))


def broadcast(bench: Bench) -> None:
    """A u8 mask of [B,H,N,N], and a bias broadcast over batch or heads, against our own dense f16 bias."""
    for case in bias_cases():
        b, h, n, _ = case.shape
        x = normals(case, "q k v")
        dense_x = {**x, "bias": normal(b, h, n, n)}
        kinds = {"u8 mask": dict(mask=(torch.rand(b, h, n, n, device="cuda") < 0.9).to(torch.uint8)),
                 "bias over batch": dict(bias=normal(1, h, n, n)), "bias over heads": dict(bias=normal(b, 1, n, n))}
        for name, extra in kinds.items():
            with bench.attempt(f"{name} forward {case}", "broadcast") as row:
                out, out_dense = results(x["q"]), results(x["q"])
                ours = bench.lib.prepare(FORWARD, **x, **extra, **out)
                plain = bench.lib.prepare(FORWARD, **dense_x, **out_dense)
                seen = {**x, **{key: t.expand(b, h, n, n) for key, t in extra.items()}}
                row.compare(case.flops, ours, {"dense bias": lambda: plain},
                            lambda _: [error(rows_of(out["o"]), dense_forward(seen))])
            with bench.attempt(f"{name} backward {case}", "broadcast") as row:
                out, out_dense, dout = grads(x), grads(x), torch.randn_like(x["q"])
                ours = prepare_backward(bench, {**x, **extra}, dout, out)
                plain = prepare_backward(bench, dense_x, dout, out_dense)
                attn_mask = extra["mask"].bool() if "mask" in extra else extra["bias"].expand(b, h, n, n)
                row.compare(BACKWARD_FLOPS * case.flops, ours, {"dense bias": lambda: plain},
                            lambda _: errors_of(out, torch_peers.backward("efficient", **x, dout=dout,
                                                                          bias=attn_mask)()))


# ---- few queries, and the host ---------------------------------------------------------------


def decode(bench: Bench, keys: int = 65536) -> None:
    """A few queries against many keys: bytes of K and V a second against those of a copy, and against the nominal
    bandwidth. With four sequences of 32 heads nearly every multiprocessor has a head; with one of 8, few have."""
    for b, h, d in ((4, 64, 64), (4, 32, 128), (4, 16, 256), (1, 8, 128)):
        for m in (1, 4, 16):
            what = f"decode B{b} H{h} D{d} M{m} N{keys}"
            measured = None
            with bench.attempt(what, "decode") as row:
                x = dict(q=normal(b, h, m, d), k=normal(b, h, keys, d), v=normal(b, h, keys, d))
                out = results(x["q"])
                ours = bench.lib.prepare(FORWARD, **x, **out)
                measured = row.compare(2 * x["k"].numel() * 2, ours, {"copy": lambda: bench.copy},
                                       lambda _: [error(rows_of(out["o"]), dense_forward(x))], unit="GB/s",
                                       peer_work=bench.copy_bytes)
            with bench.attempt(f"{what}, nominal", "decode nominal") as row:
                if measured is None:
                    raise RuntimeError("it was not measured")
                row.record(measured[0], NOMINAL_BANDWIDTH / 1e9, "nominal", measured[1], unit="GB/s")


def host_seconds(*calls) -> list[float]:
    """Wall seconds of one call on the host: the least of five medians, since others on the machine can disturb it for
    longer than one takes. Each of `calls` is a function and the sets of arguments that it is given in turn. They take
    turns, with the GPU idle at the start of each run, and a run is short enough that the driver's queue does not fill.
    """
    repeats, runs, length = 5, 25, 100
    medians = [[] for _ in calls]
    gc.disable()
    try:
        for _ in range(repeats):
            times = [[] for _ in calls]
            for _ in range(runs):
                for (call, sets), each in zip(calls, times):
                    turn = sets * (length // len(sets))
                    torch.cuda.synchronize()
                    start = time.perf_counter()
                    for arguments in turn:
                        call(*arguments)
                    each.append((time.perf_counter() - start) / length)
            for each, all_runs in zip(medians, times):
                each.append(statistics.median(all_runs))
    finally:
        gc.enable()
        torch.cuda.synchronize()
    return [min(each) for each in medians]


def host(bench: Bench) -> None:
    """Microseconds on the host of one call of a tiny problem, beside those of a library call that does nothing with
    the same arguments: ctypes takes that much. The bars are for the difference where tensors stay where they were; in
    the rows named "moved" all are elsewhere in each call."""
    stream = torch.cuda.current_stream().cuda_stream
    nothing = bench.lib.no_operation()
    prepared = {
        "forward": lambda x: bench.lib.prepare(FORWARD, **x, **results(x["q"]), causal=True),
        "forward+JVP": lambda x: bench.lib.prepare(FORWARD, **with_tangents(x)[1], **results(x["q"], "o lse to tlse"),
                                                   causal=True),
        "backward": lambda x: prepare_backward(bench, x, torch.randn_like(x["q"]), grads(x), causal=True)}
    for case in cases(dims=(64, 128), lengths=(128,), causal=(True,), tokens=128, hidden=128):
        for name, build in prepared.items():
            runs = [build(normals(case, "q k v")) for _ in range(2)]
            for which, sets, bars in (("", runs[:1], [f"host {name.split('+')[0]}"]), (", moved", runs, [])):
                with bench.attempt(f"host {name} {case}{which}", *bars) as row:
                    for run in sets:
                        run()
                    arguments = [(*run.arguments, stream) for run in sets]
                    ours, empty = (1e6 * t for t in host_seconds((sets[0].call, arguments), (nothing, arguments)))
                    row.record(ours, empty, "no-op", [], unit="us", value=ours - empty)


# In the order in which they run. Of what follows a kernel that breaks the CUDA context nothing can be measured, so
# what compiles code of others comes last.
ROWS = {f.__name__: f for f in (forward, jvp, backward, deterministic, piecewise, jvp_piecewise, jvp_bias, e5m2, gqa,
                                f32, decode, host, broadcast, bias)}
