/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts, subsets of outputs, broadcast bias and zero extents: what must not change a result.
 * Every tensor stands between guard zones, which are checked after each test, and every output is
 * NaN before. */
#include <string.h>

#include "harness.h"
#include "naive.h"

/* Everything at once, more than one tile each way. */
static const spec everything = {.B = 2,
                                .H = 4,
                                .Hk = 2,
                                .M = 70,
                                .N = 90,
                                .D = 5,
                                .E = 7,
                                .causal = true,
                                .shifted = true,
                                .diagonal = 10,
                                .piecewise = true,
                                .distance = 30,
                                .bias = {2, 1, 70, 90},
                                .mask = {1, 4, 70, 90}};

static const int inputs_and_outputs = PF_O0;

static void every_layout_gives_the_same_result(void **state) {
    (void)state;
    const double *want[PF_O0] = {NULL};
    spec s = everything;
    for (int where = 0; where < LAYOUT_COUNT; where++) {
        s.where = (layout)where;
        seed_random(3); /* numbers are drawn in order of indices, whatever the layout */
        pfattn_attention a = new_problem(&s);
        run_everything(&a);
        for (int id = 0; id < inputs_and_outputs; id++) {
            const pfattn_tensor *x = tensor_at(&a, id);
            if (where == 0) {
                want[id] = copy_of(x);
            } else {
                expect_close(pf_tensor_name((pf_tensor_id)id), x, want[id], 0);
            }
        }
        if (where == 0) {
            expect_all_formulas(&a, 1e-12);
        }
    }
}

/* q, k, v as three views of one [B,S,3,H,D] tensor, and o, dq, dk, dv as views of others. */
static void packed_qkv_equals_separate_tensors(void **state) {
    (void)state;
    spec s = {.B = 2, .H = 3, .Hk = 3, .M = 6, .N = 6, .D = 4, .E = 4, .causal = true};
    pfattn_attention a = new_problem(&s);
    run(PF_FORWARD, &a);
    run(PF_BACKWARD, &a);
    const double *o = copy_of(&a.o), *dq = copy_of(&a.dq), *dk = copy_of(&a.dk),
                 *dv = copy_of(&a.dv);
    const pfattn_tensor in = new_tensor(PFATTN_DTYPE_F64, BHSD, s.B, s.M, 3 * s.H, s.D);
    const pfattn_tensor out = new_tensor(PFATTN_DTYPE_F64, BHSD, s.B, s.M, 3 * s.H, s.D);
    pfattn_tensor *const views[2][3] = {{&a.q, &a.k, &a.v}, {&a.dq, &a.dk, &a.dv}};
    for (int n = 0; n < 6; n++) {
        const pfattn_tensor *whole = n < 3 ? &in : &out;
        pfattn_tensor packed = *views[n / 3][n % 3];
        packed.data = (double *)whole->data + n % 3 * s.H * s.D;
        packed.stride[0] = whole->stride[0];
        packed.stride[1] = whole->stride[2];
        packed.stride[2] = whole->stride[1];
        packed.stride[3] = 1;
        if (n < 3) {
            set_all(&packed, copy_of(views[0][n]));
        }
        *views[n / 3][n % 3] = packed;
    }
    run(PF_FORWARD, &a);
    run(PF_BACKWARD, &a);
    expect_close("o", &a.o, o, 0);
    expect_close("dq", &a.dq, dq, 0);
    expect_close("dk", &a.dk, dk, 0);
    expect_close("dv", &a.dv, dv, 0);
}

/* Inputs broadcast by stride 0 along each dimension in turn equal inputs that repeat their values.
 */
static void stride_0_broadcasts_any_dimension_of_an_input(void **state) {
    (void)state;
    static const char *const inputs[] = {"q",  "k",  "v",  "q2",  "k2",  "bias", "mask",
                                         "tq", "tk", "tv", "tq2", "tk2", "dout", "dlse"};
    for (int d = 0; d < 4; d++) {
        spec s = {.B = 2,
                  .H = 2,
                  .Hk = 2,
                  .M = 4,
                  .N = 4,
                  .D = 3,
                  .E = 3,
                  .piecewise = true,
                  .bias = {2, 2, 4, 4},
                  .mask = {2, 2, 4, 4}};
        pfattn_attention a = new_problem(&s);
        for (size_t n = 0; n < sizeof inputs / sizeof *inputs; n++) {
            tensor_named(&a, inputs[n])->stride[d] = 0;
        }
        run_everything(&a);
        expect_all_formulas(&a, 1e-13);
        free_tensors();
    }
}

/* The stride of a dimension of size 1 is never used. */
static void odd_strides_of_size_1_dimensions_do_not_matter(void **state) {
    (void)state;
    spec s = {.B = 1, .H = 1, .Hk = 1, .M = 1, .N = 1, .D = 1, .E = 1, .bias = {1, 1, 1, 1}};
    pfattn_attention a = new_problem(&s);
    for (int id = 0; id < inputs_and_outputs; id++) {
        for (int d = 0; d < 4; d++) {
            tensor_at(&a, id)->stride[d] = INT64_C(1) << (40 + d);
        }
    }
    run_everything(&a);
    for (int id = 0; id < inputs_and_outputs; id++) {
        memset(tensor_at(&a, id)->stride, 0, sizeof a.q.stride);
    }
    expect_all_formulas(&a, 1e-14);
}

/* Run with some of the outputs only; those present equal `want`, and the others' memory is left
 * alone. */
static void check_subset(pf_operation operation, const pfattn_attention *all, int first, int last,
                         int subset, double *const *want) {
    pfattn_attention a = for_operation(operation, all);
    for (int id = first; id <= last; id++) {
        fill(tensor_at(&a, id), (double)NAN);
        if (!(subset >> (id - first) & 1)) {
            *tensor_at(&a, id) = (pfattn_tensor){0};
        }
    }
    run_with(operation, &a, NULL);
    for (int id = first; id <= last; id++) {
        const pfattn_tensor *x = tensor_at(&a, id);
        if (x->dtype != PFATTN_DTYPE_NONE) {
            expect_close(pf_tensor_name((pf_tensor_id)id), x, want[id], 0);
        }
    }
}

static void check_every_subset(pf_operation operation, const pfattn_attention *all, int first,
                               int last) {
    double *want[PF_O0];
    run(operation, all);
    for (int id = first; id <= last; id++) {
        pfattn_attention a = *all;
        want[id] = copy_of(tensor_at(&a, id));
    }
    for (int subset = 1; subset < 1 << (last - first + 1); subset++) {
        const bool jvp = operation == PF_FORWARD_JVP;
        if (!jvp || (subset & 12) != 0) { /* JVP is asked for by to or tlse */
            check_subset(operation, all, first, last, subset, want);
        }
    }
    for (int id = first; id <= last; id++) { /* for whoever reads them next */
        pfattn_attention a = *all;
        set_all(tensor_at(&a, id), want[id]);
    }
}

static void every_subset_of_outputs_is_right(void **state) {
    (void)state;
    spec s = everything;
    s.M = 9;
    s.N = 11;
    s.bias[2] = s.mask[2] = 9;
    s.bias[3] = s.mask[3] = 11;
    s.distance = 4;
    const pfattn_attention a = new_problem(&s);
    check_every_subset(PF_FORWARD, &a, PF_O, PF_LSE);
    check_every_subset(PF_FORWARD_JVP, &a, PF_O, PF_TLSE);
    check_every_subset(PF_BACKWARD, &a, PF_DQ, PF_DK2);
    check_every_subset(PF_BACKWARD_JVP, &a, PF_TDQ, PF_TDK2);
    expect_all_formulas(&a, 1e-13);
}

static void bias_and_its_gradient_broadcast_in_all_16_patterns(void **state) {
    (void)state;
    for (int pattern = 0; pattern < 16; pattern++) {
        spec s = everything;
        s.H = 2;
        s.Hk = 1;
        s.M = 66;
        s.N = 68;
        const int64_t full[4] = {s.B, s.H, s.M, s.N};
        for (int d = 0; d < 4; d++) {
            s.bias[d] = pattern >> d & 1 ? 1 : full[d];
            s.mask[d] = pattern >> d & 1 ? full[d] : 1;
        }
        s.where = pattern % 2 ? SCATTERED : BHSD;
        pfattn_attention a = new_problem(&s);
        if (pattern == 0) {
            fill(&a.mask, 1);
        }
        run_everything(&a);
        expect_all_formulas(&a, 1e-12);
        free_tensors();
    }
}

/* A tensor without elements may have no data. */
static void drop_empty_data(pfattn_attention *a) {
    for (int id = 0; id < inputs_and_outputs; id++) {
        if (element_count(tensor_at(a, id)) == 0) {
            tensor_at(a, id)->data = NULL;
        }
    }
}

static void any_zero_extent_writes_what_there_is_to_write(void **state) {
    (void)state;
    for (int n = 0; n < 2 * 64; n++) {
        spec s = {.B = n & 1 ? 0 : 2,
                  .H = n & 2 ? 0 : 2,
                  .M = n & 4 ? 0 : 3,
                  .N = n & 8 ? 0 : 4,
                  .D = n & 16 ? 0 : 2,
                  .E = n & 32 ? 0 : 3,
                  .causal = true,
                  .piecewise = true};
        s.Hk = s.H; /* Hk must divide H */
        const int64_t full[4] = {s.B, s.H, s.M, s.N};
        for (int d = 0; d < 4; d++) {
            s.bias[d] = n & 64 ? 1 : full[d];
            s.mask[d] = 1;
        }
        pfattn_attention a = new_problem(&s);
        fill(&a.mask, 1);
        drop_empty_data(&a);
        run_everything(&a);
        expect_all_formulas(&a, 1e-14);
        free_tensors();
    }
}

static void extents_of_1_work(void **state) {
    (void)state;
    spec s = {.B = 1, .H = 1, .Hk = 1, .M = 1, .N = 1, .D = 1, .E = 1, .bias = {1, 1, 1, 1}};
    pfattn_attention a = new_problem(&s);
    run_everything(&a);
    expect_all_formulas(&a, 1e-15);
}

static void many_heads_and_wide_heads_work(void **state) {
    (void)state;
    spec s = {.B = 3, .H = 700, .Hk = 350, .M = 2, .N = 3, .D = 2, .E = 1};
    pfattn_attention a = new_problem(&s);
    run_everything(&a);
    expect_all_formulas(&a, 1e-14);
    spec w = {.B = 1, .H = 1, .Hk = 1, .M = 2, .N = 3, .D = 700, .E = 501};
    pfattn_attention b = new_problem(&w);
    run_everything(&b);
    expect_all_formulas(&b, 1e-13);
}

/* Extents just below, at and above those of a tile, each way. */
static void extents_around_the_tile_work(void **state) {
    (void)state;
    const int64_t extents[] = {63, 64, 65, 127, 129};
    for (int n = 0; n < 25; n++) {
        spec s = {.B = 1,
                  .H = 1,
                  .Hk = 1,
                  .M = extents[n / 5],
                  .N = extents[n % 5],
                  .D = 3,
                  .E = 17,
                  .causal = n % 2};
        pfattn_attention a = new_problem(&s);
        run_everything(&a);
        expect_all_formulas(&a, 1e-12);
        free_tensors();
    }
}

static void check_out_of_memory(int64_t D) {
    spec s = {.B = 1, .H = 1, .Hk = 1, .M = 1, .N = 1, .D = 1, .E = 1};
    pfattn_attention a = new_problem(&s);
    a.q.shape[3] = a.k.shape[3] = D;
    a.q.stride[3] = a.k.stride[3] = 0;
    const pfattn_attention forward = for_operation(PF_FORWARD, &a);
    pf_problem problem;
    assert_int_equal(pf_problem_from_attention(PFATTN_FORWARD, &forward, &problem), PFATTN_SUCCESS);
    assert_int_equal(pf_ref_run(&problem, NULL), PFATTN_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(pfattn_last_error(), "ref: "));
    assert_true(isnan(get(&a.o, 0, 0, 0, 0)) && isnan(get(&a.lse, 0, 0, 0, 0)));
}

/* Tiles beyond what memory, or even a size, can hold: an error, and nothing is written. */
static void head_dimensions_whose_tiles_do_not_fit_are_out_of_memory(void **state) {
    (void)state;
    check_out_of_memory(INT64_C(1) << 46);
    check_out_of_memory(INT64_C(1) << 55);
    check_out_of_memory(INT64_C(1) << 58);
}

#define TEST(name) cmocka_unit_test_teardown(name, free_tensors_after)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_layout_gives_the_same_result),
        TEST(packed_qkv_equals_separate_tensors),
        TEST(stride_0_broadcasts_any_dimension_of_an_input),
        TEST(odd_strides_of_size_1_dimensions_do_not_matter),
        TEST(every_subset_of_outputs_is_right),
        TEST(bias_and_its_gradient_broadcast_in_all_16_patterns),
        TEST(any_zero_extent_writes_what_there_is_to_write),
        TEST(extents_of_1_work),
        TEST(many_heads_and_wide_heads_work),
        TEST(extents_around_the_tile_work),
        TEST(head_dimensions_whose_tiles_do_not_fit_are_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
