# SPDX-License-Identifier: Apache-2.0
"""Timing in turns, comparison of values, and the record of both."""
import contextlib
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator

import torch

from bars import BAR_KEYS, BARS, ERROR_LIMITS, MATMUL, NOMINAL_BANDWIDTH, judge
from pfattn_torch import Library

ROUNDS, CALLS = 12, 2
LONG_ROUND = 10e-3  # seconds of GPU time; half as many of these make a median
# The GPU waits this many cycles, about half a millisecond, before the clock of a round starts, so that the host has
# enqueued the calls by then and none of its time counts.
LEAD_CYCLES = 1_000_000
COPY_BYTES = 1 << 31
SMI_FIELDS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")

Call = Callable[[], object]


def time_in_turn(*functions: Call) -> list[float]:
    """Median seconds of each on the GPU, taking turns."""
    for f in functions:
        for _ in range(CALLS):
            f()
    torch.cuda.synchronize()
    times = [[] for _ in functions]
    rounds = ROUNDS
    while len(times[0]) < rounds:
        for f, each in zip(functions, times):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(LEAD_CYCLES)
            start.record()
            for _ in range(CALLS):
                f()
            stop.record()
            stop.synchronize()
            each.append(start.elapsed_time(stop) / 1e3 / CALLS)
        rounds = ROUNDS if CALLS * sum(each[0] for each in times) < LONG_ROUND else ROUNDS // 2
    return [statistics.median(each) for each in times]


def error(x: torch.Tensor, y: torch.Tensor) -> float:
    """Norm of the difference over the norm of y."""
    x, y = x.float(), y.float()
    return (torch.linalg.vector_norm(x - y) / torch.linalg.vector_norm(y)).item()


def reason(failure: Exception) -> str:
    """An exception in one line."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    return f"{type(failure).__name__}: {lines[0][:160]}" if lines else type(failure).__name__


def release() -> None:
    """Give cached memory back, which a broken CUDA context refuses."""
    with contextlib.suppress(RuntimeError):
        torch.cuda.empty_cache()


def clocks() -> dict[str, str]:
    """What nvidia-smi reads now, empty where there is none."""
    command = ["nvidia-smi", f"--query-gpu={','.join(SMI_FIELDS)}", "--format=csv,noheader,nounits",
               f"--id={torch.cuda.current_device()}"]
    try:
        line = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(SMI_FIELDS, (field.strip() for field in line.split(","))))


class Bench:
    """The library under test, the peers that may be used, and the rows so far."""

    def __init__(self, lib: Library, types: list[str], peers: list[str]):
        self.lib, self.types, self.allowed = lib, types, peers
        self.rows: list[dict] = []
        self.groups: list[dict] = []
        a, b = (torch.randn(MATMUL, MATMUL, device="cuda").half() for _ in range(2))
        source, target = (torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
        self.matmul: Call = lambda: a @ b
        self.copy: Call = lambda: target.copy_(source)
        matmul, copy = time_in_turn(self.matmul, self.copy)
        self.copy_bytes = 2 * COPY_BYTES
        self.matmul_rate = 2 * MATMUL ** 3 / matmul
        self.bandwidth = self.copy_bytes / copy
        print(f"fp16 matmul {MATMUL}^3: {self.matmul_rate / 1e12:.0f} TFLOP/s, copy: "
              f"{self.bandwidth / 1e12:.2f} TB/s ({self.bandwidth / NOMINAL_BANDWIDTH:.2f} of nominal)", flush=True)

    @contextlib.contextmanager
    def attempt(self, what: str, *bars: str) -> Iterator["Row"]:
        """A row that, if it fails, is recorded with its reason."""
        if unknown := set(bars) - BAR_KEYS:
            raise ValueError(f"{what}: no bar is named {unknown}")
        try:
            yield Row(self, what, bars)
        except Exception as failure:  # whatever it is, the other rows are still wanted
            self.rows.append(dict(what=what, bars=bars, failed=reason(failure)))
            print(f"{what:44s} FAILED {reason(failure)}", flush=True)
            release()

    @contextlib.contextmanager
    def group(self, name: str) -> Iterator[None]:
        """Clocks and time of a set of rows; what fails outside them ends the set alone."""
        before, start = clocks(), time.monotonic()
        with self.attempt(name):
            yield
        seconds, after = time.monotonic() - start, clocks()
        self.groups.append(dict(name=name, seconds=seconds, before=before, after=after))
        state = ", ".join(f"{key} {value}" for key, value in after.items())
        print(f"-- {name} took {seconds:.0f} s; {state or 'no nvidia-smi'}", flush=True)

    def write_json(self, path: str) -> None:
        verdicts = [dict(key=v.bar.key, bar=v.bar.bar, what=v.bar.text, value=v.value, where=v.where, verdict=v.text)
                    for v in judge(self.rows)]
        with open(path, "w", encoding="utf-8") as f:
            json.dump(dict(device=torch.cuda.get_device_name(), torch=torch.__version__,
                           cudnn=torch.backends.cudnn.version(), matmul=self.matmul_rate / 1e12,
                           copy=self.bandwidth / 1e12, bars=verdicts, groups=self.groups, rows=self.rows), f, indent=1)

    def print_summary(self) -> None:
        verdicts = judge(self.rows)
        print(f"\n{'bar':56s} {'at':>5s} {'worst':>6s}")
        for v in verdicts:
            value = "" if v.value is None else f"{v.value:.2f}"
            limit = f"{'<' if v.bar.below else ''}{v.bar.bar:g}"
            print(f"{v.bar.text:56s} {limit:>5s} {value:>6s}  {v.text}{f' ({v.where})' if v.where else ''}")
        print(f"{sum(v.text == 'met' for v in verdicts)} of {len(BARS)} bars met")


class Row:
    """One line of the table."""

    def __init__(self, bench: Bench, what: str, bars: tuple[str, ...]):
        self.bench, self.what, self.bars = bench, what, bars

    def compare(self, work: float, ours: Call, peers: dict[str, Callable[[], Call]],
                check: Callable[[Call], list[float]], *, dtype: str = "f16", unit: str = "TFLOP/s",
                peer_work: float | None = None, least_seconds: float = 0.0) -> tuple[float, list[float]]:
        """Time ours and the peers in turn, and set ours against the fastest. `work` is what a call does, in the unit
        without its prefix; `peer_work` that of a peer's call where it differs. Each peer is built by its function and
        may refuse. `check(peer)` gives the errors of our outputs as `ours` just wrote them. No peer counts as faster
        than `least_seconds`. Returns our rate and the errors."""
        running, refused = {}, {}
        for name, build in peers.items():
            try:
                call = build()
                call()
                torch.cuda.synchronize()
                running[name] = call
            except Exception as failure:  # a peer that cannot do it is left out, and the row says why
                refused[name] = reason(failure)
                release()
        if not running:
            raise RuntimeError("no peer runs: " + "; ".join(f"{k}: {v}" for k, v in refused.items()))
        seconds, *peer_seconds = time_in_turn(ours, *running.values())
        taken = dict(zip(running, peer_seconds))
        best = min(taken, key=taken.get)
        ours()
        errors = check(running[best])
        scale = 1e9 if unit == "GB/s" else 1e12
        rates = {name: (peer_work or work) / t / scale for name, t in taken.items()}
        name, limited = best, taken[best] < least_seconds
        if limited:
            name, rates["memory"] = "memory", work / least_seconds / scale
        ours_rate = work / seconds / scale
        self.record(ours_rate, rates[name], name, errors, unit=unit, dtype=dtype, peers={**rates, **refused})
        return ours_rate, errors

    def record(self, ours: float, peer: float, peer_name: str, errors: list[float], *, unit: str = "TFLOP/s",
               dtype: str = "f16", value: float | None = None, peers: dict | None = None) -> None:
        """`value` is what the bars judge: the ratio unless said otherwise."""
        wrong = not all(e < ERROR_LIMITS[dtype] for e in errors)
        ratio = ours / peer
        self.bench.rows.append(dict(what=self.what, bars=self.bars, ours=ours, peer=peer, peer_name=peer_name,
                                    unit=unit, ratio=ratio, value=ratio if value is None else value, errors=errors,
                                    wrong=wrong, peers=peers or {peer_name: peer}))
        digits = 2 if unit == "us" else 0
        others = [f"{k} {v:.0f}" if isinstance(v, float) else f"{k}: {v}" for k, v in (peers or {}).items()
                  if k != peer_name]
        print(f"{self.what:44s} {ours:6.{digits}f} {peer:6.{digits}f} {peer_name:10s} {ratio:5.2f}  "
              f"{f'err {max(errors):.1e}' if errors else ''}{'  WRONG' if wrong else ''}"
              f"{'  (' + '; '.join(others) + ')' if others else ''}", flush=True)
