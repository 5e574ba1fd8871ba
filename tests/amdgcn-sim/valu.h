/* SPDX-License-Identifier: Apache-2.0 */
/* Vector operands: sources as arrays over the 64 lanes, results written under EXEC. */
#ifndef AMDGCN_SIM_VALU_H
#define AMDGCN_SIM_VALU_H

#include "ops.h"

/* --- sources --- */

static inline void broadcast(vec32 out, uint32_t x) {
    EACH_LANE(l) out[l] = x;
}

/* Lanes whose DPP source exists and is active. */
static __attribute__((noinline, unused)) uint64_t dpp_valid(const struct sim_wave *w,
                                                            const struct sim_dpp *d) {
    uint64_t exec = exec_mask(w), valid = 0;
    EACH_LANE(l) {
        if (d->source[l] >= 0 && (exec >> d->source[l] & 1))
            valid |= 1ull << l;
    }
    return valid;
}

static __attribute__((noinline, unused)) void
dpp_permute(const struct sim_wave *w, const struct sim_dpp *d, const uint32_t *from, vec32 out) {
    uint64_t valid = dpp_valid(w, d);
    vec32 copy;
    memcpy(copy, from, sizeof(vec32));
    EACH_LANE(l) out[l] = (valid >> l & 1) ? copy[d->source[l]] : 0;
}

static inline uint32_t sdwa_extract(uint32_t x, uint8_t sel, bool sext) {
    switch (sel) {
    case SEL_DWORD:
        return x;
    case SEL_WORD0:
    case SEL_WORD1:
        x = x >> (sel == SEL_WORD1 ? 16 : 0) & 0xffff;
        return sext ? (uint32_t)(int16_t)x : x;
    default:
        x = x >> 8 * sel & 0xff;
        return sext ? (uint32_t)(int8_t)x : x;
    }
}

static inline void float_modifiers(vec32 x, uint8_t mods, uint32_t sign) {
    if (mods & MOD_ABS)
        EACH_LANE(l) x[l] &= ~sign;
    if (mods & MOD_NEG)
        EACH_LANE(l) x[l] ^= sign;
}

static __attribute__((noinline, unused)) void
slow_source(const struct sim_wave *w, const struct sim_insn *in, int i, uint32_t sign, vec32 out) {
    const struct sim_operand *o = &in->src[i];
    if (o->kind == OPR_VREG)
        memcpy(out, w->v[o->reg], sizeof(vec32));
    else
        broadcast(out, scalar32(w, o));
    if (i == 0 && in->dpp)
        dpp_permute(w, in->dpp, out, out);
    if (in->sdwa && i < 2 && in->sel[i] != SEL_DWORD) {
        bool sext = o->mods & MOD_SEXT;
        EACH_LANE(l) out[l] = sdwa_extract(out[l], in->sel[i], sext);
        if (sign == 0x80000000u && in->sel[i] >= SEL_WORD0 && o->type != 'f')
            sign = 0x8000;
    }
    float_modifiers(out, o->mods, sign);
}

/* Source i as 32-bit words: the register itself where nothing has to be done. */
static inline const uint32_t *src32(const struct sim_wave *w, const struct sim_insn *in, int i,
                                    vec32 buffer) {
    const struct sim_operand *o = &in->src[i];
    if (in->src_slow >> i & 1) {
        slow_source(w, in, i, 0x80000000u, buffer);
        return buffer;
    }
    if (o->kind == OPR_VREG)
        return w->v[o->reg];
    broadcast(buffer, scalar32(w, o));
    return buffer;
}

static inline uint32_t flush32(uint32_t x) {
    return (x & 0x7f800000) == 0 ? x & 0x80000000 : x;
}

static inline uint32_t flush16(uint32_t x) {
    return (x & 0x7c00) == 0 ? x & 0x8000 : x;
}

/* Source i as f32, subnormals flushed where MODE says so. */
static inline const float_lane *srcf(const struct sim_wave *w, const struct sim_insn *in, int i,
                                     vec32 buffer) {
    const uint32_t *x = src32(w, in, i, buffer);
    if (w->flush32_in) {
        EACH_LANE(l) buffer[l] = flush32(x[l]);
        x = buffer;
    }
    return (const float_lane *)(const void *)x;
}

/* Source i as 16-bit words in the low halves, op_sel and SDWA applied. */
static __attribute__((noinline, unused)) void src16(const struct sim_wave *w,
                                                    const struct sim_insn *in, int i, vec32 out) {
    const struct sim_operand *o = &in->src[i];
    bool high = in->op_sel >> i & 1;
    slow_source(w, in, i, 0, out);
    EACH_LANE(l) out[l] = (high ? out[l] >> 16 : out[l]) & 0xffff;
    float_modifiers(out, o->mods & (MOD_ABS | MOD_NEG), 0x8000);
}

static inline void srch(const struct sim_wave *w, const struct sim_insn *in, int i, vecf out) {
    vec32 bits;
    src16(w, in, i, bits);
    if (w->flush16_in)
        EACH_LANE(l) bits[l] = flush16(bits[l]);
    EACH_LANE(l) out[l] = f16_to_f32(bits[l]);
}

static __attribute__((noinline, unused)) void src64(const struct sim_wave *w,
                                                    const struct sim_insn *in, int i, vec64 out) {
    const struct sim_operand *o = &in->src[i];
    if (o->kind == OPR_VREG) {
        vec32 lo, hi;
        memcpy(lo, w->v[o->reg], sizeof(lo));
        memcpy(hi, w->v[o->reg + 1], sizeof(hi));
        if (i == 0 && in->dpp) {
            dpp_permute(w, in->dpp, lo, lo);
            dpp_permute(w, in->dpp, hi, hi);
        }
        EACH_LANE(l) out[l] = lo[l] | (uint64_t)hi[l] << 32;
    } else {
        uint64_t x = scalar64(w, o);
        EACH_LANE(l) out[l] = x;
    }
    if (o->mods & MOD_ABS)
        EACH_LANE(l) out[l] &= ~(1ull << 63);
    if (o->mods & MOD_NEG)
        EACH_LANE(l) out[l] ^= 1ull << 63;
}

static inline void srcd(const struct sim_wave *w, const struct sim_insn *in, int i,
                        double out[SIM_LANES]) {
    vec64 bits;
    src64(w, in, i, bits);
    if (w->flush16_in) /* one field of MODE rules f16 and f64 */
        EACH_LANE(l) if (!(bits[l] & 0x7ff0000000000000ull)) bits[l] &= 1ull << 63;
    EACH_LANE(l) out[l] = as_f64(bits[l]);
}

/* --- results --- */

static inline uint64_t write_mask(const struct sim_wave *w, const struct sim_insn *in) {
    uint64_t mask = exec_mask(w);
    if (in->dpp) {
        mask &= in->dpp->enabled;
        if (!in->dpp->bound_zero)
            mask &= dpp_valid(w, in->dpp);
    }
    return mask;
}

static inline void write_masked(uint32_t *to, const uint32_t *from, uint64_t mask) {
    if (mask == ~0ull) {
        memcpy(to, from, sizeof(vec32));
        return;
    }
    EACH_LANE(l) {
        uint32_t keep = (uint32_t)(mask >> l & 1) - 1;
        to[l] = (to[l] & keep) | (from[l] & ~keep);
    }
}

static __attribute__((noinline, unused)) void sdwa_insert(const struct sim_insn *in,
                                                          const uint32_t *old, vec32 x) {
    bool byte = in->dst_sel <= SEL_BYTE3;
    int bits = byte ? 8 : 16;
    int shift = byte ? 8 * in->dst_sel : in->dst_sel == SEL_WORD1 ? 16 : 0;
    uint32_t field = ((1u << bits) - 1) << shift, above = ~field & ~((1u << shift) - 1);
    EACH_LANE(l) {
        uint32_t r = x[l] << shift & field;
        if (in->dst_unused == UNUSED_PRESERVE)
            r |= old[l] & ~field;
        else if (in->dst_unused == UNUSED_SEXT && (x[l] >> (bits - 1) & 1))
            r |= above;
        x[l] = r;
    }
}

static inline void put32(struct sim_wave *w, const struct sim_insn *in, int i, vec32 x) {
    uint32_t *to = w->v[in->dst[i].reg];
    if (in->sdwa && in->dst_sel != SEL_DWORD)
        sdwa_insert(in, to, x);
    write_masked(to, x, write_mask(w, in));
}

static inline float clamp01(const struct sim_wave *w, float x) {
    if (x != x)
        return w->dx10_clamp ? 0.f : x;
    return x < 0 ? 0.f : x > 1 ? 1.f : x;
}

static inline void putf(struct sim_wave *w, const struct sim_insn *in, int i, vec32 x) {
    if (w->flush32_out)
        EACH_LANE(l) x[l] = flush32(x[l]);
    if (in->omod) {
        float scale = in->omod == 1 ? 2.f : in->omod == 2 ? 4.f : 0.5f;
        EACH_LANE(l) x[l] = as_u32(as_f32(x[l]) * scale);
    }
    if (in->clamp)
        EACH_LANE(l) x[l] = as_u32(clamp01(w, as_f32(x[l])));
    put32(w, in, i, x);
}

/* A 16-bit result: the other half is cleared, or kept with op_sel and by the newer operations. */
static inline void put16(struct sim_wave *w, const struct sim_insn *in, vec32 x, bool keep) {
    const uint32_t *old = w->v[in->dst[0].reg];
    bool high = in->op_sel >> in->nsrc & 1;
    if (in->sdwa) {
        put32(w, in, 0, x);
        return;
    }
    if (high)
        EACH_LANE(l) x[l] = x[l] << 16 | (old[l] & 0xffff);
    else if (keep)
        EACH_LANE(l) x[l] = (x[l] & 0xffff) | (old[l] & 0xffff0000);
    put32(w, in, 0, x);
}

static inline uint32_t finish_half(const struct sim_wave *w, const struct sim_insn *in,
                                   uint32_t h) {
    if (w->flush16_out)
        h = flush16(h);
    if (in->omod) {
        float scale = in->omod == 1 ? 2.f : in->omod == 2 ? 4.f : 0.5f;
        h = f32_to_f16(f16_to_f32(h) * scale);
    }
    return in->clamp ? f32_to_f16(clamp01(w, f16_to_f32(h))) : h;
}

static inline void puth(struct sim_wave *w, const struct sim_insn *in, const vecf x, bool keep) {
    vec32 bits;
    EACH_LANE(l) bits[l] = finish_half(w, in, f32_to_f16(x[l]));
    put16(w, in, bits, keep);
}

static inline void put64(struct sim_wave *w, const struct sim_insn *in, int i, const vec64 x) {
    vec32 lo, hi;
    uint64_t mask = write_mask(w, in);
    EACH_LANE(l) {
        lo[l] = (uint32_t)x[l];
        hi[l] = (uint32_t)(x[l] >> 32);
    }
    write_masked(w->v[in->dst[i].reg], lo, mask);
    write_masked(w->v[in->dst[i].reg + 1], hi, mask);
}

static inline void putd(struct sim_wave *w, const struct sim_insn *in, int i,
                        const double x[SIM_LANES]) {
    vec64 bits;
    double scale = in->omod == 0 ? 1. : in->omod == 1 ? 2. : in->omod == 2 ? 4. : 0.5;
    EACH_LANE(l) {
        double r = x[l] * scale;
        if (in->clamp)
            r = r != r ? (w->dx10_clamp ? 0. : r) : r < 0 ? 0. : r > 1 ? 1. : r;
        bits[l] = as_u64(r);
        if (w->flush16_out && !(bits[l] & 0x7ff0000000000000ull))
            bits[l] &= 1ull << 63;
    }
    put64(w, in, i, bits);
}

/* A lane mask (carry, comparison): inactive lanes give 0. */
static inline void put_mask(struct sim_wave *w, const struct sim_insn *in, int i, uint64_t mask) {
    set_sreg64(w, in->dst[i].reg, mask & exec_mask(w));
}

#endif
