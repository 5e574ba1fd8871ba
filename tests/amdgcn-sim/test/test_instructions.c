/* SPDX-License-Identifier: Apache-2.0 */
/* Single instructions against their definitions in the ISA manuals. Lane i's dwords are x[0..3];
 * the two results begin as x[3] and x[2]. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support.h"

static hipModule_t module;

static int setup(void **state) {
    (void)state;
    module = test_module("instructions");
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return hipModuleUnload(module);
}

typedef void (*definition)(const uint32_t x[4], const uint32_t first[4], int lane, uint32_t r[2]);
enum inputs { INTEGERS, SMALL, FLOATS, HALVES };

struct instruction {
    const char *kernel;
    enum inputs inputs;
    definition define;
};

#define A x[0]
#define B x[1]
#define C x[2]
#define D x[3]
#define S0 first[0]
#define S1 first[1]
#define S2 first[2]
#define S3 first[3]
#define FA bits_f32(x[0])
#define FB bits_f32(x[1])
#define FC bits_f32(x[2])
#define FD bits_f32(x[3])
#define I(v) ((int32_t)(v))
#define U64(low, high) ((uint64_t)(high) << 32 | (low))
#define SET64(v)                                                                                   \
    do {                                                                                           \
        uint64_t v_ = (v);                                                                         \
        r[0] = (uint32_t)v_;                                                                       \
        r[1] = (uint32_t)(v_ >> 32);                                                               \
    } while (0)
#define DEFINE(name)                                                                               \
    static void name(const uint32_t x[4], const uint32_t first[4], int lane, uint32_t r[2])
#define UNUSED ((void)x, (void)first, (void)lane, (void)r)

static int32_t middle(int32_t a, int32_t b, int32_t c) {
    return a > b ? (b > c ? b : a > c ? c : a) : (a > c ? a : b > c ? c : b);
}
static uint32_t umiddle(uint32_t a, uint32_t b, uint32_t c) {
    return a > b ? (b > c ? b : a > c ? c : a) : (a > c ? a : b > c ? c : b);
}
static int32_t saturate(int64_t v, int64_t low, int64_t high) {
    return (int32_t)(v < low ? low : v > high ? high : v);
}
static int32_t signed24(uint32_t v) {
    return (int32_t)((v & 0xffffff) ^ 0x800000) - 0x800000;
}
static uint32_t byte_of(uint32_t v, int i) {
    return v >> 8 * i & 255;
}
static int leading_zeros(uint32_t v) {
    int n = 0;
    while (n < 32 && !(v >> (31 - n) & 1))
        n++;
    return n;
}
static double half(uint32_t h) {
    int e = h >> 10 & 31;
    double m = h & 1023, v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h >> 15 & 1 ? -v : v;
}
/* Ties do not occur for the inputs of these tests. */
static uint32_t to_half(double v) {
    int e;
    double m = frexp(fabs(v), &e);
    uint32_t sign = v < 0 ? 0x8000 : 0;
    if (v == 0)
        return 0;
    if (e < -13)
        return sign | (uint32_t)rint(ldexp(fabs(v), 24));
    return sign | (((uint32_t)(e + 14) << 10) + (uint32_t)(rint(ldexp(m, 11)) - 1024));
}

DEFINE(i_bfe_i32) {
    uint32_t at = B & 31, width = C & 31;
    int64_t v = (int64_t)I(A) >> at;
    uint32_t sign = width ? 1u << (width - 1) : 0;
    r[0] = ((uint32_t)v & (2 * sign - 1)) ^ sign;
    r[0] = width ? r[0] - sign : 0;
    UNUSED;
}
DEFINE(i_alignbit) {
    r[0] = (uint32_t)(U64(B, A) >> (C & 31));
    UNUSED;
}
DEFINE(i_alignbyte) {
    r[0] = (uint32_t)(U64(B, A) >> 8 * (C & 3));
    UNUSED;
}
DEFINE(i_perm) {
    r[0] = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t s = byte_of(C, i), b;
        if (s < 8)
            b = byte_of(s < 4 ? B : A, s % 4);
        else if (s < 12)
            b = (s < 10 ? B : A) >> (s % 2 ? 31 : 15) & 1 ? 255 : 0;
        else
            b = s == 12 ? 0 : 255;
        r[0] |= b << 8 * i;
    }
    UNUSED;
}
DEFINE(i_bfi) {
    r[0] = (A & B) | (~A & C);
    UNUSED;
}
DEFINE(i_med3_i32) {
    r[0] = (uint32_t)middle(I(A), I(B), I(C));
    UNUSED;
}
DEFINE(i_med3_u32) {
    r[0] = umiddle(A, B, C);
    UNUSED;
}
DEFINE(i_sad_u8) {
    r[0] = C;
    for (int i = 0; i < 4; i++) {
        int d = (int)byte_of(A, i) - (int)byte_of(B, i);
        r[0] += (uint32_t)(d < 0 ? -d : d);
    }
    UNUSED;
}
DEFINE(i_mad_i32_i24) {
    r[0] = (uint32_t)((int64_t)signed24(A) * signed24(B)) + C;
    UNUSED;
}
DEFINE(i_mul_hi_u32_u24) {
    r[0] = (uint32_t)(((uint64_t)(A & 0xffffff) * (B & 0xffffff)) >> 32);
    UNUSED;
}
DEFINE(i_ffbh_i32) {
    int n = leading_zeros(I(A) < 0 ? ~A : A);
    r[0] = n == 32 ? 0xffffffffu : (uint32_t)n;
    UNUSED;
}
DEFINE(i_bcnt) {
    r[0] = B;
    for (int i = 0; i < 32; i++)
        r[0] += A >> i & 1;
    UNUSED;
}
DEFINE(i_xad) {
    r[0] = (A ^ B) + C;
    UNUSED;
}
DEFINE(i_add_sat) {
    r[0] = (uint32_t)saturate((int64_t)I(A) + I(B), INT32_MIN, INT32_MAX);
    UNUSED;
}
DEFINE(i_sub_sat) {
    r[0] = A > B ? A - B : 0;
    UNUSED;
}
DEFINE(i_pack_i16) {
    r[0] = ((uint32_t)saturate(I(A), -32768, 32767) & 0xffff) |
           (uint32_t)saturate(I(B), -32768, 32767) << 16;
    UNUSED;
}
DEFINE(i_dot4) {
    r[0] = C;
    for (int i = 0; i < 4; i++)
        r[0] += (uint32_t)((int8_t)byte_of(A, i) * (int8_t)byte_of(B, i));
    UNUSED;
}
DEFINE(i_swap) {
    r[0] = C;
    r[1] = D;
    UNUSED;
}
DEFINE(i_agpr) {
    r[0] = A;
    UNUSED;
}
DEFINE(i_mad_u64) {
    SET64((uint64_t)A * B + U64(C, D));
    UNUSED;
}
DEFINE(i_carry) {
    SET64(U64(A, B) + U64(C, D));
    UNUSED;
}
DEFINE(i_borrow) {
    SET64(U64(A, B) - U64(C, D));
    UNUSED;
}
DEFINE(i_lshrrev_b64) {
    SET64(U64(C, D) >> (A & 63));
    UNUSED;
}
DEFINE(i_ashrrev_i64) {
    SET64((uint64_t)((int64_t)U64(C, D) >> (A & 63)));
    UNUSED;
}
DEFINE(i_writelane) {
    r[0] = lane == 7 ? S0 : r[0];
    UNUSED;
}
DEFINE(i_exec) {
    r[0] = A < B ? 1 : r[0];
    UNUSED;
}
DEFINE(i_cmp_sgpr) {
    r[0] = I(A) > I(B) ? D : C;
    UNUSED;
}
DEFINE(s_sdwa_bytes) {
    r[0] = byte_of(A, 1) + (B >> 16);
    UNUSED;
}
DEFINE(s_sdwa_sext) {
    r[0] = (uint32_t)(int8_t)byte_of(A, 2) + byte_of(B, 0);
    UNUSED;
}
DEFINE(s_sdwa_preserve) {
    r[0] = (r[0] & 0xffff) | (A | B) << 16;
    UNUSED;
}
DEFINE(s_sdwa_pad) {
    r[0] = (byte_of(A, 3) & B & 255) << 8;
    UNUSED;
}
DEFINE(f_clamp) {
    float v = FA + FB;
    r[0] = f32_bits(v < 0 ? 0.f : v > 1 ? 1.f : v);
    UNUSED;
}
DEFINE(f_omod) {
    r[0] = f32_bits(FA * FB * 4);
    r[1] = f32_bits(FA * FB * 0.5f);
    UNUSED;
}
DEFINE(f_modifiers) {
    r[0] = f32_bits(fmaf(-fabsf(FA), FB, fabsf(FC)));
    UNUSED;
}
DEFINE(f_class) {
    int kind = isnan(FA)                     ? (A >> 22 & 1 ? 1 : 0)
               : isinf(FA)                   ? 9
               : fpclassify(FA) == FP_NORMAL ? 8
               : FA != 0                     ? 7
                                             : 6;
    if (kind >= 6 && signbit(FA))
        kind = 11 - kind;
    r[0] = B >> kind & 1;
    UNUSED;
}
DEFINE(f_unordered) {
    r[0] = !(FA < FB);
    r[1] = isnan(FA) || isnan(FB);
    UNUSED;
}
DEFINE(f_frexp) {
    int e = 0;
    r[0] = f32_bits(frexpf(FA, &e));
    r[1] = (uint32_t)e;
    UNUSED;
}
DEFINE(f_fract) {
    float v = FA - floorf(FA);
    r[0] = f32_bits(v < 1 ? v : 0x1.fffffep-1f);
    UNUSED;
}
DEFINE(f_inline) {
    r[0] = f32_bits(bits_f32(0x3e22f983) * FA);
    r[1] = f32_bits(FA - 4.f);
    UNUSED;
}
DEFINE(f_flush) {
    float a = fpclassify(FA) == FP_SUBNORMAL ? 0.f : FA,
          b = fpclassify(FB) == FP_SUBNORMAL ? 0.f : FB;
    float product = a * b, sum = a + b;
    r[0] =
        fpclassify(product) == FP_SUBNORMAL ? f32_bits(copysignf(0.f, product)) : f32_bits(product);
    r[1] = fpclassify(sum) == FP_SUBNORMAL ? 0 : f32_bits(sum);
    UNUSED;
}
DEFINE(f_mixlo) {
    r[0] = (r[0] & 0xffff0000u) | to_half(fmaf((float)half(A >> 16), FB, FC));
    r[1] = (r[1] & 0xffff) | to_half(fmaf((float)half(A & 0xffff), -FB, 1.f)) << 16;
    UNUSED;
}
DEFINE(f_mix) {
    r[0] = f32_bits(fmaf((float)half(A & 0xffff), (float)half(B >> 16), FC));
    UNUSED;
}
DEFINE(f_dot2) {
    double sum = half(A & 0xffff) * half(B & 0xffff) + half(A >> 16) * half(B >> 16) + FC;
    r[0] = f32_bits((float)sum);
    UNUSED;
}
DEFINE(f_pk_mov) {
    r[0] = B;
    r[1] = C;
    UNUSED;
}
DEFINE(f_pk_neg) {
    r[0] = f32_bits(FA - FD);
    r[1] = f32_bits(-FB + FC);
    UNUSED;
}
DEFINE(f_half_opsel) {
    r[0] = (r[0] & 0xffff) | to_half(half(A >> 16) * half(B & 0xffff) + half(C & 0xffff)) << 16;
    UNUSED;
}
DEFINE(f_pk_half) {
    r[0] = to_half(-half(A & 0xffff) * half(B >> 16) + half(C & 0xffff)) |
           to_half(half(A >> 16) * half(B & 0xffff) + half(C >> 16)) << 16;
    UNUSED;
}
DEFINE(c_bfe) {
    r[0] = S0 >> 4 & 255;
    r[1] = (uint32_t)(int8_t)(S0 >> 4);
    UNUSED;
}
DEFINE(c_shift64) {
    SET64(U64(S0, S1) << 20);
    UNUSED;
}
DEFINE(c_ashr64) {
    SET64((uint64_t)((int64_t)U64(S0, S1) >> 13));
    UNUSED;
}
DEFINE(c_add64) {
    SET64(U64(S0, S1) + U64(S2, S3));
    UNUSED;
}
DEFINE(c_sub64) {
    SET64(U64(S0, S1) - U64(S2, S3));
    UNUSED;
}
DEFINE(c_overflow) {
    int64_t v = (int64_t)I(S0) + I(S1);
    r[0] = (uint32_t)v;
    r[1] = v != (int32_t)v;
    UNUSED;
}
DEFINE(c_minmax) {
    r[0] = I(S0) < I(S1) ? S0 : S1;
    r[1] = S0 > S1 ? S0 : S1;
    UNUSED;
}
DEFINE(c_bits) {
    r[0] = r[1] = 0;
    for (int i = 0; i < 32; i++) {
        r[0] |= (S0 >> i & 1) << (31 - i);
        r[1] += (S0 >> i & 1) + (S1 >> i & 1);
    }
    UNUSED;
}
DEFINE(c_find) {
    uint64_t v = U64(S0, S1);
    r[0] = 0;
    while (!(v >> r[0] & 1))
        r[0]++;
    r[1] = (uint32_t)leading_zeros(I(S1) < 0 ? ~S1 : S1);
    UNUSED;
}
DEFINE(c_pack) {
    r[0] = (S0 & 0xffff) | S1 << 16;
    r[1] = (S0 & 0xffff) | (S1 & 0xffff0000u);
    UNUSED;
}
DEFINE(c_andn) {
    SET64(U64(S0, S1) & ~U64(S2, S3));
    UNUSED;
}
DEFINE(c_bitcmp) {
    r[0] = S0 >> 5 & 1;
    r[1] = S0 != S2 || S1 != S3;
    UNUSED;
}
DEFINE(c_constant) {
    r[0] = 0xffff8001u;
    r[1] = 84;
    UNUSED;
}
DEFINE(c_mul) {
    r[0] = S0 * S1;
    r[1] = (uint32_t)(((int64_t)I(S0) * I(S1)) >> 32);
    UNUSED;
}
DEFINE(c_saveexec) {
    r[0] = 0xff;
    r[1] = 0;
    UNUSED;
}
DEFINE(c_call) {
    r[0] = 1;
    r[1] = 3;
    UNUSED;
}
DEFINE(c_loop) {
    r[0] = 55;
    r[1] = 0;
    UNUSED;
}
DEFINE(l_read2st64) {
    r[0] = B;
    r[1] = A;
    UNUSED;
}
DEFINE(l_d16) {
    r[0] = (r[0] & 0xffff) | (A & 0xffff0000u);
    r[1] = (uint32_t)(int8_t)byte_of(A, 1);
    UNUSED;
}
DEFINE(l_cmpst) {
    r[0] = A;
    r[1] = B;
    UNUSED;
}
DEFINE(l_inc) {
    r[0] = A;
    r[1] = A >= B ? 0 : A + 1;
    UNUSED;
}

#define ENTRY(name, inputs)                                                                        \
    { #name, inputs, name }
static const struct instruction instructions[] = {
    ENTRY(i_bfe_i32, INTEGERS),
    ENTRY(i_alignbit, INTEGERS),
    ENTRY(i_alignbyte, INTEGERS),
    ENTRY(i_perm, SMALL),
    ENTRY(i_perm, INTEGERS),
    ENTRY(i_bfi, INTEGERS),
    ENTRY(i_med3_i32, INTEGERS),
    ENTRY(i_med3_u32, INTEGERS),
    ENTRY(i_sad_u8, INTEGERS),
    ENTRY(i_mad_i32_i24, INTEGERS),
    ENTRY(i_mul_hi_u32_u24, INTEGERS),
    ENTRY(i_ffbh_i32, INTEGERS),
    ENTRY(i_ffbh_i32, SMALL),
    ENTRY(i_bcnt, INTEGERS),
    ENTRY(i_xad, INTEGERS),
    ENTRY(i_add_sat, INTEGERS),
    ENTRY(i_sub_sat, INTEGERS),
    ENTRY(i_pack_i16, INTEGERS),
    ENTRY(i_dot4, INTEGERS),
    ENTRY(i_swap, INTEGERS),
    ENTRY(i_agpr, INTEGERS),
    ENTRY(i_mad_u64, INTEGERS),
    ENTRY(i_carry, INTEGERS),
    ENTRY(i_borrow, INTEGERS),
    ENTRY(i_lshrrev_b64, INTEGERS),
    ENTRY(i_ashrrev_i64, INTEGERS),
    ENTRY(i_writelane, INTEGERS),
    ENTRY(i_exec, INTEGERS),
    ENTRY(i_cmp_sgpr, INTEGERS),
    ENTRY(s_sdwa_bytes, INTEGERS),
    ENTRY(s_sdwa_sext, INTEGERS),
    ENTRY(s_sdwa_preserve, INTEGERS),
    ENTRY(s_sdwa_pad, INTEGERS),
    ENTRY(f_clamp, FLOATS),
    ENTRY(f_omod, FLOATS),
    ENTRY(f_modifiers, FLOATS),
    ENTRY(f_class, INTEGERS),
    ENTRY(f_class, SMALL),
    ENTRY(f_unordered, FLOATS),
    ENTRY(f_unordered, INTEGERS),
    ENTRY(f_frexp, FLOATS),
    ENTRY(f_fract, FLOATS),
    ENTRY(f_inline, FLOATS),
    ENTRY(f_flush, SMALL),
    ENTRY(f_flush, FLOATS),
    ENTRY(f_mixlo, HALVES),
    ENTRY(f_mix, HALVES),
    ENTRY(f_dot2, HALVES),
    ENTRY(f_pk_mov, INTEGERS),
    ENTRY(f_pk_neg, FLOATS),
    ENTRY(f_half_opsel, HALVES),
    ENTRY(f_pk_half, HALVES),
    ENTRY(c_bfe, INTEGERS),
    ENTRY(c_shift64, INTEGERS),
    ENTRY(c_ashr64, INTEGERS),
    ENTRY(c_add64, INTEGERS),
    ENTRY(c_sub64, INTEGERS),
    ENTRY(c_overflow, INTEGERS),
    ENTRY(c_minmax, INTEGERS),
    ENTRY(c_bits, INTEGERS),
    ENTRY(c_find, INTEGERS),
    ENTRY(c_pack, INTEGERS),
    ENTRY(c_andn, INTEGERS),
    ENTRY(c_bitcmp, INTEGERS),
    ENTRY(c_constant, INTEGERS),
    ENTRY(c_mul, INTEGERS),
    ENTRY(c_saveexec, INTEGERS),
    ENTRY(c_call, INTEGERS),
    ENTRY(c_loop, INTEGERS),
    ENTRY(l_read2st64, INTEGERS),
    ENTRY(l_d16, INTEGERS),
    ENTRY(l_cmpst, INTEGERS),
    ENTRY(l_inc, SMALL),
};

static uint32_t input(enum inputs inputs, int i) {
    switch (inputs) {
    case SMALL:
        return i % 4 < 2 ? test_random() % 16 : test_random() & 0x0f0f0f0f;
    case FLOATS:
        return f32_bits(2.f * test_uniform());
    case HALVES: /* few significant bits: sums and products of two are exact halves */
        return (i % 4 < 2 ? 0x3c003c00u : 0x40004000u) | (test_random() & 0x80c080c0u);
    default:
        return i / 4 % 9 == 0 ? 0x80000000u >> (test_random() % 32) : test_random();
    }
}

static void check_instruction(const struct instruction *in) {
    uint32_t x[64][4], out[64][2], first[4];
    for (int i = 0; i < 256; i++)
        x[i / 4][i % 4] = input(in->inputs, i);
    if (in->inputs == HALVES) { /* the accumulators of mixed operations are f32 */
        for (int l = 0; l < 64; l++) {
            bool packed =
                strcmp(in->kernel, "f_pk_half") == 0 || strcmp(in->kernel, "f_half_opsel") == 0;
            x[l][2] = packed ? x[l][2] : f32_bits((float)(int)(test_random() % 16) - 8.f);
            if (strcmp(in->kernel, "f_mixlo") == 0)
                x[l][1] = f32_bits((float)(int)(test_random() % 8) - 4.f);
        }
    }
    memcpy(first, x[0], sizeof(first));
    void *din = test_upload(x, sizeof(x)), *dout = test_output(sizeof(out));
    struct {
        void *out, *in;
    } block = {dout, din};
    size_t size = sizeof(block);
    void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &block, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     HIP_LAUNCH_PARAM_END};
    hipFunction_t function;
    assert_int_equal(hipModuleGetFunction(&function, module, in->kernel), hipSuccess);
    if (hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, extra) != hipSuccess)
        fail_msg("%s does not run", in->kernel);
    test_download(out, dout, sizeof(out));
    for (int l = 0; l < 64; l++) {
        uint32_t want[2] = {x[l][3], x[l][2]};
        in->define(x[l], first, l, want);
        if (memcmp(out[l], want, sizeof(want)) != 0)
            fail_msg("%s, lane %d, on %08x %08x %08x %08x: got %08x %08x, expected %08x %08x",
                     in->kernel, l, x[l][0], x[l][1], x[l][2], x[l][3], out[l][0], out[l][1],
                     want[0], want[1]);
    }
}

static void test_definitions(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(instructions) / sizeof(instructions[0]); i++) {
        for (int round = 0; round < 4; round++)
            check_instruction(&instructions[i]);
    }
}

/* What the simulator does not know, or knows to be wrong, is an error that quotes the instruction.
 */
static void test_refusals(void **state) {
    static const struct {
        const char *kernel, *reason, *text;
    } refused[] = {
        {"x_unknown", "unknown instruction", "s_sendmsg"},
        {"x_register", "register beyond the 32 VGPRs", "v_mov_b32_e32 v38"},
        {"x_hardware", "hardware register 3 is not supported", "s_getreg_b32"},
        {"x_cbsz", "broadcasts and swizzles of matrix operands", "cbsz:1"},
        {"x_pending", "barrier while LDS writes of this wave are not waited for", "s_barrier"},
    };
    (void)state;
    void *in = test_output(1024), *out = test_output(512);
    struct {
        void *out, *in;
    } block = {out, in};
    size_t size = sizeof(block);
    void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &block, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     HIP_LAUNCH_PARAM_END};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        hipFunction_t function;
        assert_int_equal(hipModuleGetFunction(&function, module, refused[i].kernel), hipSuccess);
        test_capture_begin();
        hipError_t error = hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, extra);
        const char *text = test_capture_end();
        if (error != hipErrorLaunchFailure || !strstr(text, refused[i].reason) ||
            !strstr(text, refused[i].text) || !strstr(text, refused[i].kernel))
            fail_msg("%s: error %d, message: %s", refused[i].kernel, error, text);
        hipDeviceSynchronize();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definitions),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
