/* SPDX-License-Identifier: Apache-2.0 */
/* merge by hand, and against the operation on all keys at once. */
#include "harness.h"

static const double infinity = (double)INFINITY, not_a_number = (double)NAN;

static pfattn_merge_args new_merge(pfattn_dtype dtype, layout where, int64_t B, int64_t H,
                                   int64_t M, int64_t E) {
    const pfattn_dtype wide = dtype == PFATTN_DTYPE_F64 ? dtype : PFATTN_DTYPE_F32;
    pfattn_merge_args m = PFATTN_MERGE_ARGS_INIT;
    pfattn_tensor *const rows[] = {&m.o0, &m.o1, &m.o, &m.to0, &m.to1, &m.to};
    pfattn_tensor *const columns[] = {&m.lse0, &m.lse1, &m.lse, &m.tlse0, &m.tlse1, &m.tlse};
    for (int n = 0; n < 6; n++) {
        *rows[n] = new_tensor(dtype, where, B, H, M, E);
        *columns[n] = new_tensor(wide, where, B, H, M, 1);
    }
    return m;
}

/* L0 = ln 1, L1 = ln 3: weights 1/4, 3/4. O = 8/4 + 16 * 3/4 = 14, L = ln 4.
 * tL = 2/4 + 6 * 3/4 = 5.  tO = 1/4 (1 + (2 - 5) 8) + 3/4 (1 + (6 - 5) 16) = -23/4 + 51/4 = 7. */
static void worked_example(void **state) {
    (void)state;
    pfattn_merge_args m = new_merge(PFATTN_DTYPE_F64, BHSD, 1, 1, 1, 1);
    fill(&m.o0, 8);
    fill(&m.o1, 16);
    fill(&m.lse0, 0);
    fill(&m.lse1, log(3));
    fill(&m.tlse0, 2);
    fill(&m.tlse1, 6);
    fill(&m.to0, 1);
    fill(&m.to1, 1);
    run_merge(&m);
    EXPECT(m.o, 1e-15, 14);
    EXPECT(m.lse, 1e-15, log(4));
    EXPECT(m.tlse, 1e-15, 5);
    EXPECT(m.to, 1e-15, 7);
}

/* An empty part has weight 0 whatever its other tensors hold; two empty parts stay empty. */
static void empty_parts(void **state) {
    (void)state;
    for (int empty = 1; empty < 4; empty++) {
        pfattn_merge_args m = new_merge(PFATTN_DTYPE_F32, BHSD, 1, 1, 1, 2);
        pfattn_tensor *const o[] = {&m.o0, &m.o1}, *const to[] = {&m.to0, &m.to1},
                             *const lse[] = {&m.lse0, &m.lse1},
                             *const tlse[] = {&m.tlse0, &m.tlse1};
        for (int part = 0; part < 2; part++) {
            const bool none = empty >> part & 1;
            fill(lse[part], none ? -infinity : 2.5);
            fill(o[part], none ? not_a_number : 3);
            fill(to[part], none ? infinity : 4);
            fill(tlse[part], none ? not_a_number : 5);
        }
        run_merge(&m);
        const bool both = empty == 3;
        EXPECT(m.lse, 0, both ? -infinity : 2.5);
        EXPECT(m.o, 0, both ? 0 : 3, both ? 0 : 3);
        EXPECT(m.tlse, 0, both ? 0 : 5);
        EXPECT(m.to, 0, both ? 0 : 4, both ? 0 : 4);
        free_tensors();
    }
}

/* Far apart, neither overflows: the smaller part vanishes. */
static void parts_of_very_different_weight(void **state) {
    (void)state;
    const double shifts[] = {1e4, -1e4, 3e38, -3e38};
    for (int n = 0; n < 4; n++) {
        pfattn_merge_args m = new_merge(PFATTN_DTYPE_F32, BHSD, 1, 1, 1, 1);
        fill(&m.lse0, shifts[n]);
        fill(&m.lse1, 0);
        fill(&m.o0, 1);
        fill(&m.o1, 2);
        m.to0 = m.to1 = m.tlse0 = m.tlse1 = m.to = m.tlse = (pfattn_tensor){0};
        run_merge(&m);
        EXPECT(m.o, 0, shifts[n] > 0 ? 1 : 2);
        EXPECT(m.lse, 0, (float)(shifts[n] > 0 ? shifts[n] : 0));
        free_tensors();
    }
}

static void nan_stays_in_its_row(void **state) {
    (void)state;
    pfattn_merge_args m = new_merge(PFATTN_DTYPE_F64, BHSD, 1, 1, 3, 2);
    pfattn_tensor *const all[] = {&m.o0,  &m.o1,  &m.lse0,  &m.lse1,
                                  &m.to0, &m.to1, &m.tlse0, &m.tlse1};
    for (int n = 0; n < 8; n++) {
        fill_random(all[n], 1);
    }
    set(&m.lse0, 0, 0, 0, 0, not_a_number);
    set(&m.lse1, 0, 0, 2, 0, not_a_number);
    run_merge(&m);
    for (int64_t i = 0; i < 3; i++) {
        assert_int_equal(isnan(get(&m.lse, 0, 0, i, 0)) != 0, i != 1);
        assert_int_equal(isnan(get(&m.o, 0, 0, i, 1)) != 0, i != 1);
        assert_int_equal(isnan(get(&m.to, 0, 0, i, 1)) != 0, i != 1);
    }
}

/* `count` keys of x from `first`, as a view. */
static pfattn_tensor keys(const pfattn_tensor *x, int dimension, int64_t first, int64_t count) {
    pfattn_tensor part = *x;
    if (x->dtype != PFATTN_DTYPE_NONE && x->shape[dimension] != 1) {
        part.data =
            (char *)x->data + first * x->stride[dimension] * (int64_t)pfattn_dtype_size(x->dtype);
        part.shape[dimension] = count;
    }
    return part;
}

/* The operation on keys [first, first + count) of a longer sequence: the diagonal moves with them.
 */
static void run_part(const pfattn_attention *whole, int64_t first, int64_t count,
                     const pfattn_tensor results[4]) {
    pfattn_attention part = *whole;
    part.k = keys(&whole->k, 2, first, count);
    part.v = keys(&whole->v, 2, first, count);
    part.tk = keys(&whole->tk, 2, first, count);
    part.tv = keys(&whole->tv, 2, first, count);
    part.bias = keys(&whole->bias, 3, first, count);
    part.tbias = keys(&whole->tbias, 3, first, count);
    part.diagonal -= first;
    part.o = results[0];
    part.lse = results[1];
    part.to = results[2];
    part.tlse = results[3];
    run(PF_FORWARD_JVP, &part);
}

static void check_split(pfattn_dtype dtype, int64_t split, bool in_place, double tolerance) {
    const spec s = {.dtype = dtype,
                    .B = 2,
                    .H = 4,
                    .Hk = 2,
                    .M = 70,
                    .N = 90,
                    .D = 8,
                    .E = 5,
                    .causal = true,
                    .shifted = true,
                    .diagonal = 7,
                    .bias = {1, 4, 70, 90},
                    .where = SCATTERED};
    pfattn_attention a = new_problem(&s);
    run(PF_FORWARD_JVP, &a);
    pfattn_merge_args m = new_merge(dtype, SCATTERED, s.B, s.H, s.M, s.E);
    run_part(&a, 0, split, (pfattn_tensor[]){m.o0, m.lse0, m.to0, m.tlse0});
    run_part(&a, split, s.N - split, (pfattn_tensor[]){m.o1, m.lse1, m.to1, m.tlse1});
    if (in_place) {
        m.o = m.o1;
        m.lse = m.lse0;
        m.to = m.to0;
        m.tlse = m.tlse1;
    }
    run_merge(&m);
    expect_close("o", &m.o, copy_of(&a.o), tolerance);
    expect_close("lse", &m.lse, copy_of(&a.lse), tolerance);
    expect_close("to", &m.to, copy_of(&a.to), tolerance);
    expect_close("tlse", &m.tlse, copy_of(&a.tlse), tolerance);
    free_tensors();
}

/* Rows of the second part are empty under causality, and with a split at 0 or 90 one part has no
 * key. */
static void parts_of_the_keys_merge_into_the_whole(void **state) {
    (void)state;
    const int64_t splits[] = {0, 1, 33, 64, 89, 90};
    for (int n = 0; n < 6; n++) {
        check_split(PFATTN_DTYPE_F64, splits[n], false, 1e-13);
        check_split(PFATTN_DTYPE_F64, splits[n], true, 1e-13);
        check_split(PFATTN_DTYPE_F32, splits[n], n % 2, 1e-5);
    }
}

static void each_output_alone(void **state) {
    (void)state;
    pfattn_merge_args m = new_merge(PFATTN_DTYPE_F64, BSHD, 2, 2, 3, 4);
    pfattn_tensor *const in[] = {&m.o0,  &m.o1,  &m.lse0,  &m.lse1,
                                 &m.to0, &m.to1, &m.tlse0, &m.tlse1};
    for (int n = 0; n < 8; n++) {
        fill_random(in[n], 1);
    }
    run_merge(&m);
    const pfattn_merge_args all = m;
    pfattn_tensor *const out[] = {&m.o, &m.lse, &m.to, &m.tlse};
    const double *const want[] = {copy_of(&m.o), copy_of(&m.lse), copy_of(&m.to), copy_of(&m.tlse)};
    for (int kept = 0; kept < 4; kept++) {
        m = all;
        for (int n = 0; n < 4; n++) {
            fill(out[n], not_a_number);
        }
        for (int n = 0; n < 4; n++) {
            *out[n] = n == kept ? *out[n] : (pfattn_tensor){0};
        }
        if (kept < 2) { /* tangents are given only where theirs are asked for */
            m.to0 = m.to1 = m.tlse0 = m.tlse1 = (pfattn_tensor){0};
        }
        run_merge(&m);
        expect_close("the only output", out[kept], want[kept], 0);
    }
}

/* Parts of mixed types: 1.5 in f16 and 3 in e5m2, equal weights, O = 2.25 in bf16. */
static void parts_may_differ_in_type(void **state) {
    (void)state;
    pfattn_merge_args m = PFATTN_MERGE_ARGS_INIT;
    m.o0 = new_tensor(PFATTN_DTYPE_F16, BHSD, 1, 1, 1, 1);
    m.o1 = new_tensor(PFATTN_DTYPE_E5M2, BHSD, 1, 1, 1, 1);
    m.o = new_tensor(PFATTN_DTYPE_BF16, BHSD, 1, 1, 1, 1);
    m.lse0 = new_tensor(PFATTN_DTYPE_F32, BHSD, 1, 1, 1, 1);
    m.lse1 = new_tensor(PFATTN_DTYPE_F32, BHSD, 1, 1, 1, 1);
    fill(&m.o0, 1.5);
    fill(&m.o1, 3);
    fill(&m.lse0, 1);
    fill(&m.lse1, 1);
    run_merge(&m);
    EXPECT(m.o, 0, 2.25);
}

static void zero_extents_merge(void **state) {
    (void)state;
    pfattn_merge_args m = new_merge(PFATTN_DTYPE_F64, BHSD, 1, 2, 2, 0);
    fill(&m.lse0, 0);
    fill(&m.lse1, 0);
    fill(&m.tlse0, 1);
    fill(&m.tlse1, 3);
    run_merge(&m);
    EXPECT(m.lse, 1e-15, log(2), log(2), log(2), log(2));
    EXPECT(m.tlse, 1e-15, 2, 2, 2, 2);
    m = new_merge(PFATTN_DTYPE_F64, BHSD, 1, 2, 0, 3);
    run_merge(&m);
}

#define TEST(name) cmocka_unit_test_teardown(name, free_tensors_after)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(worked_example),
        TEST(empty_parts),
        TEST(parts_of_very_different_weight),
        TEST(nan_stays_in_its_row),
        TEST(parts_of_the_keys_merge_into_the_whole),
        TEST(each_output_alone),
        TEST(parts_may_differ_in_type),
        TEST(zero_extents_merge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
