/* SPDX-License-Identifier: Apache-2.0 */
/* A HIP library that is missing, incomplete, without a device or with a chip of another kind is
 * reported by name and leaves nothing open; one that works says what it has. */
#include "client.h"

#include <stdlib.h>

#include "backend.h"

static const char *working, *broken;

static pfattn_status probe(void) {
    int32_t count = 0;
    char summary[256];
    return pf_backend_get(PFATTN_BACKEND_HIP)->probe(&count, summary, sizeof summary);
}

static void library_missing(void **state) {
    (void)state;
    setenv("PFATTN_HIP_LIBRARY", "/nonexistent/libamdhip64.so", 1);
    assert_error(probe(), PFATTN_ERROR_UNAVAILABLE, "/nonexistent/libamdhip64.so");
}

static void symbol_missing(void **state) {
    (void)state;
    setenv("PFATTN_HIP_LIBRARY", broken, 1);
    assert_error(probe(), PFATTN_ERROR_UNAVAILABLE, "hipModuleLaunchKernel");
}

/* Before the first success nothing is kept, so each of these opens the library anew. */
static void no_device(void **state) {
    (void)state;
    fake_hip *fake = fake_open(working);
    fake->fail_call = "hipInit";
    fake->fail_result = 100;
    assert_error(probe(), PFATTN_ERROR_UNAVAILABLE, "hipInit failed with");
    assert_error(probe(), PFATTN_ERROR_UNAVAILABLE, "HIP_VISIBLE_DEVICES");
    fake->fail_result = 999;
    assert_error(probe(), PFATTN_ERROR_UNAVAILABLE, "(999, as the fake library was told)");
    fake->fail_call = NULL;
    fake->device_count = 0;
    assert_error(probe(), PFATTN_ERROR_UNAVAILABLE, "sees no device");
    fake->device_count = 1;
}

/* Code objects run on their own chip alone. */
static void other_chip(void **state) {
    (void)state;
    fake_hip *fake = fake_open(working);
    fake->arch = "gfx1100";
    assert_error(probe(), PFATTN_ERROR_UNAVAILABLE,
                 "device 0 (Fake Instinct) is a gfx1100, and this build has kernels for gfx90a, "
                 "gfx942");
    fake->arch = "gfx90a:sramecc+:xnack-";
}

static void device_described(void **state) {
    (void)state;
    fake_hip *fake = fake_open(working);
    pfattn_device_info info = PFATTN_DEVICE_INFO_INIT;
    fake->arch = "gfx942:sramecc+:xnack-";
    assert_success(pfattn_device_query(PFATTN_BACKEND_HIP, 0, &info));
    assert_string_equal(info.name, "Fake Instinct");
    assert_string_equal(info.arch, "gfx942");
    assert_string_equal(info.target, "gfx942");
    fake->arch = "gfx950";
    assert_success(pfattn_device_query(PFATTN_BACKEND_HIP, 0, &info));
    assert_string_equal(info.target, "gfx950");
    assert_int_equal(info.compute_units, 104);
    assert_int_equal(info.shared_bytes, 65536);
    assert_int_equal(info.memory_bytes, INT64_C(64) << 30);
    fake->arch = "gfx90a";
    assert_success(pfattn_device_query(PFATTN_BACKEND_HIP, 0, &info));
    assert_string_equal(info.target, "gfx90a");
}

/* A failure while the device is opened is that call's. */
static void opening_fails(void **state) {
    (void)state;
    static const char *const calls[] = {"hipDeviceGetName", "hipDeviceTotalMem",
                                        "hipGetDevicePropertiesR0600", "hipDeviceGetAttribute"};
    fake_hip *fake = fake_open(working);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        fake->fail_call = calls[i];
        fake->fail_result = 999;
        assert_error(probe(), PFATTN_ERROR_DRIVER, calls[i]);
    }
    fake->fail_call = NULL;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        return 99;
    }
    working = argv[1];
    broken = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(library_missing),  cmocka_unit_test(symbol_missing),
        cmocka_unit_test(no_device),        cmocka_unit_test(other_chip),
        cmocka_unit_test(device_described), cmocka_unit_test(opening_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
