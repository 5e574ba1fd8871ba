/* SPDX-License-Identifier: Apache-2.0 */
/* The conversions of formats.h against the definition of the formats: every code decodes to
 * (-1)^s 2^(e-bias) (1 + f), every value between two neighbours rounds to the nearer one, a
 * midpoint to the one with the even code, and everything is rounded once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "formats.h"

typedef struct format {
    int exponent_bits, fraction_bits;
    pfattn_dtype dtype;
    uint32_t (*encode64)(double);
    uint32_t (*encode32)(float);
    float (*decode)(uint32_t);
} format;

static uint32_t f16_64(double x) {
    return pf_f64_to_f16(x);
}
static uint32_t f16_32(float x) {
    return pf_f32_to_f16(x);
}
static float f16_decode(uint32_t c) {
    return pf_f16_to_f32((uint16_t)c);
}
static uint32_t bf16_64(double x) {
    return pf_f64_to_bf16(x);
}
static uint32_t bf16_32(float x) {
    return pf_f32_to_bf16(x);
}
static float bf16_decode(uint32_t c) {
    return pf_bf16_to_f32((uint16_t)c);
}
static uint32_t e5m2_64(double x) {
    return pf_f64_to_e5m2(x);
}
static uint32_t e5m2_32(float x) {
    return pf_f32_to_e5m2(x);
}
static float e5m2_decode(uint32_t c) {
    return pf_e5m2_to_f32((uint8_t)c);
}

static const format formats[] = {
    {5, 10, PFATTN_DTYPE_F16, f16_64, f16_32, f16_decode},
    {8, 7, PFATTN_DTYPE_BF16, bf16_64, bf16_32, bf16_decode},
    {5, 2, PFATTN_DTYPE_E5M2, e5m2_64, e5m2_32, e5m2_decode},
};
#define FORMATS (sizeof formats / sizeof *formats)

static uint32_t sign_bit(const format *f) {
    return 1u << (f->exponent_bits + f->fraction_bits);
}

static uint32_t infinity_code(const format *f) {
    return ((1u << f->exponent_bits) - 1) << f->fraction_bits;
}

/* The definition. A code of the infinity's exponent is taken as the number it would be, 2^emax+1.
 */
static double defined_value(const format *f, uint32_t magnitude) {
    const int bias = (1 << (f->exponent_bits - 1)) - 1;
    const int exponent = (int)(magnitude >> f->fraction_bits);
    const double fraction = magnitude & ((1u << f->fraction_bits) - 1);
    const double unit = ldexp(1.0, -f->fraction_bits);
    return exponent == 0 ? ldexp(fraction * unit, 1 - bias)
                         : ldexp(1 + fraction * unit, exponent - bias);
}

static void expect_code(const format *f, double value, uint32_t code) {
    assert_int_equal(f->encode64(value), code);
    assert_int_equal(f->encode64(-value), code | sign_bit(f));
    if ((double)(float)value == value) {
        assert_int_equal(f->encode32((float)value), code);
        assert_int_equal(f->encode32(-(float)value), code | sign_bit(f));
    }
}

static void every_code_decodes_by_the_definition_and_encodes_back(void **state) {
    (void)state;
    for (size_t n = 0; n < FORMATS; n++) {
        const format *f = &formats[n];
        for (uint32_t code = 0; code < infinity_code(f); code++) {
            assert_true((double)f->decode(code) == defined_value(f, code));
            assert_true((double)f->decode(code | sign_bit(f)) == -defined_value(f, code));
            assert_true(signbit(f->decode(code | sign_bit(f))));
            expect_code(f, defined_value(f, code), code);
        }
    }
}

static void infinities_and_nans_keep_their_kind_and_sign(void **state) {
    (void)state;
    for (size_t n = 0; n < FORMATS; n++) {
        const format *f = &formats[n];
        const uint32_t infinity = infinity_code(f);
        assert_true(f->decode(infinity) == INFINITY);
        assert_true(f->decode(infinity | sign_bit(f)) == -INFINITY);
        expect_code(f, INFINITY, infinity);
        for (uint32_t code = infinity + 1; code < sign_bit(f); code++) {
            assert_true(isnan(f->decode(code)));
            assert_true(isnan(f->decode(code | sign_bit(f))));
            assert_true(f->encode32(f->decode(code)) > infinity);
            assert_true(f->encode32(f->decode(code)) < sign_bit(f));
            assert_true(f->encode32(f->decode(code | sign_bit(f))) > (infinity | sign_bit(f)));
        }
        /* A NaN whose payload lies below the narrow fraction must not become an infinity. */
        const uint64_t low_payload = UINT64_C(0x7ff8000000000001) & ~(UINT64_C(1) << 51);
        double nan_value;
        memcpy(&nan_value, &low_payload, sizeof nan_value);
        assert_true(f->encode64(nan_value) > infinity && f->encode64(nan_value) < sign_bit(f));
    }
}

static void midpoints_go_to_the_even_code_and_their_neighbours_to_the_nearer(void **state) {
    (void)state;
    for (size_t n = 0; n < FORMATS; n++) {
        const format *f = &formats[n];
        /* The last midpoint is the one between the largest finite number and 2^(emax+1). */
        for (uint32_t code = 0; code < infinity_code(f); code++) {
            const double middle = (defined_value(f, code) + defined_value(f, code + 1)) / 2;
            expect_code(f, middle, code + (code & 1));
            /* One unit of a double away: a first rounding to float would land on the midpoint. */
            expect_code(f, nextafter(middle, 0), code);
            expect_code(f, nextafter(middle, INFINITY), code + 1);
            expect_code(f, nextafterf((float)middle, 0), code);
            expect_code(f, nextafterf((float)middle, INFINITY), code + 1);
        }
    }
}

static void extremes_round_as_ieee_says(void **state) {
    (void)state;
    for (size_t n = 0; n < FORMATS; n++) {
        const format *f = &formats[n];
        expect_code(f, 0.0, 0);
        expect_code(f, 4.9e-324, 0); /* the smallest subnormal double */
        expect_code(f, 2.2250738585072014e-308, 0);
        expect_code(f, 1.7976931348623157e308, infinity_code(f));
    }
    expect_code(&formats[0], 65504, 0x7bff);
    expect_code(&formats[0], 65519.99, 0x7bff);
    expect_code(&formats[0], 65520, 0x7c00);
    expect_code(&formats[0], 0x1p-24, 1);
    expect_code(&formats[0], 0x1p-25, 0);
    expect_code(&formats[1], 3.3895313892515355e38, 0x7f7f);
    expect_code(&formats[1], 0x1p-133, 1);
    expect_code(&formats[2], 57344, 0x7b);
    expect_code(&formats[2], 61439.99, 0x7b);
    expect_code(&formats[2], 61440, 0x7c); /* halfway to 65536, whose code is even: infinity */
    expect_code(&formats[2], 0x1p-16, 1);
    expect_code(&formats[2], 0x1p-17, 0);
}

static void load_and_store_reach_every_type(void **state) {
    (void)state;
    const pfattn_dtype types[] = {PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16, PFATTN_DTYPE_F32,
                                  PFATTN_DTYPE_F64, PFATTN_DTYPE_E5M2};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        double memory[4] = {0};
        pf_store(memory, types[t], 0, 1.5);
        pf_store(memory, types[t], 1, -0.25);
        pf_store(memory, types[t], 2, (double)INFINITY);
        assert_true(pf_load(memory, types[t], 0) == 1.5);
        assert_true(pf_load(memory, types[t], 1) == -0.25);
        assert_true(pf_load(memory, types[t], 2) == (double)INFINITY);
    }
    uint8_t mask[3] = {7, 7, 7};
    pf_store(mask, PFATTN_DTYPE_U8, 1, 0.5);
    pf_store(mask, PFATTN_DTYPE_U8, 2, 0);
    assert_true(mask[0] == 7 && mask[1] == 1 && mask[2] == 0);
    assert_true(pf_load(mask, PFATTN_DTYPE_U8, 0) == 7);
    assert_true(pf_load(mask, PFATTN_DTYPE_NONE, 0) == 0);
}

static void round_and_smallest_normal_follow_the_codes(void **state) {
    (void)state;
    for (size_t n = 0; n < FORMATS; n++) {
        const format *f = &formats[n];
        assert_true(pf_smallest_normal(f->dtype) == defined_value(f, 1u << f->fraction_bits));
        const double step = defined_value(f, 0x21) - defined_value(f, 0x20);
        assert_true(pf_round(defined_value(f, 0x20) + 0.4 * step, f->dtype) ==
                    defined_value(f, 0x20));
    }
    assert_true(pf_round(1 + 0x1p-25, PFATTN_DTYPE_F32) == 1);
    assert_true(pf_round(1 + 0x1p-50, PFATTN_DTYPE_F64) == 1 + 0x1p-50);
    assert_true(pf_smallest_normal(PFATTN_DTYPE_F32) == 0x1p-126);
    assert_true(pf_smallest_normal(PFATTN_DTYPE_F64) == 0x1p-1022);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_decodes_by_the_definition_and_encodes_back),
        cmocka_unit_test(infinities_and_nans_keep_their_kind_and_sign),
        cmocka_unit_test(midpoints_go_to_the_even_code_and_their_neighbours_to_the_nearer),
        cmocka_unit_test(extremes_round_as_ieee_says),
        cmocka_unit_test(load_and_store_reach_every_type),
        cmocka_unit_test(round_and_smallest_normal_follow_the_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
