/* SPDX-License-Identifier: Apache-2.0 */
/* What reaches the driver: which kernels in which order, with which grids, arguments and tensor
 * maps, and what does not: no allocation, no synchronisation, no context left behind. */
#include "fake_cuda_client.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/device.h"
#include "cuda/tuning.h"

static fake_cuda *fake;
static pfattn_handle handle;

static int open_handle(void **state) {
    (void)state;
    fake->device_count = 2; /* 9.0 and 8.0 */
    fake_reset(fake);
    handle = fake_handle(0);
    return 0;
}

/* Whatever a test did, the thread's contexts and the device's modules are as before it. */
static int close_handle(void **state) {
    (void)state;
    pfattn_destroy(handle);
    return fake_depth() == 0 && fake->modules == 0 && fake->retained[0] == 0 &&
                   fake->retained[1] == 0 && fake->events == 0 && fake->allocations == 0
               ? 0
               : -1;
}

static const pf_tuning *variant_row(int target, int op, int head_dim, int variant) {
    for (int i = 0; i < PF_CUDA_TUNING_COUNT; i++) {
        const pf_tuning *t = &pf_cuda_tuning[i];
        if (t->target == target && t->op == op && t->element_class == PF_CLASS_HALF &&
            t->head_dim == head_dim && t->variant == variant) {
            return t;
        }
    }
    fail_msg("no such row");
    return NULL;
}

static const pf_tuning *row(int target, int op, int head_dim) {
    return variant_row(target, op, head_dim, 0);
}

static int ceil_div(int64_t a, int64_t b) {
    return (int)((a + b - 1) / b);
}

static void assert_launch(int n, const char *kernel, const char *image, int grid, int block,
                          int shared) {
    assert_true(n < fake->launch_count);
    const fake_launch *l = &fake->launches[n];
    assert_string_equal(l->kernel, kernel);
    assert_string_equal(fake_image_name(l->image), image);
    assert_int_equal(l->grid[0], grid);
    assert_int_equal(l->grid[1], 1);
    assert_int_equal(l->grid[2], 1);
    assert_int_equal(l->block[0], block);
    assert_int_equal(l->block[1], 1);
    assert_int_equal(l->block[2], 1);
    assert_int_equal(l->shared, shared);
    assert_int_equal(l->device, 0);
}

/* A map of `t` with these extents of (channel, row, head, batch) and rows of a box. */
static void assert_map(const fake_launch *launch, int operand, const pfattn_tensor *t,
                       const cuuint64_t extent[4], const cuuint64_t stride[3], int box_rows) {
    assert_in_range(launch->map[operand], 0, fake->encode_count - 1);
    const fake_encode *e = &fake->encodes[launch->map[operand]];
    const cuuint32_t box[4] = {64, (cuuint32_t)box_rows, 1, 1};
    assert_int_equal(e->rank, 4);
    assert_ptr_equal(e->address, t->data);
    assert_memory_equal(e->extent, extent, 4 * sizeof *extent);
    assert_memory_equal(e->stride, stride, 3 * sizeof *stride);
    assert_memory_equal(e->box, box, sizeof box);
    assert_int_equal(e->type, t->dtype == PFATTN_DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                            : CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
    assert_int_equal(e->swizzle, CU_TENSOR_MAP_SWIZZLE_128B);
    assert_int_equal(e->promotion, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
    assert_int_equal(e->fill, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

/* The driver was called `count` times since the last reset, by these names. */
static void assert_calls(const char *const *names, int count) {
    assert_int_equal(fake->call_count, count);
    for (int i = 0; i < count; i++) {
        assert_string_equal(fake->calls[i], names[i]);
    }
}
#define ASSERT_CALLS(...)                                                                          \
    assert_calls((const char *const[]){__VA_ARGS__},                                               \
                 (int)(sizeof(const char *const[]){__VA_ARGS__} / sizeof(const char *)))

/* What a call that succeeds asks the driver for. */
#define EXPECT_CALLS(call, ...)                                                                    \
    do {                                                                                           \
        fake_reset(fake);                                                                          \
        assert_success(call);                                                                      \
        ASSERT_CALLS(__VA_ARGS__);                                                                 \
    } while (0)

#define CONTEXT "cuCtxPushCurrent"
#define MAP "cuTensorMapEncodeTiled"
#define MOVE "cuTensorMapReplaceAddress"
#define LAUNCH "cuLaunchKernel"
#define LEAVE "cuCtxPopCurrent"
#define CAPTURED "cuStreamIsCapturing"
#define MODE "cuThreadExchangeStreamCaptureMode"
#define CREATE "cuGraphCreate"
#define ADD "cuGraphAddKernelNode"
#define READY "cuGraphInstantiate", "cuGraphUpload"
#define SET "cuGraphExecKernelNodeSetParams"
#define GRAPH "cuGraphLaunch"

/* ---- forward ------------------------------------------------------------------------------- */

/* One launch, four maps, that of O with boxes for a warp; absent operands have the map of one with
 * the same box; the stream is the caller's. */
static void forward_plain(void **state) {
    (void)state;
    const pf_tuning *t = variant_row(PF_TARGET_SM_90A, PF_OP_FORWARD, 64, 1);
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_BF16, (test_shape){2, 4, 2, 1000, 500, 64, 40});
    int stream;
    assert_success(pfattn_forward(handle, &a, NULL, 0, &stream));
    int work = 8 * ceil_div(1000, t->owned_tile) * (64 / t->out_dim);
    int most = 132 * t->min_blocks;
    assert_int_equal(fake->launch_count, 1);
    assert_launch(0, "pf_forward", "sm_90a/forward.bf16.64.plain.v1",
                  t->persistent && work > most ? most : work, t->threads, t->shared_bytes);
    const fake_launch *l = &fake->launches[0];
    assert_ptr_equal(l->stream, &stream);
    assert_int_equal(l->args.attention.work_count, work);
    assert_int_equal(l->args.attention.queries, 1000);
    assert_int_equal(l->args.attention.dim_v, 40);
    assert_true(l->args.attention.operand[PF_OPERAND_V].address == (uintptr_t)a.v.data);
    assert_true(l->args.attention.key_live == 0);

    assert_int_equal(fake->encode_count, 4);
    assert_int_equal(l->args.attention.o_staged, 1);
    assert_map(l, PF_MAP_O, &a.o, (cuuint64_t[]){40, 1000, 4, 2}, (cuuint64_t[]){80, 80000, 320000},
               16);
    assert_map(l, PF_OPERAND_Q, &a.q, (cuuint64_t[]){64, 1000, 4, 2},
               (cuuint64_t[]){128, 128000, 512000}, t->owned_tile);
    assert_map(l, PF_OPERAND_K, &a.k, (cuuint64_t[]){64, 500, 2, 2},
               (cuuint64_t[]){128, 64000, 128000}, t->cross_tile);
    assert_map(l, PF_OPERAND_V, &a.v, (cuuint64_t[]){40, 500, 2, 2},
               (cuuint64_t[]){80, 40000, 80000}, t->cross_tile);
    assert_int_equal(l->map[PF_OPERAND_Q + 1], l->map[PF_OPERAND_Q]);
    assert_int_equal(l->map[PF_OPERAND_TQ], l->map[PF_OPERAND_Q]);
    for (int i = 0; i < PF_OPERAND_COUNT; i++) {
        bool query_side = i <= PF_OPERAND_Q + 1 || i == PF_OPERAND_TQ || i == PF_OPERAND_TQ + 1 ||
                          i >= PF_OPERAND_DOUT;
        assert_in_range(l->map[i], 0, 2);
        assert_int_equal(fake->encodes[l->map[i]].box[1],
                         query_side ? t->owned_tile : t->cross_tile);
    }
}

/* Packed QKV, a broadcast head, a batch of one: strides as they are, extent 1 where the stride is
 * 0. */
static void forward_maps_of_views(void **state) {
    (void)state;
    const pf_tuning *t = row(PF_TARGET_SM_90A, PF_OP_FORWARD, 64);
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 4, 4, 100, 90, 64, 64});
    a.q.stride[2] = 3 * 4 * 64; /* [B, S, 3, H, D] */
    a.q.stride[1] = 64;
    a.q.stride[0] = 7; /* of one batch: never used */
    a.k.stride[1] = 0;
    assert_success(pfattn_forward(handle, &a, NULL, 0, NULL));
    const fake_launch *l = &fake->launches[0];
    assert_map(l, PF_OPERAND_Q, &a.q, (cuuint64_t[]){64, 100, 4, 1}, (cuuint64_t[]){1536, 128, 16},
               t->owned_tile);
    assert_map(l, PF_OPERAND_K, &a.k, (cuuint64_t[]){64, 90, 1, 1}, (cuuint64_t[]){128, 16, 16},
               t->cross_tile);
    assert_true(l->args.attention.operand[PF_OPERAND_K].stride[1] == 0);
}

/* Causal with the first query on key 0: keys past the last query are out of the maps' bounds; where
 * no key is left, K and V have no map of their own. */
static void forward_maps_end_with_keys(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 1, 1, 100, 300, 64, 64});
    a.flags = PFATTN_FLAG_CAUSAL | PFATTN_FLAG_DIAGONAL;
    assert_success(pfattn_forward(handle, &a, NULL, 0, NULL));
    assert_int_equal(fake->encodes[fake->launches[0].map[PF_OPERAND_K]].extent[1], 100);
    assert_int_equal(fake->encodes[fake->launches[0].map[PF_OPERAND_V]].extent[1], 100);
    a.diagonal = -100;
    assert_success(pfattn_forward(handle, &a, NULL, 0, NULL));
    assert_int_equal(fake->launches[1].args.attention.key_end[0], 0);
    assert_int_equal(fake->encodes[fake->launches[1].map[PF_OPERAND_K]].extent[1], 1);
    a = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 1, 1, 100, 0, 64, 64});
    int before = fake->encode_count;
    assert_success(pfattn_forward(handle, &a, NULL, 0, NULL));
    assert_int_equal(fake->encode_count, before + 2);
    assert_int_equal(fake->launches[2].map[PF_OPERAND_Q], before);
    assert_int_equal(fake->launches[2].map[PF_MAP_O], before + 1);
}

/* O leaves through a map unless a row of it is no multiple of 16 bytes, or is followed by others
 * after no such multiple, its type is not the operands', or it is written as f32 and narrowed. */
static void forward_output_without_map(void **state) {
    (void)state;
    const test_shape shape = {2, 4, 2, 100, 90, 64, 64};
    pfattn_attention view = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, shape);
    pfattn_attention odd =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 90, 64, 45});
    pfattn_attention wide = view, shifted = view,
                     jvp = test_attention(PF_FORWARD_JVP, PFATTN_DTYPE_F16, shape);
    pfattn_attention narrowed =
        test_attention(PF_FORWARD, PFATTN_DTYPE_E5M2, (test_shape){2, 80, 80, 200, 128, 64, 38});
    view.o.stride[2] = 68;
    view.o.stride[1] = 100 * 68;
    view.o.stride[0] = 4 * 100 * 68;
    for (int i = 0; i < 2; i++) { /* rows of 45 channels, 48 apart */
        pfattn_tensor *t = i == 0 ? &odd.o : &odd.v;
        t->stride[2] = 48;
        t->stride[1] = 48 * t->shape[2];
        t->stride[0] = t->shape[1] * t->stride[1];
    }
    wide.o = test_dense(PFATTN_DTYPE_F32, 2, 4, 100, 64);
    shifted.o.data = (char *)shifted.o.data + 8;
    pfattn_attention *all[] = {&view, &odd, &wide, &shifted, &jvp, &narrowed};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int n = fake->launch_count;
        assert_success(pfattn_forward(handle, all[i], (void *)0x7000100, SIZE_MAX, NULL));
        n += strcmp(fake->launches[n].kernel, "pf_widen") == 0;
        assert_memory_equal(fake->launches[n].kernel, "pf_forward", strlen("pf_forward"));
        assert_int_equal(fake->launches[n].args.attention.o_staged, 0);
        assert_int_equal(fake->launches[n].map[PF_MAP_O], -1);
    }
}

/* Misaligned keys: the sm_80 kernel, and no maps. */
static void forward_falls_back(void **state) {
    (void)state;
    const pf_tuning *t = row(PF_TARGET_SM_80, PF_OP_FORWARD, 64);
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 1000, 500, 64, 64});
    a.k.data = (char *)a.k.data + 2;
    assert_success(pfattn_forward(handle, &a, NULL, 0, NULL));
    assert_launch(0, "pf_forward", "sm_80/forward.f16.64.plain",
                  8 * ceil_div(1000, t->owned_tile) * (64 / t->out_dim), t->threads,
                  t->shared_bytes);
    assert_int_equal(fake->encode_count, 0);
}

/* A mask: the pass over keys first, then the general kernel; scratch where the caller put it. */
static void forward_masked(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_FORWARD_JVP, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 300, 64, 64});
    test_add_mask(&a, 2, 1, 100, 300);
    size_t bytes = 0;
    assert_success(pfattn_workspace_size(handle, PFATTN_FORWARD, &a, &bytes));
    assert_int_equal(bytes, 2 * 512);
    void *workspace = (void *)0x7000100;
    assert_success(pfattn_forward(handle, &a, workspace, bytes, NULL));
    assert_int_equal(fake->launch_count, 2);
    assert_launch(0, "pf_key_live", "sm_90a/passes", 4, 256, 0);
    const fake_launch *l = &fake->launches[1];
    assert_string_equal(l->kernel, "pf_forward_jvp");
    assert_string_equal(fake_image_name(l->image), "sm_90a/forward_jvp.f16.64.general");
    assert_true(l->args.attention.key_live == 0x7000100);
    assert_true(fake->launches[0].args.attention.key_live == 0x7000100);
    assert_int_equal(fake->launches[0].args.attention.work_count, 4);
    assert_true(l->args.attention.mask.address == (uintptr_t)a.mask.data);
}

/* One query, many keys: parts into the workspace and their merge, in one call that only launches;
 * without the workspace nothing happens. */
static void forward_split(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){1, 4, 2, 1, 65536, 64, 64});
    size_t bytes = 0;
    assert_success(pfattn_supported(handle, PFATTN_FORWARD, &a));
    assert_success(pfattn_workspace_size(handle, PFATTN_FORWARD, &a, &bytes));
    assert_true(bytes > 0);
    fake_reset(fake);
    void *workspace = (void *)0x7000100;
    assert_int_equal(pfattn_forward(handle, &a, NULL, 0, NULL), PFATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(pfattn_forward(handle, &a, workspace, bytes - 1, NULL),
                     PFATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(fake->call_count, 0);
    assert_success(pfattn_forward(handle, &a, workspace, bytes, NULL));
    ASSERT_CALLS(CONTEXT, MAP, MAP, MAP, MAP, LAUNCH, LAUNCH, LEAVE);
    const fake_launch *main_launch = &fake->launches[0], *merge = &fake->launches[1];
    assert_string_equal(main_launch->kernel, "pf_forward");
    const pf_attention_kargs *k = &main_launch->args.attention;
    assert_int_equal(k->work_count, 0);
    assert_int_equal(k->split.items, 4);
    assert_int_equal(main_launch->grid[0], 4 * 32); /* 16 of 512 tiles each */
    assert_true(k->split.lse.address == 0x7000100);
    assert_true(k->lse.address == (uintptr_t)a.lse.data);
    assert_launch(1, "pf_merge_splits", "sm_90a/passes", 1, 256, 0); /* 4 rows of 2 * 32 channels */
    assert_memory_equal(&merge->args.attention.split, &k->split, sizeof k->split);
    assert_true(merge->args.attention.o.address == (uintptr_t)a.o.data);
}

/* The same with tangents, whose parts another kernel merges. */
static void forward_jvp_split(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_FORWARD_JVP, PFATTN_DTYPE_F16, (test_shape){1, 4, 2, 1, 65536, 64, 64});
    size_t bytes = 0;
    assert_success(pfattn_workspace_size(handle, PFATTN_FORWARD, &a, &bytes));
    assert_success(pfattn_forward(handle, &a, (void *)0x7000100, bytes, NULL));
    assert_int_equal(fake->launch_count, 2);
    assert_string_equal(fake->launches[0].kernel, "pf_forward_jvp");
    assert_launch(1, "pf_merge_splits_jvp", "sm_90a/passes", 1, 256, 0);
    const pf_attention_kargs *k = &fake->launches[1].args.attention;
    assert_true(k->split.to.address != 0 && k->split.tlse.address != 0);
    assert_true(k->to.address == (uintptr_t)a.to.data);
}

/* Operands of e5m2, a grouped and broadcast K of 36 channels among them: copied as f16 with rows of
 * 40, so of 80 bytes, each key/value head once, and what is broadcast once; the f16 kernel and its
 * maps read the copies. */
static void forward_widened(void **state) {
    (void)state;
    const pf_tuning *t = variant_row(PF_TARGET_SM_90A, PF_OP_FORWARD, 64, 1);
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_E5M2, (test_shape){2, 4, 2, 1000, 500, 36, 64});
    a.o.dtype = PFATTN_DTYPE_F16;
    a.k.stride[0] = 0;
    a.k.data = (char *)a.k.data + 1;
    size_t bytes = 0;
    assert_success(pfattn_workspace_size(handle, PFATTN_FORWARD, &a, &bytes));
    const size_t q = 8000 * 80, k = 80128 /* 1000 * 80, to a multiple of 256 */, v = 2000 * 128;
    assert_int_equal(bytes, q + k + v);
    const uintptr_t workspace = 0x7000100;
    assert_success(pfattn_forward(handle, &a, (void *)workspace, bytes, NULL));
    assert_int_equal(fake->launch_count, 2);
    /* 8000, 1000 and 2000 rows, 64 a workgroup. */
    assert_launch(0, "pf_widen", "sm_90a/passes", 125 + 16 + 32, 256, 0);
    const pf_widen_operand *w = fake->launches[0].args.widen.operand;
    assert_int_equal(w[0].blocks, 125);
    assert_int_equal(w[1].blocks, 16);
    assert_int_equal(w[2].blocks, 32);
    assert_int_equal(w[3].blocks, 0);
    assert_int_equal(w[4].blocks, 0);
    assert_true(w[1].from.address == (uintptr_t)a.k.data);
    assert_memory_equal(w[1].from.stride, a.k.stride, sizeof a.k.stride);
    assert_int_equal(w[1].batch, 1);
    assert_int_equal(w[1].heads, 2);
    assert_int_equal(w[1].rows, 500);
    assert_int_equal(w[1].channels, 36);

    const fake_launch *l = &fake->launches[1];
    assert_string_equal(l->kernel, "pf_forward");
    assert_string_equal(fake_image_name(l->image), "sm_90a/forward.f16.64.plain.v1");
    assert_int_equal(l->args.attention.element_type, PF_KTYPE_F16);
    assert_int_equal(l->args.attention.dim_qk, 36);
    assert_int_equal(l->args.attention.o_type, PF_KTYPE_F16);
    assert_true(l->args.attention.o.address == (uintptr_t)a.o.data);
    const uintptr_t at[3] = {workspace, workspace + q, workspace + q + k};
    const int operands[3] = {PF_OPERAND_Q, PF_OPERAND_K, PF_OPERAND_V};
    const pf_i64 strides[3][4] = {{160000, 40000, 40, 1}, {0, 20000, 40, 1}, {64000, 32000, 64, 1}};
    for (int n = 0; n < 3; n++) {
        const pf_karg_tensor *operand = &l->args.attention.operand[operands[n]];
        assert_true(operand->address == at[n] && w[n].to.address == at[n]);
        assert_memory_equal(operand->stride, strides[n], sizeof strides[n]);
        assert_memory_equal(w[n].to.stride, strides[n], sizeof strides[n]);
    }
    assert_int_equal(fake->encode_count, 4);
    assert_int_equal(l->args.attention.o_staged, 1);
    pfattn_tensor copy = {(void *)at[0], PFATTN_DTYPE_F16, {0}, {0}};
    assert_map(l, PF_OPERAND_Q, &copy, (cuuint64_t[]){36, 1000, 4, 2},
               (cuuint64_t[]){80, 80000, 320000}, t->owned_tile);
    copy.data = (void *)at[1];
    assert_map(l, PF_OPERAND_K, &copy, (cuuint64_t[]){36, 500, 2, 1}, (cuuint64_t[]){80, 40000, 16},
               t->cross_tile);
    copy.data = (void *)at[2];
    assert_map(l, PF_OPERAND_V, &copy, (cuuint64_t[]){64, 500, 2, 2},
               (cuuint64_t[]){128, 64000, 128000}, t->cross_tile);
}

/* O in e5m2: f32 in the workspace first, rows of 38 channels padded to 40, then rounded to the
 * caller's; L is the caller's at once. */
static void forward_narrowed(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_E5M2, (test_shape){2, 80, 80, 200, 128, 64, 38});
    size_t bytes = 0;
    assert_success(pfattn_workspace_size(handle, PFATTN_FORWARD, &a, &bytes));
    assert_success(pfattn_forward(handle, &a, (void *)0x7000100, bytes, NULL));
    assert_int_equal(fake->launch_count, 3);
    assert_string_equal(fake->launches[0].kernel, "pf_widen");
    const pf_attention_kargs *k = &fake->launches[1].args.attention;
    assert_launch(2, "pf_narrow", "sm_90a/passes", 160 * 200 / 64, 256, 0);
    const pf_merge_kargs *m = &fake->launches[2].args.merge;
    const pf_i64 strides[4] = {80 * 200 * 40, 200 * 40, 40, 1};
    assert_int_equal(k->o_type, PF_KTYPE_F32);
    assert_in_range(k->o.address, 0x7000100, 0x7000100 + bytes - 160 * 200 * 40 * 4);
    assert_memory_equal(k->o.stride, strides, sizeof strides);
    assert_true(k->lse.address == (uintptr_t)a.lse.data);
    assert_int_equal(k->split.items, 0);
    assert_memory_equal(&m->o_part[0], &k->o, sizeof k->o);
    assert_int_equal(m->o_part_type[0], PF_KTYPE_F32);
    assert_true(m->o.address == (uintptr_t)a.o.data);
    assert_int_equal(m->o_type, PF_KTYPE_E5M2);
    assert_int_equal(m->dim_v, 38);
}

/* Few queries: the copies, then parts of the result from them, then the merge, into the caller's
 * O. The far pair is copied too. */
static void forward_widened_split(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_E5M2, (test_shape){1, 4, 4, 1, 40000, 64, 64});
    a.o.dtype = PFATTN_DTYPE_F32;
    test_add_pair(&a, 100);
    test_add_mask(&a, 1, 1, 1, 40000);
    size_t bytes = 0;
    assert_success(pfattn_workspace_size(handle, PFATTN_FORWARD, &a, &bytes));
    assert_success(pfattn_forward(handle, &a, (void *)0x7000100, bytes, NULL));
    assert_int_equal(fake->launch_count, 4);
    /* 4 and 4 rows of queries, 160000 each of k, k2, v. */
    assert_launch(0, "pf_widen", "sm_90a/passes", 1 + 1 + 3 * 2500, 256, 0);
    assert_string_equal(fake->launches[1].kernel, "pf_key_live");
    assert_string_equal(fake_image_name(fake->launches[2].image),
                        "sm_90a/forward.f16.64.general.v2");
    assert_string_equal(fake->launches[3].kernel, "pf_merge_splits");
    const pf_widen_operand *w = fake->launches[0].args.widen.operand;
    const pf_attention_kargs *k = &fake->launches[2].args.attention;
    const int operands[5] = {PF_OPERAND_Q, PF_OPERAND_K, PF_OPERAND_V, PF_OPERAND_Q + 1,
                             PF_OPERAND_K + 1};
    for (int n = 0; n < 5; n++) {
        assert_true(w[n].to.address == k->operand[operands[n]].address);
        assert_in_range(w[n].to.address, 0x7000100, 0x7000100 + bytes - 1);
    }
    assert_true(w[4].from.address == (uintptr_t)a.k2.data);
    assert_int_equal(k->split.items, 4);
    assert_true(fake->launches[3].args.attention.o.address == (uintptr_t)a.o.data);
}

/* ---- backward ------------------------------------------------------------------------------ */

/* Statistics and sums cleared, main kernel, dq. Keys are owned, queries stream past. */
static void backward_plain(void **state) {
    (void)state;
    const pf_tuning *t = row(PF_TARGET_SM_90A, PF_OP_BACKWARD, 128);
    pfattn_attention a =
        test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 200, 300, 128, 128});
    a.flags = PFATTN_FLAG_DETERMINISTIC;
    size_t bytes = 0;
    assert_success(pfattn_workspace_size(handle, PFATTN_BACKWARD, &a, &bytes));
    void *workspace = (void *)0x7000000;
    int stream;
    assert_success(pfattn_backward(handle, &a, workspace, bytes, &stream));
    int tiles = ceil_div(200, t->cross_tile), padded = tiles * t->cross_tile;
    assert_int_equal(fake->launch_count, 3);
    assert_launch(0, "pf_backward_pre", "sm_90a/passes", 8 * padded / PF_PRE_ROWS, 256, 0);
    const pf_attention_kargs *pre = &fake->launches[0].args.attention;
    const pf_attention_kargs *k = &fake->launches[1].args.attention;
    assert_int_equal(pre->work_count, fake->launches[0].grid[0]);
    assert_true(pre->zeroed == k->dq_sum[0]);
    int parts = 128 / t->out_dim;
    int turns = (8 * tiles * parts * 4 + 255) / 256 * 256;
    assert_int_equal(pre->zeroed_words * 8, 8 * padded * 128 * 4 + turns);
    assert_true(k->dq_turn[0] == k->dq_sum[0] + 8u * (unsigned)padded * 128 * 4);
    assert_true(k->dq_turn[0] + (unsigned)turns <= 0x7000000 + bytes);
    int work = 4 * ceil_div(300, t->owned_tile) * parts;
    assert_launch(1, "pf_backward", "sm_90a/backward.f16.128.plain", work, t->threads,
                  t->shared_bytes);
    assert_launch(2, "pf_backward_dq", "sm_90a/backward.f16.128.plain", 8 * tiles, t->threads, 0);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(fake->launches[i].stream, &stream);
    }
    assert_int_equal(fake->encode_count, 4);
    assert_map(&fake->launches[1], PF_OPERAND_K, &a.k, (cuuint64_t[]){128, 300, 2, 2},
               (cuuint64_t[]){256, 76800, 153600}, t->owned_tile);
    assert_map(&fake->launches[1], PF_OPERAND_V, &a.v, (cuuint64_t[]){128, 300, 2, 2},
               (cuuint64_t[]){256, 76800, 153600}, t->owned_tile);
    assert_map(&fake->launches[1], PF_OPERAND_DOUT, &a.dout, (cuuint64_t[]){128, 200, 4, 2},
               (cuuint64_t[]){256, 51200, 204800}, t->cross_tile);
    assert_map(&fake->launches[1], PF_OPERAND_Q, &a.q, (cuuint64_t[]){128, 200, 4, 2},
               (cuuint64_t[]){256, 51200, 204800}, t->cross_tile);
}

/* Bias and mask by tiles of 64 queries x the owned keys, a mask of one row alone, dbias back by
 * such tiles. */
static void backward_staged_bias(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 200, 304, 64, 64});
    test_add_bias(&a, PFATTN_DTYPE_F16, 1, 4, 200, 304);
    test_add_mask(&a, 2, 1, 1, 304);
    size_t bytes = 0;
    assert_success(pfattn_workspace_size(handle, PFATTN_BACKWARD, &a, &bytes));
    assert_success(pfattn_backward(handle, &a, (void *)0x7000000, bytes, NULL));
    const fake_launch *l = &fake->launches[2];
    const pf_attention_kargs *k = &l->args.attention;
    assert_string_equal(fake_image_name(l->image), "sm_90a/backward.f16.64.general");
    assert_int_equal(k->bias_stages, 2);
    assert_int_equal(k->dbias_staged, 0);
    assert_map(l, PF_MAP_BIAS, &a.bias, (cuuint64_t[]){304, 200, 4, 1},
               (cuuint64_t[]){608, 121600, 16}, 64);
    assert_in_range(l->map[PF_MAP_MASK], 0, fake->encode_count - 1);
    const fake_encode *mask = &fake->encodes[l->map[PF_MAP_MASK]];
    assert_ptr_equal(mask->address, a.mask.data);
    assert_memory_equal(mask->extent, ((cuuint64_t[]){304, 1, 1, 2}), 4 * sizeof *mask->extent);
    assert_memory_equal(mask->box, ((cuuint32_t[]){128, 1, 1, 1}), 4 * sizeof *mask->box);
    assert_int_equal(mask->type, CU_TENSOR_MAP_DATA_TYPE_UINT8);
    assert_int_equal(l->map[PF_MAP_DBIAS], -1);

    test_add_bias(&a, PFATTN_DTYPE_F16, 2, 4, 200, 304);
    a.dbias = test_dense(PFATTN_DTYPE_F16, 2, 4, 200, 304);
    assert_success(pfattn_workspace_size(handle, PFATTN_BACKWARD, &a, &bytes));
    int first = fake->launch_count;
    assert_success(pfattn_backward(handle, &a, (void *)0x7000000, bytes, NULL));
    l = &fake->launches[first + 2];
    assert_int_equal(l->args.attention.dbias_staged, 1);
    assert_map(l, PF_MAP_DBIAS, &a.dbias, (cuuint64_t[]){304, 200, 4, 2},
               (cuuint64_t[]){608, 121600, 486400}, 64);
}

/* The JVP with a broadcast bias: all steps, from the images of both targets. */
static void backward_jvp_with_bias(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_BACKWARD_JVP, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 70, 90, 64, 64});
    test_add_bias(&a, PFATTN_DTYPE_F32, 1, 4, 70, 90);
    a.tdbias = test_dense(PFATTN_DTYPE_F32, 1, 4, 70, 90);
    size_t bytes = 0;
    assert_success(pfattn_workspace_size(handle, PFATTN_BACKWARD_JVP, &a, &bytes));
    assert_success(pfattn_backward_jvp(handle, &a, (void *)0x7000000, bytes, NULL));
    const char *const kernels[] = {"pf_key_live",        "pf_backward_pre_jvp", "pf_backward_jvp",
                                   "pf_backward_jvp_dq", "pf_dbias_jvp",        "pf_dbias_reduce"};
    const char *const images[] = {"sm_90a/passes",
                                  "sm_90a/passes",
                                  "sm_80/backward_jvp.f16.64.general",
                                  "sm_80/backward_jvp.f16.64.general",
                                  "sm_80/dbias_jvp.f16.64.general",
                                  "sm_90a/passes"};
    assert_int_equal(fake->launch_count, 6);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(fake->launches[i].kernel, kernels[i]);
        assert_string_equal(fake_image_name(fake->launches[i].image), images[i]);
    }
    assert_int_equal(fake->encode_count, 0);
    const pf_attention_kargs *k = &fake->launches[4].args.attention;
    assert_int_equal(fake->launches[4].grid[0], k->work_count);
    assert_int_equal(k->dbias_splits, 2); /* the batches */
    assert_true(k->dbias.address == (uintptr_t)a.tdbias.data);
    assert_true(k->dbias_sum != 0);
}

/* ---- merge, nothing to do ------------------------------------------------------------------ */

static void merge(void **state) {
    (void)state;
    pfattn_merge_args m = test_merge_args(PFATTN_DTYPE_F16, (test_shape){2, 3, 0, 5, 0, 0, 7});
    assert_success(pfattn_merge(handle, &m, NULL));
    assert_int_equal(fake->launch_count, 1);
    assert_launch(0, "pf_merge", "sm_90a/passes", 4, 256, 0); /* 30 rows, 8 a workgroup */
    const pf_merge_kargs *k = &fake->launches[0].args.merge;
    assert_true(k->o.address == (uintptr_t)m.o.data);
    assert_int_equal(k->queries, 5);
}

/* No queries: success without a call of the driver. */
static void nothing_to_do(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 0, 500, 64, 64});
    int before = fake->call_count;
    assert_success(pfattn_forward(handle, &a, NULL, 0, NULL));
    assert_int_equal(fake->call_count, before);
}

/* ---- loading, captures, contexts ----------------------------------------------------------- */

/* supported loads; afterwards neither it nor the size of the workspace asks the driver anything. */
static void loads_once(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 500, 64, 64});
    assert_success(pfattn_supported(handle, PFATTN_FORWARD, &a));
    assert_int_equal(fake->modules, 1);
    assert_int_equal(fake->launch_count, 0);
    fake_reset(fake);
    size_t bytes = 1;
    assert_success(pfattn_workspace_size(handle, PFATTN_FORWARD, &a, &bytes));
    assert_int_equal(bytes, 0);
    assert_success(pfattn_supported(handle, PFATTN_FORWARD, &a));
    assert_int_equal(fake->call_count, 0);
}

/* A call is its context, a map for each operand and its launches, and nothing else: forward, its
 * JVP, and backward of kernels that are loaded. Its maps serve again. The second call makes a graph
 * of its launches. Where a tensor or the workspace moves, maps and nodes are given new addresses.
 */
static void calls_of_a_launch(void **state) {
    (void)state;
    test_shape shape = {2, 4, 2, 1000, 500, 64, 64};
    pfattn_attention forward = test_attention(PF_FORWARD, PFATTN_DTYPE_F16, shape);
    pfattn_attention jvp = test_attention(PF_FORWARD_JVP, PFATTN_DTYPE_F16, shape);
    pfattn_attention backward = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, shape);
    jvp.tq = test_dense(PFATTN_DTYPE_F16, 2, 4, 1000, 64);
    assert_success(pfattn_supported(handle, PFATTN_FORWARD, &forward));
    assert_success(pfattn_supported(handle, PFATTN_FORWARD, &jvp));
    assert_success(pfattn_supported(handle, PFATTN_BACKWARD, &backward));
    void *workspace = (void *)0x7000000;
    EXPECT_CALLS(pfattn_forward(handle, &forward, NULL, 0, NULL), CONTEXT, MAP, MAP, MAP, MAP,
                 LAUNCH, LEAVE);
    EXPECT_CALLS(pfattn_forward(handle, &jvp, NULL, 0, NULL), CONTEXT, MAP, MAP, MAP, MAP, LAUNCH,
                 LEAVE);
    EXPECT_CALLS(pfattn_backward(handle, &backward, workspace, SIZE_MAX, NULL), CONTEXT, MAP, MAP,
                 MAP, MAP, LAUNCH, LAUNCH, LAUNCH, LEAVE);

    EXPECT_CALLS(pfattn_forward(handle, &forward, NULL, 0, NULL), CONTEXT, CAPTURED, MODE, CREATE,
                 ADD, READY, MODE, GRAPH, LEAVE);
    EXPECT_CALLS(pfattn_forward(handle, &jvp, NULL, 0, NULL), CONTEXT, CAPTURED, MODE, CREATE, ADD,
                 READY, MODE, GRAPH, LEAVE);
    EXPECT_CALLS(pfattn_backward(handle, &backward, workspace, SIZE_MAX, NULL), CONTEXT, CAPTURED,
                 MODE, CREATE, ADD, ADD, ADD, READY, MODE, GRAPH, LEAVE);

    forward.o.data = (char *)forward.o.data + 16;
    jvp.tq.data = (char *)jvp.tq.data + 16;
    workspace = (void *)0x7000100;
    EXPECT_CALLS(pfattn_forward(handle, &forward, NULL, 0, NULL), CONTEXT, MOVE, MOVE, MOVE, MOVE,
                 CAPTURED, SET, GRAPH, LEAVE);
    EXPECT_CALLS(pfattn_forward(handle, &jvp, NULL, 0, NULL), CONTEXT, MOVE, MOVE, MOVE, MOVE,
                 CAPTURED, SET, GRAPH, LEAVE);
    EXPECT_CALLS(pfattn_backward(handle, &backward, workspace, SIZE_MAX, NULL), CONTEXT, MOVE, MOVE,
                 MOVE, MOVE, CAPTURED, SET, SET, SET, GRAPH, LEAVE);

    EXPECT_CALLS(pfattn_forward(handle, &forward, NULL, 0, NULL), CONTEXT, CAPTURED, GRAPH, LEAVE);
    EXPECT_CALLS(pfattn_forward(handle, &jvp, NULL, 0, NULL), CONTEXT, CAPTURED, GRAPH, LEAVE);
    EXPECT_CALLS(pfattn_backward(handle, &backward, workspace, SIZE_MAX, NULL), CONTEXT, CAPTURED,
                 GRAPH, LEAVE);
}

/* A first call inside a capture loads its kernels all the same and leaves the capture whole. */
static void captures(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 500, 64, 64});
    fake->capturing = true;
    size_t bytes = 0;
    assert_success(pfattn_workspace_size(handle, PFATTN_BACKWARD, &a, &bytes));
    assert_success(pfattn_backward(handle, &a, (void *)0x7000000, bytes, NULL));
    assert_false(fake->capture_broken);
    assert_int_equal(fake->launch_count, 3);
    /* The thread is back in the mode it was in. */
    const pf_memory_ops *ops = pf_backend_get(PFATTN_BACKEND_CUDA)->memory;
    assert_error(ops->synchronize(handle->device), PFATTN_ERROR_DRIVER,
                 "cuCtxSynchronize failed with CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED");
    assert_true(fake->capture_broken);
}

/* Launches never allocate or synchronise, whatever they need. */
static void never_waits(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_BACKWARD_JVP, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 70, 90, 64, 64});
    size_t bytes = 0;
    assert_success(pfattn_workspace_size(handle, PFATTN_BACKWARD_JVP, &a, &bytes));
    assert_success(pfattn_backward_jvp(handle, &a, (void *)0x7000000, bytes, NULL));
    const char *const calls[] = {"cuMemAlloc",    "cuMemFree",          "cuCtxSynchronize",
                                 "cuMemcpyDtoH",  "cuMemcpyHtoD",       "cuEventCreate",
                                 "cuEventRecord", "cuEventSynchronize", "cuDevicePrimaryCtxRetain"};
    int before = fake_count_calls(fake, "cuDevicePrimaryCtxRetain");
    for (size_t i = 0; i + 1 < sizeof calls / sizeof calls[0]; i++) {
        assert_int_equal(fake_count_calls(fake, calls[i]), 0);
    }
    assert_int_equal(before, 1); /* by create */
}

/* Handles share the device's context but not their modules, and each device launches on its own. */
static void several_handles(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 500, 64, 64});
    pfattn_handle second = fake_handle(0);
    pfattn_handle ampere = fake_handle(1);
    assert_success(pfattn_forward(handle, &a, NULL, 0, NULL));
    assert_success(pfattn_forward(second, &a, NULL, 0, NULL));
    assert_success(pfattn_forward(ampere, &a, NULL, 0, NULL));
    assert_int_equal(fake->modules, 3);
    assert_int_equal(fake->retained[0], 2);
    assert_int_equal(fake->retained[1], 1);
    assert_int_equal(fake->launches[1].device, 0);
    assert_int_equal(fake->launches[2].device, 1);
    assert_string_equal(fake_image_name(fake->launches[2].image), "sm_80/forward.f16.64.plain");
    pfattn_destroy(second);
    pfattn_destroy(ampere);
    assert_int_equal(fake->modules, 1);
    assert_success(pfattn_forward(handle, &a, NULL, 0, NULL));
}

/* Work of one thread: its own handle, two hundred calls; NULL, or what went wrong. */
static void *run_thread(void *argument) {
    pfattn_attention a = *(const pfattn_attention *)argument;
    pfattn_handle_options options = PFATTN_HANDLE_OPTIONS_INIT;
    options.backend = PFATTN_BACKEND_CUDA;
    pfattn_handle own;
    if (pfattn_create(&options, &own) != PFATTN_SUCCESS) {
        return "create";
    }
    for (int i = 0; i < 200; i++) {
        if (pfattn_forward(own, &a, NULL, 0, NULL) != PFATTN_SUCCESS || fake_depth() != 0) {
            return "forward";
        }
    }
    pfattn_destroy(own);
    return NULL;
}

/* Threads with a handle each do not disturb one another. */
static void several_threads(void **state) {
    (void)state;
    pfattn_attention a =
        test_attention(PF_FORWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 500, 64, 64});
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_thread, &a), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *problem = NULL;
        pthread_join(threads[i], &problem);
        assert_null(problem);
    }
    assert_int_equal(fake->retained[0], 1);
}

/* Memory and the timer, as the tools use them. */
static void memory(void **state) {
    (void)state;
    const pf_memory_ops *ops = pf_backend_get(PFATTN_BACKEND_CUDA)->memory;
    pf_device *device = handle->device;
    void *there = NULL;
    char out[6] = "", in[6] = "hello";
    assert_success(ops->allocate(device, sizeof in, &there));
    assert_success(ops->upload(device, there, in, sizeof in));
    assert_success(ops->download(device, out, there, sizeof in));
    assert_string_equal(out, "hello");
    assert_success(ops->upload(device, there, in, 0));
    assert_success(ops->download(device, out, there, 0));
    ops->release(device, there);
    ops->release(device, NULL);
    assert_success(ops->allocate(device, 0, &there));
    assert_non_null(there);
    ops->release(device, there);
    double seconds = 0.0;
    assert_success(ops->timer_start(device));
    assert_success(ops->timer_stop(device, &seconds));
    assert_true(seconds > 0.00249 && seconds < 0.00251); /* the fake says 2.5 ms */
    assert_success(ops->timer_start(device));
    assert_int_equal(fake->events, 2);
    assert_success(ops->synchronize(device));
}

int main(int argc, char **argv) {
    if (argc < 2) {
        return 99;
    }
    fake = fake_open(argv[1]);
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_handle, close_handle)
    const struct CMUnitTest tests[] = {
        TEST(forward_plain),
        TEST(forward_maps_of_views),
        TEST(forward_maps_end_with_keys),
        TEST(forward_output_without_map),
        TEST(forward_falls_back),
        TEST(forward_masked),
        TEST(forward_split),
        TEST(forward_jvp_split),
        TEST(forward_widened),
        TEST(forward_widened_split),
        TEST(forward_narrowed),
        TEST(backward_plain),
        TEST(backward_staged_bias),
        TEST(backward_jvp_with_bias),
        TEST(merge),
        TEST(nothing_to_do),
        TEST(loads_once),
        TEST(calls_of_a_launch),
        TEST(captures),
        TEST(never_waits),
        TEST(several_handles),
        TEST(several_threads),
        TEST(memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
