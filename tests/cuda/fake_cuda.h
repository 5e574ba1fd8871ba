/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 without a GPU: it records calls, refuses what the real driver refuses, and fails
 * where it is told to. The tests reach it through fake_cuda_control(), other programs through
 * FAKE_CUDA_DEVICES, FAKE_CUDA_CAPABILITY (90), FAKE_CUDA_VERSION (13000) and FAKE_CUDA_FAIL
 * (cuInit=999) at start. */
#ifndef PF_TEST_FAKE_CUDA_H
#define PF_TEST_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

#include "kargs.h"

enum {
    FAKE_DEVICES = 4,
    FAKE_CALLS = 4096,
    FAKE_LAUNCHES = 64,
    FAKE_ENCODES = 256,
    FAKE_MAPS = PF_MAP_COUNT
};

typedef struct fake_launch {
    const char *kernel; /* its name */
    const void *image;  /* the bytes its module was loaded from */
    unsigned grid[3], block[3], shared;
    CUstream stream;
    int device;
    int map[FAKE_MAPS]; /* by operand and pf_map: index of the encode whose map was passed, -1 for
                           none */
    uint64_t told[FAKE_MAPS]; /* a checksum of what that encode was told, and of the
                                 address since; 0 for none */
    union {
        pf_attention_kargs attention;
        pf_merge_kargs merge;
        pf_widen_kargs widen;
    } args;
} fake_launch;

typedef struct fake_encode {
    CUtensorMapDataType type;
    unsigned rank;
    void *address;
    cuuint64_t extent[5], stride[4];
    cuuint32_t box[5];
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
    CUtensorMapFloatOOBfill fill;
} fake_encode;

typedef struct fake_cuda {
    /* What there is. */
    int version;
    int device_count;
    int capability[FAKE_DEVICES]; /* 10 * major + minor */
    int multiprocessors, shared_bytes;

    /* The call of this name fails, once `fail_after` calls of it have passed. */
    const char *fail_call;
    CUresult fail_result;
    int fail_after;

    /* A stream of the calling thread is being captured in global mode: what may synchronise is
     * refused and breaks the capture, unless the thread has stepped out of it. */
    bool capturing;
    CUstream captured;
    bool capture_broken;

    /* What was called. */
    int call_count;
    const char *calls[FAKE_CALLS];
    int launch_count;
    fake_launch launches[FAKE_LAUNCHES];
    int encode_count;
    fake_encode encodes[FAKE_ENCODES];

    /* What is held. */
    int retained[FAKE_DEVICES];
    int modules, events, allocations, graphs, executables;
    void *last_graph, *last_executable; /* made, and from malloc */
} fake_cuda;

typedef fake_cuda *fake_cuda_control_function(void);

#endif
