/* SPDX-License-Identifier: Apache-2.0 */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "log.h"

/* Long enough for the list of every driver path tried, each with its reason. */
static _Thread_local char last_error[PF_ERROR_SIZE];

pfattn_status pf_error(pfattn_status status, const char *format, ...) {
    /* Formatted aside first, so that an argument may be the previous error's own text. */
    char text[sizeof last_error];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(last_error, sizeof last_error, "%s", text);
    pf_log(PF_LOG_INFO, "%s: %s", pfattn_status_string(status), last_error);
    return status;
}

void pf_error_save(char text[PF_ERROR_SIZE]) {
    strcpy(text, last_error);
}

void pf_error_restore(const char text[PF_ERROR_SIZE]) {
    strcpy(last_error, text);
}

const char *pfattn_last_error(void) {
    return last_error;
}

const char *pfattn_status_string(pfattn_status status) {
    switch (status) {
    case PFATTN_SUCCESS:
        return "success";
    case PFATTN_ERROR_INVALID_ARGUMENT:
        return "invalid argument";
    case PFATTN_ERROR_UNSUPPORTED:
        return "unsupported problem";
    case PFATTN_ERROR_UNAVAILABLE:
        return "backend or device not available";
    case PFATTN_ERROR_OUT_OF_MEMORY:
        return "out of memory";
    case PFATTN_ERROR_DRIVER:
        return "driver error";
    }
    return "unknown status";
}
