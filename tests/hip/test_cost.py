# SPDX-License-Identifier: Apache-2.0
"""The cost report counts what can be counted by hand.

    test_cost.py TOOLS_DIR BUILD_DIR ARCH...
"""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import amd_cost  # noqa: E402

BUILD = Path(sys.argv[2])
ARCHS = sys.argv[3:]


def times(instructions, mnemonic):
    return sum(counts[0] for text, counts in instructions.values() if text.startswith(mnemonic))


class Rates(unittest.TestCase):
    def test_matrix_instructions_take_what_amds_calculator_says(self):
        for chip, name, cycles in [("gfx90a", "v_mfma_f32_32x32x8f16", 64), ("gfx90a", "v_mfma_f32_32x32x8bf16_1k", 64),
                                   ("gfx90a", "v_mfma_f32_16x16x16f16", 32), ("gfx90a", "v_mfma_f32_16x16x4f32", 32),
                                   ("gfx942", "v_mfma_f32_32x32x8_f16", 32), ("gfx942", "v_mfma_f32_32x32x8_bf16", 32),
                                   ("gfx942", "v_mfma_f32_16x16x16_f16", 16), ("gfx942", "v_mfma_f32_16x16x4_f32", 32)]:
            self.assertEqual(amd_cost.matrix_cycles(chip, name), cycles, name)

    def test_slow_instructions(self):
        for name in ["v_exp_f32_e32", "v_rcp_f32_e32", "v_cvt_f16_f32_e32", "v_cvt_f32_f16_sdwa", "v_mul_lo_u32"]:
            self.assertTrue(amd_cost.SLOW.match(name), name)
        for name in ["v_fma_f32", "v_pk_mul_f32", "v_mul_u32_u24_e32", "v_cvt_pkrtz_f16_f32", "v_perm_b32"]:
            self.assertFalse(amd_cost.SLOW.match(name), name)

    def test_waves_of_a_unit(self):
        def waves(**launch):
            return amd_cost.residency("gfx942", launch)
        self.assertEqual(waves(threads=256, lds=8192, registers=128), 16)   # 4 a SIMD by registers
        self.assertEqual(waves(threads=256, lds=8192, registers=136), 12)   # 3
        self.assertEqual(waves(threads=256, lds=24576, registers=128), 8)   # two workgroups by LDS
        self.assertEqual(waves(threads=128, lds=61440, registers=512), 2)   # one of two waves


class Forward(unittest.TestCase):
    """f16 at D 64. For 32 keys and 32 queries: S^T = K Q^T contracts 64 channels, 8 an instruction; O^T = V^T P^T
    contracts 32 keys for two blocks of 32 channels."""

    def setUp(self):
        self.measured = {arch: amd_cost.measure(BUILD, arch, "forward", "f16", 64) for arch in ARCHS}

    def test_products_and_exponentials(self):
        for instructions, _ in self.measured.values():
            self.assertEqual(times(instructions, "v_mfma_f32_32x32x8"), 64 / 8 + 2 * 32 / 8)
            # 1024 weights are 16 a lane. The maximum's own factor may be shared by wider tiles.
            self.assertAlmostEqual(times(instructions, "v_exp_f32"), 16.5, delta=0.5)

    def test_memory(self):
        """32 rows of 64 channels of K and V, 2 bytes each, for all queries of a workgroup."""
        for instructions, launch in self.measured.values():
            size = sum(counts[4] for _, counts in instructions.values())
            self.assertEqual(size, 2 * 32 * 64 * 2 * 32 / launch["owned"])

    def test_lds(self):
        """A wave reads both tiles, 8192 bytes, at 128 bytes a cycle; nothing meets in a bank."""
        for instructions, _ in self.measured.values():
            reads = sum(counts[1] for text, counts in instructions.values() if text.startswith("ds_read"))
            self.assertEqual(reads, 8192 / 128)
            self.assertEqual(sum(counts[1] - counts[2] for _, counts in instructions.values()), 0)

    def test_row(self):
        for arch, (instructions, launch) in self.measured.items():
            row = amd_cost.evaluate(arch, "forward", 64, instructions, launch)
            self.assertEqual(row["units"]["MFMA"], 16 * amd_cost.matrix_cycles(arch, "v_mfma_f32_32x32x8f16") / 4)
            self.assertEqual(row["cycles"], max(row["units"].values()))
            # 4 * 64 operations a score on every unit of the chip, at the share of the peak.
            peak = amd_cost.CHIPS[arch]["flops"]["f16"] * amd_cost.CHIPS[arch]["units"] * amd_cost.CHIPS[arch]["clock"]
            self.assertAlmostEqual(row["tflops"], row["mfma_share"] * peak / 1000)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
