/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines: a table of options says what is allowed, where it goes and what --help prints. */
#ifndef ARGS_H
#define ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum arg_kind {
    ARG_FLAG,       /* bool */
    ARG_TEXT,       /* const char * */
    ARG_INTEGER,    /* int64_t */
    ARG_NUMBER,     /* double, finite */
    ARG_LIST,       /* arg_list, one item each time the option is given */
    ARG_COMMA_LIST, /* arg_list, items separated by commas, option may be repeated */
    ARG_HEADING     /* no option: `help` is a line between options in --help */
} arg_kind;

typedef struct arg_list {
    char **items;
    size_t count;
} arg_list;

typedef struct arg_option {
    const char *name;  /* without the dashes */
    const char *value; /* how --help calls its value, NULL for a flag */
    arg_kind kind;
    void *target;
    bool *seen; /* set where the option was given; may be NULL */
    const char *help;
} arg_option;

typedef struct arg_command {
    const char *usage;   /* "pfattn run OPERATION [OPTION]..." */
    const char *summary; /* what the command does, for --help */
    const arg_option *options;
    size_t option_count;
    const char **words; /* receives the arguments that are no options */
    size_t most_words;
    size_t word_count;
} arg_command;

/* Parse argv[1..]. Returns -1 to go on, else the exit code (0 after --help). */
int args_parse(arg_command *command, int argc, char **argv);

/* Strict conversions: the whole text must be one number. */
bool args_to_integer(const char *text, int64_t *value);
bool args_to_number(const char *text, double *value);

void args_list_free(arg_list *list);

#endif
