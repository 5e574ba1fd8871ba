/* SPDX-License-Identifier: Apache-2.0 */
/* An open AMD device: what it can run, and the kernels loaded so far. */
#ifndef PF_HIP_DEVICE_H
#define PF_HIP_DEVICE_H

#include <stdbool.h>

#include "common/backend.h"
#include "common/image.h"
#include "common/select.h"
#include "driver.h"

/* A loaded image; module is NULL until then. */
typedef struct pf_hip_module {
    pf_hip_handle module;
    pf_hip_handle function[PF_ENTRY_COUNT];
} pf_hip_module;

struct pf_device {
    const pf_hip_driver *driver;
    int ordinal;
    pf_capabilities capabilities;
    pf_tuned tuned;
    int target;                  /* the one that its chip is */
    bool images[PF_IMAGE_COUNT]; /* in this build of the library */
    pf_hip_module modules[PF_IMAGE_COUNT];
    pf_hip_handle timer[2]; /* events, NULL until first used */
};

/* The kernels of this build, sorted by name. */
extern const pf_image pf_hip_images[];
extern const size_t pf_hip_images_count;

/* The functions of pf_backend; see backend.h. */
pfattn_status pf_hip_probe(int32_t *device_count, char *summary, size_t size);
pfattn_status pf_hip_device_info(int32_t index, pfattn_device_info *info);
pfattn_status pf_hip_device_open(int32_t index, pf_device **device);
void pf_hip_device_close(pf_device *device);
pfattn_status pf_hip_plan(pf_device *device, const pf_problem *problem, pf_plan *plan);
size_t pf_hip_workspace_size(pf_device *device, const pf_problem *problem, const pf_plan *plan);
pfattn_status pf_hip_launch(pf_device *device, pf_call *call, void *stream);
extern const pf_memory_ops pf_hip_memory;
const pf_capabilities *pf_hip_capabilities(const pf_device *device);

/* Make the device the thread's current one, remembering which was, and give that back. leave()
 * passes `status` on, or its own error where that was success. */
pfattn_status pf_hip_enter(pf_device *device, int *previous);
pfattn_status pf_hip_leave(pf_device *device, int previous, pfattn_status status);

/* Load what a plan launches and is not loaded yet. Loading is allowed while a stream of this thread
 * is being captured. */
pfattn_status pf_hip_load(pf_device *device, const pf_plan *plan);
void pf_hip_unload(pf_device *device);

#endif
