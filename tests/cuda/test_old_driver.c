/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that lacks optional functions, for tensor maps, graphs and cuFuncLoad: a 9.0 device then
 * runs the sm_80 kernels alone, and each call kernel by kernel. */
#include "fake_cuda_client.h"

#include <stdlib.h>

static fake_cuda *fake;

static void sm_80_alone(void **state) {
    (void)state;
    pfattn_device_info info = PFATTN_DEVICE_INFO_INIT;
    assert_success(pfattn_device_query(PFATTN_BACKEND_CUDA, 0, &info));
    assert_string_equal(info.arch, "sm_90");
    assert_string_equal(info.target, "sm_80");
    pfattn_handle handle = fake_handle(0);
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 500, 64, 64});
    for (int i = 1; i <= 3; i++) {
        assert_success(pfattn_forward(handle, &a, NULL, 0, NULL));
        assert_int_equal(fake_count_calls(fake, "cuLaunchKernel"), i);
    }
    assert_int_equal(fake->launch_count, 3);
    assert_string_equal(fake_image_name(fake->launches[0].image), "sm_80/forward.f16.64.plain");
    assert_int_equal(fake_count_calls(fake, "cuGraphCreate"), 0);
    assert_int_equal(fake_count_calls(fake, "cuFuncLoad"), 0);
    pfattn_destroy(handle);
}

/* sm_90a cannot be forced on it. */
static void sm_90a_refused(void **state) {
    (void)state;
    setenv("PFATTN_CUDA_TARGET", "sm_90a", 1);
    pfattn_handle_options options = PFATTN_HANDLE_OPTIONS_INIT;
    options.backend = PFATTN_BACKEND_CUDA;
    pfattn_handle handle;
    assert_error(pfattn_create(&options, &handle), PFATTN_ERROR_UNAVAILABLE, "choose sm_80");
    unsetenv("PFATTN_CUDA_TARGET");
}

int main(int argc, char **argv) {
    if (argc < 2) {
        return 99;
    }
    fake = fake_open(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sm_80_alone),
        cmocka_unit_test(sm_90a_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
