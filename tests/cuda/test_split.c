/* SPDX-License-Identifier: Apache-2.0 */
/* Which items of forward select splits by keys, of few queries or of a last round, into what, and
 * what scratch memory that takes; and when backward's last items are divided. The tuning table is
 * the test's own, so that all can be worked out by hand. */
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
    {PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_HALF, 256, 128, 80, 256, 2, 384, 160000, 1, 1, 0, 0,
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
    int whole, items, tiles, length; /* items that stay whole; those that do not, 0 for none */
    int grid, merge;                 /* workgroups of the main kernel, and of the merge */
} split_case;

/* 100 multiprocessors; the tiles are 192 x 128 where D is 64, 128 x 128 where it is 128, 128 x 80
 * where it is 256. */
static const split_case split_cases[] = {
    /* 512 tiles for 25 workgroups each, 21 for each of them, as if there were 525. An item has more
     * than 8 parts: the merge has 4 rows of 2 * 32 channels, 8 such to a workgroup. */
    {{1, 4, 4, 1, 65536, 64, 64}, 0, 4, 525, 21, 100, 1},
    /* 32 * 512 tiles, 164 each, where three to an item would have 171. 512 rows of 16 * 8 channels,
     * 256 such to a workgroup. */
    {{1, 32, 8, 16, 65536, 128, 128}, 0, 32, 512, 164, 100, 32},
    {{1, 60, 60, 1, 65536, 64, 64}, 0, 60, 512, 308, 100, 2},
    /* 16 tiles: never less than two to a workgroup. */
    {{1, 1, 1, 3, 2048, 64, 64}, 0, 1, 16, 2, 8, 1},
    {{1, 1, 1, 3, 2047, 64, 40}, 0, 1, 16, 2, 8, 1},
    /* Eight tiles become two, which saves no more than is lost. */
    {{1, 1, 1, 3, 1024, 64, 64}, 1, 0, 0, 0, 1, 0},
    {{1, 1, 1, 3, 0, 64, 64}, 1, 0, 0, 0, 1, 0},
    {{1, 1, 1, 0, 4096, 64, 64}, 0, 0, 0, 0, 0, 0},
    /* Work for each multiprocessor, and for most of them and not long enough. */
    {{1, 100, 100, 1, 65536, 64, 64}, 100, 0, 0, 0, 100, 0},
    {{1, 70, 70, 1, 2048, 64, 64}, 70, 0, 0, 0, 70, 0},
    /* Tiles of queries count as heads do: 6 of them, 16 workgroups to each. 6 * 192 rows of 2 * 32
     * channels. */
    {{1, 1, 1, 1000, 16384, 64, 64}, 0, 6, 128, 8, 96, 288},
    /* 10 * 32 items, of which 20 are left for a fourth round, 5 workgroups to each. 20 * 128 rows
     * of 16 * 8 channels. */
    {{1, 10, 10, 4096, 4096, 128, 128}, 300, 20, 35, 7, 100, 160},
    /* 42 * 4 items, of which 68 are left: 68 * 64 tiles, 44 each but for the last of 99. */
    {{1, 42, 42, 512, 8192, 128, 128}, 100, 68, 64, 44, 100, 544},
    /* 10 of 32 tiles fewer are 1280 keys, and merging takes 768 and 5 for each of 128 rows. */
    {{1, 42, 42, 512, 4096, 128, 128}, 168, 0, 0, 0, 100, 0},
    /* Rounds that are full, and a last one nearly so: 90 * 256 tiles make 231 of 256. */
    {{1, 100, 100, 384, 4096, 128, 128}, 300, 0, 0, 0, 100, 0},
    {{2, 145, 145, 128, 32768, 128, 128}, 290, 0, 0, 0, 100, 0},
    /* Tiles of 80 keys: 38 become two, so an item has 19 parts. 2 * 128 rows of 8 * 32 channels. */
    {{1, 102, 102, 128, 3000, 256, 256}, 100, 2, 38, 2, 100, 256},
};

static void check_split(const pf_capabilities *c, const pf_problem *problem, const split_case *s) {
    pf_plan plan = test_plan(c, problem);
    assert_int_equal(plan.split.whole, s->whole);
    assert_int_equal(plan.split.items, s->items);
    assert_int_equal(plan.split.tiles, s->tiles);
    assert_int_equal(plan.split.length, s->length);
    assert_int_equal(plan.step_count, (s->grid > 0) + (s->items > 0));
    if (s->grid > 0) {
        assert_int_equal(plan.step[0].kind, PF_STEP_MAIN);
        assert_int_equal(plan.step[0].work_count, s->whole);
        assert_int_equal(plan.step[0].grid, s->grid);
    }
    if (s->items > 0) {
        const pf_step *merge = &plan.step[1];
        assert_true(s->length < s->tiles); /* or a range might have tiles of three items */
        assert_int_equal(merge->kind, PF_STEP_MERGE_SPLITS);
        assert_int_equal(merge->image, PF_IMAGE_PASSES);
        assert_int_equal(merge->entry, PF_ENTRY_MERGE_SPLITS);
        assert_int_equal(merge->grid, s->merge);
        assert_int_equal(merge->block, 256);
    }
}

static void split_table(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    for (size_t n = 0; n < sizeof split_cases / sizeof split_cases[0]; n++) {
        print_message("case %zu\n", n);
        pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, split_cases[n].shape);
        pf_problem problem = test_problem(PF_FORWARD, &a);
        check_split(&c, &problem, &split_cases[n]);
    }
}

/* Causal items of several rounds stay whole, and all where each has a workgroup of its own. */
static void split_not_last_round(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 10, 10, 4096, 4096, 128, 128});
    a.flags = PFATTN_FLAG_CAUSAL;
    pf_problem problem = test_problem(PF_FORWARD, &a);
    assert_int_equal(test_plan(&c, &problem).split.whole, 320);
    assert_int_equal(test_plan(&c, &problem).split.items, 0);
    c.targets[0] = PF_TARGET_SM_80;
    c.target_count = 1;
    a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 10, 10, 4096, 4096, 64, 64});
    problem = test_problem(PF_FORWARD, &a);
    assert_int_equal(test_plan(&c, &problem).split.whole, 640);
    assert_int_equal(test_plan(&c, &problem).split.items, 0);
}

/* Keys past those that the last query keeps are not counted: with diagonal 2044 four queries keep
 * 2048 of them, with diagonal 0 four. */
static void split_causal(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 1, 1, 4, 65536, 64, 64});
    a.flags = PFATTN_FLAG_CAUSAL | PFATTN_FLAG_DIAGONAL;
    const int64_t diagonals[] = {2044, 0, -5, INT64_MIN}, tiles[] = {16, 0, 0, 0};
    for (int n = 0; n < 4; n++) {
        a.diagonal = diagonals[n];
        pf_problem problem = test_problem(PF_FORWARD, &a);
        assert_int_equal(test_plan(&c, &problem).split.tiles, tiles[n]);
    }
}

/* The workspace holds the parts: of 100 ranges and 4 items 103, each one row of a maximum, a sum
 * and 64 channels, each array rounded up to 256 bytes. The sm_80 kernel, where 200 workgroups of 64
 * x 64 tiles run at once, has 50 for each item's 1024 tiles: 49 ranges of 21, 199 parts. Other
 * addresses might lead there. */
static void split_workspace(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, split_cases[0].shape);
    pf_problem problem = test_problem(PF_FORWARD, &a);
    pf_plan plan = test_plan(&c, &problem);
    assert_int_equal(plan.scratch.bytes, 1024 + 103 * 64 * 4);
    assert_int_equal(pf_select_workspace(&c, &problem, &plan), 1792 + 199 * 64 * 4);
    a.k.data = (char *)a.k.data + 2;
    problem = test_problem(PF_FORWARD, &a);
    plan = test_plan(&c, &problem);
    assert_int_equal(plan.split.tiles, 49 * 21);
    assert_int_equal(plan.split.length, 21);
    assert_int_equal(plan.step[0].grid, 196);
    assert_int_equal(pf_select_workspace(&c, &problem, &plan), 1792 + 199 * 64 * 4);
}

/* The parts of a last round have the rows of an item, not all: of 92 ranges and 20 items 111, of
 * 128 rows each. */
static void split_last_round_workspace(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 10, 10, 4096, 4096, 128, 128});
    pf_problem problem = test_problem(PF_FORWARD, &a);
    assert_int_equal(test_plan(&c, &problem).scratch.bytes, 119 * 128 * (2 + 128) * 4);
}

/* A compute unit of AMD holds as many workgroups of four waves as waves fit on each of its SIMDs: 2
 * heads * 2 parts of the output leave room for 75, of which each has tiles of one item. */
static void split_on_waves(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    c.targets[0] = PF_TARGET_GFX90A;
    c.target_count = 1;
    c.images[PF_TARGET_GFX90A] = test_images;
    c.warp_size = 64;
    pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16,
                                        (test_shape){1, 2, 2, 1, 75 * 320 - 40, 64, 64});
    pf_problem problem = test_problem(PF_FORWARD, &a);
    pf_plan plan = test_plan(&c, &problem);
    assert_int_equal(plan.split.items, 4);
    assert_int_equal(plan.split.tiles, 750); /* 749 are there */
    assert_int_equal(plan.split.length, 10);
    assert_int_equal(plan.step[0].grid, 300);
    assert_int_equal(plan.step[1].grid, 1); /* 2 * 2 rows of 32 channels, a wave each */
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
        cmocka_unit_test(split_table),
        cmocka_unit_test(split_not_last_round),
        cmocka_unit_test(split_last_round_workspace),
        cmocka_unit_test(split_causal),
        cmocka_unit_test(split_workspace),
        cmocka_unit_test(split_on_waves),
        cmocka_unit_test(division_table),
        cmocka_unit_test(division_features),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
