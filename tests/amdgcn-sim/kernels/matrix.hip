/* SPDX-License-Identifier: Apache-2.0 */
/* Every matrix instruction: registers of A, B and C as they come, registers of D as they leave. */
#include "device.h"

#define MATRIX(name, operand, result, call)                                                        \
    KERNEL name(result *out, const operand *a, const operand *b, const result *c) {                \
        out[LANE] = __builtin_amdgcn_mfma_##call(a[LANE], b[LANE], c[LANE], 0, 0, 0);              \
    }

MATRIX(f32_32x32x1, float, float32_, f32_32x32x1f32)
MATRIX(f32_16x16x1, float, float16_, f32_16x16x1f32)
MATRIX(f32_4x4x1, float, float4_, f32_4x4x1f32)
MATRIX(f32_32x32x2, float, float16_, f32_32x32x2f32)
MATRIX(f32_16x16x4, float, float4_, f32_16x16x4f32)
MATRIX(f16_32x32x4, half4_, float32_, f32_32x32x4f16)
MATRIX(f16_16x16x4, half4_, float16_, f32_16x16x4f16)
MATRIX(f16_4x4x4, half4_, float4_, f32_4x4x4f16)
MATRIX(f16_32x32x8, half4_, float16_, f32_32x32x8f16)
MATRIX(f16_16x16x16, half4_, float4_, f32_16x16x16f16)
MATRIX(bf16_32x32x4, short4_, float32_, f32_32x32x4bf16_1k)
MATRIX(bf16_16x16x4, short4_, float16_, f32_16x16x4bf16_1k)
MATRIX(bf16_4x4x4, short4_, float4_, f32_4x4x4bf16_1k)
MATRIX(bf16_32x32x8, short4_, float16_, f32_32x32x8bf16_1k)
MATRIX(bf16_16x16x16, short4_, float4_, f32_16x16x16bf16_1k)
MATRIX(f64_16x16x4, double, double4_, f64_16x16x4f64)
MATRIX(f64_4x4x4, double, double, f64_4x4x4f64)
#if defined(__gfx90a__)
MATRIX(old_bf16_32x32x4, short2_, float16_, f32_32x32x4bf16)
MATRIX(old_bf16_16x16x8, short2_, float4_, f32_16x16x8bf16)
MATRIX(i8_32x32x8, int, int16_, i32_32x32x8i8)
MATRIX(i8_16x16x16, int, int4_, i32_16x16x16i8)
#else
MATRIX(i8_32x32x16, long, int16_, i32_32x32x16_i8)
MATRIX(i8_16x16x32, long, int4_, i32_16x16x32_i8)
MATRIX(xf32_32x32x4, float2_, float16_, f32_32x32x4_xf32)
MATRIX(xf32_16x16x8, float2_, float4_, f32_16x16x8_xf32)
MATRIX(bf8_32x32x16, long, float16_, f32_32x32x16_bf8_bf8)
MATRIX(fp8_16x16x32, long, float4_, f32_16x16x32_fp8_fp8)
MATRIX(mixed8_16x16x32, long, float4_, f32_16x16x32_bf8_fp8)
#endif

/* A constant for C, and accumulators that the compiler may keep in AGPRs. */
KERNEL accumulate(float16_ *out, const half4_ *a, const half4_ *b, int steps) {
    float16_ acc = {0};
    for (int i = 0; i < steps; i++)
        acc =
            __builtin_amdgcn_mfma_f32_32x32x8f16(a[i * 64 + LANE], b[i * 64 + LANE], acc, 0, 0, 0);
    out[LANE] = acc;
}
