/* SPDX-License-Identifier: Apache-2.0 */
/* Vector conversions. Float to integer truncates, saturates, and takes NaN to 0. */
#include "valu.h"

static inline uint32_t to_i32(double x) {
    if (x != x)
        return 0;
    return (uint32_t)(x >= 2147483647. ? INT32_MAX : x <= -2147483648. ? INT32_MIN : (int32_t)x);
}
static inline uint32_t to_u32(double x) {
    if (!(x > 0))
        return 0;
    return x >= 4294967295. ? UINT32_MAX : (uint32_t)x;
}
static inline uint32_t to_16(double x, double low, double high) {
    if (x != x)
        return 0;
    x = trunc(x < low ? low : x > high ? high : x);
    return (uint32_t)(int32_t)x & 0xffff;
}

#define CVT_TO_F32(name, expression)                                                               \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 ab, r;                                                                               \
        const uint32_t *a = src32(w, in, 0, ab);                                                   \
        EACH_LANE(l) r[l] = as_u32((float)(expression));                                           \
        putf(w, in, 0, r);                                                                         \
    }
#define CVT_FROM_F32(name, expression)                                                             \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 ab, r;                                                                               \
        const float_lane *a = srcf(w, in, 0, ab);                                                  \
        EACH_LANE(l) r[l] = (expression);                                                          \
        put32(w, in, 0, r);                                                                        \
    }

CVT_TO_F32(f32_i32, (int32_t)a[l])
CVT_TO_F32(f32_u32, a[l])
CVT_TO_F32(f32_ubyte, a[l] >> 8 * in->param & 255)
CVT_TO_F32(f32_bf16, bf16_to_f32(a[l] & 0xffff))
CVT_FROM_F32(i32_f32, to_i32(a[l]))
CVT_FROM_F32(u32_f32, to_u32(a[l]))
CVT_FROM_F32(rpi_i32_f32, to_i32(floor((double)a[l] + 0.5)))
CVT_FROM_F32(flr_i32_f32, to_i32(floor(a[l])))

static void f16_f32(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab;
    vecf r;
    const float_lane *a = srcf(w, in, 0, ab);
    memcpy(r, a, sizeof(r));
    puth(w, in, r, false);
}

static void f32_f16(struct sim_wave *w, const struct sim_insn *in) {
    vecf a;
    vec32 r;
    srch(w, in, 0, a);
    EACH_LANE(l) r[l] = as_u32(a[l]);
    putf(w, in, 0, r);
}

/* f16 <-> 16-bit integers */
static void f16_int(struct sim_wave *w, const struct sim_insn *in) {
    vec32 a;
    vecf r;
    src16(w, in, 0, a);
    EACH_LANE(l) r[l] = in->param ? (float)(int16_t)a[l] : (float)a[l];
    puth(w, in, r, false);
}
static void int_f16(struct sim_wave *w, const struct sim_insn *in) {
    vecf a;
    vec32 r;
    srch(w, in, 0, a);
    EACH_LANE(l) r[l] = in->param ? to_16(a[l], -32768, 32767) : to_16(a[l], 0, 65535);
    put16(w, in, r, false);
}

/* --- f64 --- */

static void f64_f32(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab;
    double r[SIM_LANES];
    const float_lane *a = srcf(w, in, 0, ab);
    EACH_LANE(l) r[l] = a[l];
    putd(w, in, 0, r);
}
static void f32_f64(struct sim_wave *w, const struct sim_insn *in) {
    double a[SIM_LANES];
    vec32 r;
    srcd(w, in, 0, a);
    EACH_LANE(l) r[l] = as_u32((float)a[l]);
    putf(w, in, 0, r);
}
static void f64_int(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab;
    double r[SIM_LANES];
    const uint32_t *a = src32(w, in, 0, ab);
    EACH_LANE(l) r[l] = in->param ? (double)(int32_t)a[l] : (double)a[l];
    putd(w, in, 0, r);
}
static void int_f64(struct sim_wave *w, const struct sim_insn *in) {
    double a[SIM_LANES];
    vec32 r;
    srcd(w, in, 0, a);
    EACH_LANE(l) r[l] = in->param ? to_i32(a[l]) : to_u32(a[l]);
    put32(w, in, 0, r);
}

/* --- two results in one dword --- */

static uint32_t f16_toward_zero(float x) {
    uint32_t h = f32_to_f16(x);
    float back = f16_to_f32(h);
    if (isfinite(x) && fabsf(back) > fabsf(x))
        h--; /* the next magnitude towards zero, also from infinity */
    return h;
}

enum { PK_RTZ_F16, PK_I16_I32, PK_U16_U32, PK_NORM_I16, PK_NORM_U16 };

static uint32_t narrow(int how, uint32_t x) {
    double f = as_f32(x);
    switch (how) {
    case PK_RTZ_F16:
        return f16_toward_zero(as_f32(x));
    case PK_I16_I32:
        return to_16((int32_t)x, -32768, 32767);
    case PK_U16_U32:
        return x > 65535 ? 65535 : x;
    case PK_NORM_I16:
        return to_16(rint((f < -1 ? -1 : f > 1 ? 1 : f) * 32767), -32767, 32767);
    default:
        return to_16(rint((f < 0 ? 0 : f > 1 ? 1 : f) * 65535), 0, 65535);
    }
}

static void pack(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb, r;
    const uint32_t *a = src32(w, in, 0, ab), *b = src32(w, in, 1, bb);
    EACH_LANE(l) r[l] = narrow(in->param, a[l]) | narrow(in->param, b[l]) << 16;
    put32(w, in, 0, r);
}

static void cvt_pk_u8(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb, cb, r;
    const float_lane *a = srcf(w, in, 0, ab);
    const uint32_t *b = src32(w, in, 1, bb), *c = src32(w, in, 2, cb);
    EACH_LANE(l) {
        uint32_t x = to_u32(rintf(a[l])), shift = 8 * (b[l] & 3);
        r[l] = (c[l] & ~(255u << shift)) | (x > 255 ? 255u : x) << shift;
    }
    put32(w, in, 0, r);
}

/* --- 8-bit floats of gfx942: no infinities, no -0, one NaN (0x80), bias one more than IEEE's ---
 */

struct fp8 {
    int mantissa, bias;
    double max;
};
static const struct fp8 fp8_formats[2] = {{3, 8, 240.}, {2, 16, 57344.}};

static float fp8_to_f32(int bf8, uint32_t x) {
    const struct fp8 *f = &fp8_formats[bf8];
    int m = f->mantissa, e = (int)(x >> m & (0x7fu >> m));
    double mant = x & ((1u << m) - 1);
    if ((x & 255) == 0x80)
        return NAN;
    double v = e ? ldexp(1 + ldexp(mant, -m), e - f->bias) : ldexp(mant, 1 - f->bias - m);
    return (float)(x & 0x80 ? -v : v);
}

static uint32_t fp8_encode(int bf8, double v) {
    const struct fp8 *f = &fp8_formats[bf8];
    uint32_t sign = v < 0 ? 0x80 : 0;
    int e;
    v = fabs(v);
    if (v == 0)
        return 0;
    frexp(v, &e);
    e = e - 1 + f->bias;
    if (e < 1)
        return sign | (uint32_t)ldexp(v, f->bias - 1 + f->mantissa);
    return sign | (uint32_t)e << f->mantissa |
           (uint32_t)ldexp(ldexp(v, f->bias - e) - 1, f->mantissa);
}

/* Out of range: the largest number with clamp, NaN without. */
static uint32_t f32_to_fp8(int bf8, float x, bool clamp, bool stochastic, uint32_t noise) {
    const struct fp8 *f = &fp8_formats[bf8];
    if (x != x || (isinf(x) && !clamp))
        return 0x80;
    double v = x;
    if (stochastic) {
        int e;
        frexp(v, &e);
        e = e - 1 < 1 - f->bias ? 1 - f->bias : e - 1;
        double ulp = ldexp(1, e - f->mantissa);
        v = trunc(v / ulp + copysign(ldexp(noise, -32), v)) * ulp;
    } else {
        v = round_to(v, f->mantissa + 1, 1 - f->bias);
    }
    if (fabs(v) > f->max)
        return clamp ? fp8_encode(bf8, copysign(f->max, v)) : 0x80;
    return fp8_encode(bf8, v);
}

static void need_gfx942(struct sim_wave *w, const struct sim_insn *in) {
    if (w->arch != SIM_GFX942)
        sim_fail(w, in, -1, "this chip has no 8-bit floats");
}

static void f32_from_fp8(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, r;
    const uint32_t *a = src32(w, in, 0, ab);
    uint32_t byte = 8 * (in->op_sel & 3);
    need_gfx942(w, in);
    EACH_LANE(l) r[l] = as_u32(fp8_to_f32(in->param, a[l] >> byte & 255));
    putf(w, in, 0, r);
}

static void pk_f32_from_fp8(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab;
    vec64 r;
    const uint32_t *a = src32(w, in, 0, ab);
    uint32_t half = in->op_sel & 1 ? 16 : 0;
    need_gfx942(w, in);
    EACH_LANE(l) {
        uint32_t x = a[l] >> half;
        r[l] = as_u32(fp8_to_f32(in->param, x & 255)) |
               (uint64_t)as_u32(fp8_to_f32(in->param, x >> 8 & 255)) << 32;
    }
    put64(w, in, 0, r);
}

static void pk_fp8_from_f32(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb, r;
    const float_lane *a = srcf(w, in, 0, ab), *b = srcf(w, in, 1, bb);
    const uint32_t *old = w->v[in->dst[0].reg];
    bool high = in->op_sel >> 2 & 1;
    need_gfx942(w, in);
    EACH_LANE(l) {
        uint32_t x = f32_to_fp8(in->param, a[l], in->clamp, false, 0) |
                     f32_to_fp8(in->param, b[l], in->clamp, false, 0) << 8;
        r[l] = high ? (old[l] & 0xffff) | x << 16 : (old[l] & 0xffff0000u) | x;
    }
    put32(w, in, 0, r);
}

static void sr_fp8_from_f32(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb, r;
    const float_lane *a = srcf(w, in, 0, ab);
    const uint32_t *noise = src32(w, in, 1, bb), *old = w->v[in->dst[0].reg];
    uint32_t shift = 8 * (in->op_sel >> 2 & 3);
    need_gfx942(w, in);
    EACH_LANE(l) {
        uint32_t x = f32_to_fp8(in->param, a[l], in->clamp, true, noise[l]);
        r[l] = (old[l] & ~(255u << shift)) | x << shift;
    }
    put32(w, in, 0, r);
}

static const struct sim_op ops[] = {
    {"v_cvt_f32_i32", f32_i32, "f:b", 0},
    {"v_cvt_f32_u32", f32_u32, "f:b", 0},
    {"v_cvt_f32_ubyte0", f32_ubyte, "f:b", 0},
    {"v_cvt_f32_ubyte1", f32_ubyte, "f:b", 1},
    {"v_cvt_f32_ubyte2", f32_ubyte, "f:b", 2},
    {"v_cvt_f32_ubyte3", f32_ubyte, "f:b", 3},
    {"v_cvt_f32_bf16", f32_bf16, "f:b", 0},
    {"v_cvt_i32_f32", i32_f32, "b:f", 0},
    {"v_cvt_u32_f32", u32_f32, "b:f", 0},
    {"v_cvt_rpi_i32_f32", rpi_i32_f32, "b:f", 0},
    {"v_cvt_flr_i32_f32", flr_i32_f32, "b:f", 0},
    {"v_cvt_f16_f32", f16_f32, "h:f", 0},
    {"v_cvt_f32_f16", f32_f16, "f:h", 0},
    {"v_cvt_f16_u16", f16_int, "h:k", 0},
    {"v_cvt_f16_i16", f16_int, "h:k", 1},
    {"v_cvt_u16_f16", int_f16, "k:h", 0},
    {"v_cvt_i16_f16", int_f16, "k:h", 1},
    {"v_cvt_f64_f32", f64_f32, "d:f", 0},
    {"v_cvt_f32_f64", f32_f64, "f:d", 0},
    {"v_cvt_f64_u32", f64_int, "d:b", 0},
    {"v_cvt_f64_i32", f64_int, "d:b", 1},
    {"v_cvt_u32_f64", int_f64, "b:d", 0},
    {"v_cvt_i32_f64", int_f64, "b:d", 1},
    {"v_cvt_pkrtz_f16_f32", pack, "b:ff", PK_RTZ_F16},
    {"v_cvt_pk_i16_i32", pack, "b:bb", PK_I16_I32},
    {"v_cvt_pk_u16_u32", pack, "b:bb", PK_U16_U32},
    {"v_cvt_pknorm_i16_f32", pack, "b:ff", PK_NORM_I16},
    {"v_cvt_pknorm_u16_f32", pack, "b:ff", PK_NORM_U16},
    {"v_cvt_pk_u8_f32", cvt_pk_u8, "b:fbb", 0},
    {"v_cvt_f32_fp8", f32_from_fp8, "f:b", 0},
    {"v_cvt_f32_bf8", f32_from_fp8, "f:b", 1},
    {"v_cvt_pk_f32_fp8", pk_f32_from_fp8, "q:b", 0},
    {"v_cvt_pk_f32_bf8", pk_f32_from_fp8, "q:b", 1},
    {"v_cvt_pk_fp8_f32", pk_fp8_from_f32, "b:ff", 0},
    {"v_cvt_pk_bf8_f32", pk_fp8_from_f32, "b:ff", 1},
    {"v_cvt_sr_fp8_f32", sr_fp8_from_f32, "b:fb", 0},
    {"v_cvt_sr_bf8_f32", sr_fp8_from_f32, "b:fb", 1},
};
OPS_TABLE(valu_cvt, ops);
