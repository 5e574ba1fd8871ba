/* SPDX-License-Identifier: Apache-2.0 */
#include "tune_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "select.h"
#include "tool.h"

enum { MOST_BYTES = 1 << 20 };

/* ---- where it goes ------------------------------------------------------------------------- */

int tune_file_place(char path[PF_TUNED_PATH], bool *named) {
    return pf_tuned_path(path, named)
               ? TOOL_DONE
               : tool_error(TOOL_USAGE,
                            "%s: there is no place for the tuning file; name one with --output",
                            *named ? "PFATTN_TUNING" : "HOME");
}

int tune_file_make_directories(const char *path) {
    char *part = tool_copy_text(path);
    int code = TOOL_DONE;
    for (char *slash = strchr(part + 1, '/'); slash && code == TOOL_DONE;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) {
            code = tool_error(TOOL_FILE, "cannot make the directory %s: %s", part, strerror(errno));
        }
        *slash = '/';
    }
    free(part);
    return code;
}

/* The file is replaced, not written: its directory must be there and let us. */
static int check_directory(const char *path) {
    char *directory = tool_copy_text(path);
    char *slash = strrchr(directory, '/');
    if (slash) {
        slash[slash == directory] = '\0';
    }
    int failed = access(slash ? directory : ".", W_OK | X_OK);
    free(directory);
    return failed ? tool_error(TOOL_FILE, "cannot write %s: %s", path, strerror(errno)) : TOOL_DONE;
}

/* ---- what it holds ------------------------------------------------------------------------- */

/* The whole file as text, "" where there is none. Returns TOOL_DONE or an exit code. */
static int read_text(const char *path, char **text) {
    enum { STEP = 1 << 16 };
    FILE *file = fopen(path, "r");
    size_t used = 0;
    *text = tool_allocate(1);
    if (!file) {
        return errno == ENOENT ? TOOL_DONE
                               : tool_error(TOOL_FILE, "cannot read %s: %s", path, strerror(errno));
    }
    for (size_t got = 1; got > 0 && used < MOST_BYTES; used += got) {
        char *longer = tool_allocate(used + STEP + 1);
        memcpy(longer, *text, used);
        free(*text);
        *text = longer;
        got = fread(*text + used, 1, STEP, file);
    }
    int code = ferror(file) ? tool_error(TOOL_FILE, "cannot read %s: %s", path, strerror(errno))
                            : TOOL_DONE;
    fclose(file);
    return code;
}

/* The line at `at`, without its end and cut to the buffer; returns where the next begins. */
static const char *take_line(const char *at, char line[PF_TUNED_LINE]) {
    size_t length = strcspn(at, "\n");
    snprintf(line, PF_TUNED_LINE, "%.*s", (int)(length < PF_TUNED_LINE ? length : PF_TUNED_LINE),
             at);
    line[strcspn(line, "\r")] = '\0';
    return at + length + (at[length] == '\n');
}

static int check_text(const char *path, const char *text) {
    char line[PF_TUNED_LINE];
    take_line(text, line);
    return !*text || !strcmp(line, PF_TUNED_FIRST_LINE)
               ? TOOL_DONE
               : tool_error(TOOL_FILE,
                            "%s: is no tuning file of this version and is left as it is; name "
                            "another with --output, or remove it",
                            path);
}

int tune_file_check(const char *path) {
    char *text;
    struct stat found;
    if (stat(path, &found) == 0 && (!S_ISREG(found.st_mode) || found.st_size > MOST_BYTES)) {
        return tool_error(TOOL_FILE, "%s: is %s, hence no tuning file", path,
                          S_ISREG(found.st_mode) ? "larger than 1 MiB" : "not a regular file");
    }
    int code = read_text(path, &text);
    code = code == TOOL_DONE ? check_text(path, text) : code;
    free(text);
    return code == TOOL_DONE ? check_directory(path) : code;
}

/* ---- writing it ---------------------------------------------------------------------------- */

static bool is_measured(const pf_tuned_entry *entry, const tune_choice *choices, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const pf_tuned_entry *c = &choices[i].entry;
        if (c->target == entry->target && c->op == entry->op && c->element == entry->element &&
            c->head_dim == entry->head_dim && c->causal == entry->causal) {
            return true;
        }
    }
    return false;
}

/* Copy what is of other devices to `out`; of this one, the entries of this version for kernels
 * that were not measured now go to `ours`, which has room for the text. */
static void keep(const char *text, const char *backend, const char *device,
                 const tune_choice *choices, size_t count, FILE *out, char *ours) {
    char cut[PF_TUNED_LINE];
    bool is_ours = false, is_stale = false;
    for (const char *at = take_line(text, cut), *next; *at; at = next) {
        pf_tuned_line line;
        next = take_line(at, cut);
        pf_tuned_parse(cut, &line);
        if (line.kind == PF_TUNED_DEVICE) {
            is_ours = pf_tuned_is_of(&line, backend, device);
            is_stale = strcmp(line.version, pfattn_version_string()) != 0;
        }
        if (!is_ours) {
            fprintf(out, "%.*s\n", (int)strcspn(at, "\n"), at);
        } else if (line.kind == PF_TUNED_ENTRY && !is_stale &&
                   !is_measured(&line.entry, choices, count)) {
            ours += sprintf(ours, "%s\n", cut);
        }
    }
}

static void print_choice(const tune_choice *choice, FILE *out) {
    const pf_tuned_entry *e = &choice->entry;
    char length[24] = "any";
    if (e->length != INT64_MAX) {
        snprintf(length, sizeof length, "%" PRId64, e->length);
    }
    fprintf(out, "%s %s %s %d %s %s %s  # %s\n", pf_target_name(e->target), pf_op_name(e->op),
            pfattn_dtype_string(e->element), e->head_dim, e->causal ? "causal" : "full", length,
            choice->variant, choice->comment);
}

static void print_file(const char *text, const char *backend, const char *device,
                       const tune_choice *choices, size_t count, FILE *out) {
    char *kept = tool_allocate(strlen(text) + 2);
    fputs(PF_TUNED_FIRST_LINE "\n", out);
    if (!*text) {
        fputs("# Which kernels pfattn runs, as `pfattn tune` measured. Entries: target, operation, "
              "type,\n# head dimension, mask, longest sequence, variant.\n",
              out);
    }
    keep(text, backend, device, choices, count, out, kept);
    fprintf(out, "device %s %s %s\n%s", backend, pfattn_version_string(), device, kept);
    for (size_t i = 0; i < count; i++) {
        print_choice(&choices[i], out);
    }
    free(kept);
}

/* Write beside the file, then move into its place. */
static int replace(const char *path, const char *text, const char *backend, const char *device,
                   const tune_choice *choices, size_t count) {
    char beside[PF_TUNED_PATH + 8];
    if (snprintf(beside, sizeof beside, "%s.XXXXXX", path) >= (int)sizeof beside) {
        return tool_error(TOOL_FILE, "cannot write %s: the path is too long", path);
    }
    int descriptor = mkstemp(beside);
    FILE *out = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    if (!out) {
        return tool_error(TOOL_FILE, "cannot write %s: %s", path, strerror(errno));
    }
    print_file(text, backend, device, choices, count, out);
    bool failed = ferror(out) != 0;
    failed = fclose(out) != 0 || failed || chmod(beside, 0644) != 0 || rename(beside, path) != 0;
    if (failed) {
        int code = tool_error(TOOL_FILE, "cannot write %s: %s", path, strerror(errno));
        unlink(beside);
        return code;
    }
    return TOOL_DONE;
}

int tune_file_write(const char *path, const char *backend, const char *device,
                    const tune_choice *choices, size_t count) {
    char *text;
    int code = read_text(path, &text);
    if (code == TOOL_DONE) {
        code = check_text(path, text);
    }
    if (code == TOOL_DONE) {
        code = replace(path, text, backend, device, choices, count);
    }
    free(text);
    return code;
}
