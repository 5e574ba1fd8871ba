/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases: every knob at once. */
#include <math.h>
#include <string.h>

#include "call.h"
#include "case_list.h"
#include "random.h"

typedef struct draw {
    uint64_t seed;
    uint64_t next;
} draw;

static int64_t below(draw *d, int64_t count) {
    return (int64_t)(random_bits(d->seed, d->next++) % (uint64_t)count);
}

static bool chance(draw *d, double probability) {
    return random_uniform(d->seed, d->next++) < probability;
}

static int64_t pick(draw *d, const int64_t *values, int64_t count) {
    return values[below(d, count)];
}

#define PICK(d, ...)                                                                               \
    pick(d, (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / 8)

static int64_t draw_size(draw *d) {
    if (chance(d, 0.5)) {
        return PICK(d, 1, 2, 16, 31, 64, 65, 96, 127, 128, 129, 160, 192, 255, 256, 257, 320);
    }
    return 1 + below(d, 300);
}

static int64_t draw_dim(draw *d) {
    if (chance(d, 0.7)) {
        return PICK(d, 8, 16, 32, 40, 48, 64, 64, 72, 80, 96, 128, 128, 192, 256);
    }
    return 1 + below(d, 256);
}

static void draw_types(draw *d, check_case *c) {
    c->op = PICK(d, CASE_FORWARD, CASE_FORWARD, CASE_JVP, CASE_BACKWARD, CASE_BACKWARD,
                 CASE_BACKWARD_JVP, CASE_DUALITY);
    c->dtype = PICK(d, PFATTN_DTYPE_F16, PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16, PFATTN_DTYPE_F32);
    if (c->op == CASE_FORWARD && chance(d, 0.2)) {
        c->dtype = PFATTN_DTYPE_E5M2;
        c->out_dtype = PICK(d, PFATTN_DTYPE_NONE, PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16);
    }
    c->out_dtype = chance(d, 0.3) ? PFATTN_DTYPE_F32 : c->out_dtype;
    c->grad_dtype = chance(d, 0.3) ? PFATTN_DTYPE_F32 : PFATTN_DTYPE_NONE;
}

static void draw_shape(draw *d, check_case *c) {
    c->batch = PICK(d, 1, 1, 2, 3);
    c->kv_heads = PICK(d, 1, 1, 2, 3);
    c->heads = c->kv_heads * PICK(d, 1, 1, 1, 2, 4);
    c->queries = draw_size(d);
    c->keys = chance(d, 0.3) ? c->queries : draw_size(d);
    c->dim_qk = draw_dim(d);
    c->dim_v = chance(d, 0.6) ? c->dim_qk : draw_dim(d);
}

static void draw_scores(draw *d, check_case *c) {
    c->causal = chance(d, 0.5);
    if (chance(d, 0.3)) {
        c->diagonal = below(d, 300) - 150;
    }
    if (chance(d, 0.3)) {
        c->distance = below(d, 300) - 150;
    }
    if (chance(d, 0.25)) {
        c->alpha = PICK(d, 0, -1, 1, 2) * 0.25;
    }
    c->std = chance(d, 0.2) ? (double)PICK(d, 1, 4, 12) / 4 : 1;
    if (chance(d, 0.4)) {
        c->bias = PICK(d, PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16, PFATTN_DTYPE_F32);
        c->bias_dims = chance(d, 0.4) ? 15 : below(d, 16);
        c->bias_fill = PICK(d, BIAS_NORMAL, BIAS_NORMAL, BIAS_ZERO, BIAS_SOME_INF, BIAS_ROWS_INF,
                            BIAS_LOWEST, BIAS_SOME_LOWEST);
        if (c->op == CASE_DUALITY && c->bias_fill >= BIAS_LOWEST) {
            c->bias_fill = BIAS_NORMAL;
        }
    }
    if (chance(d, 0.4)) {
        c->mask = 1 + below(d, MASK_BLOCKS);
        c->mask_dims = chance(d, 0.5) ? 15 : below(d, 16);
    }
}

static void draw_memory(draw *d, check_case *c) {
    c->layout = PICK(d, LAYOUT_BHSD, LAYOUT_BHSD, LAYOUT_BSHD, LAYOUT_PACKED, LAYOUT_SBHD,
                     LAYOUT_TRANSPOSED, LAYOUT_INTERLEAVED, LAYOUT_REVERSED, LAYOUT_BROADCAST,
                     LAYOUT_MIXED, LAYOUT_MIXED);
    c->pad = PICK(d, 0, 0, 0, 1, 8);
    c->offset = PICK(d, 0, 0, 0, 1, 4, 8);
    c->garbage = c->layout != LAYOUT_BROADCAST && chance(d, 0.3);
}

/* The results of the last call that are asked for, where that is not all. */
static void draw_outputs(draw *d, check_case *c) {
    pf_operation stages[2];
    int count = case_stages(c, stages);
    uint64_t results = call_outputs(stages[count - 1]);
    uint64_t wanted = 0;
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        bool has = results >> id & 1 && case_has(c, (pf_tensor_id)id);
        wanted |= has && chance(d, 0.5) ? TENSOR_BIT(id) : 0;
    }
    c->outputs = wanted ? (int64_t)wanted : CASE_ALL;
}

static void draw_calls(draw *d, check_case *c) {
    c->deterministic = chance(d, 0.3);
    c->repeat = chance(d, 0.2);
    c->dlse = chance(d, 0.6);
    c->tdout = chance(d, 0.6);
    bool has_tangents = c->op == CASE_JVP || c->op == CASE_BACKWARD_JVP;
    if (has_tangents && chance(d, 0.5)) {
        c->tangents = 0;
        for (int id = 0; id < PF_TENSOR_COUNT; id++) {
            bool present = call_tangent_inputs() >> id & 1 && chance(d, 0.5);
            c->tangents |= present ? (int64_t)TENSOR_BIT(id) : 0;
        }
    }
    if (c->op != CASE_DUALITY && chance(d, 0.3)) {
        draw_outputs(d, c);
    }
}

void case_list_random(case_list *list, uint64_t seed, int count) {
    for (int i = 0; i < count; i++) {
        draw d = {random_seed(seed, "random cases") + (uint64_t)i * 1000003u, 0};
        char text[1024];
        case_list_add(list, "op=forward");
        check_case *c = &list->items[list->count - 1];
        draw_types(&d, c);
        draw_shape(&d, c);
        draw_scores(&d, c);
        draw_memory(&d, c);
        draw_calls(&d, c);
        case_print(c, text, sizeof text);
        list->count--;
        case_list_add(list, "%s", text);
    }
}
