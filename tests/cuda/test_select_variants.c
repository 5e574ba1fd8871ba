/* SPDX-License-Identifier: Apache-2.0 */
/* That select runs the variant that the tuning file names for a problem, where it is there, and the
 * default elsewhere. The tuning table is the test's own, so that grids can be worked out by hand.
 */
#include "problems.h"

#include <string.h>

#include "select.h"

/* target, op, class, hd, owned, cross, out, stages, threads, shared, blocks, persistent, waves,
 * variant, bytes for bias, most keys or queries of a short problem,
 * PF_STAGED_* */
static const pf_tuning table[] = {
    {PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_HALF, 64, 192, 128, 64, 2, 512, 90000, 1, 1, 0, 0, 0,
     0, 0},
    {PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_HALF, 64, 128, 128, 64, 2, 384, 80001, 1, 1, 0, 1, 0,
     0, 0},
    {PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_HALF, 128, 512, 128, 128, 2, 384, 90000, 1, 1, 0, 0,
     0, 0, 0},
    {PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_HALF, 128, 128, 64, 128, 2, 384, 90000, 1, 1, 0, 1,
     0, 0, 0},
    {PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_HALF, 128, 256, 64, 128, 2, 384, 90000, 1, 1, 0, 2,
     0, 1024, 0},
    {PF_TARGET_SM_90A, PF_OP_BACKWARD, PF_CLASS_HALF, 64, 128, 64, 64, 2, 384, 130000, 1, 0, 0, 0,
     0, 0, 0},
    {PF_TARGET_SM_90A, PF_OP_BACKWARD, PF_CLASS_HALF, 64, 64, 128, 64, 2, 384, 130000, 1, 0, 0, 1,
     0, 0, 0},
    {PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_HALF, 64, 128, 128, 64, 2, 384, 90000, 1, 1, 0,
     PF_VARIANT_GENERAL, 65536, 0, PF_STAGED_ANY},
    {PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_HALF, 64, 192, 128, 64, 2, 512, 90001, 1, 1, 0,
     PF_VARIANT_GENERAL + 1, 98304, 0, PF_STAGED_BIAS},
    {PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_HALF, 64, 192, 128, 64, 2, 512, 90002, 1, 1, 0,
     PF_VARIANT_GENERAL + 2, 49152, 0, PF_STAGED_MASK},
};

/* A device with a tuning file. */
static pf_capabilities device(pf_tuned *tuned) {
    pf_capabilities c = test_hopper(table, sizeof table / sizeof table[0]);
    c.target_count = 1;
    c.tuned = tuned;
    return c;
}

static const pf_step *find_step(const pf_plan *plan, pf_step_kind kind) {
    for (int i = 0; i < plan->step_count; i++) {
        if (plan->step[i].kind == kind) {
            return &plan->step[i];
        }
    }
    return NULL;
}

static void assert_key(const pf_step *step, const char *want) {
    char key[64];
    assert_non_null(step);
    pf_image_key(step->target, step->image, key, sizeof key);
    assert_string_equal(key, want);
}

/* The tuning file decides between variants of plain kernels, by the owned sequence: queries in
 * forward, keys in backward. Work, block and scratch follow the row. */
static void tuned_variants(void **state) {
    (void)state;
    static pf_tuned tuned = {
        .entry = {{PF_TARGET_SM_90A, PF_OP_FORWARD, PFATTN_DTYPE_F16, 64, false, 1000, 1},
                  {PF_TARGET_SM_90A, PF_OP_BACKWARD, PFATTN_DTYPE_F16, 64, true, INT64_MAX, 1}},
        .count = 2};
    pf_capabilities c = device(&tuned);
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 2, 2, 1000, 50, 64, 64});
    pf_problem problem = test_problem(PF_FORWARD, &a);
    pf_plan plan = test_plan(&c, &problem);
    assert_key(&plan.step[0], "sm_90a/forward.f16.64.plain.v1");
    assert_int_equal(plan.step[0].block, 384);
    assert_int_equal(plan.step[0].work_count, 2 * 8); /* 1000 / 128 */
    a.flags |= PFATTN_FLAG_CAUSAL;
    problem = test_problem(PF_FORWARD, &a);
    plan = test_plan(&c, &problem);
    assert_key(&plan.step[0], "sm_90a/forward.f16.64.plain");
    assert_int_equal(plan.step[0].work_count, 2 * 6); /* 1000 / 192 */
    a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 2, 2, 1001, 50, 64, 64});
    problem = test_problem(PF_FORWARD, &a);
    plan = test_plan(&c, &problem);
    assert_key(&plan.step[0], "sm_90a/forward.f16.64.plain");
    a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 2, 2, 10, 50, 64, 64});
    test_add_mask(&a, 1, 1, 10, 50);
    problem = test_problem(PF_FORWARD, &a);
    plan = test_plan(&c, &problem);
    assert_key(find_step(&plan, PF_STEP_MAIN), "sm_90a/forward.f16.64.general");

    a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, (test_shape){1, 2, 2, 300, 1000, 64, 64});
    a.flags |= PFATTN_FLAG_CAUSAL;
    problem = test_problem(PF_BACKWARD, &a);
    plan = test_plan(&c, &problem);
    const pf_step *main_step = find_step(&plan, PF_STEP_MAIN);
    assert_key(main_step, "sm_90a/backward.f16.64.plain.v1");
    assert_key(find_step(&plan, PF_STEP_DQ), "sm_90a/backward.f16.64.plain.v1");
    assert_int_equal(main_step->work_count, 2 * 16);             /* 1000 / 64 */
    assert_int_equal(find_step(&plan, PF_STEP_DQ)->grid, 2 * 3); /* 300 / 128 */
    assert_int_equal(plan.scratch.queries_padded % 128, 0);
    assert_true(pf_select_workspace(&c, &problem, &plan) >= plan.scratch.bytes);
}

/* Without a word of the tuning file the variant for short sequences runs where both are short and a
 * tile of the default does not hold the queries. */
static void short_sequences(void **state) {
    (void)state;
    pf_capabilities c = device(NULL);
    static const struct {
        int64_t queries, keys;
        bool is_short;
    } cases[] = {{513, 1, true},   {1024, 1024, true}, {512, 1024, false},
                 {1, 1024, false}, {1025, 513, false}, {513, 1025, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_shape shape = {1, 2, 2, cases[i].queries, cases[i].keys, 128, 128};
        pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_BF16, shape);
        pf_problem problem = test_problem(PF_FORWARD, &a);
        pf_plan plan = test_plan(&c, &problem);
        assert_int_equal(plan.tuning->variant, cases[i].is_short ? 2 : 0);
    }
    pf_tuned tuned = {
        .entry = {{PF_TARGET_SM_90A, PF_OP_FORWARD, PFATTN_DTYPE_BF16, 128, false, INT64_MAX, 0}},
        .count = 1};
    c.tuned = &tuned;
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_BF16, (test_shape){1, 2, 2, 1024, 1024, 128, 128});
    pf_problem problem = test_problem(PF_FORWARD, &a);
    assert_int_equal(test_plan(&c, &problem).tuning->variant, 0);
    c.tuned = NULL;
    test_images[pf_image_number(PF_OP_FORWARD, PFATTN_DTYPE_BF16, 128, false, 2)] = false;
    assert_int_equal(test_plan(&c, &problem).tuning->variant, 0);
    test_images[pf_image_number(PF_OP_FORWARD, PFATTN_DTYPE_BF16, 128, false, 2)] = true;
}

/* General variants run where just what they are for is staged, and the default elsewhere: rows of
 * 50 keys are no multiple of 16 bytes. */
static void general_variants(void **state) {
    (void)state;
    pf_capabilities c = device(NULL);
    static const struct {
        bool bias, mask;
        int64_t keys;
        const char *key;
    } cases[] = {{true, false, 64, "sm_90a/forward.f16.64.general.v1"},
                 {false, true, 64, "sm_90a/forward.f16.64.general.v2"},
                 {true, true, 64, "sm_90a/forward.f16.64.general"},
                 {true, false, 50, "sm_90a/forward.f16.64.general"},
                 {false, true, 50, "sm_90a/forward.f16.64.general"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_shape shape = {1, 2, 2, 100, cases[i].keys, 64, 64};
        pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, shape);
        if (cases[i].bias) {
            test_add_bias(&a, PFATTN_DTYPE_F16, 1, 2, 100, cases[i].keys);
        }
        if (cases[i].mask) {
            test_add_mask(&a, 1, 2, 100, cases[i].keys);
        }
        pf_problem problem = test_problem(PF_FORWARD, &a);
        pf_plan plan = test_plan(&c, &problem);
        assert_key(find_step(&plan, PF_STEP_MAIN), cases[i].key);
    }
}

/* A variant that this build lacks or whose memory the device has not does not exist. */
static void kernels_that_are_there(void **state) {
    (void)state;
    pf_capabilities c = device(NULL);
    assert_non_null(
        pf_kernel_find(&c, PF_TARGET_SM_90A, PF_OP_FORWARD, PFATTN_DTYPE_BF16, 64, false, 1));
    assert_null(
        pf_kernel_find(&c, PF_TARGET_SM_90A, PF_OP_FORWARD, PFATTN_DTYPE_BF16, 64, false, 2));
    test_images[pf_image_number(PF_OP_FORWARD, PFATTN_DTYPE_BF16, 64, false, 1)] = false;
    assert_null(
        pf_kernel_find(&c, PF_TARGET_SM_90A, PF_OP_FORWARD, PFATTN_DTYPE_BF16, 64, false, 1));
    assert_non_null(
        pf_kernel_find(&c, PF_TARGET_SM_90A, PF_OP_FORWARD, PFATTN_DTYPE_F16, 64, false, 1));
    c.shared_bytes = 80000; /* one byte too few */
    assert_null(
        pf_kernel_find(&c, PF_TARGET_SM_90A, PF_OP_FORWARD, PFATTN_DTYPE_F16, 64, false, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tuned_variants),
        cmocka_unit_test(short_sequences),
        cmocka_unit_test(general_variants),
        cmocka_unit_test(kernels_that_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
