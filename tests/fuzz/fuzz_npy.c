/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness for the .npy reader: whatever the bytes, an array that is consistent with
 * itself or a sentence, and no more memory than a small multiple of the input. */
#include <stdlib.h>
#include <string.h>

#include "npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void use(const npy_array *array, size_t size) {
    int64_t count = 1;
    for (int d = 0; d < array->ndim; d++) {
        count *= array->shape[d];
    }
    size_t element = npy_dtype_size(array->dtype);
    if (count != array->count || element == 0 || (size_t)count * element > size) {
        abort();
    }
    double *values = npy_to_f64(array);
    for (int64_t i = 0; i < array->count; i++) {
        double again = npy_value(array, i);
        if (memcmp(&again, &values[i], sizeof again) != 0) {
            abort();
        }
    }
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size == 0) {
        return 0;
    }
    FILE *stream = fmemopen((void *)(uintptr_t)bytes, size, "rb");
    if (stream == NULL) {
        return 0;
    }
    char error[128] = "";
    npy_array array;
    if (npy_read_stream(stream, "fuzz", &array, error, sizeof error)) {
        use(&array, size);
        npy_free(&array);
    } else if (strncmp(error, "fuzz: ", 6) != 0) {
        abort();
    }
    fclose(stream);
    return 0;
}
