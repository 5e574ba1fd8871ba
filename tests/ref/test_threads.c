/* SPDX-License-Identifier: Apache-2.0 */
/* The number of threads changes no bit, nor do a second run, a handle, or a neighbour. */
#include <pthread.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "harness.h"

static spec large(pfattn_dtype dtype) {
    return (spec){.dtype = dtype,
                  .result_dtype = dtype,
                  .bias_dtype = PFATTN_DTYPE_F32,
                  .B = 2,
                  .H = 4,
                  .Hk = 2,
                  .M = 150,
                  .N = 170,
                  .D = 24,
                  .E = 16,
                  .causal = true,
                  .piecewise = true,
                  .distance = 40,
                  .bias = {1, 4, 1, 170},
                  .mask = {2, 1, 150, 170}};
}

static void expect_same_bits(pfattn_attention *a, double *const *want) {
    for (int id = PF_O; id < PF_O0; id++) {
        const pfattn_tensor *x = tensor_at(a, id);
        for (int64_t n = 0; n < element_count(x); n++) {
            const double got = get_nth(x, n);
            if (memcmp(&got, &want[id][n], sizeof got) != 0) {
                fail_msg("%s: element %lld is %.17g, was %.17g", pf_tensor_name((pf_tensor_id)id),
                         (long long)n, got, want[id][n]);
            }
        }
    }
}

static void check_threads(pfattn_dtype dtype) {
    const spec s = large(dtype);
    pfattn_attention a = new_problem(&s);
    double *want[PF_O0];
#ifdef _OPENMP
    const int usual = omp_get_max_threads();
    omp_set_num_threads(1);
#endif
    run_everything(&a);
    for (int id = PF_O; id < PF_O0; id++) {
        want[id] = copy_of(tensor_at(&a, id));
    }
    for (int threads = 1; threads <= 5; threads++) {
#ifdef _OPENMP
        omp_set_num_threads(threads);
#endif
        run_everything(&a);
        expect_same_bits(&a, want);
    }
#ifdef _OPENMP
    omp_set_num_threads(usual);
#endif
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    check_threads(PFATTN_DTYPE_F32);
    check_threads(PFATTN_DTYPE_F16);
}

/* One thread of the program, with a handle of its own. */
typedef struct caller {
    pfattn_attention a;
    pfattn_status status;
} caller;

static void *call(void *argument) {
    caller *c = argument;
    pfattn_handle_options options = PFATTN_HANDLE_OPTIONS_INIT;
    options.backend = PFATTN_BACKEND_REF;
    pfattn_handle handle;
    c->status = pfattn_create(&options, &handle);
    if (c->status != PFATTN_SUCCESS) {
        return NULL;
    }
    const pfattn_attention forward = for_operation(PF_FORWARD_JVP, &c->a);
    const pfattn_attention backward = for_operation(PF_BACKWARD, &c->a);
    const pfattn_attention second = for_operation(PF_BACKWARD_JVP, &c->a);
    for (int n = 0; n < 3 && c->status == PFATTN_SUCCESS; n++) {
        c->status = pfattn_forward(handle, &forward, NULL, 0, NULL);
    }
    if (c->status == PFATTN_SUCCESS) {
        c->status = pfattn_backward(handle, &backward, NULL, 0, NULL);
    }
    if (c->status == PFATTN_SUCCESS) {
        c->status = pfattn_backward_jvp(handle, &second, NULL, 0, NULL);
    }
    pfattn_destroy(handle);
    return NULL;
}

/* They share their inputs and write outputs of their own. */
static void handles_in_several_threads_do_not_disturb_each_other(void **state) {
    (void)state;
    const spec s = large(PFATTN_DTYPE_F32);
    caller callers[3];
    double *want[PF_O0];
    pfattn_attention alone = new_problem(&s);
    run_everything(&alone);
    for (int id = PF_O; id < PF_O0; id++) {
        want[id] = copy_of(tensor_at(&alone, id));
    }
    pthread_t threads[3];
    for (int n = 0; n < 3; n++) {
        const pfattn_attention own = new_problem(&s);
        callers[n].a = alone;
        for (int id = PF_O; id < PF_O0; id++) {
            pfattn_attention from = own;
            if (id < PF_DOUT || id > PF_TDOUT) {
                *tensor_at(&callers[n].a, id) = *tensor_at(&from, id);
            }
        }
        assert_int_equal(pthread_create(&threads[n], NULL, call, &callers[n]), 0);
    }
    for (int n = 0; n < 3; n++) {
        assert_int_equal(pthread_join(threads[n], NULL), 0);
        assert_int_equal(callers[n].status, PFATTN_SUCCESS);
        expect_same_bits(&callers[n].a, want);
    }
}

static void the_backend_takes_no_stream(void **state) {
    (void)state;
    const spec s = {.B = 1, .H = 1, .Hk = 1, .M = 1, .N = 1, .D = 1, .E = 1};
    const pfattn_attention all = new_problem(&s), a = for_operation(PF_FORWARD, &all);
    pfattn_handle_options options = PFATTN_HANDLE_OPTIONS_INIT;
    options.backend = PFATTN_BACKEND_REF;
    pfattn_handle handle;
    int stream = 0;
    assert_int_equal(pfattn_create(&options, &handle), PFATTN_SUCCESS);
    assert_int_equal(pfattn_forward(handle, &a, NULL, 0, &stream), PFATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(pfattn_last_error(), "stream"));
    assert_true(isnan(get_nth(&a.o, 0)));
    size_t bytes = 99;
    assert_int_equal(pfattn_workspace_size(handle, PFATTN_FORWARD, &a, &bytes), PFATTN_SUCCESS);
    assert_int_equal(bytes, 0);
    assert_int_equal(pfattn_supported(handle, PFATTN_FORWARD, &a), PFATTN_SUCCESS);
    pfattn_destroy(handle);
}

static void memory_of_the_backend_is_host_memory(void **state) {
    (void)state;
    const pf_memory_ops *memory = pf_backend_ref.memory;
    pf_device *device;
    void *block;
    double seconds = -1;
    char back[4] = "";
    assert_int_equal(pf_backend_ref.device_open(0, &device), PFATTN_SUCCESS);
    assert_int_equal(memory->allocate(device, 0, &block), PFATTN_SUCCESS);
    memory->release(device, block);
    assert_int_equal(memory->allocate(device, SIZE_MAX / 2, &block), PFATTN_ERROR_OUT_OF_MEMORY);
    assert_int_equal(memory->allocate(device, 4, &block), PFATTN_SUCCESS);
    assert_int_equal(memory->timer_start(device), PFATTN_SUCCESS);
    assert_int_equal(memory->upload(device, block, "abc", 4), PFATTN_SUCCESS);
    assert_int_equal(memory->synchronize(device), PFATTN_SUCCESS);
    assert_int_equal(memory->download(device, back, block, 4), PFATTN_SUCCESS);
    assert_int_equal(memory->timer_stop(device, &seconds), PFATTN_SUCCESS);
    assert_string_equal(back, "abc");
    assert_true(seconds >= 0);
    memory->release(device, block);
    pf_backend_ref.device_close(device);
    assert_int_equal(pf_backend_ref.device_open(1, &device), PFATTN_ERROR_UNAVAILABLE);
}

#define TEST(name) cmocka_unit_test_teardown(name, free_tensors_after)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(any_number_of_threads_gives_the_same_bits),
        TEST(handles_in_several_threads_do_not_disturb_each_other),
        TEST(the_backend_takes_no_stream),
        TEST(memory_of_the_backend_is_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
