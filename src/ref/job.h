/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the reference, as ref.c hands it to the code for float or for double. */
#ifndef PF_REF_JOB_H
#define PF_REF_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/problem.h"

typedef struct pf_ref_job {
    const pf_problem *problem;
    pfattn_dtype product; /* the type that round and flush speak of */
    bool round;           /* round_products */
    bool flush;           /* flush_subnormals */
    int64_t far;          /* query i uses pair 2 for key j where i - j >= far */
    int threads;
    char *scratch; /* threads * scratch_bytes */
    size_t scratch_bytes;
} pf_ref_job;

/* Bytes of scratch that one thread needs; false where they do not fit a size_t. */
bool pf_ref_scratch_f32(const pf_problem *problem, size_t *bytes);
bool pf_ref_scratch_f64(const pf_problem *problem, size_t *bytes);

void pf_ref_compute_f32(const pf_ref_job *job);
void pf_ref_compute_f64(const pf_ref_job *job);

#endif
