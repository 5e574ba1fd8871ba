/* SPDX-License-Identifier: Apache-2.0 */
/* Writing outputs. Where there is shared memory for it a warp turns its rows round there, slab by
 * slab, which takes a third of the instructions of shuffles; short sequences end often. */
#ifndef PF_PORT_SM90A_OUT_H
#define PF_PORT_SM90A_OUT_H

#if PF_TURNS_ROWS
enum { PF_VECTORS = PF_ROW_BYTES / 16 }; /* of a row of a slab, 8 channels each */

typedef struct alignas(1024) pf_port_shared {
    uint4 rows[4 * PF_GROUPS][16][PF_VECTORS];
} pf_port_shared;
enum { PF_PORT_SHARED_BYTES = sizeof(pf_port_shared) };

/* A slab of the warp's rows, rounded: place it, in the swizzle of tiles, and write it row by row.
 */
PF_DEVICE void pf_write_slab(const float *x, int type, unsigned short *to, pf_i64 stride, int rows,
                             int channels) {
    const int lane = pf_lane();
    uint4(*place)[PF_VECTORS] = ((pf_port_shared *)pf_shared_memory)->rows[pf_consumer_warp()];
    PF_UNROLL for (int c = 0; c < PF_VECTORS; c += 2) {
        pf_u32 w[4];
        PF_UNROLL for (int i = 0; i < 4; ++i) {
            const float a = x[4 * c + 2 * i], b = x[4 * c + 2 * i + 1];
            w[i] = type == PF_KTYPE_BF16 ? pf_pack_bf16(a, b) : pf_pack_f16(a, b);
        }
        const int row = lane % 16, vector = c + lane / 16;
        pf_store_matrices(pf_shared_address(&place[row][vector ^ row % 8]), w);
    }
    __syncwarp();
    const int vector = lane % PF_VECTORS;
    PF_UNROLL for (int r = 0; r < 16; r += 32 / PF_VECTORS) {
        const int row = r + lane / PF_VECTORS;
        if (row < rows && 8 * vector < channels)
            *(uint4 *)(to + row * stride + 8 * vector) = place[row][vector ^ row % 8];
    }
    __syncwarp();
}

PF_DEVICE void pf_write_rows(const pf_out *out, pf_u64 address, pf_i64 index, pf_i64 stride,
                             int rows, int channels, int type) {
    if (type == PF_KTYPE_F32) {
        pf_write_fragment_rows(out, address, index, stride, rows, channels, type);
        return;
    }
    const int row0 = 16 * pf_consumer_warp();
    unsigned short *to = (unsigned short *)address + index + row0 * stride;
    PF_UNROLL for (int c = 0; c < PF_OUT_DIM; c += PF_SLAB)
        pf_write_slab(out->x + c / 2, type, to + c, stride, rows - row0, channels - c);
}
#else
#define pf_write_rows pf_write_fragment_rows
#endif

#endif
