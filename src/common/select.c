/* SPDX-License-Identifier: Apache-2.0 */
#include "select.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kargs.h"
#include "staged_bias.h"
#include "status.h"
#include "widen.h"

enum { MAX_HEAD_DIM = 256 };

#define SEQUENCE_LIMIT PF_WINDOW_LIMIT
#define GRID_LIMIT ((int64_t)INT32_MAX)
/* Tiles of keys of all split items: what kernels compute of them stays below 2^31. */
#define SPLIT_LIMIT (INT64_C(1) << 30)
#define LOG2E 1.4426950408889634

/* ---- names --------------------------------------------------------------------------------- */

static const char *const target_names[PF_TARGET_COUNT] = {"sm_80", "sm_90a", "gfx90a", "gfx942",
                                                          "gfx950"};
static const char *const op_names[PF_OP_COUNT] = {"forward",      "forward_jvp", "backward",
                                                  "backward_jvp", "dbias",       "dbias_jvp"};
static const char *const main_names[PF_OP_COUNT] = {
    "pf_forward", "pf_forward_jvp", "pf_backward", "pf_backward_jvp", "pf_dbias", "pf_dbias_jvp"};
static const char *const dq_names[PF_OP_COUNT] = {
    [PF_OP_BACKWARD] = "pf_backward_dq", [PF_OP_BACKWARD_JVP] = "pf_backward_jvp_dq"};
static const char *const pass_names[PF_ENTRY_COUNT] = {
    [PF_ENTRY_KEY_LIVE] = "pf_key_live",
    [PF_ENTRY_BACKWARD_PRE] = "pf_backward_pre",
    [PF_ENTRY_BACKWARD_PRE_JVP] = "pf_backward_pre_jvp",
    [PF_ENTRY_DBIAS_REDUCE] = "pf_dbias_reduce",
    [PF_ENTRY_MERGE] = "pf_merge",
    [PF_ENTRY_MERGE_SPLITS] = "pf_merge_splits",
    [PF_ENTRY_MERGE_SPLITS_JVP] = "pf_merge_splits_jvp",
    [PF_ENTRY_WIDEN] = "pf_widen",
    [PF_ENTRY_NARROW] = "pf_narrow",
};
static const pfattn_dtype elements[PF_IMAGE_ELEMENTS] = {PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16,
                                                         PFATTN_DTYPE_F32, PFATTN_DTYPE_E5M2};

const char *pf_target_name(int target) {
    return target >= 0 && target < PF_TARGET_COUNT ? target_names[target] : "unknown";
}

const char *pf_op_name(int op) {
    return op >= 0 && op < PF_OP_COUNT ? op_names[op] : "unknown";
}

int pf_image_number(int op, pfattn_dtype element, int head_dim, bool general, int variant) {
    int e = 0;
    while (e < PF_IMAGE_ELEMENTS - 1 && elements[e] != element) {
        e++;
    }
    int d = head_dim <= 64 ? 0 : head_dim <= 128 ? 1 : 2;
    return (((op * PF_IMAGE_ELEMENTS + e) * PF_IMAGE_HEAD_DIMS + d) * 2 + general) * PF_VARIANTS +
           variant;
}

static int image_op(int image) {
    return image / (PF_VARIANTS * 2 * PF_IMAGE_HEAD_DIMS * PF_IMAGE_ELEMENTS);
}

void pf_image_key(int target, int image, char *key, size_t size) {
    if (image == PF_IMAGE_PASSES) {
        snprintf(key, size, "%s/passes", pf_target_name(target));
        return;
    }
    int op = image_op(image), variant = image % PF_VARIANTS, rest = image / PF_VARIANTS;
    pfattn_dtype element = elements[rest / (2 * PF_IMAGE_HEAD_DIMS) % PF_IMAGE_ELEMENTS];
    int used = snprintf(key, size, "%s/%s.%s.%d.%s", pf_target_name(target), op_names[op],
                        pfattn_dtype_string(element), 64 << rest / 2 % PF_IMAGE_HEAD_DIMS,
                        rest % 2 ? "general" : "plain");
    if (variant > 0 && (size_t)used < size) {
        snprintf(key + used, size - (size_t)used, ".v%d", variant);
    }
}

const char *pf_entry_name(int image, int entry) {
    if (image == PF_IMAGE_PASSES) {
        return pass_names[entry];
    }
    switch (entry) {
    case PF_ENTRY_MAIN:
        return main_names[image_op(image)];
    case PF_ENTRY_DQ:
        return dq_names[image_op(image)];
    default:
        return NULL;
    }
}

/* ---- what a problem asks for --------------------------------------------------------------- */

bool pf_problem_is_general(const pf_problem *problem) {
    return pf_present(problem, PF_BIAS) || pf_present(problem, PF_MASK) ||
           !((float)(problem->alpha * LOG2E) >= FLT_MIN);
}

static int padded_head_dim(const pf_problem *problem) {
    int64_t dim = problem->dim_qk > problem->dim_v ? problem->dim_qk : problem->dim_v;
    return dim <= 64 ? 64 : dim <= 128 ? 128 : MAX_HEAD_DIM;
}

static int op_of(pf_operation operation) {
    static const int ops[PF_MERGE] = {PF_OP_FORWARD, PF_OP_FORWARD_JVP, PF_OP_BACKWARD,
                                      PF_OP_BACKWARD_JVP};
    return ops[operation];
}

const char *pf_tensor_map_obstacle(const pfattn_tensor *tensor) {
    int64_t size = (int64_t)pfattn_dtype_size(tensor->dtype);
    if ((uintptr_t)tensor->data % 16 != 0) {
        return "its address is not a multiple of 16 bytes";
    }
    if (tensor->shape[3] == 0) {
        return "it has no channels";
    }
    if (tensor->shape[0] == 0 || tensor->shape[1] == 0 || tensor->shape[2] == 0) {
        return NULL; /* there is nothing to read */
    }
    if (tensor->shape[3] > 1 && tensor->stride[3] != 1) {
        return "its channels are not contiguous";
    }
    for (int d = 0; d < 3; d++) {
        int64_t stride = tensor->stride[d];
        if (tensor->shape[d] <= 1 || (stride == 0 && d < 2)) {
            continue;
        }
        if (stride <= 0 || stride >= (INT64_C(1) << 40) / size || stride * size % 16 != 0) {
            return "a stride is not a positive multiple of 16 bytes below 2^40";
        }
    }
    return NULL;
}

bool pf_tensor_map_writes(const pfattn_tensor *tensor) {
    int64_t size = (int64_t)pfattn_dtype_size(tensor->dtype);
    return tensor->shape[3] * size % 16 == 0 && pf_tensor_map_obstacle(tensor) == NULL;
}

/* ---- limits -------------------------------------------------------------------------------- */

static pfattn_status check_limit(const pf_capabilities *c, const char *name, const char *what,
                                 int64_t value, int64_t most) {
    if (value <= most) {
        return PFATTN_SUCCESS;
    }
    return pf_error(PFATTN_ERROR_UNSUPPORTED,
                    "%s: %s is %" PRId64 "; the %s backend takes at most %" PRId64, name, what,
                    value, c->backend, most);
}

static pfattn_status check_types(const pf_capabilities *c, const pf_problem *problem) {
    if (problem->dtype == PFATTN_DTYPE_F64) {
        return pf_error(PFATTN_ERROR_UNSUPPORTED,
                        "%s: dtype is f64, which the ref backend alone takes; %s takes f16, bf16, "
                        "f32 and e5m2",
                        problem->operation == PF_MERGE ? "o0" : "q", c->backend);
    }
    if (problem->dtype == PFATTN_DTYPE_E5M2 && problem->operation == PF_FORWARD_JVP) {
        return pf_error(PFATTN_ERROR_UNSUPPORTED,
                        "q: dtype is e5m2, for which the %s backend has no tangents; to and tlse "
                        "must be absent",
                        c->backend);
    }
    return PFATTN_SUCCESS;
}

/* Positive, and finite once in f32 and multiplied by log2(e). */
static pfattn_status check_alpha(const pf_capabilities *c, const pf_problem *problem) {
    if (fabs(problem->alpha) * LOG2E <= FLT_MAX) {
        return PFATTN_SUCCESS;
    }
    return pf_error(PFATTN_ERROR_UNSUPPORTED,
                    "alpha: is %g; the %s backend takes magnitudes up to %g", problem->alpha,
                    c->backend, (double)FLT_MAX / LOG2E);
}

static pfattn_status check_batch(const pf_capabilities *c, const pf_problem *problem) {
    const char *first = problem->operation == PF_MERGE ? "o0" : "q";
    int64_t rows;
    if (problem->batch > GRID_LIMIT || problem->heads > GRID_LIMIT ||
        problem->kv_heads > GRID_LIMIT ||
        __builtin_mul_overflow(problem->batch, problem->heads, &rows) || rows > GRID_LIMIT ||
        problem->batch * problem->kv_heads > GRID_LIMIT) {
        return pf_error(PFATTN_ERROR_UNSUPPORTED,
                        "%s: batch is %" PRId64 " and heads are %" PRId64
                        "; the %s backend takes a product of at most %" PRId64,
                        first, problem->batch, problem->heads, c->backend, GRID_LIMIT);
    }
    return PFATTN_SUCCESS;
}

static pfattn_status check_limits(const pf_capabilities *c, const pf_problem *problem) {
    bool merge = problem->operation == PF_MERGE;
    pfattn_status status = check_types(c, problem);
    if (status == PFATTN_SUCCESS) {
        status = check_limit(c, merge ? "o0" : "q", "number of queries", problem->queries,
                             SEQUENCE_LIMIT - 1);
    }
    if (status == PFATTN_SUCCESS) {
        status = check_batch(c, problem);
    }
    if (merge) {
        return status == PFATTN_SUCCESS
                   ? check_limit(c, "o0", "value head dimension", problem->dim_v, GRID_LIMIT)
                   : status;
    }
    if (status == PFATTN_SUCCESS) {
        status = check_limit(c, "k", "number of keys", problem->keys, SEQUENCE_LIMIT - 1);
    }
    if (status == PFATTN_SUCCESS) {
        status = check_limit(c, "q", "head dimension", problem->dim_qk, MAX_HEAD_DIM);
    }
    if (status == PFATTN_SUCCESS) {
        status = check_limit(c, "v", "value head dimension", problem->dim_v, MAX_HEAD_DIM);
    }
    return status == PFATTN_SUCCESS ? check_alpha(c, problem) : status;
}

/* ---- choosing a kernel --------------------------------------------------------------------- */

/* A kernel that was chosen. */
typedef struct kernel {
    const pf_tuning *tuning;
    int target, image;
    bool mapped;
    bool widened; /* it is one for f16 and the problem is of e5m2 */
} kernel;

static const pf_tuning *find_tuning(const pf_capabilities *c, int target, int op,
                                    pfattn_dtype element, int head_dim, int variant) {
    int element_class = PF_CLASS_OF((int)element);
    for (int i = 0; i < c->tuning_count; i++) {
        const pf_tuning *t = &c->tuning[i];
        if (t->op == op && t->head_dim == head_dim && t->target == target &&
            t->element_class == element_class && t->variant == variant) {
            return t;
        }
    }
    return NULL;
}

static bool has_image(const pf_capabilities *c, int target, int image) {
    return c->images[target] != NULL && c->images[target][image];
}

const pf_tuning *pf_kernel_find(const pf_capabilities *c, int target, int op, pfattn_dtype element,
                                int head_dim, bool general, int variant) {
    int image = pf_image_number(op, element, head_dim, general, variant);
    const pf_tuning *tuning = NULL;
    if (has_image(c, target, image) && general) {
        tuning = find_tuning(c, target, op, element, head_dim, PF_VARIANT_GENERAL + variant);
    }
    if (has_image(c, target, image) && tuning == NULL && !(general && variant > 0)) {
        tuning = find_tuning(c, target, op, element, head_dim, variant);
    }
    return tuning != NULL && tuning->shared_bytes <= c->shared_bytes ? tuning : NULL;
}

/* The variant for short sequences, where they are that and the build has one; otherwise 0. */
static int default_variant(const pf_capabilities *c, const pf_problem *problem, int target,
                           int op) {
    int head_dim = padded_head_dim(problem), owned = 0;
    int64_t longest = problem->queries > problem->keys ? problem->queries : problem->keys;
    for (int i = 0; i < c->tuning_count && !pf_is_backward(problem); i++) {
        const pf_tuning *t = &c->tuning[i];
        if (t->op != op || t->head_dim != head_dim || t->target != target ||
            t->element_class != PF_CLASS_OF((int)problem->dtype)) {
            continue;
        }
        if (t->variant == 0) {
            owned = t->owned_tile;
        } else if (longest <= t->short_most && problem->queries > owned &&
                   pf_kernel_find(c, target, op, problem->dtype, head_dim, false, t->variant)) {
            return t->variant;
        }
    }
    return 0;
}

/* The variant of a general kernel for what the problem has staged, otherwise 0. */
static int general_variant(const pf_capabilities *c, const pf_problem *problem, int target,
                           int op) {
    for (int variant = 1; variant < PF_VARIANTS; variant++) {
        const pf_tuning *t =
            pf_kernel_find(c, target, op, problem->dtype, padded_head_dim(problem), true, variant);
        if (t != NULL && t->staged == pf_staged(problem, t)) {
            return variant;
        }
    }
    return 0;
}

/* Of plain kernels the tuning file decides where it has an entry. */
static int choose_variant(const pf_capabilities *c, const pf_problem *problem, int target, int op,
                          bool general) {
    if (general) {
        return general_variant(c, problem, target, op);
    }
    int64_t owned = pf_is_backward(problem) ? problem->keys : problem->queries;
    int tuned = pf_tuned_variant(c->tuned, target, op, problem->dtype, padded_head_dim(problem),
                                 problem->causal, owned);
    return tuned >= 0 ? tuned : default_variant(c, problem, target, op);
}

/* Does the target stage its operands through tensor maps? */
static bool is_mapped(int target) {
    return target == PF_TARGET_SM_90A;
}

static const char *find_map_obstacle(const pf_problem *problem, pf_tensor_id *at) {
    static const pf_tensor_id staged[] = {PF_Q,  PF_K,  PF_V,   PF_Q2,  PF_K2,   PF_TQ,
                                          PF_TK, PF_TV, PF_TQ2, PF_TK2, PF_DOUT, PF_TDOUT};
    for (size_t i = 0; i < sizeof staged / sizeof staged[0]; i++) {
        const char *obstacle = pf_present(problem, staged[i])
                                   ? pf_tensor_map_obstacle(&problem->tensor[staged[i]])
                                   : NULL;
        if (obstacle != NULL) {
            *at = staged[i];
            return obstacle;
        }
    }
    return NULL;
}

/* Say why no target does: the layout, if a kernel was there that only the layout kept away. */
static pfattn_status no_kernel(const pf_capabilities *c, const pf_problem *problem, int image) {
    char key[64] = "";
    char targets[64] = "";
    for (int i = 0; i < c->target_count; i++) {
        int target = c->targets[i];
        pf_tensor_id at = PF_Q;
        const char *obstacle = is_mapped(target) && has_image(c, target, image)
                                   ? find_map_obstacle(problem, &at)
                                   : NULL;
        if (obstacle != NULL) {
            return pf_error(PFATTN_ERROR_UNSUPPORTED,
                            "%s: %s, which the %s kernel needs, and there is no kernel of another "
                            "target to fall back to",
                            pf_tensor_name(at), obstacle, pf_target_name(target));
        }
        size_t used = strlen(targets);
        snprintf(targets + used, sizeof targets - used, "%s%s", used > 0 ? ", " : "",
                 pf_target_name(target));
    }
    pf_image_key(c->target_count > 0 ? c->targets[0] : 0, image, key, sizeof key);
    const char *slash = strchr(key, '/');
    return pf_error(PFATTN_ERROR_UNSUPPORTED,
                    "the %s backend has no kernel %s for this device (targets: %s); build pfattn "
                    "with more targets",
                    c->backend, slash != NULL ? slash + 1 : key, targets);
}

static bool needs_general(const pf_problem *problem, int op) {
    return op == PF_OP_DBIAS || op == PF_OP_DBIAS_JVP || pf_problem_is_general(problem);
}

/* The target's own kernel for the problem's type. */
static bool find_kernel(const pf_capabilities *c, const pf_problem *problem, int target, int op,
                        kernel *chosen) {
    bool general = needs_general(problem, op);
    int head_dim = padded_head_dim(problem);
    int variant = choose_variant(c, problem, target, op, general);
    const pf_tuning *tuning =
        pf_kernel_find(c, target, op, problem->dtype, head_dim, general, variant);
    pf_tensor_id at;
    if (tuning == NULL || (is_mapped(target) && find_map_obstacle(problem, &at) != NULL)) {
        return false;
    }
    int image = pf_image_number(op, problem->dtype, head_dim, general, variant);
    *chosen = (kernel){tuning, target, image, is_mapped(target), false};
    return true;
}

/* Tensor maps do not widen what they load: such a target has no kernel for e5m2, but one for f16
 * that is far faster than another target's for e5m2. */
static bool find_widened(const pf_capabilities *c, const pf_problem *problem, int target, int op,
                         kernel *chosen) {
    if (!is_mapped(target) || !pf_can_widen(problem)) {
        return false;
    }
    pf_problem wide;
    pf_widen_problem(problem, NULL, 0, &wide);
    bool found = find_kernel(c, &wide, target, op, chosen);
    chosen->widened = found;
    return found;
}

static pfattn_status choose_kernel(const pf_capabilities *c, const pf_problem *problem, int op,
                                   kernel *chosen) {
    for (int i = 0; i < c->target_count; i++) {
        if (find_kernel(c, problem, c->targets[i], op, chosen) ||
            find_widened(c, problem, c->targets[i], op, chosen)) {
            return PFATTN_SUCCESS;
        }
    }
    return no_kernel(c, problem,
                     pf_image_number(op, problem->dtype, padded_head_dim(problem),
                                     needs_general(problem, op), 0));
}

static pfattn_status choose_passes(const pf_capabilities *c, kernel *chosen) {
    for (int i = 0; i < c->target_count; i++) {
        if (has_image(c, c->targets[i], PF_IMAGE_PASSES)) {
            *chosen = (kernel){NULL, c->targets[i], PF_IMAGE_PASSES, false, false};
            return PFATTN_SUCCESS;
        }
    }
    return pf_error(PFATTN_ERROR_UNSUPPORTED, "the %s backend has no kernel passes for this device",
                    c->backend);
}

/* ---- steps --------------------------------------------------------------------------------- */

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* A plan being made; a grid that is too large spoils it. */
typedef struct builder {
    const pf_capabilities *c;
    pf_plan *plan;
    bool too_large;
} builder;

static pf_step *add_step(builder *b, pf_step_kind kind, const kernel *k, int entry, int64_t blocks,
                         int block) {
    static pf_step none;
    b->too_large = b->too_large || blocks > GRID_LIMIT;
    if (blocks == 0 || b->too_large) {
        return &none;
    }
    pf_step *step = &b->plan->step[b->plan->step_count++];
    *step = (pf_step){.kind = kind,
                      .target = k->target,
                      .image = k->image,
                      .entry = entry,
                      .grid = (int)blocks,
                      .block = block,
                      .work_count = (int)blocks,
                      .mapped = k->mapped};
    return step;
}

/* A pass that gives each row a warp. */
static int64_t row_blocks(const builder *b, int64_t rows) {
    return ceil_div(rows, PF_PASS_THREADS / b->c->warp_size);
}

static void add_pass(builder *b, pf_step_kind kind, const kernel *passes, int entry,
                     int64_t blocks) {
    add_step(b, kind, passes, entry, blocks, PF_PASS_THREADS);
}

/* Workgroups that the device runs at once. A compute unit of AMD has four SIMDs. */
static int64_t resident_blocks(const pf_capabilities *c, const pf_tuning *t) {
    int by_waves = t->waves_per_eu * 4 * c->warp_size / t->threads;
    return (int64_t)c->compute_units * (by_waves > t->min_blocks ? by_waves : t->min_blocks);
}

/* Likewise clusters. */
static int64_t resident_clusters(const pf_capabilities *c, const pf_tuning *t) {
    return resident_blocks(c, t) / PF_CLUSTER_OF(t->persistent);
}

/* A tuned kernel over `work` items, for which it needs at least so many workgroups or clusters. */
static void add_tuned_for(builder *b, pf_step_kind kind, const kernel *k, int64_t work,
                          int64_t least) {
    const pf_tuning *t = k->tuning;
    int64_t cluster = PF_CLUSTER_OF(t->persistent);
    int64_t blocks = (work > least ? work : least) * cluster;
    pf_step *step = add_step(b, kind, k, PF_ENTRY_MAIN, blocks, t->threads);
    if (blocks == 0 || b->too_large) {
        return;
    }
    int64_t resident = resident_clusters(b->c, t) * cluster;
    if (t->persistent && step->grid > resident) {
        step->grid = (int)resident;
    }
    step->work_count = (int)work;
    step->shared_bytes = t->shared_bytes;
}

static void add_tuned(builder *b, pf_step_kind kind, const kernel *k, int64_t work) {
    add_tuned_for(b, kind, k, work, 0);
}

/* None where there is no query that could keep a key. */
static int64_t key_live_blocks(const pf_problem *problem, const pf_scratch *scratch) {
    bool empty = problem->batch == 0 || problem->heads == 0;
    return empty || scratch->key_live == PF_SCRATCH_NONE
               ? 0
               : scratch->live_batch * scratch->live_heads *
                     (scratch->keys_padded / PF_KEY_LIVE_TILE);
}

static pfattn_status finish(const builder *b, const pf_problem *problem) {
    if (!b->too_large) {
        return PFATTN_SUCCESS;
    }
    return pf_error(PFATTN_ERROR_UNSUPPORTED,
                    "args: batch %" PRId64 ", heads %" PRId64 ", queries %" PRId64
                    " and keys %" PRId64 " are too many; the %s backend takes fewer than 2^31 "
                    "tiles in all",
                    problem->batch, problem->heads, problem->queries, problem->keys, b->c->backend);
}

static pfattn_status lay_out(builder *b, const pf_problem *problem, const pf_scratch_needs *needs) {
    if (pf_scratch_layout(problem, needs, &b->plan->scratch)) {
        return PFATTN_SUCCESS;
    }
    b->too_large = true;
    return finish(b, problem);
}

/* ---- the operations ------------------------------------------------------------------------ */

/* Keys that the last query, and hence some query, can keep. */
static int64_t kept_keys(const pf_problem *problem) {
    int64_t end = problem->keys;
    if (problem->causal && problem->queries + problem->diagonal < end) {
        end = problem->queries + problem->diagonal;
    }
    return end > 0 ? end : 0;
}

/* Workgroups that have a range of the keys of split items. */
static int64_t split_ranges(const pf_split_plan *split) {
    return split->items > 0 ? ceil_div((int64_t)split->items * split->tiles, split->length) : 0;
}

/* Where `work` items leave part of the device idle, for some time or in a last round, share out the
 * keys of those of that round so that all workgroups have about as many. That pays where the round
 * becomes shorter by more than it takes to write parts, to join them, and to begin and end once
 * more; time is counted in the keys that a workgroup walks over in it. And where the round becomes
 * but a little shorter nothing is gained: what is idle leaves others power. Causal items of several
 * rounds differ in length and even out what is left by themselves. */
static pf_split_plan split_keys(const pf_capabilities *c, const pf_problem *problem,
                                const pf_tuning *t, int64_t work) {
    enum { BEGIN_AND_END = 256, MERGE = 512, MERGE_ROW = 5, LEAST_TILES = 2, LEAST_PART = 5 };
    const pf_split_plan none = {.whole = work};
    int64_t resident = resident_blocks(c, t);
    int64_t tiles = ceil_div(kept_keys(problem), t->cross_tile);
    int64_t items = work % resident;
    int64_t rows = problem->queries < t->owned_tile ? problem->queries : t->owned_tile;
    if (items == 0 || (work > resident && (!t->persistent || problem->causal))) {
        return none;
    }
    /* With tiles of one item alone a workgroup begins and ends once, and where grids are not
     * persistent it must. */
    int64_t length = ceil_div(items * tiles, resident), alone = ceil_div(tiles, resident / items);
    length = length > LEAST_TILES ? length : LEAST_TILES;
    alone = alone > LEAST_TILES ? alone : LEAST_TILES;
    bool crosses = t->persistent && (alone - length) * t->cross_tile > BEGIN_AND_END;
    length = crosses ? length : alone;
    int64_t cost = BEGIN_AND_END + MERGE + MERGE_ROW * rows;
    int64_t saved = tiles - length;
    if (items * tiles > SPLIT_LIMIT || saved * t->cross_tile <= cost ||
        saved * LEAST_PART < tiles) {
        return none;
    }
    if (!crosses) {
        tiles = ceil_div(tiles, length) * length;
    }
    return (pf_split_plan){.items = (int)items,
                           .whole = work - items,
                           .tiles = (int)tiles,
                           .length = (int)length,
                           .rows = (int)rows,
                           .many_parts = ceil_div(tiles - 1, length) + 1 > PF_MERGE_FEW};
}

/* Each has a place of its own: ranges and items begin anew one at a time. */
static int64_t count_parts(const pf_split_plan *split) {
    return split->items > 0 ? split_ranges(split) + split->items - 1 : 0;
}

static void add_merge_splits(builder *b, const pf_problem *problem, const kernel *passes) {
    const pf_split_plan *split = &b->plan->split;
    int64_t rows = (int64_t)split->items * split->rows;
    int64_t channels = b->plan->tuning->out_dim;
    int64_t blocks = split->many_parts
                         ? row_blocks(b, rows * ceil_div(channels, PF_MERGE_CHANNELS))
                         : ceil_div(rows * ceil_div(channels, PF_MERGE_RUN), PF_PASS_THREADS);
    int entry =
        problem->operation == PF_FORWARD_JVP ? PF_ENTRY_MERGE_SPLITS_JVP : PF_ENTRY_MERGE_SPLITS;
    add_pass(b, PF_STEP_MERGE_SPLITS, passes, entry, blocks);
}

static pfattn_status plan_forward(builder *b, const pf_problem *problem) {
    kernel forward = {0}, passes = {0};
    pfattn_status status = choose_kernel(b->c, problem, op_of(problem->operation), &forward);
    if (status == PFATTN_SUCCESS) {
        status = choose_passes(b->c, &passes);
    }
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    const pf_tuning *t = b->plan->tuning = forward.tuning;
    int64_t work = problem->batch * problem->heads * ceil_div(problem->queries, t->owned_tile) *
                   (t->head_dim / t->out_dim);
    const pf_split_plan split = b->plan->split = split_keys(b->c, problem, t, work);
    b->plan->widened = forward.widened;
    /* What joins parts rounds as well. */
    b->plan->narrowed = forward.widened && split.whole > 0 && pf_needs_narrowing(problem);
    status = lay_out(b, problem,
                     &(pf_scratch_needs){.split_parts = (int)count_parts(&split),
                                         .split_rows = split.rows,
                                         .widened = forward.widened,
                                         .narrowed = b->plan->narrowed});
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    if (work > 0) {
        if (forward.widened) {
            add_pass(b, PF_STEP_WIDEN, &passes, PF_ENTRY_WIDEN, pf_widen_blocks(problem));
        }
        add_pass(b, PF_STEP_KEY_LIVE, &passes, PF_ENTRY_KEY_LIVE,
                 key_live_blocks(problem, &b->plan->scratch));
    }
    add_tuned_for(b, PF_STEP_MAIN, &forward, split.whole, split_ranges(&split));
    add_merge_splits(b, problem, &passes);
    if (b->plan->narrowed) {
        int64_t rows = problem->batch * problem->heads * problem->queries;
        add_pass(b, PF_STEP_NARROW, &passes, PF_ENTRY_NARROW, ceil_div(rows, PF_WIDEN_ROWS));
    }
    return finish(b, problem);
}

bool pf_dbias_is_full(const pf_problem *problem) {
    const int64_t *extent = problem->tensor[PF_BIAS].shape;
    return extent[0] == problem->batch && extent[1] == problem->heads &&
           extent[2] == problem->queries && extent[3] == problem->keys;
}

static bool wants_main(const pf_problem *problem) {
    static const pf_tensor_id ids[] = {PF_DQ, PF_DK, PF_DV, PF_DQ2, PF_DK2};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        if (pf_wants_gradient(problem, ids[i])) {
            return true;
        }
    }
    return pf_wants_gradient(problem, PF_DBIAS) && pf_dbias_is_full(problem);
}

/* How the dbias kernel is divided: workgroups = tiles of dbias * splits of what is summed into
 * each. */
typedef struct dbias_grid {
    int64_t tiles;
    int splits;
} dbias_grid;

static dbias_grid divide_dbias(const pf_capabilities *c, const pf_problem *problem,
                               const pf_tuning *t) {
    const int64_t *extent = problem->tensor[PF_BIAS].shape;
    int64_t full[4] = {problem->batch, problem->heads, problem->queries, problem->keys};
    int64_t blocks[4] = {problem->batch, problem->heads, ceil_div(problem->queries, t->cross_tile),
                         ceil_div(problem->keys, t->owned_tile)};
    int64_t tiles = 1, summed = 1;
    for (int d = 0; d < 4; d++) {
        int64_t *product = extent[d] == full[d] ? &tiles : &summed;
        if (__builtin_mul_overflow(*product, blocks[d], product)) {
            *product = INT64_MAX;
        }
    }
    int64_t splits = tiles > 0 ? ceil_div(2 * (int64_t)c->compute_units, tiles) : 1;
    splits = splits < summed ? splits : summed;
    return (dbias_grid){tiles, splits > 1 ? (int)splits : 1};
}

/* A single split is stored by the dbias kernel itself. */
static void add_dbias(builder *b, const pf_problem *problem, const kernel *dbias,
                      const kernel *passes, const dbias_grid *grid) {
    b->too_large = b->too_large || grid->tiles > GRID_LIMIT;
    if (b->too_large) {
        return;
    }
    add_tuned(b, PF_STEP_DBIAS, dbias, grid->tiles * grid->splits);
    if (grid->splits > 1) {
        const int64_t *extent = problem->tensor[PF_BIAS].shape;
        add_pass(b, PF_STEP_DBIAS_REDUCE, passes, PF_ENTRY_DBIAS_REDUCE,
                 ceil_div(extent[0] * extent[1] * extent[2] * extent[3], PF_PASS_THREADS));
    }
}

/* The kernels of backward; a tuning is NULL where that kernel does not run. */
typedef struct backward_kernels {
    kernel main, dbias, passes;
    dbias_grid grid;
} backward_kernels;

static pfattn_status choose_backward(builder *b, const pf_problem *problem, backward_kernels *k) {
    int op = op_of(problem->operation);
    memset(k, 0, sizeof *k);
    pfattn_status status = choose_passes(b->c, &k->passes);
    if (status == PFATTN_SUCCESS && wants_main(problem)) {
        status = choose_kernel(b->c, problem, op, &k->main);
    }
    if (status == PFATTN_SUCCESS && pf_wants_gradient(problem, PF_DBIAS) &&
        !pf_dbias_is_full(problem)) {
        int dbias_op = op == PF_OP_BACKWARD ? PF_OP_DBIAS : PF_OP_DBIAS_JVP;
        status = choose_kernel(b->c, problem, dbias_op, &k->dbias);
        if (status == PFATTN_SUCCESS) {
            k->grid = divide_dbias(b->c, problem, k->dbias.tuning);
        }
    }
    return status;
}

/* The items of a last round that leaves clusters idle, where dividing these among all saves a
 * cluster some tiles of queries: parts cost as much as about four. Causal items, which differ in
 * length, fill their rounds; where determinism is asked for, items have an order. */
static int divided_items(const pf_capabilities *c, const pf_problem *problem, const pf_tuning *t,
                         int64_t work) {
    enum { LEAST_SAVED = 8 };
    if (!t->persistent || problem->causal || problem->piecewise || problem->deterministic ||
        (pf_wants_gradient(problem, PF_DBIAS) && pf_dbias_is_full(problem))) {
        return 0;
    }
    int64_t clusters = resident_clusters(c, t), left = work % clusters;
    if (work <= clusters || left == 0) {
        return 0;
    }
    int64_t tiles = ceil_div(problem->queries, t->cross_tile);
    int64_t group = problem->heads / problem->kv_heads; /* of no heads there is no work */
    bool pays = (tiles - ceil_div(left * tiles, clusters)) * group >= LEAST_SAVED;
    return pays && left * tiles < INT32_MAX ? (int)left : 0;
}

static pfattn_status plan_backward(builder *b, const pf_problem *problem) {
    backward_kernels k;
    pfattn_status status = choose_backward(b, problem, &k);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    const pf_tuning *t = b->plan->tuning = k.main.tuning;
    b->plan->dbias_tuning = k.dbias.tuning;
    b->plan->dbias_splits = k.grid.splits;
    int64_t work = 0, cluster = 1;
    if (t != NULL) {
        cluster = PF_CLUSTER_OF(t->persistent);
        work = problem->batch * problem->kv_heads *
               ceil_div(problem->keys, t->owned_tile * cluster) * (t->head_dim / t->out_dim);
        b->plan->divided = divided_items(b->c, problem, t, work);
    }
    int64_t sharing = b->plan->divided > 0 ? resident_clusters(b->c, t) * cluster : 0;
    pf_scratch_needs needs = {
        .query_tile = t != NULL ? t->cross_tile : 0,
        .head_dim = padded_head_dim(problem),
        .dq_parts = t != NULL ? t->head_dim / t->out_dim : 0,
        .dbias_tile = k.dbias.tuning != NULL ? k.dbias.tuning->cross_tile : 0,
        .dbias_splits = k.grid.splits > 1 ? k.grid.splits : 0,
        .parts = (int)(sharing * 2 * 2), /* of two items, dK and dV */
        .part_size = t != NULL ? t->owned_tile * t->out_dim : 0,
    };
    status = lay_out(b, problem, &needs);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    int64_t rows = problem->batch * problem->heads;
    add_pass(b, PF_STEP_KEY_LIVE, &k.passes, PF_ENTRY_KEY_LIVE,
             key_live_blocks(problem, &b->plan->scratch));
    add_pass(b, PF_STEP_BACKWARD_PRE, &k.passes,
             problem->operation == PF_BACKWARD_JVP ? PF_ENTRY_BACKWARD_PRE_JVP
                                                   : PF_ENTRY_BACKWARD_PRE,
             rows * ceil_div(b->plan->scratch.queries_padded, PF_PRE_ROWS));
    if (t != NULL) {
        add_tuned(b, PF_STEP_MAIN, &k.main, work);
        int64_t blocks = b->plan->divided * 2 * cluster * (t->owned_tile / PF_JOIN_ROWS);
        if (pf_wants_gradient(problem, PF_DQ) || pf_wants_gradient(problem, PF_DQ2)) {
            blocks += rows * ceil_div(problem->queries, t->cross_tile);
        }
        add_step(b, PF_STEP_DQ, &k.main, PF_ENTRY_DQ, blocks, t->threads);
    }
    if (k.dbias.tuning != NULL) {
        add_dbias(b, problem, &k.dbias, &k.passes, &k.grid);
    }
    return finish(b, problem);
}

static pfattn_status plan_merge(builder *b, const pf_problem *problem) {
    kernel passes = {0};
    pfattn_status status = choose_passes(b->c, &passes);
    if (status == PFATTN_SUCCESS) {
        status = lay_out(b, problem, &(pf_scratch_needs){0});
    }
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    int64_t rows = problem->batch * problem->heads * problem->queries;
    add_pass(b, PF_STEP_MERGE, &passes, PF_ENTRY_MERGE, row_blocks(b, rows));
    return finish(b, problem);
}

pfattn_status pf_select(const pf_capabilities *capabilities, const pf_problem *problem,
                        pf_plan *plan) {
    pfattn_status status = check_limits(capabilities, problem);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    /* The steps and the scratch are filled where they are counted and laid out. */
    plan->step_count = 0;
    plan->tuning = plan->dbias_tuning = NULL;
    plan->dbias_splits = plan->divided = 0;
    plan->split = (pf_split_plan){0};
    plan->widened = plan->narrowed = false;
    builder b = {capabilities, plan, false};
    switch (problem->operation) {
    case PF_FORWARD:
    case PF_FORWARD_JVP:
        return plan_forward(&b, problem);
    case PF_BACKWARD:
    case PF_BACKWARD_JVP:
        return plan_backward(&b, problem);
    default:
        return plan_merge(&b, problem);
    }
}

/* Other addresses may forbid the best target; what then follows must fit as well. */
static size_t workspace_of_others(const pf_capabilities *capabilities, const pf_problem *problem) {
    pf_capabilities others = *capabilities;
    pf_plan plan;
    size_t most = 0;
    char before[PF_ERROR_SIZE];
    pf_error_save(before);
    while (others.target_count > 1) {
        others.target_count--;
        memmove(others.targets, others.targets + 1,
                sizeof others.targets[0] * (size_t)others.target_count);
        if (pf_select(&others, problem, &plan) == PFATTN_SUCCESS && plan.scratch.bytes > most) {
            most = plan.scratch.bytes;
        }
    }
    pf_error_restore(before);
    return most;
}

size_t pf_select_workspace(const pf_capabilities *capabilities, const pf_problem *problem,
                           const pf_plan *plan) {
    size_t own = plan->scratch.bytes;
    if (problem->operation == PF_MERGE || capabilities->target_count < 2) {
        return own;
    }
    size_t others = workspace_of_others(capabilities, problem);
    return own > others ? own : others;
}
