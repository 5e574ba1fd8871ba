/* SPDX-License-Identifier: Apache-2.0 */
/* The reference in double, for f64 problems: the oracle. */
#include "job.h"

#include <math.h>
#include <string.h>

#include "common/formats.h"

typedef double real;
#define COMPUTE pf_ref_compute_f64
#define SCRATCH_BYTES pf_ref_scratch_f64

static inline double exponential(double x) {
    return exp(x);
}

static inline double logarithm(double x) {
    return log(x);
}

static void round_row(const pf_ref_job *job, double *row, int count) {
    for (int n = 0; n < count; n++) {
        const double rounded = pf_round(row[n], job->product);
        if (job->flush && fabs(rounded) < pf_smallest_normal(job->product)) {
            row[n] = 0;
        } else if (job->round) {
            row[n] = rounded;
        }
    }
}

#include "real_attention.h"
