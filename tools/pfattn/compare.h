/* SPDX-License-Identifier: Apache-2.0 */
/* What counts as right. X is the tested result, X64 the exact one (f64 on the same inputs), Xlp
 * that of the reference run naively in the tested types:
 *
 *      max|X - X64|  <= 2 max|Xlp - X64| + 1e-5 max(1, max|X64|)
 *      ||X - X64||_F <= 4 ||Xlp - X64||_F + 1e-6 ||X64||_F
 *
 * and a NaN or an infinity must be at the same place in X and X64. The norm bound is relative only,
 * so it says nothing about a result that is zero but for rounding (the gradient of a softmax over
 * one key, say): where max|X64| < 1e-5, or where there are fewer than COMPARE_MANY elements, or a
 * gradient comes from fewer scores, and so no statistics, the first bound alone is asked. The
 * gradient of a broadcast bias is a sum over many scores, which cancel where the bias is the same
 * for all keys, by the shift invariance of the softmax; max|X64| is there that of so many terms. */
#ifndef COMPARE_H
#define COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pfattn/pfattn.h>

/* What is expected of one element. */
enum { EXPECT_VALUE, EXPECT_NAN, EXPECT_INFINITY, EXPECT_ANYTHING };

/* An element of a result, by its number in logical order. */
typedef struct compared_element {
    int64_t number;
    double tested, exact;
} compared_element;

/* Largest errors, and what the naive computation's say of them. */
typedef struct compared_errors {
    double max_error, max_naive;
    compared_element worst;
} compared_errors;

typedef struct comparison {
    compared_errors all;  /* but max_error without rare elements */
    compared_errors rare; /* naive: before rounding, and half a unit in the last place */
    double max_exact;
    double scale; /* of the terms whose sum the result is, where it may be much smaller; else 0 */
    double square_error, square_naive, square_exact;
    int64_t count;
    bool few;          /* the elements share the errors of fewer than COMPARE_MANY numbers */
    int64_t misplaced; /* elements where one side alone is NaN or infinite */
    compared_element first_misplaced;
} comparison;

/* From COMPARE_MANY elements on the norm of the error is judged. The rounding of a result to f16,
 * bf16 or e5m2 errs by the size of the element: fewer than COMPARE_RARE of a binade, the largest of
 * a tensor most often, may all have been rounded luckily by the naive computation. They are judged
 * as if it had rounded them as badly as can be. */
enum { COMPARE_MANY = 16, COMPARE_RARE = 64 };

/* Results to be compared, element by element. */
typedef struct compared {
    const double *tested;
    const double *naive; /* before its rounding to `dtype` */
    const double *exact;
    const unsigned char *expected; /* one EXPECT_* per element, or NULL */
    int64_t count;
    pfattn_dtype dtype; /* of the result */
} compared;

void comparison_add(comparison *sum, const compared *values);

/* `tight` is for f64 results: 1e-12 max(1, max|X64|) and no naive term. `*ratio` is the larger of
 * error / bound; where it fails `reason` says why. */
bool comparison_passes(const comparison *sum, bool tight, double *ratio, char *reason, size_t size);

#endif
