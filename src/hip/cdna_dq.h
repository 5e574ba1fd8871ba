/* SPDX-License-Identifier: Apache-2.0 */
/* dQ: dS is exchanged between the waves, which divide dQ^T into blocks of 16 channels x 16 queries.
 */
#ifndef PF_CDNA_DQ_H
#define PF_CDNA_DQ_H

PF_DEVICE void pf_exchange_publish(pf_exchange *exchange, const pf_weights *w) {
    PF_UNROLL for (int n = 0; n < 1 + PF_TANGENT; ++n)
        PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e)
#if CDNA_F32
            exchange[n]
                .x[cdna_exchange_index(cdna_row(e), pf_slot_owned(0))] = w[n].x[e];
#else
            exchange[n]
                .x[cdna_exchange_index(cdna_row(e), pf_slot_owned(0))] =
        (cdna_element)w[n].x[e / 4][e % 4];
#endif
    pf_block_sync();
}

PF_DEVICE int cdna_dq_part() {
    return pf_lane() / CDNA_DQ_MMA;
}

/* A wave's n-th block of dQ^T. */
PF_DEVICE int cdna_dq_block(int n) {
    return cdna_wave() * CDNA_DQ_WAVE_BLOCKS + n;
}

PF_DEVICE int cdna_dq_query(int block) {
    return block / (PF_OUT_DIM / CDNA_DQ_MMA) * CDNA_DQ_MMA + pf_lane() % CDNA_DQ_MMA;
}

PF_DEVICE int cdna_dq_channel(int block) {
    return block % (PF_OUT_DIM / CDNA_DQ_MMA) * CDNA_DQ_MMA;
}

PF_DEVICE void pf_cross_mma(pf_cross_out *d, const pf_exchange *exchange,
                            const pf_crossed_tile *tile, int, bool fresh) {
    PF_UNROLL for (int n = 0; n < CDNA_DQ_WAVE_BLOCKS; ++n) {
        const int block = cdna_dq_block(n), query = cdna_dq_query(block);
        const int channel = cdna_dq_channel(block) + pf_lane() % CDNA_DQ_MMA;
        cdna_float4 acc = {0.f, 0.f, 0.f, 0.f};
        PF_UNROLL for (int r = 0; r < CDNA_DQ_ACC; ++r) acc[r] =
            fresh ? 0.f : d->x[n * CDNA_DQ_ACC + r];
        CDNA_CHUNK_LOOP for (int i = 0; i < PF_OWNED_TILE / (4 * CDNA_CHUNK); ++i) {
            const int key = CDNA_CHUNK * (4 * i + cdna_dq_part());
            const cdna_int4 ds = *(const cdna_int4 *)&exchange->x[cdna_exchange_index(query, key)];
            acc = cdna_mfma_chunk(cdna_crossed_chunk(tile, key, channel), ds, acc);
        }
        PF_UNROLL for (int r = 0; r < CDNA_DQ_ACC; ++r) d->x[n * CDNA_DQ_ACC + r] = acc[r];
    }
}

/* Queries adjacent: lanes of a wave then add to adjacent words. */
PF_DEVICE int pf_dq_index(int row, int channel) {
    return channel * PF_CROSS_TILE + row;
}

PF_DEVICE void pf_dq_add(const pf_cross_out *d, unsigned long long address, int channel0,
                         const pf_turn *turn) {
    volatile PF_GLOBAL unsigned *counter = (volatile PF_GLOBAL unsigned *)turn->counter;
    if (counter) {
        if (pf_thread() == 0)
            while (*counter != (unsigned)turn->value)
                __builtin_amdgcn_s_sleep(1);
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
        pf_block_sync();
    }
    PF_UNROLL for (int n = 0; n < CDNA_DQ_WAVE_BLOCKS; ++n) {
        const int block = cdna_dq_block(n);
        PF_UNROLL for (int r = 0; r < CDNA_DQ_ACC; ++r) {
            PF_GLOBAL float *to =
                (PF_GLOBAL float *)address +
                pf_dq_index(cdna_dq_query(block),
                            channel0 + cdna_dq_channel(block) + 4 * cdna_dq_part() + r);
            (void)__builtin_amdgcn_global_atomic_fadd_f32(to, d->x[n * CDNA_DQ_ACC + r]);
        }
    }
    if (counter) {
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
        __builtin_amdgcn_s_waitcnt(CDNA_WAIT_ALL);
        pf_block_sync();
        if (pf_thread() == 0)
            *counter = (unsigned)turn->value + 1;
    }
}

PF_DEVICE void pf_dq_drain() {
}

#endif
