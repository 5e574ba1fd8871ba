/* SPDX-License-Identifier: Apache-2.0 */
#include "backend_list.h"

#include <stddef.h>

static const pf_backend *const backends[] = {
#define X(table) &table,
    PF_BACKENDS(X)
#undef X
};

enum { BACKEND_COUNT = sizeof backends / sizeof backends[0] };

const pf_backend *pf_backend_get(pfattn_backend id) {
    for (int i = 0; i < BACKEND_COUNT; i++) {
        if (backends[i]->id == id) {
            return backends[i];
        }
    }
    return NULL;
}

/* How many backends go before backends[i]: those of higher priority, or of equal priority and
 * listed earlier. */
static int rank_of(int i) {
    int rank = 0;
    for (int j = 0; j < BACKEND_COUNT; j++) {
        int higher = backends[j]->priority > backends[i]->priority;
        int equal = backends[j]->priority == backends[i]->priority;
        rank += higher || (equal && j < i);
    }
    return rank;
}

const pf_backend *pf_backend_at(int index) {
    for (int i = 0; i < BACKEND_COUNT; i++) {
        if (rank_of(i) == index) {
            return backends[i];
        }
    }
    return NULL;
}
