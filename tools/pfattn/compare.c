/* SPDX-License-Identifier: Apache-2.0 */
#include "compare.h"

#include <math.h>
#include <stdio.h>

#include "formats.h"

static void note_worst(comparison *sum, int64_t number, double tested, double exact) {
    sum->worst = number;
    sum->worst_tested = tested;
    sum->worst_exact = exact;
}

static void add_misplaced(comparison *sum, int64_t number, double tested, double exact) {
    if (sum->misplaced++ == 0) {
        note_worst(sum, number, tested, exact);
    }
}

/* The error of the naive result once it is rounded to its type. */
static double naive_error(double naive, double exact, pfattn_dtype dtype, bool few) {
    double rounded = pf_round(naive, dtype);
    double error = fabs(rounded - exact);
    if (!few || dtype == PFATTN_DTYPE_F32 || dtype == PFATTN_DTYPE_F64) {
        return error;
    }
    /* The unit in the last place, from the significand bits of the type. */
    int bits = dtype == PFATTN_DTYPE_F16 ? 11 : dtype == PFATTN_DTYPE_BF16 ? 8 : 3;
    int exponent;
    frexp(exact, &exponent);
    return fmax(error, fabs(naive - exact) + ldexp(0.5, exponent - bits));
}

static void add_finite(comparison *sum, int64_t number, double tested, double exact) {
    double error = fabs(tested - exact);
    if (error > sum->max_error) {
        sum->max_error = error;
        if (sum->misplaced == 0) {
            note_worst(sum, number, tested, exact);
        }
    }
    sum->square_error += error * error;
    sum->max_exact = fmax(sum->max_exact, fabs(exact));
    sum->square_exact += exact * exact;
}

void comparison_add(comparison *sum, const compared *values) {
    bool few = values->count < COMPARE_FEW;
    for (int64_t i = 0; i < values->count; i++) {
        int64_t number = sum->count++;
        int expect = values->expected ? values->expected[i] : EXPECT_VALUE;
        if (expect == EXPECT_ANYTHING) {
            continue;
        }
        double wanted = expect == EXPECT_NAN        ? NAN
                        : expect == EXPECT_INFINITY ? INFINITY
                                                    : values->exact[i];
        double tested = values->tested[i];
        if (isfinite(tested) && isfinite(wanted)) {
            add_finite(sum, number, tested, wanted);
            double error = naive_error(values->naive[i], wanted, values->dtype, few);
            /* A naive result that overflows widens no bound. */
            if (isfinite(error)) {
                sum->max_naive = fmax(sum->max_naive, error);
                sum->square_naive += error * error;
            }
        } else if (isnan(tested) != isnan(wanted) || (!isnan(wanted) && tested != wanted)) {
            add_misplaced(sum, number, tested, wanted);
        }
    }
}

bool comparison_passes(const comparison *sum, bool tight, double *ratio, char *reason,
                       size_t size) {
    reason[0] = 0;
    if (sum->misplaced) {
        *ratio = INFINITY;
        snprintf(reason, size,
                 "%lld of %lld elements are NaN or infinite on one side only: element "
                 "%lld is %g, must be %g",
                 (long long)sum->misplaced, (long long)sum->count, (long long)sum->worst,
                 sum->worst_tested, sum->worst_exact);
        return false;
    }
    double floor = fmax(1, fmax(sum->max_exact, sum->scale));
    double max_bound = tight ? 1e-12 * floor : 2 * sum->max_naive + 1e-5 * floor;
    double norm_bound =
        tight ? INFINITY : 4 * sqrt(sum->square_naive) + 1e-6 * sqrt(sum->square_exact);
    double norm_error = sqrt(sum->square_error);
    *ratio = sum->max_error / max_bound;
    if (!(*ratio <= 1)) {
        snprintf(
            reason, size, "largest error %.3g exceeds %.3g at element %lld: %.9g, must be %.9g",
            sum->max_error, max_bound, (long long)sum->worst, sum->worst_tested, sum->worst_exact);
        return false;
    }
    bool many = sum->count >= COMPARE_MANY && !sum->few;
    bool has_norm = many && sum->max_exact >= 1e-5 && sum->scale == 0;
    if (has_norm && norm_error > 0) {
        *ratio = fmax(*ratio, norm_error / norm_bound);
        if (!(norm_error <= norm_bound)) {
            snprintf(reason, size, "norm of the error %.3g exceeds %.3g", norm_error, norm_bound);
            return false;
        }
    }
    return true;
}
