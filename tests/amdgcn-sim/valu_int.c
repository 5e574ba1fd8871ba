/* SPDX-License-Identifier: Apache-2.0 */
/* Vector integer and bitwise operations. */
#include "valu.h"

#define A a[l]
#define B b[l]
#define C c[l]

static inline uint32_t saturated(int64_t x, bool is_signed) {
    if (is_signed)
        return (uint32_t)(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : (int32_t)x);
    return (uint32_t)(x < 0 ? 0 : x > UINT32_MAX ? UINT32_MAX : x);
}

#define OP1(name, expression)                                                                      \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 ab, r;                                                                               \
        const uint32_t *a = src32(w, in, 0, ab);                                                   \
        EACH_LANE(l) r[l] = (uint32_t)(expression);                                                \
        put32(w, in, 0, r);                                                                        \
    }
#define OP2(name, expression)                                                                      \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 ab, bb, r;                                                                           \
        const uint32_t *a = src32(w, in, 0, ab), *b = src32(w, in, 1, bb);                         \
        EACH_LANE(l) r[l] = (uint32_t)(expression);                                                \
        put32(w, in, 0, r);                                                                        \
    }
/* With the clamp modifier the exact result saturates. */
#define OP2_CLAMP(name, expression, exact, is_signed)                                              \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 ab, bb, r;                                                                           \
        const uint32_t *a = src32(w, in, 0, ab), *b = src32(w, in, 1, bb);                         \
        if (in->clamp)                                                                             \
            EACH_LANE(l) r[l] = saturated(exact, is_signed);                                       \
        else                                                                                       \
            EACH_LANE(l) r[l] = (uint32_t)(expression);                                            \
        put32(w, in, 0, r);                                                                        \
    }
#define OP3(name, expression)                                                                      \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 ab, bb, cb, r;                                                                       \
        const uint32_t *a = src32(w, in, 0, ab), *b = src32(w, in, 1, bb),                         \
                       *c = src32(w, in, 2, cb);                                                   \
        EACH_LANE(l) r[l] = (uint32_t)(expression);                                                \
        put32(w, in, 0, r);                                                                        \
    }

static inline uint32_t brev(uint32_t x) {
    x = (x & 0x55555555) << 1 | (x >> 1 & 0x55555555);
    x = (x & 0x33333333) << 2 | (x >> 2 & 0x33333333);
    x = (x & 0x0f0f0f0f) << 4 | (x >> 4 & 0x0f0f0f0f);
    return __builtin_bswap32(x);
}
static inline uint32_t first_high(uint32_t x) {
    return x ? (uint32_t)__builtin_clz(x) : ~0u;
}
static inline uint32_t first_low(uint32_t x) {
    return x ? (uint32_t)__builtin_ctz(x) : ~0u;
}
static inline uint32_t first_sign(uint32_t x) {
    return first_high(x ^ (uint32_t)((int32_t)x >> 31));
}
static inline uint32_t bfe_u(uint32_t x, uint32_t at, uint32_t width) {
    at &= 31;
    width &= 31;
    return x >> at & ((1u << width) - 1);
}
static inline uint32_t bfe_i(uint32_t x, uint32_t at, uint32_t width) {
    at &= 31;
    width &= 31;
    if (width == 0)
        return 0;
    uint32_t r = bfe_u(x, at, width), sign = 1u << (width - 1);
    if (at + width >= 32)
        return (uint32_t)((int32_t)x >> at);
    return (r ^ sign) - sign;
}
static inline int32_t i24(uint32_t x) {
    return (int32_t)(x << 8) >> 8;
}
static inline uint32_t u24(uint32_t x) {
    return x & 0xffffff;
}
static inline uint32_t umin(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}
static inline uint32_t umax(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}
static inline int32_t imin(uint32_t a, uint32_t b) {
    return (int32_t)a < (int32_t)b ? (int32_t)a : (int32_t)b;
}
static inline int32_t imax(uint32_t a, uint32_t b) {
    return (int32_t)a > (int32_t)b ? (int32_t)a : (int32_t)b;
}
static inline int32_t imed(uint32_t a, uint32_t b, uint32_t c) {
    return imax((uint32_t)imin(a, b), (uint32_t)imin((uint32_t)imax(a, b), c));
}
static inline uint32_t umed(uint32_t a, uint32_t b, uint32_t c) {
    return umax(umin(a, b), umin(umax(a, b), c));
}
static inline uint32_t sad_u8(uint32_t a, uint32_t b, uint32_t c) {
    for (int i = 0; i < 32; i += 8) {
        int d = (int)(a >> i & 255) - (int)(b >> i & 255);
        c += (uint32_t)(d < 0 ? -d : d);
    }
    return c;
}
/* Each byte of the selector picks a byte of {a, b}, a sign fill or a constant. */
static inline uint32_t perm(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t data = (uint64_t)a << 32 | b;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t s = selector >> 8 * i & 255, byte;
        if (s >= 13)
            byte = 0xff;
        else if (s == 12)
            byte = 0;
        else if (s >= 8)
            byte = (data >> (16 * (s - 8) + 15) & 1) ? 0xff : 0;
        else
            byte = (uint32_t)(data >> 8 * s) & 0xff;
        r |= byte << 8 * i;
    }
    return r;
}
static inline int32_t dot4_i8(uint32_t a, uint32_t b, uint32_t c) {
    int32_t sum = (int32_t)c;
    for (int i = 0; i < 32; i += 8)
        sum += (int8_t)(a >> i) * (int8_t)(b >> i);
    return sum;
}
static inline uint32_t dot4_u8(uint32_t a, uint32_t b, uint32_t c) {
    for (int i = 0; i < 32; i += 8)
        c += (a >> i & 255) * (b >> i & 255);
    return c;
}

OP1(mov, A)
OP1(not, ~A)
OP1(bfrev, brev(A))
OP1(ffbh_u32, first_high(A))
OP1(ffbl_b32, first_low(A))
OP1(ffbh_i32, first_sign(A))
OP2(and, A &B)
OP2(or, A | B)
OP2(xor, A ^ B)
OP2(xnor, ~(A ^ B))
OP2_CLAMP(add_u32, A + B, (int64_t)A + B, false)
OP2_CLAMP(sub_u32, A - B, (int64_t)A - B, false)
OP2_CLAMP(subrev_u32, B - A, (int64_t)B - A, false)
OP2_CLAMP(add_i32, A + B, (int64_t)(int32_t)A + (int32_t)B, true)
OP2_CLAMP(sub_i32, A - B, (int64_t)(int32_t)A - (int32_t)B, true)
OP2(mul_lo_u32, A *B)
OP2(mul_hi_u32, (uint64_t)A *B >> 32)
OP2(mul_hi_i32, (uint64_t)((int64_t)(int32_t)A *(int32_t)B) >> 32)
OP2(mul_u32_u24, u24(A) * u24(B))
OP2(mul_hi_u32_u24, (uint64_t)u24(A) * u24(B) >> 32)
OP2(mul_i32_i24, (uint32_t)i24(A) * (uint32_t)i24(B))
OP2(mul_hi_i32_i24, (uint64_t)((int64_t)i24(A) * i24(B)) >> 32)
OP2(lshl, A << (B & 31))
OP2(lshlrev, B << (A & 31))
OP2(lshr, A >> (B & 31))
OP2(lshrrev, B >> (A & 31))
OP2(ashrrev, (int32_t)B >> (A & 31))
OP2(min_u32, umin(A, B))
OP2(max_u32, umax(A, B))
OP2(min_i32, imin(A, B))
OP2(max_i32, imax(A, B))
OP2(bcnt, (uint32_t)__builtin_popcount(A) + B)
OP2(bfm, ((1u << (A & 31)) - 1) << (B & 31))
OP3(add3, A + B + C)
OP3(lshl_add, (A << (B & 31)) + C)
OP3(add_lshl, (A + B) << (C & 31))
OP3(lshl_or, (A << (B & 31)) | C)
OP3(and_or, (A & B) | C)
OP3(or3, A | B | C)
OP3(xad, (A ^ B) + C)
OP3(bfe_u32, bfe_u(A, B, C))
OP3(bfe_i32, bfe_i(A, B, C))
OP3(bfi, (A & B) | (~A & C))
OP3(alignbit, ((uint64_t)A << 32 | B) >> (C & 31))
OP3(alignbyte, ((uint64_t)A << 32 | B) >> 8 * (C & 3))
OP3(perm_b32, perm(A, B, C))
OP3(min3_u32, umin(umin(A, B), C))
OP3(max3_u32, umax(umax(A, B), C))
OP3(med3_u32, umed(A, B, C))
OP3(min3_i32, imin((uint32_t)imin(A, B), C))
OP3(max3_i32, imax((uint32_t)imax(A, B), C))
OP3(med3_i32, imed(A, B, C))
OP3(mad_u32_u24, u24(A) * u24(B) + C)
OP3(mad_i32_i24, (uint32_t)i24(A) * (uint32_t)i24(B) + C)
OP3(sad_u8_, sad_u8(A, B, C))
OP3(sad_u32, (A > B ? A - B : B - A) + C)
OP3(dot4_i32_i8, dot4_i8(A, B, C))
OP3(dot4_u32_u8, dot4_u8(A, B, C))

/* --- carries --- */

static void carry(struct sim_wave *w, const struct sim_insn *in, bool subtract, bool reverse,
                  bool carry_in) {
    vec32 ab, bb, r;
    const uint32_t *a = src32(w, in, reverse ? 1 : 0, ab), *b = src32(w, in, reverse ? 0 : 1, bb);
    uint64_t ci = carry_in ? scalar64(w, &in->src[2]) : 0, out = 0;
    EACH_LANE(l) {
        uint64_t c = ci >> l & 1;
        uint64_t x = subtract ? (uint64_t)a[l] - b[l] - c : (uint64_t)a[l] + b[l] + c;
        r[l] = (uint32_t)x;
        out |= (x >> 32 & 1) << l;
    }
    if (in->clamp)
        sim_fail(w, in, -1, "clamp of a carrying operation is not supported");
    put32(w, in, 0, r);
    put_mask(w, in, 1, out);
}
static void add_co(struct sim_wave *w, const struct sim_insn *in) {
    carry(w, in, false, false, false);
}
static void addc_co(struct sim_wave *w, const struct sim_insn *in) {
    carry(w, in, false, false, true);
}
static void sub_co(struct sim_wave *w, const struct sim_insn *in) {
    carry(w, in, true, false, false);
}
static void subb_co(struct sim_wave *w, const struct sim_insn *in) {
    carry(w, in, true, false, true);
}
static void subrev_co(struct sim_wave *w, const struct sim_insn *in) {
    carry(w, in, true, true, false);
}
static void subbrev_co(struct sim_wave *w, const struct sim_insn *in) {
    carry(w, in, true, true, true);
}

/* --- 64 bits --- */

#define OP64(name, expression)                                                                     \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 ab;                                                                                  \
        vec64 b, r;                                                                                \
        const uint32_t *a = src32(w, in, 0, ab);                                                   \
        src64(w, in, 1, b);                                                                        \
        EACH_LANE(l) r[l] = (uint64_t)(expression);                                                \
        put64(w, in, 0, r);                                                                        \
    }
OP64(lshlrev_b64, B << (A & 63))
OP64(lshrrev_b64, B >> (A & 63))
OP64(ashrrev_i64, (int64_t)B >> (A & 63))

static void lshl_add_u64(struct sim_wave *w, const struct sim_insn *in) {
    vec32 bb;
    vec64 a, c;
    src64(w, in, 0, a);
    const uint32_t *b = src32(w, in, 1, bb);
    src64(w, in, 2, c);
    EACH_LANE(l) a[l] = (a[l] << (b[l] & 7)) + c[l];
    put64(w, in, 0, a);
}

static void mov_b64(struct sim_wave *w, const struct sim_insn *in) {
    vec64 a;
    src64(w, in, 0, a);
    put64(w, in, 0, a);
}

static void mad_64_32(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb;
    vec64 c;
    uint64_t out = 0;
    const uint32_t *a = src32(w, in, 0, ab), *b = src32(w, in, 1, bb);
    src64(w, in, 2, c);
    EACH_LANE(l) {
        if (in->param) {
            __int128 x = (__int128)((int64_t)(int32_t)a[l] * (int32_t)b[l]) + (int64_t)c[l];
            out |= (uint64_t)(x != (int64_t)x) << l;
            c[l] = (uint64_t)x;
        } else {
            uint64_t x = (uint64_t)a[l] * b[l];
            c[l] += x;
            out |= (uint64_t)(c[l] < x) << l;
        }
    }
    put64(w, in, 0, c);
    put_mask(w, in, 1, out);
}

/* --- selection --- */

static void cndmask(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb, r;
    const uint32_t *a = src32(w, in, 0, ab), *b = src32(w, in, 1, bb);
    uint64_t m = scalar64(w, &in->src[2]);
    EACH_LANE(l) {
        uint32_t pick = 0u - (uint32_t)(m >> l & 1);
        r[l] = (b[l] & pick) | (a[l] & ~pick);
    }
    put32(w, in, 0, r);
}

static void swap(struct sim_wave *w, const struct sim_insn *in) {
    vec32 a, b;
    memcpy(a, w->v[in->src[0].reg], sizeof(a));
    memcpy(b, w->v[in->dst[0].reg], sizeof(b));
    write_masked(w->v[in->dst[0].reg], a, exec_mask(w));
    write_masked(w->v[in->src[0].reg], b, exec_mask(w));
}

/* --- 16-bit integers --- */

#define OP16(name, count, expression)                                                              \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 a = {0}, b = {0}, c = {0}, r;                                                        \
        src16(w, in, 0, a);                                                                        \
        if (count > 1)                                                                             \
            src16(w, in, 1, b);                                                                    \
        if (count > 2)                                                                             \
            src16(w, in, 2, c);                                                                    \
        if (in->clamp)                                                                             \
            sim_fail(w, in, -1, "clamp of a 16-bit integer operation is not supported");           \
        EACH_LANE(l) r[l] = (uint32_t)(expression)&0xffff;                                         \
        put16(w, in, r, count > 2);                                                                \
    }
#define S(x) ((int32_t)(int16_t)(x))
OP16(add_u16, 2, A + B)
OP16(sub_u16, 2, A - B)
OP16(subrev_u16, 2, B - A)
OP16(mul_lo_u16, 2, A *B)
OP16(lshlrev_b16, 2, B << (A & 15))
OP16(lshrrev_b16, 2, B >> (A & 15))
OP16(ashrrev_i16, 2, S(B) >> (A & 15))
OP16(min_u16, 2, umin(A, B))
OP16(max_u16, 2, umax(A, B))
OP16(min_i16, 2, S(A) < S(B) ? A : B)
OP16(max_i16, 2, S(A) > S(B) ? A : B)
OP16(mad_u16, 3, A *B + C)
OP16(min3_u16, 3, umin(umin(A, B), C))
OP16(max3_u16, 3, umax(umax(A, B), C))
OP16(med3_u16, 3, umed(A, B, C))
OP16(min3_i16, 3, imin((uint32_t)imin((uint32_t)S(A), (uint32_t)S(B)), (uint32_t)S(C)))
OP16(max3_i16, 3, imax((uint32_t)imax((uint32_t)S(A), (uint32_t)S(B)), (uint32_t)S(C)))
OP16(med3_i16, 3, imed((uint32_t)S(A), (uint32_t)S(B), (uint32_t)S(C)))

static void mad_mixed16(struct sim_wave *w, const struct sim_insn *in) {
    vec32 a, b, cb, r;
    const uint32_t *c = src32(w, in, 2, cb);
    src16(w, in, 0, a);
    src16(w, in, 1, b);
    EACH_LANE(l) r[l] = in->param ? (uint32_t)(S(a[l]) * S(b[l])) + c[l] : a[l] * b[l] + c[l];
    put32(w, in, 0, r);
}

static const struct sim_op ops[] = {
    {"v_mov_b32", mov, "b:b", 0},
    {"v_not_b32", not, "b:b", 0},
    {"v_bfrev_b32", bfrev, "b:b", 0},
    {"v_ffbh_u32", ffbh_u32, "b:b", 0},
    {"v_ffbl_b32", ffbl_b32, "b:b", 0},
    {"v_ffbh_i32", ffbh_i32, "b:b", 0},
    {"v_accvgpr_read_b32", mov, "b:b", 0},
    {"v_accvgpr_write_b32", mov, "b:b", 0},
    {"v_accvgpr_mov_b32", mov, "b:b", 0},
    {"v_accvgpr_read", mov, "b:b", 0},
    {"v_accvgpr_write", mov, "b:b", 0},
    {"v_and_b32", and, "b:bb", 0},
    {"v_or_b32", or, "b:bb", 0},
    {"v_xor_b32", xor, "b:bb", 0},
    {"v_xnor_b32", xnor, "b:bb", 0},
    {"v_add_u32", add_u32, "b:bb", 0},
    {"v_sub_u32", sub_u32, "b:bb", 0},
    {"v_subrev_u32", subrev_u32, "b:bb", 0},
    {"v_add_i32", add_i32, "b:bb", 0},
    {"v_sub_i32", sub_i32, "b:bb", 0},
    {"v_mul_lo_u32", mul_lo_u32, "b:bb", 0},
    {"v_mul_hi_u32", mul_hi_u32, "b:bb", 0},
    {"v_mul_hi_i32", mul_hi_i32, "b:bb", 0},
    {"v_mul_u32_u24", mul_u32_u24, "b:bb", 0},
    {"v_mul_hi_u32_u24", mul_hi_u32_u24, "b:bb", 0},
    {"v_mul_i32_i24", mul_i32_i24, "b:bb", 0},
    {"v_mul_hi_i32_i24", mul_hi_i32_i24, "b:bb", 0},
    {"v_lshl_b32", lshl, "b:bb", 0},
    {"v_lshlrev_b32", lshlrev, "b:bb", 0},
    {"v_lshr_b32", lshr, "b:bb", 0},
    {"v_lshrrev_b32", lshrrev, "b:bb", 0},
    {"v_ashrrev_i32", ashrrev, "b:bb", 0},
    {"v_min_u32", min_u32, "b:bb", 0},
    {"v_max_u32", max_u32, "b:bb", 0},
    {"v_min_i32", min_i32, "b:bb", 0},
    {"v_max_i32", max_i32, "b:bb", 0},
    {"v_bcnt_u32_b32", bcnt, "b:bb", 0},
    {"v_bfm_b32", bfm, "b:bb", 0},
    {"v_add3_u32", add3, "b:bbb", 0},
    {"v_lshl_add_u32", lshl_add, "b:bbb", 0},
    {"v_add_lshl_u32", add_lshl, "b:bbb", 0},
    {"v_lshl_or_b32", lshl_or, "b:bbb", 0},
    {"v_and_or_b32", and_or, "b:bbb", 0},
    {"v_or3_b32", or3, "b:bbb", 0},
    {"v_xad_u32", xad, "b:bbb", 0},
    {"v_bfe_u32", bfe_u32, "b:bbb", 0},
    {"v_bfe_i32", bfe_i32, "b:bbb", 0},
    {"v_bfi_b32", bfi, "b:bbb", 0},
    {"v_alignbit_b32", alignbit, "b:bbb", 0},
    {"v_alignbyte_b32", alignbyte, "b:bbb", 0},
    {"v_perm_b32", perm_b32, "b:bbb", 0},
    {"v_min3_u32", min3_u32, "b:bbb", 0},
    {"v_max3_u32", max3_u32, "b:bbb", 0},
    {"v_med3_u32", med3_u32, "b:bbb", 0},
    {"v_min3_i32", min3_i32, "b:bbb", 0},
    {"v_max3_i32", max3_i32, "b:bbb", 0},
    {"v_med3_i32", med3_i32, "b:bbb", 0},
    {"v_mad_u32_u24", mad_u32_u24, "b:bbb", 0},
    {"v_mad_i32_i24", mad_i32_i24, "b:bbb", 0},
    {"v_sad_u8", sad_u8_, "b:bbb", 0},
    {"v_sad_u32", sad_u32, "b:bbb", 0},
    {"v_dot4_i32_i8", dot4_i32_i8, "b:bbb", 0},
    {"v_dot4_u32_u8", dot4_u32_u8, "b:bbb", 0},
    {"v_add_co_u32", add_co, "bS:bb", 0},
    {"v_addc_co_u32", addc_co, "bS:bbS", 0},
    {"v_sub_co_u32", sub_co, "bS:bb", 0},
    {"v_subb_co_u32", subb_co, "bS:bbS", 0},
    {"v_subrev_co_u32", subrev_co, "bS:bb", 0},
    {"v_subbrev_co_u32", subbrev_co, "bS:bbS", 0},
    {"v_lshlrev_b64", lshlrev_b64, "q:bq", 0},
    {"v_lshrrev_b64", lshrrev_b64, "q:bq", 0},
    {"v_ashrrev_i64", ashrrev_i64, "q:bq", 0},
    {"v_lshl_add_u64", lshl_add_u64, "q:qbq", 0},
    {"v_mov_b64", mov_b64, "q:q", 0},
    {"v_mad_u64_u32", mad_64_32, "qS:bbq", 0},
    {"v_mad_i64_i32", mad_64_32, "qS:bbq", 1},
    {"v_cndmask_b32", cndmask, "b:bbS", 0},
    {"v_swap_b32", swap, "b:b", 0},
    {"v_add_u16", add_u16, "k:kk", 0},
    {"v_sub_u16", sub_u16, "k:kk", 0},
    {"v_subrev_u16", subrev_u16, "k:kk", 0},
    {"v_mul_lo_u16", mul_lo_u16, "k:kk", 0},
    {"v_lshlrev_b16", lshlrev_b16, "k:kk", 0},
    {"v_lshrrev_b16", lshrrev_b16, "k:kk", 0},
    {"v_ashrrev_i16", ashrrev_i16, "k:kk", 0},
    {"v_min_u16", min_u16, "k:kk", 0},
    {"v_max_u16", max_u16, "k:kk", 0},
    {"v_min_i16", min_i16, "k:kk", 0},
    {"v_max_i16", max_i16, "k:kk", 0},
    {"v_add_i16", add_u16, "k:kk", 0},
    {"v_sub_i16", sub_u16, "k:kk", 0},
    {"v_mad_legacy_u16", mad_u16, "k:kkk", 0},
    {"v_mad_u16", mad_u16, "k:kkk", 0},
    {"v_mad_i16", mad_u16, "k:kkk", 0},
    {"v_min3_u16", min3_u16, "k:kkk", 0},
    {"v_max3_u16", max3_u16, "k:kkk", 0},
    {"v_med3_u16", med3_u16, "k:kkk", 0},
    {"v_min3_i16", min3_i16, "k:kkk", 0},
    {"v_max3_i16", max3_i16, "k:kkk", 0},
    {"v_med3_i16", med3_i16, "k:kkk", 0},
    {"v_mad_u32_u16", mad_mixed16, "b:kkb", 0},
    {"v_mad_i32_i16", mad_mixed16, "b:kkb", 1},
};
OPS_TABLE(valu_int, ops);
