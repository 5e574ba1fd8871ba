/* SPDX-License-Identifier: Apache-2.0 */
/* LDS: bounds, races between waves since the last barrier, and the ds_ instructions. */
#include "ops.h"

/* --- access: shadow bytes tell who wrote and who read since the last barrier --- */

#define ATOMIC_WRITER 0x80
#define ATOMIC_MANY 0xff

static void check_bounds(struct sim_wave *w, const struct sim_insn *in, int lane, uint32_t address,
                         uint32_t size) {
    if ((uint64_t)address + size > w->group->lds_size)
        sim_fail(w, in, lane, "LDS access of %u bytes at 0x%x is outside the workgroup's %u bytes",
                 size, address, w->group->lds_size);
}

static _Noreturn void race(struct sim_wave *w, const struct sim_insn *in, int lane,
                           uint32_t address, const char *what, int other) {
    if (other >= 0)
        sim_fail(w, in, lane, "race: LDS byte 0x%x is %s wave %d with no barrier between", address,
                 what, other);
    sim_fail(w, in, lane, "race: LDS byte 0x%x is %s other waves with no barrier between", address,
             what);
}

static int writer_wave(uint8_t writer) {
    return writer == ATOMIC_MANY ? -1 : (writer & ~ATOMIC_WRITER) - 1;
}

/* The common case, four bytes at once: nobody else wrote them. */
static bool unwritten4(const struct sim_workgroup *g, uint32_t address, uint8_t self) {
    uint32_t writers;
    memcpy(&writers, g->lds_writer + address, 4);
    return writers == 0 || writers == self * 0x01010101u;
}
static void mark_read4(struct sim_workgroup *g, uint32_t address, uint16_t bit) {
    uint64_t readers;
    memcpy(&readers, g->lds_readers + address, 8);
    readers |= bit * 0x0001000100010001ull;
    memcpy(g->lds_readers + address, &readers, 8);
}
static bool unread4(const struct sim_workgroup *g, uint32_t address, uint16_t bit) {
    uint64_t readers;
    memcpy(&readers, g->lds_readers + address, 8);
    return (readers & ~(bit * 0x0001000100010001ull)) == 0;
}

void sim_lds_load(struct sim_wave *w, const struct sim_insn *in, int lane, uint32_t address,
                  void *to, uint32_t size) {
    struct sim_workgroup *g = w->group;
    uint8_t self = (uint8_t)(w->index + 1);
    uint16_t bit = (uint16_t)(1u << w->index);
    check_bounds(w, in, lane, address, size);
    uint32_t i = 0;
    for (; i + 4 <= size && unwritten4(g, address + i, self); i += 4)
        mark_read4(g, address + i, bit);
    for (; i < size; i++) {
        uint8_t writer = g->lds_writer[address + i];
        if (writer && (writer == ATOMIC_MANY || (writer & ~ATOMIC_WRITER) != self))
            race(w, in, lane, address + i, "read, and was written by", writer_wave(writer));
        g->lds_readers[address + i] |= bit;
    }
    memcpy(to, g->lds + address, size);
}

static void check_store(struct sim_wave *w, const struct sim_insn *in, int lane, uint32_t address,
                        uint8_t value) {
    struct sim_workgroup *g = w->group;
    uint8_t writer = g->lds_writer[address], self = (uint8_t)(w->index + 1);
    uint16_t readers = (uint16_t)(g->lds_readers[address] & ~(1u << w->index));
    if (readers)
        race(w, in, lane, address, "written, and was read by", __builtin_ctz(readers));
    if (writer && (writer == ATOMIC_MANY || (writer & ~ATOMIC_WRITER) != self) &&
        g->lds[address] != value)
        race(w, in, lane, address, "written, and was written otherwise by", writer_wave(writer));
    g->lds_writer[address] = self;
}

void sim_lds_store(struct sim_wave *w, const struct sim_insn *in, int lane, uint32_t address,
                   const void *from, uint32_t size) {
    struct sim_workgroup *g = w->group;
    const uint8_t *bytes = from;
    uint8_t self = (uint8_t)(w->index + 1);
    uint32_t i = 0;
    check_bounds(w, in, lane, address, size);
    for (; i + 4 <= size && unwritten4(g, address + i, self) &&
           unread4(g, address + i, (uint16_t)(1u << w->index));
         i += 4)
        memset(g->lds_writer + address + i, self, 4);
    for (; i < size; i++)
        check_store(w, in, lane, address + i, bytes[i]);
    memcpy(w->group->lds + address, from, size);
}

uint8_t *sim_lds_atomic(struct sim_wave *w, const struct sim_insn *in, int lane, uint32_t address,
                        uint32_t size) {
    struct sim_workgroup *g = w->group;
    uint8_t self = (uint8_t)(w->index + 1);
    check_bounds(w, in, lane, address, size);
    if (address % size)
        sim_fail(w, in, lane, "LDS atomic at the unaligned address 0x%x", address);
    for (uint32_t i = address; i < address + size; i++) {
        uint8_t writer = g->lds_writer[i];
        uint16_t readers = (uint16_t)(g->lds_readers[i] & ~(1u << w->index));
        if (readers)
            race(w, in, lane, i, "changed by an atomic, and was read by", __builtin_ctz(readers));
        if (writer && !(writer & ATOMIC_WRITER) && writer != self)
            race(w, in, lane, i, "changed by an atomic, and was written by", writer_wave(writer));
        if (writer == self)
            continue;
        g->lds_writer[i] = writer && writer != (ATOMIC_WRITER | self)
                               ? ATOMIC_MANY
                               : (uint8_t)(ATOMIC_WRITER | self);
    }
    return g->lds + address;
}

void sim_lds_barrier(struct sim_workgroup *g) {
    memset(g->lds_writer, 0, g->lds_size);
    memset(g->lds_readers, 0, 2 * (size_t)g->lds_size);
}

/* --- loads and stores --- */

static uint32_t offset16(const struct sim_insn *in) {
    return (uint32_t)(in->raw & 0xffff);
}

static const uint32_t *vector(const struct sim_wave *w, const struct sim_operand *o) {
    return w->v[o->reg];
}

/* One address; param = bytes. */
static void ds_read(struct sim_wave *w, const struct sim_insn *in) {
    const uint32_t *address = vector(w, &in->src[0]);
    uint32_t(*to)[SIM_LANES] = &w->v[in->dst[0].reg];
    uint64_t mask = exec_mask(w);
    uint32_t at[SIM_LANES], data[4];
    w->lgkm_issued++;
    memcpy(at, address, sizeof(at));
    EACH_ACTIVE(l, mask) {
        sim_lds_load(w, in, l, at[l] + offset16(in), data, in->param);
        for (int i = 0; i < in->param / 4; i++)
            to[i][l] = data[i];
    }
}

static void ds_write(struct sim_wave *w, const struct sim_insn *in) {
    const uint32_t *address = vector(w, &in->src[0]);
    uint32_t(*from)[SIM_LANES] = &w->v[in->src[1].reg];
    uint64_t mask = exec_mask(w);
    uint32_t data[4];
    w->lgkm_lds_write = ++w->lgkm_issued;
    EACH_ACTIVE(l, mask) {
        for (int i = 0; i < in->param / 4; i++)
            data[i] = from[i][l];
        sim_lds_store(w, in, l, address[l] + offset16(in), data, in->param);
    }
}

/* Sub-dword: sign extension, and which half of the register (d16). */
enum { SUB_U8, SUB_I8, SUB_U16, SUB_I16, SUB_SIGN_MASK = 1, SUB_LOW = 4, SUB_HIGH = 8 };

static void ds_read_sub(struct sim_wave *w, const struct sim_insn *in) {
    const uint32_t *address = vector(w, &in->src[0]);
    uint32_t *to = w->v[in->dst[0].reg];
    uint64_t mask = exec_mask(w);
    bool word = in->param & 2, sign = in->param & SUB_SIGN_MASK;
    w->lgkm_issued++;
    EACH_ACTIVE(l, mask) {
        uint32_t x = 0;
        sim_lds_load(w, in, l, address[l] + offset16(in), &x, word ? 2 : 1);
        if (sign)
            x = word ? (uint32_t)(int16_t)x : (uint32_t)(int8_t)x;
        if (in->param & SUB_LOW)
            x = (to[l] & 0xffff0000u) | (x & 0xffff);
        if (in->param & SUB_HIGH)
            x = (to[l] & 0xffff) | x << 16;
        to[l] = x;
    }
}

static void ds_write_sub(struct sim_wave *w, const struct sim_insn *in) {
    const uint32_t *address = vector(w, &in->src[0]), *from = vector(w, &in->src[1]);
    uint64_t mask = exec_mask(w);
    w->lgkm_lds_write = ++w->lgkm_issued;
    EACH_ACTIVE(l, mask) {
        uint32_t x = in->param & SUB_HIGH ? from[l] >> 16 : from[l];
        sim_lds_store(w, in, l, address[l] + offset16(in), &x, in->param & 2 ? 2 : 1);
    }
}

/* Two addresses in units of the element, 64 elements with st64. param: dwords, 0x10 = st64. */
static void ds_read2(struct sim_wave *w, const struct sim_insn *in) {
    const uint32_t *address = vector(w, &in->src[0]);
    uint32_t(*to)[SIM_LANES] = &w->v[in->dst[0].reg];
    uint64_t mask = exec_mask(w);
    uint32_t dwords = in->param & 15, bytes = 4 * dwords, unit = bytes * (in->param & 16 ? 64 : 1);
    uint32_t at[SIM_LANES], data[4];
    w->lgkm_issued++;
    memcpy(at, address, sizeof(at));
    EACH_ACTIVE(l, mask) {
        sim_lds_load(w, in, l, at[l] + in->offset0 * unit, data, bytes);
        sim_lds_load(w, in, l, at[l] + in->offset1 * unit, data + dwords, bytes);
        for (uint32_t i = 0; i < 2 * dwords; i++)
            to[i][l] = data[i];
    }
}

static void ds_write2(struct sim_wave *w, const struct sim_insn *in) {
    const uint32_t *address = vector(w, &in->src[0]);
    uint64_t mask = exec_mask(w);
    uint32_t dwords = in->param & 15, bytes = 4 * dwords, unit = bytes * (in->param & 16 ? 64 : 1);
    uint32_t data[2];
    w->lgkm_lds_write = ++w->lgkm_issued;
    EACH_ACTIVE(l, mask) {
        for (int half = 0; half < 2; half++) {
            for (uint32_t i = 0; i < dwords; i++)
                data[i] = w->v[in->src[1 + half].reg + i][l];
            sim_lds_store(w, in, l, address[l] + (half ? in->offset1 : in->offset0) * unit, data,
                          bytes);
        }
    }
}

/* --- exchange between lanes through the LDS hardware; inactive lanes give 0 --- */

static void ds_bpermute(struct sim_wave *w, const struct sim_insn *in) {
    const uint32_t *address = vector(w, &in->src[0]), *from = vector(w, &in->src[1]);
    uint32_t *to = w->v[in->dst[0].reg], r[SIM_LANES] = {0};
    uint64_t mask = exec_mask(w);
    w->lgkm_issued++;
    EACH_LANE(l) {
        uint32_t lane = (address[l] + offset16(in)) / 4 % 64;
        if (mask >> lane & 1)
            r[l] = from[lane];
    }
    EACH_ACTIVE(l, mask) to[l] = r[l];
}

static void ds_permute(struct sim_wave *w, const struct sim_insn *in) {
    const uint32_t *address = vector(w, &in->src[0]), *from = vector(w, &in->src[1]);
    uint32_t *to = w->v[in->dst[0].reg], r[SIM_LANES] = {0};
    uint64_t mask = exec_mask(w);
    w->lgkm_issued++;
    EACH_ACTIVE(l, mask) r[(address[l] + offset16(in)) / 4 % 64] = from[l];
    EACH_ACTIVE(l, mask) to[l] = r[l];
}

static int swizzle_source(uint32_t offset, int l) {
    if (offset & 0x8000)
        return (l & ~3) | (int)(offset >> 2 * (l & 3) & 3);
    int and_mask = offset & 31, or_mask = offset >> 5 & 31, xor_mask = offset >> 10 & 31;
    return (l & 32) | ((((l & 31) & and_mask) | or_mask) ^ xor_mask);
}

static void ds_swizzle(struct sim_wave *w, const struct sim_insn *in) {
    const uint32_t *from = vector(w, &in->src[0]);
    uint32_t *to = w->v[in->dst[0].reg], r[SIM_LANES];
    uint64_t mask = exec_mask(w);
    w->lgkm_issued++;
    if (offset16(in) >= 0xe000)
        sim_fail(w, in, -1, "this swizzle mode is not supported");
    EACH_LANE(l) {
        int source = swizzle_source(offset16(in), l);
        r[l] = mask >> source & 1 ? from[source] : 0;
    }
    EACH_ACTIVE(l, mask) to[l] = r[l];
}

/* --- atomics --- */

static void ds_atomic(struct sim_wave *w, const struct sim_insn *in) {
    bool wide = in->param & SIM_ATOMIC_64, rtn = in->param & SIM_ATOMIC_RTN;
    int operation = in->param & 0x3f;
    uint32_t address[SIM_LANES], size = wide ? 8 : 4;
    uint64_t mask = exec_mask(w), data[2][SIM_LANES] = {{0}};
    w->lgkm_lds_write = ++w->lgkm_issued;
    memcpy(address, vector(w, &in->src[0]), sizeof(address));
    for (int i = 0; i + 1 < in->nsrc; i++) {
        int reg = in->src[1 + i].reg;
        EACH_LANE(l)
        data[i][l] = w->v[reg][l] | (wide ? (uint64_t)w->v[reg + 1][l] << 32 : 0);
    }
    EACH_ACTIVE(l, mask) {
        uint64_t old = 0;
        /* With two data operands the first is compared and the second stored. */
        bool compare = operation == ATOMIC_CMPSWAP;
        uint8_t *at = sim_lds_atomic(w, in, l, address[l] + offset16(in), size);
        memcpy(&old, at, size);
        uint64_t new = sim_atomic_apply(operation, wide, old, data[compare][l], data[0][l]);
        memcpy(at, &new, size);
        if (rtn) {
            w->v[in->dst[0].reg][l] = (uint32_t)old;
            if (wide)
                w->v[in->dst[0].reg + 1][l] = (uint32_t)(old >> 32);
        }
    }
}

static void nothing(struct sim_wave *w, const struct sim_insn *in) {
    (void)in;
    w->lgkm_issued++;
}

bool sim_lds_access(const struct sim_wave *w, const struct sim_insn *in, int lane, int part,
                    struct sim_lds_access *access) {
    bool two = in->exec == ds_read2 || in->exec == ds_write2;
    bool sub = in->exec == ds_read_sub || in->exec == ds_write_sub;
    bool one = in->exec == ds_read || in->exec == ds_write || in->exec == ds_atomic;
    if (part >= two + 1 || !(two || sub || one))
        return false;
    access->store = in->exec == ds_write || in->exec == ds_write_sub || in->exec == ds_write2 ||
                    in->exec == ds_atomic;
    access->address = vector(w, &in->src[0])[lane];
    if (two) {
        access->bytes = 4 * (in->param & 15);
        access->address +=
            (part ? in->offset1 : in->offset0) * access->bytes * (in->param & 16 ? 64 : 1);
        return true;
    }
    access->address += offset16(in);
    if (in->exec == ds_atomic)
        access->bytes = in->param & SIM_ATOMIC_64 ? 8 : 4;
    else
        access->bytes = sub ? (in->param & 2 ? 2 : 1) : in->param;
    return true;
}

#define DS_ATOMIC(name, type, operation, flags)                                                    \
    {"ds_" name "_" type, ds_atomic, ":VV", operation | flags}, {                                  \
        "ds_" name "_rtn_" type, ds_atomic, "V:VV", operation | flags | SIM_ATOMIC_RTN             \
    }
#define DS_ATOMICS(name, t32, t64, operation)                                                      \
    DS_ATOMIC(name, t32, operation, 0), DS_ATOMIC(name, t64, operation, SIM_ATOMIC_64)

static const struct sim_op ops[] = {
    {"ds_read_b32", ds_read, "V:V", 4},
    {"ds_read_b64", ds_read, "V:V", 8},
    {"ds_read_b96", ds_read, "V:V", 12},
    {"ds_read_b128", ds_read, "V:V", 16},
    {"ds_read_u8", ds_read_sub, "V:V", SUB_U8},
    {"ds_read_i8", ds_read_sub, "V:V", SUB_I8},
    {"ds_read_u16", ds_read_sub, "V:V", SUB_U16},
    {"ds_read_i16", ds_read_sub, "V:V", SUB_I16},
    {"ds_read_u8_d16", ds_read_sub, "V:V", SUB_U8 | SUB_LOW},
    {"ds_read_u8_d16_hi", ds_read_sub, "V:V", SUB_U8 | SUB_HIGH},
    {"ds_read_i8_d16", ds_read_sub, "V:V", SUB_I8 | SUB_LOW},
    {"ds_read_i8_d16_hi", ds_read_sub, "V:V", SUB_I8 | SUB_HIGH},
    {"ds_read_u16_d16", ds_read_sub, "V:V", SUB_U16 | SUB_LOW},
    {"ds_read_u16_d16_hi", ds_read_sub, "V:V", SUB_U16 | SUB_HIGH},
    {"ds_read2_b32", ds_read2, "V:V", 1},
    {"ds_read2_b64", ds_read2, "V:V", 2},
    {"ds_read2st64_b32", ds_read2, "V:V", 1 | 16},
    {"ds_read2st64_b64", ds_read2, "V:V", 2 | 16},
    {"ds_write_b32", ds_write, ":VV", 4},
    {"ds_write_b64", ds_write, ":VV", 8},
    {"ds_write_b96", ds_write, ":VV", 12},
    {"ds_write_b128", ds_write, ":VV", 16},
    {"ds_write_b8", ds_write_sub, ":VV", SUB_U8},
    {"ds_write_b8_d16_hi", ds_write_sub, ":VV", SUB_U8 | SUB_HIGH},
    {"ds_write_b16", ds_write_sub, ":VV", SUB_U16},
    {"ds_write_b16_d16_hi", ds_write_sub, ":VV", SUB_U16 | SUB_HIGH},
    {"ds_write2_b32", ds_write2, ":VVV", 1},
    {"ds_write2_b64", ds_write2, ":VVV", 2},
    {"ds_write2st64_b32", ds_write2, ":VVV", 1 | 16},
    {"ds_write2st64_b64", ds_write2, ":VVV", 2 | 16},
    {"ds_bpermute_b32", ds_bpermute, "V:VV", 0},
    {"ds_permute_b32", ds_permute, "V:VV", 0},
    {"ds_swizzle_b32", ds_swizzle, "V:V", 0},
    {"ds_nop", nothing, ":#", 0},
    DS_ATOMICS("add", "u32", "u64", ATOMIC_ADD),
    DS_ATOMICS("sub", "u32", "u64", ATOMIC_SUB),
    DS_ATOMICS("rsub", "u32", "u64", ATOMIC_RSUB),
    DS_ATOMICS("inc", "u32", "u64", ATOMIC_INC),
    DS_ATOMICS("dec", "u32", "u64", ATOMIC_DEC),
    DS_ATOMICS("min", "i32", "i64", ATOMIC_SMIN),
    DS_ATOMICS("max", "i32", "i64", ATOMIC_SMAX),
    DS_ATOMICS("min", "u32", "u64", ATOMIC_UMIN),
    DS_ATOMICS("max", "u32", "u64", ATOMIC_UMAX),
    DS_ATOMICS("and", "b32", "b64", ATOMIC_AND),
    DS_ATOMICS("or", "b32", "b64", ATOMIC_OR),
    DS_ATOMICS("xor", "b32", "b64", ATOMIC_XOR),
    DS_ATOMICS("add", "f32", "f64", ATOMIC_ADD_F),
    DS_ATOMICS("min", "f32", "f64", ATOMIC_MIN_F),
    DS_ATOMICS("max", "f32", "f64", ATOMIC_MAX_F),
    DS_ATOMIC("pk_add", "f16", ATOMIC_PK_ADD_F16, 0),
    DS_ATOMIC("pk_add", "bf16", ATOMIC_PK_ADD_BF16, 0),
    {"ds_wrxchg_rtn_b32", ds_atomic, "V:VV", ATOMIC_SWAP | SIM_ATOMIC_RTN},
    {"ds_wrxchg_rtn_b64", ds_atomic, "V:VV", ATOMIC_SWAP | SIM_ATOMIC_RTN | SIM_ATOMIC_64},
    {"ds_cmpst_b32", ds_atomic, ":VVV", ATOMIC_CMPSWAP},
    {"ds_cmpst_b64", ds_atomic, ":VVV", ATOMIC_CMPSWAP | SIM_ATOMIC_64},
    {"ds_cmpst_rtn_b32", ds_atomic, "V:VVV", ATOMIC_CMPSWAP | SIM_ATOMIC_RTN},
    {"ds_cmpst_rtn_b64", ds_atomic, "V:VVV", ATOMIC_CMPSWAP | SIM_ATOMIC_RTN | SIM_ATOMIC_64},
};
OPS_TABLE(lds, ops);
