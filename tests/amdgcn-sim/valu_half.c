/* SPDX-License-Identifier: Apache-2.0 */
/* Vector f16 and f64 operations. */
#include "valu.h"

#define A a[l]
#define B b[l]
#define C c[l]

/* a * b + c rounded once to f16: the product is exact in f64, the sum is rounded to odd. */
static float fma_half(float a, float b, float c) {
    double p = (double)a * b, s = p + c;
    double t = s - p, error = (p - (s - t)) + (c - t);
    if (isfinite(s) && error != 0 && !(as_u64(s) & 1))
        s = as_f64(as_u64(s) + ((error > 0) == (s > 0) ? 1 : (uint64_t)-1));
    return (float)round_to(s, 11, -14);
}
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
static inline float once(double x) {
    return (float)round_to(x, 11, -14);
}
static inline float frexp_mantissa(float x) {
    int e;
    return isfinite(x) ? frexpf(x, &e) : x;
}

#define HALF1(name, expression)                                                                    \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vecf a, r;                                                                                 \
        srch(w, in, 0, a);                                                                         \
        EACH_LANE(l) r[l] = (expression);                                                          \
        puth(w, in, r, false);                                                                     \
    }
#define HALF2(name, expression)                                                                    \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vecf a, b, r;                                                                              \
        srch(w, in, 0, a);                                                                         \
        srch(w, in, 1, b);                                                                         \
        EACH_LANE(l) r[l] = (expression);                                                          \
        puth(w, in, r, false);                                                                     \
    }
#define HALF3(name, expression)                                                                    \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vecf a, b, c, r;                                                                           \
        srch(w, in, 0, a);                                                                         \
        srch(w, in, 1, b);                                                                         \
        srch(w, in, 2, c);                                                                         \
        EACH_LANE(l) r[l] = (expression);                                                          \
        puth(w, in, r, true);                                                                      \
    }

/* One f32 operation on f16 operands rounds to f16 as the exact result does. */
HALF2(add_h, A + B)
HALF2(sub_h, A - B)
HALF2(subrev_h, B - A)
HALF2(mul_h, A *B)
HALF2(min_h, min_num(A, B))
HALF2(max_h, max_num(A, B))
HALF3(fma_h, fma_half(A, B, C))
HALF3(mad_h, f16_to_f32(f32_to_f16(A *B)) + C)
HALF3(min3_h, min_num(min_num(A, B), C))
HALF3(max3_h, max_num(max_num(A, B), C))
HALF3(med3_h, med3_num(A, B, C))
HALF1(exp_h, once(exp2(A)))
HALF1(log_h, once(log2(A)))
HALF1(rcp_h, once(1. / A))
HALF1(rsq_h, once(1. / sqrt(A)))
HALF1(sqrt_h, once(sqrt(A)))
HALF1(sin_h, once(sin(2 * M_PI * (A - rintf(A)))))
HALF1(cos_h, once(cos(2 * M_PI * (A - rintf(A)))))
HALF1(trunc_h, truncf(A))
HALF1(ceil_h, ceilf(A))
HALF1(floor_h, floorf(A))
HALF1(rndne_h, rintf(A))
HALF1(fract_h, A - floorf(A))
HALF1(frexp_mant_h, frexp_mantissa(A))

static void mac_h(struct sim_wave *w, const struct sim_insn *in) {
    vecf a, b, r;
    const uint32_t *c = w->v[in->dst[0].reg];
    srch(w, in, 0, a);
    srch(w, in, 1, b);
    EACH_LANE(l) {
        float d = f16_to_f32(c[l] & 0xffff);
        r[l] = in->param ? fma_half(a[l], b[l], d) : f16_to_f32(f32_to_f16(a[l] * b[l])) + d;
    }
    puth(w, in, r, false);
}

static void ldexp_h(struct sim_wave *w, const struct sim_insn *in) {
    vecf a, r;
    vec32 b;
    srch(w, in, 0, a);
    src16(w, in, 1, b);
    EACH_LANE(l) r[l] = once(ldexp(a[l], (int16_t)b[l]));
    puth(w, in, r, false);
}

static void frexp_exp_h(struct sim_wave *w, const struct sim_insn *in) {
    vecf a;
    vec32 r;
    srch(w, in, 0, a);
    EACH_LANE(l) {
        int e = 0;
        if (isfinite(a[l]))
            frexpf(a[l], &e);
        r[l] = (uint32_t)e & 0xffff;
    }
    put16(w, in, r, false);
}

static void div_fixup_h(struct sim_wave *w, const struct sim_insn *in) {
    vecf q, d, n, r;
    srch(w, in, 0, q);
    srch(w, in, 1, d);
    srch(w, in, 2, n);
    EACH_LANE(l) {
        float sign = signbit(d[l]) != signbit(n[l]) ? -1.f : 1.f;
        if (n[l] != n[l] || d[l] != d[l])
            r[l] = NAN;
        else if ((n[l] == 0 && d[l] == 0) || (isinf(n[l]) && isinf(d[l])))
            r[l] = NAN;
        else if (d[l] == 0 || isinf(n[l]))
            r[l] = sign * INFINITY;
        else if (isinf(d[l]) || n[l] == 0)
            r[l] = sign * 0.f;
        else
            r[l] = sign * fabsf(q[l]);
    }
    puth(w, in, r, true);
}

static void pack_b32_f16(struct sim_wave *w, const struct sim_insn *in) {
    vec32 a, b;
    src16(w, in, 0, a);
    src16(w, in, 1, b);
    EACH_LANE(l) a[l] |= b[l] << 16;
    put32(w, in, 0, a);
}

/* --- f64 --- */

typedef double vecd[SIM_LANES] __attribute__((aligned(64)));

static inline double min_numd(double a, double b) {
    return a < b || b != b || (a == b && signbit(a)) ? a : b;
}
static inline double max_numd(double a, double b) {
    return a > b || b != b || (a == b && !signbit(a)) ? a : b;
}
static inline double ldexpd(double a, uint32_t e) {
    int32_t i = (int32_t)e;
    return ldexp(a, i > 5000 ? 5000 : i < -5000 ? -5000 : i);
}
static inline double fractd(double x) {
    double r = x - floor(x);
    return isinf(x) ? NAN : r >= 1. ? as_f64(0x3fefffffffffffffull) : r;
}

#define FD1(name, expression)                                                                      \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vecd a, r;                                                                                 \
        srcd(w, in, 0, a);                                                                         \
        EACH_LANE(l) r[l] = (expression);                                                          \
        putd(w, in, 0, r);                                                                         \
    }
#define FD2(name, expression)                                                                      \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vecd a, b, r;                                                                              \
        srcd(w, in, 0, a);                                                                         \
        srcd(w, in, 1, b);                                                                         \
        EACH_LANE(l) r[l] = (expression);                                                          \
        putd(w, in, 0, r);                                                                         \
    }
FD2(add_d, A + B)
FD2(mul_d, A *B)
FD2(min_d, min_numd(A, B))
FD2(max_d, max_numd(A, B))
FD1(rcp_d, 1. / A)
FD1(rsq_d, 1. / sqrt(A))
FD1(sqrt_d, sqrt(A))
FD1(trunc_d, trunc(A))
FD1(ceil_d, ceil(A))
FD1(floor_d, floor(A))
FD1(rndne_d, rint(A))
FD1(fract_d, fractd(A))

enum { FMA_D, FMAC_D, DIV_FMAS_D };

static void fma_d(struct sim_wave *w, const struct sim_insn *in) {
    vecd a, b, c;
    uint64_t vcc = sreg64(w, SIM_VCC);
    srcd(w, in, 0, a);
    srcd(w, in, 1, b);
    if (in->param == FMAC_D) {
        int reg = in->dst[0].reg;
        EACH_LANE(l) c[l] = as_f64(w->v[reg][l] | (uint64_t)w->v[reg + 1][l] << 32);
    } else {
        srcd(w, in, 2, c);
    }
    EACH_LANE(l) {
        double x = fma(a[l], b[l], c[l]);
        if (in->param == DIV_FMAS_D && (vcc >> l & 1))
            x = (as_u64(c[l]) >> 52 & 2047) > 1023 ? x * 0x1p128 : x * 0x1p-128;
        a[l] = x;
    }
    putd(w, in, 0, a);
}

static void ldexp_d(struct sim_wave *w, const struct sim_insn *in) {
    vecd a;
    vec32 bb;
    srcd(w, in, 0, a);
    const uint32_t *b = src32(w, in, 1, bb);
    EACH_LANE(l) a[l] = ldexpd(a[l], b[l]);
    putd(w, in, 0, a);
}

static void frexp_d(struct sim_wave *w, const struct sim_insn *in) {
    vecd a;
    vec32 exponent;
    srcd(w, in, 0, a);
    EACH_LANE(l) {
        int e = 0;
        if (isfinite(a[l]))
            a[l] = frexp(a[l], &e);
        exponent[l] = (uint32_t)e;
    }
    if (in->param)
        put32(w, in, 0, exponent);
    else
        putd(w, in, 0, a);
}

static int exponent(double x) {
    return (int)(as_u64(x) >> 52 & 2047);
}
static bool subnormal(double x) {
    return exponent(x) == 0 && x != 0;
}

static double div_scale_lane(double s0, double s1, double s2, bool *vcc) {
    const double up = 0x1p128, down = 0x1p-128;
    *vcc = false;
    if (s2 == 0 || s1 == 0)
        return NAN;
    if (exponent(s2) - exponent(s1) >= 768) {
        *vcc = true;
        return s0 == s1 ? s0 * up : s0;
    }
    if (subnormal(s1))
        return s0 * up;
    if (subnormal(1. / s1) && subnormal(s2 / s1)) {
        *vcc = true;
        return s0 == s1 ? s0 * down : s0;
    }
    if (subnormal(1. / s1))
        return s0 * down;
    if (subnormal(s2 / s1)) {
        *vcc = true;
        return s0 == s2 ? s0 * up : s0;
    }
    return exponent(s2) <= 53 ? s0 * up : s0;
}

static void div_scale_d(struct sim_wave *w, const struct sim_insn *in) {
    vecd a, b, c;
    uint64_t mask = 0;
    srcd(w, in, 0, a);
    srcd(w, in, 1, b);
    srcd(w, in, 2, c);
    EACH_LANE(l) {
        bool vcc;
        a[l] = div_scale_lane(a[l], b[l], c[l], &vcc);
        mask |= (uint64_t)vcc << l;
    }
    putd(w, in, 0, a);
    put_mask(w, in, 1, mask);
}

static double div_fixup_lane(double q, double d, double n) {
    double sign = signbit(d) != signbit(n) ? -1. : 1.;
    if (n != n || d != d)
        return NAN;
    if ((n == 0 && d == 0) || (isinf(n) && isinf(d)))
        return NAN;
    if (d == 0 || isinf(n))
        return sign * INFINITY;
    if (isinf(d) || n == 0)
        return sign * 0.;
    const int e = exponent(n) - exponent(d);
    if (q != q && e > 0) /* the refinement itself overflowed and left inf - inf */
        return sign * INFINITY;
    return e < -1075 ? sign * 0. : sign * fabs(q);
}

static void div_fixup_d(struct sim_wave *w, const struct sim_insn *in) {
    vecd a, b, c;
    srcd(w, in, 0, a);
    srcd(w, in, 1, b);
    srcd(w, in, 2, c);
    EACH_LANE(l) a[l] = div_fixup_lane(a[l], b[l], c[l]);
    putd(w, in, 0, a);
}

static const struct sim_op ops[] = {
    {"v_add_f16", add_h, "h:hh", 0},
    {"v_sub_f16", sub_h, "h:hh", 0},
    {"v_subrev_f16", subrev_h, "h:hh", 0},
    {"v_mul_f16", mul_h, "h:hh", 0},
    {"v_min_f16", min_h, "h:hh", 0},
    {"v_max_f16", max_h, "h:hh", 0},
    {"v_fma_f16", fma_h, "h:hhh", 0},
    {"v_mad_f16", mad_h, "h:hhh", 0},
    {"v_mad_legacy_f16", mad_h, "h:hhh", 0},
    {"v_madmk_f16", mad_h, "h:hhh", 0},
    {"v_madak_f16", mad_h, "h:hhh", 0},
    {"v_mac_f16", mac_h, "h:hh", 0},
    {"v_fmac_f16", mac_h, "h:hh", 1},
    {"v_min3_f16", min3_h, "h:hhh", 0},
    {"v_max3_f16", max3_h, "h:hhh", 0},
    {"v_med3_f16", med3_h, "h:hhh", 0},
    {"v_exp_f16", exp_h, "h:h", 0},
    {"v_log_f16", log_h, "h:h", 0},
    {"v_rcp_f16", rcp_h, "h:h", 0},
    {"v_rsq_f16", rsq_h, "h:h", 0},
    {"v_sqrt_f16", sqrt_h, "h:h", 0},
    {"v_sin_f16", sin_h, "h:h", 0},
    {"v_cos_f16", cos_h, "h:h", 0},
    {"v_trunc_f16", trunc_h, "h:h", 0},
    {"v_ceil_f16", ceil_h, "h:h", 0},
    {"v_floor_f16", floor_h, "h:h", 0},
    {"v_rndne_f16", rndne_h, "h:h", 0},
    {"v_fract_f16", fract_h, "h:h", 0},
    {"v_frexp_mant_f16", frexp_mant_h, "h:h", 0},
    {"v_frexp_exp_i16_f16", frexp_exp_h, "h:h", 0},
    {"v_ldexp_f16", ldexp_h, "h:hk", 0},
    {"v_div_fixup_f16", div_fixup_h, "h:hhh", 0},
    {"v_pack_b32_f16", pack_b32_f16, "b:hh", 0},
    {"v_add_f64", add_d, "d:dd", 0},
    {"v_mul_f64", mul_d, "d:dd", 0},
    {"v_min_f64", min_d, "d:dd", 0},
    {"v_max_f64", max_d, "d:dd", 0},
    {"v_rcp_f64", rcp_d, "d:d", 0},
    {"v_rsq_f64", rsq_d, "d:d", 0},
    {"v_sqrt_f64", sqrt_d, "d:d", 0},
    {"v_trunc_f64", trunc_d, "d:d", 0},
    {"v_ceil_f64", ceil_d, "d:d", 0},
    {"v_floor_f64", floor_d, "d:d", 0},
    {"v_rndne_f64", rndne_d, "d:d", 0},
    {"v_fract_f64", fract_d, "d:d", 0},
    {"v_fma_f64", fma_d, "d:ddd", FMA_D},
    {"v_fmac_f64", fma_d, "d:dd", FMAC_D},
    {"v_div_fmas_f64", fma_d, "d:ddd", DIV_FMAS_D},
    {"v_div_scale_f64", div_scale_d, "dS:ddd", 0},
    {"v_div_fixup_f64", div_fixup_d, "d:ddd", 0},
    {"v_ldexp_f64", ldexp_d, "d:db", 0},
    {"v_frexp_mant_f64", frexp_d, "d:d", 0},
    {"v_frexp_exp_i32_f64", frexp_d, "b:d", 1},
};
OPS_TABLE(valu_half, ops);
