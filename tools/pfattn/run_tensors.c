/* SPDX-License-Identifier: Apache-2.0 */
#include "run_tensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "call.h"
#include "formats.h"
#include "npy.h"
#include "tool.h"

#define BIT(id) TENSOR_BIT(PF_##id)

static const uint64_t pair_tensors = BIT(BIAS) | BIT(TBIAS) | BIT(MASK) | BIT(DBIAS) | BIT(TDBIAS);
static const uint64_t row_tensors =
    BIT(LSE) | BIT(TLSE) | BIT(DLSE) | BIT(LSE0) | BIT(LSE1) | BIT(TLSE0) | BIT(TLSE1);

const char *run_tensor_name(pf_tensor_id id) {
    switch (id) {
    case PF_DOUT:
        return "do";
    case PF_TDOUT:
        return "tdo";
    default:
        return pf_tensor_name(id);
    }
}

static bool is_in(uint64_t set, pf_tensor_id id) {
    return set >> id & 1;
}

/* Strides of a tensor whose memory is its file's, in C order. */
static void set_strides(pfattn_tensor *tensor, bool swap_head_and_sequence) {
    const int order[4] = {0, swap_head_and_sequence ? 2 : 1, swap_head_and_sequence ? 1 : 2, 3};
    int64_t stride = 1;
    for (int i = 3; i >= 0; i--) {
        tensor->stride[order[i]] = stride;
        /* An array without elements may have sizes whose product wraps around, to no effect. */
        stride = (int64_t)((uint64_t)stride * (uint64_t)tensor->shape[order[i]]);
    }
}

/* The logical shape of a file; false where it has a wrong number of dimensions. */
static bool set_shape(const run_request *request, pf_tensor_id id, const npy_array *array,
                      pfattn_tensor *tensor) {
    const int64_t *shape = array->shape;
    if (is_in(row_tensors, id)) {
        if (array->ndim != 3 && array->ndim != 4) {
            tool_error(TOOL_USAGE, "--%s: the array has %d dimensions; it must be [B,H,M]",
                       run_tensor_name(id), array->ndim);
            return false;
        }
        for (int i = 0; i < 4; i++) {
            tensor->shape[i] = i < array->ndim ? shape[i] : 1;
        }
        set_strides(tensor, false);
        return true;
    }
    if (is_in(pair_tensors, id)) {
        if (array->ndim > 4) {
            tool_error(TOOL_USAGE,
                       "--%s: the array has %d dimensions; it must be [1|B, 1|H, 1|M, 1|N]",
                       run_tensor_name(id), array->ndim);
            return false;
        }
        for (int i = 0; i < 4; i++) {
            int at = i - (4 - array->ndim);
            tensor->shape[i] = at >= 0 ? shape[at] : 1;
        }
        set_strides(tensor, false);
        return true;
    }
    if (array->ndim != 4) {
        tool_error(TOOL_USAGE, "--%s: the array has %d dimensions; it must be %s",
                   run_tensor_name(id), array->ndim, request->bshd ? "[B,S,H,D]" : "[B,H,S,D]");
        return false;
    }
    tensor->shape[0] = shape[0];
    tensor->shape[1] = shape[request->bshd ? 2 : 1];
    tensor->shape[2] = shape[request->bshd ? 1 : 2];
    tensor->shape[3] = shape[3];
    set_strides(tensor, request->bshd);
    return true;
}

static pfattn_dtype own_dtype(npy_dtype dtype) {
    switch (dtype) {
    case NPY_F16:
        return PFATTN_DTYPE_F16;
    case NPY_F32:
        return PFATTN_DTYPE_F32;
    default:
        return PFATTN_DTYPE_F64;
    }
}

/* The type a tensor is rounded to before the call. */
static pfattn_dtype target_dtype(const run_request *request, const run_tensors *tensors,
                                 pf_tensor_id id, npy_dtype file) {
    bool f64 = tensors->dtype == PFATTN_DTYPE_F64;
    if (id == PF_MASK) {
        return PFATTN_DTYPE_U8;
    }
    if (id == PF_BIAS || id == PF_TBIAS) {
        if (request->bias_dtype != PFATTN_DTYPE_NONE) {
            return request->bias_dtype;
        }
        if (f64) {
            return PFATTN_DTYPE_F64;
        }
        return file == NPY_F64 ? PFATTN_DTYPE_F32 : own_dtype(file);
    }
    if (is_in(row_tensors, id)) {
        return f64 ? PFATTN_DTYPE_F64 : PFATTN_DTYPE_F32;
    }
    return tensors->dtype;
}

static int read_file(const char *option, const char *path, bool mask, npy_array *array) {
    char error[512];
    if (!npy_read(path, array, error, sizeof error)) {
        return tool_error(TOOL_FILE, "--%s: %s", option, error);
    }
    bool is_float = array->dtype == NPY_F16 || array->dtype == NPY_F32 || array->dtype == NPY_F64;
    if (is_float == mask) {
        tool_error(TOOL_FILE, "--%s: %s: the elements are %s; %s", option, path,
                   npy_dtype_name(array->dtype),
                   mask ? "a mask must be b1, u1 or i8" : "they must be f2, f4 or f8");
        npy_free(array);
        return TOOL_FILE;
    }
    return TOOL_DONE;
}

/* Round the array to `dtype` into a new host buffer. */
static void fill_buffer(run_buffer *buffer, const npy_array *array, pfattn_dtype dtype) {
    buffer->bytes = (size_t)array->count * pfattn_dtype_size(dtype);
    buffer->host = tool_allocate(buffer->bytes);
    for (int64_t i = 0; i < array->count; i++) {
        pf_store(buffer->host, dtype, i, npy_value(array, i));
    }
}

static void record_file_shape(run_tensors *tensors, pf_tensor_id id, const npy_array *array) {
    tensors->ndim[id] = array->ndim;
    memcpy(tensors->file_shape[id], array->shape, sizeof tensors->file_shape[id]);
}

static int read_tensor(const run_request *request, run_tensors *tensors, pf_tensor_id id) {
    npy_array array = {0};
    int code = read_file(run_tensor_name(id), request->path[id], id == PF_MASK, &array);
    if (code != TOOL_DONE) {
        return code;
    }
    if ((id == PF_Q || id == PF_O0) && tensors->dtype == PFATTN_DTYPE_NONE) {
        tensors->dtype = own_dtype(array.dtype);
    }
    pfattn_tensor *tensor = &tensors->tensor[id];
    if (!set_shape(request, id, &array, tensor)) {
        npy_free(&array);
        return TOOL_USAGE;
    }
    tensor->dtype = target_dtype(request, tensors, id, array.dtype);
    fill_buffer(&tensors->buffer[id], &array, tensor->dtype);
    tensors->buffer_of[id] = (int)id;
    record_file_shape(tensors, id, &array);
    npy_free(&array);
    return TOOL_DONE;
}

/* q, k and v are views of one buffer [B,S,3,H,D]. */
static int read_packed(const run_request *request, run_tensors *tensors) {
    npy_array array = {0};
    int code = read_file("qkv", request->qkv, false, &array);
    if (code != TOOL_DONE) {
        return code;
    }
    if (array.ndim != 5 || array.shape[2] != 3) {
        npy_free(&array);
        return tool_error(TOOL_USAGE, "--qkv: the array must be [B,S,3,H,D]");
    }
    if (tensors->dtype == PFATTN_DTYPE_NONE) {
        tensors->dtype = own_dtype(array.dtype);
    }
    fill_buffer(&tensors->buffer[PF_Q], &array, tensors->dtype);
    int64_t heads = array.shape[3], dim = array.shape[4];
    for (int part = 0; part < 3; part++) {
        const int64_t shape[4] = {array.shape[0], heads, array.shape[1], dim};
        const int64_t stride[4] = {array.shape[1] * 3 * heads * dim, dim, 3 * heads * dim, 1};
        pf_tensor_id id = (pf_tensor_id)(PF_Q + part);
        tensors->tensor[id].dtype = tensors->dtype;
        memcpy(tensors->tensor[id].shape, shape, sizeof shape);
        memcpy(tensors->tensor[id].stride, stride, sizeof stride);
        tensors->buffer_of[id] = PF_Q;
        tensors->offset[id] = (size_t)(part * heads * dim) * pfattn_dtype_size(tensors->dtype);
    }
    npy_free(&array);
    return TOOL_DONE;
}

int run_tensors_read(const run_request *request, run_tensors *tensors) {
    memset(tensors, 0, sizeof *tensors);
    tensors->dtype = request->dtype;
    int code = request->qkv ? read_packed(request, tensors) : TOOL_DONE;
    /* The file that sets the type comes first among those of its operation. */
    for (int id = 0; id < PF_TENSOR_COUNT && code == TOOL_DONE; id++) {
        if (request->path[id]) {
            code = read_tensor(request, tensors, (pf_tensor_id)id);
        }
    }
    if (code != TOOL_DONE) {
        run_tensors_free(tensors);
    }
    return code;
}

/* Shape of an output: that of its primal, where o is q with the channels of v. */
static void output_shape(const run_tensors *tensors, pf_tensor_id id, int64_t shape[4]) {
    pf_tensor_id primal = call_primal(id);
    bool merge = tensors->tensor[PF_O0].dtype != PFATTN_DTYPE_NONE;
    pf_tensor_id source = primal;
    if (primal == PF_O || primal == PF_LSE) {
        source = merge ? PF_O0 : PF_Q;
    }
    memcpy(shape, tensors->tensor[source].shape, 4 * sizeof *shape);
    if (primal == PF_O && !merge) {
        shape[3] = tensors->tensor[PF_V].shape[3];
    } else if (primal == PF_LSE) {
        shape[3] = 1;
    }
}

static void set_output_file_shape(const run_request *request, run_tensors *tensors,
                                  pf_tensor_id id) {
    const int64_t *shape = tensors->tensor[id].shape;
    int64_t *file = tensors->file_shape[id];
    if (is_in(pair_tensors, id)) {
        tensors->ndim[id] = tensors->ndim[PF_BIAS];
        memcpy(file, tensors->file_shape[PF_BIAS], sizeof tensors->file_shape[id]);
        return;
    }
    bool swap = request->bshd && !is_in(row_tensors, id);
    tensors->ndim[id] = is_in(row_tensors, id) ? 3 : 4;
    file[0] = shape[0];
    file[1] = shape[swap ? 2 : 1];
    file[2] = shape[swap ? 1 : 2];
    file[3] = shape[3];
}

int run_tensors_add_outputs(const run_request *request, run_tensors *tensors, uint64_t outputs) {
    pfattn_dtype dtype = tensors->dtype == PFATTN_DTYPE_F64 ? PFATTN_DTYPE_F64 : PFATTN_DTYPE_F32;
    for (int i = 0; i < PF_TENSOR_COUNT; i++) {
        pf_tensor_id id = (pf_tensor_id)i;
        if (!is_in(outputs, id)) {
            continue;
        }
        pfattn_tensor *tensor = &tensors->tensor[id];
        tensor->dtype = dtype;
        output_shape(tensors, id, tensor->shape);
        set_strides(tensor, request->bshd && !is_in(row_tensors | pair_tensors, id));
        int64_t bytes = (int64_t)pfattn_dtype_size(dtype);
        for (int d = 0; d < 4; d++) {
            if (__builtin_mul_overflow(bytes, tensor->shape[d], &bytes)) {
                return tool_error(TOOL_USAGE, "%s would have more than 2^63 bytes",
                                  run_tensor_name(id));
            }
        }
        tensors->buffer[id].bytes = (size_t)bytes;
        tensors->buffer[id].host = tool_allocate(tensors->buffer[id].bytes);
        tensors->buffer_of[id] = i;
        set_output_file_shape(request, tensors, id);
    }
    return TOOL_DONE;
}

/* mkdir -p */
static bool make_directory(const char *directory) {
    char *path = tool_copy_text(directory);
    for (char *at = path + 1; *at; at++) {
        if (*at == '/') {
            *at = 0;
            mkdir(path, 0777);
            *at = '/';
        }
    }
    bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
    free(path);
    return made;
}

static void output_path(char *path, size_t size, const char *directory, pf_tensor_id id) {
    snprintf(path, size, "%s/%s.npy", directory, run_tensor_name(id));
}

int run_tensors_write(const run_tensors *tensors, uint64_t outputs, const char *directory) {
    char path[4096], error[512];
    if (!make_directory(directory)) {
        return tool_error(TOOL_FILE, "--out: cannot make the directory %s: %s", directory,
                          strerror(errno));
    }
    for (int i = 0; i < PF_TENSOR_COUNT; i++) {
        pf_tensor_id id = (pf_tensor_id)i;
        if (!is_in(outputs, id)) {
            continue;
        }
        npy_array array = {.ndim = tensors->ndim[id], .data = tensors->buffer[id].host};
        array.dtype = tensors->tensor[id].dtype == PFATTN_DTYPE_F64 ? NPY_F64 : NPY_F32;
        memcpy(array.shape, tensors->file_shape[id], sizeof tensors->file_shape[id]);
        output_path(path, sizeof path, directory, id);
        if (npy_write(path, &array, error, sizeof error)) {
            continue;
        }
        for (int j = 0; j < i; j++) {
            if (is_in(outputs, (pf_tensor_id)j)) {
                output_path(path, sizeof path, directory, (pf_tensor_id)j);
                unlink(path);
            }
        }
        return tool_error(TOOL_FILE, "--out: %s", error);
    }
    return TOOL_DONE;
}

void run_tensors_free(run_tensors *tensors) {
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        free(tensors->buffer[id].host);
        tensors->buffer[id].host = NULL;
    }
}
