/* SPDX-License-Identifier: Apache-2.0 */
/* Exchange between lanes: DPP, ds_bpermute, swizzle, readlane, ballot, wave reductions. */
#include "device.h"

#define DPP(x, control, row_mask, bank_mask, bound)                                                \
    __builtin_amdgcn_update_dpp(-1, x, control, row_mask, bank_mask, bound)

KERNEL dpp(int *out, const int *in) {
    int x = in[LANE], n = 64;
    out[0 * n + LANE] = DPP(x, 0xb1, 15, 15, false);   /* quad_perm:[1,0,3,2] */
    out[1 * n + LANE] = DPP(x, 0x101, 15, 15, false);  /* row_shl:1 */
    out[2 * n + LANE] = DPP(x, 0x113, 15, 15, true);   /* row_shr:3, zero where invalid */
    out[3 * n + LANE] = DPP(x, 0x124, 15, 15, false);  /* row_ror:4 */
    out[4 * n + LANE] = DPP(x, 0x140, 15, 15, false);  /* row_mirror */
    out[5 * n + LANE] = DPP(x, 0x141, 15, 15, false);  /* row_half_mirror */
    out[6 * n + LANE] = DPP(x, 0x142, 10, 15, false);  /* row_bcast:15 to rows 1 and 3 */
    out[7 * n + LANE] = DPP(x, 0x143, 12, 15, false);  /* row_bcast:31 to rows 2 and 3 */
    out[8 * n + LANE] = DPP(x, 0x140, 15, 5, false);   /* banks 0 and 2 only */
    out[9 * n + LANE] = DPP(x, 0x138, 15, 15, false);  /* wave_shr:1 */
    out[10 * n + LANE] = DPP(x, 0x153, 15, 15, false); /* row_newbcast:3 */
}

KERNEL exchange(int *out, const int *in) {
    int x = in[LANE], n = 64;
    out[0 * n + LANE] = __builtin_amdgcn_ds_bpermute((LANE ^ 32) * 4, x);
    out[1 * n + LANE] = __builtin_amdgcn_ds_permute((LANE * 5 & 63) * 4, x);
    out[2 * n + LANE] = __builtin_amdgcn_ds_swizzle(x, 0x041f);        /* xor 1 */
    out[3 * n + LANE] = __builtin_amdgcn_ds_swizzle(x, 0x8000 | 0x1b); /* quad reversed */
    out[4 * n + LANE] = __builtin_amdgcn_readlane(x, 17);
    out[5 * n + LANE] = __builtin_amdgcn_readfirstlane(x);
    out[6 * n + LANE] = (int)__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
    unsigned long odd = __builtin_amdgcn_ballot_w64(x & 1);
    out[7 * n + LANE] = (int)(odd >> 32) ^ (int)odd;
    if (LANE >= 8)
        out[9 * n + LANE] = __builtin_amdgcn_readfirstlane(x);
    else
        out[9 * n + LANE] = __builtin_amdgcn_ds_bpermute(36, x); /* lane 9 is not active here */
}

/* Sum and maximum over a workgroup of 256: DPP-free butterfly, then LDS. */
KERNEL reduce(float *out, const float *in) {
    SHARED static float sums[4], maxima[4];
    float s = in[INDEX], m = s;
    for (int d = 1; d < 64; d *= 2) {
        int a = (((LANE & 63) ^ d) & 63) * 4;
        s += __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(a, __builtin_bit_cast(int, s)));
        m = __builtin_fmaxf(m, __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(
                                                             a, __builtin_bit_cast(int, m))));
    }
    if ((LANE & 63) == 0) {
        sums[LANE >> 6] = s;
        maxima[LANE >> 6] = m;
    }
    barrier();
    if (LANE == 0) {
        out[2 * GROUP] = sums[0] + sums[1] + sums[2] + sums[3];
        out[2 * GROUP + 1] = __builtin_fmaxf(__builtin_fmaxf(maxima[0], maxima[1]),
                                             __builtin_fmaxf(maxima[2], maxima[3]));
    }
}
