/* SPDX-License-Identifier: Apache-2.0 */
/* The portability layer for sm_80 and every later chip: cp.async, ldmatrix and mma.sync.
 *
 * A compute group is a warp with 16 owned rows; all threads load and all compute. A tile is made of
 * blocks of 128-byte rows whose 16-byte chunks are XORed with the row, so that neither loads nor
 * fragments meet bank conflicts. A ring has one mbarrier a stage, which completes when every
 * thread's share of the stage has landed; giving a stage back stops the whole workgroup.
 *
 * f32 goes through tf32 tensor cores three times: x = big + small, both tf32, and
 * x y = big big + big small + small big. These round towards zero when they accumulate, so every
 * 16 products are summed on their own and added in f32. */
#ifndef PF_PORT_SM80_H
#define PF_PORT_SM80_H

#define PF_FIRST_CONSUMER 0
#define PF_KERNEL_TAIL
#define PF_OVERLAP 0
#define PF_EXCHANGES 1
#define PF_LAZY_MAX 0
/* A workgroup has one item. For f32 at 128 channels ptxas spills without the loop that others do
 * without. */
#define PF_ONE_ROUND (PF_ELEMENT != PF_KTYPE_F32 || PF_HEAD_DIM != 128)
#define PF_SCORE_STEP (PF_SCORE_COUNT < 8 ? PF_SCORE_COUNT : 8)
/* The plain backward kernel has no registers left for such a loop. */
#define PF_OUT_STEP (PF_OP == PF_OP_BACKWARD && !PF_GENERAL ? PF_OUT_COUNT : 16)
#define pf_write_rows pf_write_fragment_rows
#define PF_PRODUCER if (false)
#define PF_CONSUMER
#define PF_REFILL(...) __VA_ARGS__

#include "port_nvidia.h"

typedef struct pf_source {
    const pf_attention_kargs *a;
} pf_source;

#define PF_SOURCE                                                                                  \
    { &pf_args }

constexpr int pf_warps = PF_OWNED_TILE / 16;
constexpr int pf_compute_threads = 32 * pf_warps;
constexpr int pf_row_bytes = PF_HEAD_DIM * pf_staged_bytes;
constexpr int pf_value_row_bytes = PF_OUT_DIM * pf_staged_bytes;
constexpr int pf_exchange_row_bytes = PF_CROSS_TILE * pf_staged_bytes;
static_assert(PF_OP == PF_OP_PASSES || PF_THREADS == pf_compute_threads, "a warp owns 16 rows");
static_assert(PF_CROSS_TILE % (pf_f32_elements ? 8 : 16) == 0, "products take whole blocks");
static_assert(PF_OUT_DIM % (16 * pf_warps) == 0, "warps share the channels of dQ evenly");

typedef struct alignas(128) pf_owned_tile {
    unsigned char x[PF_OWNED_TILE * pf_row_bytes];
} pf_owned_tile;

typedef struct alignas(128) pf_cross_tile {
    unsigned char x[PF_CROSS_TILE * pf_row_bytes];
} pf_cross_tile;

typedef struct alignas(128) pf_value_tile {
    unsigned char x[PF_CROSS_TILE * pf_value_row_bytes];
} pf_value_tile;

/* [owned row][cross row] */
typedef struct alignas(128) pf_exchange {
    unsigned char x[PF_OWNED_TILE * pf_exchange_row_bytes];
} pf_exchange;

typedef pf_owned_tile pf_crossed_tile;

typedef struct pf_owned {
    const pf_owned_tile *tile;
} pf_owned;

/* Places in a tile. A row of `width` bytes (128, or all of a narrower tile) keeps its chunks at
 * chunk ^ key(row). */

template <int row_bytes> constexpr int pf_width = row_bytes < 128 ? row_bytes : 128;

template <int row_bytes> PF_DEVICE int pf_swizzle(int row, int byte) {
    constexpr int width = pf_width<row_bytes>, rows_a_line = 128 / width;
    return row * width + (byte ^ (row / rows_a_line % (width / 16) * 16));
}

template <int rows, int row_bytes> PF_DEVICE int pf_tile_offset(int row, int byte) {
    constexpr int width = pf_width<row_bytes>;
    return byte / width * (rows * width) + pf_swizzle<row_bytes>(row, byte % width);
}

/* The place at (row0, byte0) from a lane, where lane = pf_swizzle(lane's row, lane's byte), row0 is
 * a multiple of 8 and byte0 has no bit in common with the lane's byte. */
template <int rows, int row_bytes> PF_DEVICE int pf_tile_at(int lane, int row0, int byte0) {
    constexpr int width = pf_width<row_bytes>;
    return byte0 / width * (rows * width) + row0 * width + (lane ^ byte0 % width);
}

/* Rings. */

typedef struct pf_ring {
    pf_u64 filled[PF_STAGES]; /* mbarriers */
} pf_ring;

typedef struct pf_ring_pos {
    int fill, take;
    pf_u32 take_phase;
} pf_ring_pos;

PF_DEVICE void pf_ring_init(pf_ring *ring, int stages) {
    if (threadIdx.x == 0)
        for (int stage = 0; stage < stages; ++stage)
            asm volatile(
                "mbarrier.init.shared.b64 [%0], %1;" ::"r"(pf_shared_address(&ring->filled[stage])),
                "r"(pf_compute_threads)
                : "memory");
}

/* The release before this fill has stopped all threads. */
PF_DEVICE void pf_ring_acquire(pf_ring *, pf_ring_pos *, int) {
}

/* Two arrivals: one counts for itself once this thread's cp.async are done, one orders its plain
 * stores. */
PF_DEVICE void pf_ring_publish(pf_ring *ring, pf_ring_pos *pos, int stages) {
    const pf_u32 barrier = pf_shared_address(&ring->filled[pos->fill]);
    asm volatile("{\n.reg .b64 state;\n"
                 "cp.async.mbarrier.arrive.shared.b64 [%0];\n"
                 "mbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier)
                 : "memory");
    pos->fill = pos->fill + 1 == stages ? 0 : pos->fill + 1;
}

PF_DEVICE bool pf_barrier_passed(pf_u32 barrier, pf_u32 phase) {
    pf_u32 passed;
    asm volatile("{\n.reg .pred passed;\n"
                 "mbarrier.test_wait.parity.shared.b64 passed, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, passed;\n}"
                 : "=r"(passed)
                 : "r"(barrier), "r"(phase)
                 : "memory");
    return passed != 0;
}

PF_DEVICE void pf_ring_take(pf_ring *ring, const pf_ring_pos *pos, int) {
    const pf_u32 barrier = pf_shared_address(&ring->filled[pos->take]);
    while (!pf_barrier_passed(barrier, pos->take_phase)) {
    }
    __syncwarp();
}

PF_DEVICE void pf_ring_release(pf_ring *, pf_ring_pos *pos, int stages) {
    __syncthreads();
    if (++pos->take == stages) {
        pos->take = 0;
        pos->take_phase ^= 1;
    }
}

/* Few of the short tiles of f32 change a maximum, and outputs are then left as they are. */
PF_DEVICE bool pf_any_lane(bool x) {
    return !pf_f32_elements || __any_sync(0xffffffffu, x);
}

PF_DEVICE void pf_turn_wait() {
}

PF_DEVICE void pf_turn_pass() {
}

/* Loads. */

/* One operand's rows, as the threads of a load see them. */
typedef struct pf_load {
    const unsigned char *base; /* of the batch, head and first channel */
    pf_i64 row_stride;         /* in bytes */
    pf_i64 channel_stride;
    int channels; /* that are there */
    int row0, end;
    const unsigned char *live;
} pf_load;

PF_DEVICE pf_load pf_load_begin(const pf_source *source, int operand, const pf_rows *rows) {
    const pf_attention_kargs *a = source->a;
    const pf_karg_tensor *t = &a->operand[operand];
    const int dim = operand < PF_OPERAND_V ? a->dim_qk : a->dim_v;
    pf_load load;
    load.base = (const unsigned char *)t->address +
                (rows->b * t->stride[0] + rows->h * t->stride[1] + rows->channel0 * t->stride[3]) *
                    pf_element_bytes;
    load.row_stride = t->stride[2] * pf_element_bytes;
    load.channel_stride = t->stride[3] * pf_element_bytes;
    load.channels = t->address ? dim - rows->channel0 : 0;
    load.row0 = rows->row0;
    load.end = rows->end;
    load.live = (const unsigned char *)rows->live;
    return load;
}

PF_DEVICE bool pf_load_has_row(const pf_load *load, int row) {
    return row < load->end && (!load->live || load->live[row]);
}

/* Chunk by chunk: where thread and iteration stand in a tile. */
template <int row_bytes> PF_DEVICE int pf_chunk_row(int n) {
    constexpr int chunks = row_bytes / 16;
    return chunks <= pf_compute_threads
               ? (int)threadIdx.x / chunks + n * (pf_compute_threads / chunks)
               : n / (chunks / pf_compute_threads);
}

template <int row_bytes> PF_DEVICE int pf_chunk_byte(int n) {
    constexpr int chunks = row_bytes / 16;
    return 16 * (chunks <= pf_compute_threads
                     ? (int)threadIdx.x % chunks
                     : (int)threadIdx.x + n % (chunks / pf_compute_threads) * pf_compute_threads);
}

/* 16 bytes to shared memory, zeros where nothing is `left`. */
PF_DEVICE void pf_copy_async(pf_u32 to, const void *from, int left) {
    asm volatile("{\n.reg .pred none;\n"
                 "setp.le.s32 none, %2, 0;\n"
                 "cp.async.cg.shared.global [%0], [%1], 16, none;\n}" ::"r"(to),
                 "l"(from), "r"(left)
                 : "memory");
}

/* The same of the first bytes, at most 16, and zeros after them. */
PF_DEVICE void pf_copy_async_part(pf_u32 to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}

PF_DEVICE void pf_store_chunk(pf_u32 to, const pf_u32 *x) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x[0]), "r"(x[1]),
                 "r"(x[2]), "r"(x[3])
                 : "memory");
}

/* Rows of 16-byte copies. Eight threads have 128 bytes of a row, and each goes through all blocks
 * of the tile that way, so that places in them differ by constants. */
template <int rows, int row_bytes>
PF_DEVICE void pf_load_vectors(pf_u32 tile, const pf_load *load) {
    constexpr int at_once = pf_compute_threads / 8, width = pf_width<row_bytes>;
    constexpr int count = rows > at_once ? rows / at_once : 1; /* rows of a thread */
    constexpr int step =
        rows < at_once ? at_once / rows : 1; /* from one of its blocks to the next */
    static_assert(width == 128 && rows * step % at_once == 0 && row_bytes / width % step == 0,
                  "threads share a tile evenly");
    const int thread = (int)threadIdx.x, row0 = thread / 8 % rows;
    const int block = thread / 8 / rows, byte = block * width + thread % 8 * 16;
    const unsigned char *from[count];
    int left[count];
    PF_UNROLL for (int n = 0; n < count; ++n) { /* all are looked up before the first is needed */
        const int row = load->row0 + row0 + n * at_once;
        left[n] = pf_load_has_row(load, row) ? load->channels * pf_element_bytes - byte : 0;
        from[n] = load->base + row * load->row_stride + byte;
    }
    PF_UNROLL for (int n = 0; n < count; ++n) {
        const pf_u32 to = tile + pf_tile_offset<rows, row_bytes>(row0 + n * at_once, byte);
        PF_UNROLL for (int at = 0; at < row_bytes; at += step * width) {
            pf_copy_async(to + at * rows, from[n] + at, left[n] - at);
        }
    }
}

/* One element in the staged type. */
PF_DEVICE pf_u32 pf_load_element(const unsigned char *at) {
    if (pf_f32_elements)
        return *(const pf_u32 *)at;
    if (pf_e5m2_elements)
        return (pf_u32)*at << 8;
    return *(const unsigned short *)at;
}

/* Any strides and channels: by 16 bytes where rows are aligned for that, e5m2 by 8, else element by
 * element. */
template <int rows, int row_bytes>
PF_DEVICE void pf_load_chunks(pf_u32 tile, const pf_load *load, bool vector) {
    constexpr int count = rows * row_bytes / 16 / pf_compute_threads;
    constexpr int elements = 16 / pf_staged_bytes, per_word = 4 / pf_staged_bytes;
    PF_ROLLED for (int n = 0; n < count; ++n) {
        const int row = pf_chunk_row<row_bytes>(n), byte = pf_chunk_byte<row_bytes>(n);
        const int channel = byte / pf_staged_bytes;
        const int left = pf_load_has_row(load, load->row0 + row) ? load->channels - channel : 0;
        const unsigned char *at =
            load->base + (load->row0 + row) * load->row_stride + channel * load->channel_stride;
        const pf_u32 to = tile + pf_tile_offset<rows, row_bytes>(row, byte);
        if (vector && !pf_e5m2_elements) {
            pf_copy_async_part(to, at, max(min(left, elements), 0) * pf_element_bytes);
            continue;
        }
        pf_u32 x[4] = {0, 0, 0, 0};
        if (vector && left >= elements) {
            const uint2 bytes = *(const uint2 *)at;
            const uint2 low = pf_widen_e5m2(bytes.x), high = pf_widen_e5m2(bytes.y);
            x[0] = low.x, x[1] = low.y, x[2] = high.x, x[3] = high.y;
        } else {
            PF_UNROLL for (int u = 0; u < elements; ++u) {
                if (u < left)
                    x[u / per_word] |= pf_load_element(at + u * load->channel_stride)
                                       << (u % per_word * 16);
            }
        }
        pf_store_chunk(to, x);
    }
}

template <int rows, int row_bytes>
PF_DEVICE void pf_load_tile(const void *tile, const pf_source *source, int operand,
                            const pf_rows *at) {
    static_assert(rows * row_bytes % (16 * pf_compute_threads) == 0, "threads share a tile evenly");
    const pf_load load = pf_load_begin(source, operand, at);
    const pf_i64 vector_bytes = pf_e5m2_elements ? 8 : 16;
    const bool vector = load.channels > 0 && load.channel_stride == pf_element_bytes &&
                        (((pf_i64)load.base | load.row_stride) & (vector_bytes - 1)) == 0;
    if (vector && !pf_e5m2_elements && load.channels * pf_element_bytes % 16 == 0)
        pf_load_vectors<rows, row_bytes>(pf_shared_address(tile), &load);
    else
        pf_load_chunks<rows, row_bytes>(pf_shared_address(tile), &load, vector);
}

PF_DEVICE void pf_owned_load(pf_owned_tile *tile, const pf_source *source, int operand,
                             const pf_rows *rows, pf_ring *, pf_ring_pos *) {
    pf_load_tile<PF_OWNED_TILE, pf_row_bytes>(tile->x, source, operand, rows);
}

PF_DEVICE void pf_cross_load(pf_cross_tile *tile, const pf_source *source, int operand,
                             const pf_rows *rows, pf_ring *, pf_ring_pos *) {
    pf_load_tile<PF_CROSS_TILE, pf_row_bytes>(tile->x, source, operand, rows);
}

PF_DEVICE void pf_value_load(pf_value_tile *tile, const pf_source *source, int operand,
                             const pf_rows *rows, pf_ring *, pf_ring_pos *) {
    pf_load_tile<PF_CROSS_TILE, pf_value_row_bytes>(tile->x, source, operand, rows);
}

PF_DEVICE void pf_owned_take(pf_owned *owned, const pf_owned_tile *tile, const pf_source *, int,
                             const pf_rows *) {
    owned->tile = tile;
}

#define pf_crossed_load pf_owned_load
#define pf_crossed_take pf_owned_take

PF_DEVICE void pf_stats_load(float *to, pf_u64 address, pf_ring *, pf_ring_pos *) {
    if (threadIdx.x < PF_CROSS_TILE / 4)
        pf_copy_async(pf_shared_address(to + 4 * threadIdx.x),
                      (const float *)address + 4 * threadIdx.x, 16);
}

/* Matrix instructions. */

PF_DEVICE void pf_ldmatrix(pf_u32 *r, pf_u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

PF_DEVICE void pf_ldmatrix_trans(pf_u32 *r, pf_u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

PF_DEVICE pf_u32 pf_load_shared(pf_u32 at) {
    pf_u32 x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(at));
    return x;
}

PF_DEVICE void pf_load_shared_vector(pf_u32 *x, pf_u32 at) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at));
}

#define PF_MMA(shape, type)                                                                        \
    asm("mma.sync.aligned." shape ".row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, "          \
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                            \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                           \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

/* d[16][8] += a[16][16] b[16][8] */
PF_DEVICE void pf_mma_half(float *d, const pf_u32 *a, const pf_u32 *b) {
    if (pf_bf16_elements)
        PF_MMA("m16n8k16", "bf16");
    else
        PF_MMA("m16n8k16", "f16");
}

/* d[16][8] += a[16][8] b[8][8] */
PF_DEVICE void pf_mma_tf32(float *d, const pf_u32 *a, const pf_u32 *b) {
    PF_MMA("m16n8k8", "tf32");
}

PF_DEVICE void pf_mma_commit() {
}

#define pf_mma_wait(n) (void)(n)

/* x as tf32, and the exact rest, of which the tensor cores read the upper bits. What is added
 * before the cut, 3/8 to 3/4 of a unit in the last place, rounds about as well as to nearest, and
 * leaves NaN and infinities what they are; the rest of these is NaN. */
PF_DEVICE void pf_split(pf_u32 x, pf_u32 *big, pf_u32 *small) {
    *big = __float_as_uint(__uint_as_float(x) * (1.f + 1.5f / 4096)) & 0xffffe000;
    *small = __float_as_uint(__uint_as_float(x) - __uint_as_float(*big));
}

template <int count> PF_DEVICE void pf_split_all(const pf_u32 *x, pf_u32 *big, pf_u32 *small) {
    PF_UNROLL for (int i = 0; i < count; ++i) {
        pf_split(x[i], &big[i], &small[i]);
    }
}

/* Steps of 8 that are summed on their own; a tile may be shorter. */
constexpr int pf_steps = 2;

/* Column blocks of 8 whose sums are under way together: a product waits for the last one of its sum
 * several times as long as it takes. */
constexpr int pf_chains = 4;

/* Steps of channels that are under way together in scores, where registers allow it. */
constexpr int pf_scores_at_once = PF_OP == PF_OP_FORWARD ? 2 : 1;

/* Of `columns` blocks, as many as divide them evenly. */
template <int columns>
constexpr int pf_chains_of = columns % pf_chains == 0 ? pf_chains
                             : columns % 2 == 0       ? 2
                                                      : 1;

/* PF_OUT_DIM, which ptxas cannot know: it schedules what lies between branches, so that a loop
 * unrolled up to here is scheduled by iterations. As one piece it seems to need too many registers,
 * and the products of each sum come one after the other. */
PF_DEVICE int pf_out_end() {
    int one;
    asm("mov.u32 %0, %%nctaid.y;" : "=r"(one));
    return PF_OUT_DIM - 1 + one;
}

/* Where register i of the sum of block n goes: block by block, or as pf_out has them. */
template <bool out> PF_DEVICE int pf_sum_place(int n, int i) {
    return out ? 8 * (i / 2) + 4 * (i % 2) + n : 4 * n + i;
}

/* The sums of `steps` products of split operands, a[steps][4] b[chains][steps][2], added to
 * d[4 * chains]. The products with a rest come first; where they are NaN any finite number does,
 * for then those of the big parts are what the sum must be, infinite or NaN. */
template <int steps, int chains, bool out = false>
PF_DEVICE void pf_mma_split(float *d, const pf_u32 *a_big, const pf_u32 *a_small,
                            const pf_u32 *b_big, const pf_u32 *b_small) {
    float sum[chains][4] = {};
    PF_UNROLL for (int k = 0; k < steps; ++k) {
        PF_UNROLL for (int n = 0; n < chains; ++n) {
            pf_mma_tf32(sum[n], a_big + 4 * k, b_small + 2 * (n * steps + k));
        }
        PF_UNROLL for (int n = 0; n < chains; ++n) {
            pf_mma_tf32(sum[n], a_small + 4 * k, b_big + 2 * (n * steps + k));
        }
    }
    PF_UNROLL for (int i = 0; i < 4 * chains; ++i) {
        sum[i / 4][i % 4] = fminf(sum[i / 4][i % 4], 3e38f);
    }
    PF_UNROLL for (int k = 0; k < steps; ++k) {
        PF_UNROLL for (int n = 0; n < chains; ++n) {
            pf_mma_tf32(sum[n], a_big + 4 * k, b_big + 2 * (n * steps + k));
        }
    }
    PF_UNROLL for (int i = 0; i < 4 * chains; ++i) {
        d[pf_sum_place<out>(i / 4, i % 4)] += sum[i / 4][i % 4];
    }
}

/* S = owned cross^T. Both have their channels in rows, 32 bytes a step, whatever the type. */

PF_DEVICE void pf_scores_half(pf_scores *s, pf_u32 owned, pf_u32 cross) {
    const int lane = pf_lane(), row0 = 16 * pf_consumer_warp();
    const int owned_lane = pf_swizzle<pf_row_bytes>(lane % 16, lane / 16 * 16);
    const int cross_lane = pf_swizzle<pf_row_bytes>(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 16);
    PF_UNROLL for (int byte = 0; byte < pf_row_bytes; byte += 32) {
        pf_u32 a[4], b[4];
        pf_ldmatrix(a, owned + pf_tile_at<PF_OWNED_TILE, pf_row_bytes>(owned_lane, row0, byte));
        PF_UNROLL for (int x = 0; x < PF_CROSS_TILE; x += 16) {
            pf_ldmatrix(b, cross + pf_tile_at<PF_CROSS_TILE, pf_row_bytes>(cross_lane, x, byte));
            pf_mma_half(&s->x[x / 2], a, b);
            pf_mma_half(&s->x[x / 2 + 4], a, b + 2);
        }
    }
}

/* The owned fragments of 16 channels are split once and used by all cross rows. */
PF_DEVICE void pf_scores_f32(pf_scores *s, pf_u32 owned, pf_u32 cross) {
    constexpr int chains = pf_chains_of<PF_CROSS_TILE / 8>;
    const int lane = pf_lane(), row0 = 16 * pf_consumer_warp();
    const int owned_lane = pf_swizzle<pf_row_bytes>(lane % 16, lane / 16 * 16);
    const int cross_lane = pf_swizzle<pf_row_bytes>(lane % 8, lane / 8 * 16);
#pragma unroll pf_scores_at_once
    for (int byte = 0; byte < pf_row_bytes; byte += 64) {
        pf_u32 a[8], a_big[8], a_small[8];
        PF_UNROLL for (int k = 0; k < pf_steps; ++k) {
            pf_ldmatrix(a + 4 * k, owned + pf_tile_at<PF_OWNED_TILE, pf_row_bytes>(owned_lane, row0,
                                                                                   byte + 32 * k));
        }
        pf_split_all<8>(a, a_big, a_small);
        PF_UNROLL for (int x = 0; x < PF_CROSS_TILE; x += 8 * chains) {
            pf_u32 b[4 * chains], b_big[4 * chains], b_small[4 * chains];
            PF_UNROLL for (int n = 0; n < chains; ++n) {
                pf_ldmatrix(b + 4 * n, cross + pf_tile_at<PF_CROSS_TILE, pf_row_bytes>(
                                                   cross_lane, x + 8 * n, byte));
            }
            pf_split_all<4 * chains>(b, b_big, b_small);
            pf_mma_split<pf_steps, chains>(&s->x[x / 2], a_big, a_small, b_big, b_small);
        }
    }
}

PF_DEVICE void pf_scores_mma(pf_scores *s, const pf_owned *owned, const pf_cross_tile *cross,
                             bool fresh) {
    if (fresh) {
        PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
            s->x[e] = 0.f;
        }
    }
    if (pf_f32_elements)
        pf_scores_f32(s, pf_shared_address(owned->tile->x), pf_shared_address(cross->x));
    else
        pf_scores_half(s, pf_shared_address(owned->tile->x), pf_shared_address(cross->x));
}

/* Weights: pairs of a 16-bit type, or f32, in the order of the A operand. For f32 that order takes
 * cross rows 0, 2, 4, 6, 1, 3, 5, 7 of each 8, which a product may, as long as the other operand
 * follows. */

template <bool f32> struct pf_weights_of { pf_u32 x[PF_SCORE_COUNT / 2]; };

template <> struct pf_weights_of<true> { pf_u32 x[PF_SCORE_COUNT]; };

typedef pf_weights_of<pf_f32_elements> pf_weights;

/* The place of score element e among f32 weights. */
PF_DEVICE int pf_weight_place(int e) {
    return e / 4 * 4 + e % 4 / 2 + e % 2 * 2;
}

PF_DEVICE void pf_weights_pack_as(pf_weights_of<false> *w, const pf_scores *s) {
    PF_UNROLL for (int i = 0; i < PF_SCORE_COUNT / 2; ++i) {
        w->x[i] = pf_pack_pair(s->x[2 * i], s->x[2 * i + 1]);
    }
}

PF_DEVICE void pf_weights_pack_as(pf_weights_of<true> *w, const pf_scores *s) {
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
        w->x[pf_weight_place(e)] = __float_as_uint(s->x[e]);
    }
}

PF_DEVICE void pf_weights_pack(pf_weights *w, const pf_scores *s) {
    pf_weights_pack_as(w, s);
}

/* O += W V, V having its cross rows in rows. */

template <int row_bytes>
PF_DEVICE void pf_out_accumulate(pf_out *out, const pf_weights_of<false> *w, pf_u32 rows,
                                 int byte0) {
    const int lane = pf_lane(), at = pf_swizzle<row_bytes>(lane % 16, lane / 16 * 16);
    rows += byte0 / 128 * (PF_CROSS_TILE * 128);
    PF_UNROLL for (int x = 0; x < PF_CROSS_TILE; x += 16) {
        PF_UNROLL for (int c = 0; c < PF_OUT_DIM; c += 16) {
            pf_u32 b[4];
            pf_ldmatrix_trans(b, rows + pf_tile_at<PF_CROSS_TILE, row_bytes>(at, x, 2 * c));
            pf_mma_half(&out->x[c / 2], &w->x[x / 4], b);
            pf_mma_half(&out->x[c / 2 + 4], &w->x[x / 4], b + 2);
        }
    }
}

/* The B operands of column blocks of 8 from a byte of the rows on, rows even and odd, split. */
template <int steps, int chains, int tile_rows, int row_bytes>
PF_DEVICE void pf_load_columns(pf_u32 rows, int even, int odd, int row0, int byte, pf_u32 *big,
                               pf_u32 *small) {
    pf_u32 x[2 * steps * chains];
    PF_UNROLL for (int i = 0; i < steps * chains; ++i) {
        const int row = row0 + i % steps * 8, column = byte + i / steps * 32;
        x[2 * i] = pf_load_shared(rows + pf_tile_at<tile_rows, row_bytes>(even, row, column));
        x[2 * i + 1] = pf_load_shared(rows + pf_tile_at<tile_rows, row_bytes>(odd, row, column));
    }
    pf_split_all<2 * steps * chains>(x, big, small);
}

/* The B operands of 32 channels: four blocks, of which lanes with column c have channels 4 c to 4 c
 * + 3, one each, since these come with one load. */
template <int steps, int row_bytes>
PF_DEVICE void pf_load_channels(pf_u32 rows, int even, int odd, int row0, int byte, pf_u32 *big,
                                pf_u32 *small) {
    pf_u32 x[8 * steps];
    PF_UNROLL for (int i = 0; i < 2 * steps; ++i) {
        pf_u32 y[4];
        pf_load_shared_vector(y, rows + pf_tile_at<PF_CROSS_TILE, row_bytes>(
                                            i % 2 ? odd : even, row0 + i / 2 * 8, byte));
        PF_UNROLL for (int n = 0; n < 4; ++n) {
            x[2 * steps * n + i] = y[n];
        }
    }
    pf_split_all<8 * steps>(x, big, small);
}

template <int row_bytes>
PF_DEVICE void pf_out_accumulate(pf_out *out, const pf_weights_of<true> *w, pf_u32 rows,
                                 int byte0) {
    constexpr int steps = PF_CROSS_TILE < 8 * pf_steps ? 1 : pf_steps;
    const int lane = pf_lane(), end = pf_out_end();
    const int even = pf_swizzle<row_bytes>(lane % 4 * 2, lane / 4 * 16);
    const int odd = pf_swizzle<row_bytes>(lane % 4 * 2 + 1, lane / 4 * 16);
    rows += byte0 / 128 * (PF_CROSS_TILE * 128);
    PF_UNROLL for (int x = 0; x < PF_CROSS_TILE; x += 8 * steps) {
        pf_u32 a_big[4 * steps], a_small[4 * steps];
        pf_split_all<4 * steps>(&w->x[x / 2], a_big, a_small);
        PF_UNROLL for (int c = 0; c < PF_OUT_DIM; c += 32) {
            if (c >= end)
                break;
            pf_u32 b_big[8 * steps], b_small[8 * steps];
            pf_load_channels<steps, row_bytes>(rows, even, odd, x, 4 * c, b_big, b_small);
            pf_mma_split<steps, 4, true>(&out->x[c / 2], a_big, a_small, b_big, b_small);
        }
    }
}

PF_DEVICE void pf_out_mma(pf_out *out, const pf_weights *w, const pf_cross_tile *cross,
                          int channel0) {
    pf_out_accumulate<pf_row_bytes>(out, w, pf_shared_address(cross->x),
                                    channel0 * pf_staged_bytes);
}

PF_DEVICE void pf_out_mma_value(pf_out *out, const pf_weights *w, const pf_value_tile *value) {
    pf_out_accumulate<pf_value_row_bytes>(out, w, pf_shared_address(value->x), 0);
}

/* The exchange of weights, and dQ^T = K^T dS, each warp a share of the channels. */

typedef struct pf_cross_out {
    float x[PF_OUT_DIM / 16 / pf_warps][PF_CROSS_TILE / 8][4];
} pf_cross_out;

PF_DEVICE void pf_exchange_put(pf_u32 to, const pf_weights_of<false> *w) {
    PF_UNROLL for (int i = 0; i < PF_SCORE_COUNT / 2; ++i) {
        const int byte = i / 2 * 16 + pf_lane() % 4 * 4;
        const int at =
            pf_tile_offset<PF_OWNED_TILE, pf_exchange_row_bytes>(pf_slot_owned(i % 2), byte);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + at), "r"(w->x[i]) : "memory");
    }
}

PF_DEVICE void pf_exchange_put(pf_u32 to, const pf_weights_of<true> *w) {
    PF_UNROLL for (int e = 0; e < PF_SCORE_COUNT; ++e) {
        const int byte = 4 * pf_score_cross(e);
        const int at = pf_tile_offset<PF_OWNED_TILE, pf_exchange_row_bytes>(
            pf_slot_owned(pf_score_slot(e)), byte);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + at), "r"(w->x[pf_weight_place(e)])
                     : "memory");
    }
}

PF_DEVICE void pf_exchange_publish(pf_exchange *exchange, const pf_weights *w) {
    PF_UNROLL for (int n = 0; n <= PF_TANGENT; ++n) {
        pf_exchange_put(pf_shared_address(exchange[n].x), &w[n]);
    }
    __syncthreads();
}

PF_DEVICE void pf_cross_half(pf_cross_out *d, pf_u32 exchange, pf_u32 tile, int channel0) {
    constexpr int parts = PF_OUT_DIM / 16 / pf_warps;
    const int lane = pf_lane(), channel = channel0 + pf_consumer_warp() * (16 * parts);
    const int weights = pf_swizzle<pf_exchange_row_bytes>(lane % 16, lane / 16 * 16);
    PF_UNROLL for (int part = 0; part < parts; ++part) {
        const int byte = 2 * (channel + 16 * part) + lane / 8 % 2 * 16;
        PF_UNROLL for (int o = 0; o < PF_OWNED_TILE; o += 16) {
            pf_u32 a[4], b[4];
            pf_ldmatrix_trans(a, tile + pf_tile_offset<PF_OWNED_TILE, pf_row_bytes>(
                                            o + lane % 8 + lane / 16 * 8, byte));
            PF_UNROLL for (int x = 0; x < PF_CROSS_TILE; x += 16) {
                pf_ldmatrix_trans(b, exchange + pf_tile_at<PF_OWNED_TILE, pf_exchange_row_bytes>(
                                                    weights, o, 2 * x));
                pf_mma_half(d->x[part][x / 8], a, b);
                pf_mma_half(d->x[part][x / 8 + 1], a, b + 2);
            }
        }
    }
}

/* The A operand, K^T: channels lane / 4 and + 8, owned rows even and odd. */
template <int steps>
PF_DEVICE void pf_load_transposed(pf_u32 tile, int row0, int channel, pf_u32 *big, pf_u32 *small) {
    const int lane = pf_lane();
    PF_UNROLL for (int i = 0; i < 4 * steps; ++i) {
        const int row = row0 + i / 4 * 8 + lane % 4 * 2 + i % 4 / 2;
        const int at =
            pf_tile_offset<PF_OWNED_TILE, pf_row_bytes>(row, 4 * (channel + lane / 4 + i % 2 * 8));
        pf_split(pf_load_shared(tile + at), &big[i], &small[i]);
    }
}

PF_DEVICE void pf_cross_f32(pf_cross_out *d, pf_u32 exchange, pf_u32 tile, int channel0) {
    constexpr int parts = PF_OUT_DIM / 16 / pf_warps, steps = pf_steps;
    constexpr int chains = pf_chains_of<PF_CROSS_TILE / 8>;
    const int lane = pf_lane(), channel = channel0 + pf_consumer_warp() * (16 * parts);
    const int even = pf_swizzle<pf_exchange_row_bytes>(lane % 4 * 2, lane / 4 * 4);
    const int odd = pf_swizzle<pf_exchange_row_bytes>(lane % 4 * 2 + 1, lane / 4 * 4);
    PF_UNROLL for (int part = 0; part < parts; ++part) {
        PF_ROLLED for (int o = 0; o < PF_OWNED_TILE; o += 8 * steps) {
            pf_u32 a_big[4 * steps], a_small[4 * steps];
            pf_load_transposed<steps>(tile, o, channel + 16 * part, a_big, a_small);
            PF_UNROLL for (int x = 0; x < PF_CROSS_TILE; x += 8 * chains) {
                pf_u32 b_big[2 * steps * chains], b_small[2 * steps * chains];
                pf_load_columns<steps, chains, PF_OWNED_TILE, pf_exchange_row_bytes>(
                    exchange, even, odd, o, 4 * x, b_big, b_small);
                pf_mma_split<steps, chains>(d->x[part][x / 8], a_big, a_small, b_big, b_small);
            }
        }
    }
}

PF_DEVICE void pf_cross_mma(pf_cross_out *d, const pf_exchange *exchange,
                            const pf_crossed_tile *tile, int channel0, bool fresh) {
    if (fresh)
        *d = pf_cross_out();
    if (pf_f32_elements)
        pf_cross_f32(d, pf_shared_address(exchange->x), pf_shared_address(tile->x), channel0);
    else
        pf_cross_half(d, pf_shared_address(exchange->x), pf_shared_address(tile->x), channel0);
}

/* Sums of dQ: a block in the order of the fragments, so that a warp adds to 128 adjacent bytes. */

PF_DEVICE int pf_dq_place(int channel_block, int row_block, int element, int lane) {
    return ((channel_block * (PF_CROSS_TILE / 8) + row_block) * 4 + element) * 32 + lane;
}

PF_DEVICE int pf_dq_index(int row, int channel) {
    return pf_dq_place(channel / 16, row / 8, channel % 16 / 8 * 2 + row % 2,
                       channel % 8 * 4 + row % 8 / 2);
}

PF_DEVICE void pf_dq_wait(const pf_turn *turn) {
    if (threadIdx.x == 0) {
        int value;
        do
            asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                         : "=r"(value)
                         : "l"(turn->counter)
                         : "memory");
        while (value < turn->value);
    }
    __syncthreads();
}

PF_DEVICE void pf_dq_pass(const pf_turn *turn) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(turn->counter) : "memory");
}

PF_DEVICE void pf_dq_add(const pf_cross_out *d, pf_u64 address, int channel0, const pf_turn *turn) {
    constexpr int parts = PF_OUT_DIM / 16 / pf_warps;
    float *sum = (float *)address;
    if (turn->counter)
        pf_dq_wait(turn);
    PF_UNROLL for (int part = 0; part < parts; ++part) {
        const int block = channel0 / 16 + pf_consumer_warp() * parts + part;
        PF_UNROLL for (int i = 0; i < PF_CROSS_TILE / 2; ++i) {
            atomicAdd(&sum[pf_dq_place(block, i / 4, i % 4, pf_lane())], d->x[part][i / 4][i % 4]);
        }
    }
    if (turn->counter)
        pf_dq_pass(turn);
}

PF_DEVICE void pf_dq_drain() {
}

#endif
