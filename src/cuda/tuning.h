/* SPDX-License-Identifier: Apache-2.0 */
/* The one tuning table of the NVIDIA targets. A kernel reads its own row,
 *     constexpr pf_tuning tuned = pf_tuning_find(pf_cuda_tuning, PF_TARGET, PF_OP,
 *                                                PF_CLASS_OF(PF_ELEMENT), PF_HEAD_DIM, PF_VARIANT,
 *                                                PF_GENERAL);
 * and asserts that its shared memory fits shared_bytes; the host launches by the same row.
 * kernel.cu is compiled once an image, with -DPF_TARGET=PF_TARGET_* -DPF_OP=PF_OP_* and, except for
 * PASSES, -DPF_ELEMENT=<number of the PF_KTYPE_*> -DPF_HEAD_DIM=64|128|256 -DPF_GENERAL=0|1
 * -DPF_TANGENT=0|1 -DPF_VARIANT=<number of the row>.
 *
 * GENERAL(...) is the row of a kernel's general image, where that has one of its own: bias and mask
 * need shared memory and registers. VARIANT(n, ...) is a further row of a kernel; meson.build lists
 * for which kernels they are compiled. SHORT(n, length, ...) is one that is the default where
 * sequences are no longer than this.
 *
 * Where kernels store a tensor map in place of an operand, dimensions of stride 0 (batch or head)
 * have extent 1 in the map: their coordinate is then 0. */
#ifndef PF_CUDA_TUNING_H
#define PF_CUDA_TUNING_H

#include "../common/tuning.h"

#define PF_KIB(n) ((n)*1024)

/* Threads of a block of the kernels in passes.h. */
#define PF_CUDA_PASS_THREADS PF_PASS_THREADS

/* Most that a block may use: chips 8.6 and 8.9 have the least of those that sm_80 code runs on. */
#define PF_CUDA_SHARED_MAX_SM_80 PF_KIB(99)
#define PF_CUDA_SHARED_MAX_SM_90A PF_KIB(227)

/* clang-format off */
PF_TUNING_TABLE pf_cuda_tuning[] = {
#define ROW(...) VARIANT(0, __VA_ARGS__)
#define VARIANT(n, ...) SHORT(n, 0, __VA_ARGS__)
#define SHORT(n, most, ...) BOTH(n, most, ANY, __VA_ARGS__, 0)
#define GENERAL(...) STAGED(0, EACH, __VA_ARGS__)
#define STAGED(n, staged, ...) BOTH(PF_VARIANT_GENERAL + n, 0, staged, __VA_ARGS__)
#define BOTH(variant, most, staged, target, op, element_class, hd, owned, cross, out, stages, threads, kib,    \
             blocks, persistent, bias_kib)                                                               \
    {PF_TARGET_##target, PF_OP_##op, PF_CLASS_##element_class,                                           \
     hd, owned, cross, out, stages, threads, PF_KIB(kib), blocks, persistent, 0, variant,                \
     PF_KIB(bias_kib), most, PF_STAGED_##staged},
    /*   target   operation     class   hd  owned cross out stages threads KiB blocks persistent */
    ROW(SM_90A, FORWARD,       HALF,   64,  192,  128,  64,  2,     512, 138,  1,  1)
    SHORT(1, 1024, SM_90A, FORWARD, HALF, 64, 256, 64, 64, 4,    640, 164,  1,  1)
    ROW(SM_90A, FORWARD,       HALF,  128,  128,  128, 128,  2,     384, 226,  1,  1)
    ROW(SM_90A, FORWARD,       HALF,  256,  128,   64, 256,  2,     384, 226,  1,  1)
    ROW(SM_90A, FORWARD_JVP,   HALF,   64,  128,   96,  64,  2,     384, 178,  1,  1)
    ROW(SM_90A, FORWARD_JVP,   HALF,  128,  128,   64, 128,  2,     384, 226,  1,  1)
    ROW(SM_90A, FORWARD_JVP,   HALF,  256,   64,   64, 256,  1,     384, 210,  1,  1)
    ROW(SM_90A, BACKWARD,      HALF,   64,  128,  128,  64,  2,     384, 198,  1,  1)
    ROW(SM_90A, BACKWARD,      HALF,  128,  128,   64, 128,  2,     384, 200,  1,  1)
    ROW(SM_90A, BACKWARD,      HALF,  256,   64,   64, 256,  2,     384, 227,  1,  2)

    /*       the same                                                                 bias KiB */
    STAGED(0, ANY,  SM_90A, FORWARD, HALF, 64, 128,  128,  64,  2,    384, 178,  1,  1,  96)
    STAGED(1, BIAS, SM_90A, FORWARD, HALF, 64, 192,  128,  64,  2,    512, 186,  1,  1,  96)
    STAGED(2, MASK, SM_90A, FORWARD, HALF, 64, 192,  128,  64,  2,    512, 138,  1,  1,  48)
    GENERAL(SM_90A, FORWARD,     HALF,  128,  128,  128, 128,  2,     384, 226,  1,  1,  64)
    GENERAL(SM_90A, FORWARD,     HALF,  256,  128,   64, 256,  2,     384, 226,  1,  1,  32)
    GENERAL(SM_90A, FORWARD_JVP, HALF,   64,  128,   64,  64,  3,     384, 226,  1,  1,  96)
    GENERAL(SM_90A, FORWARD_JVP, HALF,  128,  128,   64, 128,  2,     384, 226,  1,  1,  64)
    GENERAL(SM_90A, FORWARD_JVP, HALF,  256,   64,   64, 256,  1,     384, 226,  1,  1,  16)
    GENERAL(SM_90A, BACKWARD,    HALF,   64,  128,   64,  64,  2,     384, 194,  1,  1,  48)
    GENERAL(SM_90A, BACKWARD,    HALF,  128,  128,   64, 128,  2,     384, 227,  1,  1,  32)
    GENERAL(SM_90A, BACKWARD,    HALF,  256,   64,   64, 128,  1,     256, 197,  1,  1,  16)

    ROW(SM_80,  FORWARD,       HALF,   64,   64,   64,  64,  2,     128,  41,  2,  0)
    ROW(SM_80,  FORWARD,       HALF,  128,   64,   64, 128,  2,     128,  81,  1,  0)
    VARIANT(1, SM_80, FORWARD, HALF, 128, 128, 64, 128,  2,     256,  97,  1,  0)
    ROW(SM_80,  FORWARD,       HALF,  256,   64,   32, 256,  2,     128,  97,  1,  0)
    ROW(SM_80,  FORWARD_JVP,   HALF,   64,   64,   64,  64,  2,     128,  81,  1,  0)
    ROW(SM_80,  FORWARD_JVP,   HALF,  128,   64,   32, 128,  2,     128,  97,  1,  0)
    ROW(SM_80,  FORWARD_JVP,   HALF,  256,   64,   16, 128,  1,     128,  89,  1,  0)
    ROW(SM_80,  BACKWARD,      HALF,   64,   64,   64,  64,  2,     128,  58,  1,  0)
    ROW(SM_80,  BACKWARD,      HALF,  128,   64,   32, 128,  2,     128,  69,  1,  0)
    ROW(SM_80,  BACKWARD,      HALF,  256,   64,   16, 128,  1,     128,  83,  1,  0)
    ROW(SM_80,  BACKWARD_JVP,  HALF,   64,   64,   32,  64,  2,     128,  74,  1,  0)
    ROW(SM_80,  BACKWARD_JVP,  HALF,  128,   64,   16,  64,  1,     128,  85,  1,  0)
    ROW(SM_80,  BACKWARD_JVP,  HALF,  256,   32,   16,  64,  1,      64,  99,  1,  0)
    ROW(SM_80,  DBIAS,         HALF,   64,   64,   64,  64,  1,     128,  33,  2,  0)
    ROW(SM_80,  DBIAS,         HALF,  128,   64,   32, 128,  1,     128,  49,  1,  0)
    ROW(SM_80,  DBIAS,         HALF,  256,   64,   16, 256,  1,     128,  81,  1,  0)
    ROW(SM_80,  DBIAS_JVP,     HALF,   64,   64,   32,  64,  1,     128,  49,  1,  0)
    ROW(SM_80,  DBIAS_JVP,     HALF,  128,   64,   16, 128,  1,     128,  81,  1,  0)
    ROW(SM_80,  DBIAS_JVP,     HALF,  256,   32,   16, 256,  1,      64,  97,  1,  0)

    ROW(SM_80,  FORWARD,       F32,    64,   64,   64,  64,  2,     128,  81,  1,  0)
    ROW(SM_80,  FORWARD,       F32,   128,   64,   32, 128,  1,     128,  65,  3,  0)
    ROW(SM_80,  FORWARD,       F32,   256,   64,   16, 256,  1,     128,  97,  1,  0)
    ROW(SM_80,  FORWARD_JVP,   F32,    64,   64,   32,  64,  2,     128,  97,  1,  0)
    ROW(SM_80,  FORWARD_JVP,   F32,   128,   64,   16, 128,  1,     128,  97,  1,  0)
    ROW(SM_80,  FORWARD_JVP,   F32,   256,   16,   16, 128,  1,      32,  81,  1,  0)
    ROW(SM_80,  BACKWARD,      F32,    64,   64,   32,  64,  2,     128,  73,  1,  0)
    ROW(SM_80,  BACKWARD,      F32,   128,   64,   16, 128,  1,     128,  85,  1,  0)
    ROW(SM_80,  BACKWARD,      F32,   256,   32,   16, 128,  1,      64,  99,  1,  0)
    ROW(SM_80,  BACKWARD_JVP,  F32,    64,   64,   16,  64,  1,     128,  89,  1,  0)
    ROW(SM_80,  BACKWARD_JVP,  F32,   128,   16,   16,  64,  1,      32,  67,  1,  0)
    ROW(SM_80,  BACKWARD_JVP,  F32,   256,   16,    8,  64,  1,      32,  98,  1,  0)
    ROW(SM_80,  DBIAS,         F32,    64,   64,   32,  64,  1,     128,  49,  1,  0)
    ROW(SM_80,  DBIAS,         F32,   128,   64,   16, 128,  1,     128,  81,  1,  0)
    ROW(SM_80,  DBIAS,         F32,   256,   32,   16, 256,  1,      64,  97,  1,  0)
    ROW(SM_80,  DBIAS_JVP,     F32,    64,   64,   16,  64,  1,     128,  81,  1,  0)
    ROW(SM_80,  DBIAS_JVP,     F32,   128,   32,   16, 128,  1,      64,  97,  1,  0)
    ROW(SM_80,  DBIAS_JVP,     F32,   256,   16,    8, 256,  1,      32,  97,  1,  0)

    ROW(SM_80,  FORWARD,       E5M2,   64,   64,   64,  64,  2,     128,  41,  2,  0)
    ROW(SM_80,  FORWARD,       E5M2,  128,   64,   64, 128,  2,     128,  81,  1,  0)
    ROW(SM_80,  FORWARD,       E5M2,  256,   64,   32, 256,  2,     128,  97,  1,  0)
#undef BOTH
#undef STAGED
#undef GENERAL
#undef SHORT
#undef VARIANT
#undef ROW
};
/* clang-format on */

#define PF_CUDA_TUNING_COUNT ((int)(sizeof pf_cuda_tuning / sizeof pf_cuda_tuning[0]))

#endif
