/* SPDX-License-Identifier: Apache-2.0 */
/* Vector comparisons. The condition is a set of outcomes, the number in the operation's name order:
 * bit 0 less, bit 1 equal, bit 2 greater, bit 3 unordered; bit 7 marks v_cmpx, which also writes
 * EXEC. */
#include "valu.h"

#define WRITES_EXEC 0x80

static void finish(struct sim_wave *w, const struct sim_insn *in, const vec32 hit) {
    uint64_t mask = 0;
    EACH_LANE(l) mask |= (uint64_t)(hit[l] != 0) << l;
    put_mask(w, in, 0, mask);
    if (in->param & WRITES_EXEC)
        set_sreg64(w, SIM_EXEC, mask & exec_mask(w));
}

#define OUTCOME(x, y) (((x) < (y)) | ((x) == (y)) << 1 | ((x) > (y)) << 2)
#define OUTCOME_F(x, y)                                                                            \
    (((x) < (y)) | ((x) == (y)) << 1 | ((x) > (y)) << 2 | (((x) != (x)) | ((y) != (y))) << 3)

static void cmp_f32(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb, hit;
    const float_lane *a = srcf(w, in, 0, ab), *b = srcf(w, in, 1, bb);
    uint32_t want = in->param & 15;
    EACH_LANE(l) hit[l] = (uint32_t)OUTCOME_F(a[l], b[l]) & want;
    finish(w, in, hit);
}

static void cmp_f16(struct sim_wave *w, const struct sim_insn *in) {
    vecf a, b;
    vec32 hit;
    srch(w, in, 0, a);
    srch(w, in, 1, b);
    EACH_LANE(l) hit[l] = (uint32_t)OUTCOME_F(a[l], b[l]) & in->param & 15;
    finish(w, in, hit);
}

static void cmp_f64(struct sim_wave *w, const struct sim_insn *in) {
    double a[SIM_LANES], b[SIM_LANES];
    vec32 hit;
    srcd(w, in, 0, a);
    srcd(w, in, 1, b);
    EACH_LANE(l) hit[l] = (uint32_t)OUTCOME_F(a[l], b[l]) & in->param & 15;
    finish(w, in, hit);
}

#define CMP_INT(name, type)                                                                        \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 ab, bb, hit;                                                                         \
        const uint32_t *a = src32(w, in, 0, ab), *b = src32(w, in, 1, bb);                         \
        uint32_t want = in->param & 7;                                                             \
        EACH_LANE(l) hit[l] = (uint32_t)OUTCOME((type)a[l], (type)b[l]) & want;                    \
        finish(w, in, hit);                                                                        \
    }
CMP_INT(cmp_u32, uint32_t)
CMP_INT(cmp_i32, int32_t)

#define CMP_INT16(name, type)                                                                      \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec32 a, b, hit;                                                                           \
        src16(w, in, 0, a);                                                                        \
        src16(w, in, 1, b);                                                                        \
        EACH_LANE(l) hit[l] = (uint32_t)OUTCOME((type)a[l], (type)b[l]) & in->param & 7;           \
        finish(w, in, hit);                                                                        \
    }
CMP_INT16(cmp_u16, uint16_t)
CMP_INT16(cmp_i16, int16_t)

#define CMP_INT64(name, type)                                                                      \
    static void name(struct sim_wave *w, const struct sim_insn *in) {                              \
        vec64 a, b;                                                                                \
        vec32 hit;                                                                                 \
        src64(w, in, 0, a);                                                                        \
        src64(w, in, 1, b);                                                                        \
        EACH_LANE(l) hit[l] = (uint32_t)OUTCOME((type)a[l], (type)b[l]) & in->param & 7;           \
        finish(w, in, hit);                                                                        \
    }
CMP_INT64(cmp_u64, uint64_t)
CMP_INT64(cmp_i64, int64_t)

/* Bits of the class mask: sNaN qNaN -inf -normal -subnormal -0 +0 +subnormal +normal +inf */
static uint32_t float_class(bool negative, bool zero_exp, bool full_exp, bool zero_mant,
                            bool quiet) {
    if (full_exp && !zero_mant)
        return quiet ? 2 : 1;
    int magnitude = full_exp ? 3 : !zero_exp ? 2 : !zero_mant ? 1 : 0;
    return negative ? 1u << (5 - magnitude) : 1u << (6 + magnitude);
}

static void class_f32(struct sim_wave *w, const struct sim_insn *in) {
    vec32 ab, bb, hit;
    const uint32_t *a = src32(w, in, 0, ab), *b = src32(w, in, 1, bb);
    EACH_LANE(l) {
        uint32_t x = a[l], e = x >> 23 & 255;
        hit[l] = b[l] & float_class(x >> 31, e == 0, e == 255, !(x & 0x7fffff), x >> 22 & 1);
    }
    finish(w, in, hit);
}

static void class_f16(struct sim_wave *w, const struct sim_insn *in) {
    vec32 a, bb, hit;
    src16(w, in, 0, a);
    const uint32_t *b = src32(w, in, 1, bb);
    EACH_LANE(l) {
        uint32_t x = a[l], e = x >> 10 & 31;
        hit[l] = b[l] & float_class(x >> 15, e == 0, e == 31, !(x & 0x3ff), x >> 9 & 1);
    }
    finish(w, in, hit);
}

static void class_f64(struct sim_wave *w, const struct sim_insn *in) {
    vec64 a;
    vec32 bb, hit;
    src64(w, in, 0, a);
    const uint32_t *b = src32(w, in, 1, bb);
    EACH_LANE(l) {
        uint64_t x = a[l], e = x >> 52 & 2047;
        hit[l] =
            b[l] & float_class(x >> 63, e == 0, e == 2047, !(x & 0xfffffffffffffull), x >> 51 & 1);
    }
    finish(w, in, hit);
}

#define BOTH(condition, type, exec, signature, number)                                             \
    {"v_cmp_" condition "_" type, exec, signature, number}, {                                      \
        "v_cmpx_" condition "_" type, exec, signature, number | WRITES_EXEC                        \
    }
#define FLOATS(type, exec, signature)                                                              \
    BOTH("f", type, exec, signature, 0), BOTH("lt", type, exec, signature, 1),                     \
        BOTH("eq", type, exec, signature, 2), BOTH("le", type, exec, signature, 3),                \
        BOTH("gt", type, exec, signature, 4), BOTH("lg", type, exec, signature, 5),                \
        BOTH("ge", type, exec, signature, 6), BOTH("o", type, exec, signature, 7),                 \
        BOTH("u", type, exec, signature, 8), BOTH("nge", type, exec, signature, 9),                \
        BOTH("nlg", type, exec, signature, 10), BOTH("ngt", type, exec, signature, 11),            \
        BOTH("nle", type, exec, signature, 12), BOTH("neq", type, exec, signature, 13),            \
        BOTH("nlt", type, exec, signature, 14), BOTH("tru", type, exec, signature, 15)
#define INTEGERS(type, exec, signature)                                                            \
    BOTH("f", type, exec, signature, 0), BOTH("lt", type, exec, signature, 1),                     \
        BOTH("eq", type, exec, signature, 2), BOTH("le", type, exec, signature, 3),                \
        BOTH("gt", type, exec, signature, 4), BOTH("ne", type, exec, signature, 5),                \
        BOTH("ge", type, exec, signature, 6), BOTH("t", type, exec, signature, 7)

static const struct sim_op ops[] = {
    FLOATS("f32", cmp_f32, "S:ff"),
    FLOATS("f16", cmp_f16, "S:hh"),
    FLOATS("f64", cmp_f64, "S:dd"),
    INTEGERS("u32", cmp_u32, "S:bb"),
    INTEGERS("i32", cmp_i32, "S:bb"),
    INTEGERS("u16", cmp_u16, "S:kk"),
    INTEGERS("i16", cmp_i16, "S:kk"),
    INTEGERS("u64", cmp_u64, "S:qq"),
    INTEGERS("i64", cmp_i64, "S:qq"),
    BOTH("class", "f32", class_f32, "S:fb", 0),
    BOTH("class", "f16", class_f16, "S:hb", 0),
    BOTH("class", "f64", class_f64, "S:db", 0),
};
OPS_TABLE(valu_cmp, ops);
