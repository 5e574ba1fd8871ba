/* SPDX-License-Identifier: Apache-2.0 */
/* Backward with two warpgroups on the same 64 keys and two workgroups on neighbouring ones (PAIRED
 * BACKWARD in port.h).
 *
 * The exchange holds this workgroup's dS, then the other's. P goes through the same memory before
 * there is dS: threads of the same number in both warpgroups hold the same elements of a fragment
 * of scores, so it is handed over as it is held, four floats at a time. What a warp hands over lies
 * in the rows of dS that the warp of its number in the second group writes, of both workgroups; so
 * these warps need not wait for each other before they write dS. In each step
 *     scores_free    tells the first group that no product reads dS any more, and that this
 *                    workgroup's has reached the other; then it gives P
 *     ds_room        tells the other workgroup's second group that P has been read, so that its dS
 *                    may come
 *     ds_full        tells both groups that it is here. */
#ifndef PF_PORT_SM90A_BACKWARD_PAIR_H
#define PF_PORT_SM90A_BACKWARD_PAIR_H

enum {
    PF_WARP_DS = 16 * PF_ROW_BYTES,              /* bytes of dS that a warp writes */
    PF_DS_BYTES = PF_OWNED_TILE * PF_ROW_BYTES,  /* of a workgroup's dS */
    PF_WARP_DS_VECTORS = PF_WARP_DS / (32 * 16), /* of each lane, 16 bytes each */
};
static_assert(PF_CROSS_TILE == 64, "P has twice the bytes of dS, dS one slab");

/* A thread's place in the phases of the barriers: the parity of its step. */
typedef struct pf_pair {
    pf_u32 phase;
} pf_pair;

PF_DEVICE void pf_pair_begin(pf_pair *pair) {
    pair->phase = 0;
}

PF_DEVICE void pf_pair_init() {
    pf_port_shared *port = pf_port();
    if (threadIdx.x != 0)
        return;
    pf_barrier_init(&port->scores_free, 3 * 4); /* warps of both groups, and of the other second */
    pf_barrier_init(&port->ds_room, 4);
    pf_barrier_init(&port->ds_full, 1);
    pf_barrier_init_fence();
}

PF_DEVICE bool pf_pair_is_first() {
    return pf_group() == 0;
}

PF_DEVICE int pf_pair_dq_channel() {
    return (2 * pf_cluster_place() + pf_group()) * PF_DQ_WIDTH;
}

/* The lane's first vector of what its warp hands over; those of the other half lie PF_DS_BYTES on.
 */
PF_DEVICE float4 *pf_pair_scores(pf_exchange *exchange) {
    return (float4 *)(exchange->bytes[0][0] + pf_consumer_warp() * PF_WARP_DS) + pf_lane();
}

PF_DEVICE void pf_pair_give_scores(const pf_pair *pair, pf_exchange *exchange, const pf_scores *s) {
    float4 *to = pf_pair_scores(exchange);
    pf_barrier_wait(&pf_port()->scores_free, pair->phase ^ 1);
    PF_UNROLL for (int i = 0; i < PF_SCORE_COUNT / 4; ++i)
        to[i / PF_WARP_DS_VECTORS * (PF_DS_BYTES / 16) + i % PF_WARP_DS_VECTORS * 32] =
            make_float4(s->x[4 * i], s->x[4 * i + 1], s->x[4 * i + 2], s->x[4 * i + 3]);
    pf_named_arrive(PF_BARRIER_PAIR_SCORES, 256);
}

PF_DEVICE void pf_pair_take_scores(const pf_pair *, pf_exchange *exchange, pf_scores *s) {
    const float4 *from = pf_pair_scores(exchange);
    pf_named_sync(PF_BARRIER_PAIR_SCORES, 256);
    PF_UNROLL for (int i = 0; i < PF_SCORE_COUNT / 4; ++i) {
        const float4 x =
            from[i / PF_WARP_DS_VECTORS * (PF_DS_BYTES / 16) + i % PF_WARP_DS_VECTORS * 32];
        s->x[4 * i] = x.x, s->x[4 * i + 1] = x.y;
        s->x[4 * i + 2] = x.z, s->x[4 * i + 3] = x.w;
    }
    pf_async_fence();
    __syncwarp();
    if (pf_elect())
        pf_barrier_arrive_at_peer(&pf_port()->ds_room);
}

/* A warp's rows of dS: here, and as a copy to the other workgroup. */
PF_DEVICE void pf_pair_publish(const pf_pair *pair, pf_exchange *exchange, const pf_weights *w) {
    pf_port_shared *port = pf_port();
    const int place = pf_consumer_warp() * PF_WARP_DS;
    pf_exchange_store(&exchange[0], w);
    pf_async_fence();
    pf_named_arrive(PF_BARRIER_EXCHANGE, 256);
    __syncwarp();
    if (pf_elect()) {
        if (place == 0) {
            pf_barrier_expect(&port->ds_full, PF_DS_BYTES);
            pf_barrier_arrive(&port->ds_full);
        }
        pf_barrier_wait(&port->ds_room, pair->phase);
        pf_peer_copy(exchange->bytes[1][0] + place, exchange->bytes[0][0] + place, PF_WARP_DS,
                     &port->ds_full);
    }
    __syncwarp();
}

/* The second group has put this workgroup's dS there itself: it waits for its own warps alone. */
PF_DEVICE void pf_pair_meet() {
    if (pf_pair_is_first())
        pf_named_sync(PF_BARRIER_EXCHANGE, 256);
    else
        pf_named_sync(PF_BARRIER_PAIR_SECOND, 128);
}

/* The second group also tells the other workgroup that its dS has come. */
PF_DEVICE void pf_pair_meet_peer(pf_pair *pair) {
    pf_port_shared *port = pf_port();
    pf_barrier_wait(&port->ds_full, pair->phase);
    pair->phase ^= 1;
    if (!pf_pair_is_first() && pf_elect())
        pf_barrier_arrive_at_peer(&port->scores_free);
    __syncwarp();
}

PF_DEVICE void pf_pair_done() {
    __syncwarp();
    pf_barrier_arrive_one(&pf_port()->scores_free);
}

/* pf_ring_release of a stage that threads have read from since the last fence: what is loaded into
 * it next comes after that. */
PF_DEVICE void pf_pair_release(pf_ring *ring, pf_ring_pos *pos, int stages) {
    pf_async_fence();
    pf_ring_release(ring, pos, stages);
}

/* Over the keys of this workgroup. */
PF_DEVICE void pf_cross_mma(pf_cross_out *d, const pf_exchange *exchange,
                            const pf_crossed_tile *owned, int channel0, bool fresh) {
    pf_cross_mma_tiles(d, exchange->bytes[0], owned->own.bytes[channel0 / PF_SLAB], 0, fresh);
}

/* Over those of the other. */
PF_DEVICE void pf_cross_mma_peer(pf_cross_out *d, const pf_exchange *exchange,
                                 const pf_crossed_tile *owned, int channel0) {
    pf_cross_mma_tiles(d, exchange->bytes[1],
                       owned->peer[channel0 / PF_SLAB % (PF_PEER_CHANNELS / PF_SLAB)], 0, false);
}

#endif
