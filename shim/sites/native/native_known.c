/* SPDX-License-Identifier: Apache-2.0 */
/* The table of stacks that a thread has met more than once. */
#include "shim/sites/native/native_known.h"

#include <string.h>

#define HEAD_WORDS (sizeof(struct ms_known_stack) / sizeof(uint64_t))
#define PATIENCE   4096u /* the table is emptied when this many stacks have found no room */

void ms_known_forget(struct ms_known *known)
{
    memset(known->chains, 0, sizeof(known->chains));
    known->used = known->missed = 0;
}

/* --- Meeting ---------------------------------------------------------------------------------- */

/* A stack that came only once is not worth the room. */
static bool came_before(struct ms_known *known, uint64_t sp, uint64_t hash)
{
    const uint64_t mixed = (hash ^ sp) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t *met = &known->met[mixed % MS_KNOWN_MET];
    const bool before = *met == (uint32_t)(mixed >> 32);
    *met = (uint32_t)(mixed >> 32);
    return before;
}

/* 0: no room. Places begin at 1. */
static uint32_t room_for(struct ms_known *known, uint32_t words_count)
{
    const uint32_t wanted = (uint32_t)HEAD_WORDS + words_count + words_count / 2;
    if (known->used + 1 + wanted > MS_KNOWN_WORDS) {
        if (++known->missed < PATIENCE) {
            return 0;
        }
        ms_known_forget(known);
    }
    const uint32_t at = known->used + 1;
    known->used += wanted;
    return at;
}

static uint32_t words_of(const struct ms_stack_place *places, uint32_t count)
{
    uint32_t words = count;
    for (uint32_t i = 0; i + 1 < count; i++) {
        words += places[i].bp_slot != 0;
    }
    return words;
}

static void write_words(struct ms_known_stack *stack, const struct ms_stack_place *places,
                        const uint64_t *addresses)
{
    uint32_t *above = (uint32_t *)&stack->words[stack->words_count];
    uint32_t more = stack->count;
    memcpy(stack->words, addresses, stack->count * sizeof(*addresses));
    for (uint32_t i = 1; i < stack->count; i++) {
        above[i - 1] = (uint32_t)((places[i].sp - stack->sp) / 8 - 1);
        if (places[i - 1].bp_slot != 0) {
            above[more - 1] = (uint32_t)((places[i - 1].bp_slot - stack->sp) / 8);
            stack->words[more++] = places[i].bp;
        }
    }
}

void ms_known_meet(struct ms_known *known, const struct ms_stack_place *places,
                   const uint64_t *addresses, uint32_t count, uint64_t hash)
{
    uint32_t at;
    const uint32_t words_count = words_of(places, count);
    if (count == 0 || (places[count - 1].sp - places[0].sp) / 8 > UINT32_MAX ||
        !came_before(known, places[0].sp, hash) || (at = room_for(known, words_count)) == 0) {
        return;
    }
    struct ms_known_stack *stack = ms_known_at(known, at);
    uint32_t *chain = ms_known_chain(known, addresses[0], places[0].sp);
    *stack = (struct ms_known_stack){.sp = places[0].sp,
                                     .bp = places[0].bp,
                                     .hash = hash,
                                     .next = *chain,
                                     .count = count,
                                     .words_count = words_count,
                                     .needs_bp = places[0].needs_bp};
    write_words(stack, places, addresses);
    *chain = at;
}
