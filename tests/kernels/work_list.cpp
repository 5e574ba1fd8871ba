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
    const pf_work_place place = pf_work_place_of(args, at);
    *head = place.head;
    *rank = place.rank;
    return true;
}
