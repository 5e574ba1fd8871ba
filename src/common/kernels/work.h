/* SPDX-License-Identifier: Apache-2.0 */
/* Which items of work a workgroup does, and in which order. */
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

#endif
