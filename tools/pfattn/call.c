/* SPDX-License-Identifier: Apache-2.0 */
#include "call.h"

#include <string.h>

#define BIT(id) TENSOR_BIT(PF_##id)

static const uint64_t primal_inputs =
    BIT(Q) | BIT(K) | BIT(V) | BIT(BIAS) | BIT(MASK) | BIT(Q2) | BIT(K2);
static const uint64_t tangent_inputs =
    BIT(TQ) | BIT(TK) | BIT(TV) | BIT(TBIAS) | BIT(TQ2) | BIT(TK2);
static const uint64_t merge_inputs =
    BIT(O0) | BIT(LSE0) | BIT(TO0) | BIT(TLSE0) | BIT(O1) | BIT(LSE1) | BIT(TO1) | BIT(TLSE1);

uint64_t call_inputs(pf_operation operation) {
    switch (operation) {
    case PF_FORWARD:
        return primal_inputs;
    case PF_FORWARD_JVP:
        return primal_inputs | tangent_inputs;
    case PF_BACKWARD:
        return primal_inputs | BIT(O) | BIT(LSE) | BIT(DOUT) | BIT(DLSE);
    case PF_BACKWARD_JVP:
        return primal_inputs | tangent_inputs | BIT(O) | BIT(LSE) | BIT(TO) | BIT(TLSE) |
               BIT(DOUT) | BIT(DLSE) | BIT(TDOUT);
    case PF_MERGE:
        return merge_inputs;
    default:
        return 0;
    }
}

uint64_t call_outputs(pf_operation operation) {
    switch (operation) {
    case PF_FORWARD:
        return BIT(O) | BIT(LSE);
    case PF_FORWARD_JVP:
    case PF_MERGE:
        return BIT(O) | BIT(LSE) | BIT(TO) | BIT(TLSE);
    case PF_BACKWARD:
        return BIT(DQ) | BIT(DK) | BIT(DV) | BIT(DBIAS) | BIT(DQ2) | BIT(DK2);
    case PF_BACKWARD_JVP:
        return BIT(TDQ) | BIT(TDK) | BIT(TDV) | BIT(TDBIAS) | BIT(TDQ2) | BIT(TDK2);
    default:
        return 0;
    }
}

uint64_t call_tangent_inputs(void) {
    return tangent_inputs;
}

pf_tensor_id call_primal(pf_tensor_id id) {
    static const pf_tensor_id primals[][4] = {
        {PF_Q, PF_TQ, PF_DQ, PF_TDQ},          {PF_K, PF_TK, PF_DK, PF_TDK},
        {PF_V, PF_TV, PF_DV, PF_TDV},          {PF_BIAS, PF_TBIAS, PF_DBIAS, PF_TDBIAS},
        {PF_Q2, PF_TQ2, PF_DQ2, PF_TDQ2},      {PF_K2, PF_TK2, PF_DK2, PF_TDK2},
        {PF_O, PF_TO, PF_DOUT, PF_TDOUT},      {PF_LSE, PF_TLSE, PF_DLSE, PF_DLSE},
        {PF_O, PF_O0, PF_TO0, PF_TO0},         {PF_O, PF_O1, PF_TO1, PF_TO1},
        {PF_LSE, PF_LSE0, PF_TLSE0, PF_TLSE0}, {PF_LSE, PF_LSE1, PF_TLSE1, PF_TLSE1},
    };
    for (size_t i = 0; i < sizeof primals / sizeof *primals; i++) {
        for (int j = 0; j < 4; j++) {
            if (primals[i][j] == id) {
                return primals[i][0];
            }
        }
    }
    return id;
}

void call_build(tool_call *call, pf_operation operation, const call_scalars *scalars,
                const pfattn_tensor *tensors) {
    uint64_t used = call_inputs(operation) | call_outputs(operation);
    memset(call, 0, sizeof *call);
    call->operation = operation;
    call->attention = (pfattn_attention)PFATTN_ATTENTION_INIT;
    call->merge = (pfattn_merge_args)PFATTN_MERGE_ARGS_INIT;
    if (operation == PF_MERGE) {
#define X(id, field) call->merge.field = tensors[PF_##id];
        PF_MERGE_TENSORS(X)
        X(O, o)
        X(LSE, lse)
        X(TO, to)
        X(TLSE, tlse)
#undef X
        return;
    }
    call->attention.flags = scalars->flags;
    call->attention.alpha = scalars->alpha;
    call->attention.diagonal = scalars->diagonal;
    call->attention.distance = scalars->distance;
#define X(id, field)                                                                               \
    if (used & BIT(id)) {                                                                          \
        call->attention.field = tensors[PF_##id];                                                  \
    }
    PF_ATTENTION_TENSORS(X)
#undef X
}

static pfattn_operation public_operation(pf_operation operation) {
    switch (operation) {
    case PF_BACKWARD:
        return PFATTN_BACKWARD;
    case PF_BACKWARD_JVP:
        return PFATTN_BACKWARD_JVP;
    default:
        return PFATTN_FORWARD;
    }
}

pfattn_status call_supported(tool_session *session, const tool_call *call) {
    if (call->operation != PF_MERGE) {
        return pfattn_supported(session->handle, public_operation(call->operation),
                                &call->attention);
    }
    pf_problem problem;
    pf_plan plan;
    pfattn_status status = pf_problem_from_merge(&call->merge, &problem);
    return status == PFATTN_SUCCESS ? session->backend->plan(session->device, &problem, &plan)
                                    : status;
}

pfattn_status call_workspace(tool_session *session, const tool_call *call, size_t *bytes) {
    if (call->operation == PF_MERGE) {
        *bytes = 0;
        return PFATTN_SUCCESS;
    }
    return pfattn_workspace_size(session->handle, public_operation(call->operation),
                                 &call->attention, bytes);
}

pfattn_status call_launch(tool_session *session, const tool_call *call, void *workspace,
                          size_t bytes) {
    switch (call->operation) {
    case PF_BACKWARD:
        return pfattn_backward(session->handle, &call->attention, workspace, bytes, NULL);
    case PF_BACKWARD_JVP:
        return pfattn_backward_jvp(session->handle, &call->attention, workspace, bytes, NULL);
    case PF_MERGE:
        return pfattn_merge(session->handle, &call->merge, NULL);
    default:
        return pfattn_forward(session->handle, &call->attention, workspace, bytes, NULL);
    }
}
