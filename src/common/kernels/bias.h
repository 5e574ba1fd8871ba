/* SPDX-License-Identifier: Apache-2.0 */
/* Bias, its tangent and mask as tiles in shared memory, on targets that stage them: see STAGED BIAS
 * in port.h. */
#ifndef PF_KERNELS_BIAS_H
#define PF_KERNELS_BIAS_H

#include "common.h"

/* Targets that read them element by element. */
#ifndef PF_BIAS_RUN
#define PF_BIAS_RUN 1
#define PF_BIAS_BYTES 0
typedef struct pf_bias_reader {
    int none;
} pf_bias_reader;
PF_DEVICE void pf_bias_load(unsigned char *, const pf_source *, int, const pf_rows *, pf_ring *,
                            const pf_ring_pos *) {
}
PF_DEVICE pf_bias_reader pf_bias_reader_of(const unsigned char *, const pf_karg_tensor *) {
    return pf_bias_reader();
}
#define pf_mask_reader_of pf_bias_reader_of
PF_DEVICE void pf_bias_read(pf_bias_reader *, int, float *x) {
    x[0] = 0.f;
}
PF_DEVICE bool pf_bias_excludes(const pf_bias_reader *) {
    return false;
}
PF_DEVICE void pf_mask_read(const pf_bias_reader *, int, bool *keep) {
    keep[0] = true;
}
PF_DEVICE void pf_bias_put(unsigned char *, const pf_weights *) {
}
PF_DEVICE void pf_bias_send(const unsigned char *, const pf_source *, const pf_rows *) {
}
PF_DEVICE void pf_bias_sent() {
}
PF_DEVICE void pf_bias_clear(const pf_source *, const pf_rows *) {
}
#endif

/* The stages of a ring, each with the tiles of those tensors that the problem has. */
typedef struct alignas(PF_BIAS_BYTES > 0 ? 1024 : 16) bias_tiles {
    unsigned char bytes[PF_BIAS_BYTES > 0 ? PF_BIAS_BYTES : 16];
} bias_tiles;

/* Stages of the ring; 0 where scores are looked up element by element. */
PF_DEVICE int bias_stages(const pf_attention_kargs *a) {
    return PF_BIAS_BYTES > 0 ? a->bias_stages : 0;
}

/* The tile of PF_MAP_BIAS, PF_MAP_TBIAS or PF_MAP_MASK in a stage. */
PF_DEVICE unsigned char *bias_tile(bias_tiles *tiles, const pf_attention_kargs *a, int map,
                                   int stage) {
    const int bias = a->bias.address ? PF_BIAS_TILE_BYTES(PF_TILE_QUERIES, PF_TILE_KEYS) : 0;
    const int tbias = a->tbias.address ? PF_BIAS_TILE_BYTES(PF_TILE_QUERIES, PF_TILE_KEYS) : 0;
    const int mask = a->mask.address ? PF_MASK_TILE_BYTES(PF_TILE_QUERIES, PF_TILE_KEYS) : 0;
    const int before = map == PF_MAP_BIAS ? 0 : map == PF_MAP_TBIAS ? bias : bias + tbias;
    return tiles->bytes + stage * (bias + tbias + mask) + before;
}

/* Load what belongs to the scores of queries from i0 on and keys from j0 on. */
PF_DEVICE void bias_fill(bias_tiles *tiles, const pf_source *source, const pf_attention_kargs *a,
                         pf_ring *ring, int b, int h, int i0, int j0, pf_ring_pos *pos) {
    const pf_rows rows = {b, h, i0, a->queries, 0, j0, 0};
    pf_ring_acquire(ring, pos, a->bias_stages);
    const int stage = pos->fill;
    if (a->bias.address)
        pf_bias_load(bias_tile(tiles, a, PF_MAP_BIAS, stage), source, PF_MAP_BIAS, &rows, ring,
                     pos);
    if (PF_TANGENT && a->tbias.address)
        pf_bias_load(bias_tile(tiles, a, PF_MAP_TBIAS, stage), source, PF_MAP_TBIAS, &rows, ring,
                     pos);
    if (a->mask.address)
        pf_bias_load(bias_tile(tiles, a, PF_MAP_MASK, stage), source, PF_MAP_MASK, &rows, ring,
                     pos);
    pf_ring_publish(ring, pos, a->bias_stages);
}

/* s = alpha s + the staged tensor. */
PF_DEVICE void bias_add_tile(pf_scores *s, pf_bias_reader *reader, float alpha) {
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; e += PF_BIAS_RUN) {
        float x[PF_BIAS_RUN];
        pf_bias_read(reader, e, x);
        PF_UNROLL for (int u = 0; u < PF_BIAS_RUN; ++u) s->x[e + u] =
            pf_fma(s->x[e + u], alpha, x[u]);
    }
}

PF_DEVICE void bias_scale(pf_scores *s, float alpha) {
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) s->x[e] *= alpha;
}

/* Their tangents, t = alpha t + that of the bias. */
PF_DEVICE void bias_add_tangent(bias_tiles *tiles, const pf_attention_kargs *a, int stage,
                                pf_scores *t) {
    if (a->tbias.address) {
        pf_bias_reader reader =
            pf_bias_reader_of(bias_tile(tiles, a, PF_MAP_TBIAS, stage), &a->tbias);
        bias_add_tile(t, &reader, a->alpha);
    } else
        bias_scale(t, a->alpha);
}

/* A bias of -inf excludes whatever the dot product is: an infinity, or a NaN of another row. */
PF_DEVICE void bias_exclude(pf_scores *s, pf_bias_reader *reader) {
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; e += PF_BIAS_RUN) {
        float x[PF_BIAS_RUN];
        pf_bias_read(reader, e, x);
        PF_UNROLL for (int u = 0; u < PF_BIAS_RUN; ++u) s->x[e + u] =
            x[u] == -PF_INFINITY ? -PF_INFINITY : s->x[e + u];
    }
}

PF_DEVICE void mask_exclude(pf_scores *s, const pf_bias_reader *reader) {
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; e += PF_BIAS_RUN) {
        bool keep[PF_BIAS_RUN];
        pf_mask_read(reader, e, keep);
        PF_UNROLL for (int u = 0; u < PF_BIAS_RUN; ++u) s->x[e + u] =
            keep[u] ? s->x[e + u] : -PF_INFINITY;
    }
}

/* Dot products become scores in natural units, -inf where bias or mask excludes, and their
 * tangents, 0 there. Does it exclude any? False is right for all of this thread's scores. */
PF_DEVICE bool bias_add(bias_tiles *tiles, const pf_attention_kargs *a, pf_scores *s, pf_ring *ring,
                        pf_ring_pos *pos) {
    const int stage = pos->take;
    bool excludes = false;
    pf_ring_take(ring, pos, a->bias_stages);
    if (a->bias.address) {
        pf_bias_reader reader =
            pf_bias_reader_of(bias_tile(tiles, a, PF_MAP_BIAS, stage), &a->bias);
        bias_add_tile(&s[0], &reader, a->alpha);
        if (pf_bias_excludes(&reader)) {
            bias_exclude(&s[0], &reader);
            excludes = true;
        }
    } else
        bias_scale(&s[0], a->alpha);
    if (PF_GROUP_T)
        bias_add_tangent(tiles, a, stage, &s[PF_GROUP_T]);
    if (a->mask.address) {
        const pf_bias_reader reader =
            pf_mask_reader_of(bias_tile(tiles, a, PF_MAP_MASK, stage), &a->mask);
        mask_exclude(&s[0], &reader);
        excludes = true;
    }
    if (PF_GROUP_T && excludes) {
        PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) s[PF_GROUP_T].x[e] =
            s[0].x[e] == -PF_INFINITY ? 0.f : s[PF_GROUP_T].x[e];
    }
    return excludes;
}

#endif
