/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"

#include "common/status.h"
#include "common/vendor_driver.h"

static const char *const paths[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                    "libamdhip64.so", NULL};

static const pf_dl_symbol symbols[] = {
#define X(result, name, parameters) {#name, offsetof(pf_hip_driver, name), 1},
    PF_HIP_REQUIRED(X)
#undef X
#define X(result, name, parameters) {#name, offsetof(pf_hip_driver, name), 0},
        PF_HIP_OPTIONAL(X)
#undef X
            {NULL, 0, 0}};

/* ---- errors -------------------------------------------------------------------------------- */

#define BROKEN_DEVICE                                                                              \
    "work enqueued earlier failed: check the pointers and strides of earlier calls, and start a "  \
    "new process"
#define NO_GPU "no AMD GPU is visible: check rocminfo, HIP_VISIBLE_DEVICES and access to /dev/kfd"
#define BAD_STREAM "the stream must be alive and belong to the device of the handle"
#define CAPTURE_BROKEN "the graph capture of this stream is broken: end it and capture again"

static const pf_driver_advice advices[] = {
    {PF_HIP_OUT_OF_MEMORY, PFATTN_ERROR_OUT_OF_MEMORY, "free device memory, or use another device"},
    {PF_HIP_INSUFFICIENT_DRIVER, PFATTN_ERROR_UNAVAILABLE,
     "the amdgpu kernel driver is older than this ROCm: update it"},
    {PF_HIP_NO_DEVICE, PFATTN_ERROR_UNAVAILABLE, NO_GPU},
    {PF_HIP_INVALID_DEVICE, PFATTN_ERROR_UNAVAILABLE, NO_GPU},
    {PF_HIP_INVALID_IMAGE, PFATTN_ERROR_UNAVAILABLE,
     "this ROCm cannot read the kernels: update it, or build pfattn with its own amdclang++"},
    {PF_HIP_NO_BINARY_FOR_GPU, PFATTN_ERROR_UNAVAILABLE,
     "the kernels were compiled for another chip: build pfattn with its -Dhip-archs"},
    {PF_HIP_INVALID_CONTEXT, PFATTN_ERROR_DRIVER, BAD_STREAM},
    {PF_HIP_INVALID_HANDLE, PFATTN_ERROR_DRIVER, BAD_STREAM},
    {PF_HIP_ILLEGAL_ADDRESS, PFATTN_ERROR_DRIVER, BROKEN_DEVICE},
    {PF_HIP_LAUNCH_FAILURE, PFATTN_ERROR_DRIVER, BROKEN_DEVICE},
    {PF_HIP_LAUNCH_OUT_OF_RESOURCES, PFATTN_ERROR_DRIVER,
     "the device has too few registers or too little LDS left for the kernel"},
    {PF_HIP_CAPTURE_UNSUPPORTED, PFATTN_ERROR_DRIVER, CAPTURE_BROKEN},
    {PF_HIP_CAPTURE_INVALIDATED, PFATTN_ERROR_DRIVER, CAPTURE_BROKEN},
    {PF_HIP_UNKNOWN, PFATTN_ERROR_DRIVER, "see the error codes of the HIP runtime"},
};

pfattn_status pf_hip_check(const pf_hip_driver *driver, pf_hip_error result, const char *call) {
    if (result == PF_HIP_SUCCESS) {
        return PFATTN_SUCCESS;
    }
    const char *name = driver->hipGetErrorName(result);
    const char *text = driver->hipGetErrorString(result);
    return pf_driver_error("hip", call, (int)result, name, text, advices,
                           sizeof advices / sizeof advices[0]);
}

/* ---- opening ------------------------------------------------------------------------------- */

static pf_hip_driver opened;

static pfattn_status start(void *table) {
    pf_hip_driver *driver = table;
    pfattn_status status = pf_hip_check(driver, driver->hipInit(0), "hipInit");
    if (status == PFATTN_ERROR_DRIVER) {
        /* Whatever it is, there is no driver to work with. */
        status = pf_error(PFATTN_ERROR_UNAVAILABLE, "%s", pfattn_last_error());
    }
    return status == PFATTN_SUCCESS
               ? pf_hip_check(driver, driver->hipRuntimeGetVersion(&driver->version),
                              "hipRuntimeGetVersion")
               : status;
}

static pf_driver_library library = {
    .backend = "hip",
    .variable = "HIP_LIBRARY",
    .paths = paths,
    .symbols = symbols,
    .table = &opened,
    .start = start,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

pfattn_status pf_hip_driver_open(const pf_hip_driver **driver) {
    *driver = &opened;
    return pf_driver_open(&library);
}
