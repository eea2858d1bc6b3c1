#include "report/symbols.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_SYMBOLS    4096u
#define MOST_SYMBOLS     (16u << 20) /* of one table; the largest libraries have a million */
#define MOST_NOTE_BYTES  65536u
#define SECTION_NAME_MAX 32u

/* All of it, or nothing. */
static bool read_at(const struct ms_elf *elf, uint64_t at, void *to, size_t bytes)
{
    size_t done = 0;

    if (at > elf->bytes || bytes > elf->bytes - at) {
        return false;
    }
    while (done < bytes) {
        const ssize_t got = pread(elf->fd, (char *)to + done, bytes - done, (off_t)(at + done));

        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static bool read_header(struct ms_elf *elf)
{
    Elf64_Ehdr header;

    if (!read_at(elf, 0, &header, sizeof(header)) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
        return false;
    }
    if (header.e_shentsize == sizeof(Elf64_Shdr)) {
        elf->sections_at = header.e_shoff;
        elf->section_count = header.e_shnum;
    }
    if (header.e_phentsize == sizeof(Elf64_Phdr)) {
        elf->programs_at = header.e_phoff;
        elf->program_count = header.e_phnum;
    }
    return true;
}

bool ms_elf_open(struct ms_elf *elf, const char *path)
{
    struct stat status;

    *elf = (struct ms_elf){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    if (elf->fd < 0) {
        return false;
    }
    if (fstat(elf->fd, &status) == 0 && S_ISREG(status.st_mode)) {
        elf->bytes = (uint64_t)status.st_size;
        if (read_header(elf)) {
            return true;
        }
    }
    ms_elf_close(elf);
    return false;
}

void ms_elf_close(struct ms_elf *elf)
{
    if (elf->fd >= 0) {
        close(elf->fd);
    }
    elf->fd = -1;
}

static bool read_section(const struct ms_elf *elf, uint32_t index, Elf64_Shdr *out)
{
    return index < elf->section_count &&
           elf->sections_at <= elf->bytes && /* so that the sum cannot wrap */
           read_at(elf, elf->sections_at + (uint64_t)index * sizeof(*out), out, sizeof(*out));
}

/* The build id in a run of notes; its length, 0: none. */
static uint32_t find_build_id(const struct ms_elf *elf, struct ms_elf_part notes,
                              uint8_t id[MS_BUILD_ID_BYTES])
{
    const uint64_t end = notes.bytes < MOST_NOTE_BYTES ? notes.bytes : MOST_NOTE_BYTES;
    uint64_t at = 0;

    while (at + sizeof(Elf64_Nhdr) <= end) {
        Elf64_Nhdr note;
        char name[sizeof(ELF_NOTE_GNU)];

        if (notes.at > elf->bytes || !read_at(elf, notes.at + at, &note, sizeof(note))) {
            return 0;
        }

        const uint64_t name_at = at + sizeof(note);
        const uint64_t id_at = name_at + (((uint64_t)note.n_namesz + 3) & ~UINT64_C(3));

        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof(name) && note.n_descsz > 0 &&
            note.n_descsz <= MS_BUILD_ID_BYTES &&
            read_at(elf, notes.at + name_at, name, sizeof(name)) &&
            memcmp(name, ELF_NOTE_GNU, sizeof(name)) == 0) {
            return read_at(elf, notes.at + id_at, id, note.n_descsz) ? note.n_descsz : 0;
        }
        at = id_at + (((uint64_t)note.n_descsz + 3) & ~UINT64_C(3));
    }
    return 0;
}

/* Sections first: in a file of debugging information only they say where its notes are. */
uint32_t ms_elf_build_id(const struct ms_elf *elf, uint8_t id[MS_BUILD_ID_BYTES])
{
    uint32_t bytes = 0;
    Elf64_Shdr section;

    for (uint32_t i = 0; bytes == 0 && read_section(elf, i, &section); i++) {
        if (section.sh_type == SHT_NOTE) {
            bytes =
                find_build_id(elf, (struct ms_elf_part){section.sh_offset, section.sh_size}, id);
        }
    }
    for (uint32_t i = 0; bytes == 0 && i < elf->program_count; i++) {
        Elf64_Phdr program;

        if (elf->programs_at > elf->bytes ||
            !read_at(elf, elf->programs_at + (uint64_t)i * sizeof(program), &program,
                     sizeof(program))) {
            break;
        }
        if (program.p_type == PT_NOTE) {
            bytes =
                find_build_id(elf, (struct ms_elf_part){program.p_offset, program.p_filesz}, id);
        }
    }
    return bytes;
}

size_t ms_elf_name(const struct ms_elf *elf, uint64_t name_at, char *out, size_t room)
{
    const uint64_t left = name_at < elf->bytes ? elf->bytes - name_at : 0;
    const size_t bytes = left < room - 1 ? (size_t)left : room - 1;

    out[0] = 0;
    if (bytes == 0 || !read_at(elf, name_at, out, bytes)) {
        return 0;
    }
    out[bytes] = 0;
    return strlen(out);
}

static bool section_named(const struct ms_elf *elf, const char *wanted, struct ms_elf_part *out)
{
    Elf64_Ehdr header;
    Elf64_Shdr names, section;

    if (!read_at(elf, 0, &header, sizeof(header)) ||
        !read_section(elf, header.e_shstrndx, &names) || names.sh_offset > elf->bytes) {
        return false;
    }
    for (uint32_t i = 0; read_section(elf, i, &section); i++) {
        char name[SECTION_NAME_MAX];

        ms_elf_name(elf, names.sh_offset + section.sh_name, name, sizeof(name));
        if (strcmp(name, wanted) == 0) {
            *out = (struct ms_elf_part){section.sh_offset, section.sh_size};
            return true;
        }
    }
    return false;
}

bool ms_elf_debug_link(const struct ms_elf *elf, char *name, size_t name_bytes)
{
    struct ms_elf_part part;

    return section_named(elf, ".gnu_debuglink", &part) &&
           ms_elf_name(elf, part.at, name, name_bytes) > 0 && !strchr(name, '/') &&
           strcmp(name, "..") != 0;
}

/* A symbol table and the names it points into. */
struct table {
    struct ms_elf_part symbols, names;
};

static bool find_table(const struct ms_elf *elf, uint32_t type, struct table *out)
{
    Elf64_Shdr section, names;

    for (uint32_t i = 0; read_section(elf, i, &section); i++) {
        if (section.sh_type == type && section.sh_entsize == sizeof(Elf64_Sym) &&
            section.sh_size >= sizeof(Elf64_Sym) && read_section(elf, section.sh_link, &names) &&
            names.sh_type == SHT_STRTAB && names.sh_offset < elf->bytes &&
            section.sh_offset < elf->bytes) {
            out->symbols = (struct ms_elf_part){section.sh_offset, section.sh_size};
            out->names = (struct ms_elf_part){names.sh_offset, names.sh_size};
            return true;
        }
    }
    return false;
}

bool ms_elf_has_full_table(const struct ms_elf *elf)
{
    struct table table;

    return find_table(elf, SHT_SYMTAB, &table);
}

/* Of several names for one place the exported one, which is the one that people wrote. */
static uint8_t rank_of(const Elf64_Sym *symbol)
{
    switch (ELF64_ST_BIND(symbol->st_info)) {
    case STB_GLOBAL:
        return 3;
    case STB_WEAK:
        return 2;
    default:
        return 1;
    }
}

static bool is_function(const Elf64_Sym *symbol)
{
    const unsigned type = ELF64_ST_TYPE(symbol->st_info);

    return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol->st_shndx != SHN_UNDEF &&
           symbol->st_name != 0;
}

/* The first of them that does not lie before `start`. */
static size_t first_from(const struct ms_symbol *symbols, size_t count, uint64_t start)
{
    size_t low = 0, high = count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (symbols[middle].address < start) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Notes the symbol at the first address that it does not lie behind, if none that is noted there
 * begins later: the nearest beginning before each address is then noted at it or before it. */
static void offer(struct ms_symbol *symbols, size_t count, const Elf64_Sym *symbol,
                  const struct ms_elf_part *names)
{
    if (!is_function(symbol) || symbol->st_value > symbols[count - 1].address ||
        symbol->st_name >= names->bytes) {
        return;
    }

    struct ms_symbol *to = &symbols[first_from(symbols, count, symbol->st_value)];
    const uint8_t rank = rank_of(symbol);

    if (!to->name_at || symbol->st_value > to->start ||
        (symbol->st_value == to->start && rank > to->rank)) {
        to->start = symbol->st_value;
        to->bytes = symbol->st_size;
        to->name_at = names->at + symbol->st_name;
        to->section = symbol->st_shndx;
        to->rank = rank;
    }
}

/* A function without a size (hand-written) goes on to the next one, within its section. */
static bool reaches(const struct ms_elf *elf, const struct ms_symbol *symbol)
{
    Elf64_Shdr section;

    if (symbol->bytes > 0) {
        return symbol->address - symbol->start < symbol->bytes;
    }
    return read_section(elf, symbol->section, &section) &&
           symbol->address - section.sh_addr < section.sh_size;
}

/* Hands what is noted on to the addresses behind it, then drops what ends before its address. */
static void settle(const struct ms_elf *elf, struct ms_symbol *symbols, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (!symbols[i].name_at) {
            const uint64_t address = symbols[i].address;

            symbols[i] = symbols[i - 1];
            symbols[i].address = address;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (symbols[i].name_at && !reaches(elf, &symbols[i])) {
            symbols[i].name_at = 0;
        }
    }
}

bool ms_elf_find(const struct ms_elf *elf, struct ms_symbol *symbols, size_t count)
{
    struct table table;
    const size_t block_bytes = BLOCK_SYMBOLS * sizeof(Elf64_Sym);

    for (size_t i = 0; i < count; i++) {
        symbols[i] = (struct ms_symbol){.address = symbols[i].address};
    }
    if (count == 0 ||
        !(find_table(elf, SHT_SYMTAB, &table) || find_table(elf, SHT_DYNSYM, &table))) {
        return false;
    }

    Elf64_Sym *block =
        mmap(NULL, block_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t left = table.symbols.bytes / sizeof(Elf64_Sym);

    if (block == MAP_FAILED) {
        return false;
    }
    left = left < MOST_SYMBOLS ? left : MOST_SYMBOLS;
    for (uint64_t at = table.symbols.at; left > 0;) {
        const size_t some = left < BLOCK_SYMBOLS ? (size_t)left : BLOCK_SYMBOLS;

        if (!read_at(elf, at, block, some * sizeof(Elf64_Sym))) {
            break;
        }
        for (size_t i = 0; i < some; i++) {
            offer(symbols, count, &block[i], &table.names);
        }
        at += some * sizeof(Elf64_Sym);
        left -= some;
    }
    munmap(block, block_bytes);
    settle(elf, symbols, count);
    return true;
}
