/* SPDX-License-Identifier: Apache-2.0 */
/* Forward, and forward with its JVP: FlashAttention's online softmax over tiles of keys. The
 * workgroup owns a tile of queries and streams K and V. */
#include "forward_tile.h"

PF_DEVICE void forward_fill_q(forward_context *c, int pair) {
    const pf_rows rows = forward_query_rows(c);
    pf_ring_acquire(&c->sm->q_ring, &c->q_pos, PF_Q_STAGES);
    pf_owned_tile *q = c->sm->q[c->q_pos.fill];
    pf_owned_load(&q[0], &c->source, PF_OPERAND_Q + pair, &rows, &c->sm->q_ring, &c->q_pos);
    if (PF_TANGENT)
        pf_owned_load(&q[PF_T], &c->source, PF_OPERAND_TQ + pair, &rows, &c->sm->q_ring, &c->q_pos);
    pf_ring_publish(&c->sm->q_ring, &c->q_pos, PF_Q_STAGES);
}

PF_DEVICE void forward_fill_k(forward_context *c, const key_walk *walk) {
    pf_rows rows = forward_key_rows(c, walk);
    pf_ring *ring = &c->sm->k_ring;
    pf_rows_settle(&rows, &c->source, PF_OPERAND_K + walk->pair, PF_CROSS_TILE);
    pf_ring_acquire(ring, &c->k_pos, PF_STAGES);
    pf_cross_tile *k = c->sm->k[c->k_pos.fill];
    pf_cross_load(&k[0], &c->source, PF_OPERAND_K + walk->pair, &rows, ring, &c->k_pos);
    if (PF_TANGENT)
        pf_cross_load(&k[PF_T], &c->source, PF_OPERAND_TK + walk->pair, &rows, ring, &c->k_pos);
    pf_ring_publish(ring, &c->k_pos, PF_STAGES);
}

PF_DEVICE void forward_fill_v(forward_context *c, const key_walk *walk) {
    pf_rows rows = forward_key_rows(c, walk);
    pf_ring *ring = &c->sm->v_ring;
    rows.channel0 = c->w.channel0;
    pf_rows_settle(&rows, &c->source, PF_OPERAND_V, PF_CROSS_TILE);
    pf_ring_acquire(ring, &c->v_pos, PF_V_STAGES);
    pf_value_tile *v = c->sm->v[c->v_pos.fill];
    pf_value_load(&v[0], &c->source, PF_OPERAND_V, &rows, ring, &c->v_pos);
    if (PF_TANGENT)
        pf_value_load(&v[PF_T], &c->source, PF_OPERAND_TV, &rows, ring, &c->v_pos);
    pf_ring_publish(ring, &c->v_pos, PF_V_STAGES);
}

PF_DEVICE void forward_issue_scores(forward_context *c, forward_state *f) {
    const pf_cross_tile *k = c->sm->k[c->k_pos.take];
    pf_scores_mma(&f->s[0], &f->q[0], &k[0], true);
    if (PF_TANGENT) {
        pf_scores_mma(&f->s[PF_T], &f->q[0], &k[PF_T], true);
        pf_scores_mma(&f->s[PF_T], &f->q[PF_T], &k[0], false);
    }
    pf_mma_commit();
}

PF_DEVICE void forward_issue_out(forward_context *c, forward_state *f) {
    const pf_value_tile *v = c->sm->v[c->v_pos.take];
    pf_out_mma_start(&f->o[0], &f->p[0], &v[0], f->fresh);
    if (PF_TANGENT) {
        pf_out_mma_start(&f->o[PF_T], &f->p[0], &v[PF_T], f->fresh);
        if (PF_PARKS_WEIGHTS)
            pf_out_mma_parked(&f->o[PF_T], &c->sm->h, &v[0]);
        else
            pf_out_mma_value(&f->o[PF_T], &f->p[PF_T], &v[0]);
    }
    pf_mma_commit();
    f->fresh = false;
}

/* Normalise and write O, L, tO, tL. */
PF_DEVICE void forward_finish(forward_context *c, forward_state *f) {
    const pf_attention_kargs *a = c->a;
    forward_normalize(c, f);
    if (PF_TANGENT)
        PF_UNROLL for (int e = 0; e < PF_OUT_COUNT; ++e) f->o[PF_T].x[e] =
            pf_fma(-f->mean[pf_out_slot(e)], f->o[0].x[e], f->o[PF_T].x[e]);
    forward_store_out(c, &a->o, a->o_type, &a->split.o, &f->o[0]);
    if (PF_TANGENT)
        forward_store_out(c, &a->to, a->to_type, &a->split.to, &f->o[PF_T]);
}

PF_DEVICE void forward_take_q(forward_context *c, forward_state *f, const key_walk *walk) {
    const pf_rows rows = forward_query_rows(c);
    pf_ring_take(&c->sm->q_ring, &c->q_pos, PF_Q_STAGES);
    pf_owned_tile *q = c->sm->q[c->q_pos.take];
    if (c->scaled)
        pf_owned_scale(q, 1 + PF_TANGENT, c->a->alpha);
    pf_owned_take(&f->q[0], &q[0], &c->source, PF_OPERAND_Q + walk->pair, &rows);
    if (PF_TANGENT)
        pf_owned_take(&f->q[PF_T], &q[PF_T], &c->source, PF_OPERAND_TQ + walk->pair, &rows);
}

PF_DEVICE void forward_enter_pair(forward_context *c, forward_state *f, const key_walk *walk) {
    f->whole = forward_whole_tiles(c->a, &c->w, walk->pair);
    forward_take_q(c, f, walk);
}

/* Take Q where a pair begins, and the next tile of K. */
PF_DEVICE void forward_take_qk(forward_context *c, forward_state *f, const key_walk *walk) {
    if (walk->enters)
        forward_enter_pair(c, f, walk);
    pf_ring_take(&c->sm->k_ring, &c->k_pos, PF_STAGES);
}

/* Give back K once its scores are done, and Q where the pair ends. */
PF_DEVICE void forward_release_qk(forward_context *c, const key_walk *walk) {
    pf_ring_release(&c->sm->k_ring, &c->k_pos, PF_STAGES);
    PF_REFILL({
        if (!key_walk_done(&c->fill_k, c->a)) {
            forward_fill_k(c, &c->fill_k);
            key_walk_next(&c->fill_k, c->a, &c->w);
        }
    });
    if (key_walk_leaves(walk)) {
        pf_ring_release(&c->sm->q_ring, &c->q_pos, PF_Q_STAGES);
        PF_REFILL({
            key_walk next = *walk;
            key_walk_next(&next, c->a, &c->w);
            if (!key_walk_done(&next, c->a))
                forward_fill_q(c, next.pair);
        });
    }
}

PF_DEVICE void forward_release_v(forward_context *c) {
    pf_ring_release(&c->sm->v_ring, &c->v_pos, PF_V_STAGES);
    PF_REFILL({
        if (!key_walk_done(&c->fill_v, c->a)) {
            forward_fill_v(c, &c->fill_v);
            key_walk_next(&c->fill_v, c->a, &c->w);
        }
    });
}

/* The first loads, on targets without a producer. */
PF_DEVICE void forward_prefetch(forward_context *c, const key_walk *walk) {
    c->fill_k = c->fill_v = c->fill_bias = *walk;
    if (key_walk_done(walk, c->a))
        return;
    forward_fill_q(c, walk->pair);
    for (int n = 0; n < PF_STAGES && !key_walk_done(&c->fill_k, c->a); ++n) {
        forward_fill_k(c, &c->fill_k);
        key_walk_next(&c->fill_k, c->a, &c->w);
        forward_fill_v(c, &c->fill_v);
        key_walk_next(&c->fill_v, c->a, &c->w);
    }
    for (int n = 0; n < bias_stages(c->a) && !key_walk_done(&c->fill_bias, c->a); ++n) {
        forward_fill_bias(c, &c->fill_bias);
        key_walk_next(&c->fill_bias, c->a, &c->w);
    }
}

/* Do the group's rows keep nothing of a tile, since they lie before those of the workgroup's last
 * rows? */
PF_DEVICE bool forward_skips(const forward_context *c, const forward_work *w,
                             const key_walk *walk) {
    const int i_last = pf_min_int(w->i0 + pf_group_end(), forward_end(c->a, w)) - 1;
    return w->i0 + pf_group_begin() > i_last ||
           walk->tile * PF_CROSS_TILE > i_last - c->a->window_low[walk->pair];
}

/* Such tiles, at the start of a walk: taken and given back, and a turn passed for each. */
PF_DEVICE void forward_skip(forward_context *c, forward_state *f, key_walk *walk, bool in_turn) {
    while (!key_walk_done(walk, c->a) && forward_skips(c, &c->w, walk)) {
        if (!in_turn)
            pf_turn_wait();
        pf_turn_pass();
        forward_take_qk(c, f, walk);
        forward_release_qk(c, walk);
        if (bias_is_staged(&c->bias, c->a)) {
            bias_skip(c->a, &c->sm->bias_ring, &c->bias_pos);
            forward_release_bias(c);
        }
        pf_ring_take(&c->sm->v_ring, &c->v_pos, PF_V_STAGES);
        forward_release_v(c);
        key_walk_next(walk, c->a, &c->w);
        if (in_turn) /* tiles are given back first: others may hold the turn until then */
            pf_turn_wait();
    }
}

/* One tile after the other: scores, softmax, output. The output of a tile and the scores of the
 * next are one turn, so the next tile of K is awaited within the output. */
PF_DEVICE void forward_walk_in_order(forward_context *c, forward_state *f) {
    key_walk walk = key_walk_begin(c->a, &c->w);
    pf_turn_wait();
    if (PF_GROUPS_SKIP)
        forward_skip(c, f, &walk, true);
    if (PF_TAKES_AHEAD && !key_walk_done(&walk, c->a))
        forward_take_qk(c, f, &walk);
    while (!key_walk_done(&walk, c->a)) {
        if (!PF_TAKES_AHEAD)
            forward_take_qk(c, f, &walk);
        forward_issue_scores(c, f);
        pf_turn_pass();
        forward_take_bias(c, f);
        pf_mma_wait(0);
        forward_release_qk(c, &walk);
        forward_softmax(c, f, &walk);
        forward_pack(c, f);
        forward_rescale(f);
        pf_ring_take(&c->sm->v_ring, &c->v_pos, PF_V_STAGES);
        pf_turn_wait();
        forward_issue_out(c, f);
        key_walk_next(&walk, c->a, &c->w);
        if (PF_TAKES_AHEAD && !key_walk_done(&walk, c->a))
            forward_take_qk(c, f, &walk);
        pf_mma_wait(0);
        forward_release_v(c);
    }
    pf_turn_pass();
}

/* A further tile: its scores are issued before the output of the one before it, so that matrix
 * units work while its softmax is computed. */
PF_DEVICE void forward_step_overlapped(forward_context *c, forward_state *f, const key_walk *walk) {
    pf_ring_take(&c->sm->k_ring, &c->k_pos, PF_STAGES);
    pf_turn_wait();
    forward_issue_scores(c, f);
    pf_ring_take(&c->sm->v_ring, &c->v_pos, PF_V_STAGES);
    forward_issue_out(c, f);
    pf_turn_pass();
    forward_take_bias(c, f);
    pf_mma_wait(1);
    forward_release_qk(c, walk);
    forward_softmax(c, f, walk);
    forward_rescale(f);
    pf_mma_wait(0);
    forward_release_v(c);
    forward_pack(c, f);
}

/* The item after the one in hand, that of `round` where there is more, and what a group begins it
 * with. Finding it takes many steps, each of which waits for the one before, so they are done while
 * products are under way: where registers suffice (PF_LOOKS_AHEAD) its piece beside the first
 * scores, the rest beside the last output, otherwise its place beside that. */
typedef struct forward_ahead {
    int round;
    bool more;
    pf_piece piece;
    forward_work w;
    key_walk walk;
    pf_span whole; /* tiles of the pair that it begins with */
    bool skips;    /* some at its start */
} forward_ahead;

PF_DEVICE void forward_find_piece(const forward_context *c, forward_ahead *next) {
    ++next->round;
    next->more =
        pf_piece_of_round(c->a, next->round, PF_WINDOW_LIMIT / PF_CROSS_TILE, &next->piece);
}

PF_DEVICE void forward_find_start(const forward_context *c, forward_ahead *next) {
    next->walk = key_walk_begin(c->a, &next->w);
    if (!PF_LOOKS_AHEAD || key_walk_done(&next->walk, c->a))
        return;
    next->whole = forward_whole_tiles(c->a, &next->w, next->walk.pair);
    next->skips = PF_GROUPS_SKIP && forward_skips(c, &next->w, &next->walk);
}

/* Beside the first scores. */
static_assert(!PF_STAGES_OUT || PF_LOOKS_AHEAD, "what is staged is sent here");
PF_DEVICE void forward_look_ahead_first(forward_context *c, forward_state *f, forward_ahead *next) {
    if (!PF_LOOKS_AHEAD)
        return;
    forward_send_out(c);
    forward_find_piece(c, next);
    forward_begin(f);
}

/* Beside the last output. Where nothing is left this is of no item, and not used. */
PF_DEVICE void forward_look_ahead_last(const forward_context *c, forward_ahead *next) {
    if (!PF_LOOKS_AHEAD)
        forward_find_piece(c, next);
    next->w = forward_work_of(c->a, &next->piece);
    if (PF_LOOKS_AHEAD)
        forward_find_start(c, next);
}

/* The tiles of a pair are a loop of their own, which nothing else interrupts. */
PF_DEVICE void forward_walk_overlapped(forward_context *c, forward_state *f, forward_ahead *next) {
    key_walk walk = next->walk;
    walk.enters = true; /* as it does, which compilers do not see */
    const bool skips = PF_GROUPS_SKIP && (!PF_LOOKS_AHEAD || pf_any_lane(next->skips));
    if (skips)
        forward_skip(c, f, &walk, false);
    if (key_walk_done(&walk, c->a)) {
        forward_look_ahead_first(c, f, next);
        forward_look_ahead_last(c, next);
        if (PF_STARTS_OUT)
            forward_clear_out(f);
        return;
    }
    if (PF_LOOKS_AHEAD && !skips) {
        f->whole = next->whole;
        forward_take_q(c, f, &walk);
        pf_ring_take(&c->sm->k_ring, &c->k_pos, PF_STAGES);
    } else
        forward_take_qk(c, f, &walk);
    pf_turn_wait();
    forward_issue_scores(c, f);
    pf_turn_pass();
    forward_look_ahead_first(c, f, next);
    forward_take_bias(c, f);
    pf_mma_wait(0);
    forward_release_qk(c, &walk);
    forward_softmax(c, f, &walk);
    forward_pack(c, f);
    for (key_walk_next(&walk, c->a, &c->w); !key_walk_done(&walk, c->a);
         key_walk_next(&walk, c->a, &c->w)) {
        if (walk.enters)
            forward_enter_pair(c, f, &walk);
        do
            forward_step_overlapped(c, f, &walk);
        while (key_walk_next_of_pair(&walk));
    }
    pf_ring_take(&c->sm->v_ring, &c->v_pos, PF_V_STAGES);
    forward_issue_out(c, f);
    forward_look_ahead_last(c, next);
    pf_mma_wait(0);
    forward_release_v(c);
}

/* What one producer loads. The first keys come before values are asked for: all workgroups begin at
 * once, and values would take their share of the bandwidth. */
PF_DEVICE void forward_fill(forward_context *c, int filler) {
    bool first = PF_KEYS_FIRST && filler < 2;
    for (int round = 0; forward_begin_work(c, round); ++round) {
        for (key_walk walk = key_walk_begin(c->a, &c->w); !key_walk_done(&walk, c->a);
             key_walk_next(&walk, c->a, &c->w)) {
            if (filler == 0 && walk.enters)
                forward_fill_q(c, walk.pair);
            if (filler == 0)
                forward_fill_k(c, &walk);
            if (first) {
                if (filler == 0)
                    pf_ring_take(&c->sm->k_ring, &c->k_pos, PF_STAGES);
                pf_fillers_meet();
                first = false;
            }
            if (filler == 2 % PF_FILLERS)
                forward_fill_bias(c, &walk);
            if (filler == 1 % PF_FILLERS)
                forward_fill_v(c, &walk);
        }
    }
}

/* Start on an item, with its first loads on targets without a producer. */
PF_DEVICE void forward_begin_item(forward_context *c, forward_state *f) {
    forward_begin(f);
    PF_REFILL({
        const key_walk walk = key_walk_begin(c->a, &c->w);
        forward_prefetch(c, &walk);
    });
}

PF_DEVICE void forward_consume_overlapped(forward_context *c) {
    forward_ahead next = {};
    next.round = -1;
    if (PF_LOOKS_AHEAD)
        forward_find_piece(c, &next);
    for (forward_look_ahead_last(c, &next); next.more;) {
        forward_state f;
        c->w = next.w;
        if (!PF_LOOKS_AHEAD) {
            forward_begin(&f);
            forward_find_start(c, &next);
        }
        PF_REFILL(forward_prefetch(c, &next.walk));
        forward_walk_overlapped(c, &f, &next);
        forward_finish(c, &f);
    }
}

PF_DEVICE void forward_consume_in_order(forward_context *c) {
    for (int round = 0; forward_begin_work(c, round); ++round) {
        forward_state f;
        forward_begin_item(c, &f);
        forward_walk_in_order(c, &f);
        forward_finish(c, &f);
    }
}

/* What a compute group does, with bias and mask of a kind, and queries scaled or not. */
PF_DEVICE void forward_consume(forward_context *c, bias_kind kind, bool scaled) {
    c->bias.kind = kind;
    c->scaled = scaled;
    if (PF_OVERLAP)
        forward_consume_overlapped(c);
    else
        forward_consume_in_order(c);
    forward_send_out(c);
    pf_out_drain();
}

PF_KERNEL(PF_KERNEL_NAME(forward), pf_attention_kargs) {
    PF_SHARED(forward_shared, sm);
    forward_context c = {};
    c.sm = sm;
    c.source = (pf_source)PF_SOURCE;
    c.a = PF_KERNEL_ARGS;
    pf_ring_init(&sm->q_ring, PF_Q_STAGES);
    pf_ring_init(&sm->k_ring, PF_STAGES);
    pf_ring_init(&sm->v_ring, PF_V_STAGES);
    if (PF_BIAS_BYTES > 0)
        pf_ring_init(&sm->bias_ring, bias_stages(c.a));
    pf_block_sync();
    PF_PRODUCER {
        PF_UNROLL for (int filler = 0; filler < PF_FILLERS; ++filler) {
            if (pf_fills(filler))
                forward_fill(&c, filler);
        }
    }
    PF_CONSUMER {
        if (bias_stages(c.a) > 0)
            c.bias = bias_places_of(&sm->bias, c.a);
        const bias_kind kind = bias_kind_of(c.a);
        if (kind == BIAS_ONLY)
            forward_consume(&c, BIAS_ONLY, false);
        else if (kind == BIAS_MASK && !PF_TANGENT)
            forward_consume(&c, BIAS_MASK, false);
        else if (PF_SCALES_QUERIES && c.a->alpha_shifts)
            forward_consume(&c, BIAS_ANY, true);
        else
            forward_consume(&c, BIAS_ANY, false);
    }
}
