/* SPDX-License-Identifier: Apache-2.0 */
/* A libamdhip64 without a GPU: it records launches and fails where it is told to. The tests reach
 * its state through fake_hip_control(). */
#ifndef PF_TEST_FAKE_HIP_H
#define PF_TEST_FAKE_HIP_H

#include <stddef.h>

#include "kargs.h"

enum { FAKE_LAUNCHES = 64 };

typedef struct fake_launch {
    const char *kernel; /* its name */
    const void *image;  /* the bytes its module was loaded from */
    unsigned grid[3], block[3], shared;
    void *stream;
    int device;
    union {
        pf_attention_kargs attention;
        pf_merge_kargs merge;
    } args;
} fake_launch;

typedef struct fake_hip {
    int device_count;
    const char *arch; /* as gcnArchName has it */

    /* The call of this name fails, once `fail_after` calls of it have passed. */
    const char *fail_call;
    int fail_result, fail_after;

    int launch_count;
    fake_launch launches[FAKE_LAUNCHES];
    int loads;

    /* What is held. */
    int current_device;
    int modules, events, allocations;
} fake_hip;

typedef fake_hip *fake_hip_control_function(void);

#endif
