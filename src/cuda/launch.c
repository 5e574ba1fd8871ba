/* SPDX-License-Identifier: Apache-2.0 */
/* From a problem to launches on the caller's stream. */
#include <stdint.h>
#include <string.h>

#include "common/kargs_fill.h"
#include "common/status.h"
#include "device.h"
#include "tensor_map.h"

/* Arguments of all launches of a call. The driver copies them in each launch. */
typedef struct arguments {
    union {
        pf_attention_kargs attention;
        pf_merge_kargs merge;
    } kernel;
    pf_tensor_maps maps;
} arguments;

pfattn_status pf_cuda_supported(pf_device *device, const pf_problem *problem) {
    pf_plan plan;
    pfattn_status status = pf_select(&device->capabilities, problem, &plan);
    return status == PFATTN_SUCCESS ? pf_cuda_load(device, &plan) : status;
}

pfattn_status pf_cuda_workspace_size(pf_device *device, const pf_problem *problem, size_t *bytes) {
    return pf_select_workspace(&device->capabilities, problem, bytes);
}

static pfattn_status fill_arguments(pf_device *device, const pf_problem *problem,
                                    const pf_plan *plan, void *workspace, arguments *args) {
    if (problem->operation == PF_MERGE) {
        pf_merge_kargs_fill(problem, &args->kernel.merge);
        return PFATTN_SUCCESS;
    }
    pf_kargs_fill(problem, plan, (uintptr_t)workspace, &args->kernel.attention);
    for (int i = 0; i < plan->step_count; i++) {
        if (plan->step[i].kind == PF_STEP_MAIN && plan->step[i].mapped) {
            return pf_tensor_maps_encode(device->driver, problem, &args->kernel.attention,
                                         plan->tuning, &args->maps);
        }
    }
    return PFATTN_SUCCESS;
}

static CUresult run_step(const pf_device *device, const pf_plan *plan, const pf_step *step,
                         void *workspace, CUstream stream, arguments *args) {
    const pf_cuda_driver *driver = device->driver;
    if (step->kind == PF_STEP_ZERO) {
        CUdeviceptr at = (CUdeviceptr)(uintptr_t)workspace + plan->scratch.zero_offset;
        return driver->cuMemsetD32Async(at, 0, plan->scratch.zero_bytes / 4, stream);
    }
    if (step->kind != PF_STEP_MERGE) {
        args->kernel.attention.work_count = step->work_count;
    }
    void *parameters[] = {&args->kernel, &args->maps};
    return driver->cuLaunchKernel(device->modules[step->target][step->image].function[step->entry],
                                  (unsigned)step->grid, 1, 1, (unsigned)step->block, 1, 1,
                                  (unsigned)step->shared_bytes, stream, parameters, NULL);
}

static const char *call_of(const pf_step *step) {
    static const char *const calls[] = {
        [PF_STEP_KEY_LIVE] = "cuLaunchKernel of pf_key_live",
        [PF_STEP_BACKWARD_PRE] = "cuLaunchKernel of pf_backward_pre",
        [PF_STEP_ZERO] = "cuMemsetD32Async",
        [PF_STEP_MAIN] = "cuLaunchKernel of the main kernel",
        [PF_STEP_DQ] = "cuLaunchKernel of the dq pass",
        [PF_STEP_DBIAS] = "cuLaunchKernel of pf_dbias",
        [PF_STEP_DBIAS_REDUCE] = "cuLaunchKernel of pf_dbias_reduce",
        [PF_STEP_MERGE] = "cuLaunchKernel of pf_merge",
    };
    return calls[step->kind];
}

static pfattn_status run_plan(pf_device *device, const pf_problem *problem, const pf_plan *plan,
                              void *workspace, CUstream stream) {
    arguments args;
    pfattn_status status = fill_arguments(device, problem, plan, workspace, &args);
    for (int i = 0; i < plan->step_count && status == PFATTN_SUCCESS; i++) {
        const pf_step *step = &plan->step[i];
        CUresult result = run_step(device, plan, step, workspace, stream, &args);
        if (result != CUDA_SUCCESS) {
            status = pf_cuda_check(device->driver, result, call_of(step));
        }
    }
    return status;
}

pfattn_status pf_cuda_launch(pf_device *device, const pf_problem *problem, void *workspace,
                             void *stream) {
    pf_plan plan;
    pfattn_status status = pf_select(&device->capabilities, problem, &plan);
    if (status != PFATTN_SUCCESS || plan.step_count == 0) {
        return status;
    }
    /* Everything is loaded before anything is launched. */
    status = pf_cuda_load(device, &plan);
    if (status == PFATTN_SUCCESS) {
        status = pf_cuda_enter(device);
    }
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    return pf_cuda_leave(device, run_plan(device, problem, &plan, workspace, (CUstream)stream));
}
