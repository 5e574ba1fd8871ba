/* SPDX-License-Identifier: Apache-2.0 */
/* Instruction-level simulator of AMD's wave64 compute chips gfx90a (MI200) and gfx942 (MI300).
 *
 * A code object is loaded as a driver would load it, every instruction is decoded once through
 * LLVM's disassembler into a struct sim_insn, and waves run by calling insn->exec. This header has
 * the types that the modules share:
 *
 *   codeobj.c   ELF image, kernel descriptors, metadata note (msgpack.c)
 *   memory.c    device allocations, poison, access checks
 *   decode.c    text of one instruction -> struct sim_insn (operands.c parses one operand)
 *   salu*.c     scalar instructions           valu*.c  vector instructions
 *   vmem.c, smem.c, lds.c, atomic.c           memory instructions
 *   mfma.c      matrix instructions           wave.c   workgroups, barriers, threads
 *   profile.c   counts of a launch's instructions
 *   hip.c, hip_graph.c                        the HIP entry points
 */
#ifndef AMDGCN_SIM_H
#define AMDGCN_SIM_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_LANES 64
#define SIM_AGPR 256 /* index of a0 in the register file */
#define SIM_MAX_WAVES 16
#define SIM_LDS_MAX 65536
#define SIM_REDZONE 4096
/* NaN as f32, f64, f16, bf16 and e5m2, a wild address and an implausible integer. */
#define SIM_POISON 0xfffdfffdu
/* High halves of the flat apertures; user addresses of the host never reach them. */
#define SIM_SHARED_HI 0x00010000u
#define SIM_PRIVATE_HI 0x00020000u
/* Base address of the scratch resource: never a host address. */
#define SIM_SCRATCH_BASE 0x0000600000000000ull

/* Scalar registers by their encoding. */
enum {
    SIM_FLAT_SCRATCH = 102,
    SIM_XNACK_MASK = 104,
    SIM_VCC = 106,
    SIM_TTMP0 = 108,
    SIM_M0 = 124,
    SIM_EXEC = 126,
    SIM_NSREG = 128,
};

typedef enum { SIM_GFX90A, SIM_GFX942 } sim_arch;

enum sim_kind { OPR_NONE, OPR_VREG, OPR_SREG, OPR_IMM, OPR_SPECIAL, OPR_OFF };
enum sim_special { SPC_SCC, SPC_VCCZ, SPC_EXECZ };
enum { MOD_NEG = 1, MOD_ABS = 2, MOD_SEXT = 4 };
enum { SEL_BYTE0, SEL_BYTE1, SEL_BYTE2, SEL_BYTE3, SEL_WORD0, SEL_WORD1, SEL_DWORD };
enum { UNUSED_PAD, UNUSED_SEXT, UNUSED_PRESERVE };

struct sim_operand {
    uint8_t kind;
    uint8_t mods;
    uint8_t type;  /* character of the operation's signature */
    uint8_t count; /* dwords */
    uint16_t reg;  /* vector: 0..255 v, 256..511 a; scalar: encoding; special: enum sim_special */
    uint64_t imm;  /* constant, already converted to the operand's type */
};

struct sim_dpp {
    int8_t source[SIM_LANES]; /* lane read by each lane, -1 when there is none */
    uint64_t enabled;         /* row_mask and bank_mask */
    bool bound_zero;          /* read 0 where there is no source, else do not write */
};

struct sim_wave;
struct sim_insn;
typedef void (*sim_exec)(struct sim_wave *w, const struct sim_insn *in);

struct sim_insn {
    sim_exec exec;
    uint64_t raw; /* first eight bytes of the encoding */
    uint8_t size; /* bytes */
    uint8_t ndst, nsrc;
    uint8_t param; /* operation's own number, from the table */
    bool clamp, sdwa, write_slow;
    int8_t omod; /* power of two */
    uint8_t op_sel, op_sel_hi, neg_lo, neg_hi;
    uint8_t src_slow; /* bit i: source i needs more than a plain register read */
    uint8_t sel[2], dst_sel, dst_unused;
    bool offen, idxen, glc, lds;
    uint8_t offset0, offset1;
    uint8_t cbsz, abid, blgp;
    int16_t simm16;
    int32_t offset;
    uint16_t vgprs, agprs; /* registers needed */
    struct sim_operand dst[2], src[5];
    struct sim_dpp *dpp;
    void *data; /* operation's own, made at the first execution, freed with the instruction */
    char *text;
};

struct sim_op {
    const char *name;
    sim_exec exec;
    const char *signature; /* see decode.c */
    uint8_t param;
};

struct sim_optable {
    const struct sim_op *ops;
    size_t count;
};

struct sim_range {
    uint64_t lo, hi; /* addresses of the live bytes */
    void *block;
    bool writable;
};

struct sim_arg {
    uint32_t offset, size;
    char kind[32]; /* value kind of the metadata */
};

struct sim_kernel {
    char *name;
    uint64_t entry; /* address of the first instruction */
    uint64_t descriptor;
    uint32_t group_size, private_size, kernarg_size;
    uint32_t rsrc1, rsrc2, rsrc3;
    uint16_t properties, preload;
    bool dynamic_stack;
    uint32_t max_workgroup;
    struct sim_arg *args;
    size_t nargs;
    struct sim_module *module;
};

struct sim_symbol {
    char *name;
    uint64_t address, size;
};

struct sim_module {
    sim_arch arch;
    uint8_t *image; /* loaded segments; image[0] is virtual address 0 */
    uint64_t size;
    struct sim_kernel *kernels;
    size_t nkernels;
    struct sim_symbol *globals;
    size_t nglobals;
    struct sim_insn **code;    /* decoded, one per dword of the image */
    struct sim_insn *rejected; /* kept for the message that names it */
    void *disassembler;
};

struct sim_launch {
    const struct sim_kernel *kernel;
    uint32_t grid[3], block[3]; /* workgroups, work-items */
    uint32_t dynamic_lds;
    const uint8_t *kernarg;
    uint8_t packet[64]; /* dispatch packet */
};

struct sim_profile;

struct sim_workgroup {
    const struct sim_launch *launch;
    uint32_t id[3];
    uint32_t nwaves, lds_size;
    struct sim_wave *waves[SIM_MAX_WAVES];
    uint8_t *lds;
    uint8_t *lds_writer;   /* per byte: wave + 1 since the last barrier; bit 7 set for atomics */
    uint16_t *lds_readers; /* per byte: waves that read it since the last barrier */
    struct sim_range cached;
    jmp_buf failed;
    volatile bool *stop; /* another workgroup failed */
    uint64_t executed, limit;
    struct sim_profile *profile; /* NULL: not counted */
};

enum sim_state { WAVE_RUNS, WAVE_AT_BARRIER, WAVE_ENDED };

struct sim_wave {
    uint32_t v[512][SIM_LANES]; /* v0..v255, a0..a255 */
    uint32_t s[SIM_NSREG];
    uint64_t pc; /* address of the next instruction */
    uint32_t scc, mode;
    uint32_t index;
    uint32_t vgprs, agprs; /* allocated */
    bool flush32_in, flush32_out, flush16_in, flush16_out, ieee, dx10_clamp;
    bool yield; /* give the other waves a turn */
    sim_arch arch;
    enum sim_state state;
    struct sim_workgroup *group;
    struct sim_module *module;
    uint8_t *scratch;
    uint64_t scratch_size; /* bytes of the whole wave */
    uint64_t executed;
    /* Instructions counted by lgkmcnt and vmcnt: issued, known done, last that wrote to LDS. */
    uint64_t lgkm_issued, lgkm_done, lgkm_lds_write;
    uint64_t vm_issued, vm_done, vm_lds_write;
};

/* --- errors --- */
/* Ends the launch: names kernel, workgroup, wave, lane (-1 = whole wave), instruction and pc. */
_Noreturn void sim_fail(struct sim_wave *w, const struct sim_insn *in, int lane, const char *format,
                        ...) __attribute__((format(printf, 4, 5)));

/* --- code objects (codeobj.c) --- */
struct sim_module *sim_module_load(const void *data, sim_arch arch, char *why, size_t why_size,
                                   bool *wrong_arch);
void sim_module_free(struct sim_module *module);
const char *sim_arch_name(sim_arch arch);
/* Fills kernels' args, dynamic_stack and max_workgroup from the note; false when malformed. */
bool sim_metadata_parse(struct sim_module *module, const uint8_t *note, size_t size);

/* --- memory (memory.c) --- */
void sim_poison(void *data, size_t size);
void *sim_memory_alloc(size_t size);
bool sim_memory_free(void *pointer);
bool sim_memory_register(void *data, size_t size, bool writable);
void sim_memory_unregister(void *data);
/* The live range that holds `address`, or the nearest one below it for messages. */
bool sim_memory_find(uint64_t address, struct sim_range *range);
bool sim_memory_live(const void *address, size_t size);
size_t sim_memory_used(void);
uint8_t *sim_global(struct sim_wave *w, const struct sim_insn *in, int lane, uint64_t address,
                    uint32_t size, bool write);

/* --- decoding (decode.c, operands.c) --- */
const struct sim_insn *sim_decode(struct sim_wave *w, uint64_t pc);
bool sim_operand_parse(const char *text, char type, sim_arch arch, struct sim_operand *operand);
uint16_t sim_half_constant(const char *text);
void sim_insn_free(struct sim_insn *in);
void sim_disassembler_free(void *disassembler);

/* --- running (wave.c) --- */
/* 0, or -1 after a message on stderr. */
int sim_run(const struct sim_launch *launch);
void sim_mode_set(struct sim_wave *w, uint32_t mode);

/* --- profiles (profile.c) --- */
/* NULL unless AMDGCN_SIM_PROFILE names a file, to which the end of a launch appends. */
struct sim_profile *sim_profile_new(const struct sim_launch *launch);
/* Counts an instruction that is about to run; `at` is its offset in the image. */
void sim_profile_count(struct sim_profile *p, struct sim_wave *w, const struct sim_insn *in,
                       uint64_t at);
void sim_profile_end(struct sim_profile *p);

/* --- atomics (atomic.c) --- */
enum sim_atomic {
    ATOMIC_SWAP,
    ATOMIC_CMPSWAP,
    ATOMIC_ADD,
    ATOMIC_SUB,
    ATOMIC_RSUB,
    ATOMIC_SMIN,
    ATOMIC_UMIN,
    ATOMIC_SMAX,
    ATOMIC_UMAX,
    ATOMIC_AND,
    ATOMIC_OR,
    ATOMIC_XOR,
    ATOMIC_INC,
    ATOMIC_DEC,
    ATOMIC_ADD_F,
    ATOMIC_MIN_F,
    ATOMIC_MAX_F,
    ATOMIC_PK_ADD_F16,
    ATOMIC_PK_ADD_BF16,
};
#define SIM_ATOMIC_64 0x40 /* flags beside the operation in sim_op.param */
#define SIM_ATOMIC_RTN 0x80
uint64_t sim_atomic_apply(int operation, bool wide, uint64_t old, uint64_t data, uint64_t compare);
/* Applies it to host memory, atomically towards other threads; returns the old value. */
uint64_t sim_atomic_memory(int operation, bool wide, void *at, uint64_t data, uint64_t compare);

/* --- LDS (lds.c) --- */
void sim_lds_load(struct sim_wave *w, const struct sim_insn *in, int lane, uint32_t address,
                  void *to, uint32_t size);
void sim_lds_store(struct sim_wave *w, const struct sim_insn *in, int lane, uint32_t address,
                   const void *from, uint32_t size);
uint8_t *sim_lds_atomic(struct sim_wave *w, const struct sim_insn *in, int lane, uint32_t address,
                        uint32_t size);
void sim_lds_barrier(struct sim_workgroup *group);
/* Where an LDS instruction's lane reads or writes; those with two addresses have a part 1. False
 * where there is no such part. */
struct sim_lds_access {
    uint32_t address, bytes;
    bool store;
};
bool sim_lds_access(const struct sim_wave *w, const struct sim_insn *in, int lane, int part,
                    struct sim_lds_access *access);

/* --- vector memory (vmem.c) --- */
/* Bytes of device memory that a lane touches, and where; 0 for every other instruction. */
uint32_t sim_vmem_access(struct sim_wave *w, const struct sim_insn *in, int lane,
                         uint64_t *address);

/* Tables of operations. The vector and matrix modules are compiled twice, for any x86-64 (or other
 * host) and for one with AVX2 and FMA; sim_optables() picks by the CPU at hand. */
const struct sim_optable *sim_optables(size_t *count);

#endif
