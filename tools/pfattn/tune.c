/* SPDX-License-Identifier: Apache-2.0 */
/* `pfattn tune`: time every variant of a kernel, and write down which is best. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "bench_measure.h"
#include "select.h"
#include "tool.h"
#include "tune_file.h"

enum { MAX_LENGTHS = 16, PASSES = 2 };

/* A variant must be so much faster than the default to be preferred: less is noise. */
static const double margin = 0.02;

static const char *backend_name = "auto", *output;
static arg_list ops, dtypes, head_dims, seqlens;
static int64_t device, batch, heads, rounds = 7;
static double round_seconds = 0.05;
static bool has_batch, has_heads;

static const arg_option options[] = {
    {"backend", "auto|cuda|hip", ARG_TEXT, &backend_name, NULL, "which backend; default auto"},
    {"device", "N", ARG_INTEGER, &device, NULL, "index among the backend's devices; default 0"},
    {NULL, NULL, ARG_HEADING, NULL, NULL, "Which kernels:"},
    {"op", "OP,..", ARG_COMMA_LIST, &ops, NULL,
     "forward, jvp, backward, backward-jvp; default all of them"},
    {"dtype", "TYPE,..", ARG_COMMA_LIST, &dtypes, NULL, "f16, bf16, f32, e5m2; default f16,bf16"},
    {"head-dim", "D,..", ARG_COMMA_LIST, &head_dims, NULL, "64, 128, 256; default all of them"},
    {NULL, NULL, ARG_HEADING, NULL, NULL, "On which problems, full and causal:"},
    {"seqlen", "N,..", ARG_COMMA_LIST, &seqlens, NULL,
     "queries and keys; what is best for one length is taken\n"
     "for all above the one before it; the last stands for all\n"
     "that are longer; default 512,1024,2048,8192"},
    {"batch", "B", ARG_INTEGER, &batch, &has_batch, "default as many as make 16384 tokens"},
    {"heads", "H", ARG_INTEGER, &heads, &has_heads,
     "default as many as make a hidden size of 2048"},
    {NULL, NULL, ARG_HEADING, NULL, NULL, "Measuring and results:"},
    {"rounds", "R", ARG_INTEGER, &rounds, NULL, "the median of so many rounds; 1 to 64, default 7"},
    {"round-seconds", "T", ARG_NUMBER, &round_seconds, NULL, "length of a round; default 0.05"},
    {"output", "FILE", ARG_TEXT, &output, NULL,
     "default what PFATTN_TUNING names, else pfattn/tuning in\n"
     "$XDG_CACHE_HOME or ~/.cache"},
};

/* A kernel of which there may be several. */
typedef struct tune_kernel {
    int target, op;
    pfattn_dtype element;
    int head_dim;
    const pf_tuning *variants[PF_VARIANTS]; /* the default first */
    int count;
} tune_kernel;

typedef struct tune_state {
    pfattn_backend backend;
    tool_session session;
    const pf_capabilities *c;
    int64_t lengths[MAX_LENGTHS]; /* ascending */
    int length_count;
    tune_choice *choices;
    size_t choice_count;
} tune_state;

/* By PF_OP. */
static const char *const op_words[] = {"forward", "jvp", "backward", "backward-jvp", NULL};
static const char *const dtype_words[] = {"f16", "bf16", "f32", "e5m2", NULL};
static const char *const head_dim_words[] = {"64", "128", "256", NULL};

/* ---- options ------------------------------------------------------------------------------- */

static int check_words(const char *option, const arg_list *list, const char *const *allowed) {
    for (size_t i = 0; i < list->count; i++) {
        int j = 0;
        while (allowed[j] && strcmp(list->items[i], allowed[j])) {
            j++;
        }
        if (!allowed[j]) {
            return tool_error(TOOL_USAGE,
                              "--%s: '%s' is not known here; `pfattn tune --help` "
                              "lists what is",
                              option, list->items[i]);
        }
    }
    return TOOL_DONE;
}

/* Whether a word is asked for: in the list, or among the defaults where the list is empty. */
static bool is_wanted(const arg_list *list, const char *word, bool is_default) {
    for (size_t i = 0; i < list->count; i++) {
        if (!strcmp(list->items[i], word)) {
            return true;
        }
    }
    return list->count == 0 && is_default;
}

static int compare_lengths(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int read_lengths(tune_state *state) {
    static const int64_t defaults[] = {512, 1024, 2048, 8192};
    state->length_count = sizeof defaults / sizeof *defaults;
    memcpy(state->lengths, defaults, sizeof defaults);
    if (seqlens.count == 0) {
        return TOOL_DONE;
    }
    state->length_count = 0;
    for (size_t i = 0; i < seqlens.count; i++) {
        int64_t length;
        if (i == MAX_LENGTHS || !args_to_integer(seqlens.items[i], &length) || length < 1 ||
            length > 1 << 24) {
            return tool_error(TOOL_USAGE,
                              "--seqlen: '%s' is not a size; up to %d integers from 1 to 16777216",
                              seqlens.items[i], MAX_LENGTHS);
        }
        state->lengths[state->length_count++] = length;
    }
    qsort(state->lengths, (size_t)state->length_count, sizeof *state->lengths, compare_lengths);
    for (int i = 1; i < state->length_count; i++) {
        if (state->lengths[i] == state->lengths[i - 1]) {
            return tool_error(TOOL_USAGE, "--seqlen: %" PRId64 " is given twice",
                              state->lengths[i]);
        }
    }
    return TOOL_DONE;
}

static int read_options(tune_state *state) {
    if (!session_parse_backend(backend_name, &state->backend)) {
        return TOOL_USAGE;
    }
    if (state->backend == PFATTN_BACKEND_REF) {
        return tool_error(TOOL_USAGE, "--backend: ref has nothing to tune; choose cuda or hip");
    }
    int code = check_words("op", &ops, op_words);
    if (code == TOOL_DONE) {
        code = check_words("dtype", &dtypes, dtype_words);
    }
    if (code == TOOL_DONE) {
        code = check_words("head-dim", &head_dims, head_dim_words);
    }
    if (code == TOOL_DONE) {
        code = read_lengths(state);
    }
    if (code != TOOL_DONE) {
        return code;
    }
    if (rounds < 1 || rounds > 64) {
        return tool_error(TOOL_USAGE, "--rounds: %" PRId64 " is not from 1 to 64", rounds);
    }
    if (round_seconds < 0) {
        return tool_error(TOOL_USAGE, "--round-seconds: %g is negative", round_seconds);
    }
    if ((has_batch && batch < 1) || (has_heads && heads < 1)) {
        return tool_error(TOOL_USAGE, "--batch and --heads must be at least 1");
    }
    return TOOL_DONE;
}

/* ---- measuring ----------------------------------------------------------------------------- */

/* The kernel that select takes where the tuning file says nothing, and its variants. */
static void find_variants(const pf_capabilities *c, tune_kernel *kernel) {
    kernel->count = 0;
    for (int i = 0; i < c->target_count && kernel->count == 0; i++) {
        kernel->target = c->targets[i];
        for (int variant = 0; variant < PF_VARIANTS; variant++) {
            const pf_tuning *t = pf_kernel_find(c, kernel->target, kernel->op, kernel->element,
                                                kernel->head_dim, false, variant);
            if (!t && variant == 0) {
                break;
            }
            if (t) {
                kernel->variants[kernel->count++] = t;
            }
        }
    }
}

static int make_case(const tune_kernel *kernel, bool causal, int64_t length, check_case *c) {
    char text[256], message[256];
    int64_t tokens_batch = (16384 + length - 1) / length;
    snprintf(text, sizeof text,
             "op=%s dtype=%s B=%" PRId64 " H=%" PRId64 " M=%" PRId64 " N=%" PRId64
             " D=%d causal=%d dlse=0 tdo=1",
             op_words[kernel->op], pfattn_dtype_string(kernel->element),
             has_batch ? batch : tokens_batch, has_heads ? heads : 2048 / kernel->head_dim, length,
             length, kernel->head_dim, causal);
    return case_parse(text, c, message, sizeof message) ? TOOL_DONE
                                                        : tool_error(TOOL_USAGE, "%s", message);
}

/* Time each variant twice, taking turns, so that a device that slows down slows them all. */
static int measure(tune_state *state, const tune_kernel *kernel, const pf_tuned_entry *problem,
                   const check_case *c, bench_result results[PF_VARIANTS]) {
    bench_plan plan = {rounds, round_seconds};
    pf_tuned *tuned = state->c->tuned;
    for (int i = 0; i < PASSES * kernel->count; i++) {
        int at = i % kernel->count;
        bench_result result;
        tuned->entry[0] = *problem;
        tuned->entry[0].length = INT64_MAX;
        tuned->entry[0].variant = kernel->variants[at]->variant;
        tuned->count = 1;
        pf_calls_forget(&state->session.handle->calls);
        pfattn_status status = bench_measure(&state->session, c, &plan, &result);
        if (status != PFATTN_SUCCESS) {
            return tool_library_error(status);
        }
        if (i == at || result.seconds < results[at].seconds) {
            results[at] = result;
        }
    }
    return TOOL_DONE;
}

static int find_best(const bench_result *results, int count) {
    int best = 0;
    for (int i = 1; i < count; i++) {
        double bar = best == 0 ? results[0].seconds * (1 - margin) : results[best].seconds;
        best = results[i].seconds < bar ? i : best;
    }
    return best;
}

static void print_results(const tune_kernel *kernel, bool causal, int64_t length,
                          const bench_result *results, int best) {
    for (int i = 0; i < kernel->count; i++) {
        char name[PF_VARIANT_NAME];
        pf_variant_name(kernel->variants[i], name);
        printf("%-12s %-5s %4d %6d %6" PRId64 "  %-20s %12.4f %9.3f%s%s\n", op_words[kernel->op],
               pfattn_dtype_string(kernel->element), kernel->head_dim, causal, length, name,
               results[i].seconds * 1e3, results[i].flops / results[i].seconds * 1e-12,
               i == 0 ? "  default" : "", i == best ? "  best" : "");
    }
    fflush(stdout);
}

static void add_choice(tune_state *state, const pf_tuned_entry *entry, const tune_kernel *kernel,
                       const bench_result *results, int best) {
    tune_choice *choices = tool_allocate((state->choice_count + 1) * sizeof *choices);
    if (state->choice_count > 0) {
        memcpy(choices, state->choices, state->choice_count * sizeof *choices);
    }
    free(state->choices);
    state->choices = choices;
    tune_choice *choice = &choices[state->choice_count++];
    choice->entry = *entry;
    pf_variant_name(kernel->variants[best], choice->variant);
    snprintf(choice->comment, sizeof choice->comment, "%.4g ms, default %.4g ms",
             results[best].seconds * 1e3, results[0].seconds * 1e3);
}

/* One kernel on one problem. */
static int tune_length(tune_state *state, const tune_kernel *kernel, bool causal, int at) {
    int64_t length = state->lengths[at];
    bool last = at == state->length_count - 1;
    bench_result results[PF_VARIANTS];
    pf_tuned_entry entry = {kernel->target,
                            kernel->op,
                            kernel->element,
                            kernel->head_dim,
                            causal,
                            last ? INT64_MAX : length,
                            0};
    check_case c;
    int code = make_case(kernel, causal, length, &c);
    if (isatty(2)) {
        fprintf(stderr, "\r\033[K%s %s D=%d N=%" PRId64, op_words[kernel->op],
                pfattn_dtype_string(kernel->element), kernel->head_dim, length);
    }
    if (code == TOOL_DONE) {
        code = measure(state, kernel, &entry, &c, results);
    }
    if (isatty(2)) {
        fputs("\r\033[K", stderr);
    }
    if (code == TOOL_DONE) {
        int best = find_best(results, kernel->count);
        print_results(kernel, causal, length, results, best);
        add_choice(state, &entry, kernel, results, best);
    }
    return code;
}

static int tune_kernel_variants(tune_state *state, tune_kernel *kernel) {
    char name[PF_VARIANT_NAME] = "none";
    find_variants(state->c, kernel);
    if (kernel->count < 2) {
        if (kernel->count == 1) {
            pf_variant_name(kernel->variants[0], name);
        }
        printf("%-12s %-5s %4d                %-20s %s\n", op_words[kernel->op],
               pfattn_dtype_string(kernel->element), kernel->head_dim, name,
               kernel->count == 1 ? "the only variant" : "no kernel in this build");
        return TOOL_DONE;
    }
    int code = TOOL_DONE;
    for (int causal = 0; causal < 2; causal++) {
        for (int at = 0; at < state->length_count && code == TOOL_DONE; at++) {
            code = tune_length(state, kernel, causal, at);
        }
    }
    return code;
}

static int tune_all(tune_state *state) {
    static const pfattn_dtype elements[] = {PFATTN_DTYPE_F16, PFATTN_DTYPE_BF16, PFATTN_DTYPE_F32,
                                            PFATTN_DTYPE_E5M2};
    int code = TOOL_DONE;
    printf("%s\n%-12s %-5s %4s %6s %6s  %-20s %12s %9s\n", session_describe(&state->session),
           "operation", "type", "D", "causal", "N", "variant", "time ms", "TFLOP/s");
    for (int op = 0; op_words[op]; op++) {
        for (int element = 0; dtype_words[element]; element++) {
            for (int dim = 0; head_dim_words[dim] && code == TOOL_DONE; dim++) {
                tune_kernel kernel = {
                    .op = op, .element = elements[element], .head_dim = 64 << dim};
                if (is_wanted(&ops, op_words[op], true) &&
                    is_wanted(&dtypes, dtype_words[element], element < 2) &&
                    is_wanted(&head_dims, head_dim_words[dim], true)) {
                    code = tune_kernel_variants(state, &kernel);
                }
            }
        }
    }
    return code;
}

/* ---- the command --------------------------------------------------------------------------- */

static int open_device(tune_state *state) {
    int code = session_open(&state->session, state->backend, device);
    if (code != TOOL_DONE) {
        return code;
    }
    if (!state->session.backend->capabilities) {
        code = tool_error(TOOL_UNAVAILABLE,
                          "no GPU can be used here (`pfattn info` says why), and %s has nothing to "
                          "tune",
                          state->session.backend->name);
        session_close(&state->session);
        return code;
    }
    state->c = state->session.backend->capabilities(state->session.device);
    return TOOL_DONE;
}

static int tune_device(tune_state *state, const char *path) {
    int code = tune_all(state);
    if (code != TOOL_DONE) {
        return code;
    }
    if (state->choice_count == 0) {
        printf("nothing to choose: no file is written\n");
        return TOOL_DONE;
    }
    code = tune_file_write(path, state->session.backend->name, state->session.info.name,
                           state->choices, state->choice_count);
    if (code == TOOL_DONE) {
        printf("wrote %s\n", path);
    }
    return code;
}

/* What stands in the way of the file is to be known before the measuring, not after. */
static int prepare_file(const char *path, bool named) {
    int code = named ? TOOL_DONE : tune_file_make_directories(path);
    return code == TOOL_DONE ? tune_file_check(path) : code;
}

static int run(void) {
    char place[PF_TUNED_PATH];
    const char *path = output ? output : place;
    bool named = true;
    tune_state state = {.choices = NULL};
    int code = read_options(&state);
    if (code == TOOL_DONE && !output) {
        code = tune_file_place(place, &named);
    }
    if (code == TOOL_DONE) {
        setenv("PFATTN_TUNING", "none", 1); /* what was chosen before does not matter here */
        code = open_device(&state);
    }
    if (code != TOOL_DONE) {
        return code;
    }
    code = prepare_file(path, named);
    if (code == TOOL_DONE) {
        code = tune_device(&state, path);
    }
    free(state.choices);
    session_close(&state.session);
    return code;
}

int tune_main(int argc, char **argv) {
    arg_command command = {
        .usage = "pfattn tune [OPTION]...",
        .summary = "Measure the variants of each kernel on a device, and write a file that says "
                   "which are best.\nEvery later handle on that device reads it.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
    };
    int code = args_parse(&command, argc, argv);
    if (code < 0) {
        code = run();
    }
    args_list_free(&ops);
    args_list_free(&dtypes);
    args_list_free(&head_dims);
    args_list_free(&seqlens);
    return code;
}
