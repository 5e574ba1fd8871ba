/* SPDX-License-Identifier: Apache-2.0 */
/* A HIP 5 library: the older layout of the properties, and no exchange of the capture mode. */
#include "client.h"

static void works(void **state) {
    (void)state;
    pfattn_device_info info = PFATTN_DEVICE_INFO_INIT;
    assert_success(pfattn_device_query(PFATTN_BACKEND_HIP, 0, &info));
    assert_string_equal(info.arch, "gfx90a");
    pfattn_handle handle = fake_handle(0);
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 2, 2, 100, 50, 64, 64});
    assert_success(pfattn_forward(handle, &a, NULL, 0, NULL));
    pfattn_destroy(handle);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        return 99;
    }
    fake_open(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(works)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
