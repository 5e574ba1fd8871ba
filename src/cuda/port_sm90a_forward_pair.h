/* SPDX-License-Identifier: Apache-2.0 */
/* Forward with two warpgroups on the same 64 queries (PAIRED FORWARD in port.h). Threads of the
 * same number in both hold the same elements of a fragment, so what the first hands to the second
 * goes from thread to thread, four floats at a time, and warps pair up too. */
#ifndef PF_PORT_SM90A_FORWARD_PAIR_H
#define PF_PORT_SM90A_FORWARD_PAIR_H

static_assert(PF_GROUPS == 2, "one pair");
static_assert(PF_SCORE_COUNT <= 32, "a bit for each score");

typedef struct alignas(16) pf_pair {
    float4 x[PF_SCORE_COUNT / 4][128];
    float2 slots[128];
    unsigned bits[128];
} pf_pair;

PF_DEVICE bool pf_pair_is_first() {
    return pf_group() == 0;
}

PF_DEVICE int pf_pair_warp() {
    return (int)threadIdx.x / 32 % 4;
}

/* The second starts with the exchange free. */
PF_DEVICE void pf_pair_begin() {
    if (!pf_pair_is_first())
        pf_named_arrive(PF_BARRIER_PAIR_FREE + pf_pair_warp(), 64);
}

PF_DEVICE void pf_pair_give(pf_pair *pair, const float *x, const float *slots, unsigned bits) {
    const int t = (int)threadIdx.x % 128;
    pf_named_sync(PF_BARRIER_PAIR_FREE + pf_pair_warp(), 64);
    PF_UNROLL for (int i = 0; i < PF_SCORE_COUNT / 4; ++i) pair->x[i][t] =
        make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
    pair->slots[t] = make_float2(slots[0], slots[1]);
    pair->bits[t] = bits;
    pf_named_arrive(PF_BARRIER_PAIR_FULL + pf_pair_warp(), 64);
}

PF_DEVICE unsigned pf_pair_take(const pf_pair *pair, float *x, float *slots) {
    const int t = (int)threadIdx.x % 128;
    pf_named_sync(PF_BARRIER_PAIR_FULL + pf_pair_warp(), 64);
    PF_UNROLL for (int i = 0; i < PF_SCORE_COUNT / 4; ++i) {
        const float4 four = pair->x[i][t];
        x[4 * i] = four.x, x[4 * i + 1] = four.y, x[4 * i + 2] = four.z, x[4 * i + 3] = four.w;
    }
    const float2 two = pair->slots[t];
    slots[0] = two.x, slots[1] = two.y;
    const unsigned bits = pair->bits[t];
    pf_named_arrive(PF_BARRIER_PAIR_FREE + pf_pair_warp(), 64);
    return bits;
}

#endif
