/* SPDX-License-Identifier: Apache-2.0 */
#include "problems.h"

#include <string.h>

bool test_images[PF_IMAGE_COUNT];

pfattn_tensor test_dense(pfattn_dtype dtype, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    static uintptr_t next = 1;
    pfattn_tensor t = {(void *)(next++ << 32), dtype, {n0, n1, n2, n3}, {0}};
    t.stride[3] = 1;
    t.stride[2] = n3;
    t.stride[1] = n2 * n3;
    t.stride[0] = n1 * n2 * n3;
    return t;
}

static pfattn_tensor statistic(pfattn_dtype dtype, test_shape s) {
    return test_dense(dtype == PFATTN_DTYPE_F64 ? dtype : PFATTN_DTYPE_F32, s.batch, s.heads,
                      s.queries, 1);
}

static pfattn_operation public_operation(pf_operation operation) {
    return operation == PF_BACKWARD       ? PFATTN_BACKWARD
           : operation == PF_BACKWARD_JVP ? PFATTN_BACKWARD_JVP
                                          : PFATTN_FORWARD;
}

pfattn_attention test_attention(pf_operation operation, pfattn_dtype dtype, test_shape s) {
    pfattn_attention a = PFATTN_ATTENTION_INIT;
    a.q = test_dense(dtype, s.batch, s.heads, s.queries, s.dim_qk);
    a.k = test_dense(dtype, s.batch, s.kv_heads, s.keys, s.dim_qk);
    a.v = test_dense(dtype, s.batch, s.kv_heads, s.keys, s.dim_v);
    a.o = test_dense(dtype, s.batch, s.heads, s.queries, s.dim_v);
    a.lse = statistic(dtype, s);
    if (operation == PF_FORWARD_JVP || operation == PF_BACKWARD_JVP) {
        a.to = test_dense(dtype, s.batch, s.heads, s.queries, s.dim_v);
        a.tlse = statistic(dtype, s);
    }
    if (operation == PF_BACKWARD || operation == PF_BACKWARD_JVP) {
        a.dout = test_dense(dtype, s.batch, s.heads, s.queries, s.dim_v);
    }
    if (operation == PF_BACKWARD) {
        a.dq = test_dense(dtype, s.batch, s.heads, s.queries, s.dim_qk);
        a.dk = test_dense(dtype, s.batch, s.kv_heads, s.keys, s.dim_qk);
        a.dv = test_dense(dtype, s.batch, s.kv_heads, s.keys, s.dim_v);
    }
    if (operation == PF_BACKWARD_JVP) {
        a.tdq = test_dense(dtype, s.batch, s.heads, s.queries, s.dim_qk);
        a.tdk = test_dense(dtype, s.batch, s.kv_heads, s.keys, s.dim_qk);
        a.tdv = test_dense(dtype, s.batch, s.kv_heads, s.keys, s.dim_v);
    }
    return a;
}

void test_add_bias(pfattn_attention *args, pfattn_dtype dtype, int64_t b, int64_t h, int64_t m,
                   int64_t n) {
    args->bias = test_dense(dtype, b, h, m, n);
}

void test_add_mask(pfattn_attention *args, int64_t b, int64_t h, int64_t m, int64_t n) {
    args->mask = test_dense(PFATTN_DTYPE_U8, b, h, m, n);
}

void test_add_pair(pfattn_attention *args, int64_t distance) {
    const int64_t *q = args->q.shape;
    const int64_t *k = args->k.shape;
    args->q2 = test_dense(args->q.dtype, q[0], q[1], q[2], q[3]);
    args->k2 = test_dense(args->k.dtype, k[0], k[1], k[2], k[3]);
    args->distance = distance;
}

pf_problem test_problem(pf_operation operation, const pfattn_attention *args) {
    pf_problem problem = {0};
    pfattn_status status = pf_problem_from_attention(public_operation(operation), args, &problem);
    if (status != PFATTN_SUCCESS) {
        fail_msg("%s", pfattn_last_error());
    }
    assert_int_equal(problem.operation, operation);
    return problem;
}

pfattn_merge_args test_merge_args(pfattn_dtype dtype, test_shape s) {
    pfattn_merge_args m = PFATTN_MERGE_ARGS_INIT;
    pfattn_tensor *o[] = {&m.o0, &m.to0, &m.o1, &m.to1, &m.o, &m.to};
    pfattn_tensor *lse[] = {&m.lse0, &m.tlse0, &m.lse1, &m.tlse1, &m.lse, &m.tlse};
    for (int i = 0; i < 6; i++) {
        *o[i] = test_dense(dtype, s.batch, s.heads, s.queries, s.dim_v);
        *lse[i] = statistic(dtype, s);
    }
    return m;
}

pf_problem test_merge_problem(pfattn_dtype dtype, test_shape shape) {
    pfattn_merge_args args = test_merge_args(dtype, shape);
    pf_problem problem = {0};
    if (pf_problem_from_merge(&args, &problem) != PFATTN_SUCCESS) {
        fail_msg("%s", pfattn_last_error());
    }
    return problem;
}

pf_capabilities test_hopper(const pf_tuning *table, size_t count) {
    memset(test_images, 1, sizeof test_images);
    pf_capabilities c = {.backend = "cuda",
                         .tuning = table,
                         .tuning_count = (int)count,
                         .targets = {PF_TARGET_SM_90A, PF_TARGET_SM_80},
                         .target_count = 2,
                         .compute_units = 100,
                         .warp_size = 32,
                         .shared_bytes = 232448};
    c.images[PF_TARGET_SM_90A] = c.images[PF_TARGET_SM_80] = test_images;
    return c;
}

pf_plan test_plan(const pf_capabilities *capabilities, const pf_problem *problem) {
    pf_plan plan;
    if (pf_select(capabilities, problem, &plan) != PFATTN_SUCCESS) {
        fail_msg("%s", pfattn_last_error());
    }
    return plan;
}
