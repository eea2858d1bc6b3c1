#include "report/stacks_places.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report/buffer.h"
#include "report/demangle.h"
#include "report/stacks_roles.h"
#include "report/symbols.h"
#include "report/symbols_dwarf.h"

#define MOST_SOURCES 32u /* functions at one address */

/* A distinct address. Sorted by module, then address. */
struct spot {
    uint32_t module, node; /* node: one that means it */
    uint64_t address;      /* of the instruction: a call's, not what it returns to */
    bool exact;
    const char *symbol; /* as the table has it; null: not known */
    struct ms_place place;
};

/* A module's spots, next to each other. */
struct group {
    size_t first, count;
    bool resolved;
    ms_dwarf_t *dwarf; /* owned; null: none, or none wanted */
};

struct ms_places {
    const ms_definitions_t *definitions;
    enum ms_stacks_effort effort;
    const char *modules_dir;
    uint64_t budget_ns, spent_ns;
    struct ms_slabs *slabs;
    struct ms_buffer spot_of; /* by node: uint32_t, index of its spot + 1 */
    struct ms_buffer spots;   /* struct spot */
    struct ms_buffer groups;  /* by module: struct group */
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The element of that index, after making room for it; null: no memory. */
static void *element(struct ms_buffer *buffer, size_t index, size_t bytes)
{
    const size_t end = (index + 1) * bytes;

    if (end > buffer->bytes && !ms_buffer_extend(buffer, end - buffer->bytes)) {
        return NULL;
    }
    return buffer->at + index * bytes;
}

static size_t spot_count(const struct ms_places *places)
{
    return places->spots.bytes / sizeof(struct spot);
}

static struct spot *spot_at(const struct ms_places *places, size_t index)
{
    return (struct spot *)places->spots.at + index;
}

/* Notes a node and those it was called from, up to one that is noted already. */
static bool gather(struct ms_places *places, uint32_t node)
{
    const struct ms_native_definition *is;

    while ((is = ms_definitions_native(places->definitions, node))) {
        uint32_t *mark = element(&places->spot_of, node, sizeof(*mark));

        if (!mark) {
            return false;
        }
        if (*mark) {
            break;
        }
        *mark = 1;

        struct spot *spot = element(&places->spots, spot_count(places), sizeof(*spot));

        if (!spot) {
            return false;
        }
        *spot = (struct spot){.module = ms_definitions_module(places->definitions, is->module)
                                            ? is->module
                                            : 0, /* so that ids are small numbers */
                              .node = node,
                              .address = is->address - (is->exact || is->address == 0 ? 0 : 1),
                              .exact = is->exact};
        node = is->caller;
    }
    return true;
}

static int compare(const void *left, const void *right)
{
    const struct spot *a = left, *b = right;

    if (a->module != b->module) {
        return a->module < b->module ? -1 : 1;
    }
    if (a->address != b->address) {
        return a->address < b->address ? -1 : 1;
    }
    return (int)a->exact - (int)b->exact;
}

/* Sorts them, makes one of those that are the same, and tells nodes and modules where they are. */
static bool arrange(struct ms_places *places)
{
    const size_t count = spot_count(places);
    uint32_t *spot_of = (uint32_t *)places->spot_of.at;
    size_t kept = 0;

    if (count > 0) {
        qsort(places->spots.at, count, sizeof(struct spot), compare);
    }
    for (size_t i = 0; i < count; i++) {
        const struct spot *spot = spot_at(places, i);

        if (kept == 0 || compare(spot, spot_at(places, kept - 1)) != 0) {
            struct group *group = element(&places->groups, spot->module, sizeof(*group));

            if (!group) {
                return false;
            }
            group->first = group->count ? group->first : kept;
            group->count++;
            *spot_at(places, kept++) = *spot;
        }
        spot_of[spot_at(places, i)->node] = (uint32_t)kept;
    }
    places->spots.bytes = kept * sizeof(struct spot);
    return true;
}

ms_places_t *ms_places_new(const ms_definitions_t *definitions, enum ms_stacks_effort effort,
                           const char *modules_dir, uint64_t budget_ns, struct ms_slabs *slabs)
{
    struct ms_places *places = ms_slabs_take(slabs, sizeof(*places));
    const uint32_t sites = ms_definitions_site_count(definitions);

    if (!places) {
        return NULL;
    }
    *places = (struct ms_places){.definitions = definitions,
                                 .effort = effort,
                                 .modules_dir = modules_dir,
                                 .budget_ns = budget_ns,
                                 .slabs = slabs};
    for (uint32_t id = 1; id <= sites; id++) {
        const struct ms_site_definition *site = ms_definitions_site(definitions, id);

        if (site && !gather(places, site->native)) {
            ms_places_delete(places);
            return NULL;
        }
    }
    if (!arrange(places)) {
        ms_places_delete(places);
        return NULL;
    }
    return places;
}

void ms_places_delete(ms_places_t *places)
{
    for (size_t i = 0; i < places->groups.bytes / sizeof(struct group); i++) {
        ms_dwarf_close(((struct group *)places->groups.at + i)->dwarf);
    }
    ms_buffer_free(&places->spot_of);
    ms_buffer_free(&places->spots);
    ms_buffer_free(&places->groups);
}

static void name_spots(struct ms_places *places, const struct group *group,
                       const struct ms_elf *elf, const struct ms_symbol *symbols)
{
    char name[MS_FUNCTION_NAME_BYTES];
    uint64_t last_at = 0;
    const char *last = NULL;

    for (size_t i = 0; i < group->count; i++) {
        if (!symbols[i].name_at) {
            continue;
        }
        if (symbols[i].name_at != last_at) {
            last_at = symbols[i].name_at;
            ms_elf_name(elf, last_at, name, sizeof(name));
            name[strcspn(name, "@")] = 0; /* a symbol's version: main@@V1 */
            last = name[0] ? ms_slabs_copy(places->slabs, name) : NULL;
        }
        spot_at(places, group->first + i)->symbol = last;
    }
}

/* One pass over the file's symbol table: its own, or that of its debugging information where its
 * own is stripped. */
static void read_symbols(struct ms_places *places, struct group *group,
                         const struct ms_module_read *module)
{
    char path[PATH_MAX], debug_path[PATH_MAX];
    struct ms_elf elf, debug;
    struct ms_buffer wanted = {0};
    struct ms_symbol *symbols = ms_buffer_extend(&wanted, group->count * sizeof(*symbols));

    if (!symbols || !ms_symbols_open(&elf, &module->is, module->path, places->modules_dir, path,
                                     sizeof(path))) {
        ms_buffer_free(&wanted);
        return;
    }
    for (size_t i = 0; i < group->count; i++) {
        symbols[i].address = spot_at(places, group->first + i)->address;
    }

    const bool apart = !ms_elf_has_full_table(&elf) &&
                       ms_symbols_open_debug(&debug, &elf, path, places->modules_dir, debug_path,
                                             sizeof(debug_path));
    const struct ms_elf *from = apart && ms_elf_has_full_table(&debug) ? &debug : &elf;

    if (ms_elf_find(from, symbols, group->count)) {
        name_spots(places, group, from, symbols);
    }
    if (places->effort == MS_STACKS_LINES) {
        group->dwarf = ms_dwarf_open(path);
        if (!group->dwarf && apart) {
            group->dwarf = ms_dwarf_open(debug_path);
        }
    }
    if (apart) {
        ms_elf_close(&debug);
    }
    ms_elf_close(&elf);
    ms_buffer_free(&wanted);
}

static void resolve_group(struct ms_places *places, uint32_t id,
                          const struct ms_module_read *module)
{
    struct group *group = (struct group *)places->groups.at + id;

    if (group->resolved) {
        return;
    }
    group->resolved = true;
    if (module && (places->budget_ns == 0 || places->spent_ns < places->budget_ns)) {
        const uint64_t start_ns = now_ns();

        read_symbols(places, group, module);
        places->spent_ns += now_ns() - start_ns;
    }
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* libfoo.so+0x12f0, as the trace has it: for a call the address that it returns to. */
static void name_nameless(const struct spot *spot, const struct ms_module_read *module, char *name,
                          size_t name_bytes)
{
    const uint64_t address = spot->address + (spot->exact ? 0 : 1);

    snprintf(name, name_bytes, "%s%s0x%" PRIx64, module ? base_name(module->path) : "",
             module ? "+" : "", address);
}

/* The name of the function that the table has there, or of what stands in for it. */
static const char *name_spot(struct ms_places *places, const struct spot *spot,
                             const struct ms_module_read *module, const char *dwarf_name)
{
    char name[MS_FUNCTION_NAME_BYTES];

    if (spot->symbol || dwarf_name) {
        ms_demangle(spot->symbol ? spot->symbol : dwarf_name, name, sizeof(name));
    } else {
        name_nameless(spot, module, name, sizeof(name));
    }
    return ms_slabs_copy(places->slabs, name);
}

static const char *name_inlined(struct ms_places *places, const char *dwarf_name)
{
    char name[MS_FUNCTION_NAME_BYTES];

    ms_demangle(dwarf_name ? dwarf_name : "(inlined)", name, sizeof(name));
    return ms_slabs_copy(places->slabs, name);
}

static bool resolve(struct ms_places *places, struct spot *spot)
{
    struct ms_source sources[MOST_SOURCES] = {{0}};
    const struct ms_module_read *module = ms_definitions_module(places->definitions, spot->module);

    resolve_group(places, spot->module, module);

    ms_dwarf_t *dwarf = ((struct group *)places->groups.at + spot->module)->dwarf;
    const size_t found = dwarf ? ms_dwarf_find(dwarf, spot->address, sources, MOST_SOURCES) : 0;
    const size_t count = found > 0 ? found : 1;
    struct ms_frame *frames = ms_slabs_take(places->slabs, count * sizeof(*frames));

    for (size_t i = 0; frames && i < count; i++) {
        const char *name = i + 1 == count ? name_spot(places, spot, module, sources[i].function)
                                          : name_inlined(places, sources[i].function);

        if (!name) {
            return false;
        }
        frames[i] = (struct ms_frame){.language = MS_FRAME_NATIVE,
                                      .inlined = i + 1 < count,
                                      .function = name,
                                      .file = sources[i].file,
                                      .line = sources[i].line,
                                      .module = module ? module->path : NULL};
    }
    spot->place =
        (struct ms_place){.frames = frames,
                          .count = frames ? (uint32_t)count : 0,
                          .role = ms_native_role(spot->symbol, module ? module->path : NULL)};
    return frames;
}

const struct ms_place *ms_places_at(ms_places_t *places, uint32_t native_node)
{
    const size_t nodes = places->spot_of.bytes / sizeof(uint32_t);
    const uint32_t index =
        native_node < nodes ? ((const uint32_t *)places->spot_of.at)[native_node] : 0;

    if (index == 0) {
        return NULL;
    }

    struct spot *spot = spot_at(places, index - 1);

    return spot->place.count > 0 || resolve(places, spot) ? &spot->place : NULL;
}
