/* SPDX-License-Identifier: Apache-2.0 */
/* Where each part of a call's scratch memory lies. Used both to size it and to launch with it. */
#ifndef PF_SCRATCH_H
#define PF_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kargs.h"
#include "problem.h"

enum { PF_SCRATCH_ALIGNMENT = 256 };

/* A part that the call does not use. */
#define PF_SCRATCH_NONE SIZE_MAX

/* Byte offsets of the parts; their shapes are written in kargs.h. */
typedef struct pf_scratch {
    size_t bytes;
    size_t key_live;
    size_t query_stats;
    size_t query_live;
    size_t dq_sum[2];
    size_t dq_turn[2];
    size_t dbias_sum;
    size_t parts;
    size_t split_o, split_lse, split_to, split_tlse; /* parts of forward; see pf_key_split */
    size_t wide_o;                                   /* O as f32, where it is narrowed */
    size_t widened[PF_WIDENED];                      /* f16 copies of operands; see widen.h */
    size_t zero_offset, zero_bytes; /* what begins at 0: dq_sum and dq_turn, which adjoin */
    int64_t live_batch, live_heads; /* extents of key_live: 1, or B and Hk */
    bool live_each_head;            /* mask or bias differ between query heads */
    int64_t queries_padded, keys_padded;
    int64_t o_channels; /* from row to row of split_o, split_to and wide_o */
} pf_scratch;

/* What select decided. A tile of 0 means that the kernel does not run. */
typedef struct pf_scratch_needs {
    int query_tile;   /* queries of a tile of the main kernel of backward */
    int head_dim;     /* channels of dq_sum */
    int dq_parts;     /* workgroups that divide the channels of a tile of dq among them */
    int dbias_tile;   /* queries of a tile of the dbias kernel */
    int dbias_splits; /* copies of dbias_sum, 0 where there is none */
    int parts;        /* of dK and dV where items of backward are divided, 0 where they are not */
    int part_size;    /* elements of one */
    int split_parts;  /* of forward's items that are split by keys, 0 where they are not */
    int split_rows;   /* queries of each */
    bool widened;     /* the operands of forward are copied as f16 */
    bool narrowed;    /* forward writes O as f32 */
} pf_scratch_needs;

/* Lay the scratch out; false where its size would overflow. */
bool pf_scratch_layout(const pf_problem *problem, const pf_scratch_needs *needs,
                       pf_scratch *scratch);

/* Is it backward or backward_jvp? */
static inline bool pf_is_backward(const pf_problem *problem) {
    return problem->operation == PF_BACKWARD || problem->operation == PF_BACKWARD_JVP;
}

/* The output that stands for a gradient (PF_DQ to PF_DK2): its tangent in backward_jvp. */
static inline const pfattn_tensor *pf_gradient(const pf_problem *problem, pf_tensor_id id) {
    return &problem->tensor[problem->operation == PF_BACKWARD_JVP ? id + (PF_TDQ - PF_DQ) : id];
}

static inline bool pf_wants_gradient(const pf_problem *problem, pf_tensor_id id) {
    return pf_gradient(problem, id)->dtype != PFATTN_DTYPE_NONE;
}

#endif
