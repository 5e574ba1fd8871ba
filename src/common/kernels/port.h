/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off: the tables below are set by hand. */
/* The contract of the portability layer: what a target gives the kernel source.
 *
 * A translation unit includes this file, then one target's port header, then one kernel (forward.h
 * or forward_pair.h, backward.h, dbias.h, passes.h). The build defines what is compiled:
 *     PF_ELEMENT    PF_KTYPE_*: type of the operands in memory. e5m2 is staged as f16
 *     PF_HEAD_DIM   channels of a staged tile, 64, 128 or 256: D and E padded with zeros
 *     PF_GENERAL    1: bias, mask and any alpha; 0: none of these, and alpha > 0
 *     PF_TANGENT    1: the JVP of the operation
 * and the target's tuning table gives, from these, what affects speed only:
 *     PF_OWNED_TILE, PF_CROSS_TILE   rows of a tile (below)
 *     PF_OUT_DIM    channels of the output that one workgroup accumulates, PF_HEAD_DIM or a divisor
 *     PF_STAGES     buffers in the ring of streamed tiles
 *     PF_OVERLAP    1: forward issues the next scores before this tile's output
 *     PF_LOOKS_AHEAD  1, with that: there are registers for the next item of work beside a tile.
 *         Left out where there are not
 *     PF_EXCHANGES  buffers for the exchange of dS: 1 where release of a ring stops all groups,
 *         else 2
 * passes.h needs none of these.
 *
 * MODEL. A workgroup owns PF_OWNED_TILE rows (queries in forward, keys in backward), resident in
 * shared memory, and streams past them tiles of PF_CROSS_TILE rows of the other kind. The owned
 * rows are divided among compute groups (a warpgroup, warp or wave: whatever issues one matrix
 * instruction). Each thread of a group holds a part of a fragment:
 *     pf_scores    x[PF_SCORE_COUNT]  owned rows of the group x cross rows of the tile, f32
 *     pf_weights   a pf_scores rounded to the element type, as an operand: pf_weights_pack(w, s)
 *     pf_out       x[PF_OUT_COUNT]    owned rows of the group x PF_OUT_DIM channels, f32
 *     pf_cross_out opaque             cross rows x PF_OUT_DIM channels, divided among all groups,
 *         f32
 * and for each fragment element e (loops over e are unrolled, so these fold):
 *     pf_score_slot(e)   which of the thread's PF_SLOTS owned rows it belongs to
 *     pf_score_cross(e)  its cross row within the tile
 *     pf_out_slot(e), pf_out_channel(e)   aligned runs of PF_OUT_RUN elements are adjacent channels
 *     pf_slot_owned(s)   the owned row, within the workgroup's tile, of a slot
 *     pf_slot_is_first() true in one thread of those that share the same owned rows
 *     pf_slot_max(x), pf_slot_sum(x)  reduce over the threads that share an owned row; where one is
 *         NaN the sum is NaN, the maximum may ignore it
 *
 * TILES in shared memory: pf_owned_tile (PF_OWNED_TILE x PF_HEAD_DIM), pf_cross_tile (PF_CROSS_TILE
 * x PF_HEAD_DIM), pf_value_tile (PF_CROSS_TILE x PF_OUT_DIM), in any layout, of elements (e5m2:
 * f16). pf_crossed_tile is an owned tile that pf_cross_mma contracts too; pf_crossed_load and
 * pf_crossed_take are then what pf_owned_load and pf_owned_take are to a pf_owned_tile. Of its
 * channels pf_cross_mma reads the PF_OUT_DIM from `contracted0` of the rows on.
 *     pf_owned_load, pf_cross_load, pf_value_load(tile, source, operand, rows, ring, pos) load rows
 *         [row0, row0 + tile rows) of (b, h) of an operand from memory; rows at or past `end`, rows
 *         whose byte in `live` (if not 0; indexed by row) is 0, channels past the operand's own,
 *         and absent operands (address 0) read as zeros and touch no memory. pf_value_load starts
 *         at channel0. Channels: dim_qk of Q, K and their tangents, dim_v of V, dO and their
 *         tangents.
 *     pf_owned_take(o, tile, source, operand, rows)  make a filled owned tile a pf_owned, what
 *         products take: a handle of the tile, or the group's rows in registers, which a target may
 *         also read from memory itself (then pf_owned_load does nothing for them)
 *     pf_stats_load(to, address, ring, pos)  PF_CROSS_TILE floats, 16-byte aligned
 *
 * PRODUCTS accumulate, or set the accumulator where `fresh`:
 *     pf_scores_mma(s, owned, cross, fresh)       (a pf_owned) s[o][x] += sum_c owned[o][c]
 *         cross[x][c]
 *     pf_out_mma(out, w, cross, channel0)         out[o][c] += sum_x w[o][x] cross[x][channel0 + c]
 *     pf_out_mma_value(out, w, value)             the same over a pf_value_tile
 *     pf_cross_mma(d, exchange, tile, channel0, fresh)  (a pf_crossed_tile) d[x][c] += sum_o
 *         w[o][x] tile[o][channel0 + c], over the owned rows of all groups, their w taken from
 *         `exchange`
 *     pf_exchange_publish(exchange[1 + PF_TANGENT], w[1 + PF_TANGENT])  every group puts its w into
 *         a pf_exchange; returns when all have
 * Products may be asynchronous: pf_mma_commit() closes a batch and pf_mma_wait(n) waits until all
 * but the last n batches are done, in order. Until then neither accumulators nor operands may be
 * touched.
 *
 * ROLES AND STREAMS. On targets with a producer, loads are issued by PF_PRODUCER's block while
 * PF_CONSUMER's computes; elsewhere PF_PRODUCER's block compiles to nothing and the consumer
 * refills a stage when it gives one back: the statement in PF_REFILL(...) runs, and compiles to
 * nothing where there is a producer. So both are written once, around the same fill functions.
 *     pf_fills(n)       is this producer the n-th of PF_FILLERS, at most three? Each ring is filled
 *         by one of them. Left out where one producer fills all
 *     PF_KEYS_FIRST 1   pf_fillers_meet(): the producers of keys and of values wait for each other,
 *         once, in forward; left out where the first loads are not to have an order
 *     PF_KEEP(x)        the compiler computes x now, and not again where it is used; may be empty
 *     pf_rows_settle(rows, source, operand, tile rows)  comes before loads of those rows. A target
 *         that loads whole tiles may set rows->live to 0 if it finds all rows alive; left out,
 *         with PF_ROWS_SETTLE, where each load looks
 *     pf_ring           shared state of a ring of stages; pf_ring_init(ring, stages), then
 *         pf_block_sync()
 *     pf_ring_pos       a thread's place in it, zero at start: .fill and .take are the stages to
 *         fill and to consume. Targets that stage loads in registers keep them here until the take
 *     fill:     pf_ring_acquire(ring, pos, stages)   wait until the stage is free
 *               ...loads into it
 *               pf_ring_publish(ring, pos, stages)   it is filled once its loads land; pos advances
 *     consume:  pf_ring_take(ring, pos, stages)      wait until it is filled
 *               pf_ring_release(ring, pos, stages)   the group has done with it; pos advances
 * All consumers take and release every stage in order, and call every primitive uniformly. Rings of
 * one kernel may be taken in an order other than that of their fills, but each ring's own order
 * holds.
 *     pf_turn_wait(), pf_turn_pass()  let compute groups alternate between matrix and scalar work;
 *         may be empty
 *
 * SUMS OF DQ. dq_sum holds one block of PF_CROSS_TILE x PF_HEAD_DIM floats a tile of queries:
 *     pf_dq_add(d, address, channel0, turn)  add a pf_cross_out into such a block; where
 *         turn->counter is not 0, only once the u32 there has reached turn->value, then add 1 to it
 *     pf_dq_drain()                          before a consumer ends: all additions are in memory
 *     pf_dq_index(row, channel)              place of an element in the block
 *
 * KERNELS. PF_KERNEL(name, args_type) { ... }: PF_KERNEL_ARGS is a pointer to the arguments,
 * PF_SOURCE a pf_source (what loads need of them, tensor maps included), PF_SHARED(type, pointer)
 * declares the shared memory. PF_LIGHT_KERNEL, which may be the same, for one that uses none, so
 * that registers should leave room for several workgroups. pf_block(), pf_blocks() (a pf_i64, at
 * least the grid where it is never persistent), pf_thread(), pf_threads(); pf_block_sync();
 * PF_LANES, pf_lane(), pf_lane_sum(x), pf_lane_max(x) and pf_lane_sync() for kernels of passes.h;
 * PF_DEVICE before a function, PF_UNROLL before a loop to unroll whole and PF_ROLLED before one to
 * leave as it is; where a target tells address spaces apart, PF_GLOBAL in the type of a pointer to
 * device memory.
 *
 * PF_SCORE_STEP: a target may roll the loops that add a bias to scores or store dbias; see
 * scores.h. PF_OUT_STEP: likewise those that store outputs where they are not of the operands'
 * type, or not whole vectors; so many elements of a pf_out at a time, a multiple of those after
 * which slots repeat.
 * PF_WEIGHT_SHIFT: a target whose products take subnormal f16 for zero defines it, so
 * that weights P, H and dS, are multiplied by that power of two before they are packed, and their
 * sums divided by it; elsewhere it is 0.
 *
 * ARITHMETIC. pf_exp2, pf_log2, pf_reciprocal, pf_fma, pf_max: the target's fast f32 functions;
 * pf_exp2(-inf) = 0, NaN passes. pf_f16_bits_to_f32 and so on convert bit patterns, rounding to
 * nearest even; pf_write_run(address, index, type, x) stores PF_OUT_RUN floats as one vector of
 * f16, bf16 or f32 (e5m2 too).
 *
 * ONE ROUND: PF_ONE_ROUND 1 for targets whose grids have a workgroup for each item of forward.
 *
 * SKIPPING, for targets whose groups share matrix units; left out by not defining its macro:
 *     PF_GROUPS_SKIP 1    in forward a group issues no products for tiles of which it keeps
 * nothing; it owns rows [pf_group_begin(), pf_group_end()) of the workgroup's
 *
 * ACQUIRING LOADS: PF_LOADS_ACQUIRE 1 for targets that work out what to load before they wait for
 *     room: pf_cross_load_acquire(tile, source, operand, rows, ring, pos, stages) is then both,
 *     pf_ring_acquire and pf_cross_load; a stage's other loads come after it
 *
 * SPREAD WALKS: PF_SPREADS_WALKS 1 for targets on which workgroups that add to the same sums of dQ
 *     at a time hold each other up: in plain kernels of backward, where all keys see all queries,
 *     each tile of keys then begins with other queries
 *
 * HEADS INSIDE: PF_HEADS_INSIDE 1 for targets on which backward of grouped queries is to visit each
 *     tile of queries of all heads of the group before the next tile, so that the workgroups of a
 *     key/value head find in the cache what they load and the sums that they add to; not with
 *     spread walks
 *
 * LAGGED DQ, likewise, for targets whose groups need not meet in each step of backward:
 *     PF_BACKWARD_LAGS 1     the product for dQ of a step comes a step late (backward_lag.h)
 *     PF_BACKWARD_TURNS      1: groups take turns, see pf_turn_wait()
 *     pf_lag_init()          before pf_cluster_sync()
 *     pf_lag_begin(lag)      a thread's pf_lag, its place among the PF_EXCHANGES exchanges:
 *     pf_lag_give(lag, ahead, exchanges, w)  put the group's w into the one that is taken next, or
 *         `ahead` after it, once all groups have done with what is there
 *     pf_lag_publish(lag, ahead)      then tell all groups
 *     pf_lag_take(lag, exchanges)     the next one to take, once the w of all groups is there
 *     pf_lag_done(lag)       the group's product from that is done
 *
 * MAXIMUM OF THREE, likewise: PF_MAX3 1 for targets that find it as that of integers, by one
 *     instruction; these have pf_any_lane(x), as below
 *     pf_max3(a, b, c)           the largest where one is not negative, else something negative
 *     pf_max3_negative(a, b, c)  the largest where all are negative or -0
 *     These may take a NaN for the largest or ignore it. Slots have an even number of elements
 *
 * BITS OF A SLOT, likewise: PF_SLOT_BITS 1 for targets that know at once which of a thread's
 *     elements lie where: pf_slot_bits(begin, end) has a bit for each of those of a slot, in their
 *     order, 1 for cross rows [begin, end), which may reach beyond the tile
 *
 * SCALED QUERIES, likewise: PF_SCALES_QUERIES 1 for plain kernels of operands that a power of two
 *     multiplies without rounding. Where alpha is one, forward has its queries multiplied by it as
 *     it takes them: pf_owned_scale(tiles, n, alpha), the group's rows of n tiles
 *
 * LAZY MAXIMUM, likewise, for targets on which scaling an output costs much:
 *     PF_LAZY_MAX 1    in forward, weights stay relative to a maximum that has grown a little
 *         since, so that the output is scaled for few tiles; pf_any_lane(x) is then true where x is
 *         in some thread that runs in step with this one. With 0 and a pf_any_lane, the output is
 *         left alone where no maximum of those threads has grown
 *
 * ASKING FOR NAN: PF_ASKS_FOR_NAN 1 for targets on which it takes longer to clear dS of scores that
 *     are not kept than to find out that it has no NaN; these have pf_any_lane(x), as above
 *
 * WHOLE TILES: PF_WHOLE_AHEAD 0 for targets short of registers: forward then finds out for each
 * tile whether it is kept whole, not once a walk
 *
 * V STAGES: PF_V_STAGES for targets with a producer that have less than PF_STAGES buffers for tiles
 *     of V in forward
 *
 * TAKING AHEAD: PF_TAKES_AHEAD 1 for targets whose products run on: where forward walks in order it
 *     then waits for the next tile of K while the output of one is under way
 *
 * FRESH OUTPUT, likewise, with PF_OVERLAP:
 *     PF_STARTS_OUT 1    forward does not clear an output before its first product, which is
 *         pf_out_mma_start(out, w, value, fresh), pf_out_mma_value that sets `out` where `fresh`
 *
 * PARKED WEIGHTS, likewise, for targets that have registers for one pf_weights beside the next
 * scores: PF_PARKS_WEIGHTS 1    forward with its JVP leaves the second in shared memory:
 *         pf_weights_park(parked, w) into the group's part of a pf_exchange, for the group alone,
 *         and pf_out_mma_parked(out, parked, value), which is pf_out_mma_value with them
 *
 * PAIRED FORWARD, likewise:
 *     PF_FORWARD_PAIRED 1    forward with its JVP has two compute groups with the same owned rows,
 *         all that the workgroup owns: one for the primal, one for the tangent (forward_pair.h).
 *         Threads of the same place in both hold the same elements of a fragment
 *     pf_pair_is_first()     is this the first of the two groups? The first gives, the second takes
 *     pf_pair                shared state of what they hand over
 *     pf_pair_give(pair, x, slots, bits), bits = pf_pair_take(pair, x, slots)  PF_SCORE_COUNT
 *         floats of a fragment, PF_SLOTS of its rows and a bit for each of its at most 32
 *         elements, in order; each waits for the other
 *     pf_ring_init_for(ring, stages, groups)  pf_ring_init for a ring that so many groups consume
 *
 * CLUSTERS, likewise, for targets whose workgroups can reach into each other's shared memory:
 *     PF_CLUSTER n           workgroups n * k to n * k + n - 1 do items of work together, and own
 *         neighbouring tiles; pf_cluster() is k, pf_clusters() their number, pf_cluster_place() the
 *         workgroup's place among them
 *     PF_CLUSTER_KERNEL(name, args_type)   PF_KERNEL for one of clusters
 *     pf_cluster_sync()      pf_block_sync() of them all; pf_cluster_end() ends such a kernel
 *
 * PAIRED BACKWARD, likewise, in clusters of two:
 *     PF_BACKWARD_PAIRED 1   backward has two compute groups with the same owned rows, as above,
 *         and divides the products of a tile between them (backward_pair.h). pf_cross_out is a
 *         group's own: cross rows x a quarter of PF_HEAD_DIM, over the owned rows of both
 *         workgroups; channel0 of pf_cross_mma, pf_cross_mma_peer and pf_dq_add is
 *         pf_pair_dq_channel(). pf_pair_is_first() as above
 *     pf_pair_init()         before pf_cluster_sync()
 *     pf_pair_begin(pair)    a thread's pf_pair, its place in what follows, once a step:
 *     pf_pair_give_scores(pair, exchange, s), pf_pair_take_scores(pair, exchange, s)  hand P over,
 *         through the memory of the exchange: the first waits until all are done with dS, the
 *         second for P
 *     pf_pair_publish(pair, exchange, w)   the second puts its w into a pf_exchange, here and in
 *         the other workgroup
 *     pf_pair_meet()         by both groups: returns when this workgroup's w is there
 *     pf_pair_meet_peer(pair)  then the other's
 *     pf_cross_mma_peer(d, exchange, tile, channel0)  pf_cross_mma, added, over the other
 *         workgroup's owned rows
 *     pf_pair_done()         the group's products from the exchange are done
 *     pf_pair_release(ring, pos, stages)  pf_ring_release, where threads have read the stage
 *         themselves
 *     PF_DOUT_STAGES         buffers in the ring of tiles of dO, where these are not PF_STAGES
 *     PF_DELTA_WITH_Q 1      delta comes with the tile of Q, not of dO
 *
 * DIVIDED ITEMS, likewise, for targets whose workgroups loop over the items of backward:
 *     PF_DIVIDES 1           the last items may be divided among all workgroups, which then put
 *         their parts of dK and dV into memory, for the kernel of dq to sum
 *
 * STAGED BIAS, for targets whose copies run ahead; left out by not defining PF_BIAS_RUN. Where the
 * arguments say so (bias_stages) bias and its tangent, both of the operands' 16-bit type, and mask
 * come by tiles of PF_TILE_QUERIES x PF_TILE_KEYS, of PF_BIAS_TILE_BYTES or PF_MASK_TILE_BYTES.
 *     PF_BIAS_BYTES     shared memory for these, 1024-byte aligned, 0 for none
 *     PF_BIAS_LOOPS     PF_STAGED_*: what loops over tiles are compiled for
 *     pf_bias_load(tile, source, map, rows, ring, pos)  load the tile of PF_MAP_BIAS, _TBIAS or
 *         _MASK whose first query and key are rows->row0 and rows->channel0
 *     pf_bias_place p = pf_bias_place_of(tile, tensor)  what a thread finds out once
 *     pf_bias_reader r = pf_bias_reader_of(&p, offset)  of the tile so many bytes further;
 *         pf_bias_read(&r, e, x)  elements from e on of the fragment of scores, PF_BIAS_RUN of
 *         them, where e is a multiple of it
 *     pf_bias_excludes(&r)  was one of those read -inf? Called uniformly, perhaps true in vain
 *     PF_BIAS_HELD 1  where there is a bias alone, with its tangent, its reader is told to hold all
 *         that it gives while products are under way: pf_bias_hold(&r). Left out where readers read
 *         when asked
 *     pf_mask_reader m = pf_mask_reader_of(tile, tensor); pf_mask_exclude(&m, e, x)  likewise, of a
 *         mask: x becomes -inf where it excludes, whatever it was, and stays as it was elsewhere
 *     pf_bias_put(tile, w)  dS in place of the group's bias, as dbias of the operands' type
 *     pf_bias_send(tile, source, rows)  after pf_exchange_publish, write that to PF_MAP_DBIAS
 *     pf_bias_sent()  returns when the tile can be filled again
 *     pf_bias_clear(source, rows)  zeros in such a tile of dbias
 *
 * STAGED OUTPUT, for targets whose copies run on; left out by not defining PF_STAGES_OUT. Where the
 * arguments say so (o_staged) O may leave through PF_MAP_O, in forward:
 *     pf_out_stage(out, source, rows)  take the group's rows of an output out of registers, if all
 *         are before rows->end: false where they are not, and nothing is done. Called uniformly
 *     pf_out_send(source, rows)        what was staged last leaves for memory
 *     pf_out_drain()                   before a consumer ends: shared memory can be given up
 *
 * WIDE ACCESS, for targets that gain by it; each is left out by not defining its macro:
 *     PF_VECTOR 8     pf_load_vector(address, index, type): a pf_vector, 8 adjacent elements of
 *         f16, bf16 or f32, 16-byte aligned; pf_vector_floats(v, type, x): as floats, for which it
 *         is waited; pf_lanes_sum(x, n): the sum over aligned groups of n lanes, a power of two
 *     PF_WIDEN_RUN 16  pf_widen_run(to, from): so many adjacent elements of e5m2 as f16, from and
 *         to addresses that are multiples of 16
 *     PF_ROW_RUN 8    pf_write_rows(out, address, index, stride, rows, channels, type): of the
 *         workgroup's first `rows` rows, those of this group, and of these the first `channels`
 *         channels, a multiple of 8, as 16-byte vectors of f16, bf16 or f32; the first row at
 *         element `index`, another each `stride`
 *     PF_DQ_WRITES 1  pf_dq_write(sum, alpha, address, index, stride, rows, channels, type): a
 *         block of sums of dQ, times alpha, to its first rows, likewise */
/* clang-format on */
#ifndef PF_KERNELS_PORT_H
#define PF_KERNELS_PORT_H

#include "../kargs.h"

/* Rows of one operand to load; see TILES. */
typedef struct pf_rows {
    int b, h, row0, end;
    unsigned long long live;
    int channel0;
    int contracted0;
} pf_rows;

/* See SUMS OF DQ. */
typedef struct pf_turn {
    unsigned long long counter;
    int value;
} pf_turn;

#define PF_INT_MAX 0x7fffffff

/* e5m2 comes in its own kernels, and in the passes that widen and narrow it. */
#define PF_SEES_E5M2 (PF_OP == PF_OP_PASSES || PF_ELEMENT == PF_KTYPE_E5M2)

/* Rows of queries and of keys in a workgroup's tile of scores. */
#define PF_TILE_QUERIES (PF_OP <= PF_OP_FORWARD_JVP ? PF_OWNED_TILE : PF_CROSS_TILE)
#define PF_TILE_KEYS (PF_OP <= PF_OP_FORWARD_JVP ? PF_CROSS_TILE : PF_OWNED_TILE)

#endif
