/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a vendor's driver at run time and filling its table of functions. */
#ifndef PF_DL_H
#define PF_DL_H

#include <stddef.h>

#include <pfattn/pfattn.h>

typedef struct pf_dl_symbol {
    const char *name;
    size_t offset; /* of the function pointer in the table */
    int required;
} pf_dl_symbol;

/* Try `override` alone if it is not NULL, else each of `paths` (NULL-terminated) in turn, and fill
 * `table` from `symbols` (terminated by a NULL name). A missing optional symbol leaves NULL. On
 * failure: UNAVAILABLE; the error lists every path tried with its reason, or the missing symbol. */
pfattn_status pf_dl_open(const char *what, const char *override, const char *const *paths,
                         const pf_dl_symbol *symbols, void *table, void **library);
void pf_dl_close(void *library);

#endif
