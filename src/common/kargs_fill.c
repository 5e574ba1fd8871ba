/* SPDX-License-Identifier: Apache-2.0 */
#include "kargs_fill.h"

#include <math.h>
#include <string.h>

#include "staged_bias.h"

#define LOG2E 1.4426950408889634

/* The types of the kernels are the public ones. */
_Static_assert((int)PF_KTYPE_F16 == (int)PFATTN_DTYPE_F16, "f16");
_Static_assert((int)PF_KTYPE_BF16 == (int)PFATTN_DTYPE_BF16, "bf16");
_Static_assert((int)PF_KTYPE_F32 == (int)PFATTN_DTYPE_F32, "f32");
_Static_assert((int)PF_KTYPE_E5M2 == (int)PFATTN_DTYPE_E5M2, "e5m2");

static const pf_tensor_id operand_tensors[PF_OPERAND_COUNT] = {
    [PF_OPERAND_Q] = PF_Q,      [PF_OPERAND_Q + 1] = PF_Q2,   [PF_OPERAND_K] = PF_K,
    [PF_OPERAND_K + 1] = PF_K2, [PF_OPERAND_TQ] = PF_TQ,      [PF_OPERAND_TQ + 1] = PF_TQ2,
    [PF_OPERAND_TK] = PF_TK,    [PF_OPERAND_TK + 1] = PF_TK2, [PF_OPERAND_V] = PF_V,
    [PF_OPERAND_TV] = PF_TV,    [PF_OPERAND_DOUT] = PF_DOUT,  [PF_OPERAND_TDOUT] = PF_TDOUT,
};

pf_tensor_id pf_operand_tensor(int operand) {
    return operand_tensors[operand];
}

/* Fill a tensor argument; its type is returned. */
static int fill_tensor(pf_karg_tensor *to, const pfattn_tensor *from) {
    to->address = (unsigned long long)(uintptr_t)from->data;
    for (int d = 0; d < 4; d++) {
        to->stride[d] = from->stride[d];
    }
    return (int)from->dtype;
}

/* ---- windows ------------------------------------------------------------------------------- */

static int clamp_to_window(int64_t value) {
    return value > PF_WINDOW_LIMIT    ? PF_WINDOW_LIMIT
           : value < -PF_WINDOW_LIMIT ? -PF_WINDOW_LIMIT
                                      : (int)value;
}

/* a - b, or the bound that it would pass. */
static int window_difference(int64_t a, int64_t b) {
    int64_t difference;
    if (__builtin_sub_overflow(a, b, &difference)) {
        return a < 0 ? -PF_WINDOW_LIMIT : PF_WINDOW_LIMIT;
    }
    return clamp_to_window(difference);
}

/* The last query, M - 1, keeps the last keys: j <= M - 1 - low. */
static int key_end(const pf_problem *problem, int low) {
    int64_t end = problem->queries - low;
    end = end < problem->keys ? end : problem->keys;
    return end > 0 ? (int)end : 0;
}

/* With x = i - j: causal keeps x >= -diagonal, and pair 1 takes x >= distance - diagonal. */
static void fill_windows(const pf_problem *problem, pf_attention_kargs *args) {
    int causal_low = problem->causal ? window_difference(0, problem->diagonal) : -PF_WINDOW_LIMIT;
    args->window_low[0] = causal_low;
    args->window_high[0] = PF_WINDOW_LIMIT;
    args->window_low[1] = args->window_high[1] = PF_WINDOW_LIMIT; /* nothing */
    args->pairs = 1;
    if (problem->piecewise) {
        int threshold = window_difference(problem->distance, problem->diagonal);
        args->window_high[0] = threshold;
        args->window_low[1] = causal_low > threshold ? causal_low : threshold;
        args->pairs = 2;
    }
    for (int p = 0; p < args->pairs; p++) {
        args->key_end[p] = key_end(problem, args->window_low[p]);
    }
}

int pf_operand_rows(const pf_attention_kargs *args, int operand) {
    const int *end = args->key_end;
    switch (operand) {
    case PF_OPERAND_K:
    case PF_OPERAND_TK:
        return end[0];
    case PF_OPERAND_K + 1:
    case PF_OPERAND_TK + 1:
        return end[1];
    case PF_OPERAND_V:
    case PF_OPERAND_TV:
        return end[0] > end[1] ? end[0] : end[1];
    default:
        return args->queries;
    }
}

/* ---- the rest ------------------------------------------------------------------------------ */

pf_divisor pf_divisor_of(int value) {
    pf_divisor by = {value, 0, 0};
    if (value > 1) {
        /* 2^31 <= 2^(31 + bits) / value < 2^32, rounded up: exact for n < 2^31, since what rounding
         * adds to the quotient, n / 2^(31 + bits) at most, is less than 1 / value. */
        int bits = 0;
        while (bits < 31 && 1 << bits < value) {
            bits++;
        }
        by.multiplier = (unsigned)(((1ull << (31 + bits)) + (unsigned)value - 1) / (unsigned)value);
        by.shift = bits - 1;
    }
    return by;
}

/* Do bias and mask vary with heads and not with batches? Then batches that follow each other find
 * them in the cache. */
static bool shares_batches(const pf_attention_kargs *args) {
    const pf_karg_tensor *all[] = {&args->bias, &args->tbias, &args->mask};
    bool by_head = false;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i]->address != 0 && all[i]->stride[0] != 0) {
            return false;
        }
        by_head = by_head || (all[i]->address != 0 && all[i]->stride[1] != 0);
    }
    return by_head;
}

static void fill_divisors(const pf_problem *problem, const pf_plan *plan,
                          pf_attention_kargs *args) {
    const pf_tuning *tuning = plan->tuning;
    bool backward = pf_is_backward(problem);
    if (tuning == NULL) {
        return;
    }
    int tile = tuning->owned_tile * PF_CLUSTER_OF(tuning->persistent);
    int rows = backward ? args->keys : args->queries;
    int heads = backward ? args->kv_heads : args->heads;
    args->batches_inner = shares_batches(args);
    args->by_inner = pf_divisor_of(args->batches_inner ? args->batch : heads);
    args->by_group = pf_divisor_of(args->group);
    args->by_tiles = pf_divisor_of((rows + tile - 1) / tile);
}

/* Is it 1, 1/2, ..., 2^-16? Less would take numbers of bf16 that matter below its normal ones. */
static bool shifts(double alpha) {
    int exponent;
    return frexp(alpha, &exponent) == 0.5 && exponent <= 1 && exponent >= -15;
}

static void fill_sizes(const pf_problem *problem, pf_attention_kargs *args) {
    args->batch = (int)problem->batch;
    args->heads = (int)problem->heads;
    args->kv_heads = (int)problem->kv_heads;
    args->group = problem->kv_heads > 0 ? (int)(problem->heads / problem->kv_heads) : 0;
    args->queries = (int)problem->queries;
    args->keys = (int)problem->keys;
    args->dim_qk = (int)problem->dim_qk;
    args->dim_v = (int)problem->dim_v;
    args->deterministic = problem->deterministic;
    args->alpha = (float)problem->alpha;
    args->alpha_log2e = (float)(problem->alpha * LOG2E);
    args->alpha_shifts = shifts(problem->alpha);
    args->lse_unit = pf_problem_is_general(problem) ? 1.0f : (float)LOG2E;
    args->element_type = (int)problem->dtype;
}

static void fill_inputs(const pf_problem *problem, pf_attention_kargs *args) {
    const pfattn_tensor *t = problem->tensor;
    for (int i = 0; i < PF_OPERAND_COUNT; i++) {
        fill_tensor(&args->operand[i], &t[operand_tensors[i]]);
    }
    args->bias_type = fill_tensor(&args->bias, &t[PF_BIAS]);
    args->tbias_type = fill_tensor(&args->tbias, &t[PF_TBIAS]);
    fill_tensor(&args->mask, &t[PF_MASK]);
    args->o_type = fill_tensor(&args->o, &t[PF_O]);
    args->to_type = fill_tensor(&args->to, &t[PF_TO]);
    fill_tensor(&args->lse, &t[PF_LSE]);
    fill_tensor(&args->tlse, &t[PF_TLSE]);
    fill_tensor(&args->dlse, &t[PF_DLSE]);
}

static void fill_gradients(const pf_problem *problem, const pf_plan *plan,
                           pf_attention_kargs *args) {
    static const pf_tensor_id dq[2] = {PF_DQ, PF_DQ2}, dk[2] = {PF_DK, PF_DK2};
    for (int p = 0; p < 2; p++) {
        args->dq_type[p] = fill_tensor(&args->dq[p], pf_gradient(problem, dq[p]));
        args->dk_type[p] = fill_tensor(&args->dk[p], pf_gradient(problem, dk[p]));
    }
    args->dv_type = fill_tensor(&args->dv, pf_gradient(problem, PF_DV));
    const pfattn_tensor *dbias = pf_gradient(problem, PF_DBIAS);
    args->dbias_type = fill_tensor(&args->dbias, dbias);
    const int64_t full[4] = {problem->batch, problem->heads, problem->queries, problem->keys};
    for (int d = 0; d < 4; d++) {
        args->dbias_extent[d] = (int)dbias->shape[d];
        args->dbias_full[d] = dbias->shape[d] == full[d];
    }
    args->dbias_splits = plan->dbias_splits;
}

static unsigned long long scratch_address(unsigned long long workspace, size_t offset) {
    return offset == PF_SCRATCH_NONE ? 0 : workspace + offset;
}

/* f32 [.., heads, rows, channels] at an address of the workspace. */
static pf_karg_tensor contiguous(unsigned long long address, int64_t heads, int64_t rows,
                                 int64_t channels) {
    return (pf_karg_tensor){address, {heads * rows * channels, rows * channels, channels, 1}};
}

/* Forward writes O as f32. */
static void fill_narrowed(const pf_problem *problem, const pf_plan *plan,
                          unsigned long long workspace, pf_attention_kargs *args) {
    if (plan->narrowed) {
        args->o = contiguous(scratch_address(workspace, plan->scratch.wide_o), problem->heads,
                             problem->queries, plan->scratch.o_channels);
        args->o_type = PF_KTYPE_F32;
    }
}

/* Can forward write O through a tensor map? */
static bool is_o_staged(const pf_problem *problem, const pf_plan *plan) {
    const pfattn_tensor *o = &problem->tensor[PF_O];
    return problem->operation == PF_FORWARD && !plan->narrowed && o->dtype == problem->dtype &&
           pfattn_dtype_size(o->dtype) == 2 && pf_tensor_map_writes(o);
}

/* Forward writes parts of items. */
static void fill_split(const pf_plan *plan, unsigned long long workspace,
                       pf_attention_kargs *args) {
    const pf_scratch *scratch = &plan->scratch;
    pf_key_split *split = &args->split;
    if (plan->split.items == 0) {
        return;
    }
    split->items = plan->split.items;
    split->first = (int)plan->split.whole;
    split->by_tiles = pf_divisor_of(plan->split.tiles);
    split->by_length = pf_divisor_of(plan->split.length);
    split->by_rows = pf_divisor_of(plan->split.rows);
    split->channels = plan->tuning->out_dim;
    split->channel_parts = plan->tuning->head_dim / plan->tuning->out_dim;
    split->many_parts = plan->split.many_parts;
    const int64_t rows = plan->split.rows, channels = scratch->o_channels;
    split->o = contiguous(scratch_address(workspace, scratch->split_o), 1, rows, channels);
    split->to = contiguous(scratch_address(workspace, scratch->split_to), 1, rows, channels);
    split->lse = contiguous(scratch_address(workspace, scratch->split_lse), 1, rows, PF_PARTS);
    split->tlse = contiguous(scratch_address(workspace, scratch->split_tlse), 1, rows, 1);
}

static void fill_scratch(const pf_scratch *scratch, unsigned long long workspace,
                         pf_attention_kargs *args) {
    args->key_live = scratch_address(workspace, scratch->key_live);
    args->key_live_stride[0] =
        scratch->live_batch > 1 ? scratch->live_heads * scratch->keys_padded : 0;
    args->key_live_stride[1] = scratch->live_each_head ? scratch->keys_padded : 0;
    args->key_live_heads = (int)scratch->live_heads;
    args->query_stats = scratch_address(workspace, scratch->query_stats);
    args->query_live = scratch_address(workspace, scratch->query_live);
    for (int p = 0; p < 2; p++) {
        args->dq_sum[p] = scratch_address(workspace, scratch->dq_sum[p]);
        args->dq_turn[p] = scratch_address(workspace, scratch->dq_turn[p]);
    }
    args->dbias_sum = scratch_address(workspace, scratch->dbias_sum);
    args->parts = scratch_address(workspace, scratch->parts);
    args->zeroed = scratch->zero_bytes > 0 ? workspace + scratch->zero_offset : 0;
    args->zeroed_words = (pf_i64)(scratch->zero_bytes / sizeof(unsigned long long));
    args->queries_padded = (int)scratch->queries_padded;
    args->keys_padded = (int)scratch->keys_padded;
}

/* Heads whose tiles come last: where lengths differ some two rounds, which even out what is left.
 * The items before them must be pairs. None where all items are of one length. */
static int count_last_heads(const pf_attention_kargs *args, int workgroups, int work) {
    int tiles = args->by_tiles.value, heads = work / tiles;
    bool differ = args->window_low[0] > -PF_WINDOW_LIMIT && tiles > 1;
    int last = differ ? 2 * workgroups / tiles : 0;
    if (differ && last == 0) {
        last = 1;
    }
    last = last < heads ? last : heads;
    return last + (differ ? (heads - last) * tiles % 2 : 0);
}

void pf_kargs_share(int workgroups, int work, pf_attention_kargs *args) {
    pf_work_order *order = &args->order;
    int tiles = args->by_tiles.value;
    if (tiles == 0 || workgroups >= work) {
        return;
    }
    int last = count_last_heads(args, workgroups, work);
    order->by_blocks = pf_divisor_of(workgroups);
    order->by_last = pf_divisor_of(last);
    order->first_last = work / tiles - last;
    if (last > 0) {
        int pairs = (work - last * tiles) / 2;
        order->rounds = pairs / workgroups;
        order->pairs_left = pairs % workgroups;
    }
}

void pf_kargs_divide(int items, int tiles, int clusters, int work, pf_attention_kargs *args) {
    args->division = (pf_division){.items = items,
                                   .first = work - items,
                                   .rounds = work / clusters,
                                   .each = items * tiles / clusters,
                                   .more = items * tiles % clusters,
                                   .by_tiles = pf_divisor_of(tiles)};
}

/* That of the main kernel. Where determinism is asked for, backward has its own. */
static void fill_order(const pf_problem *problem, const pf_plan *plan, pf_attention_kargs *args) {
    for (int i = 0; i < plan->step_count; i++) {
        const pf_step *step = &plan->step[i];
        if (step->kind == PF_STEP_MAIN && !(pf_is_backward(problem) && problem->deterministic)) {
            int workgroups = step->grid / PF_CLUSTER_OF(plan->tuning->persistent);
            args->split.round = (int)(plan->split.whole / workgroups);
            pf_kargs_share(workgroups, step->work_count, args);
            if (plan->divided > 0) {
                int tile = plan->tuning->cross_tile;
                pf_kargs_divide(plan->divided, (args->queries + tile - 1) / tile, workgroups,
                                step->work_count, args);
            }
        }
    }
}

void pf_kargs_fill(const pf_problem *problem, const pf_plan *plan, unsigned long long workspace,
                   pf_attention_kargs *args) {
    memset(args, 0, sizeof *args);
    fill_sizes(problem, args);
    fill_windows(problem, args);
    fill_inputs(problem, args);
    fill_divisors(problem, plan, args);
    if (pf_is_backward(problem)) {
        fill_gradients(problem, plan, args);
    }
    bool apart;
    args->bias_stages = pf_bias_stages(problem, plan->tuning, &apart);
    args->bias_apart = apart;
    args->staged = pf_staged(problem, plan->tuning);
    args->dbias_staged =
        args->bias_stages > 0 && pf_is_backward(problem) && pf_dbias_is_staged(problem);
    fill_scratch(&plan->scratch, workspace, args);
    args->o_staged = is_o_staged(problem, plan);
    fill_narrowed(problem, plan, workspace, args);
    fill_split(plan, workspace, args);
    fill_order(problem, plan, args);
}

static void fill_merged(const pf_problem *problem, pf_merge_kargs *args) {
    const pfattn_tensor *t = problem->tensor;
    args->o_type = fill_tensor(&args->o, &t[PF_O]);
    args->to_type = fill_tensor(&args->to, &t[PF_TO]);
    fill_tensor(&args->lse, &t[PF_LSE]);
    fill_tensor(&args->tlse, &t[PF_TLSE]);
    args->batch = (int)problem->batch;
    args->heads = (int)problem->heads;
    args->queries = (int)problem->queries;
    args->dim_v = (int)problem->dim_v;
}

void pf_merge_kargs_fill(const pf_problem *problem, pf_merge_kargs *args) {
    static const pf_tensor_id parts[2][4] = {{PF_O0, PF_LSE0, PF_TO0, PF_TLSE0},
                                             {PF_O1, PF_LSE1, PF_TO1, PF_TLSE1}};
    const pfattn_tensor *t = problem->tensor;
    memset(args, 0, sizeof *args);
    for (int p = 0; p < 2; p++) {
        args->o_part_type[p] = fill_tensor(&args->o_part[p], &t[parts[p][0]]);
        fill_tensor(&args->lse_part[p], &t[parts[p][1]]);
        args->to_part_type[p] = fill_tensor(&args->to_part[p], &t[parts[p][2]]);
        fill_tensor(&args->tlse_part[p], &t[parts[p][3]]);
    }
    fill_merged(problem, args);
}

void pf_narrow_kargs_fill(const pf_problem *problem, const pf_attention_kargs *forward,
                          pf_merge_kargs *args) {
    memset(args, 0, sizeof *args);
    args->o_part[0] = forward->o;
    args->o_part_type[0] = PF_KTYPE_F32;
    fill_merged(problem, args);
}
