/* SPDX-License-Identifier: Apache-2.0 */
/* Loading of kernel images, each when a problem first needs it. */
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/status.h"
#include "device.h"

static pfattn_status load_module(pf_device *device, const char *key, pf_hip_handle *module) {
    const pf_image *image = pf_image_find(pf_hip_images, pf_hip_images_count, key);
    if (image == NULL) {
        return pf_error(PFATTN_ERROR_UNAVAILABLE, "hip: this build has no kernels %s", key);
    }
    pf_hip_error result = device->driver->hipModuleLoadData(module, image->bytes);
    if (result == PF_HIP_SUCCESS) {
        return PFATTN_SUCCESS;
    }
    char call[128];
    snprintf(call, sizeof call, "hipModuleLoadData of kernels %s", key);
    return pf_hip_check(device->driver, result, call);
}

static pfattn_status load_functions(pf_device *device, int image, pf_hip_module *loaded) {
    for (int entry = 0; entry < PF_ENTRY_COUNT; entry++) {
        const char *name = pf_entry_name(image, entry);
        pf_hip_error result = name == NULL ? PF_HIP_SUCCESS
                                           : device->driver->hipModuleGetFunction(
                                                 &loaded->function[entry], loaded->module, name);
        if (result != PF_HIP_SUCCESS) {
            char call[96];
            snprintf(call, sizeof call, "hipModuleGetFunction of %s", name);
            return pf_hip_check(device->driver, result, call);
        }
    }
    return PFATTN_SUCCESS;
}

static pfattn_status load_image(pf_device *device, int image) {
    char key[64];
    pf_hip_module made = {0};
    pf_image_key(device->target, image, key, sizeof key);
    pfattn_status status = load_module(device, key, &made.module);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    status = load_functions(device, image, &made);
    if (status != PFATTN_SUCCESS) {
        device->driver->hipModuleUnload(made.module);
        return status;
    }
    device->modules[image] = made;
    pf_log(PF_LOG_DEBUG, "hip: loaded kernels %s on device %d", key, device->ordinal);
    return PFATTN_SUCCESS;
}

/* The first step whose image is not loaded, from step i; step_count where there is none. */
static int next_unloaded(const pf_device *device, const pf_plan *plan, int i) {
    while (i < plan->step_count && device->modules[plan->step[i].image].module != NULL) {
        i++;
    }
    return i;
}

/* Loading may synchronise, which would break a capture on this thread: step out of it. */
static pfattn_status exchange_capture_mode(pf_device *device, int *mode) {
    const pf_hip_driver *driver = device->driver;
    return driver->hipThreadExchangeStreamCaptureMode == NULL
               ? PFATTN_SUCCESS
               : pf_hip_check(driver, driver->hipThreadExchangeStreamCaptureMode(mode),
                              "hipThreadExchangeStreamCaptureMode");
}

static pfattn_status load_steps(pf_device *device, const pf_plan *plan) {
    int mode = PF_HIP_CAPTURE_RELAXED;
    pfattn_status status = exchange_capture_mode(device, &mode);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    for (int i = next_unloaded(device, plan, 0); i < plan->step_count && status == PFATTN_SUCCESS;
         i = next_unloaded(device, plan, i)) {
        status = load_image(device, plan->step[i].image);
    }
    pfattn_status restored = exchange_capture_mode(device, &mode);
    return status == PFATTN_SUCCESS ? restored : status;
}

pfattn_status pf_hip_load(pf_device *device, const pf_plan *plan) {
    int previous;
    if (next_unloaded(device, plan, 0) == plan->step_count) {
        return PFATTN_SUCCESS;
    }
    pfattn_status status = pf_hip_enter(device, &previous);
    return status == PFATTN_SUCCESS ? pf_hip_leave(device, previous, load_steps(device, plan))
                                    : status;
}

void pf_hip_unload(pf_device *device) {
    for (int image = 0; image < PF_IMAGE_COUNT; image++) {
        if (device->modules[image].module != NULL) {
            device->driver->hipModuleUnload(device->modules[image].module);
        }
    }
    memset(device->modules, 0, sizeof device->modules);
}
