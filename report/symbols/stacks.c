/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the stack of each site when it is first needed: resolves its native frames, and puts its
 * Python frames in their places (stacks_merge.c). */
#include "report/symbols/stacks.h"

#include <string.h>

#include "allocator/base/buffer.h"
#include "report/fold/frame_hints.h"
#include "report/symbols/bump.h"
#include "report/symbols/stacks_merge.h"
#include "report/symbols/stacks_places.h"
#include "report/symbols/stacks_roles.h"

#define MOST_NODES       1024u      /* of one stack; the shim records 256 */
#define MOST_FRAMES      6000u      /* of one stack, inlined ones included: fewer than fit a page */
#define NAMES_BUDGET_NS  500000000u /* for symbol tables, while somebody waits */
#define LINE_UNKNOWN_YET 0u

/* A site's frames, once made. */
struct shown {
    const struct ms_frame *frames;
    uint32_t count;
    bool known;
};

struct ms_stacks {
    const ms_definitions_t *definitions;
    ms_places_t *places;
    struct ms_bump bump;    /* holds this struct too */
    struct ms_buffer shown; /* by site: struct shown */
    struct ms_buffer lines; /* by Python node: uint32_t, its line + 1 */
    /* While one stack is made. */
    const struct ms_native_place *native[MOST_NODES];
    uint8_t roles[MOST_NODES];
    const struct ms_python_definition *python[MOST_NODES];
    uint32_t flags[MOST_NODES];
    struct ms_merged_frame merged[2 * MOST_NODES];
};

ms_stacks_t *ms_stacks_new(const ms_definitions_t *definitions, enum ms_stacks_effort effort,
                           const char *modules_dir)
{
    struct ms_bump bump = {0};
    struct ms_stacks *stacks = ms_bump_take(&bump, sizeof(*stacks));
    const size_t sites = (size_t)ms_definitions_site_count(definitions) + 1;

    if (!stacks) {
        return NULL;
    }
    stacks->definitions = definitions;
    stacks->bump = bump;
    stacks->places = ms_places_new(definitions, effort, modules_dir,
                                   effort == MS_STACKS_NAMES ? NAMES_BUDGET_NS : 0, &stacks->bump);
    if (!stacks->places || !ms_buffer_extend(&stacks->shown, sites * sizeof(struct shown))) {
        ms_stacks_delete(stacks);
        return NULL;
    }
    return stacks;
}

void ms_stacks_delete(ms_stacks_t *stacks)
{
    if (stacks) {
        struct ms_bump bump = stacks->bump;

        if (stacks->places) {
            ms_places_delete(stacks->places);
        }
        ms_buffer_free(&stacks->shown);
        ms_buffer_free(&stacks->lines);
        ms_bump_free(&bump);
    }
}

_Static_assert(MOST_FRAMES * sizeof(struct ms_frame) < MS_BUMP_PAGE_BYTES - 64 &&
                   2 * MOST_NODES < MOST_FRAMES,
               "a stack's frames fit");

/* The native stack without the allocators at its inner end. If there is nothing else, the
 * allocator's outermost frame stands for the caller. */
static size_t collect_native(struct ms_stacks *stacks, uint32_t node)
{
    const struct ms_native_definition *is;
    size_t count = 0;

    for (size_t i = 0; i < MOST_NODES; i++, node = is->caller) {
        const struct ms_native_place *place = ms_places_at(stacks->places, node);

        is = ms_definitions_native(stacks->definitions, node);
        if (!is || !place) {
            break;
        }
        if (count == 1 && stacks->roles[0] == MS_ROLE_ALLOCATOR) {
            count = 0;
        }
        stacks->native[count] = place;
        stacks->roles[count++] = (uint8_t)place->role;
    }
    return count;
}

static size_t collect_python(struct ms_stacks *stacks, uint32_t node)
{
    const struct ms_python_definition *is;
    size_t count = 0;

    while (count < MOST_NODES && (is = ms_definitions_python(stacks->definitions, node))) {
        stacks->python[count] = is;
        stacks->flags[count++] = is->flags;
        node = is->caller;
    }
    return count;
}

/* Tables are long and nodes are shared: looks each one up once. */
static uint32_t line_of(struct ms_stacks *stacks, const struct ms_python_definition *node,
                        const struct ms_code_read *code)
{
    const size_t end = ((size_t)node->id + 1) * sizeof(uint32_t);

    if (end > stacks->lines.bytes && !ms_buffer_extend(&stacks->lines, end - stacks->lines.bytes)) {
        return ms_python_line(&code->is, code->table, node->instruction);
    }

    uint32_t *line = (uint32_t *)stacks->lines.at + node->id;

    if (*line == LINE_UNKNOWN_YET) {
        *line = ms_python_line(&code->is, code->table, node->instruction) + 1;
    }
    return *line - 1;
}

static struct ms_frame python_frame(struct ms_stacks *stacks,
                                    const struct ms_python_definition *node)
{
    const struct ms_code_read *code = ms_definitions_code(stacks->definitions, node->code);

    if (!code) {
        return (struct ms_frame){.language = MS_FRAME_PYTHON, .function = "(unreadable)"};
    }
    return (struct ms_frame){.language = MS_FRAME_PYTHON,
                             .function = code->function,
                             .file = code->file,
                             .line = line_of(stacks, node, code)};
}

/* Writes the merged stack as frames, as many as one stack may have; only counts them if `to` is
 * null. */
static size_t spell_out(struct ms_stacks *stacks, size_t merged_count, struct ms_frame *to)
{
    size_t count = 0;

    for (size_t i = 0; i < merged_count; i++) {
        const struct ms_merged_frame *merged = &stacks->merged[i];

        if (merged->language == MS_FRAME_PYTHON) {
            if (to) {
                to[count] = python_frame(stacks, stacks->python[merged->index]);
            }
            count++;
        } else {
            const struct ms_native_place *place = stacks->native[merged->index];

            if (count + place->count > MOST_FRAMES) {
                break;
            }
            if (to) {
                memcpy(&to[count], place->frames, place->count * sizeof(*to));
            }
            count += place->count;
        }
    }
    return count;
}

static void make(struct ms_stacks *stacks, const struct ms_site_definition *site,
                 struct shown *shown)
{
    const size_t native_count = collect_native(stacks, site->native);
    const size_t python_count = collect_python(stacks, site->python);
    const size_t merged_count = ms_stacks_merge(stacks->roles, native_count, stacks->flags,
                                                python_count, site->flags, stacks->merged);
    const size_t count = spell_out(stacks, merged_count, NULL);
    struct ms_frame *frames =
        count > 0 ? ms_bump_take(&stacks->bump, count * sizeof(*frames)) : NULL;

    if (frames) {
        spell_out(stacks, merged_count, frames);
        shown->frames = frames;
        shown->count = (uint32_t)count;
    }
    shown->known = true;
}

const struct ms_frame *ms_stacks_frames(ms_stacks_t *stacks, uint32_t site, size_t *count)
{
    const struct ms_site_definition *is = ms_definitions_site(stacks->definitions, site);

    *count = 0;
    if (!is || site >= stacks->shown.bytes / sizeof(struct shown)) {
        return NULL;
    }

    struct shown *shown = (struct shown *)stacks->shown.at + site;

    if (!shown->known) {
        make(stacks, is, shown);
    }
    *count = shown->count;
    return shown->frames;
}

/* A model's own line: not PyTorch's, and reached by a call of a module. */
static const struct ms_frame *model_frame(const struct ms_frame *frames, size_t count)
{
    const struct ms_frame *innermost = NULL;

    for (size_t i = 0; i < count; i++) {
        const struct ms_frame *frame = &frames[i];

        if (frame->language != MS_FRAME_PYTHON || !frame->file) {
            continue;
        }
        if (!innermost && ms_is_package_script(frame->file)) {
            innermost = frame;
        } else if (innermost &&
                   ms_frame_hints_of(frame->file, frame->function).hint == MS_HINT_MODULE) {
            return innermost;
        }
    }
    return NULL;
}

const struct ms_frame *ms_stacks_own_frame(ms_stacks_t *stacks, uint32_t site)
{
    size_t count;
    const struct ms_frame *frames = ms_stacks_frames(stacks, site, &count);
    const struct ms_frame *python = NULL, *native = NULL, *backward = NULL, *graph = NULL, *model;

    for (size_t i = 0; i < count; i++) {
        const struct ms_frame *frame = &frames[i];

        if (frame->language == MS_FRAME_PYTHON) {
            if (frame->file && !ms_is_library_script(frame->file, frame->function)) {
                model = model_frame(frames, i);
                return model ? model : frame;
            }
            python = python ? python : frame;
            graph = graph || !frame->file || !ms_is_compiled_script(frame->file) ? graph : frame;
        } else if (!native && frame->module && !ms_is_library_module(frame->module)) {
            native = frame;
        } else if (!backward && ms_is_backward_operation(frame->function)) {
            backward = frame;
        }
    }
    model = model_frame(frames, count);
    python = model ? model : graph ? graph : python;
    /* A library's Python frame says more than its caller (PyNode). It says less than an operation
     * that PyTorch implements in Python of its own. */
    if (python && !(backward && !strstr(backward->function, "::PyNode::"))) {
        return python;
    }
    if (native || backward) {
        return native ? native : backward;
    }
    return count > 0 ? frames : NULL;
}
