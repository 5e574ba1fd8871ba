/* SPDX-License-Identifier: Apache-2.0 */
/* What `pfattn check` tells: a table, the reasons of skips, a repro line per failure, JSON, JUnit.
 */
#ifndef CHECK_REPORT_H
#define CHECK_REPORT_H

#include "check_run.h"

typedef struct check_record {
    check_case c;
    check_result result;
} check_record;

/* Everything one backend did. */
typedef struct check_report {
    const char *backend;
    const char *device; /* a description of it */
    int32_t device_index;
    uint64_t seed;
    const char *mode; /* "quick", "full" or "cases" */
    check_record *records;
    size_t count;
    double seconds;
} check_report;

/* How many records have the verdict. */
size_t report_count(const check_report *report, verdict wanted);

/* "pfattn check --backend B [--device N] --seed S --case '...'" */
void report_repro(const check_report *report, const check_record *record, char *text, size_t size);

void report_print(const check_report *report);

/* Return TOOL_DONE, or TOOL_FILE after a message. */
int report_write_json(const check_report *reports, size_t count, const char *path);
int report_write_junit(const check_report *reports, size_t count, const char *path);

#endif
