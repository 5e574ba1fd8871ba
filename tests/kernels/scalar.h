/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel source under the scalar port, behind the table of a backend, and one image of it. */
#ifndef SCALAR_H
#define SCALAR_H

#include "backend.h"

/* Device 0, and one where e5m2 is widened for the f16 kernels. */
enum { SCALAR_WIDENS = 1 };

extern const pf_backend scalar_backend;

/* Stop the test: a kernel broke the contract of the portability layer. */
#ifdef __cplusplus
extern "C"
#endif
    void
    scalar_fail(const char *what);

/* Run one kernel of an image: `entry` is a pf_entry. */
typedef void scalar_image(const void *args, int entry, int blocks, int threads);

#endif
