/* SPDX-License-Identifier: Apache-2.0 */
/* Backward with two warpgroups on the same 64 keys (PAIRED BACKWARD in port.h). Threads of the same
 * number in both hold the same elements of a fragment of scores, so P goes from one to the other
 * as it is held, four floats at a time. dS lies in the exchange, as for warpgroups with keys of
 * their own. */
#ifndef PF_PORT_SM90A_BACKWARD_PAIR_H
#define PF_PORT_SM90A_BACKWARD_PAIR_H

#define PF_PAIR_DQ_DIM PF_DQ_WIDTH

PF_DEVICE bool pf_pair_is_first() {
    return pf_thread_group() == 0;
}

PF_DEVICE float4 *pf_pair_scores() {
    return (float4 *)pf_port()->pair.bytes + threadIdx.x % 128;
}

PF_DEVICE void pf_pair_give_scores(const pf_scores *s) {
    float4 *to = pf_pair_scores();
    PF_UNROLL for (int i = 0; i < PF_SCORE_COUNT / 4; ++i) to[i * 128] =
        make_float4(s->x[4 * i], s->x[4 * i + 1], s->x[4 * i + 2], s->x[4 * i + 3]);
    pf_named_arrive(PF_BARRIER_PAIR_SCORES, 256);
}

PF_DEVICE void pf_pair_take_scores(pf_scores *s) {
    const float4 *from = pf_pair_scores();
    pf_named_sync(PF_BARRIER_PAIR_SCORES, 256);
    PF_UNROLL for (int i = 0; i < PF_SCORE_COUNT / 4; ++i) {
        const float4 x = from[i * 128];
        s->x[4 * i] = x.x, s->x[4 * i + 1] = x.y;
        s->x[4 * i + 2] = x.z, s->x[4 * i + 3] = x.w;
    }
}

PF_DEVICE void pf_pair_publish(pf_exchange *exchange, const pf_weights *w) {
    PF_UNROLL for (int n = 0; n < 1 + PF_TANGENT; ++n) pf_exchange_store(&exchange[n], &w[n]);
    pf_async_fence();
    pf_named_arrive(PF_BARRIER_EXCHANGE, 256);
}

/* The second group has put dS there itself: it waits for its own warps alone. */
PF_DEVICE void pf_pair_meet() {
    if (pf_pair_is_first())
        pf_named_sync(PF_BARRIER_EXCHANGE, 256);
    else
        pf_named_sync(PF_BARRIER_PAIR_SECOND, 128);
}

#endif
