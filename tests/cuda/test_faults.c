/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of the driver that a problem makes fails in turn: the status and the text are right,
 * no context or module stays behind, nothing is launched after the failure, and the next call
 * works. */
#include "fake_cuda_client.h"

#include <string.h>

#include "cuda/device.h"

static fake_cuda *fake;
static pfattn_handle handle;

static int open_handle(void **state) {
    (void)state;
    fake_reset(fake);
    handle = fake_handle(0);
    return 0;
}

static int close_handle(void **state) {
    (void)state;
    fake_reset(fake);
    pfattn_destroy(handle);
    return fake_depth() == 0 && fake->modules == 0 && fake->retained[0] == 0 ? 0 : -1;
}

/* Backward of a piecewise problem with a mask: every kind of call is in it. */
static pfattn_attention every_call(void) {
    pfattn_attention a =
        test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 300, 64, 64});
    test_add_mask(&a, 1, 1, 100, 300);
    return a;
}

static pfattn_status run(const pfattn_attention *a) {
    return pfattn_backward(handle, a, (void *)0x7000000, (size_t)1 << 30, NULL);
}

typedef struct fault_case {
    const char *call;
    int after; /* calls of it that succeed */
    CUresult result;
    pfattn_status status;
    const char *text;
    int launches; /* that went before */
} fault_case;

static const fault_case fault_cases[] = {
    {"cuCtxPushCurrent", 0, CUDA_ERROR_UNKNOWN, PFATTN_ERROR_DRIVER,
     "cuCtxPushCurrent failed with CUDA_ERROR_UNKNOWN", 0},
    {"cuThreadExchangeStreamCaptureMode", 0, CUDA_ERROR_UNKNOWN, PFATTN_ERROR_DRIVER,
     "cuThreadExchangeStreamCaptureMode failed", 0},
    {"cuModuleLoadDataEx", 0, CUDA_ERROR_NO_BINARY_FOR_GPU, PFATTN_ERROR_UNAVAILABLE,
     "cuModuleLoadDataEx of kernels sm_90a/passes failed with CUDA_ERROR_NO_BINARY_FOR_GPU (209, "
     "as "
     "the fake driver was told); this build has no kernel for the device: build pfattn with "
     "-Dcuda-archs=sm_80 added",
     0},
    {"cuModuleLoadDataEx", 1, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, PFATTN_ERROR_UNAVAILABLE,
     "sm_90a/backward.f16.64.general failed with CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222, as the "
     "fake "
     "driver was told); the driver is older than the nvcc of this build: update the driver",
     0},
    {"cuModuleLoadDataEx", 1, CUDA_ERROR_OUT_OF_MEMORY, PFATTN_ERROR_OUT_OF_MEMORY,
     "free device memory", 0},
    {"cuModuleGetFunction", 2, CUDA_ERROR_NOT_FOUND, PFATTN_ERROR_DRIVER,
     "cuModuleGetFunction failed with CUDA_ERROR_NOT_FOUND", 0},
    {"cuFuncSetAttribute", 0, CUDA_ERROR_INVALID_VALUE, PFATTN_ERROR_DRIVER,
     "cuFuncSetAttribute failed with CUDA_ERROR_INVALID_VALUE", 0},
    {"cuFuncLoad", 3, CUDA_ERROR_OUT_OF_MEMORY, PFATTN_ERROR_OUT_OF_MEMORY, "cuFuncLoad failed", 0},
    {"cuTensorMapEncodeTiled", 2, CUDA_ERROR_INVALID_VALUE, PFATTN_ERROR_DRIVER,
     "cuTensorMapEncodeTiled failed with CUDA_ERROR_INVALID_VALUE", 0},
    {"cuLaunchKernel", 0, CUDA_ERROR_INVALID_CONTEXT, PFATTN_ERROR_DRIVER,
     "cuLaunchKernel of pf_key_live failed with CUDA_ERROR_INVALID_CONTEXT (201, as the fake "
     "driver "
     "was told); the stream must be alive and belong to the device of the handle",
     0},
    {"cuLaunchKernel", 1, CUDA_ERROR_ILLEGAL_ADDRESS, PFATTN_ERROR_DRIVER,
     "cuLaunchKernel of pf_backward_pre failed with CUDA_ERROR_ILLEGAL_ADDRESS (700, as the fake "
     "driver was told); work enqueued earlier failed and the context is unusable",
     1},
    {"cuLaunchKernel", 2, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, PFATTN_ERROR_DRIVER,
     "cuLaunchKernel of the main kernel failed with CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", 2},
    {"cuLaunchKernel", 3, CUDA_ERROR_UNKNOWN, PFATTN_ERROR_DRIVER,
     "cuLaunchKernel of the dq pass failed", 3},
};

static void every_fault(void **state) {
    (void)state;
    for (size_t n = 0; n < sizeof fault_cases / sizeof fault_cases[0]; n++) {
        const fault_case *f = &fault_cases[n];
        print_message("%s after %d\n", f->call, f->after);
        pfattn_attention a = every_call();
        fake_reset(fake);
        fake->fail_call = f->call;
        fake->fail_after = f->after;
        fake->fail_result = f->result;
        assert_error(run(&a), f->status, f->text);
        assert_int_equal(fake->launch_count, f->launches);
        assert_int_equal(fake_depth(), 0);
        fake_reset(fake);
        assert_success(run(&a));
        assert_int_equal(fake->launch_count, 4);
        pfattn_destroy(handle);
        assert_int_equal(fake->modules, 0);
        handle = fake_handle(0);
    }
}

/* supported tells of kernels that cannot be loaded, before anything is computed. */
static void supported_tells(void **state) {
    (void)state;
    pfattn_attention a = every_call();
    fake->fail_call = "cuModuleLoadDataEx";
    fake->fail_result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    assert_error(pfattn_supported(handle, PFATTN_BACKWARD, &a), PFATTN_ERROR_UNAVAILABLE,
                 "CUDA_ERROR_NO_BINARY_FOR_GPU");
    assert_int_equal(fake_depth(), 0);
}

/* A context that cannot be popped is an error, but not one that hides an earlier. */
static void pop_fails(void **state) {
    (void)state;
    pfattn_attention a = every_call();
    assert_success(pfattn_supported(handle, PFATTN_BACKWARD, &a));
    fake_reset(fake);
    fake->fail_call = "cuCtxPopCurrent";
    fake->fail_result = CUDA_ERROR_UNKNOWN;
    assert_error(run(&a), PFATTN_ERROR_DRIVER, "cuCtxPopCurrent failed");
    fake_reset(fake);
    pf_cuda_leave(handle->device, PFATTN_SUCCESS); /* what the failed call left */
    assert_int_equal(fake_depth(), 0);
}

/* The tools' memory calls report, too. */
static void memory_faults(void **state) {
    (void)state;
    const pf_memory_ops *ops = pf_backend_get(PFATTN_BACKEND_CUDA)->memory;
    pf_device *device = handle->device;
    void *there = NULL;
    double seconds = -1.0;
    char byte = 0;
    fake->fail_result = CUDA_ERROR_OUT_OF_MEMORY;
    fake->fail_call = "cuMemAlloc";
    assert_error(ops->allocate(device, 8, &there), PFATTN_ERROR_OUT_OF_MEMORY, "cuMemAlloc failed");
    assert_null(there);
    fake->fail_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    fake->fail_call = "cuMemcpyHtoD";
    assert_error(ops->upload(device, &byte, &byte, 1), PFATTN_ERROR_DRIVER, "cuMemcpyHtoD failed");
    fake->fail_call = "cuMemcpyDtoH";
    assert_error(ops->download(device, &byte, &byte, 1), PFATTN_ERROR_DRIVER,
                 "cuMemcpyDtoH failed");
    fake->fail_call = "cuCtxSynchronize";
    assert_error(ops->synchronize(device), PFATTN_ERROR_DRIVER, "cuCtxSynchronize failed");
    fake->fail_call = "cuEventCreate";
    assert_error(ops->timer_start(device), PFATTN_ERROR_DRIVER, "cuEventCreate failed");
    fake->fail_call = "cuEventRecord";
    assert_error(ops->timer_start(device), PFATTN_ERROR_DRIVER, "cuEventRecord failed");
    fake->fail_call = NULL;
    assert_success(ops->timer_start(device));
    const char *const calls[] = {"cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime"};
    for (int i = 0; i < 3; i++) {
        fake->fail_call = calls[i];
        assert_error(ops->timer_stop(device, &seconds), PFATTN_ERROR_DRIVER, calls[i]);
        assert_true(seconds == -1.0);
    }
    fake->fail_call = "cuCtxPushCurrent";
    assert_error(ops->allocate(device, 8, &there), PFATTN_ERROR_DRIVER, "cuCtxPushCurrent failed");
    assert_error(ops->upload(device, &byte, &byte, 1), PFATTN_ERROR_DRIVER, "cuCtxPushCurrent");
    assert_error(ops->timer_stop(device, &seconds), PFATTN_ERROR_DRIVER, "cuCtxPushCurrent");
    assert_int_equal(fake_depth(), 0);
}

/* What select refuses comes back through the API, and nothing was called. */
static void refusals(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 1, 1, 5, 5, 257, 64});
    fake_reset(fake);
    assert_error(pfattn_forward(handle, &a, NULL, 0, NULL), PFATTN_ERROR_UNSUPPORTED,
                 "q: head dimension is 257; the cuda backend takes at most 256");
    a = every_call();
    assert_error(pfattn_backward(handle, &a, NULL, 0, NULL), PFATTN_ERROR_INVALID_ARGUMENT,
                 "workspace: is NULL");
    assert_int_equal(fake->launch_count, 0);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        return 99;
    }
    fake = fake_open(argv[1]);
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_handle, close_handle)
    const struct CMUnitTest tests[] = {
        TEST(every_fault),   TEST(supported_tells), TEST(pop_fails),
        TEST(memory_faults), TEST(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
