/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of the portability layer: what a target gives the kernel source.
 *
 * A translation unit includes one target's port header and then one kernel (forward.h, backward.h, ...).
 * The build defines what is compiled:
 *     PF_ELEMENT    PF_KTYPE_*: type of q, k, v in memory
 *     PF_HEAD_DIM   channels of a staged tile, a multiple of 64 (of 32 for f32): D and E padded with zeros
 *     PF_GENERAL    1: bias, mask and any alpha; 0: none of these and alpha > 0
 *     PF_TANGENT    1: the JVP of the operation
 * and the target's tuning table, from these, what affects speed only:
 *     PF_OWNED_TILE, PF_CROSS_TILE   rows of a tile (below)
 *     PF_OUT_DIM    channels of the output that one workgroup accumulates, PF_HEAD_DIM or a divisor
 *     PF_STAGES     buffers in the ring of streamed tiles
 *
 * MODEL. A workgroup owns PF_OWNED_TILE rows (queries in forward, keys in backward), resident in shared
 * memory, and streams past them tiles of PF_CROSS_TILE rows of the other kind. The owned rows are divided
 * among compute groups (a warpgroup, warp or wave: whatever issues one matrix instruction). Each
 * thread of a group holds a part of a fragment:
 *     pf_scores   x[PF_SCORE_COUNT]  owned rows of the group x cross rows of the tile, f32
 *     pf_weights  a pf_scores rounded to the element type, as an operand
 *     pf_out      x[PF_OUT_COUNT]    owned rows of the group x PF_OUT_DIM channels, f32
 * and for each fragment element e, loops being unrolled:
 *     pf_score_slot(e)   which of the thread's PF_SLOTS owned rows it belongs to
 *     pf_score_cross(e)  its cross row within the tile
 *     pf_out_slot(e), pf_out_channel(e)   runs of PF_OUT_RUN elements are adjacent channels
 *     pf_slot_owned(s)   the owned row, within the workgroup's tile, of a slot
 *     pf_slot_is_first() true in one thread of those that share the same owned rows
 *     pf_slot_max(x), pf_slot_sum(x)  reduce over the threads that share an owned row
 *
 * PRODUCTS (all accumulate, unless `fresh`: then the accumulator is set):
 *     pf_scores_mma(s, owned, cross, fresh)  s[o][x] += sum_c owned[o][c] cross[x][c]
 *     pf_out_mma(out, w, cross, channel0)    out[o][c] += sum_x w[o][x] cross[x][channel0 + c]
 *     pf_cross_mma(...)                      see backward.h: sum_o w[o][x] owned[o][c] over all groups
 * are issued, perhaps asynchronously; pf_mma_commit() closes a batch of them and pf_mma_wait(n) waits until
 * all but the last n batches are done. Between issue and wait neither accumulators nor operands may be
 * touched. Batches complete in order.
 *
 * ROLES AND STREAMS. On targets with a producer (PF_HAS_PRODUCER 1) loads are issued by PF_PRODUCER's block
 * while PF_CONSUMER's computes; elsewhere PF_PRODUCER's block compiles to nothing and the consumer itself
 * refills a stage when it gives one back: the statement inside PF_REFILL(...) then runs, and compiles to
 * nothing where there is a producer. Hence both are written once, around the same fill functions.
 *     pf_ring           shared state of a ring of stages; pf_ring_init(ring, tiles_bytes) by all threads
 *     pf_ring_pos       a thread's place in it, zero at start; .stage is the buffer to use
 *     fill:     pf_ring_acquire(ring, pos)  wait until the stage is free
 *               pf_tile_load(...)           any number of loads into it
 *               pf_ring_publish(ring, pos)  the stage is filled once its loads land; pos advances
 *     consume:  pf_ring_take(ring, pos)     wait until it is filled
 *               pf_ring_release(ring, pos)  this thread's group has finished with it; pos advances
 * All consumers take and release every stage, in order.
 *
 *     pf_turn_wait(), pf_turn_pass()  let the compute groups alternate between matrix and scalar work; may be empty
 *
 * Arithmetic: pf_exp2, pf_log2, pf_fma, pf_max are the target's fast f32 functions; pf_exp2(-inf) is 0.
 */
#ifndef PF_PORT_H
#define PF_PORT_H
