/* SPDX-License-Identifier: Apache-2.0 */
/* The reference as a backend: one device, the host; pointers are host pointers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sys/utsname.h>
#include <unistd.h>

#include "common/status.h"
#include "ref.h"

struct pf_device {
    double started; /* seconds, when the timer was started */
};

static pfattn_status probe(int32_t *device_count, char *summary, size_t size) {
    *device_count = 1;
#ifdef _OPENMP
    snprintf(summary, size, "host memory, %d threads (OpenMP)", pf_ref_threads());
#else
    snprintf(summary, size, "host memory, 1 thread (built without OpenMP)");
#endif
    return PFATTN_SUCCESS;
}

static pfattn_status check_index(int32_t index) {
    if (index != 0) {
        return pf_error(PFATTN_ERROR_UNAVAILABLE, "ref: there is no device %d, only device 0",
                        (int)index);
    }
    return PFATTN_SUCCESS;
}

static int64_t physical_memory(void) {
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (int64_t)pages * page : 0;
}

/* The fields of `info` but struct_size, which is the caller's. */
static pfattn_status device_info(int32_t index, pfattn_device_info *info) {
    const pfattn_status status = check_index(index);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    struct utsname machine;
    const bool known = uname(&machine) >= 0;
    snprintf(info->name, sizeof info->name, "host CPU");
    snprintf(info->arch, sizeof info->arch, "%.63s", known ? machine.machine : "unknown");
    snprintf(info->target, sizeof info->target, "plain C");
    info->compute_units = pf_ref_threads();
    info->memory_bytes = physical_memory();
    info->shared_bytes = 0;
    info->driver_version = 0;
    return PFATTN_SUCCESS;
}

static pfattn_status device_open(int32_t index, pf_device **device) {
    const pfattn_status status = check_index(index);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    pf_device *opened = calloc(1, sizeof *opened);
    if (opened == NULL) {
        return pf_error(PFATTN_ERROR_OUT_OF_MEMORY, "ref: no memory for a device");
    }
    *device = opened;
    return PFATTN_SUCCESS;
}

static void device_close(pf_device *device) {
    free(device);
}

/* Whatever passes the checks of a descriptor, the reference computes. */
static pfattn_status plan(pf_device *device, const pf_problem *problem, pf_plan *none) {
    (void)device;
    (void)problem;
    (void)none;
    return PFATTN_SUCCESS;
}

static size_t workspace_size(pf_device *device, const pf_problem *problem, const pf_plan *none) {
    (void)device;
    (void)problem;
    (void)none;
    return 0;
}

static pfattn_status launch(pf_device *device, pf_call *call, void *stream) {
    (void)device;
    if (stream != NULL) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "stream: is %p but the ref backend has none; it must be NULL", stream);
    }
    return pf_ref_run(&call->problem, NULL);
}

static pfattn_status allocate(pf_device *device, size_t bytes, void **memory) {
    (void)device;
    void *block = malloc(bytes != 0 ? bytes : 1);
    if (block == NULL) {
        return pf_error(PFATTN_ERROR_OUT_OF_MEMORY, "ref: no memory for %zu bytes", bytes);
    }
    *memory = block;
    return PFATTN_SUCCESS;
}

static void release(pf_device *device, void *memory) {
    (void)device;
    free(memory);
}

static pfattn_status copy(pf_device *device, void *to, const void *from, size_t bytes) {
    (void)device;
    if (bytes != 0) {
        memcpy(to, from, bytes);
    }
    return PFATTN_SUCCESS;
}

static pfattn_status synchronize(pf_device *device) {
    (void)device;
    return PFATTN_SUCCESS;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static pfattn_status timer_start(pf_device *device) {
    device->started = now();
    return PFATTN_SUCCESS;
}

static pfattn_status timer_stop(pf_device *device, double *seconds) {
    *seconds = now() - device->started;
    return PFATTN_SUCCESS;
}

static const pf_memory_ops memory_ops = {
    .allocate = allocate,
    .release = release,
    .upload = copy,
    .download = copy,
    .synchronize = synchronize,
    .timer_start = timer_start,
    .timer_stop = timer_stop,
};

const pf_backend pf_backend_ref = {
    .id = PFATTN_BACKEND_REF,
    .name = "ref",
    .priority = 0,
    .probe = probe,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .plan = plan,
    .workspace_size = workspace_size,
    .launch = launch,
    .memory = &memory_ops,
};
