/* SPDX-License-Identifier: Apache-2.0 */
/* Every argument error, by its status and its whole message: a legal descriptor is edited in one
 * way, and the check must say exactly what is wrong and leave the result alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "descriptors.h"
#include "problem.h"

typedef enum action { END, DTYPE, SHAPE, STRIDE, DATA, REMOVE, COPY } action;

/* One change of one tensor. */
typedef struct edit {
    action action;
    size_t tensor; /* offset in the descriptor */
    int dim;
    int64_t value; /* COPY: offset of the tensor to copy, whose pointer is moved */
} edit;

typedef struct error_case {
    const char *message;
    int operation;
    edit edits[3];
} error_case;

#define T(field) offsetof(pfattn_attention, field)
#define P(field) offsetof(pfattn_merge_args, field)

static void apply(void *descriptor, const edit *e) {
    pfattn_tensor *tensor = (pfattn_tensor *)((char *)descriptor + e->tensor);
    switch (e->action) {
    case DTYPE:
        tensor->dtype = (pfattn_dtype)e->value;
        break;
    case SHAPE:
        tensor->shape[e->dim] = e->value;
        break;
    case STRIDE:
        tensor->stride[e->dim] = e->value;
        break;
    case DATA:
        tensor->data = (void *)(uintptr_t)e->value;
        break;
    case REMOVE:
        tensor->dtype = PFATTN_DTYPE_NONE;
        break;
    case COPY:
        *tensor = *(pfattn_tensor *)((char *)descriptor + e->value);
        tensor->data = address(64);
        break;
    case END:
        break;
    }
}

static const error_case attention_cases[] = {
    /* Presence. */
    {"q: is absent, but forward without to or tlse needs it", PF_FORWARD, {{REMOVE, T(q), 0, 0}}},
    {"k: is absent, but forward with to or tlse needs it", PF_FORWARD_JVP, {{REMOVE, T(k), 0, 0}}},
    {"v: is absent, but backward needs it", PF_BACKWARD, {{REMOVE, T(v), 0, 0}}},
    {"o: is absent, but backward needs it", PF_BACKWARD, {{REMOVE, T(o), 0, 0}}},
    {"lse: is absent, but backward needs it", PF_BACKWARD, {{REMOVE, T(lse), 0, 0}}},
    {"dout: is absent, but backward needs it", PF_BACKWARD, {{REMOVE, T(dout), 0, 0}}},
    {"o: is absent, but backward_jvp needs it", PF_BACKWARD_JVP, {{REMOVE, T(o), 0, 0}}},
    {"lse: is absent, but backward_jvp needs it", PF_BACKWARD_JVP, {{REMOVE, T(lse), 0, 0}}},
    {"to: is absent, but backward_jvp needs it", PF_BACKWARD_JVP, {{REMOVE, T(to), 0, 0}}},
    {"tlse: is absent, but backward_jvp needs it", PF_BACKWARD_JVP, {{REMOVE, T(tlse), 0, 0}}},
    {"dout: is absent, but backward_jvp needs it", PF_BACKWARD_JVP, {{REMOVE, T(dout), 0, 0}}},
    {"q2: is present without k2, which it needs", PF_FORWARD, {{REMOVE, T(k2), 0, 0}}},
    {"k2: is present without q2, which it needs", PF_FORWARD, {{REMOVE, T(q2), 0, 0}}},
    {"tbias: is present without bias, which it needs", PF_FORWARD_JVP, {{REMOVE, T(bias), 0, 0}}},
    {"tq2: is present without q2, which it needs",
     PF_FORWARD_JVP,
     {{REMOVE, T(q2), 0, 0}, {REMOVE, T(k2), 0, 0}}},
    {"dbias: is present without bias, which it needs", PF_BACKWARD, {{REMOVE, T(bias), 0, 0}}},
    {"dq2: is present without q2, which it needs",
     PF_BACKWARD,
     {{REMOVE, T(q2), 0, 0}, {REMOVE, T(k2), 0, 0}}},
    {"dk2: is present without k2, which it needs",
     PF_BACKWARD,
     {{REMOVE, T(q2), 0, 0}, {REMOVE, T(k2), 0, 0}, {REMOVE, T(dq2), 0, 0}}},
    {"tdbias: is present without bias, which it needs",
     PF_BACKWARD_JVP,
     {{REMOVE, T(bias), 0, 0}, {REMOVE, T(tbias), 0, 0}}},
    /* Tensors that the operation does not use. */
    {"tq: is present, but forward without to or tlse does not use it; it must be absent",
     PF_FORWARD_JVP,
     {{REMOVE, T(to), 0, 0}, {REMOVE, T(tlse), 0, 0}}},
    {"dout: is present, but forward without to or tlse does not use it; it must be absent",
     PF_FORWARD,
     {{COPY, T(dout), 0, T(o)}}},
    {"tdout: is present, but forward with to or tlse does not use it; it must be absent",
     PF_FORWARD_JVP,
     {{COPY, T(tdout), 0, T(o)}}},
    {"dq: is present, but forward without to or tlse does not use it; it must be absent",
     PF_FORWARD,
     {{COPY, T(dq), 0, T(q)}}},
    {"tdk2: is present, but forward without to or tlse does not use it; it must be absent",
     PF_FORWARD,
     {{COPY, T(tdk2), 0, T(k)}}},
    {"tq: is present, but backward does not use it; it must be absent",
     PF_BACKWARD,
     {{COPY, T(tq), 0, T(q)}}},
    {"to: is present, but backward does not use it; it must be absent",
     PF_BACKWARD,
     {{COPY, T(to), 0, T(o)}}},
    {"tdout: is present, but backward does not use it; it must be absent",
     PF_BACKWARD,
     {{COPY, T(tdout), 0, T(o)}}},
    {"tdv: is present, but backward does not use it; it must be absent",
     PF_BACKWARD,
     {{COPY, T(tdv), 0, T(v)}}},
    {"dv: is present, but backward_jvp does not use it; it must be absent",
     PF_BACKWARD_JVP,
     {{COPY, T(dv), 0, T(v)}}},
    {"args: no output is asked for; at least one of o, lse, to, tlse must be present",
     PF_FORWARD,
     {{REMOVE, T(o), 0, 0}, {REMOVE, T(lse), 0, 0}}},
    /* Types. */
    {"q: dtype 99 is not a pfattn_dtype", PF_FORWARD, {{DTYPE, T(q), 0, 99}}},
    {"mask: dtype -1 is not a pfattn_dtype", PF_FORWARD, {{DTYPE, T(mask), 0, -1}}},
    {"q: dtype is u8; it must be f16, bf16, f32, e5m2 or f64",
     PF_FORWARD,
     {{DTYPE, T(q), 0, PFATTN_DTYPE_U8}}},
    {"k: dtype is bf16; where q is f16 it must be f16",
     PF_FORWARD,
     {{DTYPE, T(k), 0, PFATTN_DTYPE_BF16}}},
    {"v: dtype is f32; where q is f16 it must be f16",
     PF_FORWARD,
     {{DTYPE, T(v), 0, PFATTN_DTYPE_F32}}},
    {"k2: dtype is f64; where q is f16 it must be f16",
     PF_FORWARD,
     {{DTYPE, T(k2), 0, PFATTN_DTYPE_F64}}},
    {"tk: dtype is f32; where q is f16 it must be f16",
     PF_FORWARD_JVP,
     {{DTYPE, T(tk), 0, PFATTN_DTYPE_F32}}},
    {"bias: dtype is f64; where q is f16 it must be f16 or bf16 or f32",
     PF_FORWARD,
     {{DTYPE, T(bias), 0, PFATTN_DTYPE_F64}}},
    {"bias: dtype is e5m2; where q is f16 it must be f16 or bf16 or f32",
     PF_FORWARD,
     {{DTYPE, T(bias), 0, PFATTN_DTYPE_E5M2}}},
    {"tbias: dtype is u8; where q is f16 it must be f16 or bf16 or f32",
     PF_FORWARD_JVP,
     {{DTYPE, T(tbias), 0, PFATTN_DTYPE_U8}}},
    {"mask: dtype is e5m2; where q is f16 it must be u8",
     PF_FORWARD,
     {{DTYPE, T(mask), 0, PFATTN_DTYPE_E5M2}}},
    {"o: dtype is bf16; where q is f16 it must be f16 or f32",
     PF_FORWARD,
     {{DTYPE, T(o), 0, PFATTN_DTYPE_BF16}}},
    {"to: dtype is e5m2; where q is f16 it must be f16 or f32",
     PF_FORWARD_JVP,
     {{DTYPE, T(to), 0, PFATTN_DTYPE_E5M2}}},
    {"lse: dtype is f16; where q is f16 it must be f32",
     PF_FORWARD,
     {{DTYPE, T(lse), 0, PFATTN_DTYPE_F16}}},
    {"tlse: dtype is f64; where q is f16 it must be f32",
     PF_FORWARD_JVP,
     {{DTYPE, T(tlse), 0, PFATTN_DTYPE_F64}}},
    {"dout: dtype is f32; where q is f16 it must be f16",
     PF_BACKWARD,
     {{DTYPE, T(dout), 0, PFATTN_DTYPE_F32}}},
    {"dlse: dtype is f16; where q is f16 it must be f32",
     PF_BACKWARD,
     {{DTYPE, T(dlse), 0, PFATTN_DTYPE_F16}}},
    {"dk: dtype is bf16; where q is f16 it must be f16 or f32",
     PF_BACKWARD,
     {{DTYPE, T(dk), 0, PFATTN_DTYPE_BF16}}},
    {"dbias: dtype is f16; where q is f16 it must be f32",
     PF_BACKWARD,
     {{DTYPE, T(dbias), 0, PFATTN_DTYPE_F16}}},
    {"tdq2: dtype is u8; where q is f16 it must be f16 or f32",
     PF_BACKWARD_JVP,
     {{DTYPE, T(tdq2), 0, PFATTN_DTYPE_U8}}},
    /* Shapes. */
    {"q: shape[2] is -3; it must be 0 or more", PF_FORWARD, {{SHAPE, T(q), 2, -3}}},
    {"mask: shape[0] is -1; it must be 0 or more", PF_FORWARD, {{SHAPE, T(mask), 0, -1}}},
    {"k: shape [2,2,4611686018427387904,8] has more elements than 64 bits can count",
     PF_FORWARD,
     {{SHAPE, T(k), 2, INT64_C(1) << 62}}},
    {"k: shape [0,4611686018427387904,5,8] has more elements than 64 bits can count",
     PF_FORWARD,
     {{SHAPE, T(k), 0, 0}, {SHAPE, T(k), 1, INT64_C(1) << 62}}},
    {"k: batch (shape[0]) is 1 but q has 2; both must be equal", PF_FORWARD, {{SHAPE, T(k), 0, 1}}},
    {"k: head dimension (shape[3]) is 7 but q has 8; both must be equal",
     PF_FORWARD,
     {{SHAPE, T(k), 3, 7}}},
    {"v: batch (shape[0]) is 3 but q has 2; both must be equal", PF_FORWARD, {{SHAPE, T(v), 0, 3}}},
    {"v: number of heads (shape[1]) is 1 but k has 2; both must be equal",
     PF_FORWARD,
     {{SHAPE, T(v), 1, 1}}},
    {"v: number of keys (shape[2]) is 6 but k has 5; both must be equal",
     PF_FORWARD,
     {{SHAPE, T(v), 2, 6}}},
    {"o: value head dimension (shape[3]) is 5 but v has 6; both must be equal",
     PF_FORWARD,
     {{SHAPE, T(o), 3, 5}}},
    {"o: number of queries (shape[2]) is 2 but q has 3; both must be equal",
     PF_FORWARD,
     {{SHAPE, T(o), 2, 2}}},
    {"o: number of heads (shape[1]) is 2 but q has 4; both must be equal",
     PF_FORWARD,
     {{SHAPE, T(o), 1, 2}}},
    {"lse: last dimension (shape[3]) is 6; it must be 1", PF_BACKWARD, {{SHAPE, T(lse), 3, 6}}},
    {"bias: batch (shape[0]) is 3; it must be 1 or 2", PF_FORWARD, {{SHAPE, T(bias), 0, 3}}},
    {"bias: number of heads (shape[1]) is 2; it must be 1 or 4",
     PF_FORWARD,
     {{SHAPE, T(bias), 1, 2}}},
    {"mask: number of queries (shape[2]) is 0; it must be 1 or 3",
     PF_FORWARD,
     {{SHAPE, T(mask), 2, 0}}},
    {"mask: number of keys (shape[3]) is 4; it must be 1 or 5",
     PF_FORWARD,
     {{SHAPE, T(mask), 3, 4}}},
    {"q2: number of queries (shape[2]) is 2 but q has 3; both must be equal",
     PF_FORWARD,
     {{SHAPE, T(q2), 2, 2}}},
    {"k2: number of keys (shape[2]) is 4 but k has 5; both must be equal",
     PF_FORWARD,
     {{SHAPE, T(k2), 2, 4}}},
    {"tv: number of keys (shape[2]) is 4 but k has 5; both must be equal",
     PF_FORWARD_JVP,
     {{SHAPE, T(tv), 2, 4}}},
    {"tbias: shape[1] is 1 but bias has 4; both must be equal",
     PF_FORWARD_JVP,
     {{SHAPE, T(tbias), 1, 1}}},
    {"dbias: shape[2] is 3 but bias has 1; both must be equal",
     PF_BACKWARD,
     {{SHAPE, T(dbias), 2, 3}, {STRIDE, T(dbias), 2, 100}}},
    {"dk: number of heads (shape[1]) is 4 but k has 2; both must be equal",
     PF_BACKWARD,
     {{SHAPE, T(dk), 1, 4}, {STRIDE, T(dk), 0, 400}}},
    {"tdbias: shape[3] is 1 but bias has 5; both must be equal",
     PF_BACKWARD_JVP,
     {{SHAPE, T(tdbias), 3, 1}}},
    {"dlse: last dimension (shape[3]) is 2; it must be 1", PF_BACKWARD, {{SHAPE, T(dlse), 3, 2}}},
    /* Memory. */
    {"q: data is NULL but the tensor has 192 elements", PF_FORWARD, {{DATA, T(q), 0, 0}}},
    {"o: data is NULL but the tensor has 144 elements", PF_FORWARD, {{DATA, T(o), 0, 0}}},
    {"q: data is 0x100001; it must be aligned to the 2 bytes of one f16",
     PF_FORWARD,
     {{DATA, T(q), 0, 0x100001}}},
    {"lse: data is 0x100002; it must be aligned to the 4 bytes of one f32",
     PF_FORWARD,
     {{DATA, T(lse), 0, 0x100002}}},
    {"q: strides [9223372036854775807,24,8,1] reach beyond the address space",
     PF_FORWARD,
     {{STRIDE, T(q), 0, INT64_MAX}}},
    {"q: strides [96,9223372036854775807,8,1] reach beyond the address space",
     PF_FORWARD,
     {{STRIDE, T(q), 1, INT64_MAX}}},
    {"q: strides [-9223372036854775808,24,8,1] reach beyond the address space",
     PF_FORWARD,
     {{STRIDE, T(q), 0, INT64_MIN}}},
    {"mask: strides [-1048577,15,5,1] reach beyond the address space",
     PF_FORWARD,
     {{DATA, T(mask), 0, 0x100000}, {STRIDE, T(mask), 0, -0x100001}}},
    {"o: strides [0,18,6,1] let elements share memory; those of an output must be distinct",
     PF_FORWARD,
     {{STRIDE, T(o), 0, 0}}},
    {"o: strides [72,18,5,1] let elements share memory; those of an output must be distinct",
     PF_FORWARD,
     {{STRIDE, T(o), 2, 5}}},
    {"o: strides [72,18,-5,1] let elements share memory; those of an output must be distinct",
     PF_FORWARD,
     {{STRIDE, T(o), 2, -5}}},
    {"dv: strides [30,0,6,1] let elements share memory; those of an output must be distinct",
     PF_BACKWARD,
     {{STRIDE, T(dv), 0, 30}, {STRIDE, T(dv), 1, 0}}},
    {"dbias: strides [20,5,5,0] let elements share memory; those of an output must be distinct",
     PF_BACKWARD,
     {{STRIDE, T(dbias), 3, 0}}},
    {"o: has the data pointer of q; an output must not overlap another tensor",
     PF_FORWARD,
     {{DATA, T(o), 0, 0x110000}}},
    {"dq: has the data pointer of dk; an output must not overlap another tensor",
     PF_BACKWARD,
     {{DATA, T(dk), 0, 0x100000 + 21 * 0x10000}}},
};

static const error_case merge_cases[] = {
    {"o0: is absent, but merge needs it", 0, {{REMOVE, P(o0), 0, 0}}},
    {"lse0: is absent, but merge needs it", 0, {{REMOVE, P(lse0), 0, 0}}},
    {"o1: is absent, but merge needs it", 0, {{REMOVE, P(o1), 0, 0}}},
    {"lse1: is absent, but merge needs it", 0, {{REMOVE, P(lse1), 0, 0}}},
    {"to0: is absent, but to or tlse is asked for, which needs it", 0, {{REMOVE, P(to0), 0, 0}}},
    {"tlse0: is absent, but to or tlse is asked for, which needs it",
     0,
     {{REMOVE, P(tlse0), 0, 0}}},
    {"to1: is absent, but to or tlse is asked for, which needs it", 0, {{REMOVE, P(to1), 0, 0}}},
    {"tlse1: is absent, but to or tlse is asked for, which needs it",
     0,
     {{REMOVE, P(tlse1), 0, 0}}},
    {"to0: is present, but neither to nor tlse is asked for; it must be absent",
     0,
     {{REMOVE, P(to), 0, 0}, {REMOVE, P(tlse), 0, 0}}},
    {"o0: dtype is u8; it must be f16, bf16, f32, e5m2 or f64",
     0,
     {{DTYPE, P(o0), 0, PFATTN_DTYPE_U8}}},
    {"o1: dtype is f64; where o0 is f16 it must be f16 or bf16 or f32 or e5m2",
     0,
     {{DTYPE, P(o1), 0, PFATTN_DTYPE_F64}}},
    {"o: dtype is u8; where o0 is f16 it must be f16 or bf16 or f32 or e5m2",
     0,
     {{DTYPE, P(o), 0, PFATTN_DTYPE_U8}}},
    {"lse1: dtype is f16; where o0 is f16 it must be f32",
     0,
     {{DTYPE, P(lse1), 0, PFATTN_DTYPE_F16}}},
    {"o1: number of queries (shape[2]) is 2 but o0 has 3; both must be equal",
     0,
     {{SHAPE, P(o1), 2, 2}}},
    {"to: value head dimension (shape[3]) is 5 but o0 has 6; both must be equal",
     0,
     {{SHAPE, P(to), 3, 5}}},
    {"lse0: last dimension (shape[3]) is 6; it must be 1", 0, {{SHAPE, P(lse0), 3, 6}}},
    {"o: strides [0,18,6,1] let elements share memory; those of an output must be distinct",
     0,
     {{STRIDE, P(o), 0, 0}}},
    {"o: has the data pointer of o0; an output must not overlap another tensor, unless it is the "
     "same tensor of a part, with its type and strides",
     0,
     {{DATA, P(o), 0, 0x110000}, {STRIDE, P(o), 0, 144}}},
    {"o: has the data pointer of o1; an output must not overlap another tensor, unless it is the "
     "same tensor of a part, with its type and strides",
     0,
     {{DATA, P(o), 0, 0x150000}, {DTYPE, P(o), 0, PFATTN_DTYPE_F32}}},
    {"o: has the data pointer of to0; an output must not overlap another tensor, unless it is the "
     "same tensor of a part, with its type and strides",
     0,
     {{DATA, P(o), 0, 0x130000}}},
};

static pfattn_operation public_operation(int operation) {
    return operation == PF_BACKWARD       ? PFATTN_BACKWARD
           : operation == PF_BACKWARD_JVP ? PFATTN_BACKWARD_JVP
                                          : PFATTN_FORWARD;
}

static pfattn_attention args_for(int operation) {
    switch (operation) {
    case PF_FORWARD_JVP:
        return jvp_args(PFATTN_DTYPE_F16);
    case PF_BACKWARD:
        return backward_args(PFATTN_DTYPE_F16);
    case PF_BACKWARD_JVP:
        return backward_jvp_args(PFATTN_DTYPE_F16);
    default:
        return forward_args(PFATTN_DTYPE_F16);
    }
}

static void assert_fails(pfattn_operation operation, const pfattn_attention *args,
                         const char *message) {
    pf_problem problem;
    assert_int_equal(pf_problem_from_attention(operation, args, &problem),
                     PFATTN_ERROR_INVALID_ARGUMENT);
    assert_string_equal(pfattn_last_error(), message);
}

static void edited_descriptors_fail(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof attention_cases / sizeof attention_cases[0]; i++) {
        const error_case *c = &attention_cases[i];
        pfattn_attention args = args_for(c->operation);
        for (int e = 0; e < 3; e++) {
            apply(&args, &c->edits[e]);
        }
        assert_fails(public_operation(c->operation), &args, c->message);
    }
}

static void edited_merges_fail(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof merge_cases / sizeof merge_cases[0]; i++) {
        const error_case *c = &merge_cases[i];
        pfattn_merge_args args = merge_args(PFATTN_DTYPE_F16);
        for (int e = 0; e < 3; e++) {
            apply(&args, &c->edits[e]);
        }
        pf_problem problem;
        assert_int_equal(pf_problem_from_merge(&args, &problem), PFATTN_ERROR_INVALID_ARGUMENT);
        assert_string_equal(pfattn_last_error(), c->message);
    }
}

/* Each gradient operation with none of its outputs says which there are. */
static void no_output_fails(void **state) {
    (void)state;
    pfattn_attention args = backward_args(PFATTN_DTYPE_F32);
    args.dq = args.dk = args.dv = args.dbias = args.dq2 = args.dk2 =
        (pfattn_tensor)PFATTN_TENSOR_INIT;
    assert_fails(PFATTN_BACKWARD, &args,
                 "args: no output is asked for; at least one of dq, dk, dv, dbias, dq2, dk2 must "
                 "be present");
    args = backward_jvp_args(PFATTN_DTYPE_F32);
    args.tdq = args.tdk = args.tdv = args.tdbias = args.tdq2 = args.tdk2 =
        (pfattn_tensor)PFATTN_TENSOR_INIT;
    assert_fails(PFATTN_BACKWARD_JVP, &args,
                 "args: no output is asked for; at least one of tdq, tdk, tdv, tdbias, tdq2, tdk2 "
                 "must be present");

    pfattn_merge_args merge = merge_args(PFATTN_DTYPE_F32);
    merge.o = merge.lse = merge.to = merge.tlse = (pfattn_tensor)PFATTN_TENSOR_INIT;
    merge.to0 = merge.tlse0 = merge.to1 = merge.tlse1 = (pfattn_tensor)PFATTN_TENSOR_INIT;
    pf_problem problem;
    assert_int_equal(pf_problem_from_merge(&merge, &problem), PFATTN_ERROR_INVALID_ARGUMENT);
    assert_string_equal(pfattn_last_error(), "args: no output is asked for; at least one of o, "
                                             "lse, to, tlse must be present");
}

static void heads_must_divide(void **state) {
    (void)state;
    pfattn_attention args = PFATTN_ATTENTION_INIT;
    args.q = dense(1, PFATTN_DTYPE_F32, B, 4, M, D);
    args.k = dense(2, PFATTN_DTYPE_F32, B, 3, N, D);
    args.v = dense(3, PFATTN_DTYPE_F32, B, 3, N, E);
    args.o = dense(4, PFATTN_DTYPE_F32, B, 4, M, E);
    assert_fails(PFATTN_FORWARD, &args,
                 "k: number of heads (shape[1]) is 3 but q has 4; that of k must divide that of q");
    args.k.shape[1] = args.v.shape[1] = 0;
    assert_fails(PFATTN_FORWARD, &args,
                 "k: number of heads (shape[1]) is 0 but q has 4; that of k must divide that of q");
}

static void e5m2_is_for_forward(void **state) {
    (void)state;
    pfattn_attention args = backward_args(PFATTN_DTYPE_E5M2);
    args.o.dtype = PFATTN_DTYPE_F16;
    assert_fails(PFATTN_BACKWARD, &args,
                 "q: dtype is e5m2, which is for forward alone; backward takes f16, bf16, f32 or "
                 "f64");
    args = backward_jvp_args(PFATTN_DTYPE_E5M2);
    assert_fails(PFATTN_BACKWARD_JVP, &args,
                 "q: dtype is e5m2, which is for forward alone; backward_jvp takes f16, bf16, f32 "
                 "or f64");
    args = forward_args(PFATTN_DTYPE_E5M2);
    args.o.dtype = PFATTN_DTYPE_F64;
    assert_fails(PFATTN_FORWARD, &args,
                 "o: dtype is f64; where q is e5m2 it must be f16 or bf16 or f32 or e5m2");
}

/* With f64 inputs the statistics are f64 too. */
static void f64_statistics_are_f64(void **state) {
    (void)state;
    pfattn_attention args = forward_args(PFATTN_DTYPE_F64);
    args.lse.dtype = PFATTN_DTYPE_F32;
    assert_fails(PFATTN_FORWARD, &args, "lse: dtype is f32; where q is f64 it must be f64");
}

static void scalars_are_checked(void **state) {
    (void)state;
    pfattn_attention args = forward_args(PFATTN_DTYPE_F16);
    args.flags = 0x30;
    assert_fails(PFATTN_FORWARD, &args, "flags: is 0x30, of which 0x30 is no PFATTN_FLAG");
    args.flags = PFATTN_FLAG_CAUSAL | 0x80000000u;
    assert_fails(PFATTN_FORWARD, &args,
                 "flags: is 0x80000001, of which 0x80000000 is no PFATTN_FLAG");
    args.flags = PFATTN_FLAG_ALPHA;
    args.alpha = 1e39;
    assert_fails(PFATTN_FORWARD, &args,
                 "alpha: is 1e+39; it must be finite and at most 3.40282e+38 in magnitude");
    args.alpha = -1.0 / 0.0;
    assert_fails(PFATTN_FORWARD, &args,
                 "alpha: is -inf; it must be finite and at most 3.40282e+38 in magnitude");
    args.alpha = 0.0 / 0.0;
    pf_problem problem;
    assert_int_equal(pf_problem_from_attention(PFATTN_FORWARD, &args, &problem),
                     PFATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(pfattn_last_error(), "nan; it must be finite"));
    args.flags = 0;
    assert_fails((pfattn_operation)7, &args,
                 "operation: is 7; it must be PFATTN_FORWARD, PFATTN_BACKWARD or "
                 "PFATTN_BACKWARD_JVP");
}

/* A length that positions could not hold is refused, whatever the strides. */
static void sequences_have_a_limit(void **state) {
    (void)state;
    pfattn_attention args = PFATTN_ATTENTION_INIT;
    int64_t long_keys = INT64_C(1) << 61;
    args.q = dense(1, PFATTN_DTYPE_F32, 1, 1, M, 1);
    args.k = (pfattn_tensor){address(2), PFATTN_DTYPE_F32, {1, 1, long_keys, 1}, {0, 0, 0, 0}};
    args.v = (pfattn_tensor){address(3), PFATTN_DTYPE_F32, {1, 1, long_keys, 1}, {0, 0, 0, 0}};
    args.o = dense(4, PFATTN_DTYPE_F32, 1, 1, M, 1);
    assert_fails(PFATTN_FORWARD, &args,
                 "k: sequence length (shape[2]) is 2305843009213693952; it must be at most "
                 "1152921504606846975");
}

static void structs_are_checked(void **state) {
    (void)state;
    pf_problem problem;
    assert_int_equal(pf_problem_from_attention(PFATTN_FORWARD, NULL, &problem),
                     PFATTN_ERROR_INVALID_ARGUMENT);
    assert_string_equal(pfattn_last_error(),
                        "args: is NULL; a struct initialised with PFATTN_ATTENTION_INIT is needed");
    assert_int_equal(pf_problem_from_merge(NULL, &problem), PFATTN_ERROR_INVALID_ARGUMENT);
    assert_string_equal(pfattn_last_error(), "args: is NULL; a struct initialised with "
                                             "PFATTN_MERGE_ARGS_INIT is needed");
    pfattn_attention args = forward_args(PFATTN_DTYPE_F16);
    args.struct_size = 0;
    assert_int_equal(pf_problem_from_attention(PFATTN_FORWARD, &args, &problem),
                     PFATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(pfattn_last_error(), "args: struct_size is 0 but this library knows"));
    assert_non_null(strstr(pfattn_last_error(), "PFATTN_ATTENTION_INIT"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edited_descriptors_fail), cmocka_unit_test(edited_merges_fail),
        cmocka_unit_test(no_output_fails),         cmocka_unit_test(heads_must_divide),
        cmocka_unit_test(e5m2_is_for_forward),     cmocka_unit_test(f64_statistics_are_f64),
        cmocka_unit_test(scalars_are_checked),     cmocka_unit_test(sequences_have_a_limit),
        cmocka_unit_test(structs_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
