/* SPDX-License-Identifier: Apache-2.0 */
#include "args.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

enum { HELP_COLUMN = 30 };

bool args_to_integer(const char *text, int64_t *value) {
    char *end;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    if (end == text || *end || errno || *text == ' ') {
        return false;
    }
    *value = parsed;
    return true;
}

bool args_to_number(const char *text, double *value) {
    char *end;
    double parsed = strtod(text, &end);
    if (end == text || *end || *text == ' ' || !isfinite(parsed)) {
        return false;
    }
    *value = parsed;
    return true;
}

static void list_append(arg_list *list, const char *text, size_t length) {
    char **items = tool_allocate((list->count + 1) * sizeof *items);
    for (size_t i = 0; i < list->count; i++) {
        items[i] = list->items[i];
    }
    free(list->items);
    items[list->count] = tool_allocate(length + 1);
    memcpy(items[list->count], text, length);
    list->items = items;
    list->count++;
}

void args_list_free(arg_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i]);
    }
    free(list->items);
    *list = (arg_list){NULL, 0};
}

static int store_commas(const arg_option *option, const char *text) {
    for (const char *item = text;;) {
        size_t length = strcspn(item, ",");
        if (length == 0) {
            return tool_error(TOOL_USAGE, "--%s: '%s' has an empty item", option->name, text);
        }
        list_append(option->target, item, length);
        if (!item[length]) {
            return -1;
        }
        item += length + 1;
    }
}

static int store(const arg_option *option, const char *text) {
    switch (option->kind) {
    case ARG_FLAG:
        *(bool *)option->target = true;
        break;
    case ARG_TEXT:
        *(const char **)option->target = text;
        break;
    case ARG_INTEGER:
        if (!args_to_integer(text, option->target)) {
            return tool_error(TOOL_USAGE, "--%s: '%s' is not an integer", option->name, text);
        }
        break;
    case ARG_NUMBER:
        if (!args_to_number(text, option->target)) {
            return tool_error(TOOL_USAGE, "--%s: '%s' is not a finite number", option->name, text);
        }
        break;
    case ARG_LIST:
        list_append(option->target, text, strlen(text));
        break;
    case ARG_COMMA_LIST:
        return store_commas(option, text);
    case ARG_HEADING:
        break;
    }
    return -1;
}

static const arg_option *find(const arg_command *command, const char *name, size_t length) {
    for (size_t i = 0; i < command->option_count; i++) {
        const arg_option *option = &command->options[i];
        if (option->kind != ARG_HEADING && strlen(option->name) == length &&
            !strncmp(option->name, name, length)) {
            return option;
        }
    }
    return NULL;
}

static void print_help(const arg_command *command) {
    printf("Usage: %s\n\n%s\n\n", command->usage, command->summary);
    for (size_t i = 0; i < command->option_count; i++) {
        const arg_option *option = &command->options[i];
        if (option->kind == ARG_HEADING) {
            printf("\n%s\n", option->help);
            continue;
        }
        int used = printf("  --%s%s%s", option->name, option->value ? " " : "",
                          option->value ? option->value : "");
        if (used > HELP_COLUMN - 2) {
            fputc('\n', stdout);
            used = 0;
        }
        printf("%*s", HELP_COLUMN - used, "");
        for (const char *at = option->help; *at; at++) {
            fputc(*at, stdout);
            if (*at == '\n') {
                printf("%*s", HELP_COLUMN, "");
            }
        }
        fputc('\n', stdout);
    }
    printf("  %-*s%s\n", HELP_COLUMN - 2, "--help", "this text");
}

/* One argument that begins with "--"; `*index` moves past a value taken from the next one. */
static int parse_option(const arg_command *command, int argc, char **argv, int *index) {
    const char *name = argv[*index] + 2;
    size_t length = strcspn(name, "=");
    const arg_option *option = find(command, name, length);
    if (!option) {
        return tool_error(TOOL_USAGE, "unknown option '--%.*s'; `%s --help` lists those allowed",
                          (int)length, name, argv[0]);
    }
    const char *text = name[length] ? name + length + 1 : NULL;
    if (option->kind == ARG_FLAG && text) {
        return tool_error(TOOL_USAGE, "--%s takes no value, but '%s' was given", option->name,
                          text);
    }
    if (option->kind != ARG_FLAG && !text) {
        if (*index + 1 >= argc) {
            return tool_error(TOOL_USAGE, "--%s needs a value: %s", option->name, option->value);
        }
        text = argv[++*index];
    }
    if (option->seen) {
        *option->seen = true;
    }
    return store(option, text);
}

int args_parse(arg_command *command, int argc, char **argv) {
    static char name[64];
    snprintf(name, sizeof name, "pfattn %s", argv[0]);
    argv[0] = name;
    command->word_count = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            print_help(command);
            return TOOL_DONE;
        }
        if (!strncmp(argv[i], "--", 2)) {
            int code = parse_option(command, argc, argv, &i);
            if (code >= 0) {
                return code;
            }
        } else if (argv[i][0] == '-' && argv[i][1]) {
            return tool_error(TOOL_USAGE, "unknown option '%s'; options begin with two dashes",
                              argv[i]);
        } else if (command->word_count < command->most_words) {
            command->words[command->word_count++] = argv[i];
        } else {
            return tool_error(TOOL_USAGE, "unexpected argument '%s'; usage: %s", argv[i],
                              command->usage);
        }
    }
    return -1;
}
