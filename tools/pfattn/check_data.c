/* SPDX-License-Identifier: Apache-2.0 */
#include "check_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "random.h"
#include "tool.h"

enum { BLOCK = 64 };

typedef double (*filler)(const check_data *data, pf_tensor_id id, const int64_t index[4],
                         uint64_t seed, uint64_t number);

static double fill_sequence(const check_data *data, pf_tensor_id id, const int64_t index[4],
                            uint64_t seed, uint64_t number) {
    (void)index;
    bool is_cotangent = id == PF_DOUT || id == PF_TDOUT || id == PF_DLSE;
    pf_tensor_id primal = call_primal(id);
    bool is_query = primal == PF_Q || primal == PF_Q2;
    double std = is_query && !isnan(data->c.q_std) ? data->c.q_std : data->c.std;
    return random_normal(seed, number) * (is_cotangent ? 1 : std);
}

static double lowest_finite(pfattn_dtype dtype) {
    switch (dtype) {
    case PFATTN_DTYPE_F16:
        return -65504;
    case PFATTN_DTYPE_BF16:
        return -0x1.fep127;
    case PFATTN_DTYPE_F64:
        return -0x1.fffffffffffffp1023;
    default:
        return -0x1.fffffep127;
    }
}

static double fill_bias(const check_data *data, pf_tensor_id id, const int64_t index[4],
                        uint64_t seed, uint64_t number) {
    double lowest = lowest_finite(case_dtype(&data->c, PF_BIAS));
    double value = random_normal(seed, number), chance = random_uniform(seed + 1, number);
    const int64_t *shape = data->image[id].shape;
    uint64_t row = (uint64_t)((index[0] * shape[1] + index[1]) * shape[2] + index[2]);
    double row_chance = random_uniform(seed + 2, row);
    switch ((case_bias_fill)data->c.bias_fill) {
    case BIAS_ZERO:
        return 0;
    case BIAS_SOME_INF:
        return chance < 0.25 ? -INFINITY : value;
    case BIAS_ROWS_INF:
        return row_chance < 1.0 / 3 ? -INFINITY : value;
    case BIAS_LOWEST:
        return row_chance < 0.5 ? lowest : value;
    case BIAS_SOME_LOWEST:
        return chance < 1.0 / 3 ? lowest : value;
    default:
        return value;
    }
}

static bool mask_keeps(const check_data *data, const int64_t index[4], uint64_t seed,
                       uint64_t number) {
    const int64_t *shape = data->image[PF_MASK].shape;
    uint64_t head = (uint64_t)(index[0] * shape[1] + index[1]);
    uint64_t row = head * (uint64_t)shape[2] + (uint64_t)index[2];
    uint64_t block = (head * (uint64_t)(shape[2] / BLOCK + 1) + (uint64_t)(index[2] / BLOCK)) *
                         (uint64_t)(shape[3] / BLOCK + 1) +
                     (uint64_t)(index[3] / BLOCK);
    switch ((case_mask_fill)data->c.mask) {
    case MASK_ZEROS:
        return false;
    case MASK_RANDOM:
        return random_uniform(seed, number) < 0.7;
    case MASK_PADDING:
        return (double)index[3] < random_uniform(seed, head) * (double)(shape[3] + 1) - 0.5;
    case MASK_ROWS:
        return random_uniform(seed, row) > 1.0 / 3;
    case MASK_BLOCKS:
        return random_bits(seed, block) & 1;
    default:
        return true;
    }
}

/* Any non-zero byte attends. */
static double fill_mask(const check_data *data, pf_tensor_id id, const int64_t index[4],
                        uint64_t seed, uint64_t number) {
    (void)id;
    uint64_t byte = 1 + random_bits(seed + 1, number) % 255;
    return mask_keeps(data, index, seed, number) ? (double)byte : 0;
}

/* L of the parts of a merge; the same rows of both parts may be empty. */
static double fill_part_lse(const check_data *data, pf_tensor_id id, const int64_t index[4],
                            uint64_t seed, uint64_t number) {
    (void)index;
    double chance = random_uniform(random_seed(data->seed, "empty"), number);
    bool empty = chance < 0.1 || (id == PF_LSE0 ? chance < 0.3 : chance > 0.8);
    double spread = random_uniform(seed + 1, number) < 0.1 ? 100 : 3;
    return data->c.empty && empty ? -INFINITY : spread * random_normal(seed, number);
}

static filler filler_of(pf_tensor_id id) {
    switch (id) {
    case PF_BIAS:
        return fill_bias;
    case PF_MASK:
        return fill_mask;
    case PF_LSE0:
    case PF_LSE1:
        return fill_part_lse;
    default:
        return fill_sequence;
    }
}

static void set_byte(tensor_image *image, const int64_t index[4], double value) {
    /* pf_store makes every mask element 0 or 1; any byte must do. */
    unsigned char *base = image->bytes + image->origin;
    base[index[0] * image->host_stride[0] + index[1] * image->host_stride[1] +
         index[2] * image->host_stride[2] + index[3] * image->host_stride[3]] =
        (unsigned char)value;
}

static void fill_row(const check_data *data, pf_tensor_id id, tensor_image *image, filler fill,
                     uint64_t seed, int64_t row) {
    int64_t index[4] = {row / image->shape[2] / image->shape[1],
                        row / image->shape[2] % image->shape[1], row % image->shape[2], 0};
    for (index[3] = 0; index[3] < image->shape[3]; index[3]++) {
        double value = fill(data, id, index, seed, image_number(image, index));
        if (id == PF_MASK) {
            set_byte(image, index, value);
        } else {
            image_set(image, index, value);
        }
    }
}

static void fill_image(check_data *data, pf_tensor_id id) {
    tensor_image *image = &data->image[id];
    uint64_t seed = random_seed(data->seed, pf_tensor_name(id));
    int64_t rows = image->shape[0] * image->shape[1] * image->shape[2];
    filler fill = filler_of(id);
    /* Threads must not share elements: with a broadcast layout they would. */
#ifdef _OPENMP
    bool shared = data->c.layout == LAYOUT_BROADCAST;
#pragma omp parallel for schedule(static) if (!shared && rows > 4096)
#endif
    for (int64_t row = 0; row < rows; row++) {
        fill_row(data, id, image, fill, seed, row);
    }
}

/* A part of a merge that has no key has O = 0 and no tangents. */
static void clear_empty_parts(check_data *data) {
    static const pf_tensor_id parts[2][4] = {{PF_LSE0, PF_O0, PF_TO0, PF_TLSE0},
                                             {PF_LSE1, PF_O1, PF_TO1, PF_TLSE1}};
    for (int p = 0; p < 2; p++) {
        const tensor_image *lse = &data->image[parts[p][0]];
        int64_t rows = lse->shape[0] * lse->shape[1] * lse->shape[2];
        for (int64_t row = 0; row < rows; row++) {
            int64_t i[4] = {row / lse->shape[2] / lse->shape[1],
                            row / lse->shape[2] % lse->shape[1], row % lse->shape[2], 0};
            if (image_get(lse, i) != -INFINITY) {
                continue;
            }
            for (int t = 1; t < 4; t++) {
                tensor_image *image = &data->image[parts[p][t]];
                for (i[3] = 0; image->dtype && i[3] < image->shape[3]; i[3]++) {
                    image_set(image, i, 0);
                }
                i[3] = 0;
            }
        }
    }
}

void check_data_create(check_data *data, const check_case *c, uint64_t seed) {
    memset(data, 0, sizeof *data);
    data->c = *c;
    char text[1024];
    case_print(c, text, sizeof text);
    data->seed = random_seed(seed, text);
    data->stage_count = case_stages(c, data->stages);
    for (int i = 0; i < data->stage_count; i++) {
        data->outputs |= call_outputs(data->stages[i]);
    }
    for (int i = 0; i < PF_TENSOR_COUNT; i++) {
        pf_tensor_id id = (pf_tensor_id)i;
        data->stored_in[i] = id;
        if (!case_has(c, id)) {
            data->outputs &= ~TENSOR_BIT(i);
            continue;
        }
        bool is_output = data->outputs >> i & 1;
        image_create(&data->image[i], c, id, is_output,
                     random_seed(data->seed + 1, pf_tensor_name(id)));
        if (is_output) {
            image_fill_nan(&data->image[i]);
        } else {
            fill_image(data, id);
        }
    }
    if (c->op == CASE_MERGE && c->empty) {
        clear_empty_parts(data);
    }
    if (c->inplace) {
        static const pf_tensor_id pairs[4][2] = {
            {PF_O, PF_O0}, {PF_LSE, PF_LSE0}, {PF_TO, PF_TO0}, {PF_TLSE, PF_TLSE0}};
        for (int i = 0; i < 4; i++) {
            data->stored_in[pairs[i][0]] = pairs[i][1];
        }
    }
}

void check_data_free(check_data *data) {
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        image_free(&data->image[id]);
        free(data->expected[id]);
        free(data->clean[id]);
    }
}

void check_data_scale_cotangents(check_data *data, double factor) {
    static const pf_tensor_id cotangents[] = {PF_DOUT, PF_TDOUT, PF_DLSE};
    for (size_t t = 0; t < sizeof cotangents / sizeof *cotangents && factor != 1; t++) {
        tensor_image *image = &data->image[cotangents[t]];
        for (int64_t n = 0; image->dtype && n < image->shape[0] * image->shape[1]; n++) {
            int64_t i[4] = {n / image->shape[1], n % image->shape[1], 0, 0};
            /* Stride 0: each element once. */
            if ((i[0] && !image->host_stride[0]) || (i[1] && !image->host_stride[1])) {
                continue;
            }
            for (i[2] = 0; i[2] < image->shape[2]; i[2]++) {
                for (i[3] = 0; i[3] < image->shape[3]; i[3]++) {
                    image_set(image, i, image_get(image, i) * factor);
                }
            }
        }
    }
}

call_scalars check_data_scalars(const check_data *data) {
    const check_case *c = &data->c;
    call_scalars scalars = {0};
    scalars.flags = (c->causal ? PFATTN_FLAG_CAUSAL : 0) |
                    (c->deterministic ? PFATTN_FLAG_DETERMINISTIC : 0) |
                    (isnan(c->alpha) ? 0 : PFATTN_FLAG_ALPHA) |
                    (c->diagonal == CASE_UNSET ? 0 : PFATTN_FLAG_DIAGONAL);
    scalars.alpha = isnan(c->alpha) ? 0 : c->alpha;
    scalars.diagonal = c->diagonal == CASE_UNSET ? 0 : c->diagonal;
    scalars.distance = c->distance == CASE_UNSET ? 0 : c->distance;
    return scalars;
}

bool check_data_keeps(const check_data *data, int64_t b, int64_t h, int64_t i, int64_t j) {
    const check_case *c = &data->c;
    int64_t diagonal = c->diagonal == CASE_UNSET ? c->keys - c->queries : c->diagonal;
    if (c->causal && j - i > diagonal) {
        return false;
    }
    const tensor_image *pairs[2] = {&data->image[PF_MASK], &data->image[PF_BIAS]};
    for (int p = 0; p < 2; p++) {
        const int64_t *shape = pairs[p]->shape;
        if (pairs[p]->dtype == PFATTN_DTYPE_NONE) {
            continue;
        }
        int64_t index[4] = {shape[0] > 1 ? b : 0, shape[1] > 1 ? h : 0, shape[2] > 1 ? i : 0,
                            shape[3] > 1 ? j : 0};
        double value = image_get(pairs[p], index);
        if (p == 0 ? value == 0 : value == -INFINITY) {
            return false;
        }
    }
    return true;
}

static bool key_is_kept(const check_data *data, int64_t b, int64_t kv_head, int64_t j) {
    const check_case *c = &data->c;
    int64_t group = c->heads / c->kv_heads;
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
        for (int64_t i = 0; i < c->queries; i++) {
            if (check_data_keeps(data, b, h, i, j)) {
                return true;
            }
        }
    }
    return false;
}

static void fill_channels(tensor_image *image, int64_t b, int64_t h, int64_t s,
                          const double *values, int count) {
    int64_t index[4] = {b, h, s, 0};
    for (; image->dtype && index[3] < image->shape[3]; index[3]++) {
        image_set(image, index, values[(index[3] + s) % count]);
    }
}

static void spoil_unkept_keys(check_data *data) {
    static const pf_tensor_id key_tensors[] = {PF_K, PF_V, PF_K2, PF_TK, PF_TV, PF_TK2};
    static const double garbage[] = {NAN, INFINITY, -INFINITY, 1e30, NAN};
    const check_case *c = &data->c;
    for (int64_t b = 0; b < c->batch; b++) {
        for (int64_t h = 0; h < c->kv_heads; h++) {
            for (int64_t j = 0; j < c->keys; j++) {
                if (key_is_kept(data, b, h, j)) {
                    continue;
                }
                for (size_t t = 0; t < sizeof key_tensors / sizeof *key_tensors; t++) {
                    fill_channels(&data->image[key_tensors[t]], b, h, j, garbage, 5);
                }
            }
        }
    }
}

/* Note what must become of one row of every output. */
static void expect_row(check_data *data, int64_t b, int64_t h, int64_t i, int of_o, int of_lse) {
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        if (!(data->outputs >> id & 1)) {
            continue;
        }
        const int64_t *shape = data->image[id].shape;
        if (!data->expected[id]) {
            data->expected[id] = tool_allocate((size_t)(shape[0] * shape[1] * shape[2] * shape[3]));
        }
        int64_t row = (b * shape[1] + h) * shape[2] + i;
        memset(data->expected[id] + row * shape[3], id == PF_O || id == PF_TO ? of_o : of_lse,
               (size_t)shape[3]);
    }
}

/* A NaN in one query, one key or one value of the last batch and head; or an infinite value, which
 * every row that keeps it must show. */
static void spoil_one(check_data *data) {
    static const double nan_value[] = {NAN}, infinite_value[] = {INFINITY};
    const check_case *c = &data->c;
    if (c->batch * c->kv_heads * c->queries * c->keys == 0) {
        return;
    }
    int64_t b = c->batch - 1, group = c->heads / c->kv_heads, key = c->keys / 2;
    if (c->nan == NAN_QUERY) {
        int64_t row = c->queries / 2, h = c->heads - 1;
        bool empty = true;
        for (int64_t j = 0; j < c->keys; j++) {
            empty = empty && !check_data_keeps(data, b, h, row, j);
        }
        fill_channels(&data->image[PF_Q], b, h, row, nan_value, 1);
        fill_channels(&data->image[PF_Q2], b, h, row, nan_value, 1);
        int expect = empty ? EXPECT_ANYTHING : EXPECT_NAN;
        expect_row(data, b, h, row, expect, expect);
        return;
    }
    bool is_key = c->nan == NAN_KEY, is_infinite = c->nan == INFINITE_VALUE;
    fill_channels(&data->image[is_key ? PF_K : PF_V], b, c->kv_heads - 1, key,
                  is_infinite ? infinite_value : nan_value, 1);
    if (is_key) {
        fill_channels(&data->image[PF_K2], b, c->kv_heads - 1, key, nan_value, 1);
    }
    for (int64_t h = c->heads - group; h < c->heads; h++) {
        for (int64_t i = 0; i < c->queries; i++) {
            bool kept = check_data_keeps(data, b, h, i, key);
            int of_o = is_infinite ? EXPECT_INFINITY : EXPECT_NAN;
            int of_lse = is_infinite ? EXPECT_VALUE : is_key ? EXPECT_NAN : EXPECT_ANYTHING;
            expect_row(data, b, h, i, kept ? of_o : EXPECT_ANYTHING,
                       kept ? of_lse : EXPECT_ANYTHING);
        }
    }
}

void check_data_spoil(check_data *data) {
    static const pf_tensor_id spoiled[] = {PF_Q, PF_K, PF_V, PF_Q2, PF_K2, PF_TK, PF_TV, PF_TK2};
    if (!data->c.garbage && data->c.nan == NAN_NONE) {
        return;
    }
    for (size_t t = 0; t < sizeof spoiled / sizeof *spoiled; t++) {
        const tensor_image *image = &data->image[spoiled[t]];
        if (image->dtype != PFATTN_DTYPE_NONE) {
            size_t bytes = image_host_bytes(image);
            data->clean[spoiled[t]] = memcpy(tool_allocate(bytes), image->bytes, bytes);
        }
    }
    if (data->c.garbage) {
        spoil_unkept_keys(data);
    }
    if (data->c.nan != NAN_NONE) {
        spoil_one(data);
    }
}

void check_data_restore(check_data *data) {
    for (int id = 0; id < PF_TENSOR_COUNT; id++) {
        if (data->clean[id]) {
            memcpy(data->image[id].bytes, data->clean[id], image_host_bytes(&data->image[id]));
        }
    }
}
