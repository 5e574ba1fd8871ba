/* SPDX-License-Identifier: Apache-2.0 */
/* The formulas once more, in double with whole matrices: an independent judge of the reference. */
#ifndef PF_TESTS_REF_NAIVE_H
#define PF_TESTS_REF_NAIVE_H

#include "harness.h"

/* Compute every output of the operation from its inputs (o, lse, to and tlse anew, so that they are
 * no inputs here) and compare those that are present, relative to max(1, largest number). */
void expect_formulas(pf_operation operation, const pfattn_attention *all, double tolerance);

/* The same for JVP, backward and backward JVP. */
void expect_all_formulas(const pfattn_attention *all, double tolerance);

#endif
