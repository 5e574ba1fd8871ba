/* SPDX-License-Identifier: Apache-2.0 */
/* Weights in shared memory: backward's dS, which all warpgroups read, and H of the JVP, which waits
 * there for its product because registers are short. They lie in slabs of 64 cross rows: a row of a
 * slab is one owned row, in the swizzle of tiles. */
#ifndef PF_PORT_SM90A_WEIGHTS_H
#define PF_PORT_SM90A_WEIGHTS_H

enum { PF_CROSS_SLABS = (PF_CROSS_TILE + 63) / 64 };

typedef struct alignas(1024) pf_exchange {
    unsigned char bytes[PF_CROSS_SLABS * PF_CLUSTER_OF(pf_tuned.persistent)][PF_OWNED_TILE]
                       [PF_ROW_BYTES];
} pf_exchange;

/* A warp's part: 16 owned rows, 16 cross rows an instruction. */
PF_DEVICE void pf_exchange_store(pf_exchange *exchange, const pf_weights *w) {
    int lane = pf_lane();
    if (PF_BACKWARD_PAIRED)
        asm volatile("" : "+r"(lane)); /* no addresses carried along, where registers are short */
    const int owned = 16 * pf_consumer_warp() + lane % 16;
    const pf_u32 row = pf_shared_address(exchange->bytes[0][owned]);
    PF_UNROLL for (int x = 0; x < PF_CROSS_TILE; x += 16) {
        const int chunk = x % 64 / 8 + lane / 16; /* of 8 cross rows, 16 bytes */
        const pf_u32 slab = row + x / 64 * PF_OWNED_TILE * PF_ROW_BYTES;
        pf_store_matrices(slab + (chunk ^ owned % 8) * 16, &w->x[x / 4]);
    }
}

/* The group's own rows of an exchange, times the tile in `slabs`. */
PF_DEVICE void pf_out_mma_stored(pf_out *out, const pf_exchange *exchange,
                                 const unsigned char *slabs) {
    const pf_u32 a = pf_wgmma_tile(pf_shared_address(exchange->bytes[0][64 * pf_group()]), 16);
    const pf_u32 b = pf_wgmma_tile(pf_shared_address(slabs), PF_CROSS_TILE * PF_ROW_BYTES);
    pf_wgmma_pin(out->x, PF_OUT_COUNT);
    pf_wgmma_fence();
    PF_UNROLL for (int x = 0; x < PF_CROSS_TILE; x += 16) pf_wgmma<PF_OUT_DIM>::shared<0, 1>(
        out->x, pf_wgmma_advance(a, x / 64 * PF_OWNED_TILE * PF_ROW_BYTES + x % 64 * 2),
        pf_wgmma_advance(b, x * PF_ROW_BYTES), true);
}

#if PF_PARKS_WEIGHTS
PF_DEVICE void pf_weights_park(pf_exchange *parked, const pf_weights *w) {
    pf_exchange_store(parked, w);
}

PF_DEVICE void pf_out_mma_parked(pf_out *out, const pf_exchange *parked,
                                 const pf_value_tile *value) {
    pf_async_fence();
    __syncwarp(); /* a warp's products read the rows that it wrote, and no others */
    pf_out_mma_stored(out, parked, value->bytes[0][0]);
}
#endif

#endif
