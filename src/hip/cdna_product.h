/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products over tiles, however these are held. */
#ifndef PF_CDNA_PRODUCT_H
#define PF_CDNA_PRODUCT_H

/* dS as the waves exchange it: rows of queries, in which keys, which dQ contracts, adjoin. */
typedef struct __attribute__((aligned(16))) pf_exchange {
    cdna_element x[PF_CROSS_TILE * (PF_OWNED_TILE + CDNA_EXCHANGE_PAD)];
} pf_exchange;

PF_DEVICE void pf_scores_mma(pf_scores *s, const pf_owned *owned, const pf_cross_tile *cross,
                             bool fresh) {
    PF_UNROLL for (int block = 0; block < PF_CROSS_TILE / CDNA_MMA; ++block) {
        float *x = &s->x[block * CDNA_ACC];
        cdna_acc acc = cdna_acc_get(x, fresh);
        CDNA_CHUNK_LOOP for (int i = 0; i < PF_HEAD_DIM / 16; ++i) acc =
            cdna_mfma_chunk(cdna_cross_chunk(cross, block * CDNA_MMA + cdna_column(),
                                             16 * i + CDNA_CHUNK * cdna_part()),
                            cdna_owned_chunk(owned, i), acc);
        cdna_acc_put(x, acc);
    }
}

/* What one instruction takes of the weights: a register or pair of them, and the rows that these
 * are of. */
enum { CDNA_WEIGHT_ROWS = CDNA_F32 ? 1 : 4, CDNA_WEIGHTS = PF_SCORE_COUNT / CDNA_WEIGHT_ROWS };

/* The next becomes the first; so a loop that is not unrolled still finds them by a constant index.
 */
PF_DEVICE void cdna_weights_turn(pf_weights *w) {
    const pf_weights old = *w;
    PF_UNROLL for (int n = 0; n < CDNA_WEIGHTS; ++n) w->x[n] = old.x[(n + 1) % CDNA_WEIGHTS];
}

/* out += w * rows, whose operands are gathered: element(row, channel) gives one. */
template <typename element_at>
PF_DEVICE void cdna_out_gathered(pf_out *out, const pf_weights *w, element_at element) {
    PF_UNROLL for (int block = 0; block < PF_OUT_DIM / CDNA_MMA; ++block) {
        float *x = &out->x[block * CDNA_ACC];
        cdna_acc acc = cdna_acc_get(x, false);
        pf_weights turned = *w;
        const int channel = block * CDNA_MMA + cdna_column();
        CDNA_CHUNK_LOOP for (int n = 0; n < CDNA_WEIGHTS; ++n) {
#if CDNA_F32
            const float a = element(cdna_row(n), channel);
#else
            cdna_short4 a;
            PF_UNROLL for (int u = 0; u < 4; ++u) a[u] =
                (short)element(cdna_row(4 * n + u), channel);
#endif
            acc = cdna_mfma(a, turned.x[0], acc);
            cdna_weights_turn(&turned);
        }
        cdna_acc_put(x, acc);
    }
}

#if !CDNA_F32
/* out += w * columns from channel0 on, whose rows lie as the lanes of a wave hold them. */
PF_DEVICE void cdna_out_columns(pf_out *out, const pf_weights *w, const cdna_element *columns,
                                int channel0) {
    PF_UNROLL for (int block = 0; block < PF_OUT_DIM / CDNA_MMA; ++block) {
        float *x = &out->x[block * CDNA_ACC];
        cdna_acc acc = cdna_acc_get(x, false);
        const int channel = channel0 + block * CDNA_MMA + cdna_column();
        PF_UNROLL for (int i = 0; i < PF_CROSS_TILE / 16; ++i) {
            const int place = 16 * i + CDNA_CHUNK * cdna_part();
            const cdna_int4 a =
                *(const cdna_int4 *)&columns[cdna_column_index(channel, place, PF_CROSS_TILE)];
            acc = cdna_mfma(cdna_operand_of(a, 0), w->x[2 * i], acc);
            acc = cdna_mfma(cdna_operand_of(a, 1), w->x[2 * i + 1], acc);
        }
        cdna_acc_put(x, acc);
    }
}
#endif

#if CDNA_FORWARD
PF_DEVICE void pf_out_mma_value(pf_out *out, const pf_weights *w, const pf_value_tile *value) {
#if CDNA_F32
    cdna_out_gathered(out, w, [=](int row, int channel) {
        return value->rows[cdna_row_index(row, channel, PF_OUT_DIM)];
    });
#else
    cdna_out_columns(out, w, value->columns, 0);
#endif
}
#endif

#if CDNA_BACKWARD
PF_DEVICE void pf_out_mma(pf_out *out, const pf_weights *w, const pf_cross_tile *cross,
                          int channel0) {
#if !CDNA_F32 && !CDNA_DIRECT
    if (CDNA_CROSS_COLUMNS) {
        cdna_out_columns(out, w, cross->columns, channel0);
        return;
    }
#endif
    cdna_out_gathered(out, w, [=](int row, int channel) {
        return cdna_cross_element(cross, row, channel0 + channel);
    });
}
#endif

PF_DEVICE void pf_mma_commit() {
}

#define pf_mma_wait(n) (void)(n)

PF_DEVICE void pf_turn_wait() {
}

PF_DEVICE void pf_turn_pass() {
}

#endif
