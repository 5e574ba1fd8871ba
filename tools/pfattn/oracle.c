/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle.h"

#include <stdlib.h>
#include <string.h>

#include "formats.h"
#include "ref/ref.h"
#include "tool.h"

/* First index and size along each dimension of the part of a tensor in a slice. */
static void slice_range(const check_data *data, const oracle_slice *slice, pf_tensor_id id,
                        int64_t first[4], int64_t size[4]) {
    const check_case *c = &data->c;
    pf_tensor_id primal = call_primal(id);
    bool is_key = primal == PF_K || primal == PF_K2 || primal == PF_V;
    bool is_pair = primal == PF_BIAS || id == PF_MASK;
    int64_t dims = id == PF_MASK ? c->mask_dims : c->bias_dims;
    int64_t group = c->kv_heads ? c->heads / c->kv_heads : 1;
    case_shape(c, id, size);
    memset(first, 0, 4 * sizeof *first);
    if (!is_pair || dims & 1) {
        first[0] = slice->batch;
        size[0] = slice->batches;
    }
    if (!is_pair || dims & 2) {
        first[1] = slice->kv_head * (is_key ? 1 : group);
        size[1] = slice->kv_heads * (is_key ? 1 : group);
    }
}

int64_t oracle_slice_read(const check_data *data, const oracle_slice *slice, pf_tensor_id id,
                          const tensor_image *image, const unsigned char *bytes, double **values) {
    int64_t first[4], size[4], i[4], n = 0;
    slice_range(data, slice, id, first, size);
    int64_t count = size[0] * size[1] * size[2] * size[3];
    double *out = tool_allocate((size_t)count * sizeof *out);
    const int64_t *stride = image->host_stride;
    for (i[0] = first[0]; i[0] < first[0] + size[0]; i[0]++) {
        for (i[1] = first[1]; i[1] < first[1] + size[1]; i[1]++) {
            for (i[2] = 0; i[2] < size[2]; i[2]++) {
                int64_t row = i[0] * stride[0] + i[1] * stride[1] + i[2] * stride[2];
                for (i[3] = 0; i[3] < size[3]; i[3]++) {
                    out[n++] = pf_load(bytes + image->origin, image->dtype, row + i[3] * stride[3]);
                }
            }
        }
    }
    *values = out;
    return count;
}

/* A contiguous tensor of a slice, owned by the run. */
static pfattn_tensor make_tensor(const check_data *data, const oracle_slice *slice, pf_tensor_id id,
                                 pfattn_dtype dtype) {
    pfattn_tensor tensor = {.dtype = dtype};
    int64_t first[4], stride = 1;
    slice_range(data, slice, id, first, tensor.shape);
    for (int d = 3; d >= 0; d--) {
        tensor.stride[d] = stride;
        stride *= tensor.shape[d] ? tensor.shape[d] : 1;
    }
    tensor.data = tool_allocate((size_t)stride * pfattn_dtype_size(dtype));
    return tensor;
}

static void fill_tensor(const check_data *data, const oracle_slice *slice, pf_tensor_id id,
                        const unsigned char *bytes, pfattn_tensor *tensor) {
    double *values;
    int64_t count = oracle_slice_read(data, slice, id, &data->image[id], bytes, &values);
    for (int64_t i = 0; i < count; i++) {
        pf_store(tensor->data, tensor->dtype, i, values[i]);
    }
    free(values);
}

static uint64_t stage_inputs(const check_data *data, const oracle_request *request) {
    uint64_t inputs = 0;
    for (int i = request->first_stage; i <= request->last_stage; i++) {
        inputs |= call_inputs(data->stages[i]);
    }
    return inputs;
}

static uint64_t stage_outputs(const check_data *data, const oracle_request *request) {
    uint64_t outputs = 0;
    for (int i = request->first_stage; i <= request->last_stage; i++) {
        outputs |= call_outputs(data->stages[i]);
    }
    return outputs & data->outputs;
}

/* Whether an absent input means zeros; the reference then gets the zeros, so that absence itself is
 * tested. */
static bool absent_is_zero(const check_data *data, const oracle_request *request, pf_tensor_id id) {
    uint64_t tangent_results = TENSOR_BIT(PF_TO) | TENSOR_BIT(PF_TLSE);
    if (data->c.op == CASE_JVP && !(data->outputs & tangent_results)) {
        return false;
    }
    uint64_t zeros = call_tangent_inputs() | TENSOR_BIT(PF_DLSE) | TENSOR_BIT(PF_TDOUT);
    pf_tensor_id primal = call_primal(id);
    bool has_primal = primal == PF_O || primal == PF_LSE || data->image[primal].dtype;
    return (stage_inputs(data, request) & zeros) >> id & 1 && has_primal;
}

/* The naive results but those that a later stage reads are kept in f32, so that their last rounding
 * can be judged by itself. */
static pfattn_dtype reference_dtype(const check_data *data, const oracle_request *request,
                                    pf_tensor_id id) {
    pfattn_dtype dtype = case_dtype(&data->c, id);
    if (id == PF_MASK) {
        return dtype;
    }
    if (!request->naive) {
        return PFATTN_DTYPE_F64;
    }
    bool is_read = stage_inputs(data, request) >> id & 1;
    bool is_result = stage_outputs(data, request) >> id & 1;
    return is_result && !is_read && dtype != PFATTN_DTYPE_F64 ? PFATTN_DTYPE_F32 : dtype;
}

static void make_tensors(const check_data *data, const oracle_slice *slice,
                         const oracle_request *request, pfattn_tensor *tensors) {
    uint64_t inputs = stage_inputs(data, request), outputs = stage_outputs(data, request);
    for (int i = 0; i < PF_TENSOR_COUNT; i++) {
        pf_tensor_id id = (pf_tensor_id)i;
        bool present = (inputs | outputs) >> i & 1 && data->image[i].dtype != PFATTN_DTYPE_NONE;
        if (!present && !absent_is_zero(data, request, id)) {
            continue;
        }
        tensors[i] = make_tensor(data, slice, id, reference_dtype(data, request, id));
        if (present && !(outputs >> i & 1)) {
            bool earlier = data->outputs >> i & 1;
            const unsigned char *bytes = earlier ? request->after[i] : data->image[i].bytes;
            fill_tensor(data, slice, id, bytes, &tensors[i]);
        }
    }
}

/* A slice's own diagonal and scale are those of the whole problem, since M, N and D are. */
static pfattn_status run_stages(const check_data *data, const oracle_request *request,
                                const pfattn_tensor *tensors) {
    static const pfattn_operation public_operations[] = {
        [PF_FORWARD] = PFATTN_FORWARD,
        [PF_FORWARD_JVP] = PFATTN_FORWARD,
        [PF_BACKWARD] = PFATTN_BACKWARD,
        [PF_BACKWARD_JVP] = PFATTN_BACKWARD_JVP,
    };
    call_scalars scalars = check_data_scalars(data);
    pf_ref_options options = {.round_products = request->naive,
                              .flush_subnormals = request->flush,
                              .product_dtype = (pfattn_dtype)data->c.dtype};
    for (int i = request->first_stage; i <= request->last_stage; i++) {
        tool_call call;
        pf_problem problem;
        call_build(&call, data->stages[i], &scalars, tensors);
        pfattn_status status = call.operation == PF_MERGE
                                   ? pf_problem_from_merge(&call.merge, &problem)
                                   : pf_problem_from_attention(public_operations[call.operation],
                                                               &call.attention, &problem);
        if (status == PFATTN_SUCCESS) {
            status = pf_ref_run(&problem, &options);
        }
        if (status != PFATTN_SUCCESS) {
            return status;
        }
    }
    return PFATTN_SUCCESS;
}

static double *to_doubles(const pfattn_tensor *tensor, int64_t count) {
    double *values = tool_allocate((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        values[i] = pf_load(tensor->data, tensor->dtype, i);
    }
    return values;
}

pfattn_status oracle_run(const check_data *data, oracle_slice *slice,
                         const oracle_request *request) {
    pfattn_tensor tensors[PF_TENSOR_COUNT] = {0};
    make_tensors(data, slice, request, tensors);
    pfattn_status status = run_stages(data, request, tensors);
    uint64_t outputs = stage_outputs(data, request);
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        if (status == PFATTN_SUCCESS && outputs >> id & 1) {
            const int64_t *shape = tensors[id].shape;
            slice->count[id] = shape[0] * shape[1] * shape[2] * shape[3];
            double **result = request->naive ? &slice->naive[id] : &slice->exact[id];
            free(*result);
            *result = to_doubles(&tensors[id], slice->count[id]);
        }
        free(tensors[id].data);
    }
    return status;
}

void oracle_slice_free(oracle_slice *slice) {
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        free(slice->exact[id]);
        free(slice->naive[id]);
        slice->exact[id] = slice->naive[id] = NULL;
    }
}
