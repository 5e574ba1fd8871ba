/* SPDX-License-Identifier: Apache-2.0 */
/* The .npy reader and writer against NumPy itself and against files broken by hand.
 *     test_npy [PYTHON ARRAYS_PY]     without arguments the tests that need NumPy are skipped */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "npy.h"

static const char *python;
static const char *arrays_py;
static char directory[] = "/tmp/pfattn-npy-XXXXXX";
static char error[512];

static const char *in_directory(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

/* ---- NumPy ---- */

/* As element() of arrays.py. */
static double expected_element(npy_dtype dtype, int64_t i) {
    switch (dtype) {
    case NPY_U8:
        return (double)(i * 37 % 256);
    case NPY_BOOL:
        return i % 3 == 0 ? 1 : 0;
    case NPY_I64:
        return (double)((i - 7) * 1234567890123);
    default:
        return (double)(i * 7 % 23 - 11) / 4;
    }
}

static void run_arrays_py(const char *verb) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl(python, python, arrays_py, verb, directory, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static npy_dtype dtype_named(const char *name) {
    for (int dtype = NPY_F16; dtype < NPY_DTYPE_COUNT; dtype++) {
        if (strcmp(name, npy_dtype_name((npy_dtype)dtype)) == 0) {
            return (npy_dtype)dtype;
        }
    }
    fail_msg("no type is named %s", name);
    return NPY_NONE;
}

/* Every type, order, byte order, header version and shape that NumPy can write reads back with
 * the right shape and values. */
static void test_reads_what_numpy_writes(void **state) {
    (void)state;
    if (python == NULL) {
        print_message("no python3 with numpy here\n");
        skip();
    }
    run_arrays_py("make");
    FILE *manifest = fopen(in_directory("manifest"), "r");
    assert_non_null(manifest);
    char name[64];
    char code[8];
    int ndim;
    int files = 0;
    while (fscanf(manifest, "%63s %7s %d", name, code, &ndim) == 3) {
        npy_array array;
        if (!npy_read(in_directory(name), &array, error, sizeof error)) {
            fail_msg("%s", error);
        }
        assert_int_equal(array.dtype, dtype_named(code));
        assert_int_equal(array.ndim, ndim);
        int64_t count = 1;
        for (int d = 0; d < ndim; d++) {
            long long extent;
            assert_int_equal(fscanf(manifest, "%lld", &extent), 1);
            assert_int_equal(array.shape[d], extent);
            count *= extent;
        }
        assert_int_equal(array.count, count);
        double *values = npy_to_f64(&array);
        assert_non_null(values);
        for (int64_t i = 0; i < count; i++) {
            assert_true(values[i] == expected_element(array.dtype, i));
        }
        free(values);
        npy_free(&array);
        files++;
    }
    fclose(manifest);
    assert_int_equal(files, 6 * 8 * 2 * 2 * 3);
}

static void check_bits(const char *name, size_t size, const uint64_t *bits) {
    npy_array array;
    if (!npy_read(in_directory(name), &array, error, sizeof error)) {
        fail_msg("%s", error);
    }
    assert_int_equal(array.count, 6);
    for (size_t i = 0; i < 6; i++) {
        uint16_t half;
        uint32_t single;
        uint64_t value;
        const char *at = (const char *)array.data + i * size;
        if (size == 2) {
            memcpy(&half, at, size);
            value = half;
        } else if (size == 4) {
            memcpy(&single, at, size);
            value = single;
        } else {
            memcpy(&value, at, size);
        }
        assert_true(value == bits[i]);
        assert_int_equal(isnan(npy_value(&array, (int64_t)i)) != 0, i < 4);
    }
    npy_free(&array);
}

/* Signalling and quiet NaNs of both signs, minus zero and the least subnormal keep their bits. */
static void test_nan_payloads_keep_their_bits(void **state) {
    (void)state;
    if (python == NULL) {
        print_message("no python3 with numpy here\n");
        skip();
    }
    run_arrays_py("make");
    const uint64_t half[6] = {0x7c01, 0x7e00, 0xffff, 0xfc01, 0x8000, 1};
    const uint64_t single[6] = {0x7f800001, 0x7fc00000, 0xffffffff, 0xff800001, 0x80000000, 1};
    const uint64_t twice[6] = {0x7ff0000000000001, 0x7ff8000000000000, 0xffffffffffffffff,
                               0xfff0000000000001, 0x8000000000000000, 1};
    check_bits("nan-f2.npy", 2, half);
    check_bits("nan-f2-big.npy", 2, half);
    check_bits("nan-f4.npy", 4, single);
    check_bits("nan-f4-big.npy", 4, single);
    check_bits("nan-f8.npy", 8, twice);
    check_bits("nan-f8-big.npy", 8, twice);
}

/* f16 of these small multiples of 1/4, exact, by shifting. */
static uint16_t half_of(double value) {
    if (value == 0) {
        return 0;
    }
    int exponent;
    double fraction = frexp(fabs(value), &exponent); /* in [1/2, 1) */
    unsigned sign = value < 0 ? 0x8000u : 0;
    return (uint16_t)(sign | (unsigned)(exponent + 14) << 10 |
                      (unsigned)((fraction * 2 - 1) * 1024));
}

static void *filled(npy_dtype dtype, int64_t count) {
    size_t size = npy_dtype_size(dtype);
    char *data = calloc((size_t)count + 1, size);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) {
        char *at = data + (size_t)i * size;
        double value = expected_element(dtype, i);
        float single = (float)value;
        uint16_t half = dtype == NPY_F16 ? half_of(value) : 0;
        int64_t integer = (int64_t)value;
        switch (dtype) {
        case NPY_F16:
            memcpy(at, &half, size);
            break;
        case NPY_F32:
            memcpy(at, &single, size);
            break;
        case NPY_F64:
            memcpy(at, &value, size);
            break;
        case NPY_I64:
            memcpy(at, &integer, size);
            break;
        default:
            *(unsigned char *)at = (unsigned char)value;
        }
    }
    return data;
}

/* NumPy loads every file that the writer makes, with the same type, shape and bits. */
static void test_numpy_reads_what_we_write(void **state) {
    (void)state;
    if (python == NULL) {
        print_message("no python3 with numpy here\n");
        skip();
    }
    static const npy_array shapes[] = {
        {.ndim = 0},
        {.ndim = 1, .shape = {0}},
        {.ndim = 1, .shape = {1}},
        {.ndim = 1, .shape = {5}},
        {.ndim = 2, .shape = {3, 4}},
        {.ndim = 3, .shape = {2, 3, 4}},
        {.ndim = 3, .shape = {2, 0, 3}},
        {.ndim = 8, .shape = {1, 2, 1, 3, 2, 2, 1, 2}},
    };
    for (int dtype = NPY_F16; dtype < NPY_DTYPE_COUNT; dtype++) {
        for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
            npy_array array = shapes[n];
            array.dtype = (npy_dtype)dtype;
            int64_t count = 1;
            for (int d = 0; d < array.ndim; d++) {
                count *= array.shape[d];
            }
            array.data = filled(array.dtype, count);
            char name[64];
            snprintf(name, sizeof name, "w-%s-%zu.npy", npy_dtype_name(array.dtype), n);
            if (!npy_write(in_directory(name), &array, error, sizeof error)) {
                fail_msg("%s", error);
            }
            free(array.data);
        }
    }
    run_arrays_py("check");
}

/* ---- Files made by hand ---- */

/* A file is given as its bytes; HEADER builds the usual version 1.0 preamble at run time. */
static void put_file(const char *name, const void *bytes, size_t size) {
    FILE *file = fopen(in_directory(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static size_t build(char *into, const char *header, const char *data, size_t data_size) {
    size_t length = strlen(header);
    memcpy(into, "\x93NUMPY\x01\x00", 8);
    into[8] = (char)(length & 255);
    into[9] = (char)(length >> 8);
    memcpy(into + 10, header, length);
    memcpy(into + 10 + length, data, data_size);
    return 10 + length + data_size;
}

static bool read_built(const char *header, npy_array *array) {
    char bytes[2048];
    static const char data[64] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    put_file("hand.npy", bytes, build(bytes, header, data, sizeof data));
    memset(error, '?', sizeof error);
    return npy_read(in_directory("hand.npy"), array, error, sizeof error);
}

/* Each fault in a header is refused with a sentence that names the file and the fault, and the
 * caller's struct stays as it was. */
static void test_bad_headers(void **state) {
    (void)state;
    static const struct {
        const char *header;
        const char *says;
    } faults[] = {
        {"", "does not begin with '{'"},
        {"[]", "does not begin with '{'"},
        {"{", "not a dictionary"},
        {"{}", "lacks the key 'descr'"},
        {"{'descr': '<f4', 'fortran_order': False}", "lacks the key 'shape'"},
        {"{'descr': '<f4', 'shape': (1,)}", "lacks the key 'fortran_order'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", "not a dictionary"},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", "not a dictionary"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "after its closing"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}}", "after its closing"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", "unknown key 'x'"},
        {"{descr: '<f4', 'fortran_order': False, 'shape': (1,)}", "not a dictionary"},
        {"{'descr: '<f4', 'fortran_order': False, 'shape': (1,)}", "not a dictionary"},
        {"{'descr': '<f4, 'fortran_order': False, 'shape': (1,)}", "'<f4, '"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "Python objects"},
        {"{'descr': 'O', 'fortran_order': False, 'shape': (1,)}", "Python objects"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "structured"},
        {"{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': (1,)}", "structured"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (1,)}", "type '<i4'"},
        {"{'descr': '<U3', 'fortran_order': False, 'shape': (1,)}", "type '<U3'"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "type '<c8'"},
        {"{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}", "type '<f16'"},
        {"{'descr': '<f44', 'fortran_order': False, 'shape': (1,)}", "type '<f44'"},
        {"{'descr': '<', 'fortran_order': False, 'shape': (1,)}", "type '<'"},
        {"{'descr': '', 'fortran_order': False, 'shape': (1,)}", "type ''"},
        {"{'descr': '<f\\x34', 'fortran_order': False, 'shape': (1,)}", "short type string"},
        {"{'descr': '\xc3\xa9', 'fortran_order': False, 'shape': (1,)}", "short type string"},
        {"{'descr': 4, 'fortran_order': False, 'shape': (1,)}", "short type string"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", "neither True nor False"},
        {"{'descr': '<f4', 'fortran_order': 'True', 'shape': (1,)}", "neither True nor False"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "negative"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3)}", "negative"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 1}", "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1)}", "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': [1]}", "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,)}", "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}", "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (None,)}", "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,", "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
         "more than 8 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
         "beyond 64 bits"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807,)}",
         "more elements than memory"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
         "more elements than memory"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296, 0)}",
         "more elements than memory"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (144115188075855872,)}",
         "ends inside its data, after 64 of 1152921504606846976 bytes"},
        {"{'descr': '<f8', 'fortran_order': True, 'shape': (3, 3)}",
         "ends inside its data, after 64 of 72 bytes"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        npy_array array = {.ndim = 77};
        if (read_built(faults[i].header, &array)) {
            fail_msg("accepted: %s", faults[i].header);
        }
        assert_int_equal(array.ndim, 77);
        assert_non_null(strstr(error, "hand.npy: "));
        if (strstr(error, faults[i].says) == NULL) {
            fail_msg("%s\n  gave: %s\n  not:  %s", faults[i].header, error, faults[i].says);
        }
    }
}

/* Unusual headers that Python accepts are accepted: other quotes, spaces, order of keys, long
 * integers of Python 2, native byte order, no trailing commas, bytes after the data. */
static void test_odd_but_legal_headers(void **state) {
    (void)state;
    static const char *headers[] = {
        "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }\n",
        "{\"shape\": (3L,), \"descr\": '<i8', 'fortran_order': True}",
        "  { 'fortran_order' :False,'shape':( 3 , ) ,\n'descr':'i8' }\t\n\n",
        "{'descr': '<i8', 'fortran_order': False, 'shape': (1, 3)}",
        "{'descr': '=i8', 'fortran_order': True, 'shape': (1, 3,)}",
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        npy_array array;
        if (!read_built(headers[i], &array)) {
            fail_msg("%s", error);
        }
        assert_int_equal(array.dtype, NPY_I64);
        assert_int_equal(array.count, 3);
        int64_t first;
        memcpy(&first, array.data, 8);
        assert_true(first == 0x0807060504030201);
        npy_free(&array);
        assert_null(array.data);
    }
}

/* A good file cut at any length is refused, and says where it ends. */
static void test_every_truncation_is_refused(void **state) {
    (void)state;
    char bytes[256];
    size_t size = build(bytes, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }\n",
                        "0123456789abcdef", 16);
    npy_array array = {0};
    for (size_t cut = 0; cut < size; cut++) {
        put_file("cut.npy", bytes, cut);
        assert_false(npy_read(in_directory("cut.npy"), &array, error, sizeof error));
        assert_non_null(strstr(error, cut == 0 ? "is empty" : "ends inside its"));
    }
    put_file("cut.npy", bytes, size);
    assert_true(npy_read(in_directory("cut.npy"), &array, error, sizeof error));
    npy_free(&array);
}

/* Any byte of the preamble changed to any value: an answer or a sentence, never a crash (the
 * sanitizer build watches), and never a count that does not match the shape. */
static void test_every_changed_byte_is_survived(void **state) {
    (void)state;
    char bytes[256];
    size_t size = build(bytes, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }\n",
                        "0123456789abcdef", 16);
    for (size_t at = 0; at < size - 16; at++) {
        char kept = bytes[at];
        for (int value = 0; value < 256; value++) {
            bytes[at] = (char)value;
            FILE *stream = fmemopen(bytes, size, "rb");
            assert_non_null(stream);
            npy_array array = {0};
            if (npy_read_stream(stream, "changed", &array, error, sizeof error)) {
                int64_t count = 1;
                for (int d = 0; d < array.ndim; d++) {
                    count *= array.shape[d];
                }
                assert_int_equal(array.count, count);
                assert_true((size_t)count * npy_dtype_size(array.dtype) <= 16);
                npy_free(&array);
            } else {
                assert_non_null(strstr(error, "changed: "));
            }
            fclose(stream);
        }
        bytes[at] = kept;
    }
}

/* Wrong magic, unknown versions and an absurd header length are named as such. */
static void test_bad_preambles(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *says;
    } faults[] = {
        {"PK\x03\x04 a zip", 10, "not a .npy file"},
        {"P", 1, "not a .npy file"},
        {"\x93NUMPZ\x01\x00", 8, "not a .npy file"},
        {"\x93NUMPY\x00\x00\x00\x00", 10, "version 0.0"},
        {"\x93NUMPY\x04\x00\x00\x00", 10, "version 4.0"},
        {"\x93NUMPY\x01\x01\x00\x00", 10, "version 1.1"},
        {"\x93NUMPY\x02\x00\xff\xff\xff\xff", 12, "claims a header of 4294967295 bytes"},
        {"\x93NUMPY\x03\x00\x01\x00\x01\x00", 12, "claims a header of 65537 bytes"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        put_file("bad.npy", faults[i].bytes, faults[i].size);
        npy_array array;
        assert_false(npy_read(in_directory("bad.npy"), &array, error, sizeof error));
        if (strstr(error, faults[i].says) == NULL) {
            fail_msg("gave: %s\n  not:  %s", error, faults[i].says);
        }
    }
}

/* A missing file and a directory say so; a message too long for its buffer is cut, not overrun. */
static void test_missing_file_and_directory(void **state) {
    (void)state;
    npy_array array;
    assert_false(npy_read(in_directory("none.npy"), &array, error, sizeof error));
    assert_non_null(strstr(error, "none.npy: cannot be opened: No such file"));
    assert_false(npy_read(directory, &array, error, sizeof error));
    assert_non_null(strstr(error, "cannot be read: Is a directory"));
    char small[16];
    memset(small, '#', sizeof small);
    assert_false(npy_read(in_directory("none.npy"), &array, small, 12));
    assert_int_equal(strlen(small), 11);
    assert_true(small[12] == '#');
    assert_false(npy_read(in_directory("none.npy"), &array, NULL, 0));
}

/* A file longer than the first piece that is read arrives whole, through a pipe too. */
static void test_long_data_and_pipes(void **state) {
    (void)state;
    enum { COUNT = 700001 }; /* 5.6 MB: several pieces, the last one short */
    npy_array array = {.dtype = NPY_F64, .ndim = 1, .shape = {COUNT}};
    array.data = filled(NPY_F64, COUNT);
    if (!npy_write(in_directory("long.npy"), &array, error, sizeof error)) {
        fail_msg("%s", error);
    }
    char command[600];
    snprintf(command, sizeof command, "cat '%s'", in_directory("long.npy"));
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    npy_array back;
    assert_true(npy_read_stream(pipe, "pipe", &back, error, sizeof error));
    assert_int_equal(pclose(pipe), 0);
    assert_int_equal(back.count, COUNT);
    assert_memory_equal(back.data, array.data, COUNT * sizeof(double));
    npy_free(&back);
    free(array.data);
}

static int entries_in(const char *path) {
    DIR *open = opendir(path);
    assert_non_null(open);
    int entries = 0;
    for (struct dirent *entry; (entry = readdir(open)) != NULL;) {
        entries += entry->d_name[0] != '.';
    }
    closedir(open);
    return entries;
}

/* A write that fails half way (here: a limit on file size) says so, leaves no temporary file, and
 * leaves the file that was there before as it was. */
static void test_failed_write_changes_nothing(void **state) {
    (void)state;
    static char sub[512];
    snprintf(sub, sizeof sub, "%s", in_directory("sub"));
    assert_int_equal(mkdir(sub, 0777), 0);
    char path[600];
    snprintf(path, sizeof path, "%s/x.npy", sub);
    npy_array small = {.dtype = NPY_U8, .ndim = 1, .shape = {3}, .data = (char[]){1, 2, 3}};
    assert_true(npy_write(path, &small, error, sizeof error));
    npy_array large = {.dtype = NPY_F64, .ndim = 1, .shape = {100000}};
    large.data = filled(NPY_F64, 100000);

    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit limit = {4096, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    bool written = npy_write(path, &large, error, sizeof error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    free(large.data);

    assert_false(written);
    assert_non_null(strstr(error, "x.npy: cannot be written: File too large"));
    assert_int_equal(entries_in(sub), 1);
    npy_array back;
    assert_true(npy_read(path, &back, error, sizeof error));
    assert_int_equal(back.count, 3);
    npy_free(&back);
}

/* Targets that cannot be written are refused by name: a directory, a missing directory, and an
 * array that has no type or too many dimensions. */
static void test_impossible_writes(void **state) {
    (void)state;
    npy_array array = {.dtype = NPY_U8, .ndim = 1, .shape = {3}, .data = (char[]){1, 2, 3}};
    char path[600];
    snprintf(path, sizeof path, "%s/target", directory);
    assert_int_equal(mkdir(path, 0777), 0);
    int entries = entries_in(directory);
    assert_false(npy_write(path, &array, error, sizeof error));
    assert_non_null(strstr(error, "Is a directory"));
    assert_int_equal(entries_in(directory), entries);
    assert_false(npy_write(in_directory("no/x.npy"), &array, error, sizeof error));
    assert_non_null(strstr(error, "No such file or directory"));
    array.dtype = NPY_NONE;
    assert_false(npy_write(in_directory("x.npy"), &array, error, sizeof error));
    assert_non_null(strstr(error, "type or shape is not valid"));
    array.dtype = NPY_U8;
    array.ndim = NPY_MAX_DIMS + 1;
    assert_false(npy_write(in_directory("x.npy"), &array, error, sizeof error));
    array.ndim = 1;
    array.shape[0] = -3;
    assert_false(npy_write(in_directory("x.npy"), &array, error, sizeof error));
}

/* f16 values from IEEE 754's definition: the largest, the least normal and subnormal, and 1/3. */
static void test_half_values(void **state) {
    (void)state;
    uint16_t bits[] = {0x7bff, 0x0400, 0x0001, 0x03ff, 0x3555, 0xbc00, 0x7c00, 0xfc00};
    const double want[] = {65504,         0x1p-14, 0x1p-24,          0x1p-14 - 0x1p-24,
                           1365.0 / 4096, -1.0,    (double)INFINITY, -(double)INFINITY};
    npy_array array = {.dtype = NPY_F16, .ndim = 1, .shape = {8}, .count = 8, .data = bits};
    for (int i = 0; i < 8; i++) {
        assert_true(npy_value(&array, i) == want[i]);
    }
}

static int make_directory(void **state) {
    (void)state;
    return mkdtemp(directory) == NULL;
}

static int remove_directory(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", directory);
    return system(command);
}

int main(int argc, char **argv) {
    if (argc == 3) {
        python = argv[1];
        arrays_py = argv[2];
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_what_numpy_writes),
        cmocka_unit_test(test_nan_payloads_keep_their_bits),
        cmocka_unit_test(test_numpy_reads_what_we_write),
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_odd_but_legal_headers),
        cmocka_unit_test(test_every_truncation_is_refused),
        cmocka_unit_test(test_every_changed_byte_is_survived),
        cmocka_unit_test(test_bad_preambles),
        cmocka_unit_test(test_missing_file_and_directory),
        cmocka_unit_test(test_long_data_and_pipes),
        cmocka_unit_test(test_failed_write_changes_nothing),
        cmocka_unit_test(test_impossible_writes),
        cmocka_unit_test(test_half_values),
    };
    return cmocka_run_group_tests_name("npy", tests, make_directory, remove_directory);
}
