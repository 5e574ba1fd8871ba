/* SPDX-License-Identifier: Apache-2.0 */
/* From a problem and its plan to what the kernels read. Pure, and shared by the GPU backends. */
#ifndef PF_KARGS_FILL_H
#define PF_KARGS_FILL_H

#include "kargs.h"
#include "problem.h"
#include "select.h"

pf_divisor pf_divisor_of(int value);

/* Every field but work_count, which is each step's own. `workspace` is the device address of the
 * scratch memory. */
void pf_kargs_fill(const pf_problem *problem, const pf_plan *plan, unsigned long long workspace,
                   pf_attention_kargs *args);

/* The order in which workgroups (or clusters) do so many items, once by_tiles and windows are
 * filled. */
void pf_kargs_share(int workgroups, int work, pf_attention_kargs *args);

/* Where the last items, of so many tiles of queries each, are what whole rounds leave. */
void pf_kargs_divide(int items, int tiles, int clusters, int work, pf_attention_kargs *args);

void pf_merge_kargs_fill(const pf_problem *problem, pf_merge_kargs *args);

/* Of the pass that rounds O after a forward that wrote it as f32. */
void pf_narrow_kargs_fill(const pf_problem *problem, const pf_attention_kargs *forward,
                          pf_merge_kargs *args);

/* One past the last row of an operand that kernels read: M, or key_end of its pair (v: of any). */
int pf_operand_rows(const pf_attention_kargs *args, int operand);

/* Which tensor of the problem an operand is. */
pf_tensor_id pf_operand_tensor(int operand);

#endif
