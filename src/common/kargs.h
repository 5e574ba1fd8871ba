/* SPDX-License-Identifier: Apache-2.0 */
/* Plain structs handed to kernels by value. The host fills them from a pf_problem, the kernel
 * source reads them; both see this file, so it includes nothing but fixed-width integers. */
#ifndef PF_KARGS_H
#define PF_KARGS_H

#if defined(__cplusplus)
#define PF_KARG_ASSERT(condition, text) static_assert(condition, text)
#else
#define PF_KARG_ASSERT(condition, text) _Static_assert(condition, text)
#endif

typedef long long pf_i64;

/* A strided tensor in device memory, strides in elements; address 0 = absent. */
typedef struct pf_karg_tensor {
    unsigned long long address;
    pf_i64 stride[4];
} pf_karg_tensor;

/* Operands that kernels stage tile by tile. [0] and [1] of a pair are the near and the far
 * pair of piecewise attention; without it only [0] is used. */
typedef enum pf_operand {
    PF_OPERAND_Q = 0,
    PF_OPERAND_K = 2,
    PF_OPERAND_TQ = 4,
    PF_OPERAND_TK = 6,
    PF_OPERAND_V = 8,
    PF_OPERAND_TV = 9,
    PF_OPERAND_DOUT = 10,
    PF_OPERAND_TDOUT = 11,
    PF_OPERAND_COUNT = 12
} pf_operand;

/* Tensors that some targets read and write through tensor maps: the operands, then these. */
typedef enum pf_map {
    PF_MAP_BIAS = PF_OPERAND_COUNT,
    PF_MAP_TBIAS,
    PF_MAP_MASK,
    PF_MAP_DBIAS,            /* in backward */
    PF_MAP_O = PF_MAP_DBIAS, /* in forward */
    PF_MAP_COUNT
} pf_map;

/* Rows of a box of PF_MAP_O: those of queries that a warp owns. */
enum { PF_OUT_ROWS = 16 };

/* Element types as kernels see them: the values of pfattn_dtype. */
enum {
    PF_KTYPE_NONE = 0,
    PF_KTYPE_F16 = 1,
    PF_KTYPE_BF16 = 2,
    PF_KTYPE_F32 = 3,
    PF_KTYPE_E5M2 = 5
};

/* What backward knows of each query, row by row of query_stats. */
typedef enum pf_stat {
    PF_STAT_LSE = 0,    /* L; +inf for a query that keeps no key, so that its weights vanish */
    PF_STAT_DELTA = 1,  /* <dO, O> - dL */
    PF_STAT_TLSE = 2,   /* tL */
    PF_STAT_TDELTA = 3, /* <tdO, O> + <dO, tO> */
    PF_STATS = 4
} pf_stat;

/* What stands in place of L in a part of an item of forward: two channels. */
typedef enum pf_part {
    PF_PART_MAX = 0, /* the largest score of the part, -inf where it keeps no key */
    PF_PART_SUM = 1, /* sum of exp(S - largest), 0 where it keeps no key */
    PF_PARTS = 2
} pf_part;

/* Keys that one workgroup of pf_key_live looks at; keys_padded is a multiple of it. */
enum { PF_KEY_LIVE_TILE = 256 };

/* Rows of dK or dV that one workgroup sums from the parts of a divided item. */
enum { PF_JOIN_ROWS = 16 };

/* Window bounds are clamped to +-PF_WINDOW_LIMIT, farther than any query is from any key. */
#define PF_WINDOW_LIMIT (1 << 30)

/* A divisor of what is from 0 to 2^31 - 1 that kernels need not divide by: the quotient is the
 * upper half of multiplier * n, shifted to the right, or n itself where the multiplier is 0. */
typedef struct pf_divisor {
    int value;
    unsigned multiplier;
    int shift;
} pf_divisor;

/* How the workgroups of a grid share a list of items, of which there are `by_tiles` for each head:
 * pairs of neighbours in whole rounds, then one round of `pairs_left` pairs, then one by one the
 * items of the last heads. Without last heads, item by item. */
typedef struct pf_work_order {
    pf_divisor by_blocks;
    int rounds, pairs_left;
    int first_last;     /* head */
    pf_divisor by_last; /* how many; 0 for none */
} pf_work_order;

/* How the clusters of backward divide the last items of the list among them, after so many rounds
 * of whole ones: by tiles of queries, of which each cluster takes `each`, the first `more` one
 * more. */
typedef struct pf_division {
    int items; /* 0 where all are done whole */
    int first; /* place in the list */
    int rounds;
    int each, more;
    pf_divisor by_tiles; /* of queries, an item's */
} pf_division;

/* Forward's last items, split by keys: their tiles of keys, of one item after the other, are cut
 * into ranges of `by_length`, one for each workgroup, which begins it once its whole items are
 * done. No range is longer than an item, so that it has tiles of two at most. What a range does of
 * an item is a part, f32 rows of tensors of their own, where part `range + item` has the place of a
 * batch. L is written as pf_part says: itself it would not tell how many keys have a score of great
 * magnitude.
 */
typedef struct pf_key_split {
    int items, first;                /* how many, 0 for none; place of the first in the list */
    int round;                       /* of a workgroup, in which its range begins */
    pf_divisor by_tiles, by_length;  /* tiles of keys: of an item, of a range */
    pf_divisor by_rows;              /* queries of an item */
    int channels;                    /* output channels of an item */
    int channel_parts;               /* items that share queries */
    pf_karg_tensor o, to, lse, tlse; /* [parts, 1, rows, channels] */
    int many_parts;                  /* of an item, for the merge */
} pf_key_split;

/* Everything the attention kernels (forward, backward, and their JVPs) read. For backward_jvp the
 * gradient fields hold the tangents of the gradients. */
typedef struct pf_attention_kargs {
    pf_karg_tensor operand[PF_OPERAND_COUNT];
    pf_karg_tensor bias, tbias, mask;      /* strides 0 where broadcast */
    pf_karg_tensor o, to, lse, tlse, dlse; /* results of forward, in or out; dL */
    pf_karg_tensor dq[2], dk[2], dv, dbias;

    int batch, heads, kv_heads, group; /* group = heads / kv_heads */
    int queries, keys, dim_qk, dim_v;
    /* The heads of a batch follow each other in the list of work, or the batches of a head. These
     * are the inner of the two, the group, and tiles of those whose tiles workgroups own: of
     * queries in forward, of keys in backward, where those of a cluster count as one. */
    int batches_inner;
    pf_divisor by_inner, by_group, by_tiles;
    int pairs; /* 2 where piecewise */
    /* Pair p keeps query i and key j where window_low[p] <= i - j < window_high[p]. */
    int window_low[2], window_high[2];
    int key_end[2]; /* keys from here on are kept by no query of pair p */
    int deterministic;

    float alpha;
    float alpha_log2e;
    int alpha_shifts; /* a power of two, at most 1: bf16 times alpha is exact */
    float lse_unit;   /* of PF_STAT_LSE: log2(e) for the plain kernels, 1 for the general ones */

    int element_type; /* of the operands, PF_KTYPE_* as all types here */
    int bias_type, tbias_type, o_type, to_type;
    int dq_type[2], dk_type[2], dv_type, dbias_type;

    int dbias_extent[4]; /* the shape of dbias */
    int dbias_full[4];   /* 0 in the dimensions in which the bias is broadcast */
    int dbias_splits;

    /* Buffers for staged tiles of bias, tbias and mask, 0 where they are read element by element;
     * whether a buffer holds a tile of but one of them; PF_STAGED_*; whether dbias leaves by the
     * tile too. */
    int bias_stages, bias_apart, staged, dbias_staged;
    int o_staged; /* O may leave by PF_MAP_O, PF_OUT_ROWS at a time */

    /* Scratch, laid out by the host as pf_scratch_layout says; 0 where not used. */
    unsigned long long key_live; /* u8 [live batch, live heads, keys_padded]: a query keeps it */
    pf_i64 key_live_stride[2];   /* of batch and key/value head; 0 where mask and bias broadcast */
    int key_live_heads;          /* key/value heads, or 1 where mask and bias broadcast */
    unsigned long long query_stats; /* f32 [B*H, PF_STATS, queries_padded], of backward */
    unsigned long long query_live;  /* u8 [B*H, queries_padded]: the query keeps some key */
    unsigned long long dq_sum[2];   /* f32 accumulators of dq, in the target's own order */
    unsigned long long
        dq_turn[2]; /* u32 [B*H, query tiles]: contributions so far, deterministic only */
    unsigned long long dbias_sum; /* f32 [splits, dbias extents] */
    int queries_padded, keys_padded;
    int work_count;      /* work items of the grid, persistent or not */
    pf_work_order order; /* where workgroups do more than one, and need not keep an order */
    pf_division division;
    unsigned long long parts; /* f32 [clusters, 2, workgroups of a cluster, dK and dV, keys,
                                 channels] of divided items */
    pf_key_split split;
    /* dq_sum and dq_turn together, which pf_backward_pre sets to 0, and how many u64 these are. */
    unsigned long long zeroed;
    pf_i64 zeroed_words;
} pf_attention_kargs;

PF_KARG_ASSERT(sizeof(pf_karg_tensor) == 40, "a tensor argument is five words");
PF_KARG_ASSERT(sizeof(pf_attention_kargs) <= 2048, "arguments and 16 tensor maps fit in 4 KiB");

/* Merge has two parts; pf_narrow reads O alone, of part 0. */
typedef struct pf_merge_kargs {
    pf_karg_tensor o_part[2], lse_part[2], to_part[2], tlse_part[2];
    pf_karg_tensor o, lse, to, tlse;
    int batch, heads, queries, dim_v;
    int o_part_type[2], to_part_type[2], o_type, to_type;
} pf_merge_kargs;

/* An operand of e5m2 and its copy in f16, rows of which begin at multiples of 16 bytes. */
typedef struct pf_widen_operand {
    pf_karg_tensor from, to;
    int batch, heads, rows, channels; /* of the copy: 1 batch or head where it is broadcast */
    int blocks;                       /* workgroups, of PF_WIDEN_ROWS rows each; 0 where absent */
} pf_widen_operand;

/* q, k, v, and q, k of the far pair. */
enum { PF_WIDENED = 5 };

typedef struct pf_widen_kargs {
    pf_widen_operand operand[PF_WIDENED];
} pf_widen_kargs;

#endif
