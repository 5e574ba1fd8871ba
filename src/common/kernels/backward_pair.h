/* SPDX-License-Identifier: Apache-2.0 */
/* Backward where two compute groups share the products over the same owned keys, each product
 * computed once: see PAIRED BACKWARD in port.h. The first computes S, P and dV, the second dP, dS
 * and dK; each computes half of the channels of dQ, in parts of PF_PAIR_DQ_DIM. P goes from the
 * first to the second, dS to both. */
#ifndef PF_KERNELS_BACKWARD_PAIR_H
#define PF_KERNELS_BACKWARD_PAIR_H

#include "backward_step.h"

/* Targets whose groups own keys of their own. */
#ifndef PF_BACKWARD_PAIRED
#define PF_BACKWARD_PAIRED 0
#define PF_PAIR_DQ_DIM PF_HEAD_DIM
#define pf_pair_is_first() true
#define pf_pair_give_scores(s) ((void)(s))
#define pf_pair_take_scores(s) ((void)(s))
#define pf_pair_publish(exchange, w) ((void)(exchange), (void)(w))
#define pf_pair_meet() ((void)0)
#endif

/* First channel of a part of dQ: each group has two. */
PF_DEVICE int backward_pair_channel(int part) {
    return (pf_pair_is_first() ? part : part + 2) * PF_PAIR_DQ_DIM;
}

/* The first group's steps of one pair. dO has one buffer, so dV comes first and gives it back; the
 * scores of the next tile are under way while dS is waited for, its softmax while the last product
 * for dQ is. */
PF_DEVICE void backward_first_steps(backward_context *c, query_walk *walk, backward_state *g,
                                    pf_out *dv) {
    pf_cross_out dq;
    query_step step;
    if (query_walk_done(walk, c->a, &c->w))
        return;
    pf_ring_take(&c->sm->q_ring, &c->q_pos, PF_STAGES);
    backward_issue_scores(c, g);
    pf_mma_wait(0);
    backward_weights(c, g, &walk->at);
    pf_pair_give_scores(&g->s[0]);
    pf_ring_release(&c->sm->q_ring, &c->q_pos, PF_STAGES);
    for (;;) {
        step = walk->at;
        query_walk_next(walk, &c->w);
        pf_ring_take(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
        backward_pack_weights(g);
        backward_issue_dv(c, g, dv);
        if (query_walk_done(walk, c->a, &c->w))
            break;
        pf_ring_take(&c->sm->q_ring, &c->q_pos, PF_STAGES);
        backward_issue_scores(c, g);
        pf_pair_meet();
        pf_mma_wait(1);
        pf_ring_release(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
        backward_issue_dq(c, c->ds[0], backward_pair_channel(0), &dq);
        pf_mma_wait(0);
        backward_add_dq(c, &dq, &step, backward_pair_channel(0));
        backward_issue_dq(c, c->ds[0], backward_pair_channel(1), &dq);
        backward_weights(c, g, &walk->at);
        pf_mma_wait(0);
        pf_pair_give_scores(&g->s[0]);
        pf_ring_release(&c->sm->q_ring, &c->q_pos, PF_STAGES);
        backward_add_dq(c, &dq, &step, backward_pair_channel(1));
    }
    pf_pair_meet();
    backward_issue_dq(c, c->ds[0], backward_pair_channel(0), &dq);
    pf_mma_wait(1);
    pf_ring_release(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
    pf_mma_wait(0);
    backward_add_dq(c, &dq, &step, backward_pair_channel(0));
    backward_issue_dq(c, c->ds[0], backward_pair_channel(1), &dq);
    pf_mma_wait(0);
    backward_add_dq(c, &dq, &step, backward_pair_channel(1));
}

/* The second group's steps of one pair. dP of the next tile is under way while dQ of one is added
 * to memory. */
PF_DEVICE void backward_second_steps(backward_context *c, query_walk *walk, backward_state *g,
                                     pf_out *dk) {
    pf_cross_out dq;
    query_step step;
    if (query_walk_done(walk, c->a, &c->w))
        return;
    pf_ring_take(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
    backward_issue_dp(c, g);
    pf_mma_wait(0);
    for (;;) {
        step = walk->at;
        query_walk_next(walk, &c->w);
        pf_pair_take_scores(&g->s[0]);
        backward_ds(c, g, backward_window_keeps_all(c, &step));
        pf_pair_publish(c->ds[0], g->ds);
        pf_ring_release(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
        pf_ring_take(&c->sm->q_ring, &c->q_pos, PF_STAGES);
        backward_issue_dk(c, g, dk);
        pf_pair_meet();
        backward_issue_dq(c, c->ds[0], backward_pair_channel(0), &dq);
        pf_mma_wait(1);
        pf_ring_release(&c->sm->q_ring, &c->q_pos, PF_STAGES);
        pf_mma_wait(0);
        backward_add_dq(c, &dq, &step, backward_pair_channel(0));
        if (query_walk_done(walk, c->a, &c->w))
            break;
        backward_issue_dq(c, c->ds[0], backward_pair_channel(1), &dq);
        pf_ring_take(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
        backward_issue_dp(c, g);
        pf_mma_wait(1);
        backward_add_dq(c, &dq, &step, backward_pair_channel(1));
        pf_mma_wait(0);
    }
    backward_issue_dq(c, c->ds[0], backward_pair_channel(1), &dq);
    pf_mma_wait(0);
    backward_add_dq(c, &dq, &step, backward_pair_channel(1));
}

PF_DEVICE void backward_release_kv(backward_context *c) {
    pf_ring_release(&c->sm->k_ring, &c->k_pos, 1);
    pf_ring_release(&c->sm->v_ring, &c->v_pos, 1);
}

PF_DEVICE void backward_first_items(backward_context *c) {
    const pf_attention_kargs *a = c->a;
    for (int round = 0, at; (at = backward_work_index(a, round)) < a->work_count; ++round) {
        pf_out dv;
        c->w = backward_work_at(a, at);
        pf_out_zero(&dv);
        for (int pair = 0; pair < a->pairs; ++pair) {
            backward_state g;
            query_walk walk = query_walk_begin(a, &c->w, pair);
            backward_take_kv(c, &g, pair);
            backward_first_steps(c, &walk, &g, &dv);
            backward_release_kv(c);
        }
        backward_store_dv(c, &dv);
    }
}

PF_DEVICE void backward_second_items(backward_context *c) {
    const pf_attention_kargs *a = c->a;
    for (int round = 0, at; (at = backward_work_index(a, round)) < a->work_count; ++round) {
        c->w = backward_work_at(a, at);
        for (int pair = 0; pair < a->pairs; ++pair) {
            backward_state g;
            pf_out dk;
            query_walk walk = query_walk_begin(a, &c->w, pair);
            pf_out_zero(&dk);
            backward_take_kv(c, &g, pair);
            backward_second_steps(c, &walk, &g, &dk);
            backward_release_kv(c);
            backward_store_dk(c, pair, &dk);
        }
    }
}

/* A consumer's items of work. */
PF_DEVICE void backward_paired_items(backward_context *c) {
    if (pf_pair_is_first())
        backward_first_items(c);
    else
        backward_second_items(c);
}

#endif
