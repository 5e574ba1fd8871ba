/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a launch: workgroups in order, one host thread each, their waves in turn. */
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops.h"

#define TURN 2048 /* instructions before another wave gets a turn */
#define DEFAULT_LIMIT 200000000ull
#define DYNAMIC_STACK 16384

/* --- errors --- */

static pthread_mutex_t message_lock = PTHREAD_MUTEX_INITIALIZER;

_Noreturn void sim_fail(struct sim_wave *w, const struct sim_insn *in, int lane, const char *format,
                        ...) {
    const struct sim_workgroup *g = w->group;
    uint64_t pc = w->pc - (in ? in->size : 0) - (uint64_t)(uintptr_t)w->module->image;
    char where[24] = "";
    va_list args;
    if (lane >= 0)
        snprintf(where, sizeof(where), ", lane %d", lane);
    pthread_mutex_lock(&message_lock);
    if (!*g->stop) {
        fprintf(stderr, "amdgcn-sim: kernel %s, workgroup (%u, %u, %u), wave %u%s: ",
                g->launch->kernel->name, g->id[0], g->id[1], g->id[2], w->index, where);
        va_start(args, format);
        vfprintf(stderr, format, args);
        va_end(args);
        fprintf(stderr, "\n    at pc 0x%llx: %s\n", (unsigned long long)pc,
                in && in->text ? in->text : "(no instruction)");
    }
    *g->stop = true;
    pthread_mutex_unlock(&message_lock);
    longjmp(w->group->failed, 1);
}

/* --- state of a new wave --- */

void sim_mode_set(struct sim_wave *w, uint32_t mode) {
    uint32_t denorm32 = mode >> 4 & 3, denorm16 = mode >> 6 & 3;
    w->mode = mode;
    w->flush32_in = !(denorm32 & 1);
    w->flush32_out = !(denorm32 & 2);
    w->flush16_in = !(denorm16 & 1);
    w->flush16_out = !(denorm16 & 2);
    w->dx10_clamp = mode >> 8 & 1;
    w->ieee = mode >> 9 & 1;
}

static void push64(struct sim_wave *w, int *at, uint64_t x) {
    w->s[(*at)++] = (uint32_t)x;
    w->s[(*at)++] = (uint32_t)(x >> 32);
}

static void scratch_resource(struct sim_wave *w, int *at) {
    uint32_t records = (uint32_t)w->scratch_size;
    push64(w, at, SIM_SCRATCH_BASE | 1ull << 63);
    w->s[(*at)++] = records;
    w->s[(*at)++] = 1u << 23 | 3u << 21 | 4u << 15; /* add lane, stride 64, dword */
}

static void user_registers(struct sim_wave *w, const struct sim_launch *launch) {
    const struct sim_kernel *k = launch->kernel;
    uint64_t kernarg = (uint64_t)(uintptr_t)launch->kernarg;
    uint32_t words = k->preload & 0x7f, first = k->preload >> 7 & 0x1ff;
    int at = 0;
    if (k->properties & 1)
        scratch_resource(w, &at);
    if (k->properties & 2)
        push64(w, &at, (uint64_t)(uintptr_t)launch->packet);
    if (k->properties & 4)
        push64(w, &at, (uint64_t)SIM_POISON << 32 | SIM_POISON); /* no queue to look at */
    if (k->properties & 8)
        push64(w, &at, kernarg);
    if (k->properties & 16)
        push64(w, &at, 0);
    if (k->properties & 32)
        push64(w, &at, SIM_SCRATCH_BASE);
    if (k->properties & 64)
        w->s[at++] = k->private_size;
    if (words && w->arch == SIM_GFX942)
        memcpy(&w->s[at], launch->kernarg + 4 * first, 4 * words);
}

static void system_registers(struct sim_wave *w, const struct sim_kernel *k) {
    const struct sim_workgroup *g = w->group;
    int at = k->rsrc2 >> 1 & 31;
    for (int i = 0; i < 3; i++) {
        if (k->rsrc2 >> (7 + i) & 1)
            w->s[at++] = g->id[i];
    }
    if (k->rsrc2 >> 10 & 1)
        w->s[at++] = (w->index == 0 ? 1u << 31 : 0) | g->nwaves;
    if ((k->rsrc2 & 1) && w->arch == SIM_GFX90A)
        w->s[at++] = 0; /* offset of the wave's scratch */
}

static void work_items(struct sim_wave *w, const uint32_t block[3]) {
    uint32_t total = block[0] * block[1] * block[2];
    uint64_t exec = 0;
    EACH_LANE(l) {
        uint32_t i = w->index * SIM_LANES + (uint32_t)l;
        uint32_t x = i % block[0], y = i / block[0] % block[1], z = i / block[0] / block[1];
        if (i >= total)
            continue;
        exec |= 1ull << l;
        w->v[0][l] = x | y << 10 | z << 20;
    }
    set_sreg64(w, SIM_EXEC, exec);
}

static void wave_start(struct sim_wave *w) {
    const struct sim_launch *launch = w->group->launch;
    const struct sim_kernel *k = launch->kernel;
    uint32_t total = ((k->rsrc1 & 63) + 1) * 8, first_agpr = ((k->rsrc3 & 63) + 1) * 4;
    w->arch = k->module->arch;
    w->module = k->module;
    w->vgprs = total < first_agpr ? total : first_agpr;
    w->agprs = total > first_agpr ? total - first_agpr : 0;
    sim_poison(w->v, w->vgprs * sizeof(w->v[0]));
    sim_poison(w->v[SIM_AGPR], w->agprs * sizeof(w->v[0]));
    sim_poison(w->s, sizeof(w->s));
    sim_poison(w->scratch, w->scratch_size);
    w->pc = k->entry;
    w->scc = 0;
    w->state = WAVE_RUNS;
    w->executed = 0;
    w->lgkm_issued = w->lgkm_done = w->lgkm_lds_write = 0;
    w->vm_issued = w->vm_done = w->vm_lds_write = 0;
    sim_mode_set(w,
                 (k->rsrc1 >> 12 & 0xff) | (k->rsrc1 >> 21 & 1) << 8 | (k->rsrc1 >> 23 & 1) << 9);
    if (w->mode & 0xf)
        sim_fail(w, NULL, -1, "only rounding to nearest even is supported");
    user_registers(w, launch);
    system_registers(w, k);
    work_items(w, launch->block);
}

/* --- running --- */

static void wave_turn(struct sim_wave *w) {
    struct sim_insn **code = w->module->code;
    uint64_t base = (uint64_t)(uintptr_t)w->module->image, size = w->module->size;
    int turn = 0;
    w->yield = false;
    for (; turn < TURN && w->state == WAVE_RUNS && !w->yield; turn++) {
        uint64_t at = w->pc - base;
        const struct sim_insn *in = NULL;
        if (at < size && !(at & 3))
            in = __atomic_load_n(&code[at >> 2], __ATOMIC_ACQUIRE);
        if (!in)
            in = sim_decode(w, w->pc);
        w->pc += in->size;
        if (in->vgprs > w->vgprs || in->agprs > w->agprs)
            sim_fail(w, in, -1, "register beyond the %u VGPRs and %u AGPRs of the kernel", w->vgprs,
                     w->agprs);
        if (w->group->profile)
            sim_profile_count(w->group->profile, w, in, at);
        in->exec(w, in);
    }
    w->executed += (uint64_t)turn;
    if (w->executed > w->group->limit)
        sim_fail(w, NULL, -1, "instruction limit of %llu reached: a wait that never ends?",
                 (unsigned long long)w->group->limit);
}

/* One turn of every wave that runs; false when all have ended. */
static bool group_turn(struct sim_workgroup *g) {
    uint32_t running = 0, waiting = 0;
    bool yielded = false;
    for (uint32_t i = 0; i < g->nwaves; i++) {
        struct sim_wave *w = g->waves[i];
        if (w->state == WAVE_RUNS)
            wave_turn(w);
        running += w->state == WAVE_RUNS;
        waiting += w->state == WAVE_AT_BARRIER;
        yielded |= w->yield;
    }
    if (running == 0 && waiting > 0) {
        sim_lds_barrier(g);
        for (uint32_t i = 0; i < g->nwaves; i++) {
            if (g->waves[i]->state == WAVE_AT_BARRIER)
                g->waves[i]->state = WAVE_RUNS;
        }
    }
    if (yielded && running == g->nwaves)
        sched_yield();
    return running + waiting > 0;
}

static bool group_run(struct sim_workgroup *g, uint64_t number) {
    const uint32_t *grid = g->launch->grid;
    g->id[0] = (uint32_t)(number % grid[0]);
    g->id[1] = (uint32_t)(number / grid[0] % grid[1]);
    g->id[2] = (uint32_t)(number / grid[0] / grid[1]);
    memset(&g->cached, 0, sizeof(g->cached));
    sim_poison(g->lds, g->lds_size);
    sim_lds_barrier(g);
    if (setjmp(g->failed))
        return false;
    for (uint32_t i = 0; i < g->nwaves; i++)
        wave_start(g->waves[i]);
    while (group_turn(g)) {
        if (*g->stop)
            return false;
    }
    for (uint32_t i = 0; i < g->nwaves; i++)
        g->executed += g->waves[i]->executed;
    return true;
}

/* --- threads --- */

struct job {
    const struct sim_launch *launch;
    uint64_t next, total, executed, limit;
    volatile bool stop;
    struct sim_profile *profile;
};

static void group_free(struct sim_workgroup *g) {
    for (uint32_t i = 0; i < SIM_MAX_WAVES; i++) {
        if (g->waves[i])
            free(g->waves[i]->scratch);
        free(g->waves[i]);
    }
    free(g->lds);
    free(g->lds_writer);
    free(g->lds_readers);
    free(g);
}

static struct sim_workgroup *group_new(struct job *job) {
    const struct sim_launch *launch = job->launch;
    const struct sim_kernel *k = launch->kernel;
    struct sim_workgroup *g = calloc(1, sizeof(*g));
    uint32_t items = launch->block[0] * launch->block[1] * launch->block[2];
    uint64_t scratch = k->private_size + (k->dynamic_stack ? DYNAMIC_STACK : 0);
    g->launch = launch;
    g->stop = &job->stop;
    g->limit = job->limit;
    g->profile = job->profile;
    g->nwaves = (items + SIM_LANES - 1) / SIM_LANES;
    g->lds_size = k->group_size + launch->dynamic_lds;
    g->lds = malloc(g->lds_size + 1);
    g->lds_writer = malloc(g->lds_size + 1);
    g->lds_readers = malloc(2 * (size_t)g->lds_size + 2);
    for (uint32_t i = 0; i < g->nwaves; i++) {
        struct sim_wave *w;
        if (posix_memalign((void **)&w, 64, sizeof(*w)) != 0)
            abort();
        memset(w, 0, sizeof(*w));
        w->index = i;
        w->group = g;
        w->scratch_size = scratch * SIM_LANES;
        w->scratch = malloc(w->scratch_size + 1);
        g->waves[i] = w;
    }
    return g;
}

static void *worker(void *argument) {
    struct job *job = argument;
    struct sim_workgroup *g = group_new(job);
    while (!job->stop) {
        uint64_t number = __atomic_fetch_add(&job->next, 1, __ATOMIC_SEQ_CST);
        if (number >= job->total || !group_run(g, number))
            break;
    }
    __atomic_fetch_add(&job->executed, g->executed, __ATOMIC_SEQ_CST);
    group_free(g);
    return NULL;
}

static uint64_t setting(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

int sim_run(const struct sim_launch *launch) {
    pthread_t threads[64];
    struct job job = {.launch = launch, .limit = setting("AMDGCN_SIM_LIMIT", DEFAULT_LIMIT)};
    uint64_t cores = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t count = setting("AMDGCN_SIM_THREADS", cores);
    job.profile = sim_profile_new(launch);
    job.total = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    count = count < 1 ? 1 : count > 64 ? 64 : count;
    if (count > job.total)
        count = job.total;
    for (uint64_t i = 1; i < count; i++) {
        if (pthread_create(&threads[i], NULL, worker, &job) != 0)
            count = i;
    }
    worker(&job);
    for (uint64_t i = 1; i < count; i++)
        pthread_join(threads[i], NULL);
    if (job.profile)
        sim_profile_end(job.profile);
    if (setting("AMDGCN_SIM_STATS", 0))
        fprintf(stderr, "amdgcn-sim: kernel %s: %llu workgroups, %llu wave instructions\n",
                launch->kernel->name, (unsigned long long)job.total,
                (unsigned long long)job.executed);
    return job.stop ? -1 : 0;
}
