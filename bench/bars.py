# SPDX-License-Identifier: Apache-2.0
"""What is measured, and against which bar: cases, operation counts and the table. Plain Python."""
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

TOKENS, HIDDEN = 16384, 2048  # of a case unless it says otherwise
BIAS_TOKENS, BIAS_HIDDEN = 8192, 1024  # where a bias of [B,H,N,N] is read
DIMS = (64, 128, 256)
SHORT, LONG = (512, 1024, 2048), (4096, 16384)
JVP, BACKWARD = 3, 2.5  # operations, over those of forward
MATMUL = 8192  # the product that JVP is set against is of this size in all three directions
NOMINAL_BANDWIDTH = 4.8e12  # of an H200's memory, bytes a second

# Largest norm of the difference over the norm, by input type. The weights P are rounded to the input type, which for
# e5m2 has two bits of mantissa.
ERROR_LIMITS = {"f16": 1e-2, "bf16": 3e-2, "f32": 1e-3, "e5m2": 0.15}


@dataclass(frozen=True)
class Case:
    """Self-attention of contiguous [B,H,N,D] tensors."""

    d: int
    n: int
    causal: bool = False
    dtype: str = "f16"
    tokens: int = TOKENS
    hidden: int = HIDDEN

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.tokens // self.n, self.hidden // self.d, self.n, self.d

    @property
    def flops(self) -> float:
        """Of forward, as docs/mathematics.md counts them."""
        b, h, n, d = self.shape
        return 4 * b * h * n * n * d * (0.5 if self.causal else 1)

    def __str__(self) -> str:
        words = [f"D{self.d}", f"N{self.n}", "causal" * self.causal, self.dtype * (self.dtype != "f16")]
        return " ".join(word for word in words if word)


def cases(dims: Iterable[int] = DIMS, lengths: Iterable[int] = LONG, causal: Iterable[bool] = (False, True),
          types: Iterable[str] = ("f16",), **sizes: int) -> Iterator[Case]:
    """Every combination, types side by side, so that they meet the card in the same state; bf16 at the first of LONG
    only, since it runs the same kernels as f16."""
    for d in dims:
        for n in lengths:
            for dtype in types:
                if dtype == "bf16" and n != LONG[0]:
                    continue
                for c in causal:
                    yield Case(d, n, c, dtype, **sizes)


@dataclass(frozen=True)
class Bar:
    """What the rows that name `key` have to reach: by each, or with `mean` by their geometric mean."""

    key: str
    text: str
    bar: float
    mean: bool = False
    below: bool = False  # the bar is an upper limit

    def measured(self, values: list[float]) -> float:
        if self.mean:
            return statistics.geometric_mean(values)
        return max(values) if self.below else min(values)

    def is_met(self, value: float) -> bool:
        return value < self.bar if self.below else value >= self.bar


BARS = (
    Bar("forward", "forward, N 4k and 16k, over cuDNN", 1.0),
    Bar("forward mean", "the same, geometric mean", 1.12, mean=True),
    Bar("forward short", "forward, N 512, 1k, 2k, over cuDNN", 1.0),
    Bar("jvp 64", "forward + JVP D64 over the fp16 matmul", 0.78),
    Bar("jvp 128", "forward + JVP D128 over the fp16 matmul", 0.85),
    Bar("jvp 256", "forward + JVP D256 over the fp16 matmul", 0.60),
    Bar("backward", "backward D64, D128 over cuDNN", 1.05),
    Bar("backward 256", "backward D256 over cuDNN", 1.2),
    Bar("deterministic", "deterministic backward over the default", 0.8),
    Bar("bias forward 64", "dense f16 bias, forward D64 over the best peer", 1.3),
    Bar("bias forward 128", "dense f16 bias, forward D128 over the best peer", 1.1),
    Bar("bias backward", "dense f16 bias, backward over the best peer", 1.2),
    Bar("dbias", "dense f16 bias, backward with dbias over the best peer", 2.5),
    Bar("broadcast", "u8 mask, broadcast bias over our dense f16 bias", 1.0),
    Bar("piecewise forward", "piecewise forward over our plain causal", 0.9),
    Bar("piecewise backward", "piecewise backward over our plain causal", 0.85),
    Bar("jvp bias", "JVP with bias and its tangent over plain JVP or memory", 0.8),
    Bar("jvp piecewise", "piecewise JVP over our plain JVP", 0.8),
    Bar("e5m2", "e5m2 forward over our f16 forward", 1.15),
    Bar("gqa", "GQA 8:1 over the same FLOPs without", 1.0),
    Bar("f32", "f32 forward over torch mem-efficient", 1.0),
    Bar("decode", "M 1, 4, 16 against N 64k, over the copy bandwidth", 0.6),
    Bar("decode nominal", "the same, over 4.8 TB/s", 0.6),
    Bar("host forward", "host cost of forward and of its JVP, us", 5.0, below=True),
    Bar("host backward", "host cost of backward, us", 5.0, below=True),
)
BAR_KEYS = frozenset(bar.key for bar in BARS)


@dataclass(frozen=True)
class Verdict:
    """One line of the summary; `value` is None where nothing was measured."""

    bar: Bar
    value: float | None
    where: str
    text: str


def judge(rows: list[dict]) -> list[Verdict]:
    """Rows hold what, bars (keys), value, wrong and, instead of the last two, failed. A bar with a row that failed or
    has wrong values is missed whatever the others reach."""
    verdicts = []
    for bar in BARS:
        mine = [row for row in rows if bar.key in row["bars"]]
        good = [row for row in mine if "failed" not in row]
        value = bar.measured([row["value"] for row in good]) if good else None
        where = "" if bar.mean else next((row["what"] for row in good if row["value"] == value), "")
        broken = [row for row in mine if "failed" in row or row["wrong"]]
        if broken:
            text = f"missed: {len(broken)} of {len(mine)} rows failed or wrong"
        elif value is None:
            text = "not measured"
        else:
            text = "met" if bar.is_met(value) else "missed"
        verdicts.append(Verdict(bar, value, where, text))
    return verdicts
