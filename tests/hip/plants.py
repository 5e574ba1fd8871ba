# SPDX-License-Identifier: Apache-2.0
"""Bugs to plant in the kernel source, one at a time, and how each must be caught.

A plant names a file below src/, text that occurs there exactly once and what replaces it, the image
to compile, the case that runs it, and a pattern that the message must have: RACE, OUTSIDE and
UNWAITED are stops of the simulator; wrong("o") is a result outside the bounds of pfattn check.
"""
import re
from dataclasses import dataclass

RACE = r"race: LDS byte 0x\w+ is (read|written), and was (read|written) by"
OUTSIDE = r"read of \d+ bytes at 0x\w+ is outside every live allocation"
UNWAITED = r"barrier while LDS writes of this wave are not waited for"


def wrong(output):
    return rf"^FAILED {output}: .*(exceeds|on one side only)"


@dataclass(frozen=True)
class Plant:
    name: str
    image: str
    case: str
    caught: str
    file: str
    old: str
    new: str
    archs: tuple = ("gfx90a", "gfx942")

    def apply(self, text):
        """The text of the file with the bug in it."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"plant '{self.name}' is stale: {self.file} has its text {count} times, not once:\n"
                             f"{self.old}")
        return text.replace(self.old, self.new)

    def stops(self):
        return not self.caught.startswith("^FAILED")

    def shows_in(self, output):
        return re.search(self.caught, output, re.MULTILINE) is not None


FORWARD = "op=forward dtype=f16 M=70 N=100 D=64"
GENERAL = FORWARD + " mask=random"
JVP = "op=jvp dtype=f16 M=70 N=100 D=64"
DECODE = "op=forward dtype=f16 H=2 M=3 N=2111 D=64"
BACKWARD = "op=backward dtype=f16 M=70 N=140 D=64"

PLANTS = [
    # Barriers
    Plant("a tile is read before all waves have filled it", "forward.f16.64.plain", FORWARD, RACE,
          "hip/cdna_tile.h",
          "            pos->stat_to[k][pf_thread()] = pos->stat[k];\n    }\n    pf_block_sync();\n",
          "            pos->stat_to[k][pf_thread()] = pos->stat[k];\n    }\n"),
    Plant("a tile is refilled while waves read it", "backward.f16.64.plain", BACKWARD, RACE,
          "hip/cdna_tile.h",
          "pf_ring_release(pf_ring *, pf_ring_pos *, int) {\n    pf_block_sync();\n",
          "pf_ring_release(pf_ring *, pf_ring_pos *, int) {\n"),
    Plant("dS is read before all waves have published it", "backward.f16.64.plain", BACKWARD, RACE,
          "hip/cdna_dq.h",
          "#endif\n    pf_block_sync();\n", "#endif\n"),
    Plant("a barrier does not wait for the wave's own writes", "forward.f16.64.plain", FORWARD, UNWAITED,
          "hip/port_cdna.h",
          '    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");\n'
          "    __builtin_amdgcn_s_waitcnt(CDNA_WAIT_LDS);\n    __builtin_amdgcn_s_barrier();\n",
          "    __builtin_amdgcn_s_barrier();\n"),
    # Layouts
    Plant("two terms of the row of a fragment swapped", "forward.f16.64.plain", FORWARD, wrong("o"),
          "hip/port_cdna.h",
          "8 * (r % 16 / 4) + 4 * cdna_part() + r % 4", "4 * (r % 16 / 4) + 16 * cdna_part() + r % 4"),
    Plant("values not in the order of the weights", "forward.f16.64.plain", FORWARD, wrong("o"),
          "hip/cdna_tile.h",
          "quad % 2 * 2 + quad / 2 % 2", "quad / 2 % 2 * 2 + quad % 2"),
    Plant("two terms of the channel of dQ swapped", "backward.f16.64.plain", BACKWARD, wrong("dq"),
          "hip/cdna_dq.h",
          "4 * cdna_dq_part() + r)", "cdna_dq_part() + 4 * r)"),
    Plant("operands of a product from different channels", "forward.f16.64.plain", FORWARD, wrong("o"),
          "hip/cdna_product.h",
          "16 * i + CDNA_CHUNK * cdna_part()),\n", "16 * i + CDNA_CHUNK * (1 - cdna_part())),\n"),
    # Masks and bounds
    Plant("causal keeps one key too many", "forward.f16.64.plain", FORWARD + " causal=1", wrong("o"),
          "common/kernels/common.h",
          "i - a->window_low[pair] + 1)", "i - a->window_low[pair] + 2)"),
    Plant("causal keeps one key too few beside a mask", "forward.f16.64.general", GENERAL + " causal=1", wrong("o"),
          "common/kernels/common.h",
          "x >= a->window_low[pair] && x < a->window_high[pair]",
          "x > a->window_low[pair] && x < a->window_high[pair]"),
    Plant("causal keeps one query too few in backward", "backward.f16.64.plain", BACKWARD + " causal=1",
          wrong("d[qkv]"),
          "common/kernels/common.h",
          "pf_span_of(j + a->window_low[pair],", "pf_span_of(j + a->window_low[pair] + 1,"),
    Plant("a tile that straddles the diagonal taken for whole", "backward.f16.64.plain",
          BACKWARD + " causal=1", wrong("d[qkv]"),
          "common/kernels/common.h",
          "i0 - (j1 - 1) >= a->window_low[pair]", "i1 - 1 - j0 >= a->window_low[pair]"),
    Plant("one key past the end kept", "forward.f16.64.plain", FORWARD, wrong("o"),
          "common/kernels/common.h",
          "pf_min_int(a->key_end[pair], i - a->window_low[pair] + 1)",
          "pf_min_int(a->key_end[pair] + 1, i - a->window_low[pair] + 1)"),
    Plant("the last key left out", "backward.f16.64.plain", BACKWARD, wrong("d[qkv]"),
          "common/kernels/common.h",
          "j < a->key_end[pair] ? j + a->window_high[pair]", "j + 1 < a->key_end[pair] ? j + a->window_high[pair]"),
    Plant("the walk ends a tile of keys early", "forward.f16.64.plain", FORWARD, wrong("o"),
          "common/kernels/forward_work.h",
          "walk->last_tile = begin / PF_CROSS_TILE;", "walk->last_tile = begin / PF_CROSS_TILE + 1;"),
    # Memory
    Plant("rows past the end read", "forward.f16.64.plain", FORWARD, OUTSIDE,
          "hip/cdna_load.h",
          "view->base && row < rows->end &&", "view->base &&"),
    Plant("rows past the end read in backward", "backward.f16.64.plain", BACKWARD, OUTSIDE,
          "hip/cdna_load.h",
          "view->base && row < rows->end &&", "view->base &&"),
    Plant("one row past the end read", "forward.f16.64.plain", FORWARD, wrong("o"),
          "hip/cdna_load.h",
          "row < rows->end &&", "row <= rows->end &&"),
    Plant("channels past the operand's own read", "forward.f16.64.plain", FORWARD.replace("D=64", "D=40"),
          wrong("o"),
          "hip/cdna_load.h",
          " || channel >= view->channels)", ")"),
    Plant("keys that the mask excludes read", "forward.f16.64.general",
          FORWARD + " mask=padding maskdims=bn garbage=1", wrong("o"),
          "common/kernels/forward_tile.h",
          "if (PF_GENERAL && a->key_live)", "if (false)"),
    # The online softmax
    Plant("the output so far not rescaled", "forward.f16.64.plain", FORWARD, wrong("o"),
          "common/kernels/forward.h",
          "        forward_rescale(f);\n        pf_ring_take(", "        pf_ring_take("),
    Plant("the sum so far not rescaled", "forward.f16.64.plain", FORWARD, wrong("o"),
          "common/kernels/forward_tile.h",
          "pf_fma(f->sum[s], f->rescale[s], sum[s])", "f->sum[s] + sum[s]"),
    Plant("scores added to those of the last tile", "forward.f16.64.plain", FORWARD, wrong("o"),
          "common/kernels/forward.h",
          "pf_scores_mma(&f->s[0], &f->q[0], &k[0], true);", "pf_scores_mma(&f->s[0], &f->q[0], &k[0], false);"),
    Plant("L in base 2", "forward.f16.64.plain", FORWARD, wrong("lse"),
          "common/kernels/forward_tile.h",
          "(pf_log2(sum[s]) - PF_WEIGHT_SHIFT) * PF_LN2", "(pf_log2(sum[s]) - PF_WEIGHT_SHIFT)"),
    Plant("the maximum over half of a row's lanes", "forward.f16.64.plain", FORWARD + " std=8", wrong("(o|lse)"),
          "common/kernels/forward_tile.h",
          "pf_slot_max(pf_max(max[s], odd[s]))", "pf_max(max[s], odd[s])"),
    # Derivatives
    Plant("dS without delta", "backward.f16.64.plain", BACKWARD, wrong("d[qk]"),
          "common/kernels/backward_tile.h",
          "g->dp[0].x[e] - delta[x];", "g->dp[0].x[e];"),
    Plant("delta without dL", "passes", BACKWARD, wrong("d[qk]"),
          "common/kernels/passes.h",
          "a->dim_v) - row_stat(&a->dlse, b, h, row);", "a->dim_v);"),
    Plant("backward's weights in base e", "backward.f16.64.general", BACKWARD + " mask=random", wrong("d[qkv]"),
          "common/kernels/backward_tile.h",
          "pf_fma(s - lse[x], PF_LOG2E, PF_WEIGHT_SHIFT)", "pf_fma(s - lse[x], 1.f, PF_WEIGHT_SHIFT)"),
    Plant("dK without alpha", "backward.f16.64.plain", BACKWARD, wrong("dk"),
          "common/kernels/backward_step.h",
          "a->alpha * PF_WEIGHT_UNSHIFT;\n        pf_out_store",
          "PF_WEIGHT_UNSHIFT;\n        pf_out_store"),
    Plant("dV still scaled", "backward.f16.64.plain", BACKWARD, wrong("dv"),
          "common/kernels/backward_step.h",
          "dv->x[e] *= PF_WEIGHT_UNSHIFT;", "dv->x[e] *= 1.f;", archs=("gfx90a",)),
    Plant("the product rule's second half dropped", "forward_jvp.f16.64.plain", JVP, wrong("(to|tlse)"),
          "common/kernels/forward.h",
          "        pf_scores_mma(&f->s[PF_T], &f->q[PF_T], &k[0], false);\n", ""),
    Plant("tO without its mean", "forward_jvp.f16.64.plain", JVP, wrong("to"),
          "common/kernels/forward.h",
          "pf_fma(-f->mean[pf_out_slot(e)], f->o[0].x[e], f->o[PF_T].x[e])", "f->o[PF_T].x[e]"),
    # Heads
    Plant("the wrong key head of a group", "forward.f16.64.plain", FORWARD + " H=4 Hk=2", wrong("o"),
          "common/kernels/forward_work.h",
          "w.hk = pf_quotient(w.h, &a->by_group);", "w.hk = w.h % a->kv_heads;"),
    Plant("the wrong query heads of a group", "backward.f16.64.plain", BACKWARD + " H=4 Hk=2", wrong("d[qkv]"),
          "common/kernels/backward_step.h",
          "any ? w->hk * a->group : PF_INT_MAX;", "any ? w->hk : PF_INT_MAX;"),
    # Merge
    Plant("merge weighs in base 2", "passes", "op=merge dtype=f16 M=20 D=64", wrong("o"),
          "common/kernels/passes.h",
          "pf_exp2((part_lse[p] - max) * PF_LOG2E)", "pf_exp2(part_lse[p] - max)"),
    Plant("splits walk over each other's keys", "forward.f16.64.plain", DECODE, wrong("o"),
          "common/kernels/forward_work.h",
          "pf_max_int(w->key0, w->i0", "pf_max_int(0, w->i0"),
    Plant("all parts write to the first", "forward.f16.64.plain", DECODE, wrong("o"),
          "common/kernels/split.h",
          "piece->part = range + item;", "piece->part = item;"),
    Plant("parts are weighed without their maxima", "passes", DECODE, wrong("o"),
          "common/kernels/passes.h",
          "(max[n] - most) * PF_LOG2E", "0.f"),
]
