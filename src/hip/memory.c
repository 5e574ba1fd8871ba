/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory and timing, for the tools and the tests. */
#include <stdint.h>

#include "device.h"

/* Run one call of HIP with the device current. */
#define WITH_DEVICE(device, call, name)                                                            \
    int previous;                                                                                  \
    pfattn_status status = pf_hip_enter(device, &previous);                                        \
    return status == PFATTN_SUCCESS                                                                \
               ? pf_hip_leave(device, previous, pf_hip_check((device)->driver, call, name))        \
               : status

static pfattn_status allocate(pf_device *device, size_t bytes, void **memory) {
    WITH_DEVICE(device, device->driver->hipMalloc(memory, bytes > 0 ? bytes : 1), "hipMalloc");
}

static pfattn_status free_memory(pf_device *device, void *memory) {
    WITH_DEVICE(device, device->driver->hipFree(memory), "hipFree");
}

static void release(pf_device *device, void *memory) {
    if (memory != NULL) {
        free_memory(device, memory);
    }
}

/* HIP's prototypes do not promise to leave the source of a copy alone; it does. */
static pfattn_status upload(pf_device *device, void *to, const void *from_host, size_t bytes) {
    if (bytes == 0) {
        return PFATTN_SUCCESS;
    }
    WITH_DEVICE(device, device->driver->hipMemcpyHtoD(to, (void *)(uintptr_t)from_host, bytes),
                "hipMemcpyHtoD");
}

static pfattn_status download(pf_device *device, void *to_host, const void *from, size_t bytes) {
    if (bytes == 0) {
        return PFATTN_SUCCESS;
    }
    WITH_DEVICE(device, device->driver->hipMemcpyDtoH(to_host, (void *)(uintptr_t)from, bytes),
                "hipMemcpyDtoH");
}

static pfattn_status synchronize(pf_device *device) {
    WITH_DEVICE(device, device->driver->hipDeviceSynchronize(), "hipDeviceSynchronize");
}

/* Both events exist before the first is recorded, so that making them is not timed. */
static pf_hip_error make_events(pf_device *device) {
    pf_hip_error result = PF_HIP_SUCCESS;
    for (int i = 0; i < 2 && result == PF_HIP_SUCCESS; i++) {
        if (device->timer[i] == NULL) {
            result = device->driver->hipEventCreate(&device->timer[i]);
        }
    }
    return result;
}

static pf_hip_error start(pf_device *device) {
    pf_hip_error result = make_events(device);
    return result == PF_HIP_SUCCESS ? device->driver->hipEventRecord(device->timer[0], NULL)
                                    : result;
}

static pf_hip_error stop(pf_device *device, float *milliseconds) {
    const pf_hip_driver *driver = device->driver;
    pf_hip_error result = driver->hipEventRecord(device->timer[1], NULL);
    if (result == PF_HIP_SUCCESS) {
        result = driver->hipEventSynchronize(device->timer[1]);
    }
    return result == PF_HIP_SUCCESS
               ? driver->hipEventElapsedTime(milliseconds, device->timer[0], device->timer[1])
               : result;
}

static pfattn_status timer_start(pf_device *device) {
    WITH_DEVICE(device, start(device), "starting a timer of two hipEvents");
}

static pfattn_status timer_read(pf_device *device, float *milliseconds) {
    WITH_DEVICE(device, stop(device, milliseconds), "reading a timer of two hipEvents");
}

static pfattn_status timer_stop(pf_device *device, double *seconds) {
    float milliseconds = 0.0f;
    pfattn_status status = timer_read(device, &milliseconds);
    if (status == PFATTN_SUCCESS) {
        *seconds = 1e-3 * (double)milliseconds;
    }
    return status;
}

const pf_memory_ops pf_hip_memory = {
    .allocate = allocate,
    .release = release,
    .upload = upload,
    .download = download,
    .synchronize = synchronize,
    .timer_start = timer_start,
    .timer_stop = timer_stop,
};
