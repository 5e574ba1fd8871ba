/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles: what one thread works on, how it is loaded, which of its pairs are kept, and its scores.
 */

#ifdef _OPENMP
#include <omp.h>
#endif

#include "common/formats.h"

/* A matrix in scratch. Rows begin at multiples of 64 bytes and are padded with zeros. */
typedef struct block {
    real *x;
    size_t ld;
    bool finite; /* no NaN, no infinity: a zero factor cancels any element */
} block;

/* keep[i][j]: which pair of q and k makes the score. */
enum { NOT_KEPT = 0, PAIR_1 = 1, PAIR_2 = 2, ANY_PAIR = 3 };

typedef struct scratch {
    const kernels *run;

    /* Where the tile lies: its batch, query head, first query and first key. */
    int64_t b, h, i0, j0;
    int rows, cols;
    int pairs; /* PAIR_1 and PAIR_2: those that some kept element uses */
    bool full; /* every element is kept, by one pair */

    block q[2], tq[2], dout, tdout;            /* [ROWS][D] and [ROWS][E] */
    block k[2], tk[2], v, tv;                  /* [KEYS][D] and [KEYS][E] */
    block k_t[2], tk_t[2], v_t, tv_t;          /* their transposes */
    block score, dt, grad, tgrad, bias, other; /* [ROWS][KEYS] */
    block sum_bias;
    block sum_d[2], sum_e[2];          /* accumulators */
    real *lse, *tlse, *shift, *tdelta; /* [ROWS] */
    real *maximum, *total, *mean;      /* [ROWS] */
    unsigned char *keep;               /* [ROWS][KEYS] */
} scratch;

static bool present(const pf_ref_job *job, pf_tensor_id id) {
    return pf_present(job->problem, id);
}

static int64_t kv_head(const pf_problem *p, int64_t h) {
    return h / (p->heads / p->kv_heads);
}

static int64_t block_count(int64_t extent, int64_t size) {
    return extent / size + (extent % size != 0);
}

static int clip(int64_t from, int64_t extent, int64_t size) {
    return (int)(extent - from < size ? extent - from : size);
}

/* ---- Scratch ---- */

/* Hands out pieces of one allocation; with no base it only adds up their sizes. */
typedef struct carver {
    char *base;
    size_t used;
    bool overflow;
} carver;

static void *carve(carver *c, size_t count, size_t size) {
    size_t bytes, end;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        __builtin_add_overflow(bytes, (size_t)63, &bytes) ||
        __builtin_add_overflow(c->used, bytes & ~(size_t)63, &end)) {
        c->overflow = true;
        return NULL;
    }
    void *piece = c->base != NULL ? c->base + c->used : NULL;
    c->used = end;
    return piece;
}

static block carve_block(carver *c, bool wanted, int64_t rows, int64_t cols) {
    block made = {0};
    size_t count;
    if (!wanted) {
        return made;
    }
    if (cols > INT64_MAX / 2 || rows > INT64_MAX / 2) {
        c->overflow = true;
        return made;
    }
    const size_t lanes = 64 / sizeof(real);
    made.ld = ((size_t)cols + lanes - 1) / lanes * lanes;
    if (__builtin_mul_overflow((size_t)rows, made.ld, &count)) {
        c->overflow = true;
        return made;
    }
    made.x = carve(c, count, sizeof(real));
    return made;
}

/* Lay the scratch of one thread out from `base`, which may be NULL to ask for its size alone. */
static bool lay_out(scratch *t, const pf_problem *p, char *base, size_t *bytes) {
    const bool back = p->operation == PF_BACKWARD || p->operation == PF_BACKWARD_JVP;
    const bool attention = p->operation != PF_MERGE;
    const bool jvp = p->operation == PF_FORWARD_JVP || p->operation == PF_BACKWARD_JVP;
    const int64_t d = p->dim_qk, e = p->dim_v;
    carver c = {base, 0, false};
    *t = (scratch){.run = best_kernels()};
    for (int pair = 0; pair < 2 && attention; pair++) {
        const bool on = pair == 0 || p->piecewise;
        t->q[pair] = carve_block(&c, on, ROWS, d);
        t->tq[pair] = carve_block(&c, on && jvp, ROWS, d);
        t->k_t[pair] = carve_block(&c, on, d, KEYS);
        t->tk_t[pair] = carve_block(&c, on && jvp, d, KEYS);
        t->k[pair] = carve_block(&c, on && back, KEYS, d);
        t->tk[pair] = carve_block(&c, on && back && jvp, KEYS, d);
        t->sum_d[pair] = carve_block(&c, on && back, LONGER, d);
        t->sum_e[pair] = carve_block(&c, true, LONGER, e);
    }
    t->v = carve_block(&c, attention && !back, KEYS, e);
    t->tv = carve_block(&c, attention && !back && jvp, KEYS, e);
    t->dout = carve_block(&c, back, ROWS, e);
    t->tdout = carve_block(&c, back && jvp, ROWS, e);
    t->v_t = carve_block(&c, back, e, KEYS);
    t->tv_t = carve_block(&c, back && jvp, e, KEYS);
    block *const tiles[] = {&t->score, &t->dt,    &t->grad,    &t->tgrad,
                            &t->bias,  &t->other, &t->sum_bias};
    for (size_t n = 0; n < sizeof tiles / sizeof *tiles; n++) {
        *tiles[n] = carve_block(&c, attention, ROWS, KEYS);
    }
    real **const columns[] = {&t->lse,     &t->tlse,  &t->shift, &t->tdelta,
                              &t->maximum, &t->total, &t->mean};
    for (size_t n = 0; n < sizeof columns / sizeof *columns; n++) {
        *columns[n] = carve(&c, ROWS, sizeof(real));
    }
    t->keep = carve(&c, (size_t)ROWS * KEYS, 1);
    *bytes = c.used;
    return !c.overflow;
}

typedef void task_body(const pf_ref_job *job, scratch *t, int64_t task);

/* Run `body` for each of `count` tasks. A task alone writes what it writes, in an order of its own,
 * so results do not depend on how tasks fall on threads. */
static void for_each_task(const pf_ref_job *job, int64_t count, task_body *body) {
#ifdef _OPENMP
#pragma omp parallel num_threads(job->threads)
#endif
    {
        scratch t;
        size_t bytes;
#ifdef _OPENMP
        const size_t thread = (size_t)omp_get_thread_num();
#else
        const size_t thread = 0;
#endif
        lay_out(&t, job->problem, job->scratch + thread * job->scratch_bytes, &bytes);
#ifdef _OPENMP
#pragma omp for schedule(dynamic)
#endif
        for (int64_t task = 0; task < count; task++) {
            body(job, &t, task);
        }
    }
}

/* ---- Moving between tensors and blocks ---- */

static void clear(block *to, int64_t rows) {
    if (rows > 0 && to->ld > 0) {
        memset(to->x, 0, (size_t)rows * to->ld * sizeof(real));
    }
}

/* A strided matrix somewhere in a tensor. */
typedef struct view {
    char *data;
    pfattn_dtype dtype;
    int64_t rows, cols, row_stride, col_stride;
} view;

/* Rows [s0, s0 + rows) and channels [c0, c0 + cols) of one batch and head. A dimension of size 1
 * has stride 0, which is how broadcasting works. */
static view look(const pfattn_tensor *x, int64_t b, int64_t h, int64_t s0, int64_t rows, int64_t c0,
                 int64_t cols) {
    const int64_t *stride = x->stride;
    view seen = {x->data, x->dtype, rows, cols, stride[2], stride[3]};
    if (rows > 0 && cols > 0) {
        const int64_t first = b * stride[0] + h * stride[1] + s0 * stride[2] + c0 * stride[3];
        seen.data += first * (int64_t)pfattn_dtype_size(x->dtype);
    }
    return seen;
}

static view transposed(view x) {
    return (view){x.data, x.dtype, x.cols, x.rows, x.col_stride, x.row_stride};
}

#define LOAD_ROWS(type, convert)                                                                   \
    for (int64_t r = 0; r < from.rows; r++) {                                                      \
        const type *row = (const type *)from.data + r * from.row_stride;                           \
        real *out = to->x + (size_t)r * to->ld;                                                    \
        for (int64_t n = 0; n < from.cols; n++) {                                                  \
            out[n] = (real)convert(row[n * from.col_stride]);                                      \
        }                                                                                          \
        for (size_t n = (size_t)from.cols; n < to->ld; n++) {                                      \
            out[n] = 0;                                                                            \
        }                                                                                          \
    }                                                                                              \
    break

static void load(block *to, view from) {
    if (from.rows == 0 || from.cols == 0) {
        return;
    }
    switch (from.dtype) {
    case PFATTN_DTYPE_F16:
        LOAD_ROWS(uint16_t, pf_f16_to_f32);
    case PFATTN_DTYPE_BF16:
        LOAD_ROWS(uint16_t, pf_bf16_to_f32);
    case PFATTN_DTYPE_F32:
        LOAD_ROWS(float, );
    case PFATTN_DTYPE_F64:
        LOAD_ROWS(double, );
    case PFATTN_DTYPE_E5M2:
        LOAD_ROWS(uint8_t, pf_e5m2_to_f32);
    case PFATTN_DTYPE_U8:
    case PFATTN_DTYPE_NONE:
        break;
    }
}

/* Store factor * block. */
static void store(view to, const block *from, real factor) {
    for (int64_t r = 0; r < to.rows; r++) {
        const real *row = from->x + (size_t)r * from->ld;
        for (int64_t n = 0; n < to.cols; n++) {
            pf_store(to.data, to.dtype, r * to.row_stride + n * to.col_stride,
                     (double)(factor * row[n]));
        }
    }
}

/* One number per row of a [B,H,M,1] tensor. */
static void load_column(real *to, const pfattn_tensor *x, const scratch *t) {
    const view from = look(x, t->b, t->h, t->i0, t->rows, 0, 1);
    for (int i = 0; i < t->rows; i++) {
        to[i] = (real)pf_load(from.data, from.dtype, i * from.row_stride);
    }
}

static void store_column(const pfattn_tensor *x, const scratch *t, const real *from) {
    const view to = look(x, t->b, t->h, t->i0, t->rows, 0, 1);
    for (int i = 0; i < t->rows; i++) {
        pf_store(to.data, to.dtype, i * to.row_stride, (double)from[i]);
    }
}

/* ---- Operands of matrix products ---- */

/* A block just loaded, of numbers of the product type, becomes an operand: subnormals flushed on
 * request, finiteness noted. */
static void make_operand(const pf_ref_job *job, block *x, int64_t rows) {
    const size_t count = (size_t)rows * x->ld;
    int bad = 0;
    if (job->flush) {
        const double normal = pf_smallest_normal(job->product);
        for (size_t n = 0; n < count; n++) {
            x->x[n] = fabs((double)x->x[n]) < normal ? 0 : x->x[n];
        }
    }
    for (size_t n = 0; n < count; n++) {
        bad |= !(x->x[n] - x->x[n] == 0);
    }
    x->finite = !bad;
}

static void load_operand(const pf_ref_job *job, block *to, view from) {
    load(to, from);
    make_operand(job, to, from.rows);
}

/* A computed tile becomes an operand: rounded and flushed on request. */
static void as_operand(const pf_ref_job *job, const scratch *t, block *x) {
    if (!job->round && !job->flush) {
        return;
    }
    for (int i = 0; i < t->rows; i++) {
        round_row(job, x->x + (size_t)i * x->ld, t->cols);
    }
}

/* ---- Which elements are kept ---- */

/* How many of 0, 1, ..., cols - 1 are at most `last`. */
static int count_up_to(int64_t last, int cols) {
    return last < 0 ? 0 : last >= cols ? cols : (int)last + 1;
}

/* Whether causality excludes every element of the tile, and of those with later keys. */
static bool beyond_causal(const pf_problem *p, const scratch *t) {
    return p->causal && t->j0 - (t->i0 + t->rows - 1) > p->diagonal;
}

static void keep_row(const pf_ref_job *job, const scratch *t, int i, unsigned char *keep) {
    const pf_problem *p = job->problem;
    const int64_t query = t->i0 + i;
    const int allowed = p->causal ? count_up_to(p->diagonal - (t->j0 - query), t->cols) : t->cols;
    const int far = p->piecewise ? count_up_to(query - t->j0 - job->far, t->cols) : 0;
    memset(keep, NOT_KEPT, KEYS);
    memset(keep, PAIR_1, (size_t)allowed);
    memset(keep, PAIR_2, (size_t)(far < allowed ? far : allowed));
    if (present(job, PF_MASK)) {
        const view mask = look(&p->tensor[PF_MASK], t->b, t->h, query, 1, t->j0, t->cols);
        for (int j = 0; j < allowed; j++) {
            keep[j] = mask.data[j * mask.col_stride] != 0 ? keep[j] : NOT_KEPT;
        }
    }
    if (present(job, PF_BIAS)) {
        const real *bias = t->bias.x + (size_t)i * t->bias.ld;
        for (int j = 0; j < allowed; j++) {
            keep[j] = bias[j] == -(real)INFINITY ? NOT_KEPT : keep[j];
        }
    }
}

static void note_pairs(scratch *t) {
    int count[3] = {0};
    for (int i = 0; i < t->rows; i++) {
        const unsigned char *keep = t->keep + (size_t)i * KEYS;
        for (int j = 0; j < KEYS; j++) {
            count[PAIR_1] += keep[j] == PAIR_1;
            count[PAIR_2] += keep[j] == PAIR_2;
        }
    }
    t->pairs = (count[PAIR_1] > 0 ? PAIR_1 : 0) | (count[PAIR_2] > 0 ? PAIR_2 : 0);
    t->full = count[PAIR_1] == t->rows * t->cols || count[PAIR_2] == t->rows * t->cols;
}

/* Fill t->keep, and t->bias where there is one; false where nothing is kept. `lse`, where not NULL,
 * is the L of forward: a row of -inf is empty. */
static bool find_kept(const pf_ref_job *job, scratch *t, const real *lse) {
    const pf_problem *p = job->problem;
    if (present(job, PF_BIAS)) {
        load(&t->bias, look(&p->tensor[PF_BIAS], t->b, t->h, t->i0, t->rows, t->j0, t->cols));
    }
    for (int i = 0; i < t->rows; i++) {
        unsigned char *keep = t->keep + (size_t)i * KEYS;
        if (lse != NULL && lse[i] == -(real)INFINITY) {
            memset(keep, NOT_KEPT, KEYS);
        } else {
            keep_row(job, t, i, keep);
        }
    }
    note_pairs(t);
    return t->pairs != 0;
}

/* ---- Products ---- */

/* to = `from` where the element belongs to `pair`, else 0. */
static void select_pair(const scratch *t, block *to, const block *from, int pair) {
    for (int i = 0; i < t->rows; i++) {
        const unsigned char *keep = t->keep + (size_t)i * KEYS;
        const real *in = from->x + (size_t)i * from->ld;
        real *out = to->x + (size_t)i * to->ld;
        for (int j = 0; j < KEYS; j++) {
            out[j] = keep[j] == pair ? in[j] : 0;
        }
    }
}

static void add_scaled(real *to, const real *from, real factor, size_t count) {
    for (size_t n = 0; n < count; n++) {
        to[n] += factor * from[n];
    }
}

/* The product over kept elements only, so that what stands in `right` elsewhere cannot matter. */
static void accumulate_kept(const scratch *t, block *sum, const block *tile, const block *right,
                            int pair, bool columns) {
    for (int i = 0; i < t->rows; i++) {
        for (int j = 0; j < t->cols; j++) {
            if (t->keep[(size_t)i * KEYS + (size_t)j] & pair) {
                const size_t to = (size_t)(columns ? j : i), from = (size_t)(columns ? i : j);
                add_scaled(sum->x + to * sum->ld, right->x + from * right->ld,
                           tile->x[(size_t)i * tile->ld + (size_t)j], sum->ld);
            }
        }
    }
}

/* sum_i += sum_j tile_ij right_j, or with `columns` sum_j += sum_i tile_ij right_i, over the kept
 * elements of the pair (or ANY_PAIR). The tile is 0 where not kept. Changes t->other. */
static void accumulate(scratch *t, block *sum, const block *tile, const block *right, int pair,
                       bool columns) {
    if ((t->pairs & pair) == 0) {
        return;
    }
    if (!right->finite && !t->full) {
        accumulate_kept(t, sum, tile, right, pair, columns);
        return;
    }
    if ((t->pairs & ~pair) != 0) {
        select_pair(t, &t->other, tile, pair);
        tile = &t->other;
    }
    if (columns) {
        t->run->multiply(sum->x, sum->ld, tile->x, 1, tile->ld, right->x, right->ld, t->cols,
                         t->rows, (int64_t)sum->ld);
    } else {
        t->run->multiply(sum->x, sum->ld, tile->x, tile->ld, 1, right->x, right->ld, t->rows,
                         t->cols, (int64_t)sum->ld);
    }
}

static void add_dots(const scratch *t, block *to, const block *rows, const block *columns,
                     int64_t dim) {
    t->run->multiply(to->x, to->ld, rows->x, rows->ld, 1, columns->x, columns->ld, t->rows, dim,
                     KEYS);
}

/* to_ij = <q_i, k_j> of one pair, or its tangent without the scale. */
static void dots_of_pair(const pf_ref_job *job, const scratch *t, block *to, int pair,
                         bool tangent) {
    const int64_t dim = job->problem->dim_qk;
    clear(to, t->rows);
    if (!tangent) {
        add_dots(t, to, &t->q[pair], &t->k_t[pair], dim);
        return;
    }
    if (present(job, pair == 0 ? PF_TQ : PF_TQ2)) {
        add_dots(t, to, &t->tq[pair], &t->k_t[pair], dim);
    }
    if (present(job, pair == 0 ? PF_TK : PF_TK2)) {
        add_dots(t, to, &t->q[pair], &t->tk_t[pair], dim);
    }
}

/* The same, of the pair that each element uses. Changes t->other. */
static void dots(const pf_ref_job *job, scratch *t, block *to, bool tangent) {
    if (t->pairs == PAIR_2) {
        dots_of_pair(job, t, to, 1, tangent);
        return;
    }
    dots_of_pair(job, t, to, 0, tangent);
    if (t->pairs == PAIR_1) {
        return;
    }
    dots_of_pair(job, t, &t->other, 1, tangent);
    for (int i = 0; i < t->rows; i++) {
        const unsigned char *keep = t->keep + (size_t)i * KEYS;
        const real *far = t->other.x + (size_t)i * t->other.ld;
        real *near = to->x + (size_t)i * to->ld;
        for (int j = 0; j < KEYS; j++) {
            near[j] = keep[j] == PAIR_2 ? far[j] : near[j];
        }
    }
}

/* x = alpha x + bias where kept, else `unkept`. */
static void scale_and_select(const pf_ref_job *job, const scratch *t, block *x, bool biased,
                             real unkept) {
    const real alpha = (real)job->problem->alpha;
    for (int i = 0; i < t->rows; i++) {
        const unsigned char *keep = t->keep + (size_t)i * KEYS;
        const real *bias = t->bias.x + (size_t)i * t->bias.ld;
        real *row = x->x + (size_t)i * x->ld;
        if (biased) {
            for (int j = 0; j < KEYS; j++) {
                row[j] = keep[j] ? alpha * row[j] + bias[j] : unkept;
            }
        } else {
            for (int j = 0; j < KEYS; j++) {
                row[j] = keep[j] ? alpha * row[j] : unkept;
            }
        }
    }
}

/* t->score = S, -inf where not kept. find_kept has been called, queries and keys are loaded. */
static void compute_scores(const pf_ref_job *job, scratch *t) {
    dots(job, t, &t->score, false);
    scale_and_select(job, t, &t->score, present(job, PF_BIAS), -(real)INFINITY);
}

static bool has_score_tangent(const pf_ref_job *job) {
    return present(job, PF_TQ) || present(job, PF_TK) || present(job, PF_TBIAS) ||
           present(job, PF_TQ2) || present(job, PF_TK2);
}

/* t->dt = dt, 0 where not kept. Changes t->bias. */
static void compute_score_tangents(const pf_ref_job *job, scratch *t) {
    const bool biased = present(job, PF_TBIAS);
    if (biased) {
        load(&t->bias,
             look(&job->problem->tensor[PF_TBIAS], t->b, t->h, t->i0, t->rows, t->j0, t->cols));
    }
    dots(job, t, &t->dt, true);
    scale_and_select(job, t, &t->dt, biased, 0);
}

/* ---- Loading one side of the tile ---- */

/* Queries and their tangents, of both pairs. */
static void load_queries(const pf_ref_job *job, scratch *t) {
    static const pf_tensor_id q[2] = {PF_Q, PF_Q2}, tq[2] = {PF_TQ, PF_TQ2};
    const pf_problem *p = job->problem;
    for (int pair = 0; pair < 2; pair++) {
        if (present(job, q[pair])) {
            load_operand(job, &t->q[pair],
                         look(&p->tensor[q[pair]], t->b, t->h, t->i0, t->rows, 0, p->dim_qk));
        }
        if (present(job, tq[pair])) {
            load_operand(job, &t->tq[pair],
                         look(&p->tensor[tq[pair]], t->b, t->h, t->i0, t->rows, 0, p->dim_qk));
        }
    }
}

/* One of k, v and the like: row-major into `rows`, transposed into `columns`, either may be NULL.
 */
static void load_key_tensor(const pf_ref_job *job, const scratch *t, pf_tensor_id id, int64_t dim,
                            block *rows, block *columns) {
    const pf_problem *p = job->problem;
    if (!present(job, id)) {
        return;
    }
    const view x = look(&p->tensor[id], t->b, kv_head(p, t->h), t->j0, t->cols, 0, dim);
    if (rows != NULL) {
        load_operand(job, rows, x);
    }
    if (columns != NULL) {
        load_operand(job, columns, transposed(x));
    }
}
