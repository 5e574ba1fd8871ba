/* SPDX-License-Identifier: Apache-2.0 */
/* Element types, the float exponential, and the two ways to compute otherwise than well. */
#include <string.h>

#include "harness.h"
#include "naive.h"
#include "ref/exponential.h"
#include "ref/rounding.h"

static void the_float_exponential_is_within_2_units(void **state) {
    (void)state;
    double worst = 0;
    for (uint32_t bits = 0; bits < 0x7f800000; bits += 211) {
        for (uint32_t sign = 0; sign < 2; sign++) {
            const uint32_t pattern = bits | sign << 31;
            float x;
            memcpy(&x, &pattern, sizeof x);
            const double want = exp((double)x);
            const float got = pf_exponential(x);
            if (want >= 0x1.ffffffp127) { /* rounds to infinity in float */
                assert_true(isinf(got));
                continue;
            }
            const double unit = ldexp(1, ilogb(fmax(want, 0x1p-126)) - 23);
            worst = fmax(worst, fabs((double)got - want) / unit);
        }
    }
    print_message("worst error of the float exponential: %.3f units\n", worst);
    assert_true(worst <= 2);
    assert_true(pf_exponential(0) == 1);
    assert_true(pf_exponential(-INFINITY) == 0);
    assert_true(pf_exponential(INFINITY) == INFINITY);
    assert_true(isnan(pf_exponential(NAN)) && isnan(pf_exponential(-NAN)));
}

/* Every 2503rd float, a midpoint near it and the float before that, against the conversions. */
static void the_vectorised_rounding_equals_the_conversions(void **state) {
    (void)state;
    const pfattn_dtype types[] = {PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16, PFATTN_DTYPE_E5M2};
    const pf_narrow narrow[] = {pf_narrow_f16, pf_narrow_bf16, pf_narrow_e5m2};
    for (int type = 0; type < 3; type++) {
        const uint32_t half = 1u << (narrow[type].dropped - 1);
        for (uint64_t step = 0; step < UINT64_C(1) << 32; step += 2503) {
            for (uint32_t near = 0; near < 3; near++) {
                const uint32_t middle = ((uint32_t)step & ~(half - 1)) | half;
                const uint32_t bits = near == 0 ? (uint32_t)step : middle + near - 2;
                float x;
                memcpy(&x, &bits, sizeof x);
                const float got = pf_round_narrow(x, narrow[type]);
                const double want = pf_round((double)x, types[type]);
                assert_true((double)got == want || (isnan(got) && isnan(want)));
            }
        }
    }
}

/* What one rounding of a result of order 1 may cost, and float arithmetic where that is less. */
static double precision_of(pfattn_dtype dtype) {
    switch (dtype) {
    case PFATTN_DTYPE_E5M2:
        return 0x1p-3;
    case PFATTN_DTYPE_BF16:
        return 0x1p-8;
    case PFATTN_DTYPE_F16:
        return 0x1p-11;
    case PFATTN_DTYPE_F64:
        return 1e-12;
    default:
        return 4e-6;
    }
}

static spec mixed(pfattn_dtype dtype, pfattn_dtype result, pfattn_dtype bias) {
    return (spec){.dtype = dtype,
                  .result_dtype = result,
                  .bias_dtype = bias,
                  .B = 2,
                  .H = 2,
                  .Hk = 1,
                  .M = 66,
                  .N = 70,
                  .D = 16,
                  .E = 20,
                  .causal = true,
                  .piecewise = true,
                  .distance = 10,
                  .bias = {1, 2, 66, 70},
                  .mask = {2, 1, 1, 70}};
}

static void forward_is_right_in_every_type(void **state) {
    (void)state;
    const pfattn_dtype types[] = {PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16, PFATTN_DTYPE_F32,
                                  PFATTN_DTYPE_E5M2, PFATTN_DTYPE_F64};
    for (int n = 0; n < 5 * 3; n++) {
        const pfattn_dtype type = types[n / 3];
        const pfattn_dtype bias = type == PFATTN_DTYPE_F64 ? type : types[n % 3];
        const spec s = mixed(type, type, bias);
        const pfattn_attention a = new_problem(&s);
        run(PF_FORWARD, &a);
        expect_formulas(PF_FORWARD, &a, precision_of(type) * 1.01);
        if (type != PFATTN_DTYPE_E5M2) {
            run(PF_FORWARD_JVP, &a);
            expect_formulas(PF_FORWARD_JVP, &a, precision_of(type) * 1.01);
        }
        free_tensors();
    }
}

/* The gradients are computed from an O that was rounded to f32, so they carry no 16-bit error but
 * their own rounding. */
static void gradients_are_right_in_every_type(void **state) {
    (void)state;
    const pfattn_dtype types[] = {PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16, PFATTN_DTYPE_F32};
    for (int n = 0; n < 9; n++) {
        spec s = mixed(types[n / 3], PFATTN_DTYPE_F32, types[n % 3]);
        pfattn_attention a = new_problem(&s);
        run_everything(&a);
        a.dbias = a.tdbias = (pfattn_tensor){0}; /* in the bias's type: another precision */
        expect_all_formulas(&a, 1e-5);
        free_tensors();
    }
}

/* In the input type a result is the f32 result rounded once. */
static void results_in_the_input_type_are_those_in_f32_rounded(void **state) {
    (void)state;
    const pfattn_dtype types[] = {PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16, PFATTN_DTYPE_E5M2,
                                  PFATTN_DTYPE_E5M2, PFATTN_DTYPE_E5M2};
    const pfattn_dtype results[] = {PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16, PFATTN_DTYPE_E5M2,
                                    PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16};
    for (int n = 0; n < 5; n++) {
        const spec s = mixed(types[n], results[n], PFATTN_DTYPE_F16);
        pfattn_attention a = new_problem(&s), wide = a;
        static const char *const names[] = {"o", "dq", "dk", "dv", "dbias", "dq2", "dk2"};
        for (int m = 0; m < 7; m++) {
            pfattn_tensor *x = tensor_named(&wide, names[m]);
            *x = new_tensor(PFATTN_DTYPE_F32, BHSD, x->shape[0], x->shape[1], x->shape[2],
                            x->shape[3]);
        }
        run(PF_FORWARD, &a);
        run(PF_FORWARD, &wide);
        const bool back = types[n] != PFATTN_DTYPE_E5M2;
        if (back) {
            pfattn_attention same_o = wide;
            same_o.o = a.o;
            run(PF_BACKWARD, &a);
            run(PF_BACKWARD, &same_o);
        }
        for (int m = 0; m < (back ? 7 : 1); m++) {
            const pfattn_tensor *narrow = tensor_named(&a, names[m]);
            for (int64_t e = 0; e < element_count(narrow); e++) {
                const double rounded =
                    pf_round(get_nth(tensor_named(&wide, names[m]), e), narrow->dtype);
                assert_true(get_nth(narrow, e) == rounded);
            }
        }
        free_tensors();
    }
}

/* Two keys and one query with q = 0: S is the bias. */
static pfattn_attention two_keys(pfattn_dtype dtype, double bias0, double bias1) {
    const spec s = {.dtype = dtype,
                    .result_dtype = PFATTN_DTYPE_F32,
                    .bias_dtype = PFATTN_DTYPE_F32,
                    .B = 1,
                    .H = 1,
                    .Hk = 1,
                    .M = 1,
                    .N = 2,
                    .D = 1,
                    .E = 1,
                    .bias = {1, 1, 1, 2},
                    .scaled = true,
                    .alpha = 1};
    pfattn_attention a = new_problem(&s);
    for (int id = PF_Q; id < PF_O0; id++) {
        fill(tensor_at(&a, id), 0);
    }
    set(&a.bias, 0, 0, 0, 0, bias0);
    set(&a.bias, 0, 0, 0, 1, bias1);
    return a;
}

static void run_as(pf_operation operation, const pfattn_attention *all, bool round, bool flush) {
    const pfattn_attention a = for_operation(operation, all);
    run_with(operation, &a, &(pf_ref_options){.round_products = round, .flush_subnormals = flush});
}

/* e^(S - max) = 1, 1/3. f16 has 1/3 as 1365/4096 = 0.333251953125, bf16 as 171/512 = 0.333984375.
 * v = 0, 1: O = (1/3 rounded) / (4/3), for the sum of probabilities is not rounded. */
static void round_products_rounds_probabilities_of_forward(void **state) {
    (void)state;
    const pfattn_dtype types[] = {PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16, PFATTN_DTYPE_F32};
    const double thirds[] = {0.333251953125, 0.333984375, 1.0 / 3};
    for (int n = 0; n < 3; n++) {
        pfattn_attention a = two_keys(types[n], 0, -log(3));
        set(&a.v, 0, 0, 1, 0, 1);
        run_as(PF_FORWARD, &a, true, false);
        EXPECT(a.o, 1e-7, thirds[n] * 0.75);
        EXPECT(a.lse, 1e-7, log(4.0 / 3));
        run_as(PF_FORWARD, &a, false, false);
        EXPECT(a.o, 1e-7, 0.25);
        free_tensors();
    }
}

/* P = 1/3, 2/3; with dO = 1 and dL = 1 dS = P, since v = 0. q = 1, k = 1: dk = dS and dq = their
 * sum. dv = P, rounded to f16: 1365/4096 and 1365/2048. dbias is no matrix product and stays
 * unrounded. */
static void round_products_rounds_both_factors_of_backward(void **state) {
    (void)state;
    pfattn_attention a = two_keys(PFATTN_DTYPE_F16, 0, log(2));
    fill(&a.q, 1);
    fill(&a.dout, 1);
    fill(&a.dlse, 1);
    run(PF_FORWARD_JVP, &a);
    run_as(PF_BACKWARD, &a, true, false);
    EXPECT(a.dv, 1e-8, 0.333251953125, 0.66650390625);
    EXPECT(a.dk, 1e-8, 0.333251953125, 0.66650390625);
    EXPECT(a.dbias, 1e-7, 1.0 / 3, 2.0 / 3);
    fill(&a.k, 1);
    run(PF_FORWARD_JVP, &a);
    run_as(PF_BACKWARD, &a, true, false);
    EXPECT(a.dq, 1e-8, 0.333251953125 + 0.66650390625);
    run_as(PF_BACKWARD, &a, false, false);
    EXPECT(a.dv, 1e-7, 1.0 / 3, 2.0 / 3);
    EXPECT(a.dq, 1e-7, 1);
}

/* The same P; tbias = 3, 0: dt = 3, 0, mu = 1, tP = 2/3, -2/3. With dO = 1, dL = 1, v = 0:
 * tdS = tP. tdv = tP dO, tdk = tdS q, rounded to f16 2/3 = 1365/2048. */
static void round_products_rounds_the_tangents(void **state) {
    (void)state;
    pfattn_attention a = two_keys(PFATTN_DTYPE_F16, 0, log(2));
    fill(&a.q, 1);
    fill(&a.dout, 1);
    fill(&a.dlse, 1);
    set(&a.tbias, 0, 0, 0, 0, 3);
    run(PF_FORWARD_JVP, &a);
    run_as(PF_BACKWARD_JVP, &a, true, false);
    EXPECT(a.tdv, 1e-8, 0.66650390625, -0.66650390625);
    EXPECT(a.tdk, 1e-8, 0.66650390625, -0.66650390625);
    EXPECT(a.tdbias, 1e-6, 2.0 / 3, -2.0 / 3);
}

/* 2^-15 is subnormal in f16, 2^-14 is not. q k = 2^-15 * 2^15 = 1, or 0 if q is flushed: with k = 0
 * for the other key, P of the first is e/(e+1) or 1/2. */
static void flush_takes_subnormal_inputs_as_zero(void **state) {
    (void)state;
    pfattn_attention a = two_keys(PFATTN_DTYPE_F16, 0, 0);
    set(&a.v, 0, 0, 0, 0, 1);
    set(&a.k, 0, 0, 0, 0, 0x1p15);
    fill(&a.q, 0x1p-15);
    run_as(PF_FORWARD, &a, false, false);
    EXPECT(a.o, 1e-6, exp(1) / (exp(1) + 1));
    run_as(PF_FORWARD, &a, false, true);
    EXPECT(a.o, 1e-7, 0.5);
    fill(&a.q, 0x1p-14);
    set(&a.k, 0, 0, 0, 0, 0x1p14);
    run_as(PF_FORWARD, &a, false, true);
    EXPECT(a.o, 1e-6, exp(1) / (exp(1) + 1));
    fill(&a.q, 0);
    set(&a.v, 0, 0, 0, 0, 0x1p-15);
    run_as(PF_FORWARD, &a, false, false);
    EXPECT(a.o, 0, 0x1p-16);
    run_as(PF_FORWARD, &a, false, true);
    EXPECT(a.o, 0, 0);
}

/* e^-11 = 1.67e-5 lies below 2^-14 = 6.1e-5. It is flushed in the product, not in the sum of L. */
static void flush_takes_subnormal_probabilities_as_zero(void **state) {
    (void)state;
    pfattn_attention a = two_keys(PFATTN_DTYPE_F16, 0, -11);
    set(&a.v, 0, 0, 1, 0, 1024);
    const double p = exp(-11) / (1 + exp(-11));
    run_as(PF_FORWARD, &a, false, false);
    EXPECT(a.o, 1e-7, 1024 * p);
    run_as(PF_FORWARD, &a, false, true);
    EXPECT(a.o, 0, 0);
    run_as(PF_FORWARD, &a, true, true);
    EXPECT(a.o, 0, 0);
    fill(&a.q, 1);
    fill(&a.dout, 1);
    fill(&a.dlse, 1);
    fill(&a.v, 0);
    run(PF_FORWARD, &a);
    run_as(PF_BACKWARD, &a, false, true);
    EXPECT(a.dv, 1e-6, 1 - p, 0);
    EXPECT(a.dk, 1e-6, 1 - p, 0);
    assert_true(get(&a.dv, 0, 0, 1, 0) == 0 && get(&a.dk, 0, 0, 1, 0) == 0);
    assert_true(get(&a.dbias, 0, 0, 0, 1) > 1e-5); /* no matrix product */
}

/* bf16 subnormals lie below 2^-126; f32 is never flushed. */
static void flush_depends_on_the_type(void **state) {
    (void)state;
    pfattn_attention a = two_keys(PFATTN_DTYPE_BF16, 0, 0);
    set(&a.v, 0, 0, 0, 0, 0x1p-127);
    run_as(PF_FORWARD, &a, false, true);
    EXPECT(a.o, 0, 0);
    assert_true(get(&a.o, 0, 0, 0, 0) == 0);
    set(&a.v, 0, 0, 0, 0, 0x1p-125);
    run_as(PF_FORWARD, &a, false, true);
    assert_true(get(&a.o, 0, 0, 0, 0) == 0x1p-126);
    pfattn_attention b = two_keys(PFATTN_DTYPE_F32, 0, 0);
    set(&b.v, 0, 0, 0, 0, 0x1p-127);
    run_as(PF_FORWARD, &b, false, true);
    assert_true(get(&b.o, 0, 0, 0, 0) == 0x1p-128);
}

/* A problem converted to f64 rounds and flushes as the type it stands for. */
static void options_can_name_the_type_of_a_converted_problem(void **state) {
    (void)state;
    const spec s = {.B = 1, .H = 1, .Hk = 1, .M = 1, .N = 2, .D = 1, .E = 1, .bias = {1, 1, 1, 2}};
    const pfattn_attention all = new_problem(&s), a = for_operation(PF_FORWARD, &all);
    fill(&a.q, 0);
    set(&a.bias, 0, 0, 0, 0, 0);
    set(&a.bias, 0, 0, 0, 1, -log(3));
    set(&a.v, 0, 0, 0, 0, 0);
    set(&a.v, 0, 0, 1, 0, 1);
    run_with(PF_FORWARD, &a, &(pf_ref_options){.round_products = true});
    EXPECT(a.o, 1e-15, 0.25);
    run_with(PF_FORWARD, &a,
             &(pf_ref_options){.round_products = true, .product_dtype = PFATTN_DTYPE_F16});
    EXPECT(a.o, 1e-15, 0.333251953125 * 0.75);
    set(&a.v, 0, 0, 1, 0, 0x1p-20);
    run_with(PF_FORWARD, &a, &(pf_ref_options){.flush_subnormals = true});
    EXPECT(a.o, 0, 0x1p-22);
    run_with(PF_FORWARD, &a,
             &(pf_ref_options){.flush_subnormals = true, .product_dtype = PFATTN_DTYPE_F16});
    assert_true(get(&a.o, 0, 0, 0, 0) == 0);
}

#define TEST(name) cmocka_unit_test_teardown(name, free_tensors_after)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_float_exponential_is_within_2_units),
        TEST(the_vectorised_rounding_equals_the_conversions),
        TEST(forward_is_right_in_every_type),
        TEST(gradients_are_right_in_every_type),
        TEST(results_in_the_input_type_are_those_in_f32_rounded),
        TEST(round_products_rounds_probabilities_of_forward),
        TEST(round_products_rounds_both_factors_of_backward),
        TEST(round_products_rounds_the_tangents),
        TEST(flush_takes_subnormal_inputs_as_zero),
        TEST(flush_takes_subnormal_probabilities_as_zero),
        TEST(flush_depends_on_the_type),
        TEST(options_can_name_the_type_of_a_converted_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
