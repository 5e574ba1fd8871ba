/* SPDX-License-Identifier: Apache-2.0 */
#include "tool.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tool_error(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("pfattn: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return code;
}

int tool_library_error(pfattn_status status) {
    static const int codes[] = {TOOL_DONE,        TOOL_USAGE,       TOOL_UNSUPPORTED,
                                TOOL_UNAVAILABLE, TOOL_UNAVAILABLE, TOOL_UNAVAILABLE};
    return tool_error(codes[status], "%s: %s", pfattn_status_string(status), pfattn_last_error());
}

static void *checked(void *memory, size_t bytes) {
    if (!memory) {
        fprintf(stderr, "pfattn: out of host memory: %zu bytes were asked for\n", bytes);
        exit(TOOL_UNAVAILABLE);
    }
    return memory;
}

void *tool_allocate(size_t bytes) {
    return checked(calloc(1, bytes ? bytes : 1), bytes);
}

void *tool_allocate_aligned(size_t alignment, size_t bytes) {
    size_t rounded = (bytes + alignment) / alignment * alignment;
    return checked(aligned_alloc(alignment, rounded), rounded);
}

char *tool_copy_text(const char *text) {
    size_t bytes = strlen(text) + 1;
    return memcpy(tool_allocate(bytes), text, bytes);
}
