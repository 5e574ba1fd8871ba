/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `pfattn check` by themselves: the bounds, the texts of cases, the guards of tensors,
 * the JSON writer. */
#include <math.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "case_list.h"
#include "compare.h"
#include "json.h"
#include "tensor_image.h"

static bool judge_values(const compared *values, double *ratio) {
    comparison sum;
    char reason[256];
    memset(&sum, 0, sizeof sum);
    comparison_add(&sum, values);
    return comparison_passes(&sum, false, ratio, reason, sizeof reason);
}

static bool judge(const double *tested, const double *naive, const double *exact,
                  const unsigned char *expected, int64_t count, double *ratio) {
    return judge_values(&(compared){tested, naive, exact, expected, count, PFATTN_DTYPE_F32},
                        ratio);
}

static bool judge_type(const double *tested, const double *naive, const double *exact,
                       int64_t count, pfattn_dtype dtype, double *ratio) {
    return judge_values(&(compared){tested, naive, exact, NULL, count, dtype}, ratio);
}

/* max|Xlp - X64| = 0.25 and max|X64| = 2 allow 2 * 0.25 + 2e-5. */
static void test_largest_error_is_bounded_by_twice_the_naive_error(void **state) {
    (void)state;
    const double exact[] = {0, 1, 2, 1}, naive[] = {0.25, 1.25, 2.25, 1.25};
    const double within[] = {0, 1.5, 2, 1}, beyond[] = {0, 1.5001, 2, 1};
    double ratio;
    assert_true(judge(within, naive, exact, NULL, 4, &ratio));
    assert_true(fabs(ratio - 0.5 / (0.5 + 2e-5)) < 1e-12);
    assert_false(judge(beyond, naive, exact, NULL, 4, &ratio));
}

/* One naive error of 0.25 allows 0.5 in every element, but a norm of 4 * 0.25 only: four elements.
 */
static void test_norm_of_the_error_is_bounded(void **state) {
    (void)state;
    double exact[16], naive[16], tested[16], ratio;
    for (int i = 0; i < 16; i++) {
        exact[i] = tested[i] = naive[i] = 1;
    }
    naive[3] = 1.25;
    for (int i = 0; i < 4; i++) {
        tested[i] = 1.49;
    }
    assert_true(judge(tested, naive, exact, NULL, 16, &ratio));
    for (int i = 0; i < 6; i++) {
        tested[i] = 1.49;
    }
    assert_false(judge(tested, naive, exact, NULL, 16, &ratio));
}

/* Elements of 6.3507 in bf16, whose neighbours there are 6.34375 and 6.375. A naive result of 6.359
 * is rounded to the former, which is off by 0.007, where 6.36 would have been off by 0.0243: more
 * than twice that. One such element among 64 of another binade is judged by the worst rounding,
 * 2 (0.0083 + 0.0156) = 0.048, which the others are not; 64 of them by what the naive ones were. */
static void test_rare_magnitudes_are_judged_by_the_worst_rounding(void **state) {
    (void)state;
    enum { COUNT = 65 };
    double exact[COUNT], naive[COUNT], tested[COUNT], ratio;
    for (int common = 0; common < 2; common++) {
        for (int i = 0; i < COUNT; i++) {
            const bool one = !common && i > 0;
            exact[i] = one ? 1 : 6.3507;
            naive[i] = one ? 1 : 6.359;
            tested[i] = one ? 1 : 6.34375;
        }
        tested[0] = 6.375;
        assert_int_equal(judge_type(tested, naive, exact, COUNT, PFATTN_DTYPE_BF16, &ratio),
                         !common);
    }
    for (int i = 1; i < COUNT; i++) {
        exact[i] = naive[i] = tested[i] = 1;
    }
    tested[0] = 6.40625;
    assert_false(judge_type(tested, naive, exact, COUNT, PFATTN_DTYPE_BF16, &ratio));
    tested[0] = 6.375;
    tested[1] = 1.03125;
    assert_false(judge_type(tested, naive, exact, COUNT, PFATTN_DTYPE_BF16, &ratio));
    tested[1] = 1;
    assert_false(judge_type(tested, naive, exact, COUNT, PFATTN_DTYPE_F32, &ratio));
}

/* Over one key, sixteen elements of a gradient share the error of one score: the largest error
 * alone is judged, and it still is. */
static void test_few_scores_have_no_norm(void **state) {
    (void)state;
    const double exact = 1, naive = 1.25, tested = 1.49, wrong = 1.6;
    for (int few = 0; few < 2; few++) {
        comparison sum = {.few = few};
        char reason[256];
        double ratio;
        for (int i = 0; i < 16; i++) {
            comparison_add(&sum, &(compared){.tested = i < 6 ? &tested : &exact,
                                             .naive = i == 3 ? &naive : &exact,
                                             .exact = &exact,
                                             .count = 1,
                                             .dtype = PFATTN_DTYPE_F64});
        }
        assert_int_equal(comparison_passes(&sum, false, &ratio, reason, sizeof reason), few);
        comparison_add(&sum, &(compared){.tested = &wrong,
                                         .naive = &exact,
                                         .exact = &exact,
                                         .count = 1,
                                         .dtype = PFATTN_DTYPE_F64});
        assert_false(comparison_passes(&sum, false, &ratio, reason, sizeof reason));
    }
}

/* B H M N scores; where attention is causal rows beyond the keys keep none. */
static void test_scores_of_a_case(void **state) {
    (void)state;
    check_case c;
    char message[256];
    assert_true(case_parse("op=backward B=2 H=3 M=5 N=7", &c, message, sizeof message));
    assert_true(case_scores(&c) == 2 * 3 * 5 * 7);
    assert_true(case_parse("op=backward B=2 H=3 M=129 N=1 causal=1", &c, message, sizeof message));
    assert_true(case_scores(&c) == 2 * 3);
}

static void test_zero_for_a_gradient_of_order_one_fails(void **state) {
    (void)state;
    const double exact[] = {1, -0.5}, naive[] = {1.001, -0.5}, zero[] = {0, 0};
    double ratio;
    assert_false(judge(zero, naive, exact, NULL, 2, &ratio));
}

static void test_nan_or_infinity_on_one_side_fails(void **state) {
    (void)state;
    const double one[] = {1, 1}, with_nan[] = {1, NAN}, infinite[] = {1, -INFINITY};
    const double other[] = {1, INFINITY};
    double ratio;
    assert_false(judge(with_nan, one, one, NULL, 2, &ratio));
    assert_false(judge(one, with_nan, with_nan, NULL, 2, &ratio));
    assert_false(judge(infinite, one, one, NULL, 2, &ratio));
    assert_false(judge(infinite, other, other, NULL, 2, &ratio));
    assert_true(judge(infinite, infinite, infinite, NULL, 2, &ratio));
    assert_true(judge(with_nan, with_nan, with_nan, NULL, 2, &ratio));
}

static void test_expectations_override_the_exact_value(void **state) {
    (void)state;
    const double one[] = {1, 1}, with_nan[] = {1, NAN};
    const unsigned char nan_expected[] = {EXPECT_VALUE, EXPECT_NAN};
    const unsigned char anything[] = {EXPECT_VALUE, EXPECT_ANYTHING};
    const double infinite[] = {1, INFINITY}, negative[] = {1, -INFINITY};
    const unsigned char infinity_expected[] = {EXPECT_VALUE, EXPECT_INFINITY};
    double ratio;
    assert_true(judge(infinite, one, one, infinity_expected, 2, &ratio));
    assert_false(judge(negative, one, one, infinity_expected, 2, &ratio));
    assert_false(judge(with_nan, one, one, infinity_expected, 2, &ratio));
    assert_false(judge(one, one, one, infinity_expected, 2, &ratio));
    assert_true(judge(with_nan, one, one, nan_expected, 2, &ratio));
    assert_false(judge(one, one, one, nan_expected, 2, &ratio));
    assert_true(judge(with_nan, one, one, anything, 2, &ratio));
}

/* A result that is zero but for rounding is not asked for relative accuracy. */
static void test_rounding_noise_around_zero_passes(void **state) {
    (void)state;
    const double exact[] = {1e-17, 0}, naive[] = {0, 0}, tested[] = {3e-7, -2e-7};
    double ratio;
    assert_true(judge(tested, naive, exact, NULL, 2, &ratio));
}

static void test_f64_results_are_held_to_1e_12(void **state) {
    (void)state;
    const double exact[] = {1}, close[] = {1 + 5e-13}, off[] = {1 + 5e-12};
    for (int i = 0; i < 2; i++) {
        comparison sum;
        char reason[256];
        double ratio;
        compared values = {i ? off : close, off, exact, NULL, 1, PFATTN_DTYPE_F64};
        memset(&sum, 0, sizeof sum);
        comparison_add(&sum, &values);
        assert_int_equal(comparison_passes(&sum, true, &ratio, reason, sizeof reason), i == 0);
    }
}

/* Printing and parsing give the same case, for every case of the full list. */
static void test_case_texts_round_trip(void **state) {
    (void)state;
    case_list list = {NULL, 0, 0};
    const case_limits limits = {1e15, 1e12};
    case_list_full(&list, &limits, 3);
    assert_true(list.count > 3000);
    for (size_t i = 0; i < list.count; i++) {
        char text[1024], again[1024], message[1024];
        check_case parsed;
        case_print(&list.items[i], text, sizeof text);
        assert_true(case_parse(text, &parsed, message, sizeof message));
        case_print(&parsed, again, sizeof again);
        assert_string_equal(text, again);
        /* Bytes compare, but some defaults are NaNs. */
        if (isnan(parsed.alpha) && isnan(list.items[i].alpha)) {
            parsed.alpha = list.items[i].alpha;
        }
        if (isnan(parsed.q_std) && isnan(list.items[i].q_std)) {
            parsed.q_std = list.items[i].q_std;
        }
        assert_memory_equal(&parsed, &list.items[i], sizeof parsed);
    }
    case_list_free(&list);
}

static void test_wrong_case_texts_are_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {"M",
                                        "M=",
                                        "M=x",
                                        "M=-1",
                                        "nonsense=1",
                                        "dtype=f8",
                                        "H=3 Hk=2",
                                        "biasdims=x",
                                        "outputs=nothing",
                                        "causal=2",
                                        "garbage=1 layout=broadcast",
                                        "nan=key op=backward",
                                        "nan=infinite-value op=jvp"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        check_case parsed;
        char message[1024] = "";
        assert_false(case_parse(wrong[i], &parsed, message, sizeof message));
        assert_true(message[0]);
    }
}

/* The Triton tutorial's grid is there whole for a device that can do it. */
static void test_full_list_holds_the_triton_grid(void **state) {
    (void)state;
    case_list list = {NULL, 0, 0};
    const case_limits limits = {1e15, 1e12};
    int found = 0;
    case_list_full(&list, &limits, 1);
    for (size_t i = 0; i < list.count; i++) {
        const check_case *c = &list.items[i];
        found += c->std == 0.5 && c->alpha == 0.5 && (c->batch == 1 || c->batch == 4) &&
                 (c->heads == 2 || c->heads == 48) && c->samples > 0;
    }
    assert_int_equal(found, 2 * 2 * 3 * 2 * 2 * 2);
    case_list_free(&list);
}

/* Each layout: its elements do not overlap, and a byte changed anywhere else is noticed. */
static void test_guards_notice_every_byte_around_the_elements(void **state) {
    (void)state;
    for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
        check_case c;
        char message[256];
        tensor_image image;
        assert_true(
            case_parse("dtype=f16 B=2 H=2 M=3 D=5 pad=1 offset=1", &c, message, sizeof message));
        c.layout = layout;
        image_create(&image, &c, PF_O, true, 5);
        image_fill_nan(&image);
        size_t bytes = image_host_bytes(&image), noticed = 0;
        unsigned char *after = malloc(bytes);
        memcpy(after, image.bytes, bytes);
        assert_true(image_is_intact(&image, after, true));
        for (size_t i = 0; i < bytes; i++) {
            after[i] ^= 0x10;
            noticed += !image_is_intact(&image, after, true);
            after[i] ^= 0x10;
        }
        assert_int_equal(bytes - noticed, 2 * 2 * 3 * 5 * 2);
        free(after);
        image_free(&image);
    }
}

/* Far slices: the strides say 2^31 elements and more, the host keeps the slices alone. */
static void test_far_dimension_spreads_the_slices(void **state) {
    (void)state;
    check_case c;
    char message[256];
    tensor_image image;
    assert_true(case_parse("dtype=f16 B=3 M=4 D=8 far=batch", &c, message, sizeof message));
    image_create(&image, &c, PF_Q, false, 1);
    assert_true(2 * image.stride[0] > INT64_C(1) << 31);
    assert_true(image_host_bytes(&image) < 10000);
    assert_true(image_device_bytes(&image) > (size_t)1 << 32);
    int64_t index[4] = {2, 0, 3, 7};
    image_set(&image, index, 3);
    assert_true(image_get(&image, index) == 3);
    image_free(&image);
}

static void test_json_is_escaped_and_nested(void **state) {
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    json writer = {.out = file};
    json_object(&writer, NULL);
    json_text(&writer, "a", "x\"\\\n");
    json_array(&writer, "b");
    json_integer(&writer, NULL, -1);
    json_number(&writer, NULL, NAN);
    json_close_array(&writer);
    json_array(&writer, "c");
    json_close_array(&writer);
    json_bool(&writer, "d", true);
    json_close_object(&writer);
    fclose(file);
    assert_string_equal(text,
                        "{\n  \"a\": \"x\\\"\\\\\\u000a\",\n  \"b\": [\n    -1,\n    null\n  ],\n"
                        "  \"c\": [],\n  \"d\": true\n}\n");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_largest_error_is_bounded_by_twice_the_naive_error),
        cmocka_unit_test(test_norm_of_the_error_is_bounded),
        cmocka_unit_test(test_rare_magnitudes_are_judged_by_the_worst_rounding),
        cmocka_unit_test(test_few_scores_have_no_norm),
        cmocka_unit_test(test_scores_of_a_case),
        cmocka_unit_test(test_zero_for_a_gradient_of_order_one_fails),
        cmocka_unit_test(test_nan_or_infinity_on_one_side_fails),
        cmocka_unit_test(test_expectations_override_the_exact_value),
        cmocka_unit_test(test_rounding_noise_around_zero_passes),
        cmocka_unit_test(test_f64_results_are_held_to_1e_12),
        cmocka_unit_test(test_case_texts_round_trip),
        cmocka_unit_test(test_wrong_case_texts_are_refused),
        cmocka_unit_test(test_full_list_holds_the_triton_grid),
        cmocka_unit_test(test_guards_notice_every_byte_around_the_elements),
        cmocka_unit_test(test_far_dimension_spreads_the_slices),
        cmocka_unit_test(test_json_is_escaped_and_nested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
