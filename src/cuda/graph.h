/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that repeat, each as a CUDA graph of its launches: enqueuing a graph takes the host less
 * time than one launch, however many are in it. */
#ifndef PF_CUDA_GRAPH_H
#define PF_CUDA_GRAPH_H

#include "device.h"

/* Enqueue a call, whose arguments are filled, as a graph. False where it is to be launched step by
 * step, because
 *   - it is launched for the first time: a graph takes longer to make than one call can save,
 *   - its stream is being captured: the caller's graph is to hold the kernels themselves,
 *   - its graph is another stream's: a graph waits for its own earlier launches, whatever their
 *     stream, and calls on several streams must be free to overlap; where the call stays on the new
 *     stream it gets a graph there,
 *   - the driver has no graphs or could not make this one.
 * Otherwise *status says whether it was enqueued. The context is current. */
bool pf_cuda_graph_launch(pf_device *device, pf_call *call, CUstream stream, pfattn_status *status);

/* What is filled in the call's arguments has changed. */
void pf_cuda_graph_outdate(pf_call *call);

/* The pf_backend function. */
void pf_cuda_call_release(pf_device *device, pf_call *call);

#endif
