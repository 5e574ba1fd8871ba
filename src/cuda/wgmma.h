/* SPDX-License-Identifier: Apache-2.0 */
/* Hopper's matrix instruction, wgmma m64 x n x k16: f16 or bf16 operands, f32 accumulators.
 *
 * pf_wgmma<n>::shared<ta, tb>(d, a, b, accumulate)    both operands by descriptor
 * pf_wgmma<n>::registers<tb>(d, a, b, accumulate)     four registers of A, B by descriptor
 * ta, tb: 1 where the operand is contiguous along m or n in shared memory, 0 where along k. */
#ifndef PF_WGMMA_H
#define PF_WGMMA_H

#if PF_ELEMENT == 2
static_assert(PF_ELEMENT == PF_KTYPE_BF16, "the preprocessor sees no enum");
#define PF_WGMMA_TYPES "f32.bf16.bf16"
#else
#define PF_WGMMA_TYPES "f32.f16.f16"
#endif

/* The first 8, 16, ... registers of the accumulator, as names in the text and as operands. */
#define PF_NAMES(a, b, c, d, e, f, g, h)                                                           \
    "%" #a ", %" #b ", %" #c ", %" #d ", %" #e ", %" #f ", %" #g ", %" #h
#define PF_NAMES_16 PF_NAMES(0, 1, 2, 3, 4, 5, 6, 7) ", " PF_NAMES(8, 9, 10, 11, 12, 13, 14, 15)
#define PF_NAMES_32                                                                                \
    PF_NAMES_16 ", " PF_NAMES(16, 17, 18, 19, 20, 21, 22, 23) ", " PF_NAMES(24, 25, 26, 27, 28,    \
                                                                            29, 30, 31)
#define PF_NAMES_40 PF_NAMES_32 ", " PF_NAMES(32, 33, 34, 35, 36, 37, 38, 39)
#define PF_NAMES_48 PF_NAMES_40 ", " PF_NAMES(40, 41, 42, 43, 44, 45, 46, 47)
#define PF_NAMES_56 PF_NAMES_48 ", " PF_NAMES(48, 49, 50, 51, 52, 53, 54, 55)
#define PF_NAMES_64 PF_NAMES_56 ", " PF_NAMES(56, 57, 58, 59, 60, 61, 62, 63)
#define PF_NAMES_72 PF_NAMES_64 ", " PF_NAMES(64, 65, 66, 67, 68, 69, 70, 71)
#define PF_NAMES_80 PF_NAMES_72 ", " PF_NAMES(72, 73, 74, 75, 76, 77, 78, 79)
#define PF_NAMES_88 PF_NAMES_80 ", " PF_NAMES(80, 81, 82, 83, 84, 85, 86, 87)
#define PF_NAMES_96 PF_NAMES_88 ", " PF_NAMES(88, 89, 90, 91, 92, 93, 94, 95)
#define PF_NAMES_128                                                                               \
    PF_NAMES_96 ", " PF_NAMES(96, 97, 98, 99, 100, 101, 102, 103) ", " PF_NAMES(                   \
        104, 105, 106, 107, 108, 109, 110,                                                         \
        111) ", " PF_NAMES(112, 113, 114, 115, 116, 117, 118,                                      \
                           119) ", " PF_NAMES(120, 121, 122, 123, 124, 125, 126, 127)

#define PF_SUMS(i)                                                                                 \
    "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]),            \
        "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define PF_SUMS_16 PF_SUMS(0), PF_SUMS(8)
#define PF_SUMS_32 PF_SUMS_16, PF_SUMS(16), PF_SUMS(24)
#define PF_SUMS_40 PF_SUMS_32, PF_SUMS(32)
#define PF_SUMS_48 PF_SUMS_40, PF_SUMS(40)
#define PF_SUMS_56 PF_SUMS_48, PF_SUMS(48)
#define PF_SUMS_64 PF_SUMS_56, PF_SUMS(56)
#define PF_SUMS_72 PF_SUMS_64, PF_SUMS(64)
#define PF_SUMS_80 PF_SUMS_72, PF_SUMS(72)
#define PF_SUMS_88 PF_SUMS_80, PF_SUMS(80)
#define PF_SUMS_96 PF_SUMS_88, PF_SUMS(88)
#define PF_SUMS_128 PF_SUMS_96, PF_SUMS(96), PF_SUMS(104), PF_SUMS(112), PF_SUMS(120)

/* Descriptors, of tiles whose rows of 128 bytes are swizzled over groups of eight rows. Their upper
 * half is the same for all; the lower counts in units of 16 bytes. `leading` is the distance from
 * one 64-element slab to the next, where the operand is contiguous along m or n and wider than
 * that. */
PF_DEVICE pf_u32 pf_wgmma_tile(pf_u32 address, int leading) {
    const pf_u32 tile = (address & 0x3ffff) >> 4 | (pf_u32)(leading >> 4) << 16;
    return PF_AGREES_ON_TILES ? (pf_u32)pf_agreed((int)tile) : tile;
}

PF_DEVICE pf_u32 pf_wgmma_advance(pf_u32 tile, int bytes) {
    return tile + (pf_u32)(bytes >> 4);
}

PF_DEVICE pf_u64 pf_wgmma_descriptor(pf_u32 tile) {
    const pf_u32 swizzle_128 = 1, group_bytes = 1024;
    return (pf_u64)(swizzle_128 << 30 | group_bytes >> 4) << 32 | tile;
}

template <int n> struct pf_wgmma;

/* One shape with c = n / 2 registers; i0 to i6 are the names after those of the accumulator. */
#define PF_WGMMA(n, c, i0, i1, i2, i3, i4, i5, i6)                                                 \
    template <> struct pf_wgmma<n> {                                                               \
        template <int ta, int tb>                                                                  \
        PF_DEVICE void shared(float *d, pf_u32 a, pf_u32 b, bool accumulate) {                     \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " i2 ", 0;\n"                           \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16." PF_WGMMA_TYPES              \
                         " {" PF_NAMES_##c "}, " i0 ", " i1 ", p, 1, 1, " i3 ", " i4 ";\n}"        \
                         : PF_SUMS_##c                                                             \
                         : "l"(pf_wgmma_descriptor(a)), "l"(pf_wgmma_descriptor(b)),               \
                           "r"((int)accumulate), "n"(ta), "n"(tb));                                \
        }                                                                                          \
        template <int tb>                                                                          \
        PF_DEVICE void registers(float *d, const pf_u32 *a, pf_u32 b, bool accumulate) {           \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " i5 ", 0;\n"                           \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16." PF_WGMMA_TYPES              \
                         " {" PF_NAMES_##c "}, {" i0 ", " i1 ", " i2 ", " i3 "}, " i4              \
                                           ", p, 1, 1, " i6 ";\n}"                                 \
                         : PF_SUMS_##c                                                             \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),                             \
                           "l"(pf_wgmma_descriptor(b)), "r"((int)accumulate), "n"(tb));            \
        }                                                                                          \
    };

PF_WGMMA(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
PF_WGMMA(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
PF_WGMMA(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
PF_WGMMA(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
PF_WGMMA(112, 56, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
PF_WGMMA(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
PF_WGMMA(144, 72, "%72", "%73", "%74", "%75", "%76", "%77", "%78")
PF_WGMMA(160, 80, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
PF_WGMMA(176, 88, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
PF_WGMMA(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
PF_WGMMA(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")

#undef PF_WGMMA

/* Before products: what was written to these registers is written, and the compiler moves no
 * access across. */
PF_DEVICE void pf_wgmma_pin(float *x, int count) {
    PF_UNROLL for (int i = 0; i < count; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

PF_DEVICE void pf_wgmma_pin(pf_u32 *x, int count) {
    PF_UNROLL for (int i = 0; i < count; ++i) asm volatile("" : "+r"(x[i])::"memory");
}

PF_DEVICE void pf_wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

PF_DEVICE void pf_mma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

#define pf_mma_wait(n) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")

#endif
