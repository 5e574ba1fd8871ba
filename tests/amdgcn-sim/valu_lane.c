/* SPDX-License-Identifier: Apache-2.0 */
/* Operations across lanes. */
#include "valu.h"

static int first_lane(uint64_t mask) {
    return mask ? __builtin_ctzll(mask) : 0;
}

static void readfirstlane(struct sim_wave *w, const struct sim_insn *in) {
    vec32 b;
    const uint32_t *a = src32(w, in, 0, b);
    w->s[in->dst[0].reg] = a[first_lane(exec_mask(w))];
}

static void readlane(struct sim_wave *w, const struct sim_insn *in) {
    vec32 b;
    const uint32_t *a = src32(w, in, 0, b);
    w->s[in->dst[0].reg] = a[scalar32(w, &in->src[1]) & 63];
}

static void writelane(struct sim_wave *w, const struct sim_insn *in) {
    uint32_t value = scalar32(w, &in->src[0]);
    w->v[in->dst[0].reg][scalar32(w, &in->src[1]) & 63] = value;
}

/* Bits of the mask below this lane, plus source 1. */
static void mbcnt(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb, r;
    const uint32_t *a = src32(w, in, 0, ab), *b = src32(w, in, 1, bb);
    EACH_LANE(l) {
        uint64_t below = ((1ull << l) - 1) >> (in->param ? 32 : 0);
        r[l] = (uint32_t)__builtin_popcount(a[l] & (uint32_t)below) + b[l];
    }
    put32(w, in, 0, r);
}

static void nothing(struct sim_wave *w, const struct sim_insn *in) {
    (void)w;
    (void)in;
}

static const struct sim_op ops[] = {
    {"v_readfirstlane_b32", readfirstlane, "s:b", 0}, {"v_readlane_b32", readlane, "s:bs", 0},
    {"v_writelane_b32", writelane, "b:ss", 0},        {"v_mbcnt_lo_u32_b32", mbcnt, "b:bb", 0},
    {"v_mbcnt_hi_u32_b32", mbcnt, "b:bb", 1},         {"v_nop", nothing, ":#", 0},
};
OPS_TABLE(valu_lane, ops);
