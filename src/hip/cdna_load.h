/* SPDX-License-Identifier: Apache-2.0 */
/* Reading operands from memory, in chunks of 16 bytes as tiles hold them. */
#ifndef PF_CDNA_LOAD_H
#define PF_CDNA_LOAD_H

enum {
    CDNA_SOURCE_BYTES = PF_ELEMENT == PF_KTYPE_E5M2 ? 1 : CDNA_BYTES, /* of an element in memory */
    CDNA_VECTOR_STRIDE = 1 << 21 /* rows of a tile, fewer than 512, then lie within 4 GiB */
};

/* What loads need of the arguments. */
typedef struct pf_source {
    const pf_attention_kargs *a;
} pf_source;

/* An operand's tensor as loads see it. */
typedef struct cdna_view {
    unsigned long long base; /* of (b, h) */
    pf_i64 row_stride, channel_stride;
    int channels;
    bool vector; /* every chunk is one aligned vector near its tile, or wholly past the end */
} cdna_view;

PF_DEVICE cdna_view cdna_view_of(const pf_source *source, int operand, const pf_rows *rows) {
    const pf_attention_kargs *a = source->a;
    const pf_karg_tensor *t = &a->operand[operand];
    cdna_view view;
    view.base = t->address ? t->address + CDNA_SOURCE_BYTES *
                                              (rows->b * t->stride[0] + rows->h * t->stride[1])
                           : 0;
    view.row_stride = t->stride[2];
    view.channel_stride = t->stride[3];
    view.channels = operand < PF_OPERAND_V ? a->dim_qk : a->dim_v;
    view.vector = t->stride[3] == 1 && view.channels % CDNA_CHUNK == 0 &&
                  (((pf_i64)view.base | t->stride[2] * CDNA_SOURCE_BYTES) &
                   (CDNA_CHUNK * CDNA_SOURCE_BYTES - 1)) == 0 &&
                  t->stride[2] >= 0 && t->stride[2] < CDNA_VECTOR_STRIDE;
    return view;
}

PF_DEVICE unsigned cdna_element_at(const cdna_view *view, pf_i64 index) {
    if (PF_ELEMENT == PF_KTYPE_E5M2)
        return (unsigned)((const PF_GLOBAL unsigned char *)view->base)[index] << 8;
    if (PF_ELEMENT == PF_KTYPE_F32)
        return ((const PF_GLOBAL unsigned *)view->base)[index];
    return ((const PF_GLOBAL unsigned short *)view->base)[index];
}

/* A chunk gathered one element at a time, shifted in from the top. A loop: it is rarely taken, and
 * unrolled it would be most of the kernel. */
PF_DEVICE cdna_int4 cdna_gather_chunk(const cdna_view *view, pf_i64 at, int channel) {
    unsigned long long low = 0, high = 0;
    PF_ROLLED for (int c = channel; c < channel + CDNA_CHUNK; ++c) {
        const unsigned long long x =
            c < view->channels ? cdna_element_at(view, at + c * view->channel_stride) : 0;
        low = low >> 8 * CDNA_BYTES | high << (64 - 8 * CDNA_BYTES);
        high = high >> 8 * CDNA_BYTES | x << (64 - 8 * CDNA_BYTES);
    }
    return (cdna_int4){(int)low, (int)(low >> 32), (int)high, (int)(high >> 32)};
}

/* Widen 8 bytes of e5m2: each is the high byte of its f16. */
PF_DEVICE cdna_int4 cdna_widen_chunk(cdna_int2 x) {
    return (cdna_int4){(int)__builtin_amdgcn_perm(0, x[0], 0x010c000c),
                       (int)__builtin_amdgcn_perm(0, x[0], 0x030c020c),
                       (int)__builtin_amdgcn_perm(0, x[1], 0x010c000c),
                       (int)__builtin_amdgcn_perm(0, x[1], 0x030c020c)};
}

PF_DEVICE bool cdna_reads(const cdna_view *view, const pf_rows *rows, int row) {
    return view->base && row < rows->end &&
           (!rows->live || ((const PF_GLOBAL unsigned char *)rows->live)[row]);
}

/* The chunk of a row, counted from rows->row0, whose address is that of the tile and a 32-bit
 * offset. */
PF_DEVICE cdna_int4 cdna_load_vector(const cdna_view *view, const pf_rows *rows, int row,
                                     int channel) {
    if (!cdna_reads(view, rows, rows->row0 + row) || channel >= view->channels)
        return (cdna_int4){0, 0, 0, 0};
    const unsigned long long tile = view->base + CDNA_SOURCE_BYTES * rows->row0 * view->row_stride;
    /* Both factors visibly fit the fast multiplication of 24 bits. */
    const unsigned stride = (unsigned)view->row_stride & (CDNA_VECTOR_STRIDE - 1);
    const unsigned offset =
        CDNA_SOURCE_BYTES * (((unsigned)row & 511) * stride + (unsigned)channel);
    if (PF_ELEMENT == PF_KTYPE_E5M2)
        return cdna_widen_chunk(*(const PF_GLOBAL cdna_int2 *)(tile + offset));
    return *(const PF_GLOBAL cdna_int4 *)(tile + offset);
}

PF_DEVICE cdna_int4 cdna_load_chunk(const cdna_view *view, const pf_rows *rows, int row,
                                    int channel) {
    if (view->vector)
        return cdna_load_vector(view, rows, row, channel);
    if (!cdna_reads(view, rows, rows->row0 + row))
        return (cdna_int4){0, 0, 0, 0};
    return cdna_gather_chunk(view, (rows->row0 + row) * view->row_stride, channel);
}
#endif
