/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles in LDS, and the rings that fill them. `rows` holds elements as in memory; `columns` its
 * transpose, which 16-bit elements need to be contracted over rows: an operand is then one read.
 * f32 operands are single elements, read from `rows` either way. */
#ifndef PF_CDNA_TILE_H
#define PF_CDNA_TILE_H

#define CDNA_ROWS_OF(count, width) cdna_element rows[(count) * ((width) + CDNA_ROW_PAD)]
#define CDNA_COLUMNS_OF(count, width)                                                              \
    __attribute__((aligned(16))) cdna_element columns[(width) * (count)]

/* Backward contracts a cross tile both ways. Where LDS does not hold both copies of all its tiles
 * there are only rows, and operands are gathered element by element. */
enum {
    CDNA_CROSS_SIZE = PF_CROSS_TILE * (2 * PF_HEAD_DIM + CDNA_ROW_PAD),    /* rows and columns */
    CDNA_OWNED_SIZE = PF_OUT_DIM * PF_OWNED_TILE +                         /* K */
                      PF_CROSS_TILE * (PF_OWNED_TILE + CDNA_EXCHANGE_PAD), /* dS */
    CDNA_CROSS_COLUMNS =
        CDNA_BACKWARD && !CDNA_F32 &&
        (1 + PF_TANGENT) * CDNA_BYTES * (CDNA_OWNED_SIZE + 2 * CDNA_CROSS_SIZE) <= 63 * 1024
};

typedef struct pf_owned {
    cdna_int4 x[PF_HEAD_DIM / 16];
} pf_owned;

typedef struct pf_owned_tile {
    char unused; /* owned rows go from memory to registers */
} pf_owned_tile;

typedef struct __attribute__((aligned(16))) pf_cross_tile {
    CDNA_ROWS_OF(PF_CROSS_TILE, PF_HEAD_DIM);
    CDNA_COLUMNS_OF(PF_CROSS_TILE, CDNA_CROSS_COLUMNS ? PF_HEAD_DIM : 0);
} pf_cross_tile;

/* The value tile, and what dQ contracts: PF_OUT_DIM channels of the owned keys. */
#if CDNA_F32
typedef struct __attribute__((aligned(16))) pf_value_tile {
    CDNA_ROWS_OF(PF_CROSS_TILE, PF_OUT_DIM);
} pf_value_tile;
typedef struct __attribute__((aligned(16))) pf_crossed_tile {
    CDNA_ROWS_OF(CDNA_BACKWARD ? PF_OWNED_TILE : 0, PF_OUT_DIM);
} pf_crossed_tile;
#else
typedef struct __attribute__((aligned(16))) pf_value_tile {
    CDNA_COLUMNS_OF(PF_CROSS_TILE, PF_OUT_DIM);
} pf_value_tile;
typedef struct __attribute__((aligned(16))) pf_crossed_tile {
    CDNA_COLUMNS_OF(PF_OWNED_TILE, CDNA_BACKWARD ? PF_OUT_DIM : 0);
} pf_crossed_tile;
#endif

PF_DEVICE cdna_int4 cdna_chunk_at(const cdna_element *p) {
    return *(const cdna_int4 *)p;
}

/* Threads divide a tile into groups: a chunk of channels of so many rows, which adjoin in
 * `columns`. Rows alone need no group; columns take as many as leave work to every thread. Eight
 * threads take 128 bytes of a row, the next eight the next group of rows: so neither the loads nor
 * either store make lanes meet in a bank. */
PF_DEVICE constexpr int cdna_group_of(int rows, int width, bool columns) {
    const int chunks = rows * (width / CDNA_CHUNK);
    return !columns ? 1 : chunks >= 4 * PF_THREADS ? 4 : chunks >= 2 * PF_THREADS ? 2 : 1;
}

PF_DEVICE constexpr int cdna_share_of(int rows, int width, int group) {
    return (rows / group * (width / CDNA_CHUNK) + PF_THREADS - 1) / PF_THREADS * group;
}

enum {
    CDNA_CROSS_GROUP = cdna_group_of(PF_CROSS_TILE, PF_HEAD_DIM, CDNA_CROSS_COLUMNS),
    CDNA_VALUE_GROUP = cdna_group_of(PF_CROSS_TILE, PF_OUT_DIM, !CDNA_F32),
    CDNA_CROSSED_GROUP = cdna_group_of(PF_OWNED_TILE, PF_OUT_DIM, !CDNA_F32),
    CDNA_CROSS_SHARE = cdna_share_of(PF_CROSS_TILE, PF_HEAD_DIM, CDNA_CROSS_GROUP),
    CDNA_VALUE_SHARE = cdna_share_of(PF_CROSS_TILE, PF_OUT_DIM, CDNA_VALUE_GROUP)
};

PF_DEVICE constexpr int cdna_groups(int rows, int width, int group) {
    return rows / group * (width / CDNA_CHUNK);
}

/* Where group n lies in a tile: its place among the `count` rows as `columns` orders them, and its
 * first channel. */
PF_DEVICE constexpr int cdna_group_span(int width) {
    return width / CDNA_CHUNK < 8 ? width / CDNA_CHUNK : 8;
}

PF_DEVICE int cdna_group_place(int n, int count, int width, int group) {
    return n / cdna_group_span(width) % (count / group) * group;
}

PF_DEVICE int cdna_group_channel(int n, int count, int width, int group) {
    const int span = cdna_group_span(width);
    return (n % span + n / (span * (count / group)) * span) * CDNA_CHUNK;
}

/* The row at a place. Interleaved columns have rows in the order in which the lanes of a wave hold
 * them in an accumulator. */
PF_DEVICE int cdna_place_row(int place, bool interleaved) {
    const int quad = place / 4;
    return interleaved ? 4 * (quad / 4 * 4 + quad % 2 * 2 + quad / 2 % 2) + place % 4 : place;
}

#if !CDNA_F32
/* Write a group: index(c) is the place of channel c of the chunk. */
template <typename index_of>
PF_DEVICE void cdna_store_columns(CDNA_LDS cdna_element *columns, const cdna_int4 *chunk, int group,
                                  index_of index) {
    PF_UNROLL for (int c = 0; c < CDNA_CHUNK; ++c) {
        CDNA_LDS cdna_element *to = &columns[index(c)];
        const int word = c / 2;
        const unsigned select = c % 2 ? 0x07060302 : 0x05040100;
        if (group == 1) {
            *to = (cdna_element)(chunk[0][word] >> (c % 2 ? 16 : 0));
        } else if (group == 2) {
            *(CDNA_LDS int *)to =
                (int)__builtin_amdgcn_perm(chunk[1][word], chunk[0][word], select);
        } else {
            cdna_int2 x;
            x[0] = (int)__builtin_amdgcn_perm(chunk[1][word], chunk[0][word], select);
            x[1] = (int)__builtin_amdgcn_perm(chunk[3][word], chunk[2][word], select);
            *(CDNA_LDS cdna_int2 *)to = x;
        }
    }
}
#endif

PF_DEVICE void cdna_store_rows(CDNA_LDS cdna_element *rows, int width, int row, int channel,
                               const cdna_int4 *chunk, int group) {
    PF_UNROLL for (int u = 0; u < group; ++u) *
        (CDNA_LDS cdna_int4 *)&rows[cdna_row_index(row + u, channel, width)] = chunk[u];
}

/* Rings. A ring has one stage; what is loaded for it waits in the thread's registers until the
 * take. */
typedef struct pf_ring {
    char unused;
} pf_ring;

/* One tile to load. Vectors wait in registers; what must be gathered is loaded at the take, in a
 * loop. */
template <typename tile_type, int share> struct cdna_pending {
    CDNA_LDS tile_type *to;
    int operand, b, h; /* what the view is of; operand 0, none yet, and 1 + PF_OPERAND_* */
    cdna_view view;
    pf_rows rows;
    cdna_int4 chunk[share];
};

typedef struct pf_ring_pos {
    int fill, take; /* always 0 */
    int crosses, values, stats;
    cdna_pending<pf_cross_tile, CDNA_CROSS_SHARE> cross[1 + PF_TANGENT];
    cdna_pending<pf_value_tile, CDNA_VALUE_SHARE> value[1 + PF_TANGENT];
    CDNA_LDS float *stat_to[1 + PF_TANGENT];
    float stat[1 + PF_TANGENT];
} pf_ring_pos;

#define PF_PRODUCER if (false)
#define PF_CONSUMER
#define PF_REFILL(...) __VA_ARGS__

PF_DEVICE void pf_ring_init(pf_ring *, int) {
}

PF_DEVICE void pf_ring_acquire(pf_ring *, pf_ring_pos *pos, int) {
    pos->crosses = pos->values = pos->stats = 0;
}

PF_DEVICE void pf_ring_publish(pf_ring *, pf_ring_pos *, int) {
}

PF_DEVICE void pf_ring_release(pf_ring *, pf_ring_pos *, int) {
    pf_block_sync();
}

template <int width, int group, bool interleaved, typename tile_type, int share>
PF_DEVICE void cdna_pend(cdna_pending<tile_type, share> *tile, tile_type *to,
                         const pf_source *source, int operand, const pf_rows *rows) {
    constexpr int groups = cdna_groups(PF_CROSS_TILE, width, group);
    tile->to = (CDNA_LDS tile_type *)to;
    if (tile->operand != 1 + operand || tile->b != rows->b || tile->h != rows->h) {
        tile->view = cdna_view_of(source, operand, rows);
        tile->operand = 1 + operand;
        tile->b = rows->b;
        tile->h = rows->h;
    }
    tile->rows = *rows;
    if (!tile->view.vector)
        return;
    PF_UNROLL for (int t = 0; t * PF_THREADS < groups; ++t) {
        const int n = t * PF_THREADS + pf_thread();
        const int place = cdna_group_place(n, PF_CROSS_TILE, width, group);
        const int channel = cdna_group_channel(n, PF_CROSS_TILE, width, group);
        PF_UNROLL for (int u = 0; u < group; ++u) if (groups % PF_THREADS == 0 || n < groups)
            tile->chunk[t * group + u] = cdna_load_vector(
            &tile->view, rows, cdna_place_row(place, interleaved) + u, rows->channel0 + channel);
    }
}

PF_DEVICE void pf_cross_load(pf_cross_tile *tile, const pf_source *source, int operand,
                             const pf_rows *rows, pf_ring *, pf_ring_pos *pos) {
    cdna_pend<PF_HEAD_DIM, CDNA_CROSS_GROUP, CDNA_CROSS_COLUMNS>(&pos->cross[pos->crosses++], tile,
                                                                 source, operand, rows);
}

PF_DEVICE void pf_value_load(pf_value_tile *tile, const pf_source *source, int operand,
                             const pf_rows *rows, pf_ring *, pf_ring_pos *pos) {
    cdna_pend<PF_OUT_DIM, CDNA_VALUE_GROUP, !CDNA_F32>(&pos->value[pos->values++], tile, source,
                                                       operand, rows);
}

PF_DEVICE void pf_stats_load(float *to, unsigned long long address, pf_ring *, pf_ring_pos *pos) {
    if (pf_thread() < PF_CROSS_TILE)
        pos->stat[pos->stats] = ((const PF_GLOBAL float *)address)[pf_thread()];
    pos->stat_to[pos->stats++] = (CDNA_LDS float *)to;
}

PF_DEVICE void cdna_land_group(CDNA_LDS pf_cross_tile *tile, int place, int channel,
                               const cdna_int4 *chunk) {
    cdna_store_rows(tile->rows, PF_HEAD_DIM, cdna_place_row(place, CDNA_CROSS_COLUMNS), channel,
                    chunk, CDNA_CROSS_GROUP);
#if !CDNA_F32
    if (CDNA_CROSS_COLUMNS)
        cdna_store_columns(tile->columns, chunk, CDNA_CROSS_GROUP, [=](int c) {
            return cdna_column_index(channel + c, place, PF_CROSS_TILE);
        });
#endif
}

PF_DEVICE void cdna_land_group(CDNA_LDS pf_value_tile *tile, int place, int channel,
                               const cdna_int4 *chunk) {
#if CDNA_F32
    cdna_store_rows(tile->rows, PF_OUT_DIM, place, channel, chunk, CDNA_VALUE_GROUP);
#else
    cdna_store_columns(tile->columns, chunk, CDNA_VALUE_GROUP,
                       [=](int c) { return cdna_column_index(channel + c, place, PF_CROSS_TILE); });
#endif
}

template <int width, int group, bool interleaved, typename tile_type, int share>
PF_DEVICE void cdna_land(const cdna_pending<tile_type, share> *tile) {
    constexpr int groups = cdna_groups(PF_CROSS_TILE, width, group);
    if (tile->view.vector) {
        PF_UNROLL for (int t = 0; t * PF_THREADS < groups; ++t) {
            const int n = t * PF_THREADS + pf_thread();
            if (groups % PF_THREADS == 0 || n < groups)
                cdna_land_group(tile->to, cdna_group_place(n, PF_CROSS_TILE, width, group),
                                cdna_group_channel(n, PF_CROSS_TILE, width, group),
                                &tile->chunk[t * group]);
        }
        return;
    }
    PF_ROLLED for (int n = pf_thread(); n < groups; n += PF_THREADS) {
        const int place = cdna_group_place(n, PF_CROSS_TILE, width, group);
        const int channel = cdna_group_channel(n, PF_CROSS_TILE, width, group);
        const int row = cdna_place_row(place, interleaved);
        cdna_int4 chunk[group];
        PF_UNROLL for (int u = 0; u < group; ++u) chunk[u] =
            cdna_load_chunk(&tile->view, &tile->rows, row + u, tile->rows.channel0 + channel);
        cdna_land_group(tile->to, place, channel, chunk);
    }
}

PF_DEVICE void pf_ring_take(pf_ring *, pf_ring_pos *pos, int) {
    PF_UNROLL for (int k = 0; k < 1 + PF_TANGENT; ++k) {
        if (k < pos->crosses)
            cdna_land<PF_HEAD_DIM, CDNA_CROSS_GROUP, CDNA_CROSS_COLUMNS>(&pos->cross[k]);
        if (k < pos->values)
            cdna_land<PF_OUT_DIM, CDNA_VALUE_GROUP, !CDNA_F32>(&pos->value[k]);
        if (k < pos->stats && pf_thread() < PF_CROSS_TILE)
            pos->stat_to[k][pf_thread()] = pos->stat[k];
    }
    pf_block_sync();
}

/* Owned rows: each lane reads its own row's share of every pair of chunks. */
PF_DEVICE void pf_owned_load(pf_owned_tile *, const pf_source *, int, const pf_rows *, pf_ring *,
                             pf_ring_pos *) {
}

PF_DEVICE void cdna_owned_take(pf_owned *o, const pf_source *source, int operand,
                               const pf_rows *rows) {
    const cdna_view view = cdna_view_of(source, operand, rows);
    const int row = pf_slot_owned(0);
    if (view.vector) {
        PF_UNROLL for (int i = 0; i < PF_HEAD_DIM / 16; ++i) o->x[i] =
            cdna_load_vector(&view, rows, row, 16 * i + CDNA_CHUNK * cdna_part());
        return;
    }
    /* A lane's chunks are indexed by constants alone, so the loop turns them round. */
    PF_ROLLED for (int i = 0; i < PF_HEAD_DIM / 16; ++i) {
        const cdna_int4 chunk =
            cdna_load_chunk(&view, rows, row, 16 * i + CDNA_CHUNK * cdna_part());
        PF_UNROLL for (int u = 0; u + 1 < PF_HEAD_DIM / 16; ++u) o->x[u] = o->x[u + 1];
        o->x[PF_HEAD_DIM / 16 - 1] = chunk;
    }
}

PF_DEVICE void pf_owned_take(pf_owned *o, const pf_owned_tile *, const pf_source *source,
                             int operand, const pf_rows *rows) {
    cdna_owned_take(o, source, operand, rows);
}

PF_DEVICE void pf_crossed_take(pf_owned *o, const pf_crossed_tile *, const pf_source *source,
                               int operand, const pf_rows *rows) {
    cdna_owned_take(o, source, operand, rows);
}

PF_DEVICE void pf_crossed_load(pf_crossed_tile *tile, const pf_source *source, int operand,
                               const pf_rows *rows, pf_ring *, pf_ring_pos *) {
#if CDNA_BACKWARD
    const cdna_view view = cdna_view_of(source, operand, rows);
    PF_ROLLED for (int n = pf_thread();
                   n < cdna_groups(PF_OWNED_TILE, PF_OUT_DIM, CDNA_CROSSED_GROUP);
                   n += PF_THREADS) {
        cdna_int4 chunk[CDNA_CROSSED_GROUP];
        const int row = cdna_group_place(n, PF_OWNED_TILE, PF_OUT_DIM, CDNA_CROSSED_GROUP);
        const int channel = cdna_group_channel(n, PF_OWNED_TILE, PF_OUT_DIM, CDNA_CROSSED_GROUP);
        PF_UNROLL for (int u = 0; u < CDNA_CROSSED_GROUP; ++u) chunk[u] =
            cdna_load_chunk(&view, rows, row + u, rows->contracted0 + channel);
#if CDNA_F32
        cdna_store_rows((CDNA_LDS cdna_element *)tile->rows, PF_OUT_DIM, row, channel, chunk,
                        CDNA_CROSSED_GROUP);
#else
        cdna_store_columns((CDNA_LDS cdna_element *)tile->columns, chunk, CDNA_CROSSED_GROUP,
                           [=](int c) { return cdna_crossed_index(channel + c, row); });
#endif
    }
#else
    (void)tile, (void)source, (void)operand, (void)rows;
#endif
}

/* The operand of dQ: the chunk of keys from `key` of one channel, counted from contracted0. */
#if CDNA_BACKWARD
PF_DEVICE cdna_int4 cdna_crossed_chunk(const pf_crossed_tile *tile, int key, int channel) {
#if CDNA_F32
    cdna_float4 x;
    PF_UNROLL for (int t = 0; t < 4; ++t) x[t] =
        tile->rows[cdna_row_index(key + t, channel, PF_OUT_DIM)];
    return __builtin_bit_cast(cdna_int4, x);
#else
    return cdna_chunk_at(&tile->columns[cdna_crossed_index(channel, key)]);
#endif
}
#endif

/* The operand of scores: a chunk of a row. */
PF_DEVICE cdna_int4 cdna_cross_chunk(const pf_cross_tile *tile, int row, int channel) {
    return cdna_chunk_at(&tile->rows[cdna_row_index(row, channel, PF_HEAD_DIM)]);
}

PF_DEVICE cdna_int4 cdna_owned_chunk(const pf_owned *owned, int i) {
    return owned->x[i];
}

PF_DEVICE cdna_element cdna_cross_element(const pf_cross_tile *tile, int row, int channel) {
    return tile->rows[cdna_row_index(row, channel, PF_HEAD_DIM)];
}

#define CDNA_CHUNK_LOOP PF_UNROLL

#endif
