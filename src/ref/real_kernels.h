/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops and the choice between their instruction sets. */

/* A tile has ROWS queries and KEYS keys; LONGER is the larger of the two. */
enum { ROWS = 64, KEYS = 64, LONGER = ROWS > KEYS ? ROWS : KEYS };

typedef struct kernels {
    void (*multiply)(real *c, size_t ldc, const real *a, size_t row_stride, size_t inner_stride,
                     const real *b, size_t ldb, int rows, int64_t inner, int64_t columns);
    real (*row_maximum)(const real *row);
    real (*row_exponential)(real *row, real shift);
} kernels;

#define TARGET(name) plain_##name
#define TARGET_CODE
#define VECTOR_BYTES 16
#include "real_target.h"

#if defined(__x86_64__)
#define TARGET(name) avx2_##name
#define TARGET_CODE __attribute__((target("avx2,fma")))
#define VECTOR_BYTES 32
#include "real_target.h"
#endif

static const kernels *best_kernels(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return &avx2_kernels;
    }
#endif
    return &plain_kernels;
}
