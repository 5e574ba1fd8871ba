/* SPDX-License-Identifier: Apache-2.0 */
/* The reference in float, for f32, f16, bf16 and e5m2 problems. */
#include "job.h"

#include <math.h>
#include <string.h>

#include "exponential.h"
#include "rounding.h"

typedef float real;
#define COMPUTE pf_ref_compute_f32
#define SCRATCH_BYTES pf_ref_scratch_f32

static inline __attribute__((always_inline)) float exponential(float x) {
    return pf_exponential(x);
}

static inline float logarithm(float x) {
    return logf(x);
}

static void round_row(const pf_ref_job *job, float *row, int count) {
    pf_round_row_f32(job, row, count);
}

#include "real_attention.h"
