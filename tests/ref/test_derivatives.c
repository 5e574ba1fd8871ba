/* SPDX-License-Identifier: Apache-2.0 */
/* Every derivative in f64 against central finite differences, and duality. The problem has
 * everything at once: bias, mask, causal, piecewise, grouped heads, D != E; each derivative by
 * itself. */
#include "harness.h"

static const spec everything = {.B = 2,
                                .H = 4,
                                .Hk = 2,
                                .M = 5,
                                .N = 6,
                                .D = 3,
                                .E = 4,
                                .causal = true,
                                .shifted = true,
                                .diagonal = 3,
                                .piecewise = true,
                                .distance = 2,
                                .bias = {1, 4, 5, 6},
                                .mask = {2, 1, 5, 6}};

static const double step = 1e-5;

static double inner(const pfattn_tensor *x, const pfattn_tensor *y) {
    double sum = 0;
    for (int64_t n = 0; n < element_count(x); n++) {
        sum +=
            isfinite(get_nth(x, n)) && isfinite(get_nth(y, n)) ? get_nth(x, n) * get_nth(y, n) : 0;
    }
    return sum;
}

static void expect_near(const char *name, int64_t n, double got, double want) {
    if (!(fabs(got - want) <= 2e-9 * fmax(1, fabs(want)))) {
        fail_msg("%s: element %lld is %.12g, finite differences say %.12g", name, (long long)n, got,
                 want);
    }
}

/* f = <dO, O> + <dL, L>, whose gradients backward gives. */
static double objective(const pfattn_attention *a) {
    run(PF_FORWARD, a);
    return inner(&a->dout, &a->o) + inner(&a->dlse, &a->lse);
}

/* Each element of one input moved by itself. */
static void check_gradient(const char *input, const char *gradient) {
    seed_random(7);
    pfattn_attention a = new_problem(&everything);
    run(PF_FORWARD, &a);
    run(PF_BACKWARD, &a);
    const pfattn_tensor *x = tensor_named(&a, input), *g = tensor_named(&a, gradient);
    double largest = 0;
    for (int64_t n = 0; n < element_count(x); n++) {
        const double value = get_nth(x, n);
        set_nth(x, n, value + step);
        const double above = objective(&a);
        set_nth(x, n, value - step);
        const double below = objective(&a);
        set_nth(x, n, value);
        expect_near(gradient, n, get_nth(g, n), (above - below) / (2 * step));
        largest = fmax(largest, fabs(get_nth(g, n)));
    }
    assert_true(largest > 0.1); /* a gradient of zeros would prove nothing */
}

static void dq_is_the_gradient_of_q(void **state) {
    (void)state;
    check_gradient("q", "dq");
}

static void dk_is_the_gradient_of_k(void **state) {
    (void)state;
    check_gradient("k", "dk");
}

static void dv_is_the_gradient_of_v(void **state) {
    (void)state;
    check_gradient("v", "dv");
}

static void dbias_is_the_gradient_of_bias(void **state) {
    (void)state;
    check_gradient("bias", "dbias");
}

static void dq2_is_the_gradient_of_q2(void **state) {
    (void)state;
    check_gradient("q2", "dq2");
}

static void dk2_is_the_gradient_of_k2(void **state) {
    (void)state;
    check_gradient("k2", "dk2");
}

static const char *const inputs[] = {"q", "k", "v", "bias", "q2", "k2", "dout"};
static const char *const tangents[] = {"tq", "tk", "tv", "tbias", "tq2", "tk2", "tdout"};
enum { DIRECTIONS = sizeof inputs / sizeof *inputs };

/* Move every input along its tangent. */
static void move(pfattn_attention *a, double by) {
    for (int d = 0; d < DIRECTIONS; d++) {
        const pfattn_tensor *x = tensor_named(a, inputs[d]), *t = tensor_named(a, tangents[d]);
        for (int64_t n = 0; n < element_count(x); n++) {
            set_nth(x, n, get_nth(x, n) + by * get_nth(t, n));
        }
    }
}

static void zero_tangents_but(pfattn_attention *a, const char *kept) {
    for (int d = 0; d < DIRECTIONS; d++) {
        if (kept != NULL && tensor_named(a, tangents[d]) != tensor_named(a, kept)) {
            fill(tensor_named(a, tangents[d]), 0);
        }
    }
}

static void expect_difference(pfattn_attention *a, const char *tangent, const double *above,
                              const double *below) {
    const pfattn_tensor *t = tensor_named(a, tangent);
    for (int64_t n = 0; n < element_count(t); n++) {
        if (isfinite(above[n])) {
            expect_near(tangent, n, get_nth(t, n), (above[n] - below[n]) / (2 * step));
        } else {
            assert_true(get_nth(t, n) == 0); /* tL of an empty row */
        }
    }
}

/* The outputs of `jvp`, taken before anything moves, against the differences of those of `plain`.
 */
static void check_tangents(const char *direction, pf_operation plain, pf_operation jvp,
                           const char *const *values, const char *const *derivatives, int count) {
    const double *above[8], *below[8];
    seed_random(8);
    pfattn_attention a = new_problem(&everything);
    zero_tangents_but(&a, direction);
    run(PF_FORWARD_JVP, &a);
    run(jvp, &a);
    for (int side = 0; side < 2; side++) {
        move(&a, side == 0 ? step : -2 * step);
        run(PF_FORWARD, &a);
        run(plain, &a);
        for (int n = 0; n < count; n++) {
            (side == 0 ? above : below)[n] = copy_of(tensor_named(&a, values[n]));
        }
    }
    for (int n = 0; n < count; n++) {
        expect_difference(&a, derivatives[n], above[n], below[n]);
    }
}

static void check_jvp(const char *direction) {
    static const char *const values[] = {"o", "lse"}, *const derivatives[] = {"to", "tlse"};
    check_tangents(direction, PF_FORWARD, PF_FORWARD_JVP, values, derivatives, 2);
}

static void jvp_is_the_derivative_along_each_tangent(void **state) {
    (void)state;
    for (int d = 0; d < DIRECTIONS; d++) {
        check_jvp(tangents[d]);
    }
}

static void jvp_is_the_derivative_along_all_tangents(void **state) {
    (void)state;
    check_jvp(NULL);
}

static void check_backward_jvp(const char *direction) {
    static const char *const values[] = {"dq", "dk", "dv", "dbias", "dq2", "dk2"};
    static const char *const derivatives[] = {"tdq", "tdk", "tdv", "tdbias", "tdq2", "tdk2"};
    check_tangents(direction, PF_BACKWARD, PF_BACKWARD_JVP, values, derivatives, 6);
}

static void backward_jvp_is_the_derivative_of_backward_along_each_tangent(void **state) {
    (void)state;
    for (int d = 0; d < DIRECTIONS; d++) {
        check_backward_jvp(tangents[d]);
    }
}

static void backward_jvp_is_the_derivative_of_backward_along_all_tangents(void **state) {
    (void)state;
    check_backward_jvp(NULL);
}

/* <dO, tO> + <dL, tL> = sum over the inputs of <gradient, tangent>. */
static void check_duality(const spec *s, double tolerance) {
    static const char *const gradients[] = {"dq", "dk", "dv", "dbias", "dq2", "dk2"};
    pfattn_attention a = new_problem(s);
    run(PF_FORWARD_JVP, &a);
    run(PF_BACKWARD, &a);
    const double left = inner(&a.dout, &a.to) + inner(&a.dlse, &a.tlse);
    double right = 0;
    for (int d = 0; d < 6; d++) {
        const pfattn_tensor *g = tensor_named(&a, gradients[d]);
        if (g->dtype != PFATTN_DTYPE_NONE) {
            right += inner(g, tensor_named(&a, tangents[d]));
        }
    }
    assert_true(fabs(left) > 0.1);
    assert_true(fabs(left - right) <= tolerance * fmax(1, fabs(left)));
}

static void jvp_and_backward_are_dual(void **state) {
    (void)state;
    seed_random(9);
    check_duality(&everything, 1e-12);
    spec s = everything;
    s.M = 150;
    s.N = 200;
    s.bias[2] = 1;
    s.bias[3] = 200;
    s.mask[2] = 150;
    s.mask[3] = 1;
    s.distance = 70;
    s.diagonal = 40;
    check_duality(&s, 1e-11);
    s.dtype = PFATTN_DTYPE_F32;
    check_duality(&s, 1e-4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(dq_is_the_gradient_of_q, free_tensors_after),
        cmocka_unit_test_teardown(dk_is_the_gradient_of_k, free_tensors_after),
        cmocka_unit_test_teardown(dv_is_the_gradient_of_v, free_tensors_after),
        cmocka_unit_test_teardown(dbias_is_the_gradient_of_bias, free_tensors_after),
        cmocka_unit_test_teardown(dq2_is_the_gradient_of_q2, free_tensors_after),
        cmocka_unit_test_teardown(dk2_is_the_gradient_of_k2, free_tensors_after),
        cmocka_unit_test_teardown(jvp_is_the_derivative_along_each_tangent, free_tensors_after),
        cmocka_unit_test_teardown(jvp_is_the_derivative_along_all_tangents, free_tensors_after),
        cmocka_unit_test_teardown(backward_jvp_is_the_derivative_of_backward_along_each_tangent,
                                  free_tensors_after),
        cmocka_unit_test_teardown(backward_jvp_is_the_derivative_of_backward_along_all_tangents,
                                  free_tensors_after),
        cmocka_unit_test_teardown(jvp_and_backward_are_dual, free_tensors_after),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
