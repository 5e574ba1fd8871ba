/* SPDX-License-Identifier: Apache-2.0 */
/* That scratch memory is laid out as kargs.h says: sizes worked out by hand, parts aligned and
 * apart. */
#include "problems.h"

#include <string.h>

#include "scratch.h"

static const test_shape shape = {2, 4, 2, 100, 300, 64, 64};

static pf_scratch lay_out(const pf_problem *problem, pf_scratch_needs needs) {
    pf_scratch s;
    assert_true(pf_scratch_layout(problem, &needs, &s));
    return s;
}

static const pf_scratch_needs main_alone = {.query_tile = 64, .head_dim = 64, .dq_parts = 1};

/* A plain forward needs nothing. */
static void forward_plain(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, shape);
    pf_problem problem = test_problem(PF_FORWARD, &a);
    pf_scratch s = lay_out(&problem, (pf_scratch_needs){0});
    assert_int_equal(s.bytes, 0);
    assert_true(s.key_live == PF_SCRATCH_NONE && s.query_stats == PF_SCRATCH_NONE);
    assert_int_equal(s.zero_bytes, 0);
}

/* With a mask or bias it needs one byte a key, padded to 256, for each batch and, where they differ
 * between heads, key/value head. */
static void forward_key_live(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, shape);
    test_add_mask(&a, 2, 1, 1, 300);
    test_add_bias(&a, PFATTN_DTYPE_F16, 1, 4, 100, 300);
    pf_problem problem = test_problem(PF_FORWARD, &a);
    pf_scratch s = lay_out(&problem, (pf_scratch_needs){0});
    assert_int_equal(s.key_live, 0);
    assert_int_equal(s.live_batch, 2);
    assert_int_equal(s.live_heads, 2);
    assert_int_equal(s.keys_padded, 512);
    assert_int_equal(s.bytes, 2 * 2 * 512);

    a.bias = (pfattn_tensor){0};
    problem = test_problem(PF_FORWARD, &a);
    s = lay_out(&problem, (pf_scratch_needs){0});
    assert_int_equal(s.live_heads, 1);
    assert_int_equal(s.bytes, 2 * 512);
}

/* 25 parts of 96 rows: a maximum and a sum, tL, and rows of 30 channels padded to 32. Only what the
 * merge reads has a place. */
static void forward_splits(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_FORWARD_JVP, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 300, 64, 30});
    pf_scratch_needs needs = {.split_parts = 25, .split_rows = 96};
    pf_problem problem = test_problem(PF_FORWARD_JVP, &a);
    pf_scratch s = lay_out(&problem, needs);
    const size_t rows = 2400, stats = rows * 8 /* 75 * 256 */, tlse = 9728, channels = rows * 128;
    assert_int_equal(s.o_channels, 32);
    assert_int_equal(s.split_lse, 0);
    assert_int_equal(s.split_tlse, stats);
    assert_int_equal(s.split_o, stats + tlse);
    assert_int_equal(s.split_to, stats + tlse + channels);
    assert_int_equal(s.bytes, stats + tlse + 2 * channels);
    assert_true(s.wide_o == PF_SCRATCH_NONE);

    a.to = (pfattn_tensor){0};
    problem = test_problem(PF_FORWARD_JVP, &a);
    s = lay_out(&problem, needs);
    assert_true(s.split_to == PF_SCRATCH_NONE);
    assert_int_equal(s.bytes, stats + tlse + channels);

    a.o = a.tlse = (pfattn_tensor){0};
    problem = test_problem(PF_FORWARD, &a);
    s = lay_out(&problem, needs);
    assert_true(s.split_o == PF_SCRATCH_NONE && s.split_tlse == PF_SCRATCH_NONE);
    assert_int_equal(s.bytes, stats);
}

/* O as f32 has all rows, beside parts of other items. */
static void forward_narrowed(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 300, 64, 30});
    pf_problem problem = test_problem(PF_FORWARD, &a);
    pf_scratch s =
        lay_out(&problem, (pf_scratch_needs){.split_parts = 2, .split_rows = 64, .narrowed = true});
    assert_int_equal(s.split_o, 2 * 64 * 8);
    assert_int_equal(s.wide_o, 2 * 64 * 8 + 2 * 64 * 128);
    assert_int_equal(s.bytes, s.wide_o + 800 * 128);
}

/* Backward with dq: 100 queries padded to 128 a head, 8 heads in all. */
static void backward_sizes(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, shape);
    pf_problem problem = test_problem(PF_BACKWARD, &a);
    pf_scratch s = lay_out(&problem, main_alone);
    assert_int_equal(s.queries_padded, 128);
    assert_int_equal(s.query_stats, 0);
    assert_int_equal(s.query_live, 8 * 4 * 128 * 4);
    assert_int_equal(s.dq_sum[0], 8 * 4 * 128 * 4 + 8 * 128);
    assert_true(s.dq_sum[1] == PF_SCRATCH_NONE && s.dq_turn[0] == PF_SCRATCH_NONE);
    assert_int_equal(s.zero_offset, s.dq_sum[0]);
    assert_int_equal(s.zero_bytes, 8 * 128 * 64 * 4);
    assert_int_equal(s.bytes, s.zero_offset + s.zero_bytes);
}

/* No dq, no sums of dq. */
static void backward_without_dq(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, shape);
    a.dq = (pfattn_tensor){0};
    pf_problem problem = test_problem(PF_BACKWARD, &a);
    pf_scratch s = lay_out(&problem, main_alone);
    assert_true(s.dq_sum[0] == PF_SCRATCH_NONE);
    assert_int_equal(s.zero_bytes, 0);
    assert_int_equal(s.bytes, 8 * 4 * 128 * 4 + 8 * 128);
}

/* Deterministic and piecewise: a counter a tile of queries (2 of 64 rows) for each pair wanted, in
 * one range to clear with the sums. Each part is rounded up to 256 bytes. */
static void backward_turns(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, shape);
    test_add_pair(&a, 5);
    a.dq2 = test_dense(PFATTN_DTYPE_F16, 2, 4, 100, 64);
    a.flags = PFATTN_FLAG_DETERMINISTIC;
    pf_problem problem = test_problem(PF_BACKWARD, &a);
    pf_scratch s = lay_out(&problem, main_alone);
    size_t sum = 8 * 128 * 64 * 4;
    size_t turn = 256; /* 8 * 2 * 4 = 64 */
    assert_int_equal(s.dq_turn[0], s.dq_sum[0] + sum);
    assert_int_equal(s.dq_sum[1], s.dq_turn[0] + turn);
    assert_int_equal(s.dq_turn[1], s.dq_sum[1] + sum);
    assert_int_equal(s.zero_bytes, 2 * (sum + turn));
    assert_int_equal(s.bytes, s.zero_offset + s.zero_bytes);
    pf_scratch_needs eight = main_alone;
    eight.dq_parts = 8;
    s = lay_out(&problem, eight); /* 8 * 2 * 8 * 4 = 512 */
    assert_int_equal(s.zero_bytes, 2 * (sum + 512));
}

/* The tangents of the gradients count as the gradients do. */
static void backward_jvp_sizes(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_BACKWARD_JVP, PFATTN_DTYPE_F16, shape);
    pf_problem problem = test_problem(PF_BACKWARD_JVP, &a);
    pf_scratch s = lay_out(&problem, main_alone);
    assert_int_equal(s.zero_bytes, 8 * 128 * 64 * 4);
}

/* Broadcast dbias: `splits` copies of it in f32. Queries are padded for the tiles of both kernels:
 * 100 to a multiple of lcm(48, 64) = 192. */
static void dbias_sums(void **state) {
    (void)state;
    pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, shape);
    test_add_bias(&a, PFATTN_DTYPE_F16, 1, 4, 1, 300);
    a.dbias = test_dense(PFATTN_DTYPE_F16, 1, 4, 1, 300);
    pf_problem problem = test_problem(PF_BACKWARD, &a);
    pf_scratch_needs needs = {
        .query_tile = 48, .head_dim = 64, .dq_parts = 1, .dbias_tile = 64, .dbias_splits = 3};
    pf_scratch s = lay_out(&problem, needs);
    assert_int_equal(s.queries_padded, 192);
    assert_int_equal(s.dbias_sum % 256, 0);
    assert_int_equal(s.bytes - s.dbias_sum, 14592); /* 3 * 4 * 300 * 4 = 14400, rounded up */

    /* dbias alone needs no sums of dq. */
    needs.query_tile = 0;
    s = lay_out(&problem, needs);
    assert_int_equal(s.queries_padded, 128);
    assert_true(s.dq_sum[0] == PF_SCRATCH_NONE);
    assert_int_equal(s.zero_bytes, 0);
}

/* Zero extents give empty parts, not faults. */
static void zero_extents(void **state) {
    (void)state;
    const test_shape cases[] = {{0, 4, 2, 100, 300, 64, 64},
                                {2, 0, 0, 100, 300, 64, 64},
                                {2, 4, 2, 0, 300, 64, 64},
                                {2, 4, 2, 100, 0, 64, 64}};
    for (int n = 0; n < 4; n++) {
        pfattn_attention a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, cases[n]);
        test_add_mask(&a, cases[n].batch, cases[n].heads, cases[n].queries, cases[n].keys);
        pf_problem problem = test_problem(PF_BACKWARD, &a);
        pf_scratch s = lay_out(&problem, main_alone);
        assert_int_equal(s.bytes % 256, 0);
        if (n < 2) {
            assert_int_equal(s.bytes, 0);
        }
    }
}

/* A size beyond 2^63 is reported, whatever part it comes from. */
static void overflow(void **state) {
    (void)state;
    pf_problem problem = {.operation = PF_BACKWARD,
                          .batch = 1 << 11,
                          .heads = 1 << 20,
                          .queries = (1 << 30) - 1,
                          .keys = 5};
    pf_scratch s;
    pf_scratch_needs needs = {.query_tile = 64, .head_dim = 64, .dq_parts = 1};
    assert_false(pf_scratch_layout(&problem, &needs, &s)); /* 2^31 * 2^30 * 4 * 4 */
    problem.batch = 1;
    assert_true(pf_scratch_layout(&problem, &needs, &s));
    problem.tensor[PF_DQ].dtype = PFATTN_DTYPE_F32;
    needs.head_dim = 256;
    assert_true(pf_scratch_layout(&problem, &needs, &s)); /* 2^20 * 2^30 * 2^10 = 2^60 */
    problem.batch = 8;
    assert_false(pf_scratch_layout(&problem, &needs, &s)); /* 2^63 */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_plain),  cmocka_unit_test(forward_key_live),
        cmocka_unit_test(forward_splits), cmocka_unit_test(forward_narrowed),
        cmocka_unit_test(backward_sizes), cmocka_unit_test(backward_without_dq),
        cmocka_unit_test(backward_turns), cmocka_unit_test(backward_jvp_sizes),
        cmocka_unit_test(dbias_sums),     cmocka_unit_test(zero_extents),
        cmocka_unit_test(overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
