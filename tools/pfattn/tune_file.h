/* SPDX-License-Identifier: Apache-2.0 */
/* Writing the tuning file; tuned.h in src/common says what it holds. */
#ifndef TUNE_FILE_H
#define TUNE_FILE_H

#include "tuned.h"

/* An entry with the name of its variant, and what a comment after it says. */
typedef struct tune_choice {
    pf_tuned_entry entry;
    char variant[PF_VARIANT_NAME];
    char comment[96];
} tune_choice;

/* Where the file goes without --output, and whether the user named it. Like all of these, returns
 * TOOL_DONE, or the exit code after a message. */
int tune_file_place(char path[PF_TUNED_PATH], bool *named);

/* Make the directories of a path that are not there. */
int tune_file_make_directories(const char *path);

/* Can the file be written, and is it absent, empty or a tuning file of this version? Another is not
 * ours to replace. */
int tune_file_check(const char *path);

/* Put the choices in place of what the file has for the same kernels of the device. What it has for
 * other kernels and other devices stays. The file appears whole or not at all. */
int tune_file_write(const char *path, const char *backend, const char *device,
                    const tune_choice *choices, size_t count);

#endif
