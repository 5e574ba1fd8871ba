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

/* Whether a tensor with elements that passed pf_tensor_check, its view canonical or not, may be at
 * another address of the same alignment. */
bool pf_tensor_fits(const pfattn_tensor *tensor, const void *data);

/* Number of elements of a tensor that passed pf_tensor_check. */
int64_t pf_tensor_elements(const pfattn_tensor *tensor);

/* Give the view of such a tensor one spelling: strides that are never used become 0. */
void pf_tensor_make_canonical(pfattn_tensor *tensor);

#endif
