/* SPDX-License-Identifier: Apache-2.0 */
/* From a problem and what a device can do, which kernels to launch and how: pure arithmetic that
 * makes no driver call, so that it is tested without a device. Every GPU backend uses it. */
#ifndef PF_SELECT_H
#define PF_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "problem.h"
#include "scratch.h"
#include "tuned.h"
#include "tuning.h"

/* Images are numbered within a target; the last holds the passes. */
enum {
    PF_IMAGE_ELEMENTS = 4,  /* f16, bf16, f32, e5m2 */
    PF_IMAGE_HEAD_DIMS = 3, /* 64, 128, 256 */
    PF_IMAGE_PASSES = PF_OP_COUNT * PF_IMAGE_ELEMENTS * PF_IMAGE_HEAD_DIMS * 2 * PF_VARIANTS,
    PF_IMAGE_COUNT = PF_IMAGE_PASSES + 1
};

/* Kernels of an image. In a PF_OP image: the operation, and for backward the pass that converts the
 * sums of dq; in the passes image the rest. */
typedef enum pf_entry {
    PF_ENTRY_MAIN = 0,
    PF_ENTRY_DQ = 1,
    PF_ENTRY_KEY_LIVE = 0,
    PF_ENTRY_BACKWARD_PRE = 1,
    PF_ENTRY_BACKWARD_PRE_JVP = 2,
    PF_ENTRY_DBIAS_REDUCE = 3,
    PF_ENTRY_MERGE = 4,
    PF_ENTRY_MERGE_SPLITS = 5,
    PF_ENTRY_MERGE_SPLITS_JVP = 6,
    PF_ENTRY_WIDEN = 7,
    PF_ENTRY_NARROW = 8,
    PF_ENTRY_COUNT = 9
} pf_entry;

/* What select knows of a device. */
typedef struct pf_capabilities {
    const char *backend; /* its name, for messages */
    const pf_tuning *tuning;
    int tuning_count;
    int targets[PF_TARGET_COUNT]; /* those that the device runs, the best first */
    int target_count;
    const bool *images[PF_TARGET_COUNT]; /* by target: which of the PF_IMAGE_COUNT are there */
    int compute_units;
    int warp_size;        /* threads of a warp or wave: passes give one to each row */
    int64_t shared_bytes; /* most that one workgroup may use */
    pf_tuned *tuned;      /* which variants to run; NULL for the default everywhere */
} pf_capabilities;

typedef enum pf_step_kind {
    PF_STEP_WIDEN,        /* operands of e5m2, copied as f16 */
    PF_STEP_KEY_LIVE,     /* which keys mask and bias leave to some query */
    PF_STEP_BACKWARD_PRE, /* statistics of each query; clears the sums of dq */
    PF_STEP_MAIN,
    PF_STEP_DQ, /* sums of dq into dq, and parts of dk and dv into these */
    PF_STEP_DBIAS,
    PF_STEP_DBIAS_REDUCE, /* sums of dbias into dbias */
    PF_STEP_MERGE,
    PF_STEP_MERGE_SPLITS, /* the parts of forward's items that were split by keys */
    PF_STEP_NARROW,       /* O from f32 */
    PF_STEP_MAX
} pf_step_kind;

/* One launch; grids and workgroups are one-dimensional. */
typedef struct pf_step {
    pf_step_kind kind;
    int target, image, entry;
    int grid, block, shared_bytes;
    int work_count; /* pf_attention_kargs.work_count of this launch */
    bool mapped;    /* its image takes tensor maps as a second argument */
} pf_step;

/* Forward's last items, whose keys workgroups share out; see pf_key_split. */
typedef struct pf_split_plan {
    int items;         /* how many, 0 for none */
    int64_t whole;     /* those before them, which are not split */
    int tiles, length; /* tiles of keys: of an item, of a workgroup's range */
    int rows;          /* queries of an item */
    bool many_parts;   /* of an item, for the merge */
} pf_split_plan;

typedef struct pf_plan {
    pf_step step[PF_STEP_MAX]; /* in order, none with an empty grid */
    int step_count;
    pf_scratch scratch;
    const pf_tuning *tuning;       /* of the main kernel; NULL where there is none */
    const pf_tuning *dbias_tuning; /* of the dbias kernel, likewise */
    int dbias_splits;
    int divided; /* items of backward that workgroups divide among them */
    pf_split_plan split;
    bool widened;  /* the main kernel reads f16 copies of its operands; see widen.h */
    bool narrowed; /* it writes O as f32, and a pass rounds that to O's type */
} pf_plan;

/* Fill `*plan`, or return UNSUPPORTED with the reason. */
pfattn_status pf_select(const pf_capabilities *capabilities, const pf_problem *problem,
                        pf_plan *plan);

/* Scratch bytes that the problem needs whatever its addresses are: those of its plan, or the most
 * over the targets that other addresses may lead to. */
size_t pf_select_workspace(const pf_capabilities *capabilities, const pf_problem *problem,
                           const pf_plan *plan);

/* The number of an image, and its name: "sm_90a/forward.f16.128.plain", of variant 1 the same with
 * ".v1", or "sm_80/passes". */
int pf_image_number(int op, pfattn_dtype element, int head_dim, bool general, int variant);
void pf_image_key(int target, int image, char *key, size_t size);

/* The name of a kernel of an image, NULL where it has no such entry. */
const char *pf_entry_name(int image, int entry);

/* The row of a kernel's variant, NULL where this build or the device does not have it. */
const pf_tuning *pf_kernel_find(const pf_capabilities *capabilities, int target, int op,
                                pfattn_dtype element, int head_dim, bool general, int variant);

/* "sm_90a" for PF_TARGET_SM_90A, "forward_jvp" for PF_OP_FORWARD_JVP. */
const char *pf_target_name(int target);
const char *pf_op_name(int op);

/* Whether the kernels need the features of the general images: bias, mask or an alpha that is not
 * positive (as f32). */
bool pf_problem_is_general(const pf_problem *problem);

/* Whether the bias, and dbias with it, has every (b, h, i, j) to itself: then the main kernel
 * stores dbias. */
bool pf_dbias_is_full(const pf_problem *problem);

/* Whether a tensor can be read through a tensor map: 16-byte aligned, contiguous channels, and
 * other strides multiples of 16 bytes (0 for a broadcast batch or head). NULL, or what stands in
 * the way. */
const char *pf_tensor_map_obstacle(const pfattn_tensor *tensor);

/* Whether it can be written through one as well: a copy writes 16 bytes at a time, past the end of
 * rows that are no multiple of that. */
bool pf_tensor_map_writes(const pfattn_tensor *tensor);

#endif
