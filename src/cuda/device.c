/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/plan_run.h"
#include "common/status.h"
#include "tuning.h"

/* What the driver says of a device. */
typedef struct properties {
    CUdevice device;
    char name[128];
    int major, minor;
    int multiprocessors;
    int shared_bytes;
    size_t memory_bytes;
} properties;

/* ---- properties ---------------------------------------------------------------------------- */

static pfattn_status read_attributes(const pf_cuda_driver *driver, properties *p) {
    const struct {
        CUdevice_attribute attribute;
        int *value;
    } wanted[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &p->major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &p->minor},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &p->multiprocessors},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &p->shared_bytes},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        CUresult result =
            driver->cuDeviceGetAttribute(wanted[i].value, wanted[i].attribute, p->device);
        if (result != CUDA_SUCCESS) {
            return pf_cuda_check(driver, result, "cuDeviceGetAttribute");
        }
    }
    return PFATTN_SUCCESS;
}

static pfattn_status read_properties(const pf_cuda_driver *driver, int ordinal, properties *p) {
    memset(p, 0, sizeof *p);
    pfattn_status status =
        pf_cuda_check(driver, driver->cuDeviceGet(&p->device, ordinal), "cuDeviceGet");
    if (status == PFATTN_SUCCESS) {
        status = pf_cuda_check(driver,
                               driver->cuDeviceGetName(p->name, (int)sizeof p->name - 1, p->device),
                               "cuDeviceGetName");
    }
    if (status == PFATTN_SUCCESS) {
        status = pf_cuda_check(driver, driver->cuDeviceTotalMem_v2(&p->memory_bytes, p->device),
                               "cuDeviceTotalMem");
    }
    return status == PFATTN_SUCCESS ? read_attributes(driver, p) : status;
}

/* ---- targets ------------------------------------------------------------------------------- */

/* Which targets of this build a chip runs, the best first; their number. */
static int find_targets(const pf_cuda_driver *driver, const properties *p, int *targets) {
    int count = 0;
    bool hopper = p->major == 9 && p->minor == 0;
    bool maps = driver->cuTensorMapEncodeTiled != NULL && driver->cuTensorMapReplaceAddress != NULL;
    const int candidates[PF_CUDA_TARGETS] = {PF_TARGET_SM_90A, PF_TARGET_SM_80};
    for (int i = 0; i < PF_CUDA_TARGETS; i++) {
        int target = candidates[i];
        bool runs = target == PF_TARGET_SM_90A ? hopper && maps : p->major >= 8;
        if (runs && pf_target_is_built(pf_cuda_images, pf_cuda_images_count, target)) {
            targets[count++] = target;
        }
    }
    return count;
}

static pfattn_status no_target(int ordinal, const properties *p) {
    char list[64];
    if (p->major < 8) {
        return pf_error(PFATTN_ERROR_UNAVAILABLE,
                        "cuda: device %d (%s) has compute capability %d.%d; 8.0 or more is needed",
                        ordinal, p->name, p->major, p->minor);
    }
    pf_targets_list(pf_cuda_images, pf_cuda_images_count, PF_TARGET_SM_80, PF_TARGET_SM_90A, list,
                    sizeof list);
    return pf_error(PFATTN_ERROR_UNAVAILABLE,
                    "cuda: device %d (%s, sm_%d%d) runs none of the targets of this build (%s); "
                    "build pfattn with -Dcuda-archs=sm_80 added",
                    ordinal, p->name, p->major, p->minor, list);
}

/* PFATTN_CUDA_TARGET leaves one target alone. */
static pfattn_status force_target(int ordinal, int *targets, int *count) {
    const char *forced = pf_environment("CUDA_TARGET");
    if (forced == NULL) {
        return PFATTN_SUCCESS;
    }
    for (int i = 0; i < *count; i++) {
        if (strcmp(pf_target_name(targets[i]), forced) == 0) {
            targets[0] = targets[i];
            *count = 1;
            return PFATTN_SUCCESS;
        }
    }
    return pf_error(PFATTN_ERROR_UNAVAILABLE,
                    "PFATTN_CUDA_TARGET: is \"%s\", which device %d of this build does not run; "
                    "unset it, or choose %s%s%s",
                    forced, ordinal, pf_target_name(targets[0]), *count > 1 ? " or " : "",
                    *count > 1 ? pf_target_name(targets[1]) : "");
}

/* ---- queries ------------------------------------------------------------------------------- */

static pfattn_status count_devices(const pf_cuda_driver *driver, int *count) {
    pfattn_status status =
        pf_cuda_check(driver, driver->cuDeviceGetCount(count), "cuDeviceGetCount");
    if (status == PFATTN_SUCCESS && *count == 0) {
        return pf_error(PFATTN_ERROR_UNAVAILABLE,
                        "cuda: the driver sees no device; check nvidia-smi and "
                        "CUDA_VISIBLE_DEVICES");
    }
    return status;
}

/* Devices keep the driver's ordinals, so one that cannot be used is counted where another can;
 * opening it says why. */
pfattn_status pf_cuda_probe(int32_t *device_count, char *summary, size_t size) {
    const pf_cuda_driver *driver;
    int count = 0;
    pfattn_status status = pf_cuda_driver_open(&driver);
    if (status == PFATTN_SUCCESS) {
        status = count_devices(driver, &count);
    }
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    size_t used = (size_t)snprintf(summary, size, "CUDA driver %d.%d", driver->version / 1000,
                                   driver->version % 1000 / 10);
    int usable = 0;
    properties p;
    for (int i = 0; i < count; i++) {
        int targets[PF_CUDA_TARGETS];
        status = read_properties(driver, i, &p);
        if (status != PFATTN_SUCCESS) {
            return status;
        }
        bool runs = find_targets(driver, &p, targets) > 0;
        usable += runs;
        if (used < size) {
            used += (size_t)snprintf(summary + used, size - used, ", device %d: %s (sm_%d%d%s)", i,
                                     p.name, p.major, p.minor, runs ? "" : ", cannot be used");
        }
    }
    if (usable == 0) {
        return no_target(count - 1, &p);
    }
    *device_count = count;
    return PFATTN_SUCCESS;
}

pfattn_status pf_cuda_device_info(int32_t index, pfattn_device_info *info) {
    const pf_cuda_driver *driver;
    properties p;
    pfattn_status status = pf_cuda_driver_open(&driver);
    if (status == PFATTN_SUCCESS) {
        status = read_properties(driver, index, &p);
    }
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    int targets[PF_CUDA_TARGETS];
    int count = find_targets(driver, &p, targets);
    if (count > 0) {
        status = force_target(index, targets, &count);
    }
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    snprintf(info->name, sizeof info->name, "%s", p.name);
    snprintf(info->arch, sizeof info->arch, "sm_%d%d", p.major, p.minor);
    snprintf(info->target, sizeof info->target, "%s%s%s",
             count > 0 ? pf_target_name(targets[0]) : "none", count > 1 ? ", " : "",
             count > 1 ? pf_target_name(targets[1]) : "");
    info->compute_units = p.multiprocessors;
    info->memory_bytes = (int64_t)p.memory_bytes;
    info->shared_bytes = p.shared_bytes;
    info->driver_version = driver->version;
    return PFATTN_SUCCESS;
}

/* ---- opening ------------------------------------------------------------------------------- */

static void find_images(pf_device *device) {
    for (int target = 0; target < PF_CUDA_TARGETS; target++) {
        pf_target_find_images(pf_cuda_images, pf_cuda_images_count, target, device->images[target]);
        device->capabilities.images[target] = device->images[target];
    }
}

static pfattn_status fill_capabilities(pf_device *device, const properties *p) {
    pf_capabilities *c = &device->capabilities;
    *c = (pf_capabilities){.backend = "cuda",
                           .tuning = pf_cuda_tuning,
                           .tuning_count = PF_CUDA_TUNING_COUNT,
                           .compute_units = p->multiprocessors,
                           .warp_size = 32,
                           .shared_bytes = p->shared_bytes};
    c->target_count = find_targets(device->driver, p, c->targets);
    if (c->target_count == 0) {
        return no_target(device->ordinal, p);
    }
    find_images(device);
    pfattn_status status = force_target(device->ordinal, c->targets, &c->target_count);
    if (status == PFATTN_SUCCESS) {
        pf_tuned_read(&device->tuned, c, p->name);
        c->tuned = &device->tuned;
    }
    return status;
}

static pfattn_status open_context(pf_device *device) {
    properties p;
    pfattn_status status = read_properties(device->driver, device->ordinal, &p);
    if (status == PFATTN_SUCCESS) {
        status = fill_capabilities(device, &p);
    }
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    device->device = p.device;
    return pf_cuda_check(device->driver,
                         device->driver->cuDevicePrimaryCtxRetain(&device->context, p.device),
                         "cuDevicePrimaryCtxRetain");
}

pfattn_status pf_cuda_device_open(int32_t index, pf_device **device) {
    const pf_cuda_driver *driver;
    pfattn_status status = pf_cuda_driver_open(&driver);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    pf_device *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return pf_error(PFATTN_ERROR_OUT_OF_MEMORY, "cuda: %zu bytes could not be allocated",
                        sizeof *made);
    }
    made->driver = driver;
    made->ordinal = index;
    status = open_context(made);
    if (status != PFATTN_SUCCESS) {
        free(made);
        return status;
    }
    *device = made;
    return PFATTN_SUCCESS;
}

void pf_cuda_device_close(pf_device *device) {
    const pf_cuda_driver *driver = device->driver;
    /* Where the context is gone already there is nothing to free in it. */
    if (pf_cuda_enter(device) == PFATTN_SUCCESS) {
        for (int i = 0; i < 2; i++) {
            if (device->timer[i] != NULL) {
                driver->cuEventDestroy_v2(device->timer[i]);
            }
        }
        pf_cuda_unload(device);
        pf_cuda_leave(device, PFATTN_SUCCESS);
    }
    driver->cuDevicePrimaryCtxRelease_v2(device->device);
    free(device);
}

const pf_capabilities *pf_cuda_capabilities(const pf_device *device) {
    return &device->capabilities;
}

pfattn_status pf_cuda_enter(pf_device *device) {
    return pf_cuda_check(device->driver, device->driver->cuCtxPushCurrent_v2(device->context),
                         "cuCtxPushCurrent");
}

pfattn_status pf_cuda_leave(pf_device *device, pfattn_status status) {
    CUcontext popped;
    CUresult result = device->driver->cuCtxPopCurrent_v2(&popped);
    return status == PFATTN_SUCCESS ? pf_cuda_check(device->driver, result, "cuCtxPopCurrent")
                                    : status;
}

pfattn_status pf_cuda_step_out(pf_device *device, CUstreamCaptureMode *mode) {
    *mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    return pf_cuda_check(device->driver, device->driver->cuThreadExchangeStreamCaptureMode(mode),
                         "cuThreadExchangeStreamCaptureMode");
}

pfattn_status pf_cuda_step_back(pf_device *device, CUstreamCaptureMode mode, pfattn_status status) {
    CUresult result = device->driver->cuThreadExchangeStreamCaptureMode(&mode);
    return status == PFATTN_SUCCESS
               ? pf_cuda_check(device->driver, result, "cuThreadExchangeStreamCaptureMode")
               : status;
}
