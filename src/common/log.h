/* SPDX-License-Identifier: Apache-2.0 */
/* Logging to stderr under PFATTN_LOG, and every environment variable the library reads. */
#ifndef PF_LOG_H
#define PF_LOG_H

#include <stdbool.h>
#include <stddef.h>

typedef enum pf_log_level { PF_LOG_ERROR, PF_LOG_WARN, PF_LOG_INFO, PF_LOG_DEBUG } pf_log_level;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void pf_log(pf_log_level level, const char *format, ...);

/* Read PFATTN_LOG again; called when a handle is created. */
void pf_log_configure(void);

/* The value of an environment variable named PFATTN_<name>, NULL where unset or empty. */
const char *pf_environment(const char *name);

/* The path of a file in the user's cache directory: $XDG_CACHE_HOME, else ~/.cache. False where
 * neither is known, or the path does not fit. */
bool pf_cache_path(const char *name, char *path, size_t size);

#endif
