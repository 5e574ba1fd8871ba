/* SPDX-License-Identifier: Apache-2.0 */
/* What can be said of one tensor by itself. */
#ifndef PF_TENSOR_H
#define PF_TENSOR_H

#include <stdbool.h>

#include <pfattn/pfattn.h>

/* Type, shape, pointer and strides of a present tensor. `name` is for messages. Of an output, no
 * two elements may share memory: with the dimensions sorted by stride, each stride must exceed the
 * span of the dimensions before it. */
pfattn_status pf_tensor_check(const char *name, const pfattn_tensor *tensor, bool output);

/* Number of elements of a tensor that passed pf_tensor_check. */
int64_t pf_tensor_elements(const pfattn_tensor *tensor);

/* The same view with one spelling: strides that are never used are 0. Absent is all zero. */
pfattn_tensor pf_tensor_canonical(const pfattn_tensor *tensor);

#endif
