/* SPDX-License-Identifier: Apache-2.0 */
/* The portability layer for CDNA (gfx90a, gfx942, gfx950): wave64 and MFMA. Header-free: clang's
 * builtins alone.
 *
 * A wave is a compute group. It computes S^T = X O^T, cross rows in the rows of the matrix and
 * owned rows in its columns, one to a lane: then P^T, as it stands in the accumulator, is the
 * operand of O^T = V^T P^T, and a row statistic is one register. f16 and bf16 use the 32x32x8
 * instructions, f32 the 16x16x4 one.
 *
 * Operands come in chunks of 16 bytes a lane, for two (f32: four) instructions. Which channel of a
 * chunk is which index of a product's sum does not matter as long as both operands agree. The next
 * tile's loads sit in registers from the refill to the take. */
#ifndef PF_PORT_CDNA_H
#define PF_PORT_CDNA_H

#define PF_DEVICE static __attribute__((device, always_inline)) inline
#define PF_UNROLL _Pragma("unroll")
#define PF_ROLLED _Pragma("unroll 1")
#define PF_INFINITY __builtin_inff()
#define PF_GLOBAL __attribute__((address_space(1)))
#define CDNA_LDS __attribute__((address_space(3)))
#define PF_LANES 64

/* Vectors. */
typedef int cdna_int4 __attribute__((ext_vector_type(4)));
typedef int cdna_int2 __attribute__((ext_vector_type(2)));
typedef short cdna_short4 __attribute__((ext_vector_type(4)));
typedef float cdna_float4 __attribute__((ext_vector_type(4)));
typedef float cdna_float16 __attribute__((ext_vector_type(16)));
typedef _Float16 cdna_half4 __attribute__((ext_vector_type(4)));

PF_DEVICE int pf_thread() {
    return (int)__builtin_amdgcn_workitem_id_x();
}

PF_DEVICE int pf_threads() {
    return PF_THREADS;
}

PF_DEVICE int pf_block() {
    return (int)__builtin_amdgcn_workgroup_id_x();
}

PF_DEVICE pf_i64 pf_blocks() {
    return PF_INT_MAX; /* one work item a workgroup */
}

PF_DEVICE int pf_lane() {
    return pf_thread() & 63;
}

PF_DEVICE int cdna_wave() {
    return __builtin_amdgcn_readfirstlane(pf_thread() >> 6);
}

/* s_waitcnt's operand for "every LDS access is done", and for "every access is". A fence asks for
 * as much, but clang 19 has been seen to drop the wait where a loop leads back to the barrier. */
enum { CDNA_WAIT_LDS = 0xc07f, CDNA_WAIT_ALL = 0 };

PF_DEVICE void pf_block_sync() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_waitcnt(CDNA_WAIT_LDS);
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

PF_DEVICE void pf_lane_sync() {
    __builtin_amdgcn_wave_barrier();
}

/* The value of the lane whose number differs in the bits of `mask`. */
PF_DEVICE float cdna_exchange(float x, int mask) {
    return __builtin_bit_cast(
        float, __builtin_amdgcn_ds_bpermute((pf_lane() ^ mask) * 4, __builtin_bit_cast(int, x)));
}

PF_DEVICE float pf_lane_sum(float x) {
    PF_UNROLL for (int mask = 1; mask < 64; mask *= 2) x += cdna_exchange(x, mask);
    return x;
}

/* Arithmetic. */
PF_DEVICE float pf_exp2(float x) {
    return __builtin_amdgcn_exp2f(x);
}

PF_DEVICE float pf_log2(float x) {
    return __builtin_amdgcn_logf(x);
}

PF_DEVICE float pf_reciprocal(float x) {
    return 1.f / x;
}

PF_DEVICE float pf_fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}

PF_DEVICE float pf_max(float a, float b) {
    return __builtin_fmaxf(a, b);
}

PF_DEVICE float pf_f16_bits_to_f32(unsigned short x) {
    return (float)__builtin_bit_cast(_Float16, x);
}

PF_DEVICE unsigned short pf_f32_to_f16_bits(float x) {
    return __builtin_bit_cast(unsigned short, (_Float16)x);
}

PF_DEVICE float pf_bf16_bits_to_f32(unsigned short x) {
    return __builtin_bit_cast(float, (unsigned)x << 16);
}

PF_DEVICE unsigned short pf_f32_to_bf16_bits(float x) {
    const unsigned bits = __builtin_bit_cast(unsigned, x);
    const unsigned rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (unsigned short)(x != x ? 0x7fc0 : rounded);
}

/* f16 has e5m2's exponent: round its low byte away. Going through f16 rounds twice, so the f16 is
 * rounded to odd first. */
PF_DEVICE unsigned char pf_f32_to_e5m2_bits(float x) {
    if (x != x)
        return 0x7f;
    _Float16 half = (_Float16)x;
    unsigned short bits = __builtin_bit_cast(unsigned short, half);
    const float back = (float)half;
    if (back != x && (bits & 0x7fff) <= 0x7c00) {
        const bool above = __builtin_fabsf(back) > __builtin_fabsf(x);
        bits = (unsigned short)((above ? bits - 1 : bits) | 1);
    }
    const unsigned rounded = (bits + 0x7f + ((bits >> 8) & 1)) >> 8;
    return (unsigned char)((bits & 0x7fff) >= 0x7c00 ? bits >> 8 : rounded);
}

PF_DEVICE float pf_lane_max(float x) {
    PF_UNROLL for (int mask = 1; mask < 64; mask *= 2) x = pf_max(x, cdna_exchange(x, mask));
    return x;
}

/* Sum over aligned groups of so many lanes, a power of two. */
PF_DEVICE float pf_lanes_sum(float x, int lanes) {
    for (int mask = 1; mask < lanes; mask *= 2)
        x += cdna_exchange(x, mask);
    return x;
}

/* Eight adjacent elements of an array, 16-byte aligned, as they are in memory. */
#define PF_VECTOR 8

typedef struct pf_vector {
    cdna_int4 low, high; /* the latter of f32 alone */
} pf_vector;

PF_DEVICE pf_vector pf_load_vector(unsigned long long address, pf_i64 index, int type) {
    pf_vector v = {};
    const PF_GLOBAL cdna_int4 *from =
        (const PF_GLOBAL cdna_int4 *)(address + index * (type == PF_KTYPE_F32 ? 4 : 2));
    v.low = from[0];
    if (type == PF_KTYPE_F32)
        v.high = from[1];
    return v;
}

PF_DEVICE void pf_vector_floats(const pf_vector *v, int type, float x[PF_VECTOR]) {
    if (type == PF_KTYPE_F32) {
        PF_UNROLL for (int i = 0; i < 4; ++i) {
            x[i] = __builtin_bit_cast(float, (int)v->low[i]);
            x[4 + i] = __builtin_bit_cast(float, (int)v->high[i]);
        }
        return;
    }
    PF_UNROLL for (int i = 0; i < PF_VECTOR; ++i) {
        const unsigned short bits = (unsigned short)((unsigned)v->low[i / 2] >> 16 * (i % 2));
        x[i] = type == PF_KTYPE_BF16 ? pf_bf16_bits_to_f32(bits) : pf_f16_bits_to_f32(bits);
    }
}

/* Stores of adjacent channels, as vectors. */
#define PF_OUT_RUN 4

PF_DEVICE void pf_write_run(unsigned long long address, pf_i64 index, int type, const float *x) {
    if (type == PF_KTYPE_F32) {
        *(PF_GLOBAL cdna_float4 *)(address + 4 * index) = (cdna_float4){x[0], x[1], x[2], x[3]};
    } else if (PF_SEES_E5M2 && type == PF_KTYPE_E5M2) {
        unsigned bytes = 0;
        PF_UNROLL for (int u = 0; u < 4; ++u) bytes |= (unsigned)pf_f32_to_e5m2_bits(x[u]) << 8 * u;
        *(PF_GLOBAL unsigned *)(address + index) = bytes;
    } else {
        cdna_short4 bits;
        PF_UNROLL for (int u = 0; u < 4; ++u) bits[u] =
            (short)(type == PF_KTYPE_F16 ? pf_f32_to_f16_bits(x[u]) : pf_f32_to_bf16_bits(x[u]));
        *(PF_GLOBAL cdna_short4 *)(address + 2 * index) = bits;
    }
}

#define PF_SOURCE                                                                                  \
    { PF_KERNEL_ARGS }

/* The argument segment itself: an index known only at run time would otherwise copy it to scratch.
 */
#define PF_KERNEL_ARGS cdna_args
#define PF_KERNEL(name, args_type) CDNA_KERNEL(name, args_type)
#define CDNA_KERNEL(name, args_type)                                                               \
    PF_DEVICE void name##_body(const args_type *cdna_args);                                        \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(PF_THREADS, PF_THREADS),         \
                              amdgpu_waves_per_eu(PF_WAVES_PER_EU))) void                          \
    name(const args_type) {                                                                        \
        name##_body((const args_type *)__builtin_amdgcn_kernarg_segment_ptr());                    \
    }                                                                                              \
    PF_DEVICE void name##_body(const args_type *cdna_args)

#define PF_SHARED(type, pointer)                                                                   \
    static_assert(sizeof(type) <= PF_SHARED_BYTES, "the tuning table says how much is used");      \
    static __attribute__((shared)) type cdna_shared;                                               \
    type *pointer = (type *)&cdna_shared

#if PF_OP != PF_OP_PASSES

/* The preprocessor does not see the names of types. */
#define CDNA_F32 (PF_ELEMENT == 3)
#define CDNA_BF16 (PF_ELEMENT == 2)
static_assert(PF_KTYPE_F32 == 3 && PF_KTYPE_BF16 == 2, "numbers of element types");

/* Which images contract over which rows; tiles keep what these need. */
#define CDNA_BACKWARD (PF_OP == PF_OP_BACKWARD || PF_OP == PF_OP_BACKWARD_JVP)
#define CDNA_FORWARD (PF_OP == PF_OP_FORWARD || PF_OP == PF_OP_FORWARD_JVP)

/* gfx90a's products take subnormal f16, below 2^-14, for zero. The shift leaves room for H and dS
 * of 2^10 and more. */
#if PF_TARGET == PF_TARGET_GFX90A && !CDNA_F32 && !CDNA_BF16
#define PF_WEIGHT_SHIFT (PF_TANGENT ? 4 : CDNA_FORWARD ? 8 : 6)
#endif

#define PF_OVERLAP 0
#define PF_EXCHANGES 1
#define PF_ONE_ROUND 1
#define PF_WHOLE_AHEAD 0
#define PF_SLOTS 1
#define PF_SCORE_STEP 2

enum {
    CDNA_BYTES = CDNA_F32 ? 4 : 2,       /* of an element in a tile */
    CDNA_MMA = CDNA_F32 ? 16 : 32,       /* rows and columns of a matrix instruction */
    CDNA_ACC = CDNA_MMA * CDNA_MMA / 64, /* accumulator registers of one */
    CDNA_CHUNK = 16 / CDNA_BYTES,        /* channels in a chunk */
    CDNA_WAVES = PF_OWNED_TILE / CDNA_MMA,
    PF_SCORE_COUNT = PF_CROSS_TILE / CDNA_MMA * CDNA_ACC,
    PF_OUT_COUNT = PF_OUT_DIM / CDNA_MMA * CDNA_ACC,
    CDNA_DQ_MMA = 16, /* dQ is divided more finely: its few blocks must suffice for all waves */
    CDNA_DQ_ACC = 4,
    CDNA_DQ_BLOCKS = PF_CROSS_TILE / CDNA_DQ_MMA * (PF_OUT_DIM / CDNA_DQ_MMA),
    CDNA_DQ_WAVE_BLOCKS = (CDNA_DQ_BLOCKS + CDNA_WAVES - 1) / CDNA_WAVES
};
static_assert(PF_THREADS == 64 * CDNA_WAVES, "one wave an instruction's width of owned rows");
static_assert(PF_STAGES == 1, "the next tile waits in registers");
static_assert(!CDNA_BACKWARD || CDNA_DQ_BLOCKS % CDNA_WAVES == 0, "waves share dQ evenly");

/* A lane's column of a matrix, and which of the groups of lanes that share a column it is in. */
PF_DEVICE int cdna_column() {
    return pf_lane() % CDNA_MMA;
}

PF_DEVICE int cdna_part() {
    return pf_lane() / CDNA_MMA;
}

/* The row of accumulator register r, counted over stacked blocks. */
PF_DEVICE int cdna_row(int r) {
    if (CDNA_F32)
        return 16 * (r / 4) + 4 * cdna_part() + r % 4;
    return 32 * (r / 16) + 8 * (r % 16 / 4) + 4 * cdna_part() + r % 4;
}

typedef struct pf_scores {
    float x[PF_SCORE_COUNT];
} pf_scores;

typedef struct pf_out {
    float x[PF_OUT_COUNT];
} pf_out;

typedef struct pf_cross_out {
    float x[CDNA_DQ_WAVE_BLOCKS * CDNA_DQ_ACC];
} pf_cross_out;

/* Four scores' worth of an operand, or one where elements are f32. */
#if CDNA_F32
typedef struct pf_weights {
    float x[PF_SCORE_COUNT];
} pf_weights;
#else
typedef struct pf_weights {
    cdna_short4 x[PF_SCORE_COUNT / 4];
} pf_weights;
#endif

PF_DEVICE int pf_score_slot(int) {
    return 0;
}

PF_DEVICE int pf_score_cross(int e) {
    return cdna_row(e);
}

PF_DEVICE int pf_out_slot(int) {
    return 0;
}

PF_DEVICE int pf_out_channel(int e) {
    return cdna_row(e);
}

PF_DEVICE int pf_slot_owned(int) {
    return CDNA_MMA * cdna_wave() + cdna_column();
}

PF_DEVICE bool pf_slot_is_first() {
    return cdna_part() == 0;
}

PF_DEVICE float pf_slot_max(float x) {
    PF_UNROLL for (int mask = CDNA_MMA; mask < 64; mask *= 2) x = pf_max(x, cdna_exchange(x, mask));
    return x;
}

PF_DEVICE float pf_slot_sum(float x) {
    PF_UNROLL for (int mask = CDNA_MMA; mask < 64; mask *= 2) x += cdna_exchange(x, mask);
    return x;
}
/* One matrix instruction; the accumulator says which. */
#if CDNA_F32
typedef cdna_float4 cdna_acc;
typedef float cdna_operand;

PF_DEVICE cdna_float4 cdna_mfma(cdna_operand a, cdna_operand b, cdna_float4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, c, 0, 0, 0);
}
#else
typedef cdna_float16 cdna_acc;
typedef cdna_short4 cdna_operand;

PF_DEVICE cdna_acc cdna_mfma(cdna_operand a, cdna_operand b, cdna_acc c) {
#if CDNA_BF16
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, c, 0, 0, 0);
#else
    return __builtin_amdgcn_mfma_f32_32x32x8f16(__builtin_bit_cast(cdna_half4, a),
                                                __builtin_bit_cast(cdna_half4, b), c, 0, 0, 0);
#endif
}

PF_DEVICE cdna_float4 cdna_mfma(cdna_operand a, cdna_operand b, cdna_float4 c) {
#if CDNA_BF16
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0);
#else
    return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(cdna_half4, a),
                                                 __builtin_bit_cast(cdna_half4, b), c, 0, 0, 0);
#endif
}
#endif

/* Accumulators move as whole vectors, so that the compiler keeps them as such: as scalars they
 * would be copied between the two halves of the register file around each product. */
typedef cdna_acc cdna_acc_in_place __attribute__((aligned(4)));

PF_DEVICE cdna_acc cdna_acc_get(const float *x, bool fresh) {
    return fresh ? (cdna_acc)(0.f) : *(const cdna_acc_in_place *)x;
}

PF_DEVICE void cdna_acc_put(float *x, cdna_acc acc) {
    *(cdna_acc_in_place *)x = acc;
}

#if !CDNA_F32
/* Half a chunk. (Clang casts the bits of the whole vector's beginning when given `chunk.hi`
 * itself.) */
PF_DEVICE cdna_operand cdna_operand_of(cdna_int4 chunk, int half) {
    const cdna_int2 x = {chunk[2 * half], chunk[2 * half + 1]};
    return __builtin_bit_cast(cdna_operand, x);
}
#endif

/* The instructions of one pair of chunks. */
template <typename acc_type>
PF_DEVICE acc_type cdna_mfma_chunk(cdna_int4 a, cdna_int4 b, acc_type acc) {
#if CDNA_F32
    const cdna_float4 fa = __builtin_bit_cast(cdna_float4, a);
    const cdna_float4 fb = __builtin_bit_cast(cdna_float4, b);
    PF_UNROLL for (int t = 0; t < 4; ++t) acc = cdna_mfma(fa[t], fb[t], acc);
    return acc;
#else
    acc = cdna_mfma(cdna_operand_of(a, 0), cdna_operand_of(b, 0), acc);
    return cdna_mfma(cdna_operand_of(a, 1), cdna_operand_of(b, 1), acc);
#endif
}

/* An element of a tile, and as an operand. */
#if CDNA_F32
typedef float cdna_element;
#else
typedef unsigned short cdna_element;
#endif

PF_DEVICE void pf_weights_pack(pf_weights *w, const pf_scores *s) {
#if CDNA_F32
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) w->x[e] = s->x[e];
#else
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) w->x[e / 4][e % 4] =
        (short)(PF_ELEMENT == PF_KTYPE_BF16 ? pf_f32_to_bf16_bits(s->x[e])
                                            : pf_f32_to_f16_bits(s->x[e]));
#endif
}

#include "cdna_load.h"
#include "cdna_swizzle.h"

/* Where two operands and two cotangents, with their tangents, fit no tile, products read memory. */
#define CDNA_DIRECT (PF_HEAD_DIM == 256 && PF_TANGENT && !CDNA_FORWARD)

#if CDNA_DIRECT
#include "cdna_direct.h"
#else
#include "cdna_tile.h"
#endif
#include "cdna_product.h"
#if CDNA_BACKWARD
#include "cdna_dq.h"
#endif

#endif
#endif
