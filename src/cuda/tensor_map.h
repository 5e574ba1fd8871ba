/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor maps: what the TMA units of sm_90a need to know of the operands. */
#ifndef PF_CUDA_TENSOR_MAP_H
#define PF_CUDA_TENSOR_MAP_H

#include "common/kargs_fill.h"
#include "driver.h"

/* The second argument of the sm_90a kernels, by pf_operand and pf_map. An operand that is absent or
 * without elements has a copy of the map of another with the same box, and must not be read within
 * that one's bounds. */
typedef struct pf_tensor_maps {
    CUtensorMap map[PF_MAP_COUNT];
} pf_tensor_maps;

/* Encode the maps of a problem whose operands pf_tensor_map_obstacle finds fit. Each is 4-D
 * (channel, row, head, batch), in boxes of 128 bytes of channels by the rows of a tile, 128-byte
 * swizzled; a broadcast head or batch has extent 1, so that its coordinate is 0. Of bias and mask,
 * where they are staged, keys take the place of channels, and one row that stands for all queries
 * is the whole box. */
pfattn_status pf_tensor_maps_encode(const pf_cuda_driver *driver, const pf_problem *problem,
                                    const pf_attention_kargs *args, const pf_tuning *tuning,
                                    pf_tensor_maps *maps);

#endif
