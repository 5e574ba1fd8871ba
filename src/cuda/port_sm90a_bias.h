/* SPDX-License-Identifier: Apache-2.0 */
/* Staged bias and mask on Hopper. A tile is a row of slabs of 64 keys of a 16-bit bias or 128 of a
 * mask, each of rows of 128 bytes, one a query, swizzled like the operands; where the tensor is
 * broadcast over queries only the first row is there.
 *
 * Fragments come by ldmatrix, which gives eight elements of a thread, four 8 x 8 matrices, at once:
 * matrix m has owned rows from 8 * (m % 2) on and cross rows from 8 * (m / 2) on. Backward's
 * fragments have keys as rows, so there it transposes. */
#ifndef PF_PORT_SM90A_BIAS_H
#define PF_PORT_SM90A_BIAS_H

#define PF_BIAS_RUN 8
#define PF_BIAS_HELD                                                                               \
    (PF_OP == PF_OP_FORWARD_JVP && PF_HEAD_DIM != 128) /* else registers are short */
#define PF_BIAS_BYTES PF_TUNED_BIAS_BYTES
#define PF_BIAS_LOOPS PF_TUNED_STAGED

enum {
    PF_OWNS_QUERIES = PF_OP == PF_OP_FORWARD || PF_OP == PF_OP_FORWARD_JVP,
    PF_MASK_SLAB = 128,
    /* Eight cross rows further, where these are queries. */
    PF_QUERIES_8 = 8 * PF_ROW_BYTES,
    /* Infinity, without a sign. */
    PF_BIAS_INFINITY = pf_bf16_elements ? 0x7f80 : 0x7c00,
};

/* Of what this thread reads first in a tile of bias. */
typedef struct pf_bias_place {
    pf_u32 address;
    int step; /* from one run to the next, where cross rows are queries */
} pf_bias_place;

typedef struct pf_bias_reader {
    pf_bias_place at;
    pf_u32 lowest; /* of each half of the pairs that were read */
    bool held;
    pf_u32 pairs[PF_SCORE_COUNT / 2]; /* where it is */
} pf_bias_reader;

/* Of what this thread reads first of a mask. */
typedef struct pf_mask_reader {
    pf_u32 address;
    int step; /* to its other slot in forward, to the next run in backward */
} pf_mask_reader;

PF_DEVICE void pf_bias_load(unsigned char *tile, const pf_source *source, int map,
                            const pf_rows *rows, pf_ring *ring, const pf_ring_pos *pos) {
    const pf_attention_kargs *a = source->a;
    const pf_karg_tensor *t = map == PF_MAP_MASK    ? &a->mask
                              : map == PF_MAP_TBIAS ? &a->tbias
                                                    : &a->bias;
    const int slab_keys = map == PF_MAP_MASK ? PF_MASK_SLAB : PF_SLAB;
    const int slabs = (PF_TILE_KEYS + slab_keys - 1) / slab_keys;
    const int count = t->stride[2] ? PF_TILE_QUERIES : 1;
    if (pf_lane() != 0)
        return;
    pf_u64 *barrier = &ring->full[pos->fill];
    pf_barrier_expect(barrier, slabs * count * PF_ROW_BYTES);
    PF_UNROLL for (int slab = 0; slab < slabs; ++slab)
        pf_tensor_copy(tile + slab * PF_TILE_QUERIES * PF_ROW_BYTES, &source->maps->map[map],
                       barrier, rows->channel0 + slab * slab_keys, t->stride[2] ? rows->row0 : 0,
                       t->stride[1] ? rows->h : 0, t->stride[0] ? rows->b : 0);
}

/* Where the row of a matrix is that this lane gives the address of. */
PF_DEVICE pf_u32 pf_bias_address(const unsigned char *tile, bool broadcast) {
    const int lane = pf_lane(), matrix = lane / 8, warp = pf_consumer_warp();
    const int owned = 16 * warp + 8 * (matrix % 2), cross = 8 * (matrix / 2);
    const int query = broadcast ? 0 : (PF_OWNS_QUERIES ? owned : cross) + lane % 8;
    const int chunk = (PF_OWNS_QUERIES ? cross : owned) / 8; /* of eight keys */
    return pf_shared_address(tile) + (chunk / 8 * PF_TILE_QUERIES + query) * PF_ROW_BYTES +
           (chunk % 8 ^ query % 8) * 16;
}

/* Load four 8 x 8 matrices, one register each; a row of one is at the address that lane 8 *
 * matrix + row gives. */
PF_DEVICE void pf_load_matrices(pf_u32 *x, pf_u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address)
                 : "memory");
}

PF_DEVICE void pf_load_matrices_transposed(pf_u32 *x, pf_u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address)
                 : "memory");
}

/* Elements e, ..., e + 7 of the fragment, as pairs. */
PF_DEVICE void pf_bias_pairs(const pf_bias_reader *r, int e, pf_u32 pairs[4]) {
    const int key = 2 * e, slab = key / PF_SLAB, chunk = key % PF_SLAB / 8;
    if (PF_OWNS_QUERIES)
        pf_load_matrices(pairs,
                         (r->at.address ^ chunk * 16) + slab * PF_TILE_QUERIES * PF_ROW_BYTES);
    else
        pf_load_matrices_transposed(pairs, r->at.address + e / 8 * r->at.step);
}

PF_DEVICE void pf_bias_lowest(pf_bias_reader *r, const pf_u32 pairs[4]) {
    PF_UNROLL for (int i = 0; i < 4; ++i) {
        if (pf_bf16_elements)
            asm("min.bf16x2 %0, %0, %1;" : "+r"(r->lowest) : "r"(pairs[i]));
        else
            asm("min.f16x2 %0, %0, %1;" : "+r"(r->lowest) : "r"(pairs[i]));
    }
}

PF_DEVICE pf_bias_place pf_bias_place_of(const unsigned char *tile, const pf_karg_tensor *t) {
    const bool broadcast = t->stride[2] == 0;
    pf_bias_place place = {pf_bias_address(tile, broadcast), 0};
    PF_KEEP(place.address);
    if (!PF_OWNS_QUERIES)
        place.step = broadcast ? 0 : 2 * PF_QUERIES_8;
    return place;
}

PF_DEVICE pf_bias_reader pf_bias_reader_of(const pf_bias_place *place, int offset) {
    pf_bias_reader r;
    r.at = *place;
    r.at.address += offset;
    r.lowest = PF_BIAS_INFINITY * 0x10001u;
    r.held = false;
    return r;
}

PF_DEVICE void pf_bias_hold(pf_bias_reader *r) {
    r->held = true;
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; e += PF_BIAS_RUN)
        pf_bias_pairs(r, e, r->pairs + e / 2);
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; e += PF_BIAS_RUN)
        pf_bias_lowest(r, r->pairs + e / 2);
}

/* Elements e, ..., e + 7 of the fragment. */
PF_DEVICE void pf_bias_read(pf_bias_reader *r, int e, float x[PF_BIAS_RUN]) {
    pf_u32 pairs[4];
    if (r->held) {
        PF_UNROLL for (int i = 0; i < 4; ++i) pairs[i] = r->pairs[e / 2 + i];
    } else {
        pf_bias_pairs(r, e, pairs);
        pf_bias_lowest(r, pairs);
    }
    PF_UNROLL for (int i = 0; i < 4; ++i) {
        if (pf_bf16_elements) {
            x[2 * i] = __uint_as_float(pairs[i] << 16);
            x[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
        } else {
            x[2 * i] = pf_f16_bits_to_f32((unsigned short)pairs[i]);
            x[2 * i + 1] = pf_f16_bits_to_f32((unsigned short)(pairs[i] >> 16));
        }
    }
}

/* Was a -inf among what this warp read? */
PF_DEVICE bool pf_bias_excludes(const pf_bias_reader *r) {
    const pf_u32 excluded = PF_BIAS_INFINITY | 0x8000;
    return __any_sync(0xffffffffu, (r->lowest & 0xffff) == excluded || r->lowest >> 16 == excluded);
}

/* Forward reads two keys of a query at a time. Backward reads matrices of pairs of keys, the
 * sixteen of a warp, of which each lane then takes its two keys from the lanes that hold them. */
PF_DEVICE pf_mask_reader pf_mask_reader_of(const unsigned char *tile, const pf_karg_tensor *t) {
    const bool broadcast = t->stride[2] == 0;
    const int lane = pf_lane(), warp = pf_consumer_warp();
    const int row = PF_OWNS_QUERIES ? lane / 4 : lane % 16; /* of the warp's, or of a run's */
    const int query = broadcast ? 0 : (PF_OWNS_QUERIES ? 16 * warp : 0) + row;
    const int chunk = (PF_OWNS_QUERIES ? 0 : warp) ^ (broadcast ? 0 : row % 8); /* of 16 keys */
    pf_mask_reader r;
    r.address = pf_shared_address(tile) + query * PF_ROW_BYTES + chunk * 16;
    if (PF_OWNS_QUERIES)
        r.address += 2 * (lane % 4);
    r.step = broadcast ? 0 : (PF_OWNS_QUERIES ? 1 : 2) * PF_QUERIES_8;
    return r;
}

PF_DEVICE pf_u32 pf_mask_pair(pf_u32 address) {
    unsigned short x;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(address) : "memory");
    return x;
}

/* Load two 8 x 8 matrices, transposed, as above. */
PF_DEVICE void pf_load_two_transposed(pf_u32 *x, pf_u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(x[0]), "=r"(x[1])
                 : "r"(address)
                 : "memory");
}

/* x where byte `at` of the mask is not 0, else -inf: the byte becomes the end of a word that is
 * -inf with 0 and NaN with all others, and the lesser of x and NaN is x. */
PF_DEVICE float pf_mask_select(float x, pf_u32 mask, pf_u32 at) {
    const float word = __uint_as_float(__byte_perm(mask, 0xff800000u, 0x7600 + 0x11 * at));
    asm("min.f32 %0, %0, %1;" : "+f"(x) : "f"(word));
    return x;
}

PF_DEVICE void pf_mask_exclude(const pf_mask_reader *r, int e, float x[PF_BIAS_RUN]) {
    if (PF_OWNS_QUERIES) {
        PF_UNROLL for (int i = 0; i < 4; ++i) { /* slot, and half of sixteen keys */
            const pf_u32 pair =
                pf_mask_pair((r->address ^ e / 8 * 16) + i % 2 * r->step + i / 2 * 8);
            x[2 * i] = pf_mask_select(x[2 * i], pair, 0);
            x[2 * i + 1] = pf_mask_select(x[2 * i + 1], pair, 1);
        }
        return;
    }
    const int lane = pf_lane();
    pf_u32 pairs[2]; /* of eight queries each */
    pf_load_two_transposed(pairs, r->address + e / 8 * r->step);
    PF_UNROLL for (int i = 0; i < 4; ++i) { /* slot, and half of sixteen queries */
        const int holder = lane / 8 * 4 + lane % 4 + 16 * (i % 2);
        const pf_u32 pair = __shfl_sync(0xffffffffu, pairs[i / 2], holder);
        PF_UNROLL for (int n = 0; n < 2; ++n) x[2 * i + n] =
            pf_mask_select(x[2 * i + n], pair, lane / 4 % 2 + 2 * n);
    }
}

/* ---- dbias, whose tile takes the place of the bias's ---- */

PF_DEVICE void pf_bias_put(unsigned char *tile, const pf_weights *w) {
    const pf_u32 address = pf_bias_address(tile, false);
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; e += 8) {
        const pf_u32 *x = w->x + e / 2;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                         address + e / 8 * 2 * PF_QUERIES_8),
                     "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                     : "memory");
    }
}

/* A warpgroup's keys are a slab. */
PF_DEVICE void pf_bias_send(const unsigned char *tile, const pf_source *source,
                            const pf_rows *rows) {
    static_assert(PF_SLAB == 64, "the keys of a warpgroup");
    const int group = pf_thread_group();
    if (threadIdx.x % 128 == 0) {
        pf_tensor_store(tile + group * PF_TILE_QUERIES * PF_ROW_BYTES,
                        &source->maps->map[PF_MAP_DBIAS], rows->channel0 + group * PF_SLAB,
                        rows->row0, rows->h, rows->b);
        pf_bulk_commit();
    }
}

/* A warp clears its sixteen keys, eight a lane. */
PF_DEVICE void pf_bias_clear(const pf_source *source, const pf_rows *rows) {
    const pf_attention_kargs *a = source->a;
    const int key = rows->channel0 + 16 * pf_consumer_warp() + 8 * (pf_lane() % 2);
    const pf_i64 base = rows->b * a->dbias.stride[0] + rows->h * a->dbias.stride[1] + (pf_i64)key;
    _Pragma("unroll 1") for (int r = pf_lane() / 2; r < PF_TILE_QUERIES; r += 16) {
        const int i = rows->row0 + r;
        unsigned short *to = (unsigned short *)a->dbias.address + base + i * a->dbias.stride[2];
        if (i >= rows->end)
            break;
        if (key + 8 <= a->keys)
            *(uint4 *)to = make_uint4(0, 0, 0, 0);
        else
            _Pragma("unroll 1") for (int n = 0; key + n < a->keys; ++n) to[n] = 0;
    }
}

PF_DEVICE void pf_bias_sent() {
    pf_bulk_wait_read(0);
}

#endif
