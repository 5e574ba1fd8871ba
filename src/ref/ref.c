/* SPDX-License-Identifier: Apache-2.0 */
#include "ref.h"

#include <stdlib.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "common/status.h"
#include "job.h"

int pf_ref_threads(void) {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

/* Below about a hundred microseconds of work, waking threads costs more than they save. */
static int worthwhile_threads(const pf_problem *problem) {
    const double elements = (double)problem->batch * (double)problem->heads *
                            (double)problem->queries * ((double)problem->keys + 1);
    const double work = elements * ((double)problem->dim_qk + (double)problem->dim_v + 8);
    return work < 1e6 ? 1 : pf_ref_threads();
}

static void describe(pf_ref_job *job, const pf_problem *problem, const pf_ref_options *options) {
    *job = (pf_ref_job){
        .problem = problem, .product = problem->dtype, .threads = worthwhile_threads(problem)};
    job->far = problem->distance - problem->diagonal; /* checked problems do not overflow here */
    if (options == NULL) {
        return;
    }
    if (options->product_dtype != PFATTN_DTYPE_NONE) {
        job->product = options->product_dtype;
    }
    job->round = options->round_products && job->product != PFATTN_DTYPE_F64;
    job->flush = options->flush_subnormals && job->product != PFATTN_DTYPE_F32 &&
                 job->product != PFATTN_DTYPE_F64;
}

pfattn_status pf_ref_run(const pf_problem *problem, const pf_ref_options *options) {
    const bool wide = problem->dtype == PFATTN_DTYPE_F64;
    pf_ref_job job;
    describe(&job, problem, options);

    size_t total;
    const bool fits = wide ? pf_ref_scratch_f64(problem, &job.scratch_bytes)
                           : pf_ref_scratch_f32(problem, &job.scratch_bytes);
    if (!fits || __builtin_mul_overflow(job.scratch_bytes, (size_t)job.threads, &total)) {
        return pf_error(
            PFATTN_ERROR_OUT_OF_MEMORY,
            "ref: the tiles of head dimensions %lld and %lld do not fit the address space",
            (long long)problem->dim_qk, (long long)problem->dim_v);
    }
    job.scratch = aligned_alloc(64, total);
    if (job.scratch == NULL) {
        return pf_error(PFATTN_ERROR_OUT_OF_MEMORY, "ref: no memory for %zu bytes of tiles", total);
    }
    if (wide) {
        pf_ref_compute_f64(&job);
    } else {
        pf_ref_compute_f32(&job);
    }
    free(job.scratch);
    return PFATTN_SUCCESS;
}
