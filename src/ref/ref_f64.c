/* SPDX-License-Identifier: Apache-2.0 */
/* The reference in double, for f64 problems: the oracle. */
#include "job.h"

#include <math.h>
#include <string.h>

typedef double real;
#define COMPUTE pf_ref_compute_f64
#define SCRATCH_BYTES pf_ref_scratch_f64

static inline double exponential(double x) {
    return exp(x);
}

static inline double logarithm(double x) {
    return log(x);
}

#include "real_attention.h"
