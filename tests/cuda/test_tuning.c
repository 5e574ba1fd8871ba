/* SPDX-License-Identifier: Apache-2.0 */
/* That the shipped tuning table is whole and within what the chips can do. What its numbers make of
 * speed is measured, not tested. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cuda/tuning.h"

static int count_rows(int target, int op, int element_class, int head_dim, int variant) {
    int count = 0;
    for (int i = 0; i < PF_CUDA_TUNING_COUNT; i++) {
        const pf_tuning *t = &pf_cuda_tuning[i];
        count += t->target == target && t->op == op && t->element_class == element_class &&
                 t->head_dim == head_dim && t->variant == variant;
    }
    return count;
}

/* sm_80 has a row for every kernel of the contract, and nothing has two defaults. */
static void every_kernel_has_one_default(void **state) {
    (void)state;
    for (int hd = 64; hd <= 256; hd *= 2) {
        for (int op = 0; op < PF_OP_COUNT; op++) {
            assert_int_equal(count_rows(PF_TARGET_SM_80, op, PF_CLASS_HALF, hd, 0), 1);
            assert_int_equal(count_rows(PF_TARGET_SM_80, op, PF_CLASS_F32, hd, 0), 1);
            assert_int_equal(count_rows(PF_TARGET_SM_80, op, PF_CLASS_E5M2, hd, 0),
                             op == PF_OP_FORWARD);
            assert_in_range(count_rows(PF_TARGET_SM_90A, op, PF_CLASS_HALF, hd, 0), 0, 1);
        }
        assert_int_equal(count_rows(PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_HALF, hd, 0), 1);
        assert_int_equal(count_rows(PF_TARGET_SM_90A, PF_OP_FORWARD_JVP, PF_CLASS_HALF, hd, 0), 1);
        assert_int_equal(count_rows(PF_TARGET_SM_90A, PF_OP_BACKWARD, PF_CLASS_HALF, hd, 0), 1);
    }
}

/* Variants are numbered from 1 without a gap, of the half types alone; general kernels likewise,
 * but their default need not have a row. What they have staged tells them apart. */
static void variants_are_numbered(void **state) {
    (void)state;
    for (int i = 0; i < PF_CUDA_TUNING_COUNT; i++) {
        const pf_tuning *t = &pf_cuda_tuning[i];
        int first = t->variant >= PF_VARIANT_GENERAL ? PF_VARIANT_GENERAL : 0;
        assert_in_range(t->variant - first, 0,
                        t->element_class == PF_CLASS_HALF ? PF_VARIANTS - 1 : 0);
        assert_int_equal(t->staged == PF_STAGED_BIAS || t->staged == PF_STAGED_MASK,
                         t->variant > PF_VARIANT_GENERAL);
        for (int variant = first; variant <= t->variant; variant++) {
            assert_int_equal(count_rows(t->target, t->op, t->element_class, t->head_dim, variant),
                             1);
        }
    }
}

/* Each row fits its chips: warps or warpgroups, shared memory, matrix instructions, limits of a
 * block. */
static void rows_fit_the_chips(void **state) {
    (void)state;
    for (int i = 0; i < PF_CUDA_TUNING_COUNT; i++) {
        const pf_tuning *t = &pf_cuda_tuning[i];
        int hopper = t->target == PF_TARGET_SM_90A;
        print_message("row %d\n", i);
        assert_in_range(t->target, PF_TARGET_SM_80, PF_TARGET_SM_90A);
        assert_int_equal(t->threads % (hopper ? 128 : 32), 0);
        assert_in_range(t->threads, 32, 1024);
        assert_in_range(t->shared_bytes, 1,
                        hopper ? PF_CUDA_SHARED_MAX_SM_90A : PF_CUDA_SHARED_MAX_SM_80);
        assert_int_equal(t->owned_tile % 16, 0);
        assert_int_equal(t->cross_tile % 8, 0);
        assert_int_equal(t->head_dim % t->out_dim, 0);
        assert_in_range(t->stages, 1, 4);
        assert_in_range(t->bias_bytes, 0, t->shared_bytes);
        assert_in_range(t->min_blocks, 1, 8);
        assert_in_range(t->persistent, 0, hopper ? 2 : 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_has_one_default),
        cmocka_unit_test(variants_are_numbered),
        cmocka_unit_test(rows_fit_the_chips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
