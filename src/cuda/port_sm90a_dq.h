/* SPDX-License-Identifier: Apache-2.0 */
/* Backward's exchange of dS between warpgroups, and the sums of dQ in memory.
 *
 * The product for dQ reads dS transposed. It is divided among the warpgroups by queries where a
 * tile has 64 for each, otherwise by channels, among those of all workgroups of a cluster; each
 * adds its share to memory by one bulk copy, in the order in which its threads hold it. */
#ifndef PF_PORT_SM90A_DQ_H
#define PF_PORT_SM90A_DQ_H

enum {
    /* Channels of a warpgroup's share. */
    PF_DQ_WIDTH = PF_BACKWARD_PAIRED            ? PF_OUT_DIM / 4
                  : PF_CROSS_SLABS == PF_GROUPS ? PF_OUT_DIM
                                                : PF_OUT_DIM / PF_GROUPS,
    PF_DQ_SHARE = 64 * PF_DQ_WIDTH,                          /* floats */
    PF_DQ_SHARES = PF_CROSS_TILE * PF_OUT_DIM / PF_DQ_SHARE, /* of a tile and part of channels */
    PF_CROSS_COUNT = PF_DQ_WIDTH / 2,
};
static_assert(PF_CROSS_SLABS == PF_GROUPS || PF_CROSS_SLABS == 1, "64 queries for each, or in all");
static_assert(PF_CROSS_TILE % 64 == 0, "the product for dQ has 64 rows");
static_assert(PF_DQ_SHARES == PF_GROUPS * PF_CLUSTER_OF(pf_tuned.persistent), "each has one share");

typedef struct pf_cross_out {
    float x[PF_CROSS_COUNT];
} pf_cross_out;

/* What is to be done with a share of dQ: add it at `address`, in turn where there is a counter;
 * address 0 ends the work. */
typedef struct pf_dq_order {
    pf_u64 address;
    pf_turn turn;
} pf_dq_order;

typedef struct alignas(1024) pf_port_shared {
    float dq[PF_GROUPS][PF_DQ_SHARE];
    pf_dq_order order[PF_GROUPS];
    pf_u64 scores_free, ds_room, ds_full;                  /* of pairs */
    pf_u64 lag_full[PF_EXCHANGES], lag_free[PF_EXCHANGES]; /* where dQ lags */
} pf_port_shared;
enum { PF_PORT_SHARED_BYTES = sizeof(pf_port_shared) };

PF_DEVICE pf_port_shared *pf_port() {
    return (pf_port_shared *)pf_shared_memory;
}

/* ---- exchange ---- */

PF_DEVICE void pf_exchange_publish(pf_exchange *exchange, const pf_weights *w) {
    PF_UNROLL for (int n = 0; n < 1 + PF_TANGENT; ++n) pf_exchange_store(&exchange[n], &w[n]);
    pf_async_fence();
    pf_named_sync(PF_BARRIER_EXCHANGE, 128 * PF_GROUPS);
}

#if PF_BACKWARD_LAGS
/* Of how many dS the group has made dQ. */
typedef struct pf_lag {
    pf_u32 taken;
} pf_lag;

PF_DEVICE void pf_lag_begin(pf_lag *lag) {
    lag->taken = 0;
}

PF_DEVICE void pf_lag_init() {
    if (threadIdx.x != 0)
        return;
    for (int i = 0; i < PF_EXCHANGES; ++i) {
        pf_barrier_init(&pf_port()->lag_full[i], 4 * PF_GROUPS); /* each warp arrives */
        pf_barrier_init(&pf_port()->lag_free[i], 4 * PF_GROUPS);
    }
    pf_barrier_init_fence();
}

PF_DEVICE void pf_lag_give(const pf_lag *lag, int ahead, pf_exchange (*exchanges)[1],
                           const pf_weights *w) {
    const pf_u32 n = lag->taken + ahead, at = n % PF_EXCHANGES;
    pf_barrier_wait(&pf_port()->lag_free[at], n / PF_EXCHANGES % 2 ^ 1);
    pf_exchange_store(exchanges[at], w);
}

PF_DEVICE void pf_lag_publish(const pf_lag *lag, int ahead) {
    pf_async_fence();
    __syncwarp();
    pf_barrier_arrive_one(&pf_port()->lag_full[(lag->taken + ahead) % PF_EXCHANGES]);
}

PF_DEVICE pf_exchange *pf_lag_take(const pf_lag *lag, pf_exchange (*exchanges)[1]) {
    const pf_u32 at = lag->taken % PF_EXCHANGES;
    pf_barrier_wait(&pf_port()->lag_full[at], lag->taken / PF_EXCHANGES % 2);
    return exchanges[at];
}

PF_DEVICE void pf_lag_done(pf_lag *lag) {
    __syncwarp();
    pf_barrier_arrive_one(&pf_port()->lag_free[lag->taken++ % PF_EXCHANGES]);
}
#endif

/* ---- the product for dQ ---- */

/* Over the owned keys of tiles of dS and of K, the latter from a channel on. */
PF_DEVICE void pf_cross_mma_tiles(pf_cross_out *d, const void *ds, const void *keys, int channel,
                                  bool fresh) {
    const pf_u32 a = pf_wgmma_tile(pf_shared_address(ds), 16);
    const pf_u32 b =
        pf_wgmma_tile(pf_shared_address(keys) + channel * 2, PF_OWNED_TILE * PF_ROW_BYTES);
    pf_wgmma_pin(d->x, PF_CROSS_COUNT);
    pf_wgmma_fence();
    PF_UNROLL for (int o = 0; o < PF_OWNED_TILE; o += 16)
        pf_wgmma<PF_DQ_WIDTH>::shared<1, 1>(d->x, pf_wgmma_advance(a, o * PF_ROW_BYTES),
                                            pf_wgmma_advance(b, o * PF_ROW_BYTES), !fresh || o > 0);
}

#if !PF_BACKWARD_PAIRED
PF_DEVICE void pf_cross_mma(pf_cross_out *d, const pf_exchange *exchange,
                            const pf_crossed_tile *owned, int channel0, bool fresh) {
    const bool by_rows = PF_CROSS_SLABS == PF_GROUPS;
    const int slab = by_rows ? pf_group() : 0;
    const int channel = channel0 + (by_rows ? 0 : pf_group() * PF_DQ_WIDTH);
    pf_cross_mma_tiles(d, exchange->bytes[slab], owned->bytes[channel / PF_SLAB], channel % PF_SLAB,
                       fresh);
}
#endif

/* ---- sums of dQ ---- */

/* Share after share; in a share, four floats of each thread of the warpgroup, then the next four.
 */
PF_DEVICE int pf_dq_index(int row, int channel) {
    const int part = channel / PF_OUT_DIM, c = channel % PF_OUT_DIM;
    const int share = PF_CROSS_SLABS == PF_GROUPS ? row / 64 : c / PF_DQ_WIDTH;
    const int x = row % 64, n = c % PF_DQ_WIDTH;
    const int thread = 32 * (x / 16) + 4 * (x % 8) + n % 8 / 2;
    return (part * PF_DQ_SHARES + share) * PF_DQ_SHARE + (n / 8 * 128 + thread) * 4 +
           x % 16 / 8 * 2 + n % 2;
}

/* A block of sums, times alpha, to the first `rows` rows of a tensor of 16-byte vectors, the first
 * of which is at element `index`. */
#define PF_DQ_WRITES 1
PF_DEVICE void pf_dq_write(const float *sum, float alpha, pf_u64 address, pf_i64 index,
                           pf_i64 stride, int rows, int channels, int type) {
    const int shares = PF_CROSS_TILE * PF_HEAD_DIM / PF_DQ_SHARE, thread = (int)threadIdx.x % 128;
    const bool by_rows = PF_CROSS_SLABS == PF_GROUPS;
    for (int n = (int)threadIdx.x / 128; n < shares; n += (int)blockDim.x / 128) {
        const int share = n % PF_DQ_SHARES;
        const int channel0 = n / PF_DQ_SHARES * PF_OUT_DIM + (by_rows ? 0 : share * PF_DQ_WIDTH);
        const float4 *from = (const float4 *)(sum + n * PF_DQ_SHARE) + thread;
        pf_cross_out d;
        PF_UNROLL for (int i = 0; i < PF_CROSS_COUNT / 4; ++i) {
            const float4 x = from[i * 128];
            d.x[4 * i] = alpha * x.x, d.x[4 * i + 1] = alpha * x.y;
            d.x[4 * i + 2] = alpha * x.z, d.x[4 * i + 3] = alpha * x.w;
        }
        PF_UNROLL for (int s = 0; s < 2; ++s) {
            const int row = (by_rows ? 64 * share : 0) + 16 * (thread / 32) + pf_lane() / 4 + 8 * s;
            pf_write_fragment_row(d.x, PF_DQ_WIDTH, s, address, index + row * stride + channel0,
                                  row < rows ? channels - channel0 : 0, type);
        }
    }
}

PF_DEVICE bool pf_dq_has_turn(const pf_turn *turn) {
    pf_u32 count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(count)
                 : "l"(turn->counter)
                 : "memory");
    return (int)count >= turn->value * PF_DQ_SHARES;
}

/* Once this thread's sums are in memory, all but the last `under_way`: the turn of the next. */
template <int under_way> PF_DEVICE void pf_dq_raise(pf_u64 counter) {
    if (!counter)
        return;
    pf_bulk_wait(under_way);
    asm volatile("fence.proxy.async.global;\n"
                 "red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter)
                 : "memory");
}

/* Add a share of dQ to memory; where it goes in turn, once every warpgroup of the clusters before
 * has raised the counter. The counter of the last tile, `raise`, is raised when its sums have
 * arrived; nothing waits for that without need. */
PF_DEVICE void pf_dq_deliver(const float *share, const pf_dq_order *order, pf_u64 *raise) {
    const pf_turn turn = order->turn;
    if (turn.counter) {
        if (!pf_dq_has_turn(&turn)) {
            pf_dq_raise<0>(*raise);
            *raise = 0;
            while (!pf_dq_has_turn(&turn))
                ;
        }
        asm volatile("fence.proxy.async.global;" ::: "memory");
    }
    pf_bulk_add(order->address, share, 4 * PF_DQ_SHARE);
    pf_bulk_commit();
    pf_dq_raise<1>(*raise);
    *raise = turn.counter;
}

/* One warp for each warpgroup, beside the producer: takes its shares of dQ from shared memory and
 * adds them to memory, so that the warpgroup waits neither for the copy nor for its turn. */
PF_DEVICE void pf_dq_work(int group) {
    const int threads = 128 + 32;
    pf_port_shared *port = pf_port();
    pf_u64 raise = 0;
    for (;;) {
        pf_named_arrive(PF_BARRIER_DQ_FREE + group, threads);
        pf_named_sync(PF_BARRIER_DQ_FULL + group, threads);
        if (!port->order[group].address)
            break;
        if (pf_lane() == 0) {
            pf_dq_deliver(port->dq[group], &port->order[group], &raise);
            pf_bulk_wait_read(0);
        }
        __syncwarp();
    }
    if (pf_lane() == 0) {
        pf_bulk_wait(0);
        pf_dq_raise<0>(raise);
    }
}

PF_DEVICE void pf_dq_add(const pf_cross_out *d, pf_u64 address, int channel0, const pf_turn *turn) {
    const int t = (int)threadIdx.x % 128, group = pf_thread_group(), threads = 128 + 32;
    const int place =
        PF_BACKWARD_PAIRED ? channel0 / PF_DQ_WIDTH : channel0 / PF_OUT_DIM * PF_GROUPS + group;
    float4 *share = (float4 *)pf_port()->dq[group];
    pf_named_sync(PF_BARRIER_DQ_FREE + group, threads);
    PF_UNROLL for (int i = 0; i < PF_CROSS_COUNT / 4; ++i) share[i * 128 + t] =
        make_float4(d->x[4 * i], d->x[4 * i + 1], d->x[4 * i + 2], d->x[4 * i + 3]);
    if (t == 0) {
        pf_port()->order[group].address = address + 4 * place * PF_DQ_SHARE;
        pf_port()->order[group].turn = *turn;
    }
    pf_async_fence();
    pf_named_arrive(PF_BARRIER_DQ_FULL + group, threads);
}

PF_DEVICE void pf_dq_drain() {
    const int group = pf_thread_group(), threads = 128 + 32;
    pf_named_sync(PF_BARRIER_DQ_FREE + group, threads);
    if (threadIdx.x % 128 == 0)
        pf_port()->order[group].address = 0;
    pf_named_arrive(PF_BARRIER_DQ_FULL + group, threads);
}

#if PF_BACKWARD_PAIRED
#include "port_sm90a_backward_pair.h"
#endif

#endif
