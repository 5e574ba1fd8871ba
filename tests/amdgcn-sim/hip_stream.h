/* SPDX-License-Identifier: Apache-2.0 */
/* Work submitted to a stream: run at once, or recorded while the stream is captured. */
#ifndef AMDGCN_SIM_HIP_STREAM_H
#define AMDGCN_SIM_HIP_STREAM_H

#include "hip.h"
#include "sim.h"

enum sim_work_kind { WORK_LAUNCH, WORK_COPY, WORK_SET, WORK_RECORD };

struct sim_work {
    enum sim_work_kind kind;
    struct sim_launch launch; /* its kernarg block belongs to the work */
    void *to;
    const void *from;
    size_t size; /* bytes, or elements of WORK_SET */
    uint32_t value, width;
    hipEvent_t event;
};

/* Runs or records; takes over the kernarg block. */
hipError_t sim_submit(hipStream_t stream, struct sim_work *work);
/* A call that may not be made while a stream is captured: breaks the capture. */
bool sim_capture_forbids(void);
hipError_t sim_error(hipError_t error);
/* An error of earlier work, reported once by the next synchronisation. */
void sim_pending_set(hipError_t error);
hipError_t sim_pending_take(void);

#endif
