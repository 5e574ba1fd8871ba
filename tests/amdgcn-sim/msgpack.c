/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the metadata note: MessagePack, amdhsa.kernels[] -> .symbol, .args[] and limits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct reader {
    const uint8_t *at, *end;
    bool failed;
};

enum item_kind { ITEM_UINT, ITEM_STRING, ITEM_ARRAY, ITEM_MAP, ITEM_OTHER };

struct item {
    enum item_kind kind;
    uint64_t value; /* number, length or count */
    const char *text;
};

static uint64_t big_endian(struct reader *r, int bytes) {
    uint64_t x = 0;
    if (r->end - r->at < bytes) {
        r->failed = true;
        return 0;
    }
    while (bytes-- > 0)
        x = x << 8 | *r->at++;
    return x;
}

static struct item text_item(struct reader *r, uint64_t length, enum item_kind kind) {
    struct item item = {kind, length, (const char *)r->at};
    if ((uint64_t)(r->end - r->at) < length)
        r->failed = true;
    else
        r->at += length;
    return item;
}

static struct item next_item(struct reader *r) {
    uint64_t tag = big_endian(r, 1);
    if (tag < 0x80)
        return (struct item){ITEM_UINT, tag, NULL};
    if (tag < 0x90)
        return (struct item){ITEM_MAP, tag & 15, NULL};
    if (tag < 0xa0)
        return (struct item){ITEM_ARRAY, tag & 15, NULL};
    if (tag < 0xc0)
        return text_item(r, tag & 31, ITEM_STRING);
    if (tag == 0xc2 || tag == 0xc3)
        return (struct item){ITEM_UINT, tag & 1, NULL};
    if (tag >= 0xc4 && tag <= 0xc6)
        return text_item(r, big_endian(r, 1 << (tag - 0xc4)), ITEM_OTHER);
    if (tag == 0xca || tag == 0xcb)
        return (struct item){ITEM_OTHER, big_endian(r, tag == 0xca ? 4 : 8), NULL};
    if (tag >= 0xcc && tag <= 0xcf)
        return (struct item){ITEM_UINT, big_endian(r, 1 << (tag - 0xcc)), NULL};
    if (tag >= 0xd0 && tag <= 0xd3)
        return (struct item){ITEM_OTHER, big_endian(r, 1 << (tag - 0xd0)), NULL};
    if (tag >= 0xd9 && tag <= 0xdb)
        return text_item(r, big_endian(r, 1 << (tag - 0xd9)), ITEM_STRING);
    if (tag == 0xdc || tag == 0xdd)
        return (struct item){ITEM_ARRAY, big_endian(r, tag == 0xdc ? 2 : 4), NULL};
    if (tag == 0xde || tag == 0xdf)
        return (struct item){ITEM_MAP, big_endian(r, tag == 0xde ? 2 : 4), NULL};
    if (tag < 0xe0 && tag != 0xc0)
        r->failed = true;
    return (struct item){ITEM_OTHER, 0, NULL};
}

static void skip_children(struct reader *r, struct item item) {
    uint64_t count = item.kind == ITEM_MAP     ? 2 * item.value
                     : item.kind == ITEM_ARRAY ? item.value
                                               : 0;
    while (count-- > 0 && !r->failed)
        skip_children(r, next_item(r));
}

static bool is(struct item item, const char *text) {
    return item.kind == ITEM_STRING && item.value == strlen(text) &&
           memcmp(item.text, text, item.value) == 0;
}

static void read_arg(struct reader *r, struct item map, struct sim_arg *arg) {
    for (uint64_t i = 0; i < map.value && !r->failed; i++) {
        struct item key = next_item(r), value = next_item(r);
        if (is(key, ".offset"))
            arg->offset = (uint32_t)value.value;
        else if (is(key, ".size"))
            arg->size = (uint32_t)value.value;
        else if (is(key, ".value_kind") && value.kind == ITEM_STRING)
            snprintf(arg->kind, sizeof(arg->kind), "%.*s", (int)value.value, value.text);
        else
            skip_children(r, value);
    }
}

static void read_args(struct reader *r, struct item array, struct sim_kernel *k) {
    if (array.value > 4096) {
        r->failed = true;
        return;
    }
    k->nargs = array.value;
    k->args = calloc(k->nargs ? k->nargs : 1, sizeof(*k->args));
    for (size_t i = 0; i < k->nargs && !r->failed; i++)
        read_arg(r, next_item(r), &k->args[i]);
}

static void adopt(struct sim_module *m, struct item symbol, struct sim_kernel *found) {
    for (size_t i = 0; i < m->nkernels; i++) {
        struct sim_kernel *k = &m->kernels[i];
        size_t length = strlen(k->name);
        if (symbol.value != length + 3 || memcmp(symbol.text, k->name, length) != 0)
            continue;
        free(k->args);
        k->args = found->args;
        k->nargs = found->nargs;
        k->dynamic_stack = found->dynamic_stack;
        if (found->max_workgroup)
            k->max_workgroup = found->max_workgroup;
        return;
    }
    free(found->args);
}

static void read_kernel(struct reader *r, struct item map, struct sim_module *m) {
    struct sim_kernel k = {0};
    struct item symbol = {ITEM_STRING, 0, ""};
    for (uint64_t i = 0; i < map.value && !r->failed; i++) {
        struct item key = next_item(r), value = next_item(r);
        if (is(key, ".args") && value.kind == ITEM_ARRAY)
            read_args(r, value, &k);
        else if (is(key, ".symbol") && value.kind == ITEM_STRING)
            symbol = value;
        else if (is(key, ".uses_dynamic_stack"))
            k.dynamic_stack = value.value != 0;
        else if (is(key, ".max_flat_workgroup_size"))
            k.max_workgroup = (uint32_t)value.value;
        else
            skip_children(r, value);
    }
    adopt(m, symbol, &k);
}

bool sim_metadata_parse(struct sim_module *m, const uint8_t *note, size_t size) {
    struct reader r = {note, note + size, false};
    struct item root = next_item(&r);
    if (root.kind != ITEM_MAP)
        return false;
    for (uint64_t i = 0; i < root.value && !r.failed; i++) {
        struct item key = next_item(&r), value = next_item(&r);
        if (!is(key, "amdhsa.kernels")) {
            skip_children(&r, value);
            continue;
        }
        for (uint64_t k = 0; k < value.value && !r.failed; k++)
            read_kernel(&r, next_item(&r), m);
    }
    return !r.failed;
}
