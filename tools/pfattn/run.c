/* SPDX-License-Identifier: Apache-2.0 */
/* `pfattn run`: one operation on .npy files. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "call.h"
#include "formats.h"
#include "json.h"
#include "run_tensors.h"
#include "tool.h"

static run_request request;
static const char *layout, *diagonal, *dtype, *bias_dtype, *directory, *backend = "auto";
static double scale;
static int64_t distance, device;
static bool causal, deterministic, as_json, has_scale, has_distance;

#define INPUT(id, name, help)                                                                      \
    { name, "FILE", ARG_TEXT, &request.path[PF_##id], NULL, help }

static const arg_option options[] = {
    {NULL, NULL, ARG_HEADING, NULL, NULL, "Inputs, one .npy file each:"},
    INPUT(Q, "q", "queries [B,H,M,D]"),
    INPUT(K, "k", "keys [B,Hk,N,D]; Hk divides H"),
    INPUT(V, "v", "values [B,Hk,N,E]"),
    {"qkv", "FILE", ARG_TEXT, &request.qkv, NULL,
     "q, k and v in one array [B,S,3,H,D]; sets --layout bshd unless that is given"},
    INPUT(BIAS, "bias", "added to the scores, [1|B,1|H,1|M,1|N]; -inf excludes the pair"),
    INPUT(MASK, "mask", "b1, u1 or i8, [1|B,1|H,1|M,1|N]; non-zero = attend"),
    INPUT(Q2, "q2", "with --k2, the queries used at distances >= --distance"),
    INPUT(K2, "k2", "the keys used at distances >= --distance"),
    INPUT(TQ, "tq", "tangent of q (jvp, backward-jvp); an absent tangent is zero"),
    INPUT(TK, "tk", "tangent of k"),
    INPUT(TV, "tv", "tangent of v"),
    INPUT(TBIAS, "tbias", "tangent of the bias"),
    INPUT(TQ2, "tq2", "tangent of q2"),
    INPUT(TK2, "tk2", "tangent of k2"),
    INPUT(DOUT, "do", "cotangent of o [B,H,M,E] (backward, backward-jvp)"),
    INPUT(DLSE, "dlse", "cotangent of lse [B,H,M]; absent = zero"),
    INPUT(TDOUT, "tdo", "tangent of do (backward-jvp); absent = zero"),
    INPUT(O0, "o0", "merge: o of part 0"),
    INPUT(LSE0, "lse0", "merge: lse of part 0"),
    INPUT(O1, "o1", "merge: o of part 1"),
    INPUT(LSE1, "lse1", "merge: lse of part 1"),
    INPUT(TO0, "to0", "merge: tangent of o0; all four tangents or none"),
    INPUT(TLSE0, "tlse0", "merge: tangent of lse0"),
    INPUT(TO1, "to1", "merge: tangent of o1"),
    INPUT(TLSE1, "tlse1", "merge: tangent of lse1"),
    {NULL, NULL, ARG_HEADING, NULL, NULL, "The problem:"},
    {"layout", "bhsd|bshd", ARG_TEXT, &layout, NULL,
     "order of the dimensions in the files; default bhsd"},
    {"causal", NULL, ARG_FLAG, &causal, NULL, "query i sees key j only where j <= i + diagonal"},
    {"diagonal", "bottom-right|top-left|DIAG", ARG_TEXT, &diagonal, NULL,
     "key position of query 0: N - M (bottom-right, the default),\n0 (top-left), or DIAG"},
    {"scale", "X", ARG_NUMBER, &scale, &has_scale, "scale of the dot products; default 1/sqrt(D)"},
    {"distance", "W", ARG_INTEGER, &distance, &has_distance,
     "pair q2, k2 is used where i + diagonal - j >= W"},
    {NULL, NULL, ARG_HEADING, NULL, NULL, "How it is computed:"},
    {"dtype", "f16|bf16|f32|f64|e5m2", ARG_TEXT, &dtype, NULL,
     "q, k, v, their tangents, do and tdo are rounded to it;\n"
     "default: the type of q's file (f8 files give f64, which only ref computes)"},
    {"bias-dtype", "f16|bf16|f32", ARG_TEXT, &bias_dtype, NULL,
     "the bias and its tangent are rounded to it; default: the type of\n"
     "their file, f8 as f32 (but f64 where the rest is f64)"},
    {"deterministic", NULL, ARG_FLAG, &deterministic, NULL, "bitwise repeatable backward"},
    {"backend", "auto|ref|cuda|hip", ARG_TEXT, &backend, NULL,
     "default auto: a working GPU backend, else ref"},
    {"device", "N", ARG_INTEGER, &device, NULL, "index among the backend's devices; default 0"},
    {NULL, NULL, ARG_HEADING, NULL, NULL, "Results:"},
    {"out", "DIR", ARG_TEXT, &directory, NULL,
     "write each result to DIR/NAME.npy, as f32 (f64 with f64);\nwithout it only the summary is "
     "printed"},
    {"json", NULL, ARG_FLAG, &as_json, NULL, "print the summary as JSON"},
};

/* The calls an operation takes, in order. */
typedef struct run_stage {
    const char *name;
    pf_operation operations[2];
    int count;
} run_stage;

static const run_stage operations[] = {
    {"forward", {PF_FORWARD}, 1},
    {"jvp", {PF_FORWARD_JVP}, 1},
    {"backward", {PF_FORWARD, PF_BACKWARD}, 2},
    {"backward-jvp", {PF_FORWARD_JVP, PF_BACKWARD_JVP}, 2},
    {"merge", {PF_MERGE}, 1},
};

static const run_stage *find_operation(const char *name) {
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (!strcmp(name, operations[i].name)) {
            return &operations[i];
        }
    }
    return NULL;
}

static bool parse_dtype(const char *option, const char *text, const char *allowed,
                        pfattn_dtype *value) {
    for (int id = PFATTN_DTYPE_F16; id <= PFATTN_DTYPE_E5M2; id++) {
        const char *name = pfattn_dtype_string((pfattn_dtype)id);
        if (!strcmp(text, name) && strstr(allowed, name)) {
            *value = (pfattn_dtype)id;
            return true;
        }
    }
    tool_error(TOOL_USAGE, "--%s: '%s' is none of %s", option, text, allowed);
    return false;
}

static int parse_choices(call_scalars *scalars, pfattn_backend *chosen) {
    request.bshd = request.qkv != NULL;
    if (layout) {
        request.bshd = !strcmp(layout, "bshd");
        if (!request.bshd && strcmp(layout, "bhsd")) {
            return tool_error(TOOL_USAGE, "--layout: '%s' is neither bhsd nor bshd", layout);
        }
    }
    if (dtype && !parse_dtype("dtype", dtype, "f16, bf16, f32, f64, e5m2", &request.dtype)) {
        return TOOL_USAGE;
    }
    if (bias_dtype &&
        !parse_dtype("bias-dtype", bias_dtype, "f16, bf16, f32", &request.bias_dtype)) {
        return TOOL_USAGE;
    }
    scalars->flags = (causal ? PFATTN_FLAG_CAUSAL : 0) | (has_scale ? PFATTN_FLAG_ALPHA : 0) |
                     (deterministic ? PFATTN_FLAG_DETERMINISTIC : 0);
    scalars->alpha = scale;
    scalars->distance = distance;
    if (diagonal && strcmp(diagonal, "bottom-right")) {
        scalars->flags |= PFATTN_FLAG_DIAGONAL;
        if (strcmp(diagonal, "top-left") && !args_to_integer(diagonal, &scalars->diagonal)) {
            return tool_error(TOOL_USAGE,
                              "--diagonal: '%s' is neither bottom-right, top-left nor an integer",
                              diagonal);
        }
    }
    return session_parse_backend(backend, chosen) ? TOOL_DONE : TOOL_USAGE;
}

static uint64_t given_inputs(void) {
    uint64_t given = request.qkv ? TENSOR_BIT(PF_Q) | TENSOR_BIT(PF_K) | TENSOR_BIT(PF_V) : 0;
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        given |= request.path[id] ? TENSOR_BIT(id) : 0;
    }
    return given;
}

/* Which files this operation needs, and which it does not know. */
static int check_inputs(const run_stage *stage) {
    pf_operation last = stage->operations[stage->count - 1];
    if (request.qkv && (request.path[PF_Q] || request.path[PF_K] || request.path[PF_V])) {
        return tool_error(TOOL_USAGE, "--qkv replaces --q, --k and --v: give one or the other");
    }
    uint64_t given = given_inputs();
    uint64_t needed = TENSOR_BIT(PF_Q) | TENSOR_BIT(PF_K) | TENSOR_BIT(PF_V);
    if (last == PF_MERGE) {
        needed = TENSOR_BIT(PF_O0) | TENSOR_BIT(PF_LSE0) | TENSOR_BIT(PF_O1) | TENSOR_BIT(PF_LSE1);
    } else if (last == PF_BACKWARD || last == PF_BACKWARD_JVP) {
        needed |= TENSOR_BIT(PF_DOUT);
    }
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        if ((given & ~call_inputs(last)) >> id & 1) {
            return tool_error(TOOL_USAGE, "--%s is no input of %s",
                              id == PF_Q && request.qkv ? "qkv" : run_tensor_name((pf_tensor_id)id),
                              stage->name);
        }
        if ((needed & ~given) >> id & 1) {
            return tool_error(TOOL_USAGE, "%s needs --%s", stage->name,
                              run_tensor_name((pf_tensor_id)id));
        }
    }
    bool pair = request.path[PF_Q2] || request.path[PF_K2];
    if (pair && !has_distance) {
        return tool_error(TOOL_USAGE, "--distance is needed with --q2 and --k2");
    }
    if (has_distance && !pair) {
        return tool_error(TOOL_USAGE, "--distance has a meaning only with --q2 and --k2");
    }
    return TOOL_DONE;
}

/* Every result the stages have, given the inputs. */
static uint64_t wanted_outputs(const run_stage *stage) {
    uint64_t given = given_inputs(), outputs = 0;
    for (int i = 0; i < stage->count; i++) {
        outputs |= call_outputs(stage->operations[i]);
    }
    for (int i = 0; i < PF_TENSOR_COUNT; i++) {
        pf_tensor_id primal = call_primal((pf_tensor_id)i);
        bool optional = primal == PF_BIAS || primal == PF_Q2 || primal == PF_K2;
        if (optional && !(given >> primal & 1)) {
            outputs &= ~TENSOR_BIT(i);
        }
    }
    if (stage->operations[0] == PF_MERGE && !request.path[PF_TO0]) {
        outputs &= ~(TENSOR_BIT(PF_TO) | TENSOR_BIT(PF_TLSE));
    }
    return outputs;
}

static pfattn_status upload(tool_session *session, run_tensors *tensors, uint64_t outputs) {
    pfattn_status status = PFATTN_SUCCESS;
    for (int id = 0; id < PF_TENSOR_COUNT && status == PFATTN_SUCCESS; id++) {
        run_buffer *buffer = &tensors->buffer[id];
        if (!buffer->host) {
            continue;
        }
        status = session_allocate(session, buffer->bytes + 1, &buffer->device);
        if (status == PFATTN_SUCCESS && !(outputs >> id & 1)) {
            status = session_upload(session, buffer->device, buffer->host, buffer->bytes);
        }
    }
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        if (tensors->tensor[id].dtype != PFATTN_DTYPE_NONE) {
            char *base = tensors->buffer[tensors->buffer_of[id]].device;
            tensors->tensor[id].data = base ? base + tensors->offset[id] : NULL;
        }
    }
    return status;
}

static pfattn_status run_call(tool_session *session, const tool_call *call, double *seconds) {
    size_t bytes = 0;
    void *workspace = NULL;
    pfattn_status status = call_supported(session, call);
    if (status == PFATTN_SUCCESS) {
        status = call_workspace(session, call, &bytes);
    }
    if (status == PFATTN_SUCCESS && bytes) {
        status = session_allocate(session, bytes, &workspace);
    }
    const pf_memory_ops *memory = session->backend->memory;
    if (status == PFATTN_SUCCESS) {
        status = memory->timer_start(session->device);
    }
    if (status == PFATTN_SUCCESS) {
        status = call_launch(session, call, workspace, bytes);
    }
    if (status == PFATTN_SUCCESS) {
        status = memory->timer_stop(session->device, seconds);
    }
    session_release(session, workspace);
    return status;
}

static pfattn_status compute(tool_session *session, const run_stage *stage,
                             const call_scalars *scalars, run_tensors *tensors, uint64_t outputs,
                             double seconds[2]) {
    pfattn_status status = upload(session, tensors, outputs);
    for (int i = 0; i < stage->count && status == PFATTN_SUCCESS; i++) {
        tool_call call;
        call_build(&call, stage->operations[i], scalars, tensors->tensor);
        status = run_call(session, &call, &seconds[i]);
    }
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        run_buffer *buffer = &tensors->buffer[id];
        if (status == PFATTN_SUCCESS && outputs >> id & 1) {
            status = session_download(session, buffer->host, buffer->device, buffer->bytes);
        }
    }
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        session_release(session, tensors->buffer[id].device);
    }
    return status;
}

typedef struct summary {
    double min, max, mean;
    int64_t nonfinite;
} summary;

/* Minimum, maximum and mean are of the finite elements. */
static summary summarise(const run_tensors *tensors, int id) {
    summary result = {INFINITY, -INFINITY, 0, 0};
    pfattn_dtype type = tensors->tensor[id].dtype;
    int64_t count = (int64_t)(tensors->buffer[id].bytes / pfattn_dtype_size(type));
    for (int64_t i = 0; i < count; i++) {
        double value = pf_load(tensors->buffer[id].host, type, i);
        if (!isfinite(value)) {
            result.nonfinite++;
            continue;
        }
        result.min = fmin(result.min, value);
        result.max = fmax(result.max, value);
        result.mean += value;
    }
    if (count == result.nonfinite) {
        result.min = result.max = result.mean = NAN;
    } else {
        result.mean /= (double)(count - result.nonfinite);
    }
    return result;
}

static void print_text(const tool_session *session, const run_stage *stage,
                       const run_tensors *tensors, uint64_t outputs, const double seconds[2]) {
    printf("%s, %s, %s\n", stage->name, pfattn_dtype_string(tensors->dtype),
           session_describe(session));
    printf("%-7s %-22s %13s %13s %13s %10s\n", "output", "shape", "min", "max", "mean",
           "non-finite");
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        if (!(outputs >> id & 1)) {
            continue;
        }
        char shape[96] = "[";
        for (int i = 0; i < tensors->ndim[id]; i++) {
            size_t used = strlen(shape);
            snprintf(shape + used, sizeof shape - used, "%s%lld", i ? "," : "",
                     (long long)tensors->file_shape[id][i]);
        }
        summary s = summarise(tensors, id);
        printf("%-7s %s]%*s %13.6g %13.6g %13.6g %10lld\n", run_tensor_name((pf_tensor_id)id),
               shape, (int)(21 - (int)strlen(shape) > 0 ? 21 - strlen(shape) : 0), "", s.min, s.max,
               s.mean, (long long)s.nonfinite);
    }
    for (int i = 0; i < stage->count; i++) {
        static const char *const names[] = {"forward", "jvp", "backward", "backward-jvp", "merge"};
        printf("time    %s %.6f ms\n", names[stage->operations[i]], seconds[i] * 1e3);
    }
}

static void print_json(const tool_session *session, const run_stage *stage,
                       const run_tensors *tensors, uint64_t outputs, const double seconds[2]) {
    json writer = {.out = stdout};
    json_object(&writer, NULL);
    json_text(&writer, "operation", stage->name);
    json_text(&writer, "backend", session->backend->name);
    json_text(&writer, "device", session->info.name);
    json_text(&writer, "dtype", pfattn_dtype_string(tensors->dtype));
    json_number(&writer, "seconds", seconds[stage->count - 1]);
    if (stage->count > 1) {
        json_number(&writer, "forward_seconds", seconds[0]);
    }
    json_array(&writer, "outputs");
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        if (!(outputs >> id & 1)) {
            continue;
        }
        summary s = summarise(tensors, id);
        json_object(&writer, NULL);
        json_text(&writer, "name", run_tensor_name((pf_tensor_id)id));
        json_array(&writer, "shape");
        for (int i = 0; i < tensors->ndim[id]; i++) {
            json_integer(&writer, NULL, tensors->file_shape[id][i]);
        }
        json_close_array(&writer);
        json_number(&writer, "min", s.min);
        json_number(&writer, "max", s.max);
        json_number(&writer, "mean", s.mean);
        json_integer(&writer, "nonfinite", s.nonfinite);
        json_close_object(&writer);
    }
    json_close_array(&writer);
    json_close_object(&writer);
}

static int run_operation(const run_stage *stage, const call_scalars *scalars,
                         pfattn_backend chosen) {
    run_tensors tensors;
    int code = run_tensors_read(&request, &tensors);
    if (code != TOOL_DONE) {
        return code;
    }
    uint64_t outputs = wanted_outputs(stage);
    tool_session session;
    double seconds[2] = {0, 0};
    code = run_tensors_add_outputs(&request, &tensors, outputs);
    if (code == TOOL_DONE) {
        code = session_open(&session, chosen, device);
    }
    if (code == TOOL_DONE) {
        pfattn_status status = compute(&session, stage, scalars, &tensors, outputs, seconds);
        code = status == PFATTN_SUCCESS ? TOOL_DONE : tool_library_error(status);
        if (code == TOOL_DONE && directory) {
            code = run_tensors_write(&tensors, outputs, directory);
        }
        if (code == TOOL_DONE) {
            (as_json ? print_json : print_text)(&session, stage, &tensors, outputs, seconds);
        }
        session_close(&session);
    }
    run_tensors_free(&tensors);
    return code;
}

int run_main(int argc, char **argv) {
    const char *word = NULL;
    arg_command command = {
        .usage = "pfattn run forward|jvp|backward|backward-jvp|merge [OPTION]...",
        .summary =
            "Compute one operation on NumPy .npy files.\n"
            "  forward       o = softmax(scale q k^T + bias) v, and lse, the log-sum-exp\n"
            "  jvp           forward, and the tangents to, tlse along tq, tk, tv, tbias\n"
            "  backward      forward, then the gradients dq, dk, dv, dbias for do and dlse\n"
            "  backward-jvp  jvp, then the tangents tdq, tdk, tdv, tdbias of those gradients\n"
            "  merge         combine results over two disjoint sets of keys",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .words = &word,
        .most_words = 1,
    };
    int code = args_parse(&command, argc, argv);
    if (code >= 0) {
        return code;
    }
    if (!word) {
        return tool_error(TOOL_USAGE, "run needs an operation: forward, jvp, backward, "
                                      "backward-jvp or merge");
    }
    const run_stage *stage = find_operation(word);
    if (!stage) {
        return tool_error(TOOL_USAGE,
                          "unknown operation '%s'; the operations are forward, jvp, backward, "
                          "backward-jvp, merge",
                          word);
    }
    call_scalars scalars = {0};
    pfattn_backend chosen;
    code = parse_choices(&scalars, &chosen);
    if (code == TOOL_DONE) {
        code = check_inputs(stage);
    }
    return code == TOOL_DONE ? run_operation(stage, &scalars, chosen) : code;
}
