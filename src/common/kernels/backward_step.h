/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of a step of backward (backward.h, backward_pair.h): the walk over tiles of queries,
 * the products for dV, dK and dQ, sums of dQ in memory, dbias, and what rings are given back. */
#ifndef PF_KERNELS_BACKWARD_STEP_H
#define PF_KERNELS_BACKWARD_STEP_H

#include "backward_tile.h"
#include "out.h"

static_assert(!PF_HEADS_INSIDE || !PF_SPREADS_WALKS, "walks begin where all others do");

/* A walk over (query head, tile of queries) of one pair: those of which some key of the cluster
 * keeps something. Heads are one after the other, or inside: all of the group for each tile. */
typedef struct query_walk {
    query_step at;
    int first_tile, end_tile;
} query_walk;

/* Does it begin elsewhere for each tile of keys, where all see all queries, so that workgroups add
 * to other sums of dQ each? */
PF_DEVICE bool query_walk_spreads(const pf_attention_kargs *a, const backward_work *w) {
    return PF_SPREADS_WALKS && !a->deterministic && a->pairs == 1 && w->slot < 0 &&
           a->window_low[0] == -PF_WINDOW_LIMIT;
}

PF_DEVICE query_walk query_walk_begin(const pf_attention_kargs *a, const backward_work *w,
                                      int pair) {
    const int j0 = w->j0 - pf_cluster_place() * PF_OWNED_TILE;
    const int j1 = PF_CLUSTER > 1 ? pf_min_int(j0 + PF_CLUSTER_KEYS, a->keys) : w->j1;
    const int begin = pf_max_int(0, j0 + a->window_low[pair]);
    const int end = pf_min_int(a->queries, j1 - 1 + a->window_high[pair]);
    const bool any = begin < end && j0 < a->key_end[pair];
    query_walk walk;
    walk.first_tile = begin / PF_CROSS_TILE;
    walk.end_tile = any ? PF_CEIL_DIV(end, PF_CROSS_TILE) : walk.first_tile;
    if (PF_DIVIDES && w->slot >= 0) {
        walk.first_tile = w->tile0;
        walk.end_tile = w->tile1;
    }
    walk.at.pair = pair;
    walk.at.h = any ? w->hk * a->group : PF_INT_MAX;
    if (any && query_walk_spreads(a, w))
        walk.first_tile = j0 / PF_CROSS_TILE % walk.end_tile;
    walk.at.tile = w->descends ? walk.end_tile - 1 : walk.first_tile;
    return walk;
}

PF_DEVICE bool query_walk_done(const query_walk *walk, const pf_attention_kargs *a,
                               const backward_work *w) {
    return walk->at.h >= (w->hk + 1) * a->group;
}

PF_DEVICE void query_walk_next(query_walk *walk, const pf_attention_kargs *a,
                               const backward_work *w) {
    if (PF_HEADS_INSIDE && ++walk->at.h < (w->hk + 1) * a->group)
        return;
    walk->at.tile += w->descends ? -1 : 1;
    const bool more = walk->at.tile >= walk->first_tile && walk->at.tile < walk->end_tile;
    if (PF_HEADS_INSIDE && more)
        walk->at.h = w->hk * a->group;
    if (PF_HEADS_INSIDE || more)
        return;
    if (query_walk_spreads(a, w)) {
        const int end = PF_CEIL_DIV(a->queries, PF_CROSS_TILE);
        if (walk->first_tile > 0) { /* to the tiles before those it began with */
            walk->end_tile = walk->first_tile;
            walk->first_tile = walk->at.tile = 0;
            return;
        }
        walk->first_tile = walk->end_tile < end ? walk->end_tile : 0;
        walk->end_tile = end;
    }
    walk->at.tile = w->descends ? walk->end_tile - 1 : walk->first_tile;
    ++walk->at.h;
}

PF_DEVICE void backward_issue_dv(backward_context *c, backward_state *g, pf_out *dv) {
    const pf_cross_tile *dout = c->sm->dout[c->dout_pos.take];
    pf_out_mma(dv, &g->p[PF_T], &dout[0], c->w.channel0);
    if (PF_TANGENT)
        pf_out_mma(dv, &g->p[0], &dout[PF_T], c->w.channel0);
    pf_mma_commit();
}

PF_DEVICE void backward_issue_dk(backward_context *c, backward_state *g, pf_out *dk) {
    const pf_cross_tile *q = c->sm->q[c->q_pos.take];
    pf_out_mma(dk, &g->ds[PF_T], &q[0], c->w.channel0);
    if (PF_TANGENT)
        pf_out_mma(dk, &g->ds[0], &q[PF_T], c->w.channel0);
    pf_mma_commit();
}

PF_DEVICE void backward_issue_dq(backward_context *c, pf_exchange *ds, int channel0,
                                 pf_cross_out *dq) {
    pf_cross_mma(dq, &ds[PF_T], &c->sm->k[0], channel0, true);
    if (PF_TANGENT)
        pf_cross_mma(dq, &ds[0], &c->sm->k[PF_T], channel0, false);
    pf_mma_commit();
}

/* dS of one tile to dbias, where each score has an element of its own. Pair 0 writes all that is
 * not pair 1's, zeros where nothing is kept. */
PF_DEVICE void backward_store_dbias(const backward_context *c, const pf_scores *ds,
                                    const query_step *step) {
    const pf_attention_kargs *a = c->a;
    pf_scores turned = *ds;
    PF_ROLLED for (int first = 0; first < PF_SCORE_COUNT; first += PF_SCORE_STEP) {
        PF_UNROLL for (int u = 0; u < PF_SCORE_STEP; ++u) {
            const int e = first + u, i = step->tile * PF_CROSS_TILE + pf_score_cross(e);
            const int j = c->w.j0 + pf_slot_owned(pf_score_slot(e));
            const bool far = a->pairs == 2 && pf_window_keeps(a, 1, i, j);
            if (i < a->queries && j < c->w.j1 && far == (step->pair == 1))
                pf_write(a->dbias.address,
                         pf_row_offset(&a->dbias, c->w.b, step->h, i) + j * a->dbias.stride[3],
                         a->dbias_type, turned.x[u] * PF_WEIGHT_UNSHIFT);
        }
        pf_scores_turn(&turned);
    }
}

/* Does this workgroup store dbias? Those of the further channels see the same dS. */
PF_DEVICE bool backward_stores_dbias(const backward_context *c) {
    const pf_attention_kargs *a = c->a;
    return PF_GENERAL && c->bias.kind != BIAS_MASK && a->dbias.address && c->w.channel0 == 0 &&
           a->dbias_full[0] && a->dbias_full[1] && a->dbias_full[2] && a->dbias_full[3];
}

/* Does it leave by tiles? */
PF_DEVICE bool backward_sends_dbias(const backward_context *c) {
    return c->bias_stages > 0 && c->a->dbias_staged;
}

PF_DEVICE pf_rows backward_dbias_rows(const backward_context *c, const query_step *step) {
    const pf_rows rows = {c->w.b,  step->h, step->tile * PF_CROSS_TILE, c->a->queries, 0,
                          c->w.j0, 0};
    return rows;
}

/* Zeros for the tiles that pair 0 does not visit. */
PF_DEVICE void backward_clear_dbias(backward_context *c) {
    const pf_attention_kargs *a = c->a;
    const query_walk walk = query_walk_begin(a, &c->w, 0);
    query_step step = {0, c->w.hk * a->group, 0};
    pf_scores zero;
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) zero.x[e] = 0.f;
    for (int g = 0; g < a->group; ++g, ++step.h)
        for (step.tile = 0; step.tile < PF_CEIL_DIV(a->queries, PF_CROSS_TILE); ++step.tile)
            if (step.tile < walk.first_tile || step.tile >= walk.end_tile) {
                const pf_rows rows = backward_dbias_rows(c, &step);
                if (backward_sends_dbias(c))
                    pf_bias_clear(&c->source, &rows);
                else
                    backward_store_dbias(c, &zero, &step);
            }
}

/* How many clusters add to the sums of dQ of this step before this one does. */
PF_DEVICE int backward_turn(const backward_context *c, const query_step *step) {
    const pf_attention_kargs *a = c->a;
    const int i0 = step->tile * PF_CROSS_TILE, tile = c->w.j0 / PF_CLUSTER_KEYS;
    if (c->w.descends)
        return tile - pf_max_int(0, i0 - a->window_high[step->pair] + 1) / PF_CLUSTER_KEYS;
    const int i1 = pf_min_int(i0 + PF_CROSS_TILE, a->queries);
    const int end = pf_min_int(a->key_end[step->pair], i1 - a->window_low[step->pair]);
    return (end - 1) / PF_CLUSTER_KEYS - tile;
}

/* dS to dbias. Where it is staged it takes the place of the tile of bias: it is put there before
 * the groups exchange dS, and leaves after. */
PF_DEVICE void backward_put_dbias(backward_context *c, backward_state *g, const query_step *step) {
    if (!backward_stores_dbias(c))
        return;
    if (backward_sends_dbias(c))
        pf_bias_put(bias_tile(&c->sm->bias, c->a, PF_MAP_BIAS, c->bias_pos.take), &g->ds[PF_T]);
    else
        backward_store_dbias(c, &g->dp[PF_T], step);
}

PF_DEVICE void backward_send_dbias(backward_context *c, const query_step *step) {
    if (backward_sends_dbias(c) && backward_stores_dbias(c)) {
        const pf_rows rows = backward_dbias_rows(c, step);
        pf_bias_send(bias_tile(&c->sm->bias, c->a, PF_MAP_BIAS, c->bias_pos.take), &c->source,
                     &rows);
    }
}

/* Add the owned keys' share of dQ to memory, from channel0 on, in turn where determinism is asked
 * for. */
PF_DEVICE void backward_add_dq(backward_context *c, const pf_cross_out *dq, const query_step *step,
                               int channel0) {
    const pf_attention_kargs *a = c->a;
    if (!a->dq_sum[step->pair])
        return;
    const pf_i64 bh = (pf_i64)c->w.b * a->heads + step->h;
    const pf_i64 tile = bh * PF_CEIL_DIV(a->queries, PF_CROSS_TILE) + step->tile;
    const int part = c->w.channel0 / PF_OUT_DIM, parts = PF_HEAD_DIM / PF_OUT_DIM;
    pf_turn turn = {0, 0};
    if (a->deterministic) {
        turn.counter = a->dq_turn[step->pair] + 4 * (tile * parts + part);
        turn.value = backward_turn(c, step);
    }
    pf_dq_add(dq, a->dq_sum[step->pair] + 4 * tile * (PF_CROSS_TILE * PF_HEAD_DIM), channel0,
              &turn);
}

/* The steps to load next, on targets without a producer. */
typedef struct backward_fills {
    query_walk q, dout, bias;
} backward_fills;

PF_DEVICE void backward_first_fills(backward_context *c, backward_fills *fills, int pair) {
    backward_fill_k(c, pair);
    backward_fill_v(c, pair);
    for (int n = 0; n < PF_STAGES && !query_walk_done(&fills->q, c->a, &c->w); ++n) {
        backward_fill_q(c, &fills->q.at);
        query_walk_next(&fills->q, c->a, &c->w);
        backward_fill_dout(c, &fills->dout.at);
        query_walk_next(&fills->dout, c->a, &c->w);
    }
    for (int n = 0; n < c->bias_stages && !query_walk_done(&fills->bias, c->a, &c->w); ++n) {
        backward_fill_bias(c, &fills->bias.at);
        query_walk_next(&fills->bias, c->a, &c->w);
    }
}

/* Give a tile of bias and mask back; one that holds dS, once that has left. */
PF_DEVICE void backward_release_bias(backward_context *c, backward_fills *fills) {
    if (!backward_is_staged(c))
        return;
    if (c->a->dbias_staged)
        pf_bias_sent();
    pf_ring_release(&c->sm->bias_ring, &c->bias_pos, c->bias_stages);
    PF_REFILL({
        if (!query_walk_done(&fills->bias, c->a, &c->w)) {
            backward_fill_bias(c, &fills->bias.at);
            query_walk_next(&fills->bias, c->a, &c->w);
        }
    });
}

PF_DEVICE void backward_release_q(backward_context *c, backward_fills *fills) {
    pf_ring_release(&c->sm->q_ring, &c->q_pos, PF_STAGES);
    PF_REFILL({
        if (!query_walk_done(&fills->q, c->a, &c->w)) {
            backward_fill_q(c, &fills->q.at);
            query_walk_next(&fills->q, c->a, &c->w);
        }
    });
}

PF_DEVICE void backward_release_dout(backward_context *c, backward_fills *fills) {
    pf_ring_release(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
    PF_REFILL({
        if (!query_walk_done(&fills->dout, c->a, &c->w)) {
            backward_fill_dout(c, &fills->dout.at);
            query_walk_next(&fills->dout, c->a, &c->w);
        }
    });
}

/* The parts of dK (0) or dV (1) of divided items. */
PF_DEVICE pf_karg_tensor backward_parts(const pf_attention_kargs *a, int which) {
    const int size = PF_OWNED_TILE * PF_OUT_DIM;
    const pf_karg_tensor parts = {a->parts + 4 * which * size,
                                  {2 * PF_CLUSTER * size, 2 * size, PF_OUT_DIM, 1}};
    return parts;
}

PF_DEVICE void backward_keep_part(const backward_context *c, int which, const pf_out *out) {
    const pf_karg_tensor parts = backward_parts(c->a, which);
    const pf_out_place at = {&parts, PF_KTYPE_F32,  c->w.slot, pf_cluster_place(),
                             0,      PF_OWNED_TILE, 0,         PF_OUT_DIM};
    pf_out_store_runs(out, &at);
}

PF_DEVICE void backward_store_dk(const backward_context *c, int pair, pf_out *dk) {
    const pf_attention_kargs *a = c->a;
    const backward_work *w = &c->w;
    if (PF_DIVIDES && w->slot >= 0) {
        backward_keep_part(c, 0, dk);
    } else if (a->dk[pair].address) {
        PF_UNROLL for (int e = 0; e < PF_OUT_COUNT; ++e) dk->x[e] *= a->alpha * PF_WEIGHT_UNSHIFT;
        pf_out_store(dk, &a->dk[pair], a->dk_type[pair], w->b, w->hk, w->j0, w->j1, w->channel0,
                     a->dim_qk);
    }
}

PF_DEVICE void backward_store_dv(const backward_context *c, pf_out *dv) {
    const pf_attention_kargs *a = c->a;
    const backward_work *w = &c->w;
    if (PF_DIVIDES && w->slot >= 0) {
        backward_keep_part(c, 1, dv);
        return;
    }
    PF_UNROLL for (int e = 0; e < PF_OUT_COUNT; ++e) dv->x[e] *= PF_WEIGHT_UNSHIFT;
    if (a->dv.address)
        pf_out_store(dv, &a->dv, a->dv_type, w->b, w->hk, w->j0, w->j1, w->channel0, a->dim_v);
}

#endif
