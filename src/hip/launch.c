/* SPDX-License-Identifier: Apache-2.0 */
/* From a problem to launches on the caller's stream. */
#include <stdio.h>

#include "common/plan_run.h"
#include "common/status.h"
#include "device.h"

typedef struct launches {
    pf_device *device;
    pf_hip_handle stream;
} launches;

pfattn_status pf_hip_plan(pf_device *device, const pf_problem *problem, pf_plan *plan) {
    pfattn_status status = pf_select(&device->capabilities, problem, plan);
    return status == PFATTN_SUCCESS ? pf_hip_load(device, plan) : status;
}

size_t pf_hip_workspace_size(pf_device *device, const pf_problem *problem, const pf_plan *plan) {
    return pf_select_workspace(&device->capabilities, problem, plan);
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

pfattn_status pf_hip_launch(pf_device *device, pf_call *call, void *stream) {
    launches l = {device, stream};
    int previous;
    if (call->plan.step_count == 0) {
        return PFATTN_SUCCESS;
    }
    pfattn_status status = pf_hip_enter(device, &previous);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    pf_call_fill(call);
    return pf_hip_leave(device, previous,
                        pf_plan_run(&call->plan, &call->arguments, launch_step, &l));
}
