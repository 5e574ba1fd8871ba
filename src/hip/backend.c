/* SPDX-License-Identifier: Apache-2.0 */
#include "common/backend_list.h"
#include "device.h"

const pf_backend pf_backend_hip = {
    .id = PFATTN_BACKEND_HIP,
    .name = "hip",
    .priority = 20,
    .probe = pf_hip_probe,
    .device_info = pf_hip_device_info,
    .device_open = pf_hip_device_open,
    .device_close = pf_hip_device_close,
    .plan = pf_hip_plan,
    .workspace_size = pf_hip_workspace_size,
    .launch = pf_hip_launch,
    .memory = &pf_hip_memory,
    .capabilities = pf_hip_capabilities,
};
