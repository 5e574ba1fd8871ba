/* SPDX-License-Identifier: Apache-2.0 */
/* Tile sizes of the scalar port. Two workgroups divide the output channels, and a ring has two
 * stages. */
#ifndef SCALAR_TILES_H
#define SCALAR_TILES_H

enum {
    SCALAR_HEAD_DIM = 64,
    SCALAR_OWNED_TILE = 16,
    SCALAR_CROSS_TILE = 8,
    SCALAR_OUT_DIM = 32,
    SCALAR_STAGES = 2,
    /* Two stages of bias or of mask, one of these and a tangent. */
    SCALAR_BIAS_BYTES = 8192
};

#endif
