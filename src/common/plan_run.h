/* SPDX-License-Identifier: Apache-2.0 */
/* Running a plan, and finding the kernels of a build: what is the same whatever the driver. */
#ifndef PF_PLAN_RUN_H
#define PF_PLAN_RUN_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>

#include "image.h"
#include "kargs.h"
#include "select.h"

/* A tensor map, in the format of its driver. */
typedef struct pf_tensor_map {
    alignas(128) unsigned long long words[16];
} pf_tensor_map;

/* Arguments of the kernels of a call; what a call has no kernel for is not filled. Drivers copy
 * them in each launch. */
typedef struct pf_plan_arguments {
    pf_tensor_map maps[PF_MAP_COUNT]; /* the second argument of steps that are mapped */
    bool mapped;                      /* the maps are right, or right but for their addresses */
    pf_attention_kargs attention;
    pf_merge_kargs merge;
    pf_widen_kargs widen;
    /* What the main kernel computes: the problem of the call, or `wide`, its operands copies. */
    const pf_problem *problem;
    pf_problem wide;
} pf_plan_arguments;

/* The first argument of a step's kernel. */
static inline void *pf_step_arguments(const pf_step *step, pf_plan_arguments *arguments) {
    switch (step->kind) {
    case PF_STEP_MERGE:
    case PF_STEP_NARROW:
        return &arguments->merge;
    case PF_STEP_WIDEN:
        return &arguments->widen;
    default:
        return &arguments->attention;
    }
}

/* A driver's launch of the kernel of a step; `context` is its own. */
typedef pfattn_status pf_step_launch(void *context, const pf_step *step,
                                     pf_plan_arguments *arguments);

void pf_plan_fill(const pf_problem *problem, const pf_plan *plan, unsigned long long workspace,
                  pf_plan_arguments *arguments);

/* Enqueue every step; the first that fails is the last. */
pfattn_status pf_plan_run(const pf_plan *plan, pf_plan_arguments *arguments, pf_step_launch *launch,
                          void *context);

/* The kernel of a step, for messages. */
const char *pf_step_name(const pf_step *step);

/* Does a build hold the kernels of a target, and which? `images` is sorted by name. */
bool pf_target_is_built(const pf_image *images, size_t count, int target);
void pf_target_find_images(const pf_image *images, size_t count, int target,
                           bool present[PF_IMAGE_COUNT]);

/* Those of the targets from first to last that are built, "gfx90a, gfx942", or "none". */
void pf_targets_list(const pf_image *images, size_t count, int first, int last, char *list,
                     size_t size);

#endif
