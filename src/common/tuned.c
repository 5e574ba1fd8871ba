/* SPDX-License-Identifier: Apache-2.0 */
#include "tuned.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "log.h"
#include "select.h"

enum { MAX_BYTES = 1 << 20, MAX_REPORTS = 10 };

/* ---- names --------------------------------------------------------------------------------- */

void pf_variant_name(const pf_tuning *t, char name[PF_VARIANT_NAME]) {
    bool waves = t->waves_per_eu > 0;
    snprintf(name, PF_VARIANT_NAME, "%dx%dx%d-s%d-%c%d", t->owned_tile, t->cross_tile, t->out_dim,
             t->stages, waves ? 'w' : 'b', waves ? t->waves_per_eu : t->min_blocks);
}

bool pf_tuned_path(char path[PF_TUNED_PATH], bool *named) {
    const char *given = pf_environment("TUNING");
    *named = given != NULL;
    if (given == NULL) {
        return pf_cache_path("pfattn/tuning", path, PF_TUNED_PATH);
    }
    return strcmp(given, "none") != 0 && snprintf(path, PF_TUNED_PATH, "%s", given) < PF_TUNED_PATH;
}

/* ---- choosing ------------------------------------------------------------------------------ */

static bool same_kernel(const pf_tuned_entry *a, const pf_tuned_entry *b) {
    return a->target == b->target && a->op == b->op && a->element == b->element &&
           a->head_dim == b->head_dim && a->causal == b->causal;
}

int pf_tuned_variant(const pf_tuned *tuned, int target, int op, pfattn_dtype element, int head_dim,
                     bool causal, int64_t length) {
    const pf_tuned_entry wanted = {target, op, element, head_dim, causal, length, 0};
    const pf_tuned_entry *best = NULL;
    for (int i = 0; tuned != NULL && i < tuned->count; i++) {
        const pf_tuned_entry *entry = &tuned->entry[i];
        if (same_kernel(entry, &wanted) && entry->length >= length &&
            (best == NULL || entry->length < best->length)) {
            best = entry;
        }
    }
    return best != NULL ? best->variant : -1;
}

/* ---- lines --------------------------------------------------------------------------------- */

static void fail(pf_tuned_line *line, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

static void fail(pf_tuned_line *line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    line->kind = PF_TUNED_BROKEN;
    vsnprintf(line->fault, sizeof line->fault, format, arguments);
    va_end(arguments);
}

/* The next word, cut to the buffer; "" at the end of the line. */
static void take_word(const char **at, char *word, size_t size) {
    size_t used = 0;
    *at += strspn(*at, " \t");
    for (; **at != '\0' && **at != ' ' && **at != '\t'; ++*at) {
        if (used + 1 < size) {
            word[used++] = **at;
        }
    }
    word[used] = '\0';
}

/* The rest of the line without the spaces around it. */
static void take_rest(const char *at, char *rest, size_t size) {
    at += strspn(at, " \t");
    size_t length = strlen(at);
    while (length > 0 && isspace((unsigned char)at[length - 1])) {
        length--;
    }
    snprintf(rest, size, "%.*s", (int)length, at);
}

static int find_target(const char *word) {
    int target = 0;
    while (target < PF_TARGET_COUNT && strcmp(word, pf_target_name(target)) != 0) {
        target++;
    }
    return target;
}

static int find_op(const char *word) {
    int op = 0;
    while (op < PF_OP_COUNT && strcmp(word, pf_op_name(op)) != 0) {
        op++;
    }
    return op;
}

static pfattn_dtype find_element(const char *word) {
    static const pfattn_dtype elements[] = {PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16, PFATTN_DTYPE_F32,
                                            PFATTN_DTYPE_E5M2};
    for (size_t i = 0; i < sizeof elements / sizeof elements[0]; i++) {
        if (strcmp(word, pfattn_dtype_string(elements[i])) == 0) {
            return elements[i];
        }
    }
    return PFATTN_DTYPE_NONE;
}

static int find_head_dim(const char *word) {
    return strcmp(word, "64") == 0    ? 64
           : strcmp(word, "128") == 0 ? 128
           : strcmp(word, "256") == 0 ? 256
                                      : 0;
}

/* A positive integer in decimal digits alone, or 0. */
static int64_t read_number(const char *word) {
    char *end;
    errno = 0;
    long long value = strtoll(word, &end, 10);
    return isdigit((unsigned char)*word) && *end == '\0' && errno == 0 ? value : 0;
}

static void parse_device(const char *at, pf_tuned_line *line) {
    take_word(&at, line->backend, sizeof line->backend);
    take_word(&at, line->version, sizeof line->version);
    take_rest(at, line->device, sizeof line->device);
    if (line->version[0] == '\0') {
        fail(line, "a device line has a backend, the version of pfattn and the device's name");
    }
    line->kind = PF_TUNED_DEVICE;
}

enum { TARGET, OP, ELEMENT, HEAD_DIM, MASK, LENGTH, VARIANT, FIELDS };

/* The fields of an entry, but for the variant, which only a device knows. */
static void parse_entry(char field[FIELDS][PF_VARIANT_NAME], pf_tuned_line *line) {
    pf_tuned_entry *entry = &line->entry;
    bool any = strcmp(field[LENGTH], "any") == 0;
    *entry = (pf_tuned_entry){.target = find_target(field[TARGET]),
                              .op = find_op(field[OP]),
                              .element = find_element(field[ELEMENT]),
                              .head_dim = find_head_dim(field[HEAD_DIM]),
                              .causal = strcmp(field[MASK], "causal") == 0,
                              .length = any ? INT64_MAX : read_number(field[LENGTH])};
    line->kind = PF_TUNED_ENTRY;
    if (entry->target == PF_TARGET_COUNT) {
        fail(line, "target \"%s\" is unknown", field[TARGET]);
    } else if (entry->op == PF_OP_COUNT) {
        fail(line, "operation \"%s\" is unknown", field[OP]);
    } else if (entry->element == PFATTN_DTYPE_NONE) {
        fail(line, "type is \"%s\"; it must be f16, bf16, f32 or e5m2", field[ELEMENT]);
    } else if (entry->head_dim == 0) {
        fail(line, "head dimension is \"%s\"; it must be 64, 128 or 256", field[HEAD_DIM]);
    } else if (!entry->causal && strcmp(field[MASK], "full") != 0) {
        fail(line, "mask is \"%s\"; it must be full or causal", field[MASK]);
    } else if (entry->length < 1) {
        fail(line, "length is \"%s\"; it must be a positive integer or any", field[LENGTH]);
    }
    snprintf(line->variant, sizeof line->variant, "%s", field[VARIANT]);
}

void pf_tuned_parse(const char *text, pf_tuned_line *line) {
    char field[FIELDS][PF_VARIANT_NAME], rest[PF_VARIANT_NAME];
    const char *at = text;
    memset(line, 0, sizeof *line);
    take_word(&at, field[0], sizeof field[0]);
    if (field[0][0] == '\0' || field[0][0] == '#') {
        line->kind = PF_TUNED_BLANK;
        return;
    }
    if (strcmp(field[0], "device") == 0) {
        parse_device(at, line);
        return;
    }
    for (int i = 1; i < FIELDS; i++) {
        take_word(&at, field[i], sizeof field[i]);
    }
    take_word(&at, rest, sizeof rest);
    if (field[FIELDS - 1][0] == '\0' || (rest[0] != '\0' && rest[0] != '#')) {
        fail(line, "an entry has 7 fields: target, operation, type, head dimension, mask, length "
                   "and variant");
        return;
    }
    parse_entry(field, line);
}

bool pf_tuned_is_of(const pf_tuned_line *line, const char *backend, const char *device) {
    char name[sizeof line->device];
    take_rest(device, name, sizeof name);
    return strcmp(line->backend, backend) == 0 && strcmp(line->device, name) == 0;
}

/* ---- the file ------------------------------------------------------------------------------ */

/* A file being read for a device. */
typedef struct reader {
    FILE *file;
    const pf_capabilities *c;
    const char *device;
    pf_tuned *tuned;
    int line;    /* its number */
    int reports; /* faults found so far */
    enum { BEFORE_DEVICES, OURS, NOT_OURS } section;
} reader;

static void report(reader *r, const char *fault) {
    if (r->reports++ < MAX_REPORTS) {
        pf_log(PF_LOG_WARN, "%s:%d: %s; ignored", r->tuned->path, r->line, fault);
    }
}

/* The next line without the spaces at its end, control characters replaced; false at the end of the
 * file.
 * `*whole` says whether it fits. */
static bool read_line(reader *r, char line[PF_TUNED_LINE], bool *whole) {
    int c = getc(r->file);
    if (c == EOF) {
        return false;
    }
    size_t used = 0;
    *whole = true;
    for (; c != EOF && c != '\n'; c = getc(r->file)) {
        *whole = used + 1 < PF_TUNED_LINE;
        if (*whole) {
            line[used++] = (char)(c == '\t' || !iscntrl(c) ? c : c == '\r' ? ' ' : '?');
        }
    }
    while (used > 0 && line[used - 1] == ' ') {
        used--;
    }
    line[used] = '\0';
    r->line++;
    return true;
}

/* The variant of a name, or -1. */
static int find_variant(const pf_capabilities *c, const pf_tuned_line *line) {
    const pf_tuned_entry *e = &line->entry;
    for (int variant = 0; variant < PF_VARIANTS; variant++) {
        const pf_tuning *t =
            pf_kernel_find(c, e->target, e->op, e->element, e->head_dim, false, variant);
        char name[PF_VARIANT_NAME];
        if (t != NULL) {
            pf_variant_name(t, name);
            if (strcmp(name, line->variant) == 0) {
                return variant;
            }
        }
    }
    return -1;
}

static void add_entry(reader *r, const pf_tuned_line *line) {
    pf_tuned_entry entry = line->entry;
    char fault[160];
    entry.variant = find_variant(r->c, line);
    if (entry.variant < 0) {
        snprintf(fault, sizeof fault,
                 "this build has no variant \"%s\" of %s %s %d %s for the device", line->variant,
                 pf_target_name(entry.target), pf_op_name(entry.op), entry.head_dim,
                 pfattn_dtype_string(entry.element));
        report(r, fault);
        return;
    }
    for (int i = 0; i < r->tuned->count; i++) {
        if (same_kernel(&r->tuned->entry[i], &entry) && r->tuned->entry[i].length == entry.length) {
            report(r, "an entry above has the same kernel and length");
            return;
        }
    }
    if (r->tuned->count == PF_TUNED_ENTRIES) {
        report(r, "the device has too many entries");
        return;
    }
    r->tuned->entry[r->tuned->count++] = entry;
}

static void enter_section(reader *r, const pf_tuned_line *line) {
    char fault[160];
    r->section = NOT_OURS;
    if (line->fault[0] != '\0') {
        report(r, line->fault);
        return;
    }
    if (!pf_tuned_is_of(line, r->c->backend, r->device)) {
        return;
    }
    if (strcmp(line->version, pfattn_version_string()) != 0) {
        snprintf(fault, sizeof fault,
                 "the entries of this device are those of pfattn %s, and this is %s: run `pfattn "
                 "tune` again",
                 line->version, pfattn_version_string());
        report(r, fault);
        return;
    }
    r->section = OURS;
}

/* Lines of other devices may be of other versions: they are passed over unread. */
static void take_line(reader *r, const char *text, bool whole) {
    pf_tuned_line line;
    pf_tuned_parse(text, &line);
    if (line.kind == PF_TUNED_DEVICE) {
        enter_section(r, &line);
    } else if (r->section == NOT_OURS || line.kind == PF_TUNED_BLANK) {
        return;
    } else if (!whole) {
        report(r, "the line is too long");
    } else if (line.kind == PF_TUNED_BROKEN) {
        report(r, line.fault);
    } else if (r->section == BEFORE_DEVICES) {
        report(r, "no device line stands above it");
    } else {
        add_entry(r, &line);
    }
}

static void read_lines(reader *r) {
    char text[PF_TUNED_LINE];
    bool whole;
    if (!read_line(r, text, &whole)) {
        return; /* an empty file has nothing to say */
    }
    if (strcmp(text, PF_TUNED_FIRST_LINE) != 0) {
        pf_log(PF_LOG_WARN,
               "%s:1: is not \"" PF_TUNED_FIRST_LINE
               "\", with which a tuning file of this version begins; the file is ignored",
               r->tuned->path);
        return;
    }
    while (read_line(r, text, &whole)) {
        take_line(r, text, whole);
    }
    if (ferror(r->file)) {
        pf_log(PF_LOG_WARN, "%s: cannot be read to its end", r->tuned->path);
    }
    if (r->reports > MAX_REPORTS) {
        pf_log(PF_LOG_WARN, "%s: %d more lines are ignored", r->tuned->path,
               r->reports - MAX_REPORTS);
    }
}

/* Open a file that may be what is sought, or log why it is not. Opening anything but a regular
 * file could wait for ever. */
static FILE *open_file(const char *path, bool named) {
    struct stat found;
    FILE *file = NULL;
    if (stat(path, &found) == 0) {
        if (!S_ISREG(found.st_mode) || found.st_size > MAX_BYTES) {
            pf_log(PF_LOG_WARN, "%s: is %s; the tuning file is ignored", path,
                   S_ISREG(found.st_mode) ? "larger than 1 MiB" : "not a regular file");
            return NULL;
        }
        file = fopen(path, "r");
    }
    if (file == NULL && (named || (errno != ENOENT && errno != ENOTDIR))) {
        pf_log(PF_LOG_WARN, "%s: the tuning file cannot be read: %s", path, strerror(errno));
    }
    return file;
}

void pf_tuned_read(pf_tuned *tuned, const pf_capabilities *capabilities, const char *device) {
    bool named;
    memset(tuned, 0, sizeof *tuned);
    if (!pf_tuned_path(tuned->path, &named)) {
        tuned->path[0] = '\0';
        return;
    }
    FILE *file = open_file(tuned->path, named);
    if (file == NULL) {
        tuned->path[0] = '\0';
        return;
    }
    reader r = {.file = file, .c = capabilities, .device = device, .tuned = tuned};
    read_lines(&r);
    fclose(file);
    pf_log(PF_LOG_INFO, "%s: %d entries of the tuning file are for %s %s", tuned->path,
           tuned->count, capabilities->backend, device);
}
