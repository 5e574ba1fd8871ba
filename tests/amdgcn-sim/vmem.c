/* SPDX-License-Identifier: Apache-2.0 */
/* Vector memory: global, flat, scratch and buffer instructions. Each lane's operands give a place
 * (global, LDS, or the lane's private memory), which is checked before it is touched. */
#include "ops.h"

enum space { SPACE_GLOBAL, SPACE_LDS, SPACE_PRIVATE, SPACE_NOWHERE };
struct place {
    enum space space;
    uint32_t base;    /* private: unswizzled offset in the wave's scratch */
    uint64_t address; /* private: offset in the lane's memory */
    uint64_t limit;   /* buffers: bytes from address on that are in range */
};

enum family { GLOBAL, FLAT, SCRATCH, BUFFER };

/* Widths; the low bits of sim_op.param. */
enum { U8, I8, U16, I16, DWORD1, DWORD2, DWORD3, DWORD4, WIDTH_MASK = 7, D16 = 8, D16_HI = 16 };
#define FAMILY(f) ((f) << 5)

/* --- places --- */

static uint64_t pair(const struct sim_wave *w, const struct sim_operand *o, int l) {
    return w->v[o->reg][l] | (uint64_t)w->v[o->reg + 1][l] << 32;
}

static struct place global_place(struct sim_wave *w, const struct sim_insn *in, int l,
                                 const struct sim_operand *vaddr, const struct sim_operand *saddr) {
    uint64_t a =
        saddr->kind == OPR_OFF ? pair(w, vaddr, l) : scalar64(w, saddr) + w->v[vaddr->reg][l];
    return (struct place){SPACE_GLOBAL, 0, a + (uint64_t)(int64_t)in->offset, ~0ull};
}

static struct place flat_place(struct sim_wave *w, const struct sim_insn *in, int l,
                               const struct sim_operand *vaddr) {
    uint64_t a = pair(w, vaddr, l) + (uint64_t)(int64_t)in->offset;
    if (a >> 32 == SIM_SHARED_HI)
        return (struct place){SPACE_LDS, 0, (uint32_t)a, ~0ull};
    if (a >> 32 == SIM_PRIVATE_HI)
        return (struct place){SPACE_PRIVATE, 0, (uint32_t)a, ~0ull};
    return (struct place){SPACE_GLOBAL, 0, a, ~0ull};
}

static struct place scratch_place(struct sim_wave *w, const struct sim_insn *in, int l,
                                  const struct sim_operand *vaddr,
                                  const struct sim_operand *saddr) {
    uint32_t a = (uint32_t)in->offset;
    if (vaddr->kind == OPR_VREG)
        a += w->v[vaddr->reg][l];
    if (saddr->kind != OPR_OFF)
        a += scalar32(w, saddr);
    return (struct place){SPACE_PRIVATE, 0, a, ~0ull};
}

/* Raw and structured buffers, and the scratch resource that the loader of waves hands out. */
static struct place buffer_place(struct sim_wave *w, const struct sim_insn *in, int l,
                                 const struct sim_operand *vaddr, const struct sim_operand *rsrc,
                                 const struct sim_operand *soffset) {
    const uint32_t *r = &w->s[rsrc->reg];
    uint64_t base = r[0] | (uint64_t)(r[1] & 0xffff) << 32;
    uint32_t stride = r[1] >> 16 & 0x3fff, scalar = scalar32(w, soffset);
    uint32_t index = 0, offset = (uint32_t)in->offset;
    if (in->idxen)
        index = w->v[vaddr->reg][l];
    if (in->offen)
        offset += w->v[vaddr->reg + in->idxen][l];
    if (base >= SIM_SCRATCH_BASE && base < SIM_SCRATCH_BASE + (1ull << 32))
        return (struct place){SPACE_PRIVATE, scalar + (uint32_t)(base - SIM_SCRATCH_BASE), offset,
                              ~0ull};
    if (r[1] >> 31 || (r[3] >> 23 & 1))
        sim_fail(w, in, l, "swizzled buffers are not supported");
    uint64_t at = (uint64_t)index * stride + offset + scalar, limit;
    if (stride)
        limit = index < r[2] ? ~0ull : 0;
    else
        limit = at < r[2] ? r[2] - at : 0;
    return (struct place){limit ? SPACE_GLOBAL : SPACE_NOWHERE, 0, base + at, limit};
}

/* --- access --- */

static uint8_t *private_byte(struct sim_wave *w, const struct sim_insn *in, int l,
                             const struct place *p, uint64_t address) {
    uint64_t at = p->base + (address >> 2) * 256 + (uint64_t)l * 4 + (address & 3);
    if (at >= w->scratch_size)
        sim_fail(w, in, l, "scratch access at offset 0x%llx is outside the lane's %llu bytes",
                 (unsigned long long)(address + p->base / 64),
                 (unsigned long long)w->scratch_size / 64);
    return w->scratch + at;
}

static void load_place(struct sim_wave *w, const struct sim_insn *in, int l, const struct place *p,
                       void *to, uint32_t size) {
    uint8_t *bytes = to;
    switch (p->space) {
    case SPACE_GLOBAL:
        if (p->limit < size) { /* the dwords of a buffer that are in range, zeros after them */
            memset(to, 0, size);
            size = size < 4 ? 0 : (uint32_t)p->limit & ~3u;
            if (size == 0)
                return;
        }
        memcpy(to, sim_global(w, in, l, p->address, size, false), size);
        break;
    case SPACE_LDS:
        sim_lds_load(w, in, l, (uint32_t)p->address, to, size);
        break;
    case SPACE_PRIVATE:
        for (uint32_t i = 0; i < size; i++)
            bytes[i] = *private_byte(w, in, l, p, p->address + i);
        break;
    default:
        memset(to, 0, size);
    }
}

static void store_place(struct sim_wave *w, const struct sim_insn *in, int l, const struct place *p,
                        const void *from, uint32_t size) {
    const uint8_t *bytes = from;
    switch (p->space) {
    case SPACE_GLOBAL:
        if (p->limit < size)
            size = size < 4 ? 0 : (uint32_t)p->limit & ~3u;
        if (size)
            memcpy(sim_global(w, in, l, p->address, size, true), from, size);
        break;
    case SPACE_LDS:
        sim_lds_store(w, in, l, (uint32_t)p->address, from, size);
        break;
    case SPACE_PRIVATE:
        for (uint32_t i = 0; i < size; i++)
            *private_byte(w, in, l, p, p->address + i) = bytes[i];
        break;
    default:
        break;
    }
}

/* Operands in the order of the text: loads (vaddr, ...), stores (vaddr, vdata, ...), but buffers
 * name the data first. `data` is the index of the stored operand, -1 for loads. */
static struct place place_of(struct sim_wave *w, const struct sim_insn *in, int l, int data) {
    const struct sim_operand *s = in->src;
    switch (in->param >> 5 & 3) {
    case GLOBAL:
        return global_place(w, in, l, &s[0], &s[data < 0 ? 1 : 2]);
    case FLAT:
        return flat_place(w, in, l, &s[0]);
    case SCRATCH:
        return scratch_place(w, in, l, &s[0], &s[data < 0 ? 1 : 2]);
    default:
        return data < 0 ? buffer_place(w, in, l, &s[0], &s[1], &s[2])
                        : buffer_place(w, in, l, &s[1], &s[2], &s[3]);
    }
}

static void count_issue(struct sim_wave *w, const struct sim_insn *in, bool store) {
    w->vm_issued++;
    if ((in->param >> 5 & 3) == FLAT) {
        w->lgkm_issued++;
        if (store)
            w->lgkm_lds_write = w->lgkm_issued;
    }
}

/* buffer_load ... lds, global_load_lds: LDS address = M0 + offset + 4 * lane. */
static void load_to_lds(struct sim_wave *w, const struct sim_insn *in) {
    uint64_t mask = exec_mask(w);
    uint32_t base = (w->s[SIM_M0] & 0xffff) + (uint32_t)in->offset, x;
    if ((in->param & WIDTH_MASK) != DWORD1)
        sim_fail(w, in, -1, "only dword loads to LDS are supported");
    count_issue(w, in, false);
    w->vm_lds_write = w->vm_issued;
    EACH_ACTIVE(l, mask) {
        struct place p = place_of(w, in, l, -1);
        load_place(w, in, l, &p, &x, 4);
        sim_lds_store(w, in, l, base + 4 * (uint32_t)l, &x, 4);
    }
}

static void load(struct sim_wave *w, const struct sim_insn *in) {
    if (in->lds || in->ndst == 0) {
        load_to_lds(w, in);
        return;
    }
    uint32_t(*to)[SIM_LANES] = &w->v[in->dst[0].reg], data[4];
    uint32_t dwords = (in->param & WIDTH_MASK) - DWORD1 + 1;
    uint64_t mask = exec_mask(w);
    if (in->dst[0].count != dwords)
        sim_fail(w, in, -1, "destination and width of the load disagree");
    count_issue(w, in, false);
    EACH_ACTIVE(l, mask) {
        struct place p = place_of(w, in, l, -1);
        load_place(w, in, l, &p, data, 4 * dwords);
        for (uint32_t i = 0; i < dwords; i++)
            to[i][l] = data[i];
    }
}

static void load_sub(struct sim_wave *w, const struct sim_insn *in) {
    if (in->lds || in->ndst == 0) {
        load_to_lds(w, in);
        return;
    }
    uint32_t *to = w->v[in->dst[0].reg];
    int width = in->param & WIDTH_MASK;
    uint64_t mask = exec_mask(w);
    count_issue(w, in, false);
    EACH_ACTIVE(l, mask) {
        struct place p = place_of(w, in, l, -1);
        uint32_t x = 0;
        load_place(w, in, l, &p, &x, width >= U16 ? 2 : 1);
        if (width == I8)
            x = (uint32_t)(int8_t)x;
        if (width == I16)
            x = (uint32_t)(int16_t)x;
        if (in->param & D16)
            x = (to[l] & 0xffff0000u) | (x & 0xffff);
        if (in->param & D16_HI)
            x = (to[l] & 0xffff) | x << 16;
        to[l] = x;
    }
}

static void store(struct sim_wave *w, const struct sim_insn *in) {
    int data_index = (in->param >> 5 & 3) == BUFFER ? 0 : 1;
    uint32_t(*from)[SIM_LANES] = &w->v[in->src[data_index].reg], data[4];
    uint32_t dwords = (in->param & WIDTH_MASK) - DWORD1 + 1;
    uint64_t mask = exec_mask(w);
    if (in->src[data_index].count != dwords)
        sim_fail(w, in, -1, "source and width of the store disagree");
    count_issue(w, in, true);
    EACH_ACTIVE(l, mask) {
        struct place p = place_of(w, in, l, data_index);
        for (uint32_t i = 0; i < dwords; i++)
            data[i] = from[i][l];
        store_place(w, in, l, &p, data, 4 * dwords);
    }
}

static void store_sub(struct sim_wave *w, const struct sim_insn *in) {
    int data_index = (in->param >> 5 & 3) == BUFFER ? 0 : 1;
    const uint32_t *from = w->v[in->src[data_index].reg];
    uint64_t mask = exec_mask(w);
    count_issue(w, in, true);
    EACH_ACTIVE(l, mask) {
        struct place p = place_of(w, in, l, data_index);
        uint32_t x = in->param & D16_HI ? from[l] >> 16 : from[l];
        store_place(w, in, l, &p, &x, (in->param & WIDTH_MASK) >= U16 ? 2 : 1);
    }
}

/* --- atomics --- */

static uint64_t atomic_place(struct sim_wave *w, const struct sim_insn *in, int l,
                             const struct place *p, uint64_t data, uint64_t compare) {
    bool wide = in->param & SIM_ATOMIC_64;
    int operation = in->param & 0x1f;
    uint32_t size = wide ? 8 : 4;
    if (p->space == SPACE_NOWHERE || p->limit < size)
        return 0;
    if (p->space == SPACE_PRIVATE)
        sim_fail(w, in, l, "atomic operation on scratch");
    if (p->address % size)
        sim_fail(w, in, l, "atomic at the unaligned address 0x%llx",
                 (unsigned long long)p->address);
    void *at = p->space == SPACE_LDS ? sim_lds_atomic(w, in, l, (uint32_t)p->address, size)
                                     : sim_global(w, in, l, p->address, size, true);
    return sim_atomic_memory(operation, wide, at, data, compare);
}

static struct place atomic_where(struct sim_wave *w, const struct sim_insn *in, int l) {
    const struct sim_operand *s = in->src;
    if (in->nsrc == 2)
        return flat_place(w, in, l, &s[0]);
    if (in->ndst == 1 && in->nsrc == 3 && s[1].kind == OPR_SREG && s[1].count == 4)
        return buffer_place(w, in, l, &s[0], &s[1], &s[2]);
    return global_place(w, in, l, &s[0], &s[2]);
}

static void atomic(struct sim_wave *w, const struct sim_insn *in) {
    bool wide = in->param & SIM_ATOMIC_64;
    bool buffer =
        in->ndst == 1 && in->nsrc == 3 && in->src[1].kind == OPR_SREG && in->src[1].count == 4;
    int reg = buffer ? in->dst[0].reg : in->src[1].reg, step = wide ? 2 : 1;
    bool rtn = buffer ? in->glc : in->ndst == 1;
    bool compare = (in->param & 0x1f) == ATOMIC_CMPSWAP;
    uint64_t mask = exec_mask(w);
    w->vm_issued++;
    w->yield = true; /* a spin on memory must let the others run */
    EACH_ACTIVE(l, mask) {
        struct place p = atomic_where(w, in, l);
        uint64_t data[2] = {0, 0};
        for (int i = 0; i < 1 + compare; i++)
            data[i] =
                w->v[reg + i * step][l] | (wide ? (uint64_t)w->v[reg + i * step + 1][l] << 32 : 0);
        uint64_t old = atomic_place(w, in, l, &p, data[0], data[1]);
        if (rtn) {
            w->v[in->dst[0].reg][l] = (uint32_t)old;
            if (wide)
                w->v[in->dst[0].reg + 1][l] = (uint32_t)(old >> 32);
        }
    }
}

uint32_t sim_vmem_access(struct sim_wave *w, const struct sim_insn *in, int lane,
                         uint64_t *address) {
    static const uint8_t width[] = {1, 1, 2, 2, 4, 8, 12, 16};
    bool stores = in->exec == store || in->exec == store_sub;
    struct place p;
    uint32_t bytes = width[in->param & WIDTH_MASK];
    if (in->exec == atomic) {
        p = atomic_where(w, in, lane);
        bytes = in->param & SIM_ATOMIC_64 ? 8 : 4;
    } else if (stores || in->exec == load || in->exec == load_sub || in->exec == load_to_lds) {
        p = place_of(w, in, lane, stores ? (in->param >> 5 & 3) == BUFFER ? 0 : 1 : -1);
    } else {
        return 0;
    }
    *address = p.address;
    /* Words of scratch lie side by side, those of one lane 256 bytes apart. */
    if (p.space == SPACE_PRIVATE)
        *address = SIM_SCRATCH_BASE + p.base + p.address / 4 * 256 + (uint64_t)lane * 4;
    return p.space == SPACE_GLOBAL || p.space == SPACE_PRIVATE ? bytes : 0;
}

/* Cache control: loads and stores take effect at once here. */
static void nothing(struct sim_wave *w, const struct sim_insn *in) {
    (void)in;
    w->vm_issued++;
}

#define LOADS(prefix, family, signature)                                                           \
    {prefix "_load_ubyte", load_sub, signature, family | U8},                                      \
        {prefix "_load_sbyte", load_sub, signature, family | I8},                                  \
        {prefix "_load_ushort", load_sub, signature, family | U16},                                \
        {prefix "_load_sshort", load_sub, signature, family | I16},                                \
        {prefix "_load_ubyte_d16", load_sub, signature, family | U8 | D16},                        \
        {prefix "_load_ubyte_d16_hi", load_sub, signature, family | U8 | D16_HI},                  \
        {prefix "_load_sbyte_d16", load_sub, signature, family | I8 | D16},                        \
        {prefix "_load_sbyte_d16_hi", load_sub, signature, family | I8 | D16_HI},                  \
        {prefix "_load_short_d16", load_sub, signature, family | U16 | D16},                       \
        {prefix "_load_short_d16_hi", load_sub, signature, family | U16 | D16_HI},                 \
        {prefix "_load_dword", load, signature, family | DWORD1},                                  \
        {prefix "_load_dwordx2", load, signature, family | DWORD2},                                \
        {prefix "_load_dwordx3", load, signature, family | DWORD3}, {                              \
        prefix "_load_dwordx4", load, signature, family | DWORD4                                   \
    }
#define STORES(prefix, family, signature)                                                          \
    {prefix "_store_byte", store_sub, signature, family | U8},                                     \
        {prefix "_store_byte_d16_hi", store_sub, signature, family | U8 | D16_HI},                 \
        {prefix "_store_short", store_sub, signature, family | U16},                               \
        {prefix "_store_short_d16_hi", store_sub, signature, family | U16 | D16_HI},               \
        {prefix "_store_dword", store, signature, family | DWORD1},                                \
        {prefix "_store_dwordx2", store, signature, family | DWORD2},                              \
        {prefix "_store_dwordx3", store, signature, family | DWORD3}, {                            \
        prefix "_store_dwordx4", store, signature, family | DWORD4                                 \
    }
#define ATOMIC_SIZES(name, operation)                                                              \
    ATOMIC_FORMS(name, operation), ATOMIC_FORMS(name "_x2", (operation) | SIM_ATOMIC_64)
#define ATOMIC_FORMS(name, param)                                                                  \
    {"global_atomic_" name, atomic, ":VVX V:VVX", param},                                          \
        {"flat_atomic_" name, atomic, ":VV V:VV", param}, {                                        \
        "buffer_atomic_" name, atomic, "V:VXs", param                                              \
    }

static const struct sim_op ops[] = {
    LOADS("global", FAMILY(GLOBAL), "V:VX"),
    LOADS("flat", FAMILY(FLAT), "V:V"),
    LOADS("scratch", FAMILY(SCRATCH), "V:VX"),
    LOADS("buffer", FAMILY(BUFFER), "V:VXs :VXs"),
    STORES("global", FAMILY(GLOBAL), ":VVX"),
    STORES("flat", FAMILY(FLAT), ":VV"),
    STORES("scratch", FAMILY(SCRATCH), ":VVX"),
    STORES("buffer", FAMILY(BUFFER), ":VVXs"),
    {"global_load_lds_dword", load_to_lds, ":VX", FAMILY(GLOBAL) | DWORD1},
    ATOMIC_SIZES("swap", ATOMIC_SWAP),
    ATOMIC_SIZES("cmpswap", ATOMIC_CMPSWAP),
    ATOMIC_SIZES("add", ATOMIC_ADD),
    ATOMIC_SIZES("sub", ATOMIC_SUB),
    ATOMIC_SIZES("smin", ATOMIC_SMIN),
    ATOMIC_SIZES("umin", ATOMIC_UMIN),
    ATOMIC_SIZES("smax", ATOMIC_SMAX),
    ATOMIC_SIZES("umax", ATOMIC_UMAX),
    ATOMIC_SIZES("and", ATOMIC_AND),
    ATOMIC_SIZES("or", ATOMIC_OR),
    ATOMIC_SIZES("xor", ATOMIC_XOR),
    ATOMIC_SIZES("inc", ATOMIC_INC),
    ATOMIC_SIZES("dec", ATOMIC_DEC),
    ATOMIC_FORMS("add_f32", ATOMIC_ADD_F),
    ATOMIC_FORMS("pk_add_f16", ATOMIC_PK_ADD_F16),
    ATOMIC_FORMS("pk_add_bf16", ATOMIC_PK_ADD_BF16),
    ATOMIC_FORMS("add_f64", ATOMIC_ADD_F | SIM_ATOMIC_64),
    ATOMIC_FORMS("min_f64", ATOMIC_MIN_F | SIM_ATOMIC_64),
    ATOMIC_FORMS("max_f64", ATOMIC_MAX_F | SIM_ATOMIC_64),
    {"buffer_wbl2", nothing, ":#", 0},
    {"buffer_inv", nothing, ":#", 0},
    {"buffer_invl2", nothing, ":#", 0},
    {"buffer_wbinvl1", nothing, ":#", 0},
    {"buffer_wbinvl1_vol", nothing, ":#", 0},
};
OPS_TABLE(vmem, ops);
