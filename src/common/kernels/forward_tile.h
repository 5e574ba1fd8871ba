/* SPDX-License-Identifier: Apache-2.0 */
/* Forward's work on one tile: scores to weights by the online softmax, and what is kept and written
 * of them. With tangents the same walk also carries t = dS and accumulates sum P (t v + tv); its
 * mean is taken out at the end. */
#ifndef PF_KERNELS_FORWARD_TILE_H
#define PF_KERNELS_FORWARD_TILE_H

#include "bias.h"
#include "forward_work.h"
#include "out.h"
#include "scores.h"

/* Targets whose groups do not share their matrix units. */
#ifndef PF_GROUPS_SKIP
#define PF_GROUPS_SKIP 0
#define pf_group_begin() 0
#define pf_group_end() PF_OWNED_TILE
#endif

/* Targets with registers for which tiles a walk keeps whole. */
#ifndef PF_WHOLE_AHEAD
#define PF_WHOLE_AHEAD 1
#endif

/* Targets with room for the queries of one item or pair alone. */
#ifndef PF_Q_STAGES
#define PF_Q_STAGES 1
#endif

/* Targets whose products are done once they are issued. */
#ifndef PF_TAKES_AHEAD
#define PF_TAKES_AHEAD 0
#endif

/* Targets with room for as many tiles of V as of K. */
#ifndef PF_V_STAGES
#define PF_V_STAGES PF_STAGES
#endif

/* Targets that compare two numbers at a time. */
#ifndef PF_MAX3
#define PF_MAX3 0
PF_DEVICE float pf_max3(float a, float, float) {
    return a;
}
PF_DEVICE float pf_max3_negative(float a, float, float) {
    return a;
}
#endif

/* Targets that multiply scores by alpha, not queries. */
#ifndef PF_SCALES_QUERIES
#define PF_SCALES_QUERIES 0
#define pf_owned_scale(...) ((void)0)
#endif

/* Targets with registers for what they have in hand alone. */
#ifndef PF_LOOKS_AHEAD
#define PF_LOOKS_AHEAD 0
#endif

/* Targets whose loads do not meet. */
#ifndef PF_KEYS_FIRST
#define PF_KEYS_FIRST 0
#define pf_fillers_meet() ((void)0)
#endif

/* Targets that write outputs from registers. */
#ifndef PF_STAGES_OUT
#define PF_STAGES_OUT 0
#endif
#if !PF_STAGES_OUT
#define pf_out_stage(out, source, rows) ((void)(out), false)
#define pf_out_send(...) ((void)0)
#define pf_out_drain() ((void)0)
#endif

/* Targets that clear outputs first. */
#ifndef PF_STARTS_OUT
#define PF_STARTS_OUT 0
#endif
#if !PF_STARTS_OUT
#define pf_out_mma_start(out, w, value, fresh) pf_out_mma_value(out, w, value)
#endif

/* Targets that keep H in registers, as they do P. */
#ifndef PF_PARKS_WEIGHTS
#define PF_PARKS_WEIGHTS 0
#endif
#if !PF_PARKS_WEIGHTS
#define pf_out_mma_parked(...) ((void)0)
#endif

typedef struct forward_shared {
    pf_owned_tile q[PF_Q_STAGES][1 + PF_TANGENT];
    pf_cross_tile k[PF_STAGES][1 + PF_TANGENT];
    pf_value_tile v[PF_V_STAGES][1 + PF_TANGENT];
#if PF_PARKS_WEIGHTS
    pf_exchange h;
#endif
    bias_tiles bias;
    pf_ring q_ring, k_ring, v_ring, bias_ring;
#if PF_FORWARD_PAIRED
    pf_pair pair;
    pf_ring tk_ring, tv_ring;
#endif
} forward_shared;

/* What one thread knows of the work in hand. */
typedef struct forward_context {
    forward_shared *sm;
    pf_source source;
    const pf_attention_kargs *a;
    forward_work w;
    pf_ring_pos q_pos, k_pos, v_pos, bias_pos;
    bias_places bias;
    bool out_staged;  /* O is yet to be sent */
    pf_rows out_rows; /* of that */
    bool scaled;      /* queries have been multiplied by alpha; known where a loop is compiled */
#if PF_FORWARD_PAIRED
    pf_ring_pos tk_pos, tv_pos;
#endif
    key_walk fill_k, fill_v, fill_bias; /* the tiles to load next, on targets without a producer */
} forward_context;

/* What dot products, with a bias added, are to be multiplied by to be scores in natural units. */
PF_DEVICE float forward_alpha(const forward_context *c) {
    return bias_is_natural(&c->bias) || c->scaled ? 1.f : c->a->alpha;
}

/* The workgroup's item of work of a round, or its part of one; false where nothing is left. */
PF_DEVICE bool forward_begin_work(forward_context *c, int round) {
    pf_piece piece;
    if (PF_ONE_ROUND && round > 0)
        return false;
    if (!pf_piece_of_round(c->a, round, PF_WINDOW_LIMIT / PF_CROSS_TILE, &piece))
        return false;
    c->w = forward_work_of(c->a, &piece);
    return true;
}

PF_DEVICE pf_rows forward_query_rows(const forward_context *c) {
    pf_rows rows = {c->w.b, c->w.h, c->w.i0, c->a->queries, 0, 0, 0};
    return rows;
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

PF_DEVICE void forward_fill_bias(forward_context *c, const key_walk *walk) {
    if (bias_stages(c->a) > 0)
        bias_fill(&c->sm->bias, &c->source, c->a, &c->sm->bias_ring, c->w.b, c->w.h, c->w.i0,
                  walk->tile * PF_CROSS_TILE, &c->bias_pos);
}

/* What a thread of a compute group carries from tile to tile. */
typedef struct forward_state {
    pf_owned q[1 + PF_GROUP_T];
    pf_scores s[1 + PF_GROUP_T];  /* scores, and their tangents */
    bias_readers bias;            /* of these scores */
    pf_weights p[1 + PF_GROUP_T]; /* weights P, and H = P * dS */
    pf_out o[1 + PF_GROUP_T];     /* sum P v, and sum H v + P tv */
    float max[PF_SLOTS];          /* in the units of the scores */
    float sum[PF_SLOTS];          /* of P over this thread's keys */
    float mean[PF_SLOTS];         /* of H over this thread's keys */
    float rescale[PF_SLOTS];      /* what the last tile's maximum does to sums so far */
    bool rescales;                /* anything, to some thread's */
    bool fresh;                   /* nothing is in o yet, where PF_STARTS_OUT */
    float slack[PF_SLOTS];        /* of the maximum, where it is lazy */
    unsigned excluded;            /* scores that are not kept, a bit for each; where paired */
    pf_span whole;                /* tiles of keys of which the group's rows keep all */
} forward_state;

PF_DEVICE void forward_clear_out(forward_state *f) {
    pf_out_zero(&f->o[0]);
    if (PF_GROUP_T)
        pf_out_zero(&f->o[PF_GROUP_T]);
}

PF_DEVICE void forward_begin(forward_state *f) {
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) {
        f->max[s] = -PF_INFINITY;
        f->sum[s] = f->mean[s] = f->slack[s] = 0.f;
    }
    f->fresh = PF_STARTS_OUT;
    if (!PF_STARTS_OUT)
        forward_clear_out(f);
}

/* Dot products become scores in natural units, -inf where bias or mask excludes. */
PF_DEVICE void forward_add_bias(forward_state *f, const pf_attention_kargs *a,
                                const forward_work *w, int pair, int j0) {
    const int i1 = forward_end(a, w);
    PF_ROLLED for (int first = 0; first < PF_SCORE_COUNT; first += PF_SCORE_STEP) {
        PF_UNROLL for (int u = 0; u < PF_SCORE_STEP; ++u) {
            const int e = first + u;
            const int i = w->i0 + pf_slot_owned(pf_score_slot(e)), j = j0 + pf_score_cross(e);
            float bias = -PF_INFINITY, tbias = 0.f;
            if (i < i1 && pf_window_keeps(a, pair, i, j)) {
                bias = pf_bias_or_excluded(a, w->b, w->h, i, j);
                if (PF_GROUP_T)
                    tbias = pf_bias_tangent(a, w->b, w->h, i, j);
            }
            const bool keep = bias != -PF_INFINITY;
            f->s[0].x[u] = keep ? pf_fma(f->s[0].x[u], a->alpha, bias) : -PF_INFINITY;
            if (PF_GROUP_T)
                f->s[PF_GROUP_T].x[u] = keep ? pf_fma(f->s[PF_GROUP_T].x[u], a->alpha, tbias) : 0.f;
        }
        pf_scores_turn(&f->s[0]);
        if (PF_GROUP_T)
            pf_scores_turn(&f->s[PF_GROUP_T]);
    }
}

PF_DEVICE void forward_mask_window(forward_state *f, const pf_attention_kargs *a,
                                   const forward_work *w, int pair, int j0) {
    pf_kept kept[PF_SLOTS];
    int seen[PF_SLOTS] = {};
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) kept[s] =
        pf_kept_of(pf_span_of_query(a, pair, w->i0 + pf_slot_owned(s), j0));
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
        const int s = pf_score_slot(e);
        const bool keep = pf_kept_has(kept[s], seen[s]++, pf_score_cross(e));
        f->s[0].x[e] = keep ? f->s[0].x[e] : -PF_INFINITY;
        if (PF_GROUP_T && !PF_GENERAL)
            f->s[PF_GROUP_T].x[e] = keep ? f->s[PF_GROUP_T].x[e] : 0.f;
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

PF_DEVICE void forward_take_bias(forward_context *c, forward_state *f) {
    if (!bias_is_staged(&c->bias, c->a))
        return;
    bias_take(&f->bias, &c->bias, c->a, &c->sm->bias_ring, &c->bias_pos);
    if (bias_is_held(&c->bias))
        forward_release_bias(c);
}

/* The tiles of a pair with j0 + PF_CROSS_TILE <= key_end, low <= i - j < high for all of the
 * group's queries i and all of its keys j. */
PF_DEVICE pf_span forward_whole_tiles(const pf_attention_kargs *a, const forward_work *w,
                                      int pair) {
    const int i0 = w->i0 + pf_group_begin(), i1 = w->i0 + pf_group_end();
    const int before = i1 - a->window_high[pair]; /* first keys of whole tiles are not below it */
    const int begin = before > 0 ? PF_CEIL_DIV(before, PF_CROSS_TILE) : 0;
    const int end = pf_min_int(a->key_end[pair], i0 - a->window_low[pair] + 1) / PF_CROSS_TILE;
    return pf_span_of(begin, end, 0);
}

/* Do the group's queries keep all of a tile? */
PF_DEVICE bool forward_keeps_all(const forward_context *c, const forward_state *f,
                                 const key_walk *walk) {
    if (PF_WHOLE_AHEAD)
        return pf_span_keeps(f->whole, walk->tile);
    const int j0 = walk->tile * PF_CROSS_TILE;
    return pf_window_keeps_all(c->a, walk->pair, c->w.i0 + pf_group_begin(),
                               c->w.i0 + pf_group_end(), j0, j0 + PF_CROSS_TILE);
}

/* Dot products to scores: in the general kernel in natural units, in the plain one and with a mask
 * alone as they are. Are some not kept, so that forward_exclude is to follow? False is right for
 * all of this thread's scores. */
PF_DEVICE bool forward_scores(forward_context *c, forward_state *f, const key_walk *walk) {
    const pf_attention_kargs *a = c->a;
    if (PF_GENERAL && PF_RARELY(!bias_is_staged(&c->bias, a))) {
        forward_add_bias(f, a, &c->w, walk->pair, walk->tile * PF_CROSS_TILE);
        return PF_FORWARD_PAIRED;
    }
    const bool excludes = PF_GENERAL && bias_add(&f->bias, &c->bias, &c->sm->bias, a, f->s,
                                                 &c->sm->bias_ring, &c->bias_pos);
    return excludes || !forward_keeps_all(c, f, walk);
}

/* Scores that are not kept become -inf, their tangents 0. A group that has the tangents alone sees
 * neither bias nor window: it is told which these are. All this is one branch, since code that is
 * jumped over takes time to be fetched. */
PF_DEVICE void forward_exclude(forward_context *c, forward_state *f, const key_walk *walk) {
    if (!PF_GENERAL || bias_is_staged(&c->bias, c->a)) {
        if (PF_GENERAL)
            bias_exclude(&f->bias, &c->bias, &c->sm->bias, c->a, f->s, &c->bias_pos);
        if (PF_RARELY(!forward_keeps_all(c, f, walk)))
            forward_mask_window(f, c->a, &c->w, walk->pair, walk->tile * PF_CROSS_TILE);
        if (PF_GROUP_T && PF_GENERAL)
            bias_clear_tangents(f->s);
    }
    if (PF_FORWARD_PAIRED)
        PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) f->excluded |=
            f->s[0].x[e] == -PF_INFINITY ? 1u << e % 32 : 0;
}

/* Are outputs to be scaled at all? Where the maximum is lazy they seldom are. */
PF_DEVICE bool forward_any_scales(const float *scale) {
    bool any = false;
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) any = any || scale[s] != 1.f;
    return pf_any_lane(any);
}

/* The largest scores of slots so far. Each is found along two chains, since one alone would take
 * the time of all its steps. */
PF_DEVICE void forward_find_max_of_two(const forward_state *f, float max[PF_SLOTS]) {
    float odd[PF_SLOTS];
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) max[s] = odd[s] = f->max[s];
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
        float *chain = e % 2 ? odd : max;
        chain[pf_score_slot(e)] = pf_max(chain[pf_score_slot(e)], f->s[0].x[e]);
    }
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) max[s] = pf_slot_max(pf_max(max[s], odd[s]));
}

/* The same three at a time, for slots of which all are negative, or else one is not. */
PF_DEVICE void forward_find_max_of_three(const forward_state *f, float max[PF_SLOTS],
                                         bool negative) {
    float first[PF_SLOTS];
    bool second[PF_SLOTS] = {};
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) max[s] = f->max[s];
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
        const int s = pf_score_slot(e);
        const float x = f->s[0].x[e];
        if (second[s])
            max[s] =
                negative ? pf_max3_negative(max[s], first[s], x) : pf_max3(max[s], first[s], x);
        first[s] = x;
        second[s] = !second[s];
    }
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) max[s] = pf_slot_max(max[s]);
}

PF_DEVICE void forward_find_max(const forward_state *f, float max[PF_SLOTS]) {
    if (!PF_MAX3) {
        forward_find_max_of_two(f, max);
        return;
    }
    forward_find_max_of_three(f, max, false);
    bool negative = false;
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) negative = negative || max[s] < 0.f;
    if (PF_RARELY(pf_any_lane(negative))) {
        float other[PF_SLOTS];
        forward_find_max_of_three(f, other, true);
        PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) max[s] = max[s] < 0.f ? other[s] : max[s];
    }
}

/* The tile's scores, and with them the largest of slots so far. Where all of the bias is held, the
 * maximum is found before a branch on what it excludes, and perhaps again: the tangents, of which
 * it needs nothing, are then added meanwhile. */
PF_DEVICE void forward_score_tile(forward_context *c, forward_state *f, const key_walk *walk,
                                  float max[PF_SLOTS]) {
    const bool held = PF_GENERAL && bias_is_held(&c->bias), late = PF_GROUP_T && held;
    f->excluded = 0;
    const bool excludes = forward_scores(c, f, walk);
    if (!late && PF_RARELY(excludes))
        forward_exclude(c, f, walk);
    if (PF_GENERAL && !held && bias_is_staged(&c->bias, c->a))
        forward_release_bias(c);
    forward_find_max(f, max);
    if (late && PF_RARELY(excludes)) {
        forward_exclude(c, f, walk);
        forward_find_max(f, max);
    }
}

/* Scores to weights, unnormalised: P = exp(s - max), H = P * t, both shifted by PF_WEIGHT_SHIFT.
 * The general kernel subtracts before it scales: a score near the lowest finite number times
 * log2(e) would overflow. */
PF_DEVICE void forward_softmax(forward_context *c, forward_state *f, const key_walk *walk) {
    const pf_attention_kargs *a = c->a;
    const bool natural = bias_is_natural(&c->bias);
    const float unit = natural || c->scaled ? PF_LOG2E : a->alpha_log2e;
    float max[PF_SLOTS], offset[PF_SLOTS], sum[PF_SLOTS], mean[PF_SLOTS];
    forward_score_tile(c, f, walk, max);
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) {
        if (PF_LAZY_MAX && !((max[s] - f->max[s]) * unit > f->slack[s]))
            max[s] = f->max[s];
        offset[s] = max[s] == -PF_INFINITY ? 0.f : max[s]; /* no key kept yet */
        f->rescale[s] = pf_exp2((f->max[s] - offset[s]) * unit);
        f->max[s] = max[s];
        sum[s] = mean[s] = 0.f;
        if (!natural)
            offset[s] = offset[s] * unit - PF_WEIGHT_SHIFT;
    }
    /* All exponents first: compilers then mix them with the exponentials. */
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
        const int s = pf_score_slot(e);
        const float x = f->s[0].x[e];
        f->s[0].x[e] =
            natural ? pf_fma(x - offset[s], unit, PF_WEIGHT_SHIFT) : pf_fma(x, unit, -offset[s]);
    }
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
        const int s = pf_score_slot(e);
        const float p = pf_exp2(f->s[0].x[e]);
        f->s[0].x[e] = p;
        sum[s] += p;
        if (PF_GROUP_T) {
            const float h = p * f->s[PF_GROUP_T].x[e] * forward_alpha(c);
            f->s[PF_GROUP_T].x[e] = h;
            mean[s] += h;
        }
    }
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) {
        f->sum[s] = pf_fma(f->sum[s], f->rescale[s], sum[s]);
        f->mean[s] = pf_fma(f->mean[s], f->rescale[s], mean[s]);
    }
    f->rescales = forward_any_scales(f->rescale);
}

PF_DEVICE void forward_park(forward_context *c, const forward_state *f) {
#if PF_PARKS_WEIGHTS
    pf_weights_park(&c->sm->h, &f->p[PF_T]);
#else
    (void)c, (void)f;
#endif
}

PF_DEVICE void forward_pack(forward_context *c, forward_state *f) {
    pf_weights_pack(&f->p[0], &f->s[0]);
    if (PF_GROUP_T)
        pf_weights_pack(&f->p[PF_GROUP_T], &f->s[PF_GROUP_T]);
    forward_park(c, f);
}

PF_DEVICE void forward_scale_out(forward_state *f) {
    PF_UNROLL for (int e = 0; e < PF_OUT_COUNT; ++e) {
        f->o[0].x[e] *= f->rescale[pf_out_slot(e)];
        if (PF_GROUP_T)
            f->o[PF_GROUP_T].x[e] *= f->rescale[pf_out_slot(e)];
    }
}

/* How many powers of two the maximum of slot s may grow by while weights stay relative to what it
 * was, so that sums need no scaling. The weight of a new maximum, which would be exact as 1, is
 * then rounded: so it must be small beside the sum, and far from overflow. */
PF_DEVICE float forward_slack(const forward_state *f, int s) {
    const float most = 8.f, small = 4.f; /* a sixteenth of the sum */
    const float slack = pf_log2(pf_slot_sum(f->sum[s])) - small;
    return slack > most ? most : pf_max(slack, 0.f);
}

/* The output may still be under way. Its products are waited for behind the branch because a
 * compiler may move a wait before the softmax, which knows nothing of it, but not out of a branch.
 */
PF_DEVICE void forward_rescale(forward_state *f) {
    if (!f->rescales)
        return;
    pf_mma_wait(0);
    forward_scale_out(f);
    if (PF_LAZY_MAX)
        PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) f->slack[s] = forward_slack(f, s);
}

/* Write what rows have one of: to t, or to a channel of the part's. */
PF_DEVICE void forward_store_stats(const pf_attention_kargs *a, const forward_work *w,
                                   const pf_karg_tensor *t, const pf_karg_tensor *part, int channel,
                                   const float *values) {
    if (!pf_slot_is_first())
        return;
    const int i1 = forward_end(a, w);
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) {
        const int i = w->i0 + pf_slot_owned(s);
        if (i >= i1)
            continue;
        if (w->part >= 0) {
            if (part->address)
                ((PF_GLOBAL float *)
                     part->address)[pf_row_offset(part, w->part, 0, i - w->i0) + channel] =
                    values[s];
        } else if (t->address && w->channel0 == 0)
            ((PF_GLOBAL float *)t->address)[pf_row_offset(t, w->b, w->h, i) + channel] = values[s];
    }
}

/* L, or what stands for it in a part. */
PF_DEVICE void forward_store_lse(const forward_context *c, const forward_state *f,
                                 const float *sum) {
    const pf_attention_kargs *a = c->a;
    const float scale = forward_alpha(c);
    const bool whole = c->w.part < 0;
    float value[PF_SLOTS];
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) {
        const float log = (pf_log2(sum[s]) - PF_WEIGHT_SHIFT) * PF_LN2;
        const float lse = sum[s] == 0.f ? -PF_INFINITY : pf_fma(f->max[s], scale, log);
        value[s] = whole ? lse : f->max[s] * scale;
    }
    forward_store_stats(a, &c->w, &a->lse, &a->split.lse, whole ? 0 : PF_PART_MAX, value);
    if (!whole) {
        PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) value[s] = sum[s] * PF_WEIGHT_UNSHIFT;
        forward_store_stats(a, &c->w, &a->lse, &a->split.lse, PF_PART_SUM, value);
    }
}

/* Normalise, and write L and tL. A row without keys has sum 0. */
PF_DEVICE void forward_normalize(const forward_context *c, forward_state *f) {
    const pf_attention_kargs *a = c->a;
    float sum[PF_SLOTS];
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) sum[s] = pf_slot_sum(f->sum[s]);
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) {
        const float inverse = sum[s] == 0.f ? 0.f : pf_reciprocal(sum[s]);
        f->rescale[s] = inverse;
        if (PF_GROUP_T)
            f->mean[s] = pf_slot_sum(f->mean[s]) * inverse;
    }
    forward_store_lse(c, f, sum);
    if (PF_GROUP_T)
        forward_store_stats(a, &c->w, &a->tlse, &a->split.tlse, 0, f->mean);
    forward_scale_out(f);
}

/* Stage O, or leave it where that cannot be. */
PF_DEVICE bool forward_stage_out(forward_context *c, const pf_out *out) {
    const forward_work *w = &c->w;
    const pf_rows rows = {w->b, w->h, w->i0, forward_end(c->a, w), 0, w->channel0, 0};
    if (!PF_STAGES_OUT || !c->a->o_staged)
        return false;
    c->out_rows = rows;
    c->out_staged = pf_out_stage(out, &c->source, &rows);
    return c->out_staged;
}

/* The vote tells a compiler that lanes agree. */
PF_DEVICE void forward_send_out(forward_context *c) {
    if (PF_STAGES_OUT && pf_any_lane(c->out_staged))
        pf_out_send(&c->source, &c->out_rows);
    c->out_staged = false;
}

PF_DEVICE void forward_store_out(forward_context *c, const pf_karg_tensor *t, int type,
                                 const pf_karg_tensor *part, const pf_out *out) {
    const forward_work *w = &c->w;
    const int i1 = forward_end(c->a, w);
    if (w->part >= 0) {
        if (part->address)
            pf_out_store_part(out, part, w->part, i1 - w->i0, w->channel0);
    } else if (t->address && !(t == &c->a->o && forward_stage_out(c, out)))
        pf_out_store(out, t, type, w->b, w->h, w->i0, i1, w->channel0, c->a->dim_v);
}

#endif
