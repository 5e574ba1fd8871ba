/* SPDX-License-Identifier: Apache-2.0 */
/* Clearing and storing an output fragment. */
#ifndef PF_KERNELS_OUT_H
#define PF_KERNELS_OUT_H

#include "common.h"

/* Targets without pf_write_rows. */
#ifndef PF_ROW_RUN
#define PF_ROW_RUN 1
#define pf_write_rows(out, address, index, stride, rows, channels, type)                           \
    ((void)(out), (void)(index))
#endif

/* Targets that store an output in one piece, since most of their outputs go that way. */
#ifndef PF_OUT_STEP
#define PF_OUT_STEP PF_OUT_COUNT
#endif

/* Where a workgroup's output fragment goes: rows [row0, rows) and channels [channel0, channels) of
 * (b, h). */
typedef struct pf_out_place {
    const pf_karg_tensor *t;
    int type, b, h, row0, rows, channel0, channels;
} pf_out_place;

PF_DEVICE void pf_out_store_element(const pf_out_place *at, int e, float value) {
    const int row = at->row0 + pf_slot_owned(pf_out_slot(e)), c = at->channel0 + pf_out_channel(e);
    if (row < at->rows && c < at->channels)
        pf_write(at->t->address, pf_row_offset(at->t, at->b, at->h, row) + c * at->t->stride[3],
                 at->type, value);
}

/* Bring the elements from `step` on to the front. */
PF_DEVICE void pf_out_turn(pf_out *out, int step) {
    PF_UNROLL for (int e = 0; e < PF_OUT_COUNT; ++e) {
        if (e + step < PF_OUT_COUNT)
            out->x[e] = out->x[e + step];
    }
}

/* Element by element. A fragment is indexed by constants alone, so the loop turns it round instead
 * of being unrolled, which would make this rare path the longest of the kernel. */
PF_DEVICE void pf_out_store_elements(const pf_out *out, const pf_out_place *at) {
    enum { STEP = 4 };
    pf_out turned = *out;
    PF_ROLLED for (int e = 0; e < PF_OUT_COUNT; e += STEP) {
        PF_UNROLL for (int u = 0; u < STEP; ++u) pf_out_store_element(at, e + u, turned.x[u]);
        pf_out_turn(&turned, STEP);
    }
}

/* Adjacent channels as vectors; their number is a multiple of PF_OUT_RUN. */
PF_DEVICE void pf_out_store_runs(const pf_out *out, const pf_out_place *at) {
    pf_out turned = *out;
    PF_ROLLED for (int first = 0; first < PF_OUT_COUNT; first += PF_OUT_STEP) {
        PF_UNROLL for (int s = 0; s < PF_SLOTS; ++s) {
            const int row = at->row0 + pf_slot_owned(s);
            if (row >= at->rows)
                continue;
            const pf_i64 base = pf_row_offset(at->t, at->b, at->h, row) + at->channel0;
            PF_UNROLL for (int u = 0; u < PF_OUT_STEP; u += PF_OUT_RUN) {
                const int channel = pf_out_channel(first + u);
                if (pf_out_slot(u) == s && at->channel0 + channel < at->channels)
                    pf_write_run(at->t->address, base + channel, at->type, &turned.x[u]);
            }
        }
        pf_out_turn(&turned, PF_OUT_STEP);
    }
}

/* Whole rows, which the target turns round among its threads for wider vectors. */
PF_DEVICE void pf_out_store_rows(const pf_out *out, const pf_out_place *at) {
    const pf_i64 index = pf_row_offset(at->t, at->b, at->h, at->row0) + at->channel0;
    pf_write_rows(out, at->t->address, index, at->t->stride[2], at->rows - at->row0,
                  at->channels - at->channel0, at->type);
}

/* Write an output fragment. The type is that of the operands or f32, and any for e5m2: saying so
 * here leaves out the code of the others. */
PF_DEVICE void pf_out_store(const pf_out *out, const pf_karg_tensor *t, int type, int b, int h,
                            int row0, int rows, int channel0, int channels) {
    const int known = PF_ELEMENT == PF_KTYPE_E5M2 || type == PF_KTYPE_F32 ? type : (int)PF_ELEMENT;
    const pf_out_place at = {t, known, b, h, row0, rows, channel0, channels};
    if (PF_ROW_RUN > 1 && known != PF_KTYPE_E5M2 && channels % PF_ROW_RUN == 0 &&
        pf_tensor_takes_vectors(t, known, 16))
        pf_out_store_rows(out, &at);
    else if (channels % PF_OUT_RUN == 0 &&
             pf_tensor_takes_vectors(t, known, PF_OUT_RUN * pf_type_bytes(known)))
        pf_out_store_runs(out, &at);
    else
        pf_out_store_elements(out, &at);
}

/* To a part of an item, f32, whose rows have place for all channels of the fragment. */
PF_DEVICE void pf_out_store_part(const pf_out *out, const pf_karg_tensor *part, int number,
                                 int rows, int channel0) {
    const pf_out_place at = {part, PF_KTYPE_F32, number,   0,
                             0,    rows,         channel0, (int)part->stride[2]};
    if (PF_ROW_RUN > 1)
        pf_out_store_rows(out, &at);
    else
        pf_out_store_runs(out, &at);
}

PF_DEVICE void pf_out_zero(pf_out *out) {
    PF_UNROLL for (int e = 0; e < PF_OUT_COUNT; ++e) out->x[e] = 0.f;
}

#endif
