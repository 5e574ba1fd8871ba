/* SPDX-License-Identifier: Apache-2.0 */
/* Small things every kernel uses: typed scalar access and windows. */
#ifndef PF_KERNELS_COMMON_H
#define PF_KERNELS_COMMON_H

/* Qualifies pointers into device memory, on targets that tell address spaces apart. */
#ifndef PF_GLOBAL
#define PF_GLOBAL
#endif

/* Targets without vectors and pf_lanes_sum. */
#ifndef PF_VECTOR
#define PF_VECTOR 1
typedef float pf_vector;
#define pf_load_vector(address, index, type) pf_read(address, index, type)
#define pf_vector_floats(v, type, x) ((x)[0] = *(v))
#define pf_lanes_sum(x, lanes) pf_lane_sum(x)
#endif

/* Targets without pf_widen_run. */
#ifndef PF_WIDEN_RUN
#define PF_WIDEN_RUN 1
#define pf_widen_run(to, from) ((void)(to), (void)(from))
#endif

/* Targets with one producer, or none. */
#ifndef PF_FILLERS
#define PF_FILLERS 1
#define pf_fills(filler) true
#endif

/* Targets that know one kind of kernel. */
#ifndef PF_LIGHT_KERNEL
#define PF_LIGHT_KERNEL PF_KERNEL
#endif

/* Targets whose grids have a workgroup for each item of forward. */
#ifndef PF_ONE_ROUND
#define PF_ONE_ROUND 0
#endif

/* Targets whose workgroups do items of work alone. */
#ifndef PF_CLUSTER
#define PF_CLUSTER 1
#define PF_CLUSTER_KERNEL PF_KERNEL
#define pf_cluster() pf_block()
#define pf_clusters() pf_blocks()
#define pf_cluster_place() 0
#define pf_cluster_sync() pf_block_sync()
#define pf_cluster_end() ((void)0)
#endif

/* Targets whose compiler keeps in registers what is worth it, and what is for others to know. */
#ifndef PF_KEEP
#define PF_KEEP(x) ((void)(x))
#endif
#define PF_RARELY(x) __builtin_expect(x, 0)

/* Targets that scale their sums by whatever a tile does to the maximum. */
#ifndef PF_LAZY_MAX
#define PF_LAZY_MAX 0
#define pf_any_lane(x) true
#endif

/* Targets that look at `live` row by row. */
#ifndef PF_ROWS_SETTLE
#define PF_ROWS_SETTLE 0
#define pf_rows_settle(rows, source, operand, tile_rows) ((void)(rows))
#endif

/* Weights, and dS with them, are multiplied by 2^PF_WEIGHT_SHIFT, on targets whose products would
 * lose small ones. */
#ifndef PF_WEIGHT_SHIFT
#define PF_WEIGHT_SHIFT 0
#endif
#define PF_WEIGHT_UNSHIFT (1.f / (float)(1 << PF_WEIGHT_SHIFT))

#define PF_LN2 0.69314718055994530942f
#define PF_LOG2E 1.44269504088896340736f
#define PF_CEIL_DIV(a, b) (((a) + (b)-1) / (b))

/* Index of the tangent beside the primal (0) in pairs of tiles, fragments and statistics. */
#define PF_T PF_TANGENT

/* Targets where one group carries the primal and its tangent. */
#ifndef PF_FORWARD_PAIRED
#define PF_FORWARD_PAIRED 0
#endif

/* Index of the tangent beside the primal in what a group carries, 0 where another carries it. */
enum { PF_GROUP_T = PF_TANGENT && !PF_FORWARD_PAIRED };

#if PF_TANGENT
#define PF_KERNEL_NAME(op) pf_##op##_jvp
#define PF_KERNEL_NAME_WITH(op, part) pf_##op##_jvp_##part
#else
#define PF_KERNEL_NAME(op) pf_##op
#define PF_KERNEL_NAME_WITH(op, part) pf_##op##_##part
#endif

PF_DEVICE int pf_min_int(int a, int b) {
    return a < b ? a : b;
}

PF_DEVICE int pf_max_int(int a, int b) {
    return a > b ? a : b;
}

PF_DEVICE int pf_type_bytes(int type) {
    return type == PF_KTYPE_F32 ? 4 : PF_SEES_E5M2 && type == PF_KTYPE_E5M2 ? 1 : 2;
}

/* Element `index` of a global array of a type known at run time. */
PF_DEVICE float pf_read(unsigned long long address, pf_i64 index, int type) {
    if (type == PF_KTYPE_F32)
        return ((const PF_GLOBAL float *)address)[index];
    if (PF_SEES_E5M2 && type == PF_KTYPE_E5M2)
        return pf_f16_bits_to_f32(
            (unsigned short)(((const PF_GLOBAL unsigned char *)address)[index] << 8));
    const unsigned short bits = ((const PF_GLOBAL unsigned short *)address)[index];
    return type == PF_KTYPE_F16 ? pf_f16_bits_to_f32(bits) : pf_bf16_bits_to_f32(bits);
}

PF_DEVICE void pf_write(unsigned long long address, pf_i64 index, int type, float value) {
    if (type == PF_KTYPE_F32)
        ((PF_GLOBAL float *)address)[index] = value;
    else if (PF_SEES_E5M2 && type == PF_KTYPE_E5M2)
        ((PF_GLOBAL unsigned char *)address)[index] = pf_f32_to_e5m2_bits(value);
    else
        ((PF_GLOBAL unsigned short *)address)[index] =
            type == PF_KTYPE_F16 ? pf_f32_to_f16_bits(value) : pf_f32_to_bf16_bits(value);
}

/* Offset, in elements, of (b, h, i, channel 0). */
PF_DEVICE pf_i64 pf_row_offset(const pf_karg_tensor *t, int b, int h, int i) {
    return b * t->stride[0] + h * t->stride[1] + i * t->stride[2];
}

/* Do vectors of so many bytes lie along the channels of the tensor? */
PF_DEVICE bool pf_tensor_takes_vectors(const pf_karg_tensor *t, int type, int vector_bytes) {
    const int bytes = pf_type_bytes(type);
    const pf_i64 bits =
        (pf_i64)t->address | t->stride[0] * bytes | t->stride[1] * bytes | t->stride[2] * bytes;
    return t->stride[3] == 1 && (bits & (vector_bytes - 1)) == 0;
}

/* PF_VECTOR adjacent elements as floats, at once. */
PF_DEVICE void pf_read_vector(unsigned long long address, pf_i64 index, int type, float *x) {
    const pf_vector v = pf_load_vector(address, index, type);
    pf_vector_floats(&v, type, x);
}

/* Write PF_VECTOR channels of a row from c on, but none from `end` on. */
PF_DEVICE void pf_write_vector(const pf_karg_tensor *t, int type, int b, int h, int i, int c,
                               int end, const float *x) {
    const pf_i64 at = pf_row_offset(t, b, h, i) + c * t->stride[3];
    if (!t->address)
        return;
    if (PF_VECTOR >= PF_OUT_RUN && c + PF_VECTOR <= end &&
        pf_tensor_takes_vectors(t, type, PF_OUT_RUN * pf_type_bytes(type))) {
        PF_UNROLL for (int n = 0; n < PF_VECTOR; n += PF_OUT_RUN)
            pf_write_run(t->address, at + n, type, x + n);
    } else
        PF_UNROLL for (int n = 0; n < PF_VECTOR; ++n) {
            if (c + n < end)
                pf_write(t->address, at + n * t->stride[3], type, x[n]);
        }
}

/* Does the window of the pair keep query i and key j? */
PF_DEVICE bool pf_window_keeps(const pf_attention_kargs *a, int pair, int i, int j) {
    const int x = i - j;
    return j < a->key_end[pair] && x >= a->window_low[pair] && x < a->window_high[pair];
}

/* Does it keep every pair of queries [i0, i1) and keys [j0, j1)? */
PF_DEVICE bool pf_window_keeps_all(const pf_attention_kargs *a, int pair, int i0, int i1, int j0,
                                   int j1) {
    return j1 <= a->key_end[pair] && i0 - (j1 - 1) >= a->window_low[pair] &&
           i1 - 1 - j0 < a->window_high[pair];
}

/* The rows of a cross tile that an owned row keeps: `count` of them from `begin`, both from the
 * start of the tile. */
typedef struct pf_span {
    int begin;
    unsigned count;
} pf_span;

PF_DEVICE pf_span pf_span_of(int begin, int end, int tile_begin) {
    pf_span span;
    span.begin = begin - tile_begin;
    span.count = begin < end ? (unsigned)end - (unsigned)begin : 0;
    return span;
}

/* Keys that the window of the pair keeps for query i. */
PF_DEVICE pf_span pf_span_of_query(const pf_attention_kargs *a, int pair, int i, int tile_begin) {
    return pf_span_of(i - a->window_high[pair] + 1,
                      pf_min_int(a->key_end[pair], i - a->window_low[pair] + 1), tile_begin);
}

/* Queries that it keeps for key j. */
PF_DEVICE pf_span pf_span_of_key(const pf_attention_kargs *a, int pair, int j, int tile_begin) {
    return pf_span_of(j + a->window_low[pair],
                      j < a->key_end[pair] ? j + a->window_high[pair] : -PF_INT_MAX, tile_begin);
}

PF_DEVICE bool pf_span_keeps(pf_span span, int x) {
    return (unsigned)(x - span.begin) < span.count;
}

/* Targets that look at each cross row by itself. */
#ifndef PF_SLOT_BITS
#define PF_SLOT_BITS 0
#define pf_slot_bits(begin, end) 0
#endif

/* What a slot keeps, and a bit for each of its elements where PF_SLOT_BITS says so. */
typedef struct pf_kept {
    pf_span span;
    unsigned bits;
} pf_kept;

PF_DEVICE pf_kept pf_kept_of(pf_span span) {
    const pf_kept kept = {
        span, PF_SLOT_BITS ? pf_slot_bits(span.begin, span.begin + (int)span.count) : 0};
    return kept;
}

/* Is the slot's n-th element, at cross row x, of that? */
PF_DEVICE bool pf_kept_has(pf_kept kept, int n, int x) {
    return PF_SLOT_BITS ? kept.bits & 1u << n : pf_span_keeps(kept.span, x);
}

/* What bias and mask do to one score: the bias, or -inf where they exclude the key. */
PF_DEVICE float pf_bias_or_excluded(const pf_attention_kargs *a, int b, int h, int i, int j) {
    float bias = 0.f;
    if (a->mask.address) {
        const pf_i64 at = pf_row_offset(&a->mask, b, h, i) + j * a->mask.stride[3];
        if (!((const PF_GLOBAL unsigned char *)a->mask.address)[at])
            return -PF_INFINITY;
    }
    if (a->bias.address)
        bias = pf_read(a->bias.address, pf_row_offset(&a->bias, b, h, i) + j * a->bias.stride[3],
                       a->bias_type);
    return bias;
}

PF_DEVICE float pf_bias_tangent(const pf_attention_kargs *a, int b, int h, int i, int j) {
    if (!a->tbias.address)
        return 0.f;
    return pf_read(a->tbias.address, pf_row_offset(&a->tbias, b, h, i) + j * a->tbias.stride[3],
                   a->tbias_type);
}

#endif
