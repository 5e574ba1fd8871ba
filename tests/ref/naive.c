/* SPDX-License-Identifier: Apache-2.0 */
#include "naive.h"

#include <stdlib.h>

/* One batch and head: matrices [M][N] and columns [M]. */
typedef struct head {
    int64_t b, h, hk;
    bool *kept, *far;
    double *p, *dt, *mu, *delta, *tdelta;
} head;

typedef struct naive {
    const pf_problem *p;
    double *out[PF_O0]; /* contiguous, NULL where absent */
} naive;

static double *zeros(int64_t count) {
    double *made = calloc((size_t)count + 1, sizeof *made);
    assert_non_null(made);
    return made;
}

static double at(const naive *n, pf_tensor_id id, int64_t b, int64_t h, int64_t s, int64_t c) {
    return pf_present(n->p, id) ? get(&n->p->tensor[id], b, h, s, c) : 0;
}

/* Where [b,h,s,c] lies in an output; broadcast dimensions collapse. */
static double *cell(const naive *n, pf_tensor_id id, int64_t b, int64_t h, int64_t s, int64_t c) {
    static double nowhere;
    if (n->out[id] == NULL) {
        return &nowhere;
    }
    const int64_t *shape = n->p->tensor[id].shape;
    b = shape[0] == 1 ? 0 : b;
    h = shape[1] == 1 ? 0 : h;
    s = shape[2] == 1 ? 0 : s;
    c = shape[3] == 1 ? 0 : c;
    return &n->out[id][((b * shape[1] + h) * shape[2] + s) * shape[3] + c];
}

/* sum_c x_ic y_jc over channels of [B,H,M,dim] and [B,Hk,N,dim]. */
static double product(const naive *n, const head *g, pf_tensor_id x, int64_t i, pf_tensor_id y,
                      int64_t j, int64_t dim) {
    double sum = 0;
    if (pf_present(n->p, x) && pf_present(n->p, y)) {
        for (int64_t c = 0; c < dim; c++) {
            sum += at(n, x, g->b, g->h, i, c) * at(n, y, g->b, g->hk, j, c);
        }
    }
    return sum;
}

/* How far query i stands after key j; long double holds the sum of two 64-bit integers exactly. */
static long double distance_of(const pf_problem *p, int64_t i, int64_t j) {
    return (long double)(i - j) + (long double)p->diagonal;
}

static bool is_kept(const naive *n, const head *g, int64_t i, int64_t j) {
    const pf_problem *p = n->p;
    return (!pf_present(p, PF_MASK) || at(n, PF_MASK, g->b, g->h, i, j) != 0) &&
           at(n, PF_BIAS, g->b, g->h, i, j) != -(double)INFINITY &&
           (!p->causal || distance_of(p, i, j) >= 0);
}

static void scores_of_row(const naive *n, const head *g, int64_t i) {
    const pf_problem *p = n->p;
    const double alpha = p->dim_qk > 0 ? p->alpha : 0;
    for (int64_t j = 0; j < p->keys; j++) {
        const int64_t ij = i * p->keys + j;
        g->kept[ij] = is_kept(n, g, i, j);
        g->far[ij] = p->piecewise && distance_of(p, i, j) >= p->distance;
        const bool far = g->far[ij];
        const pf_tensor_id q = far ? PF_Q2 : PF_Q, k = far ? PF_K2 : PF_K;
        const pf_tensor_id tq = far ? PF_TQ2 : PF_TQ, tk = far ? PF_TK2 : PF_TK;
        if (g->kept[ij]) {
            g->p[ij] =
                alpha * product(n, g, q, i, k, j, p->dim_qk) + at(n, PF_BIAS, g->b, g->h, i, j);
            g->dt[ij] = alpha * (product(n, g, tq, i, k, j, p->dim_qk) +
                                 product(n, g, q, i, tk, j, p->dim_qk)) +
                        at(n, PF_TBIAS, g->b, g->h, i, j);
        }
    }
}

/* Scores become probabilities; o, lse, to, tlse of the row. */
static void softmax_row(const naive *n, const head *g, int64_t i) {
    const pf_problem *p = n->p;
    const int64_t first = i * p->keys, last = first + p->keys;
    double largest = -(double)INFINITY, total = 0, mu = 0;
    for (int64_t ij = first; ij < last; ij++) {
        largest = g->kept[ij] && g->p[ij] > largest ? g->p[ij] : largest;
    }
    for (int64_t ij = first; ij < last; ij++) {
        g->p[ij] = g->kept[ij] ? exp(g->p[ij] - largest) : 0;
        total += g->p[ij];
    }
    for (int64_t ij = first; ij < last; ij++) {
        g->p[ij] = g->kept[ij] ? g->p[ij] / total : 0;
        mu += g->p[ij] * g->dt[ij];
    }
    g->mu[i] = mu;
    *cell(n, PF_LSE, g->b, g->h, i, 0) = total == 0 ? -(double)INFINITY : largest + log(total);
    *cell(n, PF_TLSE, g->b, g->h, i, 0) = mu;
}

static void outputs_of_row(const naive *n, const head *g, int64_t i) {
    const pf_problem *p = n->p;
    for (int64_t c = 0; c < p->dim_v; c++) {
        double o = 0, to = 0;
        for (int64_t j = 0; j < p->keys; j++) {
            const int64_t ij = i * p->keys + j;
            if (g->kept[ij]) {
                const double v = at(n, PF_V, g->b, g->hk, j, c);
                o += g->p[ij] * v;
                to += g->p[ij] * (g->dt[ij] * v + at(n, PF_TV, g->b, g->hk, j, c));
            }
        }
        to -= g->mu[i] * o;
        *cell(n, PF_O, g->b, g->h, i, c) = o;
        *cell(n, PF_TO, g->b, g->h, i, c) = to;
        const double dout = at(n, PF_DOUT, g->b, g->h, i, c);
        g->delta[i] += dout * o;
        g->tdelta[i] += at(n, PF_TDOUT, g->b, g->h, i, c) * o + dout * to;
    }
}

/* What one kept element adds to the gradients, ds = dS and w = P, or their tangents. */
static void add_gradients(const naive *n, const head *g, int64_t i, int64_t j, double ds,
                          double w) {
    const pf_problem *p = n->p;
    const bool far = g->far[i * p->keys + j];
    const double alpha = p->dim_qk > 0 ? p->alpha : 0;
    for (int64_t c = 0; c < p->dim_qk; c++) {
        *cell(n, far ? PF_DQ2 : PF_DQ, g->b, g->h, i, c) +=
            alpha * ds * at(n, far ? PF_K2 : PF_K, g->b, g->hk, j, c);
        *cell(n, far ? PF_DK2 : PF_DK, g->b, g->hk, j, c) +=
            alpha * ds * at(n, far ? PF_Q2 : PF_Q, g->b, g->h, i, c);
    }
    for (int64_t c = 0; c < p->dim_v; c++) {
        *cell(n, PF_DV, g->b, g->hk, j, c) += w * at(n, PF_DOUT, g->b, g->h, i, c);
    }
    *cell(n, PF_DBIAS, g->b, g->h, i, j) += ds;
}

static void add_tangents_of_gradients(const naive *n, const head *g, int64_t i, int64_t j,
                                      double ds, double tds, double w, double tw) {
    const pf_problem *p = n->p;
    const bool far = g->far[i * p->keys + j];
    const double alpha = p->dim_qk > 0 ? p->alpha : 0;
    for (int64_t c = 0; c < p->dim_qk; c++) {
        *cell(n, far ? PF_TDQ2 : PF_TDQ, g->b, g->h, i, c) +=
            alpha * (tds * at(n, far ? PF_K2 : PF_K, g->b, g->hk, j, c) +
                     ds * at(n, far ? PF_TK2 : PF_TK, g->b, g->hk, j, c));
        *cell(n, far ? PF_TDK2 : PF_TDK, g->b, g->hk, j, c) +=
            alpha * (tds * at(n, far ? PF_Q2 : PF_Q, g->b, g->h, i, c) +
                     ds * at(n, far ? PF_TQ2 : PF_TQ, g->b, g->h, i, c));
    }
    for (int64_t c = 0; c < p->dim_v; c++) {
        *cell(n, PF_TDV, g->b, g->hk, j, c) +=
            tw * at(n, PF_DOUT, g->b, g->h, i, c) + w * at(n, PF_TDOUT, g->b, g->h, i, c);
    }
    *cell(n, PF_TDBIAS, g->b, g->h, i, j) += tds;
}

static void gradients_of_row(const naive *n, const head *g, int64_t i) {
    const pf_problem *p = n->p;
    for (int64_t j = 0; j < p->keys; j++) {
        const int64_t ij = i * p->keys + j;
        if (!g->kept[ij]) {
            continue;
        }
        const double w = g->p[ij];
        const double dp = product(n, g, PF_DOUT, i, PF_V, j, p->dim_v);
        const double tdp = product(n, g, PF_TDOUT, i, PF_V, j, p->dim_v) +
                           product(n, g, PF_DOUT, i, PF_TV, j, p->dim_v);
        const double centred = dp - g->delta[i] + at(n, PF_DLSE, g->b, g->h, i, 0);
        const double tw = w * (g->dt[ij] - g->mu[i]);
        const double tds = tw * centred + w * (tdp - g->tdelta[i]);
        if (p->operation == PF_BACKWARD) {
            add_gradients(n, g, i, j, w * centred, w);
        } else {
            add_tangents_of_gradients(n, g, i, j, w * centred, tds, w, tw);
        }
    }
}

static void compute_head(const naive *n, int64_t b, int64_t h) {
    const pf_problem *p = n->p;
    const int64_t count = p->queries * p->keys;
    head g = {.b = b, .h = h, .hk = h / (p->heads / p->kv_heads)};
    g.kept = calloc((size_t)count + 1, sizeof *g.kept);
    g.far = calloc((size_t)count + 1, sizeof *g.far);
    g.p = zeros(count);
    g.dt = zeros(count);
    g.mu = zeros(p->queries);
    g.delta = zeros(p->queries);
    g.tdelta = zeros(p->queries);
    for (int64_t i = 0; i < p->queries; i++) {
        scores_of_row(n, &g, i);
        softmax_row(n, &g, i);
        outputs_of_row(n, &g, i);
        if (p->operation == PF_BACKWARD || p->operation == PF_BACKWARD_JVP) {
            gradients_of_row(n, &g, i);
        }
    }
    free(g.kept);
    free(g.far);
    free(g.p);
    free(g.dt);
    free(g.mu);
    free(g.delta);
    free(g.tdelta);
}

static bool is_output(pf_operation operation, int id) {
    switch (operation) {
    case PF_BACKWARD:
        return id >= PF_DQ && id <= PF_DK2;
    case PF_BACKWARD_JVP:
        return id >= PF_TDQ && id <= PF_TDK2;
    default:
        return id >= PF_O && id <= PF_TLSE;
    }
}

void expect_formulas(pf_operation operation, const pfattn_attention *all, double tolerance) {
    static const pfattn_operation public_operation[] = {PFATTN_FORWARD, PFATTN_FORWARD,
                                                        PFATTN_BACKWARD, PFATTN_BACKWARD_JVP};
    const pfattn_attention a = for_operation(operation, all);
    pf_problem problem;
    assert_int_equal(pf_problem_from_attention(public_operation[operation], &a, &problem),
                     PFATTN_SUCCESS);
    naive n = {.p = &problem};
    for (int id = 0; id < PF_O0; id++) {
        if (pf_present(&problem, id) && is_output(operation, id)) {
            n.out[id] = zeros(element_count(&problem.tensor[id]));
        }
    }
    for (int64_t bh = 0; bh < problem.batch * problem.heads; bh++) {
        compute_head(&n, bh / problem.heads, bh % problem.heads);
    }
    for (int id = 0; id < PF_O0; id++) {
        if (n.out[id] != NULL) {
            expect_close(pf_tensor_name(id), &problem.tensor[id], n.out[id], tolerance);
            free(n.out[id]);
        }
    }
}

void expect_all_formulas(const pfattn_attention *all, double tolerance) {
    expect_formulas(PF_FORWARD_JVP, all, tolerance);
    expect_formulas(PF_BACKWARD, all, tolerance);
    expect_formulas(PF_BACKWARD_JVP, all, tolerance);
}
