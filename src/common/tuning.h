/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel image is compiled for, and the numbers of it that affect speed only. Seen by the C
 * host code and by device sources, whose preprocessor compares the names below; so they are macros.
 */
#ifndef PF_TUNING_H
#define PF_TUNING_H

/* PF_TARGET: which code of the portability layer, compiled for which instruction set. */
#define PF_TARGET_SM_80 0
#define PF_TARGET_SM_90A 1
#define PF_TARGET_GFX90A 2
#define PF_TARGET_GFX942 3
#define PF_TARGET_GFX950 4
#define PF_TARGET_COUNT 5

/* PF_OP: what the image computes. PASSES holds the small kernels that need no tuning. */
#define PF_OP_FORWARD 0
#define PF_OP_FORWARD_JVP 1
#define PF_OP_BACKWARD 2
#define PF_OP_BACKWARD_JVP 3
#define PF_OP_DBIAS 4
#define PF_OP_DBIAS_JVP 5
#define PF_OP_COUNT 6
#define PF_OP_PASSES 6

/* Element types that share their tuning: PF_KTYPE_F16 and _BF16, _F32, _E5M2. */
#define PF_CLASS_HALF 0
#define PF_CLASS_F32 1
#define PF_CLASS_E5M2 2
#define PF_CLASS_OF(ktype)                                                                         \
    ((ktype) <= 2 ? PF_CLASS_HALF : (ktype) == 3 ? PF_CLASS_F32 : PF_CLASS_E5M2)

/* Threads of a workgroup of the passes; a multiple of every warp and wave. The dq pass of backward
 * has those of its main kernel. */
#define PF_PASS_THREADS 256

/* Most rows that the table may have for one kernel. Row 0 is the default; others, the variants, are
 * compiled beside it where only a device can tell which is best, for `pfattn tune` to find out, or
 * for short sequences. */
#define PF_VARIANTS 4

/* Added to the number of a variant: the row is the general kernel's, whose default without one of
 * its own has the plain kernel's. */
#define PF_VARIANT_GENERAL PF_VARIANTS

/* What of bias and mask a problem has staged: anything; the bias and, in the JVP, its tangent; the
 * mask alone, with a positive alpha. And what loops of a general kernel are compiled for: one of
 * these, or each in a loop of its own. */
#define PF_STAGED_ANY 0
#define PF_STAGED_BIAS 1
#define PF_STAGED_MASK 2
#define PF_STAGED_EACH 3

/* Rows that a workgroup of pf_backward_pre takes. */
#define PF_PRE_ROWS 64

/* Channels of a row that a thread of pf_merge_splits takes; where parts of an item are more than
 * PF_MERGE_FEW, those that a warp or wave takes, and how many of its lanes share the parts. */
#define PF_MERGE_RUN 8
#define PF_MERGE_FEW 8
#define PF_MERGE_CHANNELS 32
#define PF_MERGE_LANES 8

/* Rows that a workgroup of pf_widen and of pf_narrow takes. */
#define PF_WIDEN_ROWS 64

/* Bytes of a staged tile of bias (of 16-bit elements) or mask: each query has a row of 128 bytes
 * for each 64 keys, or 128. */
#define PF_BIAS_TILE_BYTES(queries, keys) ((queries)*128 * (((keys) + 63) / 64))
#define PF_MASK_TILE_BYTES(queries, keys) ((queries)*128 * (((keys) + 127) / 128))

/* One row a kernel, and one more for each variant. Owned rows are queries in forward, keys in
 * backward and dbias; cross rows are the others. */
typedef struct pf_tuning {
    int target, op, element_class;
    int head_dim;     /* channels of a staged tile: D and E padded with zeros */
    int owned_tile;   /* rows a workgroup keeps */
    int cross_tile;   /* rows of a tile that streams past them */
    int out_dim;      /* output channels a workgroup accumulates: head_dim or a divisor of it */
    int stages;       /* buffers in a ring of streamed tiles */
    int threads;      /* of a workgroup */
    int shared_bytes; /* dynamic shared memory of a workgroup */
    int min_blocks;   /* workgroups meant to share a multiprocessor */
    int persistent;   /* 0: a workgroup an item of work; n: clusters of n loop over the items */
    int waves_per_eu; /* AMD: waves that registers must leave room for on each SIMD */
    int variant;      /* 0, the default, less than PF_VARIANTS, or PF_VARIANT_GENERAL more */
    int bias_bytes;   /* of shared_bytes, for staged tiles of bias and mask; 0 for none */
    int short_most;   /* of a variant that is the default where queries are more than a tile of
                         row 0, and neither they nor keys more than this; 0 for none */
    int staged;       /* of a general kernel; a variant runs where just that is staged */
} pf_tuning;

/* Workgroups that do one item of work together; they own neighbouring tiles. */
#define PF_CLUSTER_OF(persistent) ((persistent) > 1 ? (persistent) : 1)

#if defined(__cplusplus)
#define PF_TUNING_TABLE static constexpr pf_tuning

/* The place of a row, `count` where there is none. */
template <int count>
constexpr int pf_tuning_place(const pf_tuning (&table)[count], int target, int op,
                              int element_class, int head_dim, int variant) {
    int i = 0;
    while (i < count && !(table[i].target == target && table[i].op == op &&
                          table[i].element_class == element_class &&
                          table[i].head_dim == head_dim && table[i].variant == variant))
        ++i;
    return i;
}

/* The row of a kernel, at compile time; without one the compiler stops at the throw. */
template <int count>
constexpr pf_tuning pf_tuning_find(const pf_tuning (&table)[count], int target, int op,
                                   int element_class, int head_dim, int variant, bool general) {
    int i = count;
    if (general)
        i = pf_tuning_place(table, target, op, element_class, head_dim,
                            PF_VARIANT_GENERAL + variant);
    if (i == count && !(general && variant > 0))
        i = pf_tuning_place(table, target, op, element_class, head_dim, variant);
    if (i < count)
        return table[i];
    throw "the tuning table has no row for this kernel";
}
#else
#define PF_TUNING_TABLE static const pf_tuning
#endif

#endif
