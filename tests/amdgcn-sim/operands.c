/* SPDX-License-Identifier: Apache-2.0 */
/* One operand of the disassembler's text -> struct sim_operand.
 *
 * Types (the characters of an operation's signature):
 *   b u   32 bits, no float modifiers meant (b may carry neg/abs)     k  16-bit integer
 *   f h d f32, f16, f64                                               m  f32 or f16 (v_fma_mix)
 *   P p   two f16 / two 16-bit integers in a dword                    F  two f32 in a register pair
 *   q     64-bit integer in vector registers                          V  any register tuple
 *   s Q X scalar destination or source of 32, 64, any number of bits  S  lane mask (64-bit scalar)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops.h"

static const struct {
    const char *name;
    uint8_t reg, count;
} named[] = {
    {"vcc", SIM_VCC, 2},
    {"vcc_lo", SIM_VCC, 1},
    {"vcc_hi", SIM_VCC + 1, 1},
    {"exec", SIM_EXEC, 2},
    {"exec_lo", SIM_EXEC, 1},
    {"exec_hi", SIM_EXEC + 1, 1},
    {"m0", SIM_M0, 1},
    {"flat_scratch", SIM_FLAT_SCRATCH, 2},
    {"flat_scratch_lo", SIM_FLAT_SCRATCH, 1},
    {"flat_scratch_hi", SIM_FLAT_SCRATCH + 1, 1},
    {"xnack_mask", SIM_XNACK_MASK, 2},
    {"xnack_mask_lo", SIM_XNACK_MASK, 1},
    {"xnack_mask_hi", SIM_XNACK_MASK + 1, 1},
};

static bool parse_named(const char *t, struct sim_operand *o) {
    static const char *const specials[] = {"src_scc", "src_vccz", "src_execz"};
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
        if (strcmp(t, named[i].name) == 0) {
            o->kind = OPR_SREG;
            o->reg = named[i].reg;
            o->count = named[i].count;
            return true;
        }
    }
    for (int i = 0; i < 3; i++) {
        if (strcmp(t, specials[i]) == 0) {
            o->kind = OPR_SPECIAL;
            o->reg = (uint16_t)i;
            o->count = 1;
            return true;
        }
    }
    return false;
}

static bool parse_aperture(const char *t, char type, struct sim_operand *o) {
    static const struct {
        const char *name;
        uint64_t value;
    } apertures[] = {
        {"src_shared_base", (uint64_t)SIM_SHARED_HI << 32},
        {"src_shared_limit", (uint64_t)SIM_SHARED_HI << 32 | 0xffffffff},
        {"src_private_base", (uint64_t)SIM_PRIVATE_HI << 32},
        {"src_private_limit", (uint64_t)SIM_PRIVATE_HI << 32 | 0xffffffff},
    };
    for (int i = 0; i < 4; i++) {
        if (strcmp(t, apertures[i].name) == 0 && strchr("Qq", type)) {
            o->kind = OPR_IMM;
            o->imm = apertures[i].value;
            o->count = 2;
            return true;
        }
    }
    return false;
}

/* vN, v[N:M] and the like; `prefix` has been skipped. */
static bool parse_index(const char *t, unsigned limit, unsigned *first, unsigned *count) {
    unsigned last;
    int used = 0;
    if (sscanf(t, "[%u:%u]%n", first, &last, &used) == 2 && used > 0 && t[used] == 0 &&
        last >= *first)
        *count = last - *first + 1;
    else if (sscanf(t, "%u%n", first, &used) == 1 && t[used] == 0)
        *count = 1;
    else
        return false;
    return *first + *count <= limit;
}

static bool parse_register(const char *t, struct sim_operand *o) {
    unsigned first, count, base = 0;
    if (*t == 'v' && parse_index(t + 1, 256, &first, &count)) {
        o->kind = OPR_VREG;
    } else if (*t == 'a' && parse_index(t + 1, 256, &first, &count)) {
        o->kind = OPR_VREG;
        base = SIM_AGPR;
    } else if (*t == 's' && parse_index(t + 1, 102, &first, &count)) {
        o->kind = OPR_SREG;
    } else if (strncmp(t, "ttmp", 4) == 0 && parse_index(t + 4, 16, &first, &count)) {
        o->kind = OPR_SREG;
        base = SIM_TTMP0;
    } else {
        return false;
    }
    o->reg = (uint16_t)(base + first);
    o->count = (uint8_t)count;
    return true;
}

uint16_t sim_half_constant(const char *text) {
    if (strncmp(text, "0.15915494", 10) == 0)
        return 0x3118;
    return (uint16_t)f64_to_f16(strtod(text, NULL));
}

static uint64_t float_constant(const char *t, char type) {
    bool turn = strncmp(t, "0.15915494", 10) == 0; /* 1 / (2 pi), the one inexact constant */
    switch (type) {
    case 'h':
    case 'P':
    case 'k':
    case 'p':
        return sim_half_constant(t);
    case 'd':
    case 'q':
    case 'Q':
        return turn ? 0x3fc45f306dc9c882ull : as_u64(strtod(t, NULL));
    default:
        return turn ? 0x3e22f983u : as_u32(strtof(t, NULL));
    }
}

static bool parse_constant(const char *t, char type, struct sim_operand *o) {
    char *end;
    bool hex = strstr(t, "0x") != NULL;
    o->kind = OPR_IMM;
    o->count = 1;
    if (!hex && strchr(t, '.')) {
        o->imm = float_constant(t, type);
        strtod(t, &end);
        return *end == 0;
    }
    unsigned long long x = hex ? strtoull(t, &end, 16) : (unsigned long long)strtoll(t, &end, 10);
    if (end == t || *end != 0)
        return false;
    o->imm = x;
    if (type == 'd' && hex && x <= 0xffffffffu)
        o->imm = (uint64_t)x << 32; /* a literal is the high half of a double */
    else if (!strchr("dqQ", type))
        o->imm = (uint32_t)x;
    return true;
}

/* Strips -x, |x|, -|x|, sext(x), neg(x); leaves the inside in `inner`. */
static bool strip_modifiers(const char *t, char *inner, size_t size, uint8_t *mods) {
    snprintf(inner, size, "%s", t);
    size_t n = strlen(inner);
    bool number = inner[0] == '-' && inner[1] >= '0' && inner[1] <= '9';
    if (inner[0] == '-' && !number) {
        *mods |= MOD_NEG;
        memmove(inner, inner + 1, n--);
    }
    if (inner[0] == '|' && n > 2 && inner[n - 1] == '|') {
        *mods |= MOD_ABS;
        inner[n - 1] = 0;
        memmove(inner, inner + 1, n - 1);
        n -= 2;
    }
    if ((strncmp(inner, "sext(", 5) == 0 || strncmp(inner, "neg(", 4) == 0) &&
        inner[n - 1] == ')') {
        size_t skip = inner[0] == 's' ? 5 : 4;
        *mods |= inner[0] == 's' ? MOD_SEXT : MOD_NEG;
        inner[n - 1] = 0;
        memmove(inner, inner + skip, n - skip);
    }
    return inner[0] != 0;
}

static bool count_fits(char type, const struct sim_operand *o) {
    switch (type) {
    case 'd':
    case 'q':
    case 'F':
        return o->kind == OPR_IMM || o->kind == OPR_SPECIAL || o->count == 2;
    case 'Q':
    case 'S':
        return o->kind == OPR_IMM || o->kind == OPR_SPECIAL ||
               (o->kind == OPR_SREG && o->count == 2);
    case 's':
        return o->kind != OPR_VREG && o->count == 1;
    case 'X':
        return o->kind == OPR_SREG || o->kind == OPR_IMM;
    case 'V':
        return true;
    default:
        return o->count == 1;
    }
}

bool sim_operand_parse(const char *text, char type, sim_arch arch, struct sim_operand *o) {
    char inner[80];
    (void)arch;
    memset(o, 0, sizeof(*o));
    o->type = (uint8_t)type;
    if (strcmp(text, "off") == 0) {
        o->kind = OPR_OFF;
        return type == 'V' || type == 'X';
    }
    if (strlen(text) >= sizeof(inner) || !strip_modifiers(text, inner, sizeof(inner), &o->mods))
        return false;
    return (parse_named(inner, o) || parse_register(inner, o) || parse_aperture(inner, type, o) ||
            parse_constant(inner, type, o)) &&
           count_fits(type, o);
}
