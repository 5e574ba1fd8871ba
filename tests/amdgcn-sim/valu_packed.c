/* SPDX-License-Identifier: Apache-2.0 */
/* Packed operations: two 16-bit or two 32-bit elements a lane, each half of the result choosing its
 * halves of the sources (op_sel, op_sel_hi) and their signs (neg_lo, neg_hi); dot products. */
#include "valu.h"

/* The 16 bits that source i gives to the low (half = 0) or high result. */
static void packed16(const struct sim_wave *w, const struct sim_insn *in, int i, int half,
                     bool is_float, vec32 out) {
    const struct sim_operand *o = &in->src[i];
    uint8_t select = half ? in->op_sel_hi : in->op_sel, negate = half ? in->neg_hi : in->neg_lo;
    int shift = (select >> i & 1) ? 16 : 0;
    if (o->kind == OPR_VREG) {
        const uint32_t *x = w->v[o->reg];
        EACH_LANE(l) out[l] = x[l] >> shift & 0xffff;
    } else {
        broadcast(out, scalar32(w, o) >> shift & 0xffff);
    }
    if (negate >> i & 1)
        EACH_LANE(l) out[l] ^= 0x8000;
    if (is_float && w->flush16_in)
        EACH_LANE(l) out[l] = flush16(out[l]);
}

static void join(struct sim_wave *w, const struct sim_insn *in, const vec32 low, const vec32 high) {
    vec32 r;
    EACH_LANE(l) r[l] = (low[l] & 0xffff) | high[l] << 16;
    put32(w, in, 0, r);
}

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

#define PK_HALF(name, sources, expression)                                                         \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 x[3] = {{0}}, r[2];                                                                  \
        for (int half = 0; half < 2; half++) {                                                     \
            for (int i = 0; i < sources; i++)                                                      \
                packed16(w, in, i, half, true, x[i]);                                              \
            EACH_LANE(l) {                                                                         \
                float a = f16_to_f32(x[0][l]), b = f16_to_f32(x[1][l]), c = f16_to_f32(x[2][l]);   \
                (void)c;                                                                           \
                r[half][l] = finish_half(w, in, f32_to_f16(expression));                           \
            }                                                                                      \
        }                                                                                          \
        join(w, in, r[0], r[1]);                                                                   \
    }
PK_HALF(pk_add_f16, 2, a + b)
PK_HALF(pk_mul_f16, 2, a *b)
PK_HALF(pk_min_f16, 2, min_num(a, b))
PK_HALF(pk_max_f16, 2, max_num(a, b))
PK_HALF(pk_fma_f16, 3, fma_half(a, b, c))

#define PK_INT(name, sources, expression)                                                          \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 x[3] = {{0}}, r[2];                                                                  \
        if (in->clamp)                                                                             \
            sim_fail(w, in, -1, "clamp of a packed integer operation is not supported");           \
        for (int half = 0; half < 2; half++) {                                                     \
            for (int i = 0; i < sources; i++)                                                      \
                packed16(w, in, i, half, false, x[i]);                                             \
            EACH_LANE(l) {                                                                         \
                uint32_t a = x[0][l], b = x[1][l], c = x[2][l];                                    \
                int32_t sa = (int16_t)a, sb = (int16_t)b;                                          \
                (void)c, (void)sa, (void)sb;                                                       \
                r[half][l] = (uint32_t)(expression);                                               \
            }                                                                                      \
        }                                                                                          \
        join(w, in, r[0], r[1]);                                                                   \
    }
PK_INT(pk_add_u16, 2, a + b)
PK_INT(pk_sub_u16, 2, a - b)
PK_INT(pk_mul_lo_u16, 2, a *b)
PK_INT(pk_mad_u16, 3, a *b + c)
PK_INT(pk_min_u16, 2, a < b ? a : b)
PK_INT(pk_max_u16, 2, a > b ? a : b)
PK_INT(pk_min_i16, 2, sa < sb ? a : b)
PK_INT(pk_max_i16, 2, sa > sb ? a : b)
PK_INT(pk_lshlrev_b16, 2, b << (a & 15))
PK_INT(pk_lshrrev_b16, 2, b >> (a & 15))
PK_INT(pk_ashrrev_i16, 2, sb >> (a & 15))

/* --- two f32 --- */

/* Element that source i gives to the low or high result; a constant has one element only. */
static const uint32_t *packed32(struct sim_wave *w, const struct sim_insn *in, int i, int half,
                                bool is_float, vec32 out) {
    const struct sim_operand *o = &in->src[i];
    uint8_t select = half ? in->op_sel_hi : in->op_sel, negate = half ? in->neg_hi : in->neg_lo;
    int element = select >> i & 1;
    if (o->kind == OPR_IMM) {
        if (element)
            sim_fail(w, in, -1, "the high element of a constant is not defined");
        broadcast(out, (uint32_t)o->imm);
    } else if (o->kind == OPR_SREG) {
        broadcast(out, w->s[o->reg + element]);
    } else if (!(negate >> i & 1) && !(is_float && w->flush32_in)) {
        return w->v[o->reg + element];
    } else {
        memcpy(out, w->v[o->reg + element], sizeof(vec32));
    }
    if (negate >> i & 1)
        EACH_LANE(l) out[l] ^= 0x80000000u;
    if (is_float && w->flush32_in)
        EACH_LANE(l) out[l] = flush32(out[l]);
    return out;
}

static void write_pair(struct sim_wave *w, const struct sim_insn *in, vec32 low, vec32 high,
                       bool is_float) {
    uint64_t mask = exec_mask(w);
    uint32_t *halves[2] = {low, high};
    for (int half = 0; half < 2; half++) {
        uint32_t *x = halves[half];
        if (is_float && w->flush32_out)
            EACH_LANE(l) x[l] = flush32(x[l]);
        if (is_float && in->clamp)
            EACH_LANE(l) x[l] = as_u32(clamp01(w, as_f32(x[l])));
    }
    write_masked(w->v[in->dst[0].reg], low, mask);
    write_masked(w->v[in->dst[0].reg + 1], high, mask);
}

#define PK_F32(name, sources, expression)                                                          \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 buffer[3], r[2];                                                                     \
        for (int half = 0; half < 2; half++) {                                                     \
            const float_lane *x[3] = {NULL, NULL, NULL};                                           \
            for (int i = 0; i < sources; i++)                                                      \
                x[i] =                                                                             \
                    (const float_lane *)(const void *)packed32(w, in, i, half, true, buffer[i]);   \
            EACH_LANE(l) r[half][l] = as_u32(expression);                                          \
        }                                                                                          \
        write_pair(w, in, r[0], r[1], true);                                                       \
    }
PK_F32(pk_add_f32, 2, x[0][l] + x[1][l])
PK_F32(pk_mul_f32, 2, x[0][l] * x[1][l])
PK_F32(pk_fma_f32, 3, fmaf(x[0][l], x[1][l], x[2][l]))

/* The low result takes from source 0, the high one from source 1. */
static void pk_mov_b32(struct sim_wave *w, const struct sim_insn *in) {
    vec32 low, high, b0, b1;
    struct sim_insn pick = *in;
    pick.op_sel_hi = in->op_sel;
    memcpy(low, packed32(w, &pick, 0, 0, false, b0), sizeof(low));
    memcpy(high, packed32(w, &pick, 1, 0, false, b1), sizeof(high));
    write_pair(w, in, low, high, false);
}

/* --- dot products of two f16, accumulated in f32; subnormal halves count as zero --- */

static void dot2_f32_f16(struct sim_wave *w, const struct sim_insn *in) {
    vec32 a[2], b[2], cb, r;
    for (int half = 0; half < 2; half++) {
        packed16(w, in, 0, half, true, a[half]);
        packed16(w, in, 1, half, true, b[half]);
    }
    const uint32_t *c = in->nsrc > 2 ? src32(w, in, 2, cb) : w->v[in->dst[0].reg];
    EACH_LANE(l) {
        double sum = as_f32(c[l]);
        for (int half = 1; half >= 0; half--) {
            double x = f16_to_f32(flush16(a[half][l])), y = f16_to_f32(flush16(b[half][l]));
            sum = (float)(sum + x * y);
        }
        r[l] = flush32(as_u32((float)sum));
    }
    putf(w, in, 0, r);
}

static void dot2_int(struct sim_wave *w, const struct sim_insn *in) {
    vec32 a[2], b[2], cb, r;
    const uint32_t *c = src32(w, in, 2, cb);
    for (int half = 0; half < 2; half++) {
        packed16(w, in, 0, half, false, a[half]);
        packed16(w, in, 1, half, false, b[half]);
    }
    EACH_LANE(l) {
        r[l] = c[l];
        for (int half = 0; half < 2; half++)
            r[l] += in->param ? (uint32_t)((int16_t)a[half][l] * (int16_t)b[half][l])
                              : a[half][l] * b[half][l];
    }
    put32(w, in, 0, r);
}

static const struct sim_op ops[] = {
    {"v_pk_add_f16", pk_add_f16, "P:PP", 0},
    {"v_pk_mul_f16", pk_mul_f16, "P:PP", 0},
    {"v_pk_min_f16", pk_min_f16, "P:PP", 0},
    {"v_pk_max_f16", pk_max_f16, "P:PP", 0},
    {"v_pk_fma_f16", pk_fma_f16, "P:PPP", 0},
    {"v_pk_add_u16", pk_add_u16, "p:pp", 0},
    {"v_pk_add_i16", pk_add_u16, "p:pp", 0},
    {"v_pk_sub_u16", pk_sub_u16, "p:pp", 0},
    {"v_pk_sub_i16", pk_sub_u16, "p:pp", 0},
    {"v_pk_mul_lo_u16", pk_mul_lo_u16, "p:pp", 0},
    {"v_pk_mad_u16", pk_mad_u16, "p:ppp", 0},
    {"v_pk_mad_i16", pk_mad_u16, "p:ppp", 0},
    {"v_pk_min_u16", pk_min_u16, "p:pp", 0},
    {"v_pk_max_u16", pk_max_u16, "p:pp", 0},
    {"v_pk_min_i16", pk_min_i16, "p:pp", 0},
    {"v_pk_max_i16", pk_max_i16, "p:pp", 0},
    {"v_pk_lshlrev_b16", pk_lshlrev_b16, "p:pp", 0},
    {"v_pk_lshrrev_b16", pk_lshrrev_b16, "p:pp", 0},
    {"v_pk_ashrrev_i16", pk_ashrrev_i16, "p:pp", 0},
    {"v_pk_add_f32", pk_add_f32, "F:FF", 0},
    {"v_pk_mul_f32", pk_mul_f32, "F:FF", 0},
    {"v_pk_fma_f32", pk_fma_f32, "F:FFF", 0},
    {"v_pk_mov_b32", pk_mov_b32, "F:FF", 0},
    {"v_dot2_f32_f16", dot2_f32_f16, "f:PPf", 0},
    {"v_dot2c_f32_f16", dot2_f32_f16, "f:PP", 0},
    {"v_dot2_i32_i16", dot2_int, "b:ppb", 1},
    {"v_dot2_u32_u16", dot2_int, "b:ppb", 0},
};
OPS_TABLE(valu_packed, ops);
