/* Files, lines and inlined functions, from DWARF: elfutils' libdw, if the machine has it. It is
 * opened when it is asked for, so that nothing is linked against it. For the command line: it takes
 * memory from the heap. */
#ifndef MEMSHIM_REPORT_SYMBOLS_DWARF_H
#define MEMSHIM_REPORT_SYMBOLS_DWARF_H

#include <stddef.h>
#include <stdint.h>

typedef struct ms_dwarf ms_dwarf_t;

/* A function, and the place in it that was executing or calling. Strings live as long as the
 * ms_dwarf. */
struct ms_source {
    const char *function; /* mangled where it is C++; null: not known */
    const char *file;     /* null: not known */
    uint32_t line;        /* 0: not known */
};

/* Null: no libdw, no such file, or no DWARF in it. */
ms_dwarf_t *ms_dwarf_open(const char *path);
void ms_dwarf_close(ms_dwarf_t *dwarf);

/* The functions at an address of the file, innermost first: those that the compiler put into one
 * another, last the one that they were all put into. Their count, at most room; 0: nothing is
 * known. */
size_t ms_dwarf_find(ms_dwarf_t *dwarf, uint64_t address, struct ms_source *out, size_t room);

#endif
