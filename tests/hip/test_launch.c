/* SPDX-License-Identifier: Apache-2.0 */
/* What a call launches, with which grid and arguments, on which device and stream; that kernels
 * load once and are unloaded; and that a call of HIP that fails ends the call with its name, with
 * nothing launched after it and the caller's device current again. */
#include "client.h"

#include <string.h>

#include "hip/device.h"

static fake_hip *fake;

#define STREAM ((void *)0x51)
#define WORKSPACE ((void *)0x7000000)
#define WORKSPACE_BYTES ((size_t)1 << 30)

static int reset(void **state) {
    (void)state;
    fake->fail_call = NULL;
    fake->fail_after = 0;
    fake->launch_count = fake->loads = 0;
    fake->device_count = 2;
    fake->current_device = 0;
    return 0;
}

static void check_launch(int at, const char *kernel, const char *image, unsigned grid,
                         unsigned block) {
    const fake_launch *launch = &fake->launches[at];
    assert_string_equal(launch->kernel, kernel);
    assert_string_equal(fake_image_name(launch->image), image);
    assert_int_equal(launch->grid[0], grid);
    assert_int_equal(launch->grid[1] * launch->grid[2], 1);
    assert_int_equal(launch->block[0], block);
    assert_int_equal(launch->block[1] * launch->block[2], 1);
    assert_int_equal(launch->shared, 0); /* LDS is the kernel's own */
    assert_ptr_equal(launch->stream, STREAM);
}

/* 300 queries in tiles of 128 are 3; 2 batches of 4 heads make 24 workgroups. */
static void forward(void **state) {
    (void)state;
    pfattn_handle handle = fake_handle(1);
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 300, 500, 64, 64});
    fake->current_device = 0;
    assert_success(pfattn_forward(handle, &a, NULL, 0, STREAM));
    assert_int_equal(fake->launch_count, 1);
    check_launch(0, "pf_forward", "gfx90a/forward.f16.64.plain", 24, 256);
    const pf_attention_kargs *args = &fake->launches[0].args.attention;
    assert_int_equal(args->work_count, 24);
    assert_int_equal(args->operand[PF_OPERAND_Q].address, (uintptr_t)a.q.data);
    assert_int_equal(args->o.address, (uintptr_t)a.o.data);
    assert_int_equal(fake->launches[0].device, 1);
    assert_int_equal(fake->current_device, 0);
    pfattn_destroy(handle);
    assert_int_equal(fake->modules, 0);
    assert_int_equal(fake->current_device, 0);
}

/* Backward with a mask is every kind of step: the keys that are live (two blocks of 256), the
 * statistics of 2 * 4 rows of 128 padded queries, 64 a workgroup, and zeros for dq, the kernel
 * of 3 tiles of keys for 2 * 2 key/value heads, and dq by 4 tiles of 32 queries. */
static void backward(void **state) {
    (void)state;
    pfattn_handle handle = fake_handle(0);
    pfattn_attention a =
        test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 300, 64, 64});
    test_add_mask(&a, 1, 1, 100, 300);
    for (int call = 0; call < 2; call++) {
        fake->launch_count = 0;
        assert_success(pfattn_backward(handle, &a, WORKSPACE, WORKSPACE_BYTES, STREAM));
        assert_int_equal(fake->launch_count, 4);
    }
    const char *main_image = "gfx90a/backward.f16.64.general";
    check_launch(0, "pf_key_live", "gfx90a/passes", 2, 256);
    check_launch(1, "pf_backward_pre", "gfx90a/passes", 2 * 4 * 128 / 64, 256);
    const pf_attention_kargs *pre = &fake->launches[1].args.attention;
    assert_int_equal(pre->zeroed_words, 2 * 4 * 128 * 64 / 2);
    check_launch(2, "pf_backward", main_image, 2 * 2 * 3, 256);
    check_launch(3, "pf_backward_dq", main_image, 2 * 4 * 4, 256);
    assert_int_equal(fake->launches[2].args.attention.dq_sum[0], pre->zeroed);
    assert_int_equal(fake->loads, 2); /* once, not once a call */
    pfattn_destroy(handle);
    assert_int_equal(fake->modules, 0);
}

/* One query, many keys: 3 workgroups run at once on each of the 104 compute units, so 4 heads are
 * split 78 ways at most: 2048 tiles of 32 keys make 27 each, hence 76 ranges to a head, and places
 * for 4 * 76 + 3 parts. */
static void forward_split(void **state) {
    (void)state;
    pfattn_handle handle = fake_handle(0);
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 4, 2, 1, 65536, 64, 64});
    size_t bytes = 0;
    assert_success(pfattn_workspace_size(handle, PFATTN_FORWARD, &a, &bytes));
    assert_int_equal(bytes, 2560 + 307 * 64 * 4); /* 307 * 8 bytes of statistics */
    assert_success(pfattn_forward(handle, &a, WORKSPACE, bytes, STREAM));
    assert_int_equal(fake->launch_count, 2);
    check_launch(0, "pf_forward", "gfx90a/forward.f16.64.plain", 76 * 4, 256);
    check_launch(1, "pf_merge_splits", "gfx90a/passes", 2, 256); /* 4 rows of 2 * 32 channels */
    const fake_launch *merge = &fake->launches[1];
    assert_int_equal(merge->args.attention.split.by_tiles.value, 76 * 27);
    assert_int_equal(merge->args.attention.split.by_length.value, 27);
    assert_true(merge->args.attention.split.lse.address == (uintptr_t)WORKSPACE);
    assert_true(merge->args.attention.o.address == (uintptr_t)a.o.data);
    pfattn_destroy(handle);
}

static void merge(void **state) {
    (void)state;
    pfattn_handle handle = fake_handle(0);
    pfattn_merge_args m = test_merge_args(PFATTN_DTYPE_F32, (test_shape){1, 2, 2, 6, 0, 0, 64});
    assert_success(pfattn_merge(handle, &m, STREAM));
    check_launch(0, "pf_merge", "gfx90a/passes", 3, 256);
    assert_int_equal(fake->launches[0].args.merge.queries, 6);
    pfattn_destroy(handle);
}

typedef struct fault {
    const char *call;
    int after, result;
    pfattn_status status;
    const char *text;
    int launches;
} fault;

static void faults(void **state) {
    (void)state;
    static const fault cases[] = {
        {"hipGetDevice", 0, 999, PFATTN_ERROR_DRIVER, "hip: hipGetDevice failed", 0},
        {"hipThreadExchangeStreamCaptureMode", 0, 999, PFATTN_ERROR_DRIVER,
         "hipThreadExchangeStreamCaptureMode failed", 0},
        {"hipModuleLoadData", 0, PF_HIP_NO_BINARY_FOR_GPU, PFATTN_ERROR_UNAVAILABLE,
         "hipModuleLoadData of kernels gfx90a/passes failed", 0},
        {"hipModuleLoadData", 1, PF_HIP_OUT_OF_MEMORY, PFATTN_ERROR_OUT_OF_MEMORY,
         "gfx90a/backward.f16.64.general failed with hipErrorOutOfMemory (2, ", 0},
        {"hipModuleGetFunction", PF_ENTRY_MERGE, 500, PFATTN_ERROR_DRIVER,
         "hipModuleGetFunction of pf_merge failed", 0},
        {"hipModuleLaunchKernel", 0, PF_HIP_INVALID_HANDLE, PFATTN_ERROR_DRIVER,
         "hipModuleLaunchKernel of pf_key_live failed", 0},
        {"hipModuleLaunchKernel", 2, PF_HIP_LAUNCH_OUT_OF_RESOURCES, PFATTN_ERROR_DRIVER,
         "hipModuleLaunchKernel of the main kernel failed", 2},
        {"hipModuleLaunchKernel", 3, PF_HIP_LAUNCH_FAILURE, PFATTN_ERROR_DRIVER,
         "hipModuleLaunchKernel of the dq pass failed", 3},
    };
    pfattn_attention a =
        test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 300, 64, 64});
    test_add_mask(&a, 1, 1, 100, 300);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        reset(NULL);
        pfattn_handle handle = fake_handle(1);
        fake->fail_call = cases[i].call;
        fake->fail_after = cases[i].after;
        fake->fail_result = cases[i].result;
        assert_error(pfattn_backward(handle, &a, WORKSPACE, WORKSPACE_BYTES, STREAM),
                     cases[i].status, cases[i].text);
        assert_int_equal(fake->launch_count, cases[i].launches);
        assert_int_equal(fake->current_device, 0);
        fake->fail_call = NULL;
        fake->launch_count = 0;
        assert_success(pfattn_backward(handle, &a, WORKSPACE, WORKSPACE_BYTES, STREAM));
        assert_int_equal(fake->launch_count, 4);
        pfattn_destroy(handle);
        assert_int_equal(fake->modules, 0);
    }
}

/* Memory and timers of the tools. */
static void memory(void **state) {
    (void)state;
    pfattn_handle handle = fake_handle(1);
    const pf_memory_ops *ops = &pf_hip_memory;
    pf_device *device = handle->device;
    char text[] = "tile", back[sizeof text] = "";
    void *block = NULL;
    double seconds = 0.0;
    assert_success(ops->allocate(device, sizeof text, &block));
    assert_success(ops->upload(device, block, text, sizeof text));
    assert_success(ops->download(device, back, block, sizeof text));
    assert_string_equal(back, text);
    assert_success(ops->timer_start(device));
    assert_success(ops->synchronize(device));
    assert_success(ops->timer_stop(device, &seconds));
    assert_true(seconds > 0.00249 && seconds < 0.00251);
    ops->release(device, block);
    fake->fail_call = "hipMalloc";
    fake->fail_result = PF_HIP_OUT_OF_MEMORY;
    assert_error(ops->allocate(device, 1, &block), PFATTN_ERROR_OUT_OF_MEMORY, "hipMalloc failed");
    assert_int_equal(fake->current_device, 0);
    pfattn_destroy(handle);
    assert_int_equal(fake->allocations, 0);
    assert_int_equal(fake->events, 0);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        return 99;
    }
    fake = fake_open(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(forward, reset), cmocka_unit_test_setup(backward, reset),
        cmocka_unit_test_setup(merge, reset),   cmocka_unit_test_setup(forward_split, reset),
        cmocka_unit_test_setup(faults, reset),  cmocka_unit_test_setup(memory, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
