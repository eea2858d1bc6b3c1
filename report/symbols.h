/* Names for addresses, from a file's own symbol table.
 *
 * Files are read, never mapped: one that is cut short under our eyes gives an error, not a signal.
 * No byte of them is trusted. A table is passed over once for all addresses of a module, so that
 * neither it nor an index of it lies in memory. */
#ifndef MEMSHIM_REPORT_SYMBOLS_H
#define MEMSHIM_REPORT_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/definitions.h"

/* An ELF file of 64 bits, little-endian; only its tables' places are known. */
struct ms_elf {
    int fd;
    uint64_t bytes; /* of the file */
    uint64_t sections_at, programs_at;
    uint32_t section_count, program_count;
};

/* A run of bytes in the file. */
struct ms_elf_part {
    uint64_t at, bytes;
};

/* False: no such file, or not one of these. Regular files only. */
bool ms_elf_open(struct ms_elf *elf, const char *path);
void ms_elf_close(struct ms_elf *elf);

/* The length of its build id, 0 where it has none. */
uint32_t ms_elf_build_id(const struct ms_elf *elf, uint8_t id[MS_BUILD_ID_BYTES]);

/* The file name in .gnu_debuglink, without folders. */
bool ms_elf_debug_link(const struct ms_elf *elf, char *name, size_t name_bytes);

/* One address and the function around it. */
struct ms_symbol {
    uint64_t address; /* given; in the file's own addresses */
    uint64_t start;   /* of the function; found */
    uint64_t bytes;   /* of the function, 0: the table does not say; found */
    uint64_t name_at; /* in the file; 0: no name is known; found */
    uint16_t section; /* of the function; found */
    uint8_t rank;     /* among names of one start; found */
};

/* Whether it has a .symtab, and not only the names that it exports. */
bool ms_elf_has_full_table(const struct ms_elf *elf);

/* Finds the function around each address, from .symtab, else from .dynsym. symbols are in ascending
 * order of their addresses. False: no table, or no memory; no name_at is set then. */
bool ms_elf_find(const struct ms_elf *elf, struct ms_symbol *symbols, size_t count);

/* The name, ended by a zero byte and cut to the room; its length. */
size_t ms_elf_name(const struct ms_elf *elf, uint64_t name_at, char *out, size_t room);

/* Opens the file that a module's definition means: at its own path, else in modules_dir (may be
 * null): .build-id/ab/cdef..., its path below it, its file name. A file of another build is none.
 * `path` becomes where it was found. */
bool ms_symbols_open(struct ms_elf *elf, const struct ms_module_definition *module,
                     const char *module_path, const char *modules_dir, char *path,
                     size_t path_bytes);

/* The same for the file of its debugging information, which lies apart: by build id in modules_dir
 * and /usr/lib/debug, else by .gnu_debuglink beside it, in .debug and in /usr/lib/debug. */
bool ms_symbols_open_debug(struct ms_elf *debug, const struct ms_elf *elf, const char *elf_path,
                           const char *modules_dir, char *path, size_t path_bytes);

#endif
