/* SPDX-License-Identifier: Apache-2.0 */
/* Every public function that reaches a backend: its checks, then one call downwards. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "log.h"
#include "problem.h"
#include "status.h"
#include "structs.h"

enum { WORKSPACE_ALIGNMENT = 256 };

#define END_OF(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

static const pf_struct options_struct = {"options", "PFATTN_HANDLE_OPTIONS_INIT",
                                         END_OF(pfattn_handle_options, device),
                                         sizeof(pfattn_handle_options)};
static const pf_struct backend_info_struct = {"info", "PFATTN_BACKEND_INFO_INIT",
                                              END_OF(pfattn_backend_info, detail),
                                              sizeof(pfattn_backend_info)};
static const pf_struct device_info_struct = {"info", "PFATTN_DEVICE_INFO_INIT",
                                             END_OF(pfattn_device_info, driver_version),
                                             sizeof(pfattn_device_info)};

/* ---- handles ------------------------------------------------------------------------------- */

/* PFATTN_BACKEND, where it is set, in place of AUTO. */
static pfattn_status choose_backend(pfattn_backend *backend) {
    const char *value = *backend == PFATTN_BACKEND_AUTO ? pf_environment("BACKEND") : NULL;
    if (value == NULL || strcmp(value, "auto") == 0) {
        return PFATTN_SUCCESS;
    }
    for (int i = 0; pf_backend_at(i) != NULL; i++) {
        if (strcmp(pf_backend_at(i)->name, value) == 0) {
            *backend = pf_backend_at(i)->id;
            return PFATTN_SUCCESS;
        }
    }
    return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                    "PFATTN_BACKEND: is \"%s\"; it must be auto, ref, cuda or hip", value);
}

/* SUCCESS where the backend has a device of this index. */
static pfattn_status check_device(const pf_backend *backend, int32_t index) {
    int32_t count = 0;
    char summary[512] = "";
    pfattn_status status = backend->probe(&count, summary, sizeof summary);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    if (index >= count) {
        return pf_error(PFATTN_ERROR_UNAVAILABLE,
                        "device: is %" PRId32 " but %s has %" PRId32 " usable device%s", index,
                        backend->name, count, count == 1 ? "" : "s");
    }
    return PFATTN_SUCCESS;
}

static pfattn_status open_handle(const pf_backend *backend, int32_t index, pfattn_handle handle) {
    pfattn_status status = check_device(backend, index);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    status = backend->device_open(index, &handle->device);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    handle->backend = backend;
    handle->index = index;
    pf_log(PF_LOG_INFO, "made a handle on device %" PRId32 " of %s", index, backend->name);
    return PFATTN_SUCCESS;
}

/* The first backend, by priority, that can be opened; why the others were passed over is logged. */
static pfattn_status open_any(int32_t index, pfattn_handle handle) {
    char before[PF_ERROR_SIZE];
    pf_error_save(before);
    char reasons[PF_ERROR_SIZE - 128] = "";
    for (int i = 0; pf_backend_at(i) != NULL; i++) {
        const pf_backend *backend = pf_backend_at(i);
        if (open_handle(backend, index, handle) == PFATTN_SUCCESS) {
            pf_error_restore(before);
            return PFATTN_SUCCESS;
        }
        pf_log(PF_LOG_INFO, "auto passes over %s", backend->name);
        size_t used = strlen(reasons);
        snprintf(reasons + used, sizeof reasons - used, "%s%s", used > 0 ? "; " : "",
                 pfattn_last_error());
    }
    return pf_error(PFATTN_ERROR_UNAVAILABLE, "auto: no backend can be used (%s)", reasons);
}

static pfattn_status open_options(const pfattn_handle_options *options, pfattn_handle handle) {
    pfattn_backend id = options->backend;
    pfattn_status status = choose_backend(&id);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    if (options->device < 0) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "device: is %" PRId32 "; it must be 0 or more", options->device);
    }
    if (id == PFATTN_BACKEND_AUTO) {
        return open_any(options->device, handle);
    }
    const pf_backend *backend = pf_backend_get(id);
    if (backend == NULL) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT, "backend: %d is not a pfattn_backend",
                        (int)id);
    }
    return open_handle(backend, options->device, handle);
}

pfattn_status pfattn_create(const pfattn_handle_options *options, pfattn_handle *handle) {
    pf_log_configure();
    if (handle == NULL) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "handle: is NULL; there must be room for one");
    }
    pfattn_handle_options own = PFATTN_HANDLE_OPTIONS_INIT;
    pfattn_status status =
        options != NULL ? pf_struct_read(&options_struct, options, &own) : PFATTN_SUCCESS;
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    pfattn_handle made = aligned_alloc(_Alignof(struct pfattn_handle_s), sizeof *made);
    if (made == NULL) {
        return pf_error(PFATTN_ERROR_OUT_OF_MEMORY, "handle: %zu bytes could not be allocated",
                        sizeof *made);
    }
    memset(made, 0, sizeof *made);
    status = open_options(&own, made);
    if (status != PFATTN_SUCCESS) {
        free(made);
        return status;
    }
    *handle = made;
    return PFATTN_SUCCESS;
}

static void release_call(pfattn_handle handle, pf_call *call) {
    if (handle->backend->call_release != NULL) {
        handle->backend->call_release(handle->device, call);
    }
}

void pfattn_destroy(pfattn_handle handle) {
    if (handle != NULL) {
        for (int i = 0; i < PF_KNOWN_CALLS; i++) {
            release_call(handle, &handle->calls.known[i].call);
        }
        handle->backend->device_close(handle->device);
        free(handle);
    }
}

pfattn_backend pfattn_handle_backend(pfattn_handle handle) {
    return handle != NULL ? handle->backend->id : PFATTN_BACKEND_AUTO;
}

int32_t pfattn_handle_device(pfattn_handle handle) {
    return handle != NULL ? handle->index : -1;
}

/* ---- queries ------------------------------------------------------------------------------- */

static pfattn_status find_backend(pfattn_backend id, const pf_backend **backend) {
    *backend = pf_backend_get(id);
    if (*backend == NULL) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "backend: is %s (%d); it must be ref, cuda or hip",
                        pfattn_backend_string(id), (int)id);
    }
    return PFATTN_SUCCESS;
}

pfattn_status pfattn_backend_query(pfattn_backend backend, pfattn_backend_info *info) {
    const pf_backend *table;
    pfattn_status status = find_backend(backend, &table);
    if (status == PFATTN_SUCCESS) {
        status = pf_struct_check(&backend_info_struct, info);
    }
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    pfattn_backend_info own = PFATTN_BACKEND_INFO_INIT;
    own.name = table->name;
    own.compiled_in = table->launch != NULL;
    /* An unavailable backend is an answer here, and no error of the caller's. */
    char before[PF_ERROR_SIZE];
    pf_error_save(before);
    if (table->probe(&own.device_count, own.detail, sizeof own.detail) != PFATTN_SUCCESS) {
        own.device_count = 0;
        snprintf(own.detail, sizeof own.detail, "%s", pfattn_last_error());
        pf_error_restore(before);
    }
    pf_struct_write(&backend_info_struct, &own, info);
    return PFATTN_SUCCESS;
}

pfattn_status pfattn_device_query(pfattn_backend backend, int32_t device,
                                  pfattn_device_info *info) {
    const pf_backend *table;
    pfattn_status status = find_backend(backend, &table);
    if (status == PFATTN_SUCCESS) {
        status = pf_struct_check(&device_info_struct, info);
    }
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    if (device < 0) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "device: is %" PRId32 "; it must be 0 or more", device);
    }
    pfattn_device_info own = PFATTN_DEVICE_INFO_INIT;
    status = check_device(table, device);
    if (status == PFATTN_SUCCESS) {
        status = table->device_info(device, &own);
    }
    if (status == PFATTN_SUCCESS) {
        pf_struct_write(&device_info_struct, &own, info);
    }
    return status;
}

static pfattn_status check_handle(pfattn_handle handle) {
    if (handle == NULL) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "handle: is NULL; one from pfattn_create is needed");
    }
    return PFATTN_SUCCESS;
}

/* Plan a call whose problem is there, where the handle's backend can do it. */
static pfattn_status plan_call(pfattn_handle handle, pf_call *call) {
    const pf_backend *backend = handle->backend;
    pfattn_status status = backend->plan(handle->device, &call->problem, &call->plan);
    if (status == PFATTN_SUCCESS) {
        call->workspace_bytes =
            backend->workspace_size(handle->device, &call->problem, &call->plan);
    }
    return status;
}

static pfattn_status make_call(pfattn_handle handle, pfattn_operation operation,
                               const pfattn_attention *args, pf_call **call) {
    *call = pf_calls_place(&handle->calls);
    release_call(handle, *call);
    pf_call_begin(*call);
    pfattn_status status = pf_problem_from_attention(operation, args, &(*call)->problem);
    if (status == PFATTN_SUCCESS) {
        status = plan_call(handle, *call);
    }
    if (status == PFATTN_SUCCESS) {
        pf_calls_keep(&handle->calls, operation, args);
    }
    return status;
}

/* The call of a descriptor: a known one, or one that is made now. */
static pfattn_status read_call(pfattn_handle handle, pfattn_operation operation,
                               const pfattn_attention *args, pf_call **call) {
    pfattn_attention own;
    const pfattn_attention *view;
    pfattn_status status = check_handle(handle);
    if (status == PFATTN_SUCCESS) {
        status = pf_attention_view(args, &own, &view);
    }
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    *call = pf_calls_find(&handle->calls, operation, view);
    return *call != NULL ? PFATTN_SUCCESS : make_call(handle, operation, view, call);
}

pfattn_status pfattn_supported(pfattn_handle handle, pfattn_operation operation,
                               const pfattn_attention *args) {
    pf_call *call;
    return read_call(handle, operation, args, &call);
}

pfattn_status pfattn_workspace_size(pfattn_handle handle, pfattn_operation operation,
                                    const pfattn_attention *args, size_t *bytes) {
    if (bytes == NULL) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "bytes: is NULL; there must be room for one");
    }
    pf_call *call;
    pfattn_status status = read_call(handle, operation, args, &call);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    *bytes = call->workspace_bytes;
    return PFATTN_SUCCESS;
}

/* ---- computing ----------------------------------------------------------------------------- */

static pfattn_status check_workspace(const void *workspace, size_t bytes, size_t needed) {
    if (needed == 0) {
        return PFATTN_SUCCESS;
    }
    if (workspace == NULL) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "workspace: is NULL but this call needs %zu bytes", needed);
    }
    if (bytes < needed) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "workspace_bytes: is %zu but this call needs %zu", bytes, needed);
    }
    if ((uintptr_t)workspace % WORKSPACE_ALIGNMENT != 0) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "workspace: is %p; it must be aligned to %d bytes", workspace,
                        WORKSPACE_ALIGNMENT);
    }
    return PFATTN_SUCCESS;
}

static pfattn_status check_stream(pfattn_handle handle, const void *stream) {
    if (stream != NULL && handle->backend->id == PFATTN_BACKEND_REF) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "stream: is %p; it must be NULL for the ref backend", stream);
    }
    return PFATTN_SUCCESS;
}

/* The last checks, and the call downwards. */
static pfattn_status launch(pfattn_handle handle, pf_call *call, void *workspace,
                            size_t workspace_bytes, void *stream) {
    pfattn_status status = check_stream(handle, stream);
    if (status == PFATTN_SUCCESS) {
        status = check_workspace(workspace, workspace_bytes, call->workspace_bytes);
    }
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    pf_call_set_workspace(call, workspace);
    return handle->backend->launch(handle->device, call, stream);
}

static pfattn_status compute(pfattn_handle handle, pfattn_operation operation,
                             const pfattn_attention *args, void *workspace, size_t workspace_bytes,
                             void *stream) {
    pf_call *call;
    pfattn_status status = read_call(handle, operation, args, &call);
    return status == PFATTN_SUCCESS ? launch(handle, call, workspace, workspace_bytes, stream)
                                    : status;
}

pfattn_status pfattn_forward(pfattn_handle handle, const pfattn_attention *args, void *workspace,
                             size_t workspace_bytes, void *stream) {
    return compute(handle, PFATTN_FORWARD, args, workspace, workspace_bytes, stream);
}

pfattn_status pfattn_backward(pfattn_handle handle, const pfattn_attention *args, void *workspace,
                              size_t workspace_bytes, void *stream) {
    return compute(handle, PFATTN_BACKWARD, args, workspace, workspace_bytes, stream);
}

pfattn_status pfattn_backward_jvp(pfattn_handle handle, const pfattn_attention *args,
                                  void *workspace, size_t workspace_bytes, void *stream) {
    return compute(handle, PFATTN_BACKWARD_JVP, args, workspace, workspace_bytes, stream);
}

pfattn_status pfattn_merge(pfattn_handle handle, const pfattn_merge_args *args, void *stream) {
    pfattn_status status = check_handle(handle);
    pf_call call;
    pf_call_begin(&call);
    if (status == PFATTN_SUCCESS) {
        status = pf_problem_from_merge(args, &call.problem);
    }
    if (status == PFATTN_SUCCESS) {
        status = plan_call(handle, &call);
    }
    return status == PFATTN_SUCCESS ? launch(handle, &call, NULL, 0, stream) : status;
}
