/* SPDX-License-Identifier: Apache-2.0 */
/* Clusters of two workgroups that own neighbouring tiles of keys (CLUSTERS in port.h), and what one
 * has of the other: arrivals at its barriers, copies into its shared memory, and half of the
 * channels of its keys, those of which this workgroup sums dQ. */
#ifndef PF_PORT_SM90A_CLUSTER_H
#define PF_PORT_SM90A_CLUSTER_H

#define PF_CLUSTER 2
#define PF_CLUSTER_KERNEL(name, args_type)                                                         \
    extern "C" __global__ void __cluster_dims__(PF_CLUSTER, 1, 1)                                  \
        __launch_bounds__(PF_THREADS, PF_MIN_BLOCKS)                                               \
            name(const __grid_constant__ args_type pf_args PF_KERNEL_TAIL)

PF_DEVICE int pf_cluster() {
    return (int)blockIdx.x / PF_CLUSTER;
}

PF_DEVICE int pf_clusters() {
    return (int)gridDim.x / PF_CLUSTER;
}

PF_DEVICE int pf_cluster_place() {
    return (int)blockIdx.x % PF_CLUSTER;
}

PF_DEVICE void pf_cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\n"
                 "barrier.cluster.wait.acquire;" ::
                     : "memory");
}

/* Neither workgroup leaves while the other may still reach into it. */
PF_DEVICE void pf_cluster_end() {
    pf_cluster_sync();
}

/* Where the other workgroup has what this one has at an address of its shared memory. */
PF_DEVICE pf_u32 pf_peer_address(const void *p) {
    pf_u32 address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(address)
                 : "r"(pf_shared_address(p)), "r"(pf_cluster_place() ^ 1));
    return address;
}

PF_DEVICE void pf_barrier_arrive_at_peer(pf_u64 *barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(pf_peer_address(barrier))
                 : "memory");
}

/* Copy to the other workgroup, whose barrier counts the bytes. */
PF_DEVICE void pf_peer_copy(void *to, const void *from, int bytes, pf_u64 *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(pf_peer_address(to)),
                 "r"(pf_shared_address(from)), "r"(bytes), "r"(pf_peer_address(barrier))
                 : "memory");
}

enum { PF_PEER_CHANNELS = PF_HEAD_DIM / PF_CLUSTER };

typedef struct alignas(1024) pf_crossed_tile {
    pf_owned_tile own;
    unsigned char peer[PF_PEER_CHANNELS / PF_SLAB][PF_OWNED_TILE][PF_ROW_BYTES];
} pf_crossed_tile;

PF_DEVICE void pf_crossed_load(pf_crossed_tile *tile, const pf_source *source, int operand,
                               const pf_rows *rows, pf_ring *ring, const pf_ring_pos *pos) {
    pf_owned_load(&tile->own, source, operand, rows, ring, pos);
    pf_rows peer = *rows;
    peer.row0 += pf_cluster_place() == 0 ? PF_OWNED_TILE : -PF_OWNED_TILE;
    peer.channel0 = pf_cluster_place() * PF_PEER_CHANNELS;
    pf_tile_load(&tile->peer[0][0][0], PF_OWNED_TILE, PF_PEER_CHANNELS / PF_SLAB, source, operand,
                 &peer, ring, pos, false);
}

#define pf_crossed_take(owned, tile, source, operand, rows)                                        \
    pf_owned_take(owned, &(tile)->own, source, operand, rows)

#endif
