/* SPDX-License-Identifier: Apache-2.0 */
/* From a problem to launches on the caller's stream. */
#include <stdio.h>

#include "common/plan_run.h"
#include "common/status.h"
#include "device.h"
#include "graph.h"
#include "tensor_map.h"

typedef struct launches {
    pf_device *device;
    CUstream stream;
} launches;

pfattn_status pf_cuda_plan(pf_device *device, const pf_problem *problem, pf_plan *plan) {
    pfattn_status status = pf_select(&device->capabilities, problem, plan);
    return status == PFATTN_SUCCESS ? pf_cuda_load(device, plan) : status;
}

size_t pf_cuda_workspace_size(pf_device *device, const pf_problem *problem, const pf_plan *plan) {
    return pf_select_workspace(&device->capabilities, problem, plan);
}

static pfattn_status encode_maps(pf_device *device, pf_call *call) {
    const pf_plan *plan = &call->plan;
    for (int i = 0; i < plan->step_count; i++) {
        if (plan->step[i].kind == PF_STEP_MAIN && plan->step[i].mapped) {
            return pf_tensor_maps_encode(device->driver, plan->tuning, &call->arguments);
        }
    }
    return PFATTN_SUCCESS;
}

static pfattn_status fill(pf_device *device, pf_call *call) {
    if (call->filled) {
        return PFATTN_SUCCESS;
    }
    pf_call_fill(call);
    pf_cuda_graph_outdate(call);
    pfattn_status status = encode_maps(device, call);
    call->filled = status == PFATTN_SUCCESS;
    return status;
}

static pfattn_status launch_step(void *context, const pf_step *step, pf_plan_arguments *arguments) {
    const launches *l = context;
    const pf_cuda_driver *driver = l->device->driver;
    void *parameters[] = {pf_step_arguments(step, arguments), arguments->maps};
    CUresult result = driver->cuLaunchKernel(
        pf_cuda_function(l->device, step), (unsigned)step->grid, 1, 1, (unsigned)step->block, 1, 1,
        (unsigned)step->shared_bytes, l->stream, parameters, NULL);
    if (result == CUDA_SUCCESS) {
        return PFATTN_SUCCESS;
    }
    char call[64];
    snprintf(call, sizeof call, "cuLaunchKernel of %s", pf_step_name(step));
    return pf_cuda_check(driver, result, call);
}

static pfattn_status run(pf_device *device, pf_call *call, CUstream stream) {
    launches l = {device, stream};
    pfattn_status status = fill(device, call);
    if (status != PFATTN_SUCCESS || pf_cuda_graph_launch(device, call, stream, &status)) {
        return status;
    }
    return pf_plan_run(&call->plan, &call->arguments, launch_step, &l);
}

pfattn_status pf_cuda_launch(pf_device *device, pf_call *call, void *stream) {
    if (call->plan.step_count == 0) {
        return PFATTN_SUCCESS;
    }
    pfattn_status status = pf_cuda_enter(device);
    return status == PFATTN_SUCCESS ? pf_cuda_leave(device, run(device, call, stream)) : status;
}
