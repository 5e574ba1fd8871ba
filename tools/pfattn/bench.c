/* SPDX-License-Identifier: Apache-2.0 */
/* `pfattn bench`: a table of times. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "bench_measure.h"
#include "json.h"
#include "tool.h"

static arg_list backends, ops, dtypes, head_dims, seqlens, query_counts;
static const char *causal, *preset, *bias, *csv_path, *json_path;
static int64_t batch, heads, kv_heads, distance, device, rounds = 7;
static double round_seconds = 0.05;
static bool has_batch, has_heads, has_kv_heads, has_distance, deterministic;

static const arg_option options[] = {
    {"backend", "auto|ref|cuda|hip", ARG_COMMA_LIST, &backends, NULL,
     "which backend; give it again for several in turn; default auto"},
    {"device", "N", ARG_INTEGER, &device, NULL, "index among the backend's devices; default 0"},
    {NULL, NULL, ARG_HEADING, NULL, NULL, "The rows are every combination of:"},
    {"op", "OP,..", ARG_COMMA_LIST, &ops, NULL,
     "forward, jvp, backward, backward-jvp, merge; default forward"},
    {"dtype", "TYPE,..", ARG_COMMA_LIST, &dtypes, NULL,
     "f16, bf16, f32, e5m2, f64; default f16 (f32 on ref)"},
    {"head-dim", "D,..", ARG_COMMA_LIST, &head_dims, NULL, "default 64"},
    {"seqlen", "N,..", ARG_COMMA_LIST, &seqlens, NULL,
     "queries and keys; default 4096 (1024 on ref)"},
    {"queries", "M,..", ARG_COMMA_LIST, &query_counts, NULL, "queries, where not as many as keys"},
    {"causal", "0|1|both", ARG_TEXT, &causal, NULL, "default 0"},
    {NULL, NULL, ARG_HEADING, NULL, NULL, "Each of them with:"},
    {"batch", "B", ARG_INTEGER, &batch, &has_batch,
     "default as many as make 16384 tokens (1 on ref)"},
    {"heads", "H", ARG_INTEGER, &heads, &has_heads,
     "default as many as make a hidden size of 2048 (8 on ref)"},
    {"kv-heads", "HK", ARG_INTEGER, &kv_heads, &has_kv_heads, "default as --heads"},
    {"bias", "f16|bf16|f32", ARG_TEXT, &bias, NULL, "a dense bias [B,H,N,N]; with its gradient"},
    {"distance", "W", ARG_INTEGER, &distance, &has_distance,
     "piecewise: a second pair q2, k2 at distances >= W"},
    {"deterministic", NULL, ARG_FLAG, &deterministic, NULL, "bitwise repeatable backward"},
    {NULL, NULL, ARG_HEADING, NULL, NULL,
     "Or a known sweep, f16, of which lists above replace parts:"},
    {"preset", "NAME", ARG_TEXT, &preset, NULL,
     "triton          the Triton tutorial: B 4, H 32, N 1k..16k, D 64, 128\n"
     "flashattention  FlashAttention: 16384 tokens, hidden size 2048,\n"
     "                N 512..16k, D 64, 128, 256\n"
     "piecewise       FlagAttention: 32k tokens, hidden size 2048, N 512..32k,\n"
     "                D 64, 128, distance N/2\n"
     "each forward and backward, causal and not\n"
     "decode          few queries and many keys, forward: M 1, 4, 16, N 64k,\n"
     "                B 1, hidden size 2048, D 64, 128"},
    {NULL, NULL, ARG_HEADING, NULL, NULL, "Measuring and results:"},
    {"rounds", "R", ARG_INTEGER, &rounds, NULL, "the median of so many rounds; 1 to 64, default 7"},
    {"round-seconds", "T", ARG_NUMBER, &round_seconds, NULL, "length of a round; default 0.05"},
    {"csv", "FILE", ARG_TEXT, &csv_path, NULL, "write the rows as CSV"},
    {"json", "FILE", ARG_TEXT, &json_path, NULL, "write the rows as JSON"},
};

/* What is combined into rows. */
typedef struct sweep {
    const char *ops[8], *dtypes[8];
    int64_t head_dims[16], seqlens[16], queries[16];
    int op_count, dtype_count, head_dim_count, seqlen_count;
    int query_count;        /* 0: as many queries as keys */
    bool causal[2];         /* whether not causal, causal are wanted */
    int64_t tokens, hidden; /* B = tokens / N and H = hidden / D where > 0 */
    int64_t batch, heads;   /* otherwise */
    bool half_distance;     /* piecewise with distance N/2 */
} sweep;

typedef struct bench_row {
    const char *backend;
    const char *device;
    check_case c;
    bench_result result;
} bench_row;

typedef struct bench_table {
    bench_row *rows;
    size_t count;
    size_t refused;
} bench_table;

static int read_names(const char *option, const arg_list *list, const char *const *allowed,
                      const char **names, int *count) {
    for (size_t i = 0; i < list->count; i++) {
        const char *found = NULL;
        for (int j = 0; allowed[j]; j++) {
            found = strcmp(list->items[i], allowed[j]) ? found : allowed[j];
        }
        if (!found || i == 8) {
            return tool_error(TOOL_USAGE,
                              "--%s: '%s' is not known here; `pfattn bench --help` lists "
                              "what is",
                              option, list->items[i]);
        }
        names[i] = found;
        *count = (int)i + 1;
    }
    return TOOL_DONE;
}

static int read_sizes(const char *option, const arg_list *list, int64_t *sizes, int *count) {
    for (size_t i = 0; i < list->count; i++) {
        if (!args_to_integer(list->items[i], &sizes[i % 16]) || sizes[i % 16] < 1 || i == 16 ||
            sizes[i % 16] > 1 << 24) {
            return tool_error(TOOL_USAGE,
                              "--%s: '%s' is not a size; up to 16 integers from 1 to 16777216",
                              option, list->items[i]);
        }
        *count = (int)i + 1;
    }
    return TOOL_DONE;
}

static void set_sizes(int64_t *sizes, int *count, int64_t from, int64_t to) {
    *count = 0;
    for (int64_t size = from; size <= to; size *= 2) {
        sizes[(*count)++] = size;
    }
}

/* The defaults on a device, or the preset. */
static int start_sweep(const tool_session *session, sweep *s) {
    bool gpu = session_is_gpu(session);
    *s = (sweep){.ops = {"forward", "backward"},
                 .dtypes = {gpu || preset ? "f16" : "f32"},
                 .head_dims = {64},
                 .seqlens = {gpu ? 4096 : 1024},
                 .op_count = preset ? 2 : 1,
                 .dtype_count = 1,
                 .head_dim_count = 1,
                 .seqlen_count = 1,
                 .causal = {true, preset != NULL},
                 .tokens = gpu ? 16384 : 0,
                 .hidden = gpu ? 2048 : 0,
                 .batch = 1,
                 .heads = 8};
    if (!preset) {
        return TOOL_DONE;
    }
    s->hidden = 2048;
    set_sizes(s->head_dims, &s->head_dim_count, 64, 128);
    if (!strcmp(preset, "triton")) {
        s->tokens = s->hidden = 0;
        s->batch = 4;
        s->heads = 32;
        set_sizes(s->seqlens, &s->seqlen_count, 1024, 16384);
    } else if (!strcmp(preset, "flashattention")) {
        s->tokens = 16384;
        set_sizes(s->head_dims, &s->head_dim_count, 64, 256);
        set_sizes(s->seqlens, &s->seqlen_count, 512, 16384);
    } else if (!strcmp(preset, "piecewise")) {
        s->tokens = 32768;
        s->half_distance = true;
        set_sizes(s->seqlens, &s->seqlen_count, 512, 32768);
    } else if (!strcmp(preset, "decode")) {
        s->op_count = 1;
        s->causal[1] = false;
        s->tokens = 0;
        s->seqlens[0] = 65536;
        s->query_count = 3;
        memcpy(s->queries, (const int64_t[]){1, 4, 16}, 3 * sizeof s->queries[0]);
    } else {
        return tool_error(TOOL_USAGE,
                          "--preset: '%s' is none of triton, flashattention, piecewise, decode",
                          preset);
    }
    return TOOL_DONE;
}

static int read_sweep(const tool_session *session, sweep *s) {
    static const char *const op_names[] = {"forward",      "jvp",   "backward",
                                           "backward-jvp", "merge", NULL};
    static const char *const dtype_names[] = {"f16", "bf16", "f32", "e5m2", "f64", NULL};
    int code = start_sweep(session, s);
    if (code == TOOL_DONE) {
        code = read_names("op", &ops, op_names, s->ops, &s->op_count);
    }
    if (code == TOOL_DONE) {
        code = read_names("dtype", &dtypes, dtype_names, s->dtypes, &s->dtype_count);
    }
    if (code == TOOL_DONE) {
        code = read_sizes("head-dim", &head_dims, s->head_dims, &s->head_dim_count);
    }
    if (code == TOOL_DONE) {
        code = read_sizes("seqlen", &seqlens, s->seqlens, &s->seqlen_count);
    }
    if (code == TOOL_DONE) {
        code = read_sizes("queries", &query_counts, s->queries, &s->query_count);
    }
    if (causal) {
        s->causal[0] = strcmp(causal, "1") != 0;
        s->causal[1] = strcmp(causal, "0") != 0;
        if (s->causal[0] && s->causal[1] && strcmp(causal, "both")) {
            return tool_error(TOOL_USAGE, "--causal: '%s' is none of 0, 1, both", causal);
        }
    }
    return code;
}

static int check_options(void) {
    if (rounds < 1 || rounds > 64) {
        return tool_error(TOOL_USAGE, "--rounds: %lld is not from 1 to 64", (long long)rounds);
    }
    if (round_seconds < 0) {
        return tool_error(TOOL_USAGE, "--round-seconds: %g is negative", round_seconds);
    }
    if ((has_batch && batch < 1) || (has_heads && heads < 1) || (has_kv_heads && kv_heads < 1)) {
        return tool_error(TOOL_USAGE, "--batch, --heads and --kv-heads must be at least 1");
    }
    if (bias && strcmp(bias, "f16") && strcmp(bias, "bf16") && strcmp(bias, "f32")) {
        return tool_error(TOOL_USAGE, "--bias: '%s' is none of f16, bf16, f32", bias);
    }
    return TOOL_DONE;
}

static int make_case(const sweep *s, const char *op, const char *dtype, int64_t dim, int64_t length,
                     int64_t queries, bool is_causal, check_case *c) {
    char text[512], message[512];
    int64_t rows_batch = has_batch       ? batch
                         : s->tokens > 0 ? (s->tokens + length - 1) / length
                                         : s->batch;
    int64_t row_heads = has_heads ? heads : s->hidden > 0 ? (s->hidden + dim - 1) / dim : s->heads;
    int used =
        snprintf(text, sizeof text,
                 "op=%s dtype=%s B=%lld H=%lld Hk=%lld M=%lld N=%lld D=%lld causal=%d "
                 "dlse=0 tdo=1 det=%d bias=%s",
                 op, dtype, (long long)rows_batch, (long long)row_heads,
                 (long long)(has_kv_heads ? kv_heads : row_heads), (long long)queries,
                 (long long)length, (long long)dim, is_causal, deterministic, bias ? bias : "none");
    if (has_distance || s->half_distance) {
        snprintf(text + used, sizeof text - (size_t)used, " w=%lld",
                 (long long)(has_distance ? distance : length / 2));
    }
    if (!case_parse(text, c, message, sizeof message)) {
        return tool_error(TOOL_USAGE, "%s", message);
    }
    return TOOL_DONE;
}

static void print_header(const char *device_text) {
    printf("%s\n%-12s %-5s %4s %4s %4s %6s %6s %4s %6s %12s %9s %9s\n", device_text, "operation",
           "type", "B", "H", "Hk", "M", "N", "D", "causal", "time ms", "TFLOP/s", "GB/s");
}

static void print_row(const bench_row *row) {
    const check_case *c = &row->c;
    printf("%-12s %-5s %4lld %4lld %4lld %6lld %6lld %4lld %6lld %12.4f",
           case_op_name((case_op)c->op), pfattn_dtype_string((pfattn_dtype)c->dtype),
           (long long)c->batch, (long long)c->heads, (long long)c->kv_heads, (long long)c->queries,
           (long long)c->keys, (long long)c->dim_qk, (long long)c->causal,
           row->result.seconds * 1e3);
    if (row->result.flops > 0) {
        printf(" %9.4f", row->result.flops / row->result.seconds * 1e-12);
    } else {
        printf(" %9s", "-");
    }
    printf(" %9.1f\n", row->result.bytes / row->result.seconds * 1e-9);
    fflush(stdout);
}

static int measure_row(tool_session *session, const char *device_text, const check_case *c,
                       bench_table *table) {
    bench_plan plan = {rounds, round_seconds};
    bench_row row = {.backend = session->backend->name, .device = device_text, .c = *c};
    char text[1024];
    case_print(c, text, sizeof text);
    if (isatty(2)) {
        fprintf(stderr, "\r\033[K%.76s", text);
    }
    pfattn_status status = bench_measure(session, c, &plan, &row.result);
    if (isatty(2)) {
        fputs("\r\033[K", stderr);
    }
    if (status == PFATTN_ERROR_UNSUPPORTED || status == PFATTN_ERROR_INVALID_ARGUMENT) {
        printf("not supported: %s: %s\n", text, pfattn_last_error());
        table->refused++;
        return TOOL_DONE;
    }
    if (status != PFATTN_SUCCESS) {
        return tool_library_error(status);
    }
    print_row(&row);
    bench_row *rows = realloc(table->rows, (table->count + 1) * sizeof *rows);
    if (!rows) {
        return tool_error(TOOL_UNAVAILABLE, "out of host memory");
    }
    table->rows = rows;
    table->rows[table->count++] = row;
    return TOOL_DONE;
}

static int run_sweep(tool_session *session, const sweep *s, const char *device_text,
                     bench_table *table) {
    int lengths = s->seqlen_count * (s->query_count > 0 ? s->query_count : 1);
    int count = s->op_count * s->dtype_count * s->head_dim_count * 2 * lengths;
    for (int i = 0; i < count; i++) {
        int rest = i;
        int64_t length = s->seqlens[rest % s->seqlen_count];
        int64_t queries =
            s->query_count > 0 ? s->queries[rest % lengths / s->seqlen_count] : length;
        rest /= lengths;
        int is_causal = rest % 2;
        rest /= 2;
        int64_t dim = s->head_dims[rest % s->head_dim_count];
        rest /= s->head_dim_count;
        const char *dtype = s->dtypes[rest % s->dtype_count];
        const char *op = s->ops[rest / s->dtype_count];
        if (!s->causal[is_causal] || (is_causal && s->causal[0] && !strcmp(op, "merge"))) {
            continue;
        }
        check_case c;
        int code = make_case(s, op, dtype, dim, length, queries, is_causal, &c);
        if (code == TOOL_DONE) {
            code = measure_row(session, device_text, &c, table);
        }
        if (code != TOOL_DONE) {
            return code;
        }
    }
    return TOOL_DONE;
}

static FILE *open_file(const char *option, const char *path) {
    FILE *file = fopen(path, "w");
    if (!file) {
        tool_error(TOOL_FILE, "--%s: cannot write %s: %s", option, path, strerror(errno));
    }
    return file;
}

static int close_file(const char *option, const char *path, FILE *file) {
    bool failed = ferror(file);
    failed = fclose(file) != 0 || failed;
    return failed ? tool_error(TOOL_FILE, "--%s: cannot write %s", option, path) : TOOL_DONE;
}

static double row_tflops(const bench_row *row) {
    return row->result.flops / row->result.seconds * 1e-12;
}

static int write_csv(const bench_table *table) {
    FILE *file = open_file("csv", csv_path);
    if (!file) {
        return TOOL_FILE;
    }
    fputs("backend,device,preset,op,dtype,batch,heads,kv_heads,queries,keys,dim_qk,dim_v,causal,"
          "distance,bias,seconds,least_seconds,most_seconds,tflops,gigabytes_per_second\n",
          file);
    for (size_t i = 0; i < table->count; i++) {
        const bench_row *row = &table->rows[i];
        const check_case *c = &row->c;
        fprintf(file, "%s,\"%s\",%s,%s,%s,%lld,%lld,%lld,%lld,%lld,%lld,%lld,%lld,", row->backend,
                row->device, preset ? preset : "", case_op_name((case_op)c->op),
                pfattn_dtype_string((pfattn_dtype)c->dtype), (long long)c->batch,
                (long long)c->heads, (long long)c->kv_heads, (long long)c->queries,
                (long long)c->keys, (long long)c->dim_qk, (long long)c->dim_v,
                (long long)c->causal);
        if (c->distance != CASE_UNSET) {
            fprintf(file, "%lld", (long long)c->distance);
        }
        fprintf(file, ",%s,%.9g,%.9g,%.9g,%.6g,%.6g\n", pfattn_dtype_string((pfattn_dtype)c->bias),
                row->result.seconds, row->result.least, row->result.most, row_tflops(row),
                row->result.bytes / row->result.seconds * 1e-9);
    }
    return close_file("csv", csv_path, file);
}

static int write_json(const bench_table *table) {
    FILE *file = open_file("json", json_path);
    if (!file) {
        return TOOL_FILE;
    }
    json writer = {.out = file};
    json_object(&writer, NULL);
    json_text(&writer, "version", pfattn_version_string());
    json_text(&writer, "preset", preset ? preset : "");
    json_array(&writer, "rows");
    for (size_t i = 0; i < table->count; i++) {
        const bench_row *row = &table->rows[i];
        const check_case *c = &row->c;
        json_object(&writer, NULL);
        json_text(&writer, "backend", row->backend);
        json_text(&writer, "device", row->device);
        json_text(&writer, "op", case_op_name((case_op)c->op));
        json_text(&writer, "dtype", pfattn_dtype_string((pfattn_dtype)c->dtype));
        json_integer(&writer, "batch", c->batch);
        json_integer(&writer, "heads", c->heads);
        json_integer(&writer, "kv_heads", c->kv_heads);
        json_integer(&writer, "queries", c->queries);
        json_integer(&writer, "keys", c->keys);
        json_integer(&writer, "dim_qk", c->dim_qk);
        json_integer(&writer, "dim_v", c->dim_v);
        json_integer(&writer, "causal", c->causal);
        if (c->distance != CASE_UNSET) {
            json_integer(&writer, "distance", c->distance);
        }
        json_text(&writer, "bias", pfattn_dtype_string((pfattn_dtype)c->bias));
        json_number(&writer, "seconds", row->result.seconds);
        json_number(&writer, "least_seconds", row->result.least);
        json_number(&writer, "most_seconds", row->result.most);
        json_number(&writer, "tflops", row_tflops(row));
        json_number(&writer, "gigabytes_per_second",
                    row->result.bytes / row->result.seconds * 1e-9);
        json_integer(&writer, "input_sets", row->result.sets);
        json_close_object(&writer);
    }
    json_close_array(&writer);
    json_close_object(&writer);
    return close_file("json", json_path, file);
}

static int bench_backend(const char *name, bench_table *table, char **device_text) {
    pfattn_backend id = PFATTN_BACKEND_AUTO;
    tool_session session;
    sweep s;
    if (name && !session_parse_backend(name, &id)) {
        return TOOL_USAGE;
    }
    int code = session_open(&session, id, device);
    if (code != TOOL_DONE) {
        return code;
    }
    *device_text = tool_copy_text(session_describe(&session));
    code = read_sweep(&session, &s);
    if (code == TOOL_DONE) {
        print_header(*device_text);
        code = run_sweep(&session, &s, *device_text, table);
    }
    session_close(&session);
    return code;
}

static int bench_all(void) {
    size_t count = backends.count ? backends.count : 1;
    bench_table table = {NULL, 0, 0};
    char **devices = tool_allocate(count * sizeof *devices);
    int code = TOOL_DONE;
    for (size_t i = 0; i < count && code == TOOL_DONE; i++) {
        code = bench_backend(backends.count ? backends.items[i] : NULL, &table, &devices[i]);
    }
    if (code == TOOL_DONE && csv_path) {
        code = write_csv(&table);
    }
    if (code == TOOL_DONE && json_path) {
        code = write_json(&table);
    }
    if (code == TOOL_DONE && table.count == 0 && table.refused) {
        code = TOOL_UNSUPPORTED;
    }
    for (size_t i = 0; i < count; i++) {
        free(devices[i]);
    }
    free(devices);
    free(table.rows);
    return code;
}

int bench_main(int argc, char **argv) {
    arg_command command = {
        .usage = "pfattn bench [--backend B] [OPTION]...",
        .summary =
            "Measure the time of operations on random inputs. TFLOP/s count forward as\n"
            "2 B H M N (D + E), jvp three times, backward 2.5 times, backward-jvp 7.5 times that,\n"
            "and half of it where causal. On a GPU device events measure, and several input sets\n"
            "larger than the caches take turns.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
    };
    int code = args_parse(&command, argc, argv);
    if (code >= 0) {
        return code;
    }
    code = check_options();
    if (code == TOOL_DONE) {
        code = bench_all();
    }
    args_list_free(&backends);
    args_list_free(&ops);
    args_list_free(&dtypes);
    args_list_free(&head_dims);
    args_list_free(&seqlens);
    args_list_free(&query_counts);
    return code;
}
