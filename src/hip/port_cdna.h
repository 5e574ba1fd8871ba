/* SPDX-License-Identifier: Apache-2.0 */
/* The portability layer for CDNA (gfx90a, gfx942): wave64 and MFMA. Header-free: clang's builtins alone.
 *
 * A wave is a compute group. It computes S^T = X O^T, cross rows in the rows of the matrix and owned rows in its
 * columns, one to a lane: then P^T, as it stands in the accumulator, is the operand of O^T = V^T P^T, and a row
 * statistic is one register. f16 and bf16 use the 32x32x8 instructions, f32 the 16x16x4 one.
 *
 * Operands come in chunks of 16 bytes a lane, for two (f32: four) instructions. Which channel of a chunk is
 * which index of a product's sum does not matter as long as both operands agree. The next tile's loads sit in
 * registers from the refill to the take. */
#ifndef PF_PORT_CDNA_H
#define PF_PORT_CDNA_H

#define PF_DEVICE static __attribute__((device, always_inline)) inline
#define PF_UNROLL _Pragma("unroll")
#define PF_ROLLED _Pragma("unroll 1")
#define PF_INFINITY __builtin_inff()
#define PF_GLOBAL __attribute__((address_space(1)))
#define CDNA_LDS __attribute__((address_space(3)))
#define PF_LANES 64
#define PF_LDS_PAD 16 /* bytes; rows of a tile then start four banks apart */

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

PF_DEVICE int pf_lane() {
    return pf_thread() & 63;
}

PF_DEVICE int cdna_wave() {
    return __builtin_amdgcn_readfirstlane(pf_thread() >> 6);
}

PF_DEVICE void pf_block_sync() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
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
    PF_UNROLL for (int mask = 1; mask < 64; mask *= 2)
        x += cdna_exchange(x, mask);
    return x;
}

/* Arithmetic. */
PF_DEVICE float pf_exp2(float x) {
    return __builtin_amdgcn_exp2f(x);
}

PF_DEVICE float pf_log2(float x) {
    return __builtin_amdgcn_logf(x);
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

/* f16 has e5m2's exponent: round its low byte away. Going through f16 rounds twice, so the f16 is rounded to odd first. */
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

#define PF_SOURCE                                                                                  \
    { PF_KERNEL_ARGS }

/* The argument segment itself: an index known only at run time would otherwise copy it to scratch. */
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
    static __attribute__((shared)) type cdna_shared;                                               \
    type *pointer = (type *)&cdna_shared

#if PF_OP != PF_OP_PASSES

#define PF_OVERLAP 0
#define PF_EXCHANGES 1
#define PF_SLOTS 1
#define PF_OUT_RUN 4

/* Which images contract over which rows; the tiles keep a copy for each use. */
#define CDNA_BACKWARD (PF_OP == PF_OP_BACKWARD || PF_OP == PF_OP_BACKWARD_JVP)

enum {
    CDNA_F32 = PF_ELEMENT == PF_KTYPE_F32,
    CDNA_BYTES = CDNA_F32 ? 4 : 2,               /* of an element in a tile */
    CDNA_MMA = CDNA_F32 ? 16 : 32,               /* rows and columns of a matrix instruction */
    CDNA_ACC = CDNA_MMA * CDNA_MMA / 64,         /* accumulator registers of one */
    CDNA_CHUNK = 16 / CDNA_BYTES,                /* channels in a chunk */
    CDNA_PAD = PF_LDS_PAD / CDNA_BYTES,
    CDNA_WAVES = PF_OWNED_TILE / CDNA_MMA,
    PF_SCORE_COUNT = PF_CROSS_TILE / CDNA_MMA * CDNA_ACC,
    PF_OUT_COUNT = PF_OUT_DIM / CDNA_MMA * CDNA_ACC,
    CDNA_DQ_BLOCKS = PF_CROSS_TILE / CDNA_MMA * (PF_OUT_DIM / CDNA_MMA)
};
static_assert(PF_THREADS == 64 * CDNA_WAVES, "one wave an instruction's width of owned rows");
static_assert(PF_STAGES == 1, "the next tile waits in registers");
static_assert(!CDNA_BACKWARD || CDNA_DQ_BLOCKS % CDNA_WAVES == 0, "waves share dQ evenly");

PF_DEVICE pf_i64 pf_blocks() {
    return PF_INT_MAX; /* one work item a workgroup */
}

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
    float x[(CDNA_DQ_BLOCKS + CDNA_WAVES - 1) / CDNA_WAVES * CDNA_ACC];
} pf_cross_out;

/* Four scores' worth of an operand, or one where elements are f32. */
#if PF_ELEMENT == PF_KTYPE_F32
typedef struct pf_weights {
    float x[PF_SCORE_COUNT];
} pf_weights;
#else
typedef struct pf_weights {
    cdna_short4 x[PF_SCORE_COUNT / 4];
} pf_weights;
#endif

typedef struct pf_owned {
    cdna_int4 x[PF_HEAD_DIM / 16];
} pf_owned;

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
    PF_UNROLL for (int mask = CDNA_MMA; mask < 64; mask *= 2)
        x = pf_max(x, cdna_exchange(x, mask));
    return x;
}

PF_DEVICE float pf_slot_sum(float x) {
    PF_UNROLL for (int mask = CDNA_MMA; mask < 64; mask *= 2)
        x += cdna_exchange(x, mask);
    return x;
}

/* One matrix instruction, in place on the block of accumulators at x. */
#if PF_ELEMENT == PF_KTYPE_F32
typedef cdna_float4 cdna_acc;
typedef float cdna_operand;

PF_DEVICE cdna_acc cdna_mfma(cdna_operand a, cdna_operand b, cdna_acc c) {
    return __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, c, 0, 0, 0);
}
#else
typedef cdna_float16 cdna_acc;
typedef cdna_short4 cdna_operand;

PF_DEVICE cdna_acc cdna_mfma(cdna_operand a, cdna_operand b, cdna_acc c) {
#if PF_ELEMENT == PF_KTYPE_BF16
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, c, 0, 0, 0);
#else
    return __builtin_amdgcn_mfma_f32_32x32x8f16(__builtin_bit_cast(cdna_half4, a),
                                                __builtin_bit_cast(cdna_half4, b), c, 0, 0, 0);
#endif
}
#endif

PF_DEVICE cdna_acc cdna_acc_get(const float *x, bool fresh) {
    cdna_acc acc;
    PF_UNROLL for (int r = 0; r < CDNA_ACC; ++r)
        acc[r] = fresh ? 0.f : x[r];
    return acc;
}

PF_DEVICE void cdna_acc_put(float *x, cdna_acc acc) {
    PF_UNROLL for (int r = 0; r < CDNA_ACC; ++r)
        x[r] = acc[r];
}

/* The instructions of one pair of chunks. */
PF_DEVICE cdna_acc cdna_mfma_chunk(cdna_int4 a, cdna_int4 b, cdna_acc acc) {
#if PF_ELEMENT == PF_KTYPE_F32
    const cdna_float4 fa = __builtin_bit_cast(cdna_float4, a), fb = __builtin_bit_cast(cdna_float4, b);
    PF_UNROLL for (int t = 0; t < 4; ++t)
        acc = cdna_mfma(fa[t], fb[t], acc);
    return acc;
#else
    acc = cdna_mfma(__builtin_bit_cast(cdna_short4, a.lo), __builtin_bit_cast(cdna_short4, b.lo), acc);
    return cdna_mfma(__builtin_bit_cast(cdna_short4, a.hi), __builtin_bit_cast(cdna_short4, b.hi), acc);
#endif
}

/* Tiles. `rows` holds elements as in memory; `columns` its transpose, which 16-bit elements need to be contracted
 * over rows (f32 operands are single elements, read from `rows` either way). */
#if PF_ELEMENT == PF_KTYPE_F32
typedef float cdna_element;
#else
typedef unsigned short cdna_element;
#endif

#define CDNA_ROWS_OF(count, width) cdna_element rows[count][(width) + CDNA_PAD]
#define CDNA_COLUMNS_OF(count, width)                                                              \
    __attribute__((aligned(16))) cdna_element columns[width][(count) + CDNA_PAD]

typedef struct pf_owned_tile {
    char unused; /* owned rows go from memory to registers */
} pf_owned_tile;

#if PF_ELEMENT == PF_KTYPE_F32
typedef struct __attribute__((aligned(16))) pf_cross_tile {
    CDNA_ROWS_OF(PF_CROSS_TILE, PF_HEAD_DIM);
} pf_cross_tile;
typedef struct __attribute__((aligned(16))) pf_value_tile {
    CDNA_ROWS_OF(PF_CROSS_TILE, PF_OUT_DIM);
} pf_value_tile;
typedef struct __attribute__((aligned(16))) pf_crossed_tile {
    CDNA_ROWS_OF(PF_OWNED_TILE, PF_HEAD_DIM);
} pf_crossed_tile;
#else
typedef struct __attribute__((aligned(16))) pf_cross_tile {
    CDNA_ROWS_OF(PF_CROSS_TILE, PF_HEAD_DIM);
#if CDNA_BACKWARD
    CDNA_COLUMNS_OF(PF_CROSS_TILE, PF_HEAD_DIM);
#endif
} pf_cross_tile;
typedef struct __attribute__((aligned(16))) pf_value_tile {
    CDNA_COLUMNS_OF(PF_CROSS_TILE, PF_OUT_DIM);
} pf_value_tile;
typedef struct __attribute__((aligned(16))) pf_crossed_tile {
    CDNA_COLUMNS_OF(PF_OWNED_TILE, PF_HEAD_DIM);
} pf_crossed_tile;
#endif

typedef struct __attribute__((aligned(16))) pf_exchange {
    cdna_element x[PF_CROSS_TILE][PF_OWNED_TILE + CDNA_PAD];
} pf_exchange;

PF_DEVICE cdna_int4 cdna_chunk_at(const cdna_element *p) {
    return *(const cdna_int4 *)p;
}

/* Loads from memory: one chunk of a row. */
typedef struct pf_source {
    const pf_attention_kargs *a;
} pf_source;

/* An operand's tensor as loads see it. */
typedef struct cdna_view {
    unsigned long long base; /* of (b, h) */
    pf_i64 row_stride, channel_stride;
    int channels;
    bool vector; /* every chunk is one aligned vector, or wholly past the end */
} cdna_view;

PF_DEVICE cdna_view cdna_view_of(const pf_source *source, int operand, const pf_rows *rows) {
    const pf_attention_kargs *a = source->a;
    const pf_karg_tensor *t = &a->operand[operand];
    const int bytes = PF_ELEMENT == PF_KTYPE_E5M2 ? 1 : CDNA_BYTES;
    cdna_view view;
    view.base = t->address
                    ? t->address + bytes * (rows->b * t->stride[0] + rows->h * t->stride[1])
                    : 0;
    view.row_stride = t->stride[2];
    view.channel_stride = t->stride[3];
    view.channels = operand < PF_OPERAND_V ? a->dim_qk : a->dim_v;
    view.vector =
        t->stride[3] == 1 && view.channels % CDNA_CHUNK == 0 &&
        (((pf_i64)view.base | t->stride[2] * bytes) & (CDNA_CHUNK * bytes - 1)) == 0;
    return view;
}

PF_DEVICE unsigned cdna_element_at(const cdna_view *view, pf_i64 index) {
    if (PF_ELEMENT == PF_KTYPE_E5M2)
        return (unsigned)((const PF_GLOBAL unsigned char *)view->base)[index] << 8;
    if (PF_ELEMENT == PF_KTYPE_F32)
        return ((const PF_GLOBAL unsigned *)view->base)[index];
    return ((const PF_GLOBAL unsigned short *)view->base)[index];
}

/* A chunk gathered one element at a time, shifted in from the top. A loop: it is rarely taken, and unrolled it would
 * be most of the kernel. */
PF_DEVICE cdna_int4 cdna_gather_chunk(const cdna_view *view, pf_i64 at, int channel) {
    unsigned long long low = 0, high = 0;
    PF_ROLLED for (int c = channel; c < channel + CDNA_CHUNK; ++c) {
        const unsigned long long x =
            c < view->channels ? cdna_element_at(view, at + c * view->channel_stride) : 0;
        low = low >> 8 * CDNA_BYTES | high << (64 - 8 * CDNA_BYTES);
        high = high >> 8 * CDNA_BYTES | x << (64 - 8 * CDNA_BYTES);
    }
    return (cdna_int4){(int)low, (int)(low >> 32), (int)high, (int)(high >> 32)};
}

/* Widen 8 bytes of e5m2: each is the high byte of its f16. */
PF_DEVICE cdna_int4 cdna_widen_chunk(cdna_int2 x) {
    return (cdna_int4){(int)__builtin_amdgcn_perm(0, x[0], 0x010c000c),
                       (int)__builtin_amdgcn_perm(0, x[0], 0x030c020c),
                       (int)__builtin_amdgcn_perm(0, x[1], 0x010c000c),
                       (int)__builtin_amdgcn_perm(0, x[1], 0x030c020c)};
}

PF_DEVICE bool cdna_reads(const cdna_view *view, const pf_rows *rows, int row) {
    return view->base && row < rows->end &&
           (!rows->live || ((const PF_GLOBAL unsigned char *)rows->live)[row]);
}

PF_DEVICE cdna_int4 cdna_load_vector(const cdna_view *view, const pf_rows *rows, int row,
                                     int channel) {
    if (!cdna_reads(view, rows, row) || channel >= view->channels)
        return (cdna_int4){0, 0, 0, 0};
    const pf_i64 at = row * view->row_stride + channel;
    if (PF_ELEMENT == PF_KTYPE_E5M2)
        return cdna_widen_chunk(*(const PF_GLOBAL cdna_int2 *)(view->base + at));
    return *(const PF_GLOBAL cdna_int4 *)(view->base + CDNA_BYTES * at);
}

PF_DEVICE cdna_int4 cdna_load_chunk(const cdna_view *view, const pf_rows *rows, int row,
                                    int channel) {
    if (view->vector)
        return cdna_load_vector(view, rows, row, channel);
    if (!cdna_reads(view, rows, row))
        return (cdna_int4){0, 0, 0, 0};
    return cdna_gather_chunk(view, row * view->row_stride, channel);
}

/* A thread's share of a tile: groups of CDNA_GROUP rows (for the transpose) of one chunk. */
enum {
    CDNA_GROUP = CDNA_F32 ? 1 : 4,
    CDNA_SHARE_MAX = (PF_CROSS_TILE / CDNA_GROUP * (PF_HEAD_DIM / CDNA_CHUNK) + PF_THREADS - 1) /
                     PF_THREADS * CDNA_GROUP
};

PF_DEVICE int cdna_groups(int rows, int width) {
    return rows / CDNA_GROUP * (width / CDNA_CHUNK);
}

/* Where group n lies in a tile of `width` channels. */
PF_DEVICE int cdna_group_row(int n, int width) {
    return n / (width / CDNA_CHUNK) * CDNA_GROUP;
}

PF_DEVICE int cdna_group_channel(int n, int width) {
    return n % (width / CDNA_CHUNK) * CDNA_CHUNK;
}

/* Write a group to `columns`: each channel's CDNA_GROUP rows are adjacent there. `interleaved` puts rows in the order in
 * which the lanes of a wave hold them in an accumulator. */
PF_DEVICE void cdna_store_columns(CDNA_LDS cdna_element *columns, int stride, int row, int channel,
                                  const cdna_int4 *chunk, bool interleaved) {
#if PF_ELEMENT != PF_KTYPE_F32
    const int quad = row / 4;
    const int at = interleaved ? 4 * (quad / 4 * 4 + quad % 2 * 2 + quad / 2 % 2) : row;
    PF_UNROLL for (int c = 0; c < CDNA_CHUNK; ++c) {
        const int word = c / 2;
        const unsigned select = c % 2 ? 0x07060302 : 0x05040100;
        cdna_int2 x;
        x[0] = (int)__builtin_amdgcn_perm(chunk[1][word], chunk[0][word], select);
        x[1] = (int)__builtin_amdgcn_perm(chunk[3][word], chunk[2][word], select);
        *(CDNA_LDS cdna_int2 *)&columns[(channel + c) * stride + at] = x;
    }
#else
    (void)columns, (void)stride, (void)row, (void)channel, (void)chunk, (void)interleaved;
#endif
}

PF_DEVICE void cdna_store_rows(CDNA_LDS cdna_element *rows, int stride, int row, int channel,
                               const cdna_int4 *chunk) {
    PF_UNROLL for (int u = 0; u < CDNA_GROUP; ++u)
        *(CDNA_LDS cdna_int4 *)&rows[(row + u) * stride + channel] = chunk[u];
}

/* Rings. A ring has one stage; what is loaded for it waits in the thread's registers until the take. */
typedef struct pf_ring {
    char unused;
} pf_ring;

/* One tile to load. Vectors wait in registers; what must be gathered is loaded at the take, in a loop. */
typedef struct cdna_pending {
    CDNA_LDS pf_cross_tile *cross; /* one of the two */
    CDNA_LDS pf_value_tile *value;
    cdna_view view;
    pf_rows rows;
    cdna_int4 chunk[CDNA_SHARE_MAX];
} cdna_pending;

typedef struct pf_ring_pos {
    int fill, take; /* always 0 */
    int tiles, stats;
    cdna_pending tile[1 + PF_TANGENT];
    CDNA_LDS float *stat_to[1 + PF_TANGENT];
    float stat[1 + PF_TANGENT];
} pf_ring_pos;

#define PF_PRODUCER if (false)
#define PF_CONSUMER
#define PF_REFILL(...) __VA_ARGS__

PF_DEVICE void pf_ring_init(pf_ring *, int) {
}

PF_DEVICE void pf_ring_acquire(pf_ring *, pf_ring_pos *pos, int) {
    pos->tiles = pos->stats = 0;
}

PF_DEVICE void pf_ring_publish(pf_ring *, pf_ring_pos *, int) {
}

PF_DEVICE void pf_ring_release(pf_ring *, pf_ring_pos *, int) {
    pf_block_sync();
}

PF_DEVICE void cdna_pend(pf_ring_pos *pos, CDNA_LDS pf_cross_tile *cross,
                         CDNA_LDS pf_value_tile *value, const pf_source *source, int operand,
                         const pf_rows *rows) {
    cdna_pending *tile = &pos->tile[pos->tiles++];
    const int width = cross ? PF_HEAD_DIM : PF_OUT_DIM, groups = cdna_groups(PF_CROSS_TILE, width);
    tile->cross = cross;
    tile->value = value;
    tile->view = cdna_view_of(source, operand, rows);
    tile->rows = *rows;
    if (!tile->view.vector)
        return;
    PF_UNROLL for (int t = 0; t * PF_THREADS < groups; ++t) {
        const int n = t * PF_THREADS + pf_thread();
        PF_UNROLL for (int u = 0; u < CDNA_GROUP; ++u)
            if (n < groups)
                tile->chunk[t * CDNA_GROUP + u] = cdna_load_vector(
                    &tile->view, rows, rows->row0 + cdna_group_row(n, width) + u,
                    rows->channel0 + cdna_group_channel(n, width));
    }
}

PF_DEVICE void pf_cross_load(pf_cross_tile *tile, const pf_source *source, int operand,
                             const pf_rows *rows, pf_ring *, pf_ring_pos *pos) {
    cdna_pend(pos, (CDNA_LDS pf_cross_tile *)tile, 0, source, operand, rows);
}

PF_DEVICE void pf_value_load(pf_value_tile *tile, const pf_source *source, int operand,
                             const pf_rows *rows, pf_ring *, pf_ring_pos *pos) {
    cdna_pend(pos, 0, (CDNA_LDS pf_value_tile *)tile, source, operand, rows);
}

PF_DEVICE void pf_stats_load(float *to, unsigned long long address, pf_ring *, pf_ring_pos *pos) {
    if (pf_thread() < PF_CROSS_TILE)
        pos->stat[pos->stats] =
            ((const PF_GLOBAL float *)address)[pf_thread()];
    pos->stat_to[pos->stats++] = (CDNA_LDS float *)to;
}

PF_DEVICE void cdna_land_group(const cdna_pending *tile, int n, const cdna_int4 *chunk) {
    const int width = tile->cross ? PF_HEAD_DIM : PF_OUT_DIM;
    const int row = cdna_group_row(n, width), channel = cdna_group_channel(n, width);
    if (tile->cross) {
        cdna_store_rows(&tile->cross->rows[0][0], PF_HEAD_DIM + CDNA_PAD, row, channel, chunk);
#if CDNA_BACKWARD && PF_ELEMENT != PF_KTYPE_F32
        cdna_store_columns(&tile->cross->columns[0][0], PF_CROSS_TILE + CDNA_PAD, row, channel,
                           chunk, true);
#endif
        return;
    }
#if PF_ELEMENT == PF_KTYPE_F32
    cdna_store_rows(&tile->value->rows[0][0], PF_OUT_DIM + CDNA_PAD, row, channel, chunk);
#else
    cdna_store_columns(&tile->value->columns[0][0], PF_CROSS_TILE + CDNA_PAD, row, channel, chunk,
                       true);
#endif
}

PF_DEVICE void cdna_land(const cdna_pending *tile) {
    const int width = tile->cross ? PF_HEAD_DIM : PF_OUT_DIM, groups = cdna_groups(PF_CROSS_TILE, width);
    if (tile->view.vector) {
        PF_UNROLL for (int t = 0; t * PF_THREADS < groups; ++t) {
            const int n = t * PF_THREADS + pf_thread();
            if (n < groups)
                cdna_land_group(tile, n, &tile->chunk[t * CDNA_GROUP]);
        }
        return;
    }
    PF_ROLLED for (int n = pf_thread(); n < groups; n += PF_THREADS) {
        cdna_int4 chunk[CDNA_GROUP];
        PF_UNROLL for (int u = 0; u < CDNA_GROUP; ++u)
            chunk[u] = cdna_load_chunk(&tile->view, &tile->rows,
                                       tile->rows.row0 + cdna_group_row(n, width) + u,
                                       tile->rows.channel0 + cdna_group_channel(n, width));
        cdna_land_group(tile, n, chunk);
    }
}

PF_DEVICE void pf_ring_take(pf_ring *, pf_ring_pos *pos, int) {
    PF_UNROLL for (int k = 0; k < 1 + PF_TANGENT; ++k) {
        if (k < pos->tiles)
            cdna_land(&pos->tile[k]);
        if (k < pos->stats && pf_thread() < PF_CROSS_TILE)
            pos->stat_to[k][pf_thread()] = pos->stat[k];
    }
    pf_block_sync();
}

/* Owned rows: each lane reads its own row's share of every pair of chunks. */
PF_DEVICE void pf_owned_load(pf_owned_tile *, const pf_source *, int, const pf_rows *, pf_ring *,
                             pf_ring_pos *) {
}

PF_DEVICE void cdna_owned_take(pf_owned *o, const pf_source *source, int operand,
                               const pf_rows *rows) {
    const cdna_view view = cdna_view_of(source, operand, rows);
    PF_UNROLL for (int i = 0; i < PF_HEAD_DIM / 16; ++i)
        o->x[i] = cdna_load_chunk(&view, rows, rows->row0 + pf_slot_owned(0),
                                  16 * i + CDNA_CHUNK * cdna_part());
}

PF_DEVICE void pf_owned_take(pf_owned *o, const pf_owned_tile *, const pf_source *source,
                             int operand, const pf_rows *rows) {
    cdna_owned_take(o, source, operand, rows);
}

PF_DEVICE void pf_crossed_take(pf_owned *o, const pf_crossed_tile *, const pf_source *source,
                               int operand, const pf_rows *rows) {
    cdna_owned_take(o, source, operand, rows);
}

PF_DEVICE void pf_crossed_load(pf_crossed_tile *tile, const pf_source *source, int operand,
                               const pf_rows *rows, pf_ring *, pf_ring_pos *) {
#if CDNA_BACKWARD
    const cdna_view view = cdna_view_of(source, operand, rows);
    PF_ROLLED for (int n = pf_thread(); n < cdna_groups(PF_OWNED_TILE, PF_HEAD_DIM);
                             n += PF_THREADS) {
        cdna_int4 chunk[CDNA_GROUP];
        const int row = cdna_group_row(n, PF_HEAD_DIM), channel = cdna_group_channel(n, PF_HEAD_DIM);
        PF_UNROLL for (int u = 0; u < CDNA_GROUP; ++u)
            chunk[u] = cdna_load_chunk(&view, rows, rows->row0 + row + u, channel);
#if PF_ELEMENT == PF_KTYPE_F32
        cdna_store_rows((CDNA_LDS cdna_element *)&tile->rows[0][0], PF_HEAD_DIM + CDNA_PAD, row,
                        channel, chunk);
#else
        cdna_store_columns((CDNA_LDS cdna_element *)&tile->columns[0][0], PF_OWNED_TILE + CDNA_PAD,
                           row, channel, chunk, false);
#endif
    }
#else
    (void)tile, (void)source, (void)operand, (void)rows;
#endif
}

/* Products. */
PF_DEVICE void pf_scores_mma(pf_scores *s, const pf_owned *owned, const pf_cross_tile *cross,
                             bool fresh) {
    PF_UNROLL for (int block = 0; block < PF_CROSS_TILE / CDNA_MMA; ++block) {
        float *x = &s->x[block * CDNA_ACC];
        cdna_acc acc = cdna_acc_get(x, fresh);
        PF_UNROLL for (int i = 0; i < PF_HEAD_DIM / 16; ++i)
            acc = cdna_mfma_chunk(cdna_chunk_at(&cross->rows[block * CDNA_MMA + cdna_column()]
                                                            [16 * i + CDNA_CHUNK * cdna_part()]),
                                  owned->x[i], acc);
        cdna_acc_put(x, acc);
    }
}

PF_DEVICE void pf_weights_pack(pf_weights *w, const pf_scores *s) {
#if PF_ELEMENT == PF_KTYPE_F32
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e)
        w->x[e] = s->x[e];
#else
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e)
        w->x[e / 4][e % 4] = (short)(PF_ELEMENT == PF_KTYPE_BF16 ? pf_f32_to_bf16_bits(s->x[e])
                                                                 : pf_f32_to_f16_bits(s->x[e]));
#endif
}

/* out += w * tile. f32 reads single elements of `rows`, the others chunks of `columns`. */
PF_DEVICE void cdna_out_mma(pf_out *out, const pf_weights *w, const cdna_element *tile, int stride) {
    PF_UNROLL for (int block = 0; block < PF_OUT_DIM / CDNA_MMA; ++block) {
        float *x = &out->x[block * CDNA_ACC];
        cdna_acc acc = cdna_acc_get(x, false);
        const int channel = block * CDNA_MMA + cdna_column();
#if PF_ELEMENT == PF_KTYPE_F32
        PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e)
            acc = cdna_mfma(tile[cdna_row(e) * stride + channel], w->x[e], acc);
#else
        PF_UNROLL for (int i = 0; i < PF_CROSS_TILE / 16; ++i) {
            const cdna_int4 a = cdna_chunk_at(&tile[channel * stride + 16 * i + 8 * cdna_part()]);
            acc = cdna_mfma(__builtin_bit_cast(cdna_short4, a.lo), w->x[2 * i], acc);
            acc = cdna_mfma(__builtin_bit_cast(cdna_short4, a.hi), w->x[2 * i + 1], acc);
        }
#endif
        cdna_acc_put(x, acc);
    }
}

PF_DEVICE void pf_out_mma_value(pf_out *out, const pf_weights *w, const pf_value_tile *value) {
#if PF_ELEMENT == PF_KTYPE_F32
    cdna_out_mma(out, w, &value->rows[0][0], PF_OUT_DIM + CDNA_PAD);
#else
    cdna_out_mma(out, w, &value->columns[0][0], PF_CROSS_TILE + CDNA_PAD);
#endif
}

PF_DEVICE void pf_mma_commit() {
}

#define pf_mma_wait(n) (void)(n)

PF_DEVICE void pf_turn_wait() {
}

PF_DEVICE void pf_turn_pass() {
}

#if CDNA_BACKWARD

PF_DEVICE void pf_out_mma(pf_out *out, const pf_weights *w, const pf_cross_tile *cross,
                          int channel0) {
#if PF_ELEMENT == PF_KTYPE_F32
    cdna_out_mma(out, w, &cross->rows[0][channel0], PF_HEAD_DIM + CDNA_PAD);
#else
    cdna_out_mma(out, w, &cross->columns[channel0][0], PF_CROSS_TILE + CDNA_PAD);
#endif
}

/* dS as [query][key], so that keys, the contracted index, are adjacent. */
PF_DEVICE void pf_exchange_publish(pf_exchange *exchange, const pf_weights *w) {
    PF_UNROLL for (int n = 0; n < 1 + PF_TANGENT; ++n)
        PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e)
#if PF_ELEMENT == PF_KTYPE_F32
            exchange[n].x[cdna_row(e)][pf_slot_owned(0)] = w[n].x[e];
#else
            exchange[n].x[cdna_row(e)][pf_slot_owned(0)] = (cdna_element)w[n].x[e / 4][e % 4];
#endif
    pf_block_sync();
}

/* A wave's n-th block of dQ^T. */
PF_DEVICE int cdna_dq_block(int n) {
    return cdna_wave() * (CDNA_DQ_BLOCKS / CDNA_WAVES) + n;
}

PF_DEVICE int cdna_dq_query(int block) {
    return block / (PF_OUT_DIM / CDNA_MMA) * CDNA_MMA + cdna_column();
}

PF_DEVICE int cdna_dq_channel(int block) {
    return block % (PF_OUT_DIM / CDNA_MMA) * CDNA_MMA;
}

PF_DEVICE void pf_cross_mma(pf_cross_out *d, const pf_exchange *exchange,
                            const pf_crossed_tile *tile, int channel0, bool fresh) {
    PF_UNROLL for (int n = 0; n < CDNA_DQ_BLOCKS / CDNA_WAVES; ++n) {
        const int block = cdna_dq_block(n), query = cdna_dq_query(block);
        const int channel = channel0 + cdna_dq_channel(block) + cdna_column();
        float *x = &d->x[n * CDNA_ACC];
        cdna_acc acc = cdna_acc_get(x, fresh);
        PF_UNROLL for (int i = 0; i < PF_OWNED_TILE / 16; ++i) {
            const int key = 16 * i + CDNA_CHUNK * cdna_part();
            const cdna_int4 b = cdna_chunk_at(&exchange->x[query][key]);
#if PF_ELEMENT == PF_KTYPE_F32
            const cdna_float4 ds = __builtin_bit_cast(cdna_float4, b);
            PF_UNROLL for (int t = 0; t < 4; ++t)
                acc = cdna_mfma(tile->rows[key + t][channel], ds[t], acc);
#else
            acc = cdna_mfma_chunk(cdna_chunk_at(&tile->columns[channel][key]), b, acc);
#endif
        }
        cdna_acc_put(x, acc);
    }
}

/* Queries adjacent: lanes of a wave then add to adjacent words. */
PF_DEVICE int pf_dq_index(int row, int channel) {
    return channel * PF_CROSS_TILE + row;
}

PF_DEVICE void pf_dq_add(const pf_cross_out *d, unsigned long long address, int channel0,
                         const pf_turn *turn) {
    volatile PF_GLOBAL unsigned *counter = (volatile PF_GLOBAL unsigned *)turn->counter;
    if (counter) {
        if (pf_thread() == 0)
            while (*counter != (unsigned)turn->value)
                __builtin_amdgcn_s_sleep(1);
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
        pf_block_sync();
    }
    PF_UNROLL for (int n = 0; n < CDNA_DQ_BLOCKS / CDNA_WAVES; ++n) {
        const int block = cdna_dq_block(n);
        PF_UNROLL for (int r = 0; r < CDNA_ACC; ++r) {
            PF_GLOBAL float *to = (PF_GLOBAL float *)address + pf_dq_index(cdna_dq_query(block),
                                                       channel0 + cdna_dq_channel(block) + cdna_row(r));
            (void)__builtin_amdgcn_global_atomic_fadd_f32(
                to, d->x[n * CDNA_ACC + r]);
        }
    }
    if (counter) {
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
        pf_block_sync();
        if (pf_thread() == 0)
            *counter = (unsigned)turn->value + 1;
    }
}

PF_DEVICE void pf_dq_drain() {
}

#endif

PF_DEVICE void pf_write_run(unsigned long long address, pf_i64 index, int type, const float *x) {
    if (type == PF_KTYPE_F32) {
        *(PF_GLOBAL cdna_float4 *)(address + 4 * index) = (cdna_float4){x[0], x[1], x[2], x[3]};
    } else if (type == PF_KTYPE_E5M2) {
        unsigned bytes = 0;
        PF_UNROLL for (int u = 0; u < 4; ++u)
            bytes |= (unsigned)pf_f32_to_e5m2_bits(x[u]) << 8 * u;
        *(PF_GLOBAL unsigned *)(address + index) = bytes;
    } else {
        cdna_short4 bits;
        PF_UNROLL for (int u = 0; u < 4; ++u)
            bits[u] = (short)(type == PF_KTYPE_F16 ? pf_f32_to_f16_bits(x[u])
                                                   : pf_f32_to_bf16_bits(x[u]));
        *(PF_GLOBAL cdna_short4 *)(address + 2 * index) = bits;
    }
}

#endif
#endif
