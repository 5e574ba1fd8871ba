/* SPDX-License-Identifier: Apache-2.0 */
/* Public structs that grow: each begins with a struct_size, so that a program built with an older
 * or a newer header than the library's still works. */
#ifndef PF_STRUCTS_H
#define PF_STRUCTS_H

#include <stddef.h>

#include <pfattn/pfattn.h>

/* What the library knows of one public struct. */
typedef struct pf_struct {
    const char *argument; /* for messages */
    const char *init;     /* the macro that initialises it */
    size_t minimum;       /* bytes of its first version */
    size_t size;          /* bytes of this version */
} pf_struct;

/* Copy the caller's struct to `to`, which has `kind->size` bytes. Fields that an older header lacks
 * are zero. Fields that only a newer header has must be zero, and so must padding among them: a
 * field is added without any. */
pfattn_status pf_struct_read(const pf_struct *kind, const void *from, void *to);

/* The same without the copy where the caller's struct has this version's size: `*view` is `from` or
 * `to`. */
pfattn_status pf_struct_view(const pf_struct *kind, const void *from, void *to, const void **view);

/* INVALID_ARGUMENT unless `to` can take a result. */
pfattn_status pf_struct_check(const pf_struct *kind, const void *to);

/* Copy a result to the caller's struct, as much of it as the caller's header has; its struct_size
 * stays. */
void pf_struct_write(const pf_struct *kind, const void *from, void *to);

#endif
