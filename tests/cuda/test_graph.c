/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that repeat are enqueued as graphs, against the fake driver: when, with which arguments,
 * where not, and what becomes of it when the driver fails. test_calls.c compares what they enqueue
 * with first calls. */
#include "fake_cuda_client.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/device.h"

static fake_cuda *fake;
static pfattn_handle handle;
static pfattn_attention args; /* backward, of three launches */
static int streams[3];

static int open_handle(void **state) {
    (void)state;
    fake_reset(fake);
    handle = fake_handle(0);
    args = test_attention(PF_BACKWARD, PFATTN_DTYPE_F16, (test_shape){2, 4, 2, 100, 300, 64, 64});
    return 0;
}

static int close_handle(void **state) {
    (void)state;
    fake_reset(fake);
    pfattn_destroy(handle);
    return fake_depth() == 0 && fake->modules == 0 && fake->graphs == 0 && fake->executables == 0
               ? 0
               : -1;
}

static pfattn_status backward(void *stream) {
    fake->call_count = fake->launch_count = 0;
    return pfattn_backward(handle, &args, (void *)0x7000000, SIZE_MAX, stream);
}

static void assert_launched(CUstream stream, int by_kernel, int by_graph) {
    assert_int_equal(fake_count_calls(fake, "cuLaunchKernel"), by_kernel);
    assert_int_equal(fake_count_calls(fake, "cuGraphLaunch"), by_graph);
    assert_int_equal(fake->launch_count, 3);
    const char *const kernels[] = {"pf_backward_pre", "pf_backward", "pf_backward_dq"};
    for (int i = 0; i < 3; i++) {
        const pf_attention_kargs *k = &fake->launches[i].args.attention;
        assert_string_equal(fake->launches[i].kernel, kernels[i]);
        assert_ptr_equal(fake->launches[i].stream, stream);
        assert_true(k->operand[PF_OPERAND_Q].address == (uintptr_t)args.q.data);
        assert_true(k->operand[PF_OPERAND_DOUT].address == (uintptr_t)args.dout.data);
        assert_true(k->dq[0].address == (uintptr_t)args.dq.data);
    }
    assert_int_equal(fake_depth(), 0);
}

/* The call on the stream, which must launch so. */
static void expect(void *stream, int by_kernel, int by_graph) {
    assert_success(backward(stream));
    assert_launched(stream, by_kernel, by_graph);
}

#define EXPECT_KERNELS(stream) expect(stream, 3, 0)
#define EXPECT_GRAPH(stream) expect(stream, 0, 1)

/* ---- when ---------------------------------------------------------------------------------- */

/* The second call makes the graph, later ones use it. */
static void from_the_second_call_on(void **state) {
    (void)state;
    EXPECT_KERNELS(&streams[0]);
    assert_int_equal(fake->executables, 0);
    EXPECT_GRAPH(&streams[0]);
    assert_int_equal(fake_count_calls(fake, "cuGraphInstantiate"), 1);
    EXPECT_GRAPH(&streams[0]);
    assert_int_equal(fake_count_calls(fake, "cuGraphInstantiate"), 0);
    assert_int_equal(fake_count_calls(fake, "cuGraphExecKernelNodeSetParams"), 0);
    assert_int_equal(fake->executables, 1);
}

/* To other addresses and back: the nodes get each, the graph stays. */
static void tensors_move(void **state) {
    (void)state;
    void *const q[] = {args.q.data, (char *)args.q.data + 4096};
    void *const dq[] = {args.dq.data, (char *)args.dq.data + 32};
    EXPECT_KERNELS(NULL);
    for (int i = 0; i < 6; i++) {
        args.q.data = q[i / 2 % 2];
        args.dq.data = dq[i / 2 % 2];
        EXPECT_GRAPH(NULL);
        assert_int_equal(fake_count_calls(fake, "cuGraphExecKernelNodeSetParams"),
                         i > 0 && i % 2 == 0 ? 3 : 0);
        assert_int_equal(fake_count_calls(fake, "cuGraphInstantiate"), i == 0);
    }
}

/* Calls that are not remembered have none: merge, and what is in no handle's memory any more. */
static void forgotten_calls(void **state) {
    (void)state;
    pfattn_merge_args merge = test_merge_args(PFATTN_DTYPE_F16, (test_shape){2, 3, 0, 5, 0, 0, 7});
    for (int i = 0; i < 3; i++) {
        assert_success(pfattn_merge(handle, &merge, NULL));
    }
    assert_int_equal(fake->executables, 0);
    EXPECT_KERNELS(NULL);
    EXPECT_GRAPH(NULL);
    for (int i = 0; i < PF_KNOWN_CALLS; i++) {
        pfattn_attention other = test_attention(PF_FORWARD, PFATTN_DTYPE_F16,
                                                (test_shape){1, 1, 1, 5, 5, 8 * (i + 1), 8});
        assert_int_equal(fake->executables, 1);
        assert_success(pfattn_supported(handle, PFATTN_FORWARD, &other));
    }
    assert_int_equal(fake->graphs, 0);
    assert_int_equal(fake->executables, 0);
    EXPECT_KERNELS(NULL);
}

/* ---- streams ------------------------------------------------------------------------------- */

/* A graph waits for its own launches on any stream, so it never leaves its own. */
static void streams_in_turn(void **state) {
    (void)state;
    EXPECT_KERNELS(&streams[0]);
    for (int i = 0; i < 50; i++) {
        EXPECT_GRAPH(&streams[0]);
        EXPECT_KERNELS(&streams[1]);
        EXPECT_KERNELS(&streams[2]);
    }
}

/* A call that stays on another stream gets a graph there: after 8 calls, then 16, then 32. */
static void another_stream(void **state) {
    (void)state;
    EXPECT_KERNELS(&streams[0]);
    EXPECT_GRAPH(&streams[0]);
    for (int move = 0; move < 3; move++) {
        void *stream = &streams[(move + 1) % 2];
        for (int i = 1; i < 8 << move; i++) {
            EXPECT_KERNELS(stream);
        }
        EXPECT_GRAPH(stream);
        EXPECT_GRAPH(stream);
        assert_int_equal(fake->executables, 1);
        assert_int_equal(fake->graphs, 1);
    }
}

/* CU_STREAM_PER_THREAD is another stream in each thread. */
static void stream_of_the_thread(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        EXPECT_KERNELS(CU_STREAM_PER_THREAD);
    }
}

/* What is captured are kernels, with the arguments of the call, and nothing breaks the capture. */
static void captured_stream(void **state) {
    (void)state;
    EXPECT_KERNELS(&streams[0]);
    for (int i = 0; i < 3; i++) {
        fake->capturing = true;
        fake->captured = (CUstream)&streams[0];
        args.q.data = (char *)args.q.data + 16;
        EXPECT_KERNELS(&streams[0]);
        assert_false(fake->capture_broken);
        fake->capturing = false;
        EXPECT_GRAPH(&streams[0]);
    }
}

/* A graph can be made, used and ended while the thread captures another stream. */
static void another_stream_is_captured(void **state) {
    (void)state;
    fake->capturing = true;
    fake->captured = (CUstream)&streams[1];
    EXPECT_KERNELS(&streams[0]);
    EXPECT_GRAPH(&streams[0]);
    args.q.data = (char *)args.q.data + 16;
    EXPECT_GRAPH(&streams[0]);
    for (int i = 0; i < PF_KNOWN_CALLS; i++) { /* in place of the call */
        pfattn_attention other = test_attention(PF_FORWARD, PFATTN_DTYPE_F16,
                                                (test_shape){1, 1, 1, 5, 5, 8 * (i + 1), 8});
        assert_success(pfattn_forward(handle, &other, NULL, 0, &streams[1]));
    }
    assert_int_equal(fake->executables, 0);
    EXPECT_KERNELS(&streams[0]);
    EXPECT_GRAPH(&streams[0]);
    pfattn_destroy(handle);
    assert_false(fake->capture_broken);
    assert_int_equal(fake->executables, 0);
    fake->capturing = false;
    handle = fake_handle(0);
}

/* ---- failures ------------------------------------------------------------------------------ */

/* Where a graph cannot be made the call succeeds without, then and later, and the caller's last
 * error is what it was. */
static void making_fails(void **state) {
    (void)state;
    const struct {
        const char *call;
        int after;
    } faults[] = {{"cuThreadExchangeStreamCaptureMode", 0},
                  {"cuGraphCreate", 0},
                  {"cuGraphAddKernelNode", 0},
                  {"cuGraphAddKernelNode", 2},
                  {"cuGraphInstantiate", 0},
                  {"cuGraphUpload", 0},
                  {"cuThreadExchangeStreamCaptureMode", 1}};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        assert_error(pfattn_forward(NULL, &args, NULL, 0, NULL), PFATTN_ERROR_INVALID_ARGUMENT,
                     "handle: is NULL");
        EXPECT_KERNELS(NULL);
        fake->fail_call = faults[i].call;
        fake->fail_after = faults[i].after;
        fake->fail_result = CUDA_ERROR_OUT_OF_MEMORY;
        EXPECT_KERNELS(NULL);
        assert_non_null(strstr(pfattn_last_error(), "handle: is NULL"));
        assert_int_equal(fake->graphs, 0);
        assert_int_equal(fake->executables, 0);
        fake_reset(fake);
        EXPECT_KERNELS(NULL);
        assert_int_equal(fake_count_calls(fake, "cuGraphCreate"), 0);
        pfattn_destroy(handle);
        handle = fake_handle(0);
    }
}

/* Where a node cannot be given its new arguments none has been launched with some of them. */
static void updating_fails(void **state) {
    (void)state;
    for (int after = 0; after < 3; after++) {
        EXPECT_KERNELS(NULL);
        EXPECT_GRAPH(NULL);
        args.q.data = (char *)args.q.data + 16;
        fake->fail_call = "cuGraphExecKernelNodeSetParams";
        fake->fail_after = after;
        fake->fail_result = CUDA_ERROR_INVALID_VALUE;
        EXPECT_KERNELS(NULL);
        assert_int_equal(fake->executables, 0);
        fake_reset(fake);
        EXPECT_KERNELS(NULL);
        pfattn_destroy(handle);
        handle = fake_handle(0);
    }
}

/* Where the driver does not say whether the stream is captured, kernels are launched. */
static void capture_unknown(void **state) {
    (void)state;
    EXPECT_KERNELS(NULL);
    EXPECT_GRAPH(NULL);
    fake->fail_call = "cuStreamIsCapturing";
    fake->fail_result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    EXPECT_KERNELS(NULL);
    fake_reset(fake);
    EXPECT_GRAPH(NULL);
}

/* A graph that cannot be launched is the call's error; nothing was enqueued, and the next works. */
static void launching_fails(void **state) {
    (void)state;
    EXPECT_KERNELS(NULL);
    for (int i = 0; i < 2; i++) {
        fake->fail_call = "cuGraphLaunch";
        fake->fail_after = 0;
        fake->fail_result = i == 0 ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_OUT_OF_MEMORY;
        assert_error(backward(NULL), i == 0 ? PFATTN_ERROR_DRIVER : PFATTN_ERROR_OUT_OF_MEMORY,
                     i == 0 ? "cuGraphLaunch failed with CUDA_ERROR_ILLEGAL_ADDRESS (700, as the "
                              "fake driver was told); work enqueued earlier failed"
                            : "cuGraphLaunch failed with CUDA_ERROR_OUT_OF_MEMORY");
        assert_int_equal(fake->launch_count, 0);
        assert_int_equal(fake_depth(), 0);
        fake_reset(fake);
        EXPECT_GRAPH(NULL);
    }
}

/* A handle whose context is gone still ends. */
static void context_is_gone(void **state) {
    (void)state;
    EXPECT_KERNELS(NULL);
    EXPECT_GRAPH(NULL);
    fake->fail_call = "cuCtxPushCurrent";
    fake->fail_result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    fake->fail_after = 0;
    pf_backend_get(PFATTN_BACKEND_CUDA)->call_release(handle->device, &handle->calls.known[0].call);
    assert_null(handle->calls.known[0].call.graph);
    fake_reset(fake);
    /* The context took them along. */
    free(fake->last_graph);
    free(fake->last_executable);
    fake->graphs = fake->executables = 0;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        return 99;
    }
    fake = fake_open(argv[1]);
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_handle, close_handle)
    const struct CMUnitTest tests[] = {
        TEST(from_the_second_call_on),
        TEST(tensors_move),
        TEST(forgotten_calls),
        TEST(streams_in_turn),
        TEST(another_stream),
        TEST(stream_of_the_thread),
        TEST(captured_stream),
        TEST(another_stream_is_captured),
        TEST(making_fails),
        TEST(updating_fails),
        TEST(capture_unknown),
        TEST(launching_fails),
        TEST(context_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
