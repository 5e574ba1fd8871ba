/* SPDX-License-Identifier: Apache-2.0 */
/* Backward where the product for dQ comes a step late: see LAGGED DQ in port.h. By then the dS of
 * all groups is there, so that none waits for another, and the softmax of one runs beside the
 * products of another. */
#ifndef PF_KERNELS_BACKWARD_LAG_H
#define PF_KERNELS_BACKWARD_LAG_H

#include "backward_step.h"

/* Targets whose groups meet in each step. */
#ifndef PF_BACKWARD_LAGS
#define PF_BACKWARD_LAGS 0
#define PF_BACKWARD_TURNS 0
#endif
#if !PF_BACKWARD_LAGS
typedef struct pf_lag {
} pf_lag;
#define pf_lag_init() ((void)0)
#define pf_lag_begin(lag) ((void)(lag))
#define pf_lag_give(lag, ahead, exchanges, w)                                                      \
    ((void)(lag), (void)(ahead), (void)(exchanges), (void)(w))
#define pf_lag_publish(lag, ahead) ((void)(lag), (void)(ahead))
#define pf_lag_take(lag, exchanges) ((void)(lag), (exchanges)[0])
#define pf_lag_done(lag) ((void)(lag))
#endif

/* A turn lasts from the products for dK of one step to those for the scores of the next. */
PF_DEVICE void backward_turn_wait() {
    if (PF_BACKWARD_TURNS)
        pf_turn_wait();
}

PF_DEVICE void backward_turn_pass() {
    if (PF_BACKWARD_TURNS)
        pf_turn_pass();
}

/* From the tiles of a step to its dS, which is put where all groups take it, `ahead` of the next to
 * take. The weights are packed once dS needs no registers any more. */
PF_DEVICE void backward_lagged_ds(backward_context *c, pf_lag *lag, backward_state *g,
                                  const query_step *step, int ahead) {
    pf_ring_take(&c->sm->q_ring, &c->q_pos, PF_STAGES);
    backward_issue_scores(c, g);
    pf_ring_take(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
    backward_issue_dp(c, g);
    backward_turn_pass();
    pf_mma_wait(1);
    const bool whole = backward_weights(c, g, step);
    pf_mma_wait(0);
    backward_ds(c, g, whole);
    backward_pack_weights(g);
    pf_lag_give(lag, ahead, c->ds, g->ds);
    if (PF_BACKWARD_TURNS)
        pf_lag_publish(lag, ahead);
}

/* A consumer's steps of one pair. dQ is added to memory while the products behind it are under way.
 * The others, who need dS in their next step, are told of it once its products are issued, but
 * where groups take turns before: it would make these longer. */
PF_DEVICE void backward_lagged_steps(backward_context *c, pf_lag *lag, query_walk *walk,
                                     backward_fills *fills, backward_state *g, pf_out *dk,
                                     pf_out *dv) {
    pf_cross_out dq;
    query_step step;
    if (query_walk_done(walk, c->a, &c->w))
        return;
    backward_turn_wait();
    backward_lagged_ds(c, lag, g, &walk->at, 0);
    backward_turn_wait();
    backward_issue_dv(c, g, dv);
    backward_issue_dk(c, g, dk);
    if (!PF_BACKWARD_TURNS)
        pf_lag_publish(lag, 0);
    pf_mma_wait(0);
    for (;;) {
        backward_release_dout(c, fills);
        backward_release_q(c, fills);
        step = walk->at;
        query_walk_next(walk, c->a, &c->w);
        if (query_walk_done(walk, c->a, &c->w))
            break;
        backward_lagged_ds(c, lag, g, &walk->at, 1);
        backward_turn_wait();
        backward_issue_dq(c, pf_lag_take(lag, c->ds), c->w.channel0, &dq);
        backward_issue_dv(c, g, dv);
        backward_issue_dk(c, g, dk);
        if (!PF_BACKWARD_TURNS)
            pf_lag_publish(lag, 1);
        pf_mma_wait(2);
        pf_lag_done(lag);
        backward_add_dq(c, &dq, &step, c->w.channel0);
        pf_mma_wait(0);
    }
    backward_turn_pass();
    backward_issue_dq(c, pf_lag_take(lag, c->ds), c->w.channel0, &dq);
    pf_mma_wait(0);
    pf_lag_done(lag);
    backward_add_dq(c, &dq, &step, c->w.channel0);
}

#endif
