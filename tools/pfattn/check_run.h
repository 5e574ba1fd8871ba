/* SPDX-License-Identifier: Apache-2.0 */
/* One case on one backend, judged. */
#ifndef CHECK_RUN_H
#define CHECK_RUN_H

#include "check_case.h"
#include "session.h"

typedef enum verdict { VERDICT_PASSED, VERDICT_FAILED, VERDICT_SKIPPED } verdict;

typedef struct check_result {
    verdict verdict;
    double ratio; /* the largest error / bound of any result, 0 where nothing was compared */
    double seconds;
    char message[640]; /* why it failed or was skipped */
} check_result;

void check_run(tool_session *session, const check_case *c, uint64_t seed, check_result *result);

#endif
