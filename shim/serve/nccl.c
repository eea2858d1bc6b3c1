/* Which library an address lies in, remembered by ranges: asking the loader takes its lock. */
#include "shim/serve/nccl.h"

#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "shim/hook.h"

#define RANGES_MAX 32u /* callers of allocation functions come from a handful of libraries */

struct range {
    _Atomic uintptr_t begin; /* 0: free; written last */
    uintptr_t end;
    bool nccl;
};

static struct range ranges[RANGES_MAX];
static _Atomic unsigned taken;

struct search {
    uintptr_t addr, begin, end;
    bool found, nccl;
};

static int look(struct dl_phdr_info *info, size_t size, void *data)
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
    search->nccl = strncmp(name, "libnccl", strlen("libnccl")) == 0;
    search->found = true;
    return 1;
}

bool ms_called_by_nccl(void)
{
    uintptr_t addr = (uintptr_t)ms_caller();
    unsigned count = atomic_load_explicit(&taken, memory_order_acquire);
    count = count < RANGES_MAX ? count : RANGES_MAX;
    for (unsigned i = 0; i < count; i++) {
        uintptr_t begin = atomic_load_explicit(&ranges[i].begin, memory_order_acquire);
        if (begin != 0 && addr >= begin && addr < ranges[i].end) {
            return ranges[i].nccl;
        }
    }
    struct search search = {.addr = addr};
    dl_iterate_phdr(look, &search);
    if (search.found && count < RANGES_MAX) {
        unsigned i = atomic_fetch_add(&taken, 1);
        if (i < RANGES_MAX) {
            ranges[i].end = search.end;
            ranges[i].nccl = search.nccl;
            atomic_store_explicit(&ranges[i].begin, search.begin, memory_order_release);
        }
    }
    return search.nccl;
}
