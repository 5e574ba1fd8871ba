/* SPDX-License-Identifier: Apache-2.0 */
/* What is said where the driver, its version, a function or a usable device is missing, and what
 * probe, device query and create say where all is there. The driver is opened once a process, so
 * the tests of its absence come first; each failure leaves the next call to try again. */
#include "fake_cuda_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *path, *path_broken;
static fake_cuda *fake;

static pfattn_status create(int device, pfattn_handle *handle) {
    pfattn_handle_options options = PFATTN_HANDLE_OPTIONS_INIT;
    options.backend = PFATTN_BACKEND_CUDA;
    options.device = device;
    return pfattn_create(&options, handle);
}

/* Both ways to ask get the same answer: create fails with it, the query describes it. */
static void assert_unavailable(const char *text) {
    pfattn_handle handle = NULL;
    assert_error(create(0, &handle), PFATTN_ERROR_UNAVAILABLE, text);
    assert_null(handle);
    pfattn_backend_info info = PFATTN_BACKEND_INFO_INIT;
    assert_success(pfattn_backend_query(PFATTN_BACKEND_CUDA, &info));
    assert_int_equal(info.compiled_in, 1);
    assert_int_equal(info.device_count, 0);
    assert_non_null(strstr(info.detail, text));
    assert_int_equal(fake_depth(), 0);
}

static void no_library(void **state) {
    (void)state;
    setenv("PFATTN_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1);
    assert_unavailable("/nowhere/libcuda.so.1");
}

/* Not a library at all. */
static void not_a_library(void **state) {
    (void)state;
    setenv("PFATTN_CUDA_LIBRARY", "/dev/null", 1);
    assert_unavailable("/dev/null");
}

static void missing_function(void **state) {
    (void)state;
    setenv("PFATTN_CUDA_LIBRARY", path_broken, 1);
    assert_unavailable("cuLaunchKernel");
    setenv("PFATTN_CUDA_LIBRARY", path, 1);
}

static void init_fails(void **state) {
    (void)state;
    const struct {
        CUresult result;
        const char *text;
    } cases[] = {
        {CUDA_ERROR_NO_DEVICE,
         "cuInit failed with CUDA_ERROR_NO_DEVICE (100, as the fake driver was "
         "told); no NVIDIA GPU is visible: check nvidia-smi"},
        {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "differ in version: reboot"},
        {CUDA_ERROR_UNKNOWN, "cuInit failed with CUDA_ERROR_UNKNOWN"},
        {(CUresult)12345, "cuInit failed with an unknown error (12345, no description)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake->fail_call = "cuInit";
        fake->fail_result = cases[i].result;
        assert_unavailable(cases[i].text);
    }
    fake_reset(fake);
}

static void old_driver(void **state) {
    (void)state;
    int version = fake->version;
    fake->version = CUDA_VERSION / 1000 * 1000 - 920; /* the major before, .8 */
    char text[128];
    snprintf(text, sizeof text, "the driver supports CUDA %d.8 but this build's kernels need %d.0",
             CUDA_VERSION / 1000 - 1, CUDA_VERSION / 1000);
    assert_unavailable(text);
    fake->version = version;
}

static void version_fails(void **state) {
    (void)state;
    fake->fail_call = "cuDriverGetVersion";
    fake->fail_result = CUDA_ERROR_UNKNOWN;
    pfattn_handle handle = NULL;
    assert_error(create(0, &handle), PFATTN_ERROR_DRIVER, "cuDriverGetVersion failed");
    fake_reset(fake);
}

static void no_devices(void **state) {
    (void)state;
    fake->device_count = 0;
    assert_unavailable("the driver sees no device; check nvidia-smi and CUDA_VISIBLE_DEVICES");
    fake->device_count = 1;
}

/* Compute capability 7.5 alone. */
static void old_device(void **state) {
    (void)state;
    fake->capability[0] = 75;
    assert_unavailable("device 0 (Fake GPU 0) has compute capability 7.5; 8.0 or more is needed");
    fake->capability[0] = 90;
}

/* Each step of opening can fail, with the driver's error; nothing stays held. */
static void opening_fails(void **state) {
    (void)state;
    const char *const calls[] = {"cuDeviceGetCount",     "cuDeviceGet",
                                 "cuDeviceGetName",      "cuDeviceTotalMem",
                                 "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        pfattn_handle handle = NULL;
        fake->fail_call = calls[i];
        fake->fail_result = CUDA_ERROR_UNKNOWN;
        assert_error(create(0, &handle), PFATTN_ERROR_DRIVER, calls[i]);
        fake->fail_result = CUDA_ERROR_OUT_OF_MEMORY;
        assert_error(create(0, &handle), PFATTN_ERROR_OUT_OF_MEMORY,
                     "CUDA_ERROR_OUT_OF_MEMORY (2, as the fake driver was told); free device "
                     "memory");
        assert_int_equal(fake->retained[0], 0);
        assert_null(handle);
    }
    fake_reset(fake);
}

static pfattn_device_info query(int device) {
    pfattn_device_info info = PFATTN_DEVICE_INFO_INIT;
    assert_success(pfattn_device_query(PFATTN_BACKEND_CUDA, device, &info));
    return info;
}

static void describes_devices(void **state) {
    (void)state;
    fake->device_count = 4; /* 9.0, 8.0, 7.5, 12.0 */
    pfattn_backend_info backend = PFATTN_BACKEND_INFO_INIT;
    assert_success(pfattn_backend_query(PFATTN_BACKEND_CUDA, &backend));
    assert_int_equal(backend.device_count, 4);
    assert_string_equal(backend.detail,
                        "CUDA driver 13.0, device 0: Fake GPU 0 (sm_90), device 1: Fake GPU 1 "
                        "(sm_80), device 2: Fake GPU 2 (sm_75, cannot be used), device 3: Fake GPU "
                        "3 (sm_120)");
    pfattn_device_info info = query(0);
    assert_string_equal(info.name, "Fake GPU 0");
    assert_string_equal(info.arch, "sm_90");
    assert_string_equal(info.target, "sm_90a, sm_80");
    assert_int_equal(info.compute_units, 132);
    assert_true(info.memory_bytes == INT64_C(80) << 30);
    assert_int_equal(info.shared_bytes, 232448);
    assert_int_equal(info.driver_version, 13000);
    assert_string_equal(query(1).target, "sm_80");
    assert_string_equal(query(2).target, "none");
    assert_string_equal(query(3).arch, "sm_120");
    assert_string_equal(query(3).target, "sm_80");
}

/* Ordinals are the driver's: the unusable device keeps its place, and opening it says why. */
static void chooses_devices(void **state) {
    (void)state;
    pfattn_handle handle = NULL;
    assert_error(create(2, &handle), PFATTN_ERROR_UNAVAILABLE, "compute capability 7.5");
    assert_error(create(4, &handle), PFATTN_ERROR_UNAVAILABLE, "device: is 4");
    for (int device = 0; device < 4; device += 3) {
        assert_success(create(device, &handle));
        assert_int_equal(pfattn_handle_device(handle), device);
        assert_int_equal(fake->retained[device], 1);
        pfattn_destroy(handle);
        assert_int_equal(fake->retained[device], 0);
    }
}

/* PFATTN_CUDA_TARGET leaves one target, and must be one that the device runs. */
static void forces_target(void **state) {
    (void)state;
    pfattn_handle handle = NULL;
    setenv("PFATTN_CUDA_TARGET", "sm_80", 1);
    assert_string_equal(query(0).target, "sm_80");
    assert_success(create(0, &handle));
    pfattn_destroy(handle);
    setenv("PFATTN_CUDA_TARGET", "sm_90a", 1);
    assert_string_equal(query(0).target, "sm_90a");
    assert_error(create(1, &handle), PFATTN_ERROR_UNAVAILABLE,
                 "PFATTN_CUDA_TARGET: is \"sm_90a\", which device 1 of this build does not run; "
                 "unset it, or choose sm_80");
    setenv("PFATTN_CUDA_TARGET", "fast", 1);
    assert_error(create(0, &handle), PFATTN_ERROR_UNAVAILABLE, "choose sm_90a or sm_80");
    unsetenv("PFATTN_CUDA_TARGET");
}

int main(int argc, char **argv) {
    if (argc < 3) {
        return 99;
    }
    path = argv[1];
    path_broken = argv[2];
    fake = fake_open(path);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_library),       cmocka_unit_test(not_a_library),
        cmocka_unit_test(missing_function), cmocka_unit_test(init_fails),
        cmocka_unit_test(old_driver),       cmocka_unit_test(version_fails),
        cmocka_unit_test(no_devices),       cmocka_unit_test(old_device),
        cmocka_unit_test(opening_fails),    cmocka_unit_test(describes_devices),
        cmocka_unit_test(chooses_devices),  cmocka_unit_test(forces_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
