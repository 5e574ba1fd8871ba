/* SPDX-License-Identifier: Apache-2.0 */
#include "image.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *name, const void *image) {
    return strcmp(name, ((const pf_image *)image)->name);
}

const pf_image *pf_image_find(const pf_image *images, size_t count, const char *name) {
    return bsearch(name, images, count, sizeof *images, compare);
}
