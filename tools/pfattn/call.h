/* SPDX-License-Identifier: Apache-2.0 */
/* One call of the library, built from a table of tensors: which of them each operation reads and
 * writes, and the descriptor made of those. */
#ifndef CALL_H
#define CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "problem.h"
#include "session.h"

#define TENSOR_BIT(id) (UINT64_C(1) << (id))

/* The scalars of an attention problem. */
typedef struct call_scalars {
    uint32_t flags; /* PFATTN_FLAG_* */
    double alpha;
    int64_t diagonal;
    int64_t distance;
} call_scalars;

typedef struct tool_call {
    pf_operation operation;
    pfattn_attention attention; /* of every operation but PF_MERGE */
    pfattn_merge_args merge;    /* of PF_MERGE */
} tool_call;

/* Sets of TENSOR_BIT. */
uint64_t call_inputs(pf_operation operation);
uint64_t call_outputs(pf_operation operation);
uint64_t call_tangent_inputs(void);

/* The tensor of which `id` is the tangent, the cotangent or the tangent of the cotangent: PF_Q for
 * PF_TQ, PF_DQ and PF_TDQ; `id` itself where it is none. */
pf_tensor_id call_primal(pf_tensor_id id);

/* The operation's call on those of `tensors` (indexed by pf_tensor_id) that it uses. */
void call_build(tool_call *call, pf_operation operation, const call_scalars *scalars,
                const pfattn_tensor *tensors);

pfattn_status call_supported(tool_session *session, const tool_call *call);

/* Bytes of workspace; 0 for a merge. */
pfattn_status call_workspace(tool_session *session, const tool_call *call, size_t *bytes);

/* Enqueue the call on the default stream. */
pfattn_status call_launch(tool_session *session, const tool_call *call, void *workspace,
                          size_t bytes);

#endif
