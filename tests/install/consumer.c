/* SPDX-License-Identifier: Apache-2.0 */
/* A program that knows the installed library alone: C and C++. One query over two keys with equal
 * scores gives the mean of the values and L = score + ln 2. */
#include <math.h>
#include <stdio.h>

#include <pfattn/pfattn.h>

static pfattn_tensor view(float *data, int64_t rows, int64_t columns) {
    pfattn_tensor tensor = PFATTN_TENSOR_INIT;
    tensor.data = data;
    tensor.dtype = PFATTN_DTYPE_F32;
    tensor.shape[0] = tensor.shape[1] = 1;
    tensor.shape[2] = rows;
    tensor.shape[3] = columns;
    tensor.stride[2] = columns;
    tensor.stride[3] = 1;
    return tensor;
}

static int check(pfattn_status status, const char *what) {
    if (status != PFATTN_SUCCESS) {
        fprintf(stderr, "%s: %s: %s\n", what, pfattn_status_string(status), pfattn_last_error());
    }
    return status != PFATTN_SUCCESS;
}

int main(void) {
    float q[2] = {1, 2};
    float k[4] = {3, 4, 3, 4};
    float v[2] = {10, 20};
    float o[1] = {0};
    float lse[1] = {0};
    pfattn_handle handle = NULL;
    pfattn_handle_options options = PFATTN_HANDLE_OPTIONS_INIT;
    pfattn_attention args = PFATTN_ATTENTION_INIT;
    options.backend = PFATTN_BACKEND_REF;
    args.flags = PFATTN_FLAG_ALPHA;
    args.alpha = 0.5;
    args.q = view(q, 1, 2);
    args.k = view(k, 2, 2);
    args.v = view(v, 2, 1);
    args.o = view(o, 1, 1);
    args.lse = view(lse, 1, 1);
    if (pfattn_version() !=
        PFATTN_VERSION_MAJOR * 10000 + PFATTN_VERSION_MINOR * 100 + PFATTN_VERSION_PATCH) {
        fprintf(stderr, "library %s, another version's header\n", pfattn_version_string());
        return 1;
    }
    if (check(pfattn_create(&options, &handle), "create") ||
        check(pfattn_forward(handle, &args, NULL, 0, NULL), "forward")) {
        return 1;
    }
    pfattn_destroy(handle);
    printf("o %g, L %g\n", (double)o[0], (double)lse[0]);
    return fabs(o[0] - 15.0) > 1e-5 || fabs(lse[0] - (5.5 + log(2.0))) > 1e-5;
}
