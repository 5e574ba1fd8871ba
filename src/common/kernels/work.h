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

/* The item of a list of `count` that the workgroup does in a round; `count` where nothing is left.
 * Where workgroups do several, each does two neighbours of the list in two rounds, as long as there
 * are two for each. */
PF_DEVICE int pf_work_index(int round, int count) {
    if (pf_clusters() >= count)
        return round == 0 ? (int)pf_cluster() : count;
    const unsigned blocks = (unsigned)pf_clusters(), slot = (unsigned)pf_cluster();
    const unsigned base = (unsigned)(round / 2 * 2) * blocks;
    const bool in_order = (int)((unsigned)count - base) <= (int)blocks;
    const unsigned index = base + (in_order ? round % 2 * blocks + slot : 2 * slot + round % 2);
    return index < (unsigned)count ? (int)index : count;
}

/* The order of `count` tiles of which the first are the longest: as it is where each workgroup does
 * one, otherwise from both ends, so that any two neighbours are about as long as any others. */
PF_DEVICE int pf_work_tile(int n, int count, int work_count) {
    if (pf_clusters() >= work_count)
        return n;
    return n % 2 ? count - 1 - n / 2 : n / 2;
}

/* An item: the head, and how many tiles of it are longer. */
typedef struct pf_work_place {
    int head, rank;
} pf_work_place;

/* The item at a place of the list where each workgroup does one pair of neighbours after the
 * other. */
PF_DEVICE pf_work_place pf_work_neighbour(const pf_attention_kargs *a, int index) {
    pf_work_place place;
    place.head = pf_quotient(index, &a->by_tiles);
    place.rank =
        pf_work_tile(index - place.head * a->by_tiles.value, a->by_tiles.value, a->work_count);
    return place;
}

/* The item that the workgroup does in a round; no head, -1, where nothing is left. Workgroups do
 * pairs of neighbours, a long and a short item each: what they share stays in the cache. In each
 * round they move up by one, or a workgroup could always get the longest of all pairs. Where
 * lengths differ the last heads' items are dealt out one by one, the longest first and every other
 * time from the other end, so that all workgroups end at about the same time. */
PF_DEVICE pf_work_place pf_work_find(const pf_attention_kargs *a, int round) {
    const pf_work_place none = {-1, 0};
    const pf_work_order *order = &a->order;
    const int block = (int)pf_cluster(), blocks = (int)pf_clusters();
    if (pf_clusters() >= a->work_count) {
        return round == 0 && block < a->work_count ? pf_work_neighbour(a, block) : none;
    }
    const int whole = pf_min_int(round / 2, order->rounds), moved = block + whole;
    const int slot = moved - pf_quotient(moved, &order->by_blocks) * blocks;
    int more = round - 2 * whole; /* rounds since the last whole one */
    const int pair = whole * blocks + slot;
    if (whole < order->rounds || (slot < order->pairs_left && more < 2)) {
        return pf_work_neighbour(a, 2 * pair + more);
    }
    if (order->by_last.value == 0) {
        const unsigned index = (unsigned)(2 * whole + more) * (unsigned)blocks + (unsigned)slot;
        return index < (unsigned)a->work_count ? pf_work_neighbour(a, (int)index) : none;
    }
    more -= slot < order->pairs_left; /* a pair was one turn */
    const int at = more * blocks + (more % 2 ? blocks - 1 - slot : slot) - order->pairs_left;
    pf_work_place place;
    place.rank = pf_quotient(at, &order->by_last);
    place.head = order->first_last + at - place.rank * order->by_last.value;
    return place.rank < a->by_tiles.value ? place : none;
}

#endif
