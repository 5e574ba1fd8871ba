/* SPDX-License-Identifier: Apache-2.0 */
/* What the reference says of a case: the exact results, in f64 on contiguous copies of the same
 * inputs, and those of the naive computation in the tested types. */
#ifndef ORACLE_H
#define ORACLE_H

#include "check_data.h"

/* Part of a problem that can be computed by itself: a range of batches, and of key/value heads with
 * the query heads that read them. */
typedef struct oracle_slice {
    int64_t batch, batches;
    int64_t kv_head, kv_heads;
    /* Results in logical order, of the outputs of the case. */
    double *exact[PF_TENSOR_COUNT];
    double *naive[PF_TENSOR_COUNT]; /* before the rounding to the result's own type */
    int64_t count[PF_TENSOR_COUNT];
} oracle_slice;

/* Which calls of a case, and on what. */
typedef struct oracle_request {
    bool naive; /* else exact */
    bool flush; /* emulate the matrix units of gfx90a */
    int first_stage, last_stage;
    /* Results of the stages before the first, which are inputs here: memory as downloaded, by
     * tensor. */
    unsigned char *const *after;
} oracle_request;

/* Run the reference on a slice and fill `exact` or `naive` of the stages' results. */
pfattn_status oracle_run(const check_data *data, oracle_slice *slice,
                         const oracle_request *request);

void oracle_slice_free(oracle_slice *slice);

/* Copy a slice of an image (memory as in `bytes`) to doubles in logical order; returns the number
 * of elements. `*values` is allocated. */
int64_t oracle_slice_read(const check_data *data, const oracle_slice *slice, pf_tensor_id id,
                          const tensor_image *image, const unsigned char *bytes, double **values);

#endif
