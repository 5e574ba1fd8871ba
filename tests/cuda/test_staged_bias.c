/* SPDX-License-Identifier: Apache-2.0 */
/* Which problems have their bias and mask staged by tiles, and in how many stages. */
#include "problems.h"

#include "kargs_fill.h"
#include "staged_bias.h"

/* 64 queries x 128 keys in forward: a tile of bias is 64 * 256 bytes, one of mask half of that. */
static pf_tuning tuning(int op, int bias_kib) {
    return (pf_tuning){
        .op = op, .owned_tile = 64, .cross_tile = 128, .stages = 2, .bias_bytes = bias_kib * 1024};
}

static pfattn_attention attention(void) {
    return test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 160, 64, 64});
}

static int stages(const pfattn_attention *a, int bias_kib) {
    const pf_problem problem = test_problem(PF_FORWARD, a);
    const pf_tuning t = tuning(PF_OP_FORWARD, bias_kib);
    bool apart;
    return pf_bias_stages(&problem, &t, &apart);
}

/* Does each tensor have a stage of its own? */
static bool apart(const pfattn_attention *a, int bias_kib) {
    const pf_problem problem = test_problem(PF_FORWARD, a);
    const pf_tuning t = tuning(PF_OP_FORWARD, bias_kib);
    bool apart;
    pf_bias_stages(&problem, &t, &apart);
    return apart;
}

/* As many as there is memory for, at most those of the other rings. */
static void stages_fill_memory(void **state) {
    (void)state;
    pfattn_attention a = attention();
    assert_int_equal(stages(&a, 64), 0); /* there is nothing to stage */
    test_add_bias(&a, PFATTN_DTYPE_F16, 2, 4, 100, 160);
    assert_int_equal(stages(&a, 0), 0);
    assert_int_equal(stages(&a, 15), 0);
    assert_int_equal(stages(&a, 16), 1);
    assert_int_equal(stages(&a, 32), 2);
    assert_int_equal(stages(&a, 64), 2);
    test_add_mask(&a, 2, 4, 100, 160);
    assert_int_equal(stages(&a, 47), 1);
    assert_int_equal(stages(&a, 48), 2);
}

static int staged(pf_operation operation, const pfattn_attention *a, int op, int bias_kib) {
    const pf_problem problem = test_problem(operation, a);
    const pf_tuning t = tuning(op, bias_kib);
    return pf_staged(&problem, &t);
}

/* A bias alone, with its tangent in the JVP, and a mask alone, without tangents and where a greater
 * dot product is a greater score, are kinds of their own. */
static void kinds_of_staged_tensors(void **state) {
    (void)state;
    pfattn_attention a = attention();
    assert_int_equal(staged(PF_FORWARD, &a, PF_OP_FORWARD, 64), PF_STAGED_ANY);
    test_add_mask(&a, 2, 4, 100, 160);
    assert_int_equal(staged(PF_FORWARD, &a, PF_OP_FORWARD, 64), PF_STAGED_MASK);
    assert_int_equal(staged(PF_FORWARD, &a, PF_OP_FORWARD, 0), PF_STAGED_ANY);
    a.flags |= PFATTN_FLAG_ALPHA;
    a.alpha = -1;
    assert_int_equal(staged(PF_FORWARD, &a, PF_OP_FORWARD, 64), PF_STAGED_ANY);
    a.alpha = 1;
    test_add_bias(&a, PFATTN_DTYPE_F16, 2, 4, 100, 160);
    assert_int_equal(staged(PF_FORWARD, &a, PF_OP_FORWARD, 64), PF_STAGED_ANY);

    a = attention();
    test_add_bias(&a, PFATTN_DTYPE_F16, 2, 4, 100, 160);
    assert_int_equal(staged(PF_FORWARD, &a, PF_OP_FORWARD, 64), PF_STAGED_BIAS);
    a = attention();
    test_add_bias(&a, PFATTN_DTYPE_F32, 2, 4, 100, 160);
    assert_int_equal(staged(PF_FORWARD, &a, PF_OP_FORWARD, 64), PF_STAGED_ANY);

    a = test_attention(PF_FORWARD_JVP, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 160, 64, 64});
    test_add_bias(&a, PFATTN_DTYPE_F16, 2, 4, 100, 160);
    assert_int_equal(staged(PF_FORWARD_JVP, &a, PF_OP_FORWARD_JVP, 64), PF_STAGED_ANY);
    a.tbias = a.bias;
    assert_int_equal(staged(PF_FORWARD_JVP, &a, PF_OP_FORWARD_JVP, 64), PF_STAGED_BIAS);
    a.bias = a.tbias = (pfattn_tensor){0};
    test_add_mask(&a, 2, 4, 100, 160);
    assert_int_equal(staged(PF_FORWARD_JVP, &a, PF_OP_FORWARD_JVP, 64), PF_STAGED_ANY);
}

/* Without room for all tensors at once, stages of the largest tile: bias's. */
static void stages_apart(void **state) {
    (void)state;
    pfattn_attention a = attention();
    test_add_bias(&a, PFATTN_DTYPE_F16, 2, 4, 100, 160);
    assert_false(apart(&a, 15));
    assert_false(apart(&a, 16));
    test_add_mask(&a, 2, 4, 100, 160);
    assert_int_equal(stages(&a, 15), 0);
    assert_false(apart(&a, 15));
    assert_int_equal(stages(&a, 16), 1);
    assert_true(apart(&a, 16));
    assert_int_equal(stages(&a, 23), 1);
    assert_true(apart(&a, 23));
    assert_int_equal(stages(&a, 24), 1);
    assert_false(apart(&a, 24));
}

/* Backward's tiles have owned keys: 128 queries x 64 keys here, of 128 bytes a query for bias and
 * for mask alike. */
static void backward_tiles(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, (test_shape){1, 1, 1, 100, 160, 64, 64});
    test_add_bias(&a, PFATTN_DTYPE_F16, 1, 1, 100, 160);
    test_add_mask(&a, 1, 1, 100, 160);
    const pf_problem problem = test_problem(PF_BACKWARD, &a);
    pf_tuning t = tuning(PF_OP_BACKWARD, 31);
    bool apart = true;
    assert_int_equal(pf_bias_stages(&problem, &t, &apart), 0);
    assert_false(apart); /* as it would be in forward */
    t = tuning(PF_OP_BACKWARD, 32);
    assert_int_equal(pf_bias_stages(&problem, &t, &apart), 1);
}

/* Broadcast over batches, heads and queries, not over keys; of the operands' type; rows of whole
 * 16-byte units. */
static void layouts(void **state) {
    (void)state;
    pfattn_attention a = attention();
    test_add_bias(&a, PFATTN_DTYPE_F16, 1, 1, 1, 160);
    assert_int_equal(stages(&a, 64), 2);
    test_add_bias(&a, PFATTN_DTYPE_F16, 1, 1, 100, 160);
    a.bias.stride[2] = 0;
    assert_int_equal(stages(&a, 64), 2);
    test_add_bias(&a, PFATTN_DTYPE_F16, 2, 4, 100, 1);
    assert_int_equal(stages(&a, 64), 0);
    test_add_bias(&a, PFATTN_DTYPE_F32, 2, 4, 100, 160);
    assert_int_equal(stages(&a, 64), 0);
    test_add_bias(&a, PFATTN_DTYPE_F16, 2, 4, 100, 160);
    a.bias.stride[2] = 164;
    assert_int_equal(stages(&a, 64), 0);
    a.bias.stride[2] = 168;
    assert_int_equal(stages(&a, 64), 2);
    a.bias.data = (char *)a.bias.data + 2;
    assert_int_equal(stages(&a, 64), 0);
    test_add_bias(&a, PFATTN_DTYPE_F16, 2, 4, 100, 160);
    test_add_mask(&a, 1, 1, 1, 160);
    assert_int_equal(stages(&a, 64), 2);
    a.mask.data = (char *)a.mask.data + 8;
    assert_int_equal(stages(&a, 64), 0);
}

static bool dbias_is_staged(pfattn_attention *a) {
    const pf_problem problem = test_problem(PF_BACKWARD, a);
    return pf_dbias_is_staged(&problem);
}

/* dbias of every score's own, and of the operands' type; not in two shares, nor in rows past whose
 * end a copy would write. */
static void dbias(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 4, 100, 160, 64, 64});
    test_add_bias(&a, PFATTN_DTYPE_F16, 2, 4, 100, 160);
    assert_false(dbias_is_staged(&a)); /* none is wanted */
    a.dbias = test_dense(PFATTN_DTYPE_F16, 2, 4, 100, 160);
    assert_true(dbias_is_staged(&a));
    a.dbias.stride[2] = 164;
    a.dbias.stride[1] = 16400;
    a.dbias.stride[0] = 65600;
    assert_false(dbias_is_staged(&a));
    a.dbias = test_dense(PFATTN_DTYPE_F32, 2, 4, 100, 160);
    assert_false(dbias_is_staged(&a));
    pfattn_attention odd =
        test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 4, 100, 157, 64, 64});
    test_add_bias(&odd, PFATTN_DTYPE_F16, 2, 4, 100, 160);
    odd.dbias = test_dense(PFATTN_DTYPE_F16, 2, 4, 100, 160);
    odd.bias.shape[3] = odd.dbias.shape[3] = 157; /* in rows of 320 bytes */
    assert_false(dbias_is_staged(&odd));
    a.dbias = test_dense(PFATTN_DTYPE_F16, 2, 4, 100, 160);
    test_add_pair(&a, 7);
    assert_false(dbias_is_staged(&a));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_fill_memory),
        cmocka_unit_test(kinds_of_staged_tensors),
        cmocka_unit_test(stages_apart),
        cmocka_unit_test(backward_tiles),
        cmocka_unit_test(layouts),
        cmocka_unit_test(dbias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
