/* SPDX-License-Identifier: Apache-2.0 */
/* A handle with its device's memory. Every backend is reached through its table alone. */
#ifndef SESSION_H
#define SESSION_H

#include <stdbool.h>

#include "backend.h"

typedef struct tool_session {
    pfattn_handle handle;
    const pf_backend *backend;
    pf_device *device;
    pfattn_device_info info;
} tool_session;

/* Parse a --backend value; false with a message where it is none of auto, ref, cuda, hip. */
bool session_parse_backend(const char *text, pfattn_backend *backend);

/* Returns TOOL_DONE, or the exit code after a message. */
int session_open(tool_session *session, pfattn_backend backend, int64_t device);
void session_close(tool_session *session);

/* Whether the device has memory of its own, i.e. is a GPU. */
bool session_is_gpu(const tool_session *session);

/* "cuda: NVIDIA H200 (sm_90a)" */
const char *session_describe(const tool_session *session);

pfattn_status session_allocate(tool_session *session, size_t bytes, void **memory);
void session_release(tool_session *session, void *memory);
pfattn_status session_upload(tool_session *session, void *to, const void *from, size_t bytes);
pfattn_status session_download(tool_session *session, void *to, const void *from, size_t bytes);
pfattn_status session_synchronize(tool_session *session);

#endif
