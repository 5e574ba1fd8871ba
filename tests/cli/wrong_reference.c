/* SPDX-License-Identifier: Apache-2.0 */
/* A reference backend with a fault, linked (with --wrap=pf_ref_run) into a command of its own, to
 * show that `pfattn check` finds the fault. The backend calls pf_ref_run without options; the
 * oracle of the check always passes some, and is left alone. PFATTN_TEST_FAULT names the fault. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats.h"
#include "ref/ref.h"
#include "status.h"

pfattn_status __real_pf_ref_run(const pf_problem *problem, const pf_ref_options *options);
pfattn_status __wrap_pf_ref_run(const pf_problem *problem, const pf_ref_options *options);

static const pf_tensor_id outputs[PF_OPERATION_COUNT][6] = {
    [PF_FORWARD] = {PF_O, PF_LSE},
    [PF_FORWARD_JVP] = {PF_TO, PF_TLSE, PF_O, PF_LSE},
    [PF_BACKWARD] = {PF_DQ, PF_DK, PF_DV, PF_DBIAS, PF_DQ2, PF_DK2},
    [PF_BACKWARD_JVP] = {PF_TDQ, PF_TDK, PF_TDV, PF_TDBIAS, PF_TDQ2, PF_TDK2},
    [PF_MERGE] = {PF_O, PF_LSE, PF_TO, PF_TLSE},
};

/* The first output of the problem that is there; every one of the cases used has elements. */
static const pfattn_tensor *first_output(const pf_problem *problem) {
    for (int i = 0; i < 6; i++) {
        pf_tensor_id id = outputs[problem->operation][i];
        if (pf_present(problem, id)) {
            return &problem->tensor[id];
        }
    }
    return NULL;
}

static int64_t last_element(const pfattn_tensor *tensor) {
    int64_t at = 0;
    for (int d = 0; d < 4; d++) {
        at += (tensor->shape[d] - 1) * tensor->stride[d];
    }
    return at;
}

static void add_to(const pfattn_tensor *tensor, int64_t at, double amount) {
    pf_store(tensor->data, tensor->dtype, at, pf_load(tensor->data, tensor->dtype, at) + amount);
}

static void scale_all(const pfattn_tensor *t, double factor) {
    for (int64_t b = 0; b < t->shape[0]; b++) {
        for (int64_t h = 0; h < t->shape[1]; h++) {
            for (int64_t s = 0; s < t->shape[2]; s++) {
                for (int64_t c = 0; c < t->shape[3]; c++) {
                    int64_t at =
                        b * t->stride[0] + h * t->stride[1] + s * t->stride[2] + c * t->stride[3];
                    pf_store(t->data, t->dtype, at, factor * pf_load(t->data, t->dtype, at));
                }
            }
        }
    }
}

/* What is done to the results. */
static void spoil(const char *fault, const pf_problem *problem) {
    static int calls;
    const pfattn_tensor *out = first_output(problem);
    int64_t last = last_element(out);
    calls++;
    bool later = problem->operation != PF_FORWARD && problem->operation != PF_FORWARD_JVP;
    if (!strcmp(fault, "one-element")) {
        add_to(out, last, 0.25);
    } else if (!strcmp(fault, "nan")) {
        pf_store(out->data, out->dtype, last, NAN);
    } else if (!strcmp(fault, "scale") && later) {
        scale_all(out, 1.02);
    } else if (!strcmp(fault, "zero") && later) {
        scale_all(out, 0);
    } else if (!strcmp(fault, "guard-after")) {
        pf_store(out->data, out->dtype, last + 1, 1);
    } else if (!strcmp(fault, "guard-before")) {
        pf_store(out->data, out->dtype, -1, 1);
    } else if (!strcmp(fault, "input")) {
        pf_tensor_id input = problem->operation == PF_MERGE ? PF_O0 : PF_K;
        add_to(&problem->tensor[input], 0, 1);
    } else if (!strcmp(fault, "flaky") && calls % 2 == 0) {
        double value = pf_load(out->data, out->dtype, last);
        pf_store(out->data, out->dtype, last, value * (1 + 0x1p-9));
    } else if (!strcmp(fault, "log2")) {
        const pfattn_tensor *lse = &problem->tensor[PF_LSE];
        if (problem->operation == PF_FORWARD) {
            scale_all(lse, 1.4426950408889634);
        }
    }
}

/* What is done to the problem before it is computed. */
static void distort(const char *fault, pf_problem *problem) {
    if (!strcmp(fault, "diagonal")) {
        problem->diagonal++;
    } else if (!strcmp(fault, "causal")) {
        problem->causal = false;
    } else if (!strcmp(fault, "distance")) {
        problem->distance++;
    } else if (!strcmp(fault, "alpha")) {
        problem->alpha *= 1.05;
    } else if (!strcmp(fault, "mask")) {
        memset(&problem->tensor[PF_MASK], 0, sizeof problem->tensor[PF_MASK]);
    } else if (!strcmp(fault, "tangent")) {
        memset(&problem->tensor[PF_TV], 0, sizeof problem->tensor[PF_TV]);
    } else if (!strcmp(fault, "dlse")) {
        memset(&problem->tensor[PF_DLSE], 0, sizeof problem->tensor[PF_DLSE]);
    }
}

pfattn_status __wrap_pf_ref_run(const pf_problem *problem, const pf_ref_options *options) {
    const char *fault = getenv("PFATTN_TEST_FAULT");
    if (options || !fault) {
        return __real_pf_ref_run(problem, options);
    }
    if (!strcmp(fault, "status")) {
        return pf_error(PFATTN_ERROR_DRIVER, "planted: the launch failed");
    }
    if (!strcmp(fault, "unsupported")) {
        return pf_error(PFATTN_ERROR_UNSUPPORTED, "planted: this problem is not supported");
    }
    if (!strcmp(fault, "unwritten")) {
        return PFATTN_SUCCESS;
    }
    pf_problem distorted = *problem;
    distort(fault, &distorted);
    pfattn_status status = __real_pf_ref_run(&distorted, NULL);
    spoil(fault, problem);
    return status;
}
