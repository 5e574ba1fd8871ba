/* SPDX-License-Identifier: Apache-2.0 */
#include "dl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "log.h"
#include "status.h"

/* Append ", `path`: reason" to a list of what was tried. */
static void append_attempt(char *list, size_t size, const char *path, const char *reason) {
    size_t used = strlen(list);
    /* dlerror() usually starts with the path itself; say it once. */
    size_t length = strlen(path);
    if (strncmp(reason, path, length) == 0 && reason[length] == ':') {
        reason += length + 1;
        reason += strspn(reason, " ");
    }
    snprintf(list + used, size - used, "%s%s: %s", used > 0 ? "; " : "", path, reason);
}

static const char *dl_reason(void) {
    const char *reason = dlerror();
    return reason != NULL ? reason : "unknown reason";
}

/* dlsym returns an object pointer, which ISO C cannot cast to a function pointer; POSIX promises
 * that the representation is the same. */
static void store_symbol(void *table, size_t offset, void *symbol) {
    memcpy((char *)table + offset, &symbol, sizeof symbol);
}

static pfattn_status fill_table(const char *what, const char *path, const pf_dl_symbol *symbols,
                                void *table, void *library) {
    for (const pf_dl_symbol *s = symbols; s->name != NULL; s++) {
        void *symbol = dlsym(library, s->name);
        if (symbol == NULL && s->required) {
            return pf_error(PFATTN_ERROR_UNAVAILABLE,
                            "%s: %s lacks the function %s, which pfattn needs; a newer driver is "
                            "required",
                            what, path, s->name);
        }
        if (symbol == NULL) {
            pf_log(PF_LOG_DEBUG, "%s: %s lacks the optional function %s", what, path, s->name);
        }
        store_symbol(table, s->offset, symbol);
    }
    return PFATTN_SUCCESS;
}

pfattn_status pf_dl_open(const char *what, const char *override, const char *const *paths,
                         const pf_dl_symbol *symbols, void *table, void **library) {
    const char *const only[] = {override, NULL};
    char attempts[1536] = "";
    for (const char *const *path = override != NULL ? only : paths; *path != NULL; path++) {
        void *opened = dlopen(*path, RTLD_NOW | RTLD_LOCAL);
        if (opened == NULL) {
            append_attempt(attempts, sizeof attempts, *path, dl_reason());
            continue;
        }
        pfattn_status status = fill_table(what, *path, symbols, table, opened);
        if (status != PFATTN_SUCCESS) {
            dlclose(opened);
            return status;
        }
        pf_log(PF_LOG_DEBUG, "%s: opened %s", what, *path);
        *library = opened;
        return PFATTN_SUCCESS;
    }
    return pf_error(PFATTN_ERROR_UNAVAILABLE, "%s: its library could not be opened (tried %s)",
                    what, attempts);
}

void pf_dl_close(void *library) {
    if (library != NULL) {
        dlclose(library);
    }
}
