/* SPDX-License-Identifier: Apache-2.0 */
/* merge: two partial results over disjoint keys. An output may be one of the inputs, so each
 * element is read whole before it is written. */

static const pf_tensor_id part_o[2] = {PF_O0, PF_O1}, part_lse[2] = {PF_LSE0, PF_LSE1},
                          part_to[2] = {PF_TO0, PF_TO1}, part_tlse[2] = {PF_TLSE0, PF_TLSE1};

static real row_value(const pf_ref_job *job, const scratch *t, pf_tensor_id id, int64_t channel) {
    const view x = look(&job->problem->tensor[id], t->b, t->h, t->i0, 1, channel, 1);
    return (real)pf_load(x.data, x.dtype, 0);
}

static void set_row_value(const pf_ref_job *job, const scratch *t, pf_tensor_id id, int64_t channel,
                          real value) {
    if (present(job, id)) {
        const view x = look(&job->problem->tensor[id], t->b, t->h, t->i0, 1, channel, 1);
        pf_store(x.data, x.dtype, 0, (double)value);
    }
}

/* weight_p = e^(L_p - L); returns L. A part with L = -inf has weight 0; NaN spreads to both. */
static real merge_weights(const real lse[2], real weight[2]) {
    const real empty = -(real)INFINITY;
    if (lse[0] == empty && lse[1] == empty) {
        weight[0] = weight[1] = 0;
        return empty;
    }
    const real larger = lse[1] > lse[0] ? lse[1] : lse[0];
    weight[0] = exponential(lse[0] - larger);
    weight[1] = exponential(lse[1] - larger);
    const real total = weight[0] + weight[1];
    weight[0] /= total;
    weight[1] /= total;
    return larger + logarithm(total);
}

/* tL - tL_p enters the tangent of channel n; parts of weight 0 are never read. */
static void merge_channel(const pf_ref_job *job, const scratch *t, int64_t n, const real lse[2],
                          const real weight[2], const real tlse[2], real tl) {
    const bool tangents = present(job, PF_TO0);
    real o = 0, to = 0;
    for (int part = 0; part < 2; part++) {
        if (lse[part] == -(real)INFINITY) {
            continue;
        }
        const real value = row_value(job, t, part_o[part], n);
        o += weight[part] * value;
        if (tangents) {
            to += weight[part] * (row_value(job, t, part_to[part], n) + (tlse[part] - tl) * value);
        }
    }
    set_row_value(job, t, PF_O, n, o);
    set_row_value(job, t, PF_TO, n, to);
}

static void merge_row(const pf_ref_job *job, const scratch *t) {
    real lse[2], weight[2], tlse[2] = {0}, tl = 0;
    for (int part = 0; part < 2; part++) {
        lse[part] = row_value(job, t, part_lse[part], 0);
    }
    const real l = merge_weights(lse, weight);
    if (present(job, PF_TO0)) {
        for (int part = 0; part < 2; part++) {
            if (lse[part] != -(real)INFINITY) {
                tlse[part] = row_value(job, t, part_tlse[part], 0);
                tl += weight[part] * tlse[part];
            }
        }
    }
    for (int64_t n = 0; n < job->problem->dim_v; n++) {
        merge_channel(job, t, n, lse, weight, tlse, tl);
    }
    set_row_value(job, t, PF_LSE, 0, l);
    set_row_value(job, t, PF_TLSE, 0, tl);
}

static void merge_task(const pf_ref_job *job, scratch *t, int64_t task) {
    const pf_problem *p = job->problem;
    const int64_t blocks = block_count(p->queries, ROWS);
    const int64_t begin = task % blocks * ROWS;
    t->h = task / blocks % p->heads;
    t->b = task / blocks / p->heads;
    for (t->i0 = begin; t->i0 < begin + clip(begin, p->queries, ROWS); t->i0++) {
        merge_row(job, t);
    }
}

static void merge(const pf_ref_job *job) {
    const pf_problem *p = job->problem;
    for_each_task(job, p->batch * p->heads * block_count(p->queries, ROWS), merge_task);
}
