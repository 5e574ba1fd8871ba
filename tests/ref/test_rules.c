/* SPDX-License-Identifier: Apache-2.0 */
/* The rules that every backend keeps, each by name. */
#include "harness.h"
#include "naive.h"

static const double infinity = (double)INFINITY, not_a_number = (double)NAN;

static const spec plain = {.B = 2, .H = 2, .Hk = 1, .M = 5, .N = 7, .D = 4, .E = 3};

static const char *const key_tensors[] = {"k", "v", "k2", "tk", "tv", "tk2"};

/* Value `value` at key j of every key tensor of batch b, head hk. */
static void spoil_key(pfattn_attention *a, int64_t b, int64_t hk, int64_t j, double value) {
    for (size_t n = 0; n < sizeof key_tensors / sizeof *key_tensors; n++) {
        const pfattn_tensor *x = tensor_named(a, key_tensors[n]);
        for (int64_t c = 0; x->dtype != PFATTN_DTYPE_NONE && c < x->shape[3]; c++) {
            set(x, b, hk, j, c, value);
        }
    }
}

static bool row_is(const pfattn_tensor *x, int64_t b, int64_t h, int64_t i, double value) {
    for (int64_t c = 0; c < x->shape[3]; c++) {
        const double got = get(x, b, h, i, c);
        if (got != value && !(isnan(got) && isnan(value))) {
            return false;
        }
    }
    return true;
}

static void expect_empty_row(const pfattn_attention *a, int64_t b, int64_t h, int64_t i) {
    assert_true(row_is(&a->o, b, h, i, 0));
    assert_true(row_is(&a->lse, b, h, i, -infinity));
    assert_true(row_is(&a->to, b, h, i, 0));
    assert_true(row_is(&a->tlse, b, h, i, 0));
    assert_true(row_is(&a->dq, b, h, i, 0));
    assert_true(row_is(&a->tdq, b, h, i, 0));
}

/* ---- Empty rows ---- */

static void a_row_masked_whole_is_empty_and_adds_nothing(void **state) {
    (void)state;
    spec s = plain;
    s.mask[0] = s.mask[1] = 1;
    s.mask[2] = s.M;
    s.mask[3] = s.N;
    s.bias[0] = s.bias[1] = 1;
    s.bias[2] = s.M;
    s.bias[3] = s.N;
    pfattn_attention a = new_problem(&s);
    for (int64_t j = 0; j < s.N; j++) {
        set(&a.mask, 0, 0, 3, j, 0);
    }
    /* Nothing of an empty row may matter, not even NaN in it. */
    for (int64_t c = 0; c < s.D; c++) {
        set(&a.q, 1, 1, 3, c, not_a_number);
        set(&a.tq, 1, 1, 3, c, infinity);
    }
    for (int64_t c = 0; c < s.E; c++) {
        set(&a.dout, 1, 1, 3, c, not_a_number);
    }
    run_everything(&a);
    for (int64_t n = 0; n < 4; n++) {
        expect_empty_row(&a, n / 2, n % 2, 3);
    }
    for (int64_t j = 0; j < s.N; j++) {
        assert_true(get(&a.dbias, 0, 0, 3, j) == 0 && get(&a.tdbias, 0, 0, 3, j) == 0);
    }
    expect_formulas(PF_BACKWARD, &a, 1e-13);
    expect_formulas(PF_BACKWARD_JVP, &a, 1e-13);
}

static void a_row_of_infinite_negative_bias_is_empty(void **state) {
    (void)state;
    spec s = plain;
    s.bias[0] = s.bias[1] = s.bias[3] = 1;
    s.bias[2] = s.M;
    pfattn_attention a = new_problem(&s);
    set(&a.bias, 0, 0, 2, 0, -infinity);
    set(&a.tbias, 0, 0, 2, 0, not_a_number);
    run_everything(&a);
    expect_empty_row(&a, 1, 0, 2);
    assert_true(get(&a.dbias, 0, 0, 2, 0) == 0 && get(&a.tdbias, 0, 0, 2, 0) == 0);
    expect_all_formulas(&a, 1e-13);
}

/* backward takes emptiness from L: the row counts as if it were masked whole. */
static void a_row_whose_l_is_infinitely_negative_is_empty_in_backward(void **state) {
    (void)state;
    spec s = plain;
    s.mask[0] = s.mask[1] = s.mask[3] = 1;
    s.mask[2] = s.M;
    pfattn_attention a = new_problem(&s);
    fill(&a.mask, 1);
    run(PF_FORWARD_JVP, &a);
    for (int64_t n = 0; n < s.B * s.H; n++) {
        set(&a.lse, n / s.H, n % s.H, 2, 0, -infinity);
    }
    run(PF_BACKWARD, &a);
    run(PF_BACKWARD_JVP, &a);
    assert_true(row_is(&a.dq, 0, 1, 2, 0) && row_is(&a.tdq, 1, 0, 2, 0));
    set(&a.mask, 0, 0, 2, 0, 0);
    expect_formulas(PF_BACKWARD, &a, 1e-13);
    expect_formulas(PF_BACKWARD_JVP, &a, 1e-13);
}

static void queries_before_every_key_are_empty_under_causality(void **state) {
    (void)state;
    spec s = plain; /* bottom-right with M = 7, N = 5: rows 0 and 1 stand before key 0 */
    s.M = 7;
    s.N = 5;
    s.causal = true;
    pfattn_attention a = new_problem(&s);
    run_everything(&a);
    expect_empty_row(&a, 0, 0, 0);
    expect_empty_row(&a, 1, 1, 1);
    assert_false(row_is(&a.o, 0, 0, 2, 0));
    expect_all_formulas(&a, 1e-13);
}

static void everything_masked_gives_zero_gradients(void **state) {
    (void)state;
    spec s = plain;
    s.mask[0] = s.mask[1] = s.mask[2] = s.mask[3] = 1;
    s.bias[0] = s.bias[1] = s.bias[2] = s.bias[3] = 1;
    pfattn_attention a = new_problem(&s);
    fill(&a.mask, 0);
    for (int64_t j = 0; j < s.N; j++) {
        spoil_key(&a, 0, 0, j, not_a_number);
    }
    run_everything(&a);
    const char *const outputs[] = {"o",     "to",  "tlse", "dq",  "dk",    "dv",
                                   "dbias", "tdq", "tdk",  "tdv", "tdbias"};
    for (size_t n = 0; n < sizeof outputs / sizeof *outputs; n++) {
        const pfattn_tensor *x = tensor_named(&a, outputs[n]);
        for (int64_t e = 0; e < element_count(x); e++) {
            assert_true(get_nth(x, e) == 0);
        }
    }
}

/* ---- Masking selects ---- */

/* Two tiles each way, with a bad key in each; run, and compare with the formulas over kept
 * elements. */
static void check_spoiled(spec s, pfattn_attention *a, double garbage, int64_t key) {
    for (int64_t b = 0; b < s.B; b++) {
        for (int64_t hk = 0; hk < s.Hk; hk++) {
            spoil_key(a, b, hk, key, garbage);
        }
    }
    run_everything(a);
    expect_all_formulas(a, 1e-12);
}

static const double garbage[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 1e300};
enum { GARBAGE = sizeof garbage / sizeof *garbage };

static void garbage_under_a_mask_is_harmless(void **state) {
    (void)state;
    spec s = plain;
    s.M = 70;
    s.N = 100;
    s.mask[0] = s.mask[1] = 1;
    s.mask[2] = s.M;
    s.mask[3] = s.N;
    for (int n = 0; n < GARBAGE; n++) {
        pfattn_attention a = new_problem(&s);
        for (int64_t i = 0; i < s.M; i++) {
            set(&a.mask, 0, 0, i, 13, 0);
            set(&a.mask, 0, 0, i, 99, 0);
        }
        spoil_key(&a, 0, 0, 99, garbage[n]);
        check_spoiled(s, &a, garbage[n], 13);
    }
}

static void garbage_under_infinite_negative_bias_is_harmless(void **state) {
    (void)state;
    spec s = plain;
    s.N = 70;
    s.bias[0] = s.bias[1] = s.bias[2] = 1;
    s.bias[3] = s.N;
    for (int n = 0; n < GARBAGE; n++) {
        pfattn_attention a = new_problem(&s);
        set(&a.bias, 0, 0, 0, 66, -infinity);
        set(&a.tbias, 0, 0, 0, 66, garbage[n]);
        check_spoiled(s, &a, garbage[n], 66);
    }
}

static void garbage_beyond_the_causal_edge_is_harmless(void **state) {
    (void)state;
    spec s = plain; /* top-left: keys 5 and 6 are seen by nobody */
    s.causal = s.shifted = true;
    for (int n = 0; n < GARBAGE; n++) {
        pfattn_attention a = new_problem(&s);
        spoil_key(&a, 1, 0, 5, garbage[n]);
        check_spoiled(s, &a, garbage[n], 6);
    }
}

/* Key 4 is kept by nobody but query 4 of each head: the others must not feel it. */
static void nan_in_a_kept_key_stays_in_the_rows_that_keep_it(void **state) {
    (void)state;
    spec s = plain;
    s.causal = s.shifted = true;
    s.N = 5;
    pfattn_attention a = new_problem(&s);
    spoil_key(&a, 0, 0, 4, not_a_number);
    run(PF_FORWARD_JVP, &a);
    for (int64_t n = 0; n < s.B * s.H * s.M; n++) {
        const int64_t b = n / s.M / s.H, h = n / s.M % s.H, i = n % s.M;
        const bool bad = b == 0 && i == 4;
        assert_true(row_is(&a.o, b, h, i, not_a_number) == bad);
        assert_int_equal(isnan(get(&a.lse, b, h, i, 0)) != 0, bad);
        assert_int_equal(isnan(get(&a.to, b, h, i, 0)) != 0, bad);
        assert_int_equal(isnan(get(&a.tlse, b, h, i, 0)) != 0, bad);
    }
}

static void nan_in_a_query_stays_in_its_row(void **state) {
    (void)state;
    pfattn_attention a = new_problem(&plain);
    set(&a.q, 1, 0, 2, 1, not_a_number);
    run(PF_FORWARD_JVP, &a);
    run(PF_BACKWARD, &a);
    for (int64_t n = 0; n < plain.B * plain.H * plain.M; n++) {
        const int64_t b = n / plain.M / plain.H, h = n / plain.M % plain.H, i = n % plain.M;
        const bool bad = b == 1 && h == 0 && i == 2;
        assert_true(row_is(&a.o, b, h, i, not_a_number) == bad);
        assert_int_equal(isnan(get(&a.lse, b, h, i, 0)) != 0, bad);
        assert_true(row_is(&a.dq, b, h, i, not_a_number) == bad);
    }
    for (int64_t j = 0; j < plain.N; j++) { /* the other batch is another problem */
        assert_false(isnan(get(&a.dk, 0, 0, j, 0)) || isnan(get(&a.dv, 0, 0, j, 0)));
    }
}

/* A NaN L comes from a NaN query; what that row does not keep must stay out of it all the same. */
static void a_nan_row_adds_nothing_where_it_keeps_nothing(void **state) {
    (void)state;
    spec s = plain;
    s.mask[0] = s.mask[1] = 1;
    s.mask[2] = s.M;
    s.mask[3] = s.N;
    pfattn_attention a = new_problem(&s);
    fill(&a.mask, 1);
    set(&a.mask, 0, 0, 2, 6, 0);
    set(&a.q, 0, 0, 2, 0, not_a_number);
    run(PF_FORWARD_JVP, &a);
    run(PF_BACKWARD, &a);
    run(PF_BACKWARD_JVP, &a);
    const char *const outputs[] = {"dk", "dv", "tdk", "tdv"};
    for (int n = 0; n < 4; n++) {
        const pfattn_tensor *x = tensor_named(&a, outputs[n]);
        assert_true(isnan(get(x, 0, 0, 5, 0)));
        assert_false(isnan(get(x, 0, 0, 6, 0)));
    }
}

/* ---- The lowest finite bias ---- */

static void check_lowest_bias(pfattn_dtype dtype, pfattn_dtype bias_dtype, double lowest) {
    spec s = plain;
    s.dtype = dtype;
    s.result_dtype = PFATTN_DTYPE_F32;
    s.bias_dtype = bias_dtype;
    s.N = 4;
    s.bias[0] = s.bias[1] = s.bias[2] = 1;
    s.bias[3] = 4;
    pfattn_attention a = new_problem(&s);
    fill(&a.q, 0);
    fill(&a.bias, lowest);
    set(&a.bias, 0, 0, 0, 3, -infinity);
    for (int64_t c = 0; c < s.E; c++) {
        set(&a.v, 0, 0, 0, c, 4);
        set(&a.v, 0, 0, 1, c, 6);
        set(&a.v, 0, 0, 2, c, 8);
        set(&a.v, 0, 0, 3, c, not_a_number);
    }
    run(PF_FORWARD, &a);
    for (int64_t i = 0; i < s.M; i++) {
        assert_true(fabs(get(&a.o, 0, 1, i, 0) - 6) < 1e-6); /* the mean of 4, 6, 8 */
        assert_true(isfinite(get(&a.lse, 0, 1, i, 0)));
    }
}

static void the_lowest_finite_bias_is_a_number(void **state) {
    (void)state;
    const pfattn_dtype inputs[] = {PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16, PFATTN_DTYPE_F32,
                                   PFATTN_DTYPE_E5M2};
    for (int n = 0; n < 4; n++) {
        check_lowest_bias(inputs[n], PFATTN_DTYPE_F16, -65504);
        check_lowest_bias(inputs[n], PFATTN_DTYPE_BF16, -3.3895313892515355e38);
        check_lowest_bias(inputs[n], PFATTN_DTYPE_F32, -3.4028234663852886e38);
    }
}

/* ---- alpha ---- */

static void check_alpha(double alpha) {
    spec s = plain;
    s.scaled = true;
    s.alpha = alpha;
    s.bias[0] = s.bias[1] = 1;
    s.bias[2] = s.M;
    s.bias[3] = s.N;
    pfattn_attention a = new_problem(&s);
    run_everything(&a);
    expect_all_formulas(&a, 1e-13);
}

static void alpha_may_be_zero_or_negative_and_leaves_the_bias_alone(void **state) {
    (void)state;
    check_alpha(0);
    check_alpha(-0.7);
    check_alpha(5);
}

/* ---- Piecewise ---- */

static void check_piecewise(spec s) {
    s.piecewise = true;
    pfattn_attention a = new_problem(&s);
    run_everything(&a);
    expect_all_formulas(&a, 1e-12);
}

/* Distances reach from diagonal - (N-1) to M-1 + diagonal; whole and straddled tiles. */
static void the_threshold_splits_at_every_distance(void **state) {
    (void)state;
    spec s = plain;
    for (s.distance = -8; s.distance <= 8; s.distance++) {
        check_piecewise(s);
        free_tensors();
    }
    s.B = 1;
    s.M = 90;
    s.N = 140;
    s.causal = true;
    const int64_t distances[] = {-90, 0, 1, 63, 64, 65, 100, 141};
    for (size_t n = 0; n < sizeof distances / sizeof *distances; n++) {
        s.distance = distances[n];
        check_piecewise(s);
        free_tensors();
    }
}

/* q2 k2 = 0 and q k = large: the probability of a key tells which pair scored it. Query 3 alone,
 * w = 2, bottom-right with M = N: keys at distance 3, 2 are far; 1, 0 and (not causal) -1 are near.
 */
static void the_pair_changes_between_w_minus_1_and_w(void **state) {
    (void)state;
    spec s = {.B = 1,
              .H = 1,
              .Hk = 1,
              .M = 5,
              .N = 5,
              .D = 1,
              .E = 5,
              .scaled = true,
              .alpha = 1,
              .piecewise = true,
              .distance = 2};
    pfattn_attention a = new_problem(&s);
    fill(&a.q, 100);
    fill(&a.k, 1);
    fill(&a.q2, 0);
    fill(&a.k2, 1);
    for (int64_t j = 0; j < 5; j++) {
        for (int64_t c = 0; c < 5; c++) {
            set(&a.v, 0, 0, j, c, j == c);
        }
    }
    run(PF_FORWARD, &a); /* O is P itself */
    const double want[5] = {0, 0, 1.0 / 3, 1.0 / 3, 1.0 / 3};
    for (int64_t c = 0; c < 5; c++) {
        assert_true(fabs(get(&a.o, 0, 0, 3, c) - want[c]) < 1e-15);
    }
}

static void with_w_beyond_every_distance_only_pair_1_counts(void **state) {
    (void)state;
    const int64_t beyond[] = {INT64_MAX, INT64_MAX - 1, 100};
    const int64_t diagonals[] = {2, -3};
    for (int n = 0; n < 6; n++) {
        spec s = plain;
        s.piecewise = s.shifted = true;
        s.distance = beyond[n % 3];
        s.diagonal = diagonals[n / 3];
        pfattn_attention a = new_problem(&s);
        fill(&a.q2, not_a_number);
        fill(&a.k2, not_a_number);
        fill(&a.tq2, not_a_number);
        fill(&a.tk2, not_a_number);
        run_everything(&a);
        expect_all_formulas(&a, 1e-13);
        for (int64_t e = 0; e < element_count(&a.dq2); e++) {
            assert_true(get_nth(&a.dq2, e) == 0 && get_nth(&a.tdq2, e) == 0);
        }
    }
}

static void any_64_bit_distance_and_diagonal_work(void **state) {
    (void)state;
    const int64_t values[] = {INT64_MIN, INT64_MIN + 1, INT64_MIN / 2, -1,       0,
                              1,         INT64_MAX / 2, INT64_MAX - 1, INT64_MAX};
    for (int n = 0; n < 81; n++) {
        spec s = plain;
        s.B = s.H = 1;
        s.M = 3;
        s.N = 70; /* a second tile, whose keys all stand after the queries */
        s.shifted = true;
        s.causal = n % 2;
        s.distance = values[n / 9];
        s.diagonal = values[n % 9];
        check_piecewise(s);
        free_tensors();
    }
}

/* A NaN in the pair that an element does not use must not reach it. */
static void the_unused_pair_is_never_read(void **state) {
    (void)state;
    spec s = plain;
    s.piecewise = s.shifted = true;
    s.M = s.N = 5;
    s.distance = 3;
    pfattn_attention a = new_problem(&s);
    for (int64_t n = 0; n < s.B * s.D; n++) { /* key 4 is never 3 behind a query */
        set(&a.k2, n / s.D, 0, 4, n % s.D, not_a_number);
        set(&a.tk2, n / s.D, 0, 4, n % s.D, infinity);
    }
    for (int64_t n = 0; n < s.B * s.H * s.D; n++) { /* query 0 has no key 3 behind it */
        set(&a.q2, n / s.D / s.H, n / s.D % s.H, 0, n % s.D, not_a_number);
    }
    run_everything(&a);
    expect_all_formulas(&a, 1e-13);
}

/* ---- Diagonals ---- */

static void check_diagonals(int64_t M, int64_t N) {
    spec s = plain;
    s.B = s.H = 1;
    s.M = M;
    s.N = N;
    s.causal = true;
    pfattn_attention a = new_problem(&s);
    run_everything(&a); /* bottom-right: the default */
    expect_all_formulas(&a, 1e-12);
    const double *bottom_right = copy_of(&a.o);
    a.flags |= PFATTN_FLAG_DIAGONAL;
    a.diagonal = N - M;
    run(PF_FORWARD, &a);
    expect_close("o", &a.o, bottom_right, 0);
    const int64_t shifts[] = {0, 1, -1, N, -M, M + N, 3 * N, -3 * M};
    for (size_t n = 0; n < sizeof shifts / sizeof *shifts; n++) {
        a.diagonal = shifts[n];
        run_everything(&a);
        expect_all_formulas(&a, 1e-12);
    }
    free_tensors();
}

static void diagonals_bottom_right_top_left_and_shifted(void **state) {
    (void)state;
    check_diagonals(3, 9);
    check_diagonals(9, 3);
    check_diagonals(4, 4);
    check_diagonals(65, 130);
    check_diagonals(130, 65);
}

/* ---- JVP ---- */

static void absent_tangents_equal_zero_tangents(void **state) {
    (void)state;
    static const char *const tangents[] = {"tq", "tk", "tv", "tbias", "tq2", "tk2", "tdout"};
    static const char *const outputs[] = {"to",  "tlse",   "tdq",  "tdk",
                                          "tdv", "tdbias", "tdq2", "tdk2"};
    spec s = plain;
    s.piecewise = true;
    s.distance = 1;
    s.bias[0] = s.bias[1] = s.bias[2] = 1;
    s.bias[3] = s.N;
    for (int subset = 0; subset < 128; subset++) {
        seed_random(11);
        pfattn_attention a = new_problem(&s);
        for (int n = 0; n < 7; n++) {
            if (subset >> n & 1) {
                fill(tensor_named(&a, tangents[n]), 0);
            }
        }
        run(PF_FORWARD_JVP, &a);
        run(PF_BACKWARD_JVP, &a);
        const double *zero[8];
        for (int n = 0; n < 8; n++) {
            zero[n] = copy_of(tensor_named(&a, outputs[n]));
            fill(tensor_named(&a, outputs[n]), not_a_number);
        }
        for (int n = 0; n < 7; n++) {
            if (subset >> n & 1) {
                *tensor_named(&a, tangents[n]) = (pfattn_tensor){0};
            }
        }
        run(PF_FORWARD_JVP, &a);
        run(PF_BACKWARD_JVP, &a);
        for (int n = 0; n < 8; n++) {
            expect_close(outputs[n], tensor_named(&a, outputs[n]), zero[n], 1e-15);
        }
        free_tensors();
    }
}

static void results_of_a_jvp_call_equal_those_of_the_plain_call(void **state) {
    (void)state;
    spec s = plain;
    s.dtype = PFATTN_DTYPE_F32;
    s.N = 150;
    pfattn_attention a = new_problem(&s);
    run(PF_FORWARD, &a);
    const double *o = copy_of(&a.o), *lse = copy_of(&a.lse);
    run(PF_FORWARD_JVP, &a);
    expect_close("o", &a.o, o, 0);
    expect_close("lse", &a.lse, lse, 0);
}

#define TEST(name) cmocka_unit_test_teardown(name, free_tensors_after)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_row_masked_whole_is_empty_and_adds_nothing),
        TEST(a_row_of_infinite_negative_bias_is_empty),
        TEST(a_row_whose_l_is_infinitely_negative_is_empty_in_backward),
        TEST(queries_before_every_key_are_empty_under_causality),
        TEST(everything_masked_gives_zero_gradients),
        TEST(garbage_under_a_mask_is_harmless),
        TEST(garbage_under_infinite_negative_bias_is_harmless),
        TEST(garbage_beyond_the_causal_edge_is_harmless),
        TEST(nan_in_a_kept_key_stays_in_the_rows_that_keep_it),
        TEST(nan_in_a_query_stays_in_its_row),
        TEST(a_nan_row_adds_nothing_where_it_keeps_nothing),
        TEST(the_lowest_finite_bias_is_a_number),
        TEST(alpha_may_be_zero_or_negative_and_leaves_the_bias_alone),
        TEST(the_threshold_splits_at_every_distance),
        TEST(the_pair_changes_between_w_minus_1_and_w),
        TEST(with_w_beyond_every_distance_only_pair_1_counts),
        TEST(any_64_bit_distance_and_diagonal_work),
        TEST(the_unused_pair_is_never_read),
        TEST(diagonals_bottom_right_top_left_and_shifted),
        TEST(absent_tangents_equal_zero_tangents),
        TEST(results_of_a_jvp_call_equal_those_of_the_plain_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
