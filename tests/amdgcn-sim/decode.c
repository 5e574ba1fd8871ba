/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes one instruction: LLVM's disassembler gives the text, the operation tables give the
 * meaning. A signature lists the operands in the order of the text, destinations before the colon;
 * the characters are described in operands.c, and '#' is a field taken from the encoding. */
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/Disassembler.h>
#include <llvm-c/Target.h>

#include "sim.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* --- the table of all operations, hashed by name --- */

#define HASH_SIZE 8192
static const struct sim_op *hashed[HASH_SIZE];

static unsigned hash_of(const char *name) {
    unsigned h = 5381;
    while (*name)
        h = h * 33 + (unsigned char)*name++;
    return h % HASH_SIZE;
}

static void hash_build(void) {
    size_t count;
    const struct sim_optable *tables = sim_optables(&count);
    for (size_t t = 0; t < count; t++) {
        for (size_t i = 0; i < tables[t].count; i++) {
            unsigned h = hash_of(tables[t].ops[i].name);
            while (hashed[h])
                h = (h + 1) % HASH_SIZE;
            hashed[h] = &tables[t].ops[i];
        }
    }
}

static const struct sim_op *lookup(const char *name) {
    for (unsigned h = hash_of(name); hashed[h]; h = (h + 1) % HASH_SIZE) {
        if (strcmp(hashed[h]->name, name) == 0)
            return hashed[h];
    }
    return NULL;
}

static bool strip_suffix(char *name, const char *suffix) {
    size_t n = strlen(name), s = strlen(suffix);
    if (n <= s || strcmp(name + n - s, suffix) != 0)
        return false;
    name[n - s] = 0;
    return true;
}

static const struct sim_op *find_op(const char *mnemonic, struct sim_insn *in) {
    char name[64];
    const struct sim_op *op = lookup(mnemonic);
    if (op || strlen(mnemonic) >= sizeof(name))
        return op;
    snprintf(name, sizeof(name), "%s", mnemonic);
    if (strip_suffix(name, "_sdwa")) {
        in->sdwa = true;
    } else if (!strip_suffix(name, "_e32") && !strip_suffix(name, "_dpp") &&
               !strip_suffix(name, "_e64")) {
        if (strncmp(name, "v_mfma_", 7) == 0)
            return lookup("v_mfma_*");
        return NULL;
    }
    return lookup(name);
}

/* --- the text --- */

#define MAX_TOKENS 10

struct line {
    char text[256];
    char *mnemonic;
    char *operand[MAX_TOKENS];
    int operands;
    char *modifier[24];
    int modifiers;
};

static bool split(struct line *line, const char *text) {
    char *p;
    int depth = 0;
    bool more = true;
    memset(line, 0, sizeof(*line));
    while (isspace((unsigned char)*text))
        text++;
    snprintf(line->text, sizeof(line->text), "%s", text);
    p = line->mnemonic = line->text;
    while (*p && *p != ' ')
        p++;
    while (*p == ' ')
        *p++ = 0;
    while (*p && more) {
        if (line->operands == MAX_TOKENS)
            return false;
        line->operand[line->operands++] = p;
        for (; *p && (depth > 0 || (*p != ',' && *p != ' ')); p++)
            depth += (*p == '[' || *p == '(') - (*p == ']' || *p == ')');
        more = *p == ',';
        if (*p)
            *p++ = 0;
        while (*p == ' ')
            p++;
    }
    while (*p) {
        if (line->modifiers == 24)
            return false;
        line->modifier[line->modifiers++] = p;
        for (; *p && (depth > 0 || *p != ' '); p++)
            depth += (*p == '[' || *p == '(') - (*p == ']' || *p == ')');
        while (*p == ' ')
            *p++ = 0;
    }
    return true;
}

/* "[1,0,1]" -> bits 0 and 2 */
static uint8_t bit_list(const char *t) {
    uint8_t bits = 0;
    for (int i = 0; *t; t++) {
        if (*t == '0' || *t == '1')
            bits |= (uint8_t)((*t - '0') << i++);
    }
    return bits;
}

static bool selector(const char *t, uint8_t *sel) {
    static const char *const names[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3",
                                        "WORD_0", "WORD_1", "DWORD"};
    for (uint8_t i = 0; i < 7; i++) {
        if (strcmp(t, names[i]) == 0) {
            *sel = i;
            return true;
        }
    }
    return false;
}

static bool unused(const char *t, uint8_t *out) {
    static const char *const names[] = {"UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"};
    for (uint8_t i = 0; i < 3; i++) {
        if (strcmp(t, names[i]) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

static int dpp_source(const char *name, const char *value, int l) {
    int n = atoi(value), row = l & ~15, i = l & 15;
    if (strcmp(name, "quad_perm") == 0)
        return (l & ~3) | (value[1 + 2 * (l & 3)] - '0');
    if (strcmp(name, "row_shl") == 0)
        return i + n < 16 ? l + n : -1;
    if (strcmp(name, "row_shr") == 0)
        return i - n >= 0 ? l - n : -1;
    if (strcmp(name, "row_ror") == 0)
        return row | ((i - n) & 15);
    if (strcmp(name, "row_newbcast") == 0)
        return row | n;
    if (strcmp(name, "row_mirror") == 0)
        return row | (15 - i);
    if (strcmp(name, "row_half_mirror") == 0)
        return (l & ~7) | (7 - (l & 7));
    if (strcmp(name, "wave_shl") == 0)
        return l < 63 ? l + 1 : -1;
    if (strcmp(name, "wave_shr") == 0)
        return l - 1;
    if (strcmp(name, "wave_rol") == 0)
        return (l + 1) & 63;
    if (strcmp(name, "wave_ror") == 0)
        return (l - 1) & 63;
    if (strcmp(name, "row_bcast") == 0)
        return n == 15 ? (l >= 16 ? row - 1 : -1) : (l >= 32 ? 31 : -1);
    return -2;
}

static bool dpp_modifier(struct sim_insn *in, const char *name, const char *value) {
    if (!in->dpp) {
        in->dpp = calloc(1, sizeof(*in->dpp));
        in->dpp->enabled = ~0ull;
    }
    if (strcmp(name, "bound_ctrl") == 0) {
        in->dpp->bound_zero = true;
        return true;
    }
    if (strcmp(name, "row_mask") == 0 || strcmp(name, "bank_mask") == 0) {
        unsigned mask = (unsigned)strtoul(value, NULL, 0);
        for (int l = 0; l < SIM_LANES; l++) {
            int bit = name[0] == 'r' ? l / 16 : l / 4 % 4;
            if (!(mask >> bit & 1))
                in->dpp->enabled &= ~(1ull << l);
        }
        return true;
    }
    for (int l = 0; l < SIM_LANES; l++) {
        int source = dpp_source(name, value, l);
        if (source < -1)
            return false;
        in->dpp->source[l] = (int8_t)source;
    }
    return true;
}

static bool flag_modifier(struct sim_insn *in, const char *name) {
    static const char *const ignored[] = {"slc", "nt", "sc1", "scc"};
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
        if (strcmp(name, ignored[i]) == 0)
            return true;
    }
    if (strcmp(name, "clamp") == 0)
        in->clamp = true;
    else if (strcmp(name, "glc") == 0 || strcmp(name, "sc0") == 0)
        in->glc = true;
    else if (strcmp(name, "offen") == 0)
        in->offen = true;
    else if (strcmp(name, "idxen") == 0)
        in->idxen = true;
    else if (strcmp(name, "lds") == 0)
        in->lds = true;
    else
        return dpp_modifier(in, name, "0");
    return true;
}

static bool valued_modifier(struct sim_insn *in, const char *name, const char *value) {
    if (strcmp(name, "offset") == 0 || strcmp(name, "offset0") == 0 ||
        strcmp(name, "offset1") == 0) {
        /* LDS instructions take their offsets from the encoding. */
        in->offset = (int32_t)strtol(value, NULL, 0);
        return true;
    }
    if (strcmp(name, "op_sel") == 0)
        in->op_sel = bit_list(value);
    else if (strcmp(name, "op_sel_hi") == 0)
        in->op_sel_hi = bit_list(value);
    else if (strcmp(name, "neg_lo") == 0)
        in->neg_lo = bit_list(value);
    else if (strcmp(name, "neg_hi") == 0)
        in->neg_hi = bit_list(value);
    else if (strcmp(name, "mul") == 0)
        in->omod = value[0] == '2' ? 1 : 2;
    else if (strcmp(name, "div") == 0)
        in->omod = -1;
    else if (strcmp(name, "cbsz") == 0)
        in->cbsz = (uint8_t)atoi(value);
    else if (strcmp(name, "abid") == 0)
        in->abid = (uint8_t)atoi(value);
    else if (strcmp(name, "blgp") == 0)
        in->blgp = (uint8_t)atoi(value);
    else if (strcmp(name, "src0_sel") == 0)
        return selector(value, &in->sel[0]);
    else if (strcmp(name, "src1_sel") == 0)
        return selector(value, &in->sel[1]);
    else if (strcmp(name, "dst_sel") == 0)
        return selector(value, &in->dst_sel);
    else if (strcmp(name, "dst_unused") == 0)
        return unused(value, &in->dst_unused);
    else
        return dpp_modifier(in, name, value);
    return true;
}

static bool read_modifier(struct sim_insn *in, char *text) {
    char *colon = strchr(text, ':');
    if (!colon)
        return flag_modifier(in, text);
    *colon = 0;
    bool ok = valued_modifier(in, text, colon + 1);
    *colon = ':';
    return ok;
}

/* --- operands --- */

static void count_registers(struct sim_insn *in, const struct sim_operand *o) {
    if (o->kind != OPR_VREG)
        return;
    uint16_t end = (uint16_t)(o->reg + o->count);
    if (o->reg >= SIM_AGPR && end - SIM_AGPR > in->agprs)
        in->agprs = (uint16_t)(end - SIM_AGPR);
    if (o->reg < SIM_AGPR && end > in->vgprs)
        in->vgprs = end;
}

static bool read_operands(struct sim_insn *in, struct line *line, const char *signature,
                          sim_arch arch) {
    int at = 0;
    bool sources = false;
    for (const char *s = signature; *s; s++) {
        if (*s == ':') {
            sources = true;
            continue;
        }
        if (at >= line->operands)
            return false;
        if (*s == '#') {
            at++;
            continue;
        }
        struct sim_operand *o = sources ? &in->src[in->nsrc++] : &in->dst[in->ndst++];
        if (!sim_operand_parse(line->operand[at], *s, arch, o))
            return false;
        if (*s == 'm' && o->kind == OPR_IMM && (in->op_sel_hi >> (in->nsrc - 1) & 1) &&
            strchr(line->operand[at], '.'))
            o->imm = sim_half_constant(line->operand[at]);
        if (!sources && o->kind != OPR_VREG && o->kind != OPR_SREG)
            return false;
        count_registers(in, o);
        at++;
    }
    return at == line->operands;
}

/* Optional operands: several spellings may be listed, separated by spaces. */
static bool match_signature(struct sim_insn *in, struct line *line, const char *signatures,
                            sim_arch arch) {
    char one[32];
    while (*signatures) {
        size_t n = strcspn(signatures, " ");
        snprintf(one, sizeof(one), "%.*s", (int)n, signatures);
        in->ndst = in->nsrc = 0;
        in->vgprs = in->agprs = 0;
        if (read_operands(in, line, one, arch))
            return true;
        signatures += n + (signatures[n] == ' ');
    }
    return false;
}

static void mark_slow(struct sim_insn *in) {
    for (int i = 0; i < in->nsrc; i++) {
        bool slow = in->src[i].mods != 0 || (i == 0 && in->dpp) ||
                    (in->sdwa && i < 2 && in->sel[i] != SEL_DWORD);
        in->src_slow |= (uint8_t)(slow << i);
    }
    in->write_slow = in->clamp || in->omod || in->dpp || (in->sdwa && in->dst_sel != SEL_DWORD);
}

static const char *fill(struct sim_insn *in, struct line *line, const char *text, sim_arch arch) {
    if (!split(line, text))
        return "an instruction whose text has too many parts";
    const struct sim_op *op = find_op(line->mnemonic, in);
    if (!op)
        return "unknown instruction";
    in->exec = op->exec;
    in->param = op->param;
    in->sel[0] = in->sel[1] = in->dst_sel = SEL_DWORD;
    /* Packed operations read the high halves for the high result unless told otherwise. */
    in->op_sel_hi = strpbrk(op->signature, "PpF") ? 7 : 0;
    if (strcmp(op->signature, ":#") == 0)
        return NULL; /* one field, which may print as several words */
    for (int i = 0; i < line->modifiers; i++) {
        if (!read_modifier(in, line->modifier[i]))
            return "unknown modifier";
    }
    if (!match_signature(in, line, op->signature, arch))
        return "operands of a form that the simulator does not know";
    mark_slow(in);
    return NULL;
}

/* --- entry --- */

static void *disassembler(sim_arch arch) {
    static bool ready;
    if (!ready) {
        LLVMInitializeAMDGPUTargetInfo();
        LLVMInitializeAMDGPUTargetMC();
        LLVMInitializeAMDGPUDisassembler();
        hash_build();
        ready = true;
    }
    return LLVMCreateDisasmCPU("amdgcn-amd-amdhsa", sim_arch_name(arch), NULL, 0, NULL, NULL);
}

void sim_disassembler_free(void *d) {
    if (d)
        LLVMDisasmDispose(d);
}

void sim_insn_free(struct sim_insn *in) {
    free(in->dpp);
    free(in->data);
    free(in->text);
    free(in);
}

static void decode_fail(struct sim_wave *w, struct sim_insn *in, const char *why) {
    if (w->module->rejected)
        sim_insn_free(w->module->rejected);
    w->module->rejected = in;
    w->pc += in->size;
    pthread_mutex_unlock(&lock);
    sim_fail(w, in, -1, "%s", why);
}

static struct sim_insn *decode_at(struct sim_wave *w, uint64_t pc, uint64_t base) {
    char text[256];
    struct sim_module *m = w->module;
    struct line line;
    if (!m->disassembler)
        m->disassembler = disassembler(m->arch);
    struct sim_insn *in = calloc(1, sizeof(*in));
    uint64_t left = base + m->size - pc;
    size_t size = LLVMDisasmInstruction(m->disassembler, (uint8_t *)(uintptr_t)pc,
                                        left < 20 ? left : 20, pc - base, text, sizeof(text));
    memcpy(&in->raw, (const void *)(uintptr_t)pc, left < 8 ? left : 8);
    in->simm16 = (int16_t)in->raw;
    in->size = (uint8_t)size;
    in->offset0 = (uint8_t)in->raw;
    in->offset1 = (uint8_t)(in->raw >> 8);
    if (size == 0) {
        decode_fail(w, in, "bytes that are not an instruction");
        return in;
    }
    in->text = strdup(text + strspn(text, " \t"));
    const char *why = fill(in, &line, text, m->arch);
    if (why)
        decode_fail(w, in, why);
    return in;
}

const struct sim_insn *sim_decode(struct sim_wave *w, uint64_t pc) {
    struct sim_module *m = w->module;
    uint64_t base = (uint64_t)(uintptr_t)m->image;
    if (pc < base || pc + 4 > base + m->size || pc % 4 != 0)
        sim_fail(w, NULL, -1, "the program counter left the code object");
    struct sim_insn **slot = &m->code[(pc - base) / 4];
    struct sim_insn *in = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (in)
        return in;
    pthread_mutex_lock(&lock);
    in = *slot;
    if (!in) {
        in = decode_at(w, pc, base);
        __atomic_store_n(slot, in, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return in;
}
