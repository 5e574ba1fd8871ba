/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of `pfattn run`: read from .npy files, rounded to the type asked for, laid out as the
 * files are, and written back. */
#ifndef RUN_TENSORS_H
#define RUN_TENSORS_H

#include <stdbool.h>

#include "problem.h"

typedef struct run_request {
    pf_operation operation;
    const char *path[PF_TENSOR_COUNT]; /* input files, NULL where not given */
    const char *qkv;                   /* [B,S,3,H,D], instead of q, k and v */
    bool bshd;                         /* sequence tensors are [B,S,H,D] */
    pfattn_dtype dtype;                /* NONE: as the file of q */
    pfattn_dtype bias_dtype;           /* NONE: as the file of bias */
} run_request;

/* One block of memory, on the host and on the device. */
typedef struct run_buffer {
    void *host;
    void *device;
    size_t bytes;
} run_buffer;

typedef struct run_tensors {
    pfattn_dtype dtype;                    /* of q (of o0 in a merge) */
    pfattn_tensor tensor[PF_TENSOR_COUNT]; /* data is NULL: see buffer and offset */
    run_buffer buffer[PF_TENSOR_COUNT];
    int buffer_of[PF_TENSOR_COUNT]; /* which buffer holds the tensor */
    size_t offset[PF_TENSOR_COUNT]; /* bytes from the start of that buffer */
    int ndim[PF_TENSOR_COUNT];      /* dimensions of its .npy file, and their sizes */
    int64_t file_shape[PF_TENSOR_COUNT][4];
} run_tensors;

/* The name of a tensor in files and options: "do" for PF_DOUT. */
const char *run_tensor_name(pf_tensor_id id);

/* Read every input. Returns TOOL_DONE or the exit code after a message. */
int run_tensors_read(const run_request *request, run_tensors *tensors);

/* Add the outputs named by the set, f32 (f64 with f64), in the layout of the inputs. Returns
 * TOOL_DONE or the exit code after a message. */
int run_tensors_add_outputs(const run_request *request, run_tensors *tensors, uint64_t outputs);

/* Write the outputs named by the set into `directory`, which is made where it does not exist. All
 * of them are written or none. */
int run_tensors_write(const run_tensors *tensors, uint64_t outputs, const char *directory);

void run_tensors_free(run_tensors *tensors);

#endif
