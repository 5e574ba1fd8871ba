/* SPDX-License-Identifier: Apache-2.0 */
/* Which cases `pfattn check` runs. */
#ifndef CASE_LIST_H
#define CASE_LIST_H

#include "check_case.h"

typedef struct case_list {
    check_case *items;
    size_t count, capacity;
} case_list;

/* What the device can be asked to do, so that the whole list takes minutes: the FLOPs of one case,
 * and the bytes of its memory. */
typedef struct case_limits {
    double flops;
    double bytes;
} case_limits;

/* One or two small cases for each operation, type and feature: seconds on one core. */
void case_list_quick(case_list *list);

/* Every operation, type, feature and head dimension, in problems so small that a simulator of a GPU
 * does them in minutes, and yet larger than a tile. */
void case_list_simulator(case_list *list);

/* Shapes around every tile boundary, every pair of head dimensions, every feature by itself for
 * each operation and type, the awkward ones by name, large problems compared in samples, and
 * `seed`ed random problems that compose all of it. */
void case_list_full(case_list *list, const case_limits *limits, uint64_t seed);

/* Few queries against thousands of keys, with every feature: what GPU backends share out. */
void case_list_decode(case_list *list);
void case_list_last_round(case_list *list);

/* Bias and mask that kernels may load tile by tile. */
void case_list_staged(case_list *list);

/* Add the case of a text; false with a message where it has none. */
bool case_list_add_text(case_list *list, const char *text, char *message, size_t size);

/* Add the case of a formatted text that is known to have one. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void case_list_add(case_list *list, const char *format, ...);

/* `count` random cases. */
void case_list_random(case_list *list, uint64_t seed, int count);

void case_list_free(case_list *list);

#endif
