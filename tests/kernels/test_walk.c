/* SPDX-License-Identifier: Apache-2.0 */
/* That backward walks over each tile of queries once, wherever it begins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "scalar_tiles.h"
#include "walk_list.h"

typedef struct walked {
    int group, tiles;
    int first; /* the tile it began with, -1 before */
    unsigned char *seen;
} walked;

static void mark(void *context, int head, int tile) {
    walked *w = context;
    assert_in_range(head, 0, w->group - 1);
    assert_in_range(tile, 0, w->tiles - 1);
    assert_int_equal(w->seen[head * w->tiles + tile]++, 0);
    w->first = w->first < 0 ? tile : w->first;
}

/* Without causality. Returns the tile of queries that the walk of a tile of keys begins with. */
static int walk(int queries, int keys, int group, int key_tile) {
    const pf_attention_kargs args = {.group = group,
                                     .pairs = 1,
                                     .queries = queries,
                                     .keys = keys,
                                     .key_end = {keys},
                                     .window_low = {-PF_WINDOW_LIMIT},
                                     .window_high = {PF_WINDOW_LIMIT}};
    int tiles = (queries + SCALAR_CROSS_TILE - 1) / SCALAR_CROSS_TILE;
    walked w = {group, tiles, -1, calloc((size_t)(group * tiles), 1)};
    assert_non_null(w.seen);
    walk_queries(&args, key_tile, mark, &w);
    for (int i = 0; i < group * tiles; i++) {
        assert_int_equal(w.seen[i], 1);
    }
    free(w.seen);
    return w.first;
}

static void every_tile_of_queries_once(void **state) {
    (void)state;
    static const int lengths[] = {1, 7, 8, 9, 100, 1024};
    for (int i = 0; i < 6 * 6 * 2; i++) {
        int queries = lengths[i % 6], keys = lengths[i / 6 % 6], group = i < 36 ? 1 : 3;
        for (int tile = 0; tile * SCALAR_OWNED_TILE < keys; tile++) {
            walk(queries, keys, group, tile);
        }
    }
}

/* Tiles of keys times tiles of queries, and keys times queries, are more than an int holds. */
static void of_long_sequences(void **state) {
    (void)state;
    enum { LONG = 1 << 20, KEY_TILES = LONG / SCALAR_OWNED_TILE };
    static const int tiles[] = {0, 1, KEY_TILES / 2, KEY_TILES - 1};
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        walk(LONG, LONG, 1, tiles[i]);
    }
}

/* So that their sums go to different tiles of dQ at a time. */
static void neighbours_begin_apart(void **state) {
    (void)state;
    for (int tile = 1; tile < 1024 / SCALAR_OWNED_TILE; tile++) {
        assert_int_not_equal(walk(1024, 1024, 1, tile), walk(1024, 1024, 1, tile - 1));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_tile_of_queries_once),
                                       cmocka_unit_test(of_long_sequences),
                                       cmocka_unit_test(neighbours_begin_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
