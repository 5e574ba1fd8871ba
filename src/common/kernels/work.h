/* SPDX-License-Identifier: Apache-2.0 */
/* Which items of work a workgroup does, and in which order. A list of work has heads one after the
 * other, and of each head its tiles. */
#ifndef PF_KERNELS_WORK_H
#define PF_KERNELS_WORK_H

#include "common.h"

/* n / by->value, for 0 <= n. */
PF_DEVICE int pf_quotient(int n, const pf_divisor *by) {
    const unsigned upper =
        (unsigned)((unsigned long long)(unsigned)n * by->multiplier >> 32) >> by->shift;
    return by->multiplier == 0 ? n : (int)upper;
}

/* Does each workgroup do one item alone? */
PF_DEVICE bool pf_work_is_alone(const pf_attention_kargs *a) {
    return pf_clusters() >= a->work_count;
}

/* The order of `count` tiles of which the first are the longest: as it is where each workgroup does
 * one, otherwise from both ends, so that any two neighbours are about as long as any others. */
PF_DEVICE int pf_work_tile(int n, int count, bool alone) {
    if (alone)
        return n;
    return n % 2 ? count - 1 - n / 2 : n / 2;
}

/* The item that the workgroup does in a round, a place in the list; work_count where nothing is
 * left. Items of one length are dealt out one by one: neighbours read what they share at the same
 * time. Where lengths differ workgroups do pairs of neighbours, a long and a short item each: what
 * they share stays in the cache. In each round they move up by one, or a workgroup could always get
 * the longest of all pairs. The last heads' items are dealt out one by one, the longest first and
 * every other time from the other end, so that all workgroups end at about the same time. */
PF_DEVICE int pf_work_find(const pf_attention_kargs *a, int round) {
    const pf_work_order *order = &a->order;
    const int block = (int)pf_cluster(), blocks = (int)pf_clusters();
    if (pf_work_is_alone(a))
        return round == 0 ? block : a->work_count;
    if (order->by_last.value == 0) {
        const unsigned index = (unsigned)round * (unsigned)blocks + (unsigned)block;
        return index < (unsigned)a->work_count ? (int)index : a->work_count;
    }
    const int whole = pf_min_int(round / 2, order->rounds), moved = block + whole;
    const int slot = moved - pf_quotient(moved, &order->by_blocks) * blocks;
    int more = round - 2 * whole; /* rounds since the last whole one */
    if (whole < order->rounds || (slot < order->pairs_left && more < 2))
        return 2 * (whole * blocks + slot) + more;
    more -= slot < order->pairs_left; /* a pair was one turn */
    const int at = more * blocks + (more % 2 ? blocks - 1 - slot : slot) - order->pairs_left;
    return pf_min_int(order->first_last * a->by_tiles.value + at, a->work_count);
}

/* An item: the head, and how many tiles of it are longer. */
typedef struct pf_work_place {
    int head, rank;
} pf_work_place;

/* What lies at a place of the list: tiles of one head after the other, but of the last heads,
 * where they are dealt out, the longest tiles of all heads, then the next. */
PF_DEVICE pf_work_place pf_work_place_of(const pf_attention_kargs *a, int index, bool alone) {
    const int tiles = a->by_tiles.value, last = a->order.by_last.value;
    const int at = index - a->order.first_last * tiles;
    pf_work_place place;
    if (!alone && last > 0 && at >= 0) {
        place.rank = pf_quotient(at, &a->order.by_last);
        place.head = a->order.first_last + at - place.rank * last;
    } else {
        place.head = pf_quotient(index, &a->by_tiles);
        /* Unsigned: what comes after a workgroup's last item may lie before the list, and wrap. */
        const unsigned before = (unsigned)place.head * (unsigned)tiles;
        place.rank = pf_work_tile((int)((unsigned)index - before), tiles, alone);
    }
    return place;
}

typedef struct pf_batch_head {
    int b, h; /* in backward a key/value head */
} pf_batch_head;

/* The n-th of the list. */
PF_DEVICE pf_batch_head pf_batch_head_of(const pf_attention_kargs *a, int n) {
    const int outer = pf_quotient(n, &a->by_inner), inner = n - outer * a->by_inner.value;
    const pf_batch_head batch_first = {inner, outer}, head_first = {outer, inner};
    return a->batches_inner ? batch_first : head_first;
}

/* Divided items (pf_division): their tiles of queries in one row, of which each cluster takes the
 * next few. */
PF_DEVICE int pf_share_begin(const pf_division *d, int cluster) {
    return cluster * d->each + pf_min_int(cluster, d->more);
}

/* The cluster that has a tile of the row. */
PF_DEVICE int pf_share_of(const pf_division *d, int tile) {
    const int longer = d->more * (d->each + 1); /* tiles of the clusters that have one more */
    return tile < longer ? tile / (d->each + 1) : d->more + (tile - longer) / d->each;
}

/* Tiles [tile0, tile1) of an item. */
typedef struct pf_work_part {
    int item, tile0, tile1;
} pf_work_part;

/* The n-th part of a cluster's share, which has two at most; empty where it has no such. */
PF_DEVICE pf_work_part pf_work_part_of(const pf_division *d, int cluster, int n) {
    const int begin = pf_share_begin(d, cluster), end = pf_share_begin(d, cluster + 1);
    pf_work_part part;
    part.item = pf_quotient(begin, &d->by_tiles) + n;
    const int first = part.item * d->by_tiles.value;
    part.tile0 = pf_max_int(begin - first, 0);
    part.tile1 = n < 2 ? pf_min_int(end - first, d->by_tiles.value) : 0;
    return part;
}

#endif
