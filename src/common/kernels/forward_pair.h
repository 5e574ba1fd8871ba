/* SPDX-License-Identifier: Apache-2.0 */
/* Forward with its JVP where a group has no room for two outputs: see PAIRED FORWARD in port.h.
 * Both groups own the same queries. The primal's is plain forward, and hands its weights over; the
 * tangent's computes dS, and sum P (dS v + tv) from them. So each product is computed once. */
#include "forward_tile.h"

/* ---- loads ---- */

PF_DEVICE void forward_pair_fill_q(forward_context *c, int pair) {
    const pf_rows rows = forward_query_rows(c);
    forward_shared *sm = c->sm;
    pf_ring_acquire(&sm->q_ring, &c->q_pos, 1);
    pf_owned_load(&sm->q[0][0], &c->source, PF_OPERAND_Q + pair, &rows, &sm->q_ring, &c->q_pos);
    pf_owned_load(&sm->q[0][PF_T], &c->source, PF_OPERAND_TQ + pair, &rows, &sm->q_ring, &c->q_pos);
    pf_ring_publish(&sm->q_ring, &c->q_pos, 1);
}

/* A tile of K or, in a ring of its own, of its tangent. */
PF_DEVICE void forward_pair_fill_k(forward_context *c, const key_walk *walk, int tangent) {
    pf_rows rows = forward_key_rows(c, walk);
    pf_ring *ring = tangent ? &c->sm->tk_ring : &c->sm->k_ring;
    pf_ring_pos *pos = tangent ? &c->tk_pos : &c->k_pos;
    pf_rows_settle(&rows, &c->source, PF_OPERAND_K + walk->pair, PF_CROSS_TILE);
    pf_ring_acquire(ring, pos, PF_STAGES);
    pf_cross_load(&c->sm->k[pos->fill][tangent], &c->source,
                  (tangent ? PF_OPERAND_TK : PF_OPERAND_K) + walk->pair, &rows, ring, pos);
    pf_ring_publish(ring, pos, PF_STAGES);
}

PF_DEVICE void forward_pair_fill_v(forward_context *c, const key_walk *walk, int tangent) {
    pf_rows rows = forward_key_rows(c, walk);
    pf_ring *ring = tangent ? &c->sm->tv_ring : &c->sm->v_ring;
    pf_ring_pos *pos = tangent ? &c->tv_pos : &c->v_pos;
    pf_rows_settle(&rows, &c->source, PF_OPERAND_V, PF_CROSS_TILE);
    pf_ring_acquire(ring, pos, PF_V_STAGES);
    pf_value_load(&c->sm->v[pos->fill][tangent], &c->source, tangent ? PF_OPERAND_TV : PF_OPERAND_V,
                  &rows, ring, pos);
    pf_ring_publish(ring, pos, PF_V_STAGES);
}

/* What one producer loads for an item of work. */
PF_DEVICE void forward_pair_fill(forward_context *c, int filler) {
    for (key_walk walk = key_walk_begin(c->a, &c->w); !key_walk_done(&walk, c->a);
         key_walk_next(&walk, c->a, &c->w)) {
        if (filler == 0 && walk.enters)
            forward_pair_fill_q(c, walk.pair);
        if (filler == 0) {
            forward_pair_fill_k(c, &walk, 0);
            forward_pair_fill_k(c, &walk, PF_T);
        }
        if (filler == 2 % PF_FILLERS)
            forward_fill_bias(c, &walk);
        if (filler == 1 % PF_FILLERS) {
            forward_pair_fill_v(c, &walk, 0);
            forward_pair_fill_v(c, &walk, PF_T);
        }
    }
}

/* ---- the primal's group ---- */

/* O goes to the other group in pieces of the size of the weights. */
PF_DEVICE void forward_pair_give_out(const forward_context *c, const forward_state *f) {
    PF_UNROLL for (int e = 0; e < PF_OUT_COUNT; e += PF_SCORE_COUNT)
        pf_pair_give(&c->sm->pair, &f->o[0].x[e], f->rescale, 0);
}

PF_DEVICE void forward_pair_primal(forward_context *c) {
    forward_state f;
    forward_shared *sm = c->sm;
    const pf_rows rows = forward_query_rows(c);
    forward_begin(&f);
    for (key_walk walk = key_walk_begin(c->a, &c->w); !key_walk_done(&walk, c->a);
         key_walk_next(&walk, c->a, &c->w)) {
        if (walk.enters) {
            f.whole = forward_whole_tiles(c->a, &c->w, walk.pair);
            pf_ring_take(&sm->q_ring, &c->q_pos, 1);
            pf_owned_take(&f.q[0], &sm->q[0][0], &c->source, PF_OPERAND_Q + walk.pair, &rows);
        }
        pf_ring_take(&sm->k_ring, &c->k_pos, PF_STAGES);
        pf_scores_mma(&f.s[0], &f.q[0], &sm->k[c->k_pos.take][0], true);
        pf_mma_commit();
        forward_take_bias(c, &f);
        pf_mma_wait(0);
        pf_ring_release(&sm->k_ring, &c->k_pos, PF_STAGES);
        if (key_walk_leaves(&walk))
            pf_ring_release(&sm->q_ring, &c->q_pos, 1);
        forward_softmax(c, &f, &walk);
        pf_pair_give(&sm->pair, f.s[0].x, f.rescale, f.excluded);
        forward_pack(c, &f);
        forward_rescale(&f);
        pf_ring_take(&sm->v_ring, &c->v_pos, PF_V_STAGES);
        pf_out_mma_value(&f.o[0], &f.p[0], &sm->v[c->v_pos.take][0]);
        pf_mma_commit();
        pf_mma_wait(0);
        pf_ring_release(&sm->v_ring, &c->v_pos, PF_V_STAGES);
    }
    forward_normalize(c, &f);
    forward_pair_give_out(c, &f);
    forward_store_out(c, &c->a->o, c->a->o_type, &c->a->split.o, &f.o[0]);
}

/* ---- the tangent's group ---- */

typedef struct forward_tangent {
    pf_owned q[1 + PF_TANGENT];
    pf_scores t;           /* dS, then H = P * dS */
    pf_scores given;       /* the weights P, or a piece of O */
    pf_bias_reader bias;   /* of these tangents */
    pf_weights p, h;       /* both, rounded */
    pf_out o;              /* sum H v + P tv */
    float mean[PF_SLOTS];  /* of H over this thread's keys */
    float scale[PF_SLOTS]; /* what the last tile's maximum does to sums so far; at last 1 / sum P */
} forward_tangent;

/* t = tq.k + q.tk. K is given back as soon as it is done with. */
PF_DEVICE void forward_tangent_scores(forward_context *c, forward_tangent *g,
                                      const key_walk *walk) {
    forward_shared *sm = c->sm;
    pf_ring_take(&sm->k_ring, &c->k_pos, PF_STAGES);
    pf_scores_mma(&g->t, &g->q[PF_T], &sm->k[c->k_pos.take][0], true);
    pf_mma_commit();
    pf_ring_take(&sm->tk_ring, &c->tk_pos, PF_STAGES);
    pf_scores_mma(&g->t, &g->q[0], &sm->k[c->tk_pos.take][PF_T], false);
    pf_mma_commit();
    if (bias_is_staged(&c->bias, c->a)) {
        bias_take_tangent(&g->bias, &c->bias, c->a, &sm->bias_ring, &c->bias_pos);
        if (bias_is_held(&c->bias))
            forward_release_bias(c);
    }
    pf_mma_wait(1);
    pf_ring_release(&sm->k_ring, &c->k_pos, PF_STAGES);
    pf_mma_wait(0);
    pf_ring_release(&sm->tk_ring, &c->tk_pos, PF_STAGES);
    if (key_walk_leaves(walk))
        pf_ring_release(&sm->q_ring, &c->q_pos, 1);
}

/* alpha t + the tangent of the bias, element by element. */
PF_DEVICE void forward_tangent_add_bias(const forward_context *c, forward_tangent *g,
                                        const key_walk *walk) {
    const pf_attention_kargs *a = c->a;
    const forward_work *w = &c->w;
    const int j0 = walk->tile * PF_CROSS_TILE, i1 = forward_end(a, w);
    PF_ROLLED for (int first = 0; first < PF_SCORE_COUNT; first += PF_SCORE_STEP) {
        PF_UNROLL for (int u = 0; u < PF_SCORE_STEP; ++u) {
            const int e = first + u;
            const int i = w->i0 + pf_slot_owned(pf_score_slot(e)), j = j0 + pf_score_cross(e);
            const bool keep = i < i1 && pf_window_keeps(a, walk->pair, i, j);
            const float tbias = keep ? pf_bias_tangent(a, w->b, w->h, i, j) : 0.f;
            g->t.x[u] = pf_fma(g->t.x[u], a->alpha, tbias);
        }
        pf_scores_turn(&g->t);
    }
}

PF_DEVICE void forward_tangent_bias(forward_context *c, forward_tangent *g, const key_walk *walk) {
    if (bias_is_staged(&c->bias, c->a)) {
        bias_add_tangent(&g->bias, &c->bias, c->a, &g->t, &c->sm->bias_ring, &c->bias_pos);
        if (!bias_is_held(&c->bias))
            forward_release_bias(c);
    } else
        forward_tangent_add_bias(c, g, walk);
}

/* The other group's weights, and with them H. Where a key is not kept its weight is 0, but its
 * tangent may be anything. */
PF_DEVICE void forward_tangent_weights(forward_context *c, forward_tangent *g) {
    const unsigned excluded = pf_pair_take(&c->sm->pair, g->given.x, g->scale);
    if (PF_RARELY(excluded != 0))
        PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) g->t.x[e] =
            excluded >> e & 1 ? 0.f : g->t.x[e];
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) g->mean[s] *= g->scale[s];
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
        const float h = g->given.x[e] * g->t.x[e] * forward_alpha(c);
        g->t.x[e] = h;
        g->mean[pf_score_slot(e)] += h;
    }
    pf_weights_pack(&g->p, &g->given);
    pf_weights_pack(&g->h, &g->t);
    if (forward_any_scales(g->scale))
        PF_UNROLL for (int e = 0; e < PF_OUT_COUNT; ++e) g->o.x[e] *= g->scale[pf_out_slot(e)];
}

PF_DEVICE void forward_tangent_out(forward_context *c, forward_tangent *g) {
    forward_shared *sm = c->sm;
    pf_ring_take(&sm->v_ring, &c->v_pos, PF_V_STAGES);
    pf_out_mma_value(&g->o, &g->h, &sm->v[c->v_pos.take][0]);
    pf_mma_commit();
    pf_ring_take(&sm->tv_ring, &c->tv_pos, PF_V_STAGES);
    pf_out_mma_value(&g->o, &g->p, &sm->v[c->tv_pos.take][PF_T]);
    pf_mma_commit();
    pf_mma_wait(1);
    pf_ring_release(&sm->v_ring, &c->v_pos, PF_V_STAGES);
    pf_mma_wait(0);
    pf_ring_release(&sm->tv_ring, &c->tv_pos, PF_V_STAGES);
}

/* tO = sum / l - mean O, and tL, the mean. */
PF_DEVICE void forward_tangent_finish(forward_context *c, forward_tangent *g) {
    const pf_attention_kargs *a = c->a;
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) g->mean[s] = pf_slot_sum(g->mean[s]);
    PF_UNROLL for (int first = 0; first < PF_OUT_COUNT; first += PF_SCORE_COUNT) {
        pf_pair_take(&c->sm->pair, g->given.x, g->scale);
        PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
            const int s = pf_out_slot(first + e);
            const float sum = g->o.x[first + e] - g->mean[s] * g->given.x[e];
            g->o.x[first + e] = g->scale[s] * sum;
        }
    }
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) g->mean[s] *= g->scale[s];
    forward_store_stats(a, &c->w, &a->tlse, &a->split.tlse, 0, g->mean);
    forward_store_out(c, &a->to, a->to_type, &a->split.to, &g->o);
}

PF_DEVICE void forward_pair_tangent(forward_context *c) {
    forward_tangent g;
    forward_shared *sm = c->sm;
    const pf_rows rows = forward_query_rows(c);
    pf_out_zero(&g.o);
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) g.mean[s] = 0.f;
    for (key_walk walk = key_walk_begin(c->a, &c->w); !key_walk_done(&walk, c->a);
         key_walk_next(&walk, c->a, &c->w)) {
        if (walk.enters) {
            pf_ring_take(&sm->q_ring, &c->q_pos, 1);
            pf_owned_take(&g.q[0], &sm->q[0][0], &c->source, PF_OPERAND_Q + walk.pair, &rows);
            pf_owned_take(&g.q[PF_T], &sm->q[0][PF_T], &c->source, PF_OPERAND_TQ + walk.pair,
                          &rows);
        }
        forward_tangent_scores(c, &g, &walk);
        if (PF_GENERAL)
            forward_tangent_bias(c, &g, &walk);
        forward_tangent_weights(c, &g);
        forward_tangent_out(c, &g);
    }
    forward_tangent_finish(c, &g);
}

/* What a compute group does, with bias and mask of a kind. */
PF_DEVICE void forward_pair_consume(forward_context *c, bias_kind kind) {
    c->bias.kind = kind;
    if (pf_pair_is_first()) {
        for (int round = 0; forward_begin_work(c, round); ++round)
            forward_pair_primal(c);
    } else {
        for (int round = 0; forward_begin_work(c, round); ++round)
            forward_pair_tangent(c);
    }
}

PF_KERNEL(PF_KERNEL_NAME(forward), pf_attention_kargs) {
    PF_SHARED(forward_shared, sm);
    forward_context c = {};
    c.sm = sm;
    c.source = (pf_source)PF_SOURCE;
    c.a = PF_KERNEL_ARGS;
    pf_ring_init(&sm->q_ring, 1);
    pf_ring_init(&sm->k_ring, PF_STAGES);
    pf_ring_init_for(&sm->tk_ring, PF_STAGES, 1);
    pf_ring_init(&sm->v_ring, PF_V_STAGES);
    pf_ring_init_for(&sm->tv_ring, PF_V_STAGES, 1);
    if (PF_BIAS_BYTES > 0)
        pf_ring_init(&sm->bias_ring, bias_stages(c.a));
    pf_block_sync();
    PF_PRODUCER {
        PF_UNROLL for (int filler = 0; filler < PF_FILLERS; ++filler) {
            if (!pf_fills(filler))
                continue;
            for (int round = 0; forward_begin_work(&c, round); ++round)
                forward_pair_fill(&c, filler);
        }
    }
    PF_CONSUMER {
        if (bias_stages(c.a) > 0)
            c.bias = bias_places_of(&sm->bias, c.a);
        if (bias_kind_of(c.a) == BIAS_ONLY)
            forward_pair_consume(&c, BIAS_ONLY);
        else
            forward_pair_consume(&c, BIAS_ANY);
    }
}
