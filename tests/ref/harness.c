/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 256, MAX_BOXES = 512 };

/* The memory of one tensor: what it held when it was made, and which bytes are elements. */
typedef struct box {
    unsigned char *memory, *addressed;
    size_t bytes;
} box;

static box boxes[MAX_BOXES];
static double *copies[MAX_BOXES];
static int box_count, copy_count;
static uint64_t random_state = 1;

static unsigned char guard_byte(size_t n) {
    return (unsigned char)(0xa5 ^ (n * 37));
}

/* Under a sanitizer, let an allocation that cannot be met return NULL, as it does elsewhere. */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);

const char *__asan_default_options(void) {
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void) {
    return "allocator_may_return_null=1";
}

/* ---- Tensors ---- */

static int64_t offset_of(const pfattn_tensor *x, int64_t d0, int64_t d1, int64_t d2, int64_t d3) {
    return d0 * x->stride[0] + d1 * x->stride[1] + d2 * x->stride[2] + d3 * x->stride[3];
}

double get(const pfattn_tensor *x, int64_t d0, int64_t d1, int64_t d2, int64_t d3) {
    return pf_load(x->data, x->dtype, offset_of(x, d0, d1, d2, d3));
}

void set(const pfattn_tensor *x, int64_t d0, int64_t d1, int64_t d2, int64_t d3, double value) {
    pf_store(x->data, x->dtype, offset_of(x, d0, d1, d2, d3), value);
}

int64_t element_count(const pfattn_tensor *x) {
    return x->shape[0] * x->shape[1] * x->shape[2] * x->shape[3];
}

static void indices_of(const pfattn_tensor *x, int64_t n, int64_t index[4]) {
    for (int d = 3; d >= 0; d--) {
        index[d] = n % x->shape[d];
        n /= x->shape[d];
    }
}

double get_nth(const pfattn_tensor *x, int64_t n) {
    int64_t i[4];
    indices_of(x, n, i);
    return get(x, i[0], i[1], i[2], i[3]);
}

void set_nth(const pfattn_tensor *x, int64_t n, double value) {
    int64_t i[4];
    indices_of(x, n, i);
    set(x, i[0], i[1], i[2], i[3], value);
}

void set_all(const pfattn_tensor *x, const double *values) {
    for (int64_t n = 0; n < element_count(x); n++) {
        set_nth(x, n, values[n]);
    }
}

void fill(const pfattn_tensor *x, double value) {
    for (int64_t n = 0; n < element_count(x); n++) {
        set_nth(x, n, value);
    }
}

void seed_random(uint64_t seed) {
    random_state = seed * 2 + 1;
}

double random_number(void) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(random_state >> 11) * 0x1p-52 - 1;
}

void fill_random(const pfattn_tensor *x, double scale) {
    for (int64_t n = 0; n < element_count(x); n++) {
        set_nth(x, n, scale * random_number());
    }
}

/* Strides for dimensions laid out from `order[0]`, the slowest, to order[3], with a gap of `gap`
 * elements after each. Returns how many elements they span. */
static int64_t lay_out(pfattn_tensor *x, const int order[4], int64_t gap) {
    int64_t span = 1 + gap;
    for (int n = 3; n >= 0; n--) {
        x->stride[order[n]] = span;
        span = span * (x->shape[order[n]] > 0 ? x->shape[order[n]] : 1) + gap;
    }
    return span;
}

static void mark_elements(const pfattn_tensor *x, box *made) {
    const size_t size = pfattn_dtype_size(x->dtype);
    for (int64_t n = 0; n < element_count(x); n++) {
        int64_t i[4];
        indices_of(x, n, i);
        const unsigned char *element =
            (unsigned char *)x->data + offset_of(x, i[0], i[1], i[2], i[3]) * (int64_t)size;
        memset(made->addressed + (element - made->memory), 1, size);
    }
}

pfattn_tensor new_tensor(pfattn_dtype dtype, layout where, int64_t d0, int64_t d1, int64_t d2,
                         int64_t d3) {
    static const int orders[LAYOUT_COUNT][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {3, 1, 0, 2}};
    pfattn_tensor x = {NULL, dtype, {d0, d1, d2, d3}, {0}};
    const size_t size = pfattn_dtype_size(dtype);
    const int64_t span = lay_out(&x, orders[where], where == SCATTERED ? 1 : 0);
    box *made = &boxes[box_count++];
    assert_true(box_count <= MAX_BOXES);
    made->bytes = (size_t)span * size + 2 * GUARD;
    made->memory = malloc(made->bytes);
    made->addressed = calloc(made->bytes, 1);
    assert_true(made->memory != NULL && made->addressed != NULL);
    for (size_t n = 0; n < made->bytes; n++) {
        made->memory[n] = guard_byte(n);
    }
    x.data = made->memory + GUARD;
    for (int d = 0; d < 4 && where == SCATTERED; d += 2) {
        if (x.shape[d] > 1) { /* start at the last one and go backwards */
            x.data = (char *)x.data + (x.shape[d] - 1) * x.stride[d] * (int64_t)size;
            x.stride[d] = -x.stride[d];
        }
    }
    mark_elements(&x, made);
    fill(&x, dtype == PFATTN_DTYPE_U8 ? 1 : (double)NAN);
    return x;
}

static void expect_guards_intact(void) {
    for (int b = 0; b < box_count; b++) {
        for (size_t n = 0; n < boxes[b].bytes; n++) {
            if (!boxes[b].addressed[n] && boxes[b].memory[n] != guard_byte(n)) {
                fail_msg("byte %zu of the %d-th tensor lies outside its elements and was written",
                         n, b);
            }
        }
    }
}

void free_tensors(void) {
    expect_guards_intact();
    for (; box_count > 0; box_count--) {
        free(boxes[box_count - 1].memory);
        free(boxes[box_count - 1].addressed);
    }
    for (; copy_count > 0; copy_count--) {
        free(copies[copy_count - 1]);
    }
}

int free_tensors_after(void **state) {
    (void)state;
    free_tensors();
    return 0;
}

double *copy_of(const pfattn_tensor *x) {
    double *copy = malloc((size_t)(element_count(x) + 1) * sizeof *copy);
    assert_non_null(copy);
    assert_true(copy_count < MAX_BOXES);
    copies[copy_count++] = copy;
    for (int64_t n = 0; n < element_count(x); n++) {
        copy[n] = get_nth(x, n);
    }
    return copy;
}

/* ---- Problems ---- */

static const size_t offsets[] = {
#define X(id, field) offsetof(pfattn_attention, field),
    PF_ATTENTION_TENSORS(X)
#undef X
};

static const char *const names[] = {
#define X(id, field) #field,
    PF_ATTENTION_TENSORS(X)
#undef X
};

pfattn_tensor *tensor_at(pfattn_attention *a, int id) {
    return (pfattn_tensor *)((char *)a + offsets[id]);
}

pfattn_tensor *tensor_named(pfattn_attention *a, const char *name) {
    for (int id = 0; id < PF_O0; id++) {
        if (strcmp(names[id], name) == 0) {
            return tensor_at(a, id);
        }
    }
    fail_msg("there is no tensor %s", name);
    return NULL;
}

static pfattn_tensor like(const pfattn_tensor *x, pfattn_dtype dtype, layout where) {
    return new_tensor(dtype, where, x->shape[0], x->shape[1], x->shape[2], x->shape[3]);
}

static bool given(const int64_t shape[4]) {
    return shape[0] != 0 || shape[1] != 0 || shape[2] != 0 || shape[3] != 0;
}

static pfattn_tensor random_like(const pfattn_tensor *x) {
    pfattn_tensor made = {0};
    if (x->dtype != PFATTN_DTYPE_NONE) {
        made = like(x, x->dtype, BHSD);
        fill_random(&made, 1);
    }
    return made;
}

static void add_outputs(pfattn_attention *a, pfattn_dtype dtype, layout where) {
    static const struct {
        int source, gradient, tangent;
    } pairs[] = {{PF_Q, PF_DQ, PF_TDQ},    {PF_K, PF_DK, PF_TDK},
                 {PF_V, PF_DV, PF_TDV},    {PF_BIAS, PF_DBIAS, PF_TDBIAS},
                 {PF_Q2, PF_DQ2, PF_TDQ2}, {PF_K2, PF_DK2, PF_TDK2}};
    for (size_t n = 0; n < sizeof pairs / sizeof *pairs; n++) {
        const pfattn_tensor *source = tensor_at(a, pairs[n].source);
        if (source->dtype != PFATTN_DTYPE_NONE) {
            const pfattn_dtype type = pairs[n].source == PF_BIAS ? source->dtype : dtype;
            *tensor_at(a, pairs[n].gradient) = like(source, type, where);
            *tensor_at(a, pairs[n].tangent) = like(source, type, where);
        }
    }
}

/* A mask that keeps about four in five, and a bias of order 1. */
static void add_selection(pfattn_attention *a, const spec *s, pfattn_dtype bias_dtype) {
    if (given(s->bias)) {
        a->bias = new_tensor(bias_dtype, s->where, s->bias[0], s->bias[1], s->bias[2], s->bias[3]);
        fill_random(&a->bias, 1);
    }
    if (given(s->mask)) {
        a->mask =
            new_tensor(PFATTN_DTYPE_U8, s->where, s->mask[0], s->mask[1], s->mask[2], s->mask[3]);
        for (int64_t n = 0; n < element_count(&a->mask); n++) {
            set_nth(&a->mask, n, random_number() < 0.6);
        }
    }
}

pfattn_attention new_problem(const spec *s) {
    const pfattn_dtype dtype = s->dtype != PFATTN_DTYPE_NONE ? s->dtype : PFATTN_DTYPE_F64;
    const pfattn_dtype result = s->result_dtype != PFATTN_DTYPE_NONE ? s->result_dtype : dtype;
    const pfattn_dtype wide = dtype == PFATTN_DTYPE_F64 ? dtype : PFATTN_DTYPE_F32;
    pfattn_attention a = PFATTN_ATTENTION_INIT;
    a.flags = (s->causal ? PFATTN_FLAG_CAUSAL : 0) | (s->scaled ? PFATTN_FLAG_ALPHA : 0) |
              (s->shifted ? PFATTN_FLAG_DIAGONAL : 0) |
              (s->deterministic ? PFATTN_FLAG_DETERMINISTIC : 0);
    a.alpha = s->alpha;
    a.diagonal = s->diagonal;
    a.distance = s->distance;
    a.q = new_tensor(dtype, s->where, s->B, s->H, s->M, s->D);
    a.k = new_tensor(dtype, s->where, s->B, s->Hk, s->N, s->D);
    a.v = new_tensor(dtype, s->where, s->B, s->Hk, s->N, s->E);
    if (s->piecewise) {
        a.q2 = like(&a.q, dtype, s->where);
        a.k2 = like(&a.k, dtype, s->where);
    }
    for (int id = PF_Q; id <= PF_K2; id++) {
        if (tensor_at(&a, id)->dtype != PFATTN_DTYPE_NONE) {
            fill_random(tensor_at(&a, id), 1);
        }
    }
    add_selection(&a, s, s->bias_dtype != PFATTN_DTYPE_NONE ? s->bias_dtype : wide);
    a.tq = random_like(&a.q);
    a.tk = random_like(&a.k);
    a.tv = random_like(&a.v);
    a.tbias = random_like(&a.bias);
    a.tq2 = random_like(&a.q2);
    a.tk2 = random_like(&a.k2);
    a.o = new_tensor(result, s->where, s->B, s->H, s->M, s->E);
    a.to = like(&a.o, result, s->where);
    a.lse = new_tensor(wide, s->where, s->B, s->H, s->M, 1);
    a.tlse = like(&a.lse, wide, s->where);
    a.dout = like(&a.o, dtype, s->where);
    a.tdout = like(&a.o, dtype, s->where);
    a.dlse = like(&a.lse, wide, s->where);
    fill_random(&a.dout, 1);
    fill_random(&a.tdout, 1);
    fill_random(&a.dlse, 1);
    add_outputs(&a, result, s->where);
    return a;
}

pfattn_attention for_operation(pf_operation operation, const pfattn_attention *all) {
    pfattn_attention a = *all;
    const bool back = operation == PF_BACKWARD || operation == PF_BACKWARD_JVP;
    const bool jvp = operation == PF_FORWARD_JVP || operation == PF_BACKWARD_JVP;
    for (int id = PF_TQ; id < PF_O0; id++) {
        const bool tangent = (id >= PF_TQ && id <= PF_TK2) || id == PF_TO || id == PF_TLSE;
        const bool used = tangent                          ? jvp
                          : id == PF_O || id == PF_LSE     ? true
                          : id == PF_DOUT || id == PF_DLSE ? back
                          : id == PF_TDOUT || id >= PF_TDQ ? operation == PF_BACKWARD_JVP
                                                           : operation == PF_BACKWARD;
        if (!used) {
            *tensor_at(&a, id) = (pfattn_tensor){0};
        }
    }
    return a;
}

/* ---- Runs ---- */

void run_with(pf_operation operation, const pfattn_attention *a, const pf_ref_options *options) {
    static const pfattn_operation public_operation[] = {PFATTN_FORWARD, PFATTN_FORWARD,
                                                        PFATTN_BACKWARD, PFATTN_BACKWARD_JVP};
    pf_problem problem;
    if (pf_problem_from_attention(public_operation[operation], a, &problem) != PFATTN_SUCCESS) {
        fail_msg("refused: %s", pfattn_last_error());
    }
    assert_int_equal(problem.operation, operation);
    assert_int_equal(pf_ref_run(&problem, options), PFATTN_SUCCESS);
}

void run(pf_operation operation, const pfattn_attention *all) {
    const pfattn_attention a = for_operation(operation, all);
    run_with(operation, &a, NULL);
}

void run_everything(const pfattn_attention *all) {
    run(PF_FORWARD_JVP, all);
    run(PF_BACKWARD, all);
    run(PF_BACKWARD_JVP, all);
}

void run_merge(const pfattn_merge_args *args) {
    pf_problem problem;
    if (pf_problem_from_merge(args, &problem) != PFATTN_SUCCESS) {
        fail_msg("refused: %s", pfattn_last_error());
    }
    assert_int_equal(pf_ref_run(&problem, NULL), PFATTN_SUCCESS);
}

void expect_close(const char *name, const pfattn_tensor *got, const double *want,
                  double tolerance) {
    double largest = 1;
    for (int64_t n = 0; n < element_count(got); n++) {
        if (isfinite(want[n]) && fabs(want[n]) > largest) {
            largest = fabs(want[n]);
        }
    }
    for (int64_t n = 0; n < element_count(got); n++) {
        const double value = get_nth(got, n);
        const bool same = value == want[n] || (isnan(value) && isnan(want[n])) ||
                          fabs(value - want[n]) <= tolerance * largest;
        if (!same) {
            fail_msg("%s: element %lld is %.17g, not %.17g", name, (long long)n, value, want[n]);
        }
    }
}
