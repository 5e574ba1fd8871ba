/* SPDX-License-Identifier: Apache-2.0 */
#include "staged_bias.h"

#include "kargs_fill.h"
#include "select.h"

pf_tensor_id pf_map_tensor(int map) {
    return map == PF_MAP_BIAS    ? PF_BIAS
           : map == PF_MAP_TBIAS ? PF_TBIAS
           : map == PF_MAP_MASK  ? PF_MASK
                                 : pf_operand_tensor(map);
}

bool pf_is_one_row(const pfattn_tensor *tensor) {
    return tensor->stride[2] == 0;
}

/* Keys must be adjacent: one that stands for all has no row to load. */
static bool can_stage(const pf_problem *problem, pf_tensor_id id) {
    pfattn_tensor t = problem->tensor[id];
    if (id != PF_MASK && t.dtype != problem->dtype) {
        return false;
    }
    if (pf_is_one_row(&t)) {
        t.shape[2] = 1;
    }
    return (problem->keys == 1 || t.stride[3] == 1) && pf_tensor_map_obstacle(&t) == NULL;
}

int pf_bias_stages(const pf_problem *problem, const pf_tuning *tuning, bool *apart) {
    *apart = false;
    if (tuning == NULL || tuning->bias_bytes == 0 || problem->queries == 0 || problem->keys == 0 ||
        pfattn_dtype_size(problem->dtype) != 2) {
        return 0;
    }
    bool owns_queries = tuning->op == PF_OP_FORWARD || tuning->op == PF_OP_FORWARD_JVP;
    int queries = owns_queries ? tuning->owned_tile : tuning->cross_tile;
    int keys = owns_queries ? tuning->cross_tile : tuning->owned_tile;
    int bytes = 0, largest = 0;
    for (int map = PF_MAP_BIAS; map <= PF_MAP_MASK; map++) {
        pf_tensor_id id = pf_map_tensor(map);
        if (!pf_present(problem, id)) {
            continue;
        }
        if (!can_stage(problem, id)) {
            return 0;
        }
        int tile =
            id == PF_MASK ? PF_MASK_TILE_BYTES(queries, keys) : PF_BIAS_TILE_BYTES(queries, keys);
        bytes += tile;
        largest = tile > largest ? tile : largest;
    }
    if (bytes == 0) {
        return 0;
    }
    *apart = owns_queries && bytes > tuning->bias_bytes && largest <= tuning->bias_bytes;
    int stages = tuning->bias_bytes / (*apart ? largest : bytes);
    return stages < tuning->stages ? stages : tuning->stages;
}

int pf_staged(const pf_problem *problem, const pf_tuning *tuning) {
    bool apart, bias = pf_present(problem, PF_BIAS);
    bool tangent = problem->operation == PF_FORWARD_JVP || problem->operation == PF_BACKWARD_JVP;
    if (pf_bias_stages(problem, tuning, &apart) == 0 || apart) {
        return PF_STAGED_ANY;
    }
    if (!pf_present(problem, PF_MASK)) {
        return bias && pf_present(problem, PF_TBIAS) == tangent ? PF_STAGED_BIAS : PF_STAGED_ANY;
    }
    return bias || tangent || !((float)problem->alpha > 0.f) ? PF_STAGED_ANY : PF_STAGED_MASK;
}

/* Of a piecewise problem each pair writes its own share. */
bool pf_dbias_is_staged(const pf_problem *problem) {
    const pfattn_tensor *dbias = pf_gradient(problem, PF_DBIAS);
    return pf_wants_gradient(problem, PF_DBIAS) && pf_dbias_is_full(problem) &&
           !problem->piecewise && dbias->dtype == problem->dtype &&
           (problem->queries == 1 || !pf_is_one_row(dbias)) && dbias->stride[3] == 1 &&
           pf_tensor_map_writes(dbias);
}
