/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the operation tables; the vector ones in the variant that suits the CPU. */
#include "sim.h"

#define VECTOR_TABLES(X, variant)                                                                  \
    X(valu_int_##variant), X(valu_float_##variant), X(valu_half_##variant), X(valu_cvt_##variant), \
        X(valu_cmp_##variant), X(valu_packed_##variant), X(valu_lane_##variant), X(mfma_##variant)
#define SCALAR_TABLES(X) X(salu_base), X(sflow_base), X(lds_base), X(vmem_base)

#define EXTERN(name) sim_ops_##name
extern const struct sim_optable SCALAR_TABLES(EXTERN);
extern const struct sim_optable VECTOR_TABLES(EXTERN, base);
#ifdef SIM_HAVE_AVX2
extern const struct sim_optable VECTOR_TABLES(EXTERN, avx2);
#endif

#define MAX_TABLES 16

const struct sim_optable *sim_optables(size_t *count) {
    static struct sim_optable tables[MAX_TABLES];
    const struct sim_optable *const scalar[] = {
#define ADDRESS(name) &sim_ops_##name
        SCALAR_TABLES(ADDRESS)};
    const struct sim_optable *const base[] = {VECTOR_TABLES(ADDRESS, base)};
    const struct sim_optable *const *vector = base;
    size_t n = 0;
#ifdef SIM_HAVE_AVX2
    const struct sim_optable *const avx2[] = {VECTOR_TABLES(ADDRESS, avx2)};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        vector = avx2;
#endif
    for (size_t i = 0; i < sizeof(scalar) / sizeof(scalar[0]); i++)
        tables[n++] = *scalar[i];
    for (size_t i = 0; i < sizeof(base) / sizeof(base[0]); i++)
        tables[n++] = *vector[i];
    *count = n;
    return tables;
}
