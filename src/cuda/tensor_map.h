/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor maps: what the TMA units of sm_90a need to know of the operands. */
#ifndef PF_CUDA_TENSOR_MAP_H
#define PF_CUDA_TENSOR_MAP_H

#include "common/plan_run.h"
#include "driver.h"

/* Encode the maps of a problem whose operands pf_tensor_map_obstacle finds fit, by pf_operand and
 * pf_map, after pf_plan_fill. Each is 4-D (channel, row, head, batch), in boxes of 128 bytes of
 * channels by the rows of a tile, 128-byte swizzled; a broadcast head or batch has extent 1, so
 * that its coordinate is 0. Of bias and mask, where they are staged, keys take the place of
 * channels, and one row that stands for all queries is the whole box. Maps that are there already
 * are given their new addresses alone.
 *
 * An operand that is absent or without elements has a copy of the map of another with the same box,
 * and must not be read within that one's bounds. */
pfattn_status pf_tensor_maps_encode(const pf_cuda_driver *driver, const pf_tuning *tuning,
                                    pf_plan_arguments *arguments);

#endif
