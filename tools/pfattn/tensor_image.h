/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor of a check: its memory with everything around it. Before and after its elements, and
 * between them where the strides leave gaps, lie guard bytes, which a call must neither change nor
 * let into its results.
 *
 * A "far" dimension puts its slices so far apart on the device that offsets exceed 2^31 elements.
 * Only the slices (slabs) with their guards exist on the host. */
#ifndef TENSOR_IMAGE_H
#define TENSOR_IMAGE_H

#include <stdbool.h>

#include "check_case.h"
#include "session.h"

typedef struct tensor_image {
    pfattn_dtype dtype; /* NONE: the case does not have this tensor */
    int64_t shape[4];
    int64_t stride[4];      /* elements, on the device */
    int64_t host_stride[4]; /* elements, in `bytes` */
    size_t origin;          /* bytes from the start of the first slab to element (0,0,0,0) */
    size_t slab_bytes;      /* guards included */
    size_t slab_pitch;      /* bytes from slab to slab on the device */
    int64_t slabs;
    unsigned char *bytes; /* the slabs, one after another */
    void *device;
} tensor_image;

/* Lay the tensor out as the case says (`seed` draws a mixed layout). Every byte is a guard yet;
 * that of floating inputs reads as NaN. */
void image_create(tensor_image *image, const check_case *c, pf_tensor_id id, bool is_output,
                  uint64_t seed);
void image_free(tensor_image *image);

size_t image_host_bytes(const tensor_image *image);
size_t image_device_bytes(const tensor_image *image);

double image_get(const tensor_image *image, const int64_t index[4]);
void image_set(tensor_image *image, const int64_t index[4], double value);

/* Store NaN in every element, as an output is before the call. */
void image_fill_nan(tensor_image *image);

/* The view handed to the library: on the device where there is one, else on the host. */
pfattn_tensor image_view(const tensor_image *image);

pfattn_status image_upload(const tensor_image *image, tool_session *session);
pfattn_status image_download(const tensor_image *image, tool_session *session,
                             unsigned char *bytes);

/* Whether `after` (as downloaded) equals the image in every byte that is no element, and for an
 * input in every element too. */
bool image_is_intact(const tensor_image *image, const unsigned char *after, bool is_output);

/* The number of an element, which does not depend on the layout; along stride 0 it stays. */
uint64_t image_number(const tensor_image *image, const int64_t index[4]);

#endif
