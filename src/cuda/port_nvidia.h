/* SPDX-License-Identifier: Apache-2.0 */
/* What both NVIDIA targets share of the portability layer (src/common/kernels/port.h): arithmetic,
 * conversions, thread indices, kernels' declarations and the fragments of an accumulator, which
 * mma.sync (a warp, 16 owned rows) and wgmma (a warpgroup, 16 owned rows a warp) lay out alike:
 * element e of a thread is in row lane / 4 + 8 * (e / 2 % 2) and column 8 * (e / 4) + 2 * (lane %
 * 4) + e % 2. Outputs of f32 operands alone are laid out another way, in runs of eight channels.
 *
 * The port header that includes this one has defined
 *     PF_FIRST_CONSUMER    threads before the first that computes
 *     PF_OUT_STEP          of port.h
 *     PF_KERNEL_TAIL       parameters of a kernel after its arguments, with their leading comma */
#ifndef PF_PORT_NVIDIA_H
#define PF_PORT_NVIDIA_H

#define PF_DEVICE static __device__ __forceinline__
#define PF_UNROLL _Pragma("unroll")
#define PF_ROLLED _Pragma("unroll 1")
#define PF_INFINITY __int_as_float(0x7f800000)
#define PF_LANES 32

typedef unsigned int pf_u32;
typedef unsigned long long pf_u64;

constexpr bool pf_f32_elements = PF_ELEMENT == PF_KTYPE_F32;
constexpr bool pf_bf16_elements = PF_ELEMENT == PF_KTYPE_BF16;
constexpr bool pf_e5m2_elements = PF_ELEMENT == PF_KTYPE_E5M2;
/* Bytes of an element in memory, and in a tile. */
constexpr int pf_element_bytes = pf_f32_elements ? 4 : pf_e5m2_elements ? 1 : 2;
constexpr int pf_staged_bytes = pf_f32_elements ? 4 : 2;

/* Threads and workgroups. */

PF_DEVICE int pf_block() {
    return (int)blockIdx.x;
}

PF_DEVICE int pf_blocks() {
    return (int)gridDim.x;
}

PF_DEVICE int pf_thread() {
    return (int)threadIdx.x;
}

PF_DEVICE int pf_threads() {
    return (int)blockDim.x;
}

PF_DEVICE int pf_lane() {
    return (int)threadIdx.x & 31;
}

PF_DEVICE void pf_block_sync() {
    __syncthreads();
}

PF_DEVICE void pf_lane_sync() {
    __syncwarp();
}

PF_DEVICE float pf_lane_sum(float x) {
    PF_UNROLL for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

PF_DEVICE float pf_lane_max(float x) {
    PF_UNROLL for (int step = 16; step > 0; step /= 2) x =
        fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

#define PF_KERNEL(name, args_type)                                                                 \
    extern "C" __global__ void __launch_bounds__(PF_THREADS, PF_MIN_BLOCKS)                        \
        name(const __grid_constant__ args_type pf_args PF_KERNEL_TAIL)
#define PF_LIGHT_KERNEL(name, args_type)                                                           \
    extern "C" __global__ void __launch_bounds__(PF_THREADS, 2)                                    \
        name(const __grid_constant__ args_type pf_args PF_KERNEL_TAIL)
#define PF_KERNEL_ARGS (&pf_args)
#define PF_SHARED(type, pointer)                                                                   \
    extern __shared__ __align__(1024) unsigned char pf_shared_memory[];                            \
    static_assert(sizeof(type) <= PF_SHARED_BYTES, "the tuning table gives too little memory");    \
    type *pointer = (type *)pf_shared_memory

/* Address of shared memory as instructions take it. */
PF_DEVICE pf_u32 pf_shared_address(const void *p) {
    return (pf_u32)__cvta_generic_to_shared(p);
}

/* Arithmetic. */

PF_DEVICE float pf_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

PF_DEVICE float pf_log2(float x) {
    return __log2f(x);
}

PF_DEVICE float pf_reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

PF_DEVICE float pf_fma(float a, float b, float c) {
    return fmaf(a, b, c);
}

PF_DEVICE float pf_max(float a, float b) {
    return fmaxf(a, b);
}

/* Conversions. */

PF_DEVICE float pf_f16_bits_to_f32(unsigned short x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}

PF_DEVICE float pf_bf16_bits_to_f32(unsigned short x) {
    return __uint_as_float((pf_u32)x << 16);
}

PF_DEVICE unsigned short pf_f32_to_f16_bits(float x) {
    unsigned short y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

PF_DEVICE unsigned short pf_f32_to_bf16_bits(float x) {
    unsigned short y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

/* In software: the instruction saturates, and is not there before 8.9. */
PF_DEVICE unsigned char pf_f32_to_e5m2_bits(float x) {
    const pf_u32 bits = __float_as_uint(x), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (unsigned char)(sign | 0x7e);
    if (magnitude >= 0x47700000) /* 61440, half way from the largest number to 65536 */
        return (unsigned char)(sign | 0x7c);
    if (magnitude < 0x38800000) /* 2^-14: subnormals are multiples of 2^-16 */
        return (unsigned char)(sign | (pf_u32)__float2int_rn(__uint_as_float(magnitude) * 65536.f));
    const pf_u32 rounded = magnitude + 0xfffff + (magnitude >> 21 & 1);
    return (unsigned char)(sign | ((rounded >> 21) - ((127 - 15) << 2)));
}

PF_DEVICE pf_u32 pf_pack_f16(float low, float high) {
    pf_u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

PF_DEVICE pf_u32 pf_pack_bf16(float low, float high) {
    pf_u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

/* Two adjacent weights, rounded to the staged type (16-bit types). */
PF_DEVICE pf_u32 pf_pack_pair(float low, float high) {
    return pf_bf16_elements ? pf_pack_bf16(low, high) : pf_pack_f16(low, high);
}

/* Four e5m2 bytes as two pairs of f16: the wider type has the same exponent. */
PF_DEVICE uint2 pf_widen_e5m2(pf_u32 bytes) {
    return make_uint2(__byte_perm(bytes, 0, 0x1404), __byte_perm(bytes, 0, 0x3424));
}

/* Sixteen elements, likewise. */
#define PF_WIDEN_RUN 16

PF_DEVICE void pf_widen_run(pf_u64 to, pf_u64 from) {
    const uint4 bytes = *(const uint4 *)from;
    const uint2 a = pf_widen_e5m2(bytes.x), b = pf_widen_e5m2(bytes.y);
    const uint2 c = pf_widen_e5m2(bytes.z), d = pf_widen_e5m2(bytes.w);
    ((uint4 *)to)[0] = make_uint4(a.x, a.y, b.x, b.y);
    ((uint4 *)to)[1] = make_uint4(c.x, c.y, d.x, d.y);
}

/* Eight adjacent elements of an array, 16-byte aligned, as they are in memory. */
#define PF_VECTOR 8

typedef struct pf_vector {
    uint4 low, high; /* the latter of f32 alone */
} pf_vector;

PF_DEVICE pf_vector pf_load_vector(pf_u64 address, pf_i64 index, int type) {
    pf_vector v = {};
    const uint4 *from = (const uint4 *)(address + index * (type == PF_KTYPE_F32 ? 4 : 2));
    v.low = from[0];
    if (type == PF_KTYPE_F32)
        v.high = from[1];
    return v;
}

PF_DEVICE void pf_vector_floats(const pf_vector *v, int type, float x[PF_VECTOR]) {
    const pf_u32 words[8] = {v->low.x,  v->low.y,  v->low.z,  v->low.w,
                             v->high.x, v->high.y, v->high.z, v->high.w};
    if (type == PF_KTYPE_F32) {
        PF_UNROLL for (int i = 0; i < PF_VECTOR; ++i) x[i] = __uint_as_float(words[i]);
        return;
    }
    if (type == PF_KTYPE_BF16)
        PF_UNROLL for (int i = 0; i < PF_VECTOR; ++i) x[i] =
            pf_bf16_bits_to_f32((unsigned short)(words[i / 2] >> 16 * (i % 2)));
    else
        PF_UNROLL for (int i = 0; i < PF_VECTOR; ++i) x[i] =
            pf_f16_bits_to_f32((unsigned short)(words[i / 2] >> 16 * (i % 2)));
}

/* Sum over aligned groups of so many lanes, a power of two. */
PF_DEVICE float pf_lanes_sum(float x, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* Fragments. A weight fragment of a 16-bit type holds adjacent pairs: x[2 * (e / 4) + e / 2 % 2] is
 * elements e and e + 1, which is the order of the A operand of m16n8k16 and of wgmma. */

#define PF_SLOTS 2
#define PF_SCORE_COUNT (PF_CROSS_TILE / 2)
#define PF_OUT_COUNT (PF_OUT_DIM / 2)
#define PF_OUT_RUN 2

typedef struct pf_scores {
    float x[PF_SCORE_COUNT];
} pf_scores;

typedef struct pf_out {
    float x[PF_OUT_COUNT];
} pf_out;

PF_DEVICE int pf_score_slot(int e) {
    return e / 2 % 2;
}

PF_DEVICE int pf_score_cross(int e) {
    return 8 * (e / 4) + 2 * (pf_lane() % 4) + e % 2;
}

PF_DEVICE int pf_out_slot(int e) {
    return pf_f32_elements ? e / 8 % 2 : e / 2 % 2;
}

PF_DEVICE int pf_out_channel(int e) {
    return pf_f32_elements ? 32 * (e / 16) + 8 * (pf_lane() % 4) + e % 8
                           : 8 * (e / 4) + 2 * (pf_lane() % 4) + e % 2;
}

/* Place of this warp among those that compute and share out the owned rows, sixteen each. */
PF_DEVICE int pf_consumer_warp() {
    const int warp = ((int)threadIdx.x - PF_FIRST_CONSUMER) / 32, owners = PF_OWNED_TILE / 16;
    return owners < (PF_THREADS - PF_FIRST_CONSUMER) / 32 ? warp % owners : warp;
}

PF_DEVICE int pf_slot_owned(int s) {
    return 16 * pf_consumer_warp() + pf_lane() / 4 + 8 * s;
}

PF_DEVICE bool pf_slot_is_first() {
    return pf_lane() % 4 == 0;
}

PF_DEVICE float pf_slot_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

PF_DEVICE float pf_slot_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* The elements are read before types are told apart: were they only ever stored, the compiler would
 * keep accumulators as integers, and copy them while products are in flight. */
PF_DEVICE void pf_write_run(pf_u64 address, pf_i64 index, int type, const float *x) {
    const float a = x[0], b = x[1];
    if (type == PF_KTYPE_F32)
        *(float2 *)((float *)address + index) = make_float2(a, b);
    else if (PF_SEES_E5M2 && type == PF_KTYPE_E5M2)
        *(unsigned short *)((unsigned char *)address + index) =
            (unsigned short)(pf_f32_to_e5m2_bits(a) | (unsigned short)pf_f32_to_e5m2_bits(b) << 8);
    else
        *(pf_u32 *)((unsigned short *)address + index) =
            type == PF_KTYPE_F16 ? pf_pack_f16(a, b) : pf_pack_bf16(a, b);
}

/* Rows as 16-byte vectors, of f16, bf16 or f32; a row of an accumulator is held by four lanes. */
#define PF_ROW_RUN 8

/* Word i of lane l, of each four lanes, becomes word l of lane i. */
PF_DEVICE void pf_quad_transpose(pf_u32 w[4]) {
    PF_UNROLL for (int step = 1; step <= 2; step *= 2) {
        const bool upper = pf_lane() & step;
        PF_UNROLL for (int i = 0; i < 4; ++i) {
            if (i & step)
                continue;
            const pf_u32 got = __shfl_xor_sync(0xffffffffu, upper ? w[i] : w[i + step], step);
            w[i] = upper ? got : w[i];
            w[i + step] = upper ? w[i + step] : got;
        }
    }
}

/* Opaque, so that accumulators stay floats for the compiler (see pf_write_run). */
PF_DEVICE pf_u32 pf_float_bits(float x) {
    pf_u32 y;
    asm("mov.b32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}

/* Write the row of slot s of a fragment x[width / 2] to memory from element `index` on: `channels`
 * of its channels, a multiple of PF_ROW_RUN. Called by whole warps. A pf_out of f32 operands has
 * its runs of channels as they are in memory. */
PF_DEVICE void pf_write_fragment_row(const float *x, int width, int s, pf_u64 address, pf_i64 index,
                                     int channels, int type) {
    PF_UNROLL for (int group = 0; group < width / 8; group += 4) {
        const float *y = x + 4 * group + (pf_f32_elements ? 8 : 2) * s;
        const int channel = 8 * (group + pf_lane() % 4);
        if (pf_f32_elements) {
            float4 *to = (float4 *)((float *)address + index + channel);
            if (channel < channels) {
                to[0] = make_float4(y[0], y[1], y[2], y[3]);
                to[1] = make_float4(y[4], y[5], y[6], y[7]);
            }
        } else if (type == PF_KTYPE_F32) {
            pf_u32 even[4], odd[4];
            PF_UNROLL for (int i = 0; i < 4; ++i) {
                even[i] = pf_float_bits(y[4 * i]);
                odd[i] = pf_float_bits(y[4 * i + 1]);
            }
            pf_quad_transpose(even);
            pf_quad_transpose(odd);
            uint4 *to = (uint4 *)((float *)address + index + channel);
            if (channel < channels) {
                to[0] = make_uint4(even[0], odd[0], even[1], odd[1]);
                to[1] = make_uint4(even[2], odd[2], even[3], odd[3]);
            }
        } else {
            pf_u32 w[4];
            PF_UNROLL for (int i = 0; i < 4; ++i) w[i] = type == PF_KTYPE_BF16
                                                             ? pf_pack_bf16(y[4 * i], y[4 * i + 1])
                                                             : pf_pack_f16(y[4 * i], y[4 * i + 1]);
            pf_quad_transpose(w);
            if (channel < channels)
                *(uint4 *)((unsigned short *)address + index + channel) =
                    make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
}

PF_DEVICE void pf_write_fragment_part(const float *x, int width, pf_u64 address, pf_i64 index,
                                      pf_i64 stride, int rows, int channels, int type) {
    PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) {
        const int row = pf_slot_owned(s);
        pf_write_fragment_row(x, width, s, address, index + row * stride, row < rows ? channels : 0,
                              type);
    }
}

/* pf_write_rows from the registers alone. */
PF_DEVICE void pf_write_fragment_rows(const pf_out *out, pf_u64 address, pf_i64 index,
                                      pf_i64 stride, int rows, int channels, int type) {
    if (PF_OUT_STEP == PF_OUT_COUNT || pf_f32_elements || type != PF_KTYPE_F32) {
        pf_write_fragment_part(out->x, PF_OUT_DIM, address, index, stride, rows, channels, type);
        return;
    }
    pf_out turned = *out;
    PF_ROLLED for (int c = 0; c < PF_OUT_DIM; c += 2 * PF_OUT_STEP) {
        pf_write_fragment_part(turned.x, 2 * PF_OUT_STEP, address, index + c, stride, rows,
                               channels - c, type);
        PF_UNROLL for (int u = PF_OUT_STEP; u < PF_OUT_COUNT; ++u) turned.x[u - PF_OUT_STEP] =
            turned.x[u];
    }
}

#endif
