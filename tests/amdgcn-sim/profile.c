/* SPDX-License-Identifier: Apache-2.0 */
/* How often each instruction of a launch ran, and what its accesses to memory ask of the chip.
 *
 * LDS has 32 banks of four bytes and serves an instruction in groups of lanes, one group a cycle
 * where no two of its lanes want different words of one bank; each further word is a cycle more.
 * The groups are those of AMD's documentation of Composable Kernel ("Understanding AMD GPU LDS and
 * Bank Conflicts"): 128-bit stores take eight adjacent lanes, 128-bit loads four and four; narrower
 * accesses take as many adjacent lanes as fill the banks. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops.h"

enum { BANKS = 32, LINE_BYTES = 64, GROUPS = 8 };

/* Sums over all executions of one instruction. */
struct cost {
    uint64_t count;
    uint64_t cycles, least; /* LDS cycles, and those without bank conflicts */
    uint64_t lines, bytes;  /* device memory: lines touched, and bytes asked for */
};

struct sim_profile {
    const struct sim_launch *launch;
    struct cost *costs; /* one per dword of the image, as sim_module.code */
};

struct sim_profile *sim_profile_new(const struct sim_launch *launch) {
    const char *path = getenv("AMDGCN_SIM_PROFILE");
    if (!path || !*path)
        return NULL;
    struct sim_profile *p = calloc(1, sizeof(*p));
    p->launch = launch;
    p->costs = calloc(launch->kernel->module->size / 4 + 1, sizeof(*p->costs));
    return p;
}

static void add(uint64_t *sum, uint64_t n) {
    __atomic_fetch_add(sum, n, __ATOMIC_RELAXED);
}

/* --- LDS --- */

static int group_of(int lane, uint32_t bytes, bool store) {
    if (bytes <= 4)
        return lane / 32;
    if (bytes <= 8)
        return lane / 16;
    if (store)
        return lane / 8;
    int quad = lane % 32 / 4; /* quads 0 and 5, 1 and 4, 2 and 7, 3 and 6 of each half */
    return lane / 32 * 4 + (quad < 4 ? quad : (quad - 4) ^ 1);
}

/* Distinct words that a group wants of each bank. */
struct banks {
    uint32_t words[BANKS][SIM_LANES];
    uint32_t count[BANKS];
};

static void banks_add(struct banks *b, uint32_t word) {
    uint32_t bank = word % BANKS, i = 0;
    while (i < b->count[bank] && b->words[bank][i] != word)
        i++;
    if (i == b->count[bank])
        b->words[bank][b->count[bank]++] = word;
}

static uint32_t banks_cycles(const struct banks *b) {
    uint32_t most = 0;
    for (int i = 0; i < BANKS; i++)
        most = b->count[i] > most ? b->count[i] : most;
    return most;
}

static void count_lds(struct sim_wave *w, const struct sim_insn *in, struct cost *cost) {
    uint64_t mask = exec_mask(w);
    struct sim_lds_access a;
    for (int part = 0; sim_lds_access(w, in, 0, part, &a); part++) {
        for (int group = 0; group < GROUPS; group++) {
            struct banks b;
            memset(b.count, 0, sizeof(b.count));
            EACH_ACTIVE(l, mask) {
                sim_lds_access(w, in, l, part, &a);
                if (group_of(l, a.bytes, a.store) != group)
                    continue;
                for (uint32_t word = a.address / 4; word <= (a.address + a.bytes - 1) / 4; word++)
                    banks_add(&b, word);
            }
            uint32_t cycles = banks_cycles(&b);
            add(&cost->cycles, cycles);
            add(&cost->least, cycles > 0);
        }
    }
}

/* --- device memory --- */

static void count_memory(struct sim_wave *w, const struct sim_insn *in, struct cost *cost) {
    uint64_t mask = exec_mask(w), lines[SIM_LANES * 2], address = 0;
    uint32_t bytes = 0;
    int count = 0;
    EACH_ACTIVE(l, mask) {
        bytes = sim_vmem_access(w, in, l, &address);
        for (uint64_t at = address / LINE_BYTES; bytes && at <= (address + bytes - 1) / LINE_BYTES;
             at++) {
            int i = 0;
            while (i < count && lines[i] != at)
                i++;
            if (i == count)
                lines[count++] = at;
        }
        add(&cost->bytes, bytes);
    }
    add(&cost->lines, (uint64_t)count);
}

/* --- entry --- */

void sim_profile_count(struct sim_profile *p, struct sim_wave *w, const struct sim_insn *in,
                       uint64_t at) {
    struct cost *cost = &p->costs[at / 4];
    add(&cost->count, 1);
    count_lds(w, in, cost);
    count_memory(w, in, cost);
}

static void write_instructions(const struct sim_profile *p, FILE *f) {
    const struct sim_module *m = p->launch->kernel->module;
    for (uint64_t i = 0; i < m->size / 4; i++) {
        const struct cost *c = &p->costs[i];
        if (c->count)
            fprintf(f, "%llx\t%llu\t%llu\t%llu\t%llu\t%llu\t%s\n", (unsigned long long)(4 * i),
                    (unsigned long long)c->count, (unsigned long long)c->cycles,
                    (unsigned long long)c->least, (unsigned long long)c->lines,
                    (unsigned long long)c->bytes, m->code[i]->text);
    }
}

void sim_profile_end(struct sim_profile *p) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const char *path = getenv("AMDGCN_SIM_PROFILE");
    const struct sim_launch *launch = p->launch;
    const struct sim_kernel *k = launch->kernel;
    pthread_mutex_lock(&lock);
    FILE *f = fopen(path, "a");
    if (f) {
        fprintf(f, "kernel\t%s\t%u\t%u\t%u\t%u\n", k->name,
                launch->grid[0] * launch->grid[1] * launch->grid[2],
                launch->block[0] * launch->block[1] * launch->block[2],
                k->group_size + launch->dynamic_lds, ((k->rsrc1 & 63) + 1) * 8);
        write_instructions(p, f);
    }
    if (!f || fclose(f) != 0)
        fprintf(stderr, "amdgcn-sim: the profile %s cannot be written\n", path);
    pthread_mutex_unlock(&lock);
    free(p->costs);
    free(p);
}
