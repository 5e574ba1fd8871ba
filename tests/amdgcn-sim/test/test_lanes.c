/* SPDX-License-Identifier: Apache-2.0 */
/* Exchange between lanes against its definition, lane by lane. */
#include "support.h"

static hipModule_t module;

static int setup(void **state) {
    (void)state;
    module = test_module("lanes");
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return hipModuleUnload(module);
}

static void test_dpp(void **state) {
    int32_t in[64], out[11 * 64];
    (void)state;
    for (int i = 0; i < 64; i++)
        in[i] = 1000 + i;
    void *di = test_upload(in, sizeof(in)), *d = test_output(sizeof(out));
    test_run(module, "dpp", 1, 64, ARGS(&d, &di));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < 64; i++) {
        int row = i / 16 * 16, at = i % 16;
        const int want[11] = {
            in[i ^ 1],
            at < 15 ? in[i + 1] : -1,
            at >= 3 ? in[i - 3] : 0,
            in[row + (at + 12) % 16],
            in[row + 15 - at],
            in[i / 8 * 8 + 7 - i % 8],
            i / 16 % 2 ? in[row - 1] : -1,
            i >= 32 ? in[31] : -1,
            at / 4 % 2 ? -1 : in[row + 15 - at],
            i ? in[i - 1] : -1,
            in[row + 3],
        };
        for (int k = 0; k < 11; k++) {
            if (out[k * 64 + i] != want[k])
                fail_msg("control %d, lane %d: got %d, expected %d", k, i, out[k * 64 + i],
                         want[k]);
        }
    }
}

static void test_exchange(void **state) {
    int32_t in[64], out[9 * 64], permuted[64];
    uint32_t odd = 0;
    (void)state;
    for (int i = 0; i < 64; i++) {
        in[i] = (int32_t)test_random();
        odd ^= (uint32_t)(in[i] & 1) << (i % 32);
    }
    for (int i = 0; i < 64; i++)
        permuted[i * 5 % 64] = in[i];
    void *di = test_upload(in, sizeof(in)), *d = test_output(10 * 64 * 4);
    test_run(module, "exchange", 1, 64, ARGS(&d, &di));
    test_download(out, d, 8 * 64 * 4);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(out[i], in[i ^ 32]);
        assert_int_equal(out[64 + i], permuted[i]);
        assert_int_equal(out[2 * 64 + i], in[i ^ 1]);
        assert_int_equal(out[3 * 64 + i], in[i ^ 3]);
        assert_int_equal(out[4 * 64 + i], in[17]);
        assert_int_equal(out[5 * 64 + i], in[0]);
        assert_int_equal(out[6 * 64 + i], i);
        assert_int_equal(out[7 * 64 + i], (int32_t)odd);
    }
    test_download(out, (char *)d + 9 * 64 * 4, 64 * 4);
    for (int i = 0; i < 64; i++) /* an inactive lane gives zero */
        assert_int_equal(out[i], i >= 8 ? in[8] : 0);
}

static void test_reduce(void **state) {
    enum { GROUPS = 6 };
    float in[GROUPS * 256], out[2 * GROUPS];
    (void)state;
    for (int i = 0; i < GROUPS * 256; i++)
        in[i] = (float)(int)(test_random() % 2001) - 1000.f;
    void *di = test_upload(in, sizeof(in)), *d = test_output(sizeof(out));
    test_run(module, "reduce", GROUPS, 256, ARGS(&d, &di));
    test_download(out, d, sizeof(out));
    for (int g = 0; g < GROUPS; g++) {
        float sum = 0, largest = -1e30f;
        for (int i = 0; i < 256; i++) {
            sum += in[g * 256 + i];
            largest = in[g * 256 + i] > largest ? in[g * 256 + i] : largest;
        }
        assert_true(out[2 * g] == sum);
        assert_true(out[2 * g + 1] == largest);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dpp),
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_reduce),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
