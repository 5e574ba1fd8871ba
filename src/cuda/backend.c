/* SPDX-License-Identifier: Apache-2.0 */
#include "common/backend_list.h"
#include "device.h"
#include "graph.h"

const pf_backend pf_backend_cuda = {
    .id = PFATTN_BACKEND_CUDA,
    .name = "cuda",
    .priority = 30,
    .probe = pf_cuda_probe,
    .device_info = pf_cuda_device_info,
    .device_open = pf_cuda_device_open,
    .device_close = pf_cuda_device_close,
    .plan = pf_cuda_plan,
    .workspace_size = pf_cuda_workspace_size,
    .launch = pf_cuda_launch,
    .call_release = pf_cuda_call_release,
    .memory = &pf_cuda_memory,
    .capabilities = pf_cuda_capabilities,
};
