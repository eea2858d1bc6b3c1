/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the symbol tables of files. */
#include "shim/driver/nccl_code.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/cancel.h"

#define ENTRY "ncclCommInitRank" /* the first call of every user of NCCL (nccl.h) */

struct function {
    uintptr_t begin, end;
};

struct ms_nccl_code {
    size_t count;
    struct function functions[]; /* by address */
};

bool ms_nccl_exported(const struct ms_loaded_elf *elf)
{
    return elf->path[0] != '\0' && elf->symbols != NULL && ms_elf_function(elf, ENTRY) != NULL;
}

/* --- the file --------------------------------------------------------------------------------- */

struct file {
    const char *at;
    size_t bytes;
};

static struct file map_file(const char *path)
{
    struct file file = {0};
    struct stat status;
    path = path[0] != '\0' ? path : ms_elf_loader_argument();
    int fd = open(path[0] != '\0' ? path : "/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &status) == 0 && status.st_size >= (off_t)sizeof(ElfW(Ehdr))) {
        void *at = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at != MAP_FAILED) {
            file = (struct file){at, (size_t)status.st_size};
        }
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return file;
}

static bool holds(const struct file *file, uint64_t offset, uint64_t bytes)
{
    return offset <= file->bytes && bytes <= file->bytes - offset;
}

struct symbols {
    const ElfW(Sym) * at;
    size_t count;
    const char *names;
    size_t names_bytes;
};

/* Finds .symtab. */
static bool find_symbols(const struct file *file, struct symbols *out)
{
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)file->at;
    const ElfW(Shdr) *sections = (const ElfW(Shdr) *)(file->at + header->e_shoff);
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_shoff % 8 != 0 ||
        header->e_shentsize != sizeof *sections ||
        !holds(file, header->e_shoff, (uint64_t)header->e_shnum * sizeof *sections)) {
        return false;
    }
    for (size_t i = 0; i < header->e_shnum; i++) {
        const ElfW(Shdr) *table = &sections[i];
        if (table->sh_type != SHT_SYMTAB || table->sh_link >= header->e_shnum) {
            continue;
        }
        const ElfW(Shdr) *names = &sections[table->sh_link];
        if (table->sh_offset % 8 != 0 || !holds(file, table->sh_offset, table->sh_size) ||
            !holds(file, names->sh_offset, names->sh_size) || names->sh_size == 0 ||
            file->at[names->sh_offset + names->sh_size - 1] != '\0') {
            return false;
        }
        *out = (struct symbols){.at = (const ElfW(Sym) *)(file->at + table->sh_offset),
                                .count = table->sh_size / sizeof(ElfW(Sym)),
                                .names = file->at + names->sh_offset,
                                .names_bytes = names->sh_size};
        return true;
    }
    return false;
}

/* Whether it is a function of the interface, or a C++ function whose mangled name contains a type
 * of NCCL's. */
static bool is_nccl(const char *name)
{
    return strncmp(name, "nccl", 4) == 0 || strncmp(name, "pnccl", 5) == 0 ||
           (strncmp(name, "_Z", 2) == 0 && strstr(name, "nccl") != NULL);
}

static const char *function_name(const struct symbols *symbols, size_t i)
{
    const ElfW(Sym) *symbol = &symbols->at[i];
    bool function = ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF &&
                    symbol->st_name < symbols->names_bytes;
    return function ? symbols->names + symbol->st_name : "";
}

static int by_address(const void *a, const void *b)
{
    const struct function *left = a;
    const struct function *right = b;
    return left->begin > right->begin ? 1 : -(left->begin < right->begin);
}

static struct ms_nccl_code *collect(const struct symbols *symbols, uintptr_t base)
{
    size_t count = 0;
    bool linked = false;
    for (size_t i = 0; i < symbols->count; i++) {
        const char *name = function_name(symbols, i);
        count += is_nccl(name);
        linked = linked || strcmp(name, ENTRY) == 0;
    }
    struct ms_nccl_code *code =
        linked ? malloc(sizeof *code + count * sizeof code->functions[0]) : NULL;
    if (!code) {
        return NULL;
    }
    code->count = 0;
    for (size_t i = 0; i < symbols->count; i++) {
        if (is_nccl(function_name(symbols, i))) {
            uintptr_t begin = base + symbols->at[i].st_value;
            code->functions[code->count++] =
                (struct function){begin, begin + symbols->at[i].st_size};
        }
    }
    qsort(code->functions, code->count, sizeof code->functions[0], by_address);
    return code;
}

const struct ms_nccl_code *ms_nccl_linked(const struct ms_loaded_elf *elf)
{
    struct symbols symbols;
    const int cancellation = ms_cancel_hold();
    struct file file = map_file(elf->path);
    ms_cancel_let(cancellation);
    const struct ms_nccl_code *code = NULL;
    if (file.at && find_symbols(&file, &symbols)) {
        code = collect(&symbols, elf->base);
    }
    if (file.at) {
        (void)munmap((void *)file.at, file.bytes);
    }
    return code;
}

bool ms_nccl_code_has(const struct ms_nccl_code *code, uintptr_t addr)
{
    size_t low = 0;
    size_t high = code ? code->count : 0;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code->functions[middle].end <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return code && low < code->count && code->functions[low].begin <= addr;
}
