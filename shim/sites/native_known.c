/* SPDX-License-Identifier: Apache-2.0 */
/* The table of stacks that a thread has met more than once. */
#include "shim/sites/native_known.h"

#include <string.h>

#define HEAD_WORDS (sizeof(struct ms_known_stack) / sizeof(uint64_t))
#define TRIES      8u    /* of stacks with one innermost frame */
#define PATIENCE   4096u /* stacks that find no room, before all others are given up for them */

static struct ms_known_stack *stack_at(struct ms_known *known, uint32_t at)
{
    return (struct ms_known_stack *)&known->words[at];
}

static uint32_t *chain_of(struct ms_known *known, uint64_t address, uint64_t sp)
{
    const uint64_t hash = (address ^ sp << 17) * UINT64_C(0x9e3779b97f4a7c15);
    return &known->chains[(hash >> 32) % MS_KNOWN_CHAINS];
}

void ms_known_forget(struct ms_known *known)
{
    memset(known->chains, 0, sizeof(known->chains));
    known->used = known->missed = 0;
}

/* --- Finding ---------------------------------------------------------------------------------- */

/* The loads do not wait for each other: this is what makes a known stack cheap. */
static bool holds(const struct ms_known_stack *stack)
{
    const uint64_t *expected = stack->words + 1;
    const uint32_t *above = (const uint32_t *)&stack->words[stack->words_count];
    const uint64_t *base =
        (const uint64_t *)(uintptr_t)stack->sp; // NOLINT(performance-no-int-to-ptr)
    const uint32_t checks = stack->words_count - 1;
    uint32_t i = 0;
    for (; i + 4 <= checks; i += 4) {
        if (((base[above[i]] ^ expected[i]) | (base[above[i + 1]] ^ expected[i + 1]) |
             (base[above[i + 2]] ^ expected[i + 2]) | (base[above[i + 3]] ^ expected[i + 3])) !=
            0) {
            return false;
        }
    }
    uint64_t differing = 0;
    for (; i < checks; i++) {
        differing |= base[above[i]] ^ expected[i];
    }
    return differing == 0;
}

struct ms_known_stack *ms_known_find(struct ms_known *known, const struct ms_step_at *at)
{
    uint32_t next = *chain_of(known, at->address, at->sp);
    for (uint32_t tries = 0; next != 0 && tries < TRIES; tries++) {
        struct ms_known_stack *stack = stack_at(known, next);
        if (stack->words[0] == at->address && stack->sp == at->sp &&
            (stack->needs_bp == 0 || stack->bp == at->bp) && holds(stack)) {
            return stack;
        }
        next = stack->next;
    }
    return NULL;
}

/* --- Meeting ---------------------------------------------------------------------------------- */

/* A stack that does not come again is not worth its room. */
static bool came_before(struct ms_known *known, uint64_t sp, uint64_t hash)
{
    const uint64_t mixed = (hash ^ sp) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t *met = &known->met[mixed % MS_KNOWN_MET];
    const bool before = *met == (uint32_t)(mixed >> 32);
    *met = (uint32_t)(mixed >> 32);
    return before;
}

/* 0: there is none. Places begin at 1. */
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
    struct ms_known_stack *stack = stack_at(known, at);
    uint32_t *chain = chain_of(known, addresses[0], places[0].sp);
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
