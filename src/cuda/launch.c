/* SPDX-License-Identifier: Apache-2.0 */
/* From a problem to launches on the caller's stream. */
#include <stdint.h>
#include <stdio.h>

#include "common/plan_run.h"
#include "common/status.h"
#include "device.h"
#include "tensor_map.h"

/* A call's launches. The driver copies the maps in each launch. */
typedef struct launches {
    pf_device *device;
    CUstream stream;
    pf_tensor_maps maps;
} launches;

pfattn_status pf_cuda_plan(pf_device *device, const pf_problem *problem, pf_plan *plan) {
    pfattn_status status = pf_select(&device->capabilities, problem, plan);
    return status == PFATTN_SUCCESS ? pf_cuda_load(device, plan) : status;
}

size_t pf_cuda_workspace_size(pf_device *device, const pf_problem *problem, const pf_plan *plan) {
    return pf_select_workspace(&device->capabilities, problem, plan);
}

static pfattn_status encode_maps(const pf_plan *plan, const pf_plan_arguments *arguments,
                                 launches *l) {
    for (int i = 0; i < plan->step_count; i++) {
        if (plan->step[i].kind == PF_STEP_MAIN && plan->step[i].mapped) {
            return pf_tensor_maps_encode(l->device->driver, arguments->problem,
                                         &arguments->attention, plan->tuning, &l->maps);
        }
    }
    return PFATTN_SUCCESS;
}

static pfattn_status launch_step(void *context, const pf_step *step, pf_plan_arguments *arguments) {
    launches *l = context;
    const pf_cuda_driver *driver = l->device->driver;
    void *parameters[] = {pf_step_arguments(step, arguments), &l->maps};
    CUresult result =
        driver->cuLaunchKernel(l->device->modules[step->target][step->image].function[step->entry],
                               (unsigned)step->grid, 1, 1, (unsigned)step->block, 1, 1,
                               (unsigned)step->shared_bytes, l->stream, parameters, NULL);
    if (result == CUDA_SUCCESS) {
        return PFATTN_SUCCESS;
    }
    char call[64];
    snprintf(call, sizeof call, "cuLaunchKernel of %s", pf_step_name(step));
    return pf_cuda_check(driver, result, call);
}

static pfattn_status run_plan(pf_device *device, const pf_problem *problem, const pf_plan *plan,
                              void *workspace, CUstream stream) {
    launches l;
    l.device = device;
    l.stream = stream;
    pf_plan_arguments arguments;
    pf_plan_fill(problem, plan, (uintptr_t)workspace, &arguments);
    pfattn_status status = encode_maps(plan, &arguments, &l);
    return status == PFATTN_SUCCESS ? pf_plan_run(plan, &arguments, launch_step, &l) : status;
}

pfattn_status pf_cuda_launch(pf_device *device, const pf_problem *problem, const pf_plan *plan,
                             void *workspace, void *stream) {
    if (plan->step_count == 0) {
        return PFATTN_SUCCESS;
    }
    pfattn_status status = pf_cuda_enter(device);
    return status == PFATTN_SUCCESS
               ? pf_cuda_leave(device, run_plan(device, problem, plan, workspace, stream))
               : status;
}
