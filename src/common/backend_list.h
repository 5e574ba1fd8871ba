/* SPDX-License-Identifier: Apache-2.0 */
/* Every backend of the library: (table). Each room defines its table, pf_backend_<name>, whether it
 * was compiled in or not; a new backend is one line here. */
#ifndef PF_BACKEND_LIST_H
#define PF_BACKEND_LIST_H

#include "backend.h"

#define PF_BACKENDS(X)                                                                             \
    X(pf_backend_cuda)                                                                             \
    X(pf_backend_hip)                                                                              \
    X(pf_backend_ref)

#define X(table) extern const pf_backend table;
PF_BACKENDS(X)
#undef X

#endif
