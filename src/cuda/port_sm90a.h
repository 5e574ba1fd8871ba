/* SPDX-License-Identifier: Apache-2.0 */
/* The portability layer (src/common/kernels/port.h) for Hopper. A compute group is a warpgroup and
 * issues wgmma. The first warpgroup gives its registers away; its warps are producers, which load
 * tiles by TMA, and in backward one for each group adds to dQ. A tile is a row of slabs of 64
 * channels, each of rows of 128 bytes in the swizzle that both engines know. */
#ifndef PF_PORT_SM90A_H
#define PF_PORT_SM90A_H

#define PF_FIRST_CONSUMER 128
#define PF_KERNEL_TAIL , const __grid_constant__ pf_tensor_maps pf_maps
/* The JVP has registers for it only without bias, and with H in shared memory. */
#define PF_PARKS_WEIGHTS (PF_OP == PF_OP_FORWARD_JVP && PF_HEAD_DIM <= 128 && !PF_GENERAL)
/* The JVP would multiply each H by alpha. In f16 small queries lose bits by it; at D 128 alpha is
 * seldom a power of two, at D 256 groups share their queries. */
#define PF_SCALES_QUERIES                                                                          \
    (PF_OP == PF_OP_FORWARD_JVP && PF_HEAD_DIM == 64 && !PF_GENERAL && PF_ELEMENT == PF_KTYPE_BF16)
/* So that the queries of the next item or pair come while those of the last are in use. */
#define PF_Q_STAGES (PF_OP == PF_OP_FORWARD && PF_HEAD_DIM <= 128 && !PF_GENERAL ? 2 : 1)
/* What one tile of V leaves has room for tiles of bias, which come from farther away. */
#define PF_V_STAGES (PF_OP == PF_OP_FORWARD_JVP && PF_HEAD_DIM == 128 && PF_GENERAL ? 1 : PF_STAGES)
#define PF_TAKES_AHEAD 1
#define PF_OVERLAP (!PF_TANGENT || PF_PARKS_WEIGHTS)
/* Two warpgroups on the same 64 keys: each has an accumulator of 256 columns. */
#define PF_BACKWARD_PAIRED (PF_OP == PF_OP_BACKWARD && PF_HEAD_DIM == 256 && !PF_GENERAL)
#define PF_SPREADS_WALKS PF_BACKWARD_PAIRED
/* At D 64 heads are small, at D 256 walks are spread. */
#define PF_HEADS_INSIDE (PF_OP == PF_OP_BACKWARD && PF_HEAD_DIM == 128 && !PF_GENERAL)
#define PF_LOADS_ACQUIRE PF_BACKWARD_PAIRED
#define PF_DOUT_STAGES (PF_BACKWARD_PAIRED ? 1 : PF_STAGES)
#define PF_DELTA_WITH_Q PF_BACKWARD_PAIRED
#define PF_EXCHANGES (PF_BACKWARD_PAIRED ? 1 : 2)
/* Where outputs are wide enough that scaling them costs more than finding out when to. */
#define PF_LAZY_MAX (PF_OP == PF_OP_FORWARD_JVP || PF_HEAD_DIM == 256)
#define PF_ASKS_FOR_NAN (PF_OP == PF_OP_BACKWARD && PF_GENERAL)
/* Where there is shared memory for it. */
#define PF_TURNS_ROWS                                                                              \
    (!PF_GENERAL && (PF_OP == PF_OP_FORWARD || (PF_OP == PF_OP_FORWARD_JVP && PF_HEAD_DIM <= 128)))
/* With bias there is no room for it, nor for both outputs of the JVP; nor do registers suffice. */
#define PF_STAGES_OUT (PF_OP == PF_OP_FORWARD && !PF_GENERAL)
#define PF_LOOKS_AHEAD PF_STAGES_OUT
#define PF_KEYS_FIRST PF_STAGES_OUT
/* At D 64 it gains nothing, at D 256 registers do not suffice. */
#define PF_STARTS_OUT (PF_OVERLAP && PF_HEAD_DIM == 128 && !PF_GENERAL)
/* With bias all warpgroups meet anyway, before dbias leaves. */
#define PF_BACKWARD_LAGS (PF_OP == PF_OP_BACKWARD && PF_HEAD_DIM <= 128 && !PF_GENERAL)
#define PF_BACKWARD_TURNS (PF_HEAD_DIM == 64)
/* Two outputs of 256 channels leave no registers for anything beside them. */
#define PF_FORWARD_PAIRED (PF_OP == PF_OP_FORWARD_JVP && PF_HEAD_DIM == 256)
#define PF_PAIRED (PF_FORWARD_PAIRED || PF_BACKWARD_PAIRED)
#define PF_KEEP(x) asm volatile("" : "+r"(x))
#define PF_OUT_STEP (PF_GENERAL ? 16 : PF_OUT_COUNT)
#define PF_SCORE_STEP 8 /* where scores are looked up one by one it is not for speed */

#include "port_nvidia.h"

/* Whether what a warp agrees on is worked out once, where uniform registers suffice to keep it. */
#define PF_AGREES_ONCE                                                                             \
    (PF_OP == PF_OP_FORWARD ||                                                                     \
     (!PF_GENERAL && ((PF_OP == PF_OP_FORWARD_JVP && PF_HEAD_DIM <= 128) ||                        \
                      (PF_OP == PF_OP_BACKWARD && PF_HEAD_DIM >= 128))))

/* In the loops of its roles compilers would keep nothing in uniform registers by themselves. */
#define PF_AGREES_ON_TILES PF_BACKWARD_PAIRED

/* x, called by whole warps. The shuffle tells the compiler that a warp agrees on it, so that it and
 * what is computed from it can live in uniform registers, where wgmma wants its descriptors. In a
 * long branch on anything else nothing can. Not being volatile lets it be shared. */
PF_DEVICE int pf_agreed(int x) {
    if (!PF_AGREES_ONCE)
        return __shfl_sync(0xffffffffu, x, 0);
    int first;
    asm("shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0xffffffff;" : "=r"(first) : "r"(x));
    return first;
}

/* Its register is a slow one. */
#if PF_AGREES_ONCE
#define pf_block() pf_agreed((int)blockIdx.x)
#endif

#include "tma.h"
#include "wgmma.h"

enum {
    PF_GROUPS = (PF_THREADS - PF_FIRST_CONSUMER) / 128,
    PF_OWNERS = PF_PAIRED ? PF_GROUPS / 2 : PF_GROUPS, /* groups that own rows of their own */
    PF_SLAB = 64,                                      /* channels */
    PF_ROW_BYTES = 128,                                /* of a row of a slab */
    /* Registers of a thread, so that all fit in what the kernel starts with. Where accumulators
     * leave no choice the producer spills some of what it knows of the workgroup's next item. One
     * group alone starts with as many as it can have. */
    PF_CROWDED = PF_OP == PF_OP_BACKWARD || (PF_HEAD_DIM > 64 && PF_OP != PF_OP_FORWARD),
    PF_PRODUCER_REGISTERS = PF_GROUPS >= 3 ? 32
                            : PF_CROWDED   ? 24
                                           : 40,
    PF_CONSUMER_REGISTERS = PF_GROUPS == 4   ? 112
                            : PF_GROUPS == 3 ? 160
                            : PF_CROWDED     ? 240
                                             : 232,
};
static_assert(PF_OWNED_TILE == 64 * PF_OWNERS, "each warpgroup owns 64 rows");
static_assert(PF_CLUSTER_OF(pf_tuned.persistent) == (PF_BACKWARD_PAIRED ? 2 : 1),
              "clusters are for pairs");
static_assert(PF_CROSS_TILE % 16 == 0 && PF_HEAD_DIM % PF_SLAB == 0 && PF_OUT_DIM % PF_SLAB == 0,
              "tiles are whole in the steps of wgmma and the slabs of TMA");

typedef struct pf_weights {
    pf_u32 x[PF_SCORE_COUNT / 2];
} pf_weights;

#define PF_TILE(name, rows, channels)                                                              \
    typedef struct alignas(1024) name {                                                            \
        unsigned char bytes[(channels) / PF_SLAB][rows][PF_ROW_BYTES];                             \
    } name
PF_TILE(pf_owned_tile, PF_OWNED_TILE, PF_HEAD_DIM);
PF_TILE(pf_cross_tile, PF_CROSS_TILE, PF_HEAD_DIM);
PF_TILE(pf_value_tile, PF_CROSS_TILE, PF_OUT_DIM);

/* The group's rows of an owned tile, as wgmma takes them. */
typedef struct pf_owned {
    pf_u32 rows;
} pf_owned;

/* Named barriers. */
enum {
    PF_BARRIER_TURN = 1, /* one a group */
    PF_BARRIER_EXCHANGE = 4,
    PF_BARRIER_SCALED = 5,  /* one a group */
    PF_BARRIER_DQ_FULL = 5, /* one a group */
    PF_BARRIER_DQ_FREE = 8, /* one a group */
    PF_BARRIER_PAIR_SCORES = 11,
    PF_BARRIER_PAIR_SECOND = 12,
    PF_BARRIER_FILLERS = 13,
    PF_BARRIER_PAIR_FULL = 1, /* one a warp of a group */
    PF_BARRIER_PAIR_FREE = 5, /* likewise */
};

PF_DEVICE int pf_thread_group() {
    return ((int)threadIdx.x - PF_FIRST_CONSUMER) / 128;
}

PF_DEVICE int pf_group() {
    return pf_agreed(pf_thread_group());
}

PF_DEVICE bool pf_any_lane(bool x) {
    return __any_sync(0xffffffffu, x);
}

/* Where tiles are small it takes as long as it saves to find out which rows have negative scores
 * alone, and which scores a row keeps. */
#define PF_LARGE_TILES (PF_OP == PF_OP_FORWARD && PF_GROUPS < 4)
/* The order of floats is that of their bits, or where all are negative its opposite. */
#define PF_MAX3                                                                                    \
    (PF_OP == PF_OP_FORWARD ? PF_LARGE_TILES                                                       \
                            : PF_HEAD_DIM == 128 || (PF_HEAD_DIM == 64 && !PF_GENERAL))
#define PF_OF_THREE(name, instruction)                                                             \
    PF_DEVICE float name(float a, float b, float c) {                                              \
        float x;                                                                                   \
        asm("{\n.reg .s32 a, b, c;\nmov.b32 a, %1;\nmov.b32 b, %2;\nmov.b32 c, %3;\n" instruction  \
            " a, a, b;\n" instruction " a, a, c;\nmov.b32 %0, a;\n}"                               \
            : "=f"(x)                                                                              \
            : "f"(a), "f"(b), "f"(c));                                                             \
        return x;                                                                                  \
    }
PF_OF_THREE(pf_max3, "max.s32")
PF_OF_THREE(pf_max3_negative, "min.s32")

/* In the JVP, where each bit decides on two elements, compilers make more instructions of it. */
#define PF_SLOT_BITS PF_LARGE_TILES
static_assert(!PF_SLOT_BITS || PF_SCORE_COUNT / PF_SLOTS <= 32, "a bit for each element of a slot");

/* Those from cross row x on, of which each eight have two. */
PF_DEVICE pf_u32 pf_slot_bits_from(int x) {
    const int lane_x = x - 2 * (pf_lane() % 4), before = (lane_x >> 3) * 2 + min(lane_x & 7, 2);
    pf_u32 bits;
    asm("shl.b32 %0, -1, %1;" : "=r"(bits) : "r"(max(before, 0))); /* by 32 and more: none */
    return bits;
}

PF_DEVICE pf_u32 pf_slot_bits(int begin, int end) {
    return pf_slot_bits_from(begin) & ~pf_slot_bits_from(end);
}

/* Its rows within the owned tile. */
#define PF_GROUPS_SKIP 1
PF_DEVICE int pf_group_begin() {
    return PF_PAIRED ? 0 : 64 * pf_group();
}

PF_DEVICE int pf_group_end() {
    return pf_group_begin() + 64;
}

/* ---- rings ---- */

typedef struct pf_ring {
    pf_u64 full[PF_STAGES], empty[PF_STAGES];
    pf_u64 aside; /* for a tile that must be seen before it is published */
    pf_u32 aside_phase;
} pf_ring;

typedef struct pf_ring_pos {
    int fill, take;
    pf_u32 fill_phase, take_phase;
} pf_ring_pos;

PF_DEVICE void pf_ring_init_for(pf_ring *ring, int stages, int groups) {
    if (threadIdx.x != 0)
        return;
    for (int i = 0; i < stages; ++i) {
        pf_barrier_init(&ring->full[i], 1);
        pf_barrier_init(&ring->empty[i], 4 * groups); /* each warp gives a stage back */
    }
    pf_barrier_init(&ring->aside, 1);
    ring->aside_phase = 0;
    pf_barrier_init_fence();
}

PF_DEVICE void pf_ring_init(pf_ring *ring, int stages) {
    pf_ring_init_for(ring, stages, PF_GROUPS);
}

PF_DEVICE void pf_ring_acquire(pf_ring *ring, const pf_ring_pos *pos, int) {
    pf_barrier_wait(&ring->empty[pos->fill], pos->fill_phase ^ 1);
}

PF_DEVICE void pf_ring_publish(pf_ring *ring, pf_ring_pos *pos, int stages) {
    pf_barrier_arrive_one(&ring->full[pos->fill]);
    if (++pos->fill == stages) {
        pos->fill = 0;
        pos->fill_phase ^= 1;
    }
}

PF_DEVICE void pf_ring_take(pf_ring *ring, const pf_ring_pos *pos, int) {
    pf_barrier_wait(&ring->full[pos->take], pos->take_phase);
}

PF_DEVICE void pf_ring_release(pf_ring *ring, pf_ring_pos *pos, int stages) {
    __syncwarp();
    pf_barrier_arrive_one(&ring->empty[pos->take]);
    if (++pos->take == stages) {
        pos->take = 0;
        pos->take_phase ^= 1;
    }
}

/* ---- loads, by the producer warp ---- */

typedef struct pf_source {
    const pf_tensor_maps *maps;
    const pf_attention_kargs *a;
} pf_source;
#define PF_SOURCE                                                                                  \
    { &pf_maps, &pf_args }

/* No tensor has so many rows: a box from here on is all zeros. */
enum { PF_ROW_OUTSIDE = 0x7ffffff0 };

/* Is some row dead that the map does not already read as zero? Four bytes a lane: both ends of a
 * tile are aligned in `live`, which is padded. */
PF_DEVICE bool pf_any_dead(const pf_rows *rows, int tile_rows) {
    bool dead = false;
    PF_UNROLL for (int r0 = 0; r0 < tile_rows; r0 += 128) {
        const int r = r0 + 4 * pf_lane(), row = rows->row0 + r;
        if (r < tile_rows && row < rows->end) {
            const pf_u32 four = *(const pf_u32 *)(rows->live + row);
            const pf_u32 past = row + 4 > rows->end ? ~0u << 8 * (rows->end - row) : 0;
            dead = dead || __vcmpeq4(four | past, 0);
        }
    }
    return __any_sync(0xffffffffu, dead);
}

/* The map of V ends with the keys of either pair. */
PF_DEVICE int pf_rows_end(const pf_rows *rows, const pf_source *source, int operand) {
    const pf_attention_kargs *a = source->a;
    const bool values = operand == PF_OPERAND_V || operand == PF_OPERAND_TV;
    return values && a->pairs == 2 ? max(a->key_end[0], a->key_end[1]) : rows->end;
}

#define PF_ROWS_SETTLE 1
PF_DEVICE void pf_rows_settle(pf_rows *rows, const pf_source *source, int operand, int tile_rows) {
    if (!rows->live)
        return;
    pf_rows at = *rows;
    at.end = pf_rows_end(rows, source, operand);
    asm volatile("" : "+l"(at.live)); /* as in pf_tile_load */
    if (!pf_any_dead(&at, tile_rows))
        rows->live = 0;
}

/* Wait for a tile that was loaded aside, then clear its dead rows. Rows are whole in every slab,
 * swizzled or not. */
PF_DEVICE void pf_clear_dead(unsigned char *tile, int tile_rows, int slabs, const pf_rows *rows,
                             pf_ring *ring) {
    const pf_u32 phase = ring->aside_phase;
    pf_barrier_wait(&ring->aside, phase);
    __syncwarp();
    ring->aside_phase = phase ^ 1;
    _Pragma("unroll 1") for (int r = 0; r < tile_rows; ++r) {
        const int row = rows->row0 + r;
        if (row >= rows->end || ((const unsigned char *)rows->live)[row])
            continue;
        _Pragma("unroll 1") for (int slab = 0; slab < slabs; ++slab)(
            (pf_u32 *)(tile + (slab * tile_rows + r) * PF_ROW_BYTES))[pf_lane()] = 0;
    }
    pf_async_fence();
    __syncwarp();
}

/* Where it acquires the stage too, the thread that issues the copies waits for it with all at hand
 * that these take. */
PF_DEVICE void pf_tile_load(unsigned char *tile, int tile_rows, int slabs, const pf_source *source,
                            int operand, const pf_rows *at, pf_ring *ring, const pf_ring_pos *pos,
                            bool acquires) {
    const pf_attention_kargs *a = source->a;
    pf_rows rows = *at;
    rows.end = pf_rows_end(at, source, operand);
    /* Hide where this comes from: the producer has no registers to carry from tile to tile what can
     * be computed again. */
    asm volatile("" : "+r"(rows.row0));
    const pf_karg_tensor *t = &a->operand[operand];
    const bool some = t->address && rows.row0 < rows.end;
    const bool dead = rows.live && some;
    if (pf_elect()) {
        pf_u64 *barrier = dead ? &ring->aside : &ring->full[pos->fill];
        const int row = some ? rows.row0 : PF_ROW_OUTSIDE;
        const int h = t->stride[1] ? rows.h : 0, b = t->stride[0] ? rows.b : 0;
        if (acquires)
            pf_barrier_wait(&ring->empty[pos->fill], pos->fill_phase ^ 1);
        pf_barrier_expect(barrier, slabs * tile_rows * PF_ROW_BYTES);
        PF_UNROLL for (int slab = 0; slab < slabs; ++slab)
            pf_tensor_copy(tile + slab * tile_rows * PF_ROW_BYTES, &source->maps->map[operand],
                           barrier, rows.channel0 + slab * PF_SLAB, row, h, b);
        if (dead)
            pf_barrier_arrive(barrier);
    }
    if (dead)
        pf_clear_dead(tile, tile_rows, slabs, &rows, ring);
}

#define PF_TILE_LOAD(name, type, rows_, channels)                                                  \
    PF_DEVICE void name(type *tile, const pf_source *source, int operand, const pf_rows *rows,     \
                        pf_ring *ring, const pf_ring_pos *pos) {                                   \
        pf_tile_load(&tile->bytes[0][0][0], rows_, (channels) / PF_SLAB, source, operand, rows,    \
                     ring, pos, false);                                                            \
    }
PF_TILE_LOAD(pf_owned_load, pf_owned_tile, PF_OWNED_TILE, PF_HEAD_DIM)
#if PF_BACKWARD_PAIRED
#include "port_sm90a_cluster.h"
#else
typedef pf_owned_tile pf_crossed_tile;
#define pf_crossed_load pf_owned_load
#define pf_crossed_take pf_owned_take
#endif
PF_TILE_LOAD(pf_cross_load, pf_cross_tile, PF_CROSS_TILE, PF_HEAD_DIM)
#if PF_LOADS_ACQUIRE
PF_DEVICE void pf_cross_load_acquire(pf_cross_tile *tile, const pf_source *source, int operand,
                                     const pf_rows *rows, pf_ring *ring, const pf_ring_pos *pos,
                                     int) {
    pf_tile_load(&tile->bytes[0][0][0], PF_CROSS_TILE, PF_HEAD_DIM / PF_SLAB, source, operand, rows,
                 ring, pos, true);
}
#endif
PF_TILE_LOAD(pf_value_load, pf_value_tile, PF_CROSS_TILE, PF_OUT_DIM)

PF_DEVICE void pf_stats_load(float *to, pf_u64 address, pf_ring *ring, const pf_ring_pos *pos) {
    if (pf_elect()) {
        pf_barrier_expect(&ring->full[pos->fill], PF_CROSS_TILE * 4);
        pf_bulk_copy(to, address, PF_CROSS_TILE * 4, &ring->full[pos->fill]);
    }
}

/* ---- products ---- */

PF_DEVICE void pf_owned_take(pf_owned *o, const pf_owned_tile *tile, const pf_source *, int,
                             const pf_rows *) {
    o->rows = pf_wgmma_tile(pf_shared_address(tile->bytes[0][pf_group_begin()]), 16);
}

PF_DEVICE pf_u32 pf_bf16_products(pf_u32 a, pf_u32 b) {
    pf_u32 x;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(b));
    return x;
}

/* A thread scales 16 bytes of the group's rows at a time. */
PF_DEVICE void pf_owned_scale(pf_owned_tile *tiles, int count, float factor) {
    const pf_u32 f = pf_pack_pair(factor, factor);
    const int slabs = PF_HEAD_DIM / PF_SLAB;
    PF_UNROLL for (int n = 0; n < count * slabs; ++n) {
        uint4 *rows = (uint4 *)tiles[n / slabs].bytes[n % slabs][pf_group_begin()];
        PF_UNROLL for (int i = 0; i < 64 * PF_ROW_BYTES / 16; i += 128) {
            const uint4 x = rows[i + threadIdx.x % 128];
            rows[i + threadIdx.x % 128] =
                make_uint4(pf_bf16_products(x.x, f), pf_bf16_products(x.y, f),
                           pf_bf16_products(x.z, f), pf_bf16_products(x.w, f));
        }
    }
    pf_async_fence();
    pf_named_sync(PF_BARRIER_SCALED + pf_thread_group(), 128);
}

PF_DEVICE void pf_scores_mma(pf_scores *s, const pf_owned *owned, const pf_cross_tile *cross,
                             bool fresh) {
    pf_u32 a = owned->rows, b = pf_wgmma_tile(pf_shared_address(cross), 16);
    asm volatile("" : "+r"(a)); /* no descriptors carried along, where registers are short */
    if (PF_FORWARD_PAIRED && PF_GENERAL)
        asm volatile("" : "+r"(b));
    pf_wgmma_pin(s->x, PF_SCORE_COUNT);
    pf_wgmma_fence();
    PF_UNROLL for (int c = 0; c < PF_HEAD_DIM; c += 16) {
        const int slab = c / PF_SLAB, within = c % PF_SLAB * 2;
        pf_wgmma<PF_CROSS_TILE>::shared<0, 0>(
            s->x, pf_wgmma_advance(a, slab * PF_OWNED_TILE * PF_ROW_BYTES + within),
            pf_wgmma_advance(b, slab * PF_CROSS_TILE * PF_ROW_BYTES + within), !fresh || c > 0);
    }
}

PF_DEVICE void pf_weights_pack(pf_weights *w, const pf_scores *s) {
    PF_UNROLL for (int i = 0; i < PF_SCORE_COUNT / 2; ++i) w->x[i] =
        pf_pack_pair(s->x[2 * i], s->x[2 * i + 1]);
}

PF_DEVICE void pf_out_mma_slabs(pf_out *out, pf_weights *w, const unsigned char *slabs,
                                bool fresh) {
    const pf_u32 b = pf_wgmma_tile(pf_shared_address(slabs), PF_CROSS_TILE * PF_ROW_BYTES);
    pf_wgmma_pin(out->x, PF_OUT_COUNT);
    pf_wgmma_pin(w->x, PF_SCORE_COUNT / 2);
    pf_wgmma_fence();
    PF_UNROLL for (int x = 0; x < PF_CROSS_TILE; x += 16) pf_wgmma<PF_OUT_DIM>::registers<1>(
        out->x, w->x + x / 4, pf_wgmma_advance(b, x * PF_ROW_BYTES), !fresh || x > 0);
}

PF_DEVICE void pf_out_mma(pf_out *out, pf_weights *w, const pf_cross_tile *cross, int channel0) {
    pf_out_mma_slabs(out, w, cross->bytes[channel0 / PF_SLAB][0], false);
}

PF_DEVICE void pf_out_mma_value(pf_out *out, pf_weights *w, const pf_value_tile *value) {
    pf_out_mma_slabs(out, w, value->bytes[0][0], false);
}

#if PF_STARTS_OUT
PF_DEVICE void pf_out_mma_start(pf_out *out, pf_weights *w, const pf_value_tile *value,
                                bool fresh) {
    pf_out_mma_slabs(out, w, value->bytes[0][0], fresh);
}
#endif

/* ---- fragments to shared memory ---- */

/* Store four 8 x 8 matrices, one register each; a row of one goes to the address that lane 8 *
 * matrix + row gives. */
PF_DEVICE void pf_store_matrices(pf_u32 address, const pf_u32 *x) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

#include "port_sm90a_bias.h"
#if PF_FORWARD_PAIRED
#include "port_sm90a_forward_pair.h"
#endif

extern __shared__ __align__(1024) unsigned char pf_shared_memory[];

#include "port_sm90a_out.h"
#include "port_sm90a_weights.h"
#if PF_OP == PF_OP_BACKWARD || PF_OP == PF_OP_BACKWARD_JVP
#include "port_sm90a_dq.h"
#else
PF_DEVICE void pf_dq_work(int) {
}
#if !PF_TURNS_ROWS
enum { PF_PORT_SHARED_BYTES = 0 };
#endif
#endif

/* ---- roles ---- */

/* Backward's workgroups may divide the last items. */
#define PF_DIVIDES (PF_OP == PF_OP_BACKWARD)
static_assert(!PF_DIVIDES || PF_OWNED_TILE % PF_JOIN_ROWS == 0, "parts are summed in whole blocks");

/* Backward's are the first and last warp: those between add to dQ. */
#define PF_FILLERS (PF_OP == PF_OP_BACKWARD ? 2 : 3)
PF_DEVICE bool pf_fills(int filler) {
    return (int)threadIdx.x / 32 == (PF_OP == PF_OP_BACKWARD ? 3 * filler : filler);
}

/* The producers of keys and of values. */
PF_DEVICE void pf_fillers_meet() {
    pf_named_sync(PF_BARRIER_FILLERS, 64);
}

PF_DEVICE bool pf_enter_producer() {
    if (PF_GROUPS > 1)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)PF_PRODUCER_REGISTERS));
    const int warp = (int)threadIdx.x / 32;
    if (PF_OP == PF_OP_BACKWARD && warp > 0 && warp <= PF_GROUPS)
        pf_dq_work(warp - 1);
    return true;
}

/* The last group starts by passing the first its turn. */
PF_DEVICE bool pf_enter_consumer() {
    if (PF_GROUPS > 1)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)PF_CONSUMER_REGISTERS));
#if PF_FORWARD_PAIRED
    pf_pair_begin();
#else
    if (PF_GROUPS > 1 && pf_thread_group() == PF_GROUPS - 1)
        pf_named_arrive(PF_BARRIER_TURN, 256);
#endif
    return true;
}

/* The two blocks are the branches of one `if`, as setmaxnreg asks. */
#define PF_PRODUCER                                                                                \
    if (threadIdx.x < PF_FIRST_CONSUMER)                                                           \
        for (bool enter = pf_enter_producer(); enter; enter = false)
#define PF_CONSUMER else for (bool enter = pf_enter_consumer(); enter; enter = false)
#define PF_REFILL(...)

/* Groups take turns in a circle: while one issues its products, another computes its softmax. */
PF_DEVICE void pf_turn_wait() {
    if (PF_GROUPS > 1)
        pf_named_sync(PF_BARRIER_TURN + pf_thread_group(), 256);
}

PF_DEVICE void pf_turn_pass() {
    if (PF_GROUPS > 1)
        pf_named_arrive(PF_BARRIER_TURN + (pf_thread_group() + 1) % PF_GROUPS, 256);
}

/* The compiler computes the address of shared memory again at every use, by way of a slow special
 * register. That a warp agrees on it lets it lie in a uniform register instead, of which most of
 * backward has none left. */
PF_DEVICE unsigned char *pf_shared_base() {
    if (PF_OP > PF_OP_FORWARD_JVP && !PF_AGREES_ON_TILES)
        return pf_shared_memory;
    const int base = pf_agreed((int)pf_shared_address(pf_shared_memory));
    return (unsigned char *)__cvta_shared_to_generic((pf_u32)base);
}

#undef PF_SHARED
#define PF_SHARED(type, pointer)                                                                   \
    static_assert(sizeof(type) + PF_PORT_SHARED_BYTES <= PF_SHARED_BYTES,                          \
                  "the tuning table gives too little memory");                                     \
    type *pointer = (type *)(pf_shared_base() + PF_PORT_SHARED_BYTES)

#endif
