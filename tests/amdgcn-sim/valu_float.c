/* SPDX-License-Identifier: Apache-2.0 */
/* Vector f32 operations. Transcendentals are computed in f64 and rounded once: the chips promise
 * one unit in the last place; v_exp, v_log, v_rcp, v_rsq, v_sqrt, v_sin and v_cos flush subnormals
 * whatever MODE says. */
#include "valu.h"

#define A a[l]
#define B b[l]
#define C c[l]

static inline uint32_t quiet(uint32_t x) {
    return (x & 0x7fffffff) > 0x7f800000 ? x | 0x400000 : x;
}
static inline bool signaling(float x) {
    uint32_t u = as_u32(x);
    return (u & 0x7fffffff) > 0x7f800000 && !(u & 0x400000);
}
/* minNum and maxNum of IEEE 754-2008, with -0 below +0. */
static inline float min_num(float a, float b) {
    float r = a < b || b != b ? a : b;
    return a == b ? as_f32(as_u32(a) | as_u32(b)) : r;
}
static inline float max_num(float a, float b) {
    float r = a > b || b != b ? a : b;
    return a == b ? as_f32(as_u32(a) & as_u32(b)) : r;
}
static inline float med3_num(float a, float b, float c) {
    if (a != a || b != b || c != c)
        return min_num(min_num(a, b), c);
    return max_num(min_num(a, b), min_num(max_num(a, b), c));
}

#define FP1(name, expression)                                                                      \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 ab, r;                                                                               \
        const float_lane *a = srcf(w, in, 0, ab);                                                  \
        EACH_LANE(l) r[l] = as_u32(expression);                                                    \
        putf(w, in, 0, r);                                                                         \
    }
#define FP2(name, expression)                                                                      \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 ab, bb, r;                                                                           \
        const float_lane *a = srcf(w, in, 0, ab), *b = srcf(w, in, 1, bb);                         \
        EACH_LANE(l) r[l] = as_u32(expression);                                                    \
        putf(w, in, 0, r);                                                                         \
    }
#define FP3(name, expression)                                                                      \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 ab, bb, cb, r;                                                                       \
        const float_lane *a = srcf(w, in, 0, ab), *b = srcf(w, in, 1, bb),                         \
                         *c = srcf(w, in, 2, cb);                                                  \
        EACH_LANE(l) r[l] = as_u32(expression);                                                    \
        putf(w, in, 0, r);                                                                         \
    }

static inline float flushed(double x) {
    return as_f32(flush32(as_u32((float)x)));
}
static inline float in_flushed(float x) {
    return as_f32(flush32(as_u32(x)));
}
static inline float exp2_(float x) {
    return flushed(exp2f(in_flushed(x)));
}
static inline float log2_(float x) {
    return flushed(log2f(in_flushed(x)));
}
static inline float rcp_(float x) {
    return flushed(1. / in_flushed(x));
}
static inline float rsq_(float x) {
    return flushed(1. / sqrt(in_flushed(x)));
}
static inline float sqrt_(float x) {
    return flushed(sqrt(in_flushed(x)));
}
/* The operand counts turns and is valid within 256 of them. */
static inline float sin_(float x) {
    double t = in_flushed(x);
    return fabs(t) > 256 ? (t != t || isinf(t) ? NAN : 0.f)
                         : flushed(sin(2 * M_PI * (t - rint(t))));
}
static inline float cos_(float x) {
    double t = in_flushed(x);
    return fabs(t) > 256 ? (t != t || isinf(t) ? NAN : 1.f)
                         : flushed(cos(2 * M_PI * (t - rint(t))));
}
static inline float fract_(float x) {
    float r = x - floorf(x);
    return isinf(x) ? NAN : r >= 1.f ? as_f32(0x3f7fffff) : r;
}
static inline float frexp_mantissa(float x) {
    int e;
    return isfinite(x) ? frexpf(x, &e) : x;
}
static inline float legacy_product(float a, float b) {
    return a == 0 || b == 0 ? 0.f : a * b;
}
static inline float ieee_min(const struct sim_wave *w, float a, float b) {
    if (w->ieee && (signaling(a) || signaling(b)))
        return as_f32(quiet(as_u32(signaling(a) ? a : b)));
    return min_num(a, b);
}
static inline float ieee_max(const struct sim_wave *w, float a, float b) {
    if (w->ieee && (signaling(a) || signaling(b)))
        return as_f32(quiet(as_u32(signaling(a) ? a : b)));
    return max_num(a, b);
}

FP2(add, A + B)
FP2(sub, A - B)
FP2(subrev, B - A)
FP2(mul, A *B)
FP2(mul_legacy, legacy_product(A, B))
FP2(min_f, ieee_min(w, A, B))
FP2(max_f, ieee_max(w, A, B))
FP3(fma_f, fmaf(A, B, C))
FP3(min3, min_num(min_num(A, B), C))
FP3(max3, max_num(max_num(A, B), C))
FP3(med3, med3_num(A, B, C))
FP1(exp_f, exp2_(A))
FP1(log_f, log2_(A))
FP1(rcp, rcp_(A))
FP1(rsq, rsq_(A))
FP1(sqrt_f, sqrt_(A))
FP1(sin_f, sin_(A))
FP1(cos_f, cos_(A))
FP1(fract, fract_(A))
FP1(trunc_f, truncf(A))
FP1(ceil_f, ceilf(A))
FP1(floor_f, floorf(A))
FP1(rndne, rintf(A))
FP1(frexp_mant, frexp_mantissa(A))

/* The accumulator is the destination. */
static void fmac(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb, cb, r;
    const float_lane *a = srcf(w, in, 0, ab), *b = srcf(w, in, 1, bb);
    memcpy(cb, w->v[in->dst[0].reg], sizeof(cb));
    if (w->flush32_in)
        EACH_LANE(l) cb[l] = flush32(cb[l]);
    EACH_LANE(l) r[l] = as_u32(fmaf(a[l], b[l], as_f32(cb[l])));
    putf(w, in, 0, r);
}

/* v_mac and v_mad round the product and flush subnormals whatever MODE says. */
static void mac(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb, r;
    const float_lane *a = srcf(w, in, 0, ab), *b = srcf(w, in, 1, bb);
    const uint32_t *c = w->v[in->dst[0].reg];
    EACH_LANE(l) {
        float product = in_flushed(a[l]) * in_flushed(b[l]);
        r[l] = as_u32(flushed(in_flushed(product) + in_flushed(as_f32(c[l]))));
    }
    putf(w, in, 0, r);
}
static void mad(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb, cb, r;
    const float_lane *a = srcf(w, in, 0, ab), *b = srcf(w, in, 1, bb), *c = srcf(w, in, 2, cb);
    EACH_LANE(l) {
        float product = in_flushed(a[l]) * in_flushed(b[l]);
        r[l] = as_u32(flushed(in_flushed(product) + in_flushed(c[l])));
    }
    putf(w, in, 0, r);
}

static void ldexp_f(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb, r;
    const float_lane *a = srcf(w, in, 0, ab);
    const uint32_t *b = src32(w, in, 1, bb);
    EACH_LANE(l) {
        int32_t e = (int32_t)b[l];
        e = e > 1000 ? 1000 : e < -1000 ? -1000 : e;
        r[l] = as_u32(ldexpf(a[l], e));
    }
    putf(w, in, 0, r);
}

static void frexp_exp(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, r;
    const float_lane *a = srcf(w, in, 0, ab);
    EACH_LANE(l) {
        int e = 0;
        if (isfinite(a[l]))
            frexpf(a[l], &e);
        r[l] = (uint32_t)e;
    }
    put32(w, in, 0, r);
}

/* --- division: scale operands away from overflow and subnormals, refine, repair --- */

static inline int exponent(float x) {
    return (int)(as_u32(x) >> 23 & 255);
}
static inline bool subnormal(float x) {
    return exponent(x) == 0 && x != 0;
}

/* s0 is the denominator or the numerator, s1 the denominator, s2 the numerator. */
static float div_scale_lane(float s0, float s1, float s2, bool *vcc) {
    const float up = 0x1p64f, down = 0x1p-64f;
    *vcc = false;
    if (s2 == 0 || s1 == 0)
        return NAN;
    if (exponent(s2) - exponent(s1) >= 96) {
        *vcc = true; /* the quotient is near overflow */
        return s0 == s1 ? s0 * up : s0;
    }
    if (subnormal(s1))
        return s0 * up;
    bool tiny_reciprocal = subnormal((float)(1. / (double)s1));
    bool tiny_quotient = subnormal((float)((double)s2 / (double)s1));
    if (tiny_reciprocal && tiny_quotient) {
        *vcc = true;
        return s0 == s1 ? s0 * down : s0;
    }
    if (tiny_reciprocal)
        return s0 * down;
    if (tiny_quotient) {
        *vcc = true;
        return s0 == s2 ? s0 * up : s0;
    }
    return exponent(s2) <= 23 ? s0 * up : s0;
}

static void div_scale(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb, cb, r;
    const float_lane *a = srcf(w, in, 0, ab), *b = srcf(w, in, 1, bb), *c = srcf(w, in, 2, cb);
    uint64_t mask = 0;
    EACH_LANE(l) {
        bool vcc;
        r[l] = as_u32(div_scale_lane(a[l], b[l], c[l], &vcc));
        mask |= (uint64_t)vcc << l;
    }
    put32(w, in, 0, r);
    put_mask(w, in, 1, mask);
}

static void div_fmas(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb, cb, r;
    const float_lane *a = srcf(w, in, 0, ab), *b = srcf(w, in, 1, bb), *c = srcf(w, in, 2, cb);
    uint64_t vcc = sreg64(w, SIM_VCC);
    EACH_LANE(l) {
        float x = fmaf(a[l], b[l], c[l]);
        if (vcc >> l & 1)
            x = exponent(c[l]) > 127 ? x * 0x1p64f : x * 0x1p-64f;
        r[l] = as_u32(x);
    }
    putf(w, in, 0, r);
}

/* quotient, denominator, numerator -> the quotient with its special cases put right */
static float div_fixup_lane(float q, float d, float n) {
    uint32_t sign = (as_u32(d) ^ as_u32(n)) & 0x80000000u;
    if (n != n)
        return as_f32(quiet(as_u32(n)));
    if (d != d)
        return as_f32(quiet(as_u32(d)));
    if ((n == 0 && d == 0) || (isinf(n) && isinf(d)))
        return as_f32(0xffc00000u);
    if (d == 0 || isinf(n))
        return as_f32(sign | 0x7f800000u);
    if (isinf(d) || n == 0)
        return as_f32(sign);
    int e = exponent(n) - exponent(d);
    if (e < -150)
        return as_f32(sign);
    /* Far beyond the largest number the refinement itself overflows and leaves inf - inf. */
    if (q != q && e > 0)
        return as_f32(sign | 0x7f800000u);
    return as_f32((as_u32(q) & 0x7fffffffu) | sign);
}

static void div_fixup(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb, cb, r;
    const float_lane *a = srcf(w, in, 0, ab), *b = srcf(w, in, 1, bb), *c = srcf(w, in, 2, cb);
    EACH_LANE(l) r[l] = as_u32(div_fixup_lane(a[l], b[l], c[l]));
    putf(w, in, 0, r);
}

/* --- f32 arithmetic on a mixture of f16 and f32 sources --- */

static void mix_source(struct sim_wave *w, const struct sim_insn *in, int i, vecf out) {
    const struct sim_operand *o = &in->src[i];
    vec32 bits;
    if (o->kind == OPR_VREG)
        memcpy(bits, w->v[o->reg], sizeof(bits));
    else
        broadcast(bits, scalar32(w, o));
    if (in->op_sel_hi >> i & 1) {
        bool high = in->op_sel >> i & 1;
        EACH_LANE(l) bits[l] = as_u32(f16_to_f32(high ? bits[l] >> 16 : bits[l] & 0xffff));
    }
    uint8_t mods = (uint8_t)(o->mods | ((in->neg_lo >> i & 1) ? MOD_NEG : 0) |
                             ((in->neg_hi >> i & 1) ? MOD_ABS : 0));
    float_modifiers(bits, mods, 0x80000000u);
    EACH_LANE(l) out[l] = as_f32(w->flush32_in ? flush32(bits[l]) : bits[l]);
}

enum { MIX_F32, MIX_LOW, MIX_HIGH };

static void fma_mix(struct sim_wave *w, const struct sim_insn *in) {
    vecf a, b, c;
    vec32 r;
    mix_source(w, in, 0, a);
    mix_source(w, in, 1, b);
    mix_source(w, in, 2, c);
    EACH_LANE(l) r[l] = as_u32(fmaf(a[l], b[l], c[l]));
    if (in->param == MIX_F32) {
        putf(w, in, 0, r);
        return;
    }
    const uint32_t *old = w->v[in->dst[0].reg];
    EACH_LANE(l) {
        float x = as_f32(r[l]);
        uint32_t h = f32_to_f16(in->clamp ? clamp01(w, x) : x);
        r[l] = in->param == MIX_LOW ? (old[l] & 0xffff0000u) | h : (old[l] & 0xffff) | h << 16;
    }
    put32(w, in, 0, r);
}

static const struct sim_op ops[] = {
    {"v_add_f32", add, "f:ff", 0},
    {"v_sub_f32", sub, "f:ff", 0},
    {"v_subrev_f32", subrev, "f:ff", 0},
    {"v_mul_f32", mul, "f:ff", 0},
    {"v_mul_legacy_f32", mul_legacy, "f:ff", 0},
    {"v_min_f32", min_f, "f:ff", 0},
    {"v_max_f32", max_f, "f:ff", 0},
    {"v_fma_f32", fma_f, "f:fff", 0},
    {"v_fmac_f32", fmac, "f:ff", 0},
    {"v_fmamk_f32", fma_f, "f:fff", 0},
    {"v_fmaak_f32", fma_f, "f:fff", 0},
    {"v_mac_f32", mac, "f:ff", 0},
    {"v_mad_f32", mad, "f:fff", 0},
    {"v_madmk_f32", mad, "f:fff", 0},
    {"v_madak_f32", mad, "f:fff", 0},
    {"v_min3_f32", min3, "f:fff", 0},
    {"v_max3_f32", max3, "f:fff", 0},
    {"v_med3_f32", med3, "f:fff", 0},
    {"v_exp_f32", exp_f, "f:f", 0},
    {"v_log_f32", log_f, "f:f", 0},
    {"v_exp_legacy_f32", exp_f, "f:f", 0},
    {"v_log_legacy_f32", log_f, "f:f", 0},
    {"v_rcp_f32", rcp, "f:f", 0},
    {"v_rcp_iflag_f32", rcp, "f:f", 0},
    {"v_rsq_f32", rsq, "f:f", 0},
    {"v_sqrt_f32", sqrt_f, "f:f", 0},
    {"v_sin_f32", sin_f, "f:f", 0},
    {"v_cos_f32", cos_f, "f:f", 0},
    {"v_fract_f32", fract, "f:f", 0},
    {"v_trunc_f32", trunc_f, "f:f", 0},
    {"v_ceil_f32", ceil_f, "f:f", 0},
    {"v_floor_f32", floor_f, "f:f", 0},
    {"v_rndne_f32", rndne, "f:f", 0},
    {"v_ldexp_f32", ldexp_f, "f:fb", 0},
    {"v_frexp_mant_f32", frexp_mant, "f:f", 0},
    {"v_frexp_exp_i32_f32", frexp_exp, "b:f", 0},
    {"v_div_scale_f32", div_scale, "fS:fff", 0},
    {"v_div_fmas_f32", div_fmas, "f:fff", 0},
    {"v_div_fixup_f32", div_fixup, "f:fff", 0},
    {"v_fma_mix_f32", fma_mix, "f:mmm", MIX_F32},
    {"v_fma_mixlo_f16", fma_mix, "h:mmm", MIX_LOW},
    {"v_fma_mixhi_f16", fma_mix, "h:mmm", MIX_HIGH},
};
OPS_TABLE(valu_float, ops);
