/* SPDX-License-Identifier: Apache-2.0 */
#include "problem.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "status.h"
#include "structs.h"
#include "tensor.h"

/* What an operation does with a tensor. */
typedef enum use { NO, IN, NEED, OUT } use;

/* Which types a tensor may have. */
typedef enum type_rule {
    TYPE_INPUT,     /* the problem's type */
    TYPE_BIAS,      /* f16, bf16, f32; f64 with f64 */
    TYPE_MASK,      /* u8 */
    TYPE_RESULT,    /* the problem's type or f32; with e5m2 also f16 and bf16 */
    TYPE_STATISTIC, /* f32; f64 with f64 */
    TYPE_GRADIENT,  /* the type of `source` or f32 */
    TYPE_PART       /* of a merge: any float but f64; f64 alone with f64 */
} type_rule;

/* One row a tensor. Shape has a letter a dimension: B, H, G (Hk), M, N, D, E or 1; a small letter
 * means "that or 1"; "" means the shape of `source`. Where `source` is another tensor, it must be
 * present too. The uses are those of forward, forward JVP, backward, backward JVP, merge. */
#define RULES(X)                                                                                   \
    X(Q, "BHMD", INPUT, Q, NEED, NEED, NEED, NEED, NO)                                             \
    X(K, "BGND", INPUT, K, NEED, NEED, NEED, NEED, NO)                                             \
    X(V, "BGNE", INPUT, V, NEED, NEED, NEED, NEED, NO)                                             \
    X(BIAS, "bhmn", BIAS, BIAS, IN, IN, IN, IN, NO)                                                \
    X(MASK, "bhmn", MASK, MASK, IN, IN, IN, IN, NO)                                                \
    X(Q2, "BHMD", INPUT, K2, IN, IN, IN, IN, NO)                                                   \
    X(K2, "BGND", INPUT, Q2, IN, IN, IN, IN, NO)                                                   \
    X(TQ, "BHMD", INPUT, Q, NO, IN, NO, IN, NO)                                                    \
    X(TK, "BGND", INPUT, K, NO, IN, NO, IN, NO)                                                    \
    X(TV, "BGNE", INPUT, V, NO, IN, NO, IN, NO)                                                    \
    X(TBIAS, "", BIAS, BIAS, NO, IN, NO, IN, NO)                                                   \
    X(TQ2, "BHMD", INPUT, Q2, NO, IN, NO, IN, NO)                                                  \
    X(TK2, "BGND", INPUT, K2, NO, IN, NO, IN, NO)                                                  \
    X(O, "BHME", RESULT, O, OUT, OUT, NEED, NEED, OUT)                                             \
    X(LSE, "BHM1", STATISTIC, LSE, OUT, OUT, NEED, NEED, OUT)                                      \
    X(TO, "BHME", RESULT, TO, OUT, OUT, NO, NEED, OUT)                                             \
    X(TLSE, "BHM1", STATISTIC, TLSE, OUT, OUT, NO, NEED, OUT)                                      \
    X(DOUT, "BHME", INPUT, DOUT, NO, NO, NEED, NEED, NO)                                           \
    X(DLSE, "BHM1", STATISTIC, DLSE, NO, NO, IN, IN, NO)                                           \
    X(TDOUT, "BHME", INPUT, DOUT, NO, NO, NO, IN, NO)                                              \
    X(DQ, "BHMD", GRADIENT, Q, NO, NO, OUT, NO, NO)                                                \
    X(DK, "BGND", GRADIENT, K, NO, NO, OUT, NO, NO)                                                \
    X(DV, "BGNE", GRADIENT, V, NO, NO, OUT, NO, NO)                                                \
    X(DBIAS, "", GRADIENT, BIAS, NO, NO, OUT, NO, NO)                                              \
    X(DQ2, "BHMD", GRADIENT, Q2, NO, NO, OUT, NO, NO)                                              \
    X(DK2, "BGND", GRADIENT, K2, NO, NO, OUT, NO, NO)                                              \
    X(TDQ, "BHMD", GRADIENT, Q, NO, NO, NO, OUT, NO)                                               \
    X(TDK, "BGND", GRADIENT, K, NO, NO, NO, OUT, NO)                                               \
    X(TDV, "BGNE", GRADIENT, V, NO, NO, NO, OUT, NO)                                               \
    X(TDBIAS, "", GRADIENT, BIAS, NO, NO, NO, OUT, NO)                                             \
    X(TDQ2, "BHMD", GRADIENT, Q2, NO, NO, NO, OUT, NO)                                             \
    X(TDK2, "BGND", GRADIENT, K2, NO, NO, NO, OUT, NO)                                             \
    X(O0, "BHME", PART, O0, NO, NO, NO, NO, NEED)                                                  \
    X(LSE0, "BHM1", STATISTIC, LSE0, NO, NO, NO, NO, NEED)                                         \
    X(TO0, "BHME", PART, TO0, NO, NO, NO, NO, IN)                                                  \
    X(TLSE0, "BHM1", STATISTIC, TLSE0, NO, NO, NO, NO, IN)                                         \
    X(O1, "BHME", PART, O1, NO, NO, NO, NO, NEED)                                                  \
    X(LSE1, "BHM1", STATISTIC, LSE1, NO, NO, NO, NO, NEED)                                         \
    X(TO1, "BHME", PART, TO1, NO, NO, NO, NO, IN)                                                  \
    X(TLSE1, "BHM1", STATISTIC, TLSE1, NO, NO, NO, NO, IN)

typedef struct tensor_rule {
    char shape[5];
    type_rule type;
    pf_tensor_id source;
    use use[PF_OPERATION_COUNT];
} tensor_rule;

static const tensor_rule rules[PF_TENSOR_COUNT] = {
#define X(id, shape, type, source, ...)                                                            \
    [PF_##id] = {shape, TYPE_##type, PF_##source, {__VA_ARGS__}},
    RULES(X)
#undef X
};

/* By operation: the tensors that it may use, needs and writes. */
#define BIT_OF(id) (UINT64_C(1) << (id))
_Static_assert(PF_TENSOR_COUNT <= 64, "a set has a bit for each tensor");

#define FORWARD(id, shape, type, source, f, fj, b, bj, m) | (HAS(f) ? BIT_OF(PF_##id) : 0)
#define FORWARD_JVP(id, shape, type, source, f, fj, b, bj, m) | (HAS(fj) ? BIT_OF(PF_##id) : 0)
#define BACKWARD(id, shape, type, source, f, fj, b, bj, m) | (HAS(b) ? BIT_OF(PF_##id) : 0)
#define BACKWARD_JVP(id, shape, type, source, f, fj, b, bj, m) | (HAS(bj) ? BIT_OF(PF_##id) : 0)
#define MERGE(id, shape, type, source, f, fj, b, bj, m) | (HAS(m) ? BIT_OF(PF_##id) : 0)
#define SETS                                                                                       \
    {                                                                                              \
        0 RULES(FORWARD), 0 RULES(FORWARD_JVP), 0 RULES(BACKWARD), 0 RULES(BACKWARD_JVP),          \
            0 RULES(MERGE)                                                                         \
    }

#define HAS(use) ((use) != NO)
static const pf_tensor_set usable[PF_OPERATION_COUNT] = SETS;
#undef HAS
#define HAS(use) ((use) == NEED)
static const pf_tensor_set needed[PF_OPERATION_COUNT] = SETS;
#undef HAS
#define HAS(use) ((use) == OUT)
static const pf_tensor_set outputs[PF_OPERATION_COUNT] = SETS;
#undef HAS

static const char *const names[PF_TENSOR_COUNT] = {
#define X(id, field) #field,
    PF_ATTENTION_TENSORS(X) PF_MERGE_TENSORS(X)
#undef X
};

/* For messages; forward becomes forward JVP by what is asked for. */
static const char *const operation_names[PF_OPERATION_COUNT] = {
    "forward without to or tlse", "forward with to or tlse", "backward", "backward_jvp", "merge",
};

/* One more than this many queries or keys would let positions and distances overflow. */
#define SEQUENCE_LIMIT (INT64_MAX / 8)

#define ATTENTION_FLAGS                                                                            \
    (PFATTN_FLAG_CAUSAL | PFATTN_FLAG_ALPHA | PFATTN_FLAG_DIAGONAL | PFATTN_FLAG_DETERMINISTIC)

/* The last field of each struct's first version gives its minimum. */
#define END_OF(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

static const pf_struct attention_struct = {
    "args", "PFATTN_ATTENTION_INIT", END_OF(pfattn_attention, tdk2), sizeof(pfattn_attention)};
static const pf_struct merge_struct = {"args", "PFATTN_MERGE_ARGS_INIT",
                                       END_OF(pfattn_merge_args, tlse), sizeof(pfattn_merge_args)};

const char *pf_tensor_name(pf_tensor_id id) {
    return names[id];
}

pf_tensor_set pf_problem_outputs(const pf_problem *problem) {
    return outputs[problem->operation];
}

/* ---- presence ------------------------------------------------------------------------------ */

/* Of a tensor that is there and not used, or missing, or there without its source. */
static pfattn_status use_error(const pf_problem *problem, int id) {
    const char *operation = operation_names[problem->operation];
    if (rules[id].use[problem->operation] == NO) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "%s: is present, but %s does not use it; it must be absent", names[id],
                        operation);
    }
    if (!pf_present(problem, id)) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT, "%s: is absent, but %s needs it", names[id],
                        operation);
    }
    return pf_error(PFATTN_ERROR_INVALID_ARGUMENT, "%s: is present without %s, which it needs",
                    names[id], names[rules[id].source]);
}

/* "dq, dk or dv", for the message that none of them is there. */
static void list_outputs(const pf_problem *problem, char *text, size_t size) {
    size_t at = 0;
    for (pf_tensor_set rest = outputs[problem->operation]; rest != 0 && at < size;) {
        at += (size_t)snprintf(text + at, size - at, "%s%s", at > 0 ? ", " : "",
                               names[pf_take_first(&rest)]);
    }
}

static pfattn_status check_presence(const pf_problem *problem, pf_tensor_set present) {
    int operation = problem->operation;
    pf_tensor_set wrong = (present & ~usable[operation]) | (needed[operation] & ~present);
    for (pf_tensor_set rest = present; rest != 0;) {
        int id = pf_take_first(&rest);
        wrong |= present & BIT_OF(rules[id].source) ? 0 : BIT_OF(id);
    }
    if (wrong != 0) {
        return use_error(problem, pf_take_first(&wrong));
    }
    if ((present & outputs[operation]) == 0) {
        char list[128];
        list_outputs(problem, list, sizeof list);
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "args: no output is asked for; at least one of %s must be present", list);
    }
    return PFATTN_SUCCESS;
}

/* ---- shapes -------------------------------------------------------------------------------- */

/* A dimension of the problem: what it is called, and which tensor it is read from. */
typedef struct dimension {
    const char *name;
    const char *source;
    int64_t size;
} dimension;

static dimension dimension_of(const pf_problem *problem, char letter) {
    const char *first = problem->operation == PF_MERGE ? "o0" : "q";
    switch (letter) {
    case 'B':
        return (dimension){"batch", first, problem->batch};
    case 'H':
        return (dimension){"number of heads", first, problem->heads};
    case 'G':
        return (dimension){"number of heads", "k", problem->kv_heads};
    case 'M':
        return (dimension){"number of queries", first, problem->queries};
    case 'N':
        return (dimension){"number of keys", "k", problem->keys};
    case 'D':
        return (dimension){"head dimension", "q", problem->dim_qk};
    case 'E':
        return (dimension){"value head dimension", problem->operation == PF_MERGE ? "o0" : "v",
                           problem->dim_v};
    default:
        return (dimension){"last dimension", NULL, 1};
    }
}

static pfattn_status size_error(const pf_problem *problem, int id, int d) {
    int64_t size = problem->tensor[id].shape[d];
    char letter = rules[id].shape[d];
    bool broadcasts = letter >= 'a';
    dimension want = dimension_of(problem, broadcasts ? (char)(letter - 'a' + 'A') : letter);
    if (broadcasts) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "%s: %s (shape[%d]) is %" PRId64 "; it must be 1 or %" PRId64, names[id],
                        want.name, d, size, want.size);
    }
    if (want.source == NULL) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "%s: %s (shape[%d]) is %" PRId64 "; it must be %" PRId64, names[id],
                        want.name, d, size, want.size);
    }
    return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                    "%s: %s (shape[%d]) is %" PRId64 " but %s has %" PRId64 "; both must be equal",
                    names[id], want.name, d, size, want.source, want.size);
}

/* The sizes of the dimensions by letter, small or not; that of 1 is 1. */
typedef struct size_table {
    int64_t of[32];
} size_table;
#define PLACE(letter) ((letter)&31)

static void list_sizes(const pf_problem *problem, size_table *sizes) {
    static const char letters[] = "BHGMNDE1";
    for (const char *letter = letters; *letter != '\0'; letter++) {
        sizes->of[PLACE(*letter)] = dimension_of(problem, *letter).size;
    }
}

static bool size_fits(const size_table *sizes, char letter, int64_t size) {
    return size == sizes->of[PLACE(letter)] || (letter >= 'a' && size == 1);
}

static pfattn_status check_same_shape(const pf_problem *problem, int id, int source) {
    for (int d = 0; d < 4; d++) {
        int64_t size = problem->tensor[id].shape[d];
        int64_t want = problem->tensor[source].shape[d];
        if (size != want) {
            return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                            "%s: shape[%d] is %" PRId64 " but %s has %" PRId64
                            "; both must be equal",
                            names[id], d, size, names[source], want);
        }
    }
    return PFATTN_SUCCESS;
}

static pfattn_status check_shape(const pf_problem *problem, const size_table *sizes, int id) {
    const char *letters = rules[id].shape;
    if (letters[0] == '\0') {
        return check_same_shape(problem, id, rules[id].source);
    }
    for (int d = 0; d < 4; d++) {
        if (!size_fits(sizes, letters[d], problem->tensor[id].shape[d])) {
            return size_error(problem, id, d);
        }
    }
    return PFATTN_SUCCESS;
}

static void read_dimensions(pf_problem *problem) {
    const pfattn_tensor *t = problem->tensor;
    const pfattn_tensor *first = problem->operation == PF_MERGE ? &t[PF_O0] : &t[PF_Q];
    problem->dtype = first->dtype;
    problem->batch = first->shape[0];
    problem->heads = first->shape[1];
    problem->queries = first->shape[2];
    problem->kv_heads = t[PF_K].shape[1];
    problem->keys = t[PF_K].shape[2];
    problem->dim_qk = t[PF_Q].shape[3];
    problem->dim_v = problem->operation == PF_MERGE ? t[PF_O0].shape[3] : t[PF_V].shape[3];
}

static pfattn_status check_heads(const pf_problem *problem) {
    if (problem->kv_heads == 0 ? problem->heads == 0 : problem->heads % problem->kv_heads == 0) {
        return PFATTN_SUCCESS;
    }
    return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                    "k: number of heads (shape[1]) is %" PRId64 " but q has %" PRId64
                    "; that of k must divide that of q",
                    problem->kv_heads, problem->heads);
}

static pfattn_status check_sequence(const char *name, int64_t length) {
    if (length <= SEQUENCE_LIMIT) {
        return PFATTN_SUCCESS;
    }
    return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                    "%s: sequence length (shape[2]) is %" PRId64 "; it must be at most %" PRId64,
                    name, length, SEQUENCE_LIMIT);
}

static pfattn_status check_shapes(const pf_problem *problem, pf_tensor_set present) {
    size_table sizes;
    list_sizes(problem, &sizes);
    while (present != 0) {
        pfattn_status status = check_shape(problem, &sizes, pf_take_first(&present));
        if (status != PFATTN_SUCCESS) {
            return status;
        }
    }
    pfattn_status status = check_sequence("k", problem->keys);
    if (status == PFATTN_SUCCESS) {
        status = check_sequence(problem->operation == PF_MERGE ? "o0" : "q", problem->queries);
    }
    return status == PFATTN_SUCCESS && problem->operation != PF_MERGE ? check_heads(problem)
                                                                      : status;
}

/* ---- types --------------------------------------------------------------------------------- */

#define BIT(type) (1u << (type))

/* The types that a rule allows, one bit each. */
static unsigned allowed_types(const pf_problem *problem, int id) {
    const unsigned half = BIT(PFATTN_DTYPE_F16) | BIT(PFATTN_DTYPE_BF16);
    const unsigned f32 = BIT(PFATTN_DTYPE_F32);
    bool f64 = problem->dtype == PFATTN_DTYPE_F64;
    switch (rules[id].type) {
    case TYPE_INPUT:
        return BIT(problem->dtype);
    case TYPE_BIAS:
        return half | f32 | (f64 ? BIT(PFATTN_DTYPE_F64) : 0);
    case TYPE_MASK:
        return BIT(PFATTN_DTYPE_U8);
    case TYPE_RESULT:
        if (problem->operation == PF_MERGE) {
            return f64 ? BIT(PFATTN_DTYPE_F64) : half | f32 | BIT(PFATTN_DTYPE_E5M2);
        }
        return BIT(problem->dtype) | f32 | (problem->dtype == PFATTN_DTYPE_E5M2 ? half : 0);
    case TYPE_STATISTIC:
        return f64 ? BIT(PFATTN_DTYPE_F64) : f32;
    case TYPE_GRADIENT:
        return BIT(problem->tensor[rules[id].source].dtype) | f32;
    case TYPE_PART:
        return f64 ? BIT(PFATTN_DTYPE_F64) : half | f32 | BIT(PFATTN_DTYPE_E5M2);
    }
    return 0;
}

/* What the problem's own type, that of q or o0, may be. */
static pfattn_status check_problem_type(const pf_problem *problem) {
    const char *name = problem->operation == PF_MERGE ? "o0" : "q";
    bool forward = problem->operation == PF_FORWARD || problem->operation == PF_FORWARD_JVP;
    if (problem->dtype == PFATTN_DTYPE_U8) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "%s: dtype is u8; it must be f16, bf16, f32, e5m2 or f64", name);
    }
    if (problem->dtype == PFATTN_DTYPE_E5M2 && !forward && problem->operation != PF_MERGE) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "q: dtype is e5m2, which is for forward alone; %s takes f16, bf16, f32 or "
                        "f64",
                        operation_names[problem->operation]);
    }
    return PFATTN_SUCCESS;
}

static pfattn_status type_error(const pf_problem *problem, int id, unsigned allowed) {
    char list[64] = "";
    size_t used = 0;
    for (int type = PFATTN_DTYPE_F16; type <= PFATTN_DTYPE_U8; type++) {
        if (allowed & BIT(type)) {
            used +=
                (size_t)snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? " or " : "",
                                 pfattn_dtype_string((pfattn_dtype)type));
        }
    }
    return pf_error(PFATTN_ERROR_INVALID_ARGUMENT, "%s: dtype is %s; where %s is %s it must be %s",
                    names[id], pfattn_dtype_string(problem->tensor[id].dtype),
                    problem->operation == PF_MERGE ? "o0" : "q",
                    pfattn_dtype_string(problem->dtype), list);
}

static pfattn_status check_types(const pf_problem *problem, pf_tensor_set present) {
    pfattn_status status = check_problem_type(problem);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    while (present != 0) {
        int id = pf_take_first(&present);
        unsigned allowed = allowed_types(problem, id);
        if (!(allowed & BIT(problem->tensor[id].dtype))) {
            return type_error(problem, id, allowed);
        }
    }
    return PFATTN_SUCCESS;
}

/* ---- memory -------------------------------------------------------------------------------- */

/* A merge may be done in place: each output over either part's tensor of the same kind. */
static bool may_be_in_place(const pf_problem *problem, int output, int input) {
    static const pf_tensor_id parts[][3] = {{PF_O, PF_O0, PF_O1},
                                            {PF_LSE, PF_LSE0, PF_LSE1},
                                            {PF_TO, PF_TO0, PF_TO1},
                                            {PF_TLSE, PF_TLSE0, PF_TLSE1}};
    const pfattn_tensor *out = &problem->tensor[output];
    const pfattn_tensor *in = &problem->tensor[input];
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if ((int)parts[i][0] == output &&
            ((int)parts[i][1] == input || (int)parts[i][2] == input)) {
            return out->dtype == in->dtype &&
                   memcmp(out->stride, in->stride, sizeof out->stride) == 0;
        }
    }
    return false;
}

/* Views interleave freely (a packed gradient of q, k and v), so ranges of addresses say little; but
 * two tensors that begin at one address do share their first element. */
static pfattn_status check_overlap(const pf_problem *problem, int output, pf_tensor_set present) {
    const pfattn_tensor *out = &problem->tensor[output];
    while (present != 0) {
        int id = pf_take_first(&present);
        const pfattn_tensor *other = &problem->tensor[id];
        if (other->data != out->data || id == output || pf_tensor_elements(other) == 0 ||
            may_be_in_place(problem, output, id)) {
            continue;
        }
        return pf_error(
            PFATTN_ERROR_INVALID_ARGUMENT,
            "%s: has the data pointer of %s; an output must not overlap another tensor%s",
            names[output], names[id],
            problem->operation == PF_MERGE
                ? ", unless it is the same tensor of a part, with its type and strides"
                : "");
    }
    return PFATTN_SUCCESS;
}

static pfattn_status check_outputs(const pf_problem *problem, pf_tensor_set present) {
    for (pf_tensor_set rest = present & outputs[problem->operation]; rest != 0;) {
        int id = pf_take_first(&rest);
        pfattn_status status = pf_tensor_elements(&problem->tensor[id]) > 0
                                   ? check_overlap(problem, id, present)
                                   : PFATTN_SUCCESS;
        if (status != PFATTN_SUCCESS) {
            return status;
        }
    }
    return PFATTN_SUCCESS;
}

static pfattn_status check_layouts(pf_problem *problem, pf_tensor_set present) {
    for (pf_tensor_set rest = present; rest != 0;) {
        int id = pf_take_first(&rest);
        pfattn_tensor *tensor = &problem->tensor[id];
        pfattn_status status =
            pf_tensor_check(names[id], tensor, outputs[problem->operation] & BIT_OF(id));
        if (status != PFATTN_SUCCESS) {
            return status;
        }
        pf_tensor_make_canonical(tensor);
    }
    return check_outputs(problem, present);
}

/* ---- scalars ------------------------------------------------------------------------------- */

static pfattn_status set_alpha(const pfattn_attention *args, pf_problem *problem) {
    if (!(args->flags & PFATTN_FLAG_ALPHA)) {
        problem->alpha = problem->dim_qk > 0 ? 1.0 / sqrt((double)problem->dim_qk) : 1.0;
        return PFATTN_SUCCESS;
    }
    double limit = problem->dtype == PFATTN_DTYPE_F64 ? DBL_MAX : FLT_MAX;
    if (!(fabs(args->alpha) <= limit)) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "alpha: is %g; it must be finite and at most %g in magnitude", args->alpha,
                        limit);
    }
    problem->alpha = args->alpha;
    return PFATTN_SUCCESS;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

static int64_t saturating_subtract(int64_t a, int64_t b) {
    int64_t result;
    if (__builtin_sub_overflow(a, b, &result)) {
        return a < 0 ? INT64_MIN : INT64_MAX;
    }
    return result;
}

/* Any 64-bit diagonal and distance are legal, and i + diagonal - j must not overflow below. Causal
 * asks j - i <= diagonal and piecewise i - j >= distance - diagonal, where j - i is within (-M, N):
 * beyond that every value answers alike, and the nearest one stands for it. */
static void set_positions(const pfattn_attention *args, pf_problem *problem) {
    int64_t queries = problem->queries;
    int64_t keys = problem->keys;
    int64_t diagonal = args->flags & PFATTN_FLAG_DIAGONAL ? args->diagonal : keys - queries;
    problem->diagonal = clamp(diagonal, -queries, keys);
    if (problem->piecewise) {
        int64_t threshold = saturating_subtract(args->distance, diagonal);
        problem->distance = clamp(threshold, -keys, queries) + problem->diagonal;
    }
}

/* ---- descriptors --------------------------------------------------------------------------- */

static pfattn_status check_flags(uint32_t flags) {
    uint32_t unknown = flags & ~(uint32_t)ATTENTION_FLAGS;
    if (unknown != 0) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "flags: is 0x%" PRIx32 ", of which 0x%" PRIx32 " is no PFATTN_FLAG", flags,
                        unknown);
    }
    return PFATTN_SUCCESS;
}

static pfattn_status check_tensors(pf_problem *problem, pf_tensor_set present) {
    pfattn_status status = check_presence(problem, present);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    status = check_layouts(problem, present);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    read_dimensions(problem);
    status = check_shapes(problem, present);
    return status != PFATTN_SUCCESS ? status : check_types(problem, present);
}

static pfattn_status operation_of(pfattn_operation operation, const pfattn_attention *args,
                                  pf_operation *result) {
    bool jvp = args->to.dtype != PFATTN_DTYPE_NONE || args->tlse.dtype != PFATTN_DTYPE_NONE;
    switch (operation) {
    case PFATTN_FORWARD:
        *result = jvp ? PF_FORWARD_JVP : PF_FORWARD;
        return PFATTN_SUCCESS;
    case PFATTN_BACKWARD:
        *result = PF_BACKWARD;
        return PFATTN_SUCCESS;
    case PFATTN_BACKWARD_JVP:
        *result = PF_BACKWARD_JVP;
        return PFATTN_SUCCESS;
    }
    return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                    "operation: is %d; it must be PFATTN_FORWARD, PFATTN_BACKWARD or "
                    "PFATTN_BACKWARD_JVP",
                    (int)operation);
}

/* A tensor of the problem and where a descriptor has it. */
typedef struct field {
    unsigned short id, offset;
} field;

static const field attention_fields[] = {
#define X(id, field) {PF_##id, offsetof(pfattn_attention, field)},
    PF_ATTENTION_TENSORS(X)
#undef X
};
static const field merge_fields[] = {
#define X(id, field) {PF_##id, offsetof(pfattn_merge_args, field)},
    PF_MERGE_TENSORS(X) X(O, o) X(LSE, lse) X(TO, to) X(TLSE, tlse)
#undef X
};

/* Copy those tensors of a descriptor that are there; all others are zero already. */
static pf_tensor_set take_tensors(const void *args, const field *fields, size_t count,
                                  pf_problem *problem) {
    pf_tensor_set present = 0;
    for (size_t i = 0; i < count; i++) {
        const pfattn_tensor *tensor =
            (const pfattn_tensor *)((const char *)args + fields[i].offset);
        if (tensor->dtype != PFATTN_DTYPE_NONE) {
            problem->tensor[fields[i].id] = *tensor;
            present |= BIT_OF(fields[i].id);
        }
    }
    return present;
}
#define TAKE(args, fields, problem)                                                                \
    take_tensors(args, fields, sizeof(fields) / sizeof(fields)[0], problem)

/* Fill `result`, all zero, from a descriptor of this library's own size. */
static pfattn_status from_attention(pfattn_operation operation, const pfattn_attention *args,
                                    pf_problem *result) {
    pfattn_status status = operation_of(operation, args, &result->operation);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    status = check_flags(args->flags);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    status = check_tensors(result, TAKE(args, attention_fields, result));
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    result->causal = args->flags & PFATTN_FLAG_CAUSAL;
    result->deterministic = args->flags & PFATTN_FLAG_DETERMINISTIC;
    result->piecewise = pf_present(result, PF_Q2);
    set_positions(args, result);
    return set_alpha(args, result);
}

pfattn_status pf_attention_view(const pfattn_attention *args, pfattn_attention *own,
                                const pfattn_attention **view) {
    const void *seen;
    pfattn_status status = pf_struct_view(&attention_struct, args, own, &seen);
    if (status == PFATTN_SUCCESS) {
        *view = seen;
    }
    return status;
}

pfattn_status pf_problem_from_attention(pfattn_operation operation, const pfattn_attention *args,
                                        pf_problem *problem) {
    pfattn_attention own;
    const pfattn_attention *view;
    pfattn_status status = pf_attention_view(args, &own, &view);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    memset(problem, 0, sizeof *problem);
    return from_attention(operation, view, problem);
}

/* Tangents of a merge come together, and for an output that needs them. */
static pfattn_status check_merge_tangents(const pf_problem *problem) {
    static const pf_tensor_id tangents[] = {PF_TO0, PF_TLSE0, PF_TO1, PF_TLSE1};
    bool wanted = pf_present(problem, PF_TO) || pf_present(problem, PF_TLSE);
    for (size_t i = 0; i < sizeof tangents / sizeof tangents[0]; i++) {
        if (pf_present(problem, tangents[i]) != wanted) {
            return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                            wanted ? "%s: is absent, but to or tlse is asked for, which needs it"
                                   : "%s: is present, but neither to nor tlse is asked for; it "
                                     "must be absent",
                            names[tangents[i]]);
        }
    }
    return PFATTN_SUCCESS;
}

pfattn_status pf_problem_from_merge(const pfattn_merge_args *args, pf_problem *problem) {
    pfattn_merge_args own;
    pfattn_status status = pf_struct_read(&merge_struct, args, &own);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    memset(problem, 0, sizeof *problem);
    problem->operation = PF_MERGE;
    pf_tensor_set present = TAKE(&own, merge_fields, problem);
    status = check_merge_tangents(problem);
    return status == PFATTN_SUCCESS ? check_tensors(problem, present) : status;
}
