/* SPDX-License-Identifier: Apache-2.0 */
/* Atomic read-modify-write operations, shared by global memory and LDS. */
#include "ops.h"

static uint32_t pk_add_f16(uint32_t a, uint32_t b) {
    uint32_t low = f32_to_f16(f16_to_f32(a & 0xffff) + f16_to_f32(b & 0xffff));
    return low | f32_to_f16(f16_to_f32(a >> 16) + f16_to_f32(b >> 16)) << 16;
}

static uint32_t to_bf16(float x) {
    uint32_t u = as_u32(x);
    if (x != x)
        return u >> 16 | 0x40;
    return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

static uint32_t pk_add_bf16(uint32_t a, uint32_t b) {
    uint32_t low = to_bf16(bf16_to_f32(a & 0xffff) + bf16_to_f32(b & 0xffff));
    return low | to_bf16(bf16_to_f32(a >> 16) + bf16_to_f32(b >> 16)) << 16;
}

static uint64_t apply_float(int operation, bool wide, uint64_t old, uint64_t data) {
    double a = wide ? as_f64(old) : as_f32((uint32_t)old);
    double b = wide ? as_f64(data) : as_f32((uint32_t)data);
    double r = operation == ATOMIC_MIN_F ? fmin(a, b) : fmax(a, b);
    if (operation == ATOMIC_ADD_F && !wide)
        return as_u32(as_f32((uint32_t)old) + as_f32((uint32_t)data));
    if (operation == ATOMIC_ADD_F)
        r = a + b;
    return wide ? as_u64(r) : as_u32((float)r);
}

uint64_t sim_atomic_apply(int operation, bool wide, uint64_t old, uint64_t data, uint64_t compare) {
    uint64_t mask = wide ? ~0ull : 0xffffffffu;
    int64_t so = wide ? (int64_t)old : (int32_t)old, sd = wide ? (int64_t)data : (int32_t)data;
    old &= mask;
    data &= mask;
    switch (operation) {
    case ATOMIC_SWAP:
        return data;
    case ATOMIC_CMPSWAP:
        return old == (compare & mask) ? data : old;
    case ATOMIC_ADD:
        return (old + data) & mask;
    case ATOMIC_SUB:
        return (old - data) & mask;
    case ATOMIC_RSUB:
        return (data - old) & mask;
    case ATOMIC_SMIN:
        return so < sd ? old : data;
    case ATOMIC_UMIN:
        return old < data ? old : data;
    case ATOMIC_SMAX:
        return so > sd ? old : data;
    case ATOMIC_UMAX:
        return old > data ? old : data;
    case ATOMIC_AND:
        return old & data;
    case ATOMIC_OR:
        return old | data;
    case ATOMIC_XOR:
        return old ^ data;
    case ATOMIC_INC:
        return old >= data ? 0 : old + 1;
    case ATOMIC_DEC:
        return old == 0 || old > data ? data : old - 1;
    case ATOMIC_PK_ADD_F16:
        return pk_add_f16((uint32_t)old, (uint32_t)data);
    case ATOMIC_PK_ADD_BF16:
        return pk_add_bf16((uint32_t)old, (uint32_t)data);
    default:
        return apply_float(operation, wide, old, data);
    }
}

uint64_t sim_atomic_memory(int operation, bool wide, void *at, uint64_t data, uint64_t compare) {
    if (wide) {
        uint64_t old = __atomic_load_n((uint64_t *)at, __ATOMIC_SEQ_CST), new;
        do
            new = sim_atomic_apply(operation, true, old, data, compare);
        while (!__atomic_compare_exchange_n((uint64_t *)at, &old, new, false, __ATOMIC_SEQ_CST,
                                            __ATOMIC_SEQ_CST));
        return old;
    }
    uint32_t old = __atomic_load_n((uint32_t *)at, __ATOMIC_SEQ_CST), new;
    do
        new = (uint32_t)sim_atomic_apply(operation, false, old, data, compare);
    while (!__atomic_compare_exchange_n((uint32_t *)at, &old, new, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST));
    return old;
}
