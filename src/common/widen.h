/* SPDX-License-Identifier: Apache-2.0 */
/* Forward of e5m2 through a kernel for f16: q, k and v, and the far pair, are copied as f16, which
 * is exact, since e5m2 is the upper byte of f16. */
#ifndef PF_WIDEN_H
#define PF_WIDEN_H

#include <stdbool.h>
#include <stdint.h>

#include "kargs.h"
#include "problem.h"
#include "scratch.h"

/* Can a kernel for f16 take the place of one for e5m2? */
bool pf_can_widen(const pf_problem *problem);

/* Does that kernel not write O's type? It writes f16 and f32. */
bool pf_needs_narrowing(const pf_problem *problem);

/* Rows of the copy of the n-th operand (of PF_WIDENED), 0 where it is absent or without elements; a
 * batch or head that is broadcast is copied once. INT64_MAX where they are too many. */
int64_t pf_widened_rows(const pf_problem *problem, int n);

/* Channels from row to row of the copy: rows begin at multiples of 16 bytes. */
int64_t pf_widened_row_stride(const pf_problem *problem, int n);

/* Workgroups of pf_widen for all. */
int64_t pf_widen_blocks(const pf_problem *problem);

/* The problem with the copies for operands; their addresses are `workspace` and the places that the
 * scratch gives them, NULL where there is no scratch yet. */
void pf_widen_problem(const pf_problem *problem, const pf_scratch *scratch,
                      unsigned long long workspace, pf_problem *wide);

void pf_widen_kargs_fill(const pf_problem *problem, const pf_problem *wide, pf_widen_kargs *args);

#endif
