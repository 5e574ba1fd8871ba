/* SPDX-License-Identifier: Apache-2.0 */
/* The tuning file: which variant of a kernel a device is to run, as `pfattn tune` measured it.
 *
 *     pfattn tuning 1
 *     device hip 0.1.0 AMD Instinct MI300X
 *     gfx942 forward f16 64 full 1024 128x32x64-s1-w3
 *     gfx942 forward f16 64 full any 128x64x64-s1-w3
 *
 * The first line has the version of the format. A device line has the backend, the version of the
 * library that measured, and the name of the device; the entries below it are the device's. An
 * entry has the target, operation, type, head dimension and mask (full or causal) of a kernel, the
 * most owned rows for which it holds (queries in forward, keys in backward) and the variant. Empty
 * lines and those that begin with # say nothing. */
#ifndef PF_TUNED_H
#define PF_TUNED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pfattn/pfattn.h>

#include "tuning.h"

#define PF_TUNED_FIRST_LINE "pfattn tuning 1"

enum {
    PF_TUNED_ENTRIES = 256, /* most of a device */
    PF_TUNED_LINE = 512,    /* most bytes of a line, the end included */
    PF_TUNED_PATH = 1024,
    PF_VARIANT_NAME = 48,
};

typedef struct pf_tuned_entry {
    int target, op;
    pfattn_dtype element;
    int head_dim; /* of the kernel: 64, 128 or 256 */
    bool causal;
    int64_t length; /* most owned rows of a problem; INT64_MAX for any */
    int variant;
} pf_tuned_entry;

/* What select reads. Every entry names a variant that the device has. */
typedef struct pf_tuned {
    char path[PF_TUNED_PATH]; /* of the file, "" where none was read */
    pf_tuned_entry entry[PF_TUNED_ENTRIES];
    int count;
} pf_tuned;

struct pf_capabilities;

/* Read the entries of a device from the file that PFATTN_TUNING names, else from that in the user's
 * cache directory. What is stale or broken is logged, with its line, and ignored. */
void pf_tuned_read(pf_tuned *tuned, const struct pf_capabilities *capabilities, const char *device);

/* The variant for a plain kernel and a problem of so many owned rows; -1 where no entry holds.
 * `tuned` may be NULL. */
int pf_tuned_variant(const pf_tuned *tuned, int target, int op, pfattn_dtype element, int head_dim,
                     bool causal, int64_t length);

/* Where the file is: false where there is no place for one (PFATTN_TUNING=none, or no home).
 * `*named` says whether the user named it. */
bool pf_tuned_path(char path[PF_TUNED_PATH], bool *named);

/* "128x32x64-s1-w3": rows owned, rows that stream past and output channels, stages, and waves per
 * EU; on NVIDIA "-b1", workgroups of a multiprocessor, in place of the waves. No two variants of a
 * kernel share a name. */
void pf_variant_name(const pf_tuning *tuning, char name[PF_VARIANT_NAME]);

typedef enum pf_tuned_kind {
    PF_TUNED_BLANK,
    PF_TUNED_DEVICE,
    PF_TUNED_ENTRY,
    PF_TUNED_BROKEN
} pf_tuned_kind;

/* A line after the first, taken apart. */
typedef struct pf_tuned_line {
    pf_tuned_kind kind;
    char backend[16], version[32], device[128]; /* DEVICE */
    pf_tuned_entry entry;                       /* ENTRY, but for the variant */
    char variant[PF_VARIANT_NAME];
    char fault[160]; /* why it is BROKEN, or a DEVICE line of no device; else "" */
} pf_tuned_line;

void pf_tuned_parse(const char *text, pf_tuned_line *line);

/* Does a device line speak of this device? Spaces at the ends of a name do not count. */
bool pf_tuned_is_of(const pf_tuned_line *line, const char *backend, const char *device);

#endif
