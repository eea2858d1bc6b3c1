/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the file of a trace's module, and its symbols and lines, with elfutils' libdwfl.
 *
 * Addresses come sorted, so that one pass over the symbol table, and one over each unit of DWARF,
 * serves all of them without an index. */
#include "report/symbols/module_file.h"

#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/path.h"
#include "report/symbols/answers.h"

#define LIBRARY        "libdw.so.1"
#define DEBUG_ROOT     "/usr/lib/debug"
#define MOST_NESTING   64 /* of scopes and inlined functions in one another */
#define MOST_FUNCTIONS 32 /* at one address */
/* Loaded only when needed: without it a report still works, but has no names. libdw depends on
 * libelf, so this finds libelf's functions too. */
#define LIBDW_FUNCTIONS(F)          \
    F(dwarf_attr_integrate)         \
    F(dwarf_child)                  \
    F(dwarf_filesrc)                \
    F(dwarf_formstring)             \
    F(dwarf_formudata)              \
    F(dwarf_get_units)              \
    F(dwarf_getsrc_die)             \
    F(dwarf_getsrcfiles)            \
    F(dwarf_haspc)                  \
    F(dwarf_lineno)                 \
    F(dwarf_linesrc)                \
    F(dwarf_ranges)                 \
    F(dwarf_siblingof)              \
    F(dwarf_tag)                    \
    F(dwfl_begin)                   \
    F(dwfl_module_build_id)         \
    F(dwfl_module_getdwarf)         \
    F(dwfl_module_getsym_info)      \
    F(dwfl_module_getsymtab)        \
    F(dwfl_offline_section_address) \
    F(dwfl_report_begin)            \
    F(dwfl_report_elf)              \
    F(dwfl_report_end)              \
    F(dwfl_standard_find_debuginfo) \
    F(elf_getscn)                   \
    F(gelf_getshdr)

#define MEMBER(name) __typeof__ (&(name))(name);
static struct {
    LIBDW_FUNCTIONS(MEMBER)
} libdw;
#undef MEMBER

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool usable;

static void load(void)
{
    void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_LOCAL);

    if (!library) {
        return;
    }
    usable = true;
#define LOAD(name)                                 \
    *(void **)&libdw.name = dlsym(library, #name); \
    usable &= libdw.name != NULL;
    LIBDW_FUNCTIONS(LOAD)
#undef LOAD
}

bool ms_module_file_prepare(void)
{
    pthread_once(&once, load);
    return usable;
}

struct lookup {
    const struct ms_symbols_request *request;
    FILE *to;
    const char *modules_dir; /* null: none */
    Dwfl_Module *module;
    Dwarf_Addr bias; /* of DWARF's addresses */
    bool *answered;  /* by index: whether its lines were answered */
};

/* --- answers */

static void answer(const struct lookup *lookup, struct ms_answer is, const char *first,
                   const char *second)
{
    const char *const texts[MS_ANSWER_TEXTS] = {first, second};

    for (size_t i = 0; i < MS_ANSWER_TEXTS; i++) {
        is.text_bytes[i] = texts[i] ? (uint32_t)strnlen(texts[i], MS_ANSWER_TEXT_MOST - 1) : 0;
    }
    fwrite(&is, sizeof(is), 1, lookup->to);
    for (size_t i = 0; i < MS_ANSWER_TEXTS; i++) {
        fwrite(texts[i] ? texts[i] : "", 1, is.text_bytes[i], lookup->to);
    }
}

/* --- which file it is */

static bool is_build(Dwfl_Module *module, const struct ms_module_definition *wanted)
{
    const unsigned char *id;
    GElf_Addr unused;
    const int bytes = libdw.dwfl_module_build_id(module, &id, &unused);

    return bytes >= 0 && (uint32_t)bytes == wanted->build_id_bytes &&
           (bytes == 0 || memcmp(id, wanted->build_id, (size_t)bytes) == 0);
}

/* Opens the file if it is that build. A file without a build id is accepted only for a module
 * without one. Its addresses are those that it was linked with. */
static bool open_build(struct lookup *lookup, Dwfl *dwfl, const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat status;

    if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        return false;
    }
    libdw.dwfl_report_begin(dwfl);
    lookup->module = libdw.dwfl_report_elf(dwfl, path, path, fd, 0, true);
    libdw.dwfl_report_end(dwfl, NULL, NULL);
    return lookup->module && is_build(lookup->module, lookup->request->module);
}

/* dir/.build-id/ab/cdef..., the layout that debuggers use. */
static bool open_by_id(struct lookup *lookup, Dwfl *dwfl, const char *dir)
{
    const struct ms_module_definition *module = lookup->request->module;
    char hex[2 * MS_BUILD_ID_BYTES + 1], path[PATH_MAX];

    if (module->build_id_bytes < 2 || module->build_id_bytes > MS_BUILD_ID_BYTES) {
        return false;
    }
    for (uint32_t i = 0; i < module->build_id_bytes; i++) {
        snprintf(hex + (size_t)2 * i, 3, "%02x", module->build_id[i]);
    }

    const int bytes = snprintf(path, sizeof(path), "%s/.build-id/%.2s/%s", dir, hex, hex + 2);

    return bytes < PATH_MAX && open_build(lookup, dwfl, path);
}

static bool open_below(struct lookup *lookup, Dwfl *dwfl, const char *dir, const char *name)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof(path), "%s/%s", dir, name) < PATH_MAX &&
           open_build(lookup, dwfl, path);
}

static bool open_module(struct lookup *lookup, Dwfl *dwfl)
{
    const char *path = lookup->request->module_path, *modules_dir = lookup->modules_dir;

    return (path[0] == '/' && open_build(lookup, dwfl, path)) ||
           (modules_dir &&
            (open_by_id(lookup, dwfl, modules_dir) || open_below(lookup, dwfl, modules_dir, path) ||
             open_below(lookup, dwfl, modules_dir, ms_base_name(path))));
}

/* --- symbols */

/* The function around one address, as far as known. */
struct symbol {
    uint64_t start, end;
    const char *name; /* null: none yet */
    uint8_t rank;     /* preference among names with one start */
};

/* The first address that is not before `start`. */
static size_t first_from(const struct ms_symbols_request *request, uint64_t start)
{
    size_t low = 0, high = request->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (request->addresses[middle] < start) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Of several names for one place it prefers the exported one, which is the one in the source. */
static uint8_t rank_of(const GElf_Sym *symbol)
{
    switch (GELF_ST_BIND(symbol->st_info)) {
    case STB_GLOBAL:
        return 3;
    case STB_WEAK:
        return 2;
    default:
        return 1;
    }
}

/* A function without a size (hand-written) reaches to the next one within its section. */
static uint64_t end_of(const GElf_Sym *symbol, uint64_t start, Elf *elf, GElf_Word section,
                       Dwarf_Addr bias)
{
    GElf_Shdr header;

    if (symbol->st_size > 0) {
        return start + symbol->st_size;
    }
    return libdw.gelf_getshdr(libdw.elf_getscn(elf, section), &header)
               ? header.sh_addr + header.sh_size + bias
               : start;
}

/* Notes the symbol at the first address not before its start, unless the symbol noted there begins
 * later. So the nearest start before each address is noted at that address or at an earlier one. */
static void offer(const struct lookup *lookup, struct symbol *symbols, int number)
{
    const struct ms_symbols_request *request = lookup->request;
    GElf_Sym symbol;
    GElf_Addr start;
    GElf_Word section;
    Elf *elf;
    Dwarf_Addr bias;
    const char *name = libdw.dwfl_module_getsym_info(lookup->module, number, &symbol, &start,
                                                     &section, &elf, &bias);
    const int type = name ? GELF_ST_TYPE(symbol.st_info) : STT_NOTYPE;

    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || section == SHN_UNDEF || !name[0] ||
        start > request->addresses[request->count - 1]) {
        return;
    }

    struct symbol *to = &symbols[first_from(request, start)];
    const uint8_t rank = rank_of(&symbol);

    if (!to->name || start > to->start || (start == to->start && rank > to->rank)) {
        *to = (struct symbol){.start = start,
                              .end = end_of(&symbol, start, elf, section, bias),
                              .name = name,
                              .rank = rank};
    }
}

static void answer_symbol(const struct lookup *lookup, size_t index, const char *name)
{
    char plain[MS_FUNCTION_NAME_BYTES], readable[MS_FUNCTION_NAME_BYTES];

    /* Without the symbol's version: main@@V1. */
    snprintf(plain, sizeof(plain), "%.*s", (int)strcspn(name, "@"), name);
    if (plain[0]) {
        ms_demangle(plain, readable, sizeof(readable));
        answer(lookup, (struct ms_answer){.kind = MS_ANSWER_SYMBOL, .index = (uint32_t)index},
               plain, readable);
    }
}

/* Uses .symtab, wherever it is, else .dynsym. */
static void look_up_symbols(const struct lookup *lookup)
{
    const size_t count = lookup->request->count;
    struct symbol *symbols = calloc(count, sizeof(*symbols));
    const int total = symbols ? libdw.dwfl_module_getsymtab(lookup->module) : 0;

    for (int i = 0; i < total; i++) {
        offer(lookup, symbols, i);
    }
    for (size_t i = 0; i < count && total > 0; i++) {
        if (i > 0 && !symbols[i].name) {
            symbols[i] = symbols[i - 1];
        }
        if (symbols[i].name && lookup->request->addresses[i] < symbols[i].end) {
            answer_symbol(lookup, i, symbols[i].name);
        }
    }
    free(symbols);
}

/* --- lines */

static const char *name_of(Dwarf_Die *die)
{
    static const unsigned names[] = {DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        Dwarf_Attribute attribute;
        const char *name =
            libdw.dwarf_formstring(libdw.dwarf_attr_integrate(die, names[i], &attribute));

        if (name) {
            return name;
        }
    }
    return NULL;
}

static Dwarf_Word number_of(Dwarf_Die *die, unsigned name)
{
    Dwarf_Attribute attribute;
    Dwarf_Word value;

    return libdw.dwarf_formudata(libdw.dwarf_attr_integrate(die, name, &attribute), &value) == 0
               ? value
               : 0;
}

static struct ms_source line_at(Dwarf_Die *unit, Dwarf_Addr address)
{
    struct ms_source source = {0};
    Dwarf_Line *line = libdw.dwarf_getsrc_die(unit, address);
    int number;

    if (line && libdw.dwarf_lineno(line, &number) == 0 && number > 0) {
        source.line = (uint32_t)number;
        source.file = libdw.dwarf_linesrc(line, NULL, NULL);
    }
    return source;
}

/* Where an inlined function was called in the function that it was inlined into. */
static struct ms_source call_of(Dwarf_Die *unit, Dwarf_Die *inlined)
{
    struct ms_source source = {.line = (uint32_t)number_of(inlined, DW_AT_call_line)};
    const Dwarf_Word file = number_of(inlined, DW_AT_call_file);
    Dwarf_Files *files;
    size_t count;

    if (libdw.dwarf_getsrcfiles(unit, &files, &count) == 0 && file < count) {
        source.file = libdw.dwarf_filesrc(files, file, NULL, NULL);
    }
    return source;
}

/* A function, and the functions inlined into it and each other around one address. */
struct nest {
    Dwarf_Die functions[MOST_FUNCTIONS]; /* outermost first */
    size_t count;
};

static void descend(struct nest *nest, Dwarf_Die *parent, Dwarf_Addr address, int depth)
{
    Dwarf_Die die;
    int ended = depth < MOST_NESTING ? libdw.dwarf_child(parent, &die) : 1;

    for (; ended == 0; ended = libdw.dwarf_siblingof(&die, &die)) {
        const int tag = libdw.dwarf_tag(&die);

        if ((tag == DW_TAG_inlined_subroutine || tag == DW_TAG_lexical_block) &&
            libdw.dwarf_haspc(&die, address) > 0) {
            if (tag == DW_TAG_inlined_subroutine && nest->count < MOST_FUNCTIONS) {
                nest->functions[nest->count++] = die;
            }
            descend(nest, &die, address, depth + 1);
            return;
        }
    }
}

static void answer_source(const struct lookup *lookup, size_t index, const struct ms_source *source,
                          bool inlined)
{
    char readable[MS_FUNCTION_NAME_BYTES] = "";

    if (source->function) {
        ms_demangle(source->function, readable, sizeof(readable));
    }
    answer(lookup,
           (struct ms_answer){.kind = inlined ? MS_ANSWER_INLINED : MS_ANSWER_FUNCTION,
                              .index = (uint32_t)index,
                              .line = source->line},
           readable, source->file);
}

/* Answers an address's lines. function: the one around the address; null: unknown, and only its
 * line is given. */
static void answer_lines(struct lookup *lookup, size_t index, Dwarf_Die *unit, Dwarf_Die *function)
{
    const Dwarf_Addr address = lookup->request->addresses[index] - lookup->bias;
    struct ms_source source = line_at(unit, address);
    struct nest nest = {.count = 0};

    if (function) {
        nest.functions[nest.count++] = *function;
        descend(&nest, function, address, 0);
    }
    if (nest.count == 0 && source.line == 0) {
        return;
    }
    for (size_t i = nest.count; i > 0; i--) {
        Dwarf_Die *die = &nest.functions[i - 1];

        source.function = name_of(die);
        if (i > 1) {
            answer_source(lookup, index, &source, true);
            source = call_of(unit, die);
        }
    }
    answer_source(lookup, index, &source, false);
    lookup->answered[index] = true;
}

/* Answers the lines of all addresses in the ranges of `of` that have none yet. */
static void answer_ranges(struct lookup *lookup, Dwarf_Die *unit, Dwarf_Die *of, bool is_function)
{
    const struct ms_symbols_request *request = lookup->request;
    Dwarf_Addr base, start, end;
    ptrdiff_t at = 0;

    while ((at = libdw.dwarf_ranges(of, at, &base, &start, &end)) > 0) {
        for (size_t i = first_from(request, start + lookup->bias);
             i < request->count && request->addresses[i] < end + lookup->bias; i++) {
            if (!lookup->answered[i]) {
                answer_lines(lookup, i, unit, is_function ? of : NULL);
            }
        }
    }
}

/* Functions are in the unit itself, in namespaces and, with some compilers, in classes. */
static void answer_functions(struct lookup *lookup, Dwarf_Die *unit, Dwarf_Die *parent, int depth)
{
    Dwarf_Die die;
    int ended = depth < MOST_NESTING ? libdw.dwarf_child(parent, &die) : 1;

    for (; ended == 0; ended = libdw.dwarf_siblingof(&die, &die)) {
        switch (libdw.dwarf_tag(&die)) {
        case DW_TAG_subprogram:
            answer_ranges(lookup, unit, &die, true);
            break;
        case DW_TAG_namespace:
        case DW_TAG_module:
        case DW_TAG_class_type:
        case DW_TAG_structure_type:
            answer_functions(lookup, unit, &die, depth + 1);
            break;
        default:
            break;
        }
    }
}

/* Whether one of the requested addresses lies in the unit. */
static bool is_asked(const struct lookup *lookup, Dwarf_Die *unit)
{
    const struct ms_symbols_request *request = lookup->request;
    Dwarf_Addr base, start, end;
    ptrdiff_t at = 0;

    while ((at = libdw.dwarf_ranges(unit, at, &base, &start, &end)) > 0) {
        const size_t first = first_from(request, start + lookup->bias);

        if (first < request->count && request->addresses[first] < end + lookup->bias) {
            return true;
        }
    }
    return false;
}

/* Goes through all units: some compilers leave out .debug_aranges, the index of them. */
static void look_up_lines(struct lookup *lookup)
{
    Dwarf *dwarf = libdw.dwfl_module_getdwarf(lookup->module, &lookup->bias);
    Dwarf_CU *at = NULL;
    Dwarf_Die unit;

    lookup->answered = calloc(lookup->request->count, sizeof(*lookup->answered));
    while (dwarf && lookup->answered &&
           libdw.dwarf_get_units(dwarf, at, &at, NULL, NULL, &unit, NULL) == 0) {
        if (is_asked(lookup, &unit)) {
            answer_functions(lookup, &unit, &unit, 0);
            answer_ranges(lookup, &unit, &unit, false);
        }
    }
    free(lookup->answered);
}

void ms_module_file_answer(const struct ms_symbols_request *request, FILE *to)
{
    char dir[PATH_MAX], path[PATH_MAX + sizeof(":.debug::" DEBUG_ROOT)], *debug_path = path;
    const bool has_dir = request->modules_dir && realpath(request->modules_dir, dir);
    const Dwfl_Callbacks callbacks = {.find_debuginfo = libdw.dwfl_standard_find_debuginfo,
                                      .section_address = libdw.dwfl_offline_section_address,
                                      .debuginfo_path = &debug_path};
    struct lookup lookup = {.request = request, .to = to, .modules_dir = has_dir ? dir : NULL};
    Dwfl *dwfl;

    snprintf(path, sizeof(path), ":.debug:%s%s" DEBUG_ROOT, has_dir ? dir : "", has_dir ? ":" : "");
    unsetenv("DEBUGINFOD_URLS"); /* a report asks no server */
    dwfl = libdw.dwfl_begin(&callbacks);
    if (dwfl && request->count > 0 && open_module(&lookup, dwfl)) {
        look_up_symbols(&lookup);
        if (request->lines) {
            look_up_lines(&lookup);
        }
    }
}
