/* SPDX-License-Identifier: Apache-2.0 */
/* The whole reference in the type `real`; included by ref_f32.c and ref_f64.c, which define it,
 * exponential(), logarithm(), round_row() and the names of the two entry points. */

#include "real_kernels.h"
#include "real_tile.h"
#include "real_forward.h"
#include "real_backward.h"
#include "real_merge.h"

bool SCRATCH_BYTES(const pf_problem *problem, size_t *bytes) {
    scratch t;
    return lay_out(&t, problem, NULL, bytes);
}

void COMPUTE(const pf_ref_job *job) {
    switch (job->problem->operation) {
    case PF_FORWARD:
    case PF_FORWARD_JVP:
        forward(job);
        break;
    case PF_BACKWARD:
    case PF_BACKWARD_JVP:
        backward(job);
        break;
    case PF_MERGE:
        merge(job);
        break;
    case PF_OPERATION_COUNT:
        break;
    }
}
