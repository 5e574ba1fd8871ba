/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a case, filled. */
#ifndef CHECK_DATA_H
#define CHECK_DATA_H

#include "call.h"
#include "check_case.h"
#include "tensor_image.h"

typedef struct check_data {
    check_case c;
    uint64_t seed;
    pf_operation stages[2];
    int stage_count;
    tensor_image image[PF_TENSOR_COUNT];     /* those of the case; the others have dtype NONE */
    uint64_t outputs;                        /* which of them the calls write */
    pf_tensor_id stored_in[PF_TENSOR_COUNT]; /* whose image holds it: itself, unless in place */
    unsigned char *clean[PF_TENSOR_COUNT];   /* the memory of spoiled images before that */
    /* What is expected of each element of an output, in logical order; NULL = values. */
    unsigned char *expected[PF_TENSOR_COUNT];
} check_data;

/* Fill the inputs; outputs hold NaN. The cotangents have standard deviation 1. */
void check_data_create(check_data *data, const check_case *c, uint64_t seed);
void check_data_free(check_data *data);

/* Multiply the cotangents (do, dlse, tdo) by a power of two. */
void check_data_scale_cotangents(check_data *data, double factor);

/* Put NaN and infinities where the case asks for them, and note what must become of the results.
 * The reference must not see them: `restore` takes them out again. */
void check_data_spoil(check_data *data);
void check_data_restore(check_data *data);

/* Whether query i of (b, h) keeps key j. */
bool check_data_keeps(const check_data *data, int64_t b, int64_t h, int64_t i, int64_t j);

call_scalars check_data_scalars(const check_data *data);

#endif
