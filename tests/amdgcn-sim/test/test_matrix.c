/* SPDX-License-Identifier: Apache-2.0 */
/* Every matrix instruction against D = A B + C computed from matrices that are laid out over lanes
 * and registers by the formulas of AMD's matrix instruction calculator. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

static hipModule_t module;

static int setup(void **state) {
    (void)state;
    module = test_module("matrix");
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return hipModuleUnload(module);
}

enum type { F32, F16, BF16, F64, I8, XF32, BF8, FP8, MIXED8 };

struct matrix {
    const char *kernel;
    enum type type;
    int m, k, blocks; /* N = M */
    int per;          /* values of k in a lane's operand */
    const char *arch; /* NULL = both */
};

static const struct matrix matrices[] = {
    {"f32_32x32x1", F32, 32, 1, 2, 1, NULL},
    {"f32_16x16x1", F32, 16, 1, 4, 1, NULL},
    {"f32_4x4x1", F32, 4, 1, 16, 1, NULL},
    {"f32_32x32x2", F32, 32, 2, 1, 1, NULL},
    {"f32_16x16x4", F32, 16, 4, 1, 1, NULL},
    {"f16_32x32x4", F16, 32, 4, 2, 4, NULL},
    {"f16_16x16x4", F16, 16, 4, 4, 4, NULL},
    {"f16_4x4x4", F16, 4, 4, 16, 4, NULL},
    {"f16_32x32x8", F16, 32, 8, 1, 4, NULL},
    {"f16_16x16x16", F16, 16, 16, 1, 4, NULL},
    {"bf16_32x32x4", BF16, 32, 4, 2, 4, NULL},
    {"bf16_16x16x4", BF16, 16, 4, 4, 4, NULL},
    {"bf16_4x4x4", BF16, 4, 4, 16, 4, NULL},
    {"bf16_32x32x8", BF16, 32, 8, 1, 4, NULL},
    {"bf16_16x16x16", BF16, 16, 16, 1, 4, NULL},
    {"f64_16x16x4", F64, 16, 4, 1, 1, NULL},
    {"f64_4x4x4", F64, 4, 4, 4, 1, NULL},
    {"old_bf16_32x32x4", BF16, 32, 4, 1, 2, "gfx90a"},
    {"old_bf16_16x16x8", BF16, 16, 8, 1, 2, "gfx90a"},
    {"i8_32x32x8", I8, 32, 8, 1, 4, "gfx90a"},
    {"i8_16x16x16", I8, 16, 16, 1, 4, "gfx90a"},
    {"i8_32x32x16", I8, 32, 16, 1, 8, "gfx942"},
    {"i8_16x16x32", I8, 16, 32, 1, 8, "gfx942"},
    {"xf32_32x32x4", XF32, 32, 4, 1, 2, "gfx942"},
    {"xf32_16x16x8", XF32, 16, 8, 1, 2, "gfx942"},
    {"bf8_32x32x16", BF8, 32, 16, 1, 8, "gfx942"},
    {"fp8_16x16x32", FP8, 16, 32, 1, 8, "gfx942"},
    {"mixed8_16x16x32", MIXED8, 16, 32, 1, 8, "gfx942"},
};

static int bits_of(enum type t) {
    return t == F64 ? 64 : t == F32 || t == XF32 ? 32 : t == F16 || t == BF16 ? 16 : 8;
}

/* A small number that the type holds exactly, as its code. Products and sums are exact too. */
static uint64_t encode(enum type t, int x) {
    uint64_t u = 0;
    double d = x;
    float f = (float)x;
    _Static_assert(sizeof(double) == 8, "IEEE double");
    switch (t) {
    case F64:
        memcpy(&u, &d, 8);
        return u;
    case F32:
    case XF32:
        return f32_bits(f);
    case BF16:
        return f32_bits(f) >> 16;
    case I8:
        return (uint8_t)x;
    default:
        break;
    }
    /* f16, and the 8-bit floats: sign, exponent, mantissa of a small integer */
    int mantissa = t == F16 ? 10 : t == FP8 ? 3 : 2, bias = t == F16 ? 15 : t == FP8 ? 8 : 16;
    int width = t == F16 ? 16 : 8, e;
    if (x == 0)
        return 0;
    double m = frexp(abs(x), &e);
    u = (uint64_t)(e - 1 + bias) << mantissa | (uint64_t)ldexp(2 * m - 1, mantissa);
    return u | (uint64_t)(x < 0) << (width - 1);
}

struct case_data {
    int a[16][32][32], b[16][32][32], c[16][32][32]; /* [block][row or column][k]; c: row, column */
};

static void operand(const struct matrix *s, enum type t, int (*values)[32][32], uint8_t *out) {
    int bytes = bits_of(t) / 8;
    for (int lane = 0; lane < 64; lane++)
        for (int j = 0; j < s->per; j++) {
            int index = lane % s->m, block = lane / s->m % s->blocks;
            int k = s->per * (lane / (s->m * s->blocks)) + j;
            uint64_t code = encode(t, values[block][index][k]);
            memcpy(out + (lane * s->per + j) * bytes, &code, (size_t)bytes);
        }
}

/* Row, column, block of register r of lane l in C and D. */
static void result_at(const struct matrix *s, int lane, int r, int *row, int *column, int *block) {
    *column = lane % s->m;
    if (s->type == F64) {
        *row = s->m == 16 ? 4 * r + lane / 16 : lane / 16;
        *block = s->m == 16 ? 0 : lane / 4 % 4;
    } else if (s->m == 32) {
        *row = 8 * (r % 16 / 4) + 4 * (lane / 32) + r % 4;
        *block = r / 16;
    } else if (s->m == 16) {
        *row = 4 * (lane / 16) + r % 4;
        *block = r / 4;
    } else {
        *row = r;
        *block = lane / 4;
    }
}

static void check_matrix(const struct matrix *s) {
    static struct case_data d;
    static uint8_t a[64 * 8 * 8], b[64 * 8 * 8], c[64 * 32 * 8], out[64 * 32 * 8];
    enum type ta = s->type == MIXED8 ? BF8 : s->type, tb = s->type == MIXED8 ? FP8 : s->type;
    enum type tc = s->type == F64 ? F64 : s->type == I8 ? I8 : F32;
    size_t width = tc == F64 ? 8 : 4;
    int registers = s->m * s->m * s->blocks / 64, limit = s->type >= BF8 ? 4 : 8;
    for (int i = 0; i < 16 * 32 * 32; i++) {
        (&d.a[0][0][0])[i] = (int)(test_random() % (unsigned)(2 * limit + 1)) - limit;
        (&d.b[0][0][0])[i] = (int)(test_random() % (unsigned)(2 * limit + 1)) - limit;
        (&d.c[0][0][0])[i] = (int)(test_random() % 200) - 100;
    }
    operand(s, ta, d.a, a);
    operand(s, tb, d.b, b);
    for (int lane = 0; lane < 64; lane++)
        for (int r = 0; r < registers; r++) {
            int row, column, block;
            result_at(s, lane, r, &row, &column, &block);
            uint64_t code =
                tc == I8 ? (uint32_t)d.c[block][row][column] : encode(tc, d.c[block][row][column]);
            memcpy(c + ((size_t)lane * registers + r) * width, &code, width);
        }
    size_t in_bytes = 64 * (size_t)s->per * bits_of(ta) / 8, out_bytes = 64 * registers * width;
    void *da = test_upload(a, in_bytes), *db = test_upload(b, in_bytes),
         *dc = test_upload(c, out_bytes), *dd = test_output(out_bytes);
    test_run(module, s->kernel, 1, 64, ARGS(&dd, &da, &db, &dc));
    test_download(out, dd, out_bytes);
    for (int lane = 0; lane < 64; lane++)
        for (int r = 0; r < registers; r++) {
            int row, column, block;
            result_at(s, lane, r, &row, &column, &block);
            int want = d.c[block][row][column];
            for (int k = 0; k < s->k; k++)
                want += d.a[block][row][k] * d.b[block][column][k];
            uint64_t code = tc == I8 ? (uint32_t)want : encode(tc, want), got = 0;
            memcpy(&got, out + ((size_t)lane * registers + r) * width, width);
            if (got != code)
                fail_msg("%s, lane %d register %d (block %d row %d column %d): got %llx, "
                         "expected %llx (%d)",
                         s->kernel, lane, r, block, row, column, (unsigned long long)got,
                         (unsigned long long)code, want);
        }
}

static void test_layouts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(matrices) / sizeof(matrices[0]); i++) {
        if (!matrices[i].arch || strcmp(matrices[i].arch, test_arch()) == 0)
            check_matrix(&matrices[i]);
    }
}

/* One product placed by hand: A(13, 6) B(6, 1) of 32x32x8 sits in lane 45 (k 4..7 half) value 2 of
 * A, lane 33 value 2 of B, and leaves in lane 33, register 5: row 8 * 1 + 4 * 1 + 1 = 13. */
static void test_one_product(void **state) {
    uint16_t a[64 * 4] = {0}, b[64 * 4] = {0};
    float c[64 * 16] = {0}, out[64 * 16];
    (void)state;
    a[45 * 4 + 2] = 0x4000; /* 2 */
    b[33 * 4 + 2] = 0x4200; /* 3 */
    void *da = test_upload(a, sizeof(a)), *db = test_upload(b, sizeof(b)),
         *dc = test_upload(c, sizeof(c)), *dd = test_output(sizeof(out));
    test_run(module, "f16_32x32x8", 1, 64, ARGS(&dd, &da, &db, &dc));
    test_download(out, dd, sizeof(out));
    for (int i = 0; i < 64 * 16; i++)
        assert_true(out[i] == (i == 33 * 16 + 5 ? 6.f : 0.f));
}

/* gfx90a takes f16 and bf16 subnormals as zero and gives no subnormal; gfx942 keeps them. */
static void test_subnormals(void **state) {
    uint16_t a[64 * 4], b[64 * 4];
    float c[64 * 16] = {0}, out[64 * 16];
    bool keeps = test_is_gfx942();
    (void)state;
    for (int i = 0; i < 256; i++) {
        a[i] = 0x0200; /* 2^-15, subnormal in f16 */
        b[i] = 0x3c00; /* 1 */
    }
    void *da = test_upload(a, sizeof(a)), *db = test_upload(b, sizeof(b)),
         *dc = test_upload(c, sizeof(c)), *dd = test_output(sizeof(out));
    test_run(module, "f16_32x32x8", 1, 64, ARGS(&dd, &da, &db, &dc));
    test_download(out, dd, sizeof(out));
    for (int i = 0; i < 64 * 16; i++)
        assert_true(out[i] == (keeps ? 0x1p-12f : 0.f));
    for (int i = 0; i < 256; i++) {
        a[i] = 0x0040; /* 2^-127, subnormal in bf16 */
        b[i] = 0x4000; /* 2 */
    }
    da = test_upload(a, sizeof(a));
    db = test_upload(b, sizeof(b));
    test_run(module, "bf16_32x32x8", 1, 64, ARGS(&dd, &da, &db, &dc));
    test_download(out, dd, sizeof(out));
    for (int i = 0; i < 64 * 16; i++)
        assert_true(out[i] == (keeps ? 0x1p-123f : 0.f));
    for (int i = 0; i < 256; i++) {
        a[i] = 0x0080; /* 2^-126: normal */
        b[i] = 0x3e00; /* 2^-3 */
    }
    da = test_upload(a, sizeof(a));
    db = test_upload(b, sizeof(b));
    test_run(module, "bf16_32x32x8", 1, 64, ARGS(&dd, &da, &db, &dc));
    test_download(out, dd, sizeof(out));
    for (int i = 0; i < 64 * 16; i++) /* sum of eight 2^-129 = 2^-126 unless each sum is flushed */
        assert_true(out[i] == 0x1p-126f || (!keeps && out[i] == 0.f));
    float f[64], g[64], h[64 * 16] = {0};
    for (int i = 0; i < 64; i++) {
        f[i] = 0x1p-140f;
        g[i] = 1.f;
    }
    da = test_upload(f, sizeof(f));
    db = test_upload(g, sizeof(g));
    dc = test_upload(h, sizeof(h));
    test_run(module, "f32_32x32x2", 1, 64, ARGS(&dd, &da, &db, &dc));
    test_download(out, dd, sizeof(out));
    for (int i = 0; i < 64 * 16; i++)
        assert_true(out[i] == 0x1p-139f); /* f32 subnormals stay on both */
}

static void test_accumulation(void **state) {
    enum { STEPS = 5 };
    static uint16_t a[STEPS * 256], b[STEPS * 256];
    float out[64 * 16];
    int steps = STEPS;
    (void)state;
    for (int i = 0; i < STEPS * 256; i++) {
        a[i] = (uint16_t)encode(F16, (int)(test_random() % 9) - 4);
        b[i] = (uint16_t)encode(F16, (int)(test_random() % 9) - 4);
    }
    void *da = test_upload(a, sizeof(a)), *db = test_upload(b, sizeof(b)),
         *dd = test_output(sizeof(out));
    test_run(module, "accumulate", 1, 64, ARGS(&dd, &da, &db, &steps));
    test_download(out, dd, sizeof(out));
    for (int lane = 0; lane < 64; lane++)
        for (int r = 0; r < 16; r++) {
            int row = 8 * (r / 4) + 4 * (lane / 32) + r % 4, column = lane % 32;
            double want = 0;
            for (int s = 0; s < STEPS; s++)
                for (int k = 0; k < 8; k++) {
                    uint16_t x = a[s * 256 + (row + 32 * (k / 4)) * 4 + k % 4];
                    uint16_t y = b[s * 256 + (column + 32 * (k / 4)) * 4 + k % 4];
                    double v[2];
                    const uint16_t code[2] = {x, y};
                    for (int i = 0; i < 2; i++)
                        v[i] = (code[i] >> 15 ? -1 : 1) *
                               (code[i] & 0x7fff
                                    ? ldexp(1024 + (code[i] & 1023), (code[i] >> 10 & 31) - 25)
                                    : 0);
                    want += v[0] * v[1];
                }
            assert_true(out[lane * 16 + r] == want);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_one_product),
        cmocka_unit_test(test_subnormals),
        cmocka_unit_test(test_accumulation),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
