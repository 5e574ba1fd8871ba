/* SPDX-License-Identifier: Apache-2.0 */
/* forward and its JVP: one pass over the keys with a running maximum, as in FlashAttention. */

/* Until a row is finished
 *     maximum = max_j S,  total = sum_j e^(S - maximum),  mean = sum_j e^(S - maximum) dt,
 *     sum_e[0] = sum_j e^(S - maximum) v_j,  sum_e[1] = sum_j e^(S - maximum) (dt v_j + tv_j). */
static void begin_rows(scratch *t) {
    for (int i = 0; i < t->rows; i++) {
        t->maximum[i] = -(real)INFINITY;
        t->total[i] = 0;
        t->mean[i] = 0;
    }
    clear(&t->sum_e[0], t->rows);
    clear(&t->sum_e[1], t->rows);
}

static void load_forward_keys(const pf_ref_job *job, scratch *t) {
    const pf_problem *p = job->problem;
    if (t->pairs & PAIR_1) {
        load_key_tensor(job, t, PF_K, p->dim_qk, NULL, &t->k_t[0]);
        load_key_tensor(job, t, PF_TK, p->dim_qk, NULL, &t->tk_t[0]);
    }
    if (t->pairs & PAIR_2) {
        load_key_tensor(job, t, PF_K2, p->dim_qk, NULL, &t->k_t[1]);
        load_key_tensor(job, t, PF_TK2, p->dim_qk, NULL, &t->tk_t[1]);
    }
    load_key_tensor(job, t, PF_V, p->dim_v, &t->v, NULL);
    load_key_tensor(job, t, PF_TV, p->dim_v, &t->tv, NULL);
}

static void rescale(real *row, real factor, size_t count) {
    for (size_t n = 0; n < count; n++) {
        row[n] *= factor;
    }
}

/* Scores become unnormalised probabilities, and what is summed so far follows the new maximum. */
static void exponentiate(scratch *t) {
    for (int i = 0; i < t->rows; i++) {
        real *row = t->score.x + (size_t)i * t->score.ld;
        const real before = t->maximum[i];
        const real here = t->run->row_maximum(row);
        const real maximum = here > before ? here : before;
        /* A row with nothing kept yet must not compute -inf - -inf. */
        const real shift = maximum == -(real)INFINITY ? 0 : maximum;
        const real total = t->run->row_exponential(row, shift);
        if (maximum != before) {
            const real factor = exponential(before - shift);
            t->total[i] *= factor;
            t->mean[i] *= factor;
            rescale(t->sum_e[0].x + (size_t)i * t->sum_e[0].ld, factor, t->sum_e[0].ld);
            rescale(t->sum_e[1].x + (size_t)i * t->sum_e[1].ld, factor, t->sum_e[1].ld);
        }
        t->maximum[i] = maximum;
        t->total[i] += total;
    }
}

/* dt becomes P dt. */
static void weigh_tangents(scratch *t) {
    for (int i = 0; i < t->rows; i++) {
        const real *p = t->score.x + (size_t)i * t->score.ld;
        real *dt = t->dt.x + (size_t)i * t->dt.ld;
        real sum = 0;
        for (int j = 0; j < t->cols; j++) {
            dt[j] *= p[j];
            sum += dt[j];
        }
        t->mean[i] += sum;
    }
}

static void forward_tile(const pf_ref_job *job, scratch *t) {
    const bool tangents = has_score_tangent(job);
    load_forward_keys(job, t);
    compute_scores(job, t);
    exponentiate(t);
    if (tangents) {
        compute_score_tangents(job, t);
        weigh_tangents(t);
        as_operand(job, t, &t->dt);
        accumulate(t, &t->sum_e[1], &t->dt, &t->v, ANY_PAIR, false);
    }
    as_operand(job, t, &t->score);
    accumulate(t, &t->sum_e[0], &t->score, &t->v, ANY_PAIR, false);
    if (present(job, PF_TV)) {
        accumulate(t, &t->sum_e[1], &t->score, &t->tv, ANY_PAIR, false);
    }
}

/* The sums become O, L, tO and tL, in place. */
static void finish_rows(scratch *t) {
    for (int i = 0; i < t->rows; i++) {
        real *o = t->sum_e[0].x + (size_t)i * t->sum_e[0].ld;
        real *to = t->sum_e[1].x + (size_t)i * t->sum_e[1].ld;
        const real total = t->total[i];
        if (total == 0) { /* nothing kept: the sums are 0 already */
            t->lse[i] = -(real)INFINITY;
            t->tlse[i] = 0;
            continue;
        }
        const real mean = t->mean[i] / total;
        for (size_t n = 0; n < t->sum_e[0].ld; n++) {
            o[n] /= total;
            to[n] = to[n] / total - mean * o[n];
        }
        t->lse[i] = t->maximum[i] + logarithm(total);
        t->tlse[i] = mean;
    }
}

static void store_rows(const pf_ref_job *job, const scratch *t, pf_tensor_id id, const block *from,
                       int64_t dim, real factor) {
    if (present(job, id)) {
        store(look(&job->problem->tensor[id], t->b, t->h, t->i0, t->rows, 0, dim), from, factor);
    }
}

static void forward_task(const pf_ref_job *job, scratch *t, int64_t task) {
    const pf_problem *p = job->problem;
    const int64_t blocks = block_count(p->queries, ROWS);
    t->i0 = task % blocks * ROWS;
    t->h = task / blocks % p->heads;
    t->b = task / blocks / p->heads;
    t->rows = clip(t->i0, p->queries, ROWS);
    load_queries(job, t);
    begin_rows(t);
    for (t->j0 = 0; t->j0 < p->keys; t->j0 += KEYS) {
        t->cols = clip(t->j0, p->keys, KEYS);
        if (beyond_causal(p, t)) {
            break;
        }
        if (find_kept(job, t, NULL)) {
            forward_tile(job, t);
        }
    }
    finish_rows(t);
    store_rows(job, t, PF_O, &t->sum_e[0], p->dim_v, 1);
    store_rows(job, t, PF_TO, &t->sum_e[1], p->dim_v, 1);
    if (present(job, PF_LSE)) {
        store_column(&p->tensor[PF_LSE], t, t->lse);
    }
    if (present(job, PF_TLSE)) {
        store_column(&p->tensor[PF_TLSE], t, t->tlse);
    }
}

static void forward(const pf_ref_job *job) {
    const pf_problem *p = job->problem;
    for_each_task(job, p->batch * p->heads * block_count(p->queries, ROWS), forward_task);
}
