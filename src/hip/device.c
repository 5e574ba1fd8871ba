/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/plan_run.h"
#include "common/status.h"
#include "tuning.h"

enum { WAVE_SIZE = 64, NO_TARGET = -1 };

/* What HIP says of a device. */
typedef struct properties {
    char name[128];
    char arch[64]; /* "gfx90a", without the features that follow a colon */
    int compute_units;
    int shared_bytes;
    size_t memory_bytes;
} properties;

/* ---- properties ---------------------------------------------------------------------------- */

/* The struct is large and in two layouts, so it is a block of bytes to us. */
static pfattn_status read_arch(const pf_hip_driver *driver, int ordinal, properties *p) {
    bool newer = driver->hipGetDevicePropertiesR0600 != NULL;
    const char *call = newer ? "hipGetDevicePropertiesR0600" : "hipGetDeviceProperties";
    if (!newer && driver->hipGetDeviceProperties == NULL) {
        return pf_error(PFATTN_ERROR_UNAVAILABLE,
                        "hip: the library has neither hipGetDevicePropertiesR0600 nor "
                        "hipGetDeviceProperties; ROCm 5 to 7 have one of them");
    }
    char *block = calloc(1, PF_HIP_PROPERTIES_BYTES);
    if (block == NULL) {
        return pf_error(PFATTN_ERROR_OUT_OF_MEMORY, "hip: %d bytes could not be allocated",
                        PF_HIP_PROPERTIES_BYTES);
    }
    pf_hip_error result = newer ? driver->hipGetDevicePropertiesR0600(block, ordinal)
                                : driver->hipGetDeviceProperties(block, ordinal);
    const char *arch = block + (newer ? PF_HIP_ARCH_R0600 : PF_HIP_ARCH_R0000);
    snprintf(p->arch, sizeof p->arch, "%.*s", (int)strcspn(arch, ":"), arch);
    free(block);
    return pf_hip_check(driver, result, call);
}

static pfattn_status read_attributes(const pf_hip_driver *driver, int ordinal, properties *p) {
    const struct {
        int attribute;
        int *value;
    } wanted[] = {
        {PF_HIP_MULTIPROCESSOR_COUNT, &p->compute_units},
        {PF_HIP_SHARED_PER_BLOCK, &p->shared_bytes},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        pf_hip_error result =
            driver->hipDeviceGetAttribute(wanted[i].value, wanted[i].attribute, ordinal);
        if (result != PF_HIP_SUCCESS) {
            return pf_hip_check(driver, result, "hipDeviceGetAttribute");
        }
    }
    return PFATTN_SUCCESS;
}

static pfattn_status read_properties(const pf_hip_driver *driver, int ordinal, properties *p) {
    memset(p, 0, sizeof *p);
    pfattn_status status =
        pf_hip_check(driver, driver->hipDeviceGetName(p->name, (int)sizeof p->name - 1, ordinal),
                     "hipDeviceGetName");
    if (status == PFATTN_SUCCESS) {
        status = pf_hip_check(driver, driver->hipDeviceTotalMem(&p->memory_bytes, ordinal),
                              "hipDeviceTotalMem");
    }
    if (status == PFATTN_SUCCESS) {
        status = read_arch(driver, ordinal, p);
    }
    return status == PFATTN_SUCCESS ? read_attributes(driver, ordinal, p) : status;
}

/* ---- targets ------------------------------------------------------------------------------- */

/* The target of this build that the chip is, or NO_TARGET: code objects run on their own chip
 * alone. */
static int find_target(const properties *p) {
    for (int target = PF_TARGET_GFX90A; target <= PF_TARGET_GFX950; target++) {
        if (strcmp(p->arch, pf_target_name(target)) == 0 &&
            pf_target_is_built(pf_hip_images, pf_hip_images_count, target)) {
            return target;
        }
    }
    return NO_TARGET;
}

static pfattn_status no_target(int ordinal, const properties *p) {
    char list[64];
    pf_targets_list(pf_hip_images, pf_hip_images_count, PF_TARGET_GFX90A, PF_TARGET_GFX950, list,
                    sizeof list);
    return pf_error(PFATTN_ERROR_UNAVAILABLE,
                    "hip: device %d (%s) is a %s, and this build has kernels for %s; pfattn can be "
                    "built for gfx90a, gfx942 and gfx950 (-Dhip-archs)",
                    ordinal, p->name, p->arch, list);
}

/* ---- queries ------------------------------------------------------------------------------- */

static pfattn_status count_devices(const pf_hip_driver *driver, int *count) {
    pfattn_status status =
        pf_hip_check(driver, driver->hipGetDeviceCount(count), "hipGetDeviceCount");
    if (status == PFATTN_SUCCESS && *count == 0) {
        return pf_error(PFATTN_ERROR_UNAVAILABLE,
                        "hip: the runtime sees no device; check rocminfo and HIP_VISIBLE_DEVICES");
    }
    return status;
}

/* Devices keep HIP's ordinals, so one that cannot be used is counted where another can; opening it
 * says why. */
pfattn_status pf_hip_probe(int32_t *device_count, char *summary, size_t size) {
    const pf_hip_driver *driver;
    int count = 0;
    pfattn_status status = pf_hip_driver_open(&driver);
    if (status == PFATTN_SUCCESS) {
        status = count_devices(driver, &count);
    }
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    size_t used = (size_t)snprintf(summary, size, "HIP runtime %d.%d", driver->version / 10000000,
                                   driver->version / 100000 % 100);
    int usable = 0;
    properties p;
    for (int i = 0; i < count; i++) {
        status = read_properties(driver, i, &p);
        if (status != PFATTN_SUCCESS) {
            return status;
        }
        bool runs = find_target(&p) != NO_TARGET;
        usable += runs;
        if (used < size) {
            used += (size_t)snprintf(summary + used, size - used, ", device %d: %s (%s%s)", i,
                                     p.name, p.arch, runs ? "" : ", cannot be used");
        }
    }
    if (usable == 0) {
        return no_target(count - 1, &p);
    }
    *device_count = count;
    return PFATTN_SUCCESS;
}

pfattn_status pf_hip_device_info(int32_t index, pfattn_device_info *info) {
    const pf_hip_driver *driver;
    properties p;
    pfattn_status status = pf_hip_driver_open(&driver);
    if (status == PFATTN_SUCCESS) {
        status = read_properties(driver, index, &p);
    }
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    int target = find_target(&p);
    snprintf(info->name, sizeof info->name, "%s", p.name);
    snprintf(info->arch, sizeof info->arch, "%s", p.arch);
    snprintf(info->target, sizeof info->target, "%s",
             target == NO_TARGET ? "none" : pf_target_name(target));
    info->compute_units = p.compute_units;
    info->memory_bytes = (int64_t)p.memory_bytes;
    info->shared_bytes = p.shared_bytes;
    info->driver_version = driver->version;
    return PFATTN_SUCCESS;
}

/* ---- opening ------------------------------------------------------------------------------- */

static pfattn_status fill_capabilities(pf_device *device) {
    properties p;
    pfattn_status status = read_properties(device->driver, device->ordinal, &p);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    device->target = find_target(&p);
    if (device->target == NO_TARGET) {
        return no_target(device->ordinal, &p);
    }
    device->capabilities = (pf_capabilities){.backend = "hip",
                                             .tuning = pf_hip_tuning,
                                             .tuning_count = PF_HIP_TUNING_COUNT,
                                             .targets = {device->target},
                                             .target_count = 1,
                                             .compute_units = p.compute_units,
                                             .warp_size = WAVE_SIZE,
                                             .shared_bytes = p.shared_bytes};
    pf_target_find_images(pf_hip_images, pf_hip_images_count, device->target, device->images);
    device->capabilities.images[device->target] = device->images;
    pf_tuned_read(&device->tuned, &device->capabilities, p.name);
    device->capabilities.tuned = &device->tuned;
    return PFATTN_SUCCESS;
}

pfattn_status pf_hip_device_open(int32_t index, pf_device **device) {
    const pf_hip_driver *driver;
    pfattn_status status = pf_hip_driver_open(&driver);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    pf_device *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return pf_error(PFATTN_ERROR_OUT_OF_MEMORY, "hip: %zu bytes could not be allocated",
                        sizeof *made);
    }
    made->driver = driver;
    made->ordinal = index;
    status = fill_capabilities(made);
    if (status != PFATTN_SUCCESS) {
        free(made);
        return status;
    }
    *device = made;
    return PFATTN_SUCCESS;
}

void pf_hip_device_close(pf_device *device) {
    int previous;
    if (pf_hip_enter(device, &previous) == PFATTN_SUCCESS) {
        for (int i = 0; i < 2; i++) {
            if (device->timer[i] != NULL) {
                device->driver->hipEventDestroy(device->timer[i]);
            }
        }
        pf_hip_unload(device);
        pf_hip_leave(device, previous, PFATTN_SUCCESS);
    }
    free(device);
}

const pf_capabilities *pf_hip_capabilities(const pf_device *device) {
    return &device->capabilities;
}

pfattn_status pf_hip_enter(pf_device *device, int *previous) {
    const pf_hip_driver *driver = device->driver;
    pfattn_status status = pf_hip_check(driver, driver->hipGetDevice(previous), "hipGetDevice");
    return status == PFATTN_SUCCESS && *previous != device->ordinal
               ? pf_hip_check(driver, driver->hipSetDevice(device->ordinal), "hipSetDevice")
               : status;
}

pfattn_status pf_hip_leave(pf_device *device, int previous, pfattn_status status) {
    pf_hip_error result = PF_HIP_SUCCESS;
    if (previous != device->ordinal) {
        result = device->driver->hipSetDevice(previous);
    }
    return status == PFATTN_SUCCESS ? pf_hip_check(device->driver, result, "hipSetDevice") : status;
}
