/* SPDX-License-Identifier: Apache-2.0 */
/* Planted bugs: each must end in an error whose message names the place, or in a wrong result that
 * a comparison sees. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

static hipModule_t module;

static int setup(void **state) {
    (void)state;
    module = test_module("mistakes");
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return hipModuleUnload(module);
}

static void expect_failure(const char *kernel, unsigned items, void **params, const char *reason) {
    test_capture_begin();
    hipError_t error = test_launch(module, kernel, 1, items, params);
    const char *text = test_capture_end();
    if (error != hipErrorLaunchFailure || !strstr(text, reason) || !strstr(text, kernel) ||
        !strstr(text, "workgroup (0, 0, 0), wave ") || !strstr(text, "at pc 0x"))
        fail_msg("%s: error %d, message: %s", kernel, error, text);
}

static void test_missing_barrier(void **state) {
    float data[1024] = {0};
    int steps = 4;
    (void)state;
    void *in = test_upload(data, sizeof(data)), *out = test_output(1024);
    expect_failure("missing_barrier", 256, ARGS(&out, &in), "race: LDS byte");
    expect_failure("missing_second_barrier", 256, ARGS(&out, &in, &steps), "race: LDS byte");
}

static void test_out_of_bounds(void **state) {
    float data[1000] = {0};
    int n = 1000;
    (void)state;
    void *in = test_upload(data, sizeof(data)), *out = test_upload(data, sizeof(data));
    expect_failure("load_past_end", 256, ARGS(&out, &in, &n), "lane 40: read of 4 bytes");
    expect_failure("store_past_end", 256, ARGS(&out, &n), "outside every live allocation");
    assert_int_equal(hipFree(in), hipSuccess);
    n = 10;
    expect_failure("load_past_end", 256, ARGS(&out, &in, &n), "outside every live allocation");
}

static void test_wild_pointer(void **state) {
    (void)state;
    void *out = test_output(256), *pointers = test_output(512); /* poison, not addresses */
    expect_failure("wild_pointer", 64, ARGS(&out, &pointers), "outside every live allocation");
}

static void test_lds_out_of_range(void **state) {
    int index = 1;
    (void)state;
    void *out = test_output(256);
    expect_failure("lds_out_of_range", 64, ARGS(&out, &index), "is outside the workgroup's 256");
}

static void test_uninitialised(void **state) {
    float data[64] = {0}, result[64];
    (void)state;
    void *in = test_upload(data, sizeof(data)), *fresh = test_output(256), *out = test_output(256);
    test_run(module, "uninitialised_lds", 1, 64, ARGS(&out, &in));
    test_download(result, out, sizeof(result));
    for (int i = 0; i < 64; i++)
        assert_true(i == 0 ? isnan(result[i]) : result[i] == 0.f);
    test_run(module, "uninitialised_memory", 1, 64, ARGS(&out, &fresh));
    test_download(result, out, sizeof(result));
    for (int i = 0; i < 64; i++)
        assert_true(isnan(result[i]));
}

/* The right layout gives row + column in this product; the kernel's guess must not. */
static void test_wrong_layout(void **state) {
    uint16_t a[256] = {0}, b[256] = {0};
    float result[1024];
    int wrong = 0;
    (void)state;
    static const uint16_t one = 0x3c00;
    for (int i = 0; i < 32; i++) { /* k = 0: A is the row, B one; k = 1: the other way round */
        uint16_t code = 0;
        for (uint16_t h = 0x3c00; h < 0x5400 && !code; h++) {
            int e = h >> 10, m = h & 1023;
            if (i && ldexp(1024 + m, e - 25) == i)
                code = h;
        }
        a[4 * i] = code;
        b[4 * i] = one;
        a[4 * i + 1] = one;
        b[4 * i + 1] = code;
    }
    void *da = test_upload(a, sizeof(a)), *db = test_upload(b, sizeof(b)),
         *out = test_output(sizeof(result));
    test_run(module, "wrong_layout", 1, 64, ARGS(&out, &da, &db));
    test_download(result, out, sizeof(result));
    for (int i = 0; i < 1024; i++)
        wrong += result[i] != (float)(i / 32 + i % 32);
    assert_true(wrong > 256);
}

static void test_endless(void **state) {
    int zero = 0;
    (void)state;
    void *flag = test_upload(&zero, sizeof(zero));
    setenv("AMDGCN_SIM_LIMIT", "100000", 1);
    expect_failure("endless", 64, ARGS(&flag), "instruction limit of 100000 reached");
    unsetenv("AMDGCN_SIM_LIMIT");
}

static void test_trap(void **state) {
    (void)state;
    void *out = test_output(256);
    expect_failure("trap", 64, ARGS(&out), "the kernel trapped");
}

static void test_scratch_overflow(void **state) {
    int index = 1 << 20;
    (void)state;
    void *out = test_output(256);
    expect_failure("scratch_overflow", 64, ARGS(&out, &index), "scratch access at offset");
}

static void test_unaligned_atomic(void **state) {
    (void)state;
    void *p = test_output(256);
    expect_failure("unaligned_atomic", 64, ARGS(&p), "atomic at the unaligned address");
}

/* An error does not outlive its launch. */
static void test_recovery(void **state) {
    float data[64] = {0};
    int zero[64] = {0};
    (void)state;
    void *in = test_upload(data, sizeof(data)), *out = test_output(256);
    void *flags = test_upload(zero, sizeof(zero)), *bad = test_output(256);
    test_capture_begin();
    hipError_t error = test_launch(module, "trap", 1, 64, ARGS(&bad));
    test_capture_end();
    assert_int_equal(error, hipErrorLaunchFailure);
    assert_int_equal(hipDeviceSynchronize(), hipSuccess);
    test_run(module, "uninitialised_lds", 1, 64, ARGS(&out, &in));
    test_run(module, "trap", 1, 64, ARGS(&flags));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_barrier),  cmocka_unit_test(test_out_of_bounds),
        cmocka_unit_test(test_wild_pointer),     cmocka_unit_test(test_lds_out_of_range),
        cmocka_unit_test(test_uninitialised),    cmocka_unit_test(test_wrong_layout),
        cmocka_unit_test(test_endless),          cmocka_unit_test(test_trap),
        cmocka_unit_test(test_scratch_overflow), cmocka_unit_test(test_unaligned_atomic),
        cmocka_unit_test(test_recovery),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
