/* SPDX-License-Identifier: Apache-2.0 */
/* That the shipped tuning table is whole and within what the chips can do. What its numbers make of
 * speed is measured, not tested. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hip/tuning.h"

static int count_rows(int target, int op, int element_class, int head_dim, int variant) {
    int count = 0;
    for (int i = 0; i < PF_HIP_TUNING_COUNT; i++) {
        const pf_tuning *t = &pf_hip_tuning[i];
        count += t->target == target && t->op == op && t->element_class == element_class &&
                 t->head_dim == head_dim && t->variant == variant;
    }
    return count;
}

static void every_kernel_has_one_default(void **state) {
    (void)state;
    for (int target = PF_TARGET_GFX90A; target <= PF_TARGET_GFX950; target++) {
        for (int hd = 64; hd <= 256; hd *= 2) {
            for (int op = 0; op < PF_OP_COUNT; op++) {
                assert_int_equal(count_rows(target, op, PF_CLASS_HALF, hd, 0), 1);
                assert_int_equal(count_rows(target, op, PF_CLASS_F32, hd, 0), 1);
                assert_int_equal(count_rows(target, op, PF_CLASS_E5M2, hd, 0), op == PF_OP_FORWARD);
            }
        }
    }
}

/* Variants are numbered from 1 without a gap, of the half types alone. */
static void variants_are_numbered(void **state) {
    (void)state;
    for (int i = 0; i < PF_HIP_TUNING_COUNT; i++) {
        const pf_tuning *t = &pf_hip_tuning[i];
        assert_in_range(t->variant, 0, t->element_class == PF_CLASS_HALF ? PF_VARIANTS - 1 : 0);
        for (int variant = 0; variant <= t->variant; variant++) {
            assert_int_equal(count_rows(t->target, t->op, t->element_class, t->head_dim, variant),
                             1);
        }
    }
}

/* Each row fits its chips: 64 KiB of LDS, matrix instructions of 32 rows (16 of f32) a wave, and at
 * most 8 waves on each of the four SIMDs. */
static void rows_fit_the_chips(void **state) {
    (void)state;
    for (int i = 0; i < PF_HIP_TUNING_COUNT; i++) {
        const pf_tuning *t = &pf_hip_tuning[i];
        int rows = t->element_class == PF_CLASS_F32 ? 16 : 32;
        print_message("row %d\n", i);
        assert_int_equal(t->threads, t->owned_tile / rows * 64);
        assert_int_equal(t->cross_tile % rows, 0);
        assert_int_equal(t->out_dim % rows, 0);
        assert_int_equal(t->head_dim % t->out_dim, 0);
        assert_in_range(t->shared_bytes, 1, 64 * 1024);
        assert_in_range(t->waves_per_eu, 1, 8);
        assert_int_equal(t->stages, 1);
        assert_int_equal(t->persistent, 0);
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
