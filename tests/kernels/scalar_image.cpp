// SPDX-License-Identifier: Apache-2.0
// One image of the kernel source under the scalar port. The build defines SCALAR_IMAGE, the name of
// its entry, PF_OP, and what port.h names. Tiles are small, so that problems of a few dozen rows
// cross them.
#include "port_scalar.h"

extern "C" {
#include "common/select.h"
}

#if PF_OP == PF_OP_PASSES
#include "common/kernels/passes.h"
#elif PF_OP == PF_OP_FORWARD || PF_OP == PF_OP_FORWARD_JVP
#include "common/kernels/forward.h"
#elif PF_OP == PF_OP_BACKWARD || PF_OP == PF_OP_BACKWARD_JVP
#include "common/kernels/backward.h"
#else
#include "common/kernels/dbias.h"
#endif

static void run_thread(const void *args, int entry) {
    const pf_attention_kargs *a = (const pf_attention_kargs *)args;
#if PF_OP == PF_OP_PASSES
    switch (entry) {
    case PF_ENTRY_KEY_LIVE:
        return pf_key_live(a);
    case PF_ENTRY_BACKWARD_PRE:
        return pf_backward_pre(a);
    case PF_ENTRY_BACKWARD_PRE_JVP:
        return pf_backward_pre_jvp(a);
    case PF_ENTRY_DBIAS_REDUCE:
        return pf_dbias_reduce(a);
    case PF_ENTRY_MERGE:
        return pf_merge((const pf_merge_kargs *)args);
    case PF_ENTRY_MERGE_SPLITS:
        return pf_merge_splits(a);
    case PF_ENTRY_MERGE_SPLITS_JVP:
        return pf_merge_splits_jvp(a);
    case PF_ENTRY_WIDEN:
        return pf_widen((const pf_widen_kargs *)args);
    default:
        return pf_narrow((const pf_merge_kargs *)args);
    }
#elif PF_OP == PF_OP_FORWARD || PF_OP == PF_OP_FORWARD_JVP
    (void)entry;
    PF_KERNEL_NAME(forward)(a);
#elif PF_OP == PF_OP_BACKWARD || PF_OP == PF_OP_BACKWARD_JVP
    if (entry == PF_ENTRY_MAIN)
        PF_KERNEL_NAME(backward)(a);
    else
        PF_KERNEL_NAME_WITH(backward, dq)(a);
#else
    (void)entry;
    PF_KERNEL_NAME(dbias)(a);
#endif
}

extern "C" void SCALAR_IMAGE(const void *args, int entry, int blocks, int threads);

void SCALAR_IMAGE(const void *args, int entry, int blocks, int threads) {
    scalar_blocks = blocks;
    scalar_threads = threads;
    for (scalar_block = 0; scalar_block < blocks; ++scalar_block)
        for (scalar_thread = 0; scalar_thread < threads; ++scalar_thread)
            run_thread(args, entry);
}
