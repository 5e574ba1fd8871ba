/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: widths, strides, buffers, LDS, atomics, scratch, calls, waits between workgroups. */
#include "device.h"

#define N 256

struct three {
    int x, y, z;
};

KERNEL widths(char *out, const char *in) {
    int i = INDEX;
    out[i] = in[3 * i];
    ((short *)(out + 256))[i] = ((const short *)in)[2 * i];
    ((int *)(out + 768))[i] = ((const signed char *)in)[i] + ((const unsigned char *)in)[i + 1];
    ((long *)(out + 1792))[i] = ((const long *)in)[i];
    ((three *)(out + 3840))[i] = ((const three *)in)[i / 2];
    ((int4_ *)(out + 6912))[i] = ((const int4_ *)in)[i / 4];
}

KERNEL transpose(float *out, const float *in, int rows, int columns) {
    SHARED static float tile[16][17];
    int x = LANE & 15, y = LANE >> 4;
    for (int r = 0; r < rows; r += 16)
        for (int c = 0; c < columns; c += 16) {
            barrier();
            tile[y][x] = in[(long)(r + y) * columns + c + x];
            barrier();
            out[(long)(c + y) * rows + r + x] = tile[x][y];
        }
}

/* Half-words, bytes and 128-bit rows through LDS. */
KERNEL lds_widths(unsigned *out, const unsigned *in) {
    SHARED static unsigned short halves[512];
    SHARED static unsigned char bytes[1024];
    SHARED static int4_ quads[64];
    int i = LANE;
    halves[2 * i] = (unsigned short)in[i];
    halves[2 * i + 1] = (unsigned short)(in[i] >> 16);
    for (int b = 0; b < 4; b++)
        bytes[b * N + i] = (unsigned char)(in[i] >> 8 * b);
    ((int *)quads)[i] = (int)in[i];
    barrier();
    int j = 255 - i;
    out[i] = halves[2 * j] | (unsigned)halves[2 * j + 1] << 16;
    out[N + i] =
        bytes[j] | (unsigned)bytes[N + j] << 8 | (unsigned)(signed char)bytes[2 * N + j] << 16;
    int4_ q = quads[j / 4];
    out[2 * N + i] = (unsigned)(q.x + 3 * q.y + 5 * q.z + 7 * q.w);
}

KERNEL dynamic_lds(int *out, int n) {
    extern SHARED int memory[];
    for (int i = LANE; i < n; i += 256)
        memory[i] = i * i;
    barrier();
    int sum = 0;
    for (int i = LANE; i < n; i += 256)
        sum += memory[n - 1 - i];
    out[LANE] = sum;
}

KERNEL atomics(unsigned *u, float *f, unsigned long *l, int *old) {
    SHARED static unsigned counter;
    SHARED static float total;
    if (LANE == 0) {
        counter = 0;
        total = 0.f;
    }
    barrier();
    __hip_atomic_fetch_add(&counter, (unsigned)LANE, __ATOMIC_RELAXED,
                           __HIP_MEMORY_SCOPE_WORKGROUP);
    __hip_atomic_fetch_add(&total, 0.5f, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    barrier();
    unsigned i = (unsigned)INDEX;
    __hip_atomic_fetch_add(u + (i & 3), i, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_max(u + 4, i ^ 0x55, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_or(u + 5, 1u << (i & 31), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_add(l, (unsigned long)i << 32, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_add(f + (i & 7), 0.25f, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    unsigned expected = i;
    __hip_atomic_compare_exchange_strong(u + 6 + i, &expected, i + 1, __ATOMIC_RELAXED,
                                         __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    old[i] = (int)expected;
    if (LANE == 0) {
        f[8 + GROUP] = total;
        l[1 + GROUP] = counter;
    }
}

/* An array that must live in scratch, with an index that the compiler cannot know. */
KERNEL scratch(int *out, const int *order, int n) {
    int data[64];
    for (int i = 0; i < n; i++)
        data[(order[i] + LANE) & 63] = i * LANE;
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum = sum * 3 + data[(i + 2 * LANE) & 63];
    out[INDEX] = sum;
}

__attribute__((device, noinline)) int fibonacci(int n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
__attribute__((device, noinline)) float callee(const float *p, int i) {
    volatile float local[8];
    local[i & 7] = p[i];
    local[(i + 1) & 7] = 2.f;
    return local[i & 7] + local[(i + 1) & 7];
}

KERNEL calls(float *out, const float *in, int n) {
    out[INDEX] = callee(in, INDEX) + (float)fibonacci((LANE & 7) + n);
}

__attribute__((device)) int table[4] = {3, 1, 4, 1};
__attribute__((constant)) int fixed[4] = {10, 20, 30, 40};

KERNEL globals(int *out) {
    out[LANE] = table[LANE & 3] + fixed[LANE & 3];
}

/* Buffer loads give 0 past num_records; buffer stores are dropped there. */
KERNEL buffers(float *out, float *in, int count) {
    __amdgpu_buffer_rsrc_t r = __builtin_amdgcn_make_buffer_rsrc(in, 0, count * 4, 0x27000);
    __amdgpu_buffer_rsrc_t w = __builtin_amdgcn_make_buffer_rsrc(out, 0, count * 4, 0x27000);
    int i = INDEX;
    int x = __builtin_amdgcn_raw_buffer_load_b32(r, i * 4, 0, 0);
    int y = __builtin_amdgcn_raw_buffer_load_b32(r, i * 4, 16, 0);
    float sum = __builtin_bit_cast(float, x) + __builtin_bit_cast(float, y);
    __builtin_amdgcn_raw_buffer_store_b32(__builtin_bit_cast(int, sum), w, i * 4, 0, 0);
}

/* Workgroup g waits for g - 1: a chain through memory. */
KERNEL chain(int *flag, int *out) {
    if (LANE == 0) {
        while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) != GROUP)
            __builtin_amdgcn_s_sleep(1);
        out[GROUP] = 1 + (GROUP ? out[GROUP - 1] : 0);
        __hip_atomic_store(flag, GROUP + 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    }
}

KERNEL identity(int *out) {
    int x = (int)__builtin_amdgcn_workitem_id_x(), y = (int)__builtin_amdgcn_workitem_id_y(),
        z = (int)__builtin_amdgcn_workitem_id_z();
    int gx = (int)__builtin_amdgcn_workgroup_id_x(), gy = (int)__builtin_amdgcn_workgroup_id_y(),
        gz = (int)__builtin_amdgcn_workgroup_id_z();
    int sx = (int)__builtin_amdgcn_workgroup_size_x(),
        sy = (int)__builtin_amdgcn_workgroup_size_y(),
        sz = (int)__builtin_amdgcn_workgroup_size_z();
    int group = (gz * 3 + gy) * 2 + gx, item = (z * sy + y) * sx + x;
    out[group * sx * sy * sz + item] =
        x | y << 4 | z << 8 | gx << 12 | gy << 16 | gz << 20 | sx << 24;
}
