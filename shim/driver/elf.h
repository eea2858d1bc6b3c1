/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols of loaded objects, read from their dynamic sections.
 *
 * For the few look-ups that must not go through dlsym: its real address itself, and those made
 * where taking the loader's lock could deadlock (a framework calls us with its own lock held, and
 * holds the loader's while a library's constructor asks for the framework's). Only the namespace of
 * the program is seen, not those of dlmopen. */
#ifndef MEMSHIM_SHIM_DRIVER_ELF_H
#define MEMSHIM_SHIM_DRIVER_ELF_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_loaded_elf {
    uintptr_t base;
    char path[512]; /* as the loader knows it; empty for the main program */
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash; /* DT_GNU_HASH, or null */
    const uint32_t *hash;     /* DT_HASH, or null */
};

/* The first loaded object with this soname (or, where it has none, this file name). False where
 * there is none. Stays good as long as the object stays loaded. */
bool ms_elf_loaded(const char *soname, struct ms_loaded_elf *out);

/* A function that the object defines, whatever its version; null where it defines none. */
void *ms_elf_function(const struct ms_loaded_elf *elf, const char *name);

/* A variable likewise. */
void *ms_elf_variable(const struct ms_loaded_elf *elf, const char *name);

/* The first loaded object, in load order, that defines this function. False where none does. */
bool ms_elf_defining(const char *function, struct ms_loaded_elf *out);

/* The object whose segments hold addr, and from where to where they reach. False where none does.
 */
bool ms_elf_around(uintptr_t addr, struct ms_loaded_elf *out, uintptr_t *begin, uintptr_t *end);

/* How many objects were ever loaded. */
uint64_t ms_elf_generation(void);

/* Whether any loaded object names this soname among the libraries it needs. */
bool ms_elf_needed(const char *soname);

#endif
