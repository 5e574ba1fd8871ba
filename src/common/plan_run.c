/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_run.h"

#include <stdio.h>

#include "kargs_fill.h"
#include "widen.h"

void pf_plan_fill(const pf_problem *problem, const pf_plan *plan, unsigned long long workspace,
                  pf_plan_arguments *arguments) {
    arguments->problem = problem;
    if (plan->widened) {
        arguments->problem = &arguments->wide;
        pf_widen_problem(problem, &plan->scratch, workspace, &arguments->wide);
        pf_widen_kargs_fill(problem, &arguments->wide, &arguments->widen);
    }
    if (problem->operation == PF_MERGE) {
        pf_merge_kargs_fill(problem, &arguments->merge);
    } else {
        pf_kargs_fill(arguments->problem, plan, workspace, &arguments->attention);
        if (plan->narrowed) {
            pf_narrow_kargs_fill(problem, &arguments->attention, &arguments->merge);
        }
    }
}

pfattn_status pf_plan_run(const pf_plan *plan, pf_plan_arguments *arguments, pf_step_launch *launch,
                          void *context) {
    pfattn_status status = PFATTN_SUCCESS;
    for (int i = 0; i < plan->step_count && status == PFATTN_SUCCESS; i++) {
        arguments->attention.work_count = plan->step[i].work_count;
        status = launch(context, &plan->step[i], arguments);
    }
    return status;
}

const char *pf_step_name(const pf_step *step) {
    static const char *const names[] = {
        [PF_STEP_WIDEN] = "pf_widen",
        [PF_STEP_KEY_LIVE] = "pf_key_live",
        [PF_STEP_BACKWARD_PRE] = "pf_backward_pre",
        [PF_STEP_MAIN] = "the main kernel",
        [PF_STEP_DQ] = "the dq pass",
        [PF_STEP_DBIAS] = "pf_dbias",
        [PF_STEP_DBIAS_REDUCE] = "pf_dbias_reduce",
        [PF_STEP_MERGE] = "pf_merge",
        [PF_STEP_MERGE_SPLITS] = "pf_merge_splits",
        [PF_STEP_NARROW] = "pf_narrow",
    };
    return names[step->kind];
}

bool pf_target_is_built(const pf_image *images, size_t count, int target) {
    char passes[32];
    pf_image_key(target, PF_IMAGE_PASSES, passes, sizeof passes);
    return pf_image_find(images, count, passes) != NULL;
}

void pf_target_find_images(const pf_image *images, size_t count, int target,
                           bool present[PF_IMAGE_COUNT]) {
    for (int image = 0; image < PF_IMAGE_COUNT; image++) {
        char key[64];
        pf_image_key(target, image, key, sizeof key);
        present[image] = pf_image_find(images, count, key) != NULL;
    }
}

void pf_targets_list(const pf_image *images, size_t count, int first, int last, char *list,
                     size_t size) {
    snprintf(list, size, "none");
    size_t used = 0;
    for (int target = first; target <= last && used < size; target++) {
        if (pf_target_is_built(images, count, target)) {
            used += (size_t)snprintf(list + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     pf_target_name(target));
        }
    }
}
