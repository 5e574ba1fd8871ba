/* SPDX-License-Identifier: Apache-2.0 */
/* Loading of kernel images, each when a problem first needs it. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/status.h"
#include "device.h"

/* What a block may have without asking. */
enum { DEFAULT_SHARED_BYTES = 48 * 1024, LOG_BYTES = 512 };

/* Dynamic shared memory of the main kernel of a step's image. */
static int image_shared_bytes(const pf_plan *plan, const pf_step *step) {
    if (step->image == PF_IMAGE_PASSES) {
        return 0;
    }
    return step->kind == PF_STEP_DBIAS ? plan->dbias_tuning->shared_bytes
                                       : plan->tuning->shared_bytes;
}

/* Load the image; the log of the driver's PTX compiler goes to ours. */
static pfattn_status load_module(pf_device *device, const char *key, CUmodule *module) {
    const pf_image *image = pf_image_find(pf_cuda_images, pf_cuda_images_count, key);
    if (image == NULL) {
        return pf_error(PFATTN_ERROR_UNAVAILABLE, "cuda: this build has no kernels %s", key);
    }
    char log[LOG_BYTES] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    CUresult result = device->driver->cuModuleLoadDataEx(module, image->bytes, 2, options, values);
    if (result == CUDA_SUCCESS) {
        return PFATTN_SUCCESS;
    }
    log[sizeof log - 1] = '\0';
    pf_log(PF_LOG_WARN, "cuda: loading kernels %s failed%s%s", key, log[0] != '\0' ? ": " : "",
           log);
    char call[128];
    snprintf(call, sizeof call, "cuModuleLoadDataEx of kernels %s", key);
    return pf_cuda_check(device->driver, result, call);
}

static pfattn_status load_functions(pf_device *device, int image, int shared_bytes,
                                    pf_cuda_module *loaded) {
    const pf_cuda_driver *driver = device->driver;
    for (int entry = 0; entry < PF_ENTRY_COUNT; entry++) {
        const char *name = pf_entry_name(image, entry);
        if (name == NULL) {
            continue;
        }
        CUfunction *function = &loaded->function[entry];
        CUresult result = driver->cuModuleGetFunction(function, loaded->module, name);
        if (result != CUDA_SUCCESS) {
            return pf_cuda_check(driver, result, "cuModuleGetFunction");
        }
        if (entry == PF_ENTRY_MAIN && shared_bytes > DEFAULT_SHARED_BYTES) {
            result = driver->cuFuncSetAttribute(
                *function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes);
        }
        if (result != CUDA_SUCCESS) {
            return pf_cuda_check(driver, result, "cuFuncSetAttribute");
        }
        /* Otherwise its first launch would load it, and that may be inside a capture. */
        if (driver->cuFuncLoad != NULL) {
            result = driver->cuFuncLoad(*function);
        }
        if (result != CUDA_SUCCESS) {
            return pf_cuda_check(driver, result, "cuFuncLoad");
        }
    }
    return PFATTN_SUCCESS;
}

static pfattn_status load_image(pf_device *device, int target, int image, int shared_bytes) {
    char key[64];
    pf_cuda_module made = {0};
    pf_image_key(target, image, key, sizeof key);
    pfattn_status status = load_module(device, key, &made.module);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    status = load_functions(device, image, shared_bytes, &made);
    if (status != PFATTN_SUCCESS) {
        device->driver->cuModuleUnload(made.module);
        return status;
    }
    device->modules[target][image] = made;
    pf_log(PF_LOG_DEBUG, "cuda: loaded kernels %s on device %d", key, device->ordinal);
    return PFATTN_SUCCESS;
}

static bool is_loaded(const pf_device *device, const pf_step *step) {
    return device->modules[step->target][step->image].module != NULL;
}

static pfattn_status load_steps(pf_device *device, const pf_plan *plan) {
    for (int i = 0; i < plan->step_count; i++) {
        const pf_step *step = &plan->step[i];
        pfattn_status status =
            is_loaded(device, step)
                ? PFATTN_SUCCESS
                : load_image(device, step->target, step->image, image_shared_bytes(plan, step));
        if (status != PFATTN_SUCCESS) {
            return status;
        }
    }
    return PFATTN_SUCCESS;
}

/* Loading may synchronise. */
static pfattn_status load_outside_capture(pf_device *device, const pf_plan *plan) {
    CUstreamCaptureMode mode;
    pfattn_status status = pf_cuda_step_out(device, &mode);
    return status == PFATTN_SUCCESS ? pf_cuda_step_back(device, mode, load_steps(device, plan))
                                    : status;
}

pfattn_status pf_cuda_load(pf_device *device, const pf_plan *plan) {
    bool loaded = true;
    for (int i = 0; i < plan->step_count; i++) {
        loaded = loaded && is_loaded(device, &plan->step[i]);
    }
    if (loaded) {
        return PFATTN_SUCCESS;
    }
    pfattn_status status = pf_cuda_enter(device);
    return status == PFATTN_SUCCESS ? pf_cuda_leave(device, load_outside_capture(device, plan))
                                    : status;
}

void pf_cuda_unload(pf_device *device) {
    for (int target = 0; target < PF_CUDA_TARGETS; target++) {
        for (int image = 0; image < PF_IMAGE_COUNT; image++) {
            pf_cuda_module *loaded = &device->modules[target][image];
            if (loaded->module != NULL) {
                device->driver->cuModuleUnload(loaded->module);
            }
            memset(loaded, 0, sizeof *loaded);
        }
    }
}
