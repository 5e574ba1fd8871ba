/* SPDX-License-Identifier: Apache-2.0 */
#include "widen.h"

#include <string.h>

#include "tuning.h"

enum { ROW_MULTIPLE = 8 }; /* f16 elements in 16 bytes */

static const pf_tensor_id widened[PF_WIDENED] = {PF_Q, PF_K, PF_V, PF_Q2, PF_K2};

bool pf_can_widen(const pf_problem *problem) {
    return problem->operation == PF_FORWARD && problem->dtype == PFATTN_DTYPE_E5M2;
}

bool pf_needs_narrowing(const pf_problem *problem) {
    pfattn_dtype o = problem->tensor[PF_O].dtype;
    return o == PFATTN_DTYPE_BF16 || o == PFATTN_DTYPE_E5M2;
}

static int64_t product(int64_t a, int64_t b) {
    int64_t result;
    return __builtin_mul_overflow(a, b, &result) ? INT64_MAX : result;
}

/* How often a batch or head is copied. */
static int64_t copies(const pfattn_tensor *t, int dimension) {
    return t->stride[dimension] != 0 ? t->shape[dimension] : 1;
}

static bool has_elements(const pfattn_tensor *t) {
    return t->dtype != PFATTN_DTYPE_NONE && t->shape[0] > 0 && t->shape[1] > 0 && t->shape[2] > 0 &&
           t->shape[3] > 0;
}

static int64_t row_stride(const pfattn_tensor *t) {
    return (t->shape[3] + ROW_MULTIPLE - 1) / ROW_MULTIPLE * ROW_MULTIPLE;
}

int64_t pf_widened_rows(const pf_problem *problem, int n) {
    const pfattn_tensor *t = &problem->tensor[widened[n]];
    return has_elements(t) ? product(product(copies(t, 0), copies(t, 1)), t->shape[2]) : 0;
}

int64_t pf_widened_row_stride(const pf_problem *problem, int n) {
    return row_stride(&problem->tensor[widened[n]]);
}

static int64_t blocks_of(const pf_problem *problem, int n) {
    int64_t rows = pf_widened_rows(problem, n);
    return rows / PF_WIDEN_ROWS + (rows % PF_WIDEN_ROWS != 0);
}

int64_t pf_widen_blocks(const pf_problem *problem) {
    int64_t blocks = 0;
    for (int n = 0; n < PF_WIDENED; n++) {
        blocks += blocks_of(problem, n);
    }
    return blocks;
}

/* A stride that is too large for a tensor map comes out as INT64_MAX at most. */
static void become_copy(pfattn_tensor *t) {
    int64_t row = row_stride(t), matrix = product(t->shape[2], row);
    int64_t batch = product(copies(t, 1), matrix);
    t->dtype = PFATTN_DTYPE_F16;
    t->data = NULL;
    if (t->shape[0] == 0 || t->shape[1] == 0 || t->shape[2] == 0 || t->shape[3] == 0) {
        return; /* its strides are 0 */
    }
    t->stride[0] = t->stride[0] != 0 ? batch : 0;
    t->stride[1] = t->stride[1] != 0 ? matrix : 0;
    t->stride[2] = t->shape[2] > 1 ? row : 0;
    t->stride[3] = t->shape[3] > 1;
}

void pf_widen_problem(const pf_problem *problem, const pf_scratch *scratch,
                      unsigned long long workspace, pf_problem *wide) {
    *wide = *problem;
    wide->dtype = PFATTN_DTYPE_F16;
    for (int n = 0; n < PF_WIDENED; n++) {
        pfattn_tensor *t = &wide->tensor[widened[n]];
        if (t->dtype == PFATTN_DTYPE_NONE) {
            continue;
        }
        become_copy(t);
        if (scratch != NULL && scratch->widened[n] != PF_SCRATCH_NONE) {
            t->data = (void *)(uintptr_t)(workspace + scratch->widened[n]);
        }
    }
}

static void fill_tensor(const pfattn_tensor *from, pf_karg_tensor *to) {
    to->address = (unsigned long long)(uintptr_t)from->data;
    for (int d = 0; d < 4; d++) {
        to->stride[d] = from->stride[d];
    }
}

void pf_widen_kargs_fill(const pf_problem *problem, const pf_problem *wide, pf_widen_kargs *args) {
    memset(args, 0, sizeof *args);
    for (int n = 0; n < PF_WIDENED; n++) {
        const pfattn_tensor *t = &problem->tensor[widened[n]];
        pf_widen_operand *operand = &args->operand[n];
        operand->blocks = (int)blocks_of(problem, n);
        if (operand->blocks > 0) {
            fill_tensor(t, &operand->from);
            fill_tensor(&wide->tensor[widened[n]], &operand->to);
            operand->batch = (int)copies(t, 0);
            operand->heads = (int)copies(t, 1);
            operand->rows = (int)t->shape[2];
            operand->channels = (int)t->shape[3];
        }
    }
}
