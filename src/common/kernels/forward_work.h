/* SPDX-License-Identifier: Apache-2.0 */
/* What a workgroup of forward does: its queries, and the tiles of keys that it walks over.
 *
 * Piecewise attention is two walks over keys, the near ones with pair 0 and the far ones with pair
 * 1: the online softmax does not mind the order, so only tiles that straddle the threshold are
 * visited twice. */
#ifndef PF_KERNELS_FORWARD_WORK_H
#define PF_KERNELS_FORWARD_WORK_H

#include "split.h"

/* One workgroup's share of the problem: queries from i0 on of (b, h), which reads key/value head
 * hk, and of its keys [key0, key1); output channels from channel0 on. */
typedef struct forward_work {
    int b, h, hk, i0, channel0, key0, key1;
    int part; /* -1 where it is a whole item */
} forward_work;

PF_DEVICE forward_work forward_work_of(const pf_attention_kargs *a, const pf_piece *piece) {
    const pf_item item =
        pf_item_at(a, piece->place, PF_OWNED_TILE, PF_OUT_DIM, PF_HEAD_DIM / PF_OUT_DIM);
    forward_work w;
    w.b = item.b;
    w.h = item.h;
    w.hk = pf_quotient(w.h, &a->by_group);
    w.i0 = item.i0;
    w.channel0 = item.channel0;
    w.key0 = piece->begin * PF_CROSS_TILE;
    w.key1 = piece->end * PF_CROSS_TILE;
    w.part = piece->part;
    return w;
}

/* The end of its queries, worked out anew, since registers are few. Tiles are full but for the
 * first. */
PF_DEVICE int forward_end(const pf_attention_kargs *a, const forward_work *w) {
    return w->i0 > 0 ? w->i0 + PF_OWNED_TILE : a->queries - (a->by_tiles.value - 1) * PF_OWNED_TILE;
}

/* A walk over (pair, tile of keys), keys descending; done when pair == a->pairs. */
typedef struct key_walk {
    int pair, tile, last_tile;
    bool enters; /* the first tile of its pair */
} key_walk;

PF_DEVICE void key_walk_enter(key_walk *walk, const pf_attention_kargs *a, const forward_work *w) {
    walk->enters = true;
    for (; walk->pair < a->pairs; ++walk->pair) {
        const int begin = pf_max_int(w->key0, w->i0 - a->window_high[walk->pair] + 1);
        const int end = pf_min_int(pf_min_int(a->key_end[walk->pair], w->key1),
                                   forward_end(a, w) - a->window_low[walk->pair]);
        if (begin < end) {
            walk->tile = (end - 1) / PF_CROSS_TILE;
            walk->last_tile = begin / PF_CROSS_TILE;
            return;
        }
    }
}

PF_DEVICE key_walk key_walk_begin(const pf_attention_kargs *a, const forward_work *w) {
    key_walk walk = {0, 0, 0, true};
    key_walk_enter(&walk, a, w);
    return walk;
}

PF_DEVICE void key_walk_next(key_walk *walk, const pf_attention_kargs *a, const forward_work *w) {
    walk->enters = false;
    if (--walk->tile < walk->last_tile) {
        ++walk->pair;
        key_walk_enter(walk, a, w);
    }
}

PF_DEVICE bool key_walk_done(const key_walk *walk, const pf_attention_kargs *a) {
    return walk->pair >= a->pairs;
}

/* The next tile of the same pair; false, and as it was, where there is none. */
PF_DEVICE bool key_walk_next_of_pair(key_walk *walk) {
    if (walk->tile == walk->last_tile)
        return false;
    --walk->tile;
    walk->enters = false;
    return true;
}

PF_DEVICE bool key_walk_leaves(const key_walk *walk) {
    return walk->tile == walk->last_tile;
}

#endif
