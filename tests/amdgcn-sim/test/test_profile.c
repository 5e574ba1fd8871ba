/* SPDX-License-Identifier: Apache-2.0 */
/* What a profile says of accesses whose bank conflicts can be counted by hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support.h"

enum { LANES = 64 };

static hipModule_t module;
static char path[] = "/tmp/amdgcn-sim-profile-XXXXXX";

static int setup(void **state) {
    (void)state;
    int file = mkstemp(path);
    if (file < 0 || close(file) != 0 || setenv("AMDGCN_SIM_PROFILE", path, 1) != 0)
        return -1;
    module = test_module("profile");
    return 0;
}
static int teardown(void **state) {
    (void)state;
    unsetenv("AMDGCN_SIM_PROFILE");
    return remove(path) | (int)hipModuleUnload(module);
}

struct counts {
    unsigned long long count, cycles, least, lines, bytes;
};

/* The only instruction of the last profile whose text begins so. */
static struct counts counts_of(const char *mnemonic) {
    struct counts found = {0};
    char line[512];
    int matches = 0;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        unsigned long long pc;
        struct counts c;
        char text[256];
        if (sscanf(line, "%llx\t%llu\t%llu\t%llu\t%llu\t%llu\t%255[^\n]", &pc, &c.count, &c.cycles,
                   &c.least, &c.lines, &c.bytes, text) == 7 &&
            strncmp(text, mnemonic, strlen(mnemonic)) == 0) {
            found = c;
            matches++;
        }
    }
    fclose(f);
    assert_int_equal(matches, 1);
    return found;
}

/* Runs an access of `width` bits: every lane stores at store[lane] and loads from load[lane], both
 * counted in words of that width. */
static void run(int width, const int *store, const int *load) {
    char name[16];
    snprintf(name, sizeof(name), "access%d", width);
    assert_int_equal(truncate(path, 0), 0);
    void *from = test_upload(store, 4 * LANES), *to = test_upload(load, 4 * LANES);
    void *out = test_output(64 * LANES);
    test_run(module, name, 1, LANES, ARGS(&out, &from, &to));
}

static void check_strides(int width, int store, int load, int store_cycles, int load_cycles,
                          int least) {
    static const char *const names[][2] = {{"ds_write_b16", "ds_read_u16"},
                                           {"ds_write_b32", "ds_read_b32"},
                                           {"ds_write_b64", "ds_read_b64"},
                                           {"ds_write_b128", "ds_read_b128"}};
    int at[2][LANES];
    for (int i = 0; i < LANES; i++) {
        at[0][i] = store * i;
        at[1][i] = load * i;
    }
    run(width, at[0], at[1]);
    int row = width == 16 ? 0 : width == 32 ? 1 : width == 64 ? 2 : 3;
    struct counts s = counts_of(names[row][0]), l = counts_of(names[row][1]);
    assert_int_equal(s.count, 1);
    assert_int_equal(s.cycles, store_cycles);
    assert_int_equal(s.least, least);
    assert_int_equal(l.cycles, load_cycles);
    assert_int_equal(l.least, least);
}

/* 32 lanes of 4 bytes fill the banks: two cycles. A stride of 32 words puts all 32 lanes of a half
 * in one bank, one of 2 words two in each; lanes that want the same word share it. */
static void test_words(void **state) {
    (void)state;
    check_strides(32, 1, 1, 2, 2, 2);
    check_strides(32, 32, 2, 64, 4, 2);
    check_strides(32, 33, 0, 2, 2, 2);
}

/* Two adjacent halves share a word. With a stride of 64 of them every lane is in bank 0. */
static void test_halves(void **state) {
    (void)state;
    check_strides(16, 1, 1, 2, 2, 2);
    check_strides(16, 64, 2, 64, 2, 2);
}

/* 16 lanes of 8 bytes fill the banks: four cycles. A stride of two leaves half of the banks out;
 * one of 16 puts all 16 lanes of a group in two banks. */
static void test_pairs(void **state) {
    (void)state;
    check_strides(64, 1, 1, 4, 4, 4);
    check_strides(64, 2, 16, 8, 64, 4);
}

/* 8 lanes of 16 bytes fill the banks: eight cycles. */
static void test_quads(void **state) {
    (void)state;
    check_strides(128, 1, 1, 8, 8, 8);
    check_strides(128, 8, 2, 64, 16, 8);
    check_strides(128, 9, 9, 8, 8, 8);
}

/* The lanes of one group of 128-bit loads are 0..3 and 20..23; of stores 0..7. Lane l takes the
 * banks of chunk l % 8, but 20..23 those of 0..3: a load of them collides, a store does not. */
static void test_groups(void **state) {
    int at[LANES];
    (void)state;
    for (int i = 0; i < LANES; i++)
        at[i] = 8 * i + i % 8;
    for (int i = 16; i < 24; i++)
        at[i] = 8 * i + (i % 8 ^ 4);
    run(128, at, at);
    assert_int_equal(counts_of("ds_write_b128").cycles, 8);
    /* Groups 0-3 with 20-23 and 4-7 with 16-19 take two cycles each, the other six one. */
    assert_int_equal(counts_of("ds_read_b128").cycles, 10);
}

/* 64 adjacent words are 256 bytes, four lines of 64; 16-byte results 64 bytes apart touch 64. */
static void test_lines(void **state) {
    int at[LANES];
    (void)state;
    for (int i = 0; i < LANES; i++)
        at[i] = i;
    run(128, at, at);
    struct counts store = counts_of("global_store_dwordx4");
    assert_int_equal(store.lines, 64);
    assert_int_equal(store.bytes, 16 * LANES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words), cmocka_unit_test(test_halves), cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_quads), cmocka_unit_test(test_groups), cmocka_unit_test(test_lines),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
