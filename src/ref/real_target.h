/* SPDX-License-Identifier: Apache-2.0 */
/* The three inner loops, compiled once for each instruction set that is worth it. Included after
 * `real` is defined, with
 *     TARGET(name)     the name of a function of this instruction set
 *     TARGET_CODE      its attributes
 *     VECTOR_BYTES     the width of its vector registers
 * Rows of matrices begin at multiples of 64 bytes and are padded to them. */

typedef real TARGET(vector) __attribute__((vector_size(VECTOR_BYTES), may_alias));

enum { TARGET(LANES) = VECTOR_BYTES / sizeof(real) };

/* `rows` (a constant at each call) rows by two vectors of C += A B, held in registers. */
static inline __attribute__((always_inline)) TARGET_CODE void
TARGET(multiply_tile)(const int rows, real *c, size_t ldc, const real *a, size_t row_stride,
                      size_t inner_stride, const real *b, size_t ldb, int64_t inner) {
    TARGET(vector) sum[4][2];
    for (int r = 0; r < rows; r++) {
        const TARGET(vector) *from = (const TARGET(vector) *)(c + (size_t)r * ldc);
        sum[r][0] = from[0];
        sum[r][1] = from[1];
    }
    for (int64_t n = 0; n < inner; n++) {
        const TARGET(vector) *right = (const TARGET(vector) *)(b + (size_t)n * ldb);
        const TARGET(vector) right0 = right[0], right1 = right[1];
        for (int r = 0; r < rows; r++) {
            const real left = a[(size_t)r * row_stride + (size_t)n * inner_stride];
            sum[r][0] += left * right0;
            sum[r][1] += left * right1;
        }
    }
    for (int r = 0; r < rows; r++) {
        TARGET(vector) *to = (TARGET(vector) *)(c + (size_t)r * ldc);
        to[0] = sum[r][0];
        to[1] = sum[r][1];
    }
}

/* C += A B, with C [rows][columns], B [inner][columns] and A of any strides. */
static TARGET_CODE void TARGET(multiply)(real *c, size_t ldc, const real *a, size_t row_stride,
                                         size_t inner_stride, const real *b, size_t ldb, int rows,
                                         int64_t inner, int64_t columns) {
    for (int64_t n = 0; n < columns; n += 2 * TARGET(LANES)) {
        int r = 0;
        for (; r + 4 <= rows; r += 4) {
            TARGET(multiply_tile)
            (4, c + (size_t)r * ldc + n, ldc, a + (size_t)r * row_stride, row_stride, inner_stride,
             b + n, ldb, inner);
        }
        for (; r < rows; r++) {
            TARGET(multiply_tile)
            (1, c + (size_t)r * ldc + n, ldc, a + (size_t)r * row_stride, row_stride, inner_stride,
             b + n, ldb, inner);
        }
    }
}

/* The largest of a row's KEYS numbers, NaN left out; -inf where there is none. */
static TARGET_CODE real TARGET(row_maximum)(const real *row) {
    real lane[16];
    for (int n = 0; n < 16; n++) {
        lane[n] = -(real)INFINITY;
    }
    for (int j = 0; j < KEYS; j += 16) {
        for (int n = 0; n < 16; n++) {
            lane[n] = row[j + n] > lane[n] ? row[j + n] : lane[n];
        }
    }
    real maximum = lane[0];
    for (int n = 1; n < 16; n++) {
        maximum = lane[n] > maximum ? lane[n] : maximum;
    }
    return maximum;
}

/* row = exp(row - shift) over KEYS numbers; returns their sum. exp(-inf) is 0 exactly. */
static TARGET_CODE real TARGET(row_exponential)(real *row, real shift) {
    real lane[16] = {0};
    for (int j = 0; j < KEYS; j += 16) {
        for (int n = 0; n < 16; n++) {
            row[j + n] = exponential(row[j + n] - shift);
            lane[n] += row[j + n];
        }
    }
    real sum = 0;
    for (int n = 0; n < 16; n++) {
        sum += lane[n];
    }
    return sum;
}

static const kernels TARGET(kernels) = {TARGET(multiply), TARGET(row_maximum),
                                        TARGET(row_exponential)};

#undef TARGET
#undef TARGET_CODE
#undef VECTOR_BYTES
