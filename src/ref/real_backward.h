/* SPDX-License-Identifier: Apache-2.0 */
/* backward and its JVP. Three passes, each computing its tiles anew, so that every output element
 * is summed by one task in one order: dq by blocks of queries, dk and dv by blocks of keys, and
 * dbias by blocks of its own shape. Below, a gradient is the tangent of the gradient where the
 * operation is backward_jvp. */

static bool is_jvp(const pf_ref_job *job) {
    return job->problem->operation == PF_BACKWARD_JVP;
}

/* ---- Per query: L, delta - dL and their tangents ---- */

static void load_lse(const pf_ref_job *job, scratch *t) {
    load_column(t->lse, &job->problem->tensor[PF_LSE], t);
}

static real dot(const real *a, const real *b, size_t count) {
    real lane[8] = {0}, sum = 0;
    for (size_t n = 0; n < count; n += 8) { /* rows are padded with zeros to a multiple of 8 */
        for (int l = 0; l < 8; l++) {
            lane[l] += a[n + l] * b[n + l];
        }
    }
    for (int l = 0; l < 8; l++) {
        sum += lane[l];
    }
    return sum;
}

/* to_i += <a_i, b_i>. */
static void add_row_dots(real *to, const scratch *t, const block *a, const block *b) {
    for (int i = 0; i < t->rows; i++) {
        to[i] += dot(a->x + (size_t)i * a->ld, b->x + (size_t)i * b->ld, a->ld);
    }
}

static view rows_of(const pf_ref_job *job, const scratch *t, pf_tensor_id id) {
    const pf_problem *p = job->problem;
    return look(&p->tensor[id], t->b, t->h, t->i0, t->rows, 0, p->dim_v);
}

/* shift = delta - dL with delta = <dO, O>; tdelta = <tdO, O> + <dO, tO>. Leaves dO and tdO loaded
 * as operands. Delta is no matrix product: it takes dO unflushed. */
static void load_cotangents(const pf_ref_job *job, scratch *t, block *spare) {
    const pf_problem *p = job->problem;
    memset(t->shift, 0, ROWS * sizeof(real));
    memset(t->tdelta, 0, ROWS * sizeof(real));
    load(&t->dout, rows_of(job, t, PF_DOUT));
    load(spare, rows_of(job, t, PF_O));
    add_row_dots(t->shift, t, &t->dout, spare);
    if (is_jvp(job)) {
        if (present(job, PF_TDOUT)) {
            load(&t->tdout, rows_of(job, t, PF_TDOUT));
            add_row_dots(t->tdelta, t, &t->tdout, spare);
            make_operand(job, &t->tdout, t->rows);
        }
        load(spare, rows_of(job, t, PF_TO));
        add_row_dots(t->tdelta, t, &t->dout, spare);
        load_column(t->tlse, &p->tensor[PF_TLSE], t);
    }
    make_operand(job, &t->dout, t->rows);
    if (present(job, PF_DLSE)) {
        load_column(t->total, &p->tensor[PF_DLSE], t);
        for (int i = 0; i < t->rows; i++) {
            t->shift[i] -= t->total[i];
        }
    }
}

static void load_backward_keys(const pf_ref_job *job, scratch *t, int pairs, bool rows_too) {
    static const pf_tensor_id k[2] = {PF_K, PF_K2}, tk[2] = {PF_TK, PF_TK2};
    const pf_problem *p = job->problem;
    for (int pair = 0; pair < 2; pair++) {
        if (pairs & (PAIR_1 << pair)) {
            load_key_tensor(job, t, k[pair], p->dim_qk, rows_too ? &t->k[pair] : NULL,
                            &t->k_t[pair]);
            load_key_tensor(job, t, tk[pair], p->dim_qk, rows_too ? &t->tk[pair] : NULL,
                            &t->tk_t[pair]);
        }
    }
    load_key_tensor(job, t, PF_V, p->dim_v, NULL, &t->v_t);
    load_key_tensor(job, t, PF_TV, p->dim_v, NULL, &t->tv_t);
}

/* ---- The tile ---- */

/* score = P = e^(S - L), 0 where not kept whatever L is. */
static void compute_probabilities(const pf_ref_job *job, scratch *t) {
    compute_scores(job, t);
    for (int i = 0; i < t->rows; i++) {
        const unsigned char *keep = t->keep + (size_t)i * KEYS;
        real *row = t->score.x + (size_t)i * t->score.ld;
        t->run->row_exponential(row, t->lse[i]);
        for (int j = 0; j < KEYS; j++) {
            row[j] = keep[j] ? row[j] : 0;
        }
    }
}

/* grad = dP_ij = <dO_i, v_j>, and tgrad = tdP. */
static void compute_probability_gradients(const pf_ref_job *job, scratch *t) {
    const int64_t dim = job->problem->dim_v;
    clear(&t->grad, t->rows);
    add_dots(t, &t->grad, &t->dout, &t->v_t, dim);
    if (is_jvp(job)) {
        clear(&t->tgrad, t->rows);
        if (present(job, PF_TDOUT)) {
            add_dots(t, &t->tgrad, &t->tdout, &t->v_t, dim);
        }
        if (present(job, PF_TV)) {
            add_dots(t, &t->tgrad, &t->dout, &t->tv_t, dim);
        }
    }
}

/* grad becomes dS = P (dP - delta + dL). */
static void compute_score_gradients(scratch *t) {
    for (int i = 0; i < t->rows; i++) {
        const unsigned char *keep = t->keep + (size_t)i * KEYS;
        const real *p = t->score.x + (size_t)i * t->score.ld;
        real *grad = t->grad.x + (size_t)i * t->grad.ld;
        const real shift = t->shift[i];
        for (int j = 0; j < KEYS; j++) {
            grad[j] = keep[j] ? p[j] * (grad[j] - shift) : 0;
        }
    }
}

/* dt becomes tP = P (dt - tL), tgrad becomes tdS = tP (dP - delta + dL) + P (tdP - tdelta), and
 * grad becomes dS. */
static void compute_tangents_of_gradients(scratch *t) {
    for (int i = 0; i < t->rows; i++) {
        const unsigned char *keep = t->keep + (size_t)i * KEYS;
        const real *p = t->score.x + (size_t)i * t->score.ld;
        real *grad = t->grad.x + (size_t)i * t->grad.ld;
        real *tgrad = t->tgrad.x + (size_t)i * t->tgrad.ld;
        real *tp = t->dt.x + (size_t)i * t->dt.ld;
        const real shift = t->shift[i], tdelta = t->tdelta[i], tlse = t->tlse[i];
        for (int j = 0; j < KEYS; j++) {
            const real tangent = p[j] * (tp[j] - tlse);
            const real centred = grad[j] - shift;
            tp[j] = keep[j] ? tangent : 0;
            tgrad[j] = keep[j] ? tangent * centred + p[j] * (tgrad[j] - tdelta) : 0;
            grad[j] = keep[j] ? p[j] * centred : 0;
        }
    }
}

/* score = P, grad = dS and in backward_jvp dt = tP, tgrad = tdS, each 0 where not kept. */
static void gradient_tile(const pf_ref_job *job, scratch *t) {
    compute_probabilities(job, t);
    if (is_jvp(job)) {
        compute_score_tangents(job, t);
    }
    compute_probability_gradients(job, t);
    if (is_jvp(job)) {
        compute_tangents_of_gradients(t);
    } else {
        compute_score_gradients(t);
    }
}

/* ---- The three passes ---- */

/* The output of a pass: the gradient, or in backward_jvp its tangent. */
static pf_tensor_id output(const pf_ref_job *job, pf_tensor_id gradient) {
    return is_jvp(job) ? (pf_tensor_id)(gradient - PF_DQ + PF_TDQ) : gradient;
}

static bool wanted(const pf_ref_job *job, pf_tensor_id gradient) {
    return present(job, output(job, gradient));
}

static real scale_of(const pf_ref_job *job) {
    return (real)job->problem->alpha;
}

static void query_tile(const pf_ref_job *job, scratch *t) {
    static const pf_tensor_id tk[2] = {PF_TK, PF_TK2};
    load_backward_keys(job, t, t->pairs, true);
    gradient_tile(job, t);
    as_operand(job, t, &t->grad);
    if (is_jvp(job)) {
        as_operand(job, t, &t->tgrad);
    }
    for (int pair = 0; pair < 2; pair++) {
        const block *on_keys = is_jvp(job) ? &t->tgrad : &t->grad;
        accumulate(t, &t->sum_d[pair], on_keys, &t->k[pair], PAIR_1 << pair, false);
        if (is_jvp(job) && present(job, tk[pair])) {
            accumulate(t, &t->sum_d[pair], &t->grad, &t->tk[pair], PAIR_1 << pair, false);
        }
    }
}

static void query_task(const pf_ref_job *job, scratch *t, int64_t task) {
    const pf_problem *p = job->problem;
    const int64_t blocks = block_count(p->queries, ROWS);
    t->i0 = task % blocks * ROWS;
    t->h = task / blocks % p->heads;
    t->b = task / blocks / p->heads;
    t->rows = clip(t->i0, p->queries, ROWS);
    load_queries(job, t);
    load_lse(job, t);
    load_cotangents(job, t, &t->sum_e[0]);
    clear(&t->sum_d[0], t->rows);
    clear(&t->sum_d[1], t->rows);
    for (t->j0 = 0; t->j0 < p->keys; t->j0 += KEYS) {
        t->cols = clip(t->j0, p->keys, KEYS);
        if (beyond_causal(p, t)) {
            break;
        }
        if (find_kept(job, t, t->lse)) {
            query_tile(job, t);
        }
    }
    store_rows(job, t, output(job, PF_DQ), &t->sum_d[0], p->dim_qk, scale_of(job));
    store_rows(job, t, output(job, PF_DQ2), &t->sum_d[1], p->dim_qk, scale_of(job));
}

static void key_tile(const pf_ref_job *job, scratch *t) {
    static const pf_tensor_id tq[2] = {PF_TQ, PF_TQ2};
    const bool jvp = is_jvp(job);
    block *const p = &t->score, *const tp = &t->dt;
    gradient_tile(job, t);
    as_operand(job, t, p);
    as_operand(job, t, &t->grad);
    if (jvp) {
        as_operand(job, t, tp);
        as_operand(job, t, &t->tgrad);
    }
    for (int pair = 0; pair < 2; pair++) {
        const block *on_queries = jvp ? &t->tgrad : &t->grad;
        accumulate(t, &t->sum_d[pair], on_queries, &t->q[pair], PAIR_1 << pair, true);
        if (jvp && present(job, tq[pair])) {
            accumulate(t, &t->sum_d[pair], &t->grad, &t->tq[pair], PAIR_1 << pair, true);
        }
    }
    accumulate(t, &t->sum_e[0], jvp ? tp : p, &t->dout, ANY_PAIR, true);
    if (jvp && present(job, PF_TDOUT)) {
        accumulate(t, &t->sum_e[0], p, &t->tdout, ANY_PAIR, true);
    }
}

/* All queries of one head against the keys that are loaded. */
static void key_head(const pf_ref_job *job, scratch *t) {
    const pf_problem *p = job->problem;
    for (t->i0 = 0; t->i0 < p->queries; t->i0 += ROWS) {
        t->rows = clip(t->i0, p->queries, ROWS);
        if (beyond_causal(p, t)) {
            continue;
        }
        load_lse(job, t);
        if (find_kept(job, t, t->lse)) {
            load_queries(job, t);
            load_cotangents(job, t, &t->sum_e[1]);
            key_tile(job, t);
        }
    }
}

static void store_keys(const pf_ref_job *job, const scratch *t, pf_tensor_id gradient,
                       const block *from, int64_t dim, real factor) {
    const pf_problem *p = job->problem;
    if (wanted(job, gradient)) {
        store(
            look(&p->tensor[output(job, gradient)], t->b, kv_head(p, t->h), t->j0, t->cols, 0, dim),
            from, factor);
    }
}

static void key_task(const pf_ref_job *job, scratch *t, int64_t task) {
    const pf_problem *p = job->problem;
    const int64_t blocks = block_count(p->keys, KEYS);
    const int64_t group = p->heads / p->kv_heads;
    const int64_t first = task / blocks % p->kv_heads * group;
    t->j0 = task % blocks * KEYS;
    t->b = task / blocks / p->kv_heads;
    t->h = first;
    t->cols = clip(t->j0, p->keys, KEYS);
    load_backward_keys(job, t, ANY_PAIR, false);
    clear(&t->sum_d[0], t->cols);
    clear(&t->sum_d[1], t->cols);
    clear(&t->sum_e[0], t->cols);
    for (int64_t n = 0; n < group; n++) {
        t->h = first + n;
        key_head(job, t);
    }
    t->h = first;
    store_keys(job, t, PF_DK, &t->sum_d[0], p->dim_qk, scale_of(job));
    store_keys(job, t, PF_DK2, &t->sum_d[1], p->dim_qk, scale_of(job));
    store_keys(job, t, PF_DV, &t->sum_e[0], p->dim_v, 1);
}

/* The part of one dimension that an element of dbias, or a block of them, is a sum over: all of it
 * where the bias is broadcast, else one block. */
typedef struct range {
    int64_t begin, end;
} range;

static int64_t range_count(bool broadcast, int64_t extent, int64_t size) {
    return broadcast ? 1 : block_count(extent, size);
}

static range range_of(bool broadcast, int64_t index, int64_t extent, int64_t size) {
    if (broadcast) {
        return (range){0, extent};
    }
    return (range){index * size, index * size + clip(index * size, extent, size)};
}

/* Add the tile to the sums, over its rows or columns where dbias is broadcast along them. The tile
 * is summed by itself first, which keeps long sums accurate. Changes t->other. */
static void add_to_bias(scratch *t, const block *tile, bool one_row, bool one_column) {
    const int sums = one_row ? 1 : t->rows;
    clear(&t->other, sums);
    for (int i = 0; i < t->rows; i++) {
        const real *row = tile->x + (size_t)i * tile->ld;
        real *to = t->other.x + (one_row ? 0 : (size_t)i * t->other.ld);
        if (one_column) {
            for (int j = 0; j < t->cols; j++) {
                to[0] += row[j];
            }
        } else {
            add_scaled(to, row, 1, KEYS);
        }
    }
    add_scaled(t->sum_bias.x, t->other.x, 1, (size_t)sums * t->other.ld);
}

/* One batch and head of a block of dbias. */
static void bias_head(const pf_ref_job *job, scratch *t, range queries, range keys) {
    const pf_problem *p = job->problem;
    const int64_t *shape = p->tensor[PF_BIAS].shape;
    for (t->i0 = queries.begin; t->i0 < queries.end; t->i0 += ROWS) {
        t->rows = clip(t->i0, queries.end, ROWS);
        t->j0 = keys.begin;
        if (beyond_causal(p, t)) {
            continue;
        }
        load_lse(job, t);
        load_queries(job, t);
        load_cotangents(job, t, &t->sum_e[1]);
        for (; t->j0 < keys.end; t->j0 += KEYS) {
            t->cols = clip(t->j0, keys.end, KEYS);
            if (beyond_causal(p, t)) {
                break;
            }
            if (find_kept(job, t, t->lse)) {
                load_backward_keys(job, t, t->pairs, false);
                gradient_tile(job, t);
                add_to_bias(t, is_jvp(job) ? &t->tgrad : &t->grad, shape[2] == 1, shape[3] == 1);
            }
        }
    }
}

static void bias_task(const pf_ref_job *job, scratch *t, int64_t task) {
    const pf_problem *p = job->problem;
    const pfattn_tensor *to = &p->tensor[output(job, PF_DBIAS)];
    const int64_t *shape = to->shape;
    const int64_t row_blocks = range_count(shape[2] == 1, p->queries, ROWS);
    const int64_t col_blocks = range_count(shape[3] == 1, p->keys, KEYS);
    const int64_t head = task / col_blocks / row_blocks;
    const range keys = range_of(shape[3] == 1, task % col_blocks, p->keys, KEYS);
    const range queries = range_of(shape[2] == 1, task / col_blocks % row_blocks, p->queries, ROWS);
    const range heads = range_of(shape[1] == 1, head % shape[1], p->heads, 1);
    const range batches = range_of(shape[0] == 1, head / shape[1], p->batch, 1);
    clear(&t->sum_bias, ROWS);
    for (t->b = batches.begin; t->b < batches.end; t->b++) {
        for (t->h = heads.begin; t->h < heads.end; t->h++) {
            bias_head(job, t, queries, keys);
        }
    }
    const bool one_row = shape[2] == 1, one_column = shape[3] == 1;
    store(look(to, shape[0] == 1 ? 0 : batches.begin, shape[1] == 1 ? 0 : heads.begin,
               one_row ? 0 : queries.begin, one_row ? 1 : queries.end - queries.begin,
               one_column ? 0 : keys.begin, one_column ? 1 : keys.end - keys.begin),
          &t->sum_bias, 1);
}

static void backward(const pf_ref_job *job) {
    const pf_problem *p = job->problem;
    if (wanted(job, PF_DQ) || wanted(job, PF_DQ2)) {
        for_each_task(job, p->batch * p->heads * block_count(p->queries, ROWS), query_task);
    }
    if (wanted(job, PF_DK) || wanted(job, PF_DV) || wanted(job, PF_DK2)) {
        for_each_task(job, p->batch * p->kv_heads * block_count(p->keys, KEYS), key_task);
    }
    if (wanted(job, PF_DBIAS)) {
        const int64_t *shape = p->tensor[output(job, PF_DBIAS)].shape;
        for_each_task(job,
                      shape[0] * shape[1] * range_count(shape[2] == 1, p->queries, ROWS) *
                          range_count(shape[3] == 1, p->keys, KEYS),
                      bias_task);
    }
}
