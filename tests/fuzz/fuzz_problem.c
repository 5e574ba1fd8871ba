/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer over descriptors: a legal one is edited as the bytes say, then checked. A refusal must
 * say why; what is accepted must keep every promise of problem.h. Nothing is read or written
 * through the tensors. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../unit/descriptors.h"
#include "problem.h"
#include "status.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* A broken promise ends the run with the input that breaks it. */
#define PROMISE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            __builtin_trap();                                                                      \
        }                                                                                          \
    } while (0)

typedef struct input {
    const uint8_t *bytes;
    size_t size;
} input;

static uint8_t next_byte(input *in) {
    if (in->size == 0) {
        return 0;
    }
    in->size--;
    return *in->bytes++;
}

/* Small numbers, numbers near the ends of the range, or any. */
static int64_t next_number(input *in) {
    uint8_t form = next_byte(in);
    int64_t small = (int8_t)next_byte(in);
    switch (form % 4) {
    case 0:
    case 1:
        return small;
    case 2:
        return small < 0 ? INT64_MIN - (small + 1) * 0x1001 : INT64_MAX - small * 0x1001;
    default: {
        uint64_t number = (uint64_t)small;
        for (int i = 0; i < 7; i++) {
            number = number << 8 | next_byte(in);
        }
        return (int64_t)number;
    }
    }
}

static void edit_tensor(input *in, pfattn_tensor *tensors, int count) {
    pfattn_tensor *tensor = &tensors[next_byte(in) % count];
    uint8_t action = next_byte(in);
    int dim = action >> 4 & 3;
    switch (action % 6) {
    case 0:
        tensor->dtype = (pfattn_dtype)(next_byte(in) % 9);
        break;
    case 1:
        tensor->shape[dim] = next_number(in);
        break;
    case 2:
        tensor->stride[dim] = next_number(in);
        break;
    case 3:
        tensor->data = (void *)(uintptr_t)next_number(in);
        break;
    case 4:
        tensor->dtype = PFATTN_DTYPE_NONE;
        break;
    default:
        *tensor = tensors[next_byte(in) % count];
        break;
    }
}

/* One dimension of the problem in every tensor that has it, so that other sizes pass too. */
static void resize(input *in, pfattn_tensor *tensors, int count) {
    uint8_t old = next_byte(in) % 9;
    int64_t size = next_byte(in) % 9;
    for (int t = 0; t < count; t++) {
        for (int d = 0; d < 4; d++) {
            tensors[t].shape[d] = tensors[t].shape[d] == old ? size : tensors[t].shape[d];
        }
    }
}

static void edit(input *in, pfattn_tensor *tensors, int count) {
    for (int edits = 0; in->size > 0 && edits < 12; edits++) {
        if (next_byte(in) % 4 == 0) {
            resize(in, tensors, count);
        } else {
            edit_tensor(in, tensors, count);
        }
    }
}

static void check_tensor(const pfattn_tensor *t) {
    static const pfattn_tensor zero;
    if (t->dtype == PFATTN_DTYPE_NONE) {
        PROMISE(memcmp(t, &zero, sizeof zero) == 0);
        return;
    }
    __int128 size = (__int128)pfattn_dtype_size(t->dtype);
    PROMISE(size > 0);
    __int128 low = (__int128)(uintptr_t)t->data;
    __int128 high = low + size;
    bool empty = false;
    for (int d = 0; d < 4; d++) {
        PROMISE(t->shape[d] >= 0);
        PROMISE(t->shape[d] != 1 || t->stride[d] == 0);
        empty = empty || t->shape[d] == 0;
        __int128 reach = (__int128)(t->shape[d] - 1) * t->stride[d] * size;
        *(reach < 0 ? &low : &high) += reach;
    }
    PROMISE(empty || (t->data != NULL && low >= 0 && high <= (__int128)UINTPTR_MAX));
    for (int d = 0; d < 4; d++) {
        PROMISE(!empty || t->stride[d] == 0);
    }
}

/* An accepted problem, described again, is accepted and is itself. */
static void check_again(pfattn_operation operation, const pf_problem *problem) {
    pfattn_attention args = PFATTN_ATTENTION_INIT;
    args.flags = PFATTN_FLAG_ALPHA | PFATTN_FLAG_DIAGONAL |
                 (problem->causal ? (uint32_t)PFATTN_FLAG_CAUSAL : 0) |
                 (problem->deterministic ? (uint32_t)PFATTN_FLAG_DETERMINISTIC : 0);
    args.alpha = problem->alpha;
    args.diagonal = problem->diagonal;
    args.distance = problem->distance;
#define X(id, field) args.field = problem->tensor[PF_##id];
    PF_ATTENTION_TENSORS(X)
#undef X
    pf_problem again;
    PROMISE(pf_problem_from_attention(operation, &args, &again) == PFATTN_SUCCESS);
    PROMISE(memcmp(&again, problem, sizeof again) == 0);
}

static void check_positions(const pf_problem *p) {
    int64_t sum;
    PROMISE(!__builtin_add_overflow(p->queries, p->diagonal, &sum));
    PROMISE(!__builtin_add_overflow(sum, p->keys, &sum));
    PROMISE(!__builtin_sub_overflow(p->diagonal - p->keys, p->distance, &sum));
    PROMISE(p->diagonal >= -p->queries && p->diagonal <= p->keys);
}

static void check_result(pfattn_status status, const pf_problem *problem) {
    if (status != PFATTN_SUCCESS) {
        PROMISE(strchr(pfattn_last_error(), ':') != NULL);
        return;
    }
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        check_tensor(&problem->tensor[id]);
    }
    PROMISE(isfinite(problem->alpha));
    PROMISE(problem->operation == PF_MERGE || problem->heads == 0 ||
            problem->heads % problem->kv_heads == 0);
    check_positions(problem);
}

static pfattn_attention start_from(uint8_t which, pfattn_dtype type, pfattn_operation *operation) {
    *operation = (pfattn_operation)(which % 4 < 2 ? 0 : which % 4 - 1);
    switch (which % 4) {
    case 0:
        return forward_args(type);
    case 1:
        return jvp_args(type);
    case 2:
        return backward_args(type);
    default:
        return backward_jvp_args(type);
    }
}

static void fuzz_attention(input *in, uint8_t which) {
    pfattn_operation operation;
    pfattn_attention args = start_from(which, (pfattn_dtype)(1 + next_byte(in) % 5), &operation);
    args.flags = next_byte(in) % 17;
    args.diagonal = next_number(in);
    args.distance = next_number(in);
    int64_t alpha = next_number(in);
    memcpy(&args.alpha, &alpha, sizeof alpha);
    edit(in, &args.q, (int)((&args.tdk2 - &args.q) + 1));
    pf_problem problem;
    memset(&problem, 0x5a, sizeof problem); /* whatever is not filled in shows */
    pfattn_status status = pf_problem_from_attention(operation, &args, &problem);
    check_result(status, &problem);
    if (status == PFATTN_SUCCESS) {
        check_again(operation, &problem);
    }
}

static void fuzz_merge(input *in) {
    pfattn_merge_args args = merge_args((pfattn_dtype)(1 + next_byte(in) % 5));
    edit(in, &args.o0, (int)((&args.tlse - &args.o0) + 1));
    pf_problem problem;
    memset(&problem, 0x5a, sizeof problem); /* whatever is not filled in shows */
    check_result(pf_problem_from_merge(&args, &problem), &problem);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    input in = {bytes, size};
    uint8_t which = next_byte(&in) % 5;
    if (which == 4) {
        fuzz_merge(&in);
    } else {
        fuzz_attention(&in, which);
    }
    return 0;
}
