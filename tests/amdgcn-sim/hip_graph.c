/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events, capture and graphs. Work runs when it is submitted, so order is kept. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hip_stream.h"

struct sim_graph {
    struct sim_work *work;
    size_t count, capacity;
};

struct sim_stream {
    struct sim_graph *capture;
    bool broken;
};

struct sim_event {
    struct timespec time;
    bool recorded;
};

/* The one capture that may be under way; calls that would synchronise or allocate break it. */
static struct sim_stream *capturing;

bool sim_capture_forbids(void) {
    if (capturing)
        capturing->broken = true;
    return capturing != NULL;
}

/* --- work --- */

static hipError_t fill(const struct sim_work *work) {
    uint8_t *to = work->to;
    if (work->size && !sim_memory_live(to, work->size * work->width))
        return hipErrorInvalidValue;
    for (size_t i = 0; i < work->size; i++)
        memcpy(to + i * work->width, &work->value, work->width);
    return hipSuccess;
}

static hipError_t run(const struct sim_work *work) {
    switch (work->kind) {
    case WORK_LAUNCH:
        if (sim_run(&work->launch) == 0)
            return hipSuccess;
        sim_pending_set(hipErrorLaunchFailure);
        return hipErrorLaunchFailure;
    case WORK_COPY:
        memmove(work->to, work->from, work->size);
        return hipSuccess;
    case WORK_SET:
        return fill(work);
    default:
        clock_gettime(CLOCK_MONOTONIC, &work->event->time);
        work->event->recorded = true;
        return hipSuccess;
    }
}

static void release(const struct sim_work *work) {
    if (work->kind == WORK_LAUNCH)
        sim_memory_free((void *)(uintptr_t)work->launch.kernarg);
}

static hipError_t record(struct sim_graph *graph, const struct sim_work *work) {
    if (graph->count == graph->capacity) {
        size_t capacity = graph->capacity ? 2 * graph->capacity : 16;
        void *grown = realloc(graph->work, capacity * sizeof(*graph->work));
        if (!grown)
            return hipErrorOutOfMemory;
        graph->work = grown;
        graph->capacity = capacity;
    }
    graph->work[graph->count++] = *work;
    return hipSuccess;
}

hipError_t sim_submit(hipStream_t stream, struct sim_work *work) {
    if (stream && stream->capture)
        return record(stream->capture, work);
    hipError_t error = run(work);
    release(work);
    return error;
}

/* --- streams --- */

hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned flags, int priority) {
    (void)flags, (void)priority;
    if (!stream)
        return sim_error(hipErrorInvalidValue);
    *stream = calloc(1, sizeof(**stream));
    return sim_error(*stream ? hipSuccess : hipErrorOutOfMemory);
}
hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags) {
    return hipStreamCreateWithPriority(stream, flags, 0);
}
hipError_t hipStreamCreate(hipStream_t *stream) {
    return hipStreamCreateWithPriority(stream, 0, 0);
}
hipError_t hipStreamDestroy(hipStream_t stream) {
    if (!stream || stream->capture)
        return sim_error(hipErrorInvalidHandle);
    free(stream);
    return hipSuccess;
}
hipError_t hipStreamSynchronize(hipStream_t stream) {
    if (stream && stream->capture) {
        stream->broken = true;
        return sim_error(hipErrorStreamCaptureUnsupported);
    }
    return sim_error(sim_pending_take());
}
hipError_t hipStreamQuery(hipStream_t stream) {
    return hipStreamSynchronize(stream);
}
hipError_t hipStreamGetDevice(hipStream_t stream, hipDevice_t *device) {
    (void)stream;
    return hipGetDevice(device);
}
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
    (void)stream, (void)flags;
    return sim_error(event ? hipSuccess : hipErrorInvalidHandle);
}

/* --- events --- */

hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags) {
    (void)flags;
    if (!event)
        return sim_error(hipErrorInvalidValue);
    *event = calloc(1, sizeof(**event));
    return sim_error(*event ? hipSuccess : hipErrorOutOfMemory);
}
hipError_t hipEventCreate(hipEvent_t *event) {
    return hipEventCreateWithFlags(event, 0);
}
hipError_t hipEventDestroy(hipEvent_t event) {
    free(event);
    return sim_error(event ? hipSuccess : hipErrorInvalidHandle);
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
    struct sim_work work = {.kind = WORK_RECORD, .event = event};
    if (!event)
        return sim_error(hipErrorInvalidHandle);
    return sim_error(sim_submit(stream, &work));
}
hipError_t hipEventSynchronize(hipEvent_t event) {
    return sim_error(event ? sim_pending_take() : hipErrorInvalidHandle);
}
hipError_t hipEventQuery(hipEvent_t event) {
    return hipEventSynchronize(event);
}
hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t start, hipEvent_t stop) {
    if (!milliseconds || !start || !stop || !start->recorded || !stop->recorded)
        return sim_error(hipErrorInvalidHandle);
    double seconds = (double)(stop->time.tv_sec - start->time.tv_sec) +
                     1e-9 * (double)(stop->time.tv_nsec - start->time.tv_nsec);
    *milliseconds = (float)(1e3 * seconds);
    return hipSuccess;
}

/* --- capture and graphs --- */

hipError_t hipStreamBeginCapture(hipStream_t stream, int mode) {
    (void)mode;
    if (!stream || stream->capture || capturing)
        return sim_error(hipErrorIllegalState);
    stream->capture = calloc(1, sizeof(*stream->capture));
    stream->broken = false;
    if (!stream->capture)
        return sim_error(hipErrorOutOfMemory);
    capturing = stream;
    return hipSuccess;
}

hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph) {
    if (!stream || !stream->capture || !graph)
        return sim_error(hipErrorIllegalState);
    *graph = stream->capture;
    stream->capture = NULL;
    capturing = NULL;
    if (stream->broken) {
        hipGraphDestroy(*graph);
        *graph = NULL;
        return sim_error(hipErrorStreamCaptureInvalidated);
    }
    return hipSuccess;
}

hipError_t hipStreamIsCapturing(hipStream_t stream, int *status) {
    if (!status)
        return sim_error(hipErrorInvalidValue);
    *status = stream && stream->capture ? (stream->broken ? 2 : 1) : 0;
    return hipSuccess;
}

/* The executable graph has its own copies of the kernels' arguments. */
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *exec, hipGraph_t graph,
                                        unsigned long long flags) {
    (void)flags;
    if (!exec || !graph)
        return sim_error(hipErrorInvalidValue);
    *exec = calloc(1, sizeof(**exec));
    for (size_t i = 0; i < graph->count; i++) {
        struct sim_work work = graph->work[i];
        if (work.kind == WORK_LAUNCH) {
            size_t size = work.launch.kernel->kernarg_size;
            void *copy = sim_memory_alloc(size ? size : 1);
            memcpy(copy, work.launch.kernarg, size);
            work.launch.kernarg = copy;
        }
        record(*exec, &work);
    }
    return hipSuccess;
}
hipError_t hipGraphInstantiate(hipGraphExec_t *exec, hipGraph_t graph, void **node, char *log,
                               size_t size) {
    (void)node;
    if (log && size)
        log[0] = 0;
    return hipGraphInstantiateWithFlags(exec, graph, 0);
}

hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream) {
    hipError_t error = hipSuccess;
    if (!exec || (stream && stream->capture))
        return sim_error(hipErrorInvalidValue);
    for (size_t i = 0; i < exec->count && error == hipSuccess; i++)
        error = run(&exec->work[i]);
    return sim_error(error);
}

hipError_t hipGraphDestroy(hipGraph_t graph) {
    if (!graph)
        return sim_error(hipErrorInvalidValue);
    for (size_t i = 0; i < graph->count; i++)
        release(&graph->work[i]);
    free(graph->work);
    free(graph);
    return hipSuccess;
}
hipError_t hipGraphExecDestroy(hipGraphExec_t exec) {
    return hipGraphDestroy(exec);
}
