/* SPDX-License-Identifier: Apache-2.0 */
#include "check_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "call.h"

static const char *const op_names[] = {"forward", "jvp",     "backward", "backward-jvp",
                                       "merge",   "duality", NULL};
static const char *const bias_fills[] = {"normal", "zero",        "some-inf", "rows-inf",
                                         "lowest", "some-lowest", NULL};
static const char *const mask_fills[] = {"none",    "ones", "zeros",  "random",
                                         "padding", "rows", "blocks", NULL};
static const char *const layouts[] = {"bhsd",       "bshd",        "sbhd",     "packed",
                                      "transposed", "interleaved", "reversed", "broadcast",
                                      "mixed",      NULL};
static const char *const fars[] = {"none", "batch", "head", "row", NULL};
static const char *const nans[] = {"none", "query", "key", "value", "infinite-value", NULL};
static const char *const dtypes[] = {"none", "f16", "bf16", "f32", "f64", "e5m2", NULL};

typedef enum field_kind {
    FIELD_SIZE,
    FIELD_INTEGER,
    FIELD_BOOL,
    FIELD_NUMBER,
    FIELD_CHOICE,
    FIELD_DIMS,    /* subset of the letters bhmn, "1" for none */
    FIELD_TENSORS, /* names separated by commas, "all", "none" */
} field_kind;

typedef struct field {
    const char *key;
    field_kind kind;
    size_t offset;
    const char *const *choices;
} field;

#define FIELD(key, kind, member)                                                                   \
    { key, kind, offsetof(check_case, member), NULL }
#define CHOICE(key, member, names)                                                                 \
    { key, FIELD_CHOICE, offsetof(check_case, member), names }

static const field fields[] = {
    CHOICE("op", op, op_names),
    CHOICE("dtype", dtype, dtypes),
    FIELD("B", FIELD_SIZE, batch),
    FIELD("H", FIELD_SIZE, heads),
    FIELD("Hk", FIELD_SIZE, kv_heads),
    FIELD("M", FIELD_SIZE, queries),
    FIELD("N", FIELD_SIZE, keys),
    FIELD("D", FIELD_SIZE, dim_qk),
    FIELD("E", FIELD_SIZE, dim_v),
    FIELD("alpha", FIELD_NUMBER, alpha),
    FIELD("causal", FIELD_BOOL, causal),
    FIELD("diag", FIELD_INTEGER, diagonal),
    FIELD("w", FIELD_INTEGER, distance),
    CHOICE("bias", bias, dtypes),
    FIELD("biasdims", FIELD_DIMS, bias_dims),
    CHOICE("biasfill", bias_fill, bias_fills),
    CHOICE("mask", mask, mask_fills),
    FIELD("maskdims", FIELD_DIMS, mask_dims),
    CHOICE("layout", layout, layouts),
    FIELD("pad", FIELD_SIZE, pad),
    FIELD("offset", FIELD_SIZE, offset),
    CHOICE("far", far, fars),
    FIELD("fartensors", FIELD_TENSORS, far_tensors),
    CHOICE("odtype", out_dtype, dtypes),
    CHOICE("gdtype", grad_dtype, dtypes),
    CHOICE("part1", part_dtype, dtypes),
    FIELD("tangents", FIELD_TENSORS, tangents),
    FIELD("outputs", FIELD_TENSORS, outputs),
    FIELD("dlse", FIELD_BOOL, dlse),
    FIELD("tdo", FIELD_BOOL, tdout),
    FIELD("det", FIELD_BOOL, deterministic),
    FIELD("garbage", FIELD_BOOL, garbage),
    CHOICE("nan", nan, nans),
    FIELD("empty", FIELD_BOOL, empty),
    FIELD("inplace", FIELD_BOOL, inplace),
    FIELD("repeat", FIELD_SIZE, repeat),
    FIELD("std", FIELD_NUMBER, std),
    FIELD("qstd", FIELD_NUMBER, q_std),
    FIELD("samples", FIELD_SIZE, samples),
};
enum { FIELD_COUNT = sizeof fields / sizeof *fields };

/* -1 in kv_heads and dim_v: as heads and dim_qk. */
static const check_case defaults = {
    .op = CASE_FORWARD,
    .dtype = PFATTN_DTYPE_F32,
    .batch = 1,
    .heads = 1,
    .kv_heads = -1,
    .queries = 64,
    .keys = 64,
    .dim_qk = 64,
    .dim_v = -1,
    .alpha = NAN,
    .diagonal = CASE_UNSET,
    .distance = CASE_UNSET,
    .bias_dims = 15,
    .mask_dims = 15,
    .far_tensors = CASE_ALL,
    .tangents = CASE_ALL,
    .outputs = CASE_ALL,
    .dlse = 1,
    .tdout = 1,
    .std = 1,
    .q_std = NAN,
};

static int64_t *integer_at(check_case *c, const field *f) {
    return (int64_t *)((char *)c + f->offset);
}

static double *number_at(check_case *c, const field *f) {
    return (double *)((char *)c + f->offset);
}

static bool parse_choice(const field *f, const char *text, int64_t *value) {
    for (int i = 0; f->choices[i]; i++) {
        if (!strcmp(text, f->choices[i])) {
            *value = i;
            return true;
        }
    }
    return false;
}

static bool parse_dims(const char *text, int64_t *value) {
    static const char letters[] = "bhmn";
    *value = 0;
    if (!strcmp(text, "1")) {
        return true;
    }
    for (; *text; text++) {
        const char *at = strchr(letters, *text);
        if (!at) {
            return false;
        }
        *value |= INT64_C(1) << (at - letters);
    }
    return true;
}

static bool parse_tensors(const char *text, int64_t *value) {
    *value = 0;
    if (!strcmp(text, "all") || !strcmp(text, "none")) {
        *value = *text == 'a' ? CASE_ALL : 0;
        return true;
    }
    while (*text) {
        size_t length = strcspn(text, ",");
        int id = 0;
        while (id < PF_TENSOR_COUNT && (strlen(pf_tensor_name((pf_tensor_id)id)) != length ||
                                        strncmp(text, pf_tensor_name((pf_tensor_id)id), length))) {
            id++;
        }
        if (id == PF_TENSOR_COUNT) {
            return false;
        }
        *value |= (int64_t)TENSOR_BIT(id);
        text += length + (text[length] == ',');
    }
    return true;
}

static bool parse_field(const field *f, const char *text, check_case *c) {
    int64_t *integer = integer_at(c, f);
    switch (f->kind) {
    case FIELD_SIZE:
        return args_to_integer(text, integer) && *integer >= 0;
    case FIELD_INTEGER:
        return args_to_integer(text, integer) && *integer != CASE_UNSET;
    case FIELD_BOOL:
        return args_to_integer(text, integer) && (*integer == 0 || *integer == 1);
    case FIELD_NUMBER:
        return args_to_number(text, number_at(c, f));
    case FIELD_CHOICE:
        return parse_choice(f, text, integer);
    case FIELD_DIMS:
        return parse_dims(text, integer);
    case FIELD_TENSORS:
        return parse_tensors(text, integer);
    }
    return false;
}

/* What the knobs cannot be together, because the expectation would not be defined. */
static const char *conflict(const check_case *c) {
    if (c->dtype == PFATTN_DTYPE_NONE) {
        return "dtype=none is no type of inputs";
    }
    if (c->garbage && (c->layout == LAYOUT_BROADCAST || c->samples)) {
        return "garbage=1 cannot be used with layout=broadcast or samples";
    }
    if (c->nan && (c->samples || c->layout == LAYOUT_BROADCAST || c->op > CASE_JVP)) {
        return "nan= is for op=forward and op=jvp, without layout=broadcast or samples";
    }
    if (c->nan == INFINITE_VALUE && (c->op != CASE_FORWARD || c->distance != CASE_UNSET)) {
        return "nan=infinite-value is for op=forward without w: other results may be NaN";
    }
    if (c->inplace && (c->op != CASE_MERGE || c->part_dtype || c->out_dtype)) {
        return "inplace=1 is for op=merge with one type";
    }
    if (c->op == CASE_DUALITY && c->bias && c->bias_fill >= BIAS_LOWEST) {
        return "op=duality cannot be asked of the lowest biases: an f32 L of that size has no "
               "digits "
               "left for the sum over keys, which backward would need to find P again";
    }
    if (c->kv_heads == 0 ? c->heads != 0 : c->heads % c->kv_heads != 0) {
        return "Hk must divide H";
    }
    return NULL;
}

bool case_parse(const char *text, check_case *parsed, char *message, size_t size) {
    check_case c = defaults;
    char word[256];
    while (*(text += strspn(text, " \t\n"))) {
        size_t length = strcspn(text, " \t\n");
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        text += length;
        char *equals = strchr(word, '=');
        const field *found = NULL;
        if (equals) {
            *equals = 0;
            for (int i = 0; i < FIELD_COUNT; i++) {
                found = strcmp(word, fields[i].key) ? found : &fields[i];
            }
            *equals = '=';
        }
        if (!found) {
            int used = snprintf(message, size, "'%s' is no knob of a case; they are", word);
            for (int i = 0; i < FIELD_COUNT && used > 0 && (size_t)used < size; i++) {
                used += snprintf(message + used, size - (size_t)used, " %s=", fields[i].key);
            }
            return false;
        }
        if (!parse_field(found, equals + 1, &c)) {
            snprintf(message, size, "'%s' has a value that %s= does not take", word, found->key);
            return false;
        }
    }
    c.kv_heads = c.kv_heads < 0 ? c.heads : c.kv_heads;
    c.dim_v = c.dim_v < 0 ? c.dim_qk : c.dim_v;
    const char *problem = conflict(&c);
    if (problem) {
        snprintf(message, size, "%s", problem);
        return false;
    }
    *parsed = c;
    return true;
}

static void print_value(const field *f, check_case *c, char *text, size_t size) {
    int64_t value = *integer_at(c, f);
    size_t used = 0;
    text[0] = 0;
    switch (f->kind) {
    case FIELD_NUMBER:
        snprintf(text, size, "%.17g", *number_at(c, f));
        break;
    case FIELD_CHOICE:
        snprintf(text, size, "%s", f->choices[value]);
        break;
    case FIELD_DIMS:
        snprintf(text, size, "%s%s%s%s%s", value & 1 ? "b" : "", value & 2 ? "h" : "",
                 value & 4 ? "m" : "", value & 8 ? "n" : "", value ? "" : "1");
        break;
    case FIELD_TENSORS:
        if (value == CASE_ALL || value == 0) {
            snprintf(text, size, "%s", value ? "all" : "none");
            break;
        }
        for (int id = 0; id < PF_TENSOR_COUNT; id++) {
            if ((uint64_t)value >> id & 1) {
                used += (size_t)snprintf(text + used, size - used, "%s%s", used ? "," : "",
                                         pf_tensor_name((pf_tensor_id)id));
            }
        }
        break;
    default:
        snprintf(text, size, "%" PRId64, value);
    }
}

void case_print(const check_case *c, char *text, size_t size) {
    check_case copy = *c, base = defaults;
    base.kv_heads = c->heads;
    base.dim_v = c->dim_qk;
    char value[256], usual[256];
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < FIELD_COUNT; i++) {
        print_value(&fields[i], &copy, value, sizeof value);
        print_value(&fields[i], &base, usual, sizeof usual);
        bool always = !strcmp(fields[i].key, "op") || !strcmp(fields[i].key, "dtype");
        if ((always || strcmp(value, usual)) && used + strlen(value) + 16 < size) {
            used += (size_t)snprintf(text + used, size - used, "%s%s=%s", used ? " " : "",
                                     fields[i].key, value);
        }
    }
}

const char *case_op_name(case_op op) {
    return op_names[op];
}

int case_stages(const check_case *c, pf_operation stages[2]) {
    switch ((case_op)c->op) {
    case CASE_FORWARD:
        stages[0] = PF_FORWARD;
        return 1;
    case CASE_JVP:
        stages[0] = PF_FORWARD_JVP;
        return 1;
    case CASE_MERGE:
        stages[0] = PF_MERGE;
        return 1;
    case CASE_BACKWARD:
        stages[0] = PF_FORWARD;
        stages[1] = PF_BACKWARD;
        return 2;
    case CASE_BACKWARD_JVP:
        stages[0] = PF_FORWARD_JVP;
        stages[1] = PF_BACKWARD_JVP;
        return 2;
    default:
        stages[0] = PF_FORWARD_JVP;
        stages[1] = PF_BACKWARD;
        return 2;
    }
}

/* Whether the tensor is a result of the last call that was not asked for. */
static bool is_unwanted(const check_case *c, pf_tensor_id id, const pf_operation *stages,
                        int count) {
    uint64_t results = call_outputs(stages[count - 1]);
    return (results >> id & 1) && !((uint64_t)c->outputs >> id & 1);
}

static bool merge_has(const check_case *c, pf_tensor_id id) {
    uint64_t results = TENSOR_BIT(PF_TO) | TENSOR_BIT(PF_TLSE);
    bool is_tangent =
        id == PF_TO0 || id == PF_TLSE0 || id == PF_TO1 || id == PF_TLSE1 || results >> id & 1;
    /* Tangents are taken only where one is asked for. */
    return !is_tangent || (c->tangents && (uint64_t)c->outputs & results);
}

bool case_has(const check_case *c, pf_tensor_id id) {
    pf_operation stages[2];
    int count = case_stages(c, stages);
    uint64_t used = 0;
    for (int i = 0; i < count; i++) {
        used |= call_inputs(stages[i]) | call_outputs(stages[i]);
    }
    if (!(used >> id & 1) || is_unwanted(c, id, stages, count)) {
        return false;
    }
    if (c->op == CASE_MERGE) {
        return merge_has(c, id);
    }
    pf_tensor_id primal = call_primal(id);
    if ((primal == PF_BIAS && !c->bias) || (id == PF_MASK && !c->mask) ||
        ((primal == PF_Q2 || primal == PF_K2) && c->distance == CASE_UNSET)) {
        return false;
    }
    if (call_tangent_inputs() >> id & 1) {
        /* A jvp that is asked for no tangent is a forward, which takes none. */
        uint64_t tangents = TENSOR_BIT(PF_TO) | TENSOR_BIT(PF_TLSE);
        bool unused = c->op == CASE_JVP && !((uint64_t)c->outputs & tangents);
        return !unused && (uint64_t)c->tangents >> id & 1;
    }
    return id == PF_DLSE ? c->dlse : id == PF_TDOUT ? c->tdout : true;
}

static pfattn_dtype either(int64_t wanted, pfattn_dtype otherwise) {
    return wanted != PFATTN_DTYPE_NONE ? (pfattn_dtype)wanted : otherwise;
}

pfattn_dtype case_dtype(const check_case *c, pf_tensor_id id) {
    pfattn_dtype dtype = (pfattn_dtype)c->dtype;
    pfattn_dtype wide = dtype == PFATTN_DTYPE_F64 ? PFATTN_DTYPE_F64 : PFATTN_DTYPE_F32;
    pf_tensor_id primal = call_primal(id);
    uint64_t gradients = call_outputs(PF_BACKWARD) | call_outputs(PF_BACKWARD_JVP);
    if (id == PF_MASK) {
        return PFATTN_DTYPE_U8;
    }
    if (primal == PF_LSE) {
        return wide;
    }
    if (id == PF_O || id == PF_TO) {
        return either(c->out_dtype, dtype);
    }
    if (id == PF_O1 || id == PF_TO1) {
        return either(c->part_dtype, dtype);
    }
    pfattn_dtype own = primal == PF_BIAS ? (pfattn_dtype)c->bias : dtype;
    return gradients >> id & 1 ? either(c->grad_dtype, own) : own;
}

void case_shape(const check_case *c, pf_tensor_id id, int64_t shape[4]) {
    pf_tensor_id primal = call_primal(id);
    bool is_key = primal == PF_K || primal == PF_K2 || primal == PF_V;
    shape[0] = c->batch;
    shape[1] = is_key ? c->kv_heads : c->heads;
    shape[2] = is_key ? c->keys : c->queries;
    shape[3] = primal == PF_V || primal == PF_O ? c->dim_v : primal == PF_LSE ? 1 : c->dim_qk;
    if (primal == PF_BIAS || id == PF_MASK) {
        int64_t dims = id == PF_MASK ? c->mask_dims : c->bias_dims;
        shape[3] = c->keys;
        for (int i = 0; i < 4; i++) {
            shape[i] = dims >> i & 1 ? shape[i] : 1;
        }
    }
}

double operation_flops(pf_operation operation, double batch, double heads, double queries,
                       double keys, double dim_qk, double dim_v, bool causal) {
    static const double factors[PF_OPERATION_COUNT] = {[PF_FORWARD] = 1,
                                                       [PF_FORWARD_JVP] = 3,
                                                       [PF_BACKWARD] = 2.5,
                                                       [PF_BACKWARD_JVP] = 7.5,
                                                       [PF_MERGE] = 0};
    return factors[operation] * (causal ? 0.5 : 1) * 2 * batch * heads * queries * keys *
           (dim_qk + dim_v);
}

double case_flops(const check_case *c) {
    pf_operation stages[2];
    int count = case_stages(c, stages);
    double flops = 0;
    for (int i = 0; i < count; i++) {
        flops += operation_flops(stages[i], (double)c->batch, (double)c->heads, (double)c->queries,
                                 (double)c->keys, (double)c->dim_qk, (double)c->dim_v, c->causal);
    }
    return flops;
}

double case_scores(const check_case *c) {
    int64_t rows = c->causal && c->keys < c->queries ? c->keys : c->queries;
    return (double)c->batch * (double)c->heads * (double)rows * (double)c->keys;
}

double case_summed_scores(const check_case *c, pf_tensor_id id) {
    if (id != PF_DBIAS && id != PF_TDBIAS) {
        return 1;
    }
    const int64_t extent[4] = {c->batch, c->heads, c->queries, c->keys};
    double summed = 1;
    for (int d = 0; d < 4; d++) {
        summed *= c->bias_dims >> d & 1 ? 1 : (double)extent[d];
    }
    return summed;
}

bool case_is_residual(const check_case *c, pf_tensor_id id) {
    const bool every_key = c->bias_dims >> 3 & 1 && c->keys > 1;
    return !every_key && (id == PF_TDBIAS || (id == PF_DBIAS && !c->dlse));
}
