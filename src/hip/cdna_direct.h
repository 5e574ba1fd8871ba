/* SPDX-License-Identifier: Apache-2.0 */
/* Operands that LDS cannot hold: a tile is a description of rows in memory, and each product reads
 * what it needs through the caches. Nothing is prefetched; it serves problems that are rare and
 * otherwise could not be computed. */
#ifndef PF_CDNA_DIRECT_H
#define PF_CDNA_DIRECT_H

typedef struct cdna_remote {
    cdna_view view;
    pf_rows rows;
} cdna_remote;

typedef cdna_remote pf_owned, pf_cross_tile, pf_crossed_tile;

typedef struct pf_owned_tile {
    char unused;
} pf_owned_tile;

typedef struct pf_ring {
    char unused;
} pf_ring;

typedef struct pf_ring_pos {
    int fill, take; /* always 0 */
} pf_ring_pos;

#define PF_PRODUCER if (false)
#define PF_CONSUMER
#define PF_REFILL(...) __VA_ARGS__

PF_DEVICE void pf_ring_init(pf_ring *, int) {
}

PF_DEVICE void pf_ring_acquire(pf_ring *, pf_ring_pos *, int) {
}

PF_DEVICE void pf_ring_publish(pf_ring *, pf_ring_pos *, int) {
}

PF_DEVICE void pf_ring_take(pf_ring *, pf_ring_pos *, int) {
    pf_block_sync();
}

PF_DEVICE void pf_ring_release(pf_ring *, pf_ring_pos *, int) {
    pf_block_sync();
}

PF_DEVICE cdna_remote cdna_remote_of(const pf_source *source, int operand, const pf_rows *rows) {
    const cdna_remote remote = {cdna_view_of(source, operand, rows), *rows};
    return remote;
}

PF_DEVICE void pf_cross_load(pf_cross_tile *tile, const pf_source *source, int operand,
                             const pf_rows *rows, pf_ring *, pf_ring_pos *) {
    if (pf_thread() == 0)
        *tile = cdna_remote_of(source, operand, rows);
}

PF_DEVICE void pf_crossed_load(pf_crossed_tile *tile, const pf_source *source, int operand,
                               const pf_rows *rows, pf_ring *, pf_ring_pos *) {
    if (pf_thread() == 0)
        *tile = cdna_remote_of(source, operand, rows);
}

PF_DEVICE void pf_owned_load(pf_owned_tile *, const pf_source *, int, const pf_rows *, pf_ring *,
                             pf_ring_pos *) {
}

PF_DEVICE void pf_owned_take(pf_owned *o, const pf_owned_tile *, const pf_source *source,
                             int operand, const pf_rows *rows) {
    *o = cdna_remote_of(source, operand, rows);
}

PF_DEVICE void pf_crossed_take(pf_owned *o, const pf_crossed_tile *, const pf_source *source,
                               int operand, const pf_rows *rows) {
    *o = cdna_remote_of(source, operand, rows);
}

PF_DEVICE void pf_stats_load(float *to, unsigned long long address, pf_ring *, pf_ring_pos *) {
    if (pf_thread() < PF_CROSS_TILE)
        to[pf_thread()] = ((const PF_GLOBAL float *)address)[pf_thread()];
}

PF_DEVICE cdna_int4 cdna_cross_chunk(const pf_cross_tile *tile, int row, int channel) {
    return cdna_load_chunk(&tile->view, &tile->rows, row, channel);
}

PF_DEVICE cdna_int4 cdna_owned_chunk(const pf_owned *owned, int i) {
    return cdna_load_chunk(&owned->view, &owned->rows, pf_slot_owned(0),
                           16 * i + CDNA_CHUNK * cdna_part());
}

PF_DEVICE cdna_element cdna_cross_element(const pf_cross_tile *tile, int row, int channel) {
    const int at = tile->rows.row0 + row;
    if (channel >= tile->view.channels || !cdna_reads(&tile->view, &tile->rows, at))
        return 0;
    const unsigned bits = cdna_element_at(&tile->view, at * tile->view.row_stride +
                                                           channel * tile->view.channel_stride);
#if CDNA_F32
    return __builtin_bit_cast(float, bits);
#else
    return (cdna_element)bits;
#endif
}

/* The operand of dQ: the chunk of keys from `key` of one channel, counted from contracted0. */
PF_DEVICE cdna_int4 cdna_crossed_chunk(const pf_crossed_tile *tile, int key, int channel) {
    typedef cdna_element elements __attribute__((ext_vector_type(CDNA_CHUNK)));
    elements x;
    PF_UNROLL for (int t = 0; t < CDNA_CHUNK; ++t) x[t] =
        cdna_cross_element(tile, key + t, tile->rows.contracted0 + channel);
    return __builtin_bit_cast(cdna_int4, x);
}

#define CDNA_CHUNK_LOOP PF_ROLLED

#endif
