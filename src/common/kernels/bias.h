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
#define PF_BIAS_LOOPS PF_STAGED_ANY
typedef struct pf_bias_place {
    int none;
} pf_bias_place;
typedef pf_bias_place pf_bias_reader;
PF_DEVICE void pf_bias_load(unsigned char *, const pf_source *, int, const pf_rows *, pf_ring *,
                            const pf_ring_pos *) {
}
PF_DEVICE pf_bias_place pf_bias_place_of(const unsigned char *, const pf_karg_tensor *) {
    return pf_bias_place();
}
PF_DEVICE pf_bias_reader pf_bias_reader_of(const pf_bias_place *, int) {
    return pf_bias_reader();
}
PF_DEVICE pf_bias_reader pf_mask_reader_of(const unsigned char *, const pf_karg_tensor *) {
    return pf_bias_reader();
}
PF_DEVICE void pf_bias_read(pf_bias_reader *, int, float *x) {
    x[0] = 0.f;
}
PF_DEVICE void pf_bias_hold(pf_bias_reader *) {
}
PF_DEVICE bool pf_bias_excludes(const pf_bias_reader *) {
    return false;
}
PF_DEVICE void pf_mask_exclude(const pf_bias_reader *, int, float *) {
}
typedef pf_bias_reader pf_mask_reader;
PF_DEVICE void pf_bias_put(unsigned char *, const pf_weights *) {
}
PF_DEVICE void pf_bias_send(const unsigned char *, const pf_source *, const pf_rows *) {
}
PF_DEVICE void pf_bias_sent() {
}
PF_DEVICE void pf_bias_clear(const pf_source *, const pf_rows *) {
}
#endif

/* Targets that read when they add. */
#ifndef PF_BIAS_HELD
#define PF_BIAS_HELD 0
#endif

/* The stages of a ring, each with the tiles of those tensors that the problem has. */
typedef struct alignas(PF_BIAS_BYTES > 0 ? 1024 : 16) bias_tiles {
    unsigned char bytes[PF_BIAS_BYTES > 0 ? PF_BIAS_BYTES : 16];
} bias_tiles;

/* Stages of the ring; 0 where scores are looked up element by element. */
PF_DEVICE int bias_stages(const pf_attention_kargs *a) {
    return PF_BIAS_BYTES > 0 ? a->bias_stages : 0;
}

/* Has each tensor a stage of its own? Not where there is room for all, and not in backward, where
 * dbias takes the place of the bias. */
PF_DEVICE bool bias_apart(const pf_attention_kargs *a) {
    const int all = (1 + PF_TANGENT) * PF_BIAS_TILE_BYTES(PF_TILE_QUERIES, PF_TILE_KEYS) +
                    PF_MASK_TILE_BYTES(PF_TILE_QUERIES, PF_TILE_KEYS);
    return PF_OP <= PF_OP_FORWARD_JVP && all > PF_BIAS_BYTES && PF_RARELY(a->bias_apart);
}

/* Has the problem a tensor of PF_MAP_BIAS, PF_MAP_TBIAS or PF_MAP_MASK? */
PF_DEVICE bool bias_has(const pf_attention_kargs *a, int map) {
    return map == PF_MAP_BIAS    ? a->bias.address != 0
           : map == PF_MAP_TBIAS ? PF_TANGENT && a->tbias.address != 0
                                 : a->mask.address != 0;
}

/* Bytes of a tile, 0 of a tensor that the problem has not. */
PF_DEVICE int bias_tile_bytes(const pf_attention_kargs *a, int map) {
    const int bytes = map == PF_MAP_MASK ? PF_MASK_TILE_BYTES(PF_TILE_QUERIES, PF_TILE_KEYS)
                                         : PF_BIAS_TILE_BYTES(PF_TILE_QUERIES, PF_TILE_KEYS);
    return bias_has(a, map) ? bytes : 0;
}

PF_DEVICE int bias_stage_bytes(const pf_attention_kargs *a) {
    if (bias_apart(a))
        return PF_BIAS_TILE_BYTES(PF_TILE_QUERIES, PF_TILE_KEYS);
    return bias_tile_bytes(a, PF_MAP_BIAS) + bias_tile_bytes(a, PF_MAP_TBIAS) +
           bias_tile_bytes(a, PF_MAP_MASK);
}

/* The tile of PF_MAP_BIAS, PF_MAP_TBIAS or PF_MAP_MASK in a stage. */
PF_DEVICE unsigned char *bias_tile(bias_tiles *tiles, const pf_attention_kargs *a, int map,
                                   int stage) {
    int before = 0;
    if (map != PF_MAP_BIAS && !bias_apart(a))
        before += bias_tile_bytes(a, PF_MAP_BIAS);
    if (map == PF_MAP_MASK && !bias_apart(a))
        before += bias_tile_bytes(a, PF_MAP_TBIAS);
    return tiles->bytes + stage * bias_stage_bytes(a) + before;
}

/* Load what belongs to the scores of queries from i0 on and keys from j0 on. */
PF_DEVICE void bias_fill(bias_tiles *tiles, const pf_source *source, const pf_attention_kargs *a,
                         pf_ring *ring, int b, int h, int i0, int j0, pf_ring_pos *pos) {
    const pf_rows rows = {b, h, i0, a->queries, 0, j0, 0};
    bool filling = false;
    PF_UNROLL for (int map = PF_MAP_BIAS; map <= PF_MAP_MASK; ++map) {
        if (!bias_has(a, map))
            continue;
        if (!filling)
            pf_ring_acquire(ring, pos, a->bias_stages);
        pf_bias_load(bias_tile(tiles, a, map, pos->fill), source, map, &rows, ring, pos);
        filling = !bias_apart(a);
        if (!filling)
            pf_ring_publish(ring, pos, a->bias_stages);
    }
    if (filling)
        pf_ring_publish(ring, pos, a->bias_stages);
}

/* From one tensor to the next, where each has a stage. */
PF_DEVICE void bias_proceed(const pf_attention_kargs *a, pf_ring *ring, pf_ring_pos *pos) {
    pf_ring_release(ring, pos, a->bias_stages);
    pf_ring_take(ring, pos, a->bias_stages);
}

/* Take what bias_fill loaded, and give back all stages but the last. */
PF_DEVICE void bias_skip(const pf_attention_kargs *a, pf_ring *ring, pf_ring_pos *pos) {
    const int tensors =
        bias_has(a, PF_MAP_BIAS) + bias_has(a, PF_MAP_TBIAS) + bias_has(a, PF_MAP_MASK);
    pf_ring_take(ring, pos, a->bias_stages);
    for (int n = 1; bias_apart(a) && n < tensors; ++n)
        bias_proceed(a, ring, pos);
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

/* A bias of -inf excludes whatever the dot product is: an infinity, or a NaN of another row. */
PF_DEVICE void bias_exclude_tile(pf_scores *s, pf_bias_reader *reader) {
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; e += PF_BIAS_RUN) {
        float x[PF_BIAS_RUN];
        pf_bias_read(reader, e, x);
        PF_UNROLL for (int u = 0; u < PF_BIAS_RUN; ++u) s->x[e + u] =
            x[u] == -PF_INFINITY ? -PF_INFINITY : s->x[e + u];
    }
}

PF_DEVICE void mask_exclude(pf_scores *s, const pf_mask_reader *reader) {
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; e += PF_BIAS_RUN)
        pf_mask_exclude(reader, e, &s->x[e]);
}

/* What a problem has staged. Loops over tiles are compiled for the two that are met most without
 * what these do not need, and once for all others. */
typedef enum bias_kind {
    BIAS_ANY = PF_STAGED_ANY, /* each tensor perhaps in a stage of its own, or none */
    BIAS_ONLY = PF_STAGED_BIAS,
    BIAS_MASK = PF_STAGED_MASK
} bias_kind;

PF_DEVICE bias_kind bias_kind_of(const pf_attention_kargs *a) {
    return (bias_kind)(PF_BIAS_LOOPS == PF_STAGED_EACH ? a->staged : PF_BIAS_LOOPS);
}

/* Where a thread reads bias and, at PF_T, its tangent in the first stage; what the next is apart.
 */
typedef struct bias_places {
    pf_bias_place of[1 + PF_TANGENT];
    int stage_bytes;
    bias_kind kind; /* known where a loop is compiled */
} bias_places;

/* bias_has, bias_apart and whether anything is staged, as far as possible without asking. */
PF_DEVICE bool bias_is(const bias_places *places, const pf_attention_kargs *a, int map) {
    return places->kind == BIAS_ANY ? bias_has(a, map)
                                    : (places->kind == BIAS_MASK) == (map == PF_MAP_MASK);
}

PF_DEVICE bool bias_is_apart(const bias_places *places, const pf_attention_kargs *a) {
    return places->kind == BIAS_ANY && bias_apart(a);
}

PF_DEVICE bool bias_is_staged(const bias_places *places, const pf_attention_kargs *a) {
    return places->kind != BIAS_ANY || bias_stages(a) > 0;
}

/* Are all of a tile's elements read, and so the tile given back, while products are under way? */
PF_DEVICE bool bias_is_held(const bias_places *places) {
    return PF_BIAS_HELD && places->kind == BIAS_ONLY;
}

/* Are scores in natural units once this is done with them? With a mask alone they stay dot
 * products. */
PF_DEVICE bool bias_is_natural(const bias_places *places) {
    return PF_GENERAL && places->kind != BIAS_MASK;
}

PF_DEVICE bias_places bias_places_of(bias_tiles *tiles, const pf_attention_kargs *a) {
    bias_places places;
    places.of[0] = pf_bias_place_of(bias_tile(tiles, a, PF_MAP_BIAS, 0), &a->bias);
    if (PF_TANGENT)
        places.of[PF_T] = pf_bias_place_of(bias_tile(tiles, a, PF_MAP_TBIAS, 0), &a->tbias);
    places.stage_bytes = bias_stage_bytes(a);
    places.kind = BIAS_ANY;
    PF_KEEP(places.stage_bytes);
    return places;
}

/* Of the bias, or with n = PF_T of its tangent, in the stage that was taken. */
PF_DEVICE pf_bias_reader bias_reader_of(const bias_places *places, int n, const pf_ring_pos *pos) {
    return pf_bias_reader_of(&places->of[n], pos->take * places->stage_bytes);
}

typedef struct bias_readers {
    pf_bias_reader of[1 + PF_GROUP_T];
    bool excludes; /* the bias, something of what was read */
} bias_readers;

PF_DEVICE void bias_make_readers(bias_readers *readers, const bias_places *places,
                                 const pf_ring_pos *pos) {
    readers->of[0] = bias_reader_of(places, 0, pos);
    if (PF_GROUP_T)
        readers->of[PF_GROUP_T] = bias_reader_of(places, PF_T, pos);
}

/* Wait for the tiles of the next scores, and read them, while their products are under way. */
PF_DEVICE void bias_take(bias_readers *readers, const bias_places *places,
                         const pf_attention_kargs *a, pf_ring *ring, pf_ring_pos *pos) {
    pf_ring_take(ring, pos, a->bias_stages);
    if (!bias_is_held(places))
        return;
    bias_make_readers(readers, places, pos);
    pf_bias_hold(&readers->of[0]);
    if (PF_GROUP_T)
        pf_bias_hold(&readers->of[PF_GROUP_T]);
    readers->excludes = pf_bias_excludes(&readers->of[0]);
}

/* Tangents of scores that are not kept are 0. */
PF_DEVICE void bias_clear_tangents(pf_scores *s) {
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) s[PF_GROUP_T].x[e] =
        s[0].x[e] == -PF_INFINITY ? 0.f : s[PF_GROUP_T].x[e];
}

PF_DEVICE void bias_add_mask(pf_scores *s, bias_tiles *tiles, const pf_attention_kargs *a,
                             const pf_ring_pos *pos) {
    const pf_mask_reader reader =
        pf_mask_reader_of(bias_tile(tiles, a, PF_MAP_MASK, pos->take), &a->mask);
    mask_exclude(&s[0], &reader);
}

/* bias_apply where each tensor has a stage of its own. */
PF_DEVICE bool bias_add_apart(const bias_places *places, bias_tiles *tiles,
                              const pf_attention_kargs *a, pf_scores *s, pf_ring *ring,
                              pf_ring_pos *pos) {
    const bool mask = bias_has(a, PF_MAP_MASK);
    bool excludes = mask;
    if (bias_has(a, PF_MAP_BIAS)) {
        pf_bias_reader reader = bias_reader_of(places, 0, pos);
        bias_add_tile(&s[0], &reader, a->alpha);
        if (pf_bias_excludes(&reader)) {
            bias_exclude_tile(&s[0], &reader);
            excludes = true;
        }
        bias_proceed(a, ring, pos);
    } else
        bias_scale(&s[0], a->alpha);
    if (PF_GROUP_T && bias_has(a, PF_MAP_TBIAS)) {
        pf_bias_reader reader = bias_reader_of(places, PF_T, pos);
        bias_add_tile(&s[PF_GROUP_T], &reader, a->alpha);
    } else if (PF_GROUP_T)
        bias_scale(&s[PF_GROUP_T], a->alpha);
    if (bias_has(a, PF_MAP_TBIAS) && mask)
        bias_proceed(a, ring, pos);
    if (mask)
        bias_add_mask(s, tiles, a, pos);
    return excludes;
}

/* Dot products become scores in natural units, and their tangents. Does bias or mask exclude any,
 * so that bias_exclude is to follow? False is right for all of this thread's scores. */
PF_DEVICE bool bias_add(bias_readers *readers, const bias_places *places, bias_tiles *tiles,
                        const pf_attention_kargs *a, pf_scores *s, pf_ring *ring,
                        pf_ring_pos *pos) {
    if (bias_is_apart(places, a))
        return bias_add_apart(places, tiles, a, s, ring, pos);
    if (places->kind == BIAS_MASK)
        return true;
    const bool mask = bias_is(places, a, PF_MAP_MASK);
    if (!bias_is_held(places))
        bias_make_readers(readers, places, pos);
    bool excludes = false;
    if (bias_is(places, a, PF_MAP_BIAS)) {
        bias_add_tile(&s[0], &readers->of[0], a->alpha);
        if (!bias_is_held(places))
            readers->excludes = pf_bias_excludes(&readers->of[0]);
        excludes = readers->excludes;
    } else
        bias_scale(&s[0], a->alpha);
    if (PF_GROUP_T && bias_is(places, a, PF_MAP_TBIAS))
        bias_add_tile(&s[PF_GROUP_T], &readers->of[PF_GROUP_T], a->alpha);
    else if (PF_GROUP_T)
        bias_scale(&s[PF_GROUP_T], a->alpha);
    return excludes || mask;
}

/* Scores that bias or mask excludes become -inf, where bias_add has not made them so already. */
PF_DEVICE void bias_exclude(bias_readers *readers, const bias_places *places, bias_tiles *tiles,
                            const pf_attention_kargs *a, pf_scores *s, const pf_ring_pos *pos) {
    if (bias_is_apart(places, a))
        return;
    if (bias_is(places, a, PF_MAP_BIAS) && readers->excludes)
        bias_exclude_tile(&s[0], &readers->of[0]);
    if (bias_is(places, a, PF_MAP_MASK))
        bias_add_mask(s, tiles, a, pos);
}

/* Both. Are some scores excluded? False is right likewise. */
PF_DEVICE bool bias_apply(bias_readers *readers, const bias_places *places, bias_tiles *tiles,
                          const pf_attention_kargs *a, pf_scores *s, pf_ring *ring,
                          pf_ring_pos *pos) {
    const bool excludes = bias_add(readers, places, tiles, a, s, ring, pos);
    if (PF_RARELY(excludes))
        bias_exclude(readers, places, tiles, a, s, pos);
    return excludes;
}

/* bias_take of a group that has the tangents alone. */
PF_DEVICE void bias_take_tangent(pf_bias_reader *held, const bias_places *places,
                                 const pf_attention_kargs *a, pf_ring *ring, pf_ring_pos *pos) {
    pf_ring_take(ring, pos, a->bias_stages);
    *held = bias_reader_of(places, PF_T, pos);
    if (bias_is_held(places))
        pf_bias_hold(held);
}

/* Its bias_add, t = alpha t + the tangent of the bias; what else bias_fill loaded is taken too, and
 * the last stage remains to be given back where it was not held. */
PF_DEVICE void bias_add_tangent(pf_bias_reader *held, const bias_places *places,
                                const pf_attention_kargs *a, pf_scores *t, pf_ring *ring,
                                pf_ring_pos *pos) {
    if (bias_is_held(places)) {
        bias_add_tile(t, held, a->alpha);
        return;
    }
    if (bias_is_apart(places, a) && bias_has(a, PF_MAP_BIAS))
        bias_proceed(a, ring, pos);
    if (bias_is(places, a, PF_MAP_TBIAS)) {
        pf_bias_reader reader = bias_reader_of(places, PF_T, pos);
        bias_add_tile(t, &reader, a->alpha);
        if (bias_is_apart(places, a) && bias_has(a, PF_MAP_MASK))
            bias_proceed(a, ring, pos);
    } else
        bias_scale(t, a->alpha);
}

#endif
