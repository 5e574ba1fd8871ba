/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of all kinds: widths, LDS and barriers, atomics, scratch, calls, buffers, waits. */
#include <string.h>

#include "support.h"

#define N 256

static hipModule_t module;

static int setup(void **state) {
    (void)state;
    module = test_module("memory");
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return hipModuleUnload(module);
}

static void test_widths(void **state) {
    static uint8_t in[4096], out[6912 + 16 * N];
    (void)state;
    for (int i = 0; i < 4096; i++)
        in[i] = (uint8_t)test_random();
    void *di = test_upload(in, sizeof(in)), *d = test_output(sizeof(out));
    test_run(module, "widths", 1, N, ARGS(&d, &di));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < N; i++) {
        int32_t sum;
        memcpy(&sum, out + 768 + 4 * i, 4);
        assert_int_equal(out[i], i < 128 ? out[i] : in[3 * i]); /* shorts cover the first bytes */
        assert_memory_equal(out + 1792 + 8 * i, in + 8 * i, 8);
        assert_memory_equal(out + 3840 + 12 * i, in + 12 * (i / 2), 12);
        assert_memory_equal(out + 6912 + 16 * i, in + 16 * (i / 4), 16);
        assert_memory_equal(out + 256 + 2 * i, in + 4 * i, 2);
        assert_int_equal(sum, (int8_t)in[i] + in[i + 1]);
    }
}

static void test_transpose(void **state) {
    enum { ROWS = 48, COLUMNS = 32 };
    float in[ROWS * COLUMNS], out[ROWS * COLUMNS];
    int rows = ROWS, columns = COLUMNS;
    (void)state;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        in[i] = (float)i;
    void *di = test_upload(in, sizeof(in)), *d = test_output(sizeof(out));
    test_run(module, "transpose", 1, N, ARGS(&d, &di, &rows, &columns));
    test_download(out, d, sizeof(out));
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            assert_true(out[c * ROWS + r] == in[r * COLUMNS + c]);
}

static void test_lds_widths(void **state) {
    uint32_t in[N], out[3 * N];
    (void)state;
    for (int i = 0; i < N; i++)
        in[i] = test_random();
    void *di = test_upload(in, sizeof(in)), *d = test_output(sizeof(out));
    test_run(module, "lds_widths", 1, N, ARGS(&d, &di));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < N; i++) {
        uint32_t x = in[255 - i], *q = in + (255 - i) / 4 * 4;
        assert_int_equal(out[i], x);
        assert_int_equal(out[N + i], (x & 0xffff) | (uint32_t)(int32_t)(int8_t)(x >> 16) << 16);
        assert_int_equal(out[2 * N + i], q[0] + 3 * q[1] + 5 * q[2] + 7 * q[3]);
    }
}

static void test_dynamic_lds(void **state) {
    hipFunction_t function;
    int32_t out[N];
    int n = 5000;
    (void)state;
    void *d = test_output(sizeof(out));
    assert_int_equal(hipModuleGetFunction(&function, module, "dynamic_lds"), hipSuccess);
    assert_int_equal(
        hipModuleLaunchKernel(function, 1, 1, 1, N, 1, 1, 4 * 5000, NULL, ARGS(&d, &n), NULL),
        hipSuccess);
    test_download(out, d, sizeof(out));
    for (int i = 0; i < N; i++) {
        int32_t sum = 0;
        for (int j = i; j < n; j += N)
            sum += (n - 1 - j) * (n - 1 - j);
        assert_int_equal(out[i], sum);
    }
}

static void test_atomics(void **state) {
    enum { GROUPS = 4, ITEMS = GROUPS * N };
    static uint32_t u[6 + ITEMS];
    static float f[8 + GROUPS];
    static uint64_t l[1 + GROUPS];
    static int32_t old[ITEMS];
    (void)state;
    for (int i = 0; i < ITEMS; i++)
        u[6 + i] = (uint32_t)(i & 1 ? i : 7777);
    void *du = test_upload(u, sizeof(u)), *df = test_upload(f, sizeof(f)),
         *dl = test_upload(l, sizeof(l)), *dold = test_output(sizeof(old));
    test_run(module, "atomics", GROUPS, N, ARGS(&du, &df, &dl, &dold));
    test_download(u, du, sizeof(u));
    test_download(f, df, sizeof(f));
    test_download(l, dl, sizeof(l));
    test_download(old, dold, sizeof(old));
    uint32_t sums[4] = {0}, largest = 0;
    uint64_t total = 0;
    for (uint32_t i = 0; i < ITEMS; i++) {
        sums[i & 3] += i;
        largest = (i ^ 0x55) > largest ? i ^ 0x55 : largest;
        total += (uint64_t)i << 32;
        assert_int_equal(u[6 + i], i & 1 ? i + 1 : 7777);
        assert_int_equal(old[i], i & 1 ? i : 7777);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(u[i], sums[i]);
    assert_int_equal(u[4], largest);
    assert_int_equal(u[5], 0xffffffffu);
    assert_true(l[0] == total);
    for (int i = 0; i < 8; i++)
        assert_true(f[i] == 0.25f * ITEMS / 8);
    for (int g = 0; g < GROUPS; g++) {
        assert_true(f[8 + g] == 0.5f * N);
        assert_true(l[1 + g] == N * (N - 1) / 2);
    }
}

static void test_scratch(void **state) {
    int32_t order[64], out[2 * N];
    int n = 64;
    (void)state;
    for (int i = 0; i < 64; i++)
        order[i] = (i * 29 + 5) & 63;
    void *di = test_upload(order, sizeof(order)), *d = test_output(sizeof(out));
    test_run(module, "scratch", 2, N, ARGS(&d, &di, &n));
    test_download(out, d, sizeof(out));
    for (int t = 0; t < 2 * N; t++) {
        int32_t data[64], lane = t % N;
        uint32_t sum = 0;
        for (int i = 0; i < 64; i++)
            data[(order[i] + lane) & 63] = i * lane;
        for (int i = 0; i < 64; i++)
            sum = sum * 3 + (uint32_t)data[(i + 2 * lane) & 63];
        assert_int_equal(out[t], (int32_t)sum);
    }
}

static void test_calls(void **state) {
    static const int fibonacci[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55};
    float in[N], out[N];
    int n = 3;
    (void)state;
    for (int i = 0; i < N; i++)
        in[i] = (float)i * 0.5f;
    void *di = test_upload(in, sizeof(in)), *d = test_output(sizeof(out));
    test_run(module, "calls", 1, N, ARGS(&d, &di, &n));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < N; i++)
        assert_true(out[i] == in[i] + 2.f + (float)fibonacci[(i & 7) + n]);
}

static void test_globals(void **state) {
    static const int table[4] = {5, 6, 7, 8}, sums[4] = {13, 21, 34, 41};
    int32_t out[64];
    void *address;
    size_t size;
    (void)state;
    void *d = test_output(sizeof(out));
    test_run(module, "globals", 1, 64, ARGS(&d));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < 64; i++)
        assert_int_equal(out[i], sums[i & 3]);
    assert_int_equal(hipModuleGetGlobal(&address, &size, module, "table"), hipSuccess);
    assert_int_equal(size, sizeof(table));
    assert_int_equal(hipMemcpy(address, table, sizeof(table), hipMemcpyHostToDevice), hipSuccess);
    test_run(module, "globals", 1, 64, ARGS(&d));
    test_download(out, d, sizeof(out));
    assert_int_equal(out[3], 48);
    assert_int_equal(hipModuleGetGlobal(&address, &size, module, "absent"), hipErrorNotFound);
}

static void test_buffers(void **state) {
    enum { COUNT = 100 };
    float in[COUNT], out[COUNT];
    int count = COUNT;
    (void)state;
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)(i + 1);
    void *di = test_upload(in, sizeof(in)), *d = test_output(sizeof(out));
    test_run(module, "buffers", 1, N, ARGS(&d, &di, &count));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < COUNT; i++)
        assert_true(out[i] == in[i] + (i + 4 < COUNT ? in[i + 4] : 0.f));
}

/* Workgroups that spin on their predecessors' results make progress. */
static void test_chain(void **state) {
    int32_t zero = 0, out[40];
    (void)state;
    void *flag = test_upload(&zero, sizeof(zero)), *d = test_output(sizeof(out));
    test_run(module, "chain", 40, 64, ARGS(&flag, &d));
    test_download(out, d, sizeof(out));
    for (int i = 0; i < 40; i++)
        assert_int_equal(out[i], i + 1);
}

static void test_identity(void **state) {
    enum { X = 5, Y = 3, Z = 7, ITEMS = X * Y * Z, GX = 2, GY = 3, GZ = 2 };
    static int32_t out[GX * GY * GZ * ITEMS];
    hipFunction_t function;
    (void)state;
    void *d = test_output(sizeof(out));
    assert_int_equal(hipModuleGetFunction(&function, module, "identity"), hipSuccess);
    assert_int_equal(hipModuleLaunchKernel(function, GX, GY, GZ, X, Y, Z, 0, NULL, ARGS(&d), NULL),
                     hipSuccess);
    test_download(out, d, sizeof(out));
    for (int g = 0; g < GX * GY * GZ; g++)
        for (int i = 0; i < ITEMS; i++) {
            int want = i % X | i / X % Y << 4 | i / X / Y << 8 | g % GX << 12 | g / GX % GY << 16 |
                       g / GX / GY << 20 | X << 24;
            assert_int_equal(out[g * ITEMS + i], want);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widths),     cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_lds_widths), cmocka_unit_test(test_dynamic_lds),
        cmocka_unit_test(test_atomics),    cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_calls),      cmocka_unit_test(test_globals),
        cmocka_unit_test(test_buffers),    cmocka_unit_test(test_chain),
        cmocka_unit_test(test_identity),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
