/* SPDX-License-Identifier: Apache-2.0 */
/* What a workgroup of forward does: its queries, and the tiles of keys that it walks over.
 *
 * Piecewise attention is two walks over keys, the near ones with pair 0 and the far ones with pair
 * 1: the online softmax does not mind the order, so only tiles that straddle the threshold are
 * visited twice. */
#ifndef PF_KERNELS_FORWARD_WORK_H
#define PF_KERNELS_FORWARD_WORK_H

#include "work.h"

/* One workgroup's share of the problem: queries [i0, i1) of (b, h), which reads key/value head hk;
 * output channels from channel0, and of the keys those of one split. */
typedef struct forward_work {
    int b, h, hk, i0, i1, channel0, split;
} forward_work;

/* The last rows are the longest where attention is causal; what does not fill a tile comes first,
 * where it is the shortest. Heads that share keys are side by side, splits far apart. */
PF_DEVICE forward_work forward_work_at(const pf_attention_kargs *a, int index) {
    const int parts = PF_HEAD_DIM / PF_OUT_DIM;
    const pf_work_place place = pf_work_place_of(a, index, pf_work_is_alone(a));
    const int heads = a->batch * a->heads, rest = place.head / parts;
    forward_work w;
    w.split = a->splits > 1 ? rest / heads : 0;
    const int bh = rest - w.split * heads;
    w.channel0 = place.head % parts * PF_OUT_DIM;
    w.b = pf_quotient(bh, &a->by_heads);
    w.h = bh - w.b * a->heads;
    w.hk = pf_quotient(w.h, &a->by_group);
    w.i1 = a->queries - place.rank * PF_OWNED_TILE;
    w.i0 = pf_max_int(w.i1 - PF_OWNED_TILE, 0);
    return w;
}

/* A walk over (pair, tile of keys), keys descending; done when pair == a->pairs. */
typedef struct key_walk {
    int pair, tile, last_tile;
    bool enters; /* the first tile of its pair */
} key_walk;

PF_DEVICE void key_walk_enter(key_walk *walk, const pf_attention_kargs *a, const forward_work *w) {
    walk->enters = true;
    for (; walk->pair < a->pairs; ++walk->pair) {
        const int key0 = w->split * a->split_keys;
        const int begin = pf_max_int(key0, w->i0 - a->window_high[walk->pair] + 1);
        const int end = pf_min_int(pf_min_int(a->key_end[walk->pair], key0 + a->split_keys),
                                   w->i1 - a->window_low[walk->pair]);
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

/* Each split's results are a batch of their own. */
PF_DEVICE int forward_out_batch(const pf_attention_kargs *a, const forward_work *w) {
    return w->split * a->batch + w->b;
}

#endif
