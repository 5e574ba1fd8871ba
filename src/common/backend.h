/* SPDX-License-Identifier: Apache-2.0 */
/* What a backend is to the rest of the library: one table of function pointers. */
#ifndef PF_BACKEND_H
#define PF_BACKEND_H

#include <pfattn/pfattn.h>

#include "call.h"
#include "problem.h"
#include "select.h"

typedef struct pf_device pf_device; /* each backend's own */

/* Device memory, streams and timing, for the tools and the tests; the library itself never calls
 * them. A stream is the public void *; a timer is a pair of device events. */
typedef struct pf_memory_ops {
    pfattn_status (*allocate)(pf_device *device, size_t bytes, void **memory);
    void (*release)(pf_device *device, void *memory);
    pfattn_status (*upload)(pf_device *device, void *to, const void *from_host, size_t bytes);
    pfattn_status (*download)(pf_device *device, void *to_host, const void *from, size_t bytes);
    pfattn_status (*synchronize)(pf_device *device);
    /* Seconds that the work enqueued on the default stream between start and stop took. */
    pfattn_status (*timer_start)(pf_device *device);
    pfattn_status (*timer_stop)(pf_device *device, double *seconds);
} pf_memory_ops;

typedef struct pf_backend {
    pfattn_backend id;
    const char *name;
    int priority; /* `auto` takes the available backend with the highest */
    /* Open the driver and count usable devices. UNAVAILABLE with its reason where there is none.
     * On success `summary` (at most `size` bytes) says what was found, in one sentence. */
    pfattn_status (*probe)(int32_t *device_count, char *summary, size_t size);
    pfattn_status (*device_info)(int32_t index, pfattn_device_info *info);
    pfattn_status (*device_open)(int32_t index, pf_device **device);
    void (*device_close)(pf_device *device);
    /* SUCCESS and the plan of a GPU backend, or UNSUPPORTED with its reason. A GPU backend loads
     * the kernels of the plan here, the first time; afterwards it makes no driver call. */
    pfattn_status (*plan)(pf_device *device, const pf_problem *problem, pf_plan *plan);
    /* Called with the plan of the problem. */
    size_t (*workspace_size)(pf_device *device, const pf_problem *problem, const pf_plan *plan);
    /* Enqueue the call. Its arguments are filled here, unless they are already. */
    pfattn_status (*launch)(pf_device *device, pf_call *call, void *stream);
    /* Give up what a backend keeps in a call that was launched; NULL where that is nothing. */
    void (*call_release)(pf_device *device, pf_call *call);
    const pf_memory_ops *memory;
    /* What select goes by on an open device; NULL where the backend has no kernels to choose from.
     * `pfattn tune` changes what `tuned` points to, and has the handle forget its calls. */
    const pf_capabilities *(*capabilities)(const pf_device *device);
} pf_backend;

/* The table of a backend, NULL for AUTO and unknown values. One that was not compiled in has only
 * id, name, priority and probe, and probe says so. */
const pf_backend *pf_backend_get(pfattn_backend id);

/* The i-th backend in order of priority, NULL past the last. */
const pf_backend *pf_backend_at(int index);

struct pfattn_handle_s {
    const pf_backend *backend;
    pf_device *device;
    int32_t index;
    pf_calls calls;
};

#endif
