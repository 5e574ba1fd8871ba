/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the tuning table for check_resources.py: target op class head_dim variant threads
 * min_blocks shared_bytes, a row a line. */
#include <stdio.h>

#include "common/select.h"
#include "cuda/tuning.h"

int main(void) {
    static const char *const ops[] = {"forward",      "forward_jvp", "backward",
                                      "backward_jvp", "dbias",       "dbias_jvp"};
    static const char *const classes[] = {"half", "f32", "e5m2"};
    for (int i = 0; i < PF_CUDA_TUNING_COUNT; i++) {
        const pf_tuning *t = &pf_cuda_tuning[i];
        printf("%s %s %s %d %d %d %d %d\n", pf_target_name(t->target), ops[t->op],
               classes[t->element_class], t->head_dim, t->variant, t->threads, t->min_blocks,
               t->shared_bytes);
    }
    return 0;
}
