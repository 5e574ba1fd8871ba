/* SPDX-License-Identifier: Apache-2.0 */
/* What one call costs on the host, with a driver that does nothing: at most 5 microseconds. */
#include "fake_cuda_client.h"

#include <stdio.h>
#include <time.h>

enum { BATCHES = 50, CALLS = 200 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static fake_cuda *fake;
static pfattn_handle handle;

static pfattn_status forward(const pfattn_attention *a) {
    return pfattn_forward(handle, a, NULL, 0, NULL);
}

static pfattn_status backward(const pfattn_attention *a) {
    return pfattn_backward(handle, a, (void *)0x7000000, (size_t)1 << 40, NULL);
}

/* Microseconds a call, of the batch that was disturbed least. */
static double measure(pfattn_status (*call)(const pfattn_attention *), const pfattn_attention *a) {
    double best = 1e9;
    for (int batch = 0; batch < BATCHES; batch++) {
        fake_reset(fake);
        double start = now();
        for (int i = 0; i < CALLS; i++) {
            assert_success(call(a));
        }
        double each = 1e6 * (now() - start) / CALLS;
        best = each < best ? each : best;
    }
    return best;
}

static void host_cost(void **state) {
    (void)state;
    test_shape shape = {2, 16, 16, 4096, 4096, 128, 128};
    pfattn_attention a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, shape);
    double cost = measure(forward, &a);
    print_message("forward: %.2f us\n", cost);
    assert_true(cost < 5.0);
    a = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, shape);
    cost = measure(backward, &a);
    print_message("backward: %.2f us\n", cost);
    assert_true(cost < 5.0);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        return 99;
    }
    fake = fake_open(argv[1]);
    handle = fake_handle(0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(host_cost)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    pfattn_destroy(handle);
    return failed;
}
