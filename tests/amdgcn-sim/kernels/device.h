/* SPDX-License-Identifier: Apache-2.0 */
/* Header-free HIP for the simulator's test kernels. */
#ifndef AMDGCN_SIM_KERNELS_DEVICE_H
#define AMDGCN_SIM_KERNELS_DEVICE_H

#define KERNEL extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, 256))) void
#define DEVICE static __attribute__((device))
#define SHARED __attribute__((shared))
#define LANE ((int)__builtin_amdgcn_workitem_id_x())
#define GROUP ((int)__builtin_amdgcn_workgroup_id_x())
#define INDEX (GROUP * (int)__builtin_amdgcn_workgroup_size_x() + LANE)

typedef _Float16 half;
typedef float float2_ __attribute__((ext_vector_type(2)));
typedef float float4_ __attribute__((ext_vector_type(4)));
typedef float float16_ __attribute__((ext_vector_type(16)));
typedef float float32_ __attribute__((ext_vector_type(32)));
typedef double double4_ __attribute__((ext_vector_type(4)));
typedef half half2_ __attribute__((ext_vector_type(2)));
typedef half half4_ __attribute__((ext_vector_type(4)));
typedef short short2_ __attribute__((ext_vector_type(2)));
typedef short short4_ __attribute__((ext_vector_type(4)));
typedef int int4_ __attribute__((ext_vector_type(4)));
typedef int int16_ __attribute__((ext_vector_type(16)));

DEVICE inline void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

#endif
