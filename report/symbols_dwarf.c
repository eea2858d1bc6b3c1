#include "report/symbols_dwarf.h"

#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#define LIBRARY      "libdw.so.1"
#define MOST_UNITS   (1u << 20)
#define MOST_NESTING 64 /* of scopes and inlined functions in one another */
#define FIRST_SPANS  64u
#define LIBDW_FUNCTIONS(F)  \
    F(dwarf_attr_integrate) \
    F(dwarf_begin)          \
    F(dwarf_child)          \
    F(dwarf_dieoffset)      \
    F(dwarf_end)            \
    F(dwarf_filesrc)        \
    F(dwarf_formstring)     \
    F(dwarf_formudata)      \
    F(dwarf_getsrc_die)     \
    F(dwarf_getsrcfiles)    \
    F(dwarf_haspc)          \
    F(dwarf_lineno)         \
    F(dwarf_linesrc)        \
    F(dwarf_nextcu)         \
    F(dwarf_offdie)         \
    F(dwarf_ranges)         \
    F(dwarf_siblingof)      \
    F(dwarf_tag)

#define MEMBER(name) __typeof__ (&(name))(name);
static struct {
    LIBDW_FUNCTIONS(MEMBER)
} libdw;
#undef MEMBER

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool usable;

/* A range of addresses that a DIE covers. */
struct span {
    Dwarf_Addr start, end;
    Dwarf_Off die;
    size_t unit; /* index, of a unit's span */
};

struct spans {
    struct span *at;
    size_t count, room;
};

struct unit {
    struct spans functions; /* sorted by start */
    bool known;
};

struct ms_dwarf {
    int fd;
    Dwarf *dwarf;
    struct spans unit_spans; /* sorted by start */
    struct unit *units;
    size_t unit_count;
};

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

static bool add_span(struct spans *spans, const struct span *span)
{
    if (spans->count == spans->room) {
        const size_t room = spans->room ? spans->room * 2 : FIRST_SPANS;
        struct span *at = realloc(spans->at, room * sizeof(*at));

        if (!at) {
            return false;
        }
        spans->at = at;
        spans->room = room;
    }
    spans->at[spans->count++] = *span;
    return true;
}

static void add_ranges(struct spans *spans, Dwarf_Die *die, size_t unit)
{
    struct span span = {.die = libdw.dwarf_dieoffset(die), .unit = unit};
    Dwarf_Addr base;
    ptrdiff_t at = 0;

    while ((at = libdw.dwarf_ranges(die, at, &base, &span.start, &span.end)) > 0) {
        if (span.start < span.end && !add_span(spans, &span)) {
            return;
        }
    }
}

static int compare(const void *left, const void *right)
{
    const struct span *a = left, *b = right;

    return (a->start > b->start) - (a->start < b->start);
}

static void sort(struct spans *spans)
{
    if (spans->count > 0) {
        qsort(spans->at, spans->count, sizeof(*spans->at), compare);
    }
}

static const struct span *find_span(const struct spans *spans, Dwarf_Addr address)
{
    size_t low = 0, high = spans->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (spans->at[middle].start <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 && address < spans->at[low - 1].end ? &spans->at[low - 1] : NULL;
}

static bool list_units(struct ms_dwarf *dwarf)
{
    Dwarf_Off at = 0, next;
    size_t header_bytes;

    while (dwarf->unit_count < MOST_UNITS &&
           libdw.dwarf_nextcu(dwarf->dwarf, at, &next, &header_bytes, NULL, NULL, NULL) == 0) {
        Dwarf_Die die;

        if (libdw.dwarf_offdie(dwarf->dwarf, at + header_bytes, &die)) {
            add_ranges(&dwarf->unit_spans, &die, dwarf->unit_count);
        }
        dwarf->unit_count++;
        at = next;
    }
    sort(&dwarf->unit_spans);
    dwarf->units = calloc(dwarf->unit_count + 1, sizeof(*dwarf->units));
    return dwarf->units;
}

ms_dwarf_t *ms_dwarf_open(const char *path)
{
    struct ms_dwarf *dwarf;

    pthread_once(&once, load);
    dwarf = usable ? calloc(1, sizeof(*dwarf)) : NULL;
    if (!dwarf) {
        return NULL;
    }
    dwarf->fd = open(path, O_RDONLY | O_CLOEXEC);
    dwarf->dwarf = dwarf->fd < 0 ? NULL : libdw.dwarf_begin(dwarf->fd, DWARF_C_READ);
    if (!dwarf->dwarf || !list_units(dwarf)) {
        ms_dwarf_close(dwarf);
        return NULL;
    }
    return dwarf;
}

void ms_dwarf_close(ms_dwarf_t *dwarf)
{
    if (!dwarf) {
        return;
    }
    for (size_t i = 0; dwarf->units && i < dwarf->unit_count; i++) {
        free(dwarf->units[i].functions.at);
    }
    free(dwarf->units);
    free(dwarf->unit_spans.at);
    if (dwarf->dwarf) {
        libdw.dwarf_end(dwarf->dwarf);
    }
    if (dwarf->fd >= 0) {
        close(dwarf->fd);
    }
    free(dwarf);
}

/* Functions stand in the unit itself, in namespaces and, some compilers', in classes. */
static void list_functions(struct spans *functions, Dwarf_Die *parent, int depth)
{
    Dwarf_Die die;
    int ended = depth < MOST_NESTING ? libdw.dwarf_child(parent, &die) : 1;

    for (; ended == 0; ended = libdw.dwarf_siblingof(&die, &die)) {
        switch (libdw.dwarf_tag(&die)) {
        case DW_TAG_subprogram:
            add_ranges(functions, &die, 0);
            break;
        case DW_TAG_namespace:
        case DW_TAG_module:
        case DW_TAG_class_type:
        case DW_TAG_structure_type:
            list_functions(functions, &die, depth + 1);
            break;
        default:
            break;
        }
    }
}

static const char *name_of(Dwarf_Die *die)
{
    static const unsigned names[] = {DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        Dwarf_Attribute attribute;
        const char *name = libdw.dwarf_attr_integrate(die, names[i], &attribute)
                               ? libdw.dwarf_formstring(&attribute)
                               : NULL;

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

    return libdw.dwarf_attr_integrate(die, name, &attribute) &&
                   libdw.dwarf_formudata(&attribute, &value) == 0
               ? value
               : 0;
}

/* The scopes around an address that are functions, outermost first. */
struct nest {
    Dwarf_Die functions[MOST_NESTING];
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
            if (tag == DW_TAG_inlined_subroutine && nest->count < MOST_NESTING) {
                nest->functions[nest->count++] = die;
            }
            descend(nest, &die, address, depth + 1);
            return;
        }
    }
}

static void set_line(Dwarf_Die *unit, Dwarf_Addr address, struct ms_source *out)
{
    Dwarf_Line *line = libdw.dwarf_getsrc_die(unit, address);
    int number;

    if (line && libdw.dwarf_lineno(line, &number) == 0 && number > 0) {
        out->line = (uint32_t)number;
        out->file = libdw.dwarf_linesrc(line, NULL, NULL);
    }
}

/* Where an inlined function stands in the function that it was put into. */
static void set_call(Dwarf_Die *unit, Dwarf_Die *inlined, struct ms_source *out)
{
    const Dwarf_Word file = number_of(inlined, DW_AT_call_file);
    Dwarf_Files *files;
    size_t count;

    out->line = (uint32_t)number_of(inlined, DW_AT_call_line);
    if (libdw.dwarf_getsrcfiles(unit, &files, &count) == 0 && file < count) {
        out->file = libdw.dwarf_filesrc(files, file, NULL, NULL);
    }
}

size_t ms_dwarf_find(ms_dwarf_t *dwarf, uint64_t address, struct ms_source *out, size_t room)
{
    const struct span *around = find_span(&dwarf->unit_spans, address);
    struct nest nest = {.count = 0};
    Dwarf_Die unit_die;
    size_t count = 0;

    if (room == 0 || !around || !libdw.dwarf_offdie(dwarf->dwarf, around->die, &unit_die)) {
        return 0;
    }

    struct unit *unit = &dwarf->units[around->unit];

    if (!unit->known) {
        list_functions(&unit->functions, &unit_die, 0);
        sort(&unit->functions);
        unit->known = true;
    }

    const struct span *function = find_span(&unit->functions, address);

    if (function && libdw.dwarf_offdie(dwarf->dwarf, function->die, &nest.functions[nest.count])) {
        nest.count++;
        descend(&nest, &nest.functions[0], address, 0);
    }
    out[0] = (struct ms_source){0};
    set_line(&unit_die, address, &out[0]);
    for (size_t i = nest.count; i > 0; i--) {
        out[count].function = name_of(&nest.functions[i - 1]);
        if (++count == room || i == 1) {
            break;
        }
        out[count] = (struct ms_source){0};
        set_call(&unit_die, &nest.functions[i - 1], &out[count]);
    }
    if (count == 0 && out[0].line > 0) {
        return 1;
    }
    return count;
}
