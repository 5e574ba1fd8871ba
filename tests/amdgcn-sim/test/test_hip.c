/* SPDX-License-Identifier: Apache-2.0 */
/* The HIP entry points: what a host may rely on and what is refused. */
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

static void test_device(void **state) {
    char name[64];
    int value, count;
    size_t bytes;
    (void)state;
    assert_int_equal(hipInit(0), hipSuccess);
    assert_int_equal(hipGetDeviceCount(&count), hipSuccess);
    assert_int_equal(count, 1);
    assert_int_equal(hipDeviceGetName(name, sizeof(name), 0), hipSuccess);
    assert_non_null(strstr(name, test_arch()));
    assert_int_equal(hipDeviceGetAttribute(&value, 87, 0), hipSuccess); /* warp size */
    assert_int_equal(value, 64);
    assert_int_equal(hipDeviceGetAttribute(&value, 74, 0), hipSuccess); /* LDS per workgroup */
    assert_int_equal(value, 65536);
    assert_int_equal(hipDeviceGetAttribute(&value, 12345, 0), hipErrorInvalidValue);
    assert_int_equal(hipDeviceGetAttribute(&value, 87, 1), hipErrorInvalidDevice);
    assert_int_equal(hipSetDevice(3), hipErrorInvalidDevice);
    assert_int_equal(hipDeviceTotalMem(&bytes, 0), hipSuccess);
    assert_true(bytes > (size_t)1 << 32);
    assert_string_equal(hipGetErrorName(hipErrorLaunchFailure), "hipErrorLaunchFailure");
}

/* Offsets of gcnArchName in the two layouts of hipDeviceProp_t: HIP 6 and later, HIP 5. */
static void test_properties(void **state) {
    static char p[1472 + 64];
    (void)state;
    memset(p, 0x55, sizeof(p));
    assert_int_equal(hipGetDevicePropertiesR0600(p, 0), hipSuccess);
    assert_int_equal(strncmp(p + 1160, test_arch(), 6), 0);
    assert_int_equal(p[1472], 0x55);
    memset(p, 0x55, sizeof(p));
    assert_int_equal(hipGetDeviceProperties(p, 0), hipSuccess);
    assert_int_equal(strncmp(p + 396, test_arch(), 6), 0);
    assert_int_equal(p[792], 0x55);
}

static void test_code_objects(void **state) {
    hipModule_t other;
    hipFunction_t function;
    (void)state;
    void *image = test_image("lanes", test_is_gfx942() ? "gfx90a" : "gfx942");
    test_capture_begin();
    hipError_t wrong_arch = hipModuleLoadData(&other, image);
    memset(image, 0, 64);
    hipError_t no_elf = hipModuleLoadData(&other, image);
    const char *text = test_capture_end();
    assert_int_equal(wrong_arch, hipErrorNoBinaryForGpu);
    assert_int_equal(no_elf, hipErrorInvalidImage);
    assert_non_null(strstr(text, "the code object is for machine"));
    assert_int_equal(hipModuleGetFunction(&function, module, "absent"), hipErrorNotFound);
    free(image);
}

static void test_memory(void **state) {
    char data[100] = {1}, back[100];
    (void)state;
    void *d = test_upload(data, sizeof(data));
    assert_int_equal(hipMemsetD16Async((char *)d + 10, 0x1234, 5, NULL), hipSuccess);
    assert_int_equal(hipMemsetAsync((char *)d + 90, 7, 10, NULL), hipSuccess);
    test_download(back, d, sizeof(back));
    assert_int_equal(back[0], 1);
    assert_int_equal(back[18], 0x34);
    assert_int_equal(back[19], 0x12);
    assert_int_equal(back[99], 7);
    test_capture_begin();
    hipError_t copy = hipMemcpy(d, data, sizeof(data) + 1, hipMemcpyHostToDevice);
    hipError_t set = hipMemset((char *)d + 1, 0, sizeof(data));
    hipError_t inside = hipFree((char *)d + 1);
    hipError_t freed = hipFree(d);
    hipError_t twice = hipFree(d);
    hipError_t after = hipMemcpy(back, d, 1, hipMemcpyDeviceToHost);
    test_capture_end();
    assert_int_equal(copy, hipErrorInvalidValue);
    assert_int_equal(set, hipErrorInvalidValue);
    assert_int_equal(inside, hipErrorInvalidValue);
    assert_int_equal(freed, hipSuccess);
    assert_int_equal(twice, hipErrorInvalidValue);
    assert_int_equal(after, hipErrorInvalidValue);
    void *huge;
    assert_int_equal(hipMalloc(&huge, (size_t)1 << 40), hipErrorOutOfMemory);
    assert_int_equal(hipFree(NULL), hipSuccess);
}

static hipFunction_t function_of(const char *name) {
    hipFunction_t function;
    assert_int_equal(hipModuleGetFunction(&function, module, name), hipSuccess);
    return function;
}

static void test_launches(void **state) {
    float data[64] = {0}, result[64];
    (void)state;
    hipFunction_t f = function_of("uninitialised_memory");
    void *in = test_upload(data, sizeof(data)), *out = test_output(sizeof(data));
    struct {
        void *out, *in;
    } block = {out, in};
    size_t size = sizeof(block);
    void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &block, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     HIP_LAUNCH_PARAM_END};
    assert_int_equal(hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, extra), hipSuccess);
    test_download(result, out, sizeof(result));
    for (int i = 0; i < 64; i++)
        assert_true(result[i] == 1.f);
    void **params = ARGS(&out, &in);
    assert_int_equal(hipModuleLaunchKernel(f, 1, 1, 1, 0, 1, 1, 0, NULL, params, NULL),
                     hipErrorInvalidConfiguration);
    assert_int_equal(hipModuleLaunchKernel(f, 0, 1, 1, 64, 1, 1, 0, NULL, params, NULL),
                     hipErrorInvalidConfiguration);
    assert_int_equal(hipModuleLaunchKernel(f, 1, 1, 1, 257, 1, 1, 0, NULL, params, NULL),
                     hipErrorInvalidConfiguration); /* the kernel says at most 256 */
    assert_int_equal(hipModuleLaunchKernel(f, 1, 65537, 1, 64, 1, 1, 0, NULL, params, NULL),
                     hipErrorInvalidConfiguration);
    assert_int_equal(hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 65537, NULL, params, NULL),
                     hipErrorLaunchOutOfResources);
    assert_int_equal(hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL),
                     hipErrorInvalidValue);
    assert_int_equal(hipModuleLaunchKernel(NULL, 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL),
                     hipErrorInvalidHandle);
    assert_int_equal(hipFuncSetAttribute(f, 8, 65536), hipSuccess);
    assert_int_equal(hipFuncSetAttribute(f, 8, 65537), hipErrorInvalidValue);
}

/* A captured launch runs when its graph runs, with the arguments of capture time. */
static void test_capture(void **state) {
    float data[64] = {0}, result[64];
    hipStream_t stream;
    hipGraph_t graph;
    hipGraphExec_t exec;
    void *nothing;
    int status;
    (void)state;
    hipFunction_t f = function_of("uninitialised_memory");
    void *in = test_upload(data, sizeof(data)), *out = test_upload(data, sizeof(data));
    void *first_out = out;
    assert_int_equal(hipStreamCreate(&stream), hipSuccess);
    assert_int_equal(hipStreamBeginCapture(stream, 0), hipSuccess);
    assert_int_equal(hipStreamIsCapturing(stream, &status), hipSuccess);
    assert_int_equal(status, 1);
    assert_int_equal(hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, stream, ARGS(&out, &in), NULL),
                     hipSuccess);
    assert_int_equal(hipMemcpyAsync(in, first_out, sizeof(data), hipMemcpyDeviceToDevice, stream),
                     hipSuccess);
    out = NULL;
    assert_int_equal(hipStreamEndCapture(stream, &graph), hipSuccess);
    test_download(result, first_out, sizeof(result));
    assert_true(result[5] == 0.f);
    assert_int_equal(hipGraphInstantiate(&exec, graph, NULL, NULL, 0), hipSuccess);
    assert_int_equal(hipGraphDestroy(graph), hipSuccess);
    for (int run = 1; run <= 3; run++) {
        assert_int_equal(hipGraphLaunch(exec, stream), hipSuccess);
        assert_int_equal(hipStreamSynchronize(stream), hipSuccess);
        test_download(result, first_out, sizeof(result));
        assert_true(result[5] == (float)run);
    }
    assert_int_equal(hipGraphExecDestroy(exec), hipSuccess);
    /* allocation and synchronisation break a capture */
    assert_int_equal(hipStreamBeginCapture(stream, 0), hipSuccess);
    assert_int_equal(hipMalloc(&nothing, 16), hipErrorStreamCaptureUnsupported);
    assert_int_equal(hipStreamEndCapture(stream, &graph), hipErrorStreamCaptureInvalidated);
    assert_int_equal(hipStreamBeginCapture(stream, 0), hipSuccess);
    assert_int_equal(hipStreamSynchronize(stream), hipErrorStreamCaptureUnsupported);
    assert_int_equal(hipStreamEndCapture(stream, &graph), hipErrorStreamCaptureInvalidated);
    assert_int_equal(hipStreamDestroy(stream), hipSuccess);
}

static void test_events(void **state) {
    hipEvent_t start, stop;
    float milliseconds = -1;
    (void)state;
    assert_int_equal(hipEventCreate(&start), hipSuccess);
    assert_int_equal(hipEventCreateWithFlags(&stop, 0), hipSuccess);
    assert_int_equal(hipEventElapsedTime(&milliseconds, start, stop), hipErrorInvalidHandle);
    assert_int_equal(hipEventRecord(start, NULL), hipSuccess);
    assert_int_equal(hipEventRecord(stop, NULL), hipSuccess);
    assert_int_equal(hipEventSynchronize(stop), hipSuccess);
    assert_int_equal(hipEventElapsedTime(&milliseconds, start, stop), hipSuccess);
    assert_true(milliseconds >= 0);
    assert_int_equal(hipEventDestroy(start), hipSuccess);
    assert_int_equal(hipEventDestroy(stop), hipSuccess);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device),       cmocka_unit_test(test_properties),
        cmocka_unit_test(test_code_objects), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_launches),     cmocka_unit_test(test_capture),
        cmocka_unit_test(test_events),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
