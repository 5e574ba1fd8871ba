/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* open, fdopen */
#endif

#include "npy.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A header longer than this describes nothing we read: it would be a structured type. */
enum { MAX_HEADER_BYTES = 65536 };

/* Data is read in pieces that grow, so that a header cannot make us allocate what is not there. */
enum { FIRST_PIECE_BYTES = 1 << 20 };

static const unsigned char MAGIC[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

static const struct {
    const char *name;
    size_t size;
} DTYPES[NPY_DTYPE_COUNT] = {
    [NPY_NONE] = {"none", 0}, [NPY_F16] = {"f2", 2},  [NPY_F32] = {"f4", 4}, [NPY_F64] = {"f8", 8},
    [NPY_U8] = {"u1", 1},     [NPY_BOOL] = {"b1", 1}, [NPY_I64] = {"i8", 8},
};

size_t npy_dtype_size(npy_dtype dtype) {
    return (unsigned)dtype < NPY_DTYPE_COUNT ? DTYPES[dtype].size : 0;
}

const char *npy_dtype_name(npy_dtype dtype) {
    return (unsigned)dtype < NPY_DTYPE_COUNT ? DTYPES[dtype].name : "none";
}

/* Where an error goes, and the file it is about. */
typedef struct report {
    const char *file;
    char *text;
    size_t size;
} report;

__attribute__((format(printf, 2, 3))) static bool fail(const report *to, const char *format, ...) {
    if (to->size == 0) {
        return false;
    }
    int used = snprintf(to->text, to->size, "%s: ", to->file);
    if (used < 0 || (size_t)used >= to->size) {
        return false;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(to->text + used, to->size - (size_t)used, format, args);
    va_end(args);
    return false;
}

static bool host_is_little(void) {
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 1;
}

/* ---- The header: a Python dictionary literal with three keys ---- */

typedef struct header {
    npy_dtype dtype;
    bool swap; /* the file's byte order is not ours */
    bool fortran;
    int ndim;
    int64_t shape[NPY_MAX_DIMS];
    int64_t count;
} header;

/* What is left of the header's text; it ends with a NUL that is not part of it. */
typedef struct cursor {
    const char *at;
    const char *end;
} cursor;

static void skip_space(cursor *c) {
    while (c->at < c->end && strchr(" \t\r\n\f\v", *c->at) != NULL && *c->at != '\0') {
        c->at++;
    }
}

static bool take(cursor *c, char wanted) {
    skip_space(c);
    if (c->at < c->end && *c->at == wanted) {
        c->at++;
        return true;
    }
    return false;
}

static bool take_word(cursor *c, const char *word) {
    skip_space(c);
    size_t length = strlen(word);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) {
        return false;
    }
    c->at += length;
    return true;
}

/* A quoted string without escapes, printable ASCII only, copied to `text`. */
static bool take_string(cursor *c, char *text, size_t size) {
    char quote;
    if (take(c, '\'')) {
        quote = '\'';
    } else if (take(c, '"')) {
        quote = '"';
    } else {
        return false;
    }
    size_t used = 0;
    while (c->at < c->end && *c->at != quote) {
        char ch = *c->at++;
        if (ch < ' ' || ch > '~' || ch == '\\' || used + 1 >= size) {
            return false;
        }
        text[used++] = ch;
    }
    text[used] = '\0';
    return take(c, quote);
}

static bool parse_descr(cursor *c, header *h, const report *to) {
    char text[32];
    skip_space(c);
    if (c->at < c->end && (*c->at == '[' || *c->at == '(')) {
        return fail(to, "holds a structured type; only f2, f4, f8, u1, b1 (bool) and i8 are read");
    }
    if (!take_string(c, text, sizeof text)) {
        return fail(to, "the header's 'descr' is not a short type string");
    }
    const char *code = text;
    bool little = host_is_little();
    if (*code == '<' || *code == '>') {
        little = *code++ == '<';
    } else if (*code == '=' || *code == '|') {
        code++;
    }
    if (*code == 'O') {
        return fail(to, "holds Python objects; only f2, f4, f8, u1, b1 (bool) and i8 are read");
    }
    for (int dtype = NPY_F16; dtype < NPY_DTYPE_COUNT; dtype++) {
        if (strcmp(code, DTYPES[dtype].name) == 0) {
            h->dtype = (npy_dtype)dtype;
            h->swap = little != host_is_little() && DTYPES[dtype].size > 1;
            return true;
        }
    }
    return fail(to, "has type '%s'; only f2, f4, f8, u1, b1 (bool) and i8 are read", text);
}

static bool parse_order(cursor *c, header *h, const report *to) {
    if (take_word(c, "True")) {
        h->fortran = true;
        return true;
    }
    if (take_word(c, "False")) {
        h->fortran = false;
        return true;
    }
    return fail(to, "the header's 'fortran_order' is neither True nor False");
}

static bool parse_extent(cursor *c, int64_t *extent, const report *to) {
    skip_space(c);
    if (c->at < c->end && *c->at == '-') {
        return fail(to, "the header's 'shape' has a negative extent");
    }
    if (c->at == c->end || *c->at < '0' || *c->at > '9') {
        return fail(to, "the header's 'shape' is not a tuple of integers");
    }
    int64_t value = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *c->at - '0', &value)) {
            return fail(to, "the header's 'shape' has an extent beyond 64 bits");
        }
        c->at++;
    }
    if (c->at < c->end && *c->at == 'L') { /* as Python 2 wrote long integers */
        c->at++;
    }
    *extent = value;
    return true;
}

static bool parse_shape(cursor *c, header *h, const report *to) {
    if (!take(c, '(')) {
        return fail(to, "the header's 'shape' is not a tuple of integers");
    }
    h->ndim = 0;
    bool comma = true;
    while (!take(c, ')')) {
        if (!comma) {
            return fail(to, "the header's 'shape' is not a tuple of integers");
        }
        if (h->ndim == NPY_MAX_DIMS) {
            return fail(to, "has more than %d dimensions", NPY_MAX_DIMS);
        }
        if (!parse_extent(c, &h->shape[h->ndim], to)) {
            return false;
        }
        h->ndim++;
        comma = take(c, ',');
    }
    if (h->ndim == 1 && !comma) { /* (3) is a number in Python, not a tuple */
        return fail(to, "the header's 'shape' is not a tuple of integers");
    }
    return true;
}

/* The product of the extents. Extents of zero are left out of the check for overflow, so that
 * strides computed from such a shape stay in range as well. */
static bool count_elements(int ndim, const int64_t *shape, npy_dtype dtype, int64_t *count) {
    int64_t bytes = (int64_t)npy_dtype_size(dtype);
    bool empty = false;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] == 0) {
            empty = true;
        } else if (shape[d] < 0 || __builtin_mul_overflow(bytes, shape[d], &bytes)) {
            return false;
        }
    }
    if ((uint64_t)bytes > SIZE_MAX) {
        return false;
    }
    *count = empty ? 0 : bytes / (int64_t)npy_dtype_size(dtype);
    return true;
}

enum { HAS_DESCR = 1, HAS_ORDER = 2, HAS_SHAPE = 4, HAS_ALL = 7 };

static bool parse_entry(cursor *c, header *h, int *seen, const report *to) {
    char key[32];
    if (!take_string(c, key, sizeof key) || !take(c, ':')) {
        return fail(to, "the header is not a dictionary of 'descr', 'fortran_order' and 'shape'");
    }
    int bit;
    bool good;
    if (strcmp(key, "descr") == 0) {
        bit = HAS_DESCR;
        good = parse_descr(c, h, to);
    } else if (strcmp(key, "fortran_order") == 0) {
        bit = HAS_ORDER;
        good = parse_order(c, h, to);
    } else if (strcmp(key, "shape") == 0) {
        bit = HAS_SHAPE;
        good = parse_shape(c, h, to);
    } else {
        return fail(to, "the header has an unknown key '%s'", key);
    }
    if (good && (*seen & bit) != 0) {
        return fail(to, "the header has the key '%s' twice", key);
    }
    *seen |= bit;
    return good;
}

static bool parse_header(const char *text, size_t length, header *h, const report *to) {
    cursor c = {text, text + length};
    if (!take(&c, '{')) {
        return fail(to, "the header does not begin with '{'");
    }
    int seen = 0;
    bool comma = true;
    while (!take(&c, '}')) {
        if (!comma) {
            return fail(to,
                        "the header is not a dictionary of 'descr', 'fortran_order' and 'shape'");
        }
        if (!parse_entry(&c, h, &seen, to)) {
            return false;
        }
        comma = take(&c, ',');
    }
    skip_space(&c);
    if (c.at != c.end) {
        return fail(to, "the header has something after its closing '}'");
    }
    if (seen != HAS_ALL) {
        const char *lacks = (seen & HAS_DESCR) == 0   ? "descr"
                            : (seen & HAS_ORDER) == 0 ? "fortran_order"
                                                      : "shape";
        return fail(to, "the header lacks the key '%s'", lacks);
    }
    if (!count_elements(h->ndim, h->shape, h->dtype, &h->count)) {
        return fail(to, "the header's 'shape' has more elements than memory can address");
    }
    return true;
}

/* ---- Reading ---- */

static bool read_exactly(FILE *stream, void *to_memory, size_t bytes, const char *what,
                         const report *to) {
    errno = 0;
    size_t got = fread(to_memory, 1, bytes, stream);
    if (got == bytes) {
        return true;
    }
    if (ferror(stream)) {
        return fail(to, "cannot be read: %s", strerror(errno));
    }
    return fail(to, "ends inside its %s, after %zu of %zu bytes", what, got, bytes);
}

static bool read_header(FILE *stream, header *h, const report *to) {
    unsigned char start[8];
    errno = 0;
    size_t got = fread(start, 1, sizeof start, stream);
    if (ferror(stream)) {
        return fail(to, "cannot be read: %s", strerror(errno));
    }
    if (got == 0) {
        return fail(to, "is empty");
    }
    if (memcmp(start, MAGIC, got < sizeof MAGIC ? got : sizeof MAGIC) != 0) {
        return fail(to, "is not a .npy file: it does not begin with \\x93NUMPY");
    }
    if (got < sizeof start) {
        return fail(to, "ends inside its magic string, after %zu of 8 bytes", got);
    }
    if (start[6] < 1 || start[6] > 3 || start[7] != 0) {
        return fail(to, "has .npy format version %d.%d; 1.0, 2.0 and 3.0 are read", start[6],
                    start[7]);
    }
    unsigned char field[4] = {0};
    if (!read_exactly(stream, field, start[6] == 1 ? 2 : 4, "header length", to)) {
        return false;
    }
    size_t length =
        (size_t)field[0] | (size_t)field[1] << 8 | (size_t)field[2] << 16 | (size_t)field[3] << 24;
    if (length > MAX_HEADER_BYTES) {
        return fail(to, "claims a header of %zu bytes; at most %d are read", length,
                    MAX_HEADER_BYTES);
    }
    char *text = malloc(length + 1);
    if (text == NULL) {
        return fail(to, "no memory for a header of %zu bytes", length);
    }
    text[length] = '\0';
    bool good =
        read_exactly(stream, text, length, "header", to) && parse_header(text, length, h, to);
    free(text);
    return good;
}

static void *read_data(FILE *stream, size_t bytes, const report *to) {
    size_t room = bytes < FIRST_PIECE_BYTES ? bytes : FIRST_PIECE_BYTES;
    size_t held = 0;
    char *data = malloc(room > 0 ? room : 1);
    while (data != NULL && held < bytes) {
        errno = 0;
        size_t got = fread(data + held, 1, room - held, stream);
        held += got;
        if (held < room) {
            if (ferror(stream)) {
                fail(to, "cannot be read: %s", strerror(errno));
            } else {
                fail(to, "ends inside its data, after %zu of %zu bytes", held, bytes);
            }
            free(data);
            return NULL;
        }
        if (held < bytes) {
            room = bytes - room < room ? bytes : 2 * room;
            char *larger = realloc(data, room);
            if (larger == NULL) {
                free(data);
            }
            data = larger;
        }
    }
    if (data == NULL) {
        fail(to, "no memory for %zu bytes of data", bytes);
    }
    return data;
}

static void swap_bytes(char *data, size_t size, int64_t count) {
    for (int64_t i = 0; i < count; i++, data += size) {
        for (size_t low = 0, high = size - 1; low < high; low++, high--) {
            char byte = data[low];
            data[low] = data[high];
            data[high] = byte;
        }
    }
}

/* Walk the destination in C order and gather from the source, whose first index runs fastest. */
static void reorder_from_fortran(const header *h, const char *from, char *into) {
    size_t size = npy_dtype_size(h->dtype);
    int64_t stride[NPY_MAX_DIMS];
    int64_t index[NPY_MAX_DIMS] = {0};
    int64_t step = 1;
    for (int d = 0; d < h->ndim; d++) {
        stride[d] = step;
        step *= h->shape[d];
    }
    int64_t source = 0;
    for (int64_t i = 0; i < h->count; i++) {
        memcpy(into + (size_t)i * size, from + (size_t)source * size, size);
        for (int d = h->ndim - 1; d >= 0; d--) {
            source += stride[d];
            if (++index[d] < h->shape[d]) {
                break;
            }
            source -= stride[d] * h->shape[d];
            index[d] = 0;
        }
    }
}

bool npy_read_stream(FILE *stream, const char *name, npy_array *array, char *error,
                     size_t error_size) {
    const report to = {name, error, error_size};
    header h = {0};
    if (!read_header(stream, &h, &to)) {
        return false;
    }
    size_t size = npy_dtype_size(h.dtype);
    size_t bytes = (size_t)h.count * size;
    void *data = read_data(stream, bytes, &to);
    if (data == NULL) {
        return false;
    }
    if (h.swap) {
        swap_bytes(data, size, h.count);
    }
    if (h.fortran && h.ndim > 1 && h.count > 1) {
        void *ordered = malloc(bytes);
        if (ordered == NULL) {
            free(data);
            return fail(&to, "no memory for %zu bytes of data", bytes);
        }
        reorder_from_fortran(&h, data, ordered);
        free(data);
        data = ordered;
    }
    npy_array result = {.dtype = h.dtype, .ndim = h.ndim, .count = h.count, .data = data};
    memcpy(result.shape, h.shape, sizeof result.shape);
    *array = result;
    return true;
}

bool npy_read(const char *path, npy_array *array, char *error, size_t error_size) {
    const report to = {path, error, error_size};
    FILE *stream = fopen(path, "rb");
    if (stream == NULL) {
        return fail(&to, "cannot be opened: %s", strerror(errno));
    }
    bool good = npy_read_stream(stream, path, array, error, error_size);
    fclose(stream);
    return good;
}

void npy_free(npy_array *array) {
    free(array->data);
    *array = (npy_array){0};
}

/* ---- Writing ---- */

/* The whole preamble, padded so that the data begins at a multiple of 64. Returns its length. */
static size_t format_header(const npy_array *array, char *text, size_t size) {
    char shape[NPY_MAX_DIMS * 24 + 8] = "(";
    size_t used = 1;
    for (int d = 0; d < array->ndim; d++) {
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld", d > 0 ? ", " : "",
                                 (long long)array->shape[d]);
    }
    snprintf(shape + used, sizeof shape - used, array->ndim == 1 ? ",)" : ")");
    enum { PREFIX = 10 };
    int length = snprintf(
        text + PREFIX, size - PREFIX, "{'descr': '%c%s', 'fortran_order': False, 'shape': %s, }",
        npy_dtype_size(array->dtype) > 1 ? '<' : '|', npy_dtype_name(array->dtype), shape);
    size_t total = (PREFIX + (size_t)length + 1 + 63) / 64 * 64;
    memset(text + PREFIX + length, ' ', total - PREFIX - (size_t)length);
    text[total - 1] = '\n';
    memcpy(text, MAGIC, sizeof MAGIC);
    text[6] = 1;
    text[7] = 0;
    text[8] = (char)((total - PREFIX) & 0xff);
    text[9] = (char)((total - PREFIX) >> 8);
    return total;
}

static bool write_elements(FILE *stream, const npy_array *array, int64_t count) {
    size_t size = npy_dtype_size(array->dtype);
    if (count == 0) {
        return true;
    }
    if (host_is_little() || size == 1) {
        return fwrite(array->data, size, (size_t)count, stream) == (size_t)count;
    }
    for (int64_t i = 0; i < count; i++) {
        char element[8];
        memcpy(element, (const char *)array->data + (size_t)i * size, size);
        swap_bytes(element, size, 1);
        if (fwrite(element, size, 1, stream) != 1) {
            return false;
        }
    }
    return true;
}

/* Create a new file beside `path`, with the permissions any new file gets. */
static int open_beside(const char *path, char **temporary) {
    size_t size = strlen(path) + 48;
    char *name = malloc(size);
    if (name == NULL) {
        return -1;
    }
    int file = -1;
    for (int attempt = 0; attempt < 100 && file < 0; attempt++) {
        snprintf(name, size, "%s.%ld-%d.tmp", path, (long)getpid(), attempt);
        file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 && errno != EEXIST) {
            break;
        }
    }
    if (file < 0) {
        int cause = errno;
        free(name);
        errno = cause;
        return -1;
    }
    *temporary = name;
    return file;
}

/* Write everything and close; the first failure's errno is kept. */
static bool write_and_close(int file, const npy_array *array, int64_t count) {
    FILE *stream = fdopen(file, "wb");
    if (stream == NULL) {
        int cause = errno;
        close(file);
        errno = cause;
        return false;
    }
    char preamble[512];
    size_t length = format_header(array, preamble, sizeof preamble);
    bool good = fwrite(preamble, 1, length, stream) == length &&
                write_elements(stream, array, count) && fflush(stream) == 0;
    int cause = errno;
    if (fclose(stream) != 0 && good) {
        good = false;
        cause = errno;
    }
    errno = cause;
    return good;
}

bool npy_write(const char *path, const npy_array *array, char *error, size_t error_size) {
    const report to = {path, error, error_size};
    int64_t count;
    if (npy_dtype_size(array->dtype) == 0 || array->ndim < 0 || array->ndim > NPY_MAX_DIMS ||
        !count_elements(array->ndim, array->shape, array->dtype, &count)) {
        return fail(&to, "cannot be written: the array's type or shape is not valid");
    }
    char *temporary = NULL;
    int file = open_beside(path, &temporary);
    if (file < 0) {
        return fail(&to, "cannot be written: %s", strerror(errno));
    }
    bool good = write_and_close(file, array, count) && rename(temporary, path) == 0;
    if (!good) {
        fail(&to, "cannot be written: %s", strerror(errno));
        unlink(temporary);
    }
    free(temporary);
    return good;
}

/* ---- Values ---- */

static double half_to_double(uint16_t bits) {
    int exponent = bits >> 10 & 31;
    int fraction = bits & 1023;
    double magnitude;
    if (exponent == 31) {
        magnitude = fraction != 0 ? (double)NAN : (double)INFINITY;
    } else if (exponent == 0) {
        magnitude = ldexp(fraction, -24);
    } else {
        magnitude = ldexp(1024 + fraction, exponent - 25);
    }
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

double npy_value(const npy_array *array, int64_t index) {
    size_t size = npy_dtype_size(array->dtype);
    const char *at = (const char *)array->data + (size_t)index * size;
    switch (array->dtype) {
    case NPY_F16: {
        uint16_t bits;
        memcpy(&bits, at, sizeof bits);
        return half_to_double(bits);
    }
    case NPY_F32: {
        float value;
        memcpy(&value, at, sizeof value);
        return (double)value;
    }
    case NPY_F64: {
        double value;
        memcpy(&value, at, sizeof value);
        return value;
    }
    case NPY_U8:
        return (double)*(const unsigned char *)at;
    case NPY_BOOL:
        return *at != 0 ? 1.0 : 0.0;
    case NPY_I64: {
        int64_t value;
        memcpy(&value, at, sizeof value);
        return (double)value;
    }
    default:
        return (double)NAN;
    }
}

double *npy_to_f64(const npy_array *array) {
    size_t count = (size_t)array->count;
    if (count > SIZE_MAX / sizeof(double)) {
        return NULL;
    }
    double *values = malloc(count > 0 ? count * sizeof(double) : 1);
    if (values != NULL) {
        for (int64_t i = 0; i < array->count; i++) {
            values[i] = npy_value(array, i);
        }
    }
    return values;
}
