/* SPDX-License-Identifier: Apache-2.0 */
/* One kernel per class of vector arithmetic; out[k * n + i] holds the k-th result of element i. */
#include "device.h"

#define N 256 /* elements, one a work-item */

KERNEL float_arithmetic(float *out, const float *a, const float *b, const float *c) {
    int i = INDEX;
    float x = a[i], y = b[i], z = c[i];
    out[0 * N + i] = x + y;
    out[1 * N + i] = x - y;
    out[2 * N + i] = x * y;
    out[3 * N + i] = __builtin_fmaf(x, y, z);
    out[4 * N + i] = __builtin_fminf(x, y);
    out[5 * N + i] = __builtin_fmaxf(x, y);
    out[6 * N + i] = __builtin_floorf(x);
    out[7 * N + i] = __builtin_ceilf(x);
    out[8 * N + i] = __builtin_truncf(x);
    out[9 * N + i] = __builtin_rintf(x);
    out[10 * N + i] = -__builtin_fabsf(x) * y;
    out[11 * N + i] = __builtin_fmaxf(__builtin_fmaxf(x, y), z);
    out[12 * N + i] = __builtin_ldexpf(x, i - 128);
    out[13 * N + i] = x < y ? z : x;
    out[14 * N + i] = __builtin_amdgcn_fmed3f(x, y, z);
}

KERNEL float_division(float *out, const float *a, const float *b) {
    int i = INDEX;
    out[i] = a[i] / b[i];
    out[N + i] = __builtin_sqrtf(__builtin_fabsf(a[i]));
}

KERNEL float_transcendental(float *out, const float *a) {
    int i = INDEX;
    out[0 * N + i] = __builtin_expf(a[i]);
    out[1 * N + i] = __builtin_logf(__builtin_fabsf(a[i]));
    out[2 * N + i] = __builtin_exp2f(a[i]);
    out[3 * N + i] = __builtin_log2f(__builtin_fabsf(a[i]));
    out[4 * N + i] = __builtin_sinf(a[i]);
    out[5 * N + i] = __builtin_amdgcn_rcpf(a[i]);
}

KERNEL double_arithmetic(double *out, const double *a, const double *b) {
    int i = INDEX;
    double x = a[i], y = b[i];
    out[0 * N + i] = x + y;
    out[1 * N + i] = x * y;
    out[2 * N + i] = x / y;
    out[3 * N + i] = __builtin_sqrt(__builtin_fabs(x));
    out[4 * N + i] = __builtin_fma(x, y, x);
    out[5 * N + i] = (double)(float)x;
    out[6 * N + i] = (double)(int)x;
    out[7 * N + i] = __builtin_floor(x);
    out[8 * N + i] = x < y ? x : y;
}

KERNEL integer_arithmetic(unsigned *out, const unsigned *a, const unsigned *b) {
    int i = INDEX;
    unsigned x = a[i], y = b[i];
    int s = (int)x, t = (int)y;
    out[0 * N + i] = x + y;
    out[1 * N + i] = x * y;
    out[2 * N + i] = (unsigned)(((unsigned long)x * y) >> 32);
    out[3 * N + i] = (unsigned)(((long)s * t) >> 32);
    out[4 * N + i] = x / (y | 1);
    out[5 * N + i] = x % (y | 1);
    out[6 * N + i] = (unsigned)(s >> (y & 31));
    out[7 * N + i] = x << (y & 31) | x >> (32 - (y & 31) & 31);
    out[8 * N + i] = (unsigned)(s < t ? s : t);
    out[9 * N + i] = x > y ? x : y;
    out[10 * N + i] = (unsigned)__builtin_popcount(x);
    out[11 * N + i] = (unsigned)__builtin_clz(x | 1);
    out[12 * N + i] = __builtin_bitreverse32(x);
    out[13 * N + i] = (x & y) | (~x & 0x12345678u);
    out[14 * N + i] = (x >> 5 & 0x7ff) + (y << 3);
    out[15 * N + i] = (x & 0xffffff) * (y & 0xffffff) + 7;
}

KERNEL long_arithmetic(unsigned long *out, const unsigned long *a, const unsigned long *b) {
    int i = INDEX;
    unsigned long x = a[i], y = b[i];
    long s = (long)x, t = (long)y;
    out[0 * N + i] = x + y;
    out[1 * N + i] = x - y;
    out[2 * N + i] = x * y;
    out[3 * N + i] = (unsigned long)(s / (t | 1));
    out[4 * N + i] = x % (y | 1);
    out[5 * N + i] = (unsigned long)(s >> (y & 63));
    out[6 * N + i] = s < t ? x : y;
    out[7 * N + i] = x << (y & 63);
}

KERNEL half_arithmetic(half *out, const half *a, const half *b, const half *c) {
    int i = INDEX;
    half x = a[i], y = b[i], z = c[i];
    out[0 * N + i] = x + y;
    out[1 * N + i] = x * y;
    out[2 * N + i] = __builtin_fmaf16(x, y, z);
    out[3 * N + i] = x > y ? x : y;
    out[4 * N + i] = (half)((float)x * (float)y + (float)z);
    out[5 * N + i] = (half)(short)x;
    out[6 * N + i] = x / y;
}

KERNEL packed_arithmetic(half2_ *out, const half2_ *a, const half2_ *b, const half2_ *c) {
    int i = INDEX;
    half2_ x = a[i], y = b[i], z = c[i];
    out[0 * N + i] = x + y;
    out[1 * N + i] = x * y.yx;
    out[2 * N + i] = __builtin_elementwise_fma(x, y, z);
    out[3 * N + i] = __builtin_elementwise_fma(x.yx, -y, (half2_)(half)1.0f);
    out[4 * N + i] = __builtin_elementwise_max(x, z);
}

KERNEL packed_integer(short2_ *out, const short2_ *a, const short2_ *b) {
    int i = INDEX;
    short2_ x = a[i], y = b[i];
    out[0 * N + i] = x + y;
    out[1 * N + i] = x * y;
    out[2 * N + i] = x - y.yx;
    out[3 * N + i] = __builtin_elementwise_max(x, y);
    out[4 * N + i] = x >> (short2_)3;
}

KERNEL packed_float(float2_ *out, const float2_ *a, const float2_ *b) {
    int i = INDEX;
    float2_ x = a[i], y = b[i];
    out[0 * N + i] = x + y;
    out[1 * N + i] = x * y;
    out[2 * N + i] = __builtin_elementwise_fma(x, y, x);
    out[3 * N + i] = x * 3.0f - y.yx;
    out[4 * N + i] = x * (float2_){2.0f, 2.0f} + y;
}

KERNEL conversions(float *out, const float *a, const int *b) {
    int i = INDEX;
    float x = a[i];
    out[0 * N + i] = (float)(half)x;
    out[1 * N + i] = (float)(__bf16)x;
    out[2 * N + i] = (float)(int)x;
    out[3 * N + i] = (float)(unsigned)__builtin_fabsf(x);
    out[4 * N + i] = (float)b[i];
    out[5 * N + i] = (float)(unsigned)b[i];
    out[6 * N + i] = (float)(b[i] & 255);
    out[7 * N + i] = (float)(b[i] >> 8 & 255);
    out[8 * N + i] = (float)(signed char)(b[i] >> 16);
    out[9 * N + i] = (float)__builtin_amdgcn_cvt_pkrtz(x, 0.f).x;
    out[10 * N + i] = (float)(short)b[i];
}

#if defined(__gfx942__)
KERNEL fp8(int *out, const float *a, const int *b) {
    int i = INDEX;
    out[0 * N + i] = __builtin_amdgcn_cvt_pk_bf8_f32(a[i], -a[i], 0, false);
    out[1 * N + i] = __builtin_amdgcn_cvt_pk_fp8_f32(a[i], -a[i], b[i], true);
    out[2 * N + i] = __builtin_bit_cast(int, __builtin_amdgcn_cvt_f32_bf8(b[i], 0));
    out[3 * N + i] = __builtin_bit_cast(int, __builtin_amdgcn_cvt_f32_bf8(b[i], 3));
    out[4 * N + i] = __builtin_bit_cast(int, __builtin_amdgcn_cvt_f32_fp8(b[i], 1));
    float2_ pair = __builtin_amdgcn_cvt_pk_f32_fp8(b[i], true);
    ((float2_ *)(out + 5 * N))[i] = pair;
}
#endif
