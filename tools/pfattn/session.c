/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <stdio.h>
#include <string.h>

#include "tool.h"

bool session_parse_backend(const char *text, pfattn_backend *backend) {
    for (int id = PFATTN_BACKEND_AUTO; id <= PFATTN_BACKEND_HIP; id++) {
        if (!strcmp(text, pfattn_backend_string((pfattn_backend)id))) {
            *backend = (pfattn_backend)id;
            return true;
        }
    }
    tool_error(TOOL_USAGE, "--backend: '%s' is none of auto, ref, cuda, hip", text);
    return false;
}

int session_open(tool_session *session, pfattn_backend backend, int64_t device) {
    if (device < 0 || device > INT32_MAX) {
        return tool_error(TOOL_USAGE, "--device: %lld is not a device index", (long long)device);
    }
    pfattn_handle_options options = PFATTN_HANDLE_OPTIONS_INIT;
    options.backend = backend;
    options.device = (int32_t)device;
    memset(session, 0, sizeof *session);
    pfattn_status status = pfattn_create(&options, &session->handle);
    if (status != PFATTN_SUCCESS) {
        return tool_library_error(status);
    }
    session->backend = session->handle->backend;
    session->device = session->handle->device;
    session->info = (pfattn_device_info)PFATTN_DEVICE_INFO_INIT;
    status = pfattn_device_query(session->backend->id, session->handle->index, &session->info);
    if (status != PFATTN_SUCCESS) {
        int code = tool_library_error(status);
        session_close(session);
        return code;
    }
    return TOOL_DONE;
}

void session_close(tool_session *session) {
    pfattn_destroy(session->handle);
    session->handle = NULL;
}

bool session_is_gpu(const tool_session *session) {
    return session->info.shared_bytes > 0;
}

const char *session_describe(const tool_session *session) {
    static char text[256];
    snprintf(text, sizeof text, "%s: %s (%s)", session->backend->name, session->info.name,
             session->info.target[0] ? session->info.target : session->info.arch);
    return text;
}

pfattn_status session_allocate(tool_session *session, size_t bytes, void **memory) {
    return session->backend->memory->allocate(session->device, bytes, memory);
}

void session_release(tool_session *session, void *memory) {
    if (memory) {
        session->backend->memory->release(session->device, memory);
    }
}

pfattn_status session_upload(tool_session *session, void *to, const void *from, size_t bytes) {
    return bytes ? session->backend->memory->upload(session->device, to, from, bytes)
                 : PFATTN_SUCCESS;
}

pfattn_status session_download(tool_session *session, void *to, const void *from, size_t bytes) {
    return bytes ? session->backend->memory->download(session->device, to, from, bytes)
                 : PFATTN_SUCCESS;
}

pfattn_status session_synchronize(tool_session *session) {
    return session->backend->memory->synchronize(session->device);
}
