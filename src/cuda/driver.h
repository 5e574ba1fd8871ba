/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver, opened at run time. The only header of the library's host code that sees
 * NVIDIA's. */
#ifndef PF_CUDA_DRIVER_H
#define PF_CUDA_DRIVER_H

#include <cuda.h>

#include <pfattn/pfattn.h>

/* Functions of the driver, by the names of their present ABI. */
#define PF_CUDA_REQUIRED(X)                                                                        \
    X(cuInit)                                                                                      \
    X(cuDriverGetVersion)                                                                          \
    X(cuGetErrorName)                                                                              \
    X(cuGetErrorString)                                                                            \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetName)                                                                             \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDeviceTotalMem_v2)                                                                         \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease_v2)                                                                \
    X(cuCtxPushCurrent_v2)                                                                         \
    X(cuCtxPopCurrent_v2)                                                                          \
    X(cuCtxSynchronize)                                                                            \
    X(cuModuleLoadDataEx)                                                                          \
    X(cuModuleUnload)                                                                              \
    X(cuModuleGetFunction)                                                                         \
    X(cuFuncSetAttribute)                                                                          \
    X(cuLaunchKernel)                                                                              \
    X(cuThreadExchangeStreamCaptureMode)                                                           \
    X(cuMemAlloc_v2)                                                                               \
    X(cuMemFree_v2)                                                                                \
    X(cuMemcpyHtoD_v2)                                                                             \
    X(cuMemcpyDtoH_v2)                                                                             \
    X(cuEventCreate)                                                                               \
    X(cuEventDestroy_v2)                                                                           \
    X(cuEventRecord)                                                                               \
    X(cuEventSynchronize)                                                                          \
    X(cuEventElapsedTime)

/* NULL in drivers older than the function; what needs it is then left out. */
#define PF_CUDA_OPTIONAL(X)                                                                        \
    X(cuTensorMapEncodeTiled)    /* sm_90a */                                                      \
    X(cuTensorMapReplaceAddress) /* likewise */                                                    \
    X(cuFuncLoad)                /* loads a lazily loaded kernel now, not in its first launch */   \
    X(cuStreamIsCapturing)       /* graphs of calls that repeat, with all that follow */           \
    X(cuGraphCreate)                                                                               \
    X(cuGraphAddKernelNode_v2)                                                                     \
    X(cuGraphInstantiateWithFlags)                                                                 \
    X(cuGraphUpload)                                                                               \
    X(cuGraphLaunch)                                                                               \
    X(cuGraphExecKernelNodeSetParams_v2)                                                           \
    X(cuGraphExecDestroy)                                                                          \
    X(cuGraphDestroy)

typedef struct pf_cuda_driver {
#define X(name) __typeof__(name) *name;
    PF_CUDA_REQUIRED(X)
    PF_CUDA_OPTIONAL(X)
#undef X
    int version; /* as cuDriverGetVersion has it: 1000 * major + 10 * minor */
} pf_cuda_driver;

/* The oldest driver that runs what this build's nvcc compiles: one of its own major version. */
#define PF_CUDA_DRIVER_REQUIRED (CUDA_VERSION / 1000 * 1000)

/* Open the driver, once a process; after a failure the next call tries again. PFATTN_CUDA_LIBRARY
 * is the path to open in place of libcuda.so.1. UNAVAILABLE, naming what is missing. */
pfattn_status pf_cuda_driver_open(const pf_cuda_driver **driver);

/* SUCCESS, or the thread's error from a failed call of the driver: its name, the driver's name of
 * the error, and what to do. */
pfattn_status pf_cuda_check(const pf_cuda_driver *driver, CUresult result, const char *call);

#endif
