/* SPDX-License-Identifier: Apache-2.0 */
/* Scalar control flow, hardware registers, waits, and scalar memory. */
#include "ops.h"

static void nothing(struct sim_wave *w, const struct sim_insn *in) {
    (void)w;
    (void)in;
}

/* w->pc is already the address of the next instruction. */
static void jump(struct sim_wave *w, const struct sim_insn *in) {
    w->pc += (uint64_t)((int64_t)in->simm16 * 4);
}

enum { IF_ALWAYS, IF_SCC0, IF_SCC1, IF_VCCZ, IF_VCCNZ, IF_EXECZ, IF_EXECNZ };

static void branch(struct sim_wave *w, const struct sim_insn *in) {
    bool taken = true;
    switch (in->param) {
    case IF_SCC0:
        taken = w->scc == 0;
        break;
    case IF_SCC1:
        taken = w->scc != 0;
        break;
    case IF_VCCZ:
        taken = sreg64(w, SIM_VCC) == 0;
        break;
    case IF_VCCNZ:
        taken = sreg64(w, SIM_VCC) != 0;
        break;
    case IF_EXECZ:
        taken = exec_mask(w) == 0;
        break;
    case IF_EXECNZ:
        taken = exec_mask(w) != 0;
        break;
    default:
        break;
    }
    if (taken)
        jump(w, in);
}

static void call(struct sim_wave *w, const struct sim_insn *in) {
    set_scalar64(w, &in->dst[0], w->pc);
    jump(w, in);
}
static void getpc(struct sim_wave *w, const struct sim_insn *in) {
    set_scalar64(w, &in->dst[0], w->pc);
}
static void setpc(struct sim_wave *w, const struct sim_insn *in) {
    w->pc = scalar64(w, &in->src[0]);
}
static void swappc(struct sim_wave *w, const struct sim_insn *in) {
    uint64_t to = scalar64(w, &in->src[0]);
    set_scalar64(w, &in->dst[0], w->pc);
    w->pc = to;
}

static void endpgm(struct sim_wave *w, const struct sim_insn *in) {
    (void)in;
    w->state = WAVE_ENDED;
}

static void barrier(struct sim_wave *w, const struct sim_insn *in) {
    if (w->lgkm_lds_write > w->lgkm_done)
        sim_fail(w, in, -1, "barrier while LDS writes of this wave are not waited for");
    if (w->vm_lds_write > w->vm_done)
        sim_fail(w, in, -1, "barrier while loads to LDS of this wave are not waited for");
    w->state = WAVE_AT_BARRIER;
}

static void wait(uint64_t issued, uint64_t outstanding, uint64_t *done) {
    if (issued > outstanding && issued - outstanding > *done)
        *done = issued - outstanding;
}

/* vmcnt in bits 3:0 and 15:14, lgkmcnt in bits 11:8. */
static void waitcnt(struct sim_wave *w, const struct sim_insn *in) {
    uint32_t imm = (uint16_t)in->simm16;
    wait(w->lgkm_issued, imm >> 8 & 15, &w->lgkm_done);
    wait(w->vm_issued, (imm & 15) | (imm >> 10 & 0x30), &w->vm_done);
}

static void give_way(struct sim_wave *w, const struct sim_insn *in) {
    (void)in;
    w->yield = true;
}

static void trap(struct sim_wave *w, const struct sim_insn *in) {
    sim_fail(w, in, -1, "the kernel trapped");
}

static void memtime(struct sim_wave *w, const struct sim_insn *in) {
    set_scalar64(w, &in->dst[0], w->executed * 4);
}

/* --- hardware registers: id in bits 5:0, first bit in 10:6, width - 1 in 15:11 --- */

enum { HWREG_MODE = 1, HWREG_XCC_ID = 20 };

static uint32_t *hardware_register(struct sim_wave *w, const struct sim_insn *in) {
    if ((in->simm16 & 63) != HWREG_MODE)
        sim_fail(w, in, -1, "hardware register %d is not supported", in->simm16 & 63);
    return &w->mode;
}

static void getreg(struct sim_wave *w, const struct sim_insn *in) {
    uint32_t at = in->simm16 >> 6 & 31, width = (in->simm16 >> 11 & 31) + 1;
    if ((in->simm16 & 63) == HWREG_XCC_ID) {
        set_scalar32(w, &in->dst[0], 0);
        return;
    }
    uint64_t x = *hardware_register(w, in);
    set_scalar32(w, &in->dst[0], (uint32_t)(x >> at & ((1ull << width) - 1)));
}

static void setreg(struct sim_wave *w, const struct sim_insn *in) {
    uint32_t at = in->simm16 >> 6 & 31, width = (in->simm16 >> 11 & 31) + 1;
    uint32_t field = (uint32_t)(((1ull << width) - 1) << at);
    uint32_t old = *hardware_register(w, in);
    uint32_t mode = (old & ~field) | (scalar32(w, &in->src[0]) << at & field);
    if (mode & 0xf)
        sim_fail(w, in, -1, "only rounding to nearest even is supported");
    sim_mode_set(w, mode);
}

/* --- scalar loads --- */

static void load(struct sim_wave *w, const struct sim_insn *in) {
    uint64_t address = scalar64(w, &in->src[0]) + (uint64_t)(int64_t)in->offset;
    uint32_t dwords = in->param;
    w->lgkm_issued++;
    if (in->nsrc > 1)
        address += in->src[1].kind == OPR_IMM ? (uint64_t)(int64_t)(int32_t)in->src[1].imm
                                              : scalar32(w, &in->src[1]);
    if (address & 3)
        sim_fail(w, in, -1, "scalar load from the unaligned address 0x%llx",
                 (unsigned long long)address);
    memcpy(&w->s[in->dst[0].reg], sim_global(w, in, -1, address, 4 * dwords, false), 4 * dwords);
}

static void buffer_load(struct sim_wave *w, const struct sim_insn *in) {
    const uint32_t *r = &w->s[in->src[0].reg];
    uint64_t base = r[0] | (uint64_t)(r[1] & 0xffff) << 32;
    uint32_t offset = (uint32_t)in->offset + scalar32(w, &in->src[1]);
    uint32_t stride = r[1] >> 16 & 0x3fff, bytes = stride ? stride * r[2] : r[2];
    w->lgkm_issued++;
    for (uint32_t i = 0; i < in->param; i++) {
        uint32_t at = (offset & ~3u) + 4 * i, x = 0;
        if (at + 4 <= bytes)
            memcpy(&x, sim_global(w, in, -1, base + at, 4, false), 4);
        w->s[in->dst[0].reg + i] = x;
    }
}

static const struct sim_op ops[] = {
    {"s_nop", nothing, ":#", 0},
    {"s_waitcnt", waitcnt, ":#", 0},
    {"s_setprio", nothing, ":#", 0},
    {"s_sethalt", nothing, ":#", 0},
    {"s_icache_inv", nothing, ":#", 0},
    {"s_dcache_inv", nothing, ":#", 0},
    {"s_dcache_wb", nothing, ":#", 0},
    {"s_dcache_inv_vol", nothing, ":#", 0},
    {"s_incperflevel", nothing, ":#", 0},
    {"s_decperflevel", nothing, ":#", 0},
    {"s_ttracedata", nothing, ":#", 0},
    {"s_sleep", give_way, ":#", 0},
    {"s_barrier", barrier, ":#", 0},
    {"s_endpgm", endpgm, ":#", 0},
    {"s_endpgm_saved", endpgm, ":#", 0},
    {"s_trap", trap, ":#", 0},
    {"s_branch", branch, ":#", IF_ALWAYS},
    {"s_cbranch_scc0", branch, ":#", IF_SCC0},
    {"s_cbranch_scc1", branch, ":#", IF_SCC1},
    {"s_cbranch_vccz", branch, ":#", IF_VCCZ},
    {"s_cbranch_vccnz", branch, ":#", IF_VCCNZ},
    {"s_cbranch_execz", branch, ":#", IF_EXECZ},
    {"s_cbranch_execnz", branch, ":#", IF_EXECNZ},
    {"s_call_b64", call, "Q:#", 0},
    {"s_getpc_b64", getpc, "Q:", 0},
    {"s_setpc_b64", setpc, ":Q", 0},
    {"s_swappc_b64", swappc, "Q:Q", 0},
    {"s_memtime", memtime, "Q:", 0},
    {"s_memrealtime", memtime, "Q:", 0},
    {"s_getreg_b32", getreg, "s:#", 0},
    {"s_setreg_b32", setreg, ":#s", 0},
    {"s_setreg_imm32_b32", setreg, ":#s", 0},
    {"s_load_dword", load, "X:Qs", 1},
    {"s_load_dwordx2", load, "X:Qs", 2},
    {"s_load_dwordx4", load, "X:Qs", 4},
    {"s_load_dwordx8", load, "X:Qs", 8},
    {"s_load_dwordx16", load, "X:Qs", 16},
    {"s_buffer_load_dword", buffer_load, "X:Xs", 1},
    {"s_buffer_load_dwordx2", buffer_load, "X:Xs", 2},
    {"s_buffer_load_dwordx4", buffer_load, "X:Xs", 4},
    {"s_buffer_load_dwordx8", buffer_load, "X:Xs", 8},
    {"s_buffer_load_dwordx16", buffer_load, "X:Xs", 16},
};
OPS_TABLE(sflow, ops);
