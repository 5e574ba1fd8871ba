/* SPDX-License-Identifier: Apache-2.0 */
/* Backward's walk over tiles of queries as the test calls it. */
#ifndef WALK_LIST_H
#define WALK_LIST_H

#include "kargs.h"

typedef void walk_visit(void *context, int head, int tile);

/* Calls `visit` for each tile of queries of each head of the group, in the order in which a whole
 * tile of keys of head 0 walks over them. */
void walk_queries(const pf_attention_kargs *args, int key_tile, walk_visit *visit, void *context);

#endif
