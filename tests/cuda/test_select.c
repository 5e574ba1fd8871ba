/* SPDX-License-Identifier: Apache-2.0 */
/* That select picks the right kernel, grid and order of launches, falls back where a layout forbids
 * tensor maps, and refuses what is out of range with its reason. The tuning table is the test's
 * own, so that grids can be worked out by hand. */
#include "problems.h"

#include <stdio.h>
#include <string.h>

#include "select.h"

#define HALF PF_CLASS_HALF
#define F32 PF_CLASS_F32
#define E5M2 PF_CLASS_E5M2

/* target, op, class, hd, owned, cross, out, stages, threads, shared, blocks, persistent, waves,
 * variant, bytes for bias, most keys or queries of a short problem,
 * PF_STAGED_* */
static const pf_tuning table[] = {
    {PF_TARGET_SM_90A, PF_OP_FORWARD, HALF, 64, 192, 128, 64, 2, 512, 90000, 1, 1, 0, 0, 0, 0, 0},
    {PF_TARGET_SM_90A, PF_OP_FORWARD, HALF, 128, 128, 128, 128, 2, 384, 160000, 1, 1, 0, 0, 0, 0,
     0},
    {PF_TARGET_SM_90A, PF_OP_FORWARD_JVP, HALF, 256, 128, 64, 128, 1, 384, 220000, 1, 1, 0, 0, 0, 0,
     0},
    {PF_TARGET_SM_90A, PF_OP_BACKWARD, HALF, 64, 128, 64, 64, 2, 384, 130000, 1, 0, 0, 0, 0, 0, 0},
    {PF_TARGET_SM_80, PF_OP_FORWARD, HALF, 64, 64, 64, 64, 2, 128, 40000, 2, 0, 0, 0, 0, 0, 0},
    {PF_TARGET_SM_80, PF_OP_FORWARD, HALF, 128, 64, 64, 128, 2, 128, 80000, 1, 0, 0, 0, 0, 0, 0},
    {PF_TARGET_SM_80, PF_OP_FORWARD, HALF, 256, 64, 32, 256, 2, 128, 99000, 1, 0, 0, 0, 0, 0, 0},
    {PF_TARGET_SM_80, PF_OP_FORWARD, F32, 64, 64, 64, 64, 2, 128, 80000, 1, 0, 0, 0, 0, 0, 0},
    {PF_TARGET_SM_80, PF_OP_FORWARD, E5M2, 64, 64, 64, 64, 2, 128, 40000, 1, 0, 0, 0, 0, 0, 0},
    {PF_TARGET_SM_80, PF_OP_FORWARD_JVP, HALF, 64, 64, 32, 64, 2, 128, 81000, 1, 0, 0, 0, 0, 0, 0},
    {PF_TARGET_SM_80, PF_OP_BACKWARD, HALF, 64, 64, 32, 64, 2, 128, 74000, 1, 0, 0, 0, 0, 0, 0},
    {PF_TARGET_SM_80, PF_OP_BACKWARD, HALF, 256, 64, 16, 128, 1, 128, 99000, 1, 0, 0, 0, 0, 0, 0},
    {PF_TARGET_SM_80, PF_OP_BACKWARD_JVP, HALF, 64, 64, 32, 32, 2, 128, 82000, 1, 0, 0, 0, 0, 0, 0},
    {PF_TARGET_SM_80, PF_OP_DBIAS, HALF, 64, 64, 32, 64, 2, 96, 50000, 2, 0, 0, 0, 0, 0, 0},
    {PF_TARGET_SM_80, PF_OP_DBIAS_JVP, HALF, 64, 32, 32, 64, 2, 64, 50000, 2, 0, 0, 0, 0, 0, 0},
};

static bool no_images[PF_IMAGE_COUNT];

static pf_capabilities hopper(void) {
    return test_hopper(table, sizeof table / sizeof table[0]);
}

static pf_capabilities ampere(void) {
    pf_capabilities c = hopper();
    c.targets[0] = PF_TARGET_SM_80;
    c.target_count = 1;
    c.images[PF_TARGET_SM_90A] = NULL;
    c.shared_bytes = 101376;
    return c;
}

static void assert_refused(const pf_capabilities *c, const pf_problem *problem, const char *text) {
    pf_plan plan;
    assert_int_equal(pf_select(c, problem, &plan), PFATTN_ERROR_UNSUPPORTED);
    if (strstr(pfattn_last_error(), text) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", pfattn_last_error(), text);
    }
}

static pf_problem forward_problem(pfattn_dtype dtype, test_shape shape) {
    pfattn_attention a = test_attention(PF_FORWARD, dtype, shape);
    return test_problem(PF_FORWARD, &a);
}

static const pf_step *find_step(const pf_plan *plan, pf_step_kind kind) {
    for (int i = 0; i < plan->step_count; i++) {
        if (plan->step[i].kind == kind) {
            return &plan->step[i];
        }
    }
    return NULL;
}

static void assert_steps(const pf_plan *plan, const pf_step_kind *kinds, int count) {
    assert_int_equal(plan->step_count, count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(plan->step[i].kind, kinds[i]);
        assert_true(plan->step[i].grid > 0);
    }
}

#define ASSERT_STEPS(plan, ...)                                                                    \
    assert_steps(plan, (const pf_step_kind[]){__VA_ARGS__},                                        \
                 (int)(sizeof((const pf_step_kind[]){__VA_ARGS__}) / sizeof(pf_step_kind)))

static void assert_key(const pf_step *step, const char *want) {
    char key[64];
    assert_non_null(step);
    pf_image_key(step->target, step->image, key, sizeof key);
    assert_string_equal(key, want);
}

/* ---- names --------------------------------------------------------------------------------- */

/* Every image has a key of its own, and those written out here are as documented. */
static void image_keys(void **state) {
    (void)state;
    char keys[PF_IMAGE_COUNT][64];
    for (int i = 0; i < PF_IMAGE_COUNT; i++) {
        pf_image_key(PF_TARGET_SM_80, i, keys[i], sizeof keys[i]);
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(keys[i], keys[j]);
        }
    }
    char key[64];
    int image = pf_image_number(PF_OP_BACKWARD_JVP, PFATTN_DTYPE_BF16, 256, true, 0);
    pf_image_key(PF_TARGET_SM_90A, image, key, sizeof key);
    assert_string_equal(key, "sm_90a/backward_jvp.bf16.256.general");
    image = pf_image_number(PF_OP_FORWARD, PFATTN_DTYPE_E5M2, 64, false, 0);
    pf_image_key(PF_TARGET_SM_80, image, key, sizeof key);
    assert_string_equal(key, "sm_80/forward.e5m2.64.plain");
    image = pf_image_number(PF_OP_BACKWARD, PFATTN_DTYPE_F16, 128, false, 2);
    pf_image_key(PF_TARGET_GFX942, image, key, sizeof key);
    assert_string_equal(key, "gfx942/backward.f16.128.plain.v2");
    pf_image_key(PF_TARGET_SM_80, PF_IMAGE_PASSES, key, sizeof key);
    assert_string_equal(key, "sm_80/passes");
}

/* Each image lists its kernels under the names of the contract. */
static void entry_names(void **state) {
    (void)state;
    const char *const main_entries[] = {"pf_forward",      "pf_forward_jvp", "pf_backward",
                                        "pf_backward_jvp", "pf_dbias",       "pf_dbias_jvp"};
    for (int op = 0; op < PF_OP_COUNT; op++) {
        int image = pf_image_number(op, PFATTN_DTYPE_F32, 128, true, 0);
        assert_string_equal(pf_entry_name(image, PF_ENTRY_MAIN), main_entries[op]);
        if (op == PF_OP_BACKWARD) {
            assert_string_equal(pf_entry_name(image, PF_ENTRY_DQ), "pf_backward_dq");
        } else if (op == PF_OP_BACKWARD_JVP) {
            assert_string_equal(pf_entry_name(image, PF_ENTRY_DQ), "pf_backward_jvp_dq");
        } else {
            assert_null(pf_entry_name(image, PF_ENTRY_DQ));
        }
        assert_null(pf_entry_name(image, 2));
    }
    static const char *const passes[PF_ENTRY_COUNT] = {
        [PF_ENTRY_KEY_LIVE] = "pf_key_live",
        [PF_ENTRY_BACKWARD_PRE] = "pf_backward_pre",
        [PF_ENTRY_BACKWARD_PRE_JVP] = "pf_backward_pre_jvp",
        [PF_ENTRY_DBIAS_REDUCE] = "pf_dbias_reduce",
        [PF_ENTRY_MERGE] = "pf_merge",
        [PF_ENTRY_MERGE_SPLITS] = "pf_merge_splits",
        [PF_ENTRY_MERGE_SPLITS_JVP] = "pf_merge_splits_jvp",
        [PF_ENTRY_WIDEN] = "pf_widen",
        [PF_ENTRY_NARROW] = "pf_narrow",
    };
    for (int entry = 0; entry < PF_ENTRY_COUNT; entry++) {
        assert_string_equal(pf_entry_name(PF_IMAGE_PASSES, entry), passes[entry]);
    }
}

/* ---- forward ------------------------------------------------------------------------------- */

typedef struct forward_case {
    pf_operation operation;
    pfattn_dtype dtype;
    test_shape shape;
    const char *key;
    int work, grid, block, shared;
    bool mapped;
} forward_case;

static const forward_case forward_cases[] = {
    /* 2 * 4 heads * ceil(1000 / 192) = 6 tiles */
    {PF_FORWARD,
     PFATTN_DTYPE_F16,
     {2, 4, 4, 1000, 500, 64, 64},
     "sm_90a/forward.f16.64.plain",
     48,
     48,
     512,
     90000,
     true},
    /* More work than the 100 multiprocessors: the persistent grid is cut to them. */
    {PF_FORWARD,
     PFATTN_DTYPE_BF16,
     {4, 8, 2, 1000, 500, 64, 8},
     "sm_90a/forward.bf16.64.plain",
     192,
     100,
     512,
     90000,
     true},
    /* The larger of D and E decides. */
    {PF_FORWARD,
     PFATTN_DTYPE_F16,
     {1, 1, 1, 128, 5, 16, 72},
     "sm_90a/forward.f16.128.plain",
     1,
     1,
     384,
     160000,
     true},
    {PF_FORWARD,
     PFATTN_DTYPE_F16,
     {1, 1, 1, 129, 5, 128, 8},
     "sm_90a/forward.f16.128.plain",
     2,
     2,
     384,
     160000,
     true},
    /* No row for sm_90a at 256: sm_80. */
    {PF_FORWARD,
     PFATTN_DTYPE_F16,
     {1, 1, 1, 65, 5, 136, 8},
     "sm_80/forward.f16.256.plain",
     2,
     2,
     128,
     99000,
     false},
    /* Output channels divided over two workgroups: 3 tiles * 256 / 128. */
    {PF_FORWARD_JVP,
     PFATTN_DTYPE_BF16,
     {1, 1, 1, 300, 5, 256, 256},
     "sm_90a/forward_jvp.bf16.256.plain",
     6,
     6,
     384,
     220000,
     true},
    {PF_FORWARD,
     PFATTN_DTYPE_F32,
     {3, 2, 2, 100, 5, 64, 64},
     "sm_80/forward.f32.64.plain",
     12,
     12,
     128,
     80000,
     false},
    /* Rows of 10 channels of 2 bytes are not multiples of 16 bytes. */
    {PF_FORWARD,
     PFATTN_DTYPE_F16,
     {1, 2, 2, 100, 500, 10, 10},
     "sm_80/forward.f16.64.plain",
     4,
     4,
     128,
     40000,
     false},
};

/* The kernel, its grid and its workgroup for one problem of each kind. */
static void forward_table(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    for (size_t n = 0; n < sizeof forward_cases / sizeof forward_cases[0]; n++) {
        const forward_case *f = &forward_cases[n];
        print_message("case %zu\n", n);
        pfattn_attention a = test_attention(f->operation, f->dtype, f->shape);
        pf_problem problem = test_problem(f->operation, &a);
        pf_plan plan = test_plan(&c, &problem);
        ASSERT_STEPS(&plan, PF_STEP_MAIN);
        const pf_step *step = &plan.step[0];
        assert_key(step, f->key);
        assert_int_equal(step->entry, PF_ENTRY_MAIN);
        assert_int_equal(step->work_count, f->work);
        assert_int_equal(step->grid, f->grid);
        assert_int_equal(step->block, f->block);
        assert_int_equal(step->shared_bytes, f->shared);
        assert_int_equal(step->mapped, f->mapped);
        assert_int_equal(plan.scratch.bytes, 0);
    }
}

/* Bias, mask, and an alpha that is not positive in f32 take the general variant. */
static void general_variant(void **state) {
    (void)state;
    const test_shape shape = {2, 4, 4, 100, 300, 64, 64};
    const double alphas[] = {0.125, 0.0, -0.0, -1.0, 1e-40, 1e-300};
    for (int n = 0; n < 6; n++) {
        pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, shape);
        a.flags = PFATTN_FLAG_ALPHA;
        a.alpha = alphas[n];
        pf_problem problem = test_problem(PF_FORWARD, &a);
        pf_capabilities c = hopper();
        pf_plan plan = test_plan(&c, &problem);
        ASSERT_STEPS(&plan, PF_STEP_MAIN);
        assert_key(&plan.step[0],
                   n == 0 ? "sm_90a/forward.f16.64.plain" : "sm_90a/forward.f16.64.general");
    }
}

/* Mask and bias first ask which keys are kept: a workgroup of 256 for each of 2 * 4 heads * 2
 * blocks of 256 keys. */
static void key_live_step(void **state) {
    (void)state;
    const test_shape shape = {2, 4, 4, 100, 300, 64, 64};
    pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, shape);
    test_add_mask(&a, 2, 1, 1, 300);
    test_add_bias(&a, PFATTN_DTYPE_F32, 1, 4, 1, 300);
    pf_problem problem = test_problem(PF_FORWARD, &a);
    pf_capabilities c = hopper();
    pf_plan plan = test_plan(&c, &problem);
    ASSERT_STEPS(&plan, PF_STEP_KEY_LIVE, PF_STEP_MAIN);
    assert_key(&plan.step[0], "sm_90a/passes");
    assert_int_equal(plan.step[0].entry, PF_ENTRY_KEY_LIVE);
    assert_int_equal(plan.step[0].grid, 16);
    assert_int_equal(plan.step[0].block, 256);
    assert_false(plan.step[0].mapped);
    assert_key(&plan.step[1], "sm_90a/forward.f16.64.general");
}

/* e5m2 through the f16 kernel of sm_90a wherever there is one: whatever the strides, since they are
 * the copy's, and whatever the type of O, though not every type directly; else the sm_80 kernel. */
static void widened_operands(void **state) {
    (void)state;
    const test_shape shape = {2, 4, 4, 100, 300, 64, 64};
    const pfattn_dtype types[] = {PFATTN_DTYPE_F16, PFATTN_DTYPE_F32, PFATTN_DTYPE_NONE,
                                  PFATTN_DTYPE_BF16, PFATTN_DTYPE_E5M2};
    pf_capabilities c = hopper();
    for (int n = 0; n < 5; n++) {
        pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_E5M2, shape);
        a.o.dtype = types[n];
        if (types[n] == PFATTN_DTYPE_NONE) {
            a.o = (pfattn_tensor){0};
        }
        a.k.data = (char *)a.k.data + 1;
        a.v.stride[3] = 300;
        a.v.stride[2] = 1;
        pf_problem problem = test_problem(PF_FORWARD, &a);
        pf_plan plan = test_plan(&c, &problem);
        assert_true(plan.widened);
        assert_int_equal(plan.narrowed, n >= 3);
        size_t copies = (800 + 2400 + 2400) * 128;
        if (n < 3) {
            ASSERT_STEPS(&plan, PF_STEP_WIDEN, PF_STEP_MAIN);
            assert_int_equal(plan.scratch.bytes, copies);
        } else {
            ASSERT_STEPS(&plan, PF_STEP_WIDEN, PF_STEP_MAIN, PF_STEP_NARROW);
            assert_key(&plan.step[2], "sm_90a/passes");
            assert_int_equal(plan.step[2].entry, PF_ENTRY_NARROW);
            assert_int_equal(plan.step[2].grid, 13);
            assert_int_equal(plan.scratch.bytes, copies + 800 * 256);
        }
        assert_key(&plan.step[0], "sm_90a/passes");
        assert_int_equal(plan.step[0].entry, PF_ENTRY_WIDEN);
        assert_int_equal(plan.step[0].grid, 13 + 38 + 38); /* 800, 2400, 2400 rows */
        assert_key(&plan.step[1], "sm_90a/forward.f16.64.plain");
        assert_true(plan.step[1].mapped);
    }
    pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_E5M2, shape);
    a.o.dtype = PFATTN_DTYPE_F16;
    pf_problem problem = test_problem(PF_FORWARD, &a);
    bool all_but_one[PF_IMAGE_COUNT];
    memset(all_but_one, 1, sizeof all_but_one);
    all_but_one[pf_image_number(PF_OP_FORWARD, PFATTN_DTYPE_F16, 64, false, 0)] = false;
    c.images[PF_TARGET_SM_90A] = all_but_one;
    pf_plan plan = test_plan(&c, &problem);
    assert_key(&plan.step[0], "sm_80/forward.e5m2.64.plain");
    c = ampere();
    plan = test_plan(&c, &problem);
    ASSERT_STEPS(&plan, PF_STEP_MAIN);
    assert_key(&plan.step[0], "sm_80/forward.e5m2.64.plain");
    assert_false(plan.widened);
}

/* ---- tensor maps --------------------------------------------------------------------------- */

typedef struct layout_case {
    const char *what;
    uintptr_t offset;
    int64_t shape[4], stride[4];
    const char *obstacle; /* part of it; NULL where maps are possible */
} layout_case;

static const layout_case layout_cases[] = {
    {"contiguous", 0, {2, 3, 100, 64}, {19200, 6400, 64, 1}, NULL},
    {"packed qkv", 32, {2, 3, 100, 64}, {57600, 64, 576, 1}, NULL},
    {"heads inside the sequence", 0, {2, 3, 100, 64}, {19200, 64, 192, 1}, NULL},
    {"broadcast head", 0, {2, 3, 100, 64}, {6400, 0, 64, 1}, NULL},
    {"broadcast batch", 0, {2, 3, 100, 64}, {0, 6400, 64, 1}, NULL},
    {"odd strides of size 1", 0, {1, 1, 1, 64}, {3, -7, 5, 1}, NULL},
    {"one channel, any stride", 0, {2, 3, 100, 1}, {2400, 800, 8, 5}, NULL},
    {"rows of 8 channels", 0, {2, 3, 100, 8}, {2400, 800, 8, 1}, NULL},
    {"misaligned by an element", 2, {2, 3, 100, 64}, {19200, 6400, 64, 1}, "address"},
    {"misaligned by 8 bytes", 8, {2, 3, 100, 64}, {19200, 6400, 64, 1}, "address"},
    {"transposed", 0, {2, 3, 100, 64}, {19200, 6400, 1, 100}, "contiguous"},
    {"every other channel", 0, {2, 3, 100, 64}, {38400, 12800, 128, 2}, "contiguous"},
    {"reversed channels", 0, {2, 3, 100, 64}, {19200, 6400, 64, -1}, "contiguous"},
    {"broadcast channel", 0, {2, 3, 100, 64}, {19200, 6400, 64, 0}, "contiguous"},
    {"rows of 10 channels", 0, {2, 3, 100, 10}, {3000, 1000, 10, 1}, "stride"},
    {"reversed rows", 0, {2, 3, 100, 64}, {19200, 6400, -64, 1}, "stride"},
    {"broadcast row", 0, {2, 3, 100, 64}, {192, 64, 0, 1}, "stride"},
    {"reversed heads", 0, {2, 3, 100, 64}, {19200, -6400, 64, 1}, "stride"},
    {"odd batch stride", 0, {2, 3, 100, 64}, {19204, 6400, 64, 1}, "stride"},
    {"2^40 bytes", 0, {2, 3, 100, 64}, {INT64_C(1) << 39, 6400, 64, 1}, "stride"},
    {"just below 2^40", 0, {2, 3, 100, 64}, {(INT64_C(1) << 39) - 8, 6400, 64, 1}, NULL},
    {"huge", 0, {2, 3, 100, 64}, {INT64_MAX / 2, 6400, 64, 1}, "stride"},
    {"no channels", 0, {2, 3, 100, 0}, {0, 0, 0, 1}, "no channels"},
    {"no rows", 0, {2, 3, 0, 64}, {0, 0, 0, 0}, NULL},
};

/* Which layouts tensor maps can read, in f16. */
static void map_obstacles(void **state) {
    (void)state;
    for (size_t n = 0; n < sizeof layout_cases / sizeof layout_cases[0]; n++) {
        const layout_case *l = &layout_cases[n];
        pfattn_tensor t = {(void *)(0x100000 + l->offset), PFATTN_DTYPE_F16, {0}, {0}};
        memcpy(t.shape, l->shape, sizeof t.shape);
        memcpy(t.stride, l->stride, sizeof t.stride);
        const char *obstacle = pf_tensor_map_obstacle(&t);
        print_message("%s\n", l->what);
        if (l->obstacle == NULL) {
            assert_null(obstacle);
        } else {
            assert_non_null(obstacle);
            assert_non_null(strstr(obstacle, l->obstacle));
        }
    }
}

/* Each operand that the kernels stage can send the problem to sm_80, and where that is not compiled
 * in the message names the operand and why. */
static void every_operand_falls_back(void **state) {
    (void)state;
    const test_shape shape = {2, 4, 4, 100, 300, 64, 64};
    const pf_tensor_id ids[] = {PF_Q,  PF_K,  PF_V,  PF_Q2,  PF_K2,
                                PF_TQ, PF_TK, PF_TV, PF_TQ2, PF_TK2};
    pf_capabilities both = hopper();
    pf_capabilities one = hopper();
    one.target_count = 1;
    /* A row at 64 for the JVP on sm_90a. */
    pf_tuning rows[2] = {table[0], table[9]};
    rows[0].op = PF_OP_FORWARD_JVP;
    both.tuning = one.tuning = rows;
    both.tuning_count = one.tuning_count = 2;
    for (size_t n = 0; n < sizeof ids / sizeof ids[0]; n++) {
        pfattn_attention a = test_attention(PF_FORWARD_JVP, PFATTN_DTYPE_F16, shape);
        test_add_pair(&a, 5);
        a.tq = test_dense(PFATTN_DTYPE_F16, 2, 4, 100, 64);
        a.tq2 = test_dense(PFATTN_DTYPE_F16, 2, 4, 100, 64);
        a.tk = test_dense(PFATTN_DTYPE_F16, 2, 4, 300, 64);
        a.tk2 = test_dense(PFATTN_DTYPE_F16, 2, 4, 300, 64);
        a.tv = test_dense(PFATTN_DTYPE_F16, 2, 4, 300, 64);
        pf_problem problem = test_problem(PF_FORWARD_JVP, &a);
        pf_plan plan = test_plan(&both, &problem);
        assert_key(&plan.step[0], "sm_90a/forward_jvp.f16.64.plain");
        problem.tensor[ids[n]].data = (char *)problem.tensor[ids[n]].data + 2;
        plan = test_plan(&both, &problem);
        assert_key(&plan.step[0], "sm_80/forward_jvp.f16.64.plain");
        char want[64];
        snprintf(want, sizeof want, "%s: its address is not a multiple of 16",
                 pf_tensor_name(ids[n]));
        assert_refused(&one, &problem, want);
    }
}

/* Outputs need no tensor map: any alignment is fine. */
static void outputs_do_not_matter(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 1, 1, 9, 9, 64, 64});
    a.o.data = (char *)a.o.data + 2;
    pf_problem problem = test_problem(PF_FORWARD, &a);
    pf_capabilities c = hopper();
    pf_plan plan = test_plan(&c, &problem);
    assert_key(&plan.step[0], "sm_90a/forward.f16.64.plain");
}

/* ---- backward ------------------------------------------------------------------------------ */

static const test_shape backward_shape = {2, 4, 2, 100, 300, 64, 64};

/* All gradients: statistics of 8 heads * 128 padded queries at 64 a workgroup, the main kernel over
 * 2 * 2 key heads * ceil(300 / 128), and dq from 8 heads * 2 tiles of 64 queries. */
static void backward_steps(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, backward_shape);
    pf_problem problem = test_problem(PF_BACKWARD, &a);
    pf_capabilities c = hopper();
    pf_plan plan = test_plan(&c, &problem);
    ASSERT_STEPS(&plan, PF_STEP_BACKWARD_PRE, PF_STEP_MAIN, PF_STEP_DQ);
    assert_key(&plan.step[0], "sm_90a/passes");
    assert_int_equal(plan.step[0].entry, PF_ENTRY_BACKWARD_PRE);
    assert_int_equal(plan.step[0].grid, 16);
    assert_int_equal(plan.step[0].block, 256);
    assert_key(&plan.step[1], "sm_90a/backward.f16.64.plain");
    assert_int_equal(plan.step[1].grid, 12);
    assert_int_equal(plan.step[1].block, 384);
    assert_true(plan.step[1].mapped);
    assert_key(&plan.step[2], "sm_90a/backward.f16.64.plain");
    assert_int_equal(plan.step[2].entry, PF_ENTRY_DQ);
    assert_int_equal(plan.step[2].grid, 16);
    assert_int_equal(plan.step[2].block, 384);
    assert_int_equal(plan.step[2].shared_bytes, 0);
    assert_true(plan.step[2].mapped);
    assert_false(plan.step[0].mapped);
    assert_int_equal(plan.scratch.queries_padded, 128);
}

/* Where clusters of two workgroups do an item, 2 * 2 key heads * ceil(300 / 128) of these take
 * twice as many workgroups; more, as many as fill the device in pairs. */
static void clusters_do_items_together(void **state) {
    (void)state;
    static const pf_tuning clustered[] = {
        {PF_TARGET_SM_90A, PF_OP_BACKWARD, HALF, 256, 64, 64, 256, 2, 384, 220000, 1, 2, 0, 0, 0, 0,
         0},
    };
    pf_capabilities c = test_hopper(clustered, 1);
    c.compute_units = 101;
    pfattn_attention a =
        test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 300, 256, 256});
    pf_problem problem = test_problem(PF_BACKWARD, &a);
    pf_plan plan = test_plan(&c, &problem);
    assert_int_equal(find_step(&plan, PF_STEP_MAIN)->work_count, 12);
    assert_int_equal(find_step(&plan, PF_STEP_MAIN)->grid, 24);
    assert_int_equal(find_step(&plan, PF_STEP_DQ)->grid, 16);

    a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, (test_shape){8, 8, 8, 100, 257, 256, 256});
    problem = test_problem(PF_BACKWARD, &a);
    plan = test_plan(&c, &problem);
    assert_int_equal(find_step(&plan, PF_STEP_MAIN)->work_count, 192);
    assert_int_equal(find_step(&plan, PF_STEP_MAIN)->grid, 100);
}

/* dk and dv alone: nothing to clear, no dq. */
static void backward_without_dq(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, backward_shape);
    a.dq = (pfattn_tensor){0};
    pf_problem problem = test_problem(PF_BACKWARD, &a);
    pf_capabilities c = hopper();
    pf_plan plan = test_plan(&c, &problem);
    ASSERT_STEPS(&plan, PF_STEP_BACKWARD_PRE, PF_STEP_MAIN);
}

/* dq2 alone asks for the pass too. */
static void backward_dq2_alone(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, backward_shape);
    test_add_pair(&a, 3);
    a.dq2 = a.dq;
    a.dq = a.dk = a.dv = (pfattn_tensor){0};
    pf_problem problem = test_problem(PF_BACKWARD, &a);
    pf_capabilities c = hopper();
    pf_plan plan = test_plan(&c, &problem);
    ASSERT_STEPS(&plan, PF_STEP_BACKWARD_PRE, PF_STEP_MAIN, PF_STEP_DQ);
}

/* A dO that maps cannot read sends backward, with all its steps, to sm_80: tiles of 32 queries. */
static void backward_falls_back(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, backward_shape);
    a.dout.stride[2] = -64;
    pf_problem problem = test_problem(PF_BACKWARD, &a);
    pf_capabilities c = hopper();
    pf_plan plan = test_plan(&c, &problem);
    assert_key(find_step(&plan, PF_STEP_MAIN), "sm_80/backward.f16.64.plain");
    assert_key(find_step(&plan, PF_STEP_DQ), "sm_80/backward.f16.64.plain");
    assert_int_equal(find_step(&plan, PF_STEP_MAIN)->grid, 2 * 2 * 5);
    assert_int_equal(find_step(&plan, PF_STEP_DQ)->grid, 8 * 4);
}

/* The JVP has its own kernel; output channels in two halves double the work. */
static void backward_jvp_steps(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_BACKWARD_JVP, PFATTN_DTYPE_F16, backward_shape);
    test_add_mask(&a, 1, 1, 100, 300);
    pf_problem problem = test_problem(PF_BACKWARD_JVP, &a);
    pf_capabilities c = hopper();
    pf_plan plan = test_plan(&c, &problem);
    ASSERT_STEPS(&plan, PF_STEP_KEY_LIVE, PF_STEP_BACKWARD_PRE, PF_STEP_MAIN, PF_STEP_DQ);
    assert_int_equal(plan.step[0].grid, 2);
    assert_int_equal(plan.step[1].entry, PF_ENTRY_BACKWARD_PRE_JVP);
    assert_key(&plan.step[2], "sm_80/backward_jvp.f16.64.general");
    assert_int_equal(plan.step[2].grid, 2 * 2 * 5 * 2);
}

/* dbias with all its extents is stored by the main kernel. */
static void dbias_in_main(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, backward_shape);
    test_add_bias(&a, PFATTN_DTYPE_F16, 2, 4, 100, 300);
    a.dbias = test_dense(PFATTN_DTYPE_F16, 2, 4, 100, 300);
    a.dq = a.dk = a.dv = (pfattn_tensor){0};
    pf_problem problem = test_problem(PF_BACKWARD, &a);
    pf_capabilities c = hopper();
    pf_plan plan = test_plan(&c, &problem);
    ASSERT_STEPS(&plan, PF_STEP_KEY_LIVE, PF_STEP_BACKWARD_PRE, PF_STEP_MAIN);
    assert_int_equal(plan.dbias_splits, 0);
}

typedef struct dbias_case {
    test_shape shape;
    int64_t extent[4];
    int splits, grid, reduce;
} dbias_case;

/* Tiles of 32 queries and 64 keys; 100 multiprocessors, of which 200 workgroups make two waves. */
static const dbias_case dbias_cases[] = {
    /* 4 heads * 4 * 5 = 80 tiles; ceil(200 / 80) = 3 splits, but 2 batches to divide */
    {{2, 4, 2, 100, 300, 64, 64}, {1, 4, 100, 300}, 2, 160, 469},
    /* 80 tiles of 5 batches: 3 splits */
    {{5, 4, 2, 100, 300, 64, 64}, {1, 4, 100, 300}, 3, 240, 469},
    /* one tile; 2 * 4 * 4 * 5 = 160 tiles of scores, fewer than 200 */
    {{2, 4, 2, 100, 300, 64, 64}, {1, 1, 1, 1}, 160, 160, 1},
    /* 5 tiles of keys, 40 splits of 10 * 4 * 4 = 160 */
    {{10, 4, 2, 100, 300, 64, 64}, {1, 1, 1, 300}, 40, 200, 2},
    /* more tiles than the device holds: no split, nothing to reduce */
    {{2, 50, 50, 640, 300, 64, 64}, {1, 50, 640, 1}, 1, 1000, 0},
    /* one query: broadcast and full are the same; 20 tiles */
    {{2, 4, 2, 1, 300, 64, 64}, {1, 4, 1, 300}, 2, 40, 5},
    /* no queries: one split, that writes zeros */
    {{2, 4, 2, 0, 300, 64, 64}, {1, 4, 1, 300}, 1, 20, 0},
};

/* Broadcast dbias has a kernel of its own, divided to fill the device, and a reduction. */
static void dbias_grids(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    for (size_t n = 0; n < sizeof dbias_cases / sizeof dbias_cases[0]; n++) {
        const dbias_case *d = &dbias_cases[n];
        const int64_t *e = d->extent;
        print_message("case %zu\n", n);
        pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, d->shape);
        test_add_bias(&a, PFATTN_DTYPE_F16, e[0], e[1], e[2], e[3]);
        a.dbias = test_dense(PFATTN_DTYPE_F16, e[0], e[1], e[2], e[3]);
        pf_problem problem = test_problem(PF_BACKWARD, &a);
        pf_plan plan = test_plan(&c, &problem);
        const pf_step *dbias = find_step(&plan, PF_STEP_DBIAS);
        const pf_step *reduce = find_step(&plan, PF_STEP_DBIAS_REDUCE);
        assert_key(dbias, "sm_80/dbias.f16.64.general");
        assert_int_equal(plan.dbias_splits, d->splits);
        assert_int_equal(dbias->grid, d->grid);
        assert_int_equal(dbias->block, 96);
        if (d->reduce == 0) {
            assert_null(reduce);
            assert_true(plan.scratch.dbias_sum == PF_SCRATCH_NONE);
        } else {
            assert_key(reduce, "sm_90a/passes");
            assert_int_equal(reduce->grid, d->reduce);
            assert_int_equal(reduce->entry, PF_ENTRY_DBIAS_REDUCE);
        }
        assert_non_null(find_step(&plan, PF_STEP_MAIN));
    }
}

/* Broadcast dbias alone runs no main kernel; for the JVP likewise with its own kernel. */
static void dbias_alone(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, backward_shape);
    test_add_bias(&a, PFATTN_DTYPE_F16, 1, 4, 100, 300);
    a.dbias = test_dense(PFATTN_DTYPE_F16, 1, 4, 100, 300);
    a.dq = a.dk = a.dv = (pfattn_tensor){0};
    pf_problem problem = test_problem(PF_BACKWARD, &a);
    pf_plan plan = test_plan(&c, &problem);
    ASSERT_STEPS(&plan, PF_STEP_KEY_LIVE, PF_STEP_BACKWARD_PRE, PF_STEP_DBIAS,
                 PF_STEP_DBIAS_REDUCE);
    assert_null(plan.tuning);

    a = test_attention(PF_BACKWARD_JVP, PFATTN_DTYPE_F16, backward_shape);
    test_add_bias(&a, PFATTN_DTYPE_F16, 1, 4, 100, 300);
    a.tdbias = test_dense(PFATTN_DTYPE_F16, 1, 4, 100, 300);
    a.tdq = a.tdk = a.tdv = (pfattn_tensor){0};
    problem = test_problem(PF_BACKWARD_JVP, &a);
    plan = test_plan(&c, &problem);
    assert_key(find_step(&plan, PF_STEP_DBIAS), "sm_80/dbias_jvp.f16.64.general");
    assert_null(find_step(&plan, PF_STEP_MAIN));
}

/* Scratch is sized for the target with the most, since other addresses may lead there: with 64-row
 * tiles 100 queries are padded to 128, with 32-row tiles too, but 65 to 128 and 96. */
static void workspace_of_any_target(void **state) {
    (void)state;
    test_shape shape = backward_shape;
    shape.queries = 65;
    pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, shape);
    a.q.data = (char *)a.q.data + 2;
    pf_problem unaligned = test_problem(PF_BACKWARD, &a);
    a.q.data = (char *)a.q.data - 2;
    pf_problem aligned = test_problem(PF_BACKWARD, &a);
    pf_capabilities c = hopper();
    pf_plan plan = test_plan(&c, &unaligned), aligned_plan = test_plan(&c, &aligned);
    assert_int_equal(plan.scratch.queries_padded, 96);
    size_t needed = pf_select_workspace(&c, &unaligned, &plan);
    size_t most = pf_select_workspace(&c, &aligned, &aligned_plan);
    assert_int_equal(most, 8 * 128 * (4 * 4 + 1 + 64 * 4));
    assert_true(needed >= plan.scratch.bytes);
    assert_true(needed <= most);
    c = ampere();
    plan = test_plan(&c, &aligned);
    assert_int_equal(pf_select_workspace(&c, &aligned, &plan), 8 * 96 * (4 * 4 + 1 + 64 * 4));
}

/* ---- merge, zero extents ------------------------------------------------------------------- */

/* A warp a row, 8 rows a workgroup. */
static void merge_step(void **state) {
    (void)state;
    pf_problem problem = test_merge_problem(PFATTN_DTYPE_F32, (test_shape){2, 3, 0, 5, 0, 0, 7});
    pf_capabilities c = ampere();
    pf_plan plan = test_plan(&c, &problem);
    ASSERT_STEPS(&plan, PF_STEP_MERGE);
    assert_key(&plan.step[0], "sm_80/passes");
    assert_int_equal(plan.step[0].entry, PF_ENTRY_MERGE);
    assert_int_equal(plan.step[0].grid, 4); /* 30 rows */
    c.warp_size = 64;
    plan = test_plan(&c, &problem);
    assert_int_equal(plan.step[0].grid, 8); /* 4 rows a workgroup */
}

/* Nothing to write, nothing to launch; but without keys forward still writes O and L, and backward
 * dq, and without queries backward still writes dk and dv. */
static void zero_extents(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    const test_shape empty[] = {
        {0, 4, 2, 100, 300, 64, 64}, {2, 0, 0, 100, 300, 64, 64}, {2, 4, 2, 0, 0, 64, 64}};
    static const pf_operation operations[] = {PF_FORWARD, PF_FORWARD_JVP, PF_BACKWARD,
                                              PF_BACKWARD_JVP};
    for (int n = 0; n < 3; n++) {
        for (int op = 0; op < 4; op++) {
            pfattn_attention a = test_attention(operations[op], PFATTN_DTYPE_F16, empty[n]);
            pf_problem problem = test_problem(operations[op], &a);
            assert_int_equal(test_plan(&c, &problem).step_count, 0);
            test_add_mask(&a, 1, 1, 1, empty[n].keys);
            problem = test_problem(operations[op], &a);
            assert_int_equal(test_plan(&c, &problem).step_count, 0);
        }
    }
    test_shape shape = {2, 4, 2, 100, 0, 64, 64};
    pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, shape);
    pf_problem problem = test_problem(PF_FORWARD, &a);
    pf_plan plan = test_plan(&c, &problem);
    ASSERT_STEPS(&plan, PF_STEP_MAIN);
    a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, shape);
    problem = test_problem(PF_BACKWARD, &a);
    plan = test_plan(&c, &problem);
    ASSERT_STEPS(&plan, PF_STEP_BACKWARD_PRE, PF_STEP_DQ);
    a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 0, 300, 64, 64});
    problem = test_problem(PF_BACKWARD, &a);
    plan = test_plan(&c, &problem);
    ASSERT_STEPS(&plan, PF_STEP_MAIN);
    problem = test_merge_problem(PFATTN_DTYPE_F16, (test_shape){2, 3, 0, 0, 0, 0, 7});
    plan = test_plan(&c, &problem);
    assert_int_equal(plan.step_count, 0);
}

/* ---- refusals ------------------------------------------------------------------------------ */

/* Everything out of range is refused with the argument, its value and what is allowed. */
static void refusals(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    const int64_t sequence = INT64_C(1) << 30;
    const struct {
        pfattn_dtype dtype;
        test_shape shape;
        const char *text;
    } cases[] = {
        {PFATTN_DTYPE_F64, {1, 1, 1, 5, 5, 8, 8}, "q: dtype is f64, which the ref backend alone"},
        {PFATTN_DTYPE_F16,
         {1, 1, 1, 5, 5, 257, 8},
         "q: head dimension is 257; the cuda backend "
         "takes at most 256"},
        {PFATTN_DTYPE_F16, {1, 1, 1, 5, 5, 8, 300}, "v: value head dimension is 300"},
        {PFATTN_DTYPE_F16,
         {1, 1, 1, sequence, 5, 8, 8},
         "q: number of queries is 1073741824; the "
         "cuda backend takes at most 1073741823"},
        {PFATTN_DTYPE_F16, {1, 1, 1, 5, sequence, 8, 8}, "k: number of keys is 1073741824"},
        {PFATTN_DTYPE_F16,
         {1 << 16, 1 << 15, 1, 5, 5, 8, 8},
         "q: batch is 65536 and heads are "
         "32768"},
        {PFATTN_DTYPE_F16, {INT64_C(1) << 31, 0, 0, 5, 5, 8, 8}, "q: batch is 2147483648"},
        /* 2^16 * 2^14 * 8 tiles */
        {PFATTN_DTYPE_F16, {1 << 16, 1 << 14, 1, 1500, 5, 64, 64}, "fewer than 2^31 tiles"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        pf_problem problem = forward_problem(cases[n].dtype, cases[n].shape);
        assert_refused(&c, &problem, cases[n].text);
    }
    /* Just inside. */
    pf_problem problem = forward_problem(PFATTN_DTYPE_F16,
                                         (test_shape){1, 1, 1, sequence - 1, sequence - 1, 256, 8});
    test_plan(&c, &problem);
}

static void refused_types_and_alpha(void **state) {
    (void)state;
    pf_capabilities c = hopper();
    test_shape shape = {1, 1, 1, 5, 5, 8, 8};
    pfattn_attention a = test_attention(PF_FORWARD_JVP, PFATTN_DTYPE_E5M2, shape);
    pf_problem problem = test_problem(PF_FORWARD_JVP, &a);
    assert_refused(&c, &problem, "q: dtype is e5m2, for which the cuda backend has no tangents");
    a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, shape);
    a.flags = PFATTN_FLAG_ALPHA;
    a.alpha = -3e38;
    problem = test_problem(PF_FORWARD, &a);
    assert_refused(&c, &problem, "alpha: is -3e+38; the cuda backend takes magnitudes up to 2.35");
    a.alpha = 2e38;
    problem = test_problem(PF_FORWARD, &a);
    test_plan(&c, &problem);
    problem = test_merge_problem(PFATTN_DTYPE_F64, shape);
    assert_refused(&c, &problem, "o0: dtype is f64");
}

/* Kernels that were not compiled for the device, and shared memory that it has not. */
static void missing_kernels(void **state) {
    (void)state;
    test_shape shape = {1, 1, 1, 5, 5, 64, 64};
    pf_problem problem = forward_problem(PFATTN_DTYPE_F16, shape);
    pf_capabilities c = hopper();
    c.images[PF_TARGET_SM_90A] = no_images;
    pf_plan plan = test_plan(&c, &problem);
    assert_key(&plan.step[0], "sm_80/forward.f16.64.plain");
    c.images[PF_TARGET_SM_80] = NULL;
    assert_refused(&c, &problem,
                   "the cuda backend has no kernel forward.f16.64.plain for this device (targets: "
                   "sm_90a, sm_80)");
    c = hopper();
    c.shared_bytes = 89999; /* the sm_90a kernel wants 90000 */
    plan = test_plan(&c, &problem);
    assert_key(&plan.step[0], "sm_80/forward.f16.64.plain");
    c = ampere();
    c.shared_bytes = 100;
    assert_refused(&c, &problem, "no kernel forward.f16.64.plain");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(image_keys),
        cmocka_unit_test(entry_names),
        cmocka_unit_test(forward_table),
        cmocka_unit_test(general_variant),
        cmocka_unit_test(key_live_step),
        cmocka_unit_test(widened_operands),
        cmocka_unit_test(map_obstacles),
        cmocka_unit_test(every_operand_falls_back),
        cmocka_unit_test(outputs_do_not_matter),
        cmocka_unit_test(backward_steps),
        cmocka_unit_test(clusters_do_items_together),
        cmocka_unit_test(backward_without_dq),
        cmocka_unit_test(backward_dq2_alone),
        cmocka_unit_test(backward_falls_back),
        cmocka_unit_test(backward_jvp_steps),
        cmocka_unit_test(dbias_in_main),
        cmocka_unit_test(dbias_grids),
        cmocka_unit_test(dbias_alone),
        cmocka_unit_test(workspace_of_any_target),
        cmocka_unit_test(merge_step),
        cmocka_unit_test(zero_extents),
        cmocka_unit_test(refusals),
        cmocka_unit_test(refused_types_and_alpha),
        cmocka_unit_test(missing_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
