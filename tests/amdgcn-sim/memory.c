/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: allocations with red zones and poison, and the check of every access. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define QUARANTINE_BYTES (64u << 20)
#define QUARANTINE_COUNT 256

static struct {
    pthread_rwlock_t lock;
    struct sim_range *ranges; /* sorted by address */
    size_t count, capacity, bytes;
    /* Freed blocks rest here, so that a stale pointer does not meet a new allocation. */
    struct {
        void *block;
        size_t size;
    } rest[QUARANTINE_COUNT];
    size_t rest_first, rest_count, rest_bytes;
} heap = {.lock = PTHREAD_RWLOCK_INITIALIZER};

void sim_poison(void *data, size_t size) {
    const uint32_t word = SIM_POISON;
    uint8_t *p = data;
    for (size_t i = 0; i + 4 <= size; i += 4)
        memcpy(p + i, &word, 4);
    memcpy(p + size / 4 * 4, &word, size % 4);
}

/* Index of the first range that begins above `address`. */
static size_t above(uint64_t address) {
    size_t lo = 0, hi = heap.count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (heap.ranges[mid].lo <= address)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool insert(struct sim_range range) {
    if (heap.count == heap.capacity) {
        size_t capacity = heap.capacity ? 2 * heap.capacity : 64;
        void *grown = realloc(heap.ranges, capacity * sizeof(*heap.ranges));
        if (!grown)
            return false;
        heap.ranges = grown;
        heap.capacity = capacity;
    }
    size_t at = above(range.lo);
    memmove(heap.ranges + at + 1, heap.ranges + at, (heap.count - at) * sizeof(range));
    heap.ranges[at] = range;
    heap.count++;
    heap.bytes += range.hi - range.lo;
    return true;
}

/* Takes out the range that begins at `address`. */
static bool take(uint64_t address, struct sim_range *range) {
    size_t at = above(address);
    if (at == 0 || heap.ranges[at - 1].lo != address)
        return false;
    *range = heap.ranges[at - 1];
    memmove(heap.ranges + at - 1, heap.ranges + at, (heap.count - at) * sizeof(*range));
    heap.count--;
    heap.bytes -= range->hi - range->lo;
    return true;
}

bool sim_memory_register(void *data, size_t size, bool writable) {
    uint64_t lo = (uint64_t)(uintptr_t)data;
    pthread_rwlock_wrlock(&heap.lock);
    bool ok = insert((struct sim_range){lo, lo + size, NULL, writable});
    pthread_rwlock_unlock(&heap.lock);
    return ok;
}

void sim_memory_unregister(void *data) {
    struct sim_range range;
    pthread_rwlock_wrlock(&heap.lock);
    take((uint64_t)(uintptr_t)data, &range);
    pthread_rwlock_unlock(&heap.lock);
}

void *sim_memory_alloc(size_t size) {
    void *block;
    size_t whole = ((size + 255) & ~(size_t)255) + 2 * SIM_REDZONE;
    if (whole < size || posix_memalign(&block, 4096, whole) != 0)
        return NULL;
    sim_poison(block, whole);
    uint64_t lo = (uint64_t)(uintptr_t)block + SIM_REDZONE;
    pthread_rwlock_wrlock(&heap.lock);
    bool ok = insert((struct sim_range){lo, lo + size, block, true});
    pthread_rwlock_unlock(&heap.lock);
    if (!ok)
        free(block);
    return ok ? (void *)(uintptr_t)lo : NULL;
}

static void quarantine(void *block, size_t size) {
    while (heap.rest_count == QUARANTINE_COUNT ||
           (heap.rest_count > 0 && heap.rest_bytes + size > QUARANTINE_BYTES)) {
        free(heap.rest[heap.rest_first].block);
        heap.rest_bytes -= heap.rest[heap.rest_first].size;
        heap.rest_first = (heap.rest_first + 1) % QUARANTINE_COUNT;
        heap.rest_count--;
    }
    size_t at = (heap.rest_first + heap.rest_count++) % QUARANTINE_COUNT;
    heap.rest[at].block = block;
    heap.rest[at].size = size;
    heap.rest_bytes += size;
}

bool sim_memory_free(void *pointer) {
    struct sim_range range;
    size_t at;
    bool ok = false;
    pthread_rwlock_wrlock(&heap.lock);
    at = above((uint64_t)(uintptr_t)pointer);
    if (at > 0 && heap.ranges[at - 1].block && take((uint64_t)(uintptr_t)pointer, &range)) {
        size_t size = range.hi - range.lo;
        sim_poison(pointer, size);
        quarantine(range.block, size);
        ok = true;
    }
    pthread_rwlock_unlock(&heap.lock);
    return ok;
}

bool sim_memory_find(uint64_t address, struct sim_range *range) {
    pthread_rwlock_rdlock(&heap.lock);
    size_t at = above(address);
    bool found = at > 0 && address < heap.ranges[at - 1].hi;
    if (at > 0)
        *range = heap.ranges[at - 1];
    else
        memset(range, 0, sizeof(*range));
    pthread_rwlock_unlock(&heap.lock);
    return found;
}

bool sim_memory_live(const void *address, size_t size) {
    struct sim_range range;
    uint64_t lo = (uint64_t)(uintptr_t)address;
    return sim_memory_find(lo, &range) && size <= range.hi - lo;
}

size_t sim_memory_used(void) {
    pthread_rwlock_rdlock(&heap.lock);
    size_t bytes = heap.bytes;
    pthread_rwlock_unlock(&heap.lock);
    return bytes;
}

static _Noreturn void out_of_bounds(struct sim_wave *w, const struct sim_insn *in, int lane,
                                    uint64_t address, uint32_t size, const char *what) {
    struct sim_range r;
    sim_memory_find(address, &r);
    if (r.hi)
        sim_fail(w, in, lane,
                 "%s of %u bytes at 0x%llx is outside every live allocation; the nearest below is "
                 "[0x%llx, 0x%llx), %lld bytes past its end",
                 what, size, (unsigned long long)address, (unsigned long long)r.lo,
                 (unsigned long long)r.hi, (long long)(address + size - r.hi));
    sim_fail(w, in, lane, "%s of %u bytes at 0x%llx is outside every live allocation", what, size,
             (unsigned long long)address);
}

uint8_t *sim_global(struct sim_wave *w, const struct sim_insn *in, int lane, uint64_t address,
                    uint32_t size, bool write) {
    struct sim_range *c = &w->group->cached;
    if (address < c->lo || address + size > c->hi || address + size < address) {
        struct sim_range found;
        if (!sim_memory_find(address, &found) || size > found.hi - address)
            out_of_bounds(w, in, lane, address, size, write ? "write" : "read");
        *c = found;
    }
    if (write && !c->writable)
        sim_fail(w, in, lane, "write to read-only memory at 0x%llx", (unsigned long long)address);
    return (uint8_t *)(uintptr_t)address;
}
