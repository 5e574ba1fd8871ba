/* SPDX-License-Identifier: Apache-2.0 */
/* The portability layer for one plain thread: a workgroup is one compute group of one thread that
 * holds whole fragments. It makes the kernel source itself testable, under sanitizers, where there
 * is no GPU. */
#ifndef PF_PORT_SCALAR_H
#define PF_PORT_SCALAR_H

#include <math.h>
#include <string.h>

#include "common/tuning.h"
#include "common/kernels/port.h"

extern "C" {
#include "common/formats.h"
#include "scalar.h"
}
#include "scalar_tiles.h"

#define PF_OWNED_TILE SCALAR_OWNED_TILE
#define PF_CROSS_TILE SCALAR_CROSS_TILE
#define PF_OUT_DIM SCALAR_OUT_DIM
#define PF_STAGES SCALAR_STAGES
#define PF_DEVICE static inline
#define PF_UNROLL
#define PF_ROLLED
#define PF_INFINITY INFINITY
#define PF_OVERLAP PF_TEST_OVERLAP
#define PF_BACKWARD_LAGS !PF_GENERAL
/* Both ways, by the type. */
#define PF_BACKWARD_TURNS (PF_ELEMENT == PF_KTYPE_F16)
#define PF_TAKES_AHEAD (PF_ELEMENT == PF_KTYPE_F16)
#define PF_SPREADS_WALKS (!PF_GENERAL && !PF_HEADS_INSIDE)
#define PF_HEADS_INSIDE (PF_ELEMENT == PF_KTYPE_BF16)
#define PF_LAZY_MAX PF_TEST_OVERLAP
#define PF_MAX3 (PF_ELEMENT == PF_KTYPE_F16)
#define PF_SLOT_BITS PF_TEST_OVERLAP
#define PF_SCALES_QUERIES (PF_ELEMENT == PF_KTYPE_BF16 && !PF_GENERAL)
#define PF_PARKS_WEIGHTS (PF_TEST_OVERLAP && PF_OP == PF_OP_FORWARD_JVP)
#define PF_STAGES_OUT (PF_TEST_OVERLAP && PF_OP == PF_OP_FORWARD)
#define PF_LOOKS_AHEAD (PF_OP == PF_OP_FORWARD)
#define PF_STARTS_OUT PF_TEST_OVERLAP
#define PF_EXCHANGES 2
#define pf_any_lane(x) (x)

#define PF_SLOTS PF_OWNED_TILE
#define PF_SCORE_COUNT (PF_OWNED_TILE * PF_CROSS_TILE)
#define PF_OUT_COUNT (PF_OWNED_TILE * PF_OUT_DIM)
#define PF_OUT_RUN 1
#define PF_LANES 1

/* The launch: workgroups one after the other, and of the passes, which share nothing, threads too.
 */
static int scalar_block, scalar_blocks, scalar_thread, scalar_threads;

PF_DEVICE int pf_block() {
    return scalar_block;
}
PF_DEVICE pf_i64 pf_blocks() {
    return scalar_blocks;
}
PF_DEVICE int pf_thread() {
    return scalar_thread;
}
PF_DEVICE int pf_threads() {
    return scalar_threads;
}
PF_DEVICE int pf_lane() {
    return 0;
}
PF_DEVICE float pf_lane_sum(float x) {
    return x;
}
PF_DEVICE float pf_lane_max(float x) {
    return x;
}
PF_DEVICE void pf_lane_sync() {
}
PF_DEVICE void pf_block_sync() {
}
PF_DEVICE float pf_exp2(float x) {
    return exp2f(x);
}
PF_DEVICE float pf_log2(float x) {
    return log2f(x);
}
PF_DEVICE float pf_reciprocal(float x) {
    return 1.f / x;
}
PF_DEVICE float pf_fma(float a, float b, float c) {
    return fmaf(a, b, c);
}
PF_DEVICE float pf_max(float a, float b) {
    return fmaxf(a, b);
}
PF_DEVICE float pf_f16_bits_to_f32(unsigned short x) {
    return pf_f16_to_f32(x);
}
PF_DEVICE float pf_bf16_bits_to_f32(unsigned short x) {
    return pf_bf16_to_f32(x);
}
PF_DEVICE unsigned short pf_f32_to_f16_bits(float x) {
    return pf_f32_to_f16(x);
}
PF_DEVICE unsigned short pf_f32_to_bf16_bits(float x) {
    return pf_f32_to_bf16(x);
}
PF_DEVICE unsigned char pf_f32_to_e5m2_bits(float x) {
    return pf_f32_to_e5m2(x);
}

/* Addresses as the contract promises them. */
#define PF_WIDEN_RUN 16
PF_DEVICE void pf_widen_run(unsigned long long to, unsigned long long from) {
    if (to % 16 != 0 || from % 16 != 0)
        scalar_fail("a run to widen is not aligned");
    for (int n = 0; n < PF_WIDEN_RUN; ++n)
        ((unsigned short *)to)[n] = (unsigned short)(((const unsigned char *)from)[n] << 8);
}

/* The bits of floats, in the order of integers. */
PF_DEVICE float scalar_of_three(float a, float b, float c, bool least) {
    const float x[3] = {a, b, c};
    int at = 0, bits[3];
    memcpy(bits, x, sizeof bits);
    for (int n = 1; n < 3; ++n)
        if (least ? bits[n] < bits[at] : bits[n] > bits[at])
            at = n;
    return x[at];
}
PF_DEVICE float pf_max3(float a, float b, float c) {
    return scalar_of_three(a, b, c, false);
}
PF_DEVICE float pf_max3_negative(float a, float b, float c) {
    return scalar_of_three(a, b, c, true);
}

PF_DEVICE unsigned pf_slot_bits(int begin, int end) {
    unsigned bits = 0;
    for (int n = 0; n < PF_CROSS_TILE; ++n)
        bits |= (unsigned)(begin <= n && n < end) << n;
    return bits;
}

typedef struct pf_scores {
    float x[PF_SCORE_COUNT];
} pf_scores;
typedef struct pf_weights {
    float x[PF_SCORE_COUNT];
} pf_weights;
typedef struct pf_exchange {
    float x[PF_SCORE_COUNT];
} pf_exchange;
typedef struct pf_out {
    float x[PF_OUT_COUNT];
} pf_out;
#define PF_DIVIDES 1
typedef struct pf_cross_out {
    float x[PF_CROSS_TILE * PF_OUT_DIM];
} pf_cross_out;
typedef struct pf_owned_tile {
    float x[PF_OWNED_TILE][PF_HEAD_DIM];
} pf_owned_tile;
typedef pf_owned_tile pf_crossed_tile;
typedef struct pf_cross_tile {
    float x[PF_CROSS_TILE][PF_HEAD_DIM];
} pf_cross_tile;
typedef struct pf_value_tile {
    float x[PF_CROSS_TILE][PF_OUT_DIM];
} pf_value_tile;

PF_DEVICE int pf_score_slot(int e) {
    return e / PF_CROSS_TILE;
}
PF_DEVICE int pf_score_cross(int e) {
    return e % PF_CROSS_TILE;
}
PF_DEVICE int pf_out_slot(int e) {
    return e / PF_OUT_DIM;
}
PF_DEVICE int pf_out_channel(int e) {
    return e % PF_OUT_DIM;
}
PF_DEVICE int pf_slot_owned(int s) {
    return s;
}
PF_DEVICE bool pf_slot_is_first() {
    return true;
}
PF_DEVICE float pf_slot_max(float x) {
    return x;
}
PF_DEVICE float pf_slot_sum(float x) {
    return x;
}

/* Rings: one fill a stage, counted, so that a take of an unfilled stage or a fill of a full one is
 * caught. */
typedef struct pf_ring {
    int filled, taken;
} pf_ring;
typedef struct pf_ring_pos {
    int fill, take, fills, takes;
} pf_ring_pos;

PF_DEVICE void scalar_require(bool condition, const char *what) {
    if (!condition)
        scalar_fail(what);
}

PF_DEVICE void pf_ring_init(pf_ring *ring, int) {
    ring->filled = ring->taken = 0;
}

PF_DEVICE void pf_ring_acquire(pf_ring *ring, const pf_ring_pos *, int stages) {
    scalar_require(ring->filled - ring->taken < stages, "a stage is filled before it is released");
}

PF_DEVICE void pf_ring_publish(pf_ring *ring, pf_ring_pos *pos, int stages) {
    ++ring->filled;
    pos->fill = ++pos->fills % stages;
}

PF_DEVICE void pf_ring_take(pf_ring *ring, const pf_ring_pos *pos, int) {
    scalar_require(pos->takes < ring->filled, "a stage is taken before it is filled");
}

PF_DEVICE void pf_ring_release(pf_ring *ring, pf_ring_pos *pos, int stages) {
    ++ring->taken;
    pos->take = ++pos->takes % stages;
}

#define PF_PRODUCER if (false)
#define PF_CONSUMER
#define PF_REFILL(...) __VA_ARGS__

typedef struct pf_source {
    const pf_attention_kargs *a;
} pf_source;

PF_DEVICE float scalar_element(unsigned long long address, pf_i64 index) {
    if (PF_ELEMENT == PF_KTYPE_F32)
        return ((const float *)address)[index];
    if (PF_ELEMENT == PF_KTYPE_E5M2)
        return pf_e5m2_to_f32(((const unsigned char *)address)[index]);
    const unsigned short x = ((const unsigned short *)address)[index];
    return PF_ELEMENT == PF_KTYPE_F16 ? pf_f16_to_f32(x) : pf_bf16_to_f32(x);
}

PF_DEVICE float scalar_round(float x) {
    if (PF_ELEMENT == PF_KTYPE_F32)
        return x;
    return PF_ELEMENT == PF_KTYPE_BF16 ? pf_bf16_to_f32(pf_f32_to_bf16(x))
                                       : pf_f16_to_f32(pf_f32_to_f16(x));
}

PF_DEVICE void scalar_load(float *to, int tile_rows, int width, const pf_source *source,
                           int operand, const pf_rows *rows) {
    const pf_attention_kargs *a = source->a;
    const pf_karg_tensor *t = &a->operand[operand];
    const int channels = operand < PF_OPERAND_V ? a->dim_qk : a->dim_v;
    for (int r = 0; r < tile_rows; ++r)
        for (int c = 0; c < width; ++c) {
            const int row = rows->row0 + r, channel = rows->channel0 + c;
            const bool read = t->address && row < rows->end && channel < channels &&
                              (!rows->live || ((const unsigned char *)rows->live)[row]);
            to[r * width + c] =
                read ? scalar_element(t->address, rows->b * t->stride[0] + rows->h * t->stride[1] +
                                                      row * t->stride[2] + channel * t->stride[3])
                     : 0.f;
        }
}

#define PF_SCALAR_LOAD(name, type, rows_, width)                                                   \
    PF_DEVICE void name(type *tile, const pf_source *source, int operand, const pf_rows *rows,     \
                        pf_ring *, const pf_ring_pos *) {                                          \
        scalar_load(&tile->x[0][0], rows_, width, source, operand, rows);                          \
    }
PF_SCALAR_LOAD(pf_owned_load, pf_owned_tile, PF_OWNED_TILE, PF_HEAD_DIM)
#define pf_crossed_load pf_owned_load
#define pf_crossed_take pf_owned_take
PF_SCALAR_LOAD(pf_cross_load, pf_cross_tile, PF_CROSS_TILE, PF_HEAD_DIM)
PF_SCALAR_LOAD(pf_value_load, pf_value_tile, PF_CROSS_TILE, PF_OUT_DIM)

typedef struct pf_owned {
    const pf_owned_tile *tile;
} pf_owned;

PF_DEVICE void pf_owned_take(pf_owned *o, const pf_owned_tile *tile, const pf_source *, int,
                             const pf_rows *) {
    o->tile = tile;
}

PF_DEVICE void pf_owned_scale(pf_owned_tile *tiles, int count, float factor) {
    int exponent;
    if (frexpf(factor, &exponent) != 0.5f)
        scalar_fail("queries are scaled by other than a power of two");
    for (int n = 0; n < count; ++n)
        for (int r = 0; r < PF_OWNED_TILE; ++r)
            for (int c = 0; c < PF_HEAD_DIM; ++c)
                tiles[n].x[r][c] *= factor;
}

PF_DEVICE void pf_stats_load(float *to, unsigned long long address, pf_ring *,
                             const pf_ring_pos *) {
    memcpy(to, (const void *)address, PF_CROSS_TILE * sizeof(float));
}

/* Staged bias: tiles of [query][key]. */
#define PF_BIAS_RUN 4
#define PF_BIAS_BYTES SCALAR_BIAS_BYTES
#define PF_BIAS_LOOPS PF_STAGED_EACH
#define PF_BIAS_HELD (PF_OP <= PF_OP_FORWARD_JVP)
typedef struct pf_bias_place {
    const unsigned char *tile;
} pf_bias_place;
typedef struct pf_bias_reader {
    const unsigned char *tile;
    bool excludes, is_held;
    float held[PF_SCORE_COUNT];
} pf_bias_reader;
typedef pf_bias_place pf_mask_reader;

PF_DEVICE void pf_bias_load(unsigned char *tile, const pf_source *source, int map,
                            const pf_rows *rows, pf_ring *, const pf_ring_pos *) {
    const pf_attention_kargs *a = source->a;
    const pf_karg_tensor *t = map == PF_MAP_MASK    ? &a->mask
                              : map == PF_MAP_TBIAS ? &a->tbias
                                                    : &a->bias;
    const int size = map == PF_MAP_MASK ? 1 : 2;
    for (int n = 0; n < PF_TILE_QUERIES * PF_TILE_KEYS; ++n) {
        const int i = rows->row0 + n / PF_TILE_KEYS, j = rows->channel0 + n % PF_TILE_KEYS;
        const pf_i64 at = rows->b * t->stride[0] + rows->h * t->stride[1] + i * t->stride[2] + j;
        memset(tile + n * size, 0, size);
        if (i < a->queries && j < a->keys)
            memcpy(tile + n * size, (const unsigned char *)t->address + at * size, size);
    }
}

/* Place of an element of the scores in a tile. */
PF_DEVICE int scalar_bias_index(int e) {
    const int owned = e / PF_CROSS_TILE, cross = e % PF_CROSS_TILE;
    const bool owns_queries = PF_OP <= PF_OP_FORWARD_JVP;
    return (owns_queries ? owned : cross) * PF_TILE_KEYS + (owns_queries ? cross : owned);
}

PF_DEVICE pf_bias_place pf_bias_place_of(const unsigned char *tile, const pf_karg_tensor *) {
    const pf_bias_place place = {tile};
    return place;
}
#define pf_mask_reader_of pf_bias_place_of

PF_DEVICE pf_bias_reader pf_bias_reader_of(const pf_bias_place *place, int offset) {
    pf_bias_reader r;
    r.tile = place->tile + offset;
    r.excludes = r.is_held = false;
    return r;
}

PF_DEVICE void pf_bias_read(pf_bias_reader *r, int e, float *x) {
    for (int u = 0; u < PF_BIAS_RUN; ++u) {
        x[u] = r->is_held ? r->held[e + u]
                          : scalar_element((unsigned long long)r->tile, scalar_bias_index(e + u));
        r->excludes = r->excludes || x[u] == -INFINITY;
    }
}

PF_DEVICE void pf_bias_hold(pf_bias_reader *r) {
    for (int e = 0; e < PF_SCORE_COUNT; e += PF_BIAS_RUN)
        pf_bias_read(r, e, &r->held[e]);
    r->is_held = true;
}

PF_DEVICE bool pf_bias_excludes(const pf_bias_reader *r) {
    return r->excludes;
}

PF_DEVICE void pf_mask_exclude(const pf_mask_reader *r, int e, float *x) {
    for (int u = 0; u < PF_BIAS_RUN; ++u)
        x[u] = r->tile[scalar_bias_index(e + u)] != 0 ? x[u] : -INFINITY;
}

PF_DEVICE void pf_bias_put(unsigned char *tile, const pf_weights *w) {
    for (int e = 0; e < PF_SCORE_COUNT; ++e)
        ((unsigned short *)tile)[scalar_bias_index(e)] =
            PF_ELEMENT == PF_KTYPE_F16 ? pf_f32_to_f16(w->x[e]) : pf_f32_to_bf16(w->x[e]);
}

PF_DEVICE void pf_bias_send(const unsigned char *tile, const pf_source *source,
                            const pf_rows *rows) {
    const pf_attention_kargs *a = source->a;
    const pf_karg_tensor *t = &a->dbias;
    for (int n = 0; n < PF_TILE_QUERIES * PF_TILE_KEYS; ++n) {
        const int i = rows->row0 + n / PF_TILE_KEYS, j = rows->channel0 + n % PF_TILE_KEYS;
        if (i < a->queries && j < a->keys)
            ((unsigned short *)t->address)[rows->b * t->stride[0] + rows->h * t->stride[1] +
                                           i * t->stride[2] + j] = ((unsigned short *)tile)[n];
    }
}

PF_DEVICE void pf_bias_clear(const pf_source *source, const pf_rows *rows) {
    static const unsigned char zeros[2 * PF_TILE_QUERIES * PF_TILE_KEYS] = {0};
    pf_bias_send(zeros, source, rows);
}

PF_DEVICE void pf_bias_sent() {
}

/* One output at a time waits to be sent. */
static pf_out scalar_staged_out;
static bool scalar_out_waits;

PF_DEVICE bool pf_out_stage(const pf_out *out, const pf_source *, const pf_rows *rows) {
    scalar_require(!scalar_out_waits, "an output is staged before the one before it is sent");
    if (rows->row0 + PF_OWNED_TILE > rows->end)
        return false;
    scalar_staged_out = *out;
    scalar_out_waits = true;
    return true;
}

PF_DEVICE void pf_out_send(const pf_source *source, const pf_rows *rows) {
    const pf_karg_tensor *t = &source->a->o;
    scalar_require(scalar_out_waits, "an output is sent that was not staged");
    for (int e = 0; e < PF_OUT_COUNT; ++e) {
        const int i = rows->row0 + pf_out_slot(e), c = rows->channel0 + pf_out_channel(e);
        const float x = scalar_staged_out.x[e];
        if (c < source->a->dim_v)
            ((unsigned short *)t->address)[rows->b * t->stride[0] + rows->h * t->stride[1] +
                                           i * t->stride[2] + c] =
                PF_ELEMENT == PF_KTYPE_F16 ? pf_f32_to_f16(x) : pf_f32_to_bf16(x);
    }
    scalar_out_waits = false;
}

PF_DEVICE void pf_out_drain() {
    scalar_require(!scalar_out_waits, "an output is never sent");
}

PF_DEVICE void pf_scores_mma(pf_scores *s, const pf_owned *owned, const pf_cross_tile *cross,
                             bool fresh) {
    for (int e = 0; e < PF_SCORE_COUNT; ++e) {
        float sum = fresh ? 0.f : s->x[e];
        for (int c = 0; c < PF_HEAD_DIM; ++c)
            sum += owned->tile->x[e / PF_CROSS_TILE][c] * cross->x[e % PF_CROSS_TILE][c];
        s->x[e] = sum;
    }
}

PF_DEVICE void pf_weights_pack(pf_weights *w, const pf_scores *s) {
    for (int e = 0; e < PF_SCORE_COUNT; ++e)
        w->x[e] = scalar_round(s->x[e]);
}

PF_DEVICE void scalar_out_mma(pf_out *out, const pf_weights *w, const float *rows, int width) {
    for (int e = 0; e < PF_OUT_COUNT; ++e)
        for (int x = 0; x < PF_CROSS_TILE; ++x)
            out->x[e] +=
                w->x[e / PF_OUT_DIM * PF_CROSS_TILE + x] * rows[x * width + e % PF_OUT_DIM];
}

PF_DEVICE void pf_out_mma(pf_out *out, const pf_weights *w, const pf_cross_tile *cross,
                          int channel0) {
    scalar_out_mma(out, w, &cross->x[0][channel0], PF_HEAD_DIM);
}

PF_DEVICE void pf_out_mma_value(pf_out *out, const pf_weights *w, const pf_value_tile *value) {
    scalar_out_mma(out, w, &value->x[0][0], PF_OUT_DIM);
}

#if PF_STARTS_OUT
PF_DEVICE void pf_out_mma_start(pf_out *out, const pf_weights *w, const pf_value_tile *value,
                                bool fresh) {
    if (fresh)
        memset(out, 0, sizeof *out);
    pf_out_mma_value(out, w, value);
}
#endif

PF_DEVICE void pf_exchange_publish(pf_exchange *exchange, const pf_weights *w) {
    for (int n = 0; n < 1 + PF_TANGENT; ++n)
        memcpy(exchange[n].x, w[n].x, sizeof w[n].x);
}

#if PF_BACKWARD_LAGS
typedef struct pf_lag {
    int taken, published;
} pf_lag;

PF_DEVICE void pf_lag_init() {
}

PF_DEVICE void pf_lag_begin(pf_lag *lag) {
    lag->taken = lag->published = 0;
}

PF_DEVICE void pf_lag_give(const pf_lag *lag, int ahead, pf_exchange (*exchanges)[1 + PF_TANGENT],
                           const pf_weights *w) {
    pf_exchange_publish(exchanges[(lag->taken + ahead) % PF_EXCHANGES], w);
}

PF_DEVICE void pf_lag_publish(pf_lag *lag, int ahead) {
    scalar_require(lag->published == lag->taken + ahead, "dS is told of out of order");
    ++lag->published;
}

PF_DEVICE pf_exchange *pf_lag_take(const pf_lag *lag, pf_exchange (*exchanges)[1 + PF_TANGENT]) {
    scalar_require(lag->taken < lag->published, "dS is taken before it is told of");
    return exchanges[lag->taken % PF_EXCHANGES];
}

PF_DEVICE void pf_lag_done(pf_lag *lag) {
    ++lag->taken;
}
#endif

PF_DEVICE void pf_weights_park(pf_exchange *parked, const pf_weights *w) {
    memcpy(parked->x, w->x, sizeof w->x);
}

PF_DEVICE void pf_out_mma_parked(pf_out *out, const pf_exchange *parked,
                                 const pf_value_tile *value) {
    pf_weights w;
    memcpy(w.x, parked->x, sizeof w.x);
    pf_out_mma_value(out, &w, value);
}

PF_DEVICE void pf_cross_mma(pf_cross_out *d, const pf_exchange *exchange,
                            const pf_crossed_tile *tile, int channel0, bool fresh) {
    for (int x = 0; x < PF_CROSS_TILE; ++x)
        for (int c = 0; c < PF_OUT_DIM; ++c) {
            float sum = fresh ? 0.f : d->x[x * PF_OUT_DIM + c];
            for (int o = 0; o < PF_OWNED_TILE; ++o)
                sum += exchange->x[o * PF_CROSS_TILE + x] * tile->x[o][channel0 + c];
            d->x[x * PF_OUT_DIM + c] = sum;
        }
}

PF_DEVICE void pf_mma_commit() {
}
#define pf_mma_wait(n) (void)(n)
PF_DEVICE void pf_turn_wait() {
}
PF_DEVICE void pf_turn_pass() {
}

PF_DEVICE int pf_dq_index(int row, int channel) {
    return row * PF_HEAD_DIM + channel;
}

PF_DEVICE void pf_dq_add(const pf_cross_out *d, unsigned long long address, int channel0,
                         const pf_turn *turn) {
    unsigned *counter = (unsigned *)turn->counter;
    if (counter)
        scalar_require(*counter == (unsigned)turn->value, "a tile of dQ is added out of turn");
    for (int x = 0; x < PF_CROSS_TILE; ++x)
        for (int c = 0; c < PF_OUT_DIM; ++c)
            ((float *)address)[pf_dq_index(x, channel0 + c)] += d->x[x * PF_OUT_DIM + c];
    if (counter)
        ++*counter;
}

PF_DEVICE void pf_dq_drain() {
}

/* A run is one element. */
PF_DEVICE void pf_write_run(unsigned long long address, pf_i64 index, int type, const float *x) {
    ::pf_store((void *)address, (pfattn_dtype)type, index, *x);
}

#define PF_KERNEL(name, args_type) static void name(const args_type *scalar_args)
#define PF_KERNEL_ARGS scalar_args
#define PF_SOURCE                                                                                  \
    { scalar_args }
#define PF_SHARED(type, pointer)                                                                   \
    static type scalar_shared;                                                                     \
    memset(&scalar_shared, 0xff, sizeof scalar_shared);                                            \
    type *pointer = &scalar_shared

#endif
