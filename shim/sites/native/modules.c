/* SPDX-License-Identifier: Apache-2.0 */
/* Finds loaded code files by address, and notices when one is unloaded. */
#include "shim/sites/native/modules.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/build_id.h"
#include "allocator/base/locks/lock.h"
#include "shim/driver/elf.h"
#include "shim/sites/native/native.h"

#define UNLOADED_ONE (UINT64_C(1) << 16)
#define KNOWN_MAX    1024u

_Atomic uint64_t ms_modules_epoch;

/* glibc's struct dl_find_object, as in <dlfcn.h> since 2.35: older headers lack it. The flags and
 * the reserved words are not used. */
struct found_object {
    unsigned long long flags;
    void *begin, *end;
    struct link_map *map;
    void *tables;
    unsigned long long reserved[7];
};
typedef int (*find_object_t)(void *address, struct found_object *out);
typedef int (*dlclose_t)(void *handle);

static _Atomic(find_object_t) find_object;
static _Atomic bool watching;
static _Atomic uint64_t unloads_seen; /* dlpi_subs at the last check */

/* --- Look-up ---------------------------------------------------------------------------------- */

struct module_search {
    uintptr_t address;
    const uint8_t *tables;
    struct ms_native_module *module; /* null: not wanted */
    char *path;
    uint32_t path_bytes;
};

static bool covers(const struct dl_phdr_info *info, uintptr_t address, uint64_t *bytes)
{
    bool inside = false;
    *bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD) {
            uintptr_t begin = info->dlpi_addr + segment->p_vaddr;
            inside = inside || (address >= begin && address - begin < segment->p_memsz);
            uint64_t end = segment->p_vaddr + segment->p_memsz;
            *bytes = end > *bytes ? end : *bytes;
        }
    }
    return inside;
}

static void read_build_id(const struct dl_phdr_info *info, const ElfW(Phdr) * notes,
                          struct ms_native_module *out)
{
    size_t id_bytes = 0;
    const uint8_t *id = ms_build_id_find((const uint8_t *)(info->dlpi_addr + notes->p_vaddr),
                                         notes->p_memsz, notes->p_align, &id_bytes);
    if (id != NULL) {
        out->build_id_bytes = id_bytes < MS_BUILD_ID_BYTES ? (uint32_t)id_bytes : MS_BUILD_ID_BYTES;
        memcpy(out->build_id, id, out->build_id_bytes);
    }
}

static bool read_link(const char *link, char *path, uint32_t path_bytes)
{
    const ssize_t length = readlink(link, path, path_bytes - 1);
    path[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* The kernel names the file of a mapping by its whole path (proc(5), map_files). */
static bool read_mapped(const struct dl_phdr_info *info, uintptr_t address, char *path,
                        uint32_t path_bytes)
{
    const uintptr_t in_page = (uintptr_t)getpagesize() - 1;
    char link[64];
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && address - begin < segment->p_filesz) {
            (void)snprintf(link, sizeof(link), "/proc/self/map_files/%lx-%lx", begin & ~in_page,
                           (begin + segment->p_filesz + in_page) & ~in_page);
            return read_link(link, path, path_bytes);
        }
    }
    return false;
}

/* The loader's name for the program is empty, and for a library it is the name that was asked for.
 * A relative one need not lead there from the folder in which the program is by now. Stacks may be
 * small, so the caller's buffer is the only one. */
static void absolute_path(const struct dl_phdr_info *info, uintptr_t address, char *path,
                          uint32_t path_bytes)
{
    const char *name = info->dlpi_name[0] != '\0' ? info->dlpi_name : ms_elf_loader_argument();
    if (name[0] == '\0') {
        (void)read_link("/proc/self/exe", path, path_bytes);
    } else if (name[0] == '/' || strchr(name, '/') == NULL || path_bytes < PATH_MAX ||
               (!read_mapped(info, address, path, path_bytes) && realpath(name, path) == NULL)) {
        strncpy(path, name, path_bytes - 1);
        path[path_bytes - 1] = '\0';
    }
}

static int search_object(struct dl_phdr_info *info, size_t info_bytes, void *ctx)
{
    (void)info_bytes;
    struct module_search *search = ctx;
    uint64_t bytes;
    if (!covers(info, search->address, &bytes)) {
        return 0;
    }
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_GNU_EH_FRAME) {
            search->tables = (const uint8_t *)(info->dlpi_addr + segment->p_vaddr);
        } else if (segment->p_type == PT_NOTE && search->module != NULL &&
                   search->module->build_id_bytes == 0) {
            read_build_id(info, segment, search->module);
        }
    }
    if (search->module != NULL) {
        search->module->base = info->dlpi_addr;
        search->module->bytes = bytes;
        absolute_path(info, search->address, search->path, search->path_bytes);
    }
    return 1;
}

const uint8_t *ms_modules_tables(uint64_t address)
{
    find_object_t find = atomic_load_explicit(&find_object, memory_order_relaxed);
    if (find != NULL) {
        struct found_object found;
        return find((void *)(uintptr_t)address, &found) == 0 ? found.tables : NULL;
    }
    struct module_search search = {.address = (uintptr_t)address};
    return dl_iterate_phdr(search_object, &search) != 0 ? search.tables : NULL;
}

/* --- Unloading -------------------------------------------------------------------------------- */

/* Modules that were asked for, by base address. A file that was loaded anew must differ from one
 * that stayed. */
static struct known {
    uintptr_t base;
    uint64_t generation;
    bool present;
} known[KNOWN_MAX]; /* guarded by MODULES */
static uint32_t known_count MS_GUARDED_BY(*MS_LOCK(MODULES));
static uint64_t last_generation MS_GUARDED_BY(*MS_LOCK(MODULES));

static uint64_t generation_of(uintptr_t base)
{
    uint64_t generation = 0;
    ms_lock_acquire(MS_LOCK(MODULES));
    for (uint32_t i = 0; i < known_count && generation == 0; i++) {
        generation = known[i].base == base ? known[i].generation : 0;
    }
    if (generation == 0) {
        generation = ++last_generation;
        if (known_count < KNOWN_MAX) {
            known[known_count++] = (struct known){.base = base, .generation = generation};
        }
    }
    ms_lock_release(MS_LOCK(MODULES));
    return generation;
}

static int mark_present(struct dl_phdr_info *info, size_t info_bytes, void *ctx)
    MS_REQUIRES(*MS_LOCK(MODULES))
{
    (void)info_bytes;
    (void)ctx;
    for (uint32_t i = 0; i < known_count; i++) {
        known[i].present = known[i].present || known[i].base == info->dlpi_addr;
    }
    return 0;
}

static void forget_absent(void)
{
    uint32_t kept = 0;
    ms_lock_acquire(MS_LOCK(MODULES));
    (void)dl_iterate_phdr(mark_present, NULL);
    for (uint32_t i = 0; i < known_count; i++) {
        if (known[i].present) {
            known[kept] = known[i];
            known[kept++].present = false;
        }
    }
    known_count = kept;
    ms_lock_release(MS_LOCK(MODULES));
}

static int read_unloads(struct dl_phdr_info *info, size_t info_bytes, void *ctx)
{
    (void)info_bytes;
    *(uint64_t *)ctx = info->dlpi_subs;
    return 1;
}

static uint64_t unloads(void)
{
    uint64_t count = 0;
    (void)dl_iterate_phdr(read_unloads, &count);
    return count;
}

static dlclose_t next_dlclose(void)
{
    static _Atomic(dlclose_t) next;
    dlclose_t function = atomic_load_explicit(&next, memory_order_acquire);
    if (function == NULL) {
        struct ms_loaded_elf elf;
        static const char *const homes[] = {"libc.so.6", "libdl.so.2"};
        for (size_t i = 0; i < 2 && function == NULL; i++) {
            function =
                ms_elf_loaded(homes[i], &elf) ? (dlclose_t)ms_elf_function(&elf, "dlclose") : NULL;
        }
        atomic_store_explicit(&next, function, memory_order_release);
    }
    return function;
}

/* Many libraries are opened only to see whether they exist; their unloading must not invalidate
 * what is known. When dlclose returns, it has released the loader's lock, and another thread may
 * have loaded something in the same place before the unloading is counted here. So a call counts as
 * under way until then. */
static int watched_dlclose(dlclose_t real, void *handle)
{
    atomic_fetch_add_explicit(&ms_modules_epoch, 1, memory_order_acq_rel);
    int result = real(handle);
    uint64_t count = unloads();
    if (atomic_exchange(&unloads_seen, count) != count) {
        forget_absent();
        atomic_fetch_add_explicit(&ms_modules_epoch, UNLOADED_ONE - 1, memory_order_acq_rel);
    } else {
        atomic_fetch_sub_explicit(&ms_modules_epoch, 1, memory_order_acq_rel);
    }
    return result;
}

/* Exported in front of the C library's. Unlike dlopen and dlsym, it does not depend on its caller,
 * so an ordinary wrapper will do. */
__attribute__((visibility("default"))) int dlclose(void *handle)
{
    dlclose_t real = next_dlclose();
    if (real == NULL) {
        return -1;
    }
    return atomic_load_explicit(&watching, memory_order_relaxed) ? watched_dlclose(real, handle)
                                                                 : real(handle);
}

void ms_modules_prepare(void)
{
    static const char *const loaders[] = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"};
    struct ms_loaded_elf elf;
    if (atomic_exchange(&watching, true)) {
        return;
    }
    atomic_store(&unloads_seen, unloads());
    for (size_t i = 0; i < sizeof(loaders) / sizeof(loaders[0]); i++) {
        if (ms_elf_loaded(loaders[i], &elf)) {
            atomic_store(&find_object, (find_object_t)ms_elf_function(&elf, "_dl_find_object"));
        }
    }
}

bool ms_native_module(uint64_t address, struct ms_native_module *out, char *path,
                      uint32_t path_bytes)
{
    *out = (struct ms_native_module){0};
    struct module_search search = {
        .address = (uintptr_t)address, .module = out, .path = path, .path_bytes = path_bytes};
    if (dl_iterate_phdr(search_object, &search) == 0) {
        return false;
    }
    out->generation = generation_of(out->base);
    return true;
}
