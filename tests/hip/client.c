/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "hip/device.h"

fake_hip *fake_open(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fail_msg("%s", dlerror());
    }
    /* ISO C cannot cast dlsym's result to a function pointer. */
    fake_hip_control_function *control;
    void *symbol = dlsym(library, "fake_hip_control");
    assert_non_null(symbol);
    memcpy(&control, &symbol, sizeof control);
    setenv("PFATTN_HIP_LIBRARY", path, 1);
    return control();
}

pfattn_handle fake_handle(int device) {
    pfattn_handle_options options = PFATTN_HANDLE_OPTIONS_INIT;
    options.backend = PFATTN_BACKEND_HIP;
    options.device = device;
    pfattn_handle handle = NULL;
    assert_success(pfattn_create(&options, &handle));
    return handle;
}

const char *fake_image_name(const void *bytes) {
    for (size_t i = 0; i < pf_hip_images_count; i++) {
        if (pf_hip_images[i].bytes == bytes) {
            return pf_hip_images[i].name;
        }
    }
    return "none";
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
