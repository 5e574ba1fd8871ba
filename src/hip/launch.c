/* SPDX-License-Identifier: Apache-2.0 */
/* From a problem to launches on the caller's stream. */
#include <stdint.h>
#include <stdio.h>

#include "common/plan_run.h"
#include "common/status.h"
#include "device.h"

typedef struct launches {
    pf_device *device;
    pf_hip_handle stream;
} launches;

pfattn_status pf_hip_supported(pf_device *device, const pf_problem *problem) {
    pf_plan plan;
    pfattn_status status = pf_select(&device->capabilities, problem, &plan);
    return status == PFATTN_SUCCESS ? pf_hip_load(device, &plan) : status;
}

pfattn_status pf_hip_workspace_size(pf_device *device, const pf_problem *problem, size_t *bytes) {
    return pf_select_workspace(&device->capabilities, problem, bytes);
}

/* The LDS of a kernel is fixed when it is compiled: none is asked for here. */
static pfattn_status launch_step(void *context, const pf_step *step, pf_plan_arguments *arguments) {
    launches *l = context;
    const pf_hip_driver *driver = l->device->driver;
    void *parameters[] = {pf_step_arguments(step, arguments)};
    pf_hip_error result = driver->hipModuleLaunchKernel(
        l->device->modules[step->image].function[step->entry], (unsigned)step->grid, 1, 1,
        (unsigned)step->block, 1, 1, 0, l->stream, parameters, NULL);
    if (result == PF_HIP_SUCCESS) {
        return PFATTN_SUCCESS;
    }
    char call[64];
    snprintf(call, sizeof call, "hipModuleLaunchKernel of %s", pf_step_name(step));
    return pf_hip_check(driver, result, call);
}

static pfattn_status clear(void *context, unsigned long long address, size_t words) {
    launches *l = context;
    const pf_hip_driver *driver = l->device->driver;
    return pf_hip_check(driver,
                        driver->hipMemsetD32Async((void *)(uintptr_t)address, 0, words, l->stream),
                        "hipMemsetD32Async");
}

pfattn_status pf_hip_launch(pf_device *device, const pf_problem *problem, void *workspace,
                            void *stream) {
    static const pf_plan_driver driver = {launch_step, clear};
    launches l = {device, stream};
    pf_plan_arguments arguments;
    pf_plan plan;
    int previous;
    pfattn_status status = pf_select(&device->capabilities, problem, &plan);
    if (status != PFATTN_SUCCESS || plan.step_count == 0) {
        return status;
    }
    /* Everything is loaded before anything is launched. */
    status = pf_hip_load(device, &plan);
    if (status == PFATTN_SUCCESS) {
        status = pf_hip_enter(device, &previous);
    }
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    pf_plan_fill(problem, &plan, (uintptr_t)workspace, &arguments);
    return pf_hip_leave(device, previous,
                        pf_plan_run(&plan, (uintptr_t)workspace, &arguments, &driver, &l));
}
