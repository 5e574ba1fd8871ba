/* SPDX-License-Identifier: Apache-2.0 */
/* The small passes around the attention kernels, and merge. Element types are read at run time. */
#include "common.h"

PF_DEVICE bool key_is_kept(const pf_attention_kargs *a, int b, int h, int i, int j) {
    bool in_window = false;
    for (int pair = 0; pair < a->pairs; ++pair)
        in_window = in_window || pf_window_keeps(a, pair, i, j);
    return in_window && pf_bias_or_excluded(a, b, h, i, j) != -PF_INFINITY;
}

/* No query before this one has the key in its window. */
PF_DEVICE int key_first_query(const pf_attention_kargs *a, int j) {
    const int low =
        a->pairs == 2 ? pf_min_int(a->window_low[0], a->window_low[1]) : a->window_low[0];
    return pf_max_int(0, j + low);
}

/* key_live: 1 where some query keeps the key. One block a (batch, head, PF_KEY_LIVE_TILE keys) of
 * the common shape of bias and mask; queries are tried until every key of the block is known to be
 * live. */
PF_KERNEL(pf_key_live, pf_attention_kargs) {
    const pf_attention_kargs *a = PF_KERNEL_ARGS;
    const int tiles = a->keys_padded / PF_KEY_LIVE_TILE;
    const int tile = pf_block() % tiles, bh = pf_block() / tiles;
    const int heads = a->key_live_heads, b = bh / heads, h0 = bh % heads * a->group;
    const int group = a->key_live_stride[1] ? a->group : 1; /* the heads of a broadcast agree */
    for (int n = pf_thread(); n < PF_KEY_LIVE_TILE; n += pf_threads()) {
        const int j = tile * PF_KEY_LIVE_TILE + n;
        bool live = false;
        for (int i = key_first_query(a, j); i < a->queries && !live; ++i)
            for (int g = 0; g < group && !live; ++g)
                live = j < a->keys && key_is_kept(a, b, h0 + g, i, j);
        ((PF_GLOBAL unsigned char *)a->key_live)[(pf_i64)bh * a->keys_padded + j] = live;
    }
}

/* How pf_backward_pre shares its rows out: `lanes` threads to a row, which read vectors where all
 * tensors take them. */
typedef struct row_sharing {
    bool vectors;
    int lanes;
} row_sharing;

PF_DEVICE bool row_takes_vectors(const pf_karg_tensor *t, int type) {
    return !t->address || pf_tensor_takes_vectors(t, type, 16);
}

PF_DEVICE row_sharing row_sharing_of(const pf_attention_kargs *a) {
    row_sharing sharing = {false, PF_LANES};
    if (PF_VECTOR == 1 || a->dim_v % PF_VECTOR != 0 ||
        !row_takes_vectors(&a->operand[PF_OPERAND_DOUT], a->element_type) ||
        !row_takes_vectors(&a->operand[PF_OPERAND_TDOUT], a->element_type) ||
        !row_takes_vectors(&a->o, a->o_type) || !row_takes_vectors(&a->to, a->to_type))
        return sharing;
    sharing.vectors = true;
    for (sharing.lanes = 1; sharing.lanes < PF_LANES && sharing.lanes * PF_VECTOR < a->dim_v;)
        sharing.lanes *= 2;
    return sharing;
}

/* sum_c x[row][c] y[row][c], over the lanes of the row. */
PF_DEVICE float row_dot(const pf_attention_kargs *a, const row_sharing *sharing,
                        const pf_karg_tensor *x, int x_type, const pf_karg_tensor *y, int y_type,
                        int b, int h, int i) {
    const int lane = pf_lane() % sharing->lanes;
    float sum = 0.f;
    if (!x->address || !y->address)
        return 0.f;
    const pf_i64 at_x = pf_row_offset(x, b, h, i), at_y = pf_row_offset(y, b, h, i);
    if (sharing->vectors) {
        for (int c = lane * PF_VECTOR; c < a->dim_v; c += sharing->lanes * PF_VECTOR) {
            float u[PF_VECTOR], v[PF_VECTOR];
            pf_read_vector(x->address, at_x + c, x_type, u);
            pf_read_vector(y->address, at_y + c, y_type, v);
            PF_UNROLL for (int n = 0; n < PF_VECTOR; ++n) sum = pf_fma(u[n], v[n], sum);
        }
    } else {
        for (int c = lane; c < a->dim_v; c += sharing->lanes)
            sum = pf_fma(pf_read(x->address, at_x + c * x->stride[3], x_type),
                         pf_read(y->address, at_y + c * y->stride[3], y_type), sum);
    }
    return pf_lanes_sum(sum, sharing->lanes);
}

PF_DEVICE float row_stat(const pf_karg_tensor *t, int b, int h, int i) {
    return t->address ? ((const PF_GLOBAL float *)t->address)[pf_row_offset(t, b, h, i)] : 0.f;
}

PF_DEVICE void backward_pre_row(const pf_attention_kargs *a, const row_sharing *sharing, pf_i64 bh,
                                int i) {
    const pf_karg_tensor *dout = &a->operand[PF_OPERAND_DOUT];
    const pf_karg_tensor *tdout = &a->operand[PF_OPERAND_TDOUT];
    const int b = (int)bh / a->heads, h = (int)bh % a->heads;
    float lse = PF_INFINITY, delta = 0.f, tlse = 0.f, tdelta = 0.f;
    const bool inside = i < a->queries;
    const float row_lse = inside ? row_stat(&a->lse, b, h, i) : -PF_INFINITY;
    const bool live = row_lse != -PF_INFINITY;
    if (inside) {
        delta = row_dot(a, sharing, dout, a->element_type, &a->o, a->o_type, b, h, i);
        tdelta = row_dot(a, sharing, tdout, a->element_type, &a->o, a->o_type, b, h, i) +
                 row_dot(a, sharing, dout, a->element_type, &a->to, a->to_type, b, h, i);
        lse = row_lse * a->lse_unit;
        delta -= row_stat(&a->dlse, b, h, i);
        tlse = row_stat(&a->tlse, b, h, i);
    }
    if (pf_lane() % sharing->lanes == 0) {
        const pf_i64 padded = a->queries_padded;
        PF_GLOBAL float *stats = (PF_GLOBAL float *)a->query_stats + bh * PF_STATS * padded + i;
        stats[PF_STAT_LSE * padded] = live ? lse : PF_INFINITY;
        stats[PF_STAT_DELTA * padded] = live ? delta : 0.f;
        stats[PF_STAT_TLSE * padded] = live ? tlse : 0.f;
        stats[PF_STAT_TDELTA * padded] = live ? tdelta : 0.f;
        ((PF_GLOBAL unsigned char *)a->query_live)[bh * padded + i] = live;
    }
}

/* The sums of dq begin at 0. All workgroups clear them together. */
PF_DEVICE void clear_sums(const pf_attention_kargs *a) {
    const pf_i64 all = (pf_i64)a->work_count * pf_threads();
    for (pf_i64 n = (pf_i64)pf_block() * pf_threads() + pf_thread(); n < a->zeroed_words; n += all)
        ((PF_GLOBAL unsigned long long *)a->zeroed)[n] = 0;
}

/* query_stats and query_live, rows past the end included: PF_PRE_ROWS of the rows of all heads a
 * workgroup. */
PF_KERNEL(pf_backward_pre, pf_attention_kargs) {
    const pf_attention_kargs *a = PF_KERNEL_ARGS;
    clear_sums(a);
    const row_sharing sharing = row_sharing_of(a);
    const pf_i64 row0 = (pf_i64)pf_block() * PF_PRE_ROWS;
    const pf_i64 bh0 = row0 / a->queries_padded, heads = (pf_i64)a->batch * a->heads;
    const int i0 = (int)(row0 - bh0 * a->queries_padded);
    for (int r = pf_thread() / sharing.lanes; r < PF_PRE_ROWS; r += pf_threads() / sharing.lanes) {
        pf_i64 bh = bh0;
        int i = i0 + r;
        for (; i >= a->queries_padded; ++bh)
            i -= a->queries_padded;
        if (bh < heads)
            backward_pre_row(a, &sharing, bh, i);
    }
}

/* dbias from its partial sums, splits in ascending order: one thread an element. */
PF_KERNEL(pf_dbias_reduce, pf_attention_kargs) {
    const pf_attention_kargs *a = PF_KERNEL_ARGS;
    const int *extent = a->dbias_extent;
    const pf_i64 count = (pf_i64)extent[0] * extent[1] * extent[2] * extent[3];
    const pf_i64 n = (pf_i64)pf_block() * pf_threads() + pf_thread();
    if (n >= count)
        return;
    float sum = 0.f;
    for (int split = 0; split < a->dbias_splits; ++split)
        sum += ((const PF_GLOBAL float *)a->dbias_sum)[split * count + n];
    const int j = (int)(n % extent[3]), i = (int)(n / extent[3] % extent[2]);
    const pf_i64 bh = n / extent[3] / extent[2];
    pf_write(a->dbias.address,
             pf_row_offset(&a->dbias, (int)(bh / extent[1]), (int)(bh % extent[1]), i) +
                 j * a->dbias.stride[3],
             a->dbias_type, sum);
}

/* An operand of e5m2 as f16: PF_WIDEN_ROWS rows of it a workgroup, a run of channels a thread. */
PF_KERNEL(pf_widen, pf_widen_kargs) {
    const pf_widen_kargs *a = PF_KERNEL_ARGS;
    int which = 0, block = pf_block();
    for (; block >= a->operand[which].blocks; ++which)
        block -= a->operand[which].blocks;
    const pf_widen_operand *w = &a->operand[which];
    const bool vectors = PF_WIDEN_RUN > 1 && w->channels % PF_WIDEN_RUN == 0 &&
                         pf_tensor_takes_vectors(&w->from, PF_KTYPE_E5M2, PF_WIDEN_RUN);
    const int run = vectors ? PF_WIDEN_RUN : 1, runs = w->channels / run;
    const pf_i64 row0 = (pf_i64)block * PF_WIDEN_ROWS, bh0 = row0 / w->rows;
    const int i0 = (int)(row0 - bh0 * w->rows);
    for (int n = pf_thread(); n < PF_WIDEN_ROWS * runs; n += pf_threads()) {
        const int row = i0 + n / runs, c = n % runs * run, i = row % w->rows;
        const pf_i64 bh = bh0 + row / w->rows;
        if (bh >= (pf_i64)w->batch * w->heads)
            return;
        const int b = (int)bh / w->heads, h = (int)bh % w->heads;
        const unsigned long long from =
            w->from.address + pf_row_offset(&w->from, b, h, i) + c * w->from.stride[3];
        const unsigned long long to = w->to.address + (pf_row_offset(&w->to, b, h, i) + c) * 2;
        if (vectors)
            pf_widen_run(to, from);
        else
            *(PF_GLOBAL unsigned short *)to =
                (unsigned short)(*(const PF_GLOBAL unsigned char *)from << 8);
    }
}

/* O from f32, where the main kernel does not write its type: PF_WIDEN_ROWS rows a workgroup. */
PF_KERNEL(pf_narrow, pf_merge_kargs) {
    const pf_merge_kargs *a = PF_KERNEL_ARGS;
    const pf_i64 row0 = (pf_i64)pf_block() * PF_WIDEN_ROWS, bh0 = row0 / a->queries;
    const int i0 = (int)(row0 - bh0 * a->queries);
    for (int n = pf_thread(); n < PF_WIDEN_ROWS * a->dim_v; n += pf_threads()) {
        const int row = i0 + n / a->dim_v, c = n % a->dim_v, i = row % a->queries;
        const pf_i64 bh = bh0 + row / a->queries;
        if (bh >= (pf_i64)a->batch * a->heads)
            return;
        const int b = (int)bh / a->heads, h = (int)bh % a->heads;
        const pf_karg_tensor *part = &a->o_part[0];
        const float x = pf_read(part->address, pf_row_offset(part, b, h, i) + c, a->o_part_type[0]);
        pf_write(a->o.address, pf_row_offset(&a->o, b, h, i) + c * a->o.stride[3], a->o_type, x);
    }
}

/* Two partial results over disjoint keys: one group of lanes a row. A part with L = -inf is not
 * read. */
PF_KERNEL(pf_merge, pf_merge_kargs) {
    const pf_merge_kargs *a = PF_KERNEL_ARGS;
    const pf_i64 row = ((pf_i64)pf_block() * pf_threads() + pf_thread()) / PF_LANES;
    const pf_i64 bh = row / a->queries;
    if (bh >= (pf_i64)a->batch * a->heads)
        return;
    const int i = (int)(row % a->queries), b = (int)(bh / a->heads), h = (int)(bh % a->heads);
    float part_lse[2], weight[2] = {0.f, 0.f}, part_tlse[2] = {0.f, 0.f}, tlse = 0.f;
    for (int p = 0; p < 2; ++p)
        part_lse[p] = row_stat(&a->lse_part[p], b, h, i);
    const float max =
        part_lse[0] > part_lse[1] || part_lse[0] != part_lse[0] ? part_lse[0] : part_lse[1];
    float lse = max;
    if (max != -PF_INFINITY) {
        for (int p = 0; p < 2; ++p)
            weight[p] = pf_exp2((part_lse[p] - max) * PF_LOG2E);
        const float sum = weight[0] + weight[1];
        lse = max + pf_log2(sum) * PF_LN2;
        for (int p = 0; p < 2; ++p) {
            weight[p] /= sum;
            if (weight[p] != 0.f) {
                part_tlse[p] = row_stat(&a->tlse_part[p], b, h, i);
                tlse += weight[p] * part_tlse[p];
            }
        }
    }
    /* Every lane has read L and tL before one writes them: an output may be an input. */
    pf_lane_sync();
    if (pf_lane() == 0) {
        if (a->lse.address)
            ((PF_GLOBAL float *)a->lse.address)[pf_row_offset(&a->lse, b, h, i)] = lse;
        if (a->tlse.address)
            ((PF_GLOBAL float *)a->tlse.address)[pf_row_offset(&a->tlse, b, h, i)] = tlse;
    }
    for (int c = pf_lane(); c < a->dim_v; c += PF_LANES) {
        float o = 0.f, to = 0.f;
        for (int p = 0; p < 2; ++p) {
            if (weight[p] == 0.f)
                continue;
            const pf_karg_tensor *part = &a->o_part[p], *tpart = &a->to_part[p];
            const float x =
                pf_read(part->address, pf_row_offset(part, b, h, i) + c * part->stride[3],
                        a->o_part_type[p]);
            o = pf_fma(weight[p], x, o);
            if (tpart->address)
                to +=
                    weight[p] * pf_fma(part_tlse[p] - tlse, x,
                                       pf_read(tpart->address,
                                               pf_row_offset(tpart, b, h, i) + c * tpart->stride[3],
                                               a->to_part_type[p]));
        }
        if (a->o.address)
            pf_write(a->o.address, pf_row_offset(&a->o, b, h, i) + c * a->o.stride[3], a->o_type,
                     o);
        if (a->to.address)
            pf_write(a->to.address, pf_row_offset(&a->to, b, h, i) + c * a->to.stride[3],
                     a->to_type, to);
    }
}

/* Lanes that share the parts of a channel among them. */
enum { MERGE_LANES = PF_LANES < 8 ? PF_LANES : 8 };

/* What the parts of a row come to: L and tL, and what makes weights of them. */
typedef struct split_row {
    int b, h, i;
    float max;     /* the largest score, 0 where no key is kept */
    float inverse; /* 1 / sum of exp(S - max) over all parts */
    float lse, tlse;
} split_row;

/* The batch of a part. */
PF_DEVICE int split_batch(const pf_merge_kargs *a, const split_row *row, int part) {
    return part * a->batch + row->b;
}

PF_DEVICE float split_stat(const pf_merge_kargs *a, const split_row *row, int part, int stat) {
    const pf_karg_tensor *t = &a->lse_part[0];
    return ((const PF_GLOBAL float *)
                t->address)[pf_row_offset(t, split_batch(a, row, part), row->h, row->i) + stat];
}

/* The share of a part in the sum of exp(S - max); 0 where it keeps no key. */
PF_DEVICE float split_weight(const pf_merge_kargs *a, const split_row *row, int part) {
    const float max = split_stat(a, row, part, PF_PART_MAX);
    return split_stat(a, row, part, PF_PART_SUM) * pf_exp2((max - row->max) * PF_LOG2E);
}

/* Lanes take the parts in turn. A NaN is in the sum of its part, if not in the maximum. */
PF_DEVICE void split_row_join(const pf_merge_kargs *a, split_row *row) {
    const pf_karg_tensor *tlse = &a->tlse_part[0];
    float max = -PF_INFINITY, sum = 0.f, mean = 0.f;
    for (int p = pf_lane(); p < a->splits; p += PF_LANES)
        max = pf_max(max, split_stat(a, row, p, PF_PART_MAX));
    max = pf_lane_max(max);
    row->max = max == -PF_INFINITY ? 0.f : max;
    for (int p = pf_lane(); p < a->splits; p += PF_LANES) {
        const float weight = split_weight(a, row, p);
        sum += weight;
        if (tlse->address)
            mean = pf_fma(weight, row_stat(tlse, split_batch(a, row, p), row->h, row->i), mean);
    }
    sum = pf_lane_sum(sum);
    row->inverse = sum == 0.f ? 0.f : 1.f / sum;
    row->lse = sum == 0.f ? -PF_INFINITY : pf_fma(pf_log2(sum), PF_LN2, row->max);
    row->tlse = pf_lane_sum(mean) * row->inverse;
}

PF_DEVICE void split_read(const pf_karg_tensor *t, int b, const split_row *row, int c, bool vectors,
                          float *x) {
    const pf_i64 at = pf_row_offset(t, b, row->h, row->i) + c;
    if (vectors)
        pf_read_vector(t->address, at, PF_KTYPE_F32, x);
    else
        x[0] = pf_read(t->address, at, PF_KTYPE_F32);
}

/* O and tO at the channels from c on, summed over this lane's parts. */
PF_DEVICE void split_row_sum(const pf_merge_kargs *a, const split_row *row, int c, bool vectors,
                             float *o, float *to) {
    PF_UNROLL for (int n = 0; n < PF_VECTOR; ++n) o[n] = to[n] = 0.f;
    for (int p = pf_lane() % MERGE_LANES; p < a->splits; p += MERGE_LANES) {
        const int b = split_batch(a, row, p);
        const float weight = split_weight(a, row, p) * row->inverse;
        float x[PF_VECTOR] = {0.f}, tx[PF_VECTOR] = {0.f};
        if (split_stat(a, row, p, PF_PART_SUM) == 0.f) /* it keeps no key */
            continue;
        split_read(&a->o_part[0], b, row, c, vectors, x);
        if (a->to.address) {
            const float tlse = row_stat(&a->tlse_part[0], b, row->h, row->i) - row->tlse;
            split_read(&a->to_part[0], b, row, c, vectors, tx);
            PF_UNROLL for (int n = 0; n < PF_VECTOR; ++n) to[n] =
                pf_fma(weight, pf_fma(tlse, x[n], tx[n]), to[n]);
        }
        PF_UNROLL for (int n = 0; n < PF_VECTOR; ++n) o[n] = pf_fma(weight, x[n], o[n]);
    }
}

/* Write a channel, by one of the lanes that share it. */
PF_DEVICE void split_write(const pf_karg_tensor *t, int type, const split_row *row, int c, int turn,
                           float value) {
    if (t->address && pf_lane() % MERGE_LANES == turn % MERGE_LANES)
        pf_write(t->address, pf_row_offset(t, row->b, row->h, row->i) + c * t->stride[3], type,
                 value);
}

/* The parts of a forward whose keys were split, into its results: one group of lanes takes
 * PF_MERGE_CHANNELS channels of a row. */
PF_KERNEL(pf_merge_splits, pf_merge_kargs) {
    const pf_merge_kargs *a = PF_KERNEL_ARGS;
    const bool channels = a->o_part[0].address && a->dim_v > 0;
    const bool vectors = PF_VECTOR > 1 && a->dim_v % PF_VECTOR == 0;
    const int chunks = channels ? PF_CEIL_DIV(a->dim_v, PF_MERGE_CHANNELS) : 1;
    const int width = vectors ? PF_VECTOR : 1, step = PF_LANES / MERGE_LANES * width;
    const pf_i64 index = ((pf_i64)pf_block() * pf_threads() + pf_thread()) / PF_LANES;
    const pf_i64 row_index = index / chunks, bh = row_index / a->queries;
    if (bh >= (pf_i64)a->batch * a->heads)
        return;
    split_row row;
    row.b = (int)(bh / a->heads);
    row.h = (int)(bh % a->heads);
    row.i = (int)(row_index % a->queries);
    split_row_join(a, &row);
    const int c0 = (int)(index % chunks) * PF_MERGE_CHANNELS;
    if (c0 == 0 && pf_lane() == 0) {
        if (a->lse.address)
            ((PF_GLOBAL float *)a->lse.address)[pf_row_offset(&a->lse, row.b, row.h, row.i)] =
                row.lse;
        if (a->tlse.address)
            ((PF_GLOBAL float *)a->tlse.address)[pf_row_offset(&a->tlse, row.b, row.h, row.i)] =
                row.tlse;
    }
    if (!channels)
        return;
    for (int first = c0; first < c0 + PF_MERGE_CHANNELS; first += step) {
        const int c = first + pf_lane() / MERGE_LANES * width;
        float o[PF_VECTOR], to[PF_VECTOR];
        const bool inside = c < pf_min_int(a->dim_v, c0 + PF_MERGE_CHANNELS);
        split_row_sum(a, &row, inside ? c : 0, vectors, o, to);
        PF_UNROLL for (int n = 0; n < PF_VECTOR; ++n) {
            const float sum = pf_lanes_sum(o[n], MERGE_LANES);
            const float tsum = pf_lanes_sum(to[n], MERGE_LANES);
            if (!inside || n >= width)
                continue;
            split_write(&a->o, a->o_type, &row, c + n, n, sum);
            split_write(&a->to, a->to_type, &row, c + n, n, tsum);
        }
    }
}
