/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with a planted bug each; the simulator must name it. */
#include "device.h"

KERNEL missing_barrier(float *out, const float *in) {
    SHARED static float tile[256];
    tile[LANE] = in[LANE];
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    out[LANE] = ((volatile float *)tile)[255 - LANE];
}

/* The tile is refilled while slower waves may still read it. */
KERNEL missing_second_barrier(float *out, const float *in, int steps) {
    SHARED static float tile[256];
    float sum = 0.f;
    for (int s = 0; s < steps; s++) {
        tile[LANE] = in[s * 256 + LANE];
        barrier();
        sum += tile[255 - LANE];
    }
    out[LANE] = sum;
}

KERNEL load_past_end(float *out, const float *in, int n) {
    float sum = 0.f;
    for (int i = LANE; i <= n; i += 256) /* one too many */
        sum += in[i];
    out[LANE] = sum;
}

KERNEL store_past_end(float *out, int n) {
    out[LANE + n - 255] = 1.f;
}

KERNEL wild_pointer(float *out, float **pointers) {
    out[LANE] = *pointers[LANE];
}

KERNEL lds_out_of_range(int *out, int index) {
    SHARED static int tile[64];
    tile[LANE] = LANE;
    barrier();
    out[LANE] = tile[LANE + index];
}

/* Lane 63 of LDS is never written. */
KERNEL uninitialised_lds(float *out, const float *in) {
    SHARED static float tile[64];
    if (LANE < 63)
        tile[LANE] = in[LANE];
    barrier();
    out[LANE] = tile[63 - LANE] * 2.f;
}

KERNEL uninitialised_memory(float *out, const float *in) {
    out[LANE] = in[LANE] + 1.f;
}

/* D read as if rows ran along the lanes of the other half. */
KERNEL wrong_layout(float *out, const half4_ *a, const half4_ *b) {
    float16_ acc = {0};
    acc = __builtin_amdgcn_mfma_f32_32x32x8f16(a[LANE], b[LANE], acc, 0, 0, 0);
    for (int r = 0; r < 16; r++) {
        int row = 16 * (LANE / 32) + r; /* the chip: 8 * (r / 4) + 4 * (LANE / 32) + r % 4 */
        out[row * 32 + LANE % 32] = acc[r];
    }
}

KERNEL endless(volatile int *flag) {
    while (*flag == 0)
        ;
}

KERNEL trap(int *out) {
    if (out[LANE] != 0)
        __builtin_trap();
    out[LANE] = 1;
}

KERNEL scratch_overflow(int *out, int index) {
    volatile int local[4];
    local[index] = 1;
    out[LANE] = local[0];
}

KERNEL unaligned_atomic(char *p) {
    __hip_atomic_fetch_add((int *)(p + 2), 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
