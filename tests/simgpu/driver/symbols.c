/* SPDX-License-Identifier: Apache-2.0 */
/* The library's own dynamic symbols. See symbols.h. */
#include "symbols.h"

#include "entry.h"
#include "settings.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The dynamic linker skips hidden symbols. The symbol table is in a private mapping of the file, so
 * only this process sees the change. */
static bool hide(ElfW(Sym) * symbol)
{
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)symbol & ~(page_bytes - 1);
    size_t bytes = (uintptr_t)(symbol + 1) - first;
    if (mprotect((void *)first, bytes, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    symbol->st_other = (unsigned char)((symbol->st_other & ~3) | STV_HIDDEN);
    return mprotect((void *)first, bytes, PROT_READ) == 0;
}

void sim_hide_newer_functions(void)
{
    for (int i = 0; i < SIM_FUNCTIONS; i++) {
        Dl_info info;
        void *entry = NULL;
        if (sim_functions[i].version <= (int)sim_settings.driver_version) {
            continue;
        }
        bool found = dladdr1(sim_functions[i].address, &info, &entry, RTLD_DL_SYMENT) != 0 &&
                     entry && info.dli_sname &&
                     strcmp(info.dli_sname, sim_functions[i].symbol) == 0;
        if (!found || !hide(entry)) {
            fprintf(stderr, "simgpu: %s cannot be hidden for SIMGPU_DRIVER_VERSION=%llu\n",
                    sim_functions[i].symbol, (unsigned long long)sim_settings.driver_version);
            abort();
        }
    }
}
