/* SPDX-License-Identifier: Apache-2.0 */
/* Items of forward's list, whole or in part. Where a last round would leave workgroups idle, or
 * there are fewer items than workgroups, items are split by keys (pf_key_split): each workgroup
 * does its whole items, then a range of the tiles of keys of those that are split, and
 * pf_merge_splits joins what comes of it. */
#ifndef PF_KERNELS_SPLIT_H
#define PF_KERNELS_SPLIT_H

#include "work.h"

/* Queries [i0, i1) of (b, h), and output channels from channel0 on. */
typedef struct pf_item {
    int b, h, i0, i1, channel0;
} pf_item;

/* The item at a place of the list. The last rows are the longest where attention is causal; what
 * does not fill a tile comes first, where it is the shortest. Each `channel_parts` items share
 * queries. */
PF_DEVICE pf_item pf_item_at(const pf_attention_kargs *a, int index, int rows, int channels,
                             int channel_parts) {
    const pf_work_place place = pf_work_place_of(a, index, a->order.by_blocks.value == 0);
    const pf_batch_head bh = pf_batch_head_of(a, place.head / channel_parts);
    pf_item item;
    item.channel0 = place.head % channel_parts * channels;
    item.b = bh.b;
    item.h = bh.h;
    item.i1 = a->queries - place.rank * rows;
    item.i0 = pf_max_int(item.i1 - rows, 0);
    return item;
}

/* Tiles of keys [begin, end) of the item at a place of the list. */
typedef struct pf_piece {
    int place, begin, end;
    int part; /* its number, -1 where the item is whole */
} pf_piece;

/* What a workgroup does of its range in a round: one item in each. */
PF_DEVICE bool pf_piece_find(const pf_attention_kargs *a, int round, pf_piece *piece) {
    const pf_key_split *split = &a->split;
    const int range = (int)pf_cluster(), tiles = split->by_tiles.value;
    const int begin = range * split->by_length.value;
    const int end = pf_min_int(begin + split->by_length.value, split->items * tiles);
    const int item = pf_quotient(begin, &split->by_tiles) + round - split->round;
    piece->place = split->first + item;
    piece->begin = pf_max_int(begin - item * tiles, 0);
    piece->end = pf_min_int(end - item * tiles, tiles);
    piece->part = range + item;
    return piece->begin < piece->end;
}

/* What a workgroup does in a round; false where nothing is left. A whole item has tiles of keys
 * from 0 to `most`, which is more than there are. */
PF_DEVICE bool pf_piece_of_round(const pf_attention_kargs *a, int round, int most,
                                 pf_piece *piece) {
    piece->place = pf_work_find(a, round);
    piece->begin = 0;
    piece->end = most;
    piece->part = -1;
    return piece->place < a->work_count || pf_piece_find(a, round, piece);
}

/* The parts of a split item, of which there are two at least. */
typedef struct pf_part_span {
    int first, count;
} pf_part_span;

PF_DEVICE pf_part_span pf_parts_of(const pf_attention_kargs *a, int item) {
    const int tiles = a->split.by_tiles.value;
    const int first = pf_quotient(item * tiles, &a->split.by_length);
    const int last = pf_quotient((item + 1) * tiles - 1, &a->split.by_length);
    const pf_part_span span = {first + item, last - first + 1};
    return span;
}

#endif
