/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols of loaded objects, read from their dynamic sections.
 *
 * For the few look-ups that must not use dlsym. One is that of the real dlsym itself. The others
 * could deadlock on the loader's lock: a framework calls us with its own lock held, while another
 * thread may hold the loader's lock because a library's constructor waits for the framework's.
 * Covers only the program's namespace, not those of dlmopen. */
#ifndef MEMSHIM_SHIM_DRIVER_ELF_H
#define MEMSHIM_SHIM_DRIVER_ELF_H

#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>

struct ms_loaded_elf {
    uintptr_t base;
    char path[512]; /* the loader's name for it; empty for the main program */
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash; /* DT_GNU_HASH, or null */
    const uint32_t *hash;     /* DT_HASH, or null */
};

/* The program's file where somebody started the loader with the program as its argument; else "".
 * The kernel then started no other loader, and /proc/self/exe is the loader. */
static inline const char *ms_elf_loader_argument(void)
{
    return getauxval(AT_BASE) == 0 ? program_invocation_name : "";
}

/* The first loaded object with this soname (or this file name, if it has no soname). False if there
 * is none. Valid as long as the object stays loaded. */
bool ms_elf_loaded(const char *soname, struct ms_loaded_elf *out);

/* The same for an object that was loaded with the program, and without a call: ThreadSanitizer's
 * dl_iterate_phdr, which stands before the C library's, first asks dlsym for that. It walks the
 * list that the loader keeps for debuggers. What came with the program stands there before all
 * else, and stays; so the search ends before any entry that another thread may take out. */
bool ms_elf_of_start(const char *soname, struct ms_loaded_elf *out);

/* A function that the object defines, in any version; null if it defines none. */
void *ms_elf_function(const struct ms_loaded_elf *elf, const char *name);

/* The same for a variable. */
void *ms_elf_variable(const struct ms_loaded_elf *elf, const char *name);

/* The first loaded object, in load order, that defines this function. False if none does. */
bool ms_elf_defining(const char *function, struct ms_loaded_elf *out);

/* The object whose segments contain addr, and their range. False if there is none. */
bool ms_elf_around(uintptr_t addr, struct ms_loaded_elf *out, uintptr_t *begin, uintptr_t *end);

/* How many objects were ever loaded. */
uint64_t ms_elf_generation(void);

/* Whether any loaded object needs a library of this soname. */
bool ms_elf_needed(const char *soname);

#endif
