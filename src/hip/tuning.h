/* SPDX-License-Identifier: Apache-2.0 */
/* The one tuning table of the AMD targets; a kernel reads its own row, and the host launches by it.
 *
 * Tiles are bound by LDS, 64 KiB a compute unit, which has four SIMDs: a workgroup of four waves
 * gives one to each. Owned rows come 32 to a wave, f32 ones 16; cross tiles are multiples of that.
 * out < hd divides the output among workgroups, which then recompute the scores. The kernels that
 * read memory directly (port_cdna.h) hold in LDS no more than dS.
 *
 * VARIANT(n, ...) is a further row of a kernel; meson.build lists for which kernels they are
 * compiled. */
#ifndef PF_HIP_TUNING_H
#define PF_HIP_TUNING_H

#include "../common/tuning.h"

#define PF_KIB(n) ((n)*1024)

/* clang-format off */
PF_TUNING_TABLE pf_hip_tuning[] = {
/* All targets have the same registers and matrix shapes, hence the same rows; gfx950 has more LDS. */
#define ROW(...) VARIANT(0, __VA_ARGS__)
#define VARIANT(variant, ...)                                                                           \
    ROW_OF(GFX90A, variant, __VA_ARGS__),                                                               \
    ROW_OF(GFX942, variant, __VA_ARGS__),                                                               \
    ROW_OF(GFX950, variant, __VA_ARGS__),
#define ROW_OF(target, variant, operation, element_class, hd, owned, cross, out, threads, kib, waves)   \
    {PF_TARGET_##target, PF_OP_##operation, PF_CLASS_##element_class,                                   \
     hd, owned, cross, out, 1, threads, PF_KIB(kib), 1, 0, waves, variant, 0, 0, 0}
    /*   operation      class   hd  owned cross  out threads KiB waves */
    ROW(FORWARD,       HALF,   64,  128,   32,   64,   256,  10,  3)
    VARIANT(1, FORWARD, HALF,  64, 128,   64,   64,   256,  19,  3)
    ROW(FORWARD,       HALF,  128,  128,   32,  128,   256,  19,  2)
    VARIANT(1, FORWARD, HALF, 128, 256,   32,  128,   512,  19,  2)
    ROW(FORWARD,       HALF,  256,  128,   32,  256,   256,  37,  1)
    ROW(FORWARD_JVP,   HALF,   64,  128,   32,   64,   256,  20,  2)
    ROW(FORWARD_JVP,   HALF,  128,  128,   32,  128,   256,  41,  1)
    ROW(FORWARD_JVP,   HALF,  256,  128,   32,  128,   256,  54,  1)
    ROW(BACKWARD,      HALF,   64,  128,   32,   64,   256,  46,  1)
    VARIANT(1, BACKWARD, HALF,  64, 128,   64,   64,   256,  53,  1)
    ROW(BACKWARD,      HALF,  128,  128,   32,  128,   256,  61,  1)
    ROW(BACKWARD,      HALF,  256,  128,   32,   64,   256,  60,  1)
    ROW(BACKWARD_JVP,  HALF,   64,  128,   32,   32,   256,  54,  1)
    ROW(BACKWARD_JVP,  HALF,  128,   64,   32,   64,   128,  63,  1)
    ROW(BACKWARD_JVP,  HALF,  256,  128,   32,   64,   256,  20,  2)
    ROW(DBIAS,         HALF,   64,  128,   32,   64,   256,  18,  2)
    ROW(DBIAS,         HALF,  128,  128,   32,  128,   256,  19,  1)
    ROW(DBIAS,         HALF,  256,  128,   32,  256,   256,  34,  1)
    ROW(DBIAS_JVP,     HALF,   64,  128,   32,   64,   256,  20,  1)
    ROW(DBIAS_JVP,     HALF,  128,  128,   32,  128,   256,  36,  1)
    ROW(DBIAS_JVP,     HALF,  256,  128,   32,  256,   256,  18,  1)

    ROW(FORWARD,       F32,    64,   64,   32,   64,   256,  18,  2)
    ROW(FORWARD,       F32,   128,   64,   32,  128,   256,  34,  1)
    ROW(FORWARD,       F32,   256,   64,   16,  256,   256,  34,  1)
    ROW(FORWARD_JVP,   F32,    64,   64,   32,   64,   256,  35,  1)
    ROW(FORWARD_JVP,   F32,   128,   64,   16,  128,   256,  34,  1)
    ROW(FORWARD_JVP,   F32,   256,   64,   16,  128,   256,  50,  1)
    ROW(BACKWARD,      F32,    64,   64,   32,   64,   256,  44,  1)
    ROW(BACKWARD,      F32,   128,   64,   16,  128,   256,  55,  1)
    ROW(BACKWARD,      F32,   256,   64,   16,   64,   256,  55,  1)
    ROW(BACKWARD_JVP,  F32,    64,   64,   16,   64,   256,  61,  1)
    ROW(BACKWARD_JVP,  F32,   128,   32,   16,   64,   128,  56,  1)
    ROW(BACKWARD_JVP,  F32,   256,   64,   16,  128,   256,  10,  1)
    ROW(DBIAS,         F32,    64,   64,   32,   64,   256,  18,  1)
    ROW(DBIAS,         F32,   128,   64,   16,  128,   256,  18,  1)
    ROW(DBIAS,         F32,   256,   64,   16,  256,   256,  34,  1)
    ROW(DBIAS_JVP,     F32,    64,   64,   16,   64,   256,  18,  1)
    ROW(DBIAS_JVP,     F32,   128,   64,   16,  128,   256,  34,  1)
    ROW(DBIAS_JVP,     F32,   256,   64,   16,  256,   256,   5,  2)

    ROW(FORWARD,       E5M2,   64,  128,   32,   64,   256,  10,  3)
    ROW(FORWARD,       E5M2,  128,  128,   32,  128,   256,  19,  2)
    ROW(FORWARD,       E5M2,  256,  128,   32,  256,   256,  37,  1)
#undef ROW_OF
#undef VARIANT
#undef ROW
};
/* clang-format on */

#define PF_HIP_TUNING_COUNT ((int)(sizeof pf_hip_tuning / sizeof pf_hip_tuning[0]))

#endif
