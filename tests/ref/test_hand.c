/* SPDX-License-Identifier: Apache-2.0 */
/* Problems small enough to work out on paper; the working stands beside each. */
#include "harness.h"

static const double ln2 = 0.6931471805599453, ln3 = 1.0986122886681098;

/* One head, alpha 1, f64; M = N = D = E = 1 unless said otherwise. */
static pfattn_attention small(int64_t M, int64_t N, int64_t D, int64_t E, bool bias) {
    spec s = {.B = 1, .H = 1, .Hk = 1, .M = M, .N = N, .D = D, .E = E, .scaled = true, .alpha = 1};
    if (bias) {
        s.bias[0] = s.bias[1] = 1;
        s.bias[2] = M;
        s.bias[3] = N;
    }
    pfattn_attention a = new_problem(&s);
    for (int id = PF_TQ; id <= PF_TK2; id++) {
        fill(tensor_at(&a, id), 0);
    }
    fill(&a.dlse, 0);
    fill(&a.tdout, 0);
    return a;
}

#define SET(tensor, ...) set_all(&(tensor), (const double[]){__VA_ARGS__})

/* q = (ln 2, ln 3), k = (1, 0), (0, 1), (0, 0): e^S = 2, 3, 1, so P = 1/3, 1/2, 1/6 and L = ln 6.
 * v = 6, 12, 18: O = 2 + 6 + 3 = 11. */
static void forward_of_one_query(void **state) {
    (void)state;
    pfattn_attention a = small(1, 3, 2, 1, false);
    SET(a.q, ln2, ln3);
    SET(a.k, 1, 0, 0, 1, 0, 0);
    SET(a.v, 6, 12, 18);
    run(PF_FORWARD, &a);
    EXPECT(a.o, 1e-15, 11);
    EXPECT(a.lse, 1e-15, ln2 + ln3);
}

/* The same P from a bias alone (q = 0) with tangents on the bias, tbias = 6, 0, 0:
 * mu = 6/3 = 2,  tO = 1/3 * 6 * 6 - 2 * 11 = -10;  and with tv = 3, 3, 3 another + 3. */
static void jvp_along_bias_and_value(void **state) {
    (void)state;
    pfattn_attention a = small(1, 3, 1, 1, true);
    fill(&a.q, 0);
    SET(a.bias, ln2, ln3, 0);
    SET(a.v, 6, 12, 18);
    SET(a.tbias, 6, 0, 0);
    run(PF_FORWARD_JVP, &a);
    EXPECT(a.o, 1e-14, 11);
    EXPECT(a.tlse, 1e-14, 2);
    EXPECT(a.to, 1e-14, -10);
    fill(&a.tv, 3);
    run(PF_FORWARD_JVP, &a);
    EXPECT(a.to, 1e-14, -7);
}

/* q = 0, k = 1, -1, so S = 0 and P = 1/2, 1/2. With tq = 1 dt = 1, -1; mu = 0;
 * v = 4, 8: tO = (4 - 8)/2 = -2. With tk = 5, 5 nothing is added, since q = 0. alpha = 1. */
static void jvp_along_query(void **state) {
    (void)state;
    pfattn_attention a = small(1, 2, 1, 1, false);
    fill(&a.q, 0);
    SET(a.k, 1, -1);
    SET(a.v, 4, 8);
    fill(&a.tq, 1);
    fill(&a.tk, 5);
    run(PF_FORWARD_JVP, &a);
    EXPECT(a.o, 1e-15, 6);
    EXPECT(a.tlse, 1e-15, 0);
    EXPECT(a.to, 1e-15, -2);
}

/* P = 1/3, 1/2, 1/6 and v = 6, 12, 18 as above, dO = 2, dL = 6. delta = 2 * 11 = 22.
 * dP = 12, 24, 36;  dP - delta + dL = -4, 8, 20;  dS = -4/3, 4, 10/3 (their sum is dL = 6).
 * dv = P dO = 2/3, 1, 1/3;  dbias = dS. With q = 3 and k = 0 (so that S = bias):
 * dq = sum dS k = 0,  dk = dS q = -4, 12, 10. */
static void backward_of_one_query(void **state) {
    (void)state;
    pfattn_attention a = small(1, 3, 1, 1, true);
    fill(&a.q, 3);
    fill(&a.k, 0);
    SET(a.bias, ln2, ln3, 0);
    SET(a.v, 6, 12, 18);
    fill(&a.dout, 2);
    fill(&a.dlse, 6);
    run(PF_FORWARD_JVP, &a);
    run(PF_BACKWARD, &a);
    EXPECT(a.dbias, 1e-14, -4.0 / 3, 4, 10.0 / 3);
    EXPECT(a.dv, 1e-14, 2.0 / 3, 1, 1.0 / 3);
    EXPECT(a.dk, 1e-14, -4, 12, 10);
    EXPECT(a.dq, 1e-14, 0);
}

/* q = 0, k = 1, -1, v = 4, 8, dO = 1: P = 1/2, 1/2, O = 6, dS = 1/2 (4 - 6), 1/2 (8 - 6) = -1, 1.
 * dq = -1 * 1 + 1 * -1 = -2; with alpha = 3 three times that. */
static void backward_scales_by_alpha(void **state) {
    (void)state;
    pfattn_attention a = small(1, 2, 1, 1, false);
    fill(&a.q, 0);
    SET(a.k, 1, -1);
    SET(a.v, 4, 8);
    fill(&a.dout, 1);
    run(PF_FORWARD, &a);
    run(PF_BACKWARD, &a);
    EXPECT(a.dq, 1e-15, -2);
    a.alpha = 3;
    run(PF_FORWARD, &a);
    run(PF_BACKWARD, &a);
    EXPECT(a.dq, 1e-15, -6);
    EXPECT(a.dk, 1e-15, 0, 0);
}

/* The same with tangents tq = 1: dt = 1, -1, mu = 0, tP = 1/2, -1/2, tO = -2, delta = 6,
 * tdelta = -2. dP - delta = -2, 2.  tdS = tP (dP - delta) - P tdelta = -1 + 1, -1 + 1 = 0, 0.
 * tdq = 0; tdk = dS tq = -1, 1; tdv = tP dO = 1/2, -1/2.
 * With tdO = 1 as well: tdP = 4, 8, tdelta = 6 - 2 = 4, tdS = -1 + (4 - 4)/2, -1 + (8 - 4)/2 = -1,
 * 1; tdq = -1 - 1 = -2; tdv = tP + P = 1, 0. */
static void backward_jvp_of_one_query(void **state) {
    (void)state;
    pfattn_attention a = small(1, 2, 1, 1, false);
    fill(&a.q, 0);
    SET(a.k, 1, -1);
    SET(a.v, 4, 8);
    fill(&a.dout, 1);
    fill(&a.tq, 1);
    run(PF_FORWARD_JVP, &a);
    run(PF_BACKWARD_JVP, &a);
    EXPECT(a.tdq, 1e-15, 0);
    EXPECT(a.tdk, 1e-15, -1, 1);
    EXPECT(a.tdv, 1e-15, 0.5, -0.5);
    fill(&a.tdout, 1);
    run(PF_BACKWARD_JVP, &a);
    EXPECT(a.tdq, 1e-15, -2);
    EXPECT(a.tdk, 1e-15, -1, 1);
    EXPECT(a.tdv, 1e-15, 1, 0);
}

/* q = 0, so P is uniform over the kept keys. Causal with M = N = 3, v = 6, 12, 24:
 * O = 6, 9, 14; L = ln 1, ln 2, ln 3. */
static void causal_averages(void **state) {
    (void)state;
    pfattn_attention a = small(3, 3, 1, 1, false);
    a.flags |= PFATTN_FLAG_CAUSAL;
    fill(&a.q, 0);
    SET(a.v, 6, 12, 24);
    run(PF_FORWARD, &a);
    EXPECT(a.o, 1e-14, 6, 9, 14);
    EXPECT(a.lse, 1e-15, 0, ln2, ln3);
}

/* Pair 1 gives e^S = 2 for every key, pair 2 e^S = 6 where i - j >= 1. M = N = 2, v = 4, 8:
 * row 0: 2, 2 -> O = 6, L = ln 4.  Row 1: key 0 is at distance 1: 6, 2 -> P = 3/4, 1/4, O = 5,
 * L = ln 8. dO = 1 in row 1 alone: delta = 5, dS = 3/4 (4 - 5), 1/4 (8 - 5) = -3/4, 3/4.
 * With q = k = q2 = k2 = the roots of their products, dq = dS_11 k, dq2 = dS_10 k2. */
static void piecewise_uses_the_second_pair_far_away(void **state) {
    (void)state;
    spec s = {.B = 1,
              .H = 1,
              .Hk = 1,
              .M = 2,
              .N = 2,
              .D = 1,
              .E = 1,
              .scaled = true,
              .alpha = 1,
              .piecewise = true,
              .distance = 1};
    pfattn_attention a = new_problem(&s);
    fill(&a.q, ln2);
    fill(&a.k, 1);
    fill(&a.q2, ln2 + ln3);
    fill(&a.k2, 1);
    SET(a.v, 4, 8);
    SET(a.dout, 0, 1);
    fill(&a.dlse, 0);
    run(PF_FORWARD, &a);
    EXPECT(a.o, 1e-14, 6, 5);
    EXPECT(a.lse, 1e-15, 2 * ln2, 3 * ln2);
    run(PF_BACKWARD, &a);
    EXPECT(a.dq, 1e-14, 0, 0.75);
    EXPECT(a.dq2, 1e-14, 0, -0.75);
    EXPECT(a.dk, 1e-14, 0, 0.75 * ln2);
    EXPECT(a.dk2, 1e-14, -0.75 * (ln2 + ln3), 0);
    EXPECT(a.dv, 1e-14, 0.75, 0.25);
}

/* Two query heads read one key head: q = 0, v = 4, 8 and dO = 1 for head 0, 3 for head 1.
 * O = 6 for both; dv = (1 + 3)/2 = 2, 2; dS = dO * (-1, 1); dk = 0 as q = 0; dq = dO * (-1 + 2)
 * with k = 1, 2. */
static void grouped_heads_share_keys_and_sum_their_gradients(void **state) {
    (void)state;
    spec s = {.B = 1, .H = 2, .Hk = 1, .M = 1, .N = 2, .D = 1, .E = 1, .scaled = true, .alpha = 1};
    pfattn_attention a = new_problem(&s);
    fill(&a.q, 0);
    SET(a.k, 1, 2);
    SET(a.v, 4, 8);
    SET(a.dout, 1, 3);
    fill(&a.dlse, 0);
    run(PF_FORWARD, &a);
    EXPECT(a.o, 1e-14, 6, 6);
    run(PF_BACKWARD, &a);
    EXPECT(a.dv, 1e-14, 2, 2);
    EXPECT(a.dq, 1e-14, 1, 3);
    EXPECT(a.dk, 1e-14, 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(forward_of_one_query, free_tensors_after),
        cmocka_unit_test_teardown(jvp_along_bias_and_value, free_tensors_after),
        cmocka_unit_test_teardown(jvp_along_query, free_tensors_after),
        cmocka_unit_test_teardown(backward_of_one_query, free_tensors_after),
        cmocka_unit_test_teardown(backward_scales_by_alpha, free_tensors_after),
        cmocka_unit_test_teardown(backward_jvp_of_one_query, free_tensors_after),
        cmocka_unit_test_teardown(causal_averages, free_tensors_after),
        cmocka_unit_test_teardown(piecewise_uses_the_second_pair_far_away, free_tensors_after),
        cmocka_unit_test_teardown(grouped_heads_share_keys_and_sum_their_gradients,
                                  free_tensors_after),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
