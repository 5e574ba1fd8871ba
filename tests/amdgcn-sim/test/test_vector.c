/* SPDX-License-Identifier: Apache-2.0 */
/* Vector arithmetic compiled from C against the host's own arithmetic: the operations are exactly
 * rounded on both sides, so equality is asked for; transcendentals get the chips' tolerance. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support.h"

#define N 256

static hipModule_t module;

static int setup(void **state) {
    (void)state;
    module = test_module("vector");
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return hipModuleUnload(module);
}

/* Ordinary numbers, with zeros, infinities, NaN, subnormals and powers of two among them. */
static float sample(int i) {
    static const float special[] = {
        0.f, -0.f, INFINITY, -INFINITY, NAN, 0x1p-149f, -0x1p-130f, 0x1p-126f, 0x1.fffffep127f,
        1.f, -1.f, 0.5f,     2.5f,      3.5f};
    if (i % 7 == 0)
        return special[i / 7 % (sizeof(special) / sizeof(special[0]))];
    return ldexpf(test_uniform(), (int)(test_random() % 40) - 20);
}

static void expect_same(const char *what, int i, float got, float want) {
    if (isnan(want) ? !isnan(got) : f32_bits(got) != f32_bits(want))
        fail_msg("%s, element %d: got %a, expected %a", what, i, got, want);
}

static void test_float_arithmetic(void **state) {
    float a[N], b[N], c[N], out[15 * N];
    (void)state;
    for (int i = 0; i < N; i++) {
        a[i] = sample(i);
        b[i] = sample(i + 3);
        c[i] = sample(i * 5 + 1);
    }
    void *da = test_upload(a, sizeof(a)), *db = test_upload(b, sizeof(b)),
         *dc = test_upload(c, sizeof(c)), *d = test_output(sizeof(out));
    test_run(module, "float_arithmetic", 1, N, ARGS(&d, &da, &db, &dc));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < N; i++) {
        float x = a[i], y = b[i], z = c[i];
        expect_same("add", i, out[i], x + y);
        expect_same("sub", i, out[N + i], x - y);
        expect_same("mul", i, out[2 * N + i], x * y);
        expect_same("fma", i, out[3 * N + i], fmaf(x, y, z));
        if (x != 0 || y != 0) { /* fmin may give either zero */
            expect_same("min", i, out[4 * N + i], fminf(x, y));
            expect_same("max", i, out[5 * N + i], fmaxf(x, y));
        }
        expect_same("floor", i, out[6 * N + i], floorf(x));
        expect_same("ceil", i, out[7 * N + i], ceilf(x));
        expect_same("trunc", i, out[8 * N + i], truncf(x));
        expect_same("rint", i, out[9 * N + i], rintf(x));
        expect_same("neg abs mul", i, out[10 * N + i], -fabsf(x) * y);
        expect_same("ldexp", i, out[12 * N + i], ldexpf(x, i - 128));
        expect_same("select", i, out[13 * N + i], x < y ? z : x);
        if (!isnan(x) && !isnan(y) && !isnan(z) && (x != 0 || y != 0)) {
            expect_same("med3", i, out[14 * N + i], fmaxf(fminf(x, y), fminf(fmaxf(x, y), z)));
        }
    }
}

/* The compiler's division and square root are correctly rounded, subnormals included. */
static void test_float_division(void **state) {
    float a[N], b[N], out[2 * N];
    (void)state;
    for (int i = 0; i < N; i++) {
        a[i] = sample(i);
        b[i] = sample(i + 2);
        if (i % 5 == 1) { /* quotients near both ends of the range */
            a[i] = ldexpf(1.f + fabsf(test_uniform()), (int)(test_random() % 250) - 125);
            b[i] = ldexpf(1.f + fabsf(test_uniform()), (int)(test_random() % 250) - 125);
        }
        if (i % 32 == 2) { /* far beyond it */
            a[i] = ldexpf(1.5f, i % 64 == 2 ? 120 : -120);
            b[i] = ldexpf(-1.25f, i % 64 == 2 ? -120 : 120);
        }
    }
    void *da = test_upload(a, sizeof(a)), *db = test_upload(b, sizeof(b)),
         *d = test_output(sizeof(out));
    test_run(module, "float_division", 1, N, ARGS(&d, &da, &db));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < N; i++) {
        expect_same("division", i, out[i], a[i] / b[i]);
        expect_same("square root", i, out[N + i], sqrtf(fabsf(a[i])));
    }
}

static void test_float_transcendental(void **state) {
    float a[N], out[6 * N];
    (void)state;
    for (int i = 0; i < N; i++)
        a[i] = i < 8 ? (float)(i - 4) : 80.f * test_uniform();
    void *da = test_upload(a, sizeof(a)), *d = test_output(sizeof(out));
    test_run(module, "float_transcendental", 1, N, ARGS(&d, &da));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < N; i++) {
        double x = a[i];
        assert_true(ulps(out[i], exp(x)) <= 3);
        assert_true(ulps(out[N + i], log(fabs(x))) <= 3);
        assert_true(ulps(out[2 * N + i], exp2(x)) <= 1.01);
        assert_true(ulps(out[3 * N + i], log2(fabs(x))) <= 1.01);
        assert_true(fabs(out[4 * N + i] - sin(x)) <= 1e-5);
        assert_true(ulps(out[5 * N + i], 1 / x) <= 1.01);
    }
}

static void test_double_arithmetic(void **state) {
    double a[N], b[N], out[9 * N];
    (void)state;
    for (int i = 0; i < N; i++) {
        a[i] = ldexp(test_uniform() + 1e-9 * test_uniform(), (int)(test_random() % 60) - 30);
        b[i] = ldexp(test_uniform() + 1e-9 * test_uniform(), (int)(test_random() % 60) - 30);
    }
    void *da = test_upload(a, sizeof(a)), *db = test_upload(b, sizeof(b)),
         *d = test_output(sizeof(out));
    test_run(module, "double_arithmetic", 1, N, ARGS(&d, &da, &db));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < N; i++) {
        double x = a[i], y = b[i];
        int whole = fabs(x) < 2147483647. ? (int)x : x > 0 ? INT32_MAX : INT32_MIN;
        assert_true(out[i] == x + y);
        assert_true(out[N + i] == x * y);
        assert_true(out[2 * N + i] == x / y);
        assert_true(out[3 * N + i] == sqrt(fabs(x)));
        assert_true(out[4 * N + i] == fma(x, y, x));
        assert_true(out[5 * N + i] == (double)(float)x);
        assert_true(out[6 * N + i] == (double)whole);
        assert_true(out[7 * N + i] == floor(x));
        assert_true(out[8 * N + i] == (x < y ? x : y));
    }
}

static uint32_t reversed(uint32_t x) {
    uint32_t r = 0;
    for (int i = 0; i < 32; i++)
        r |= (x >> i & 1) << (31 - i);
    return r;
}

static void test_integer_arithmetic(void **state) {
    uint32_t a[N], b[N], out[16 * N];
    (void)state;
    for (int i = 0; i < N; i++) {
        a[i] = i == 0 ? 0 : i == 1 ? 0xffffffffu : test_random() >> (test_random() % 32);
        b[i] = i == 2 ? 0 : i == 3 ? 0x80000000u : test_random() >> (test_random() % 32);
    }
    void *da = test_upload(a, sizeof(a)), *db = test_upload(b, sizeof(b)),
         *d = test_output(sizeof(out));
    test_run(module, "integer_arithmetic", 1, N, ARGS(&d, &da, &db));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < N; i++) {
        uint32_t x = a[i], y = b[i], r = y & 31;
        int32_t s = (int32_t)x, t = (int32_t)y;
        const uint32_t want[16] = {
            x + y,
            x * y,
            (uint32_t)(((uint64_t)x * y) >> 32),
            (uint32_t)(((int64_t)s * t) >> 32),
            x / (y | 1),
            x % (y | 1),
            (uint32_t)(s >> r),
            r ? x << r | x >> (32 - r) : x,
            (uint32_t)(s < t ? s : t),
            x > y ? x : y,
            (uint32_t)__builtin_popcount(x),
            (uint32_t)__builtin_clz(x | 1),
            reversed(x),
            (x & y) | (~x & 0x12345678u),
            (x >> 5 & 0x7ff) + (y << 3),
            (x & 0xffffff) * (y & 0xffffff) + 7,
        };
        for (int k = 0; k < 16; k++) {
            if (out[k * N + i] != want[k])
                fail_msg("operation %d on %08x, %08x: got %08x, expected %08x", k, x, y,
                         out[k * N + i], want[k]);
        }
    }
}

static void test_long_arithmetic(void **state) {
    uint64_t a[N], b[N], out[8 * N];
    (void)state;
    for (int i = 0; i < N; i++) {
        a[i] = ((uint64_t)test_random() << 32 | test_random()) >> (test_random() % 64);
        b[i] = ((uint64_t)test_random() << 32 | test_random()) >> (test_random() % 64);
    }
    void *da = test_upload(a, sizeof(a)), *db = test_upload(b, sizeof(b)),
         *d = test_output(sizeof(out));
    test_run(module, "long_arithmetic", 1, N, ARGS(&d, &da, &db));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < N; i++) {
        uint64_t x = a[i], y = b[i];
        int64_t s = (int64_t)x, t = (int64_t)y;
        assert_true(out[i] == x + y);
        assert_true(out[N + i] == x - y);
        assert_true(out[2 * N + i] == x * y);
        assert_true(out[3 * N + i] == (uint64_t)(s / (t | 1)));
        assert_true(out[4 * N + i] == x % (y | 1));
        assert_true(out[5 * N + i] == (uint64_t)(s >> (y & 63)));
        assert_true(out[6 * N + i] == (s < t ? x : y));
        assert_true(out[7 * N + i] == x << (y & 63));
    }
}

/* --- half precision, decoded and rounded by definition --- */

static double half_value(uint16_t h) {
    int e = h >> 10 & 31;
    double m = h & 1023, v;
    if (e == 31)
        v = m ? NAN : INFINITY;
    else
        v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h >> 15 ? -v : v;
}
/* Nearest half by search over all magnitudes, ties to even. */
static uint16_t half_nearest(double x) {
    uint16_t best = 0, sign = signbit(x) ? 0x8000 : 0;
    x = fabs(x);
    if (isnan(x))
        return 0x7e00;
    if (x >= 65520)
        return sign | 0x7c00;
    int lo = 0, hi = 0x7bff;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (half_value((uint16_t)mid) <= x)
            lo = mid;
        else
            hi = mid - 1;
    }
    best = (uint16_t)lo;
    if (lo < 0x7bff) {
        double below = x - half_value((uint16_t)lo), above = half_value((uint16_t)(lo + 1)) - x;
        if (above < below || (above == below && (lo & 1)))
            best = (uint16_t)(lo + 1);
    }
    return sign | best;
}
static uint16_t half_sample(int i) {
    static const uint16_t special[] = {0, 0x8000, 0x7c00, 0xfc00, 0x7e00, 1, 0x83ff, 0x400, 0x7bff};
    if (i % 11 == 0)
        return special[i / 11 % 9];
    return (uint16_t)((test_random() & 0x83ff) | (8 + test_random() % 14) << 10);
}
static void expect_half(const char *what, int i, uint16_t got, double want) {
    uint16_t w = half_nearest(want);
    if (isnan(want) ? !isnan(half_value(got)) : got != w)
        fail_msg("%s, element %d: got %04x, expected %04x (%a)", what, i, got, w, want);
}

static void test_half_arithmetic(void **state) {
    uint16_t a[N], b[N], c[N], out[7 * N];
    (void)state;
    for (int i = 0; i < N; i++) {
        a[i] = half_sample(i);
        b[i] = half_sample(i + 5);
        c[i] = half_sample(i + 10);
    }
    void *da = test_upload(a, sizeof(a)), *db = test_upload(b, sizeof(b)),
         *dc = test_upload(c, sizeof(c)), *d = test_output(sizeof(out));
    test_run(module, "half_arithmetic", 1, N, ARGS(&d, &da, &db, &dc));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < N; i++) {
        double x = half_value(a[i]), y = half_value(b[i]), z = half_value(c[i]);
        expect_half("add", i, out[i], x + y);
        expect_half("mul", i, out[N + i], x * y);
        expect_half("fma", i, out[2 * N + i], (double)((long double)x * y + z));
        if (!isnan(x) && !isnan(y) && x != y)
            expect_half("max", i, out[3 * N + i], x > y ? x : y);
        expect_half("mixed fma", i, out[4 * N + i], fmaf((float)x, (float)y, (float)z));
        if (fabs(x) < 32768)
            expect_half("to short and back", i, out[5 * N + i], (double)(short)x + 0.0);
        expect_half("division", i, out[6 * N + i], (double)((float)x / (float)y));
    }
}

static void test_packed_arithmetic(void **state) {
    uint16_t a[2 * N], b[2 * N], c[2 * N], out[5 * 2 * N];
    (void)state;
    for (int i = 0; i < 2 * N; i++) {
        a[i] = half_sample(i);
        b[i] = half_sample(i + 5);
        c[i] = half_sample(i + 10);
    }
    void *da = test_upload(a, sizeof(a)), *db = test_upload(b, sizeof(b)),
         *dc = test_upload(c, sizeof(c)), *d = test_output(sizeof(out));
    test_run(module, "packed_arithmetic", 1, N, ARGS(&d, &da, &db, &dc));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < 2 * N; i++) {
        long double x = half_value(a[i]), y = half_value(b[i]), z = half_value(c[i]);
        long double xs = half_value(a[i ^ 1]), ys = half_value(b[i ^ 1]);
        expect_half("add", i, out[i], (double)(x + y));
        expect_half("mul swapped", i, out[2 * N + i], (double)(x * ys));
        expect_half("fma", i, out[4 * N + i], (double)(x * y + z));
        expect_half("fma swapped, negated", i, out[6 * N + i], (double)(xs * -y + 1));
        if (!isnan(half_value(a[i])) && !isnan(half_value(c[i])) && x != z)
            expect_half("max", i, out[8 * N + i], (double)(x > z ? x : z));
    }
}

static void test_packed_integer(void **state) {
    int16_t a[2 * N], b[2 * N], out[5 * 2 * N];
    (void)state;
    for (int i = 0; i < 2 * N; i++) {
        a[i] = (int16_t)test_random();
        b[i] = (int16_t)test_random();
    }
    void *da = test_upload(a, sizeof(a)), *db = test_upload(b, sizeof(b)),
         *d = test_output(sizeof(out));
    test_run(module, "packed_integer", 1, N, ARGS(&d, &da, &db));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < 2 * N; i++) {
        assert_int_equal(out[i], (int16_t)(a[i] + b[i]));
        assert_int_equal(out[2 * N + i], (int16_t)(a[i] * b[i]));
        assert_int_equal(out[4 * N + i], (int16_t)(a[i] - b[i ^ 1]));
        assert_int_equal(out[6 * N + i], a[i] > b[i] ? a[i] : b[i]);
        assert_int_equal(out[8 * N + i], a[i] >> 3);
    }
}

static void test_packed_float(void **state) {
    float a[2 * N], b[2 * N], out[5 * 2 * N];
    (void)state;
    for (int i = 0; i < 2 * N; i++) {
        a[i] = sample(i);
        b[i] = sample(i + 4);
    }
    void *da = test_upload(a, sizeof(a)), *db = test_upload(b, sizeof(b)),
         *d = test_output(sizeof(out));
    test_run(module, "packed_float", 1, N, ARGS(&d, &da, &db));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < 2 * N; i++) {
        float x = a[i], y = b[i];
        expect_same("add", i, out[i], x + y);
        expect_same("mul", i, out[2 * N + i], x * y);
        expect_same("fma", i, out[4 * N + i], fmaf(x, y, x));
        expect_same("scaled minus swapped", i, out[6 * N + i], fmaf(x, 3.f, -b[i ^ 1]));
        expect_same("times constant plus", i, out[8 * N + i], fmaf(x, 2.f, y));
    }
}

/* bfloat16 by definition: nearest of the two neighbours, ties to even. */
static float bf16_nearest(float x) {
    uint32_t u = f32_bits(x), low = u & 0xffff, high = u & 0xffff0000u;
    if (isnan(x))
        return x;
    if (low > 0x8000 || (low == 0x8000 && (high & 0x10000)))
        high += 0x10000;
    return bits_f32(high);
}

static void test_conversions(void **state) {
    float a[N], out[11 * N];
    int32_t b[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        a[i] = sample(i);
        b[i] = (int32_t)(test_random() >> (test_random() % 30));
    }
    void *da = test_upload(a, sizeof(a)), *db = test_upload(b, sizeof(b)),
         *d = test_output(sizeof(out));
    test_run(module, "conversions", 1, N, ARGS(&d, &da, &db));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < N; i++) {
        float x = a[i];
        expect_same("to half", i, out[i], (float)half_value(half_nearest(x)));
        expect_same("to bfloat16", i, out[N + i], bf16_nearest(x));
        if (fabsf(x) < 2147483000.f) {
            expect_same("to int", i, out[2 * N + i], (float)(int32_t)x);
            expect_same("to unsigned", i, out[3 * N + i], (float)(uint32_t)fabsf(x));
        }
        expect_same("from int", i, out[4 * N + i], (float)b[i]);
        expect_same("from unsigned", i, out[5 * N + i], (float)(uint32_t)b[i]);
        expect_same("byte 0", i, out[6 * N + i], (float)(b[i] & 255));
        expect_same("byte 1", i, out[7 * N + i], (float)(b[i] >> 8 & 255));
        expect_same("signed byte 2", i, out[8 * N + i], (float)(int8_t)(b[i] >> 16));
        if (isfinite(x)) {
            float toward = (float)half_value(half_nearest(x));
            if (fabsf(toward) > fabsf(x))
                toward = (float)half_value((uint16_t)(half_nearest(x) - 1));
            expect_same("to half toward zero", i, out[9 * N + i], toward);
        }
        expect_same("from short", i, out[10 * N + i], (float)(int16_t)b[i]);
    }
}

/* gfx942's 8-bit floats: value of a code by definition, nearest code by trying all of them. */
static double fp8_value(int mantissa, int bias, int code) {
    int e = (code & 0x7f) >> mantissa, m = code & ((1 << mantissa) - 1);
    if (code == 0x80)
        return NAN;
    double v = e ? ldexp(1 + ldexp(m, -mantissa), e - bias) : ldexp(m, 1 - bias - mantissa);
    return code & 0x80 ? -v : v;
}
static int fp8_nearest(int mantissa, int bias, double x) {
    int best = 0x80;
    double distance = INFINITY, largest = fp8_value(mantissa, bias, 0x7f);
    double half_step = (largest - fp8_value(mantissa, bias, 0x7e)) / 2;
    if (isnan(x) || fabs(x) >= largest + half_step)
        return 0x80;
    for (int code = 0; code < 256; code++) {
        double off = fabs(fp8_value(mantissa, bias, code) - x);
        if (off < distance || (off == distance && !(code & 1) && (best & 1))) {
            distance = off;
            best = code;
        }
    }
    return best;
}

static void test_fp8(void **state) {
    float a[N];
    uint32_t b[N], out[7 * N];
    (void)state;
    if (!test_is_gfx942())
        skip(); /* the chip has no 8-bit floats */
    for (int i = 0; i < N; i++) {
        a[i] =
            i < 16 ? ldexpf(1.3f, i - 20) : ldexpf(test_uniform(), (int)(test_random() % 24) - 12);
        b[i] = test_random();
    }
    a[200] = NAN;
    a[201] = 300.f;
    a[202] = 1e6f;
    void *da = test_upload(a, sizeof(a)), *db = test_upload(b, sizeof(b)),
         *d = test_output(sizeof(out));
    test_run(module, "fp8", 1, N, ARGS(&d, &da, &db));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < N; i++) {
        uint32_t bf8 = (uint32_t)fp8_nearest(2, 16, a[i]) | (uint32_t)fp8_nearest(2, 16, -a[i])
                                                                << 8;
        uint32_t fp8 = (uint32_t)fp8_nearest(3, 8, a[i]) | (uint32_t)fp8_nearest(3, 8, -a[i]) << 8;
        assert_int_equal(out[i] & 0xffff, bf8);
        assert_int_equal(out[N + i], (b[i] & 0xffff) | fp8 << 16);
        expect_same("bf8 byte 0", i, bits_f32(out[2 * N + i]), (float)fp8_value(2, 16, b[i] & 255));
        expect_same("bf8 byte 3", i, bits_f32(out[3 * N + i]), (float)fp8_value(2, 16, b[i] >> 24));
        expect_same("fp8 byte 1", i, bits_f32(out[4 * N + i]),
                    (float)fp8_value(3, 8, b[i] >> 8 & 255));
        expect_same("fp8 byte 2", i, bits_f32(out[5 * N + 2 * i]),
                    (float)fp8_value(3, 8, b[i] >> 16 & 255));
        expect_same("fp8 byte 3", i, bits_f32(out[5 * N + 2 * i + 1]),
                    (float)fp8_value(3, 8, b[i] >> 24));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float_arithmetic),     cmocka_unit_test(test_float_division),
        cmocka_unit_test(test_float_transcendental), cmocka_unit_test(test_double_arithmetic),
        cmocka_unit_test(test_integer_arithmetic),   cmocka_unit_test(test_long_arithmetic),
        cmocka_unit_test(test_half_arithmetic),      cmocka_unit_test(test_packed_arithmetic),
        cmocka_unit_test(test_packed_integer),       cmocka_unit_test(test_packed_float),
        cmocka_unit_test(test_conversions),          cmocka_unit_test(test_fp8),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
