/* SPDX-License-Identifier: Apache-2.0 */
/* Finds loaded objects, and looks up symbols in their hash tables. */
#include "shim/driver/elf.h"

#include <elf.h>

#include "shim/driver/early_text.h"

struct dynamic {
    const char *strings;
    const ElfW(Sym) * symbols;
    const uint32_t *gnu_hash, *hash;
    const ElfW(Dyn) * entries;
    size_t soname; /* offset into strings, 0: none */
};

/* glibc relocates the pointers of a dynamic section in place, but not on every architecture. */
static const void *pointer_of(uintptr_t base, ElfW(Addr) value)
{
    return (const void *)(value < base ? base + value : value);
}

static bool read_entries(uintptr_t base, const ElfW(Dyn) * entries, struct dynamic *out)
{
    *out = (struct dynamic){.entries = entries};
    if (entries == NULL) {
        return false;
    }
    for (const ElfW(Dyn) *entry = entries; entry->d_tag != DT_NULL; entry++) {
        const void *pointer = pointer_of(base, entry->d_un.d_ptr);
        switch (entry->d_tag) {
        case DT_STRTAB:
            out->strings = pointer;
            break;
        case DT_SYMTAB:
            out->symbols = pointer;
            break;
        case DT_GNU_HASH:
            out->gnu_hash = pointer;
            break;
        case DT_HASH:
            out->hash = pointer;
            break;
        case DT_SONAME:
            out->soname = entry->d_un.d_val;
            break;
        default:
            break;
        }
    }
    return out->strings != NULL && out->symbols != NULL;
}

static bool read_dynamic(const struct dl_phdr_info *info, struct dynamic *out)
{
    const ElfW(Dyn) *entries = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            entries = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        }
    }
    return read_entries(info->dlpi_addr, entries, out);
}

static struct ms_loaded_elf object_at(uintptr_t base, const char *name,
                                      const struct dynamic *dynamic)
{
    struct ms_loaded_elf elf = {.base = base,
                                .symbols = dynamic->symbols,
                                .strings = dynamic->strings,
                                .gnu_hash = dynamic->gnu_hash,
                                .hash = dynamic->hash};
    ms_early_copy(name, elf.path, sizeof(elf.path));
    return elf;
}

static struct ms_loaded_elf object_of(const struct dl_phdr_info *info,
                                      const struct dynamic *dynamic)
{
    return object_at(info->dlpi_addr, info->dlpi_name, dynamic);
}

static bool is_called(const struct dynamic *dynamic, const char *path, const char *soname)
{
    const char *name =
        dynamic->soname != 0 ? dynamic->strings + dynamic->soname : ms_early_base_name(path);
    return ms_early_same(name, soname);
}

struct elf_search {
    const char *name; /* a base of the object, or a symbol's name */
    struct ms_loaded_elf *out;
};

static int match_object(struct dl_phdr_info *info, size_t info_bytes, void *ctx)
{
    (void)info_bytes;
    struct elf_search *search = ctx;
    struct dynamic dynamic;
    if (!read_dynamic(info, &dynamic) || !is_called(&dynamic, info->dlpi_name, search->name)) {
        return 0;
    }
    *search->out = object_of(info, &dynamic);
    return 1;
}

bool ms_elf_loaded(const char *soname, struct ms_loaded_elf *out)
{
    struct elf_search search = {soname, out};
    return dl_iterate_phdr(match_object, &search) != 0;
}

bool ms_elf_of_start(const char *soname, struct ms_loaded_elf *out)
{
    for (const struct link_map *map = _r_debug.r_map; map != NULL; map = map->l_next) {
        struct dynamic dynamic;
        if (read_entries(map->l_addr, map->l_ld, &dynamic) &&
            is_called(&dynamic, map->l_name, soname)) {
            *out = object_at(map->l_addr, map->l_name, &dynamic);
            return true;
        }
    }
    return false;
}

static int match_needed(struct dl_phdr_info *info, size_t info_bytes, void *ctx)
{
    (void)info_bytes;
    const char *soname = ctx;
    struct dynamic dynamic;
    if (!read_dynamic(info, &dynamic)) {
        return 0;
    }
    for (const ElfW(Dyn) *entry = dynamic.entries; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_NEEDED &&
            ms_early_same(dynamic.strings + entry->d_un.d_val, soname)) {
            return 1;
        }
    }
    return 0;
}

bool ms_elf_needed(const char *soname)
{
    return dl_iterate_phdr(match_needed, (void *)soname) != 0;
}

static void *symbol_of(const struct ms_loaded_elf *elf, uint32_t index, const char *name,
                       unsigned char type)
{
    const ElfW(Sym) *symbol = &elf->symbols[index];
    const unsigned visibility = ELF64_ST_VISIBILITY(symbol->st_other);
    /* The loader does not find hidden symbols either. */
    if (visibility == STV_HIDDEN || visibility == STV_INTERNAL) {
        return NULL;
    }
    /* The value of an indirect function is its resolver, not the function. No function that we look
     * up is one; a foreign one is not used. */
    if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != type ||
        !ms_early_same(elf->strings + symbol->st_name, name)) {
        return NULL;
    }
    return (void *)(elf->base + symbol->st_value);
}

static void *find_gnu(const struct ms_loaded_elf *elf, const char *name, unsigned char type)
{
    uint32_t wanted = 5381;
    for (const char *at = name; *at != '\0'; at++) {
        wanted = wanted * 33 + (unsigned char)*at;
    }
    uint32_t bucket_count = elf->gnu_hash[0];
    uint32_t first_hashed = elf->gnu_hash[1];
    uint32_t bloom_words = elf->gnu_hash[2];
    const uint32_t *buckets =
        elf->gnu_hash + 4 + (size_t)bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + bucket_count;
    uint32_t index = bucket_count != 0 ? buckets[wanted % bucket_count] : 0;
    if (index < first_hashed) {
        return NULL;
    }
    for (;; index++) {
        uint32_t hashed = chain[index - first_hashed];
        if ((hashed | 1) == (wanted | 1)) {
            void *symbol = symbol_of(elf, index, name, type);
            if (symbol != NULL) {
                return symbol;
            }
        }
        if ((hashed & 1) != 0) {
            return NULL;
        }
    }
}

static void *find(const struct ms_loaded_elf *elf, const char *name, unsigned char type)
{
    if (elf->gnu_hash != NULL) {
        return find_gnu(elf, name, type);
    }
    uint32_t count = elf->hash != NULL ? elf->hash[1] : 0;
    for (uint32_t index = 1; index < count; index++) {
        void *symbol = symbol_of(elf, index, name, type);
        if (symbol != NULL) {
            return symbol;
        }
    }
    return NULL;
}

void *ms_elf_function(const struct ms_loaded_elf *elf, const char *name)
{
    return find(elf, name, STT_FUNC);
}

void *ms_elf_variable(const struct ms_loaded_elf *elf, const char *name)
{
    return find(elf, name, STT_OBJECT);
}

static int match_definition(struct dl_phdr_info *info, size_t info_bytes, void *ctx)
{
    (void)info_bytes;
    struct elf_search *search = ctx;
    struct dynamic dynamic;
    if (!read_dynamic(info, &dynamic)) {
        return 0;
    }
    struct ms_loaded_elf elf = object_of(info, &dynamic);
    if (ms_elf_function(&elf, search->name) == NULL) {
        return 0;
    }
    *search->out = elf;
    return 1;
}

bool ms_elf_defining(const char *function, struct ms_loaded_elf *out)
{
    struct elf_search search = {function, out};
    return dl_iterate_phdr(match_definition, &search) != 0;
}

struct around {
    uintptr_t addr, begin, end;
    struct ms_loaded_elf *out;
};

static int match_around(struct dl_phdr_info *info, size_t info_bytes, void *ctx)
{
    (void)info_bytes;
    struct around *around = ctx;
    struct dynamic dynamic;
    uintptr_t begin = UINTPTR_MAX;
    uintptr_t end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD) {
            uintptr_t at = info->dlpi_addr + segment->p_vaddr;
            begin = at < begin ? at : begin;
            end = at + segment->p_memsz > end ? at + segment->p_memsz : end;
        }
    }
    if (around->addr < begin || around->addr >= end) {
        return 0;
    }
    (void)read_dynamic(info, &dynamic); /* a static program has none */
    *around->out = object_of(info, &dynamic);
    around->begin = begin;
    around->end = end;
    return 1;
}

bool ms_elf_around(uintptr_t addr, struct ms_loaded_elf *out, uintptr_t *begin, uintptr_t *end)
{
    struct around around = {.addr = addr, .out = out};
    if (dl_iterate_phdr(match_around, &around) == 0) {
        return false;
    }
    *begin = around.begin;
    *end = around.end;
    return true;
}

static int read_generation(struct dl_phdr_info *info, size_t info_bytes, void *ctx)
{
    (void)info_bytes;
    *(uint64_t *)ctx = info->dlpi_adds;
    return 1;
}

uint64_t ms_elf_generation(void)
{
    uint64_t generation = 0;
    (void)dl_iterate_phdr(read_generation, &generation);
    return generation;
}
