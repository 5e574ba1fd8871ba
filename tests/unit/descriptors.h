/* SPDX-License-Identifier: Apache-2.0 */
/* Legal descriptors for the tests of argument checks: every tensor that the operation may have is
 * there, with all dimensions different: B 2, H 4, Hk 2, M 3, N 5, D 8, E 6. */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H

#include <pfattn/pfattn.h>

enum { B = 2, H = 4, HK = 2, M = 3, N = 5, D = 8, E = 6 };

/* Distinct aligned addresses; nothing is read or written through them. */
static inline void *address(int index) {
    return (void *)((uintptr_t)0x100000 + (uintptr_t)index * 0x10000);
}

static inline pfattn_tensor dense(int index, pfattn_dtype dtype, int64_t n0, int64_t n1, int64_t n2,
                                  int64_t n3) {
    return (pfattn_tensor){address(index), dtype, {n0, n1, n2, n3}, {n1 * n2 * n3, n2 * n3, n3, 1}};
}

static inline pfattn_attention inputs(pfattn_dtype type) {
    pfattn_attention a = PFATTN_ATTENTION_INIT;
    a.distance = 2;
    a.q = dense(1, type, B, H, M, D);
    a.k = dense(2, type, B, HK, N, D);
    a.v = dense(3, type, B, HK, N, E);
    a.bias = dense(4, PFATTN_DTYPE_F32, 1, H, 1, N);
    a.mask = dense(5, PFATTN_DTYPE_U8, B, 1, M, N);
    a.q2 = dense(6, type, B, H, M, D);
    a.k2 = dense(7, type, B, HK, N, D);
    return a;
}

static inline pfattn_dtype statistic_of(pfattn_dtype type) {
    return type == PFATTN_DTYPE_F64 ? PFATTN_DTYPE_F64 : PFATTN_DTYPE_F32;
}

static inline pfattn_attention forward_args(pfattn_dtype type) {
    pfattn_attention a = inputs(type);
    a.o = dense(14, type, B, H, M, E);
    a.lse = dense(15, statistic_of(type), B, H, M, 1);
    return a;
}

static inline void add_tangents(pfattn_attention *a, pfattn_dtype type) {
    a->tq = dense(8, type, B, H, M, D);
    a->tk = dense(9, type, B, HK, N, D);
    a->tv = dense(10, type, B, HK, N, E);
    a->tbias = dense(11, PFATTN_DTYPE_F32, 1, H, 1, N);
    a->tq2 = dense(12, type, B, H, M, D);
    a->tk2 = dense(13, type, B, HK, N, D);
    a->to = dense(16, type, B, H, M, E);
    a->tlse = dense(17, statistic_of(type), B, H, M, 1);
}

static inline pfattn_attention jvp_args(pfattn_dtype type) {
    pfattn_attention a = forward_args(type);
    add_tangents(&a, type);
    return a;
}

static inline pfattn_attention backward_args(pfattn_dtype type) {
    pfattn_attention a = forward_args(type);
    a.dout = dense(18, type, B, H, M, E);
    a.dlse = dense(19, statistic_of(type), B, H, M, 1);
    a.dq = dense(21, type, B, H, M, D);
    a.dk = dense(22, type, B, HK, N, D);
    a.dv = dense(23, type, B, HK, N, E);
    a.dbias = dense(24, PFATTN_DTYPE_F32, 1, H, 1, N);
    a.dq2 = dense(25, type, B, H, M, D);
    a.dk2 = dense(26, type, B, HK, N, D);
    return a;
}

static inline pfattn_attention backward_jvp_args(pfattn_dtype type) {
    pfattn_attention a = forward_args(type);
    add_tangents(&a, type);
    a.dout = dense(18, type, B, H, M, E);
    a.dlse = dense(19, statistic_of(type), B, H, M, 1);
    a.tdout = dense(20, type, B, H, M, E);
    a.tdq = dense(27, type, B, H, M, D);
    a.tdk = dense(28, type, B, HK, N, D);
    a.tdv = dense(29, type, B, HK, N, E);
    a.tdbias = dense(30, PFATTN_DTYPE_F32, 1, H, 1, N);
    a.tdq2 = dense(31, type, B, H, M, D);
    a.tdk2 = dense(32, type, B, HK, N, D);
    return a;
}

static inline pfattn_merge_args merge_args(pfattn_dtype type) {
    pfattn_dtype statistic = statistic_of(type);
    pfattn_merge_args m = PFATTN_MERGE_ARGS_INIT;
    m.o0 = dense(1, type, B, H, M, E);
    m.lse0 = dense(2, statistic, B, H, M, 1);
    m.to0 = dense(3, type, B, H, M, E);
    m.tlse0 = dense(4, statistic, B, H, M, 1);
    m.o1 = dense(5, type, B, H, M, E);
    m.lse1 = dense(6, statistic, B, H, M, 1);
    m.to1 = dense(7, type, B, H, M, E);
    m.tlse1 = dense(8, statistic, B, H, M, 1);
    m.o = dense(9, type, B, H, M, E);
    m.lse = dense(10, statistic, B, H, M, 1);
    m.to = dense(11, type, B, H, M, E);
    m.tlse = dense(12, statistic, B, H, M, 1);
    return m;
}

#endif
