/* SPDX-License-Identifier: Apache-2.0 */
/* Hopper's asynchronous copies and the barriers in shared memory that they report to.
 *
 * Barrier waits are by parity: a wait for parity p returns once the phase of that parity is
 * complete, and a new barrier counts as having completed a phase of parity 1. */
#ifndef PF_TMA_H
#define PF_TMA_H

/* As the driver encodes it: four dimensions (channel, row, head, batch), boxes of 128 bytes of
 * channels x the rows of a tile, 128-byte swizzle, zeros out of bounds. */
typedef struct alignas(64) pf_tensor_map {
    pf_u64 opaque[16];
} pf_tensor_map;

/* The second parameter of a kernel, by pf_operand and pf_map. */
typedef struct pf_tensor_maps {
    pf_tensor_map map[PF_MAP_COUNT];
} pf_tensor_maps;

PF_DEVICE void pf_barrier_init(pf_u64 *barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(pf_shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}

PF_DEVICE void pf_barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

PF_DEVICE void pf_barrier_arrive(pf_u64 *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(pf_shared_address(barrier))
                 : "memory");
}

/* One thread of a warp arrives. */
PF_DEVICE void pf_barrier_arrive_one(pf_u64 *barrier) {
    asm volatile(
        "{\n.reg .pred one;\n"
        "elect.sync _|one, 0xffffffff;\n"
        "@one mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(pf_shared_address(barrier))
        : "memory");
}

/* True in one thread of a warp. */
PF_DEVICE bool pf_elect() {
    pf_u32 elected;
    asm volatile("{\n.reg .pred one;\n"
                 "elect.sync _|one, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, one;\n}"
                 : "=r"(elected));
    return elected;
}

/* The current phase also needs this many bytes from copies. */
PF_DEVICE void pf_barrier_expect(pf_u64 *barrier, int bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(
                     pf_shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

PF_DEVICE void pf_barrier_wait(pf_u64 *barrier, pf_u32 parity) {
    asm volatile("{\n.reg .pred done;\n"
                 "WAIT:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra WAIT;\n}" ::"r"(pf_shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

PF_DEVICE void pf_tensor_copy(void *to, const pf_tensor_map *map, pf_u64 *barrier, int channel,
                              int row, int h, int b) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(pf_shared_address(to)),
                 "l"(map), "r"(pf_shared_address(barrier)), "r"(channel), "r"(row), "r"(h), "r"(b)
                 : "memory");
}

/* Write a box to memory. */
PF_DEVICE void pf_tensor_store(const void *from, const pf_tensor_map *map, int channel, int row,
                               int h, int b) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], "
                 "[%1];" ::"l"(map),
                 "r"(pf_shared_address(from)), "r"(channel), "r"(row), "r"(h), "r"(b)
                 : "memory");
}

PF_DEVICE void pf_bulk_copy(void *to, pf_u64 from, int bytes, pf_u64 *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(pf_shared_address(to)),
                 "l"(from), "r"(bytes), "r"(pf_shared_address(barrier))
                 : "memory");
}

/* Add `bytes` of floats to memory. */
PF_DEVICE void pf_bulk_add(pf_u64 to, const void *from, int bytes) {
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
        "r"(pf_shared_address(from)), "r"(bytes)
        : "memory");
}

/* What this thread has written or added since the last time is a group. */
PF_DEVICE void pf_bulk_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* All but this thread's last `n` groups have read their source, or are in memory. */
#define pf_bulk_wait_read(n) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(n) : "memory")
#define pf_bulk_wait(n) asm volatile("cp.async.bulk.wait_group %0;" ::"n"(n) : "memory")

/* What this thread wrote to shared memory is seen by copies and matrix products that come after. */
PF_DEVICE void pf_async_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Named barriers of `threads` threads in all: 0 is the whole block's. */
PF_DEVICE void pf_named_sync(int name, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

PF_DEVICE void pf_named_arrive(int name, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

#endif
