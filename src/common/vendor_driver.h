/* SPDX-License-Identifier: Apache-2.0 */
/* What the drivers of both vendors need: they are opened once a process, and an error of theirs
 * comes with what to do about it. */
#ifndef PF_VENDOR_DRIVER_H
#define PF_VENDOR_DRIVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include <pfattn/pfattn.h>

#include "dl.h"

typedef struct pf_driver_advice {
    int result; /* the driver's error code */
    pfattn_status status;
    const char *what; /* to do about it */
} pf_driver_advice;

/* The thread's error from a failed call: `name` and `text` are the driver's own of `result`, or
 * NULL. The last row of `advices` is for every result that the others do not name. */
pfattn_status pf_driver_error(const char *backend, const char *call, int result, const char *name,
                              const char *text, const pf_driver_advice *advices, size_t count);

typedef struct pf_driver_library {
    const char *backend;
    const char *variable; /* PFATTN_* that overrides `paths` */
    const char *const *paths;
    const pf_dl_symbol *symbols;
    void *table;
    pfattn_status (*start)(void *table); /* initialise the driver */
    pthread_mutex_t lock;
    bool is_open;
} pf_driver_library;

/* Fill the table and start the driver, unless that is done; after a failure the next call tries
 * again. The library stays open as long as the process. */
pfattn_status pf_driver_open(pf_driver_library *library);

#endif
