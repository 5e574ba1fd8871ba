/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor_map.h"

#include <stdbool.h>
#include <string.h>

#include "common/kargs_fill.h"
#include "common/staged_bias.h"
#include "common/status.h"

enum { BOX_BYTES = 128, ALIGNMENT = 16 };

/* Operands with a row for each key; the others have one for each query. */
static const bool of_keys[PF_OPERAND_COUNT] = {
    [PF_OPERAND_K] = true,      [PF_OPERAND_K + 1] = true, [PF_OPERAND_TK] = true,
    [PF_OPERAND_TK + 1] = true, [PF_OPERAND_V] = true,     [PF_OPERAND_TV] = true,
};

/* Forward owns queries and backward keys; the rest streams past. */
static int tile_rows(bool keys, const pf_tuning *tuning) {
    bool owns_keys = tuning->op == PF_OP_BACKWARD || tuning->op == PF_OP_BACKWARD_JVP;
    return keys == owns_keys ? tuning->owned_tile : tuning->cross_tile;
}

static CUtensorMapDataType map_type(pfattn_dtype dtype) {
    return dtype == PFATTN_DTYPE_U8     ? CU_TENSOR_MAP_DATA_TYPE_UINT8
           : dtype == PFATTN_DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                        : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}

_Static_assert(sizeof(pf_tensor_map) == sizeof(CUtensorMap) &&
                   _Alignof(pf_tensor_map) >= _Alignof(CUtensorMap),
               "a map has room for a CUtensorMap");

/* Of maps that are right but for their addresses; that takes a fraction of encoding them. */
static pfattn_status replace_address(const pf_cuda_driver *driver, const pfattn_tensor *t,
                                     pf_tensor_map *map) {
    CUresult result = driver->cuTensorMapReplaceAddress((CUtensorMap *)map, t->data);
    return result == CUDA_SUCCESS ? PFATTN_SUCCESS
                                  : pf_cuda_check(driver, result, "cuTensorMapReplaceAddress");
}

static pfattn_status encode(const pf_cuda_driver *driver, const pfattn_tensor *t, int rows,
                            int box_rows, bool mapped, pf_tensor_map *map) {
    if (mapped) {
        return replace_address(driver, t, map);
    }
    cuuint64_t size = pfattn_dtype_size(t->dtype);
    cuuint64_t extent[4] = {(cuuint64_t)t->shape[3], (cuuint64_t)rows, 1, 1};
    cuuint64_t stride[3];
    cuuint32_t box[4] = {(cuuint32_t)(BOX_BYTES / size), (cuuint32_t)box_rows, 1, 1};
    cuuint32_t step[4] = {1, 1, 1, 1};
    for (int d = 0; d < 3; d++) { /* row, head, batch */
        cuuint64_t elements = (cuuint64_t)t->stride[2 - d];
        /* A stride that is never used must be legal all the same. */
        stride[d] = elements != 0 ? elements * size : ALIGNMENT;
        if (d > 0 && elements != 0) {
            extent[d + 1] = (cuuint64_t)t->shape[2 - d];
        }
    }
    CUresult result = driver->cuTensorMapEncodeTiled(
        (CUtensorMap *)map, map_type(t->dtype), 4, t->data, extent, stride, box, step,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? PFATTN_SUCCESS
                                  : pf_cuda_check(driver, result, "cuTensorMapEncodeTiled");
}

static bool has_elements(const pfattn_tensor *t) {
    return t->dtype != PFATTN_DTYPE_NONE && t->shape[0] > 0 && t->shape[1] > 0 && t->shape[2] > 0 &&
           t->shape[3] > 0;
}

/* Bias, its tangent and mask, and dbias in tiles of the same shape. */
static pfattn_status encode_bias(const pf_cuda_driver *driver, const pf_tuning *tuning,
                                 pf_plan_arguments *arguments) {
    const pf_problem *problem = arguments->problem;
    const pf_attention_kargs *args = &arguments->attention;
    int tile = tile_rows(false, tuning);
    pfattn_status status = PFATTN_SUCCESS;
    for (int map = PF_MAP_BIAS; map <= PF_MAP_MASK && status == PFATTN_SUCCESS; map++) {
        const pfattn_tensor *t = &problem->tensor[pf_map_tensor(map)];
        if (args->bias_stages > 0 && pf_present(problem, pf_map_tensor(map))) {
            bool one = pf_is_one_row(t);
            status = encode(driver, t, one ? 1 : args->queries, one ? 1 : tile, arguments->mapped,
                            &arguments->maps[map]);
        }
    }
    return status == PFATTN_SUCCESS && args->dbias_staged
               ? encode(driver, pf_gradient(problem, PF_DBIAS), args->queries, tile,
                        arguments->mapped, &arguments->maps[PF_MAP_DBIAS])
               : status;
}

/* An operand without a map borrows one of the same tile: kernels then load past its rows, for
 * zeros. */
static void lend_maps(const bool encoded[PF_OPERAND_COUNT], const int lender[2],
                      pf_tensor_map *maps) {
    for (int i = 0; i < PF_OPERAND_COUNT; i++) {
        if (!encoded[i] && lender[of_keys[i]] >= 0) {
            maps[i] = maps[lender[of_keys[i]]];
        }
    }
}

static pfattn_status encode_operands(const pf_cuda_driver *driver, const pf_tuning *tuning,
                                     pf_plan_arguments *arguments) {
    const pf_attention_kargs *args = &arguments->attention;
    const int tile[2] = {tile_rows(false, tuning), tile_rows(true, tuning)};
    int lender[2] = {-1, -1}; /* the first operand with a map of such a tile */
    bool encoded[PF_OPERAND_COUNT];
    for (int i = 0; i < PF_OPERAND_COUNT; i++) {
        const pfattn_tensor *t = &arguments->problem->tensor[pf_operand_tensor(i)];
        encoded[i] = has_elements(t);
        if (!encoded[i]) {
            continue;
        }
        /* A map of no rows would be refused; kernels do not read the row that stands for them. */
        int rows = pf_operand_rows(args, i) > 0 ? pf_operand_rows(args, i) : 1;
        pfattn_status status =
            encode(driver, t, rows, tile[of_keys[i]], arguments->mapped, &arguments->maps[i]);
        if (status != PFATTN_SUCCESS) {
            return status;
        }
        for (int side = 0; side < 2; side++) {
            lender[side] = lender[side] < 0 && tile[side] == tile[of_keys[i]] ? i : lender[side];
        }
    }
    lend_maps(encoded, lender, arguments->maps);
    return PFATTN_SUCCESS;
}

pfattn_status pf_tensor_maps_encode(const pf_cuda_driver *driver, const pf_tuning *tuning,
                                    pf_plan_arguments *arguments) {
    const pf_attention_kargs *args = &arguments->attention;
    if (!arguments->mapped) {
        memset(arguments->maps, 0, sizeof arguments->maps);
    }
    pfattn_status status = encode_operands(driver, tuning, arguments);
    if (status == PFATTN_SUCCESS) {
        status = encode_bias(driver, tuning, arguments);
    }
    if (status == PFATTN_SUCCESS && args->o_staged) {
        status = encode(driver, &arguments->problem->tensor[PF_O], args->queries, PF_OUT_ROWS,
                        arguments->mapped, &arguments->maps[PF_MAP_O]);
    }
    arguments->mapped = status == PFATTN_SUCCESS;
    return status;
}
