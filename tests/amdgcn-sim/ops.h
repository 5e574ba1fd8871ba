/* SPDX-License-Identifier: Apache-2.0 */
/* What the instruction modules share: access to scalar and vector operands. */
#ifndef AMDGCN_SIM_OPS_H
#define AMDGCN_SIM_OPS_H

#include <math.h>
#include <string.h>

#include "sim.h"

#ifndef SIM_VARIANT
#define SIM_VARIANT base
#endif
#define SIM_PASTE2(a, b) a##_##b
#define SIM_PASTE(a, b) SIM_PASTE2(a, b)
/* Defines the table that optables.c lists: OPS_TABLE(valu_int, ops) */
#define OPS_TABLE(name, array)                                                                     \
    const struct sim_optable SIM_PASTE(sim_ops_##name,                                             \
                                       SIM_VARIANT) = {array, sizeof(array) / sizeof(array[0])}

typedef uint32_t vec32[SIM_LANES] __attribute__((aligned(64)));
typedef uint64_t vec64[SIM_LANES] __attribute__((aligned(64)));
typedef float vecf[SIM_LANES] __attribute__((aligned(64)));
/* Registers hold words of any type; floats are read from them through this. */
typedef float float_lane __attribute__((may_alias));

#define EACH_LANE(l) for (int l = 0; l < SIM_LANES; l++)
#define EACH_ACTIVE(l, mask) EACH_LANE(l) if (((mask) >> l) & 1)

static inline float as_f32(uint32_t x) {
    float f;
    memcpy(&f, &x, 4);
    return f;
}
static inline uint32_t as_u32(float f) {
    uint32_t x;
    memcpy(&x, &f, 4);
    return x;
}
static inline double as_f64(uint64_t x) {
    double f;
    memcpy(&f, &x, 8);
    return f;
}
static inline uint64_t as_u64(double f) {
    uint64_t x;
    memcpy(&x, &f, 8);
    return x;
}

/* --- half precision, branch-free so that loops over lanes vectorise --- */
static inline float f16_to_f32(uint32_t h) {
    uint32_t magnitude = h & 0x7fff;
    uint32_t bits = as_u32(as_f32(magnitude << 13) * 0x1p112f);
    bits = magnitude >= 0x7c00 ? bits | 0x7f800000u : bits;
    return as_f32(bits | (h & 0x8000) << 16);
}
static inline uint32_t f32_to_f16(float f) {
    uint32_t x = as_u32(f), sign = x >> 16 & 0x8000, a = x & 0x7fffffff;
    uint32_t normal = (a + 0xc8000fffu + (a >> 13 & 1)) >> 13;
    uint32_t small = as_u32(as_f32(a) + 0.5f) - 0x3f000000u;
    uint32_t r = a < 0x38800000 ? small : normal;
    r = a >= 0x47800000 ? 0x7c00 : r;
    r = a > 0x7f800000 ? 0x7e00 | (a >> 13 & 0x3ff) : r;
    return sign | r;
}
static inline float bf16_to_f32(uint32_t h) {
    return as_f32(h << 16);
}
/* x rounded to `bits` of significand with least exponent emin, ties to even. */
static inline double round_to(double x, int bits, int emin) {
    int e;
    if (x == 0 || !isfinite(x))
        return x;
    frexp(x, &e);
    e = e - 1 < emin ? emin : e - 1;
    return ldexp(rint(ldexp(x, bits - 1 - e)), e - bits + 1);
}
static inline uint32_t f64_to_f16(double x) {
    return f32_to_f16((float)round_to(x, 11, -14));
}

/* --- scalar operands --- */
static inline uint64_t exec_mask(const struct sim_wave *w) {
    uint64_t m;
    memcpy(&m, &w->s[SIM_EXEC], 8);
    return m;
}
static inline uint64_t sreg64(const struct sim_wave *w, int reg) {
    return w->s[reg] | (uint64_t)w->s[reg + 1] << 32;
}
static inline void set_sreg64(struct sim_wave *w, int reg, uint64_t x) {
    w->s[reg] = (uint32_t)x;
    w->s[reg + 1] = (uint32_t)(x >> 32);
}
static inline uint32_t special32(const struct sim_wave *w, int reg) {
    switch (reg) {
    case SPC_SCC:
        return w->scc;
    case SPC_VCCZ:
        return sreg64(w, SIM_VCC) == 0;
    default:
        return exec_mask(w) == 0;
    }
}
static inline uint32_t scalar32(const struct sim_wave *w, const struct sim_operand *o) {
    if (o->kind == OPR_SREG)
        return w->s[o->reg];
    return o->kind == OPR_IMM ? (uint32_t)o->imm : special32(w, o->reg);
}
static inline uint64_t scalar64(const struct sim_wave *w, const struct sim_operand *o) {
    if (o->kind == OPR_SREG)
        return o->count == 1 ? w->s[o->reg] : sreg64(w, o->reg);
    return o->kind == OPR_IMM ? o->imm : special32(w, o->reg);
}
static inline void set_scalar32(struct sim_wave *w, const struct sim_operand *o, uint32_t x) {
    w->s[o->reg] = x;
}
static inline void set_scalar64(struct sim_wave *w, const struct sim_operand *o, uint64_t x) {
    set_sreg64(w, o->reg, x);
}

#endif
