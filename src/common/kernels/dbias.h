/* SPDX-License-Identifier: Apache-2.0 */
/* dbias or its tangent: dS summed over the dimensions in which the bias is broadcast, in the bias's
 * own shape. Each workgroup owns one tile of dbias and one share (split) of the scores that are
 * summed into it, recomputes those, and sums them in a fixed order: no atomics, so the result is
 * bitwise repeatable. */
#include "backward_tile.h"

/* The sums take the place of the tiles once all are done. */
typedef union dbias_shared {
    backward_shared tile;
    float sum[PF_OWNED_TILE][PF_CROSS_TILE + 1]; /* [key][query] */
} dbias_shared;

/* A tile of dbias (extents 1 where broadcast) and the ranges summed into it. */
typedef struct dbias_work {
    int b, h, i_tile, j_tile, split;
    int count_b, count_h, count_i, count_j;
} dbias_work;

PF_DEVICE dbias_work dbias_work_at(const pf_attention_kargs *a, int index) {
    const int *extent = a->dbias_extent;
    const int tiles_i = PF_CEIL_DIV(extent[2], PF_CROSS_TILE);
    const int tiles_j = PF_CEIL_DIV(extent[3], PF_OWNED_TILE);
    dbias_work w;
    w.split = index % a->dbias_splits;
    index /= a->dbias_splits;
    w.j_tile = index % tiles_j;
    w.i_tile = index / tiles_j % tiles_i;
    w.h = index / tiles_j / tiles_i % extent[1];
    w.b = index / tiles_j / tiles_i / extent[1];
    w.count_b = a->dbias_full[0] ? 1 : a->batch;
    w.count_h = a->dbias_full[1] ? 1 : a->heads;
    w.count_i = a->dbias_full[2] ? 1 : PF_CEIL_DIV(a->queries, PF_CROSS_TILE);
    w.count_j = a->dbias_full[3] ? 1 : PF_CEIL_DIV(a->keys, PF_OWNED_TILE);
    return w;
}

/* The dS of one tile of scores and one pair, added to this thread's sums. */
PF_DEVICE void dbias_add_tile(backward_context *c, const query_step *step, pf_scores *sum) {
    backward_state g;
    backward_fill_k(c, step->pair);
    backward_fill_v(c, step->pair);
    backward_fill_q(c, step);
    backward_fill_dout(c, step);
    backward_take_kv(c, &g, step->pair);
    pf_ring_take(&c->sm->q_ring, &c->q_pos, PF_STAGES);
    backward_issue_scores(c, &g);
    pf_ring_take(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
    backward_issue_dp(c, &g);
    pf_mma_wait(0);
    backward_ds(c, &g, backward_weights(c, &g, step));
    pf_ring_release(&c->sm->k_ring, &c->k_pos, 1);
    pf_ring_release(&c->sm->v_ring, &c->v_pos, 1);
    pf_ring_release(&c->sm->q_ring, &c->q_pos, PF_STAGES);
    pf_ring_release(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) sum->x[e] += g.dp[PF_T].x[e];
}

/* Does the pair keep any score of queries [i0, i0 + tile) and the owned keys? */
PF_DEVICE bool dbias_tile_matters(const backward_context *c, const query_step *step) {
    const pf_attention_kargs *a = c->a;
    const int i0 = step->tile * PF_CROSS_TILE;
    const int i_last = pf_min_int(i0 + PF_CROSS_TILE, a->queries) - 1;
    return c->w.j0 < a->key_end[step->pair] && i_last - c->w.j0 >= a->window_low[step->pair] &&
           i0 - (c->w.j1 - 1) < a->window_high[step->pair];
}

PF_DEVICE void dbias_write(const pf_attention_kargs *a, const dbias_work *w, int i, int j,
                           float value) {
    const int *extent = a->dbias_extent;
    if (a->dbias_splits == 1) {
        pf_write(a->dbias.address, pf_row_offset(&a->dbias, w->b, w->h, i) + j * a->dbias.stride[3],
                 a->dbias_type, value);
        return;
    }
    const pf_i64 bh = ((pf_i64)w->split * extent[0] + w->b) * extent[1] + w->h;
    ((PF_GLOBAL float *)a->dbias_sum)[(bh * extent[2] + i) * extent[3] + j] = value;
}

/* Sum the workgroup's matrix over the dimensions in which the bias is broadcast, and write it. */
PF_DEVICE void dbias_finish(const pf_attention_kargs *a, const dbias_work *w, dbias_shared *sm) {
    const bool full_i = a->dbias_full[2], full_j = a->dbias_full[3];
    const int rows = full_i ? PF_CROSS_TILE : 1, columns = full_j ? PF_OWNED_TILE : 1;
    for (int n = pf_thread(); n < rows * columns; n += pf_threads()) {
        const int x = n / columns, o = n % columns;
        const int i = full_i ? w->i_tile * PF_CROSS_TILE + x : 0;
        const int j = full_j ? w->j_tile * PF_OWNED_TILE + o : 0;
        if (i >= a->dbias_extent[2] || j >= a->dbias_extent[3])
            continue;
        float value = 0.f;
        for (int u = full_j ? o : 0; u < (full_j ? o + 1 : PF_OWNED_TILE); ++u)
            for (int v = full_i ? x : 0; v < (full_i ? x + 1 : PF_CROSS_TILE); ++v)
                value += sm->sum[u][v];
        dbias_write(a, w, i, j, value);
    }
}

PF_KERNEL(PF_KERNEL_NAME(dbias), pf_attention_kargs) {
    PF_SHARED(dbias_shared, sm);
    backward_context c = {};
    const pf_attention_kargs *a = PF_KERNEL_ARGS;
    c.sm = &sm->tile;
    c.source = (pf_source)PF_SOURCE;
    c.a = a;
    pf_ring_init(&c.sm->k_ring, 1);
    pf_ring_init(&c.sm->v_ring, 1);
    pf_ring_init(&c.sm->q_ring, PF_STAGES);
    pf_ring_init(&c.sm->dout_ring, PF_DOUT_STAGES);
    pf_block_sync();
    const dbias_work w = dbias_work_at(a, pf_block());
    const pf_i64 count = (pf_i64)w.count_b * w.count_h * w.count_i * w.count_j;
    const pf_i64 begin = count * w.split / a->dbias_splits;
    const pf_i64 end = count * (w.split + 1) / a->dbias_splits;
    pf_scores sum;
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) sum.x[e] = 0.f;
    for (pf_i64 n = begin; n < end; ++n) {
        const int j_tile = (int)(n % w.count_j), i_tile = (int)(n / w.count_j % w.count_i);
        const int h = (int)(n / w.count_j / w.count_i % w.count_h) + (w.count_h == 1 ? w.h : 0);
        const int b = (int)(n / w.count_j / w.count_i / w.count_h) + (w.count_b == 1 ? w.b : 0);
        query_step step = {0, h, i_tile + (w.count_i == 1 ? w.i_tile : 0)};
        c.w.b = b;
        c.w.hk = h / a->group;
        c.w.j0 = (j_tile + (w.count_j == 1 ? w.j_tile : 0)) * PF_OWNED_TILE;
        c.w.j1 = pf_min_int(c.w.j0 + PF_OWNED_TILE, a->keys);
        for (step.pair = 0; step.pair < a->pairs; ++step.pair)
            if (dbias_tile_matters(&c, &step))
                dbias_add_tile(&c, &step, &sum);
    }
    pf_block_sync();
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e)
        sm->sum[pf_slot_owned(pf_score_slot(e))][pf_score_cross(e)] = sum.x[e] * PF_WEIGHT_UNSHIFT;
    pf_block_sync();
    dbias_finish(a, &w, sm);
}
