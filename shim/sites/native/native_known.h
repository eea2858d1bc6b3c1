/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks that a thread met more than once, recognized without a walk.
 *
 * A stack is determined by its innermost frame (return address, stack pointer, and frame pointer if
 * a frame further out is found through it) and by the stack words that a walk would read
 * (native.c). A known stack is that frame and those words, in one array. Comparing them costs a
 * fraction of finding them one by one. */
#ifndef MEMSHIM_SHIM_SITES_NATIVE_NATIVE_KNOWN_H
#define MEMSHIM_SHIM_SITES_NATIVE_NATIVE_KNOWN_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/sites/native/native.h"
#include "shim/sites/native/native_step.h"

#define MS_KNOWN_WORDS  (1u << 16) /* for all known stacks of a thread */
#define MS_KNOWN_CHAINS 512u
#define MS_KNOWN_MET    2048u
#define MS_KNOWN_TRIES  8u /* stacks to compare that have the same innermost frame */

/* A frame's place on the stack; its return address is kept beside it. */
struct ms_stack_place {
    uint64_t sp, bp;
    uint64_t bp_slot; /* where the caller's bp was read; 0 if no frame further out needs it */
    bool needs_bp;    /* some frame from here on outwards is found through it */
};

struct ms_known_stack {
    struct ms_native_note note; /* the first, so that its address is the stack's */
    uint64_t sp, bp, hash;      /* hash: of its addresses */
    uint32_t next;  /* the next in its chain, as an index into the thread's words; 0: none */
    uint32_t count; /* number of frames */
    uint32_t words_count;
    uint32_t needs_bp; /* 0 or 1 */
    uint64_t words[];  /* the return addresses, then saved frame pointers; then, 32 bits each, how
                          many words above sp each of them lies (except the first return address,
                          which no word that is read contains) */
};

/* The known stacks of a thread. All zero: none. */
struct ms_known {
    uint32_t used;   /* number of words in use */
    uint32_t missed; /* stacks that found no room since */
    uint32_t chains[MS_KNOWN_CHAINS];
    uint32_t met[MS_KNOWN_MET]; /* parts of the hashes of stacks that came once */
    uint64_t words[MS_KNOWN_WORDS];
};

void ms_known_forget(struct ms_known *known);

static inline struct ms_known_stack *ms_known_at(struct ms_known *known, uint32_t at)
{
    return (struct ms_known_stack *)&known->words[at];
}

static inline uint32_t *ms_known_chain(struct ms_known *known, uint64_t address, uint64_t sp)
{
    const uint64_t hash = (address ^ sp << 17) * UINT64_C(0x9e3779b97f4a7c15);
    return &known->chains[(hash >> 32) % MS_KNOWN_CHAINS];
}

/* Whether the words are unchanged. The loads do not depend on each other, which makes known stacks
 * cheap. */
static inline bool ms_known_holds(const struct ms_known_stack *stack)
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

/* The known stack whose innermost frame is `at`; null if there is none. `at` is on the thread's own
 * stack, which can be read up to its top. */
static inline __attribute__((always_inline)) struct ms_known_stack *
ms_known_find(struct ms_known *known, const struct ms_step_at *at)
{
    uint32_t next = *ms_known_chain(known, at->address, at->sp);
    for (uint32_t tries = 0; next != 0 && tries < MS_KNOWN_TRIES; tries++) {
        struct ms_known_stack *stack = ms_known_at(known, next);
        if (stack->words[0] == at->address && stack->sp == at->sp &&
            (stack->needs_bp == 0 || stack->bp == at->bp) && ms_known_holds(stack)) {
            return stack;
        }
        next = stack->next;
    }
    return NULL;
}

/* Called with a stack that was walked because it was not known. If it came before, it is known from
 * now on. The words that the places name were enough to find all its frames. */
void ms_known_meet(struct ms_known *known, const struct ms_stack_place *places,
                   const uint64_t *addresses, uint32_t count, uint64_t hash);

#endif
