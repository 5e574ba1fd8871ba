/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor_driver.h"

#include "log.h"
#include "status.h"

pfattn_status pf_driver_error(const char *backend, const char *call, int result, const char *name,
                              const char *text, const pf_driver_advice *advices, size_t count) {
    const pf_driver_advice *advice = advices;
    while (advice < advices + count - 1 && advice->result != result) {
        advice++;
    }
    return pf_error(advice->status, "%s: %s failed with %s (%d, %s); %s", backend, call,
                    name != NULL ? name : "an unknown error", result,
                    text != NULL ? text : "no description", advice->what);
}

static pfattn_status open_locked(pf_driver_library *library) {
    void *opened = NULL;
    pfattn_status status = pf_dl_open(library->backend, pf_environment(library->variable),
                                      library->paths, library->symbols, library->table, &opened);
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    status = library->start(library->table);
    if (status != PFATTN_SUCCESS) {
        pf_dl_close(opened);
        return status;
    }
    library->is_open = true;
    return PFATTN_SUCCESS;
}

pfattn_status pf_driver_open(pf_driver_library *library) {
    pthread_mutex_lock(&library->lock);
    pfattn_status status = library->is_open ? PFATTN_SUCCESS : open_locked(library);
    pthread_mutex_unlock(&library->lock);
    return status;
}
