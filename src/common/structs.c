/* SPDX-License-Identifier: Apache-2.0 */
#include "structs.h"

#include <stdbool.h>
#include <string.h>

#include "status.h"

/* A struct_size beyond this was never initialised; reading that far could leave the caller's
 * memory. */
enum { SIZE_LIMIT = 65536 };

static size_t size_of(const void *structure) {
    size_t size;
    memcpy(&size, structure, sizeof size);
    return size;
}

pfattn_status pf_struct_check(const pf_struct *kind, const void *to) {
    if (to == NULL) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "%s: is NULL; a struct initialised with %s "
                        "is needed",
                        kind->argument, kind->init);
    }
    size_t size = size_of(to);
    if (size < kind->minimum || size > SIZE_LIMIT) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "%s: struct_size is %zu but this library knows %zu to %zu; initialise the "
                        "struct with %s",
                        kind->argument, size, kind->minimum, kind->size, kind->init);
    }
    return PFATTN_SUCCESS;
}

pfattn_status pf_struct_read(const pf_struct *kind, const void *from, void *to) {
    pfattn_status status = pf_struct_check(kind, from);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    size_t size = size_of(from);
    const unsigned char *bytes = from;
    for (size_t i = kind->size; i < size; i++) {
        if (bytes[i] != 0) {
            return pf_error(PFATTN_ERROR_UNSUPPORTED,
                            "%s: struct_size is %zu but this library knows %zu, and a field beyond "
                            "that is set; pfattn %s is too old for it",
                            kind->argument, size, kind->size, pfattn_version_string());
        }
    }
    memset(to, 0, kind->size);
    memcpy(to, from, size < kind->size ? size : kind->size);
    return PFATTN_SUCCESS;
}

pfattn_status pf_struct_view(const pf_struct *kind, const void *from, void *to, const void **view) {
    bool same = from != NULL && size_of(from) == kind->size;
    *view = same ? from : to;
    return same ? PFATTN_SUCCESS : pf_struct_read(kind, from, to);
}

void pf_struct_write(const pf_struct *kind, const void *from, void *to) {
    size_t size = size_of(to);
    size_t copied = size < kind->size ? size : kind->size;
    memcpy((char *)to + sizeof size, (const char *)from + sizeof size, copied - sizeof size);
}
