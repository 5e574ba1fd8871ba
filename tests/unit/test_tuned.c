/* SPDX-License-Identifier: Apache-2.0 */
/* The tuning file is read for the device at hand, entry by entry; whatever in it is stale, broken
 * or not for this build is reported with file and line, and changes nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "select.h"

#define F16 PFATTN_DTYPE_F16
#define FIRST "pfattn tuning 1\n"
#define DEVICE "device cuda " VERSION " Test GPU\n"

/* target, op, class, hd, owned, cross, out, stages, threads, shared, blocks, persistent, waves,
 * variant, bytes for bias, most keys or queries of a short problem, PF_STAGED_* */
static const pf_tuning table[] = {
    {PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_HALF, 64, 192, 128, 64, 2, 512, 900, 1, 1, 0, 0, 0,
     0, 0},
    {PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_HALF, 64, 128, 128, 64, 2, 384, 900, 1, 1, 0, 1, 0,
     0, 0},
    {PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_HALF, 64, 64, 128, 64, 2, 256, 2000, 1, 1, 0, 2, 0,
     0, 0},
    {PF_TARGET_SM_90A, PF_OP_FORWARD, PF_CLASS_F32, 64, 64, 32, 64, 2, 256, 900, 1, 1, 0, 0, 0, 0,
     0},
    {PF_TARGET_SM_80, PF_OP_BACKWARD, PF_CLASS_HALF, 128, 64, 32, 64, 1, 128, 900, 2, 0, 0, 0, 0, 0,
     0},
    {PF_TARGET_SM_80, PF_OP_BACKWARD, PF_CLASS_HALF, 128, 64, 32, 64, 1, 128, 900, 1, 0, 3, 1, 0, 0,
     0},
};

static char directory[] = "/tmp/pfattn-tuned-XXXXXX";
static char path[64];
static char logged[1 << 14];
static bool images[PF_IMAGE_COUNT];
static pf_tuned tuned;

/* A device whose blocks have at most 1000 bytes. */
static pf_capabilities device(void) {
    memset(images, 1, sizeof images);
    pf_capabilities c = {.backend = "cuda",
                         .tuning = table,
                         .tuning_count = sizeof table / sizeof table[0],
                         .targets = {PF_TARGET_SM_90A, PF_TARGET_SM_80},
                         .target_count = 2,
                         .shared_bytes = 1000};
    c.images[PF_TARGET_SM_90A] = c.images[PF_TARGET_SM_80] = images;
    return c;
}

/* Read with stderr caught in `logged`. */
static void read_as(const char *name) {
    pf_capabilities c = device();
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    pf_tuned_read(&tuned, &c, name);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    logged[fread(logged, 1, sizeof logged - 1, file)] = '\0';
    fclose(file);
}

static void write_bytes(const char *bytes, size_t size) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void read_text(const char *text) {
    write_bytes(text, strlen(text));
    read_as("Test GPU");
}

/* One sentence about the line of that number, and no other. */
static void assert_reported(int line, const char *text) {
    char prefix[128];
    snprintf(prefix, sizeof prefix, "pfattn warn: %s:%d: ", path, line);
    if (strncmp(logged, prefix, strlen(prefix)) != 0 || strstr(logged, text) == NULL ||
        strchr(logged, '\n') != logged + strlen(logged) - 1) {
        fail_msg("\"%s\" is not one line that begins with \"%s\" and has \"%s\"", logged, prefix,
                 text);
    }
}

static int variant_of(bool causal, int64_t length) {
    return pf_tuned_variant(&tuned, PF_TARGET_SM_90A, PF_OP_FORWARD, F16, 64, causal, length);
}

static int set_up(void **state) {
    (void)state;
    setenv("PFATTN_TUNING", path, 1);
    return 0;
}

/* ---- good files ---------------------------------------------------------------------------- */

/* Comments, blank lines, tabs, CRLF, other devices and other backends' devices of the same name. */
static void good_file(void **state) {
    (void)state;
    read_text(FIRST "# comment\n\n"
                    "device hip " VERSION " Test GPU\n"
                    "whatever another backend writes\n"
                    "device cuda " VERSION "   Test GPU \r\n"
                    "sm_90a forward f16 64 full 1024 128x128x64-s2-b1   # 1 ms\n"
                    "\tsm_90a\tforward f16 64 full 2048 192x128x64-s2-b1\r\n"
                    "  # comment\n"
                    "sm_90a forward f16 64 causal any 128x128x64-s2-b1\n"
                    "sm_80 backward bf16 128 full any 64x32x64-s1-w3\n"
                    "device cuda 99.0.0 Other GPU\n"
                    "sm_999 forward f16 64 full any 1x1x1-s1-b1");
    assert_string_equal(logged, "");
    assert_string_equal(tuned.path, path);
    assert_int_equal(tuned.count, 4);
    /* Up to 1024, then up to 2048, then nothing holds. */
    assert_int_equal(variant_of(false, 1), 1);
    assert_int_equal(variant_of(false, 1024), 1);
    assert_int_equal(variant_of(false, 1025), 0);
    assert_int_equal(variant_of(false, 2049), -1);
    assert_int_equal(variant_of(true, INT64_C(1) << 40), 1);
    assert_int_equal(
        pf_tuned_variant(&tuned, PF_TARGET_SM_80, PF_OP_BACKWARD, PFATTN_DTYPE_BF16, 128, false, 7),
        1);
    /* Another type, operation, head dimension, target. */
    assert_int_equal(pf_tuned_variant(&tuned, PF_TARGET_SM_80, PF_OP_BACKWARD, F16, 128, false, 7),
                     -1);
    assert_int_equal(
        pf_tuned_variant(&tuned, PF_TARGET_SM_90A, PF_OP_FORWARD_JVP, F16, 64, true, 7), -1);
    assert_int_equal(pf_tuned_variant(&tuned, PF_TARGET_SM_90A, PF_OP_FORWARD, F16, 128, true, 7),
                     -1);
    assert_int_equal(pf_tuned_variant(&tuned, PF_TARGET_SM_80, PF_OP_FORWARD, F16, 64, true, 7),
                     -1);
    assert_int_equal(pf_tuned_variant(NULL, PF_TARGET_SM_80, PF_OP_FORWARD, F16, 64, true, 7), -1);
}

/* The shortest length that holds decides, in whichever order lengths are written. */
static void order_does_not_matter(void **state) {
    (void)state;
    read_text(FIRST DEVICE "sm_90a forward f16 64 full any 128x128x64-s2-b1\n"
                           "sm_90a forward f16 64 full 512 192x128x64-s2-b1\n");
    assert_string_equal(logged, "");
    assert_int_equal(variant_of(false, 512), 0);
    assert_int_equal(variant_of(false, 513), 1);
}

/* A variant's name tells its row. */
static void variant_names(void **state) {
    (void)state;
    char name[PF_VARIANT_NAME];
    pf_variant_name(&table[0], name);
    assert_string_equal(name, "192x128x64-s2-b1");
    pf_variant_name(&table[5], name);
    assert_string_equal(name, "64x32x64-s1-w3");
}

/* ---- broken lines -------------------------------------------------------------------------- */

/* Each is reported alone; the good entry after it counts. */
static void broken_lines(void **state) {
    (void)state;
    static const struct {
        const char *line, *report;
    } cases[] = {
        {"garbage", "an entry has 7 fields"},
        {"sm_90a forward f16 64 full any", "an entry has 7 fields"},
        {"sm_90a forward f16 64 full any 128x128x64-s2-b1 more", "an entry has 7 fields"},
        {"sm_70 forward f16 64 full any 128x128x64-s2-b1", "target \"sm_70\" is unknown"},
        {"sm_90a sideways f16 64 full any 128x128x64-s2-b1", "operation \"sideways\" is unknown"},
        {"sm_90a forward f64 64 full any 128x128x64-s2-b1", "type is \"f64\""},
        {"sm_90a forward f16 65 full any 128x128x64-s2-b1", "head dimension is \"65\""},
        {"sm_90a forward f16 4294967360 full any 128x128x64-s2-b1", "head dimension is"},
        {"sm_90a forward f16 64x full any 128x128x64-s2-b1", "head dimension is \"64x\""},
        {"sm_90a forward f16 64 half any 128x128x64-s2-b1", "mask is \"half\""},
        {"sm_90a forward f16 64 full 0 128x128x64-s2-b1", "length is \"0\""},
        {"sm_90a forward f16 64 full -1 128x128x64-s2-b1", "length is \"-1\""},
        {"sm_90a forward f16 64 full 99999999999999999999 128x128x64-s2-b1", "length is"},
        {"sm_90a forward f16 64 full any 256x128x64-s2-b1", "no variant \"256x128x64-s2-b1\""},
        {"sm_90a forward f16 64 full any 64x128x64-s2-b1", "no variant"}, /* too much memory */
        {"sm_90a forward f32 64 full any 128x128x64-s2-b1", "no variant"},
        {"gfx942 forward f16 64 full any 128x128x64-s2-b1", "no variant"},
        {"sm_90a forward \033[1m 64 full any 128x128x64-s2-b1", "type is \"?[1m\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        print_message("%s\n", cases[i].line);
        snprintf(text, sizeof text,
                 FIRST DEVICE "%s\nsm_90a forward f16 64 full any 128x128x64-s2-b1\n",
                 cases[i].line);
        read_text(text);
        assert_reported(3, cases[i].report);
        assert_int_equal(tuned.count, 1);
        assert_int_equal(variant_of(false, 1), 1);
    }
}

/* A huge line, one with a zero byte, and a last line that is cut. */
static void bad_bytes(void **state) {
    (void)state;
    static char text[100000];
    int used = snprintf(text, sizeof text, FIRST DEVICE);
    memset(text + used, 'x', 90000);
    used += 90000;
    used += snprintf(text + used, sizeof text - (size_t)used,
                     "\nsm_90a forward f16 64 full any 128x128x64-s2-b1\n");
    write_bytes(text, (size_t)used);
    read_as("Test GPU");
    assert_reported(3, "the line is too long");
    assert_int_equal(variant_of(false, 1), 1);

    static const char zero[] = FIRST DEVICE "sm_90a forward f16 64 full any 128x128x64-s2-b1\0 x";
    write_bytes(zero, sizeof zero - 1);
    read_as("Test GPU");
    assert_reported(3, "an entry has 7 fields");
    assert_int_equal(tuned.count, 0);

    read_text(FIRST DEVICE "sm_90a forward f16 64 full any 128x128x64-s");
    assert_reported(3, "no variant");
}

static void entries_in_the_wrong_place(void **state) {
    (void)state;
    const char *entry = "sm_90a forward f16 64 full any 128x128x64-s2-b1\n";
    char text[512];
    snprintf(text, sizeof text, FIRST "%s", entry);
    read_text(text);
    assert_reported(2, "no device line stands above it");
    assert_int_equal(tuned.count, 0);
    snprintf(text, sizeof text, FIRST DEVICE "%s%s", entry, entry);
    read_text(text);
    assert_reported(4, "an entry above has the same kernel and length");
    assert_int_equal(tuned.count, 1);
    /* A device line of no device ends the one before it. */
    snprintf(text, sizeof text, FIRST DEVICE "device cuda\n%s", entry);
    read_text(text);
    assert_reported(3, "a device line has a backend");
    assert_int_equal(tuned.count, 0);
}

/* ---- stale and broken files ---------------------------------------------------------------- */

static void other_versions(void **state) {
    (void)state;
    read_text("pfattn tuning 2\n" DEVICE "sm_90a forward f16 64 full any 128x128x64-s2-b1\n");
    assert_reported(1, "is not \"pfattn tuning 1\", with which");
    assert_int_equal(tuned.count, 0);
    read_text(FIRST "device cuda 0.0.9 Test GPU\n"
                    "sm_90a forward f16 64 full any 128x128x64-s2-b1\nwhatever 0.0.9 writes\n");
    assert_reported(2, "are those of pfattn 0.0.9, and this is " VERSION ": run `pfattn tune`");
    assert_int_equal(tuned.count, 0);
    read_text("\x93NUMPY\n");
    assert_reported(1, "the file is ignored");
}

/* Ten are reported, the rest is counted. */
static void many_broken_lines(void **state) {
    (void)state;
    static char text[8192];
    int used = snprintf(text, sizeof text, FIRST DEVICE);
    for (int i = 0; i < 500; i++) {
        used += snprintf(text + used, sizeof text - (size_t)used, "x\n");
    }
    read_text(text);
    int lines = 0;
    for (const char *at = logged; (at = strchr(at, '\n')) != NULL; at++) {
        lines++;
    }
    assert_int_equal(lines, 11);
    assert_non_null(strstr(logged, ": 490 more lines are ignored"));
}

static void too_many_entries(void **state) {
    (void)state;
    static char text[1 << 15];
    int used = snprintf(text, sizeof text, FIRST DEVICE);
    for (int i = 1; i <= PF_TUNED_ENTRIES + 1; i++) {
        used += snprintf(text + used, sizeof text - (size_t)used,
                         "sm_90a forward f16 64 full %d 128x128x64-s2-b1\n", i);
    }
    read_text(text);
    assert_reported(PF_TUNED_ENTRIES + 3, "the device has too many entries");
    assert_int_equal(tuned.count, PF_TUNED_ENTRIES);
}

static void empty_file(void **state) {
    (void)state;
    read_text("");
    assert_string_equal(logged, "");
    assert_int_equal(tuned.count, 0);
}

/* A device's name may be empty, as some drivers have it. */
static void nameless_device(void **state) {
    (void)state;
    read_text(FIRST "device cuda " VERSION "\nsm_90a forward f16 64 full any 128x128x64-s2-b1\n");
    assert_int_equal(tuned.count, 0);
    read_as(" ");
    assert_int_equal(tuned.count, 1);
}

/* What is no file of a reasonable size: not even opened. */
static void no_regular_file(void **state) {
    (void)state;
    setenv("PFATTN_TUNING", directory, 1);
    read_as("Test GPU");
    assert_non_null(strstr(logged, "is not a regular file; the tuning file is ignored"));
    assert_string_equal(tuned.path, "");
    char fifo[64];
    snprintf(fifo, sizeof fifo, "%s/fifo", directory);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    setenv("PFATTN_TUNING", fifo, 1);
    read_as("Test GPU"); /* opening it would wait for a writer */
    assert_non_null(strstr(logged, "is not a regular file"));
    unlink(fifo);
    setenv("PFATTN_TUNING", path, 1);
    write_bytes("", 0);
    assert_int_equal(truncate(path, (1 << 20) + 1), 0);
    read_as("Test GPU");
    assert_non_null(strstr(logged, "is larger than 1 MiB"));
    assert_int_equal(tuned.count, 0);
}

static void unreadable_file(void **state) {
    (void)state;
    read_text(FIRST);
    assert_int_equal(chmod(path, 0), 0);
    if (access(path, R_OK) != 0) { /* root reads all */
        read_as("Test GPU");
        assert_non_null(strstr(logged, "the tuning file cannot be read: Permission denied"));
    }
    unlink(path);
    read_as("Test GPU");
    assert_non_null(strstr(logged, "the tuning file cannot be read: No such file"));
    assert_non_null(strstr(logged, path));
    setenv("PFATTN_TUNING", "/dev/null/x", 1);
    read_as("Test GPU");
    assert_non_null(strstr(logged, "/dev/null/x: the tuning file cannot be read"));
}

/* ---- where it is --------------------------------------------------------------------------- */

/* PFATTN_TUNING, else XDG_CACHE_HOME where absolute, else HOME; a file that nobody named may be
 * missing. */
static void places(void **state) {
    (void)state;
    char found[PF_TUNED_PATH], want[128], was[1024] = "";
    bool named;
    if (getenv("HOME") != NULL) {
        snprintf(was, sizeof was, "%s", getenv("HOME"));
    }
    assert_true(pf_tuned_path(found, &named));
    assert_string_equal(found, path);
    assert_true(named);
    setenv("PFATTN_TUNING", "none", 1);
    assert_false(pf_tuned_path(found, &named));
    read_as("Test GPU");
    assert_string_equal(logged, "");

    unsetenv("PFATTN_TUNING");
    setenv("HOME", directory, 1);
    setenv("XDG_CACHE_HOME", "relative", 1);
    snprintf(want, sizeof want, "%s/.cache/pfattn/tuning", directory);
    assert_true(pf_tuned_path(found, &named));
    assert_string_equal(found, want);
    assert_false(named);
    read_as("Test GPU");
    assert_string_equal(logged, "");
    assert_string_equal(tuned.path, "");
    setenv("XDG_CACHE_HOME", "/cache", 1);
    assert_true(pf_tuned_path(found, &named));
    assert_string_equal(found, "/cache/pfattn/tuning");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_false(pf_tuned_path(found, &named));
    setenv("HOME", was, 1);

    static char longest[PF_TUNED_PATH + 8];
    memset(longest, 'a', sizeof longest - 1);
    setenv("PFATTN_TUNING", longest, 1);
    assert_false(pf_tuned_path(found, &named));
}

static int remove_directory(void **state) {
    (void)state;
    unlink(path);
    return rmdir(directory);
}

int main(void) {
    if (mkdtemp(directory) == NULL) {
        return 99;
    }
    snprintf(path, sizeof path, "%s/tuning", directory);
    pf_log_configure();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(good_file, set_up),
        cmocka_unit_test_setup(order_does_not_matter, set_up),
        cmocka_unit_test(variant_names),
        cmocka_unit_test_setup(broken_lines, set_up),
        cmocka_unit_test_setup(bad_bytes, set_up),
        cmocka_unit_test_setup(entries_in_the_wrong_place, set_up),
        cmocka_unit_test_setup(other_versions, set_up),
        cmocka_unit_test_setup(many_broken_lines, set_up),
        cmocka_unit_test_setup(too_many_entries, set_up),
        cmocka_unit_test_setup(empty_file, set_up),
        cmocka_unit_test_setup(nameless_device, set_up),
        cmocka_unit_test_setup(no_regular_file, set_up),
        cmocka_unit_test_setup(unreadable_file, set_up),
        cmocka_unit_test_setup(places, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, remove_directory);
}
