/* SPDX-License-Identifier: Apache-2.0 */
/* dQ, dK and dV, or their tangents.
 *
 * The workgroup owns a tile of keys: dK and dV are summed in registers, dQ in memory, tile by tile.
 * Piecewise attention is two rounds, one a pair, each seeing the other pair's scores as masked: P,
 * dV and both splits of dS come out right without a second set of accumulators. With grouped
 * queries a round walks over the heads of the group. A bias that is broadcast nowhere gets its
 * dbias here. */
#include "backward_lag.h"
#include "backward_pair.h"

typedef struct backward_dq_shared {
    backward_shared tile;
    pf_exchange ds[PF_EXCHANGES][1 + PF_TANGENT]; /* dS, for dQ */
} backward_dq_shared;

/* A consumer's steps of one pair. dQ is added to memory while the product for dK is under way. */
PF_DEVICE void backward_steps(backward_context *c, query_walk *walk, backward_fills *fills,
                              backward_state *g, pf_out *dk, pf_out *dv) {
    for (int n = 0; !query_walk_done(walk, c->a, &c->w); query_walk_next(walk, c->a, &c->w), ++n) {
        pf_exchange *ds = c->ds[n % PF_EXCHANGES];
        pf_cross_out dq;
        pf_ring_take(&c->sm->q_ring, &c->q_pos, PF_STAGES);
        backward_issue_scores(c, g);
        pf_ring_take(&c->sm->dout_ring, &c->dout_pos, PF_DOUT_STAGES);
        backward_issue_dp(c, g);
        backward_take_bias(c, g);
        pf_mma_wait(1);
        const bool whole = backward_weights(c, g, &walk->at);
        backward_pack_weights(g);
        backward_issue_dv(c, g, dv);
        pf_mma_wait(1);
        backward_ds(c, g, whole);
        backward_put_dbias(c, g, &walk->at);
        pf_exchange_publish(ds, g->ds);
        backward_send_dbias(c, &walk->at);
        backward_issue_dq(c, ds, c->w.channel0, &dq);
        backward_issue_dk(c, g, dk);
        pf_mma_wait(1);
        backward_release_dout(c, fills);
        backward_add_dq(c, &dq, &walk->at, c->w.channel0);
        backward_release_bias(c, fills);
        pf_mma_wait(0);
        backward_release_q(c, fills);
    }
}

PF_DEVICE void backward_round(backward_context *c, pf_lag *lag, int pair, pf_out *dk, pf_out *dv) {
    backward_state g;
    query_walk walk = query_walk_begin(c->a, &c->w, pair);
    backward_fills fills = {walk, walk, walk};
    PF_REFILL(backward_first_fills(c, &fills, pair));
    backward_take_kv(c, &g, pair);
    if (PF_BACKWARD_LAGS)
        backward_lagged_steps(c, lag, &walk, &fills, &g, dk, dv);
    else
        backward_steps(c, &walk, &fills, &g, dk, dv);
    backward_release_kv(c);
}

/* What one producer loads. */
PF_DEVICE void backward_fill(backward_context *c, int filler) {
    for (int round = 0; backward_begin_work(c, round); ++round) {
        for (int pair = 0; pair < c->a->pairs; ++pair) {
            if (filler == 0)
                backward_fill_k(c, pair);
            if (filler == 1 % PF_FILLERS)
                backward_fill_v(c, pair);
            for (query_walk walk = query_walk_begin(c->a, &c->w, pair);
                 !query_walk_done(&walk, c->a, &c->w); query_walk_next(&walk, c->a, &c->w)) {
                if (filler == 0)
                    backward_fill_q(c, &walk.at);
                if (filler == 0)
                    backward_fill_bias(c, &walk.at);
                if (filler == 1 % PF_FILLERS)
                    backward_fill_dout(c, &walk.at);
            }
        }
    }
}

/* A consumer's items of work, with bias and mask of a kind. */
PF_DEVICE void backward_items(backward_context *c, bias_kind kind) {
    const pf_attention_kargs *a = c->a;
    pf_lag lag;
    pf_lag_begin(&lag);
    c->bias.kind = kind;
    for (int round = 0; backward_begin_work(c, round); ++round) {
        pf_out dk, dv;
        if (backward_stores_dbias(c))
            backward_clear_dbias(c);
        pf_out_zero(&dv);
        for (int pair = 0; pair < a->pairs; ++pair) {
            pf_out_zero(&dk);
            backward_round(c, &lag, pair, &dk, &dv);
            backward_store_dk(c, pair, &dk);
        }
        backward_store_dv(c, &dv);
    }
}

PF_CLUSTER_KERNEL(PF_KERNEL_NAME(backward), pf_attention_kargs) {
    PF_SHARED(backward_dq_shared, sm);
    backward_context c = {};
    c.sm = &sm->tile;
    c.ds = sm->ds;
    c.source = (pf_source)PF_SOURCE;
    c.a = PF_KERNEL_ARGS;
    c.bias_stages = bias_stages(c.a);
    pf_ring_init(&c.sm->k_ring, 1);
    pf_ring_init(&c.sm->v_ring, 1);
    pf_ring_init(&c.sm->q_ring, PF_STAGES);
    pf_pair_init();
    pf_lag_init();
    pf_ring_init(&c.sm->dout_ring, PF_DOUT_STAGES);
    if (PF_BIAS_BYTES > 0)
        pf_ring_init(&c.sm->bias_ring, c.bias_stages);
    pf_cluster_sync();
    PF_PRODUCER {
        PF_UNROLL for (int filler = 0; filler < PF_FILLERS; ++filler) {
            if (pf_fills(filler))
                backward_fill(&c, filler);
        }
    }
    PF_CONSUMER {
        if (c.bias_stages > 0)
            c.bias = bias_places_of(&sm->tile.bias, c.a);
        const bias_kind kind = bias_kind_of(c.a);
        if (PF_BACKWARD_PAIRED)
            backward_paired_items(&c);
        else if (kind == BIAS_ONLY)
            backward_items(&c, BIAS_ONLY);
        else if (kind == BIAS_MASK)
            backward_items(&c, BIAS_MASK);
        else
            backward_items(&c, BIAS_ANY);
        pf_dq_drain();
    }
    pf_cluster_end();
}

/* Targets without pf_dq_write. */
#ifndef PF_DQ_WRITES
#define PF_DQ_WRITES 0
#define pf_dq_write(...)
#endif

/* PF_JOIN_ROWS rows of dK or dV of one workgroup's keys, summed from the part of the first queries
 * on. */
PF_DEVICE void backward_join(const pf_attention_kargs *a, int block) {
    const pf_division *d = &a->division;
    const int blocks = PF_OWNED_TILE / PF_JOIN_ROWS, at = block / PF_CLUSTER; /* of the place */
    const int row0 = at % blocks * PF_JOIN_ROWS, which = at / blocks % 2;
    const int item = at / blocks / 2, tile0 = item * d->by_tiles.value;
    const backward_work w = backward_work_at(a, d->first + item, false);
    const pf_karg_tensor part = backward_parts(a, which);
    const pf_karg_tensor *to = which ? &a->dv : &a->dk[0];
    const int type = which ? a->dv_type : a->dk_type[0], dim = which ? a->dim_v : a->dim_qk;
    const float scale = which ? PF_WEIGHT_UNSHIFT : a->alpha * PF_WEIGHT_UNSHIFT;
    for (int n = pf_thread(); n < PF_JOIN_ROWS * PF_OUT_DIM / PF_VECTOR; n += pf_threads()) {
        const int row = row0 + n * PF_VECTOR / PF_OUT_DIM, c = n * PF_VECTOR % PF_OUT_DIM;
        float sum[PF_VECTOR] = {};
        int cluster = pf_share_of(d, tile0);
        for (int begin; (begin = pf_share_begin(d, cluster)) < tile0 + d->by_tiles.value;
             ++cluster) {
            const pf_i64 at =
                pf_row_offset(&part, 2 * cluster + (begin < tile0), pf_cluster_place(), row);
            float x[PF_VECTOR];
            pf_read_vector(part.address, at + c, PF_KTYPE_F32, x);
            PF_UNROLL for (int u = 0; u < PF_VECTOR; ++u) sum[u] += x[u];
        }
        PF_UNROLL for (int u = 0; u < PF_VECTOR; ++u) sum[u] *= scale;
        if (w.j0 + row < a->keys)
            pf_write_vector(to, type, w.b, w.hk, w.j0 + row, w.channel0 + c, dim, sum);
    }
}

/* First the parts of divided items; then the sums of dQ, scaled, to dq: one block a tile of
 * queries. */
PF_LIGHT_KERNEL(PF_KERNEL_NAME_WITH(backward, dq), pf_attention_kargs) {
    const pf_attention_kargs *a = PF_KERNEL_ARGS;
    const int rows = 2 * PF_CLUSTER * PF_OWNED_TILE / PF_JOIN_ROWS; /* blocks of an item */
    const int parts = PF_DIVIDES ? a->division.items * rows : 0;
    if (pf_block() < parts) {
        backward_join(a, pf_block());
        return;
    }
    const int tiles = PF_CEIL_DIV(a->queries, PF_CROSS_TILE), block = pf_block() - parts;
    const int bh = block / tiles, i0 = block % tiles * PF_CROSS_TILE;
    const int b = bh / a->heads, h = bh % a->heads;
    for (int pair = 0; pair < a->pairs; ++pair) {
        const pf_karg_tensor *dq = &a->dq[pair];
        if (!dq->address)
            continue;
        const PF_GLOBAL float *sum = (const PF_GLOBAL float *)a->dq_sum[pair] +
                                     (pf_i64)block * (PF_CROSS_TILE * PF_HEAD_DIM);
        if (PF_DQ_WRITES && a->dim_qk % PF_ROW_RUN == 0 &&
            pf_tensor_takes_vectors(dq, a->dq_type[pair], 16)) {
            pf_dq_write(sum, a->alpha, dq->address, pf_row_offset(dq, b, h, i0), dq->stride[2],
                        a->queries - i0, a->dim_qk, a->dq_type[pair]);
            continue;
        }
        for (int n = pf_thread(); n < PF_CROSS_TILE * PF_HEAD_DIM; n += pf_threads()) {
            const int row = n / PF_HEAD_DIM, channel = n % PF_HEAD_DIM;
            if (i0 + row < a->queries && channel < a->dim_qk)
                pf_write(dq->address, pf_row_offset(dq, b, h, i0 + row) + channel * dq->stride[3],
                         a->dq_type[pair],
                         a->alpha * PF_WEIGHT_UNSHIFT * sum[pf_dq_index(row, channel)]);
        }
    }
}
