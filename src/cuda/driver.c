/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"

#include <stddef.h>

#include "common/status.h"
#include "common/vendor_driver.h"

static const char *const paths[] = {"libcuda.so.1", "libcuda.so", NULL};

static const pf_dl_symbol symbols[] = {
#define X(name) {#name, offsetof(pf_cuda_driver, name), 1},
    PF_CUDA_REQUIRED(X)
#undef X
#define X(name) {#name, offsetof(pf_cuda_driver, name), 0},
        PF_CUDA_OPTIONAL(X)
#undef X
            {NULL, 0, 0}};

/* ---- errors -------------------------------------------------------------------------------- */

#define BROKEN_CONTEXT                                                                             \
    "work enqueued earlier failed and the context is unusable: check the pointers and strides of " \
    "earlier calls, and start a new process"
#define UNSUITABLE_IMAGE                                                                           \
    "this build has no kernel for the device: build pfattn with -Dcuda-archs=sm_80 added, which "  \
    "runs on every chip from compute capability 8.0"
#define CAPTURE_BROKEN "the graph capture of this stream is broken: end it and capture again"

static const pf_driver_advice advices[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, PFATTN_ERROR_OUT_OF_MEMORY,
     "free device memory, or use another device"},
    {CUDA_ERROR_NO_DEVICE, PFATTN_ERROR_UNAVAILABLE,
     "no NVIDIA GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES"},
    {CUDA_ERROR_INVALID_DEVICE, PFATTN_ERROR_UNAVAILABLE,
     "the device is gone: check nvidia-smi and CUDA_VISIBLE_DEVICES"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, PFATTN_ERROR_UNAVAILABLE,
     "libcuda and the kernel's NVIDIA module differ in version: reboot, or reinstall the driver"},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, PFATTN_ERROR_UNAVAILABLE,
     "the forward-compatibility libcuda does not run on this GPU: use the driver's own libcuda"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, PFATTN_ERROR_UNAVAILABLE,
     "another process holds the device exclusively"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, PFATTN_ERROR_UNAVAILABLE, UNSUITABLE_IMAGE},
    {CUDA_ERROR_INVALID_PTX, PFATTN_ERROR_UNAVAILABLE, UNSUITABLE_IMAGE},
    {CUDA_ERROR_INVALID_IMAGE, PFATTN_ERROR_UNAVAILABLE,
     "the driver cannot read this build's kernels: update the driver"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, PFATTN_ERROR_UNAVAILABLE,
     "the driver is older than the nvcc of this build: update the driver"},
    {CUDA_ERROR_JIT_COMPILER_NOT_FOUND, PFATTN_ERROR_UNAVAILABLE,
     "libnvidia-ptxjitcompiler is missing: install the whole driver"},
    {CUDA_ERROR_INVALID_HANDLE, PFATTN_ERROR_DRIVER,
     "the stream must be alive and belong to the device of the handle"},
    {CUDA_ERROR_INVALID_CONTEXT, PFATTN_ERROR_DRIVER,
     "the stream must be alive and belong to the device of the handle"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, PFATTN_ERROR_DRIVER,
     "the device was reset: destroy the handle and make another"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, PFATTN_ERROR_DRIVER, BROKEN_CONTEXT},
    {CUDA_ERROR_MISALIGNED_ADDRESS, PFATTN_ERROR_DRIVER, BROKEN_CONTEXT},
    {CUDA_ERROR_LAUNCH_FAILED, PFATTN_ERROR_DRIVER, BROKEN_CONTEXT},
    {CUDA_ERROR_ASSERT, PFATTN_ERROR_DRIVER, BROKEN_CONTEXT},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, PFATTN_ERROR_DRIVER,
     "the device has too few registers or too little shared memory left for the kernel"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, PFATTN_ERROR_DRIVER, CAPTURE_BROKEN},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, PFATTN_ERROR_DRIVER, CAPTURE_BROKEN},
    {CUDA_ERROR_UNKNOWN, PFATTN_ERROR_DRIVER, "see the error codes of the CUDA driver API"},
};

pfattn_status pf_cuda_check(const pf_cuda_driver *driver, CUresult result, const char *call) {
    if (result == CUDA_SUCCESS) {
        return PFATTN_SUCCESS;
    }
    const char *name = NULL;
    const char *text = NULL;
    if (driver->cuGetErrorName(result, &name) != CUDA_SUCCESS) {
        name = NULL;
    }
    if (driver->cuGetErrorString(result, &text) != CUDA_SUCCESS) {
        text = NULL;
    }
    return pf_driver_error("cuda", call, (int)result, name, text, advices,
                           sizeof advices / sizeof advices[0]);
}

/* ---- opening ------------------------------------------------------------------------------- */

static pf_cuda_driver opened;

static pfattn_status check_version(const pf_cuda_driver *driver) {
    if (driver->version >= PF_CUDA_DRIVER_REQUIRED) {
        return PFATTN_SUCCESS;
    }
    return pf_error(PFATTN_ERROR_UNAVAILABLE,
                    "cuda: the driver supports CUDA %d.%d but this build's kernels need %d.%d; "
                    "update the NVIDIA driver, or build pfattn with an older CUDA toolkit",
                    driver->version / 1000, driver->version % 1000 / 10,
                    PF_CUDA_DRIVER_REQUIRED / 1000, PF_CUDA_DRIVER_REQUIRED % 1000 / 10);
}

static pfattn_status start(void *table) {
    pf_cuda_driver *driver = table;
    pfattn_status status = pf_cuda_check(driver, driver->cuInit(0), "cuInit");
    if (status == PFATTN_ERROR_DRIVER) {
        /* Whatever it is, there is no driver to work with. */
        status = pf_error(PFATTN_ERROR_UNAVAILABLE, "%s", pfattn_last_error());
    }
    if (status == PFATTN_SUCCESS) {
        status = pf_cuda_check(driver, driver->cuDriverGetVersion(&driver->version),
                               "cuDriverGetVersion");
    }
    return status == PFATTN_SUCCESS ? check_version(driver) : status;
}

static pf_driver_library library = {
    .backend = "cuda",
    .variable = "CUDA_LIBRARY",
    .paths = paths,
    .symbols = symbols,
    .table = &opened,
    .start = start,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

pfattn_status pf_cuda_driver_open(const pf_cuda_driver **driver) {
    *driver = &opened;
    return pf_driver_open(&library);
}
