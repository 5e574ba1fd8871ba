/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical problem: what a descriptor says once every check has passed. Nothing below api.c
 * reads a descriptor again. */
#ifndef PF_PROBLEM_H
#define PF_PROBLEM_H

#include <stdbool.h>

#include <pfattn/pfattn.h>

/* Every tensor of pfattn_attention, in its order: (identifier, field). */
#define PF_ATTENTION_TENSORS(X)                                                                    \
    X(Q, q)                                                                                        \
    X(K, k)                                                                                        \
    X(V, v)                                                                                        \
    X(BIAS, bias)                                                                                  \
    X(MASK, mask)                                                                                  \
    X(Q2, q2)                                                                                      \
    X(K2, k2)                                                                                      \
    X(TQ, tq)                                                                                      \
    X(TK, tk)                                                                                      \
    X(TV, tv)                                                                                      \
    X(TBIAS, tbias)                                                                                \
    X(TQ2, tq2)                                                                                    \
    X(TK2, tk2)                                                                                    \
    X(O, o)                                                                                        \
    X(LSE, lse)                                                                                    \
    X(TO, to)                                                                                      \
    X(TLSE, tlse)                                                                                  \
    X(DOUT, dout)                                                                                  \
    X(DLSE, dlse)                                                                                  \
    X(TDOUT, tdout)                                                                                \
    X(DQ, dq)                                                                                      \
    X(DK, dk)                                                                                      \
    X(DV, dv)                                                                                      \
    X(DBIAS, dbias)                                                                                \
    X(DQ2, dq2)                                                                                    \
    X(DK2, dk2)                                                                                    \
    X(TDQ, tdq)                                                                                    \
    X(TDK, tdk)                                                                                    \
    X(TDV, tdv)                                                                                    \
    X(TDBIAS, tdbias)                                                                              \
    X(TDQ2, tdq2)                                                                                  \
    X(TDK2, tdk2)

/* The inputs of pfattn_merge_args; its outputs are PF_O, PF_LSE, PF_TO, PF_TLSE. */
#define PF_MERGE_TENSORS(X)                                                                        \
    X(O0, o0)                                                                                      \
    X(LSE0, lse0)                                                                                  \
    X(TO0, to0)                                                                                    \
    X(TLSE0, tlse0)                                                                                \
    X(O1, o1)                                                                                      \
    X(LSE1, lse1)                                                                                  \
    X(TO1, to1)                                                                                    \
    X(TLSE1, tlse1)

typedef enum pf_tensor_id {
#define X(id, field) PF_##id,
    PF_ATTENTION_TENSORS(X) PF_MERGE_TENSORS(X)
#undef X
        PF_TENSOR_COUNT
} pf_tensor_id;

typedef enum pf_operation {
    PF_FORWARD,
    PF_FORWARD_JVP,
    PF_BACKWARD,
    PF_BACKWARD_JVP,
    PF_MERGE,
    PF_OPERATION_COUNT
} pf_operation;

/* What an operation does not have is 0: a merge has B, H, M and E. */
typedef struct pf_problem {
    pf_operation operation;
    pfattn_dtype dtype; /* of q, k, v and what shares their type; of o0 in a merge */
    int64_t batch;      /* B */
    int64_t heads;      /* H */
    int64_t kv_heads;   /* Hk */
    int64_t queries;    /* M */
    int64_t keys;       /* N */
    int64_t dim_qk;     /* D */
    int64_t dim_v;      /* E */
    double alpha;
    bool causal;
    bool piecewise;
    bool deterministic;
    /* Key position of query 0, and w where piecewise. Both are brought close to the range of j - i
     * where they lie beyond it, which changes no answer: no sum of them and of positions can
     * overflow, nor leave int32 where 4 * (M + N) does not. */
    int64_t diagonal;
    int64_t distance;
    /* Absent: dtype NONE and all else zero. Present: the stride of a dimension of size 1 is 0, so a
     * bias may be indexed with the full (b, h, i, j); a tensor without elements has zero strides.
     */
    pfattn_tensor tensor[PF_TENSOR_COUNT];
} pf_problem;

static inline bool pf_present(const pf_problem *problem, pf_tensor_id id) {
    return problem->tensor[id].dtype != PFATTN_DTYPE_NONE;
}

/* A set of tensors has a bit for each. */
typedef uint64_t pf_tensor_set;

static inline pf_tensor_set pf_tensor_bit(int id) {
    return UINT64_C(1) << id;
}

/* Take the first tensor out of a set that has one. */
static inline int pf_take_first(pf_tensor_set *set) {
    int id = __builtin_ctzll(*set);
    *set &= *set - 1;
    return id;
}

/* What the problem's operation writes, if it is there. */
pf_tensor_set pf_problem_outputs(const pf_problem *problem);

/* `*view` is the descriptor where it has this library's own size, else `own`, a copy that has. */
pfattn_status pf_attention_view(const pfattn_attention *args, pfattn_attention *own,
                                const pfattn_attention **view);

/* Check a descriptor and fill `*problem`; on failure the thread's error names the field, its value
 * and what is allowed, and what `*problem` holds means nothing. */
pfattn_status pf_problem_from_attention(pfattn_operation operation, const pfattn_attention *args,
                                        pf_problem *problem);
pfattn_status pf_problem_from_merge(const pfattn_merge_args *args, pf_problem *problem);

/* The field's name in the public structs, "tq" for PF_TQ. */
const char *pf_tensor_name(pf_tensor_id id);

#endif
