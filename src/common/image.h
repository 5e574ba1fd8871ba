/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled kernels held in the library, as tools/embed/embed_images.c writes them. */
#ifndef PF_IMAGE_H
#define PF_IMAGE_H

#include <stddef.h>

typedef struct pf_image {
    const char *name;
    const unsigned char *bytes; /* aligned to 64 */
    size_t size;
} pf_image;

/* The image of this name in a table sorted by name, NULL where there is none. */
const pf_image *pf_image_find(const pf_image *images, size_t count, const char *name);

#endif
