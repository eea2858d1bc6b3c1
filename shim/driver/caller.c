/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the library around a code address, and caches libraries by their address ranges. */
#include "shim/driver/caller.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "allocator/base/path.h"
#include "shim/driver/elf.h"
#include "shim/driver/nccl_code.h"
#include "shim/tables/options.h"

#define RANGES_MAX 256u /* libraries on the stacks of allocations */

struct code_range {
    _Atomic uintptr_t begin; /* 0: free; written last */
    uintptr_t end;
    const struct ms_nccl_code *nccl; /* null: no NCCL linked in beside other code */
    enum ms_library library;
    bool named;
};

static struct code_range ranges[RANGES_MAX];
static _Atomic unsigned taken;

static enum ms_library library_named(const char *name)
{
    static const struct {
        const char *prefix;
        enum ms_library library;
    } known[] = {{"libc10_cuda", MS_LIBRARY_C10_CUDA}, {"libc10", MS_LIBRARY_TORCH},
                 {"libtorch", MS_LIBRARY_TORCH},       {"libtensorflow", MS_LIBRARY_TENSORFLOW},
                 {"libcublas", MS_LIBRARY_CUDA},       {"libcudnn", MS_LIBRARY_CUDA},
                 {"libcufft", MS_LIBRARY_CUDA},        {"libcufile", MS_LIBRARY_CUDA},
                 {"libcupti", MS_LIBRARY_CUDA},        {"libcusolver", MS_LIBRARY_CUDA},
                 {"libcusparse", MS_LIBRARY_CUDA},     {"libcutensor", MS_LIBRARY_CUDA},
                 {"libnvshmem", MS_LIBRARY_CUDA}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strncmp(name, known[i].prefix, strlen(known[i].prefix)) == 0) {
            return known[i].library;
        }
    }
    return MS_LIBRARY_OTHER;
}

static enum ms_library library_of(const struct ms_loaded_elf *elf)
{
    enum ms_library library = library_named(ms_base_name(elf->path));
    if (library != MS_LIBRARY_OTHER || elf->symbols == NULL) {
        return library; /* PyTorch's libraries may have NCCL linked in, and then export it */
    }
    if (ms_nccl_exported(elf)) {
        return MS_LIBRARY_NCCL;
    }
    bool runtime = elf->path[0] != '\0' && ms_elf_function(elf, "cudaMalloc") != NULL &&
                   ms_elf_function(elf, "cudaRuntimeGetVersion") != NULL;
    return runtime ? MS_LIBRARY_RUNTIME : MS_LIBRARY_OTHER;
}

/* Whether an item of MEMSHIM_FORWARD is the beginning of this file name. */
static bool is_named(const char *name)
{
    const char *at = ms_options()->forward;
    while (at && *at != '\0') {
        const size_t bytes = strcspn(at, ",");
        if (bytes > 0 && strncmp(name, at, bytes) == 0) {
            return true;
        }
        at += bytes + (at[bytes] == ',');
    }
    return false;
}

static struct code_range describe(uintptr_t addr)
{
    struct code_range found = {.library = MS_LIBRARY_OTHER};
    struct ms_loaded_elf elf;
    uintptr_t begin = 0;
    if (ms_elf_around(addr, &elf, &begin, &found.end)) {
        found.library = library_of(&elf);
        found.nccl = found.library == MS_LIBRARY_OTHER ? ms_nccl_linked(&elf) : NULL;
        found.named =
            is_named(elf.path[0] != '\0' ? ms_base_name(elf.path) : program_invocation_short_name);
        atomic_init(&found.begin, begin);
    }
    return found;
}

static const struct code_range *known_at(uintptr_t addr)
{
    unsigned count = atomic_load_explicit(&taken, memory_order_acquire);
    count = count < RANGES_MAX ? count : RANGES_MAX;
    for (unsigned i = 0; i < count; i++) {
        uintptr_t begin = atomic_load_explicit(&ranges[i].begin, memory_order_acquire);
        if (begin != 0 && addr >= begin && addr < ranges[i].end) {
            return &ranges[i];
        }
    }
    return NULL;
}

static struct code_range range_at(uintptr_t addr)
{
    const struct code_range *known = known_at(addr);
    if (known) {
        return *known;
    }
    struct code_range found = describe(addr);
    unsigned i = found.begin != 0 && atomic_load(&taken) < RANGES_MAX ? atomic_fetch_add(&taken, 1)
                                                                      : RANGES_MAX;
    if (i < RANGES_MAX) {
        ranges[i].end = found.end;
        ranges[i].library = found.library;
        ranges[i].nccl = found.nccl;
        ranges[i].named = found.named;
        atomic_store_explicit(&ranges[i].begin, found.begin, memory_order_release);
    }
    return found;
}

enum ms_library ms_library_at(const void *address)
{
    const struct code_range *known = known_at((uintptr_t)address);
    return known ? known->library : range_at((uintptr_t)address).library;
}

struct ms_library_facts ms_library_facts_at(const void *address)
{
    const struct code_range range = range_at((uintptr_t)address);
    return (struct ms_library_facts){
        .library = range.library,
        .has_nccl = range.nccl != NULL,
        .is_nccl = range.library == MS_LIBRARY_NCCL ||
                   (range.nccl != NULL && ms_nccl_code_has(range.nccl, (uintptr_t)address)),
        .named = range.named,
    };
}
