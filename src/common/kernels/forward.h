/* SPDX-License-Identifier: Apache-2.0 */
/* Forward, and forward with its JVP: FlashAttention's online softmax over tiles of keys.
 *
 * The workgroup owns a tile of queries and streams K and V. Piecewise attention is two walks over
 * keys, the near ones with pair 0 and the far ones with pair 1: the online softmax does not mind
 * the order, so only tiles that straddle the threshold are visited twice. With tangents the same
 * walk also carries t = dS and accumulates sum P (t v + tv); its mean is taken out at the end. */
#include "bias.h"
#include "out.h"
#include "scores.h"
#include "work.h"

/* Targets whose groups do not share their matrix units. */
#ifndef PF_GROUPS_SKIP
#define PF_GROUPS_SKIP 0
#define pf_group_begin() 0
#define pf_group_end() PF_OWNED_TILE
#endif

typedef struct forward_shared {
    pf_owned_tile q[1 + PF_TANGENT];
    pf_cross_tile k[PF_STAGES][1 + PF_TANGENT];
    pf_value_tile v[PF_STAGES][1 + PF_TANGENT];
    bias_tiles bias;
    pf_ring q_ring, k_ring, v_ring, bias_ring;
} forward_shared;

/* One workgroup's share of the problem: queries [i0, i1) of (b, h), which reads key/value head hk;
 * output channels from channel0, and of the keys those of one split. */
typedef struct forward_work {
    int b, h, hk, i0, i1, channel0, split;
} forward_work;

PF_DEVICE forward_work forward_work_at(const pf_attention_kargs *a, int index) {
    const int parts = PF_HEAD_DIM / PF_OUT_DIM;
    const int tiles = PF_CEIL_DIV(a->queries, PF_OWNED_TILE);
    /* The last rows are the longest where attention is causal. */
    const int tile = tiles - 1 - pf_work_tile(index % tiles, tiles, a->work_count);
    /* Heads that share keys are side by side, splits far apart. */
    const int heads = a->batch * a->heads, rest = index / tiles / parts;
    forward_work w;
    w.split = a->splits > 1 ? rest / heads : 0;
    const int bh = rest - w.split * heads;
    w.channel0 = index / tiles % parts * PF_OUT_DIM;
    w.b = bh / a->heads;
    w.h = bh % a->heads;
    w.hk = w.h / a->group;
    w.i0 = tile * PF_OWNED_TILE;
    w.i1 = pf_min_int(w.i0 + PF_OWNED_TILE, a->queries);
    return w;
}

/* A walk over (pair, tile of keys), keys descending; done when pair == a->pairs. */
typedef struct key_walk {
    int pair, tile, last_tile;
    bool enters; /* the first tile of its pair */
} key_walk;

PF_DEVICE void key_walk_enter(key_walk *walk, const pf_attention_kargs *a, const forward_work *w) {
    walk->enters = true;
    for (; walk->pair < a->pairs; ++walk->pair) {
        const int key0 = w->split * a->split_keys;
        const int begin = pf_max_int(key0, w->i0 - a->window_high[walk->pair] + 1);
        const int end = pf_min_int(pf_min_int(a->key_end[walk->pair], key0 + a->split_keys),
                                   w->i1 - a->window_low[walk->pair]);
        if (begin < end) {
            walk->tile = (end - 1) / PF_CROSS_TILE;
            walk->last_tile = begin / PF_CROSS_TILE;
            return;
        }
    }
}

PF_DEVICE key_walk key_walk_begin(const pf_attention_kargs *a, const forward_work *w) {
    key_walk walk = {0, 0, 0, true};
    key_walk_enter(&walk, a, w);
    return walk;
}

PF_DEVICE void key_walk_next(key_walk *walk, const pf_attention_kargs *a, const forward_work *w) {
    walk->enters = false;
    if (--walk->tile < walk->last_tile) {
        ++walk->pair;
        key_walk_enter(walk, a, w);
    }
}

PF_DEVICE bool key_walk_done(const key_walk *walk, const pf_attention_kargs *a) {
    return walk->pair >= a->pairs;
}

PF_DEVICE bool key_walk_leaves(const key_walk *walk) {
    return walk->tile == walk->last_tile;
}

/* What one thread knows of the work in hand. */
typedef struct forward_context {
    forward_shared *sm;
    pf_source source;
    const pf_attention_kargs *a;
    forward_work w;
    pf_ring_pos q_pos, k_pos, v_pos, bias_pos;
    key_walk fill_k, fill_v, fill_bias; /* the tiles to load next, on targets without a producer */
} forward_context;

PF_DEVICE pf_rows forward_query_rows(const forward_context *c) {
    pf_rows rows = {c->w.b, c->w.h, c->w.i0, c->a->queries, 0, 0, 0};
    return rows;
}

PF_DEVICE void forward_fill_q(forward_context *c, int pair) {
    const pf_rows rows = forward_query_rows(c);
    pf_ring_acquire(&c->sm->q_ring, &c->q_pos, 1);
    pf_owned_load(&c->sm->q[0], &c->source, PF_OPERAND_Q + pair, &rows, &c->sm->q_ring, &c->q_pos);
    if (PF_TANGENT)
        pf_owned_load(&c->sm->q[PF_T], &c->source, PF_OPERAND_TQ + pair, &rows, &c->sm->q_ring,
                      &c->q_pos);
    pf_ring_publish(&c->sm->q_ring, &c->q_pos, 1);
}

/* Rows of the tile of keys; those that bias or mask exclude for every query are not read, so that
 * whatever they hold cannot reach a product. */
PF_DEVICE pf_rows forward_key_rows(const forward_context *c, const key_walk *walk) {
    const pf_attention_kargs *a = c->a;
    pf_rows rows = {c->w.b, c->w.hk, walk->tile * PF_CROSS_TILE, a->key_end[walk->pair], 0, 0, 0};
    if (PF_GENERAL && a->key_live)
        rows.live = a->key_live + rows.b * a->key_live_stride[0] + rows.h * a->key_live_stride[1];
    return rows;
}

PF_DEVICE void forward_fill_k(forward_context *c, const key_walk *walk) {
    const pf_rows rows = forward_key_rows(c, walk);
    pf_ring *ring = &c->sm->k_ring;
    pf_ring_acquire(ring, &c->k_pos, PF_STAGES);
    pf_cross_tile *k = c->sm->k[c->k_pos.fill];
    pf_cross_load(&k[0], &c->source, PF_OPERAND_K + walk->pair, &rows, ring, &c->k_pos);
    if (PF_TANGENT)
        pf_cross_load(&k[PF_T], &c->source, PF_OPERAND_TK + walk->pair, &rows, ring, &c->k_pos);
    pf_ring_publish(ring, &c->k_pos, PF_STAGES);
}

PF_DEVICE void forward_fill_v(forward_context *c, const key_walk *walk) {
    pf_rows rows = forward_key_rows(c, walk);
    pf_ring *ring = &c->sm->v_ring;
    rows.channel0 = c->w.channel0;
    pf_ring_acquire(ring, &c->v_pos, PF_STAGES);
    pf_value_tile *v = c->sm->v[c->v_pos.fill];
    pf_value_load(&v[0], &c->source, PF_OPERAND_V, &rows, ring, &c->v_pos);
    if (PF_TANGENT)
        pf_value_load(&v[PF_T], &c->source, PF_OPERAND_TV, &rows, ring, &c->v_pos);
    pf_ring_publish(ring, &c->v_pos, PF_STAGES);
}

PF_DEVICE void forward_fill_bias(forward_context *c, const key_walk *walk) {
    if (bias_stages(c->a) > 0)
        bias_fill(&c->sm->bias, &c->source, c->a, &c->sm->bias_ring, c->w.b, c->w.h, c->w.i0,
                  walk->tile * PF_CROSS_TILE, &c->bias_pos);
}

/* What a thread of a compute group carries from tile to tile. */
typedef struct forward_state {
    pf_owned q[1 + PF_TANGENT];
    pf_scores s[1 + PF_TANGENT];  /* scores, and their tangents */
    pf_weights p[1 + PF_TANGENT]; /* weights P, and H = P * dS */
    pf_out o[1 + PF_TANGENT];     /* sum P v, and sum H v + P tv */
    float max[PF_SLOTS];          /* in the units of the scores */
    float sum[PF_SLOTS];          /* of P over this thread's keys */
    float mean[PF_SLOTS];         /* of H over this thread's keys */
    float rescale[PF_SLOTS];      /* what the last tile's maximum does to sums so far */
} forward_state;

PF_DEVICE void forward_begin(forward_state *f) {
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) {
        f->max[s] = -PF_INFINITY;
        f->sum[s] = f->mean[s] = 0.f;
    }
    pf_out_zero(&f->o[0]);
    if (PF_TANGENT)
        pf_out_zero(&f->o[PF_T]);
}

PF_DEVICE void forward_issue_scores(forward_context *c, forward_state *f) {
    const pf_cross_tile *k = c->sm->k[c->k_pos.take];
    pf_scores_mma(&f->s[0], &f->q[0], &k[0], true);
    if (PF_TANGENT) {
        pf_scores_mma(&f->s[PF_T], &f->q[0], &k[PF_T], true);
        pf_scores_mma(&f->s[PF_T], &f->q[PF_T], &k[0], false);
    }
    pf_mma_commit();
}

PF_DEVICE void forward_issue_out(forward_context *c, forward_state *f) {
    const pf_value_tile *v = c->sm->v[c->v_pos.take];
    pf_out_mma_value(&f->o[0], &f->p[0], &v[0]);
    if (PF_TANGENT) {
        pf_out_mma_value(&f->o[PF_T], &f->p[0], &v[PF_T]);
        pf_out_mma_value(&f->o[PF_T], &f->p[PF_T], &v[0]);
    }
    pf_mma_commit();
}

/* Dot products become scores in natural units, -inf where bias or mask excludes. */
PF_DEVICE void forward_add_bias(forward_state *f, const pf_attention_kargs *a,
                                const forward_work *w, int pair, int j0) {
    PF_ROLLED for (int first = 0; first < PF_SCORE_COUNT; first += PF_SCORE_STEP) {
        PF_UNROLL for (int u = 0; u < PF_SCORE_STEP; ++u) {
            const int e = first + u;
            const int i = w->i0 + pf_slot_owned(pf_score_slot(e)), j = j0 + pf_score_cross(e);
            float bias = -PF_INFINITY, tbias = 0.f;
            if (i < w->i1 && pf_window_keeps(a, pair, i, j)) {
                bias = pf_bias_or_excluded(a, w->b, w->h, i, j);
                if (PF_TANGENT)
                    tbias = pf_bias_tangent(a, w->b, w->h, i, j);
            }
            const bool keep = bias != -PF_INFINITY;
            f->s[0].x[u] = keep ? pf_fma(f->s[0].x[u], a->alpha, bias) : -PF_INFINITY;
            if (PF_TANGENT)
                f->s[PF_T].x[u] = keep ? pf_fma(f->s[PF_T].x[u], a->alpha, tbias) : 0.f;
        }
        pf_scores_turn(&f->s[0]);
        if (PF_TANGENT)
            pf_scores_turn(&f->s[PF_T]);
    }
}

PF_DEVICE void forward_mask_window(forward_state *f, const pf_attention_kargs *a,
                                   const forward_work *w, int pair, int j0) {
    pf_span kept[PF_SLOTS];
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) kept[s] =
        pf_span_of_query(a, pair, w->i0 + pf_slot_owned(s), j0);
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
        const bool keep = pf_span_keeps(kept[pf_score_slot(e)], pf_score_cross(e));
        f->s[0].x[e] = keep ? f->s[0].x[e] : -PF_INFINITY;
        if (PF_TANGENT)
            f->s[PF_T].x[e] = keep ? f->s[PF_T].x[e] : 0.f;
    }
}

/* Give a tile of bias and mask back. */
PF_DEVICE void forward_release_bias(forward_context *c) {
    pf_ring_release(&c->sm->bias_ring, &c->bias_pos, c->a->bias_stages);
    PF_REFILL({
        if (!key_walk_done(&c->fill_bias, c->a)) {
            forward_fill_bias(c, &c->fill_bias);
            key_walk_next(&c->fill_bias, c->a, &c->w);
        }
    });
}

/* Dot products to scores: in the general kernel in natural units, in the plain one as they are;
 * -inf where they are not kept. */
PF_DEVICE void forward_scores(forward_context *c, forward_state *f, const key_walk *walk) {
    const pf_attention_kargs *a = c->a;
    const forward_work *w = &c->w;
    const int j0 = walk->tile * PF_CROSS_TILE;
    if (PF_GENERAL && bias_stages(a) == 0) {
        forward_add_bias(f, a, w, walk->pair, j0);
        return;
    }
    if (PF_GENERAL) {
        bias_add(&c->sm->bias, a, f->s, &c->sm->bias_ring, &c->bias_pos);
        forward_release_bias(c);
    }
    if (!pf_window_keeps_all(a, walk->pair, w->i0 + pf_group_begin(), w->i0 + pf_group_end(), j0,
                             j0 + PF_CROSS_TILE))
        forward_mask_window(f, a, w, walk->pair, j0);
}

/* Scores to weights, unnormalised: P = exp(s - max), H = P * t, both shifted by PF_WEIGHT_SHIFT.
 * The general kernel subtracts before it scales: a score near the lowest finite number times
 * log2(e) would overflow. */
PF_DEVICE void forward_softmax(forward_context *c, forward_state *f, const key_walk *walk) {
    const pf_attention_kargs *a = c->a;
    const float unit = PF_GENERAL ? PF_LOG2E : a->alpha_log2e;
    forward_scores(c, f, walk);

    float max[PF_SLOTS], offset[PF_SLOTS], sum[PF_SLOTS], mean[PF_SLOTS];
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) max[s] = f->max[s];
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
        const int s = pf_score_slot(e);
        max[s] = pf_max(max[s], f->s[0].x[e]);
    }
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) {
        max[s] = pf_slot_max(max[s]);
        offset[s] = max[s] == -PF_INFINITY ? 0.f : max[s]; /* no key kept yet */
        f->rescale[s] = pf_exp2((f->max[s] - offset[s]) * unit);
        f->max[s] = max[s];
        sum[s] = mean[s] = 0.f;
        if (!PF_GENERAL)
            offset[s] = offset[s] * unit - PF_WEIGHT_SHIFT;
    }
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
        const int s = pf_score_slot(e);
        const float x = f->s[0].x[e];
        const float p = pf_exp2(PF_GENERAL ? pf_fma(x - offset[s], unit, PF_WEIGHT_SHIFT)
                                           : pf_fma(x, unit, -offset[s]));
        f->s[0].x[e] = p;
        sum[s] += p;
        if (PF_TANGENT) {
            const float h = p * f->s[PF_T].x[e] * (PF_GENERAL ? 1.f : a->alpha);
            f->s[PF_T].x[e] = h;
            mean[s] += h;
        }
    }
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) {
        f->sum[s] = pf_fma(f->sum[s], f->rescale[s], sum[s]);
        f->mean[s] = pf_fma(f->mean[s], f->rescale[s], mean[s]);
    }
}

PF_DEVICE void forward_pack(forward_state *f) {
    pf_weights_pack(&f->p[0], &f->s[0]);
    if (PF_TANGENT)
        pf_weights_pack(&f->p[PF_T], &f->s[PF_T]);
}

PF_DEVICE void forward_rescale(forward_state *f) {
    PF_UNROLL for (int e = 0; e < PF_OUT_COUNT; ++e) {
        f->o[0].x[e] *= f->rescale[pf_out_slot(e)];
        if (PF_TANGENT)
            f->o[PF_T].x[e] *= f->rescale[pf_out_slot(e)];
    }
}

/* Each split's results are a batch of their own. */
PF_DEVICE int forward_out_batch(const pf_attention_kargs *a, const forward_work *w) {
    return w->split * a->batch + w->b;
}

PF_DEVICE void forward_store_stat(const pf_attention_kargs *a, const pf_karg_tensor *t,
                                  const forward_work *w, int s, int channel, float value) {
    const int i = w->i0 + pf_slot_owned(s);
    if (t->address && i < w->i1 && w->channel0 == 0 && pf_slot_is_first())
        ((PF_GLOBAL float *)
             t->address)[pf_row_offset(t, forward_out_batch(a, w), w->h, i) + channel] = value;
}

/* L of slot s, or what stands for it in a part of a split. */
PF_DEVICE void forward_store_lse(const forward_context *c, const forward_state *f, int s,
                                 float sum) {
    const pf_attention_kargs *a = c->a;
    const float scale = PF_GENERAL ? 1.f : a->alpha;
    if (a->splits > 1) {
        forward_store_stat(a, &a->lse, &c->w, s, PF_PART_MAX, f->max[s] * scale);
        forward_store_stat(a, &a->lse, &c->w, s, PF_PART_SUM, sum * PF_WEIGHT_UNSHIFT);
    } else {
        const float log = (pf_log2(sum) - PF_WEIGHT_SHIFT) * PF_LN2;
        forward_store_stat(a, &a->lse, &c->w, s, 0,
                           sum == 0.f ? -PF_INFINITY : pf_fma(f->max[s], scale, log));
    }
}

/* Normalise and write O, L, tO, tL. A row without keys has sum 0. */
PF_DEVICE void forward_finish(const forward_context *c, forward_state *f) {
    const pf_attention_kargs *a = c->a;
    const forward_work *w = &c->w;
    const int b = forward_out_batch(a, w);
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) {
        const float sum = pf_slot_sum(f->sum[s]);
        const float inverse = sum == 0.f ? 0.f : 1.f / sum;
        f->rescale[s] = inverse;
        if (PF_TANGENT)
            f->mean[s] = pf_slot_sum(f->mean[s]) * inverse;
        forward_store_lse(c, f, s, sum);
        if (PF_TANGENT)
            forward_store_stat(a, &a->tlse, w, s, 0, f->mean[s]);
    }
    forward_rescale(f);
    if (a->o.address)
        pf_out_store(&f->o[0], &a->o, a->o_type, b, w->h, w->i0, w->i1, w->channel0, a->dim_v);
    if (PF_TANGENT && a->to.address) {
        PF_UNROLL for (int e = 0; e < PF_OUT_COUNT; ++e) f->o[PF_T].x[e] =
            pf_fma(-f->mean[pf_out_slot(e)], f->o[0].x[e], f->o[PF_T].x[e]);
        pf_out_store(&f->o[PF_T], &a->to, a->to_type, b, w->h, w->i0, w->i1, w->channel0, a->dim_v);
    }
}

/* Take Q where a pair begins, and the next tile of K. */
PF_DEVICE void forward_take_qk(forward_context *c, forward_state *f, const key_walk *walk) {
    if (walk->enters) {
        const pf_rows rows = forward_query_rows(c);
        pf_ring_take(&c->sm->q_ring, &c->q_pos, 1);
        pf_owned_take(&f->q[0], &c->sm->q[0], &c->source, PF_OPERAND_Q + walk->pair, &rows);
        if (PF_TANGENT)
            pf_owned_take(&f->q[PF_T], &c->sm->q[PF_T], &c->source, PF_OPERAND_TQ + walk->pair,
                          &rows);
    }
    pf_ring_take(&c->sm->k_ring, &c->k_pos, PF_STAGES);
}

/* Give back K once its scores are done, and Q where the pair ends. */
PF_DEVICE void forward_release_qk(forward_context *c, const key_walk *walk) {
    pf_ring_release(&c->sm->k_ring, &c->k_pos, PF_STAGES);
    PF_REFILL({
        if (!key_walk_done(&c->fill_k, c->a)) {
            forward_fill_k(c, &c->fill_k);
            key_walk_next(&c->fill_k, c->a, &c->w);
        }
    });
    if (key_walk_leaves(walk)) {
        pf_ring_release(&c->sm->q_ring, &c->q_pos, 1);
        PF_REFILL({
            key_walk next = *walk;
            key_walk_next(&next, c->a, &c->w);
            if (!key_walk_done(&next, c->a))
                forward_fill_q(c, next.pair);
        });
    }
}

PF_DEVICE void forward_release_v(forward_context *c) {
    pf_ring_release(&c->sm->v_ring, &c->v_pos, PF_STAGES);
    PF_REFILL({
        if (!key_walk_done(&c->fill_v, c->a)) {
            forward_fill_v(c, &c->fill_v);
            key_walk_next(&c->fill_v, c->a, &c->w);
        }
    });
}

/* The first loads, on targets without a producer. */
PF_DEVICE void forward_prefetch(forward_context *c, const key_walk *walk) {
    c->fill_k = c->fill_v = c->fill_bias = *walk;
    if (key_walk_done(walk, c->a))
        return;
    forward_fill_q(c, walk->pair);
    for (int n = 0; n < PF_STAGES && !key_walk_done(&c->fill_k, c->a); ++n) {
        forward_fill_k(c, &c->fill_k);
        key_walk_next(&c->fill_k, c->a, &c->w);
        forward_fill_v(c, &c->fill_v);
        key_walk_next(&c->fill_v, c->a, &c->w);
    }
    for (int n = 0; n < bias_stages(c->a) && !key_walk_done(&c->fill_bias, c->a); ++n) {
        forward_fill_bias(c, &c->fill_bias);
        key_walk_next(&c->fill_bias, c->a, &c->w);
    }
}

/* Tiles at the start of a walk of which this group's rows keep nothing, since they lie before those
 * of the workgroup's last rows: taken and given back, and a turn passed for each. */
PF_DEVICE void forward_skip(forward_context *c, forward_state *f, key_walk *walk, bool in_turn) {
    const int i_last = pf_min_int(c->w.i0 + pf_group_end(), c->w.i1) - 1;
    const bool none = c->w.i0 + pf_group_begin() > i_last;
    while (!key_walk_done(walk, c->a) &&
           (none || walk->tile * PF_CROSS_TILE > i_last - c->a->window_low[walk->pair])) {
        if (!in_turn)
            pf_turn_wait();
        pf_turn_pass();
        forward_take_qk(c, f, walk);
        forward_release_qk(c, walk);
        if (bias_stages(c->a) > 0) {
            pf_ring_take(&c->sm->bias_ring, &c->bias_pos, c->a->bias_stages);
            forward_release_bias(c);
        }
        pf_ring_take(&c->sm->v_ring, &c->v_pos, PF_STAGES);
        forward_release_v(c);
        key_walk_next(walk, c->a, &c->w);
        if (in_turn) /* tiles are given back first: others may hold the turn until then */
            pf_turn_wait();
    }
}

/* One tile after the other: scores, softmax, output. The output of a tile and the scores of the
 * next are one turn. */
PF_DEVICE void forward_walk_in_order(forward_context *c, forward_state *f) {
    key_walk walk = key_walk_begin(c->a, &c->w);
    pf_turn_wait();
    if (PF_GROUPS_SKIP)
        forward_skip(c, f, &walk, true);
    for (; !key_walk_done(&walk, c->a); key_walk_next(&walk, c->a, &c->w)) {
        forward_take_qk(c, f, &walk);
        forward_issue_scores(c, f);
        pf_turn_pass();
        pf_mma_wait(0);
        forward_release_qk(c, &walk);
        forward_softmax(c, f, &walk);
        forward_pack(f);
        forward_rescale(f);
        pf_ring_take(&c->sm->v_ring, &c->v_pos, PF_STAGES);
        pf_turn_wait();
        forward_issue_out(c, f);
        pf_mma_wait(0);
        forward_release_v(c);
    }
    pf_turn_pass();
}

/* The scores of the next tile are issued before the output of this one, so that matrix units work
 * while the softmax of the next is computed. */
PF_DEVICE void forward_walk_overlapped(forward_context *c, forward_state *f) {
    key_walk walk = key_walk_begin(c->a, &c->w);
    if (PF_GROUPS_SKIP)
        forward_skip(c, f, &walk, false);
    if (key_walk_done(&walk, c->a))
        return;
    forward_take_qk(c, f, &walk);
    pf_turn_wait();
    forward_issue_scores(c, f);
    pf_turn_pass();
    pf_mma_wait(0);
    forward_release_qk(c, &walk);
    forward_softmax(c, f, &walk);
    forward_pack(f);
    for (key_walk_next(&walk, c->a, &c->w); !key_walk_done(&walk, c->a);
         key_walk_next(&walk, c->a, &c->w)) {
        forward_take_qk(c, f, &walk);
        pf_turn_wait();
        forward_issue_scores(c, f);
        pf_ring_take(&c->sm->v_ring, &c->v_pos, PF_STAGES);
        forward_issue_out(c, f);
        pf_turn_pass();
        pf_mma_wait(1);
        forward_release_qk(c, &walk);
        forward_softmax(c, f, &walk);
        pf_mma_wait(0);
        forward_release_v(c);
        forward_rescale(f);
        forward_pack(f);
    }
    pf_ring_take(&c->sm->v_ring, &c->v_pos, PF_STAGES);
    forward_issue_out(c, f);
    pf_mma_wait(0);
    forward_release_v(c);
}

PF_KERNEL(PF_KERNEL_NAME(forward), pf_attention_kargs) {
    PF_SHARED(forward_shared, sm);
    forward_context c = {};
    c.sm = sm;
    c.source = (pf_source)PF_SOURCE;
    c.a = PF_KERNEL_ARGS;
    pf_ring_init(&sm->q_ring, 1);
    pf_ring_init(&sm->k_ring, PF_STAGES);
    pf_ring_init(&sm->v_ring, PF_STAGES);
    if (PF_BIAS_BYTES > 0)
        pf_ring_init(&sm->bias_ring, bias_stages(c.a));
    pf_block_sync();
    PF_PRODUCER {
        for (int round = 0, at; (at = pf_work_index(round, c.a->work_count)) < c.a->work_count;
             ++round) {
            c.w = forward_work_at(c.a, at);
            for (key_walk walk = key_walk_begin(c.a, &c.w); !key_walk_done(&walk, c.a);
                 key_walk_next(&walk, c.a, &c.w)) {
                if (walk.enters)
                    forward_fill_q(&c, walk.pair);
                forward_fill_k(&c, &walk);
                forward_fill_bias(&c, &walk);
                forward_fill_v(&c, &walk);
            }
        }
    }
    PF_CONSUMER {
        for (int round = 0, at; (at = pf_work_index(round, c.a->work_count)) < c.a->work_count;
             ++round) {
            forward_state f;
            c.w = forward_work_at(c.a, at);
            forward_begin(&f);
            PF_REFILL({
                const key_walk walk = key_walk_begin(c.a, &c.w);
                forward_prefetch(&c, &walk);
            });
            if (PF_OVERLAP)
                forward_walk_overlapped(&c, &f);
            else
                forward_walk_in_order(&c, &f);
            forward_finish(&c, &f);
        }
    }
}
