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
#include "scalar.h"
#include "scalar_tiles.h"

enum { SEED = 20261129, RANDOM_CASES = 600 };

void scalar_fail(const char *what) {
    fail_msg("the kernel source broke the contract of port.h: %s", what);
    abort();
}

static void open_session(tool_session *session, struct pfattn_handle_s *handle) {
    memset(session, 0, sizeof *session);
    assert_int_equal(scalar_backend.device_open(0, &session->device), PFATTN_SUCCESS);
    *handle = (struct pfattn_handle_s){&scalar_backend, session->device, 0};
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

static void run_all(const case_list *list, int least) {
    tool_session session;
    struct pfattn_handle_s handle;
    int passed[CASE_OP_COUNT] = {0}, all = 0, failed = 0;
    open_session(&session, &handle);
    for (size_t i = 0; i < list->count; i++) {
        const check_case *c = &list->items[i];
        check_result result;
        if (!in_reach(c)) {
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
    run_all(&list, 60);
    case_list_free(&list);
}

/* Every feature where the keys of a row are shared out. */
static void test_split_keys(void **state) {
    (void)state;
    case_list list = {0};
    case_list_decode(&list);
    run_all(&list, 50);
    case_list_free(&list);
}

static void test_staged_bias(void **state) {
    (void)state;
    case_list list = {0};
    case_list_staged(&list);
    run_all(&list, 180);
    case_list_free(&list);
}

static void test_random_cases(void **state) {
    (void)state;
    case_list list = {0};
    case_list_random(&list, SEED, RANDOM_CASES);
    run_all(&list, 100);
    case_list_free(&list);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listed_cases),
        cmocka_unit_test(test_split_keys),
        cmocka_unit_test(test_staged_bias),
        cmocka_unit_test(test_random_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
