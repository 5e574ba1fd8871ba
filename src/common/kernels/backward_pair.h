/* SPDX-License-Identifier: Apache-2.0 */
/* Backward where two compute groups share the products over the same owned keys, each product
 * computed once, and two workgroups share the sums of dQ: see PAIRED BACKWARD in port.h. In each
 * workgroup the first group computes S, P and dV, the second dP, dS and dK. P goes from the first
 * to the second, dS to both and to both of the other workgroup. So each of the four groups computes
 * a quarter of the channels of dQ over the keys of both workgroups. */
#ifndef PF_KERNELS_BACKWARD_PAIR_H
#define PF_KERNELS_BACKWARD_PAIR_H

#include "backward_step.h"

/* Targets whose groups own keys of their own. */
#ifndef PF_BACKWARD_PAIRED
#define PF_BACKWARD_PAIRED 0
#endif
#if !PF_BACKWARD_PAIRED
typedef struct pf_pair {
} pf_pair;
#define pf_pair_init() ((void)0)
#define pf_pair_begin(pair) ((void)(pair))
#define pf_pair_is_first() true
#define pf_pair_dq_channel() 0
#define pf_pair_give_scores(pair, exchange, s) ((void)(pair), (void)(exchange), (void)(s))
#define pf_pair_take_scores(pair, exchange, s) ((void)(pair), (void)(exchange), (void)(s))
#define pf_pair_publish(pair, exchange, w) ((void)(pair), (void)(exchange), (void)(w))
#define pf_pair_meet() ((void)0)
#define pf_pair_meet_peer(pair) ((void)(pair))
#define pf_cross_mma_peer(d, exchange, tile, channel0) ((void)0)
#define pf_pair_done() ((void)0)
#define pf_pair_release(ring, pos, stages) ((void)(ring), (void)(pos), (void)(stages))
#endif

/* The product for dQ, over this workgroup's keys first. */
PF_DEVICE void backward_issue_pair_dq(backward_context *c, pf_pair *pair, pf_cross_out *dq) {
    pf_cross_mma(dq, c->ds[0], &c->sm->k[0], pf_pair_dq_channel(), true);
    pf_pair_meet_peer(pair);
    pf_cross_mma_peer(dq, c->ds[0], &c->sm->k[0], pf_pair_dq_channel());
    pf_mma_commit();
}

/* P of a tile whose scores are done goes to the second group, and into dV. */
PF_DEVICE void backward_first_weights(backward_context *c, pf_pair *pair, backward_state *g,
                                      pf_out *dv) {
    pf_pair_give_scores(pair, c->ds[0], &g->s[0]);
    pf_ring_take(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
    backward_pack_weights(g);
    backward_issue_dv(c, g, dv);
    pf_pair_release(&c->sm->q_ring, &c->q_pos, PF_STAGES);
}

/* The first group's steps of one pair. The scores of the next tile are under way while dS is waited
 * for, its softmax while the product for dQ is, and dV as soon as there is P, for dO has one
 * buffer. */
PF_DEVICE void backward_first_steps(backward_context *c, pf_pair *pair, query_walk *walk,
                                    backward_state *g, pf_out *dv) {
    pf_cross_out dq;
    query_step step;
    if (query_walk_done(walk, c->a, &c->w))
        return;
    pf_ring_take(&c->sm->q_ring, &c->q_pos, PF_STAGES);
    backward_issue_scores(c, g);
    pf_mma_wait(0);
    backward_weights(c, g, &walk->at);
    for (bool first = true;; first = false) {
        backward_first_weights(c, pair, g, dv);
        if (!first)
            backward_add_dq(c, &dq, &step, pf_pair_dq_channel());
        step = walk->at;
        query_walk_next(walk, c->a, &c->w);
        if (query_walk_done(walk, c->a, &c->w))
            break;
        pf_ring_take(&c->sm->q_ring, &c->q_pos, PF_STAGES);
        backward_issue_scores(c, g);
        pf_mma_wait(1);
        pf_ring_release(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
        pf_pair_meet();
        backward_issue_pair_dq(c, pair, &dq);
        pf_mma_wait(1);
        backward_weights(c, g, &walk->at);
        pf_mma_wait(0);
        pf_pair_done();
    }
    pf_pair_meet();
    backward_issue_pair_dq(c, pair, &dq);
    pf_mma_wait(1);
    pf_ring_release(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
    pf_mma_wait(0);
    pf_pair_done();
    backward_add_dq(c, &dq, &step, pf_pair_dq_channel());
}

/* The second group's steps of one pair. dP of the next tile is under way while dQ of one is added
 * to memory. */
PF_DEVICE void backward_second_steps(backward_context *c, pf_pair *pair, query_walk *walk,
                                     backward_state *g, pf_out *dk) {
    pf_cross_out dq;
    query_step step;
    if (query_walk_done(walk, c->a, &c->w))
        return;
    pf_ring_take(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
    backward_issue_dp(c, g);
    pf_mma_wait(0);
    pf_ring_release(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
    for (;;) {
        step = walk->at;
        query_walk_next(walk, c->a, &c->w);
        pf_ring_take(&c->sm->q_ring, &c->q_pos, PF_STAGES);
        pf_pair_take_scores(pair, c->ds[0], &g->s[0]);
        backward_ds(c, g, backward_window_keeps_all(c, &step));
        pf_pair_publish(pair, c->ds[0], g->ds);
        backward_issue_dk(c, g, dk);
        pf_pair_meet();
        if (query_walk_done(walk, c->a, &c->w))
            break;
        backward_issue_pair_dq(c, pair, &dq);
        pf_mma_wait(1);
        pf_ring_release(&c->sm->q_ring, &c->q_pos, PF_STAGES);
        pf_ring_take(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
        backward_issue_dp(c, g);
        pf_mma_wait(1);
        pf_pair_done();
        backward_add_dq(c, &dq, &step, pf_pair_dq_channel());
        pf_mma_wait(0);
        pf_ring_release(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
    }
    backward_issue_pair_dq(c, pair, &dq);
    pf_mma_wait(1);
    pf_ring_release(&c->sm->q_ring, &c->q_pos, PF_STAGES);
    pf_mma_wait(0);
    pf_pair_done();
    backward_add_dq(c, &dq, &step, pf_pair_dq_channel());
}

PF_DEVICE void backward_release_kv(backward_context *c) {
    pf_ring_release(&c->sm->k_ring, &c->k_pos, 1);
    pf_ring_release(&c->sm->v_ring, &c->v_pos, 1);
}

PF_DEVICE void backward_first_items(backward_context *c, pf_pair *pair) {
    const pf_attention_kargs *a = c->a;
    for (int round = 0; backward_begin_work(c, round); ++round) {
        pf_out dv;
        pf_out_zero(&dv);
        for (int n = 0; n < a->pairs; ++n) {
            backward_state g;
            query_walk walk = query_walk_begin(a, &c->w, n);
            backward_take_kv(c, &g, n);
            backward_first_steps(c, pair, &walk, &g, &dv);
            backward_release_kv(c);
        }
        backward_store_dv(c, &dv);
    }
}

PF_DEVICE void backward_second_items(backward_context *c, pf_pair *pair) {
    const pf_attention_kargs *a = c->a;
    for (int round = 0; backward_begin_work(c, round); ++round) {
        for (int n = 0; n < a->pairs; ++n) {
            backward_state g;
            pf_out dk;
            query_walk walk = query_walk_begin(a, &c->w, n);
            pf_out_zero(&dk);
            backward_take_kv(c, &g, n);
            backward_second_steps(c, pair, &walk, &g, &dk);
            backward_release_kv(c);
            backward_store_dk(c, n, &dk);
        }
    }
}

/* A consumer's items of work. */
PF_DEVICE void backward_paired_items(backward_context *c) {
    pf_pair pair;
    pf_pair_begin(&pair);
    if (pf_pair_is_first())
        backward_first_items(c, &pair);
    else
        backward_second_items(c, &pair);
}

#endif
