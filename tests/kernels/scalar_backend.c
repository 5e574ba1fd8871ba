/* SPDX-License-Identifier: Apache-2.0 */
/* Select, scratch and kernel arguments as on a GPU, then each launch as a plain function call. */
#include "scalar.h"

#include <stdlib.h>
#include <string.h>

#include "plan_run.h"
#include "scalar_tiles.h"
#include "status.h"

/* Select knows no scalar target; it stands in for sm_80. On device SCALAR_WIDENS the f16 kernels of
 * forward stand in for those of sm_90a as well, which e5m2 then goes through. */
#define TARGET PF_TARGET_SM_80
#define WIDENING PF_TARGET_SM_90A

/* Workgroups of forward and backward do several items of work. */
#define ROW_OF(target, op, element_class)                                                          \
    {target,                                                                                       \
     PF_OP_##op,                                                                                   \
     PF_CLASS_##element_class,                                                                     \
     SCALAR_HEAD_DIM,                                                                              \
     SCALAR_OWNED_TILE,                                                                            \
     SCALAR_CROSS_TILE,                                                                            \
     SCALAR_OUT_DIM,                                                                               \
     SCALAR_STAGES,                                                                                \
     1,                                                                                            \
     0,                                                                                            \
     1,                                                                                            \
     PF_OP_##op <= PF_OP_BACKWARD,                                                                 \
     0,                                                                                            \
     0,                                                                                            \
     SCALAR_BIAS_BYTES,                                                                            \
     0,                                                                                            \
     0},
#define ROW(op, element_class) ROW_OF(TARGET, op, element_class)
#define ROWS(element_class)                                                                        \
    ROW(FORWARD, element_class)                                                                    \
    ROW(FORWARD_JVP, element_class)                                                                \
    ROW(BACKWARD, element_class)                                                                   \
    ROW(BACKWARD_JVP, element_class)                                                               \
    ROW(DBIAS, element_class)                                                                      \
    ROW(DBIAS_JVP, element_class)
static const pf_tuning tuning[] = {ROWS(HALF) ROWS(F32) ROW(FORWARD, E5M2)
                                       ROW_OF(WIDENING, FORWARD, HALF)};

/* Every image of the build: (operation, element, variant). */
#define VARIANTS(X, op, element) X(op, element, plain) X(op, element, general)
#define ELEMENTS(X, op) VARIANTS(X, op, f16) VARIANTS(X, op, bf16) VARIANTS(X, op, f32)
#define IMAGES(X)                                                                                  \
    ELEMENTS(X, FORWARD)                                                                           \
    ELEMENTS(X, FORWARD_JVP)                                                                       \
    ELEMENTS(X, BACKWARD)                                                                          \
    ELEMENTS(X, BACKWARD_JVP)                                                                      \
    ELEMENTS(X, DBIAS)                                                                             \
    ELEMENTS(X, DBIAS_JVP)                                                                         \
    VARIANTS(X, FORWARD, e5m2)

#define DECLARE(op, element, variant) scalar_image scalar_##op##_##element##_##variant;
IMAGES(DECLARE)
scalar_image scalar_PASSES;

#define dtype_f16 PFATTN_DTYPE_F16
#define dtype_bf16 PFATTN_DTYPE_BF16
#define dtype_f32 PFATTN_DTYPE_F32
#define dtype_e5m2 PFATTN_DTYPE_E5M2
#define general_plain false
#define general_general true

struct pf_device {
    pf_capabilities capabilities;
    bool present[PF_IMAGE_COUNT], widening[PF_IMAGE_COUNT];
    scalar_image *image[PF_IMAGE_COUNT];
};

static void add_image(pf_device *device, int number, scalar_image *image) {
    device->present[number] = true;
    device->image[number] = image;
}

static pfattn_status device_open(int32_t index, pf_device **opened) {
    pf_device *device = calloc(1, sizeof *device);
    if (device == NULL) {
        return pf_error(PFATTN_ERROR_OUT_OF_MEMORY, "scalar: no memory for a device");
    }
#define ADD(op, element, variant)                                                                  \
    add_image(device,                                                                              \
              pf_image_number(PF_OP_##op, dtype_##element, SCALAR_HEAD_DIM, general_##variant, 0), \
              scalar_##op##_##element##_##variant);
    IMAGES(ADD)
    add_image(device, PF_IMAGE_PASSES, scalar_PASSES);
    device->capabilities = (pf_capabilities){.backend = "scalar",
                                             .tuning = tuning,
                                             .tuning_count = sizeof tuning / sizeof tuning[0],
                                             .targets = {TARGET},
                                             .target_count = 1,
                                             .compute_units = 16,
                                             .warp_size = 1,
                                             .shared_bytes = 1 << 20};
    device->capabilities.images[TARGET] = device->present;
    if (index == SCALAR_WIDENS) {
        for (int general = 0; general < 2; general++) {
            device->widening[pf_image_number(PF_OP_FORWARD, PFATTN_DTYPE_F16, SCALAR_HEAD_DIM,
                                             general, 0)] = true;
        }
        device->capabilities.targets[0] = WIDENING;
        device->capabilities.targets[1] = TARGET;
        device->capabilities.target_count = 2;
        device->capabilities.images[WIDENING] = device->widening;
    }
    *opened = device;
    return PFATTN_SUCCESS;
}

static void device_close(pf_device *device) {
    free(device);
}

static pfattn_status plan_problem(pf_device *device, const pf_problem *problem, pf_plan *plan) {
    return pf_select(&device->capabilities, problem, plan);
}

static size_t workspace_size(pf_device *device, const pf_problem *problem, const pf_plan *plan) {
    return pf_select_workspace(&device->capabilities, problem, plan);
}

static pfattn_status launch_step(void *context, const pf_step *step, pf_plan_arguments *arguments) {
    const pf_device *device = context;
    /* Workgroups run one after the other, so those that wait for each other do one item each. */
    bool alone = step->kind == PF_STEP_MAIN && arguments->attention.deterministic;
    device->image[step->image](pf_step_arguments(step, arguments), step->entry,
                               alone ? step->work_count : step->grid, step->block);
    return PFATTN_SUCCESS;
}

static pfattn_status launch(pf_device *device, pf_call *call, void *stream) {
    (void)stream;
    pf_call_fill(call);
    return pf_plan_run(&call->plan, &call->arguments, launch_step, device);
}

static pfattn_status allocate(pf_device *device, size_t bytes, void **memory) {
    (void)device;
    if (posix_memalign(memory, 256, bytes > 0 ? bytes : 1) != 0) {
        return pf_error(PFATTN_ERROR_OUT_OF_MEMORY, "scalar: no memory for %zu bytes", bytes);
    }
    return PFATTN_SUCCESS;
}

static void release(pf_device *device, void *memory) {
    (void)device;
    free(memory);
}

static pfattn_status copy(pf_device *device, void *to, const void *from, size_t bytes) {
    (void)device;
    if (bytes > 0) {
        memcpy(to, from, bytes);
    }
    return PFATTN_SUCCESS;
}

static pfattn_status synchronize(pf_device *device) {
    (void)device;
    return PFATTN_SUCCESS;
}

static const pf_memory_ops memory = {.allocate = allocate,
                                     .release = release,
                                     .upload = copy,
                                     .download = copy,
                                     .synchronize = synchronize};

const pf_backend scalar_backend = {.id = PFATTN_BACKEND_REF,
                                   .name = "scalar",
                                   .device_open = device_open,
                                   .device_close = device_close,
                                   .plan = plan_problem,
                                   .workspace_size = workspace_size,
                                   .launch = launch,
                                   .memory = &memory};
