/* SPDX-License-Identifier: Apache-2.0 */
/* Remembers Python frames and compares them: see python_known.h. */
#include "shim/sites/python/python_known.h"

#include <stddef.h>
#include <string.h>

#include "shim/tables/options.h"

enum { LINKS_MAX = 2 * MS_STACK_DEPTH_MAX }; /* at most one frame of C's for each of Python's */

static inline const char *object(uint64_t at)
{
    return (const char *)(uintptr_t)at; // NOLINT(performance-no-int-to-ptr)
}

static inline uint64_t code_of(const struct ms_python_layout *layout, const char *frame)
{
    return ms_python_code_address(ms_python_word(frame, layout->frame.code));
}

/* Whether the frame at that address still has these words. Its code object is only read if it is
 * the same one: a frame keeps a reference to it. */
static inline bool holds(const struct ms_python_layout *layout,
                         const struct ms_python_known_frame *known)
{
    const char *frame = object(known->at);
    const uint8_t entry = (uint8_t)frame[layout->frame.entry];
    if (entry != known->entry) {
        return false;
    }
    if (ms_python_is_shim(layout, entry)) {
        return true;
    }
    if (code_of(layout, frame) != known->code ||
        ms_python_word(frame, layout->frame.instruction) != known->instruction) {
        return false;
    }
    const char *code = object(known->code);
    return ms_python_word(code, layout->code.table) == known->table &&
           ms_python_word(code, layout->code.file) == known->file &&
           ms_python_word(code, layout->code.function) == known->function &&
           ms_python_word(code, layout->code.body) == known->body &&
           ms_python_half(code, layout->code.first_line) == known->first_line;
}

/* Reads a frame only after the frame inside of it was found to have it as its caller. */
static bool all_hold(const struct ms_python_layout *layout,
                     const struct ms_python_known_frame *known)
{
    while (known->at != 0) {
        if (!holds(layout, known) ||
            ms_python_word(object(known->at), layout->frame.previous) != known->caller->at) {
            return false;
        }
        known = known->caller;
    }
    return true;
}

static inline uint32_t chain_of(uint64_t at, uint64_t instruction)
{
    const uint64_t hash = (at ^ instruction << 17) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(hash >> 32) % MS_PYTHON_KNOWN_CHAINS;
}

const struct ms_python_known_frame *ms_python_known_find(const struct ms_python_known *known,
                                                         const struct ms_python_layout *layout,
                                                         uint64_t frame)
{
    const uint64_t instruction = ms_python_word(object(frame), layout->frame.instruction);
    const struct ms_python_known_frame *first = known->chains[chain_of(frame, instruction)];
    for (uint32_t tries = 0; first != NULL && tries < MS_PYTHON_KNOWN_TRIES; tries++) {
        if (first->node != 0 && first->at == frame && all_hold(layout, first)) {
            return first;
        }
        first = first->next;
    }
    return NULL;
}

/* The known frame of that address and caller, which is added if there is none. Null: no room. */
static struct ms_python_known_frame *meet(struct ms_python_known *known,
                                          const struct ms_python_layout *layout, uint64_t at,
                                          const struct ms_python_known_frame *caller)
{
    const char *frame = object(at);
    const uint64_t instruction = ms_python_word(frame, layout->frame.instruction);
    struct ms_python_known_frame **chain = &known->chains[chain_of(at, instruction)];
    for (struct ms_python_known_frame *one = *chain; one != NULL; one = one->next) {
        if (one->at == at && one->caller == caller && holds(layout, one)) {
            return one;
        }
    }
    if (known->used == MS_PYTHON_KNOWN_FRAMES) {
        return NULL;
    }
    struct ms_python_known_frame *added = &known->frames[known->used++];
    *added = (struct ms_python_known_frame){.at = at,
                                            .code = code_of(layout, frame),
                                            .instruction = instruction,
                                            .entry = (uint8_t)frame[layout->frame.entry],
                                            .caller = caller,
                                            .next = *chain};
    if (!ms_python_is_shim(layout, added->entry)) {
        const char *code = object(added->code);
        added->table = ms_python_word(code, layout->code.table);
        added->file = ms_python_word(code, layout->code.file);
        added->function = ms_python_word(code, layout->code.function);
        added->body = ms_python_word(code, layout->code.body);
        added->first_line = ms_python_half(code, layout->code.first_line);
    }
    *chain = added;
    return added;
}

void ms_python_known_remember(struct ms_python_known *known, const struct ms_python_layout *layout,
                              uint64_t frame, uint32_t node, uint32_t count, uint64_t hash)
{
    uint64_t links[LINKS_MAX];
    uint32_t left = 0;
    for (; frame != 0; frame = ms_python_word(object(frame), layout->frame.previous)) {
        if (left == LINKS_MAX) {
            return;
        }
        links[left++] = frame;
    }
    if (known->used + left > MS_PYTHON_KNOWN_FRAMES) {
        memset(known->chains, 0, sizeof(known->chains));
        known->used = 0;
    }
    known->used = known->used == 0 ? 1 : known->used;
    struct ms_python_known_frame *innermost = NULL;
    const struct ms_python_known_frame *caller = &known->frames[0];
    while (left > 0) {
        innermost = meet(known, layout, links[--left], caller);
        if (innermost == NULL) {
            return;
        }
        caller = innermost;
    }
    if (innermost != NULL) {
        innermost->node = node;
        innermost->count = count;
        innermost->hash = hash;
    }
}
