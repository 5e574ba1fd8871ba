/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator, but one image is replaced as it is loaded: the image that the file PLANTED_SHIPPED
 * holds gives way to that of the file PLANTED_IMAGE. All other functions are the simulator's own,
 * which this library is linked with. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../amdgcn-sim/hip.h"

/* A reference, without which the linker would leave the simulator out. */
__attribute__((used)) static hipError_t (*const linked)(unsigned) = hipInit;

/* What a file named by an environment variable holds; stays allocated, as code objects do. */
static unsigned char *read_image(const char *variable, long *size) {
    const char *path = getenv(variable);
    FILE *file = path != NULL ? fopen(path, "rb") : NULL;
    unsigned char *bytes = NULL;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0 && (*size = ftell(file)) > 0) {
        bytes = malloc((size_t)*size);
        rewind(file);
        if (bytes != NULL && fread(bytes, 1, (size_t)*size, file) != (size_t)*size) {
            free(bytes);
            bytes = NULL;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    if (bytes == NULL) {
        fprintf(stderr, "planted_hip: %s: %s cannot be read\n", variable, path ? path : "nothing");
    }
    return bytes;
}

/* Stops at the first difference: nothing is read behind a shorter image. */
static bool same_bytes(const unsigned char *a, const unsigned char *b, long size) {
    long i = 0;
    while (i < size && a[i] == b[i]) {
        i++;
    }
    return i == size;
}

hipError_t hipModuleLoadData(hipModule_t *module, const void *image) {
    hipError_t (*load)(hipModule_t *, const void *);
    void *symbol = dlsym(RTLD_NEXT, "hipModuleLoadData");
    long shipped_size, planted_size;
    unsigned char *shipped = read_image("PLANTED_SHIPPED", &shipped_size);
    unsigned char *planted = read_image("PLANTED_IMAGE", &planted_size);
    memcpy(&load, &symbol, sizeof load);
    if (shipped == NULL || planted == NULL || load == NULL) {
        return hipErrorInvalidImage;
    }
    if (same_bytes(image, shipped, shipped_size)) {
        fputs("planted_hip: image replaced\n", stderr);
        image = planted;
    }
    free(shipped);
    return load(module, image);
}
