/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves native frames: collects the distinct addresses of each module, and has a module's file
 * read when the first of its addresses is needed. */
#include "report/symbols/stacks_places.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "allocator/base/buffer.h"
#include "allocator/base/clock.h"
#include "allocator/base/path.h"
#include "report/symbols/demangle.h"
#include "report/symbols/stacks_roles.h"
#include "report/symbols/symbols.h"

#define MOST_SOURCES 64u /* functions at one address */

/* A distinct address. Sorted by module, then address. */
struct spot {
    uint32_t module, node; /* node: one that has it */
    uint64_t address;      /* of the instruction: of a call itself, not its return address */
    bool exact, resolved;
    const char *symbol, *name; /* mangled and demangled; null: unknown */
    struct ms_native_place place;
};

/* A module's spots, next to each other. */
struct spot_group {
    size_t first, count;
    bool read;
};

/* A text that one or more answers gave. */
struct kept_text {
    UT_hash_handle hh;
    char at[];
};

struct ms_places {
    const ms_definitions_t *definitions;
    enum ms_stacks_effort effort;
    const char *modules_dir;
    uint64_t budget_ns, spent_ns;
    struct ms_bump *bump;
    struct kept_text *texts;
    struct ms_buffer spot_of; /* by node: uint32_t, index of its spot + 1 */
    struct ms_buffer spots;   /* struct spot */
    struct ms_buffer groups;  /* by module: struct spot_group */
};

/* The element at that index, after making room for it; null: no memory. */
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

/* Collects a node and its callers, up to one that was collected already. */
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

/* Sorts the spots, joins equal ones, and notes their places for nodes and modules. */
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
            struct spot_group *group = element(&places->groups, spot->module, sizeof(*group));

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
                           const char *modules_dir, uint64_t budget_ns, struct ms_bump *bump)
{
    struct ms_places *places = ms_bump_take(bump, sizeof(*places));
    const uint32_t sites = ms_definitions_site_count(definitions);

    if (!places) {
        return NULL;
    }
    *places = (struct ms_places){.definitions = definitions,
                                 .effort = effort,
                                 .modules_dir = modules_dir,
                                 .budget_ns = budget_ns,
                                 .bump = bump};
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
    HASH_CLEAR(hh, places->texts);
    ms_buffer_free(&places->spot_of);
    ms_buffer_free(&places->spots);
    ms_buffer_free(&places->groups);
}

/* --- answers from a module's file */

/* One shared copy of the text; null: no text, or no memory. */
static const char *keep(struct ms_places *places, const char *text)
{
    const size_t bytes = text ? strlen(text) : 0;
    struct kept_text *kept = NULL;

    if (!text) {
        return NULL;
    }
    HASH_FIND(hh, places->texts, text, bytes, kept);
    if (!kept) {
        kept = ms_bump_take(places->bump, sizeof(*kept) + bytes + 1);
        if (!kept) {
            return NULL;
        }
        memcpy(kept->at, text, bytes + 1);
        HASH_ADD(hh, places->texts, at, bytes, kept);
    }
    return kept->at;
}

/* A module being read, and the sources of one of its spots until they are complete. */
struct module_reading {
    struct ms_places *places;
    const struct spot_group *group;
    const char *module; /* its path */
    size_t index;       /* of the spot with these sources */
    struct ms_frame sources[MOST_SOURCES];
    uint32_t count;
};

static void on_symbol(void *context, size_t index, const char *symbol, const char *readable)
{
    const struct module_reading *reading = context;
    struct spot *spot = spot_at(reading->places, reading->group->first + index);

    spot->symbol = keep(reading->places, symbol);
    spot->name = keep(reading->places, readable);
}

/* The outermost function gets its name from the symbol table: that distinguishes a compiler's
 * copies of a function. */
static void finish_place(struct module_reading *reading, struct spot *spot)
{
    const size_t bytes = reading->count * sizeof(*reading->sources);
    struct ms_frame *last = &reading->sources[reading->count - 1];
    struct ms_frame *frames = ms_bump_take(reading->places->bump, bytes);

    last->function = spot->name ? spot->name : last->function;
    if (frames && spot->place.count == 0) {
        memcpy(frames, reading->sources, bytes);
        spot->place.frames = frames;
        spot->place.count = reading->count;
    }
}

static void on_source(void *context, size_t index, const struct ms_source *source, bool inlined)
{
    struct module_reading *reading = context;
    const char *unnamed = inlined ? "(inlined)" : NULL;

    if (index != reading->index || reading->count == MOST_SOURCES) {
        reading->index = index;
        reading->count = 0;
    }
    reading->sources[reading->count++] = (struct ms_frame){
        .language = MS_FRAME_NATIVE,
        .inlined = inlined,
        .function = keep(reading->places, source->function ? source->function : unnamed),
        .file = keep(reading->places, source->file),
        .line = source->line,
        .module = reading->module};
    if (!inlined) {
        finish_place(reading, spot_at(reading->places, reading->group->first + index));
        reading->count = 0;
    }
}

static void read_group(struct ms_places *places, const struct spot_group *group,
                       const struct ms_module_read *module)
{
    struct module_reading reading = {.places = places, .group = group, .module = module->path};
    const struct ms_symbols_listener listener = {&reading, on_symbol, on_source};
    struct ms_buffer wanted = {0};
    uint64_t *addresses = ms_buffer_extend(&wanted, group->count * sizeof(*addresses));

    for (size_t i = 0; addresses && i < group->count; i++) {
        addresses[i] = spot_at(places, group->first + i)->address;
    }
    if (addresses) {
        (void)ms_symbols_read(
            &(struct ms_symbols_request){.module = &module->is,
                                         .module_path = module->path,
                                         .modules_dir = places->modules_dir,
                                         .addresses = addresses,
                                         .count = group->count,
                                         .lines = places->effort == MS_STACKS_LINES,
                                         .limit_ms = MS_SYMBOLS_LIMIT_MS},
            &listener);
    }
    ms_buffer_free(&wanted);
}

/* --- without answers from the file */

/* libfoo.so+0x12f0, as in the trace: for a call its return address. */
static const char *name_nameless(struct ms_places *places, const struct spot *spot,
                                 const struct ms_module_read *module)
{
    const uint64_t address = spot->address + (spot->exact ? 0 : 1);
    char name[MS_FUNCTION_NAME_BYTES];

    snprintf(name, sizeof(name), "%s%s0x%" PRIx64, module ? ms_base_name(module->path) : "",
             module ? "+" : "", address);
    return ms_bump_copy(places->bump, name);
}

/* Makes a frame for a spot without lines. */
static bool place_plainly(struct ms_places *places, struct spot *spot,
                          const struct ms_module_read *module)
{
    struct ms_frame *frame = ms_bump_take(places->bump, sizeof(*frame));

    if (!frame) {
        return false;
    }
    *frame = (struct ms_frame){.language = MS_FRAME_NATIVE,
                               .function = spot->name,
                               .module = module ? module->path : NULL};
    spot->place.frames = frame;
    spot->place.count = 1;
    return true;
}

/* Gives every frame a name. */
static bool name_frames(struct ms_places *places, struct spot *spot,
                        const struct ms_module_read *module)
{
    for (uint32_t i = 0; i < spot->place.count; i++) {
        struct ms_frame *frame = &spot->place.frames[i];

        if (!frame->function) {
            frame->function = name_nameless(places, spot, module);
        }
        if (!frame->function) {
            return false;
        }
    }
    return true;
}

static bool resolve(struct ms_places *places, struct spot *spot)
{
    const struct ms_module_read *module = ms_definitions_module(places->definitions, spot->module);
    struct spot_group *group = (struct spot_group *)places->groups.at + spot->module;

    if (module && !group->read) {
        const uint64_t start_ns = ms_clock_ns();

        group->read = true;
        if (places->budget_ns == 0 || places->spent_ns < places->budget_ns) {
            read_group(places, group, module);
        }
        places->spent_ns += ms_clock_ns() - start_ns;
    }
    spot->place.role = ms_native_role(spot->symbol, module ? module->path : NULL);
    spot->resolved = (spot->place.count > 0 || place_plainly(places, spot, module)) &&
                     name_frames(places, spot, module);
    return spot->resolved;
}

const struct ms_native_place *ms_places_at(ms_places_t *places, uint32_t native_node)
{
    const size_t nodes = places->spot_of.bytes / sizeof(uint32_t);
    const uint32_t index =
        native_node < nodes ? ((const uint32_t *)places->spot_of.at)[native_node] : 0;

    if (index == 0) {
        return NULL;
    }

    struct spot *spot = spot_at(places, index - 1);

    return spot->resolved || resolve(places, spot) ? &spot->place : NULL;
}
