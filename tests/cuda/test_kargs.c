/* SPDX-License-Identifier: Apache-2.0 */
/* That the kernel arguments say what the problem says: windows on every diagonal, strides, types
 * and addresses. */
#include "problems.h"

#include <string.h>

#include "kargs_fill.h"

#define INF PF_WINDOW_LIMIT

static const test_shape small = {2, 4, 2, 5, 7, 16, 24};

static pf_attention_kargs fill(const pf_problem *problem) {
    pf_plan plan = {0};
    pf_scratch_needs needs = {.query_tile = 64, .head_dim = 64, .dq_parts = 1};
    assert_true(pf_scratch_layout(problem, &needs, &plan.scratch));
    pf_attention_kargs args;
    pf_kargs_fill(problem, &plan, 0, &args);
    return args;
}

typedef struct window_case {
    int64_t queries, keys;
    bool causal, piecewise;
    int64_t diagonal, distance;
    int low[2], high[2], end[2];
} window_case;

/* Worked out by hand from: with x = i - j, causal keeps x >= -diagonal, the far pair takes
 * x >= distance - diagonal, and keys up to M - 1 - low are kept by someone. */
static const window_case window_cases[] = {
    /* Plain: everything. */
    {5, 7, false, false, 2, 0, {-INF, INF}, {INF, INF}, {7, 0}},
    /* Causal, bottom right (N - M = 2): the last query reaches the last key. */
    {5, 7, true, false, 2, 0, {-2, INF}, {INF, INF}, {7, 0}},
    /* Causal, top left: keys 5 and 6 are beyond the last query. */
    {5, 7, true, false, 0, 0, {0, INF}, {INF, INF}, {5, 0}},
    /* More queries than keys, bottom right: queries 0 and 1 keep nothing. */
    {7, 5, true, false, -2, 0, {2, INF}, {INF, INF}, {5, 0}},
    /* The last query stands just before key 0, then on it. */
    {5, 7, true, false, -5, 0, {5, INF}, {INF, INF}, {0, 0}},
    {5, 7, true, false, -4, 0, {4, INF}, {INF, INF}, {1, 0}},
    /* The first query stands past all keys: causal masks nothing. */
    {5, 7, true, false, 100, 0, {-100, INF}, {INF, INF}, {7, 0}},
    /* Piecewise at distance 3, not causal. */
    {5, 7, false, true, 2, 3, {-INF, 1}, {1, INF}, {7, 4}},
    /* Piecewise and causal. */
    {5, 7, true, true, 2, 3, {-2, 1}, {1, INF}, {7, 4}},
    /* Threshold in the future: near has an empty window, causal bounds far. */
    {5, 7, true, true, 2, -1, {-2, -2}, {-3, INF}, {7, 7}},
    /* Threshold out of reach on either side. */
    {5, 7, false, true, 0, INT64_MAX, {-INF, INF}, {INF, INF}, {7, 0}},
    {5, 7, false, true, 0, INT64_MIN, {-INF, -INF}, {-INF, INF}, {7, 7}},
    /* distance - diagonal overflows int64 upwards and downwards. */
    {5, 7, false, true, INT64_MIN, INT64_MAX, {-INF, INF}, {INF, INF}, {7, 0}},
    {5, 7, false, true, INT64_MAX, INT64_MIN, {-INF, -INF}, {-INF, INF}, {7, 7}},
    {5, 7, false, true, INT64_MIN, 0, {-INF, INF}, {INF, INF}, {7, 0}},
    {5, 7, false, true, INT64_MIN, INT64_MIN, {-INF, 0}, {0, INF}, {7, 5}},
    {5, 7, false, true, INT64_MAX, INT64_MAX, {-INF, 0}, {0, INF}, {7, 5}},
    {5, 7, false, true, INT64_MIN, -1, {-INF, INF}, {INF, INF}, {7, 0}},
    /* -diagonal overflows: no query stands at or after any key; and the opposite. */
    {5, 7, true, false, INT64_MIN, 0, {INF, INF}, {INF, INF}, {0, 0}},
    {5, 7, true, false, INT64_MAX, 0, {-INF, INF}, {INF, INF}, {7, 0}},
    {5, 7, true, true, INT64_MIN, INT64_MAX, {INF, INF}, {INF, INF}, {0, 0}},
    {5, 7, true, true, INT64_MAX, INT64_MIN, {-INF, -INF}, {-INF, INF}, {7, 7}},
    /* No queries, no keys. */
    {0, 7, true, false, 7, 0, {-7, INF}, {INF, INF}, {7, 0}},
    {5, 0, true, false, -5, 0, {5, INF}, {INF, INF}, {0, 0}},
};

static pf_problem window_problem(const window_case *c) {
    test_shape shape = {1, 1, 1, c->queries, c->keys, 16, 16};
    pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, shape);
    a.flags = PFATTN_FLAG_DIAGONAL | (c->causal ? PFATTN_FLAG_CAUSAL : 0u);
    a.diagonal = c->diagonal;
    if (c->piecewise) {
        test_add_pair(&a, c->distance);
    }
    pf_problem problem = test_problem(PF_FORWARD, &a);
    problem.diagonal = c->diagonal; /* as it is, though the checks may have brought it nearer */
    problem.distance = c->distance;
    return problem;
}

/* The windows of chosen diagonals and distances, the extremes of int64 among them, are those worked
 * out by hand. */
static void windows_by_hand(void **state) {
    (void)state;
    for (size_t n = 0; n < sizeof window_cases / sizeof window_cases[0]; n++) {
        const window_case *c = &window_cases[n];
        pf_problem problem = window_problem(c);
        pf_attention_kargs args = fill(&problem);
        print_message("case %zu\n", n);
        assert_int_equal(args.pairs, c->piecewise ? 2 : 1);
        for (int p = 0; p < 2; p++) {
            assert_int_equal(args.window_low[p], c->low[p]);
            assert_int_equal(args.window_high[p], c->high[p]);
            assert_int_equal(args.key_end[p], c->end[p]);
        }
    }
}

/* Which pair spec.md's predicates give query i and key j: 0, 1, or -1 where causal excludes it. */
static int pair_of(const window_case *c, int64_t i, int64_t j) {
    if (c->causal && j > i + c->diagonal) {
        return -1;
    }
    return c->piecewise && i + c->diagonal - j >= c->distance ? 1 : 0;
}

static void compare_windows(const window_case *c) {
    pf_problem problem = window_problem(c);
    pf_attention_kargs args = fill(&problem);
    for (int i = 0; i < c->queries; i++) {
        for (int j = 0; j < c->keys; j++) {
            int want = pair_of(c, i, j);
            for (int p = 0; p < 2; p++) {
                bool kept = i - j >= args.window_low[p] && i - j < args.window_high[p];
                assert_int_equal(kept, want == p);
                assert_true(!kept || j < args.key_end[p]);
            }
        }
    }
}

/* Every diagonal and distance around a small problem agrees, key by key, with the predicates
 * written out. */
static void windows_of_all_diagonals(void **state) {
    (void)state;
    const int64_t sizes[][2] = {{4, 6}, {6, 4}, {1, 5}, {5, 1}};
    for (int s = 0; s < 4; s++) {
        for (int64_t diagonal = -8; diagonal <= 8; diagonal++) {
            for (int64_t distance = -12; distance <= 12; distance++) {
                for (int bits = 0; bits < 4; bits++) {
                    window_case c = {.queries = sizes[s][0],
                                     .keys = sizes[s][1],
                                     .causal = bits & 1,
                                     .piecewise = bits & 2,
                                     .diagonal = diagonal,
                                     .distance = distance};
                    compare_windows(&c);
                }
            }
        }
    }
}

/* Without the flag the diagonal is N - M. */
static void default_diagonal(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, small);
    a.flags = PFATTN_FLAG_CAUSAL;
    pf_problem problem = test_problem(PF_FORWARD, &a);
    assert_int_equal(fill(&problem).window_low[0], -2);
}

static void assert_same_tensor(const pf_karg_tensor *got, const pfattn_tensor *want) {
    assert_true(got->address == (unsigned long long)(uintptr_t)want->data);
    for (int d = 0; d < 4; d++) {
        assert_true(got->stride[d] == (want->shape[d] == 1 ? 0 : want->stride[d]));
    }
}

/* Queries of bf16 are scaled by alpha only where no bit of them can be lost or overflow: by 1, 1/2,
 * ..., 2^-16. */
static void alpha_that_shifts(void **state) {
    (void)state;
    static const struct {
        double alpha;
        int shifts;
    } cases[] = {{1, 1},    {0.5, 1}, {0.125, 1},      {0x1p-16, 1}, {0x1p-17, 0}, {2, 0},
                 {0.75, 0}, {0.1, 0}, {0.08838835, 0}, {-0.5, 0},    {0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pfattn_attention a = test_attention(PF_FORWARD_JVP, PFATTN_DTYPE_BF16, small);
        a.flags = PFATTN_FLAG_ALPHA;
        a.alpha = cases[i].alpha;
        pf_problem problem = test_problem(PF_FORWARD_JVP, &a);
        assert_int_equal(fill(&problem).alpha_shifts, cases[i].shifts);
    }
}

/* Sizes, alpha and every operand of forward JVP arrive, and what is absent is zero. */
static void forward_operands(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_FORWARD_JVP, PFATTN_DTYPE_BF16, small);
    test_add_pair(&a, 3);
    test_add_bias(&a, PFATTN_DTYPE_F32, 1, 4, 1, 7);
    test_add_mask(&a, 2, 1, 5, 1);
    a.tbias = test_dense(PFATTN_DTYPE_F16, 1, 4, 1, 7);
    a.tq = test_dense(PFATTN_DTYPE_BF16, 2, 4, 5, 16);
    a.tk2 = test_dense(PFATTN_DTYPE_BF16, 2, 2, 7, 16);
    a.tv = test_dense(PFATTN_DTYPE_BF16, 2, 2, 7, 24);
    a.to = test_dense(PFATTN_DTYPE_F32, 2, 4, 5, 24);
    a.q.stride[0] = -5; /* any stride is passed on */
    a.flags = PFATTN_FLAG_ALPHA;
    a.alpha = 0.5;
    pf_problem problem = test_problem(PF_FORWARD_JVP, &a);
    pf_attention_kargs k = fill(&problem);

    assert_int_equal(k.batch, 2);
    assert_int_equal(k.heads, 4);
    assert_int_equal(k.kv_heads, 2);
    assert_int_equal(k.group, 2);
    assert_int_equal(k.queries, 5);
    assert_int_equal(k.keys, 7);
    assert_int_equal(k.dim_qk, 16);
    assert_int_equal(k.dim_v, 24);
    assert_true(k.alpha == 0.5f);
    assert_true(k.alpha_log2e == 0.72134752f); /* 0.5 * log2(e) */

    assert_same_tensor(&k.operand[PF_OPERAND_Q], &a.q);
    assert_same_tensor(&k.operand[PF_OPERAND_Q + 1], &a.q2);
    assert_same_tensor(&k.operand[PF_OPERAND_K], &a.k);
    assert_same_tensor(&k.operand[PF_OPERAND_K + 1], &a.k2);
    assert_same_tensor(&k.operand[PF_OPERAND_TQ], &a.tq);
    assert_same_tensor(&k.operand[PF_OPERAND_TK + 1], &a.tk2);
    assert_same_tensor(&k.operand[PF_OPERAND_V], &a.v);
    assert_same_tensor(&k.operand[PF_OPERAND_TV], &a.tv);
    const int absent[] = {PF_OPERAND_TQ + 1, PF_OPERAND_TK, PF_OPERAND_DOUT, PF_OPERAND_TDOUT};
    for (int i = 0; i < 4; i++) {
        assert_true(k.operand[absent[i]].address == 0);
    }
    assert_same_tensor(&k.bias, &a.bias);
    assert_same_tensor(&k.tbias, &a.tbias);
    assert_same_tensor(&k.mask, &a.mask);
    assert_same_tensor(&k.o, &a.o);
    assert_same_tensor(&k.to, &a.to);
    assert_same_tensor(&k.lse, &a.lse);
    assert_same_tensor(&k.tlse, &a.tlse);
    assert_int_equal(k.bias_type, PF_KTYPE_F32);
    assert_int_equal(k.tbias_type, PF_KTYPE_F16);
    assert_int_equal(k.o_type, PF_KTYPE_BF16);
    assert_int_equal(k.to_type, PF_KTYPE_F32);
    assert_true(k.dq[0].address == 0 && k.dbias.address == 0);
}

/* Backward has its gradients in place, pair 2 in [1]; backward_jvp has the tangents of the
 * gradients in the same fields. */
static void gradients(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, small);
    test_add_pair(&a, 1);
    test_add_bias(&a, PFATTN_DTYPE_F16, 2, 1, 5, 7);
    a.dbias = test_dense(PFATTN_DTYPE_F32, 2, 1, 5, 7);
    a.dk2 = test_dense(PFATTN_DTYPE_F32, 2, 2, 7, 16);
    a.dlse = test_dense(PFATTN_DTYPE_F32, 2, 4, 5, 1);
    a.flags = PFATTN_FLAG_DETERMINISTIC;
    pf_problem problem = test_problem(PF_BACKWARD, &a);
    pf_attention_kargs k = fill(&problem);
    assert_same_tensor(&k.dq[0], &a.dq);
    assert_true(k.dq[1].address == 0);
    assert_same_tensor(&k.dk[0], &a.dk);
    assert_same_tensor(&k.dk[1], &a.dk2);
    assert_same_tensor(&k.dv, &a.dv);
    assert_same_tensor(&k.dbias, &a.dbias);
    assert_same_tensor(&k.dlse, &a.dlse);
    assert_same_tensor(&k.operand[PF_OPERAND_DOUT], &a.dout);
    assert_int_equal(k.dq_type[0], PF_KTYPE_F16);
    assert_int_equal(k.dq_type[1], PF_KTYPE_NONE);
    assert_int_equal(k.dk_type[1], PF_KTYPE_F32);
    assert_int_equal(k.dv_type, PF_KTYPE_F16);
    assert_int_equal(k.dbias_type, PF_KTYPE_F32);
    assert_int_equal(k.deterministic, 1);
    const int extents[] = {2, 1, 5, 7};
    const int full[] = {1, 0, 1, 1};
    assert_memory_equal(k.dbias_extent, extents, sizeof extents);
    assert_memory_equal(k.dbias_full, full, sizeof full);
    assert_true(k.lse_unit == 1.0f); /* the general kernels count in natural units */
    assert_int_equal(k.element_type, PF_KTYPE_F16);

    pfattn_attention t = test_attention(PF_BACKWARD_JVP, PFATTN_DTYPE_F16, small);
    t.tdout = test_dense(PFATTN_DTYPE_F16, 2, 4, 5, 24);
    problem = test_problem(PF_BACKWARD_JVP, &t);
    k = fill(&problem);
    assert_same_tensor(&k.dq[0], &t.tdq);
    assert_same_tensor(&k.dk[0], &t.tdk);
    assert_same_tensor(&k.dv, &t.tdv);
    assert_same_tensor(&k.operand[PF_OPERAND_TDOUT], &t.tdout);
    assert_same_tensor(&k.to, &t.to);
    assert_int_equal(k.deterministic, 0);
    assert_true(k.lse_unit == 1.44269504f);
}

/* Each part of the scratch memory is at its offset from the workspace, unused ones at 0. */
static void scratch_addresses(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, small);
    test_add_mask(&a, 2, 4, 1, 7);
    pf_problem problem = test_problem(PF_BACKWARD, &a);
    pf_plan plan = {.dbias_splits = 9};
    pf_scratch_needs needs = {.query_tile = 64, .head_dim = 64, .dq_parts = 1};
    assert_true(pf_scratch_layout(&problem, &needs, &plan.scratch));
    pf_attention_kargs k;
    pf_kargs_fill(&problem, &plan, 0x100000, &k);
    assert_true(k.key_live == 0x100000 + plan.scratch.key_live);
    assert_true(k.query_stats == 0x100000 + plan.scratch.query_stats);
    assert_true(k.query_live == 0x100000 + plan.scratch.query_live);
    assert_true(k.dq_sum[0] == 0x100000 + plan.scratch.dq_sum[0]);
    assert_true(k.dq_sum[1] == 0);
    assert_true(k.zeroed == 0x100000 + plan.scratch.zero_offset);
    assert_int_equal(k.zeroed_words * 8, plan.scratch.zero_bytes);
    assert_true(k.dq_turn[0] == 0 && k.dbias_sum == 0);
    assert_int_equal(k.queries_padded, 64);
    assert_int_equal(k.keys_padded, 256);
    assert_true(k.key_live_stride[0] == 2 * 256);
    assert_true(k.key_live_stride[1] == 256);
    assert_int_equal(k.key_live_heads, 2);
    assert_int_equal(k.dbias_splits, 9);
}

/* key_live is indexed with stride 0 where mask and bias are broadcast, and has key/value heads
 * otherwise: a stride even where there is only one of them, since the query heads that share it
 * differ. */
static void key_live_strides(void **state) {
    (void)state;
    const int64_t cases[][6] = {/* key heads, mask batch, mask heads; strides, heads */
                                {2, 1, 1, 0, 0, 1},
                                {2, 2, 1, 256, 0, 1},
                                {2, 1, 4, 0, 256, 2},
                                {2, 2, 4, 512, 256, 2},
                                {1, 2, 4, 256, 256, 1}};
    for (int n = 0; n < 5; n++) {
        test_shape shape = small;
        shape.kv_heads = cases[n][0];
        pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, shape);
        test_add_mask(&a, cases[n][1], cases[n][2], 5, 7);
        pf_problem problem = test_problem(PF_FORWARD, &a);
        pf_attention_kargs k = fill(&problem);
        assert_true(k.key_live_stride[0] == cases[n][3]);
        assert_true(k.key_live_stride[1] == cases[n][4]);
        assert_true(k.key_live_heads == cases[n][5]);
    }
}

/* Rows that an operand has for kernels: M on the query side, the pair's key_end for keys, for
 * values the farther of both. */
static void operand_rows(void **state) {
    (void)state;
    window_case c = {5, 7, true, true, 1, 3, {0}, {0}, {0}};
    pf_problem problem = window_problem(&c);
    pf_attention_kargs k = fill(&problem);
    /* Near: low -1, end 6. Far: low 2, end 3. */
    const int want[PF_OPERAND_COUNT] = {
        [PF_OPERAND_Q] = 5,     [PF_OPERAND_Q + 1] = 5,  [PF_OPERAND_K] = 6,
        [PF_OPERAND_K + 1] = 3, [PF_OPERAND_TQ] = 5,     [PF_OPERAND_TQ + 1] = 5,
        [PF_OPERAND_TK] = 6,    [PF_OPERAND_TK + 1] = 3, [PF_OPERAND_V] = 6,
        [PF_OPERAND_TV] = 6,    [PF_OPERAND_DOUT] = 5,   [PF_OPERAND_TDOUT] = 5};
    for (int i = 0; i < PF_OPERAND_COUNT; i++) {
        assert_int_equal(pf_operand_rows(&k, i), want[i]);
    }
}

/* merge: both parts, outputs, sizes and types. */
static void merge_arguments(void **state) {
    (void)state;
    pfattn_merge_args m = test_merge_args(PFATTN_DTYPE_BF16, small);
    m.o1.dtype = PFATTN_DTYPE_F32;
    m.o.dtype = PFATTN_DTYPE_E5M2;
    pf_problem problem;
    assert_int_equal(pf_problem_from_merge(&m, &problem), PFATTN_SUCCESS);
    pf_merge_kargs k;
    pf_merge_kargs_fill(&problem, &k);
    assert_same_tensor(&k.o_part[0], &m.o0);
    assert_same_tensor(&k.o_part[1], &m.o1);
    assert_same_tensor(&k.lse_part[0], &m.lse0);
    assert_same_tensor(&k.lse_part[1], &m.lse1);
    assert_same_tensor(&k.to_part[0], &m.to0);
    assert_same_tensor(&k.tlse_part[1], &m.tlse1);
    assert_same_tensor(&k.o, &m.o);
    assert_same_tensor(&k.lse, &m.lse);
    assert_same_tensor(&k.to, &m.to);
    assert_same_tensor(&k.tlse, &m.tlse);
    assert_int_equal(k.o_part_type[0], PF_KTYPE_BF16);
    assert_int_equal(k.o_part_type[1], PF_KTYPE_F32);
    assert_int_equal(k.to_part_type[1], PF_KTYPE_BF16);
    assert_int_equal(k.o_type, PF_KTYPE_E5M2);
    assert_int_equal(k.batch, 2);
    assert_int_equal(k.heads, 4);
    assert_int_equal(k.queries, 5);
    assert_int_equal(k.dim_v, 24);
}

/* Parts of split items, f32 [parts, 1, rows, channels] of the workspace, lie beside the results
 * that the caller gave. */
static void split_arguments(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_FORWARD_JVP, PFATTN_DTYPE_F16, small);
    pf_problem problem = test_problem(PF_FORWARD_JVP, &a);
    const pf_tuning tuning = {.owned_tile = 2, .out_dim = 32, .head_dim = 64};
    pf_plan plan = {
        .tuning = &tuning,
        .split = {.items = 4, .whole = 20, .tiles = 9, .length = 5, .rows = 2, .many_parts = true},
        .step_count = 1,
        .step[0] = {.kind = PF_STEP_MAIN, .grid = 10, .work_count = 20}};
    assert_true(pf_scratch_layout(&problem, &(pf_scratch_needs){.split_parts = 11, .split_rows = 2},
                                  &plan.scratch));
    pf_attention_kargs k;
    pf_kargs_fill(&problem, &plan, 0x100000, &k);
    assert_int_equal(k.split.items, 4);
    assert_int_equal(k.split.first, 20);
    assert_int_equal(k.split.round, 2);
    assert_int_equal(k.split.by_tiles.value, 9);
    assert_int_equal(k.split.by_length.value, 5);
    assert_int_equal(k.split.by_rows.value, 2);
    assert_int_equal(k.split.channels, 32);
    assert_int_equal(k.split.channel_parts, 2);
    assert_true(k.split.many_parts);
    const struct {
        const pf_karg_tensor *part;
        size_t offset;
        pf_i64 channels;
    } parts[] = {{&k.split.o, plan.scratch.split_o, 24},
                 {&k.split.to, plan.scratch.split_to, 24},
                 {&k.split.lse, plan.scratch.split_lse, 2},
                 {&k.split.tlse, plan.scratch.split_tlse, 1}};
    for (int i = 0; i < 4; i++) {
        const pf_i64 n = parts[i].channels, stride[4] = {2 * n, 2 * n, n, 1};
        assert_true(parts[i].part->address == 0x100000 + parts[i].offset);
        assert_memory_equal(parts[i].part->stride, stride, sizeof stride);
    }
    assert_same_tensor(&k.o, &a.o);
    assert_same_tensor(&k.to, &a.to);
    assert_same_tensor(&k.lse, &a.lse);
    assert_same_tensor(&k.tlse, &a.tlse);
    assert_int_equal(k.o_type, PF_KTYPE_F16);

    k = fill(&problem);
    assert_int_equal(k.split.items, 0);
}

/* What the kernel writes as f32 is what the pass after it reads. */
static void narrow_arguments(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, small);
    pf_problem problem = test_problem(PF_FORWARD, &a);
    pf_plan plan = {.narrowed = true};
    assert_true(pf_scratch_layout(&problem, &(pf_scratch_needs){.narrowed = true}, &plan.scratch));
    pf_attention_kargs k;
    pf_merge_kargs m;
    pf_kargs_fill(&problem, &plan, 0x100000, &k);
    pf_narrow_kargs_fill(&problem, &k, &m);
    const pf_i64 stride[4] = {4 * 5 * 24, 5 * 24, 24, 1};
    assert_true(k.o.address == 0x100000 + plan.scratch.wide_o);
    assert_memory_equal(k.o.stride, stride, sizeof stride);
    assert_int_equal(k.o_type, PF_KTYPE_F32);
    assert_memory_equal(&m.o_part[0], &k.o, sizeof k.o);
    assert_int_equal(m.o_part_type[0], PF_KTYPE_F32);
    assert_same_tensor(&m.o, &a.o);
    assert_int_equal(m.o_type, PF_KTYPE_F16);
    assert_int_equal(m.batch, 2);
    assert_int_equal(m.heads, 4);
    assert_int_equal(m.queries, 5);
    assert_int_equal(m.dim_v, 24);
}

static void assert_divides(int divisor, int64_t n) {
    if (n < 0 || n > INT32_MAX) {
        return;
    }
    pf_divisor by = pf_divisor_of(divisor);
    assert_int_equal(by.value, divisor);
    int64_t quotient =
        by.multiplier == 0 ? n : (int64_t)((uint64_t)n * by.multiplier >> 32 >> by.shift);
    assert_int_equal(quotient, n / divisor);
}

/* That what kernels do in place of a division gives its quotient, most of all around multiples. */
static void divisors(void **state) {
    (void)state;
    static const int large[] = {65537,         1 << 20,       (1 << 20) + 1, 1 << 30,
                                (1 << 30) + 1, INT32_MAX - 1, INT32_MAX};
    int count = 5000 + (int)(sizeof large / sizeof large[0]);
    for (int i = 0; i < count; i++) {
        int divisor = i < 5000 ? i + 1 : large[i - 5000];
        int64_t last = INT32_MAX / divisor * (int64_t)divisor,
                middle = last / 2 / divisor * divisor;
        const int64_t multiples[] = {0, divisor, middle, last, INT32_MAX};
        for (int m = 0; m < 5; m++) {
            for (int off = -1; off <= 1; off++) {
                assert_divides(divisor, multiples[m] + off);
            }
        }
    }
}

/* The list of work is divided by heads, groups and tiles of what workgroups own: queries in
 * forward, keys in backward. */
static void work_divisors(void **state) {
    (void)state;
    static const struct {
        pf_operation operation;
        pf_tuning tuning;
        int heads, tiles;
    } cases[] = {
        {PF_FORWARD, {.owned_tile = 2}, 4, 3},                   /* 5 queries, 2 a tile */
        {PF_BACKWARD, {.owned_tile = 2}, 2, 4},                  /* 7 keys, 2 a tile */
        {PF_BACKWARD, {.owned_tile = 2, .persistent = 2}, 2, 2}, /* 4 keys a cluster */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pfattn_attention a = test_attention(cases[i].operation, PFATTN_DTYPE_F16, small);
        pf_problem problem = test_problem(cases[i].operation, &a);
        pf_plan plan = {.tuning = &cases[i].tuning};
        pf_scratch_needs needs = {.query_tile = 64, .head_dim = 64, .dq_parts = 1};
        assert_true(pf_scratch_layout(&problem, &needs, &plan.scratch));
        pf_attention_kargs k;
        pf_kargs_fill(&problem, &plan, 0, &k);
        assert_false(k.batches_inner);
        assert_int_equal(k.by_inner.value, cases[i].heads);
        assert_int_equal(k.by_group.value, 2);
        assert_int_equal(k.by_tiles.value, cases[i].tiles);
    }
}

/* Batches follow each other in the list of work where bias and mask vary with heads but with no
 * batch, heads where something varies with batches or nothing with heads. */
static void batches_that_share_a_bias(void **state) {
    (void)state;
    static const struct {
        int bias[2], mask[2]; /* extents of batches and heads; 0 for none */
        bool inner;
    } cases[] = {
        {{0, 0}, {0, 0}, false}, {{1, 4}, {0, 0}, true},  {{0, 0}, {1, 4}, true},
        {{1, 4}, {1, 1}, true},  {{1, 4}, {3, 1}, false}, {{3, 4}, {1, 4}, false},
        {{1, 1}, {1, 1}, false}, {{1, 1}, {1, 4}, true},
    };
    const test_shape shape = {3, 4, 2, 5, 7, 16, 24};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, shape);
        if (cases[i].bias[0] > 0) {
            test_add_bias(&a, PFATTN_DTYPE_F16, cases[i].bias[0], cases[i].bias[1], 5, 7);
        }
        if (cases[i].mask[0] > 0) {
            test_add_mask(&a, cases[i].mask[0], cases[i].mask[1], 5, 7);
        }
        pf_problem problem = test_problem(PF_FORWARD, &a);
        const pf_tuning tuning = {.owned_tile = 2};
        const pf_plan plan = {.tuning = &tuning};
        pf_attention_kargs k;
        pf_kargs_fill(&problem, &plan, 0, &k);
        assert_int_equal(k.batches_inner, cases[i].inner);
        assert_int_equal(k.by_inner.value, cases[i].inner ? 3 : 4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_by_hand),   cmocka_unit_test(windows_of_all_diagonals),
        cmocka_unit_test(default_diagonal),  cmocka_unit_test(alpha_that_shifts),
        cmocka_unit_test(forward_operands),  cmocka_unit_test(gradients),
        cmocka_unit_test(scratch_addresses), cmocka_unit_test(batches_that_share_a_bias),
        cmocka_unit_test(key_live_strides),  cmocka_unit_test(operand_rows),
        cmocka_unit_test(merge_arguments),   cmocka_unit_test(split_arguments),
        cmocka_unit_test(narrow_arguments),  cmocka_unit_test(divisors),
        cmocka_unit_test(work_divisors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
