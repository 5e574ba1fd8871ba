/* SPDX-License-Identifier: Apache-2.0 */
/* That the kernel source computes what the reference does, in every operation, type and feature, by
 * running it under the scalar port through the conformance cases of `pfattn check`. A port on
 * hardware can then be wrong only in its own primitives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "case_list.h"
#include "check_run.h"
#include "formats.h"
#include "kargs.h"
#include "scalar.h"
#include "scalar_tiles.h"
#include "select.h"

enum { SEED = 20261129, RANDOM_CASES = 600 };

void scalar_fail(const char *what) {
    fail_msg("the kernel source broke the contract of port.h: %s", what);
    abort();
}

static void open_session(tool_session *session, struct pfattn_handle_s *handle, int device) {
    memset(session, 0, sizeof *session);
    assert_int_equal(scalar_backend.device_open(device, &session->device), PFATTN_SUCCESS);
    *handle = (struct pfattn_handle_s){.backend = &scalar_backend, .device = session->device};
    session->handle = handle;
    session->backend = &scalar_backend;
    snprintf(session->info.arch, sizeof session->info.arch, "scalar");
}

/* Its images have one head dimension, and its time is limited. */
static bool in_reach(const check_case *c) {
    return c->dtype != PFATTN_DTYPE_F64 && c->dim_qk <= SCALAR_HEAD_DIM &&
           c->dim_v <= SCALAR_HEAD_DIM && case_flops(c) < 4e7 && c->far == FAR_NONE &&
           c->batch * c->heads < 4096;
}

static void run_all(const case_list *list, int device, int least) {
    tool_session session;
    struct pfattn_handle_s handle;
    int passed[CASE_OP_COUNT] = {0}, all = 0, failed = 0;
    open_session(&session, &handle, device);
    for (size_t i = 0; i < list->count; i++) {
        const check_case *c = &list->items[i];
        check_result result;
        if (!in_reach(c) || (device == SCALAR_WIDENS && c->dtype != PFATTN_DTYPE_E5M2)) {
            continue;
        }
        check_run(&session, c, SEED, &result);
        passed[c->op] += result.verdict == VERDICT_PASSED;
        if (result.verdict == VERDICT_FAILED) {
            char text[1024];
            case_print(c, text, sizeof text);
            print_error("%s\n    %s\n", text, result.message);
            failed++;
        }
    }
    scalar_backend.device_close(session.device);
    assert_int_equal(failed, 0);
    for (int op = 0; op < CASE_OP_COUNT; op++) {
        print_message("%s: %d cases\n", case_op_name((case_op)op), passed[op]);
        all += passed[op];
    }
    assert_true(all >= least);
}

static void test_listed_cases(void **state) {
    (void)state;
    case_list list = {0};
    case_list_quick(&list);
    run_all(&list, 0, 60);
    case_list_free(&list);
}

/* Every feature where the keys of a row are shared out. */
static void test_split_keys(void **state) {
    (void)state;
    case_list list = {0};
    case_list_decode(&list);
    run_all(&list, 0, 50);
    case_list_free(&list);
}

/* Every feature where the keys of the last round's items are. */
static void test_last_round(void **state) {
    (void)state;
    case_list list = {0};
    case_list_last_round(&list);
    run_all(&list, 0, 24);
    run_all(&list, SCALAR_WIDENS, 2);
    case_list_free(&list);
}

static void test_staged_bias(void **state) {
    (void)state;
    case_list list = {0};
    case_list_staged(&list);
    run_all(&list, 0, 180);
    case_list_free(&list);
}

static void test_random_cases(void **state) {
    (void)state;
    case_list list = {0};
    case_list_random(&list, SEED, RANDOM_CASES);
    run_all(&list, 0, 100);
    case_list_free(&list);
}

/* Backward whose last items all workgroups divide: of 16 that have 17 or more items, with enough
 * tiles of queries. The first is 3 heads' two parts of 5 tiles of keys: 14 of 30 items are left. */
static void test_divided_items(void **state) {
    (void)state;
    static const char *const features[] = {
        "H=3 M=150 N=80 D=64",
        "H=2 M=150 N=80 D=64",
        "H=2 M=147 N=70 D=40 E=20 layout=bshd",
        "H=4 Hk=2 M=100 N=75 D=64",
        "B=2 H=4 Hk=1 M=70 N=150 D=33 layout=transposed",
        "H=3 M=133 N=90 D=64 mask=random",
        "H=3 M=133 N=90 D=64 bias=f16 layout=mixed outputs=dq,dk,dv",
        "H=3 M=133 N=90 D=64 outputs=dk,dv",
    };
    case_list list = {0};
    for (size_t n = 0; n < sizeof features / sizeof features[0]; n++) {
        for (int type = 0; type < 3; type++) {
            case_list_add(&list, "op=backward dtype=%s %s",
                          (const char *const[]){"f16", "bf16", "f32"}[type], features[n]);
        }
    }
    run_all(&list, 0, 3 * (int)(sizeof features / sizeof features[0]));
    case_list_free(&list);
}

/* Forward of e5m2 through the f16 kernels. */
static void test_widened_cases(void **state) {
    (void)state;
    static const char *const features[] = {
        "odtype=f16 M=50 N=70 D=36 E=20",
        "odtype=f32 M=50 N=70 D=64 E=48 causal=1",
        "odtype=f16 M=50 N=70 Hk=2 D=64 layout=bshd mask=random",
        "odtype=f16 M=50 N=70 Hk=1 D=40 layout=transposed bias=f16",
        "odtype=f32 M=50 N=70 D=64 layout=mixed w=20",
        "odtype=f16 M=50 N=70 D=33 layout=transposed w=20 causal=1 bias=f32 mask=random",
        "odtype=f16 M=50 N=70 D=1 E=1",
        "M=50 N=70 D=64 E=38 layout=transposed",
        "odtype=bf16 M=65 N=70 D=40 layout=bshd Hk=2 mask=random",
        "D=64 N=2100 M=3",
        "odtype=f32 D=64 N=2100 M=3",
        "odtype=f16 D=40 N=2100 M=3 Hk=2 mask=random w=20",
    };
    case_list list = {0};
    for (size_t n = 0; n < sizeof features / sizeof features[0]; n++) {
        case_list_add(&list, "op=forward dtype=e5m2 B=2 H=4 %s", features[n]);
    }
    run_all(&list, SCALAR_WIDENS, (int)(sizeof features / sizeof features[0]));
    case_list_free(&list);
    case_list_quick(&list);
    case_list_decode(&list);
    case_list_random(&list, SEED + 1, RANDOM_CASES);
    run_all(&list, SCALAR_WIDENS, 15);
    case_list_free(&list);
}

extern scalar_image scalar_PASSES;

enum { WIDE_ROWS = 70, WIDE_CHANNELS = 48 };

/* Widen [2, 2, 70, 48] of all 256 codes with these strides, between guards. */
static void widen_codes(const int64_t stride[4], int offset) {
    static unsigned char from[4 * WIDE_ROWS * 64 + 16] __attribute__((aligned(16)));
    static uint16_t to[4 * WIDE_ROWS * 56 + 8] __attribute__((aligned(16)));
    memset(to, 0xa5, sizeof to);
    pf_widen_kargs args = {0};
    pf_widen_operand *w = &args.operand[1];
    *w = (pf_widen_operand){.batch = 2,
                            .heads = 2,
                            .rows = WIDE_ROWS,
                            .channels = WIDE_CHANNELS,
                            .blocks = 5 /* 280 rows of 64 */};
    const int64_t wide[4] = {2 * WIDE_ROWS * 56, WIDE_ROWS * 56, 56, 1};
    w->from.address = (uintptr_t)(from + offset);
    w->to.address = (uintptr_t)to;
    for (int d = 0; d < 4; d++) {
        w->from.stride[d] = stride[d];
        w->to.stride[d] = wide[d];
    }
    for (size_t n = 0; n < sizeof from; n++) {
        from[n] = (unsigned char)(n * 7 + n / 256);
    }
    scalar_PASSES(&args, PF_ENTRY_WIDEN, 5, 256);
    for (int row = 0; row < 4 * WIDE_ROWS; row++) {
        const int64_t at = offset + row / WIDE_ROWS / 2 * stride[0] +
                           row / WIDE_ROWS % 2 * stride[1] + row % WIDE_ROWS * stride[2];
        for (int c = 0; c < 56; c++) {
            const uint16_t got = to[row * 56 + c];
            if (c >= WIDE_CHANNELS) {
                assert_int_equal(got, 0xa5a5);
                continue;
            }
            const float x = pf_e5m2_to_f32(from[at + c * stride[3]]), y = pf_f16_to_f32(got);
            assert_true(x == y || (x != x && y != y));
        }
    }
    for (int n = 0; n < 8; n++) {
        assert_int_equal(to[4 * WIDE_ROWS * 56 + n], 0xa5a5);
    }
}

/* Every code keeps its value, by vectors and one by one; nothing between or past rows is written.
 */
static void test_widen_codes(void **state) {
    (void)state;
    widen_codes((const int64_t[]){2 * WIDE_ROWS * 48, WIDE_ROWS * 48, 48, 1}, 0);
    widen_codes((const int64_t[]){2 * WIDE_ROWS * 48, WIDE_ROWS * 48, 48, 1}, 1);
    widen_codes((const int64_t[]){WIDE_ROWS * 128, 64, 128, 1}, 0);
    widen_codes((const int64_t[]){2 * WIDE_ROWS * 48, WIDE_ROWS * 48, 1, WIDE_ROWS}, 0);
    widen_codes((const int64_t[]){0, WIDE_ROWS * 49, 49, 1}, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listed_cases),  cmocka_unit_test(test_split_keys),
        cmocka_unit_test(test_last_round),    cmocka_unit_test(test_staged_bias),
        cmocka_unit_test(test_random_cases),  cmocka_unit_test(test_divided_items),
        cmocka_unit_test(test_widened_cases), cmocka_unit_test(test_widen_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
