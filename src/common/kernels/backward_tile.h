/* SPDX-License-Identifier: Apache-2.0 */
/* One tile of queries against one tile of keys in backward: loads, products, P and dS. Shared by
 * the kernels of dq, dk, dv (backward.h) and of dbias (dbias.h).
 *
 * The workgroup owns keys and streams queries. With tangents every product has its product rule
 * beside it. */
#include "bias.h"
#include "scores.h"
#include "work.h"

/* Targets that stream dO through as many buffers as Q. */
#ifndef PF_DOUT_STAGES
#define PF_DOUT_STAGES PF_STAGES
#endif

/* Targets that give dO back before they need delta, and have that beside Q. */
#ifndef PF_DELTA_WITH_Q
#define PF_DELTA_WITH_Q 0
#endif

/* Targets that wait for room before they work out what to load. */
#ifndef PF_LOADS_ACQUIRE
#define PF_LOADS_ACQUIRE 0
#endif
#if !PF_LOADS_ACQUIRE
#define pf_cross_load_acquire(tile, source, operand, rows, ring, pos, stages)                      \
    (pf_ring_acquire(ring, pos, stages), pf_cross_load(tile, source, operand, rows, ring, pos))
#endif

/* Targets that walk over one head of a group after the other. */
#ifndef PF_HEADS_INSIDE
#define PF_HEADS_INSIDE 0
#endif

/* Targets whose walks over queries all begin with the first that they keep. */
#ifndef PF_SPREADS_WALKS
#define PF_SPREADS_WALKS 0
#endif

/* Targets whose workgroups do whole items. */
#ifndef PF_DIVIDES
#define PF_DIVIDES 0
#endif

enum { PF_DELTA_STAGES = PF_DELTA_WITH_Q ? PF_STAGES : PF_DOUT_STAGES };

typedef struct backward_shared {
    pf_crossed_tile k[1 + PF_TANGENT];
    pf_owned_tile v[1 + PF_TANGENT];
    pf_cross_tile q[PF_STAGES][1 + PF_TANGENT];
    pf_cross_tile dout[PF_DOUT_STAGES][1 + PF_TANGENT];
    bias_tiles bias;
    float q_stats[PF_STAGES][1 + PF_TANGENT][PF_CROSS_TILE];          /* L, tL */
    float dout_stats[PF_DELTA_STAGES][1 + PF_TANGENT][PF_CROSS_TILE]; /* delta, tdelta */
    pf_ring k_ring, v_ring, q_ring, dout_ring, bias_ring;
} backward_shared;

/* Keys that the workgroups of a cluster own together. */
#define PF_CLUSTER_KEYS (PF_CLUSTER * PF_OWNED_TILE)

/* Keys [j0, j1) of key/value head hk in batch b, output channels from channel0. */
typedef struct backward_work {
    int b, hk, j0, j1, channel0;
    bool descends;    /* tiles of queries are visited from the last on */
    int tile0, tile1; /* tiles of queries that are this workgroup's part of a divided item */
    int slot;         /* where the part's sums go; -1 for a whole item */
} backward_work;

/* The first keys are the longest where attention is causal. With heads inside, queries are visited
 * from the last on, which all keys see, so that workgroups are in step. Where determinism is asked
 * for, tiles of keys add to dQ in the order in which they come here, each after those before it.
 * One head has its last keys first and visits queries in ascending order, the next its first keys
 * first and queries in descending order: so a tile of causal attention gets to each tile of queries
 * just after the one before it, and workgroups that do one item after the other get as much work.
 */
PF_DEVICE backward_work backward_work_at(const pf_attention_kargs *a, int index, bool alone) {
    const int parts = PF_HEAD_DIM / PF_OUT_DIM, tiles = a->by_tiles.value;
    const pf_work_place place = pf_work_place_of(a, index, alone);
    const pf_batch_head bh = pf_batch_head_of(a, place.head / parts);
    backward_work w;
    int tile = place.rank;
    w.descends = a->deterministic ? place.head % 2 : PF_HEADS_INSIDE;
    if (a->deterministic) {
        tile = index - place.head * tiles;
        tile = w.descends ? tile : tiles - 1 - tile;
    }
    w.channel0 = place.head % parts * PF_OUT_DIM;
    w.b = bh.b;
    w.hk = bh.h;
    w.j0 = tile * PF_CLUSTER_KEYS + pf_cluster_place() * PF_OWNED_TILE;
    w.j1 = pf_min_int(w.j0 + PF_OWNED_TILE, a->keys);
    w.tile0 = 0;
    w.tile1 = PF_INT_MAX;
    w.slot = -1;
    return w;
}

/* pf_work_find, but where determinism is asked for each round takes the items that follow those of
 * the last, and each lags a little behind the one before. So a workgroup stays at its place among
 * the tiles of a head. Where these are more than the workgroups, its item follows the last of the
 * round before: a workgroup that were moved further up would have to make up for all of their lag
 * at once. */
PF_DEVICE int backward_work_index(const pf_attention_kargs *a, int round) {
    const unsigned blocks = (unsigned)pf_clusters(), tiles = (unsigned)a->by_tiles.value;
    if (!a->deterministic || pf_work_is_alone(a))
        return pf_work_find(a, round);
    const unsigned shift = tiles > blocks ? 0 : (unsigned)round * (tiles - blocks % tiles) % blocks;
    const unsigned index = (unsigned)round * blocks + ((unsigned)pf_cluster() + shift) % blocks;
    return index < (unsigned)a->work_count ? (int)index : a->work_count;
}

/* One step: a tile of queries of head h, for one pair. */
typedef struct query_step {
    int pair, h, tile;
} query_step;

typedef struct backward_context {
    backward_shared *sm;
    pf_source source;
    const pf_attention_kargs *a;
    backward_work w;
    pf_ring_pos k_pos, v_pos, q_pos, dout_pos, bias_pos;
    int bias_stages; /* of the staged bias; 0 where there is none */
    bias_places bias;
    pf_exchange (*ds)[1 + PF_TANGENT]; /* PF_EXCHANGES of them; dbias has none */
} backward_context;

/* The cluster's part of a divided item; false where it has none. */
PF_DEVICE bool backward_begin_part(backward_context *c, int n) {
    const pf_division *division = &c->a->division;
    const pf_work_part part = pf_work_part_of(division, pf_cluster(), n);
    if (part.tile0 >= part.tile1)
        return false;
    c->w = backward_work_at(c->a, division->first + part.item, false);
    c->w.tile0 = part.tile0;
    c->w.tile1 = part.tile1;
    c->w.slot = 2 * pf_cluster() + n;
    return true;
}

/* The workgroup's work of a round; false where nothing is left. */
PF_DEVICE bool backward_begin_work(backward_context *c, int round) {
    const pf_attention_kargs *a = c->a;
    if (PF_DIVIDES && a->division.items > 0 && round >= a->division.rounds)
        return backward_begin_part(c, round - a->division.rounds);
    const int at = backward_work_index(a, round);
    if (at >= a->work_count)
        return false;
    c->w = backward_work_at(a, at, pf_work_is_alone(a));
    return true;
}

/* Rows of the owned keys; as in forward, those that no query keeps are not read. */
PF_DEVICE pf_rows backward_key_rows(const backward_context *c, int pair) {
    const pf_attention_kargs *a = c->a;
    pf_rows rows = {c->w.b, c->w.hk, c->w.j0, a->key_end[pair], 0, 0, 0};
    if (PF_GENERAL && a->key_live)
        rows.live = a->key_live + rows.b * a->key_live_stride[0] + rows.h * a->key_live_stride[1];
    return rows;
}

PF_DEVICE void backward_fill_k(backward_context *c, int pair) {
    pf_rows rows = backward_key_rows(c, pair);
    pf_ring *ring = &c->sm->k_ring;
    rows.contracted0 = c->w.channel0;
    pf_rows_settle(&rows, &c->source, PF_OPERAND_K + pair, PF_OWNED_TILE);
    pf_ring_acquire(ring, &c->k_pos, 1);
    pf_crossed_load(&c->sm->k[0], &c->source, PF_OPERAND_K + pair, &rows, ring, &c->k_pos);
    if (PF_TANGENT)
        pf_crossed_load(&c->sm->k[PF_T], &c->source, PF_OPERAND_TK + pair, &rows, ring, &c->k_pos);
    pf_ring_publish(ring, &c->k_pos, 1);
}

PF_DEVICE void backward_fill_v(backward_context *c, int pair) {
    pf_rows rows = backward_key_rows(c, pair);
    pf_ring *ring = &c->sm->v_ring;
    pf_rows_settle(&rows, &c->source, PF_OPERAND_V, PF_OWNED_TILE);
    pf_ring_acquire(ring, &c->v_pos, 1);
    pf_owned_load(&c->sm->v[0], &c->source, PF_OPERAND_V, &rows, ring, &c->v_pos);
    if (PF_TANGENT)
        pf_owned_load(&c->sm->v[PF_T], &c->source, PF_OPERAND_TV, &rows, ring, &c->v_pos);
    pf_ring_publish(ring, &c->v_pos, 1);
}

/* Does the window keep every score of the tile? Queries past the end have P = 0 by their L. */
PF_DEVICE bool backward_window_keeps_all(const backward_context *c, const query_step *step) {
    const int i0 = step->tile * PF_CROSS_TILE;
    return pf_window_keeps_all(c->a, step->pair, i0, i0 + PF_CROSS_TILE, c->w.j0,
                               c->w.j0 + PF_OWNED_TILE);
}

/* Rows of a tile of queries; those that keep no key are not read, so that they add nothing. Where
 * all scores are kept there are none. */
PF_DEVICE pf_rows backward_query_rows(const backward_context *c, const query_step *step) {
    const pf_attention_kargs *a = c->a;
    const pf_i64 bh = (pf_i64)c->w.b * a->heads + step->h;
    pf_rows rows = {c->w.b, step->h, step->tile * PF_CROSS_TILE, a->queries, 0, 0, 0};
    if (PF_GENERAL || !backward_window_keeps_all(c, step))
        rows.live = a->query_live + bh * a->queries_padded;
    return rows;
}

/* Address of one statistic of the tile's queries. */
PF_DEVICE unsigned long long backward_stat(const backward_context *c, const query_step *step,
                                           int stat) {
    const pf_attention_kargs *a = c->a;
    const pf_i64 bh = (pf_i64)c->w.b * a->heads + step->h;
    return a->query_stats +
           4 * ((bh * PF_STATS + stat) * a->queries_padded + step->tile * PF_CROSS_TILE);
}

PF_DEVICE void backward_fill_delta(backward_context *c, const query_step *step, int stage,
                                   pf_ring *ring, pf_ring_pos *pos) {
    float(*stats)[PF_CROSS_TILE] = c->sm->dout_stats[stage];
    pf_stats_load(stats[0], backward_stat(c, step, PF_STAT_DELTA), ring, pos);
    if (PF_TANGENT)
        pf_stats_load(stats[PF_T], backward_stat(c, step, PF_STAT_TDELTA), ring, pos);
}

PF_DEVICE void backward_fill_q(backward_context *c, const query_step *step) {
    pf_rows rows = backward_query_rows(c, step);
    pf_ring *ring = &c->sm->q_ring;
    pf_rows_settle(&rows, &c->source, PF_OPERAND_Q + step->pair, PF_CROSS_TILE);
    const int stage = c->q_pos.fill;
    pf_cross_tile *q = c->sm->q[stage];
    float(*stats)[PF_CROSS_TILE] = c->sm->q_stats[stage];
    pf_cross_load_acquire(&q[0], &c->source, PF_OPERAND_Q + step->pair, &rows, ring, &c->q_pos,
                          PF_STAGES);
    pf_stats_load(stats[0], backward_stat(c, step, PF_STAT_LSE), ring, &c->q_pos);
    if (PF_TANGENT) {
        pf_cross_load(&q[PF_T], &c->source, PF_OPERAND_TQ + step->pair, &rows, ring, &c->q_pos);
        pf_stats_load(stats[PF_T], backward_stat(c, step, PF_STAT_TLSE), ring, &c->q_pos);
    }
    if (PF_DELTA_WITH_Q)
        backward_fill_delta(c, step, stage, ring, &c->q_pos);
    pf_ring_publish(ring, &c->q_pos, PF_STAGES);
}

PF_DEVICE void backward_fill_dout(backward_context *c, const query_step *step) {
    pf_rows rows = backward_query_rows(c, step);
    pf_ring *ring = &c->sm->dout_ring;
    pf_rows_settle(&rows, &c->source, PF_OPERAND_DOUT, PF_CROSS_TILE);
    const int stage = c->dout_pos.fill;
    pf_cross_tile *dout = c->sm->dout[stage];
    pf_cross_load_acquire(&dout[0], &c->source, PF_OPERAND_DOUT, &rows, ring, &c->dout_pos,
                          PF_DOUT_STAGES);
    if (PF_TANGENT)
        pf_cross_load(&dout[PF_T], &c->source, PF_OPERAND_TDOUT, &rows, ring, &c->dout_pos);
    if (!PF_DELTA_WITH_Q)
        backward_fill_delta(c, step, stage, ring, &c->dout_pos);
    pf_ring_publish(ring, &c->dout_pos, PF_DOUT_STAGES);
}

PF_DEVICE void backward_fill_bias(backward_context *c, const query_step *step) {
    if (c->bias_stages > 0)
        bias_fill(&c->sm->bias, &c->source, c->a, &c->sm->bias_ring, c->w.b, step->h,
                  step->tile * PF_CROSS_TILE, c->w.j0, &c->bias_pos);
}

/* The kernel of dbias stages nothing. */
PF_DEVICE bool backward_is_staged(const backward_context *c) {
    return c->bias.kind != BIAS_ANY || c->bias_stages > 0;
}

/* What a thread of a compute group carries. */
typedef struct backward_state {
    pf_owned k[1 + PF_TANGENT], v[1 + PF_TANGENT];
    pf_scores s[1 + PF_TANGENT];  /* dot products, then P and tP */
    bias_readers bias;            /* of these scores */
    pf_scores dp[1 + PF_TANGENT]; /* dP and tdP, then dS and tdS */
    pf_weights p[1 + PF_TANGENT], ds[1 + PF_TANGENT];
} backward_state;

/* Take the owned keys of a pair. */
PF_DEVICE void backward_take_kv(backward_context *c, backward_state *g, int pair) {
    const pf_rows rows = backward_key_rows(c, pair);
    backward_shared *sm = c->sm;
    pf_ring_take(&sm->k_ring, &c->k_pos, 1);
    pf_crossed_take(&g->k[0], &sm->k[0], &c->source, PF_OPERAND_K + pair, &rows);
    if (PF_TANGENT)
        pf_crossed_take(&g->k[PF_T], &sm->k[PF_T], &c->source, PF_OPERAND_TK + pair, &rows);
    pf_ring_take(&sm->v_ring, &c->v_pos, 1);
    pf_owned_take(&g->v[0], &sm->v[0], &c->source, PF_OPERAND_V, &rows);
    if (PF_TANGENT)
        pf_owned_take(&g->v[PF_T], &sm->v[PF_T], &c->source, PF_OPERAND_TV, &rows);
}

PF_DEVICE void backward_issue_scores(backward_context *c, backward_state *g) {
    const pf_cross_tile *q = c->sm->q[c->q_pos.take];
    pf_scores_mma(&g->s[0], &g->k[0], &q[0], true);
    if (PF_TANGENT) {
        pf_scores_mma(&g->s[PF_T], &g->k[PF_T], &q[0], true);
        pf_scores_mma(&g->s[PF_T], &g->k[0], &q[PF_T], false);
    }
    pf_mma_commit();
}

PF_DEVICE void backward_issue_dp(backward_context *c, backward_state *g) {
    const pf_cross_tile *dout = c->sm->dout[c->dout_pos.take];
    pf_scores_mma(&g->dp[0], &g->v[0], &dout[0], true);
    if (PF_TANGENT) {
        pf_scores_mma(&g->dp[PF_T], &g->v[PF_T], &dout[0], true);
        pf_scores_mma(&g->dp[PF_T], &g->v[0], &dout[PF_T], false);
    }
    pf_mma_commit();
}

PF_DEVICE void backward_take_bias(backward_context *c, backward_state *g) {
    if (backward_is_staged(c))
        bias_take(&g->bias, &c->bias, c->a, &c->sm->bias_ring, &c->bias_pos);
}

/* Dot products become scores in natural units, -inf where they are not kept. */
PF_DEVICE void backward_add_bias(const backward_context *c, backward_state *g,
                                 const query_step *step) {
    const pf_attention_kargs *a = c->a;
    const int i0 = step->tile * PF_CROSS_TILE;
    PF_ROLLED for (int first = 0; first < PF_SCORE_COUNT; first += PF_SCORE_STEP) {
        PF_UNROLL for (int u = 0; u < PF_SCORE_STEP; ++u) {
            const int e = first + u;
            const int i = i0 + pf_score_cross(e), j = c->w.j0 + pf_slot_owned(pf_score_slot(e));
            float bias = -PF_INFINITY, tbias = 0.f;
            if (i < a->queries && pf_window_keeps(a, step->pair, i, j)) {
                bias = pf_bias_or_excluded(a, c->w.b, step->h, i, j);
                if (PF_TANGENT)
                    tbias = pf_bias_tangent(a, c->w.b, step->h, i, j);
            }
            const bool keep = bias != -PF_INFINITY;
            g->s[0].x[u] = keep ? pf_fma(g->s[0].x[u], a->alpha, bias) : -PF_INFINITY;
            if (PF_TANGENT)
                g->s[PF_T].x[u] = pf_fma(g->s[PF_T].x[u], a->alpha, tbias);
        }
        pf_scores_turn(&g->s[0]);
        if (PF_TANGENT)
            pf_scores_turn(&g->s[PF_T]);
    }
}

PF_DEVICE void backward_mask_window(const backward_context *c, backward_state *g,
                                    const query_step *step) {
    pf_span kept[PF_SLOTS];
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) kept[s] =
        pf_span_of_key(c->a, step->pair, c->w.j0 + pf_slot_owned(s), step->tile * PF_CROSS_TILE);
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
        const bool keep = pf_span_keeps(kept[pf_score_slot(e)], pf_score_cross(e));
        g->s[0].x[e] = keep ? g->s[0].x[e] : 0.f;
        if (PF_TANGENT)
            g->s[PF_T].x[e] = keep ? g->s[PF_T].x[e] : 0.f;
    }
}

/* P = exp(S - L) and tP = P (t - tL), with zeros for scores of -inf where these are to be told
 * apart: their P is 0, but L or t may be NaN. */
PF_DEVICE void backward_exp(const backward_context *c, backward_state *g, bool tell_apart) {
    const pf_attention_kargs *a = c->a;
    const int stage = c->q_pos.take;
    const float *lse = c->sm->q_stats[stage][0], *tlse = c->sm->q_stats[stage][PF_T];
    const bool natural = bias_is_natural(&c->bias);
    const float alpha = PF_GENERAL ? 1.f : a->alpha;
    const float lse_unit = PF_GENERAL ? PF_LOG2E : 1.f; /* the plain kernel's is in it */
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
        const int x = pf_score_cross(e);
        const float s = g->s[0].x[e];
        const bool keep = !tell_apart || s != -PF_INFINITY;
        const float p =
            pf_exp2(natural ? pf_fma(s - lse[x], PF_LOG2E, PF_WEIGHT_SHIFT)
                            : pf_fma(s, a->alpha_log2e, -(lse[x] * lse_unit - PF_WEIGHT_SHIFT)));
        g->s[0].x[e] = keep ? p : 0.f;
        if (PF_TANGENT) {
            const float t = p * pf_fma(g->s[PF_T].x[e], alpha, -tlse[x]);
            g->s[PF_T].x[e] = keep ? t : 0.f;
        }
    }
}

/* Dot products to weights: P, and tP, shifted by PF_WEIGHT_SHIFT as is dS after them. Are all of
 * this thread's scores kept? */
PF_DEVICE bool backward_weights(backward_context *c, backward_state *g, const query_step *step) {
    bool whole = false;
    if (PF_GENERAL && PF_RARELY(!backward_is_staged(c))) {
        backward_add_bias(c, g, step);
        backward_exp(c, g, true);
    } else {
        whole = backward_window_keeps_all(c, step);
        const bool all_kept = whole;
        if (PF_GENERAL && bias_apply(&g->bias, &c->bias, &c->sm->bias, c->a, g->s,
                                     &c->sm->bias_ring, &c->bias_pos))
            whole = false;
        backward_exp(c, g, PF_GENERAL && PF_TANGENT);
        if (!all_kept)
            backward_mask_window(c, g, step);
    }
    return whole;
}

PF_DEVICE void backward_pack_weights(backward_state *g) {
    pf_weights_pack(&g->p[0], &g->s[0]);
    if (PF_TANGENT)
        pf_weights_pack(&g->p[PF_T], &g->s[PF_T]);
}

/* Targets that clear dS without asking, since that costs no more. */
#ifndef PF_ASKS_FOR_NAN
#define PF_ASKS_FOR_NAN 0
#endif

/* Is there an infinity or a NaN in dS? Called uniformly, perhaps true in vain. */
PF_DEVICE bool backward_has_nan(const pf_scores *ds) {
    float zero[2] = {0.f, 0.f}; /* two chains, as one would take the time of all its steps */
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) zero[e % 2] =
        pf_fma(ds->x[e], 0.f, zero[e % 2]);
    return pf_any_lane(!(zero[0] + zero[1] == 0.f));
}

/* dS = P (dP - delta), tdS = tP (dP - delta) + P (tdP - tdelta). A score that is not kept has
 * P = 0 and gives 0 whatever dP is. */
PF_DEVICE void backward_ds(const backward_context *c, backward_state *g, bool whole) {
    const int stage = PF_DELTA_WITH_Q ? c->q_pos.take : c->dout_pos.take;
    const float *delta = c->sm->dout_stats[stage][0], *tdelta = c->sm->dout_stats[stage][PF_T];
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
        const int x = pf_score_cross(e);
        const float p = g->s[0].x[e], ddp = g->dp[0].x[e] - delta[x];
        if (PF_TANGENT)
            g->dp[PF_T].x[e] = pf_fma(g->s[PF_T].x[e], ddp, p * (g->dp[PF_T].x[e] - tdelta[x]));
        g->dp[0].x[e] = p * ddp;
    }
    whole = whole || (PF_ASKS_FOR_NAN && !backward_has_nan(&g->dp[0]));
    if (!whole) {
        PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
            const bool keep = g->s[0].x[e] != 0.f;
            g->dp[0].x[e] = keep ? g->dp[0].x[e] : 0.f;
            if (PF_TANGENT)
                g->dp[PF_T].x[e] = keep ? g->dp[PF_T].x[e] : 0.f;
        }
    }
    pf_weights_pack(&g->ds[0], &g->dp[0]);
    if (PF_TANGENT)
        pf_weights_pack(&g->ds[PF_T], &g->dp[PF_T]);
}
