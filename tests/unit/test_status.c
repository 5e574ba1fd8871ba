/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, names, the version and the log. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "log.h"
#include "status.h"

static void error_is_recorded(void **state) {
    (void)state;
    assert_int_equal(pf_error(PFATTN_ERROR_DRIVER, "q: has %d", 3), PFATTN_ERROR_DRIVER);
    assert_string_equal(pfattn_last_error(), "q: has 3");
    /* The old text may be part of the new one. */
    pf_error(PFATTN_ERROR_DRIVER, "auto: %s", pfattn_last_error());
    assert_string_equal(pfattn_last_error(), "auto: q: has 3");
}

static void long_errors_are_cut(void **state) {
    (void)state;
    char text[2 * PF_ERROR_SIZE];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    pf_error(PFATTN_ERROR_DRIVER, "%s", text);
    assert_int_equal(strlen(pfattn_last_error()), PF_ERROR_SIZE - 1);
}

static void errors_are_restored(void **state) {
    (void)state;
    char kept[PF_ERROR_SIZE];
    pf_error(PFATTN_ERROR_DRIVER, "first");
    pf_error_save(kept);
    pf_error(PFATTN_ERROR_DRIVER, "second");
    pf_error_restore(kept);
    assert_string_equal(pfattn_last_error(), "first");
}

/* Threads fail at the same time; each must read its own error, and begin with none. */
static void *fail_often(void *argument) {
    intptr_t id = (intptr_t)argument;
    intptr_t mistakes = pfattn_last_error()[0] != '\0';
    for (int i = 0; i < 2000; i++) {
        char want[64];
        snprintf(want, sizeof want, "thread %d, failure %d", (int)id, i);
        pf_error(PFATTN_ERROR_UNSUPPORTED, "thread %d, failure %d", (int)id, i);
        mistakes += strcmp(pfattn_last_error(), want) != 0;
    }
    return (void *)mistakes;
}

static void errors_belong_to_threads(void **state) {
    (void)state;
    pf_error(PFATTN_ERROR_DRIVER, "of the main thread");
    pthread_t threads[4];
    for (intptr_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, fail_often, (void *)i), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *mistakes;
        assert_int_equal(pthread_join(threads[i], &mistakes), 0);
        assert_null(mistakes);
    }
    assert_string_equal(pfattn_last_error(), "of the main thread");
}

static void values_have_names(void **state) {
    (void)state;
    const char *statuses[] = {"success",
                              "invalid argument",
                              "unsupported problem",
                              "backend or device not available",
                              "out of memory",
                              "driver error",
                              "unknown status"};
    for (int i = 0; i < 7; i++) {
        assert_string_equal(pfattn_status_string((pfattn_status)i), statuses[i]);
    }
    assert_string_equal(pfattn_status_string((pfattn_status)-1), "unknown status");
    const char *dtypes[] = {"none", "f16", "bf16", "f32", "f64", "e5m2", "u8", "unknown"};
    const size_t sizes[] = {0, 2, 2, 4, 8, 1, 1, 0};
    for (int i = 0; i < 8; i++) {
        assert_string_equal(pfattn_dtype_string((pfattn_dtype)i), dtypes[i]);
        assert_int_equal(pfattn_dtype_size((pfattn_dtype)i), sizes[i]);
    }
    const char *backends[] = {"auto", "ref", "cuda", "hip", "unknown"};
    for (int i = 0; i < 5; i++) {
        assert_string_equal(pfattn_backend_string((pfattn_backend)i), backends[i]);
    }
}

static void version_agrees_with_the_header(void **state) {
    (void)state;
    int major;
    int minor;
    int patch;
    assert_int_equal(sscanf(pfattn_version_string(), "%d.%d.%d", &major, &minor, &patch), 3);
    assert_int_equal(major, PFATTN_VERSION_MAJOR);
    assert_int_equal(minor, PFATTN_VERSION_MINOR);
    assert_int_equal(patch, PFATTN_VERSION_PATCH);
    assert_int_equal(pfattn_version(), major * 10000 + minor * 100 + patch);
    assert_string_equal(pfattn_version_string(), PROJECT_VERSION);
}

/* What a log call writes to stderr under a value of PFATTN_LOG, NULL for unset. */
static void log_under(const char *level, char *text, size_t size) {
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    if (level != NULL) {
        setenv("PFATTN_LOG", level, 1);
    } else {
        unsetenv("PFATTN_LOG");
    }
    pf_log_configure();
    pf_log(PF_LOG_ERROR, "e%d", 1);
    pf_log(PF_LOG_WARN, "w");
    pf_log(PF_LOG_INFO, "i");
    pf_log(PF_LOG_DEBUG, "d");
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
    unsetenv("PFATTN_LOG");
    pf_log_configure();
}

static void log_has_levels(void **state) {
    (void)state;
    char text[1024];
    log_under("error", text, sizeof text);
    assert_string_equal(text, "pfattn error: e1\n");
    log_under(NULL, text, sizeof text);
    assert_string_equal(text, "pfattn error: e1\npfattn warn: w\n");
    log_under("info", text, sizeof text);
    assert_string_equal(text, "pfattn error: e1\npfattn warn: w\npfattn info: i\n");
    log_under("debug", text, sizeof text);
    assert_string_equal(text,
                        "pfattn error: e1\npfattn warn: w\npfattn info: i\npfattn debug: d\n");
    log_under("loud", text, sizeof text);
    assert_string_equal(text, "pfattn warn: PFATTN_LOG is \"loud\"; it must be error, warn, info "
                              "or debug\npfattn error: e1\npfattn warn: w\n");
}

static void environment_ignores_empty_values(void **state) {
    (void)state;
    unsetenv("PFATTN_X_TEST");
    assert_null(pf_environment("X_TEST"));
    setenv("PFATTN_X_TEST", "", 1);
    assert_null(pf_environment("X_TEST"));
    setenv("PFATTN_X_TEST", "value", 1);
    assert_string_equal(pf_environment("X_TEST"), "value");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_is_recorded),   cmocka_unit_test(long_errors_are_cut),
        cmocka_unit_test(errors_are_restored), cmocka_unit_test(errors_belong_to_threads),
        cmocka_unit_test(values_have_names),   cmocka_unit_test(version_agrees_with_the_header),
        cmocka_unit_test(log_has_levels),      cmocka_unit_test(environment_ignores_empty_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
