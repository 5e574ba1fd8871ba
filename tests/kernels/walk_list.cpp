// SPDX-License-Identifier: Apache-2.0
// Backward's walk over tiles of queries (kernels/backward_step.h) as the test calls it.
#include "port_scalar.h"

extern "C" {
#include "walk_list.h"
}

#include "common/kernels/backward_step.h"

static_assert(PF_SPREADS_WALKS, "the walk under test");

void walk_queries(const pf_attention_kargs *args, int key_tile, walk_visit *visit, void *context) {
    backward_work work = {};
    work.j0 = key_tile * PF_CLUSTER_KEYS;
    work.j1 = pf_min_int(work.j0 + PF_OWNED_TILE, args->keys);
    work.slot = -1;
    for (query_walk walk = query_walk_begin(args, &work, 0); !query_walk_done(&walk, args, &work);
         query_walk_next(&walk, args, &work))
        visit(context, walk.at.h, walk.at.tile);
}
