/* SPDX-License-Identifier: Apache-2.0 */
/* The small passes around the attention kernels, and merge. Element types are read at run time. */
#include "split.h"

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

/* Vectors of a tensor that a thread of pf_backward_pre reads at once. */
enum { ROW_VECTORS = 2 };

/* How its rows are shared out: `lanes` threads to a row, which read vectors where all tensors take
 * them. */
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
    sharing.lanes = 1;
    while (sharing.lanes < PF_LANES && sharing.lanes * ROW_VECTORS * PF_VECTOR < a->dim_v)
        sharing.lanes *= 2;
    return sharing;
}

/* A row of a tensor; offset of its channel 0. */
typedef struct tensor_row {
    const pf_karg_tensor *t;
    int type;
    pf_i64 at;
} tensor_row;

PF_DEVICE tensor_row tensor_row_of(const pf_karg_tensor *t, int type, int b, int h, int i) {
    const tensor_row row = {t, type, pf_row_offset(t, b, h, i)};
    return row;
}

/* sum_c x_c y_c, over the lanes of the row. */
PF_DEVICE float row_dot(const row_sharing *sharing, tensor_row x, tensor_row y, int channels) {
    const int lane = pf_lane() % sharing->lanes;
    float sum = 0.f;
    if (!x.t->address || !y.t->address)
        return 0.f;
    if (!sharing->vectors) {
        for (int c = lane; c < channels; c += sharing->lanes)
            sum = pf_fma(pf_read(x.t->address, x.at + c * x.t->stride[3], x.type),
                         pf_read(y.t->address, y.at + c * y.t->stride[3], y.type), sum);
        return pf_lanes_sum(sum, sharing->lanes);
    }
    const int step = sharing->lanes * PF_VECTOR;
    for (int first = lane * PF_VECTOR; first < channels; first += ROW_VECTORS * step) {
        pf_vector u[ROW_VECTORS] = {}, v[ROW_VECTORS] = {};
        PF_UNROLL for (int n = 0; n < ROW_VECTORS; ++n) {
            if (first + n * step < channels) {
                u[n] = pf_load_vector(x.t->address, x.at + first + n * step, x.type);
                v[n] = pf_load_vector(y.t->address, y.at + first + n * step, y.type);
            }
        }
        PF_UNROLL for (int n = 0; n < ROW_VECTORS; ++n) {
            float p[PF_VECTOR], q[PF_VECTOR];
            pf_vector_floats(&u[n], x.type, p);
            pf_vector_floats(&v[n], y.type, q);
            PF_UNROLL for (int c = 0; c < PF_VECTOR; ++c) sum = pf_fma(p[c], q[c], sum);
        }
    }
    return pf_lanes_sum(sum, sharing->lanes);
}

PF_DEVICE float row_stat(const pf_karg_tensor *t, int b, int h, int i) {
    return t->address ? ((const PF_GLOBAL float *)t->address)[pf_row_offset(t, b, h, i)] : 0.f;
}

/* PF_PRE_ROWS of a head's rows, of which dO and tdO have one type, O the other. Lanes whose row is
 * past the end read the last one, since all of a warp or wave sum together. */
PF_DEVICE void backward_pre_rows(const pf_attention_kargs *a, row_sharing sharing, int type,
                                 int o_type, bool tangent) {
    const pf_i64 padded = a->queries_padded;
    const int blocks = PF_CEIL_DIV(a->queries_padded, PF_PRE_ROWS), bh = pf_block() / blocks;
    const int b = bh / a->heads, h = bh % a->heads, i0 = pf_block() % blocks * PF_PRE_ROWS;
    const int end = pf_min_int(i0 + PF_PRE_ROWS, a->queries_padded);
    PF_GLOBAL float *stats = (PF_GLOBAL float *)a->query_stats + bh * PF_STATS * padded;
    PF_GLOBAL unsigned char *lives = (PF_GLOBAL unsigned char *)a->query_live + bh * padded;
    for (int i = i0 + pf_thread() / sharing.lanes; i < end; i += pf_threads() / sharing.lanes) {
        const int row = pf_min_int(i, a->queries - 1);
        const tensor_row dout = tensor_row_of(&a->operand[PF_OPERAND_DOUT], type, b, h, row);
        const tensor_row o = tensor_row_of(&a->o, o_type, b, h, row);
        const float lse = row_stat(&a->lse, b, h, row);
        const float delta = row_dot(&sharing, dout, o, a->dim_v) - row_stat(&a->dlse, b, h, row);
        float tlse = 0.f, tdelta = 0.f;
        if (tangent) {
            const tensor_row tdout = tensor_row_of(&a->operand[PF_OPERAND_TDOUT], type, b, h, row);
            const tensor_row to = tensor_row_of(&a->to, a->to_type, b, h, row);
            tdelta = row_dot(&sharing, tdout, o, a->dim_v) + row_dot(&sharing, dout, to, a->dim_v);
            tlse = row_stat(&a->tlse, b, h, row);
        }
        const bool live = i < a->queries && lse != -PF_INFINITY;
        if (pf_lane() % sharing.lanes == 0) {
            stats[PF_STAT_LSE * padded + i] = live ? lse * a->lse_unit : PF_INFINITY;
            stats[PF_STAT_DELTA * padded + i] = live ? delta : 0.f;
            if (tangent) {
                stats[PF_STAT_TLSE * padded + i] = live ? tlse : 0.f;
                stats[PF_STAT_TDELTA * padded + i] = live ? tdelta : 0.f;
            }
            lives[i] = live;
        }
    }
}

/* The sums of dq begin at 0. All workgroups clear them together. */
PF_DEVICE void clear_sums(const pf_attention_kargs *a) {
    const pf_i64 all = (pf_i64)a->work_count * pf_threads();
    for (pf_i64 n = (pf_i64)pf_block() * pf_threads() + pf_thread(); n < a->zeroed_words; n += all)
        ((PF_GLOBAL unsigned long long *)a->zeroed)[n] = 0;
}

/* query_stats and query_live, rows past the end included. The usual types have code of their own.
 */
PF_KERNEL(pf_backward_pre, pf_attention_kargs) {
    const pf_attention_kargs *a = PF_KERNEL_ARGS;
    const row_sharing sharing = row_sharing_of(a), wide = {true, sharing.lanes};
    const int type = a->element_type, o_type = a->o_type;
    if (sharing.vectors && type == PF_KTYPE_F16 && o_type == PF_KTYPE_F16)
        backward_pre_rows(a, wide, PF_KTYPE_F16, PF_KTYPE_F16, false);
    else if (sharing.vectors && type == PF_KTYPE_BF16 && o_type == PF_KTYPE_BF16)
        backward_pre_rows(a, wide, PF_KTYPE_BF16, PF_KTYPE_BF16, false);
    else
        backward_pre_rows(a, sharing, type, o_type, false);
    clear_sums(a);
}

PF_KERNEL(pf_backward_pre_jvp, pf_attention_kargs) {
    const pf_attention_kargs *a = PF_KERNEL_ARGS;
    backward_pre_rows(a, row_sharing_of(a), a->element_type, a->o_type, true);
    clear_sums(a);
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

/* Lanes that share the parts of a channel among them, where these are many. */
enum { MERGE_LANES = PF_LANES < PF_MERGE_LANES ? PF_LANES : PF_MERGE_LANES };

/* A row of an item that was split. */
typedef struct split_row {
    int b, h, i, channel0;
    pf_part_span parts;
    int row; /* in each part */
} split_row;

/* Parts of the row joined so far: their largest score, and relative to it sums of exp(S - max), and
 * of that times tL, O and tO + tL O at some channels. */
typedef struct split_sum {
    float max, sum, mean;
    float o[PF_VECTOR], to[PF_VECTOR];
} split_sum;

/* False past the last row. */
PF_DEVICE bool split_row_find(const pf_attention_kargs *a, int index, split_row *row) {
    const pf_key_split *split = &a->split;
    const int number = pf_quotient(index, &split->by_rows);
    if (number >= split->items)
        return false;
    const pf_item item = pf_item_at(a, split->first + number, split->by_rows.value, split->channels,
                                    split->channel_parts);
    row->b = item.b;
    row->h = item.h;
    row->channel0 = item.channel0;
    row->row = index - number * split->by_rows.value;
    row->i = item.i0 + row->row;
    row->parts = pf_parts_of(a, number);
    return row->i < item.i1;
}

/* Where the row begins in a part. */
PF_DEVICE pf_i64 split_offset(const pf_karg_tensor *t, const split_row *row, int part) {
    return pf_row_offset(t, row->parts.first + part, 0, row->row);
}

/* 0 where it is not there. */
PF_DEVICE float split_stat(const pf_karg_tensor *t, const split_row *row, int part, int stat) {
    return t->address ? ((const PF_GLOBAL float *)t->address)[split_offset(t, row, part) + stat]
                      : 0.f;
}

PF_DEVICE void split_scale(split_sum *s, float max) {
    const float offset = max == -PF_INFINITY ? 0.f : max; /* no key kept yet */
    const float scale = pf_exp2((s->max - offset) * PF_LOG2E);
    s->max = max;
    s->sum *= scale;
    s->mean *= scale;
    PF_UNROLL for (int n = 0; n < PF_VECTOR; ++n) {
        s->o[n] *= scale;
        s->to[n] *= scale;
    }
}

/* Join every lanes-th part from `first` on. Several are read at once, in what would be the time of
 * one. A NaN is in the sum of its part, if not in the maximum; one that keeps no key has sum 0, and
 * anything may stand for its O. */
PF_DEVICE void split_join(const pf_attention_kargs *a, const split_row *row, int first, int lanes,
                          int c, bool tangent, split_sum *s) {
    enum { AT_ONCE = 3 };
    const pf_key_split *split = &a->split;
    const int last = row->parts.count - 1;
    for (; first <= last; first += AT_ONCE * lanes) {
        float max[AT_ONCE], sum[AT_ONCE], tlse[AT_ONCE];
        float x[AT_ONCE][PF_VECTOR] = {}, tx[AT_ONCE][PF_VECTOR] = {};
        float most = s->max;
        PF_UNROLL for (int n = 0; n < AT_ONCE; ++n) {
            const int part = pf_min_int(first + n * lanes, last);
            max[n] = split_stat(&split->lse, row, part, PF_PART_MAX);
            sum[n] = split_stat(&split->lse, row, part, PF_PART_SUM);
            sum[n] = first + n * lanes <= last ? sum[n] : 0.f;
            tlse[n] = tangent ? split_stat(&split->tlse, row, part, 0) : 0.f;
            const pf_i64 at = split_offset(&split->o, row, part) + c;
            if (split->o.address)
                pf_read_vector(split->o.address, at, PF_KTYPE_F32, x[n]);
            if (tangent && split->to.address)
                pf_read_vector(split->to.address, at, PF_KTYPE_F32, tx[n]);
            most = pf_max(most, max[n]);
        }
        split_scale(s, most);
        PF_UNROLL for (int n = 0; n < AT_ONCE; ++n) {
            if (sum[n] == 0.f)
                continue;
            const float weight = sum[n] * pf_exp2((max[n] - most) * PF_LOG2E);
            s->sum += weight;
            s->mean = pf_fma(weight, tlse[n], s->mean);
            PF_UNROLL for (int i = 0; i < PF_VECTOR; ++i) {
                s->o[i] = pf_fma(weight, x[n][i], s->o[i]);
                if (tangent)
                    s->to[i] = pf_fma(weight, pf_fma(tlse[n], x[n][i], tx[n][i]), s->to[i]);
            }
        }
    }
}

/* Sum what lanes have of the same channels. */
PF_DEVICE void split_join_lanes(bool tangent, split_sum *s) {
    split_scale(s, pf_lane_max(s->max));
    s->sum = pf_lanes_sum(s->sum, MERGE_LANES);
    PF_UNROLL for (int n = 0; n < PF_VECTOR; ++n) s->o[n] = pf_lanes_sum(s->o[n], MERGE_LANES);
    if (!tangent)
        return;
    s->mean = pf_lanes_sum(s->mean, MERGE_LANES);
    PF_UNROLL for (int n = 0; n < PF_VECTOR; ++n) s->to[n] = pf_lanes_sum(s->to[n], MERGE_LANES);
}

/* Divide by the sum, and write L, tL and channels from c on, before `end`. */
PF_DEVICE void split_finish(const pf_attention_kargs *a, const split_row *row, int c, int end,
                            bool tangent, split_sum *s) {
    const float inverse = s->sum == 0.f ? 0.f : 1.f / s->sum, tlse = s->mean * inverse;
    if (c == 0 && a->lse.address)
        ((PF_GLOBAL float *)a->lse.address)[pf_row_offset(&a->lse, row->b, row->h, row->i)] =
            s->sum == 0.f ? -PF_INFINITY : pf_fma(pf_log2(s->sum), PF_LN2, s->max);
    if (tangent && c == 0 && a->tlse.address)
        ((PF_GLOBAL float *)a->tlse.address)[pf_row_offset(&a->tlse, row->b, row->h, row->i)] =
            tlse;
    PF_UNROLL for (int n = 0; n < PF_VECTOR; ++n) {
        s->o[n] *= inverse;
        s->to[n] = pf_fma(-tlse, s->o[n], s->to[n] * inverse);
    }
    pf_write_vector(&a->o, a->o_type, row->b, row->h, row->i, c, end, s->o);
    if (tangent)
        pf_write_vector(&a->to, a->to_type, row->b, row->h, row->i, c, end, s->to);
}

/* A thread takes PF_MERGE_RUN channels of a row, or, where parts are many, a group of lanes
 * PF_MERGE_CHANNELS. */
PF_DEVICE void merge_splits(const pf_attention_kargs *a, bool tangent) {
    const bool many = a->split.many_parts;
    const int lanes = many ? MERGE_LANES : 1, run = many ? PF_MERGE_CHANNELS : PF_MERGE_RUN;
    const int thread = pf_block() * pf_threads() + pf_thread();
    const int chunks = PF_CEIL_DIV(a->split.channels, run),
              index = many ? thread / PF_LANES : thread;
    const int lane = many ? pf_lane() : 0;
    split_row row;
    if (!split_row_find(a, index / chunks, &row))
        return;
    const int begin = row.channel0 + index % chunks * run;
    const int end = pf_min_int(a->dim_v, begin + run);
    const int step = many ? PF_LANES / MERGE_LANES * PF_VECTOR : PF_VECTOR;
    for (int first = begin; first < end || first == 0; first += step) {
        const int c = first + lane / lanes * PF_VECTOR;
        split_sum s = {-PF_INFINITY, 0.f, 0.f, {}, {}};
        split_join(a, &row, lane % lanes, lanes, c < end ? c : 0, tangent, &s);
        if (many)
            split_join_lanes(tangent, &s);
        if (lane % lanes == 0)
            split_finish(a, &row, c, end, tangent, &s);
    }
}

/* The parts of items that forward split by keys, into its results. */
PF_KERNEL(pf_merge_splits, pf_attention_kargs) {
    merge_splits(PF_KERNEL_ARGS, false);
}

PF_KERNEL(pf_merge_splits_jvp, pf_attention_kargs) {
    merge_splits(PF_KERNEL_ARGS, true);
}
