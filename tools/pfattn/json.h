/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON writer: keys, commas and indentation follow from the order of the calls. `key` is NULL
 * inside an array and at the top. Non-finite numbers are written as null. */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json {
    FILE *out;
    int depth;
    bool filled[16]; /* whether the container at each depth has an item */
} json;

void json_object(json *writer, const char *key);
void json_array(json *writer, const char *key);
void json_close_object(json *writer);
void json_close_array(json *writer);
void json_text(json *writer, const char *key, const char *value);
void json_integer(json *writer, const char *key, int64_t value);
void json_number(json *writer, const char *key, double value);
void json_bool(json *writer, const char *key, bool value);

#endif
