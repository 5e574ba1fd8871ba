/* SPDX-License-Identifier: Apache-2.0 */
/* When select shares the keys of few queries out among workgroups, into how many parts, and what
 * scratch memory that takes; and when backward's last items are divided. The tuning table is the
 * test's own, so that all can be worked out by hand. */
#include "problems.h"

#include <string.h>

#include "select.h"

/* target, op, class, hd, owned, cross, out, stages, threads, shared, blocks, persistent, waves,
 * variant, bytes for bias, most keys or queries of a short problem, PF_STAGED_* */
static const pf_tuning table[] = {
    {PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_HALF, 64, 192, 128, 64, 2, 512, 90000, 1, 1, 0, 0, 0,
     0, 0},
    {PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_HALF, 128, 128, 128, 128, 2, 384, 160000, 1, 1, 0, 0,
     0, 0, 0},
    {PF_TARGET_SM_90A, PF_OP_BACKWARD, PF_CLASS_HALF, 64, 128, 64, 64, 2, 384, 160000, 1, 1, 0, 0,
     0, 0, 0},
    {PF_TARGET_SM_90A, PF_OP_BACKWARD, PF_CLASS_HALF, 256, 64, 64, 256, 2, 384, 220000, 1, 2, 0, 0,
     0, 0, 0},
    {PF_TARGET_SM_80, PF_OP_FORWARD, PF_CLASS_HALF, 64, 64, 64, 64, 2, 128, 40000, 2, 0, 0, 0, 0, 0,
     0},
    {PF_TARGET_GFX90A, PF_OP_FORWARD, PF_CLASS_HALF, 64, 128, 32, 32, 1, 256, 1024, 1, 0, 3, 0, 0,
     0, 0},
};

static pf_capabilities hopper(void) {
    return test_hopper(table, sizeof table / sizeof table[0]);
}

typedef struct split_case {
    test_shape shape;
    int splits, keys;      /* 0 where the keys stay together */
    int work, grid, merge; /* of the main kernel; workgroups of the merge */
} split_case;

/* 100 multiprocessors; the tiles are 192 x 128 where D is 64, 128 x 128 where it is 128. */
static const split_case split_cases[] = {
    /* 512 tiles for 25 workgroups each: 21 tiles, then 25 are needed. The merge has 4 rows of 2 *
     * 32 channels, 8 such to a workgroup. */
    {{1, 4, 4, 1, 65536, 64, 64}, 25, 21 * 128, 100, 100, 1},
    /* 171 tiles in one round beat 86 in each of two and 57 in each of three. 512 rows, 4 * 32
     * channels. */
    {{1, 32, 8, 16, 65536, 128, 128}, 3, 171 * 128, 96, 96, 256},
    /* In one round not even two fit. Three workgroups each in two rounds: 2 * 171 tiles; five in
     * three: 3 * 103. */
    {{1, 60, 60, 1, 65536, 64, 64}, 5, 103 * 128, 300, 100, 15},
    /* 16 tiles: never less than two to a workgroup. */
    {{1, 1, 1, 3, 2048, 64, 64}, 8, 256, 8, 8, 1},
    {{1, 1, 1, 3, 2047, 64, 40}, 8, 256, 8, 8, 1},
    /* 256 + 256 + 512 keys' time against 1024 + 256: not worth it. */
    {{1, 1, 1, 3, 1024, 64, 64}, 0, 0, 1, 1, 0},
    {{1, 1, 1, 3, 0, 64, 64}, 0, 0, 1, 1, 0},
    /* Work for each multiprocessor, and for most of them and not long enough. */
    {{1, 100, 100, 1, 65536, 64, 64}, 0, 0, 100, 100, 0},
    {{1, 70, 70, 1, 2048, 64, 64}, 0, 0, 70, 70, 0},
    /* Tiles of queries count as heads do: 6 of them. */
    {{1, 1, 1, 1000, 16384, 64, 64}, 16, 8 * 128, 96, 96, 250},
};

static void split_table(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    for (size_t n = 0; n < sizeof split_cases / sizeof split_cases[0]; n++) {
        const split_case *s = &split_cases[n];
        print_message("case %zu\n", n);
        pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, s->shape);
        pf_problem problem = test_problem(PF_FORWARD, &a);
        pf_plan plan = test_plan(&c, &problem);
        assert_int_equal(plan.key_splits, s->splits);
        assert_int_equal(plan.split_keys, s->keys);
        assert_int_equal(plan.step[0].kind, PF_STEP_MAIN);
        assert_int_equal(plan.step[0].work_count, s->work);
        assert_int_equal(plan.step[0].grid, s->grid);
        assert_int_equal(plan.step_count, s->splits > 0 ? 2 : 1);
        if (s->splits > 0) {
            const pf_step *merge = &plan.step[1];
            assert_int_equal(merge->kind, PF_STEP_MERGE_SPLITS);
            assert_int_equal(merge->image, PF_IMAGE_PASSES);
            assert_int_equal(merge->entry, PF_ENTRY_MERGE_SPLITS);
            assert_int_equal(merge->grid, s->merge);
            assert_int_equal(merge->block, 256);
        }
    }
}

/* Keys past those that the last query keeps are not counted: with diagonal 2044 four queries keep
 * 2048 of them, with diagonal 0 four. */
static void split_causal(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 1, 1, 4, 65536, 64, 64});
    a.flags = PFATTN_FLAG_CAUSAL | PFATTN_FLAG_DIAGONAL;
    const int64_t diagonals[] = {2044, 0, -5, INT64_MIN}, splits[] = {8, 0, 0, 0};
    for (int n = 0; n < 4; n++) {
        a.diagonal = diagonals[n];
        pf_problem problem = test_problem(PF_FORWARD, &a);
        assert_int_equal(test_plan(&c, &problem).key_splits, splits[n]);
    }
}

/* The workspace holds the parts: 25 * 4 rows of a maximum, a sum and 64 channels, each array
 * rounded up to 256 bytes. The sm_80 kernel, where 200 workgroups of 64 x 64 tiles run at once, has
 * 49 * 4, and other addresses might lead there. */
static void split_workspace(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, split_cases[0].shape);
    pf_problem problem = test_problem(PF_FORWARD, &a);
    pf_plan plan = test_plan(&c, &problem);
    assert_int_equal(plan.scratch.bytes, 1024 + 100 * 64 * 4);
    assert_int_equal(pf_select_workspace(&c, &problem, &plan), 1792 + 196 * 64 * 4);
    a.k.data = (char *)a.k.data + 2;
    problem = test_problem(PF_FORWARD, &a);
    plan = test_plan(&c, &problem);
    assert_int_equal(plan.key_splits, 49);
    assert_int_equal(pf_select_workspace(&c, &problem, &plan), 1792 + 196 * 64 * 4);
}

/* A compute unit of AMD holds as many workgroups of four waves as waves fit on each of its SIMDs: 2
 * heads * 2 parts of the output leave room for 75. */
static void split_on_waves(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    c.targets[0] = PF_TARGET_GFX90A;
    c.target_count = 1;
    c.images[PF_TARGET_GFX90A] = test_images;
    c.warp_size = 64;
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 2, 2, 1, 75 * 320, 64, 64});
    pf_problem problem = test_problem(PF_FORWARD, &a);
    pf_plan plan = test_plan(&c, &problem);
    assert_int_equal(plan.key_splits, 75);
    assert_int_equal(plan.split_keys, 320);
    assert_int_equal(plan.step[0].grid, 300);
    assert_int_equal(plan.step[1].grid, 1); /* 2 rows of 2 * 32 channels, a wave each */
}

typedef struct division_case {
    test_shape shape;
    int divided, passes; /* items; workgroups of what turns sums into results */
} division_case;

/* 100 multiprocessors, 50 pairs of them where D is 256; 1,000 keys are 8 items a head. */
static const division_case division_cases[] = {
    /* 4 of 104 items are left. Of their 40 tiles of queries each workgroup has one at most in place
     * of 10. dK and dV of 4 items, 128 keys by 16, then 13 * 10 tiles of dq. */
    {{1, 13, 13, 600, 1000, 64, 64}, 4, 2 * 8 * 4 + 130},
    /* 8 tiles: 7 would be saved, and a step longer than that for as many heads again. */
    {{1, 13, 13, 500, 1000, 64, 64}, 0, 104},
    {{1, 26, 13, 300, 1000, 64, 64}, 4, 2 * 8 * 4 + 130},
    /* 96 of 96, and 100 of 200: no round is left that others would be idle in. */
    {{1, 12, 12, 600, 1000, 64, 64}, 0, 120},
    {{1, 25, 25, 600, 1000, 64, 64}, 0, 250},
    /* 98 of 99 take a workgroup 98 of 100 tiles. */
    {{1, 198, 198, 6400, 100, 64, 64}, 0, 19800},
    /* 6 of 56 items of two workgroups each: 60 tiles, 2 for each pair in place of 10. */
    {{1, 7, 7, 600, 1000, 256, 256}, 6, 2 * 2 * 4 * 6 + 70},
};

static void division_table(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    for (size_t i = 0; i < sizeof division_cases / sizeof division_cases[0]; i++) {
        const division_case *d = &division_cases[i];
        pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, d->shape);
        pf_problem problem = test_problem(PF_BACKWARD, &a);
        pf_plan plan = test_plan(&c, &problem);
        assert_int_equal(plan.divided, d->divided);
        assert_int_equal(plan.step[2].grid, d->passes);
        assert_int_equal(plan.scratch.parts != PF_SCRATCH_NONE, d->divided > 0);
    }
}

static int divided(const pfattn_attention *a) {
    pf_capabilities c = hopper();
    pf_problem problem = test_problem(PF_BACKWARD, a);
    return test_plan(&c, &problem).divided;
}

/* Not where items differ in length, where sums have an order, or where a gradient of the bias is
 * written beside. Without dq the pass is for dK and dV alone. Two parts for each workgroup, of 128
 * keys * 64 channels of dK and of dV. */
static void division_features(void **state) {
    (void)state;
    const test_shape shape = {1, 13, 13, 600, 1000, 64, 64};
    const pfattn_attention plain = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, shape);
    pfattn_attention a = plain;
    a.flags |= PFATTN_FLAG_CAUSAL;
    assert_int_equal(divided(&a), 0);
    a = plain;
    a.flags |= PFATTN_FLAG_DETERMINISTIC;
    assert_int_equal(divided(&a), 0);
    a = plain;
    test_add_pair(&a, 3);
    assert_int_equal(divided(&a), 0);
    a = plain;
    a.bias = test_dense(PFATTN_DTYPE_F16, 1, 13, 600, 1000);
    a.dbias = test_dense(PFATTN_DTYPE_F16, 1, 13, 600, 1000);
    assert_int_equal(divided(&a), 0);
    a.dbias = (pfattn_tensor){0};
    assert_int_equal(divided(&a), 4);

    a = plain;
    a.dq = (pfattn_tensor){0};
    pf_capabilities c = hopper();
    pf_problem problem = test_problem(PF_BACKWARD, &a);
    pf_plan plan = test_plan(&c, &problem);
    assert_int_equal(plan.step_count, 3);
    assert_int_equal(plan.step[2].kind, PF_STEP_DQ);
    assert_int_equal(plan.step[2].grid, 2 * 8 * 4);
    assert_int_equal(plan.scratch.bytes - plan.scratch.parts, 100 * 2 * 2 * 128 * 64 * 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_table),     cmocka_unit_test(split_causal),
        cmocka_unit_test(split_workspace), cmocka_unit_test(split_on_waves),
        cmocka_unit_test(division_table),  cmocka_unit_test(division_features),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
