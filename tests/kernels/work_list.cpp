// SPDX-License-Identifier: Apache-2.0
// The order of work (kernels/work.h, split.h) as the test calls it.
#include "port_scalar.h"

extern "C" {
#include "work_list.h"
}

#include "common/kernels/split.h"

bool work_find(const pf_attention_kargs *args, int blocks, int block, int round, int *head,
               int *rank, work_piece *of) {
    scalar_blocks = blocks;
    scalar_block = block;
    pf_piece piece;
    if (!pf_piece_of_round(args, round, WORK_ALL_TILES, &piece))
        return false;
    const pf_work_place place =
        pf_work_place_of(args, piece.place, args->order.by_blocks.value == 0);
    *head = place.head;
    *rank = place.rank;
    of->begin = piece.begin;
    of->end = piece.end;
    of->part = piece.part;
    of->item = piece.place - args->split.first;
    return true;
}

bool work_part(const pf_attention_kargs *args, int cluster, int n, int *item, int *tile0,
               int *tile1) {
    const pf_work_part part = pf_work_part_of(&args->division, cluster, n);
    *item = part.item;
    *tile0 = part.tile0;
    *tile1 = part.tile1;
    return part.tile0 < part.tile1;
}

int work_share_of(const pf_attention_kargs *args, int tile) {
    return pf_share_of(&args->division, tile);
}

void parts_find(const pf_attention_kargs *args, int item, int *first, int *count) {
    const pf_part_span span = pf_parts_of(args, item);
    *first = span.first;
    *count = span.count;
}
