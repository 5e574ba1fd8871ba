/* SPDX-License-Identifier: Apache-2.0 */
/* The thread's last error. Whoever first decides on an error sets it, and logs it. */
#ifndef PF_STATUS_H
#define PF_STATUS_H

#include <pfattn/pfattn.h>

/* Record one sentence for pfattn_last_error() and return `status`, so that a check reads
 * `return pf_error(PFATTN_ERROR_..., "...")`. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
pfattn_status
pf_error(pfattn_status status, const char *format, ...);

/* Keep the thread's error, and put it back after failures that the caller is not to hear of. */
enum { PF_ERROR_SIZE = 2048 };
void pf_error_save(char text[PF_ERROR_SIZE]);
void pf_error_restore(const char text[PF_ERROR_SIZE]);

#endif
