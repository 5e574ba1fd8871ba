/* SPDX-License-Identifier: Apache-2.0 */
#include "check_run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check_data.h"
#include "compare.h"
#include "oracle.h"
#include "random.h"
#include "tool.h"

enum { WORKSPACE_GUARD = 4096, GUARD_BYTE = 0x5a };

typedef struct check_state {
    tool_session *session;
    check_data data;
    oracle_slice *slices;
    int64_t slice_count;
    void *workspace[2];
    size_t workspace_bytes[2];
    unsigned char *after[PF_TENSOR_COUNT]; /* images as downloaded */
    check_result *result;
} check_state;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static bool
fail(check_state *state, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(state->result->message, sizeof state->result->message, format, arguments);
    va_end(arguments);
    state->result->verdict = VERDICT_FAILED;
    return false;
}

static bool fail_status(check_state *state, const char *what, pfattn_status status) {
    return fail(state, "%s: %s: %s", what, pfattn_status_string(status), pfattn_last_error());
}

static const char *stage_name(pf_operation operation) {
    static const char *const names[PF_OPERATION_COUNT] = {"forward", "jvp", "backward",
                                                          "backward-jvp", "merge"};
    return names[operation];
}

static void build_call(const check_state *state, int stage, tool_call *call) {
    pfattn_tensor views[PF_TENSOR_COUNT];
    const check_data *data = &state->data;
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        bool present = data->image[id].dtype != PFATTN_DTYPE_NONE;
        views[id] = image_view(&data->image[present ? data->stored_in[id] : (pf_tensor_id)id]);
    }
    call_scalars scalars = check_data_scalars(data);
    call_build(call, data->stages[stage], &scalars, views);
}

/* What the documentation leaves to the reference alone: f64, head dimensions above 256, and
 * derivatives of e5m2 problems. Any other refusal is a failure. */
static bool may_be_unsupported(const check_case *c) {
    return c->dtype == PFATTN_DTYPE_F64 || c->dim_qk > 256 || c->dim_v > 256 ||
           (c->dtype == PFATTN_DTYPE_E5M2 && c->op != CASE_FORWARD && c->op != CASE_MERGE);
}

static bool check_supported(check_state *state) {
    for (int i = 0; i < state->data.stage_count; i++) {
        tool_call call;
        build_call(state, i, &call);
        pfattn_status status = call_supported(state->session, &call);
        if (status == PFATTN_ERROR_UNSUPPORTED && may_be_unsupported(&state->data.c)) {
            snprintf(state->result->message, sizeof state->result->message, "%s",
                     pfattn_last_error());
            state->result->verdict = VERDICT_SKIPPED;
            return false;
        }
        if (status == PFATTN_ERROR_UNSUPPORTED) {
            return fail(state, "%s: refused though documented as supported: %s",
                        stage_name(call.operation), pfattn_last_error());
        }
        if (status != PFATTN_SUCCESS) {
            return fail_status(state, stage_name(call.operation), status);
        }
    }
    return true;
}

/* The whole problem, or `samples` of its (batch, key/value head) pairs, the first and the last
 * among them. */
static void choose_slices(check_state *state) {
    const check_case *c = &state->data.c;
    int64_t pairs = c->batch * c->kv_heads;
    state->slice_count = c->samples && c->samples < pairs ? c->samples : 1;
    state->slices = tool_allocate((size_t)state->slice_count * sizeof *state->slices);
    if (!c->samples || c->samples >= pairs) {
        state->slices[0].batches = c->batch;
        state->slices[0].kv_heads = c->kv_heads;
        return;
    }
    for (int64_t s = 0; s < state->slice_count; s++) {
        /* One pair out of each of equal ranges. */
        int64_t first = pairs * s / state->slice_count;
        int64_t range = pairs * (s + 1) / state->slice_count - first;
        int64_t pair =
            first + (int64_t)(random_bits(state->data.seed, (uint64_t)s) % (uint64_t)range);
        pair = s == 0 ? 0 : s == state->slice_count - 1 ? pairs - 1 : pair;
        oracle_slice *slice = &state->slices[s];
        slice->batch = pair / c->kv_heads;
        slice->kv_head = pair % c->kv_heads;
        slice->batches = slice->kv_heads = 1;
    }
}

/* The reference on every slice, for the stages from `first` to `last`. */
static bool run_oracle(check_state *state, bool naive, int first, int last) {
    oracle_request request = {.naive = naive,
                              .flush = !strncmp(state->session->info.arch, "gfx90a", 6),
                              .first_stage = first,
                              .last_stage = last,
                              .after = state->after};
    for (int64_t s = 0; s < state->slice_count; s++) {
        pfattn_status status = oracle_run(&state->data, &state->slices[s], &request);
        if (status != PFATTN_SUCCESS) {
            return fail_status(state, "reference", status);
        }
    }
    return true;
}

static double largest(const check_state *state, int id) {
    double result = 0;
    for (int64_t s = 0; s < state->slice_count; s++) {
        const double *values = state->slices[s].naive[id];
        for (int64_t i = 0; values && i < state->slices[s].count[id]; i++) {
            result = fmax(result, fabs(values[i]));
        }
    }
    return result;
}

/* A power of two by which the cotangents, and with them every gradient, are multiplied so that the
 * smallest gradient is of order 1. Gradients that are zero but for rounding do not count; f16 must
 * not overflow. */
static double cotangent_factor(const check_state *state, uint64_t gradients) {
    const check_case *c = &state->data.c;
    double least = INFINITY, most = 0, each[PF_TENSOR_COUNT] = {0};
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        each[id] = gradients >> id & 1 ? largest(state, id) : 0;
        most = fmax(most, each[id]);
    }
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        bool counts = each[id] > 1e-3 * most && !case_is_residual(c, (pf_tensor_id)id);
        least = counts ? fmin(least, each[id]) : least;
    }
    if (!(most > 3e-5)) { /* rounding alone: a softmax over single keys */
        return 1;
    }
    double bound = 0x1p20;
    if (c->dtype == PFATTN_DTYPE_F16 || c->grad_dtype == PFATTN_DTYPE_F16 ||
        c->bias == PFATTN_DTYPE_F16) {
        bound = 0x1p13 / fmax(most, 8 * sqrt((double)c->dim_v) * c->std);
    }
    return fmax(1, fmin(exp2(ceil(-log2(least))), exp2(floor(log2(bound)))));
}

static void scale_cotangents(check_state *state) {
    uint64_t gradients =
        (call_outputs(PF_BACKWARD) | call_outputs(PF_BACKWARD_JVP)) & state->data.outputs;
    if (gradients) {
        check_data_scale_cotangents(&state->data, cotangent_factor(state, gradients));
    }
}

static bool poison_workspace(check_state *state, int byte) {
    for (int i = 0; i < state->data.stage_count; i++) {
        size_t bytes = state->workspace_bytes[i];
        unsigned char *pattern = tool_allocate(bytes + WORKSPACE_GUARD);
        memset(pattern, byte, bytes);
        memset(pattern + bytes, GUARD_BYTE, WORKSPACE_GUARD);
        pfattn_status status =
            session_upload(state->session, state->workspace[i], pattern, bytes + WORKSPACE_GUARD);
        free(pattern);
        if (status != PFATTN_SUCCESS) {
            return fail_status(state, "upload of the workspace", status);
        }
    }
    return true;
}

static bool workspace_is_intact(check_state *state) {
    unsigned char guard[WORKSPACE_GUARD];
    for (int i = 0; i < state->data.stage_count; i++) {
        pfattn_status status =
            session_download(state->session, guard,
                             (char *)state->workspace[i] + state->workspace_bytes[i], sizeof guard);
        if (status != PFATTN_SUCCESS) {
            return fail_status(state, "download of the workspace", status);
        }
        for (size_t j = 0; j < sizeof guard; j++) {
            if (guard[j] != GUARD_BYTE) {
                return fail(state, "%s wrote past the end of its workspace of %zu bytes",
                            stage_name(state->data.stages[i]), state->workspace_bytes[i]);
            }
        }
    }
    return true;
}

static bool allocate(check_state *state) {
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        tensor_image *image = &state->data.image[id];
        if (image->dtype == PFATTN_DTYPE_NONE || state->data.stored_in[id] != (pf_tensor_id)id) {
            continue;
        }
        pfattn_status status =
            session_allocate(state->session, image_device_bytes(image), &image->device);
        if (status != PFATTN_SUCCESS) {
            image->device = NULL;
            return fail_status(state, pf_tensor_name((pf_tensor_id)id), status);
        }
    }
    for (int i = 0; i < state->data.stage_count; i++) {
        tool_call call;
        build_call(state, i, &call);
        pfattn_status status = call_workspace(state->session, &call, &state->workspace_bytes[i]);
        if (status == PFATTN_SUCCESS) {
            status = session_allocate(state->session, state->workspace_bytes[i] + WORKSPACE_GUARD,
                                      &state->workspace[i]);
        }
        if (status != PFATTN_SUCCESS) {
            return fail_status(state, "workspace", status);
        }
    }
    return true;
}

static bool upload(check_state *state, bool inputs) {
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        const tensor_image *image = &state->data.image[id];
        bool written = state->data.outputs >> id & 1 || state->data.c.inplace;
        if (!image->device || (!inputs && !written)) {
            continue;
        }
        pfattn_status status = image_upload(image, state->session);
        if (status != PFATTN_SUCCESS) {
            return fail_status(state, pf_tensor_name((pf_tensor_id)id), status);
        }
    }
    return true;
}

static bool launch(check_state *state) {
    for (int i = 0; i < state->data.stage_count; i++) {
        tool_call call;
        build_call(state, i, &call);
        pfattn_status status = call_launch(state->session, &call,
                                           state->workspace_bytes[i] ? state->workspace[i] : NULL,
                                           state->workspace_bytes[i]);
        if (status == PFATTN_SUCCESS) {
            status = session_synchronize(state->session);
        }
        if (status != PFATTN_SUCCESS) {
            return fail_status(state, stage_name(call.operation), status);
        }
    }
    return true;
}

/* Whether some output lives in this image. */
static bool holds_output(const check_data *data, int id) {
    for (int out = 0; out < PF_TENSOR_COUNT; out++) {
        if (data->outputs >> out & 1 && data->stored_in[out] == (pf_tensor_id)id) {
            return true;
        }
    }
    return false;
}

static bool download(check_state *state, unsigned char **to, bool inputs) {
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        const tensor_image *image = &state->data.image[id];
        if (!image->device || (!inputs && !holds_output(&state->data, id))) {
            continue;
        }
        if (!to[id]) {
            to[id] = tool_allocate(image_host_bytes(image));
        }
        pfattn_status status = image_download(image, state->session, to[id]);
        if (status != PFATTN_SUCCESS) {
            return fail_status(state, pf_tensor_name((pf_tensor_id)id), status);
        }
    }
    return true;
}

static bool guards_are_intact(check_state *state) {
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        const tensor_image *image = &state->data.image[id];
        bool output = holds_output(&state->data, id);
        if (image->device && !image_is_intact(image, state->after[id], output)) {
            return fail(state, "%s: memory %s was changed", pf_tensor_name((pf_tensor_id)id),
                        output ? "around or between its elements" : "of this input");
        }
    }
    return workspace_is_intact(state);
}

/* Largest exact value of any gradient. */
static double gradient_scale(const check_state *state) {
    uint64_t gradients =
        (call_outputs(PF_BACKWARD) | call_outputs(PF_BACKWARD_JVP)) & state->data.outputs;
    double scale = 0;
    for (int64_t s = 0; s < state->slice_count; s++) {
        const oracle_slice *slice = &state->slices[s];
        for (int id = 0; id < PF_TENSOR_COUNT; id++) {
            for (int64_t i = 0; gradients >> id & 1 && i < slice->count[id]; i++) {
                scale = fmax(scale, fabs(slice->exact[id][i]));
            }
        }
    }
    return scale;
}

static bool compare_output(check_state *state, pf_tensor_id id, comparison *sum) {
    /* Other gradients are sums over the queries or the keys themselves. Rounding adds like noise.
     */
    const check_case *c = &state->data.c;
    double summed =
        case_summed_scores(c, id) / (double)(c->queries > c->keys ? c->queries : c->keys);
    if (case_is_residual(c, id) || summed > 1) {
        sum->scale = gradient_scale(state) * sqrt(fmax(1, summed));
    }
    if ((call_outputs(PF_BACKWARD) | call_outputs(PF_BACKWARD_JVP)) >> id & 1) {
        sum->few = case_scores(c) < COMPARE_MANY;
    }
    pf_tensor_id stored = state->data.stored_in[id];
    for (int64_t s = 0; s < state->slice_count; s++) {
        oracle_slice *slice = &state->slices[s];
        double *tested;
        int64_t count = oracle_slice_read(&state->data, slice, id, &state->data.image[stored],
                                          state->after[stored], &tested);
        compared values = {.tested = tested,
                           .naive = slice->naive[id],
                           .exact = slice->exact[id],
                           .expected = state->data.expected[id],
                           .count = count,
                           .dtype = state->data.image[id].dtype};
        comparison_add(sum, &values);
        free(tested);
    }
    double ratio;
    char reason[256];
    bool tight =
        state->data.c.dtype == PFATTN_DTYPE_F64 && state->data.image[id].dtype == PFATTN_DTYPE_F64;
    bool passes = comparison_passes(sum, tight, &ratio, reason, sizeof reason);
    state->result->ratio = fmax(state->result->ratio, ratio);
    return passes || fail(state, "%s: %s", pf_tensor_name(id), reason);
}

static double dot(const double *a, const double *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* <dO, tO> + <dL, tL> = <dq, tq> + <dk, tk> + <dv, tv> + <dbias, tbias> + ..., up to what the norm
 * bounds of the results allow. */
static bool check_duality(check_state *state, const comparison *sums) {
    static const pf_tensor_id pairs[][2] = {
        {PF_DOUT, PF_TO}, {PF_DLSE, PF_TLSE},   {PF_TQ, PF_DQ},   {PF_TK, PF_DK},
        {PF_TV, PF_DV},   {PF_TBIAS, PF_DBIAS}, {PF_TQ2, PF_DQ2}, {PF_TK2, PF_DK2},
    };
    double sides[2] = {0, 0}, allowed = 0;
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        pf_tensor_id given = pairs[p][0], result = pairs[p][1];
        const tensor_image *images = state->data.image;
        if (!images[given].dtype || !images[result].dtype) {
            continue;
        }
        double *a, *b;
        int64_t count = oracle_slice_read(&state->data, &state->slices[0], given, &images[given],
                                          images[given].bytes, &a);
        oracle_slice_read(&state->data, &state->slices[0], result, &images[result],
                          state->after[result], &b);
        sides[p >= 2] += dot(a, b, count);
        allowed += sqrt(dot(a, a, count)) *
                   (4 * sqrt(sums[result].square_naive) + 1e-6 * sqrt(sums[result].square_exact));
        free(a);
        free(b);
    }
    double error = fabs(sides[0] - sides[1]);
    state->result->ratio = fmax(state->result->ratio, allowed > 0 ? error / allowed : 0);
    return error <= allowed ||
           fail(state,
                "duality: <dO,tO> + <dL,tL> = %.9g but the gradients give %.9g; %.3g allowed",
                sides[0], sides[1], allowed);
}

static bool compare_all(check_state *state) {
    comparison sums[PF_TENSOR_COUNT];
    memset(sums, 0, sizeof sums);
    bool passed = true;
    for (int id = 0; id < PF_TENSOR_COUNT && passed; id++) {
        if (state->data.outputs >> id & 1) {
            passed = compare_output(state, (pf_tensor_id)id, &sums[id]);
        }
    }
    if (passed && state->data.c.op == CASE_DUALITY && !state->data.c.samples) {
        passed = check_duality(state, sums);
    }
    return passed;
}

/* Run again on the same inputs, with other leftovers in the workspace: the results of forward, and
 * of backward where `deterministic`, must have the same bits. */
static bool repeat(check_state *state) {
    uint64_t gradients = call_outputs(PF_BACKWARD) | call_outputs(PF_BACKWARD_JVP);
    unsigned char *again[PF_TENSOR_COUNT] = {NULL};
    bool passed = true;
    for (int64_t run = 0; run < state->data.c.repeat && passed; run++) {
        passed = upload(state, false) && poison_workspace(state, (int)(run * 37 % 256)) &&
                 launch(state) && download(state, again, false);
        for (int id = 0; id < PF_TENSOR_COUNT && passed; id++) {
            bool repeatable = !(gradients >> id & 1) || state->data.c.deterministic;
            if (again[id] && repeatable &&
                memcmp(again[id], state->after[id], image_host_bytes(&state->data.image[id]))) {
                passed = fail(state, "%s: run %lld differs in bits from the first",
                              pf_tensor_name((pf_tensor_id)id), (long long)run + 2);
            }
        }
    }
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        free(again[id]);
    }
    return passed;
}

static bool run_device(check_state *state) {
    return allocate(state) && upload(state, true) && poison_workspace(state, 0xff) &&
           launch(state) && download(state, state->after, true) && guards_are_intact(state);
}

/* A backward is compared on the inputs it had, among them the o and lse that the tested forward
 * wrote; the forward is compared by itself. */
static void judge(check_state *state) {
    int last = state->data.stage_count - 1;
    if (!check_supported(state)) {
        return;
    }
    choose_slices(state);
    if (!run_oracle(state, true, 0, last) || !run_oracle(state, false, 0, 0)) {
        return;
    }
    scale_cotangents(state);
    check_data_spoil(&state->data);
    if (!run_device(state)) {
        return;
    }
    check_data_restore(&state->data);
    if (last > 0 &&
        (!run_oracle(state, true, last, last) || !run_oracle(state, false, last, last))) {
        return;
    }
    if (compare_all(state)) {
        repeat(state);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void check_run(tool_session *session, const check_case *c, uint64_t seed, check_result *result) {
    check_state state = {.session = session, .result = result};
    double start = now();
    memset(result, 0, sizeof *result);
    result->verdict = VERDICT_PASSED;
    check_data_create(&state.data, c, seed);
    judge(&state);
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        session_release(session, state.data.image[id].device);
        free(state.after[id]);
    }
    for (int i = 0; i < 2; i++) {
        session_release(session, state.workspace[i]);
    }
    for (int64_t s = 0; s < state.slice_count; s++) {
        oracle_slice_free(&state.slices[s]);
    }
    free(state.slices);
    check_data_free(&state.data);
    result->seconds = now() - start;
}
