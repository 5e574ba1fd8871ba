/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for the ref backend in a library that was built without it. */
#include "backend_list.h"
#include "status.h"

static pfattn_status probe(int32_t *device_count, char *summary, size_t size) {
    (void)device_count;
    (void)summary;
    (void)size;
    return pf_error(PFATTN_ERROR_UNAVAILABLE,
                    "ref: not compiled in; build pfattn with -Dbackends=ref, which needs x");
}

const pf_backend pf_backend_ref = {
    .id = PFATTN_BACKEND_REF,
    .name = "ref",
    .priority = 10,
    .probe = probe,
};
