/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix instructions D = A B + C over the whole wave; EXEC does not matter.
 *
 * Layout, from AMD's matrix instruction calculator, for MxNxK with `blocks` independent products
 * and `per` consecutive k values in each lane's operand:
 *   A, B  row (column) = lane % M, block = lane / M % blocks, k = per * (lane / (M * blocks)) + j
 *   D     column = lane % N, and each group of lanes holds runs of four rows:
 *         32x32 row = 8 * (r / 4) + 4 * (lane / 32) + r % 4, r = 0..15 in each block
 *         16x16 row = 4 * (lane / 16) + r % 4, block = r / 4
 *          4x4  row = r, block = lane / 4
 *   f64   16x16 row = 4 * r + lane / 16; 4x4 row = lane / 16, block = lane / 4 % 4
 */
#include <stdio.h>
#include <stdlib.h>

#include "valu.h"

enum element { EL_F32, EL_XF32, EL_F16, EL_BF16, EL_BF16_1K, EL_F64, EL_I8, EL_FP8, EL_BF8 };

struct shape {
    int m, n, k, blocks, per;
    enum element a, b;
    uint16_t place[32][SIM_LANES]; /* register, lane -> index in [block][row][column] */
    /* A run of n lanes holds one row of one block, so whole rows are copied. */
};

static bool parse_element(const char *t, enum element *e) {
    static const struct {
        const char *name;
        enum element element;
    } names[] = {{"f32", EL_F32},         {"xf32", EL_XF32}, {"f16", EL_F16}, {"bf16", EL_BF16},
                 {"bf16_1k", EL_BF16_1K}, {"f64", EL_F64},   {"i8", EL_I8}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(t, names[i].name) == 0) {
            *e = names[i].element;
            return true;
        }
    }
    return false;
}

static bool parse_elements(const char *t, struct shape *s) {
    if ((t[0] == 'b' || t[0] == 'f') && strlen(t) == 7 && t[3] == '_') {
        s->a = t[0] == 'b' ? EL_BF8 : EL_FP8;
        s->b = t[4] == 'b' ? EL_BF8 : EL_FP8;
        return true;
    }
    if (!parse_element(t, &s->a))
        return false;
    s->b = s->a;
    return true;
}

/* v_mfma_f32_32x32x8f16, v_mfma_f32_32x32x8_f16, v_mfma_f32_32x32x4_2b_f16, ... */
static bool parse_shape(const char *name, sim_arch arch, struct shape *s) {
    char result[8];
    int used = 0, blocks = 0, skip = 0;
    if (sscanf(name, "v_mfma_%3[a-z0-9]_%dx%dx%d%n", result, &s->m, &s->n, &s->k, &used) != 4)
        return false;
    name += used;
    if (sscanf(name, "_%db_%n", &blocks, &skip) == 1 && skip)
        name += skip;
    else if (*name == '_')
        name++;
    if (!parse_elements(name, s))
        return false;
    /* The newer chip spells the 1k form, its only one with four values a lane, plain bf16. */
    if (s->a == EL_BF16 && arch == SIM_GFX942)
        s->a = s->b = EL_BF16_1K;
    switch (s->a) {
    case EL_F32:
    case EL_F64:
        s->per = 1;
        break;
    case EL_XF32:
    case EL_BF16:
        s->per = 2;
        break;
    case EL_F16:
    case EL_BF16_1K:
        s->per = 4;
        break;
    case EL_I8:
        s->per = arch == SIM_GFX942 && s->m * s->k >= 512 ? 8 : 4;
        break;
    default:
        s->per = 8;
    }
    s->blocks = SIM_LANES * s->per / (s->m * s->k);
    return s->m == s->n && s->blocks * s->m * s->k == SIM_LANES * s->per &&
           (blocks == 0 || blocks == s->blocks);
}

static uint32_t round_xf32(uint32_t x) {
    return (x & 0x7f800000) == 0x7f800000 ? x : (x + 0xfff + (x >> 13 & 1)) & ~0x1fffu;
}

static float fp8_value(bool bf8, uint32_t x) {
    int m = bf8 ? 2 : 3, bias = bf8 ? 16 : 8, e = (int)(x >> m & (0x7fu >> m));
    float mant = (float)(x & ((1u << m) - 1));
    if (x == 0x80)
        return NAN;
    float v = e ? ldexpf(1 + ldexpf(mant, -m), e - bias) : ldexpf(mant, 1 - bias - m);
    return x & 0x80 ? -v : v;
}

/* Element j of every lane's operand. */
static void element(const struct sim_wave *w, const struct sim_operand *o, enum element e, int j,
                    bool flush, vecf out) {
    const uint32_t *x;
    int shift = 16 * (j & 1);
    switch (e) {
    case EL_F32:
        memcpy(out, w->v[o->reg + j], sizeof(vecf));
        break;
    case EL_XF32:
        x = w->v[o->reg + j];
        EACH_LANE(l) out[l] = as_f32(round_xf32(x[l]));
        break;
    case EL_F16:
        x = w->v[o->reg + j / 2];
        EACH_LANE(l) {
            uint32_t h = x[l] >> shift & 0xffff;
            out[l] = f16_to_f32(flush && !(h & 0x7c00) ? h & 0x8000 : h);
        }
        break;
    case EL_BF16:
    case EL_BF16_1K:
        x = w->v[o->reg + j / 2];
        EACH_LANE(l) {
            uint32_t h = x[l] >> shift << 16;
            out[l] = as_f32(flush ? flush32(h) : h);
        }
        break;
    default:
        x = w->v[o->reg + j / 4];
        EACH_LANE(l) out[l] = fp8_value(e == EL_BF8, x[l] >> 8 * (j & 3) & 255);
    }
}

/* out[block][k][index]: runs of `extent` lanes have one block and one k. */
static void gather(const struct sim_wave *w, const struct sim_operand *o, const struct shape *s,
                   enum element e, int extent, bool flush, float *out) {
    vecf x;
    for (int j = 0; j < s->per; j++) {
        element(w, o, e, j, flush, x);
        for (int run = 0; run < SIM_LANES / extent; run++) {
            int block = run % s->blocks, k = run / s->blocks * s->per + j;
            memcpy(out + (block * s->k + k) * extent, x + run * extent,
                   (size_t)extent * sizeof(float));
        }
    }
}

/* Row and block of register r in lane l. */
static void result_place(const struct shape *s, int l, int r, int *row, int *block) {
    if (s->m == 32) {
        *block = r / 16;
        *row = 8 * (r % 16 / 4) + 4 * (l / 32) + r % 4;
    } else if (s->m == 16) {
        *block = r / 4;
        *row = 4 * (l / 16) + r % 4;
    } else {
        *block = l / 4;
        *row = r;
    }
}

static void fill_places(struct shape *s) {
    for (int r = 0; r < s->m * s->n * s->blocks / SIM_LANES; r++) {
        EACH_LANE(l) {
            int row, block;
            result_place(s, l, r, &row, &block);
            s->place[r][l] = (uint16_t)((block * s->m + row) * s->n + l % s->n);
        }
    }
}

static void initial(const struct sim_wave *w, const struct sim_operand *c, int registers,
                    uint32_t (*out)[SIM_LANES]) {
    for (int r = 0; r < registers; r++) {
        if (c->kind == OPR_VREG)
            memcpy(out[r], w->v[c->reg + r], sizeof(vec32));
        else
            broadcast(out[r], scalar32(w, c));
    }
}

/* acc[row][column] += sum over k of a[k][row] * b[k][column]; one row stays in registers. */
#define PRODUCT(size)                                                                              \
    static void product##size(float *restrict acc, const float *restrict a,                        \
                              const float *restrict b, int k) {                                    \
        for (int i = 0; i < size; i++) {                                                           \
            float row[size];                                                                       \
            memcpy(row, acc + i * size, sizeof(row));                                              \
            for (int p = 0; p < k; p++)                                                            \
                for (int j = 0; j < size; j++)                                                     \
                    row[j] = fmaf(a[p * size + i], b[p * size + j], row[j]);                       \
            memcpy(acc + i * size, row, sizeof(row));                                              \
        }                                                                                          \
    }
PRODUCT(32)
PRODUCT(16)
PRODUCT(4)

static void mfma_f32(struct sim_wave *w, const struct sim_insn *in, const struct shape *s) {
    float a[512], b[512], acc[2048];
    uint32_t c[32][SIM_LANES];
    int registers = in->dst[0].count;
    bool flush = w->arch == SIM_GFX90A && s->a != EL_F32;
    gather(w, &in->src[0], s, s->a, s->m, flush, a);
    gather(w, &in->src[1], s, s->b, s->n, flush, b);
    initial(w, &in->src[2], registers, c);
    for (int r = 0; r < registers; r++) {
        if (flush)
            EACH_LANE(l) c[r][l] = flush32(c[r][l]);
        for (int l = 0; l < SIM_LANES; l += s->n)
            memcpy(acc + s->place[r][l], c[r] + l, (size_t)s->n * sizeof(float));
    }
    for (int block = 0; block < s->blocks; block++) {
        const float *pa = a + block * s->k * s->m, *pb = b + block * s->k * s->n;
        float *pc = acc + block * s->m * s->n;
        if (s->m == 32)
            product32(pc, pa, pb, s->k);
        else if (s->m == 16)
            product16(pc, pa, pb, s->k);
        else
            product4(pc, pa, pb, s->k);
    }
    for (int r = 0; r < registers; r++) {
        uint32_t *to = w->v[in->dst[0].reg + r];
        for (int l = 0; l < SIM_LANES; l += s->n)
            memcpy(to + l, acc + s->place[r][l], (size_t)s->n * sizeof(float));
        if (flush)
            EACH_LANE(l) to[l] = flush32(to[l]);
    }
}

/* --- integers --- */

static int8_t int8_at(const struct sim_wave *w, const struct sim_operand *o, const struct shape *s,
                      int index, int block, int k) {
    int lane = index + s->m * (block + s->blocks * (k / s->per)), j = k % s->per;
    return (int8_t)(w->v[o->reg + j / 4][lane] >> 8 * (j & 3));
}

static void mfma_i8(struct sim_wave *w, const struct sim_insn *in, const struct shape *s) {
    uint32_t c[32][SIM_LANES];
    int registers = in->dst[0].count;
    initial(w, &in->src[2], registers, c);
    for (int r = 0; r < registers; r++) {
        EACH_LANE(l) {
            int row, block;
            result_place(s, l, r, &row, &block);
            for (int k = 0; k < s->k; k++)
                c[r][l] += (uint32_t)(int8_at(w, &in->src[0], s, row, block, k) *
                                      int8_at(w, &in->src[1], s, l % s->n, block, k));
        }
    }
    for (int r = 0; r < registers; r++)
        memcpy(w->v[in->dst[0].reg + r], c[r], sizeof(vec32));
}

/* --- f64 --- */

static double double_at(const struct sim_wave *w, int reg, int lane) {
    return as_f64(w->v[reg][lane] | (uint64_t)w->v[reg + 1][lane] << 32);
}

static void mfma_f64(struct sim_wave *w, const struct sim_insn *in, const struct shape *s) {
    double d[4][SIM_LANES];
    int results = in->dst[0].count / 2;
    const struct sim_operand *c = &in->src[2];
    for (int r = 0; r < results; r++) {
        EACH_LANE(l) {
            int row = s->m == 16 ? 4 * r + l / 16 : l / 16, block = l / s->n % s->blocks;
            double sum = c->kind == OPR_VREG ? double_at(w, c->reg + 2 * r, l) : as_f64(c->imm);
            for (int k = 0; k < s->k; k++) {
                int lane = s->m * (block + s->blocks * k);
                sum = fma(double_at(w, in->src[0].reg, lane + row),
                          double_at(w, in->src[1].reg, lane + l % s->n), sum);
            }
            d[r][l] = sum;
        }
    }
    for (int r = 0; r < results; r++) {
        EACH_LANE(l) {
            uint64_t x = as_u64(d[r][l]);
            w->v[in->dst[0].reg + 2 * r][l] = (uint32_t)x;
            w->v[in->dst[0].reg + 2 * r + 1][l] = (uint32_t)(x >> 32);
        }
    }
}

/* Dwords that the operands must have. */
static bool counts_fit(const struct sim_insn *in, const struct shape *s) {
    int bits = s->a == EL_F64                                      ? 64
               : s->a == EL_F32 || s->a == EL_XF32                 ? 32
               : s->a == EL_I8 || s->a == EL_FP8 || s->a == EL_BF8 ? 8
                                                                   : 16;
    int source = s->per * bits / 32;
    int result = s->m * s->n * s->blocks / SIM_LANES * (s->a == EL_F64 ? 2 : 1);
    return in->src[0].kind == OPR_VREG && in->src[1].kind == OPR_VREG &&
           in->src[0].count == source && in->src[1].count == source && in->dst[0].count == result &&
           (in->src[2].kind == OPR_IMM || in->src[2].count == result);
}

static const struct shape *shape_of(struct sim_wave *w, const struct sim_insn *in) {
    void **slot = (void **)(uintptr_t)&in->data, *expected = NULL;
    struct shape *s = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    char name[64];
    if (s)
        return s;
    s = calloc(1, sizeof(*s));
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(in->text, " "), in->text);
    const char *why = !parse_shape(name, w->arch, s) ? "unknown matrix instruction"
                      : !counts_fit(in, s) ? "operand sizes do not fit the matrix instruction"
                      : in->cbsz || in->abid || in->blgp || in->neg_lo || in->neg_hi
                          ? "broadcasts and swizzles of matrix operands are not supported"
                          : NULL;
    if (why) {
        free(s);
        sim_fail(w, in, -1, "%s", why);
    }
    if (s->a != EL_F64)
        fill_places(s);
    if (!__atomic_compare_exchange_n(slot, &expected, s, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        free(s);
        s = expected;
    }
    return s;
}

static void mfma(struct sim_wave *w, const struct sim_insn *in) {
    const struct shape *s = shape_of(w, in);
    if (s->a == EL_F64)
        mfma_f64(w, in, s);
    else if (s->a == EL_I8)
        mfma_i8(w, in, s);
    else
        mfma_f32(w, in, s);
}

static const struct sim_op ops[] = {
    {"v_mfma_*", mfma, "V:VVV", 0},
};
OPS_TABLE(mfma, ops);
