/* SPDX-License-Identifier: Apache-2.0 */
/* A handle that knows a call does what one that meets it for the first time does, against the fake
 * driver: the same launches with the same arguments, or the same refusal in the same words. */
#include "fake_cuda_client.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "backend.h"

enum { ROUNDS = 30000, TENSORS = PF_TDK2 + 1 };

static fake_cuda *fake;
static pfattn_handle handle; /* knows its calls */
static pfattn_handle fresh;  /* is made to forget them before each call */

static uint64_t seed = 20261130;
static int graph_launches;

static uint64_t random_below(uint64_t limit) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % limit;
}

static pfattn_tensor *tensor_of(pfattn_attention *args, int id) {
    return &args->q + id; /* in the order of their identifiers */
}

/* ---- what a call comes to ------------------------------------------------------------------ */

typedef struct outcome {
    pfattn_status status;
    char message[512];
    int launches;
    fake_launch launch[PF_STEP_MAX];
} outcome;

/* Where the next call goes. */
static int streams[2];
static void *stream = &streams[0];
static bool captured;

static void run(pfattn_handle by, pfattn_operation operation, const pfattn_attention *args,
                void *workspace, size_t bytes, outcome *result) {
    memset(result, 0, sizeof *result);
    fake_reset(fake);
    fake->capturing = captured;
    fake->captured = stream;
    result->status =
        operation == PFATTN_FORWARD    ? pfattn_forward(by, args, workspace, bytes, stream)
        : operation == PFATTN_BACKWARD ? pfattn_backward(by, args, workspace, bytes, stream)
                                       : pfattn_backward_jvp(by, args, workspace, bytes, stream);
    assert_false(fake->capture_broken);
    graph_launches += fake_count_calls(fake, "cuGraphLaunch");
    if (result->status != PFATTN_SUCCESS) {
        snprintf(result->message, sizeof result->message, "%s", pfattn_last_error());
    }
    result->launches = fake->launch_count;
    assert_int_equal(fake_depth(), 0);
    assert_true(result->launches <= PF_STEP_MAX);
    memcpy(result->launch, fake->launches, sizeof *result->launch * (size_t)result->launches);
}

static bool takes_maps(const fake_launch *launch) {
    const char *image = fake_image_name(launch->image);
    return strncmp(image, "sm_90a/", 7) == 0 && strcmp(image, "sm_90a/passes") != 0;
}

static void assert_same_launch(const fake_launch *a, const fake_launch *b) {
    assert_string_equal(a->kernel, b->kernel);
    assert_ptr_equal(a->image, b->image);
    assert_memory_equal(a->grid, b->grid, sizeof a->grid);
    assert_memory_equal(a->block, b->block, sizeof a->block);
    assert_int_equal(a->shared, b->shared);
    assert_ptr_equal(a->stream, b->stream);
    if (takes_maps(a)) {
        assert_memory_equal(a->told, b->told, sizeof a->told);
    }
    assert_memory_equal(&a->args, &b->args, sizeof a->args);
}

/* The same call by both handles; its status. */
static pfattn_status compare(pfattn_operation operation, const pfattn_attention *args,
                             void *workspace, size_t bytes) {
    static outcome known, new;
    size_t known_bytes = 1, new_bytes = 1;
    pf_calls_forget(&fresh->calls);
    run(fresh, operation, args, workspace, bytes, &new);
    run(handle, operation, args, workspace, bytes, &known);
    assert_int_equal(known.status, new.status);
    assert_string_equal(known.message, new.message);
    assert_int_equal(known.launches, new.launches);
    for (int i = 0; i < known.launches; i++) {
        assert_same_launch(&known.launch[i], &new.launch[i]);
    }
    assert_int_equal(pfattn_workspace_size(handle, operation, args, &known_bytes),
                     pfattn_workspace_size(fresh, operation, args, &new_bytes));
    assert_int_equal(known_bytes, new_bytes);
    return known.status;
}

/* ---- descriptors --------------------------------------------------------------------------- */

typedef struct sample {
    pfattn_operation operation;
    pfattn_attention args;
} sample;

static sample make(pf_operation operation, pfattn_dtype dtype, int64_t dim) {
    test_shape shape = {2, 4, 2, 100, 300, dim, dim};
    return (sample){operation == PF_BACKWARD       ? PFATTN_BACKWARD
                    : operation == PF_BACKWARD_JVP ? PFATTN_BACKWARD_JVP
                                                   : PFATTN_FORWARD,
                    test_attention(operation, dtype, shape)};
}

/* More than a handle knows: all operations, kernels with and without maps, passes and parts. */
enum { SAMPLES = 12 };
static void make_samples(sample s[SAMPLES]) {
    s[0] = make(PF_FORWARD, PFATTN_DTYPE_F16, 64);
    s[1] = make(PF_FORWARD, PFATTN_DTYPE_BF16, 128);
    s[1].args.flags = PFATTN_FLAG_CAUSAL | PFATTN_FLAG_DIAGONAL | PFATTN_FLAG_ALPHA;
    s[2] = make(PF_FORWARD, PFATTN_DTYPE_E5M2, 64);
    s[2].args.o.dtype = PFATTN_DTYPE_BF16;
    s[3] = make(PF_FORWARD, PFATTN_DTYPE_F32, 64);
    s[4] = make(PF_FORWARD, PFATTN_DTYPE_F16, 64);
    test_add_mask(&s[4].args, 2, 1, 100, 300);
    s[5] = make(PF_FORWARD_JVP, PFATTN_DTYPE_F16, 128);
    test_add_bias(&s[5].args, PFATTN_DTYPE_F16, 1, 4, 100, 304);
    s[5].args.bias.shape[3] = 300; /* in rows of 608 bytes */
    s[5].args.tq = s[5].args.tv = test_dense(PFATTN_DTYPE_F16, 2, 4, 100, 128);
    s[5].args.tv = test_dense(PFATTN_DTYPE_F16, 2, 2, 300, 128);
    s[6] = make(PF_FORWARD, PFATTN_DTYPE_F16, 64);
    test_add_pair(&s[6].args, 17);
    s[7] = make(PF_FORWARD, PFATTN_DTYPE_F16, 64);
    s[7].args.k = test_dense(PFATTN_DTYPE_F16, 2, 2, 65536, 64);
    s[7].args.v = test_dense(PFATTN_DTYPE_F16, 2, 2, 65536, 64);
    s[8] = make(PF_BACKWARD, PFATTN_DTYPE_F16, 64);
    s[9] = make(PF_BACKWARD, PFATTN_DTYPE_BF16, 128);
    s[9].args.flags = PFATTN_FLAG_CAUSAL | PFATTN_FLAG_DETERMINISTIC;
    s[10] = make(PF_BACKWARD_JVP, PFATTN_DTYPE_F16, 64);
    s[11] = make(PF_FORWARD, PFATTN_DTYPE_F16, 64);
    s[11].args.k.shape[2] = s[11].args.v.shape[2] = 0; /* no keys */
}

/* Move a tensor: a little, far, out of memory, onto another, to NULL. */
static void move(pfattn_attention *args, pfattn_tensor *t) {
    static const uintptr_t steps[] = {1, 2, 4, 8, 16, 32, 256, 1 << 20};
    switch (random_below(16)) {
    case 0:
        t->data = NULL;
        break;
    case 1:
        t->data = (void *)(uintptr_t)(0 - ((random_below(1 << 12) + 1) << random_below(16)) * 16);
        break;
    case 2:
        t->data = tensor_of(args, (int)random_below(TENSORS))->data;
        break;
    default:
        t->data = (void *)((uintptr_t)t->data + steps[random_below(8)]);
    }
}

static void change(sample *s) {
    pfattn_attention *args = &s->args;
    pfattn_tensor *t = tensor_of(args, (int)random_below(TENSORS));
    switch (random_below(24)) {
    case 0:
        args->flags ^= 1u << random_below(5);
        break;
    case 1:
        args->alpha = (double)random_below(3) - 1;
        break;
    case 2:
        args->diagonal = (int64_t)random_below(200) - 100;
        break;
    case 3:
        args->distance = (int64_t)random_below(200) - 100;
        break;
    case 4:
        t->shape[random_below(4)] += (int64_t)random_below(3) - 1;
        break;
    case 5:
        t->stride[random_below(4)] += (int64_t)random_below(3) * 8 - 8;
        break;
    case 6:
        t->dtype = (pfattn_dtype)random_below(8);
        break;
    case 7:
        s->operation = (pfattn_operation)random_below(4);
        break;
    default:
        move(args, t->dtype != PFATTN_DTYPE_NONE ? t : &args->q);
    }
}

/* ---- tests --------------------------------------------------------------------------------- */

/* Calls of a few descriptors in any order, as they are or changed a little. */
static void known_calls_do_what_new_ones_do(void **state) {
    (void)state;
    static sample samples[SAMPLES];
    int succeeded = 0, refused = 0;
    make_samples(samples);
    for (int i = 0; i < SAMPLES; i++) {
        assert_success(pfattn_supported(fresh, samples[i].operation, &samples[i].args));
    }
    for (int round = 0; round < ROUNDS; round++) {
        /* Mostly among as many as a handle knows, so that it does know them. */
        static sample s;
        uint64_t any = random_below(SAMPLES);
        s = samples[random_below(8) == 0 ? any : (any % 4 + (uint64_t)round / 1000) % SAMPLES];
        for (uint64_t changes = random_below(3); changes > 0; changes--) {
            change(&s);
        }
        void *workspace = (void *)(uintptr_t)(0x7000000 + 128 * random_below(4));
        size_t bytes = random_below(8) == 0 ? 1000 : (size_t)1 << 40;
        captured = random_below(16) == 0;
        stream = &streams[random_below(16) == 0];
        pfattn_status status = compare(s.operation, &s.args, workspace, bytes);
        succeeded += status == PFATTN_SUCCESS;
        refused += status != PFATTN_SUCCESS;
    }
    print_message("%d calls succeeded, %d were refused, %d were graphs\n", succeeded, refused,
                  graph_launches);
    assert_true(succeeded > ROUNDS / 4 && refused > ROUNDS / 8 && graph_launches > ROUNDS / 8);
}

/* A known call at addresses that are wrong is refused in the words of the first time, launches
 * nothing, and is still known at the right ones. */
static void addresses_are_checked(void **state) {
    (void)state;
    sample s = make(PF_FORWARD, PFATTN_DTYPE_F16, 64);
    const struct {
        int id;
        void *data;
        const char *message;
    } wrong[] = {
        {PF_K, NULL, "k: data is NULL but the tensor has 76800 elements"},
        {PF_V, (char *)s.args.v.data + 1, "must be aligned to the 2 bytes of one f16"},
        {PF_Q, (void *)(UINTPTR_MAX - 15), "q: strides [25600,6400,64,1] reach beyond the address"},
        {PF_O, s.args.k.data, "o: has the data pointer of k; an output must not overlap"},
        {PF_Q, s.args.lse.data, "lse: has the data pointer of q; an output must not overlap"},
    };
    pf_calls_forget(&handle->calls);
    assert_success(pfattn_forward(handle, &s.args, NULL, 0, NULL));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        pfattn_attention args = s.args;
        tensor_of(&args, wrong[i].id)->data = wrong[i].data;
        fake_reset(fake);
        assert_error(pfattn_forward(handle, &args, NULL, 0, NULL), PFATTN_ERROR_INVALID_ARGUMENT,
                     wrong[i].message);
        assert_int_equal(fake->call_count, 0);
        assert_success(pfattn_forward(handle, &s.args, NULL, 0, NULL));
        assert_int_equal(fake->encode_count, 0);
        assert_true(fake->launches[0].args.attention.operand[PF_OPERAND_Q].address ==
                    (uintptr_t)s.args.q.data);
    }
}

/* One more than a handle knows, over and over, and a handle that knows them all. */
static void the_oldest_is_forgotten(void **state) {
    (void)state;
    for (int count = PF_KNOWN_CALLS; count <= PF_KNOWN_CALLS + 1; count++) {
        pf_calls_forget(&handle->calls);
        for (int turn = 0; turn < 3; turn++) {
            for (int i = 0; i < count; i++) {
                static pfattn_attention args[PF_KNOWN_CALLS + 1];
                if (turn == 0) {
                    args[i] = make(PF_FORWARD, PFATTN_DTYPE_F16, 8 * (i + 1)).args;
                }
                fake_reset(fake);
                assert_success(pfattn_forward(handle, &args[i], NULL, 0, NULL));
                assert_int_equal(fake->encode_count, turn > 0 && count == PF_KNOWN_CALLS ? 0 : 4);
                assert_int_equal(fake->launches[0].args.attention.dim_qk, 8 * (i + 1));
            }
        }
    }
}

/* Where a map could not be encoded or given its address, the next call makes it. */
static void failures_are_not_kept(void **state) {
    (void)state;
    sample s = make(PF_FORWARD, PFATTN_DTYPE_F16, 64);
    const char *const calls[] = {"cuTensorMapEncodeTiled", "cuTensorMapReplaceAddress"};
    pf_calls_forget(&handle->calls);
    for (int i = 0; i < 2; i++) {
        fake_reset(fake);
        fake->fail_call = calls[i];
        fake->fail_result = CUDA_ERROR_UNKNOWN;
        fake->fail_after = 1;
        s.args.k.data = (char *)s.args.k.data + 16;
        assert_error(pfattn_forward(handle, &s.args, NULL, 0, NULL), PFATTN_ERROR_DRIVER, calls[i]);
        assert_int_equal(fake->launch_count, 0);
        assert_int_equal(compare(s.operation, &s.args, NULL, 0), PFATTN_SUCCESS);
    }
}

int main(int argc, char **argv) {
    if (argc < 2) {
        return 99;
    }
    fake = fake_open(argv[1]);
    handle = fake_handle(0);
    fresh = fake_handle(0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_calls_do_what_new_ones_do),
        cmocka_unit_test(addresses_are_checked),
        cmocka_unit_test(the_oldest_is_forgotten),
        cmocka_unit_test(failures_are_not_kept),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    pfattn_destroy(handle);
    pfattn_destroy(fresh);
    return failed;
}
