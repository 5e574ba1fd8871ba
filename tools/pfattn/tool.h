/* SPDX-License-Identifier: Apache-2.0 */
/* What every part of the command shares: exit codes, messages, and the subcommands. */
#ifndef TOOL_H
#define TOOL_H

#include <pfattn/pfattn.h>

enum {
    TOOL_DONE = 0,
    TOOL_FAILED = 1,      /* a check failed */
    TOOL_USAGE = 2,       /* bad usage or a bad argument */
    TOOL_UNSUPPORTED = 3, /* a legal problem that the backend cannot do */
    TOOL_UNAVAILABLE = 4, /* no such backend, driver or device here, or it broke down */
    TOOL_FILE = 5         /* a file could not be read or written */
};

/* Print "pfattn: <message>" to stderr and return `code`, so that a check reads
 * `return tool_error(TOOL_USAGE, "...")`. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int tool_error(int code, const char *format, ...);

/* The exit code of a failed library call, whose sentence is printed. */
int tool_library_error(pfattn_status status);

/* Memory that is never NULL: out of memory ends the program with a message. */
void *tool_allocate(size_t bytes);
void *tool_allocate_aligned(size_t alignment, size_t bytes);
char *tool_copy_text(const char *text);

int info_main(int argc, char **argv);
int run_main(int argc, char **argv);
int check_main(int argc, char **argv);
int bench_main(int argc, char **argv);
int tune_main(int argc, char **argv);

#endif
