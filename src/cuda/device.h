/* SPDX-License-Identifier: Apache-2.0 */
/* An open NVIDIA device: its primary context, what it can run, and the kernels loaded so far. */
#ifndef PF_CUDA_DEVICE_H
#define PF_CUDA_DEVICE_H

#include <stdbool.h>

#include "common/backend.h"
#include "common/image.h"
#include "common/select.h"
#include "driver.h"

enum { PF_CUDA_TARGETS = 2 }; /* PF_TARGET_SM_80, PF_TARGET_SM_90A */

/* A loaded image; module is NULL until then. */
typedef struct pf_cuda_module {
    CUmodule module;
    CUfunction function[PF_ENTRY_COUNT];
} pf_cuda_module;

struct pf_device {
    const pf_cuda_driver *driver;
    int ordinal;
    CUdevice device;
    CUcontext context;
    pf_capabilities capabilities;
    pf_tuned tuned;
    bool images[PF_CUDA_TARGETS][PF_IMAGE_COUNT]; /* in this build of the library */
    pf_cuda_module modules[PF_CUDA_TARGETS][PF_IMAGE_COUNT];
    CUevent timer[2]; /* NULL until first used */
};

/* The kernels of this build, sorted by name. */
extern const pf_image pf_cuda_images[];
extern const size_t pf_cuda_images_count;

/* The functions of pf_backend; see backend.h. */
pfattn_status pf_cuda_probe(int32_t *device_count, char *summary, size_t size);
pfattn_status pf_cuda_device_info(int32_t index, pfattn_device_info *info);
pfattn_status pf_cuda_device_open(int32_t index, pf_device **device);
void pf_cuda_device_close(pf_device *device);
pfattn_status pf_cuda_plan(pf_device *device, const pf_problem *problem, pf_plan *plan);
size_t pf_cuda_workspace_size(pf_device *device, const pf_problem *problem, const pf_plan *plan);
pfattn_status pf_cuda_launch(pf_device *device, pf_call *call, void *stream);
extern const pf_memory_ops pf_cuda_memory;
const pf_capabilities *pf_cuda_capabilities(const pf_device *device);

/* The loaded kernel of a step. */
static inline CUfunction pf_cuda_function(const pf_device *device, const pf_step *step) {
    return device->modules[step->target][step->image].function[step->entry];
}

/* Make the device's context current, and give the caller's back. leave() passes `status` on, or its
 * own error where that was success. */
pfattn_status pf_cuda_enter(pf_device *device);
pfattn_status pf_cuda_leave(pf_device *device, pfattn_status status);

/* Step out of a capture on this thread, which what may synchronise would break, and back, with the
 * mode that stepping out gave. step_back() passes `status` on as leave() does. */
pfattn_status pf_cuda_step_out(pf_device *device, CUstreamCaptureMode *mode);
pfattn_status pf_cuda_step_back(pf_device *device, CUstreamCaptureMode mode, pfattn_status status);

/* Load what a plan launches and is not loaded yet. Its context need not be current. Loading is
 * allowed while a stream of this thread is being captured. */
pfattn_status pf_cuda_load(pf_device *device, const pf_plan *plan);
void pf_cuda_unload(pf_device *device);

#endif
