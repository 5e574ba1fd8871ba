/* SPDX-License-Identifier: Apache-2.0 */
/* `pfattn check`: every operation and feature of a backend against the reference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "args.h"
#include "case_list.h"
#include "check_report.h"
#include "check_run.h"
#include "tool.h"

static arg_list backends, ops, cases;
static bool quick, simulator, full, verbose, list_only;
static int64_t seed = 1, device;
static const char *part, *json_path, *junit_path;
static long part_index = 1, part_count = 1;

static const arg_option options[] = {
    {"backend", "auto|ref|cuda|hip", ARG_COMMA_LIST, &backends, NULL,
     "which backend; give it again for several in turn; default auto"},
    {"device", "N", ARG_INTEGER, &device, NULL, "index among the backend's devices; default 0"},
    {"quick", NULL, ARG_FLAG, &quick, NULL,
     "a few small cases of everything, seconds (the default)"},
    {"simulator", NULL, ARG_FLAG, &simulator, NULL,
     "every feature and head dimension just past the edge of a tile, for\n"
     "a simulated device; minutes"},
    {"full", NULL, ARG_FLAG, &full, NULL,
     "every shape, head dimension and feature, large problems, and\nrandom cases; minutes"},
    {"seed", "S", ARG_INTEGER, &seed, NULL, "of the data and of the random cases; default 1"},
    {"op", "OP,..", ARG_COMMA_LIST, &ops, NULL,
     "only these: forward, jvp, backward, backward-jvp, merge, duality"},
    {"case", "'k=v ...'", ARG_LIST, &cases, NULL,
     "this case alone, as a repro line prints it; may be repeated;\n"
     "a wrong word lists the knobs there are"},
    {"part", "I/N", ARG_TEXT, &part, NULL,
     "only the cases I, I + N, I + 2 N ...: N such runs, side by side, are\nas good as one"},
    {"json", "FILE", ARG_TEXT, &json_path, NULL, "write the results as JSON"},
    {"junit", "FILE", ARG_TEXT, &junit_path, NULL, "write the results as JUnit XML"},
    {"list", NULL, ARG_FLAG, &list_only, NULL, "print the cases and run none"},
    {"verbose", NULL, ARG_FLAG, &verbose, NULL, "print a line per case"},
};

static bool is_wanted(const check_case *c) {
    for (size_t i = 0; i < ops.count; i++) {
        if (!strcmp(ops.items[i], case_op_name((case_op)c->op))) {
            return true;
        }
    }
    return ops.count == 0;
}

static int check_ops(void) {
    for (size_t i = 0; i < ops.count; i++) {
        bool known = false;
        for (int op = 0; op < CASE_OP_COUNT; op++) {
            known = known || !strcmp(ops.items[i], case_op_name((case_op)op));
        }
        if (!known) {
            return tool_error(TOOL_USAGE,
                              "--op: '%s' is none of forward, jvp, backward, backward-jvp, merge, "
                              "duality",
                              ops.items[i]);
        }
    }
    return TOOL_DONE;
}

static int parse_part(void) {
    char *end = NULL;
    if (!part) {
        return TOOL_DONE;
    }
    part_index = strtol(part, &end, 10);
    part_count = *end == '/' ? strtol(end + 1, &end, 10) : 0;
    if (*end || part_index < 1 || part_index > part_count) {
        return tool_error(TOOL_USAGE, "--part: '%s' is not I/N with 1 <= I <= N", part);
    }
    return TOOL_DONE;
}

/* The host gets cases of at most a few seconds; memory counts where it is the device's own, and
 * half of it where it is shared with everything else. */
static case_limits limits_of(const tool_session *session) {
    bool gpu = session_is_gpu(session);
    case_limits limits = {gpu ? 1e14 : 2.5e9 * session->info.compute_units,
                          (double)session->info.memory_bytes * (gpu ? 0.9 : 0.6)};
    return limits;
}

static int list_cases(const tool_session *session, case_list *list) {
    char message[1024];
    case_limits limits = limits_of(session);
    memset(list, 0, sizeof *list);
    for (size_t i = 0; i < cases.count; i++) {
        if (!case_list_add_text(list, cases.items[i], message, sizeof message)) {
            case_list_free(list);
            return tool_error(TOOL_USAGE, "--case: %s", message);
        }
    }
    if (cases.count == 0 && full) {
        case_list_full(list, &limits, (uint64_t)seed);
    } else if (cases.count == 0 && simulator) {
        case_list_simulator(list);
    } else if (cases.count == 0) {
        case_list_quick(list);
    }
    size_t kept = 0, wanted = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (is_wanted(&list->items[i]) && wanted++ % (size_t)part_count == (size_t)part_index - 1) {
            list->items[kept++] = list->items[i];
        }
    }
    list->count = kept;
    return TOOL_DONE;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void show_progress(size_t done, size_t count, size_t failed, const check_case *c) {
    char text[1024];
    case_print(c, text, sizeof text);
    fprintf(stderr, "\r\033[K%zu/%zu%s %.60s", done, count, failed ? " (failures)" : "", text);
    fflush(stderr);
}

static void print_case(const check_record *record) {
    static const char *const verdicts[] = {"passed", "FAILED", "skipped"};
    char text[1024];
    case_print(&record->c, text, sizeof text);
    printf("%-7s %6.3f %7.3f s  %s\n", verdicts[record->result.verdict], record->result.ratio,
           record->result.seconds, text);
    fflush(stdout);
}

static void print_list(const case_list *list) {
    char text[1024];
    for (size_t i = 0; i < list->count; i++) {
        case_print(&list->items[i], text, sizeof text);
        puts(text);
    }
}

static int run_backend(tool_session *session, check_report *report) {
    case_list list;
    int code = list_cases(session, &list);
    if (code != TOOL_DONE) {
        return code;
    }
    if (list.count == 0) {
        case_list_free(&list);
        return tool_error(TOOL_USAGE, "--op and --part leave no case to run");
    }
    if (list_only) {
        print_list(&list);
        case_list_free(&list);
        return TOOL_DONE;
    }
    double start = now();
    bool progress = isatty(2) && !verbose;
    size_t failed = 0;
    report->backend = session->backend->name;
    report->device = tool_copy_text(session_describe(session));
    report->device_index = session->handle->index;
    report->seed = (uint64_t)seed;
    report->mode = cases.count ? "cases" : full ? "full" : simulator ? "simulator" : "quick";
    report->records = tool_allocate(list.count * sizeof *report->records);
    for (size_t i = 0; i < list.count; i++) {
        check_record *record = &report->records[report->count++];
        if (progress) {
            show_progress(i, list.count, failed, &list.items[i]);
        }
        record->c = list.items[i];
        check_run(session, &record->c, (uint64_t)seed, &record->result);
        failed += record->result.verdict == VERDICT_FAILED;
        if (verbose) {
            print_case(record);
        }
    }
    if (progress) {
        fputs("\r\033[K", stderr);
    }
    report->seconds = now() - start;
    case_list_free(&list);
    report_print(report);
    /* A list of which the backend can do nothing has shown nothing. */
    bool nothing = report_count(report, VERDICT_PASSED) == 0;
    return failed ? TOOL_FAILED : nothing ? TOOL_UNSUPPORTED : TOOL_DONE;
}

/* Every backend that was asked for must be there before anything runs. */
static int open_backends(tool_session *sessions, size_t count) {
    for (size_t i = 0; i < count; i++) {
        pfattn_backend id = PFATTN_BACKEND_AUTO;
        if (backends.count && !session_parse_backend(backends.items[i], &id)) {
            return TOOL_USAGE;
        }
        int code = session_open(&sessions[i], id, device);
        if (code != TOOL_DONE) {
            return code;
        }
    }
    return TOOL_DONE;
}

static int run_all(void) {
    size_t count = backends.count ? backends.count : 1;
    tool_session *sessions = tool_allocate(count * sizeof *sessions);
    check_report *reports = tool_allocate(count * sizeof *reports);
    int code = open_backends(sessions, count);
    bool opened = code == TOOL_DONE;
    for (size_t i = 0; opened && i < count; i++) {
        int result = run_backend(&sessions[i], &reports[i]);
        code = code == TOOL_DONE || result == TOOL_FAILED ? result : code;
    }
    if (opened && code != TOOL_USAGE && !list_only) {
        int json_code = json_path ? report_write_json(reports, count, json_path) : TOOL_DONE;
        int junit_code = junit_path ? report_write_junit(reports, count, junit_path) : TOOL_DONE;
        code = code != TOOL_DONE ? code : json_code != TOOL_DONE ? json_code : junit_code;
    }
    for (size_t i = 0; i < count; i++) {
        session_close(&sessions[i]);
        free(reports[i].records);
        free((char *)reports[i].device);
    }
    free(sessions);
    free(reports);
    return code;
}

int check_main(int argc, char **argv) {
    arg_command command = {
        .usage = "pfattn check [--backend B] [--quick|--simulator|--full] [OPTION]...",
        .summary =
            "Compare a backend with the reference in f64, on the same rounded inputs. A result is\n"
            "right where its error is at most twice that of a naive computation in the same types\n"
            "(four times in norm). Memory around every tensor must stay intact. A failure prints "
            "a\n"
            "line that repeats it. The exit status is 1 where a case failed, 3 where the backend\n"
            "could do none, 4 where a backend that was asked for is not available.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
    };
    int code = args_parse(&command, argc, argv);
    if (code >= 0) {
        return code;
    }
    if (quick + simulator + full > 1) {
        return tool_error(TOOL_USAGE, "--quick, --simulator and --full exclude each other");
    }
    code = check_ops();
    if (code == TOOL_DONE) {
        code = parse_part();
    }
    if (code == TOOL_DONE) {
        code = run_all();
    }
    args_list_free(&backends);
    args_list_free(&ops);
    args_list_free(&cases);
    return code;
}
