/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the library of an address of code, and remembers libraries by their ranges. */
#include "shim/driver/caller.h"

#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define RANGES_MAX 32u /* callers of allocation functions come from a handful of libraries */

struct range {
    _Atomic uintptr_t begin; /* 0: free; written last */
    uintptr_t end;
    enum ms_library library;
};

static struct range ranges[RANGES_MAX];
static _Atomic unsigned taken;

struct search {
    uintptr_t addr, begin, end;
    bool found;
    enum ms_library library;
};

static enum ms_library library_of(const char *name)
{
    static const struct {
        const char *prefix;
        enum ms_library library;
    } known[] = {{"libnccl", MS_LIBRARY_NCCL},
                 {"libc10_cuda", MS_LIBRARY_C10_CUDA},
                 {"libc10", MS_LIBRARY_TORCH},
                 {"libtorch", MS_LIBRARY_TORCH},
                 {"libtensorflow", MS_LIBRARY_TENSORFLOW},
                 {"libcublas", MS_LIBRARY_CUDA},
                 {"libcudnn", MS_LIBRARY_CUDA},
                 {"libcufft", MS_LIBRARY_CUDA},
                 {"libcufile", MS_LIBRARY_CUDA},
                 {"libcupti", MS_LIBRARY_CUDA},
                 {"libcusolver", MS_LIBRARY_CUDA},
                 {"libcusparse", MS_LIBRARY_CUDA},
                 {"libcutensor", MS_LIBRARY_CUDA},
                 {"libnvshmem", MS_LIBRARY_CUDA}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strncmp(name, known[i].prefix, strlen(known[i].prefix)) == 0) {
            return known[i].library;
        }
    }
    return MS_LIBRARY_OTHER;
}

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct search *search = data;
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
    if (search->addr < begin || search->addr >= end) {
        return 0;
    }
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    search->begin = begin;
    search->end = end;
    search->library = library_of(name);
    search->found = true;
    return 1;
}

enum ms_library ms_library_at(const void *address)
{
    uintptr_t addr = (uintptr_t)address;
    unsigned count = atomic_load_explicit(&taken, memory_order_acquire);
    count = count < RANGES_MAX ? count : RANGES_MAX;
    for (unsigned i = 0; i < count; i++) {
        uintptr_t begin = atomic_load_explicit(&ranges[i].begin, memory_order_acquire);
        if (begin != 0 && addr >= begin && addr < ranges[i].end) {
            return ranges[i].library;
        }
    }
    struct search search = {.addr = addr, .library = MS_LIBRARY_OTHER};
    dl_iterate_phdr(visit, &search);
    if (search.found && count < RANGES_MAX) {
        unsigned i = atomic_fetch_add(&taken, 1);
        if (i < RANGES_MAX) {
            ranges[i].end = search.end;
            ranges[i].library = search.library;
            atomic_store_explicit(&ranges[i].begin, search.begin, memory_order_release);
        }
    }
    return search.library;
}
