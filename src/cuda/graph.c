/* SPDX-License-Identifier: Apache-2.0 */
#include "graph.h"

#include <limits.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/status.h"

/* How many calls in a row on another stream move a graph there. Each move doubles it, so that what
 * moves cost is little beside what the calls do. */
enum { PATIENCE = 8, MOST_PATIENCE = INT_MAX / 2 };

struct pf_call_graph {
    CUgraph graph;
    CUgraphNode node[PF_STEP_MAX];
    CUgraphExec executable; /* NULL where it could not be made */
    CUstream stream;        /* that it is for */
    bool outdated;          /* its nodes have other arguments than the call */
    CUstream other;         /* where the call was last, if not there */
    int others;             /* how often in a row */
    int patience;
};

/* ---- nodes --------------------------------------------------------------------------------- */

typedef CUresult use_parameters(const pf_cuda_driver *driver, pf_call_graph *graph, int node,
                                const CUDA_KERNEL_NODE_PARAMS *parameters);

typedef struct node_walk {
    pf_device *device;
    pf_call_graph *graph;
    use_parameters *use;
    const char *name; /* of the driver's function */
    int node;
} node_walk;

static CUresult add_node(const pf_cuda_driver *driver, pf_call_graph *graph, int node,
                         const CUDA_KERNEL_NODE_PARAMS *parameters) {
    return driver->cuGraphAddKernelNode_v2(&graph->node[node], graph->graph,
                                           node > 0 ? &graph->node[node - 1] : NULL, node > 0,
                                           parameters);
}

static CUresult set_node(const pf_cuda_driver *driver, pf_call_graph *graph, int node,
                         const CUDA_KERNEL_NODE_PARAMS *parameters) {
    return driver->cuGraphExecKernelNodeSetParams_v2(graph->executable, graph->node[node],
                                                     parameters);
}

/* A pf_step_launch that hands a node what it launches; the driver copies the arguments. */
static pfattn_status give_node(void *context, const pf_step *step, pf_plan_arguments *arguments) {
    node_walk *walk = context;
    void *kernel_arguments[] = {pf_step_arguments(step, arguments), arguments->maps};
    const CUDA_KERNEL_NODE_PARAMS parameters = {.func = pf_cuda_function(walk->device, step),
                                                .gridDimX = (unsigned)step->grid,
                                                .gridDimY = 1,
                                                .gridDimZ = 1,
                                                .blockDimX = (unsigned)step->block,
                                                .blockDimY = 1,
                                                .blockDimZ = 1,
                                                .sharedMemBytes = (unsigned)step->shared_bytes,
                                                .kernelParams = kernel_arguments};
    CUresult result = walk->use(walk->device->driver, walk->graph, walk->node, &parameters);
    walk->node++;
    return pf_cuda_check(walk->device->driver, result, walk->name);
}

/* ---- making -------------------------------------------------------------------------------- */

/* Where this thread captures another stream, making and ending a graph would be refused and break
 * the capture: both step out of it. */

/* The driver lets launches that are under way come to their end. */
static void destroy(const pf_cuda_driver *driver, pf_call_graph *graph) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool out = driver->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    if (graph->executable != NULL) {
        driver->cuGraphExecDestroy(graph->executable);
    }
    if (graph->graph != NULL) {
        driver->cuGraphDestroy(graph->graph);
    }
    if (out) {
        driver->cuThreadExchangeStreamCaptureMode(&mode);
    }
    graph->executable = NULL;
    graph->graph = NULL;
}

static pfattn_status make(pf_device *device, pf_call *call, pf_call_graph *graph) {
    const pf_cuda_driver *driver = device->driver;
    node_walk walk = {device, graph, add_node, "cuGraphAddKernelNode", 0};
    pfattn_status status =
        pf_cuda_check(driver, driver->cuGraphCreate(&graph->graph, 0), "cuGraphCreate");
    if (status == PFATTN_SUCCESS) {
        status = pf_plan_run(&call->plan, &call->arguments, give_node, &walk);
    }
    if (status == PFATTN_SUCCESS) {
        status = pf_cuda_check(
            driver, driver->cuGraphInstantiateWithFlags(&graph->executable, graph->graph, 0),
            "cuGraphInstantiate");
    }
    /* What the first launch would do otherwise, and might not find the memory for. */
    return status == PFATTN_SUCCESS
               ? pf_cuda_check(driver, driver->cuGraphUpload(graph->executable, graph->stream),
                               "cuGraphUpload")
               : status;
}

static pfattn_status make_outside_capture(pf_device *device, pf_call *call, pf_call_graph *graph) {
    CUstreamCaptureMode mode;
    pfattn_status status = pf_cuda_step_out(device, &mode);
    return status == PFATTN_SUCCESS ? pf_cuda_step_back(device, mode, make(device, call, graph))
                                    : status;
}

/* Make or update the graph. Where that fails there is none, and the caller does not hear of it. */
static void attempt(pf_device *device, pf_call *call, pf_call_graph *graph,
                    pfattn_status (*work)(pf_device *, pf_call *, pf_call_graph *)) {
    char before[PF_ERROR_SIZE];
    pf_error_save(before);
    if (work(device, call, graph) == PFATTN_SUCCESS) {
        return;
    }
    pf_log(PF_LOG_INFO, "cuda: a call is launched kernel by kernel, since it has no graph");
    pf_error_restore(before);
    destroy(device->driver, graph);
}

static pfattn_status update(pf_device *device, pf_call *call, pf_call_graph *graph) {
    node_walk walk = {device, graph, set_node, "cuGraphExecKernelNodeSetParams", 0};
    graph->outdated = false;
    return pf_plan_run(&call->plan, &call->arguments, give_node, &walk);
}

static void make_for(pf_device *device, pf_call *call, pf_call_graph *graph, CUstream stream) {
    graph->stream = stream;
    graph->others = 0;
    graph->outdated = false;
    attempt(device, call, graph, make_outside_capture);
}

static void begin(pf_device *device, pf_call *call, CUstream stream) {
    call->graph = calloc(1, sizeof *call->graph);
    if (call->graph != NULL) {
        call->graph->patience = PATIENCE;
        make_for(device, call, call->graph, stream);
    }
}

/* Is the graph the stream's, if need be from now on? */
static bool serves(pf_device *device, pf_call *call, pf_call_graph *graph, CUstream stream) {
    if (graph->executable == NULL || graph->stream == stream) {
        graph->others = 0;
        return true;
    }
    graph->others = graph->other == stream ? graph->others + 1 : 1;
    graph->other = stream;
    if (graph->others < graph->patience) {
        return false;
    }
    graph->patience = graph->patience < MOST_PATIENCE ? 2 * graph->patience : graph->patience;
    destroy(device->driver, graph);
    make_for(device, call, graph, stream);
    return true;
}

/* ---- launching ----------------------------------------------------------------------------- */

static bool has_graphs(const pf_cuda_driver *driver) {
    return driver->cuGraphCreate != NULL && driver->cuGraphDestroy != NULL &&
           driver->cuGraphAddKernelNode_v2 != NULL && driver->cuGraphInstantiateWithFlags != NULL &&
           driver->cuGraphUpload != NULL && driver->cuGraphLaunch != NULL &&
           driver->cuGraphExecDestroy != NULL &&
           driver->cuGraphExecKernelNodeSetParams_v2 != NULL && driver->cuStreamIsCapturing != NULL;
}

/* Where the driver does not say, the launches will tell why. */
static bool is_capturing(const pf_cuda_driver *driver, CUstream stream) {
    CUstreamCaptureStatus capture;
    return driver->cuStreamIsCapturing(stream, &capture) != CUDA_SUCCESS ||
           capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool pf_cuda_graph_launch(pf_device *device, pf_call *call, CUstream stream,
                          pfattn_status *status) {
    bool first = !call->launched;
    call->launched = true;
    /* CU_STREAM_PER_THREAD is another stream in each thread. */
    if (first || !has_graphs(device->driver) || stream == CU_STREAM_PER_THREAD ||
        is_capturing(device->driver, stream)) {
        return false;
    }
    if (call->graph == NULL) {
        begin(device, call, stream);
    }
    pf_call_graph *graph = call->graph;
    if (graph == NULL || !serves(device, call, graph, stream)) {
        return false;
    }
    if (graph->outdated && graph->executable != NULL) {
        attempt(device, call, graph, update);
    }
    if (graph->executable == NULL) {
        return false;
    }
    *status = pf_cuda_check(device->driver,
                            device->driver->cuGraphLaunch(graph->executable, graph->stream),
                            "cuGraphLaunch");
    return true;
}

void pf_cuda_graph_outdate(pf_call *call) {
    if (call->graph != NULL) {
        call->graph->outdated = true;
    }
}

void pf_cuda_call_release(pf_device *device, pf_call *call) {
    if (call->graph == NULL) {
        return;
    }
    /* Where the context is gone its graphs are too. */
    if (pf_cuda_enter(device) == PFATTN_SUCCESS) {
        destroy(device->driver, call->graph);
        pf_cuda_leave(device, PFATTN_SUCCESS);
    }
    free(call->graph);
    call->graph = NULL;
}
