/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions over a backend that records what reaches it, and the choice of a backend. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend.h"
#include "descriptors.h"
#include "status.h"

/* ---- a backend that records ---------------------------------------------------------------- */

static struct {
    int launches;
    int closed;
    pf_operation operation;
    void *workspace;
    void *stream;
    size_t needs;
    pfattn_status supported;
    pfattn_status launched;
} record;

static pfattn_status recorder_plan(pf_device *device, const pf_problem *problem, pf_plan *plan) {
    (void)device;
    (void)plan;
    (void)problem;
    return record.supported == PFATTN_SUCCESS
               ? PFATTN_SUCCESS
               : pf_error(record.supported, "q: head dimension is 8; not here");
}

static size_t recorder_workspace(pf_device *device, const pf_problem *problem,
                                 const pf_plan *plan) {
    (void)device;
    (void)plan;
    return problem->operation == PF_MERGE ? 0 : record.needs;
}

static pfattn_status recorder_launch(pf_device *device, pf_call *call, void *stream) {
    (void)device;
    record.launches++;
    record.operation = call->problem.operation;
    record.workspace = call->workspace;
    record.stream = stream;
    return record.launched;
}

static void recorder_close(pf_device *device) {
    (void)device;
    record.closed++;
}

static const pf_backend recorder = {
    .id = PFATTN_BACKEND_CUDA,
    .name = "recorder",
    .device_close = recorder_close,
    .plan = recorder_plan,
    .workspace_size = recorder_workspace,
    .launch = recorder_launch,
};

static pfattn_handle make_recorder(const pf_backend *backend) {
    memset(&record, 0, sizeof record);
    pfattn_handle handle = aligned_alloc(_Alignof(struct pfattn_handle_s), sizeof *handle);
    assert_non_null(handle);
    memset(handle, 0, sizeof *handle);
    handle->backend = backend;
    handle->index = 3;
    return handle;
}

/* Each call reaches the backend once, as its own operation, with the caller's stream. */
static void calls_reach_the_backend(void **state) {
    (void)state;
    pfattn_handle handle = make_recorder(&recorder);
    assert_int_equal(pfattn_handle_backend(handle), PFATTN_BACKEND_CUDA);
    assert_int_equal(pfattn_handle_device(handle), 3);
    void *stream = address(50);
    void *workspace = address(51);
    record.needs = 1000;
    pfattn_attention args = forward_args(PFATTN_DTYPE_F16);
    assert_int_equal(pfattn_forward(handle, &args, workspace, 1000, stream), PFATTN_SUCCESS);
    assert_int_equal(record.operation, PF_FORWARD);
    assert_ptr_equal(record.stream, stream);
    assert_ptr_equal(record.workspace, workspace);
    args = jvp_args(PFATTN_DTYPE_F16);
    assert_int_equal(pfattn_forward(handle, &args, workspace, 1001, NULL), PFATTN_SUCCESS);
    assert_int_equal(record.operation, PF_FORWARD_JVP);
    args = backward_args(PFATTN_DTYPE_F16);
    assert_int_equal(pfattn_backward(handle, &args, workspace, 1000, NULL), PFATTN_SUCCESS);
    assert_int_equal(record.operation, PF_BACKWARD);
    args = backward_jvp_args(PFATTN_DTYPE_F16);
    assert_int_equal(pfattn_backward_jvp(handle, &args, workspace, 1000, NULL), PFATTN_SUCCESS);
    assert_int_equal(record.operation, PF_BACKWARD_JVP);
    pfattn_merge_args merge = merge_args(PFATTN_DTYPE_F16);
    assert_int_equal(pfattn_merge(handle, &merge, stream), PFATTN_SUCCESS);
    assert_int_equal(record.operation, PF_MERGE);
    assert_int_equal(record.launches, 5);
    pfattn_destroy(handle);
    assert_int_equal(record.closed, 1);
}

static void assert_error(pfattn_status status, pfattn_status want, const char *message) {
    assert_int_equal(status, want);
    assert_string_equal(pfattn_last_error(), message);
}

static void workspaces_are_checked(void **state) {
    (void)state;
    pfattn_handle handle = make_recorder(&recorder);
    record.needs = 1000;
    pfattn_attention args = forward_args(PFATTN_DTYPE_F16);
    size_t bytes = 7;
    assert_int_equal(pfattn_workspace_size(handle, PFATTN_FORWARD, &args, &bytes), PFATTN_SUCCESS);
    assert_int_equal(bytes, 1000);
    assert_error(pfattn_forward(handle, &args, NULL, 1000, NULL), PFATTN_ERROR_INVALID_ARGUMENT,
                 "workspace: is NULL but this call needs 1000 bytes");
    assert_error(pfattn_forward(handle, &args, address(1), 999, NULL),
                 PFATTN_ERROR_INVALID_ARGUMENT, "workspace_bytes: is 999 but this call needs 1000");
    assert_error(pfattn_forward(handle, &args, (void *)(uintptr_t)0x10080, 1000, NULL),
                 PFATTN_ERROR_INVALID_ARGUMENT,
                 "workspace: is 0x10080; it must be aligned to 256 bytes");
    assert_error(pfattn_workspace_size(handle, PFATTN_FORWARD, &args, NULL),
                 PFATTN_ERROR_INVALID_ARGUMENT, "bytes: is NULL; there must be room for one");
    assert_int_equal(record.launches, 0);
    record.needs = 0;
    pf_calls_forget(&handle->calls);
    assert_int_equal(pfattn_forward(handle, &args, (void *)(uintptr_t)0x10080, 0, NULL),
                     PFATTN_SUCCESS);
    pfattn_destroy(handle);
}

/* The backend's refusal is the caller's answer, and nothing is launched. */
static void refusals_come_back(void **state) {
    (void)state;
    pfattn_handle handle = make_recorder(&recorder);
    record.supported = PFATTN_ERROR_UNSUPPORTED;
    pfattn_attention args = forward_args(PFATTN_DTYPE_F16);
    pfattn_merge_args merge = merge_args(PFATTN_DTYPE_F16);
    const char *message = "q: head dimension is 8; not here";
    size_t bytes = 7;
    assert_error(pfattn_supported(handle, PFATTN_FORWARD, &args), PFATTN_ERROR_UNSUPPORTED,
                 message);
    assert_error(pfattn_workspace_size(handle, PFATTN_FORWARD, &args, &bytes),
                 PFATTN_ERROR_UNSUPPORTED, message);
    assert_int_equal(bytes, 7);
    assert_error(pfattn_forward(handle, &args, NULL, 0, NULL), PFATTN_ERROR_UNSUPPORTED, message);
    assert_error(pfattn_merge(handle, &merge, NULL), PFATTN_ERROR_UNSUPPORTED, message);
    assert_int_equal(record.launches, 0);
    record.supported = PFATTN_SUCCESS;
    record.launched = PFATTN_ERROR_DRIVER;
    assert_int_equal(pfattn_forward(handle, &args, NULL, 0, NULL), PFATTN_ERROR_DRIVER);
    assert_int_equal(pfattn_merge(handle, &merge, NULL), PFATTN_ERROR_DRIVER);
    args.q.dtype = PFATTN_DTYPE_NONE;
    assert_int_equal(pfattn_forward(handle, &args, NULL, 0, NULL), PFATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(pfattn_merge(handle, NULL, NULL), PFATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(record.launches, 2);
    pfattn_destroy(handle);
}

/* ref takes no stream: its work is done when the call returns. */
static void ref_takes_no_stream(void **state) {
    (void)state;
    pf_backend as_ref = recorder;
    as_ref.id = PFATTN_BACKEND_REF;
    pfattn_handle handle = make_recorder(&as_ref);
    pfattn_attention args = forward_args(PFATTN_DTYPE_F16);
    pfattn_merge_args merge = merge_args(PFATTN_DTYPE_F16);
    const char *message = "stream: is 0x110000; it must be NULL for the ref backend";
    assert_error(pfattn_forward(handle, &args, NULL, 0, address(1)), PFATTN_ERROR_INVALID_ARGUMENT,
                 message);
    assert_error(pfattn_merge(handle, &merge, address(1)), PFATTN_ERROR_INVALID_ARGUMENT, message);
    assert_int_equal(record.launches, 0);
    pfattn_destroy(handle);
}

static void null_handles_are_refused(void **state) {
    (void)state;
    pfattn_attention args = forward_args(PFATTN_DTYPE_F16);
    pfattn_merge_args merge = merge_args(PFATTN_DTYPE_F16);
    size_t bytes;
    const char *message = "handle: is NULL; one from pfattn_create is needed";
    pfattn_status bad = PFATTN_ERROR_INVALID_ARGUMENT;
    assert_error(pfattn_supported(NULL, PFATTN_FORWARD, &args), bad, message);
    assert_error(pfattn_workspace_size(NULL, PFATTN_FORWARD, &args, &bytes), bad, message);
    assert_error(pfattn_forward(NULL, &args, NULL, 0, NULL), bad, message);
    assert_error(pfattn_backward(NULL, &args, NULL, 0, NULL), bad, message);
    assert_error(pfattn_backward_jvp(NULL, &args, NULL, 0, NULL), bad, message);
    assert_error(pfattn_merge(NULL, &merge, NULL), bad, message);
    pfattn_destroy(NULL);
    assert_int_equal(pfattn_handle_backend(NULL), PFATTN_BACKEND_AUTO);
    assert_int_equal(pfattn_handle_device(NULL), -1);
    assert_error(pfattn_create(NULL, NULL), bad, "handle: is NULL; there must be room for one");
}

/* ---- the backends of this build ------------------------------------------------------------ */

static void backends_are_registered(void **state) {
    (void)state;
    const pfattn_backend ids[] = {PFATTN_BACKEND_REF, PFATTN_BACKEND_CUDA, PFATTN_BACKEND_HIP};
    for (int i = 0; i < 3; i++) {
        const pf_backend *backend = pf_backend_get(ids[i]);
        assert_non_null(backend);
        assert_int_equal(backend->id, ids[i]);
        assert_string_equal(backend->name, pfattn_backend_string(ids[i]));
        assert_non_null(backend->probe);
    }
    assert_null(pf_backend_get(PFATTN_BACKEND_AUTO));
    assert_null(pf_backend_get((pfattn_backend)9));
    assert_null(pf_backend_at(3));
    assert_null(pf_backend_at(-1));
    assert_true(pf_backend_at(0)->priority > pf_backend_at(1)->priority);
    assert_true(pf_backend_at(1)->priority > pf_backend_at(2)->priority);
    assert_int_equal(pf_backend_at(2)->id, PFATTN_BACKEND_REF); /* the last resort */
}

static pfattn_status create(pfattn_backend backend, int32_t device, pfattn_handle *handle) {
    pfattn_handle_options options = PFATTN_HANDLE_OPTIONS_INIT;
    options.backend = backend;
    options.device = device;
    return pfattn_create(&options, handle);
}

static void ref_is_always_there(void **state) {
    (void)state;
    pfattn_handle handle = NULL;
    assert_int_equal(create(PFATTN_BACKEND_REF, 0, &handle), PFATTN_SUCCESS);
    assert_int_equal(pfattn_handle_backend(handle), PFATTN_BACKEND_REF);
    assert_int_equal(pfattn_handle_device(handle), 0);
    pfattn_destroy(handle);
    pfattn_backend_info info = PFATTN_BACKEND_INFO_INIT;
    assert_int_equal(pfattn_backend_query(PFATTN_BACKEND_REF, &info), PFATTN_SUCCESS);
    assert_string_equal(info.name, "ref");
    assert_int_equal(info.compiled_in, 1);
    assert_int_equal(info.device_count, 1);
    assert_true(info.detail[0] != '\0');
    pfattn_device_info device = PFATTN_DEVICE_INFO_INIT;
    assert_int_equal(pfattn_device_query(PFATTN_BACKEND_REF, 0, &device), PFATTN_SUCCESS);
    assert_true(device.compute_units >= 1);
    assert_true(device.memory_bytes > 0);
}

/* A backend of this build or not: described either way, and the caller's last error stays. */
static void absent_backends_are_described(void **state) {
    (void)state;
    pf_error(PFATTN_ERROR_DRIVER, "an earlier failure");
    const pfattn_backend ids[] = {PFATTN_BACKEND_CUDA, PFATTN_BACKEND_HIP};
    for (int i = 0; i < 2; i++) {
        pfattn_backend_info info = PFATTN_BACKEND_INFO_INIT;
        assert_int_equal(pfattn_backend_query(ids[i], &info), PFATTN_SUCCESS);
        assert_string_equal(pfattn_last_error(), "an earlier failure");
        if (!info.compiled_in) {
            char start[64];
            snprintf(start, sizeof start, "%s: not compiled in; build pfattn with -Dbackends=%s",
                     info.name, info.name);
            assert_memory_equal(info.detail, start, strlen(start));
            assert_int_equal(info.device_count, 0);
            pfattn_handle handle = (pfattn_handle)&info;
            assert_error(create(ids[i], 0, &handle), PFATTN_ERROR_UNAVAILABLE, info.detail);
            assert_ptr_equal(handle, &info); /* nothing written */
            pf_error(PFATTN_ERROR_DRIVER, "an earlier failure");
        }
    }
}

static void bad_options_are_refused(void **state) {
    (void)state;
    pfattn_handle handle = NULL;
    pfattn_status bad = PFATTN_ERROR_INVALID_ARGUMENT;
    assert_error(create((pfattn_backend)9, 0, &handle), bad, "backend: 9 is not a pfattn_backend");
    assert_error(create(PFATTN_BACKEND_REF, -1, &handle), bad,
                 "device: is -1; it must be 0 or more");
    assert_error(create(PFATTN_BACKEND_REF, 1, &handle), PFATTN_ERROR_UNAVAILABLE,
                 "device: is 1 but ref has 1 usable device");
    pfattn_handle_options options = PFATTN_HANDLE_OPTIONS_INIT;
    options.struct_size = 3;
    assert_int_equal(pfattn_create(&options, &handle), bad);
    assert_non_null(strstr(pfattn_last_error(), "options: struct_size is 3"));
    assert_null(handle);
}

static void bad_queries_are_refused(void **state) {
    (void)state;
    pfattn_backend_info info = PFATTN_BACKEND_INFO_INIT;
    pfattn_device_info device = PFATTN_DEVICE_INFO_INIT;
    pfattn_status bad = PFATTN_ERROR_INVALID_ARGUMENT;
    assert_error(pfattn_backend_query(PFATTN_BACKEND_AUTO, &info), bad,
                 "backend: is auto (0); it must be ref, cuda or hip");
    assert_error(pfattn_device_query((pfattn_backend)9, 0, &device), bad,
                 "backend: is unknown (9); it must be ref, cuda or hip");
    assert_error(pfattn_backend_query(PFATTN_BACKEND_REF, NULL), bad,
                 "info: is NULL; a struct initialised with PFATTN_BACKEND_INFO_INIT is needed");
    assert_error(pfattn_device_query(PFATTN_BACKEND_REF, 0, NULL), bad,
                 "info: is NULL; a struct initialised with PFATTN_DEVICE_INFO_INIT is needed");
    assert_error(pfattn_device_query(PFATTN_BACKEND_REF, -2, &device), bad,
                 "device: is -2; it must be 0 or more");
    assert_error(pfattn_device_query(PFATTN_BACKEND_REF, 4, &device), PFATTN_ERROR_UNAVAILABLE,
                 "device: is 4 but ref has 1 usable device");
    device.struct_size = 8;
    assert_int_equal(pfattn_device_query(PFATTN_BACKEND_REF, 0, &device), bad);
    assert_non_null(strstr(pfattn_last_error(), "info: struct_size is 8"));
}

/* PFATTN_BACKEND speaks where the program leaves the choice open, and nowhere else. */
static void environment_chooses_for_auto(void **state) {
    (void)state;
    pfattn_handle handle = NULL;
    setenv("PFATTN_BACKEND", "ref", 1);
    assert_int_equal(pfattn_create(NULL, &handle), PFATTN_SUCCESS);
    assert_int_equal(pfattn_handle_backend(handle), PFATTN_BACKEND_REF);
    pfattn_destroy(handle);
    handle = NULL;
    setenv("PFATTN_BACKEND", "gpu", 1);
    assert_error(pfattn_create(NULL, &handle), PFATTN_ERROR_INVALID_ARGUMENT,
                 "PFATTN_BACKEND: is \"gpu\"; it must be auto, ref, cuda or hip");
    assert_null(handle);
    assert_int_equal(create(PFATTN_BACKEND_REF, 0, &handle), PFATTN_SUCCESS);
    pfattn_destroy(handle);
    unsetenv("PFATTN_BACKEND");
}

/* auto takes the first backend that works, and its being passed over is no error of the caller's.
 */
static void auto_takes_what_works(void **state) {
    (void)state;
    pf_error(PFATTN_ERROR_DRIVER, "an earlier failure");
    pfattn_backend want = PFATTN_BACKEND_REF;
    for (int i = 2; i >= 0; i--) {
        pfattn_backend_info info = PFATTN_BACKEND_INFO_INIT;
        assert_int_equal(pfattn_backend_query(pf_backend_at(i)->id, &info), PFATTN_SUCCESS);
        want = info.device_count > 0 ? pf_backend_at(i)->id : want;
    }
    setenv("PFATTN_BACKEND", "auto", 1);
    pfattn_handle handle = NULL;
    assert_int_equal(pfattn_create(NULL, &handle), PFATTN_SUCCESS);
    assert_int_equal(pfattn_handle_backend(handle), want);
    assert_string_equal(pfattn_last_error(), "an earlier failure");
    pfattn_destroy(handle);
    unsetenv("PFATTN_BACKEND");
    /* No backend has this many devices; each says why not. */
    handle = NULL;
    assert_int_equal(create(PFATTN_BACKEND_AUTO, 4000, &handle), PFATTN_ERROR_UNAVAILABLE);
    assert_non_null(strstr(pfattn_last_error(), "auto: no backend can be used ("));
    assert_non_null(strstr(pfattn_last_error(), "device: is 4000 but ref has 1 usable device"));
    assert_null(handle);
}

int main(void) {
    unsetenv("PFATTN_BACKEND");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_reach_the_backend),
        cmocka_unit_test(workspaces_are_checked),
        cmocka_unit_test(refusals_come_back),
        cmocka_unit_test(ref_takes_no_stream),
        cmocka_unit_test(null_handles_are_refused),
        cmocka_unit_test(backends_are_registered),
        cmocka_unit_test(ref_is_always_there),
        cmocka_unit_test(absent_backends_are_described),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(bad_queries_are_refused),
        cmocka_unit_test(environment_chooses_for_auto),
        cmocka_unit_test(auto_takes_what_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
