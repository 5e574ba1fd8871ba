/* SPDX-License-Identifier: Apache-2.0 */
/* Which problems have their bias and mask staged tile by tile (STAGED BIAS in kernels/port.h); in
 * the others kernels look them up element by element. */
#ifndef PF_STAGED_BIAS_H
#define PF_STAGED_BIAS_H

#include "kargs.h"
#include "problem.h"
#include "tuning.h"

/* Stages of the ring of tiles; 0 where the kernel stages none, or a tensor does not allow it. Where
 * in forward there is no room for tiles of all tensors at once each has a stage of its own, `apart`
 * from the others. */
int pf_bias_stages(const pf_problem *problem, const pf_tuning *tuning, bool *apart);

/* PF_STAGED_* of the problem in such a kernel. */
int pf_staged(const pf_problem *problem, const pf_tuning *tuning);

/* Whether dbias, of a problem with such stages, leaves by tiles. */
bool pf_dbias_is_staged(const pf_problem *problem);

/* Whether one row of bias or mask stands for all queries. */
bool pf_is_one_row(const pfattn_tensor *tensor);

/* The tensor of a PF_MAP_* but PF_MAP_DBIAS. */
pf_tensor_id pf_map_tensor(int map);

#endif
