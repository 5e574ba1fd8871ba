/* SPDX-License-Identifier: Apache-2.0 */
/* Loads an AMDGPU code object: ELF64 segments, dynamic relocations, kernel descriptors, metadata.
 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define MACHINE_AMDGPU 224
#define NOTE_METADATA 32
#define FLAG_MACH 0xff
#define MACH_GFX90A 0x3f
#define MACH_GFX942 0x4c
#define RELOC_ABS64 3
#define RELOC_RELATIVE64 13

const char *sim_arch_name(sim_arch arch) {
    return arch == SIM_GFX90A ? "gfx90a" : "gfx942";
}

static bool bad(char *why, size_t size, const char *text) {
    snprintf(why, size, "%s", text);
    return false;
}

static bool check_header(const Elf64_Ehdr *e, sim_arch arch, char *why, size_t n,
                         bool *wrong_arch) {
    if (memcmp(e->e_ident, ELFMAG, SELFMAG) != 0 || e->e_ident[EI_CLASS] != ELFCLASS64)
        return bad(why, n, "the image is not an ELF64 code object");
    if (e->e_machine != MACHINE_AMDGPU || e->e_type != ET_DYN)
        return bad(why, n, "the image is not a linked AMDGPU code object");
    unsigned want = arch == SIM_GFX90A ? MACH_GFX90A : MACH_GFX942;
    if ((e->e_flags & FLAG_MACH) != want) {
        *wrong_arch = true;
        snprintf(why, n, "the code object is for machine 0x%x, the device is %s (0x%x)",
                 e->e_flags & FLAG_MACH, sim_arch_name(arch), want);
        return false;
    }
    return true;
}

static bool load_segments(struct sim_module *m, const uint8_t *file, char *why, size_t n) {
    const Elf64_Ehdr *e = (const Elf64_Ehdr *)file;
    const Elf64_Phdr *p = (const Elf64_Phdr *)(file + e->e_phoff);
    for (int i = 0; i < e->e_phnum; i++) {
        if (p[i].p_type == PT_LOAD && p[i].p_vaddr + p[i].p_memsz > m->size)
            m->size = p[i].p_vaddr + p[i].p_memsz;
    }
    if (m->size == 0)
        return bad(why, n, "the code object has no loadable segment");
    m->size = (m->size + 4095) & ~(uint64_t)4095;
    if (posix_memalign((void **)&m->image, 4096, m->size) != 0)
        return bad(why, n, "out of memory");
    memset(m->image, 0, m->size);
    for (int i = 0; i < e->e_phnum; i++) {
        if (p[i].p_type == PT_LOAD)
            memcpy(m->image + p[i].p_vaddr, file + p[i].p_offset, p[i].p_filesz);
    }
    return true;
}

static bool relocate(struct sim_module *m, const Elf64_Rela *r, size_t count,
                     const Elf64_Sym *symbols, char *why, size_t n) {
    uint64_t base = (uint64_t)(uintptr_t)m->image;
    for (size_t i = 0; i < count; i++) {
        uint64_t value = base + (uint64_t)r[i].r_addend;
        switch (ELF64_R_TYPE(r[i].r_info)) {
        case RELOC_RELATIVE64:
            break;
        case RELOC_ABS64:
            value += symbols[ELF64_R_SYM(r[i].r_info)].st_value;
            break;
        default:
            snprintf(why, n, "relocation type %u is not supported",
                     (unsigned)ELF64_R_TYPE(r[i].r_info));
            return false;
        }
        memcpy(m->image + r[i].r_offset, &value, 8);
    }
    return true;
}

static void read_descriptor(struct sim_module *m, const char *name, uint64_t address) {
    const uint8_t *d = m->image + address;
    struct sim_kernel *k = &m->kernels[m->nkernels++];
    int64_t entry;
    memset(k, 0, sizeof(*k));
    k->name = strndup(name, strlen(name) - 3);
    k->module = m;
    k->descriptor = (uint64_t)(uintptr_t)d;
    memcpy(&k->group_size, d, 4);
    memcpy(&k->private_size, d + 4, 4);
    memcpy(&k->kernarg_size, d + 8, 4);
    memcpy(&entry, d + 16, 8);
    memcpy(&k->rsrc3, d + 44, 4);
    memcpy(&k->rsrc1, d + 48, 4);
    memcpy(&k->rsrc2, d + 52, 4);
    memcpy(&k->properties, d + 56, 2);
    memcpy(&k->preload, d + 58, 2);
    k->entry = k->descriptor + (uint64_t)entry;
    k->max_workgroup = 1024;
}

static void read_symbols(struct sim_module *m, const Elf64_Sym *s, size_t count,
                         const char *strings) {
    m->kernels = calloc(count ? count : 1, sizeof(*m->kernels));
    m->globals = calloc(count ? count : 1, sizeof(*m->globals));
    for (size_t i = 0; i < count; i++) {
        const char *name = strings + s[i].st_name;
        size_t length = strlen(name);
        if (ELF64_ST_TYPE(s[i].st_info) != STT_OBJECT || s[i].st_shndx == SHN_UNDEF ||
            s[i].st_value >= m->size)
            continue;
        if (length > 3 && strcmp(name + length - 3, ".kd") == 0 && s[i].st_size == 64) {
            read_descriptor(m, name, s[i].st_value);
        } else {
            m->globals[m->nglobals++] = (struct sim_symbol){
                strdup(name), (uint64_t)(uintptr_t)(m->image + s[i].st_value), s[i].st_size};
        }
    }
}

static bool read_sections(struct sim_module *m, const uint8_t *file, char *why, size_t n) {
    const Elf64_Ehdr *e = (const Elf64_Ehdr *)file;
    const Elf64_Shdr *s = (const Elf64_Shdr *)(file + e->e_shoff);
    for (int i = 0; i < e->e_shnum; i++) {
        if (s[i].sh_type == SHT_DYNSYM)
            read_symbols(m, (const Elf64_Sym *)(file + s[i].sh_offset), s[i].sh_size / 24,
                         (const char *)file + s[s[i].sh_link].sh_offset);
    }
    if (m->nkernels == 0)
        return bad(why, n, "the code object has no kernel descriptor");
    for (int i = 0; i < e->e_shnum; i++) {
        if (s[i].sh_type == SHT_RELA && (s[i].sh_flags & SHF_ALLOC) &&
            !relocate(m, (const Elf64_Rela *)(file + s[i].sh_offset), s[i].sh_size / 24,
                      (const Elf64_Sym *)(file + s[s[i].sh_link].sh_offset), why, n))
            return false;
    }
    return true;
}

static bool read_notes(struct sim_module *m, const uint8_t *file, char *why, size_t n) {
    const Elf64_Ehdr *e = (const Elf64_Ehdr *)file;
    const Elf64_Phdr *p = (const Elf64_Phdr *)(file + e->e_phoff);
    for (int i = 0; i < e->e_phnum; i++) {
        if (p[i].p_type != PT_NOTE)
            continue;
        const uint8_t *at = file + p[i].p_offset, *end = at + p[i].p_filesz;
        while (at + sizeof(Elf64_Nhdr) <= end) {
            const Elf64_Nhdr *h = (const Elf64_Nhdr *)at;
            const uint8_t *body = at + sizeof(*h) + ((h->n_namesz + 3) & ~3u);
            if (h->n_type == NOTE_METADATA)
                return sim_metadata_parse(m, body, h->n_descsz) ||
                       bad(why, n, "the metadata note of the code object is malformed");
            at = body + ((h->n_descsz + 3) & ~3u);
        }
    }
    return bad(why, n, "the code object has no metadata note");
}

struct sim_module *sim_module_load(const void *data, sim_arch arch, char *why, size_t n,
                                   bool *wrong_arch) {
    const uint8_t *file = data;
    *wrong_arch = false;
    if (!check_header((const Elf64_Ehdr *)file, arch, why, n, wrong_arch))
        return NULL;
    struct sim_module *m = calloc(1, sizeof(*m));
    m->arch = arch;
    if (!load_segments(m, file, why, n) || !read_sections(m, file, why, n) ||
        !read_notes(m, file, why, n)) {
        sim_module_free(m);
        return NULL;
    }
    m->code = calloc(m->size / 4, sizeof(*m->code));
    sim_memory_register(m->image, m->size, true);
    return m;
}

void sim_module_free(struct sim_module *m) {
    for (size_t i = 0; m->code && i < m->size / 4; i++) {
        if (m->code[i])
            sim_insn_free(m->code[i]);
    }
    if (m->rejected)
        sim_insn_free(m->rejected);
    for (size_t i = 0; i < m->nkernels; i++) {
        free(m->kernels[i].name);
        free(m->kernels[i].args);
    }
    for (size_t i = 0; i < m->nglobals; i++)
        free(m->globals[i].name);
    if (m->image)
        sim_memory_unregister(m->image);
    sim_disassembler_free(m->disassembler);
    free(m->code);
    free(m->kernels);
    free(m->globals);
    free(m->image);
    free(m);
}
