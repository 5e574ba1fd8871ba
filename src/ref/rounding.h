/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PF_REF_ROUNDING_H
#define PF_REF_ROUNDING_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "job.h"

/* A narrow format, as seen from float: the bits of the fraction that it drops, its smallest normal
 * and its largest number, and what to add to a smaller number so that float rounds it to the step
 * of the format's subnormals. Where these are subnormal in float too, no number is smaller. */
typedef struct pf_narrow {
    int dropped;
    float smallest, magic, largest;
} pf_narrow;

static const pf_narrow pf_narrow_f16 = {13, 0x1p-14f, 0x1.8p-1f, 65504.0f};
static const pf_narrow pf_narrow_bf16 = {16, 0.0f, 0.0f, 0x1.fep127f};
static const pf_narrow pf_narrow_e5m2 = {21, 0x1p-14f, 0x1.8p7f, 57344.0f};

/* As pf_round, in a form that compilers vectorise. */
static inline __attribute__((always_inline)) float pf_round_narrow(float x, pf_narrow to) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t half = (1u << (to.dropped - 1)) - 1;
    bits = (bits + half + (bits >> to.dropped & 1)) & ~(2 * half + 1);
    float y;
    memcpy(&y, &bits, sizeof y);
    y = fabsf(x) < to.smallest ? (x + to.magic) - to.magic : y;
    y = fabsf(y) > to.largest ? copysignf(INFINITY, x) : y;
    return x != x ? x : y;
}

/* Operands of a matrix product in place: rounded, and flushed where they round to a subnormal. */
static inline __attribute__((always_inline)) void
pf_round_narrow_row(const pf_ref_job *job, float *row, int count, pf_narrow to, float normal) {
    const float below = job->flush ? normal : 0.0f;
    if (job->round) {
        for (int n = 0; n < count; n++) {
            const float y = pf_round_narrow(row[n], to);
            row[n] = fabsf(y) < below ? 0 : y;
        }
    } else {
        for (int n = 0; n < count; n++) {
            row[n] = fabsf(pf_round_narrow(row[n], to)) < below ? 0 : row[n];
        }
    }
}

static inline void pf_round_row_f32(const pf_ref_job *job, float *row, int count) {
    switch (job->product) {
    case PFATTN_DTYPE_F16:
        pf_round_narrow_row(job, row, count, pf_narrow_f16, 0x1p-14f);
        break;
    case PFATTN_DTYPE_BF16:
        pf_round_narrow_row(job, row, count, pf_narrow_bf16, 0x1p-126f);
        break;
    case PFATTN_DTYPE_E5M2:
        pf_round_narrow_row(job, row, count, pf_narrow_e5m2, 0x1p-14f);
        break;
    default: /* as wide as float, or wider */
        break;
    }
}

#endif
