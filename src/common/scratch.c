/* SPDX-License-Identifier: Apache-2.0 */
#include "scratch.h"

#include <string.h>

#include "kargs.h"
#include "widen.h"

/* Sizes grow through this, so that an overflow anywhere is seen once, at the end. */
typedef struct layout {
    uint64_t used;
    bool overflow;
} layout;

static uint64_t checked_product(layout *l, uint64_t a, uint64_t b) {
    uint64_t product = 0;
    l->overflow = __builtin_mul_overflow(a, b, &product) || l->overflow;
    return product;
}

/* Give a part its place; parts without elements get one too, so that they count as used. */
static size_t place(layout *l, uint64_t rows, uint64_t columns, uint64_t bytes_each) {
    uint64_t bytes = checked_product(l, checked_product(l, rows, columns), bytes_each);
    uint64_t offset = l->used;
    l->overflow = l->overflow || bytes > (uint64_t)INT64_MAX - PF_SCRATCH_ALIGNMENT - offset;
    if (!l->overflow) {
        l->used = (offset + bytes + PF_SCRATCH_ALIGNMENT - 1) / PF_SCRATCH_ALIGNMENT *
                  PF_SCRATCH_ALIGNMENT;
    }
    return (size_t)offset;
}

static int64_t round_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

static int64_t least_common_multiple(int64_t a, int64_t b) {
    int64_t x = a;
    int64_t y = b;
    while (y != 0) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* Do mask or bias, whichever are there, have this dimension? */
static bool varies(const pf_problem *problem, int dimension) {
    return (pf_present(problem, PF_MASK) && problem->tensor[PF_MASK].shape[dimension] != 1) ||
           (pf_present(problem, PF_BIAS) && problem->tensor[PF_BIAS].shape[dimension] != 1);
}

static void place_key_live(layout *l, const pf_problem *problem, pf_scratch *scratch) {
    scratch->keys_padded = round_up(problem->keys, PF_KEY_LIVE_TILE);
    if (!pf_present(problem, PF_MASK) && !pf_present(problem, PF_BIAS)) {
        return;
    }
    scratch->live_batch = varies(problem, 0) ? problem->batch : 1;
    scratch->live_each_head = varies(problem, 1);
    scratch->live_heads = scratch->live_each_head ? problem->kv_heads : 1;
    uint64_t rows =
        checked_product(l, (uint64_t)scratch->live_batch, (uint64_t)scratch->live_heads);
    scratch->key_live = place(l, rows, (uint64_t)scratch->keys_padded, 1);
}

/* The sums of dq and their turns, side by side: one fill clears them all. */
static void place_dq(layout *l, const pf_problem *problem, const pf_scratch_needs *needs,
                     uint64_t rows, pf_scratch *scratch) {
    static const pf_tensor_id ids[2] = {PF_DQ, PF_DQ2};
    uint64_t padded = (uint64_t)scratch->queries_padded;
    uint64_t tiles = padded / (uint64_t)needs->query_tile;
    scratch->zero_offset = (size_t)l->used;
    for (int p = 0; p < 2; p++) {
        if (!pf_wants_gradient(problem, ids[p])) {
            continue;
        }
        uint64_t columns = checked_product(l, padded, (uint64_t)needs->head_dim);
        scratch->dq_sum[p] = place(l, rows, columns, sizeof(float));
        if (problem->deterministic) {
            scratch->dq_turn[p] =
                place(l, rows, tiles * (uint64_t)needs->dq_parts, sizeof(uint32_t));
        }
    }
    scratch->zero_bytes = (size_t)l->used - scratch->zero_offset;
}

static void place_backward(layout *l, const pf_problem *problem, const pf_scratch_needs *needs,
                           pf_scratch *scratch) {
    int64_t tile = needs->query_tile > 0 ? needs->query_tile : needs->dbias_tile;
    if (needs->query_tile > 0 && needs->dbias_tile > 0) {
        tile = least_common_multiple(needs->query_tile, needs->dbias_tile);
    }
    scratch->queries_padded = round_up(problem->queries, tile);
    uint64_t rows = checked_product(l, (uint64_t)problem->batch, (uint64_t)problem->heads);
    uint64_t padded = (uint64_t)scratch->queries_padded;
    scratch->query_stats = place(l, rows, checked_product(l, padded, PF_STATS), sizeof(float));
    scratch->query_live = place(l, rows, padded, 1);
    if (needs->query_tile > 0) {
        place_dq(l, problem, needs, rows, scratch);
    }
    if (needs->dbias_splits > 0) {
        uint64_t elements = (uint64_t)needs->dbias_splits;
        for (int d = 0; d < 4; d++) {
            elements = checked_product(l, elements, (uint64_t)problem->tensor[PF_BIAS].shape[d]);
        }
        scratch->dbias_sum = place(l, elements, 1, sizeof(float));
    }
    if (needs->parts > 0) {
        scratch->parts =
            place(l, (uint64_t)needs->parts, (uint64_t)needs->part_size, sizeof(float));
    }
}

/* f32 [parts, queries, channels of each], those that the merge reads. */
static void place_split(layout *l, const pf_problem *problem, const pf_scratch_needs *needs,
                        pf_scratch *scratch) {
    bool tangent = pf_present(problem, PF_TO) || pf_present(problem, PF_TLSE);
    uint64_t rows = checked_product(l, (uint64_t)needs->split_parts, (uint64_t)needs->split_rows);
    uint64_t channels = (uint64_t)scratch->o_channels;
    scratch->split_lse = place(l, rows, PF_PARTS, sizeof(float));
    if (tangent) {
        scratch->split_tlse = place(l, rows, 1, sizeof(float));
    }
    if (pf_present(problem, PF_O) || pf_present(problem, PF_TO)) {
        scratch->split_o = place(l, rows, channels, sizeof(float));
    }
    if (pf_present(problem, PF_TO)) {
        scratch->split_to = place(l, rows, channels, sizeof(float));
    }
}

/* f32 [B, H, M, channels]. */
static void place_narrowed(layout *l, const pf_problem *problem, pf_scratch *scratch) {
    uint64_t rows = checked_product(l, (uint64_t)problem->batch, (uint64_t)problem->heads);
    rows = checked_product(l, rows, (uint64_t)problem->queries);
    scratch->wide_o = place(l, rows, (uint64_t)scratch->o_channels, sizeof(float));
}

static void place_widened(layout *l, const pf_problem *problem, pf_scratch *scratch) {
    for (int n = 0; n < PF_WIDENED; n++) {
        int64_t rows = pf_widened_rows(problem, n);
        if (rows > 0) {
            scratch->widened[n] =
                place(l, (uint64_t)rows, (uint64_t)pf_widened_row_stride(problem, n), 2);
        }
    }
}

bool pf_scratch_layout(const pf_problem *problem, const pf_scratch_needs *needs,
                       pf_scratch *scratch) {
    layout l = {0, false};
    memset(scratch, 0, sizeof *scratch);
    scratch->key_live = scratch->query_stats = scratch->query_live = PF_SCRATCH_NONE;
    scratch->dq_sum[0] = scratch->dq_sum[1] = PF_SCRATCH_NONE;
    scratch->dq_turn[0] = scratch->dq_turn[1] = PF_SCRATCH_NONE;
    scratch->dbias_sum = scratch->parts = PF_SCRATCH_NONE;
    scratch->split_o = scratch->split_lse = PF_SCRATCH_NONE;
    scratch->split_to = scratch->split_tlse = scratch->wide_o = PF_SCRATCH_NONE;
    /* Whole fragments have place in a row, which begins at a multiple of 16 bytes. */
    scratch->o_channels = round_up(problem->dim_v, 8);
    for (int n = 0; n < PF_WIDENED; n++) {
        scratch->widened[n] = PF_SCRATCH_NONE;
    }
    place_key_live(&l, problem, scratch);
    if (pf_is_backward(problem) && (needs->query_tile > 0 || needs->dbias_tile > 0)) {
        place_backward(&l, problem, needs, scratch);
    }
    if (needs->split_parts > 0) {
        place_split(&l, problem, needs, scratch);
    }
    if (needs->narrowed) {
        place_narrowed(&l, problem, scratch);
    }
    if (needs->widened) {
        place_widened(&l, problem, scratch);
    }
    scratch->bytes = (size_t)l.used;
    return !l.overflow;
}
