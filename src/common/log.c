/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* Handles are created on any thread, and each creation sets it. */
static atomic_int threshold = PF_LOG_WARN;

const char *pf_environment(const char *name) {
    char variable[64];
    int length = snprintf(variable, sizeof variable, "PFATTN_%s", name);
    if (length < 0 || (size_t)length >= sizeof variable) {
        return NULL;
    }
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Relative paths are no base, says the XDG specification. */
static const char *base_directory(const char *variable) {
    const char *value = getenv(variable);
    return value != NULL && value[0] == '/' ? value : NULL;
}

bool pf_cache_path(const char *name, char *path, size_t size) {
    const char *cache = base_directory("XDG_CACHE_HOME");
    const char *home = base_directory("HOME");
    if (cache == NULL && home == NULL) {
        return false;
    }
    int length = snprintf(path, size, "%s/%s%s", cache != NULL ? cache : home,
                          cache != NULL ? "" : ".cache/", name);
    return length >= 0 && (size_t)length < size;
}

void pf_log(pf_log_level level, const char *format, ...) {
    if ((int)level > atomic_load_explicit(&threshold, memory_order_relaxed)) {
        return;
    }
    /* One write a line, so that the lines of several threads do not mix. */
    char line[2304];
    int length = snprintf(line, sizeof line, "pfattn %s: ", level_names[level]);
    va_list args;
    va_start(args, format);
    vsnprintf(line + length, sizeof line - (size_t)length - 1, format, args);
    va_end(args);
    strcat(line, "\n");
    fputs(line, stderr);
}

void pf_log_configure(void) {
    const char *value = pf_environment("LOG");
    if (value == NULL) {
        atomic_store(&threshold, PF_LOG_WARN);
        return;
    }
    for (int level = PF_LOG_ERROR; level <= PF_LOG_DEBUG; level++) {
        if (strcmp(value, level_names[level]) == 0) {
            atomic_store(&threshold, level);
            return;
        }
    }
    atomic_store(&threshold, PF_LOG_WARN);
    pf_log(PF_LOG_WARN, "PFATTN_LOG is \"%s\"; it must be error, warn, info or debug", value);
}
