/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over a fragment of scores whose body is long: a bias or dbias in memory, of a type known at
 * run time. */
#ifndef PF_KERNELS_SCORES_H
#define PF_KERNELS_SCORES_H

#include "common.h"

/* Elements in an iteration. A fragment is indexed by constants alone, so the loop
 *     PF_ROLLED for (int e = 0; e < PF_SCORE_COUNT; e += PF_SCORE_STEP) {
 *         PF_UNROLL for (int u = 0; u < PF_SCORE_STEP; ++u) ...element e + u, which is x[u]...
 *         pf_scores_turn(s);
 *     }
 * turns it round, and back to where it was in the end. */
#ifndef PF_SCORE_STEP
#define PF_SCORE_STEP PF_SCORE_COUNT
#endif

PF_DEVICE void pf_scores_turn(pf_scores *s) {
    const pf_scores old = *s;
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) s->x[e] =
        old.x[(e + PF_SCORE_STEP) % PF_SCORE_COUNT];
}

#endif
