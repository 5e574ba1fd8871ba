/* SPDX-License-Identifier: Apache-2.0 */
#include "check_report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "tool.h"

/* One line of the table: the cases of one operation and type. */
typedef struct group {
    int64_t op, dtype;
    size_t verdicts[3];
    double worst;
    double seconds;
} group;

enum { GROUP_COUNT = CASE_OP_COUNT * (PFATTN_DTYPE_E5M2 + 1) };

static void collect(const check_report *report, group groups[GROUP_COUNT]) {
    memset(groups, 0, GROUP_COUNT * sizeof *groups);
    for (size_t i = 0; i < report->count; i++) {
        const check_record *record = &report->records[i];
        group *g = &groups[record->c.op * (PFATTN_DTYPE_E5M2 + 1) + record->c.dtype];
        g->op = record->c.op;
        g->dtype = record->c.dtype;
        g->verdicts[record->result.verdict]++;
        g->worst = fmax(g->worst, record->result.ratio);
        g->seconds += record->result.seconds;
    }
}

static size_t group_cases(const group *g) {
    return g->verdicts[0] + g->verdicts[1] + g->verdicts[2];
}

size_t report_count(const check_report *report, verdict wanted) {
    size_t count = 0;
    for (size_t i = 0; i < report->count; i++) {
        count += report->records[i].result.verdict == wanted;
    }
    return count;
}

void report_repro(const check_report *report, const check_record *record, char *text, size_t size) {
    char words[1024], device[32] = "";
    case_print(&record->c, words, sizeof words);
    if (report->device_index != 0) {
        snprintf(device, sizeof device, " --device %d", (int)report->device_index);
    }
    snprintf(text, size, "pfattn check --backend %s%s --seed %llu --case '%s'", report->backend,
             device, (unsigned long long)report->seed, words);
}

/* A reason with its numbers replaced by #, so that like ones count together. */
static void generalise(const char *reason, char *text, size_t size) {
    size_t used = 0;
    for (; *reason && used + 1 < size; reason++) {
        bool digit = *reason >= '0' && *reason <= '9';
        bool in_word =
            used && ((text[used - 1] >= 'a' && text[used - 1] <= 'z') ||
                     (text[used - 1] >= 'A' && text[used - 1] <= 'Z') || text[used - 1] == '_');
        if (digit && !in_word) {
            if (used && text[used - 1] == '#') {
                continue;
            }
            text[used++] = '#';
        } else {
            text[used++] = *reason;
        }
    }
    text[used] = 0;
}

typedef struct skip_reason {
    char text[256];
    size_t count;
} skip_reason;

/* The distinct reasons of skips; returns how many, `*reasons` is allocated. */
static size_t collect_skips(const check_report *report, skip_reason **reasons) {
    size_t count = 0;
    *reasons = tool_allocate((report_count(report, VERDICT_SKIPPED) + 1) * sizeof **reasons);
    for (size_t i = 0; i < report->count; i++) {
        if (report->records[i].result.verdict != VERDICT_SKIPPED) {
            continue;
        }
        char text[256];
        generalise(report->records[i].result.message, text, sizeof text);
        size_t r = 0;
        while (r < count && strcmp((*reasons)[r].text, text)) {
            r++;
        }
        if (r == count) {
            snprintf((*reasons)[count++].text, sizeof text, "%s", text);
        }
        (*reasons)[r].count++;
    }
    return count;
}

void report_print(const check_report *report) {
    group groups[GROUP_COUNT];
    collect(report, groups);
    for (size_t i = 0; i < report->count; i++) {
        const check_record *record = &report->records[i];
        if (record->result.verdict == VERDICT_FAILED) {
            char repro[1280];
            report_repro(report, record, repro, sizeof repro);
            printf("FAILED %s\n  %s\n", record->result.message, repro);
        }
    }
    printf("%s\n%-20s %7s %7s %7s %8s  %s\n", report->device, "operation", "cases", "passed",
           "failed", "skipped", "worst error / bound");
    for (int i = 0; i < GROUP_COUNT; i++) {
        const group *g = &groups[i];
        if (group_cases(g) == 0) {
            continue;
        }
        printf("%-12s %-7s %7zu %7zu %7zu %8zu  %.3f\n", case_op_name((case_op)g->op),
               pfattn_dtype_string((pfattn_dtype)g->dtype), group_cases(g),
               g->verdicts[VERDICT_PASSED], g->verdicts[VERDICT_FAILED],
               g->verdicts[VERDICT_SKIPPED], g->worst);
    }
    skip_reason *skips;
    size_t skip_count = collect_skips(report, &skips);
    for (size_t i = 0; i < skip_count; i++) {
        printf("skipped %zu: %s\n", skips[i].count, skips[i].text);
    }
    free(skips);
    printf("%s: %zu cases, %zu passed, %zu failed, %zu skipped, %.1f s (seed %llu, %s)\n",
           report->backend, report->count, report_count(report, VERDICT_PASSED),
           report_count(report, VERDICT_FAILED), report_count(report, VERDICT_SKIPPED),
           report->seconds, (unsigned long long)report->seed, report->mode);
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

static void write_groups(json *writer, const check_report *report) {
    group groups[GROUP_COUNT];
    collect(report, groups);
    json_array(writer, "groups");
    for (int i = 0; i < GROUP_COUNT; i++) {
        const group *g = &groups[i];
        if (group_cases(g) == 0) {
            continue;
        }
        json_object(writer, NULL);
        json_text(writer, "operation", case_op_name((case_op)g->op));
        json_text(writer, "dtype", pfattn_dtype_string((pfattn_dtype)g->dtype));
        json_integer(writer, "passed", (int64_t)g->verdicts[VERDICT_PASSED]);
        json_integer(writer, "failed", (int64_t)g->verdicts[VERDICT_FAILED]);
        json_integer(writer, "skipped", (int64_t)g->verdicts[VERDICT_SKIPPED]);
        json_number(writer, "worst_ratio", g->worst);
        json_number(writer, "seconds", g->seconds);
        json_close_object(writer);
    }
    json_close_array(writer);
}

static void write_failures(json *writer, const check_report *report) {
    json_array(writer, "failures");
    for (size_t i = 0; i < report->count; i++) {
        const check_record *record = &report->records[i];
        if (record->result.verdict != VERDICT_FAILED) {
            continue;
        }
        char repro[1280];
        report_repro(report, record, repro, sizeof repro);
        json_object(writer, NULL);
        json_text(writer, "message", record->result.message);
        json_text(writer, "repro", repro);
        json_number(writer, "ratio", record->result.ratio);
        json_close_object(writer);
    }
    json_close_array(writer);
}

static void write_skips(json *writer, const check_report *report) {
    skip_reason *skips;
    size_t count = collect_skips(report, &skips);
    json_array(writer, "skips");
    for (size_t i = 0; i < count; i++) {
        json_object(writer, NULL);
        json_text(writer, "reason", skips[i].text);
        json_integer(writer, "count", (int64_t)skips[i].count);
        json_close_object(writer);
    }
    json_close_array(writer);
    free(skips);
}

int report_write_json(const check_report *reports, size_t count, const char *path) {
    FILE *file = open_file("json", path);
    if (!file) {
        return TOOL_FILE;
    }
    json writer = {.out = file};
    json_object(&writer, NULL);
    json_text(&writer, "version", pfattn_version_string());
    json_array(&writer, "backends");
    for (size_t i = 0; i < count; i++) {
        const check_report *report = &reports[i];
        json_object(&writer, NULL);
        json_text(&writer, "backend", report->backend);
        json_text(&writer, "device", report->device);
        json_text(&writer, "mode", report->mode);
        json_integer(&writer, "seed", (int64_t)report->seed);
        json_integer(&writer, "cases", (int64_t)report->count);
        json_integer(&writer, "passed", (int64_t)report_count(report, VERDICT_PASSED));
        json_integer(&writer, "failed", (int64_t)report_count(report, VERDICT_FAILED));
        json_integer(&writer, "skipped", (int64_t)report_count(report, VERDICT_SKIPPED));
        json_number(&writer, "seconds", report->seconds);
        write_groups(&writer, report);
        write_failures(&writer, report);
        write_skips(&writer, report);
        json_close_object(&writer);
    }
    json_close_array(&writer);
    json_close_object(&writer);
    return close_file("json", path, file);
}

static void write_xml_text(FILE *file, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        default:
            fputc((unsigned char)*text < 0x20 ? ' ' : *text, file);
        }
    }
}

static void write_testcase(FILE *file, const check_report *report, const check_record *record) {
    char text[1280];
    case_print(&record->c, text, sizeof text);
    fprintf(file, "    <testcase classname=\"%s.%s\" name=\"", report->backend,
            case_op_name((case_op)record->c.op));
    write_xml_text(file, text);
    fprintf(file, "\" time=\"%.3f\"", record->result.seconds);
    if (record->result.verdict == VERDICT_PASSED) {
        fputs("/>\n", file);
        return;
    }
    fprintf(file, ">\n      <%s message=\"",
            record->result.verdict == VERDICT_FAILED ? "failure" : "skipped");
    write_xml_text(file, record->result.message);
    fputs("\"/>\n    </testcase>\n", file);
}

int report_write_junit(const check_report *reports, size_t count, const char *path) {
    FILE *file = open_file("junit", path);
    if (!file) {
        return TOOL_FILE;
    }
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n", file);
    for (size_t i = 0; i < count; i++) {
        const check_report *report = &reports[i];
        fprintf(file,
                "  <testsuite name=\"pfattn check %s\" tests=\"%zu\" failures=\"%zu\" "
                "skipped=\"%zu\" time=\"%.3f\">\n",
                report->backend, report->count, report_count(report, VERDICT_FAILED),
                report_count(report, VERDICT_SKIPPED), report->seconds);
        for (size_t j = 0; j < report->count; j++) {
            write_testcase(file, report, &report->records[j]);
        }
        fputs("  </testsuite>\n", file);
    }
    fputs("</testsuites>\n", file);
    return close_file("junit", path, file);
}
