/* SPDX-License-Identifier: Apache-2.0 */
#include "compare.h"

#include <math.h>
#include <stdio.h>

#include "formats.h"

/* Binades of doubles, by the exponent of frexp(); zero is in the one of 0.5. */
enum { LEAST_EXPONENT = -1073, BINADES = 1024 - LEAST_EXPONENT + 1 };

static int exponent_of(double x) {
    int exponent;
    frexp(x, &exponent);
    return exponent;
}

/* Half a unit in the last place of a value that is rounded to the type. */
static double half_unit(double x, pfattn_dtype dtype) {
    int bits = dtype == PFATTN_DTYPE_F16 ? 11 : dtype == PFATTN_DTYPE_BF16 ? 8 : 3;
    return ldexp(0.5, exponent_of(x) - bits);
}

static int expected_of(const compared *values, int64_t i) {
    return values->expected ? values->expected[i] : EXPECT_VALUE;
}

static void count_binades(const compared *values, int64_t *count) {
    for (int64_t i = 0; i < values->count; i++) {
        if (expected_of(values, i) == EXPECT_VALUE && isfinite(values->exact[i])) {
            count[exponent_of(values->exact[i]) - LEAST_EXPONENT]++;
        }
    }
}

static void add_misplaced(comparison *sum, const compared_element *element) {
    if (sum->misplaced++ == 0) {
        sum->first_misplaced = *element;
    }
}

static void add_error(compared_errors *errors, const compared_element *element, double error) {
    if (error > errors->max_error) {
        errors->max_error = error;
        errors->worst = *element;
    }
}

static void add_finite(comparison *sum, const compared_element *element, double naive,
                       pfattn_dtype dtype, bool rare) {
    double exact = element->exact;
    double error = fabs(element->tested - exact);
    add_error(rare ? &sum->rare : &sum->all, element, error);
    sum->square_error += error * error;
    sum->max_exact = fmax(sum->max_exact, fabs(exact));
    sum->square_exact += exact * exact;
    double naive_error = fabs(pf_round(naive, dtype) - exact);
    /* A naive result that overflows widens no bound. */
    if (isfinite(naive_error)) {
        sum->all.max_naive = fmax(sum->all.max_naive, naive_error);
        sum->square_naive += naive_error * naive_error;
        if (rare) {
            sum->rare.max_naive =
                fmax(sum->rare.max_naive, fabs(naive - exact) + half_unit(exact, dtype));
        }
    }
}

void comparison_add(comparison *sum, const compared *values) {
    int64_t binade[BINADES] = {0};
    bool wide = values->dtype == PFATTN_DTYPE_F32 || values->dtype == PFATTN_DTYPE_F64;
    count_binades(values, binade);
    for (int64_t i = 0; i < values->count; i++) {
        int expect = expected_of(values, i);
        if (expect == EXPECT_ANYTHING) {
            sum->count++;
            continue;
        }
        double wanted = expect == EXPECT_NAN        ? NAN
                        : expect == EXPECT_INFINITY ? INFINITY
                                                    : values->exact[i];
        const compared_element element = {sum->count++, values->tested[i], wanted};
        if (isfinite(element.tested) && isfinite(wanted)) {
            bool rare = !wide && binade[exponent_of(wanted) - LEAST_EXPONENT] < COMPARE_RARE;
            add_finite(sum, &element, values->naive[i], values->dtype, rare);
        } else if (isnan(element.tested) != isnan(wanted) ||
                   (!isnan(wanted) && element.tested != wanted)) {
            add_misplaced(sum, &element);
        }
    }
}

/* Is the largest of the errors within the bound that the naive one gives? */
static bool largest_passes(const compared_errors *errors, double bound, double *ratio, char *reason,
                           size_t size) {
    double this_ratio = errors->max_error / bound;
    *ratio = fmax(*ratio, this_ratio);
    if (this_ratio <= 1) {
        return true;
    }
    const compared_element *worst = &errors->worst;
    snprintf(reason, size, "largest error %.3g exceeds %.3g at element %lld: %.9g, must be %.9g",
             errors->max_error, bound, (long long)worst->number, worst->tested, worst->exact);
    return false;
}

bool comparison_passes(const comparison *sum, bool tight, double *ratio, char *reason,
                       size_t size) {
    reason[0] = 0;
    if (sum->misplaced) {
        const compared_element *first = &sum->first_misplaced;
        *ratio = INFINITY;
        snprintf(reason, size,
                 "%lld of %lld elements are NaN or infinite on one side only: element "
                 "%lld is %g, must be %g",
                 (long long)sum->misplaced, (long long)sum->count, (long long)first->number,
                 first->tested, first->exact);
        return false;
    }
    double floor = fmax(1, fmax(sum->max_exact, sum->scale));
    double bound = tight ? 1e-12 * floor : 2 * sum->all.max_naive + 1e-5 * floor;
    double rare_bound = fmax(bound, 2 * sum->rare.max_naive + 1e-5 * floor);
    double norm_bound =
        tight ? INFINITY : 4 * sqrt(sum->square_naive) + 1e-6 * sqrt(sum->square_exact);
    double norm_error = sqrt(sum->square_error);
    *ratio = 0;
    if (!largest_passes(&sum->all, bound, ratio, reason, size) ||
        !largest_passes(&sum->rare, rare_bound, ratio, reason, size)) {
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
