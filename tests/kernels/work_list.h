/* SPDX-License-Identifier: Apache-2.0 */
/* The order of work as the test calls it. */
#ifndef WORK_LIST_H
#define WORK_LIST_H

#include <stdbool.h>

#include "kargs.h"

enum { WORK_ALL_TILES = 1 << 20 };

/* Tiles of keys [begin, end) of an item, all for a whole one, whose part is -1; of others `item`
 * counts those that are split. */
typedef struct work_piece {
    int begin, end, part, item;
} work_piece;

/* What a workgroup does in a round; false where nothing is left. */
bool work_find(const pf_attention_kargs *args, int blocks, int block, int round, int *head,
               int *rank, work_piece *piece);

/* The parts of a split item that the merge joins. */
void parts_find(const pf_attention_kargs *args, int item, int *first, int *count);

/* The n-th part of a cluster's share of backward's divided items, tiles of queries [tile0, tile1)
 * of one; false where there is none. And the cluster that has a tile of these items. */
bool work_part(const pf_attention_kargs *args, int cluster, int n, int *item, int *tile0,
               int *tile1);
int work_share_of(const pf_attention_kargs *args, int tile);

#endif
