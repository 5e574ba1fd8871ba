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
 * present too. `use` is for forward, forward JVP, backward, backward JVP, merge. */
typedef struct tensor_rule {
    char shape[5];
    type_rule type;
    pf_tensor_id source;
    use use[PF_OPERATION_COUNT];
} tensor_rule;

static const tensor_rule rules[PF_TENSOR_COUNT] = {
    [PF_Q] = {"BHMD", TYPE_INPUT, PF_Q, {NEED, NEED, NEED, NEED, NO}},
    [PF_K] = {"BGND", TYPE_INPUT, PF_K, {NEED, NEED, NEED, NEED, NO}},
    [PF_V] = {"BGNE", TYPE_INPUT, PF_V, {NEED, NEED, NEED, NEED, NO}},
    [PF_BIAS] = {"bhmn", TYPE_BIAS, PF_BIAS, {IN, IN, IN, IN, NO}},
    [PF_MASK] = {"bhmn", TYPE_MASK, PF_MASK, {IN, IN, IN, IN, NO}},
    [PF_Q2] = {"BHMD", TYPE_INPUT, PF_K2, {IN, IN, IN, IN, NO}},
    [PF_K2] = {"BGND", TYPE_INPUT, PF_Q2, {IN, IN, IN, IN, NO}},
    [PF_TQ] = {"BHMD", TYPE_INPUT, PF_Q, {NO, IN, NO, IN, NO}},
    [PF_TK] = {"BGND", TYPE_INPUT, PF_K, {NO, IN, NO, IN, NO}},
    [PF_TV] = {"BGNE", TYPE_INPUT, PF_V, {NO, IN, NO, IN, NO}},
    [PF_TBIAS] = {"", TYPE_BIAS, PF_BIAS, {NO, IN, NO, IN, NO}},
    [PF_TQ2] = {"BHMD", TYPE_INPUT, PF_Q2, {NO, IN, NO, IN, NO}},
    [PF_TK2] = {"BGND", TYPE_INPUT, PF_K2, {NO, IN, NO, IN, NO}},
    [PF_O] = {"BHME", TYPE_RESULT, PF_O, {OUT, OUT, NEED, NEED, OUT}},
    [PF_LSE] = {"BHM1", TYPE_STATISTIC, PF_LSE, {OUT, OUT, NEED, NEED, OUT}},
    [PF_TO] = {"BHME", TYPE_RESULT, PF_TO, {OUT, OUT, NO, NEED, OUT}},
    [PF_TLSE] = {"BHM1", TYPE_STATISTIC, PF_TLSE, {OUT, OUT, NO, NEED, OUT}},
    [PF_DOUT] = {"BHME", TYPE_INPUT, PF_DOUT, {NO, NO, NEED, NEED, NO}},
    [PF_DLSE] = {"BHM1", TYPE_STATISTIC, PF_DLSE, {NO, NO, IN, IN, NO}},
    [PF_TDOUT] = {"BHME", TYPE_INPUT, PF_DOUT, {NO, NO, NO, IN, NO}},
    [PF_DQ] = {"BHMD", TYPE_GRADIENT, PF_Q, {NO, NO, OUT, NO, NO}},
    [PF_DK] = {"BGND", TYPE_GRADIENT, PF_K, {NO, NO, OUT, NO, NO}},
    [PF_DV] = {"BGNE", TYPE_GRADIENT, PF_V, {NO, NO, OUT, NO, NO}},
    [PF_DBIAS] = {"", TYPE_GRADIENT, PF_BIAS, {NO, NO, OUT, NO, NO}},
    [PF_DQ2] = {"BHMD", TYPE_GRADIENT, PF_Q2, {NO, NO, OUT, NO, NO}},
    [PF_DK2] = {"BGND", TYPE_GRADIENT, PF_K2, {NO, NO, OUT, NO, NO}},
    [PF_TDQ] = {"BHMD", TYPE_GRADIENT, PF_Q, {NO, NO, NO, OUT, NO}},
    [PF_TDK] = {"BGND", TYPE_GRADIENT, PF_K, {NO, NO, NO, OUT, NO}},
    [PF_TDV] = {"BGNE", TYPE_GRADIENT, PF_V, {NO, NO, NO, OUT, NO}},
    [PF_TDBIAS] = {"", TYPE_GRADIENT, PF_BIAS, {NO, NO, NO, OUT, NO}},
    [PF_TDQ2] = {"BHMD", TYPE_GRADIENT, PF_Q2, {NO, NO, NO, OUT, NO}},
    [PF_TDK2] = {"BGND", TYPE_GRADIENT, PF_K2, {NO, NO, NO, OUT, NO}},
    [PF_O0] = {"BHME", TYPE_PART, PF_O0, {NO, NO, NO, NO, NEED}},
    [PF_LSE0] = {"BHM1", TYPE_STATISTIC, PF_LSE0, {NO, NO, NO, NO, NEED}},
    [PF_TO0] = {"BHME", TYPE_PART, PF_TO0, {NO, NO, NO, NO, IN}},
    [PF_TLSE0] = {"BHM1", TYPE_STATISTIC, PF_TLSE0, {NO, NO, NO, NO, IN}},
    [PF_O1] = {"BHME", TYPE_PART, PF_O1, {NO, NO, NO, NO, NEED}},
    [PF_LSE1] = {"BHM1", TYPE_STATISTIC, PF_LSE1, {NO, NO, NO, NO, NEED}},
    [PF_TO1] = {"BHME", TYPE_PART, PF_TO1, {NO, NO, NO, NO, IN}},
    [PF_TLSE1] = {"BHM1", TYPE_STATISTIC, PF_TLSE1, {NO, NO, NO, NO, IN}},
};

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

static use use_of(const pf_problem *problem, int id) {
    return rules[id].use[problem->operation];
}

/* ---- presence ------------------------------------------------------------------------------ */

static pfattn_status check_use(const pf_problem *problem, int id) {
    const char *operation = operation_names[problem->operation];
    bool present = pf_present(problem, id);
    if (present && use_of(problem, id) == NO) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "%s: is present, but %s does not use it; it must be absent", names[id],
                        operation);
    }
    if (!present && use_of(problem, id) == NEED) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT, "%s: is absent, but %s needs it", names[id],
                        operation);
    }
    if (present && !pf_present(problem, rules[id].source)) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT, "%s: is present without %s, which it needs",
                        names[id], names[rules[id].source]);
    }
    return PFATTN_SUCCESS;
}

/* "dq, dk or dv", for the message that none of them is there. */
static void list_outputs(const pf_problem *problem, char *text, size_t size) {
    size_t used = 0;
    for (int id = 0; id < PF_TENSOR_COUNT && used < size; id++) {
        if (use_of(problem, id) == OUT) {
            used +=
                (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", names[id]);
        }
    }
}

static pfattn_status check_presence(const pf_problem *problem) {
    int outputs = 0;
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        pfattn_status status = check_use(problem, id);
        if (status != PFATTN_SUCCESS) {
            return status;
        }
        outputs += pf_present(problem, id) && use_of(problem, id) == OUT;
    }
    if (outputs == 0) {
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

static pfattn_status check_size(const pf_problem *problem, int id, int d) {
    int64_t size = problem->tensor[id].shape[d];
    char letter = rules[id].shape[d];
    bool broadcasts = letter >= 'a';
    dimension want = dimension_of(problem, broadcasts ? (char)(letter - 'a' + 'A') : letter);
    if (size == want.size || (broadcasts && size == 1)) {
        return PFATTN_SUCCESS;
    }
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

static pfattn_status check_shape(const pf_problem *problem, int id) {
    if (rules[id].shape[0] == '\0') {
        return check_same_shape(problem, id, rules[id].source);
    }
    for (int d = 0; d < 4; d++) {
        pfattn_status status = check_size(problem, id, d);
        if (status != PFATTN_SUCCESS) {
            return status;
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

static pfattn_status check_shapes(const pf_problem *problem) {
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        pfattn_status status = pf_present(problem, id) ? check_shape(problem, id) : PFATTN_SUCCESS;
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

static pfattn_status check_types(const pf_problem *problem) {
    pfattn_status status = check_problem_type(problem);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        if (!pf_present(problem, id)) {
            continue;
        }
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
static pfattn_status check_overlap(const pf_problem *problem, int output) {
    const pfattn_tensor *out = &problem->tensor[output];
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        const pfattn_tensor *other = &problem->tensor[id];
        if (id == output || !pf_present(problem, id) || other->data != out->data ||
            pf_tensor_elements(other) == 0 || may_be_in_place(problem, output, id)) {
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

static pfattn_status check_outputs(const pf_problem *problem) {
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        if (!pf_present(problem, id) || use_of(problem, id) != OUT ||
            pf_tensor_elements(&problem->tensor[id]) == 0) {
            continue;
        }
        pfattn_status status = check_overlap(problem, id);
        if (status != PFATTN_SUCCESS) {
            return status;
        }
    }
    return PFATTN_SUCCESS;
}

static pfattn_status check_layouts(pf_problem *problem) {
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        pfattn_tensor *tensor = &problem->tensor[id];
        pfattn_status status = PFATTN_SUCCESS;
        if (pf_present(problem, id)) {
            status = pf_tensor_check(names[id], tensor, use_of(problem, id) == OUT);
        }
        if (status != PFATTN_SUCCESS) {
            return status;
        }
        *tensor = pf_tensor_canonical(tensor);
    }
    return check_outputs(problem);
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

static pfattn_status check_tensors(pf_problem *problem) {
    pfattn_status status = check_presence(problem);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    status = check_layouts(problem);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    read_dimensions(problem);
    status = check_shapes(problem);
    return status != PFATTN_SUCCESS ? status : check_types(problem);
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

/* Fill `result` from a descriptor of this library's own size. */
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
#define X(id, field) result->tensor[PF_##id] = args->field;
    PF_ATTENTION_TENSORS(X)
#undef X
    status = check_tensors(result);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    result->causal = args->flags & PFATTN_FLAG_CAUSAL;
    result->deterministic = args->flags & PFATTN_FLAG_DETERMINISTIC;
    result->piecewise = pf_present(result, PF_Q2);
    set_positions(args, result);
    return set_alpha(args, result);
}

pfattn_status pf_problem_from_attention(pfattn_operation operation, const pfattn_attention *args,
                                        pf_problem *problem) {
    pfattn_attention own;
    pfattn_status status = pf_struct_read(&attention_struct, args, &own);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    pf_problem result;
    memset(&result, 0, sizeof result);
    status = from_attention(operation, &own, &result);
    if (status == PFATTN_SUCCESS) {
        *problem = result;
    }
    return status;
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
    pf_problem result;
    memset(&result, 0, sizeof result);
    result.operation = PF_MERGE;
#define X(id, field) result.tensor[PF_##id] = own.field;
    PF_MERGE_TENSORS(X)
    X(O, o)
    X(LSE, lse)
    X(TO, to)
    X(TLSE, tlse)
#undef X
    status = check_merge_tangents(&result);
    if (status == PFATTN_SUCCESS) {
        status = check_tensors(&result);
    }
    if (status == PFATTN_SUCCESS) {
        *problem = result;
    }
    return status;
}
