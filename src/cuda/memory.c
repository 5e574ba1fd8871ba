/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory and timing, for the tools and the tests. */
#include <stdint.h>

#include "device.h"

static CUdeviceptr address_of(const void *memory) {
    return (CUdeviceptr)(uintptr_t)memory;
}

static pfattn_status allocate(pf_device *device, size_t bytes, void **memory) {
    CUdeviceptr address = 0;
    pfattn_status status = pf_cuda_enter(device);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    status =
        pf_cuda_check(device->driver,
                      device->driver->cuMemAlloc_v2(&address, bytes > 0 ? bytes : 1), "cuMemAlloc");
    status = pf_cuda_leave(device, status);
    if (status == PFATTN_SUCCESS) {
        *memory = (void *)(uintptr_t)address;
    }
    return status;
}

static void release(pf_device *device, void *memory) {
    if (memory != NULL && pf_cuda_enter(device) == PFATTN_SUCCESS) {
        pf_cuda_leave(device,
                      pf_cuda_check(device->driver,
                                    device->driver->cuMemFree_v2(address_of(memory)), "cuMemFree"));
    }
}

static pfattn_status upload(pf_device *device, void *to, const void *from_host, size_t bytes) {
    pfattn_status status = pf_cuda_enter(device);
    if (status != PFATTN_SUCCESS || bytes == 0) {
        return status != PFATTN_SUCCESS ? status : pf_cuda_leave(device, status);
    }
    CUresult result = device->driver->cuMemcpyHtoD_v2(address_of(to), from_host, bytes);
    return pf_cuda_leave(device, pf_cuda_check(device->driver, result, "cuMemcpyHtoD"));
}

static pfattn_status download(pf_device *device, void *to_host, const void *from, size_t bytes) {
    pfattn_status status = pf_cuda_enter(device);
    if (status != PFATTN_SUCCESS || bytes == 0) {
        return status != PFATTN_SUCCESS ? status : pf_cuda_leave(device, status);
    }
    CUresult result = device->driver->cuMemcpyDtoH_v2(to_host, address_of(from), bytes);
    return pf_cuda_leave(device, pf_cuda_check(device->driver, result, "cuMemcpyDtoH"));
}

static pfattn_status synchronize(pf_device *device) {
    pfattn_status status = pf_cuda_enter(device);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    CUresult result = device->driver->cuCtxSynchronize();
    return pf_cuda_leave(device, pf_cuda_check(device->driver, result, "cuCtxSynchronize"));
}

/* Both events exist before the first is recorded, so that making them is not timed. */
static pfattn_status make_events(pf_device *device) {
    for (int i = 0; i < 2; i++) {
        if (device->timer[i] == NULL) {
            CUresult result = device->driver->cuEventCreate(&device->timer[i], CU_EVENT_DEFAULT);
            if (result != CUDA_SUCCESS) {
                return pf_cuda_check(device->driver, result, "cuEventCreate");
            }
        }
    }
    return PFATTN_SUCCESS;
}

static pfattn_status timer_start(pf_device *device) {
    pfattn_status status = pf_cuda_enter(device);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    status = make_events(device);
    if (status == PFATTN_SUCCESS) {
        status = pf_cuda_check(
            device->driver, device->driver->cuEventRecord(device->timer[0], NULL), "cuEventRecord");
    }
    return pf_cuda_leave(device, status);
}

static pfattn_status stop_and_read(pf_device *device, float *milliseconds) {
    const pf_cuda_driver *driver = device->driver;
    pfattn_status status =
        pf_cuda_check(driver, driver->cuEventRecord(device->timer[1], NULL), "cuEventRecord");
    if (status == PFATTN_SUCCESS) {
        status = pf_cuda_check(driver, driver->cuEventSynchronize(device->timer[1]),
                               "cuEventSynchronize");
    }
    return status == PFATTN_SUCCESS
               ? pf_cuda_check(
                     driver,
                     driver->cuEventElapsedTime(milliseconds, device->timer[0], device->timer[1]),
                     "cuEventElapsedTime")
               : status;
}

static pfattn_status timer_stop(pf_device *device, double *seconds) {
    float milliseconds = 0.0f;
    pfattn_status status = pf_cuda_enter(device);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    status = pf_cuda_leave(device, stop_and_read(device, &milliseconds));
    if (status == PFATTN_SUCCESS) {
        *seconds = 1e-3 * (double)milliseconds;
    }
    return status;
}

const pf_memory_ops pf_cuda_memory = {
    .allocate = allocate,
    .release = release,
    .upload = upload,
    .download = download,
    .synchronize = synchronize,
    .timer_start = timer_start,
    .timer_stop = timer_stop,
};
