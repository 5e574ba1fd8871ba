/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a driver: every path tried is named, and each symbol that is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "dl.h"

typedef struct table {
    int (*add)(int, int);
    int (*extra)(int);
} table;

static const pf_dl_symbol symbols[] = {{"dl_fixture_add", offsetof(table, add), 1},
                                       {"dl_fixture_extra", offsetof(table, extra), 0},
                                       {NULL, 0, 0}};

static const char *const paths[] = {"libpfattn-none-a.so.1", "/nowhere/libpfattn-none-b.so",
                                    FIXTURE, NULL};

static void first_path_that_opens(void **state) {
    (void)state;
    table t = {NULL, (int (*)(int))(uintptr_t)1};
    void *library = NULL;
    assert_int_equal(pf_dl_open("demo", NULL, paths, symbols, &t, &library), PFATTN_SUCCESS);
    assert_int_equal(t.add(2, 3), 5);
    assert_null(t.extra); /* optional and missing */
    assert_non_null(library);
    pf_dl_close(library);
    pf_dl_close(NULL);
}

static void every_path_is_listed(void **state) {
    (void)state;
    const char *const missing[] = {paths[0], paths[1], NULL};
    table t;
    void *library = &t;
    assert_int_equal(pf_dl_open("demo", NULL, missing, symbols, &t, &library),
                     PFATTN_ERROR_UNAVAILABLE);
    assert_string_equal(
        pfattn_last_error(),
        "demo: its library could not be opened (tried libpfattn-none-a.so.1: cannot open shared "
        "object file: No such file or directory; /nowhere/libpfattn-none-b.so: cannot open shared "
        "object file: No such file or directory)");
    assert_ptr_equal(library, &t); /* nothing written */
}

/* An override is the only path, even where the others would do. */
static void override_stands_alone(void **state) {
    (void)state;
    table t;
    void *library = NULL;
    assert_int_equal(pf_dl_open("demo", "/nowhere/mine.so", paths, symbols, &t, &library),
                     PFATTN_ERROR_UNAVAILABLE);
    assert_string_equal(pfattn_last_error(),
                        "demo: its library could not be opened (tried /nowhere/mine.so: cannot "
                        "open shared object file: No such file or directory)");
    const char *const none[] = {NULL};
    assert_int_equal(pf_dl_open("demo", FIXTURE, none, symbols, &t, &library), PFATTN_SUCCESS);
    pf_dl_close(library);
}

static void required_symbols_are_named(void **state) {
    (void)state;
    const pf_dl_symbol required[] = {{"dl_fixture_add", offsetof(table, add), 1},
                                     {"dl_fixture_extra", offsetof(table, extra), 1},
                                     {NULL, 0, 0}};
    table t;
    void *library = NULL;
    assert_int_equal(pf_dl_open("demo", FIXTURE, paths, required, &t, &library),
                     PFATTN_ERROR_UNAVAILABLE);
    assert_string_equal(pfattn_last_error(),
                        "demo: " FIXTURE " lacks the function dl_fixture_extra, which pfattn "
                        "needs; a newer driver is required");
    assert_null(library);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_path_that_opens),
        cmocka_unit_test(every_path_is_listed),
        cmocka_unit_test(override_stands_alone),
        cmocka_unit_test(required_symbols_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
