/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the reference share: tensors between guard zones in any layout, problems filled
 * with random numbers, and runs of the reference. Failures are cmocka assertions. */
#ifndef PF_TESTS_REF_HARNESS_H
#define PF_TESTS_REF_HARNESS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "formats.h"
#include "problem.h"
#include "ref/ref.h"

/* Where elements of a [B,H,S,C] tensor lie. SCATTERED has gaps in every dimension, channels that
 * are not adjacent and negative strides. */
typedef enum layout { BHSD, BSHD, SCATTERED, LAYOUT_COUNT } layout;

/* A tensor full of NaN (U8: of 1), between guard zones. It lives until free_tensors(). */
pfattn_tensor new_tensor(pfattn_dtype dtype, layout where, int64_t d0, int64_t d1, int64_t d2,
                         int64_t d3);
double get(const pfattn_tensor *x, int64_t d0, int64_t d1, int64_t d2, int64_t d3);
void set(const pfattn_tensor *x, int64_t d0, int64_t d1, int64_t d2, int64_t d3, double value);

/* Every element, in order of its indices. */
void set_all(const pfattn_tensor *x, const double *values);
void fill(const pfattn_tensor *x, double value);
void fill_random(const pfattn_tensor *x, double scale); /* uniform in (-scale, scale) */
void seed_random(uint64_t seed);
double random_number(void); /* uniform in (-1, 1) */
int64_t element_count(const pfattn_tensor *x);

/* The n-th element in order of its indices. */
double get_nth(const pfattn_tensor *x, int64_t n);
void set_nth(const pfattn_tensor *x, int64_t n, double value);

/* Free every tensor, having checked that no byte outside their elements changed since they were
 * made. */
void free_tensors(void);
int free_tensors_after(void **state); /* the same as a cmocka teardown */

/* A problem to make. Zero means absent, or the obvious default. */
typedef struct spec {
    pfattn_dtype dtype;        /* F64 where NONE */
    pfattn_dtype bias_dtype;   /* F64 with f64, else F32 */
    pfattn_dtype result_dtype; /* of o, to and gradients: dtype where NONE */
    int64_t B, H, Hk, M, N, D, E;
    bool causal, shifted, piecewise, deterministic;
    int64_t diagonal, distance;
    bool scaled;
    double alpha;
    int64_t bias[4], mask[4]; /* shapes; absent where all zero */
    layout where;
} spec;

/* Every tensor of every operation: inputs, tangents and cotangents random, outputs NaN. */
pfattn_attention new_problem(const spec *s);

/* The i-th tensor of a descriptor, i below PF_O0. */
pfattn_tensor *tensor_at(pfattn_attention *a, int id);
pfattn_tensor *tensor_named(pfattn_attention *a, const char *name);

/* Only what the operation uses; PF_FORWARD without tangents, PF_FORWARD_JVP with them. */
pfattn_attention for_operation(pf_operation operation, const pfattn_attention *all);

void run_with(pf_operation operation, const pfattn_attention *a, const pf_ref_options *options);
void run(pf_operation operation, const pfattn_attention *all);
void run_everything(const pfattn_attention *all); /* JVP, backward, backward JVP */
void run_merge(const pfattn_merge_args *args);

/* Number by number; NaN equals NaN only. The tolerance is relative to max(1, largest number). */
void expect_close(const char *name, const pfattn_tensor *got, const double *want, double tolerance);
#define EXPECT(tensor, tolerance, ...)                                                             \
    do {                                                                                           \
        const double want_[] = {__VA_ARGS__};                                                      \
        assert_int_equal(element_count(&(tensor)), sizeof want_ / sizeof *want_);                  \
        expect_close(#tensor, &(tensor), want_, tolerance);                                        \
    } while (0)

/* A contiguous copy in double, freed by free_tensors(). */
double *copy_of(const pfattn_tensor *x);

#endif
