/* SPDX-License-Identifier: Apache-2.0 */
/* One case of `pfattn check`: a problem with every feature and every trap as a knob, and the text
 * 'k=v k=v ...' that stands for it. The text of a case and a seed give the same data everywhere. */
#ifndef CHECK_CASE_H
#define CHECK_CASE_H

#include <stdbool.h>
#include <stddef.h>

#include "problem.h"

typedef enum case_op {
    CASE_FORWARD,
    CASE_JVP,
    CASE_BACKWARD,
    CASE_BACKWARD_JVP,
    CASE_MERGE,
    CASE_DUALITY, /* jvp, then backward, and the identity that joins their results */
    CASE_OP_COUNT
} case_op;

typedef enum case_bias_fill {
    BIAS_NORMAL,
    BIAS_ZERO,
    BIAS_SOME_INF,   /* a quarter of the pairs is excluded by -inf */
    BIAS_ROWS_INF,   /* a third of the rows is excluded whole */
    BIAS_LOWEST,     /* half of the rows hold the lowest finite value alone */
    BIAS_SOME_LOWEST /* a third of the pairs holds the lowest finite value */
} case_bias_fill;

typedef enum case_mask_fill {
    MASK_NONE,
    MASK_ONES,
    MASK_ZEROS,
    MASK_RANDOM,
    MASK_PADDING, /* keys before a length drawn per batch and head */
    MASK_ROWS,    /* a third of the rows is empty */
    MASK_BLOCKS   /* blocks of 64 x 64 */
} case_mask_fill;

typedef enum case_layout {
    LAYOUT_BHSD,
    LAYOUT_BSHD,
    LAYOUT_SBHD,
    LAYOUT_PACKED,      /* [B,S,3,H,D] */
    LAYOUT_TRANSPOSED,  /* [B,H,D,S] */
    LAYOUT_INTERLEAVED, /* channel stride 2 */
    LAYOUT_REVERSED,    /* negative strides of head and sequence */
    LAYOUT_BROADCAST,   /* inputs: stride 0 along the batch, and along the heads of k and v */
    LAYOUT_MIXED,       /* each tensor its own, drawn */
    LAYOUT_COUNT
} case_layout;

typedef enum case_far { FAR_NONE, FAR_BATCH, FAR_HEAD, FAR_ROW } case_far;

/* One row that is NaN, or infinite. */
typedef enum case_nan { NAN_NONE, NAN_QUERY, NAN_KEY, NAN_VALUE, INFINITE_VALUE } case_nan;

/* Whether an optional integer was left at its default. */
#define CASE_UNSET (INT64_MIN + 1)

typedef struct check_case {
    int64_t op;    /* case_op */
    int64_t dtype; /* pfattn_dtype */
    int64_t batch, heads, kv_heads, queries, keys, dim_qk, dim_v;
    double alpha; /* NaN = the default, 1/sqrt(D) */
    int64_t causal;
    int64_t diagonal;  /* CASE_UNSET = bottom-right */
    int64_t distance;  /* CASE_UNSET = not piecewise */
    int64_t bias;      /* pfattn_dtype, NONE = absent */
    int64_t bias_dims; /* bit d: dimension d is full; otherwise its size is 1 */
    int64_t bias_fill;
    int64_t mask; /* case_mask_fill */
    int64_t mask_dims;
    int64_t layout;
    int64_t pad;         /* elements after each row */
    int64_t offset;      /* elements by which each tensor misses 256-byte alignment */
    int64_t far;         /* the dimension along which offsets exceed 2^31 elements */
    int64_t far_tensors; /* which tensors: TENSOR_BIT set */
    int64_t out_dtype;   /* of o and to; NONE = the inputs' */
    int64_t grad_dtype;  /* of the gradients; NONE = their inputs' */
    int64_t part_dtype;  /* merge: of part 1; NONE = dtype */
    int64_t tangents;    /* TENSOR_BIT set, those present; CASE_ALL = every one */
    int64_t outputs;     /* TENSOR_BIT set, those asked for; CASE_ALL = every one */
    int64_t dlse, tdout; /* whether present */
    int64_t deterministic;
    int64_t garbage; /* NaN and Inf in k, v and their tangents at keys nobody keeps */
    int64_t nan;     /* case_nan */
    int64_t empty;   /* merge: some rows have L = -inf */
    int64_t inplace; /* merge: the results replace part 0 */
    int64_t repeat;  /* runs after the first, to be bitwise equal */
    double std;      /* standard deviation of q, k, v and the tangents */
    double q_std;    /* of q, q2 and their tangents; NaN = std */
    int64_t samples; /* (batch, kv head) pairs compared; 0 = all of them */
} check_case;

#define CASE_ALL (-1)

/* Parse a text over the defaults (op=forward dtype=f32, B=H=1, M=N=D=64, Hk=H, E=D). On failure
 * `message` says which word was wrong. */
bool case_parse(const char *text, check_case *parsed, char *message, size_t size);

/* The text of a case: what differs from the defaults. Parsing it gives the case again. */
void case_print(const check_case *c, char *text, size_t size);

const char *case_op_name(case_op op);

/* The calls that make a case, in order; returns how many. */
int case_stages(const check_case *c, pf_operation stages[2]);

/* Whether a tensor takes part, its type and its shape. */
bool case_has(const check_case *c, pf_tensor_id id);
pfattn_dtype case_dtype(const check_case *c, pf_tensor_id id);
void case_shape(const check_case *c, pf_tensor_id id, int64_t shape[4]);

/* At most so many scores are kept. */
double case_scores(const check_case *c);

/* How many scores are summed into one element of a gradient: that of a bias has those over which it
 * is broadcast, any other is taken for one. */
double case_summed_scores(const check_case *c, pf_tensor_id id);

/* Whether a gradient is zero but for rounding: that of a bias which is the same for all keys
 * (as any is for one key), by the shift invariance of the softmax. dL alone is not invariant; at
 * fixed dL its tangent is. */
bool case_is_residual(const check_case *c, pf_tensor_id id);

/* FLOPs of all its calls, counted as `pfattn bench` does. */
double case_flops(const check_case *c);

/* FLOPs of one call: forward 2 B H M N (D + E), jvp three times, backward 2.5 times, backward-jvp
 * three times backward; causal halves. 0 for a merge. */
double operation_flops(pf_operation operation, double batch, double heads, double queries,
                       double keys, double dim_qk, double dim_v, bool causal);

#endif
