/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_cuda_client.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/device.h"

typedef int depth_function(void);

static depth_function *depth;

/* dlsym, whose result ISO C cannot cast to a function pointer. */
static void find(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    assert_non_null(symbol);
    memcpy(function, &symbol, sizeof symbol);
}

fake_cuda *fake_open(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fail_msg("%s", dlerror());
    }
    fake_cuda_control_function *control;
    find(library, "fake_cuda_control", &control);
    find(library, "fake_cuda_depth", &depth);
    setenv("PFATTN_CUDA_LIBRARY", path, 1);
    return control();
}

int fake_depth(void) {
    return depth();
}

void fake_reset(fake_cuda *fake) {
    fake->fail_call = NULL;
    fake->fail_after = 0;
    fake->capturing = fake->capture_broken = false;
    fake->captured = NULL;
    fake->call_count = fake->launch_count = fake->encode_count = 0;
}

int fake_count_calls(const fake_cuda *fake, const char *name) {
    int count = 0;
    for (int i = 0; i < fake->call_count; i++) {
        count += strcmp(fake->calls[i], name) == 0;
    }
    return count;
}

const char *fake_image_name(const void *bytes) {
    for (size_t i = 0; i < pf_cuda_images_count; i++) {
        if (pf_cuda_images[i].bytes == bytes) {
            return pf_cuda_images[i].name;
        }
    }
    return "none";
}

pfattn_handle fake_handle(int device) {
    pfattn_handle_options options = PFATTN_HANDLE_OPTIONS_INIT;
    options.backend = PFATTN_BACKEND_CUDA;
    options.device = device;
    pfattn_handle handle = NULL;
    assert_success(pfattn_create(&options, &handle));
    return handle;
}

void assert_error(pfattn_status status, pfattn_status want, const char *text) {
    if (status != want || strstr(pfattn_last_error(), text) == NULL) {
        fail_msg("%s: \"%s\"; wanted %s: \"%s\"", pfattn_status_string(status), pfattn_last_error(),
                 pfattn_status_string(want), text);
    }
}

void assert_success(pfattn_status status) {
    if (status != PFATTN_SUCCESS) {
        fail_msg("%s: \"%s\"", pfattn_status_string(status), pfattn_last_error());
    }
}
