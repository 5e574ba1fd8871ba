/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing NumPy .npy files.
 * Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#ifndef NPY_H
#define NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { NPY_MAX_DIMS = 8 };

/* NumPy's f2, f4, f8, u1, b1 (bool) and i8. */
typedef enum npy_dtype {
    NPY_NONE,
    NPY_F16,
    NPY_F32,
    NPY_F64,
    NPY_U8,
    NPY_BOOL,
    NPY_I64,
    NPY_DTYPE_COUNT
} npy_dtype;

/* An array in C order and the machine's own byte order, whatever the file had. Elements keep
 * their bits, NaN payloads included; a bool is the file's byte, non-zero = true. */
typedef struct npy_array {
    npy_dtype dtype;
    int ndim; /* 0 for a scalar, which has one element */
    int64_t shape[NPY_MAX_DIMS];
    int64_t count; /* product of the shape; count * element size fits int64 */
    void *data;    /* from malloc, never NULL after a successful read, even where count is 0 */
} npy_array;

/* Read a file. On failure `*array` is untouched, nothing stays allocated, and `error` (at most
 * `error_size` bytes with its terminator) holds one sentence that names the file and the fault.
 * Bytes after the data are ignored, as NumPy does. Memory taken is bounded by about three times
 * what the file really holds, whatever its header claims. */
bool npy_read(const char *path, npy_array *array, char *error, size_t error_size);

/* The same from an open stream, which stays open; `name` stands for the file in messages. */
bool npy_read_stream(FILE *stream, const char *name, npy_array *array, char *error,
                     size_t error_size);

/* Write a file, format version 1.0, C order, little-endian. Reads dtype, ndim, shape and data of
 * `array` (`count` is computed again). The file appears whole under its name or not at all: it is
 * written beside it and renamed. Failures as npy_read. */
bool npy_write(const char *path, const npy_array *array, char *error, size_t error_size);

/* Release what a read allocated and clear the struct. */
void npy_free(npy_array *array);

/* Element `index` in C order as a double: exact for all types but i8 beyond 2^53; true is 1. */
double npy_value(const npy_array *array, int64_t index);

/* All elements as doubles, from malloc (never NULL for want of elements); NULL without memory. */
double *npy_to_f64(const npy_array *array);

/* Bytes of an element; 0 for NPY_NONE and unknown values. */
size_t npy_dtype_size(npy_dtype dtype);

/* NumPy's code, "f4"; "none" for NPY_NONE and unknown values. */
const char *npy_dtype_name(npy_dtype dtype);

#endif
