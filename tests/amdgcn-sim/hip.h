/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the HIP module API that the simulator exports, declared here so that neither it nor
 * its tests need a vendor header. Numbers and layouts are those of HIP 5 to 7. */
#ifndef AMDGCN_SIM_HIP_H
#define AMDGCN_SIM_HIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_API __attribute__((visibility("default")))

typedef enum {
    hipSuccess = 0,
    hipErrorInvalidValue = 1,
    hipErrorOutOfMemory = 2,
    hipErrorNotInitialized = 3,
    hipErrorInvalidConfiguration = 9,
    hipErrorInvalidDevicePointer = 17,
    hipErrorInvalidDevice = 101,
    hipErrorInvalidImage = 200,
    hipErrorNoBinaryForGpu = 209,
    hipErrorInvalidHandle = 400,
    hipErrorNotFound = 500,
    hipErrorNotReady = 600,
    hipErrorLaunchOutOfResources = 701,
    hipErrorLaunchFailure = 719,
    hipErrorStreamCaptureUnsupported = 900,
    hipErrorStreamCaptureInvalidated = 901,
    hipErrorIllegalState = 401,
    hipErrorUnknown = 999,
} hipError_t;

enum {
    hipMemcpyHostToHost,
    hipMemcpyHostToDevice,
    hipMemcpyDeviceToHost,
    hipMemcpyDeviceToDevice,
    hipMemcpyDefault
};

#define HIP_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define HIP_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)
#define HIP_LAUNCH_PARAM_END ((void *)3)

typedef struct sim_stream *hipStream_t;
typedef struct sim_event *hipEvent_t;
typedef struct sim_module *hipModule_t;
typedef struct sim_kernel *hipFunction_t;
typedef struct sim_graph *hipGraph_t;
typedef struct sim_graph *hipGraphExec_t;
typedef int hipDevice_t;

SIM_API hipError_t hipInit(unsigned flags);
SIM_API hipError_t hipDriverGetVersion(int *version);
SIM_API hipError_t hipRuntimeGetVersion(int *version);
SIM_API hipError_t hipGetDeviceCount(int *count);
SIM_API hipError_t hipDeviceGet(hipDevice_t *device, int ordinal);
SIM_API hipError_t hipDeviceGetName(char *name, int length, hipDevice_t device);
SIM_API hipError_t hipDeviceGetAttribute(int *value, int attribute, int device);
SIM_API hipError_t hipDeviceTotalMem(size_t *bytes, hipDevice_t device);
SIM_API hipError_t hipGetDevicePropertiesR0600(void *properties, int device);
SIM_API hipError_t hipGetDeviceProperties(void *properties, int device);
SIM_API hipError_t hipSetDevice(int device);
SIM_API hipError_t hipGetDevice(int *device);
SIM_API hipError_t hipDeviceSynchronize(void);
SIM_API hipError_t hipGetLastError(void);
SIM_API hipError_t hipPeekAtLastError(void);
SIM_API const char *hipGetErrorName(hipError_t error);
SIM_API const char *hipGetErrorString(hipError_t error);
SIM_API hipError_t hipDrvGetErrorName(hipError_t error, const char **name);
SIM_API hipError_t hipDrvGetErrorString(hipError_t error, const char **text);

SIM_API hipError_t hipMalloc(void **pointer, size_t size);
SIM_API hipError_t hipFree(void *pointer);
SIM_API hipError_t hipHostMalloc(void **pointer, size_t size, unsigned flags);
SIM_API hipError_t hipHostFree(void *pointer);
SIM_API hipError_t hipMallocAsync(void **pointer, size_t size, hipStream_t stream);
SIM_API hipError_t hipFreeAsync(void *pointer, hipStream_t stream);
SIM_API hipError_t hipMemGetInfo(size_t *available, size_t *total);
SIM_API hipError_t hipMemcpy(void *to, const void *from, size_t size, int kind);
SIM_API hipError_t hipMemcpyAsync(void *to, const void *from, size_t size, int kind,
                                  hipStream_t stream);
SIM_API hipError_t hipMemcpyHtoD(void *to, void *from, size_t size);
SIM_API hipError_t hipMemcpyDtoH(void *to, void *from, size_t size);
SIM_API hipError_t hipMemcpyDtoD(void *to, void *from, size_t size);
SIM_API hipError_t hipMemcpyHtoDAsync(void *to, void *from, size_t size, hipStream_t stream);
SIM_API hipError_t hipMemcpyDtoHAsync(void *to, void *from, size_t size, hipStream_t stream);
SIM_API hipError_t hipMemcpyDtoDAsync(void *to, void *from, size_t size, hipStream_t stream);
SIM_API hipError_t hipMemset(void *to, int value, size_t size);
SIM_API hipError_t hipMemsetAsync(void *to, int value, size_t size, hipStream_t stream);
SIM_API hipError_t hipMemsetD8Async(void *to, unsigned char value, size_t count,
                                    hipStream_t stream);
SIM_API hipError_t hipMemsetD16Async(void *to, unsigned short value, size_t count,
                                     hipStream_t stream);
SIM_API hipError_t hipMemsetD32Async(void *to, int value, size_t count, hipStream_t stream);

SIM_API hipError_t hipModuleLoadData(hipModule_t *module, const void *image);
SIM_API hipError_t hipModuleLoadDataEx(hipModule_t *module, const void *image, unsigned count,
                                       void *options, void **values);
SIM_API hipError_t hipModuleUnload(hipModule_t module);
SIM_API hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module,
                                        const char *name);
SIM_API hipError_t hipModuleGetGlobal(void **pointer, size_t *size, hipModule_t module,
                                      const char *name);
SIM_API hipError_t hipFuncSetAttribute(const void *function, int attribute, int value);
SIM_API hipError_t hipFuncGetAttribute(int *value, int attribute, hipFunction_t function);
SIM_API hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y,
                                         unsigned grid_z, unsigned block_x, unsigned block_y,
                                         unsigned block_z, unsigned shared_bytes,
                                         hipStream_t stream, void **params, void **extra);

SIM_API hipError_t hipStreamCreate(hipStream_t *stream);
SIM_API hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags);
SIM_API hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned flags, int priority);
SIM_API hipError_t hipStreamDestroy(hipStream_t stream);
SIM_API hipError_t hipStreamSynchronize(hipStream_t stream);
SIM_API hipError_t hipStreamQuery(hipStream_t stream);
SIM_API hipError_t hipStreamGetDevice(hipStream_t stream, hipDevice_t *device);
SIM_API hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags);
SIM_API hipError_t hipEventCreate(hipEvent_t *event);
SIM_API hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags);
SIM_API hipError_t hipEventDestroy(hipEvent_t event);
SIM_API hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
SIM_API hipError_t hipEventSynchronize(hipEvent_t event);
SIM_API hipError_t hipEventQuery(hipEvent_t event);
SIM_API hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t start, hipEvent_t stop);

SIM_API hipError_t hipStreamBeginCapture(hipStream_t stream, int mode);
SIM_API hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph);
SIM_API hipError_t hipStreamIsCapturing(hipStream_t stream, int *status);
SIM_API hipError_t hipGraphInstantiate(hipGraphExec_t *exec, hipGraph_t graph, void **node,
                                       char *log, size_t size);
SIM_API hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *exec, hipGraph_t graph,
                                                unsigned long long flags);
SIM_API hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream);
SIM_API hipError_t hipGraphDestroy(hipGraph_t graph);
SIM_API hipError_t hipGraphExecDestroy(hipGraphExec_t exec);

#endif
