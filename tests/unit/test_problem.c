/* SPDX-License-Identifier: Apache-2.0 */
/* What legal descriptors become: operations, dimensions, defaults, canonical strides, positions. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "descriptors.h"
#include "problem.h"
#include "structs.h"

static pf_problem accept(pfattn_operation operation, const pfattn_attention *args) {
    pf_problem problem;
    pfattn_status status = pf_problem_from_attention(operation, args, &problem);
    if (status != PFATTN_SUCCESS) {
        fail_msg("refused: %s", pfattn_last_error());
    }
    return problem;
}

/* Which operation is meant, and the dimensions, are read off the tensors. */
static void operations_and_dimensions(void **state) {
    (void)state;
    pfattn_attention args = forward_args(PFATTN_DTYPE_BF16);
    pf_problem p = accept(PFATTN_FORWARD, &args);
    assert_int_equal(p.operation, PF_FORWARD);
    assert_int_equal(p.dtype, PFATTN_DTYPE_BF16);
    int64_t got[] = {p.batch, p.heads, p.kv_heads, p.queries, p.keys, p.dim_qk, p.dim_v};
    int64_t want[] = {B, H, HK, M, N, D, E};
    assert_memory_equal(got, want, sizeof want);
    assert_true(p.piecewise);
    assert_false(p.causal);
    assert_false(p.deterministic);
    args = jvp_args(PFATTN_DTYPE_F32);
    assert_int_equal(accept(PFATTN_FORWARD, &args).operation, PF_FORWARD_JVP);
    args.to.dtype = PFATTN_DTYPE_NONE;
    assert_int_equal(accept(PFATTN_FORWARD, &args).operation, PF_FORWARD_JVP);
    args = backward_args(PFATTN_DTYPE_F32);
    args.flags = PFATTN_FLAG_CAUSAL | PFATTN_FLAG_DETERMINISTIC;
    p = accept(PFATTN_BACKWARD, &args);
    assert_int_equal(p.operation, PF_BACKWARD);
    assert_true(p.causal);
    assert_true(p.deterministic);
    args = backward_jvp_args(PFATTN_DTYPE_F64);
    assert_int_equal(accept(PFATTN_BACKWARD_JVP, &args).operation, PF_BACKWARD_JVP);
}

/* Tangents that are all absent are zero tangents: legal. */
static void tangents_are_optional(void **state) {
    (void)state;
    pfattn_attention args = jvp_args(PFATTN_DTYPE_F32);
    args.tq = args.tk = args.tv = args.tbias = args.tq2 = args.tk2 =
        (pfattn_tensor)PFATTN_TENSOR_INIT;
    pf_problem p = accept(PFATTN_FORWARD, &args);
    assert_int_equal(p.operation, PF_FORWARD_JVP);
    assert_false(pf_present(&p, PF_TQ));
}

/* Every non-empty subset of the six gradients is accepted. */
static void subsets_of_outputs(void **state) {
    (void)state;
    for (unsigned subset = 1; subset < 64; subset++) {
        pfattn_attention args = backward_args(PFATTN_DTYPE_F16);
        pfattn_tensor *outputs[] = {&args.dq,    &args.dk,  &args.dv,
                                    &args.dbias, &args.dq2, &args.dk2};
        for (int i = 0; i < 6; i++) {
            if (!(subset >> i & 1)) {
                *outputs[i] = (pfattn_tensor)PFATTN_TENSOR_INIT;
            }
        }
        pf_problem p = accept(PFATTN_BACKWARD, &args);
        for (int i = 0; i < 6; i++) {
            assert_int_equal(pf_present(&p, PF_DQ + i), subset >> i & 1);
        }
    }
}

/* Types that the contract allows beyond the plain case. */
static void wider_outputs_and_free_bias(void **state) {
    (void)state;
    pfattn_attention args = backward_args(PFATTN_DTYPE_F16);
    args.o.dtype = args.dq.dtype = args.dk.dtype = args.dv.dtype = PFATTN_DTYPE_F32;
    args.bias.dtype = args.dbias.dtype = PFATTN_DTYPE_BF16;
    accept(PFATTN_BACKWARD, &args);
    args = jvp_args(PFATTN_DTYPE_F64);
    args.bias.dtype = PFATTN_DTYPE_F64;
    args.tbias.dtype = PFATTN_DTYPE_F16;
    args.o.dtype = PFATTN_DTYPE_F32;
    accept(PFATTN_FORWARD, &args);
    const pfattn_dtype results[] = {PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16, PFATTN_DTYPE_F32,
                                    PFATTN_DTYPE_E5M2};
    for (int i = 0; i < 4; i++) {
        args = forward_args(PFATTN_DTYPE_E5M2);
        args.o.dtype = results[i];
        assert_int_equal(accept(PFATTN_FORWARD, &args).dtype, PFATTN_DTYPE_E5M2);
    }
}

static void alpha_has_a_default(void **state) {
    (void)state;
    pfattn_attention args = forward_args(PFATTN_DTYPE_F16);
    args.alpha = 77; /* not flagged: not read */
    assert_true(accept(PFATTN_FORWARD, &args).alpha == 1 / sqrt(8));
    args.flags = PFATTN_FLAG_ALPHA;
    const double values[] = {0, -0.5, 3e38};
    for (int i = 0; i < 3; i++) {
        args.alpha = values[i];
        assert_true(accept(PFATTN_FORWARD, &args).alpha == values[i]);
    }
    /* No dot product has a term: any finite alpha serves. */
    args.flags = 0;
    args.q.shape[3] = args.k.shape[3] = args.q2.shape[3] = args.k2.shape[3] = 0;
    assert_true(accept(PFATTN_FORWARD, &args).alpha == 1);
}

/* Strides that no index multiplies are 0, absent tensors are all zero, shapes stay. */
static void strides_are_canonical(void **state) {
    (void)state;
    pfattn_attention args = forward_args(PFATTN_DTYPE_F16);
    args.bias.stride[0] = 12345;
    args.bias.stride[2] = INT64_MIN;
    args.q.stride[1] = -24; /* heads stored backwards */
    args.mask.dtype = PFATTN_DTYPE_NONE;
    pf_problem p = accept(PFATTN_FORWARD, &args);
    const int64_t bias[] = {0, N, 0, 1};
    assert_memory_equal(p.tensor[PF_BIAS].stride, bias, sizeof bias);
    const int64_t shape[] = {1, H, 1, N};
    assert_memory_equal(p.tensor[PF_BIAS].shape, shape, sizeof shape);
    const int64_t query[] = {H * M * D, -24, D, 1};
    assert_memory_equal(p.tensor[PF_Q].stride, query, sizeof query);
    static const pfattn_tensor zero;
    assert_memory_equal(&p.tensor[PF_MASK], &zero, sizeof zero);
    assert_false(pf_present(&p, PF_MASK));
    assert_string_equal(pf_tensor_name(PF_TDBIAS), "tdbias");
    assert_string_equal(pf_tensor_name(PF_TLSE1), "tlse1");
}

/* Views that people use: packed QKV, (batch, sequence, head, channel), channels apart, broadcast
 * inputs, and outputs in each of the first three. */
static void layouts_are_accepted(void **state) {
    (void)state;
    pfattn_attention args = PFATTN_ATTENTION_INIT;
    char *packed = address(1); /* [B, S, 3, H, D] f16 */
    const int64_t stride[] = {7 * 3 * 2 * 4, 4, 3 * 2 * 4, 1};
    pfattn_tensor *views[] = {&args.q, &args.k, &args.v, &args.dq, &args.dk, &args.dv};
    for (int i = 0; i < 6; i++) {
        *views[i] = (pfattn_tensor){packed + (i % 3) * 2 * 4 * 2 + (i / 3) * 0x10000,
                                    PFATTN_DTYPE_F16,
                                    {2, 2, 7, 4},
                                    {stride[0], stride[1], stride[2], stride[3]}};
    }
    args.dout = args.o = args.q;
    args.o.data = address(3);
    args.dout.stride[0] = args.dout.stride[1] = args.dout.stride[2] = 0;
    args.lse = dense(4, PFATTN_DTYPE_F32, 2, 2, 7, 1);
    pf_problem p = accept(PFATTN_BACKWARD, &args);
    assert_int_equal(p.queries, 7);
    args.dq.stride[3] = 3; /* channels apart, gaps between all */
    args.dq.stride[2] = -11;
    args.dq.stride[1] = 100;
    args.dq.stride[0] = 1000;
    accept(PFATTN_BACKWARD, &args);
}

/* Every dimension may be 0; then pointers may be NULL and strides anything. */
static void zero_extents_are_accepted(void **state) {
    (void)state;
    for (int which = 0; which < 7; which++) {
        int64_t n[7] = {B, H, HK, M, N, D, E};
        n[which] = 0;
        if (which == 1 || which == 2) {
            n[1] = n[2] = 0;
        }
        pfattn_attention args = PFATTN_ATTENTION_INIT;
        args.q = dense(1, PFATTN_DTYPE_F32, n[0], n[1], n[3], n[5]);
        args.k = dense(2, PFATTN_DTYPE_F32, n[0], n[2], n[4], n[5]);
        args.v = dense(3, PFATTN_DTYPE_F32, n[0], n[2], n[4], n[6]);
        args.o = dense(4, PFATTN_DTYPE_F32, n[0], n[1], n[3], n[6]);
        args.lse = dense(5, PFATTN_DTYPE_F32, n[0], n[1], n[3], 1);
        pfattn_tensor *tensors[] = {&args.q, &args.k, &args.v, &args.o, &args.lse};
        for (int i = 0; i < 5; i++) {
            const int64_t *s = tensors[i]->shape;
            if (s[0] * s[1] * s[2] * s[3] == 0) {
                tensors[i]->data = NULL;
                tensors[i]->stride[0] = INT64_MAX;
            }
        }
        pf_problem p = accept(PFATTN_FORWARD, &args);
        assert_int_equal(p.keys, n[4]);
        for (int i = 0; p.tensor[PF_K].data == NULL && i < 4; i++) {
            assert_int_equal(p.tensor[PF_K].stride[i], 0);
        }
    }
}

/* The canonical diagonal and distance answer both questions as the given ones do, computed here in
 * 128 bits, and their sums with positions stay small. */
static void assert_same_answers(int64_t diagonal, int64_t distance) {
    pfattn_attention args = forward_args(PFATTN_DTYPE_F32);
    args.flags = PFATTN_FLAG_CAUSAL | PFATTN_FLAG_DIAGONAL;
    args.diagonal = diagonal;
    args.distance = distance;
    pf_problem p = accept(PFATTN_FORWARD, &args);
    assert_in_range(p.diagonal + 4 * (M + N), 0, 8 * (M + N));
    assert_in_range(p.distance + 4 * (M + N), 0, 8 * (M + N));
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) {
            __int128 exact = (__int128)i + diagonal - j;
            assert_int_equal(j <= i + p.diagonal, exact >= 0);
            assert_int_equal(i + p.diagonal - j >= p.distance, exact >= distance);
        }
    }
}

static void positions_of_any_size(void **state) {
    (void)state;
    int64_t values[64];
    int count = 0;
    for (int64_t near = -12; near <= 12; near++) {
        values[count++] = near;
    }
    for (int64_t off = 0; off < 12; off++) {
        values[count++] = INT64_MAX - off;
        values[count++] = INT64_MIN + off;
    }
    for (int d = 0; d < count; d++) {
        for (int w = 0; w < count; w++) {
            assert_same_answers(values[d], values[w]);
        }
    }
}

/* Within the range of positions nothing is changed; the default is bottom-right. */
static void positions_stay_where_they_can(void **state) {
    (void)state;
    pfattn_attention args = forward_args(PFATTN_DTYPE_F32);
    args.diagonal = 1000;
    args.distance = 1;
    pf_problem p = accept(PFATTN_FORWARD, &args);
    assert_int_equal(p.diagonal, N - M);
    assert_int_equal(p.distance, 1);
    args.flags = PFATTN_FLAG_DIAGONAL;
    args.diagonal = -2;
    args.distance = -4;
    p = accept(PFATTN_FORWARD, &args);
    assert_int_equal(p.diagonal, -2);
    assert_int_equal(p.distance, -4);
}

static void merges_are_read(void **state) {
    (void)state;
    pfattn_merge_args args = merge_args(PFATTN_DTYPE_BF16);
    args.o1.dtype = PFATTN_DTYPE_F32;
    args.o.dtype = PFATTN_DTYPE_E5M2;
    pf_problem p;
    assert_int_equal(pf_problem_from_merge(&args, &p), PFATTN_SUCCESS);
    assert_int_equal(p.operation, PF_MERGE);
    assert_int_equal(p.dtype, PFATTN_DTYPE_BF16);
    int64_t got[] = {p.batch, p.heads, p.queries, p.dim_v};
    int64_t want[] = {B, H, M, E};
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(p.tensor[PF_O1].dtype, PFATTN_DTYPE_F32);
    assert_ptr_equal(p.tensor[PF_TLSE].data, args.tlse.data);
    assert_false(pf_present(&p, PF_Q));
}

/* Each output over either part, of the same kind. */
static void merges_in_place(void **state) {
    (void)state;
    pfattn_merge_args args = merge_args(PFATTN_DTYPE_F32);
    args.o = args.o0;
    args.lse = args.lse1;
    args.to = args.to1;
    args.tlse = args.tlse0;
    pf_problem p;
    assert_int_equal(pf_problem_from_merge(&args, &p), PFATTN_SUCCESS);
}

/* A struct that grew by one field, seen by programs built before and after. */
typedef struct grown {
    size_t struct_size;
    int64_t old;
    int64_t added;
} grown;

typedef struct grown_more {
    grown known;
    int64_t newer;
} grown_more;

static const pf_struct kind = {"args", "GROWN_INIT", offsetof(grown, added), sizeof(grown)};

static void older_and_newer_structs(void **state) {
    (void)state;
    grown result;
    grown older = {offsetof(grown, added), 3, 99 /* beyond the older struct */};
    assert_int_equal(pf_struct_read(&kind, &older, &result), PFATTN_SUCCESS);
    assert_int_equal(result.old, 3);
    assert_int_equal(result.added, 0);

    grown_more newer = {{sizeof newer, 4, 5}, 0};
    assert_int_equal(pf_struct_read(&kind, &newer, &result), PFATTN_SUCCESS);
    assert_int_equal(result.added, 5);
    newer.newer = 1;
    result.added = 42;
    assert_int_equal(pf_struct_read(&kind, &newer, &result), PFATTN_ERROR_UNSUPPORTED);
    assert_non_null(strstr(pfattn_last_error(), "a field beyond that is set; pfattn 0."));
    assert_int_equal(result.added, 42);

    const void *view;
    grown same = {sizeof same, 1, 2};
    assert_int_equal(pf_struct_view(&kind, &same, &result, &view), PFATTN_SUCCESS);
    assert_ptr_equal(view, &same);
    assert_int_equal(pf_struct_view(&kind, &older, &result, &view), PFATTN_SUCCESS);
    assert_ptr_equal(view, &result);
    assert_int_equal(result.old, 3);
    assert_int_equal(pf_struct_view(&kind, NULL, &result, &view), PFATTN_ERROR_INVALID_ARGUMENT);

    grown small = {offsetof(grown, added) - 1, 0, 0};
    assert_int_equal(pf_struct_check(&kind, &small), PFATTN_ERROR_INVALID_ARGUMENT);
    grown garbage = {SIZE_MAX / 2, 0, 0};
    assert_int_equal(pf_struct_read(&kind, &garbage, &result), PFATTN_ERROR_INVALID_ARGUMENT);
}

static void results_fit_the_callers_struct(void **state) {
    (void)state;
    grown result = {sizeof(grown), 6, 7};
    grown older = {offsetof(grown, added), 0, 99};
    pf_struct_write(&kind, &result, &older);
    assert_int_equal(older.struct_size, offsetof(grown, added));
    assert_int_equal(older.old, 6);
    assert_int_equal(older.added, 99);
    grown_more newer = {{sizeof newer, 0, 0}, 8};
    pf_struct_write(&kind, &result, &newer);
    assert_int_equal(newer.known.struct_size, sizeof newer);
    assert_int_equal(newer.known.added, 7);
    assert_int_equal(newer.newer, 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_and_dimensions),
        cmocka_unit_test(tangents_are_optional),
        cmocka_unit_test(subsets_of_outputs),
        cmocka_unit_test(wider_outputs_and_free_bias),
        cmocka_unit_test(alpha_has_a_default),
        cmocka_unit_test(strides_are_canonical),
        cmocka_unit_test(layouts_are_accepted),
        cmocka_unit_test(zero_extents_are_accepted),
        cmocka_unit_test(positions_of_any_size),
        cmocka_unit_test(positions_stay_where_they_can),
        cmocka_unit_test(merges_are_read),
        cmocka_unit_test(merges_in_place),
        cmocka_unit_test(older_and_newer_structs),
        cmocka_unit_test(results_fit_the_callers_struct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
