/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that a handle has checked and planned. A program repeats a few calls with tensors at other
 * addresses, or at the same: what follows from everything but the addresses is kept. A handle is
 * used by one thread at a time, so these need no lock. */
#ifndef PF_CALL_H
#define PF_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan_run.h"
#include "problem.h"

enum { PF_KNOWN_CALLS = 8 };

/* A backend's own: how it enqueues a call that repeats. */
typedef struct pf_call_graph pf_call_graph;

/* A call as a backend takes it. */
typedef struct pf_call {
    pf_problem problem;
    pf_plan plan;
    size_t workspace_bytes; /* that it needs */
    void *workspace;        /* of this launch */
    /* A backend has filled `arguments` for the addresses of the problem and the workspace. */
    bool filled;
    pf_plan_arguments arguments;
    bool launched;        /* before, with whatever arguments */
    pf_call_graph *graph; /* NULL where there is none; the backend's call_release ends it */
} pf_call;

/* A call and the descriptor that it was made from. */
typedef struct pf_known_call {
    pfattn_operation operation;
    pf_tensor_set present;  /* 0 where there is no call */
    pf_tensor_set occupied; /* those that have elements */
    pf_tensor_set outputs;  /* those of them that are written */
    pfattn_attention args;  /* but for tensors that are not present */
    pf_call call;
} pf_known_call;

typedef struct pf_calls {
    pf_known_call known[PF_KNOWN_CALLS];
    int next; /* the oldest, which the next one replaces */
} pf_calls;

/* The call of a descriptor of this library's own size, at the descriptor's addresses: NULL where no
 * call is known that differs in addresses alone, or where the new ones need to be looked at again,
 * because they are wrong or may lead to other kernels. */
pf_call *pf_calls_find(pf_calls *calls, pfattn_operation operation, const pfattn_attention *args);

/* Where a call that was not found is made, in place of another that is still to be released; kept,
 * and found again, after pf_calls_keep. */
pf_call *pf_calls_place(pf_calls *calls);
void pf_calls_keep(pf_calls *calls, pfattn_operation operation, const pfattn_attention *args);

/* Plans would now be others. */
void pf_calls_forget(pf_calls *calls);

/* A new call, of which nothing is there. */
void pf_call_begin(pf_call *call);

/* Fill the arguments, but for the maps, unless they are filled already. */
void pf_call_fill(pf_call *call);

/* Set the workspace of the next launch. */
void pf_call_set_workspace(pf_call *call, void *workspace);

#endif
