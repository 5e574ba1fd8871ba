/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <inttypes.h>
#include <math.h>

static void write_text(FILE *out, const char *text) {
    fputc('"', out);
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at == '"' || *at == '\\') {
            fprintf(out, "\\%c", *at);
        } else if (*at < 0x20) {
            fprintf(out, "\\u%04x", *at);
        } else {
            fputc(*at, out);
        }
    }
    fputc('"', out);
}

static void begin_item(json *writer, const char *key) {
    if (writer->depth > 0) {
        if (writer->filled[writer->depth]) {
            fputc(',', writer->out);
        }
        fprintf(writer->out, "\n%*s", 2 * writer->depth, "");
    }
    writer->filled[writer->depth] = true;
    if (key) {
        write_text(writer->out, key);
        fputs(": ", writer->out);
    }
}

static void open_container(json *writer, const char *key, char bracket) {
    begin_item(writer, key);
    fputc(bracket, writer->out);
    writer->filled[++writer->depth] = false;
}

static void close_container(json *writer, char bracket) {
    bool filled = writer->filled[writer->depth--];
    if (filled) {
        fprintf(writer->out, "\n%*s", 2 * writer->depth, "");
    }
    fputc(bracket, writer->out);
    if (writer->depth == 0) {
        fputc('\n', writer->out);
    }
}

void json_object(json *writer, const char *key) {
    open_container(writer, key, '{');
}

void json_array(json *writer, const char *key) {
    open_container(writer, key, '[');
}

void json_close_object(json *writer) {
    close_container(writer, '}');
}

void json_close_array(json *writer) {
    close_container(writer, ']');
}

void json_text(json *writer, const char *key, const char *value) {
    begin_item(writer, key);
    write_text(writer->out, value);
}

void json_integer(json *writer, const char *key, int64_t value) {
    begin_item(writer, key);
    fprintf(writer->out, "%" PRId64, value);
}

void json_number(json *writer, const char *key, double value) {
    begin_item(writer, key);
    if (isfinite(value)) {
        fprintf(writer->out, "%.17g", value);
    } else {
        fputs("null", writer->out);
    }
}

void json_bool(json *writer, const char *key, bool value) {
    begin_item(writer, key);
    fputs(value ? "true" : "false", writer->out);
}
