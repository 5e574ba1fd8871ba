/* SPDX-License-Identifier: Apache-2.0 */
/* The HIP runtime, opened at run time. What is used of its interface is declared here, so that no
 * header of ROCm is needed; it is the same in HIP 5, 6 and 7. */
#ifndef PF_HIP_DRIVER_H
#define PF_HIP_DRIVER_H

#include <stddef.h>

#include <pfattn/pfattn.h>

/* hipError_t, as far as it is told apart here. */
typedef enum pf_hip_error {
    PF_HIP_SUCCESS = 0,
    PF_HIP_OUT_OF_MEMORY = 2,
    PF_HIP_INSUFFICIENT_DRIVER = 35,
    PF_HIP_NO_DEVICE = 100,
    PF_HIP_INVALID_DEVICE = 101,
    PF_HIP_INVALID_IMAGE = 200,
    PF_HIP_INVALID_CONTEXT = 201,
    PF_HIP_NO_BINARY_FOR_GPU = 209,
    PF_HIP_INVALID_HANDLE = 400,
    PF_HIP_ILLEGAL_ADDRESS = 700,
    PF_HIP_LAUNCH_OUT_OF_RESOURCES = 701,
    PF_HIP_LAUNCH_FAILURE = 719,
    PF_HIP_CAPTURE_UNSUPPORTED = 900,
    PF_HIP_CAPTURE_INVALIDATED = 901,
    PF_HIP_UNKNOWN = 999
} pf_hip_error;

/* hipDeviceAttribute_t */
enum { PF_HIP_MULTIPROCESSOR_COUNT = 63, PF_HIP_SHARED_PER_BLOCK = 74 };

/* hipStreamCaptureMode */
enum { PF_HIP_CAPTURE_RELAXED = 2 };

/* hipDeviceProp_t, of which gcnArchName alone is read: its size is less than this, and where the
 * name is depends on which of two functions fills it. */
enum { PF_HIP_PROPERTIES_BYTES = 8192, PF_HIP_ARCH_R0600 = 1160, PF_HIP_ARCH_R0000 = 396 };

typedef void *pf_hip_handle; /* hipStream_t, hipEvent_t, hipModule_t, hipFunction_t */

/* X(result, name, parameters) */
#define PF_HIP_REQUIRED(X)                                                                         \
    X(pf_hip_error, hipInit, (unsigned flags))                                                     \
    X(pf_hip_error, hipRuntimeGetVersion, (int *version))                                          \
    X(const char *, hipGetErrorName, (pf_hip_error error))                                         \
    X(const char *, hipGetErrorString, (pf_hip_error error))                                       \
    X(pf_hip_error, hipGetDeviceCount, (int *count))                                               \
    X(pf_hip_error, hipDeviceGetName, (char *name, int length, int device))                        \
    X(pf_hip_error, hipDeviceGetAttribute, (int *value, int attribute, int device))                \
    X(pf_hip_error, hipDeviceTotalMem, (size_t * bytes, int device))                               \
    X(pf_hip_error, hipGetDevice, (int *device))                                                   \
    X(pf_hip_error, hipSetDevice, (int device))                                                    \
    X(pf_hip_error, hipDeviceSynchronize, (void))                                                  \
    X(pf_hip_error, hipModuleLoadData, (pf_hip_handle * module, const void *image))                \
    X(pf_hip_error, hipModuleUnload, (pf_hip_handle module))                                       \
    X(pf_hip_error, hipModuleGetFunction,                                                          \
      (pf_hip_handle * function, pf_hip_handle module, const char *name))                          \
    X(pf_hip_error, hipModuleLaunchKernel,                                                         \
      (pf_hip_handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,                  \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       pf_hip_handle stream, void **parameters, void **extra))                                     \
    X(pf_hip_error, hipMalloc, (void **memory, size_t bytes))                                      \
    X(pf_hip_error, hipFree, (void *memory))                                                       \
    X(pf_hip_error, hipMemcpyHtoD, (void *to, void *from, size_t bytes))                           \
    X(pf_hip_error, hipMemcpyDtoH, (void *to, void *from, size_t bytes))                           \
    X(pf_hip_error, hipEventCreate, (pf_hip_handle * event))                                       \
    X(pf_hip_error, hipEventDestroy, (pf_hip_handle event))                                        \
    X(pf_hip_error, hipEventRecord, (pf_hip_handle event, pf_hip_handle stream))                   \
    X(pf_hip_error, hipEventSynchronize, (pf_hip_handle event))                                    \
    X(pf_hip_error, hipEventElapsedTime,                                                           \
      (float *milliseconds, pf_hip_handle start, pf_hip_handle stop))

/* NULL in libraries that lack it. The first has been there since HIP 6, which changed the struct
 * and kept the second with its old layout. */
#define PF_HIP_OPTIONAL(X)                                                                         \
    X(pf_hip_error, hipGetDevicePropertiesR0600, (void *properties, int device))                   \
    X(pf_hip_error, hipGetDeviceProperties, (void *properties, int device))                        \
    X(pf_hip_error, hipThreadExchangeStreamCaptureMode, (int *mode))

typedef struct pf_hip_driver {
#define X(result, name, parameters) result(*name) parameters;
    PF_HIP_REQUIRED(X)
    PF_HIP_OPTIONAL(X)
#undef X
    int version; /* as hipRuntimeGetVersion has it: 10^7 * major + 10^5 * minor + patch */
} pf_hip_driver;

/* Open the library, once a process; after a failure the next call tries again. PFATTN_HIP_LIBRARY
 * is the path to open in place of libamdhip64.so.N. UNAVAILABLE, naming what is missing. */
pfattn_status pf_hip_driver_open(const pf_hip_driver **driver);

/* SUCCESS, or the thread's error from a failed call: its name, HIP's name of the error, and what to
 * do. */
pfattn_status pf_hip_check(const pf_hip_driver *driver, pf_hip_error result, const char *call);

#endif
