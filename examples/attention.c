/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention on the CPU. With all-zero queries every score is 0, so each row of the result is
 * the mean of the values up to it: 0, 0.5, 1, 1.5.
 *     cc attention.c $(pkg-config --cflags --libs pfattn) */
#include <stdio.h>
#include <stdlib.h>

#include <pfattn/pfattn.h>

enum { BATCH = 1, HEADS = 2, LENGTH = 4, CHANNELS = 8 };

/* A contiguous f32 tensor [BATCH, HEADS, LENGTH, channels]. Any other layout is other strides. */
static pfattn_tensor tensor(float *data, int64_t channels) {
    pfattn_tensor t = {data, PFATTN_DTYPE_F32, {BATCH, HEADS, LENGTH, channels}, {0}};
    t.stride[3] = 1;
    t.stride[2] = channels;
    t.stride[1] = LENGTH * channels;
    t.stride[0] = HEADS * LENGTH * channels;
    return t;
}

static int fail(void) {
    fprintf(stderr, "%s\n", pfattn_last_error());
    return EXIT_FAILURE;
}

int main(void) {
    static float q[BATCH * HEADS * LENGTH * CHANNELS], k[sizeof q / sizeof *q];
    static float v[sizeof q / sizeof *q], o[sizeof q / sizeof *q], lse[BATCH * HEADS * LENGTH];
    for (int i = 0; i < BATCH * HEADS * LENGTH * CHANNELS; i++) {
        v[i] = (float)(i / CHANNELS % LENGTH); /* row j holds j */
    }

    pfattn_handle_options options = PFATTN_HANDLE_OPTIONS_INIT;
    options.backend = PFATTN_BACKEND_REF; /* on a GPU the pointers would be device pointers */
    pfattn_handle handle;
    if (pfattn_create(&options, &handle) != PFATTN_SUCCESS) {
        return fail();
    }

    pfattn_attention args = PFATTN_ATTENTION_INIT;
    args.flags = PFATTN_FLAG_CAUSAL;
    args.q = tensor(q, CHANNELS);
    args.k = tensor(k, CHANNELS);
    args.v = tensor(v, CHANNELS);
    args.o = tensor(o, CHANNELS);
    args.lse = tensor(lse, 1);

    size_t bytes;
    if (pfattn_workspace_size(handle, PFATTN_FORWARD, &args, &bytes) != PFATTN_SUCCESS) {
        return fail();
    }
    void *workspace = bytes > 0 ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
    if (pfattn_forward(handle, &args, workspace, bytes, NULL) != PFATTN_SUCCESS) {
        return fail();
    }

    for (int i = 0; i < LENGTH; i++) {
        printf("row %d: o = %.4f, lse = %.4f\n", i, (double)o[i * CHANNELS], (double)lse[i]);
    }
    free(workspace);
    pfattn_destroy(handle);
    return EXIT_SUCCESS;
}
