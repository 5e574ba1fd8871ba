/* SPDX-License-Identifier: Apache-2.0 */
/* Attention problems for the tests of the host side. Addresses are made up and never followed. */
#ifndef PF_TEST_PROBLEMS_H
#define PF_TEST_PROBLEMS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pfattn/pfattn.h>

#include "problem.h"
#include "select.h"

/* Dimensions of a problem. */
typedef struct test_shape {
    int64_t batch, heads, kv_heads, queries, keys, dim_qk, dim_v;
} test_shape;

/* A contiguous tensor at an address of its own, aligned to 4 GiB. */
pfattn_tensor test_dense(pfattn_dtype dtype, int64_t n0, int64_t n1, int64_t n2, int64_t n3);

/* A descriptor with what the operation needs and every output that it may have (but of forward
 * JVP's inputs no tangent, and of backward's outputs only dq, dk, dv or their tangents). */
pfattn_attention test_attention(pf_operation operation, pfattn_dtype dtype, test_shape shape);

/* The same with further tensors; extents as pfattn.h says. */
void test_add_bias(pfattn_attention *args, pfattn_dtype dtype, int64_t b, int64_t h, int64_t m,
                   int64_t n);
void test_add_mask(pfattn_attention *args, int64_t b, int64_t h, int64_t m, int64_t n);
void test_add_pair(pfattn_attention *args, int64_t distance);

/* Through the checks of the public interface; a failure fails the test. */
pf_problem test_problem(pf_operation operation, const pfattn_attention *args);

/* A merge of two parts in one type, with tangents. */
pfattn_merge_args test_merge_args(pfattn_dtype dtype, test_shape shape);
pf_problem test_merge_problem(pfattn_dtype dtype, test_shape shape);

/* The images of test_hopper's targets: all, until a test takes one away. */
extern bool test_images[PF_IMAGE_COUNT];

/* A device of 100 multiprocessors that runs both targets of NVIDIA. */
pf_capabilities test_hopper(const pf_tuning *table, size_t count);

/* What select plans; a refusal fails the test. */
pf_plan test_plan(const pf_capabilities *capabilities, const pf_problem *problem);

#endif
