/* SPDX-License-Identifier: Apache-2.0 */
/* Writing outputs. Where there is shared memory for it a warp turns its rows round there, slab by
 * slab, which takes a third of the instructions of shuffles; short sequences end often. Or it
 * leaves them there, and they are sent by TMA. */
#ifndef PF_PORT_SM90A_OUT_H
#define PF_PORT_SM90A_OUT_H

#if PF_TURNS_ROWS
enum {
    PF_VECTORS = PF_ROW_BYTES / 16, /* of a row of a slab, 8 channels each */
    PF_STAGED_SLABS = PF_STAGES_OUT && PF_OUT_DIM > PF_SLAB ? 2 : 1, /* of a warp's rows at once */
};

/* Rows of each warp of the compute groups, in the swizzle of tiles. */
typedef struct alignas(1024) pf_port_shared {
    uint4 rows[4 * PF_GROUPS][PF_STAGED_SLABS][PF_OUT_ROWS][PF_VECTORS];
} pf_port_shared;
enum { PF_PORT_SHARED_BYTES = sizeof(pf_port_shared) };

/* Where a warp has a slab of its rows. */
PF_DEVICE uint4 (*pf_slab_place(int warp, int slab))[PF_VECTORS] {
    return ((pf_port_shared *)pf_shared_memory)->rows[warp][slab];
}

/* A slab of the warp's rows, rounded. */
PF_DEVICE void pf_place_slab(const float *x, int type, uint4 (*place)[PF_VECTORS]) {
    const int lane = pf_lane();
    PF_UNROLL for (int c = 0; c < PF_VECTORS; c += 2) {
        pf_u32 w[4];
        PF_UNROLL for (int i = 0; i < 4; ++i) {
            const float a = x[4 * c + 2 * i], b = x[4 * c + 2 * i + 1];
            w[i] = type == PF_KTYPE_BF16 ? pf_pack_bf16(a, b) : pf_pack_f16(a, b);
        }
        const int row = lane % 16, vector = c + lane / 16;
        pf_store_matrices(pf_shared_address(&place[row][vector ^ row % 8]), w);
    }
}

#if PF_STAGES_OUT
/* The slabs that are in place, the first of which is number `slab`. One thread that is elected, and
 * a warp that is agreed on: the operands of a copy lie in uniform registers, and compilers make a
 * loop over lanes of what may differ among them. */
PF_DEVICE void pf_send_slabs(const pf_source *source, const pf_rows *rows, int slab) {
    const int warp = pf_agreed(pf_consumer_warp());
    __syncwarp();
    if (pf_elect()) {
        PF_UNROLL for (int n = 0; n < PF_STAGED_SLABS; ++n)
            pf_tensor_store(pf_slab_place(warp, n), &source->maps->map[PF_MAP_O],
                            rows->channel0 + (slab + n) * PF_SLAB, rows->row0 + PF_OUT_ROWS * warp,
                            rows->h, rows->b);
        pf_bulk_commit();
    }
}

/* Of the thread that was elected; others have none to wait for. */
PF_DEVICE void pf_await_slabs() {
    pf_bulk_wait_read(0);
    __syncwarp();
}

/* A warp's rows, if all are of the item: the map ends with the tensor, not with it. The
 * vote tells the compiler that a warp agrees. */
PF_DEVICE bool pf_out_stage(const pf_out *out, const pf_source *source, const pf_rows *rows) {
    if (pf_any_lane(rows->row0 + PF_OUT_ROWS * (pf_consumer_warp() + 1) > rows->end))
        return false;
    PF_UNROLL for (int slab = 0; slab < PF_OUT_DIM / PF_SLAB; ++slab) {
        if (slab % PF_STAGED_SLABS == 0) {
            if (slab > 0)
                pf_send_slabs(source, rows, slab - PF_STAGED_SLABS);
            pf_await_slabs();
        }
        pf_place_slab(out->x + slab * PF_SLAB / 2, PF_ELEMENT,
                      pf_slab_place(pf_consumer_warp(), slab % PF_STAGED_SLABS));
        if ((slab + 1) % PF_STAGED_SLABS == 0)
            pf_async_fence();
    }
    return true;
}

PF_DEVICE void pf_out_send(const pf_source *source, const pf_rows *rows) {
    pf_send_slabs(source, rows, PF_OUT_DIM / PF_SLAB - PF_STAGED_SLABS);
}

PF_DEVICE void pf_out_drain() {
    pf_await_slabs();
}
#else
/* Write a slab row by row. */
PF_DEVICE void pf_write_slab(const float *x, int type, unsigned short *to, pf_i64 stride, int rows,
                             int channels) {
    uint4(*place)[PF_VECTORS] = pf_slab_place(pf_consumer_warp(), 0);
    pf_place_slab(x, type, place);
    __syncwarp();
    const int lane = pf_lane(), vector = lane % PF_VECTORS;
    PF_UNROLL for (int r = 0; r < PF_OUT_ROWS; r += 32 / PF_VECTORS) {
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
    const int row0 = PF_OUT_ROWS * pf_consumer_warp();
    unsigned short *to = (unsigned short *)address + index + row0 * stride;
    PF_UNROLL for (int c = 0; c < PF_OUT_DIM; c += PF_SLAB)
        pf_write_slab(out->x + c / 2, type, to + c, stride, rows - row0, channels - c);
}
#endif
#endif

#if PF_STAGES_OUT || !PF_TURNS_ROWS
#define pf_write_rows pf_write_fragment_rows
#endif

#endif
