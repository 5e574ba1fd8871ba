/* SPDX-License-Identifier: Apache-2.0 */
#include "call.h"

#include <string.h>

#include "tensor.h"

enum { ATTENTION_TENSORS = PF_TDK2 + 1 };

/* What pf_tensor_map_obstacle and the alignment of elements ask of an address. */
enum { ADDRESS_MULTIPLE = 16 };

_Static_assert(offsetof(pfattn_attention, q) + ATTENTION_TENSORS * sizeof(pfattn_tensor) ==
                   sizeof(pfattn_attention),
               "a descriptor ends with its tensors, in the order of their identifiers");

static const pfattn_tensor *tensors_of(const pfattn_attention *args) {
    return (const pfattn_tensor *)((const char *)args + offsetof(pfattn_attention, q));
}

static pf_tensor_set present_tensors(const pfattn_tensor *tensors) {
    pf_tensor_set present = 0;
    for (int id = 0; id < ATTENTION_TENSORS; id++) {
        present |= (pf_tensor_set)(tensors[id].dtype != PFATTN_DTYPE_NONE) << id;
    }
    return present;
}

static bool same_but_address(const pfattn_tensor *a, const pfattn_tensor *b) {
    uint64_t differs = (uint64_t)((uintptr_t)a->data ^ (uintptr_t)b->data) % ADDRESS_MULTIPLE |
                       (uint64_t)(a->dtype ^ b->dtype);
    for (int d = 0; d < 4; d++) {
        differs |= (uint64_t)(a->shape[d] ^ b->shape[d]) | (uint64_t)(a->stride[d] ^ b->stride[d]);
    }
    return differs == 0;
}

static bool same_scalars(const pfattn_attention *a, const pfattn_attention *b) {
    return a->flags == b->flags && a->diagonal == b->diagonal && a->distance == b->distance &&
           memcmp(&a->alpha, &b->alpha, sizeof a->alpha) == 0;
}

static bool is_same(const pf_known_call *known, pfattn_operation operation,
                    const pfattn_attention *args, pf_tensor_set present) {
    if (known->present != present || known->operation != operation ||
        !same_scalars(&known->args, args)) {
        return false;
    }
    const pfattn_tensor *of_known = tensors_of(&known->args), *of_args = tensors_of(args);
    while (present != 0) {
        int id = pf_take_first(&present);
        if (!same_but_address(&of_known[id], &of_args[id])) {
            return false;
        }
    }
    return true;
}

/* Which tensors are at another address than the known call's. */
static pf_tensor_set moved_tensors(const pf_known_call *known, const pfattn_tensor *tensors) {
    pf_tensor_set moved = 0;
    for (pf_tensor_set rest = known->present; rest != 0;) {
        int id = pf_take_first(&rest);
        moved |= (pf_tensor_set)(known->call.problem.tensor[id].data != tensors[id].data) << id;
    }
    return moved;
}

/* Would the checks of a descriptor let the tensors be there? */
static bool may_move(const pf_known_call *known, const pfattn_tensor *tensors,
                     pf_tensor_set moved) {
    for (pf_tensor_set rest = moved & known->occupied; rest != 0;) {
        int id = pf_take_first(&rest);
        if (!pf_tensor_fits(&known->call.problem.tensor[id], tensors[id].data)) {
            return false;
        }
    }
    for (pf_tensor_set outputs = known->outputs; outputs != 0;) {
        int output = pf_take_first(&outputs);
        for (pf_tensor_set rest = known->occupied & ~pf_tensor_bit(output); rest != 0;) {
            if (tensors[pf_take_first(&rest)].data == tensors[output].data) {
                return false;
            }
        }
    }
    return true;
}

static bool move(pf_known_call *known, const pfattn_attention *args) {
    const pfattn_tensor *tensors = tensors_of(args);
    pf_tensor_set moved = moved_tensors(known, tensors);
    if (moved == 0) {
        return true;
    }
    if (!may_move(known, tensors, moved)) {
        return false;
    }
    known->call.filled = false;
    while (moved != 0) {
        int id = pf_take_first(&moved);
        known->call.problem.tensor[id].data = tensors[id].data;
    }
    return true;
}

pf_call *pf_calls_find(pf_calls *calls, pfattn_operation operation, const pfattn_attention *args) {
    pf_tensor_set present = present_tensors(tensors_of(args));
    for (int i = 0; i < PF_KNOWN_CALLS && present != 0; i++) {
        pf_known_call *known = &calls->known[i];
        if (is_same(known, operation, args, present)) {
            return move(known, args) ? &known->call : NULL;
        }
    }
    return NULL;
}

pf_call *pf_calls_place(pf_calls *calls) {
    pf_known_call *known = &calls->known[calls->next];
    known->present = 0;
    return &known->call;
}

void pf_calls_keep(pf_calls *calls, pfattn_operation operation, const pfattn_attention *args) {
    pf_known_call *known = &calls->known[calls->next];
    const pf_problem *problem = &known->call.problem;
    known->operation = operation;
    known->args = *args;
    known->present = present_tensors(tensors_of(args));
    known->occupied = 0;
    for (pf_tensor_set rest = known->present; rest != 0;) {
        int id = pf_take_first(&rest);
        known->occupied |= pf_tensor_elements(&problem->tensor[id]) > 0 ? pf_tensor_bit(id) : 0;
    }
    known->outputs = known->occupied & pf_problem_outputs(problem);
    calls->next = (calls->next + 1) % PF_KNOWN_CALLS;
}

void pf_calls_forget(pf_calls *calls) {
    for (int i = 0; i < PF_KNOWN_CALLS; i++) {
        calls->known[i].present = 0;
    }
}

void pf_call_begin(pf_call *call) {
    call->filled = call->arguments.mapped = call->launched = false;
    call->graph = NULL;
}

void pf_call_fill(pf_call *call) {
    if (!call->filled) {
        pf_plan_fill(&call->problem, &call->plan, (uintptr_t)call->workspace, &call->arguments);
        call->filled = true;
    }
}

void pf_call_set_workspace(pf_call *call, void *workspace) {
    call->filled = call->filled && call->workspace == workspace;
    call->workspace = workspace;
}
