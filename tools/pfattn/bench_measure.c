/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "formats.h"
#include "random.h"
#include "tool.h"

enum { MAX_SETS = 16, MAX_ROUNDS = 64 };

/* More than twice the largest second-level cache of today's GPUs. */
static const double resident_bytes = 512e6;

/* A block of random numbers of each type, from which every tensor is filled. */
enum { BLOCK_ELEMENTS = 1 << 20 };

typedef struct bench_set {
    pfattn_tensor tensors[PF_TENSOR_COUNT];
} bench_set;

typedef struct bench_state {
    tool_session *session;
    check_case c;
    call_scalars scalars;
    pf_operation stages[2];
    int stage_count;
    bench_set sets[MAX_SETS];
    int set_count;
    void *workspace;
    size_t workspace_bytes;
} bench_state;

static size_t tensor_bytes(const check_case *c, pf_tensor_id id) {
    int64_t shape[4];
    case_shape(c, id, shape);
    return (size_t)(shape[0] * shape[1] * shape[2] * shape[3]) *
           pfattn_dtype_size(case_dtype(c, id));
}

/* Bytes of the tensors in `which` that the case has. */
static double set_bytes(const check_case *c, uint64_t which) {
    double bytes = 0;
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        if (which >> id & 1 && case_has(c, (pf_tensor_id)id)) {
            bytes += (double)tensor_bytes(c, (pf_tensor_id)id);
        }
    }
    return bytes;
}

static uint64_t used_tensors(const bench_state *state) {
    uint64_t used = 0;
    for (int i = 0; i < state->stage_count; i++) {
        used |= call_inputs(state->stages[i]) | call_outputs(state->stages[i]);
    }
    return used;
}

static void describe(const check_case *c, pf_tensor_id id, pfattn_tensor *tensor) {
    tensor->dtype = case_dtype(c, id);
    case_shape(c, id, tensor->shape);
    int64_t stride = 1;
    for (int d = 3; d >= 0; d--) {
        tensor->stride[d] = stride;
        stride *= tensor->shape[d];
    }
}

static void *random_block(pfattn_dtype dtype, uint64_t seed) {
    void *block = tool_allocate(BLOCK_ELEMENTS * pfattn_dtype_size(dtype));
    for (int64_t i = 0; i < BLOCK_ELEMENTS; i++) {
        double value = dtype == PFATTN_DTYPE_U8 ? (double)(random_uniform(seed, (uint64_t)i) < 0.9)
                                                : random_normal(seed, (uint64_t)i);
        pf_store(block, dtype, i, value);
    }
    return block;
}

/* Repeat the block over the tensor, each time from another place. */
static pfattn_status fill(tool_session *session, const pfattn_tensor *tensor, size_t bytes,
                          const void *block, uint64_t seed) {
    size_t size = pfattn_dtype_size(tensor->dtype), done = 0;
    pfattn_status status = PFATTN_SUCCESS;
    for (uint64_t i = 0; done < bytes && status == PFATTN_SUCCESS; i++) {
        size_t start = random_bits(seed, i) % (BLOCK_ELEMENTS / 2) * size;
        size_t part = BLOCK_ELEMENTS * size - start;
        part = part < bytes - done ? part : bytes - done;
        status =
            session_upload(session, (char *)tensor->data + done, (const char *)block + start, part);
        done += part;
    }
    return status;
}

static pfattn_status make_set(bench_state *state, int index, void *blocks[]) {
    bench_set *set = &state->sets[index];
    uint64_t used = used_tensors(state), outputs = 0;
    for (int i = 0; i < state->stage_count; i++) {
        outputs |= call_outputs(state->stages[i]);
    }
    pfattn_status status = PFATTN_SUCCESS;
    for (int id = 0; id < PF_TENSOR_COUNT && status == PFATTN_SUCCESS; id++) {
        if (!(used >> id & 1) || !case_has(&state->c, (pf_tensor_id)id)) {
            continue;
        }
        pfattn_tensor *tensor = &set->tensors[id];
        size_t bytes = tensor_bytes(&state->c, (pf_tensor_id)id);
        describe(&state->c, (pf_tensor_id)id, tensor);
        status = session_allocate(state->session, bytes + 1, &tensor->data);
        if (status != PFATTN_SUCCESS) {
            tensor->data = NULL;
        } else if (!(outputs >> id & 1)) {
            uint64_t seed = random_bits((uint64_t)index, (uint64_t)id);
            blocks[tensor->dtype] =
                blocks[tensor->dtype] ? blocks[tensor->dtype] : random_block(tensor->dtype, 1);
            status = fill(state->session, tensor, bytes, blocks[tensor->dtype], seed);
        }
    }
    return status;
}

static pfattn_status make_sets(bench_state *state) {
    double bytes = set_bytes(&state->c, used_tensors(state));
    double most = floor(0.7 * (double)state->session->info.memory_bytes / fmax(bytes, 1));
    double wanted = session_is_gpu(state->session) ? ceil(resident_bytes / fmax(bytes, 1)) + 1 : 1;
    void *blocks[PFATTN_DTYPE_U8 + 1] = {NULL};
    pfattn_status status = PFATTN_SUCCESS;
    state->set_count = (int)fmax(1, fmin(fmin(wanted, most), MAX_SETS));
    for (int i = 0; i < state->set_count && status == PFATTN_SUCCESS; i++) {
        status = make_set(state, i, blocks);
    }
    for (int i = 0; i <= PFATTN_DTYPE_U8; i++) {
        free(blocks[i]);
    }
    return status;
}

static pfattn_status launch(bench_state *state, int set, int stage) {
    tool_call call;
    call_build(&call, state->stages[stage], &state->scalars, state->sets[set].tensors);
    return call_launch(state->session, &call, state->workspace, state->workspace_bytes);
}

static pfattn_status make_workspace(bench_state *state) {
    pfattn_status status = PFATTN_SUCCESS;
    for (int i = 0; i < state->stage_count && status == PFATTN_SUCCESS; i++) {
        tool_call call;
        size_t bytes = 0;
        call_build(&call, state->stages[i], &state->scalars, state->sets[0].tensors);
        status = call_supported(state->session, &call);
        if (status == PFATTN_SUCCESS) {
            status = call_workspace(state->session, &call, &bytes);
        }
        state->workspace_bytes = bytes > state->workspace_bytes ? bytes : state->workspace_bytes;
    }
    if (status == PFATTN_SUCCESS && state->workspace_bytes) {
        status = session_allocate(state->session, state->workspace_bytes, &state->workspace);
    }
    return status;
}

/* The forward that a backward needs, and each kernel once. */
static pfattn_status warm_up(bench_state *state) {
    pfattn_status status = PFATTN_SUCCESS;
    for (int set = 0; set < state->set_count; set++) {
        for (int stage = 0; stage < state->stage_count && status == PFATTN_SUCCESS; stage++) {
            status = launch(state, set, stage);
        }
    }
    return status == PFATTN_SUCCESS ? session_synchronize(state->session) : status;
}

static pfattn_status time_calls(bench_state *state, int64_t calls, double *seconds) {
    const pf_memory_ops *memory = state->session->backend->memory;
    pfattn_status status = memory->timer_start(state->session->device);
    for (int64_t i = 0; i < calls && status == PFATTN_SUCCESS; i++) {
        status = launch(state, (int)(i % state->set_count), state->stage_count - 1);
    }
    if (status == PFATTN_SUCCESS) {
        status = memory->timer_stop(state->session->device, seconds);
    }
    *seconds /= (double)calls;
    return status;
}

static int compare_seconds(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static pfattn_status time_rounds(bench_state *state, const bench_plan *plan, bench_result *result) {
    double seconds[MAX_ROUNDS], once = 0;
    pfattn_status status = time_calls(state, state->set_count, &once);
    double calls = ceil(plan->round_seconds / fmax(once, 1e-7));
    calls = fmin(fmax(calls, 1), 1e6);
    int64_t rounds = plan->rounds < MAX_ROUNDS ? plan->rounds : MAX_ROUNDS;
    for (int64_t i = 0; i < rounds && status == PFATTN_SUCCESS; i++) {
        status = time_calls(state, (int64_t)calls, &seconds[i]);
    }
    if (status != PFATTN_SUCCESS) {
        return status;
    }
    qsort(seconds, (size_t)rounds, sizeof *seconds, compare_seconds);
    result->seconds = (seconds[(rounds - 1) / 2] + seconds[rounds / 2]) / 2;
    result->least = seconds[0];
    result->most = seconds[rounds - 1];
    return status;
}

static void free_state(bench_state *state) {
    for (int set = 0; set < MAX_SETS; set++) {
        for (int id = 0; id < PF_TENSOR_COUNT; id++) {
            session_release(state->session, state->sets[set].tensors[id].data);
        }
    }
    session_release(state->session, state->workspace);
}

pfattn_status bench_measure(tool_session *session, const check_case *c, const bench_plan *plan,
                            bench_result *result) {
    bench_state state = {.session = session, .c = *c};
    state.scalars.flags =
        (c->causal ? PFATTN_FLAG_CAUSAL : 0) | (c->deterministic ? PFATTN_FLAG_DETERMINISTIC : 0);
    state.scalars.distance = c->distance == CASE_UNSET ? 0 : c->distance;
    state.stage_count = case_stages(c, state.stages);
    memset(result, 0, sizeof *result);
    pfattn_status status = make_sets(&state);
    if (status == PFATTN_SUCCESS) {
        status = make_workspace(&state);
    }
    if (status == PFATTN_SUCCESS) {
        status = warm_up(&state);
    }
    if (status == PFATTN_SUCCESS) {
        status = time_rounds(&state, plan, result);
    }
    pf_operation last = state.stages[state.stage_count - 1];
    result->sets = state.set_count;
    result->flops =
        operation_flops(last, (double)c->batch, (double)c->heads, (double)c->queries,
                        (double)c->keys, (double)c->dim_qk, (double)c->dim_v, c->causal);
    result->bytes = set_bytes(c, call_inputs(last) | call_outputs(last));
    free_state(&state);
    return status;
}
