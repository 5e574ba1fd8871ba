/* SPDX-License-Identifier: Apache-2.0 */
/* The time of one operation on one problem. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "check_case.h"
#include "session.h"

typedef struct bench_plan {
    int64_t rounds;       /* the median of so many rounds is taken */
    double round_seconds; /* each at least this long */
} bench_plan;

typedef struct bench_result {
    double seconds;     /* per call, median of the rounds */
    double least, most; /* of the rounds */
    int64_t sets;       /* input sets used in turn */
    double flops;       /* of a call */
    double bytes;       /* of its inputs and outputs */
} bench_result;

/* Time the last call of the case. On a GPU several input sets are used in turn, together larger
 * than any cache, and device events measure. On failure the status has its sentence in
 * pfattn_last_error(). */
pfattn_status bench_measure(tool_session *session, const check_case *c, const bench_plan *plan,
                            bench_result *result);

#endif
