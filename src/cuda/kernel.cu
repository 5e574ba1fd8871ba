/* SPDX-License-Identifier: Apache-2.0 */
/* One image of the NVIDIA kernels: target, operation, type and head dimension come from the build
 * (tuning.h lists the macros), everything else from the shared kernel source. */
#include "../common/kernels/port.h"
#include "tuning.h"

#if PF_OP == PF_OP_PASSES
/* The passes use no tile: any row gives the names that common.h mentions. */
#define PF_ELEMENT PF_KTYPE_F16
#define PF_HEAD_DIM 64
#define PF_GENERAL 1
#define PF_TANGENT 0
constexpr pf_tuning pf_tuned = pf_tuning_find(pf_cuda_tuning, PF_TARGET_SM_80, PF_OP_FORWARD,
                                              PF_CLASS_HALF, PF_HEAD_DIM, 0, false);
#else
constexpr pf_tuning pf_tuned = pf_tuning_find(
    pf_cuda_tuning, PF_TARGET, PF_OP, PF_CLASS_OF(PF_ELEMENT), PF_HEAD_DIM, PF_VARIANT, PF_GENERAL);
#endif

enum {
    PF_OWNED_TILE = pf_tuned.owned_tile,
    PF_CROSS_TILE = pf_tuned.cross_tile,
    PF_OUT_DIM = pf_tuned.out_dim,
    PF_STAGES = pf_tuned.stages,
    PF_TUNED_BIAS_BYTES = pf_tuned.bias_bytes,
    PF_TUNED_STAGED = pf_tuned.staged,
    PF_SHARED_BYTES = pf_tuned.shared_bytes,
    PF_THREADS = PF_OP == PF_OP_PASSES ? PF_CUDA_PASS_THREADS : pf_tuned.threads,
    PF_MIN_BLOCKS = pf_tuned.min_blocks,
};

#if PF_TARGET == PF_TARGET_SM_80 || PF_OP == PF_OP_PASSES
#include "port_sm80.h"
#else
#include "port_sm90a.h"
#endif

#if PF_OP == PF_OP_PASSES
#include "../common/kernels/passes.h"
#elif PF_OP == PF_OP_FORWARD_JVP && defined(PF_FORWARD_PAIRED) && PF_FORWARD_PAIRED
#include "../common/kernels/forward_pair.h"
#elif PF_OP == PF_OP_FORWARD || PF_OP == PF_OP_FORWARD_JVP
#include "../common/kernels/forward.h"
#elif PF_OP == PF_OP_BACKWARD || PF_OP == PF_OP_BACKWARD_JVP
#include "../common/kernels/backward.h"
#else
#include "../common/kernels/dbias.h"
#endif
