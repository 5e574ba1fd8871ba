/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support.h"

const char *test_arch(void) {
    const char *arch = getenv("AMDGCN_SIM_ARCH");
    return arch ? arch : "gfx90a";
}
bool test_is_gfx942(void) {
    return strcmp(test_arch(), "gfx942") == 0;
}

void *test_image(const char *name, const char *arch) {
    char path[1024];
    const char *folder = getenv("AMDGCN_SIM_KERNELS");
    assert_non_null(folder);
    snprintf(path, sizeof(path), "%s/%s.%s.co", folder, name, arch);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("cannot open %s", path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    void *image = malloc((size_t)size);
    assert_int_equal(fread(image, 1, (size_t)size, file), size);
    fclose(file);
    return image;
}

hipModule_t test_module(const char *name) {
    hipModule_t module;
    void *image = test_image(name, test_arch());
    assert_int_equal(hipModuleLoadData(&module, image), hipSuccess);
    free(image);
    return module;
}

void *test_output(size_t size) {
    void *device;
    assert_int_equal(hipMalloc(&device, size), hipSuccess);
    return device;
}
void *test_upload(const void *data, size_t size) {
    void *device = test_output(size);
    assert_int_equal(hipMemcpy(device, data, size, hipMemcpyHostToDevice), hipSuccess);
    return device;
}
void test_download(void *to, const void *device, size_t size) {
    assert_int_equal(hipMemcpy(to, device, size, hipMemcpyDeviceToHost), hipSuccess);
}

hipError_t test_launch(hipModule_t module, const char *kernel, unsigned groups, unsigned items,
                       void **params) {
    hipFunction_t function;
    if (hipModuleGetFunction(&function, module, kernel) != hipSuccess)
        fail_msg("no kernel %s", kernel);
    hipError_t error =
        hipModuleLaunchKernel(function, groups, 1, 1, items, 1, 1, 0, NULL, params, NULL);
    hipError_t late = hipDeviceSynchronize();
    return error != hipSuccess ? error : late;
}
void test_run(hipModule_t module, const char *kernel, unsigned groups, unsigned items,
              void **params) {
    if (test_launch(module, kernel, groups, items, params) != hipSuccess)
        fail_msg("kernel %s failed", kernel);
}

static int saved_stderr;
static FILE *capture;

void test_capture_begin(void) {
    fflush(stderr);
    saved_stderr = dup(2);
    capture = tmpfile();
    assert_non_null(capture);
    dup2(fileno(capture), 2);
}
const char *test_capture_end(void) {
    static char text[4096];
    fflush(stderr);
    rewind(capture);
    size_t n = fread(text, 1, sizeof(text) - 1, capture);
    text[n] = 0;
    dup2(saved_stderr, 2);
    close(saved_stderr);
    fclose(capture);
    return text;
}

uint32_t test_random(void) {
    static uint64_t state = 0x9e3779b97f4a7c15ull;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}
float test_uniform(void) {
    return (float)(int32_t)test_random() / 2147483648.f;
}

float bits_f32(uint32_t x) {
    float f;
    memcpy(&f, &x, 4);
    return f;
}
uint32_t f32_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
double ulps(float a, double b) {
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b) ? 0 : 1e9;
    if (a == (float)b)
        return 0;
    if (isinf(a) || isinf((float)b))
        return 1e9;
    int e;
    frexp(b, &e);
    return fabs(a - b) / ldexp(1, (e < -125 ? -125 : e) - 24);
}
