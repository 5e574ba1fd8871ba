// SPDX-License-Identifier: Apache-2.0
// The order of work (kernels/work.h) as the test calls it.
#include "common/tuning.h"
#include "common/kernels/port.h"

extern "C" {
#include "scalar.h"
}
#include "scalar_tiles.h"

#define PF_OWNED_TILE SCALAR_OWNED_TILE
#define PF_CROSS_TILE SCALAR_CROSS_TILE
#define PF_OUT_DIM SCALAR_OUT_DIM
#define PF_STAGES SCALAR_STAGES
#include "port_scalar.h"

#include "common/kernels/work.h"

extern "C" bool work_find(const pf_attention_kargs *args, int blocks, int block, int round,
                          int *head, int *rank);

bool work_find(const pf_attention_kargs *args, int blocks, int block, int round, int *head,
               int *rank) {
    scalar_blocks = blocks;
    scalar_block = block;
    const int at = pf_work_find(args, round);
    if (at >= args->work_count)
        return false;
    const pf_work_place place = pf_work_place_of(args, at, pf_work_is_alone(args));
    *head = place.head;
    *rank = place.rank;
    return true;
}

extern "C" bool work_part(const pf_attention_kargs *args, int cluster, int n, int *item, int *tile0,
                          int *tile1);

bool work_part(const pf_attention_kargs *args, int cluster, int n, int *item, int *tile0,
               int *tile1) {
    const pf_work_part part = pf_work_part_of(&args->division, cluster, n);
    *item = part.item;
    *tile0 = part.tile0;
    *tile1 = part.tile1;
    return part.tile0 < part.tile1;
}

extern "C" int work_share_of(const pf_attention_kargs *args, int tile);

int work_share_of(const pf_attention_kargs *args, int tile) {
    return pf_share_of(&args->division, tile);
}
