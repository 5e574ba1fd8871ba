/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor_image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "formats.h"
#include "random.h"
#include "tool.h"

enum {
    GUARD_BYTES = 512,
    ALIGNMENT = 256,
    UNUSED_STRIDE = 1234567, /* of dimensions of size 1 */
    OUTPUT_GUARD = 0xa5,
    INPUT_GUARD = 0xff /* a NaN in every floating type, and "attend" in a mask */
};

/* How the elements of one tensor lie, before the guards. */
typedef struct arrangement {
    case_layout layout;
    int64_t pad;
    int64_t offset;
} arrangement;

static arrangement choose(const check_case *c, bool is_output, uint64_t seed) {
    static const int64_t pads[] = {0, 0, 1, 3, 8, 16}, offsets[] = {0, 0, 1, 3, 8};
    arrangement chosen = {(case_layout)c->layout, c->pad, c->offset};
    if (chosen.layout == LAYOUT_MIXED) {
        chosen.layout = (case_layout)(random_bits(seed, 1) % LAYOUT_MIXED);
        if (chosen.layout == LAYOUT_BROADCAST) {
            chosen.layout = LAYOUT_BHSD;
        }
        chosen.pad = pads[random_bits(seed, 2) % (sizeof pads / sizeof *pads)];
        chosen.offset = offsets[random_bits(seed, 3) % (sizeof offsets / sizeof *offsets)];
    }
    if (chosen.layout == LAYOUT_BROADCAST && is_output) {
        chosen.layout = LAYOUT_BHSD;
    }
    return chosen;
}

/* Strides of the arrangement for sizes where a far dimension counts as 1; `*span` and `*lowest`
 * are the elements covered and those below element 0. */
static void arrange(const arrangement *how, const int64_t shape[4], bool is_key, int64_t stride[4],
                    int64_t *span, int64_t *lowest) {
    static const int orders[LAYOUT_COUNT][4] = {
        [LAYOUT_BHSD] = {0, 1, 2, 3},       [LAYOUT_BSHD] = {0, 2, 1, 3},
        [LAYOUT_SBHD] = {2, 0, 1, 3},       [LAYOUT_PACKED] = {0, 2, 1, 3},
        [LAYOUT_TRANSPOSED] = {0, 1, 3, 2}, [LAYOUT_INTERLEAVED] = {0, 1, 2, 3},
        [LAYOUT_REVERSED] = {0, 1, 2, 3},   [LAYOUT_BROADCAST] = {0, 1, 2, 3},
    };
    const int *order = orders[how->layout];
    int64_t step = how->layout == LAYOUT_INTERLEAVED ? 2 : 1;
    for (int i = 3; i >= 0; i--) {
        int d = order[i];
        stride[d] = step;
        step *= shape[d] > 0 ? shape[d] : 1;
        step += i == 3 ? how->pad : 0;
        step *= d == 1 && how->layout == LAYOUT_PACKED ? 3 : 1;
    }
    if (how->layout == LAYOUT_BROADCAST) {
        stride[0] = 0;
        stride[1] = is_key ? 0 : stride[1];
    } else if (how->layout == LAYOUT_REVERSED) {
        stride[1] = -stride[1];
        stride[2] = -stride[2];
    }
    *span = 1;
    *lowest = 0;
    for (int d = 0; d < 4; d++) {
        int64_t reach = shape[d] > 1 ? (shape[d] - 1) * stride[d] : 0;
        *span += llabs(reach);
        *lowest += reach < 0 ? -reach : 0;
    }
}

static size_t round_up(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int far_dimension(const check_case *c, pf_tensor_id id, const int64_t shape[4]) {
    pf_tensor_id primal = call_primal(id);
    bool listed = (uint64_t)c->far_tensors >> id & 1;
    bool is_pair = primal == PF_BIAS || id == PF_MASK;
    int dimension = (int)c->far - 1;
    return listed && !is_pair && c->far != FAR_NONE && shape[dimension] > 1 ? dimension : -1;
}

void image_create(tensor_image *image, const check_case *c, pf_tensor_id id, bool is_output,
                  uint64_t seed) {
    memset(image, 0, sizeof *image);
    image->dtype = case_dtype(c, id);
    case_shape(c, id, image->shape);
    pf_tensor_id primal = call_primal(id);
    bool is_key = primal == PF_K || primal == PF_K2 || primal == PF_V;
    size_t size = pfattn_dtype_size(image->dtype);
    arrangement how = choose(c, is_output, seed);
    int64_t shape[4], span, lowest;
    memcpy(shape, image->shape, sizeof shape);
    int far_dim = far_dimension(c, id, shape);
    image->slabs = 1;
    if (far_dim >= 0) {
        image->slabs = shape[far_dim];
        shape[far_dim] = 1;
    }
    arrange(&how, shape, is_key, image->stride, &span, &lowest);
    image->origin = GUARD_BYTES + (size_t)(lowest + how.offset) * size;
    image->slab_bytes = round_up(2 * GUARD_BYTES + (size_t)(span + how.offset) * size);
    image->slab_pitch = image->slab_bytes;
    memcpy(image->host_stride, image->stride, sizeof image->stride);
    if (far_dim >= 0) {
        size_t far_bytes = ((size_t)1 << 31) / (size_t)(image->slabs - 1) * size;
        image->slab_pitch = image->slab_bytes + round_up(far_bytes + 1);
        image->stride[far_dim] = (int64_t)(image->slab_pitch / size);
        image->host_stride[far_dim] = (int64_t)(image->slab_bytes / size);
    }
    for (int d = 0; d < 4; d++) {
        if (image->shape[d] == 1 && c->layout != LAYOUT_BHSD) {
            image->stride[d] = image->host_stride[d] = UNUSED_STRIDE;
        }
    }
    image->bytes = tool_allocate_aligned(ALIGNMENT, image_host_bytes(image));
    memset(image->bytes, is_output ? OUTPUT_GUARD : INPUT_GUARD, image_host_bytes(image));
}

void image_free(tensor_image *image) {
    free(image->bytes);
    image->bytes = NULL;
}

size_t image_host_bytes(const tensor_image *image) {
    return (size_t)image->slabs * image->slab_bytes;
}

size_t image_device_bytes(const tensor_image *image) {
    return (size_t)(image->slabs - 1) * image->slab_pitch + image->slab_bytes;
}

static int64_t host_offset(const tensor_image *image, const int64_t index[4]) {
    return index[0] * image->host_stride[0] + index[1] * image->host_stride[1] +
           index[2] * image->host_stride[2] + index[3] * image->host_stride[3];
}

double image_get(const tensor_image *image, const int64_t index[4]) {
    return pf_load(image->bytes + image->origin, image->dtype, host_offset(image, index));
}

void image_set(tensor_image *image, const int64_t index[4], double value) {
    pf_store(image->bytes + image->origin, image->dtype, host_offset(image, index), value);
}

/* The elements of an image, row by row, in as many threads as there are; the rows must not share
 * memory. */
typedef void (*row_visitor)(const tensor_image *image, const int64_t index[4], const void *from,
                            void *to);

static void visit_rows(const tensor_image *image, row_visitor visit, const void *from, void *to) {
    int64_t rows = image->shape[0] * image->shape[1] * image->shape[2];
#ifdef _OPENMP
#pragma omp parallel for schedule(static) if (rows > 4096)
#endif
    for (int64_t row = 0; row < rows; row++) {
        int64_t index[4] = {row / image->shape[2] / image->shape[1],
                            row / image->shape[2] % image->shape[1], row % image->shape[2], 0};
        visit(image, index, from, to);
    }
}

static void fill_row(const tensor_image *image, const int64_t index[4], const void *from,
                     void *to) {
    (void)from;
    (void)to;
    int64_t row = host_offset(image, index);
    for (int64_t i = 0; i < image->shape[3]; i++) {
        pf_store(image->bytes + image->origin, image->dtype, row + i * image->host_stride[3], NAN);
    }
}

void image_fill_nan(tensor_image *image) {
    visit_rows(image, fill_row, NULL, NULL);
}

pfattn_tensor image_view(const tensor_image *image) {
    pfattn_tensor view = {.dtype = image->dtype};
    if (image->dtype == PFATTN_DTYPE_NONE) {
        return view;
    }
    unsigned char *base = image->device ? image->device : image->bytes;
    view.data = base + image->origin;
    memcpy(view.shape, image->shape, sizeof view.shape);
    memcpy(view.stride, image->stride, sizeof view.stride);
    return view;
}

pfattn_status image_upload(const tensor_image *image, tool_session *session) {
    pfattn_status status = PFATTN_SUCCESS;
    for (int64_t slab = 0; slab < image->slabs && status == PFATTN_SUCCESS; slab++) {
        status = session_upload(session, (char *)image->device + (size_t)slab * image->slab_pitch,
                                image->bytes + (size_t)slab * image->slab_bytes, image->slab_bytes);
    }
    return status;
}

pfattn_status image_download(const tensor_image *image, tool_session *session,
                             unsigned char *bytes) {
    pfattn_status status = PFATTN_SUCCESS;
    for (int64_t slab = 0; slab < image->slabs && status == PFATTN_SUCCESS; slab++) {
        status = session_download(session, bytes + (size_t)slab * image->slab_bytes,
                                  (char *)image->device + (size_t)slab * image->slab_pitch,
                                  image->slab_bytes);
    }
    return status;
}

/* Copy the elements of a row from one memory of the image to another. */
static void copy_row(const tensor_image *image, const int64_t index[4], const void *from,
                     void *to) {
    size_t size = pfattn_dtype_size(image->dtype);
    size_t at = image->origin + (size_t)host_offset(image, index) * size;
    size_t step = (size_t)image->host_stride[3] * size;
    if (image->host_stride[3] == 1) {
        memcpy((char *)to + at, (const char *)from + at, (size_t)image->shape[3] * size);
        return;
    }
    for (int64_t i = 0; i < image->shape[3]; i++, at += step) {
        memcpy((char *)to + at, (const char *)from + at, size);
    }
}

bool image_is_intact(const tensor_image *image, const unsigned char *after, bool is_output) {
    size_t bytes = image_host_bytes(image);
    if (!is_output) {
        return !memcmp(image->bytes, after, bytes);
    }
    unsigned char *expected = tool_allocate(bytes);
    memcpy(expected, image->bytes, bytes);
    visit_rows(image, copy_row, after, expected);
    bool intact = !memcmp(expected, after, bytes);
    free(expected);
    return intact;
}

uint64_t image_number(const tensor_image *image, const int64_t index[4]) {
    uint64_t number = 0;
    for (int d = 0; d < 4; d++) {
        bool fixed = image->host_stride[d] == 0;
        number = number * (uint64_t)image->shape[d] + (fixed ? 0 : (uint64_t)index[d]);
    }
    return number;
}
