/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for the cuda backend in a library that was built without it. */
#include "backend_list.h"
#include "status.h"

static pfattn_status probe(int32_t *device_count, char *summary, size_t size) {
    (void)device_count;
    (void)summary;
    (void)size;
    return pf_error(PFATTN_ERROR_UNAVAILABLE,
                    "cuda: not compiled in; build pfattn with -Dbackends=cuda, which needs nvcc");
}

const pf_backend pf_backend_cuda = {
    .id = PFATTN_BACKEND_CUDA,
    .name = "cuda",
    .priority = 30,
    .probe = probe,
};
