/* SPDX-License-Identifier: Apache-2.0 */
/* Scalar arithmetic. */
#include "ops.h"

#define SRC(i) (&in->src[i])
#define S0 scalar32(w, SRC(0))
#define S1 scalar32(w, SRC(1))
#define L0 scalar64(w, SRC(0))
#define L1 scalar64(w, SRC(1))

static inline uint32_t brev32(uint32_t x) {
    x = (x & 0x55555555) << 1 | (x >> 1 & 0x55555555);
    x = (x & 0x33333333) << 2 | (x >> 2 & 0x33333333);
    x = (x & 0x0f0f0f0f) << 4 | (x >> 4 & 0x0f0f0f0f);
    return __builtin_bswap32(x);
}
static inline uint64_t brev64(uint64_t x) {
    return (uint64_t)brev32((uint32_t)x) << 32 | brev32((uint32_t)(x >> 32));
}

/* --- two sources, SCC = result is not zero (param 1) or untouched (param 0) --- */

#define BIT32(name, expression)                                                                    \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        uint32_t a = S0, b = S1, r = (uint32_t)(expression);                                       \
        set_scalar32(w, &in->dst[0], r);                                                           \
        if (in->param)                                                                             \
            w->scc = r != 0;                                                                       \
    }
#define BIT64(name, expression)                                                                    \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        uint64_t a = L0, b = L1, r = (uint64_t)(expression);                                       \
        set_scalar64(w, &in->dst[0], r);                                                           \
        if (in->param)                                                                             \
            w->scc = r != 0;                                                                       \
    }
BIT32(and32, a &b)
BIT32(or32, a | b)
BIT32(xor32, a ^ b)
BIT32(andn232, a & ~b)
BIT32(orn232, a | ~b)
BIT32(nand_32, ~(a &b))
BIT32(nor32, ~(a | b))
BIT32(xnor32, ~(a ^ b))
BIT32(lshl32, a << (b & 31))
BIT32(lshr32, a >> (b & 31))
BIT32(ashr32, (int32_t)a >> (b & 31))
BIT32(mul32, a *b)
BIT32(mul_hi_u32, (uint64_t)a *b >> 32)
BIT32(mul_hi_i32, (uint64_t)((int64_t)(int32_t)a *(int32_t)b) >> 32)
BIT32(bfm32, ((1u << (a & 31)) - 1) << (b & 31))
BIT32(pack_ll, (a & 0xffff) | b << 16)
BIT32(pack_lh, (a & 0xffff) | (b & 0xffff0000))
BIT32(pack_hh, a >> 16 | (b & 0xffff0000))
BIT64(and64, a &b)
BIT64(or64, a | b)
BIT64(xor64, a ^ b)
BIT64(andn264, a & ~b)
BIT64(orn264, a | ~b)
BIT64(nand_64, ~(a &b))
BIT64(nor64, ~(a | b))
BIT64(xnor64, ~(a ^ b))
BIT64(lshl64, a << (b & 63))
BIT64(lshr64, a >> (b & 63))
BIT64(ashr64, (int64_t)a >> (b & 63))

static void bfm64(struct sim_wave *w, const struct sim_insn *in) {
    set_scalar64(w, &in->dst[0], ((1ull << (S0 & 63)) - 1) << (S1 & 63));
}

static void bfe32(struct sim_wave *w, const struct sim_insn *in) {
    uint32_t x = S0, at = S1 & 31, width = S1 >> 16 & 127, r;
    if (width == 0)
        r = 0;
    else if (at + width >= 32)
        r = in->param ? (uint32_t)((int32_t)x >> at) : x >> at;
    else if (in->param)
        r = (uint32_t)((int32_t)(x << (32 - at - width)) >> (32 - width));
    else
        r = x << (32 - at - width) >> (32 - width);
    set_scalar32(w, &in->dst[0], r);
    w->scc = r != 0;
}

static void bfe64(struct sim_wave *w, const struct sim_insn *in) {
    uint64_t x = L0, r;
    uint32_t at = S1 & 63, width = S1 >> 16 & 127;
    if (width == 0)
        r = 0;
    else if (at + width >= 64)
        r = in->param ? (uint64_t)((int64_t)x >> at) : x >> at;
    else if (in->param)
        r = (uint64_t)((int64_t)(x << (64 - at - width)) >> (64 - width));
    else
        r = x << (64 - at - width) >> (64 - width);
    set_scalar64(w, &in->dst[0], r);
    w->scc = r != 0;
}

/* --- additions --- */

enum { ADD_U, ADDC, SUB_U, SUBB, ADD_I, SUB_I };

static void add(struct sim_wave *w, const struct sim_insn *in) {
    uint32_t a = S0, b = S1;
    uint64_t x;
    bool subtract = in->param == SUB_U || in->param == SUBB || in->param == SUB_I;
    uint32_t carry = in->param == ADDC || in->param == SUBB ? w->scc : 0;
    x = subtract ? (uint64_t)a - b - carry : (uint64_t)a + b + carry;
    set_scalar32(w, &in->dst[0], (uint32_t)x);
    if (in->param < ADD_I) {
        w->scc = x >> 32 & 1;
    } else {
        int64_t exact =
            subtract ? (int64_t)(int32_t)a - (int32_t)b : (int64_t)(int32_t)a + (int32_t)b;
        w->scc = exact != (int32_t)exact;
    }
}

static void lshl_add(struct sim_wave *w, const struct sim_insn *in) {
    uint64_t x = ((uint64_t)S0 << in->param) + S1;
    set_scalar32(w, &in->dst[0], (uint32_t)x);
    w->scc = x >> 32 != 0;
}

#define PICK(name, type, op)                                                                       \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        type a = (type)S0, b = (type)S1;                                                           \
        w->scc = a op b;                                                                           \
        set_scalar32(w, &in->dst[0], (uint32_t)(w->scc ? a : b));                                  \
    }
PICK(min_i32, int32_t, <)
PICK(max_i32, int32_t, >)
PICK(min_u32, uint32_t, <)
PICK(max_u32, uint32_t, >)

static void absdiff(struct sim_wave *w, const struct sim_insn *in) {
    int64_t d = (int64_t)(int32_t)S0 - (int32_t)S1;
    uint32_t r = (uint32_t)(d < 0 ? -d : d);
    set_scalar32(w, &in->dst[0], r);
    w->scc = r != 0;
}

static void cselect32(struct sim_wave *w, const struct sim_insn *in) {
    set_scalar32(w, &in->dst[0], w->scc ? S0 : S1);
}
static void cselect64(struct sim_wave *w, const struct sim_insn *in) {
    set_scalar64(w, &in->dst[0], w->scc ? L0 : L1);
}

/* --- one source --- */

#define ONE32(name, expression)                                                                    \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        uint32_t a = S0, r = (uint32_t)(expression);                                               \
        set_scalar32(w, &in->dst[0], r);                                                           \
        if (in->param)                                                                             \
            w->scc = r != 0;                                                                       \
    }
#define ONE64(name, expression)                                                                    \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        uint64_t a = L0, r = (uint64_t)(expression);                                               \
        set_scalar64(w, &in->dst[0], r);                                                           \
        if (in->param)                                                                             \
            w->scc = r != 0;                                                                       \
    }
#define COUNT64(name, expression)                                                                  \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        uint64_t a = L0;                                                                           \
        uint32_t r = (uint32_t)(expression);                                                       \
        set_scalar32(w, &in->dst[0], r);                                                           \
        if (in->param)                                                                             \
            w->scc = r != 0;                                                                       \
    }

static uint32_t flbit_i32(uint32_t a) {
    uint32_t x = a ^ (uint32_t)((int32_t)a >> 31);
    return x ? (uint32_t)__builtin_clz(x) : ~0u;
}
static uint32_t flbit_i64(uint64_t a) {
    uint64_t x = a ^ (uint64_t)((int64_t)a >> 63);
    return x ? (uint32_t)__builtin_clzll(x) : ~0u;
}
/* Every bit becomes one for a group of four that has any bit set (quadmask), or four (wqm). */
static uint64_t wqm(uint64_t a) {
    uint64_t any = (a | a >> 1 | a >> 2 | a >> 3) & 0x1111111111111111ull;
    return any * 15;
}

ONE32(mov32, a)
ONE32(not32, ~a)
ONE32(brev_32, brev32(a))
ONE32(bcnt1_32, __builtin_popcount(a))
ONE32(bcnt0_32, 32 - __builtin_popcount(a))
ONE32(ff1_32, a ? __builtin_ctz(a) : -1)
ONE32(ff0_32, ~a ? __builtin_ctz(~a) : -1)
ONE32(flbit_32, a ? __builtin_clz(a) : -1)
ONE32(flbit_i_32, flbit_i32(a))
ONE32(sext8, (int8_t)a)
ONE32(sext16, (int16_t)a)
ONE64(mov64, a)
ONE64(not64, ~a)
ONE64(brev_64, brev64(a))
ONE64(wqm64, wqm(a))
COUNT64(bcnt1_64, __builtin_popcountll(a))
COUNT64(bcnt0_64, 64 - __builtin_popcountll(a))
COUNT64(ff1_64, a ? __builtin_ctzll(a) : -1)
COUNT64(ff0_64, ~a ? __builtin_ctzll(~a) : -1)
COUNT64(flbit_64, a ? __builtin_clzll(a) : -1)
COUNT64(flbit_i_64, flbit_i64(a))

static void abs32(struct sim_wave *w, const struct sim_insn *in) {
    uint32_t a = S0, r = (int32_t)a < 0 ? 0u - a : a;
    set_scalar32(w, &in->dst[0], r);
    w->scc = r != 0;
}
static void cmov32(struct sim_wave *w, const struct sim_insn *in) {
    if (w->scc)
        set_scalar32(w, &in->dst[0], S0);
}
static void cmov64(struct sim_wave *w, const struct sim_insn *in) {
    if (w->scc)
        set_scalar64(w, &in->dst[0], L0);
}
static void bitset32(struct sim_wave *w, const struct sim_insn *in) {
    uint32_t bit = 1u << (S0 & 31), old = w->s[in->dst[0].reg];
    set_scalar32(w, &in->dst[0], in->param ? old | bit : old & ~bit);
}
static void bitset64(struct sim_wave *w, const struct sim_insn *in) {
    uint64_t bit = 1ull << (S0 & 63), old = sreg64(w, in->dst[0].reg);
    set_scalar64(w, &in->dst[0], in->param ? old | bit : old & ~bit);
}

enum {
    EXEC_AND,
    EXEC_OR,
    EXEC_XOR,
    EXEC_ANDN2,
    EXEC_ORN2,
    EXEC_NAND,
    EXEC_NOR,
    EXEC_XNOR,
    EXEC_ANDN1,
    EXEC_ORN1
};

static uint64_t exec_op(int op, uint64_t s, uint64_t e) {
    switch (op) {
    case EXEC_AND:
        return s & e;
    case EXEC_OR:
        return s | e;
    case EXEC_XOR:
        return s ^ e;
    case EXEC_ANDN2:
        return s & ~e;
    case EXEC_ORN2:
        return s | ~e;
    case EXEC_NAND:
        return ~(s & e);
    case EXEC_NOR:
        return ~(s | e);
    case EXEC_XNOR:
        return ~(s ^ e);
    case EXEC_ANDN1:
        return ~s & e;
    default:
        return ~s | e;
    }
}

/* The destination gets the old EXEC, EXEC the combination. */
static void saveexec(struct sim_wave *w, const struct sim_insn *in) {
    uint64_t old = exec_mask(w), r = exec_op(in->param, L0, old);
    set_scalar64(w, &in->dst[0], old);
    set_sreg64(w, SIM_EXEC, r);
    w->scc = r != 0;
}
/* s_andn1_wrexec: destination and EXEC both get the combination. */
static void wrexec(struct sim_wave *w, const struct sim_insn *in) {
    uint64_t r = exec_op(in->param, L0, exec_mask(w));
    set_sreg64(w, SIM_EXEC, r);
    set_scalar64(w, &in->dst[0], r);
    w->scc = r != 0;
}

/* --- comparisons: bit 0 less, bit 1 equal, bit 2 greater --- */

#define COMPARE(name, type, first, second)                                                         \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        type a = (type)(first), b = (type)(second);                                                \
        w->scc = (((a < b) | (a == b) << 1 | (a > b) << 2) & in->param) != 0;                      \
    }
COMPARE(cmp_i32, int32_t, S0, S1)
COMPARE(cmp_u32, uint32_t, S0, S1)
COMPARE(cmp_u64, uint64_t, L0, L1)
COMPARE(cmpk_i32, int32_t, S0, in->simm16)
COMPARE(cmpk_u32, uint32_t, S0, (uint16_t)in->simm16)

static void bitcmp32(struct sim_wave *w, const struct sim_insn *in) {
    w->scc = (S0 >> (S1 & 31) & 1) == in->param;
}
static void bitcmp64(struct sim_wave *w, const struct sim_insn *in) {
    w->scc = (L0 >> (S1 & 63) & 1) == in->param;
}

/* --- a 16-bit constant --- */

static void movk(struct sim_wave *w, const struct sim_insn *in) {
    set_scalar32(w, &in->dst[0], (uint32_t)(int32_t)in->simm16);
}
static void cmovk(struct sim_wave *w, const struct sim_insn *in) {
    if (w->scc)
        movk(w, in);
}
static void addk(struct sim_wave *w, const struct sim_insn *in) {
    int64_t exact = (int64_t)(int32_t)w->s[in->dst[0].reg] + in->simm16;
    w->scc = exact != (int32_t)exact;
    set_scalar32(w, &in->dst[0], (uint32_t)exact);
}
static void mulk(struct sim_wave *w, const struct sim_insn *in) {
    set_scalar32(w, &in->dst[0], w->s[in->dst[0].reg] * (uint32_t)(int32_t)in->simm16);
}

static const struct sim_op ops[] = {
    {"s_and_b32", and32, "s:ss", 1},
    {"s_or_b32", or32, "s:ss", 1},
    {"s_xor_b32", xor32, "s:ss", 1},
    {"s_andn2_b32", andn232, "s:ss", 1},
    {"s_orn2_b32", orn232, "s:ss", 1},
    {"s_nand_b32", nand_32, "s:ss", 1},
    {"s_nor_b32", nor32, "s:ss", 1},
    {"s_xnor_b32", xnor32, "s:ss", 1},
    {"s_and_b64", and64, "Q:QQ", 1},
    {"s_or_b64", or64, "Q:QQ", 1},
    {"s_xor_b64", xor64, "Q:QQ", 1},
    {"s_andn2_b64", andn264, "Q:QQ", 1},
    {"s_orn2_b64", orn264, "Q:QQ", 1},
    {"s_nand_b64", nand_64, "Q:QQ", 1},
    {"s_nor_b64", nor64, "Q:QQ", 1},
    {"s_xnor_b64", xnor64, "Q:QQ", 1},
    {"s_lshl_b32", lshl32, "s:ss", 1},
    {"s_lshr_b32", lshr32, "s:ss", 1},
    {"s_ashr_i32", ashr32, "s:ss", 1},
    {"s_lshl_b64", lshl64, "Q:Qs", 1},
    {"s_lshr_b64", lshr64, "Q:Qs", 1},
    {"s_ashr_i64", ashr64, "Q:Qs", 1},
    {"s_bfm_b32", bfm32, "s:ss", 0},
    {"s_bfm_b64", bfm64, "Q:ss", 0},
    {"s_bfe_u32", bfe32, "s:ss", 0},
    {"s_bfe_i32", bfe32, "s:ss", 1},
    {"s_bfe_u64", bfe64, "Q:Qs", 0},
    {"s_bfe_i64", bfe64, "Q:Qs", 1},
    {"s_mul_i32", mul32, "s:ss", 0},
    {"s_mul_hi_u32", mul_hi_u32, "s:ss", 0},
    {"s_mul_hi_i32", mul_hi_i32, "s:ss", 0},
    {"s_pack_ll_b32_b16", pack_ll, "s:ss", 0},
    {"s_pack_lh_b32_b16", pack_lh, "s:ss", 0},
    {"s_pack_hh_b32_b16", pack_hh, "s:ss", 0},
    {"s_add_u32", add, "s:ss", ADD_U},
    {"s_addc_u32", add, "s:ss", ADDC},
    {"s_sub_u32", add, "s:ss", SUB_U},
    {"s_subb_u32", add, "s:ss", SUBB},
    {"s_add_i32", add, "s:ss", ADD_I},
    {"s_sub_i32", add, "s:ss", SUB_I},
    {"s_lshl1_add_u32", lshl_add, "s:ss", 1},
    {"s_lshl2_add_u32", lshl_add, "s:ss", 2},
    {"s_lshl3_add_u32", lshl_add, "s:ss", 3},
    {"s_lshl4_add_u32", lshl_add, "s:ss", 4},
    {"s_min_i32", min_i32, "s:ss", 0},
    {"s_max_i32", max_i32, "s:ss", 0},
    {"s_min_u32", min_u32, "s:ss", 0},
    {"s_max_u32", max_u32, "s:ss", 0},
    {"s_absdiff_i32", absdiff, "s:ss", 0},
    {"s_cselect_b32", cselect32, "s:ss", 0},
    {"s_cselect_b64", cselect64, "Q:QQ", 0},
    {"s_mov_b32", mov32, "s:s", 0},
    {"s_mov_b64", mov64, "Q:Q", 0},
    {"s_not_b32", not32, "s:s", 1},
    {"s_not_b64", not64, "Q:Q", 1},
    {"s_wqm_b64", wqm64, "Q:Q", 1},
    {"s_brev_b32", brev_32, "s:s", 0},
    {"s_brev_b64", brev_64, "Q:Q", 0},
    {"s_bcnt1_i32_b32", bcnt1_32, "s:s", 1},
    {"s_bcnt0_i32_b32", bcnt0_32, "s:s", 1},
    {"s_bcnt1_i32_b64", bcnt1_64, "s:Q", 1},
    {"s_bcnt0_i32_b64", bcnt0_64, "s:Q", 1},
    {"s_ff1_i32_b32", ff1_32, "s:s", 0},
    {"s_ff0_i32_b32", ff0_32, "s:s", 0},
    {"s_ff1_i32_b64", ff1_64, "s:Q", 0},
    {"s_ff0_i32_b64", ff0_64, "s:Q", 0},
    {"s_flbit_i32_b32", flbit_32, "s:s", 0},
    {"s_flbit_i32_b64", flbit_64, "s:Q", 0},
    {"s_flbit_i32", flbit_i_32, "s:s", 0},
    {"s_flbit_i32_i64", flbit_i_64, "s:Q", 0},
    {"s_sext_i32_i8", sext8, "s:s", 0},
    {"s_sext_i32_i16", sext16, "s:s", 0},
    {"s_abs_i32", abs32, "s:s", 0},
    {"s_cmov_b32", cmov32, "s:s", 0},
    {"s_cmov_b64", cmov64, "Q:Q", 0},
    {"s_bitset0_b32", bitset32, "s:s", 0},
    {"s_bitset1_b32", bitset32, "s:s", 1},
    {"s_bitset0_b64", bitset64, "Q:s", 0},
    {"s_bitset1_b64", bitset64, "Q:s", 1},
    {"s_and_saveexec_b64", saveexec, "Q:Q", EXEC_AND},
    {"s_or_saveexec_b64", saveexec, "Q:Q", EXEC_OR},
    {"s_xor_saveexec_b64", saveexec, "Q:Q", EXEC_XOR},
    {"s_andn2_saveexec_b64", saveexec, "Q:Q", EXEC_ANDN2},
    {"s_orn2_saveexec_b64", saveexec, "Q:Q", EXEC_ORN2},
    {"s_nand_saveexec_b64", saveexec, "Q:Q", EXEC_NAND},
    {"s_nor_saveexec_b64", saveexec, "Q:Q", EXEC_NOR},
    {"s_xnor_saveexec_b64", saveexec, "Q:Q", EXEC_XNOR},
    {"s_andn1_saveexec_b64", saveexec, "Q:Q", EXEC_ANDN1},
    {"s_orn1_saveexec_b64", saveexec, "Q:Q", EXEC_ORN1},
    {"s_andn1_wrexec_b64", wrexec, "Q:Q", EXEC_ANDN1},
    {"s_andn2_wrexec_b64", wrexec, "Q:Q", EXEC_ANDN2},
    {"s_cmp_eq_i32", cmp_i32, ":ss", 2},
    {"s_cmp_lg_i32", cmp_i32, ":ss", 5},
    {"s_cmp_gt_i32", cmp_i32, ":ss", 4},
    {"s_cmp_ge_i32", cmp_i32, ":ss", 6},
    {"s_cmp_lt_i32", cmp_i32, ":ss", 1},
    {"s_cmp_le_i32", cmp_i32, ":ss", 3},
    {"s_cmp_eq_u32", cmp_u32, ":ss", 2},
    {"s_cmp_lg_u32", cmp_u32, ":ss", 5},
    {"s_cmp_gt_u32", cmp_u32, ":ss", 4},
    {"s_cmp_ge_u32", cmp_u32, ":ss", 6},
    {"s_cmp_lt_u32", cmp_u32, ":ss", 1},
    {"s_cmp_le_u32", cmp_u32, ":ss", 3},
    {"s_cmp_eq_u64", cmp_u64, ":QQ", 2},
    {"s_cmp_lg_u64", cmp_u64, ":QQ", 5},
    {"s_cmpk_eq_i32", cmpk_i32, ":s#", 2},
    {"s_cmpk_lg_i32", cmpk_i32, ":s#", 5},
    {"s_cmpk_gt_i32", cmpk_i32, ":s#", 4},
    {"s_cmpk_ge_i32", cmpk_i32, ":s#", 6},
    {"s_cmpk_lt_i32", cmpk_i32, ":s#", 1},
    {"s_cmpk_le_i32", cmpk_i32, ":s#", 3},
    {"s_cmpk_eq_u32", cmpk_u32, ":s#", 2},
    {"s_cmpk_lg_u32", cmpk_u32, ":s#", 5},
    {"s_cmpk_gt_u32", cmpk_u32, ":s#", 4},
    {"s_cmpk_ge_u32", cmpk_u32, ":s#", 6},
    {"s_cmpk_lt_u32", cmpk_u32, ":s#", 1},
    {"s_cmpk_le_u32", cmpk_u32, ":s#", 3},
    {"s_bitcmp0_b32", bitcmp32, ":ss", 0},
    {"s_bitcmp1_b32", bitcmp32, ":ss", 1},
    {"s_bitcmp0_b64", bitcmp64, ":Qs", 0},
    {"s_bitcmp1_b64", bitcmp64, ":Qs", 1},
    {"s_movk_i32", movk, "s:#", 0},
    {"s_cmovk_i32", cmovk, "s:#", 0},
    {"s_addk_i32", addk, "s:#", 0},
    {"s_mulk_i32", mulk, "s:#", 0},
};
OPS_TABLE(salu, ops);
