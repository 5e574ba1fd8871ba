/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for the hip backend in a library that was built without it. */
#include "backend_list.h"
#include "status.h"

static pfattn_status probe(int32_t *device_count, char *summary, size_t size) {
    (void)device_count;
    (void)summary;
    (void)size;
    return pf_error(PFATTN_ERROR_UNAVAILABLE,
                    "hip: not compiled in; build pfattn with -Dbackends=hip, which needs "
                    "amdclang++ or clang++ with the AMDGPU target");
}

const pf_backend pf_backend_hip = {
    .id = PFATTN_BACKEND_HIP,
    .name = "hip",
    .priority = 20,
    .probe = probe,
};
