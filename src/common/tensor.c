/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor.h"

#include <inttypes.h>

#include "status.h"

int64_t pf_tensor_elements(const pfattn_tensor *tensor) {
    const int64_t *n = tensor->shape;
    return n[0] * n[1] * n[2] * n[3];
}

void pf_tensor_make_canonical(pfattn_tensor *tensor) {
    bool empty = pf_tensor_elements(tensor) == 0;
    for (int d = 0; d < 4; d++) {
        tensor->stride[d] = empty || tensor->shape[d] == 1 ? 0 : tensor->stride[d];
    }
}

/* Backends multiply sizes freely, also where one of them is 0. */
static pfattn_status check_shape(const char *name, const pfattn_tensor *tensor) {
    int64_t product = 1;
    for (int d = 0; d < 4; d++) {
        int64_t size = tensor->shape[d];
        if (size < 0) {
            return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                            "%s: shape[%d] is %" PRId64 "; it must be 0 or more", name, d, size);
        }
        if (__builtin_mul_overflow(product, size > 0 ? size : 1, &product)) {
            return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                            "%s: shape [%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
                            "] has more elements than 64 bits can count",
                            name, tensor->shape[0], tensor->shape[1], tensor->shape[2],
                            tensor->shape[3]);
        }
    }
    return PFATTN_SUCCESS;
}

/* The bytes from the tensor's pointer down to its lowest byte and up to its highest. */
static bool byte_extents(const pfattn_tensor *tensor, int64_t size, int64_t *lowest,
                         int64_t *highest) {
    int64_t low = 0;
    int64_t high = 1;
    for (int d = 0; d < 4; d++) {
        int64_t reach;
        if (__builtin_mul_overflow(tensor->shape[d] - 1, tensor->stride[d], &reach)) {
            return false;
        }
        int64_t *side = reach < 0 ? &low : &high;
        if (__builtin_add_overflow(*side, reach, side)) {
            return false;
        }
    }
    return !__builtin_mul_overflow(low, size, lowest) &&
           !__builtin_mul_overflow(high, size, highest);
}

/* Does the tensor, at this address, lie within the address space? */
static bool is_within_memory(const pfattn_tensor *tensor, size_t size, uintptr_t address) {
    int64_t lowest;
    int64_t highest;
    return byte_extents(tensor, (int64_t)size, &lowest, &highest) &&
           (uintptr_t)0 - (uintptr_t)lowest <= address &&
           (uintptr_t)highest <= UINTPTR_MAX - address;
}

bool pf_tensor_fits(const pfattn_tensor *tensor, const void *data) {
    return data != NULL &&
           is_within_memory(tensor, pfattn_dtype_size(tensor->dtype), (uintptr_t)data);
}

static pfattn_status check_address(const char *name, const pfattn_tensor *tensor, size_t size) {
    uintptr_t address = (uintptr_t)tensor->data;
    if (address == 0) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "%s: data is NULL but the tensor has %" PRId64 " elements", name,
                        pf_tensor_elements(tensor));
    }
    if ((address & (size - 1)) != 0) { /* sizes are powers of two */
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "%s: data is %p; it must be aligned to the %zu bytes of one %s", name,
                        tensor->data, size, pfattn_dtype_string(tensor->dtype));
    }
    if (!is_within_memory(tensor, size, address)) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                        "%s: strides [%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
                        "] reach beyond the address space",
                        name, tensor->stride[0], tensor->stride[1], tensor->stride[2],
                        tensor->stride[3]);
    }
    return PFATTN_SUCCESS;
}

/* What check_distinct knows of a dimension. */
typedef struct reach {
    uint64_t stride, size; /* stride without its sign; 0 where the size is 1 */
} reach;

/* By insertion, the smallest stride first. */
static void sort_by_stride(reach dims[4]) {
    for (int i = 1; i < 4; i++) {
        reach moved = dims[i];
        int at = i;
        for (; at > 0 && dims[at - 1].stride > moved.stride; at--) {
            dims[at] = dims[at - 1];
        }
        dims[at] = moved;
    }
}

static uint64_t magnitude(int64_t value) {
    return value < 0 ? (uint64_t)0 - (uint64_t)value : (uint64_t)value;
}

/* After check_address: the tensor lies within the address space, so no sum here overflows. */
static pfattn_status check_distinct(const char *name, const pfattn_tensor *tensor) {
    reach dims[4];
    for (int d = 0; d < 4; d++) {
        dims[d].stride = tensor->shape[d] > 1 ? magnitude(tensor->stride[d]) : 0;
        dims[d].size = (uint64_t)tensor->shape[d];
    }
    sort_by_stride(dims);
    uint64_t span = 0;
    for (int d = 0; d < 4; d++) {
        if (dims[d].size > 1 && dims[d].stride <= span) {
            return pf_error(PFATTN_ERROR_INVALID_ARGUMENT,
                            "%s: strides [%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
                            "] let elements share memory; those of an output must be distinct",
                            name, tensor->stride[0], tensor->stride[1], tensor->stride[2],
                            tensor->stride[3]);
        }
        span += (dims[d].size - 1) * dims[d].stride;
    }
    return PFATTN_SUCCESS;
}

pfattn_status pf_tensor_check(const char *name, const pfattn_tensor *tensor, bool output) {
    size_t size = pfattn_dtype_size(tensor->dtype);
    if (size == 0) {
        return pf_error(PFATTN_ERROR_INVALID_ARGUMENT, "%s: dtype %d is not a pfattn_dtype", name,
                        (int)tensor->dtype);
    }
    pfattn_status status = check_shape(name, tensor);
    if (status != PFATTN_SUCCESS || pf_tensor_elements(tensor) == 0) {
        return status;
    }
    status = check_address(name, tensor, size);
    return status != PFATTN_SUCCESS || !output ? status : check_distinct(name, tensor);
}
