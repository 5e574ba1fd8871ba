# SPDX-License-Identifier: Apache-2.0
"""What bench/peers.py counts and judges by, without torch: sizes and operations by hand, the verdicts of made-up rows,
and that every file of the benchmark compiles and names only bars that exist.

usage: test_bench_bars.py BENCH_DIRECTORY
"""
import ast
import math
import sys
import unittest
from pathlib import Path

bench = Path(sys.argv.pop(1))
sys.path.insert(0, str(bench))
sys.dont_write_bytecode = True

from bars import BAR_KEYS, BARS, Case, cases, judge  # noqa: E402


def row(what: str, *bars: str, value: float = 1.0, wrong: bool = False) -> dict:
    return dict(what=what, bars=bars, value=value, wrong=wrong)


def verdict(rows: list, key: str):
    return next(v for v in judge(rows) if v.bar.key == key)


class Sizes(unittest.TestCase):
    def test_shape_keeps_tokens_and_hidden_size(self):
        self.assertEqual(Case(128, 4096).shape, (4, 16, 4096, 128))
        self.assertEqual(Case(64, 4096, tokens=8192, hidden=1024).shape, (2, 16, 4096, 64))

    def test_two_products_of_two_operations_each(self):
        # 4 B H N N D, with B = 4, H = 16, N = 2^12, D = 2^7: 2^2 2^2 2^4 2^24 2^7
        self.assertEqual(Case(128, 4096).flops, 2 ** 39)
        self.assertEqual(Case(128, 4096, causal=True).flops, 2 ** 38)

    def test_bf16_runs_at_4k_alone(self):
        lengths = {(c.dtype, c.n) for c in cases(types=("f16", "bf16"))}
        self.assertEqual(lengths, {("f16", 4096), ("f16", 16384), ("bf16", 4096)})

    def test_names_tell_cases_apart(self):
        names = [str(c) for c in cases(types=("f16", "bf16"))]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(str(Case(64, 512, True, "bf16")), "D64 N512 causal bf16")


class Verdicts(unittest.TestCase):
    def test_each_row_has_to_reach_the_bar(self):
        v = verdict([row("a", "backward", value=1.5), row("b", "backward", value=1.04)], "backward")
        self.assertEqual((v.value, v.where, v.text), (1.04, "b", "missed"))
        self.assertEqual(verdict([row("a", "backward", value=1.05)], "backward").text, "met")

    def test_geometric_mean(self):
        rows = [row("a", "forward mean", value=0.5), row("b", "forward mean", value=8.0)]
        v = verdict(rows, "forward mean")
        self.assertTrue(math.isclose(v.value, 2.0))
        self.assertEqual((v.where, v.text), ("", "met"))

    def test_upper_limit(self):
        rows = [row("a", "host forward", value=4.9), row("b", "host forward", value=1.0)]
        self.assertEqual(verdict(rows, "host forward").text, "met")
        v = verdict([*rows, row("c", "host forward", value=5.0)], "host forward")
        self.assertEqual((v.value, v.where, v.text), (5.0, "c", "missed"))

    def test_a_row_that_failed_or_is_wrong_misses(self):
        failed = dict(what="b", bars=("gqa",), failed="RuntimeError: no")
        for broken in (failed, row("b", "gqa", value=2.0, wrong=True)):
            self.assertEqual(verdict([row("a", "gqa", value=2.0), broken], "gqa").text,
                             "missed: 1 of 2 rows failed or wrong")
        self.assertIsNone(verdict([failed], "gqa").value)

    def test_nothing_measured_is_not_met(self):
        self.assertTrue(all((v.value, v.text) == (None, "not measured") for v in judge([])))


class Files(unittest.TestCase):
    def test_every_file_compiles(self):
        for path in sorted(bench.glob("*.py")):
            compile(path.read_text(encoding="utf-8"), str(path), "exec")

    def test_every_bar_has_rows(self):
        """Strings of rows.py, those put together from parts with the parts that they can have."""
        used = set()
        for node in ast.walk(ast.parse((bench / "rows.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant):
                used.add(node.value)
            elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                used.update(node.values[0].value + part for part in ("64", "128", "256", "forward", "backward"))
        self.assertEqual(BAR_KEYS - used, set())

    def test_keys_are_unique(self):
        self.assertEqual(len(BAR_KEYS), len(BARS))


if __name__ == "__main__":
    unittest.main()
