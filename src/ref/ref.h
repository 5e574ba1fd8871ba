/* SPDX-License-Identifier: Apache-2.0 */
/* The plain-C reference: what is right for every backend. */
#ifndef PF_REF_H
#define PF_REF_H

#include <stdbool.h>

#include "common/backend.h"
#include "common/problem.h"

/* Ways to compute otherwise than well, to learn what a backend may be forgiven. */
typedef struct pf_ref_options {
    /* The naive low-precision variant: probabilities, score gradients and their tangents are
     * rounded to the product type before each matrix product, as matrix units need them. */
    bool round_products;
    /* The matrix units of gfx90a: an input of a matrix product that is subnormal in the product
     * type counts as zero. Does nothing where that type is f32 or f64. */
    bool flush_subnormals;
    /* The product type; NONE means the problem's own. A problem converted to f64 says here
     * which type it stands for. */
    pfattn_dtype product_dtype;
} pf_ref_options;

/* Compute a checked problem on the host. `options` NULL means none of them. The result does not
 * depend on the number of threads. Scratch is a few tiles per thread, never O(M N). Errors:
 * OUT_OF_MEMORY, before anything is written. */
pfattn_status pf_ref_run(const pf_problem *problem, const pf_ref_options *options);

/* Threads that pf_ref_run spreads its work over. */
int pf_ref_threads(void);

extern const pf_backend pf_backend_ref;

#endif
