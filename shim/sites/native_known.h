/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks of a thread that came more than once, known again without a walk.
 *
 * Which stack it is follows from its innermost frame (return address, stack pointer, frame pointer
 * where one further out is found through it) and from the stack words that a walk would read
 * (native.c). A known stack is that frame and those words, in a row: comparing them costs a
 * fraction of finding them one through the other. */
#ifndef MEMSHIM_SHIM_SITES_NATIVE_KNOWN_H
#define MEMSHIM_SHIM_SITES_NATIVE_KNOWN_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/sites/native.h"
#include "shim/sites/native_step.h"

#define MS_KNOWN_WORDS  (1u << 16) /* for all known stacks of a thread */
#define MS_KNOWN_CHAINS 512u
#define MS_KNOWN_MET    2048u

/* A frame of a stack; its return address lies beside it. */
struct ms_stack_place {
    uint64_t sp, bp;
    uint64_t bp_slot; /* where the caller's bp was read, 0 where nobody further out needs it */
    bool needs_bp;    /* a frame from here on outwards is found through it */
};

struct ms_known_stack {
    uint64_t sp, bp, hash; /* hash: of its addresses */
    uint32_t next;         /* of its chain: where that begins in the thread's words; 0: none */
    uint32_t count;        /* of frames */
    uint32_t words_count;
    uint32_t needs_bp; /* 0 or 1 */
    struct ms_native_note note;
    uint64_t words[]; /* the return addresses, then saved frame pointers; then, 32 bits each, how
                         many words above sp each of them lies (but the first, which is in no word
                         that is read) */
};

/* Those of a thread. All zero: none. */
struct ms_known {
    uint32_t used;   /* of words */
    uint32_t missed; /* how many did not fit since */
    uint32_t chains[MS_KNOWN_CHAINS];
    uint32_t met[MS_KNOWN_MET]; /* of stacks that came once: part of their hashes */
    uint64_t words[MS_KNOWN_WORDS];
};

void ms_known_forget(struct ms_known *known);

/* The stack that `at` is the innermost frame of; null where it is not known. The stack is the
 * thread's own one, which can be read up to its top. */
struct ms_known_stack *ms_known_find(struct ms_known *known, const struct ms_step_at *at);

/* A stack that was walked, and that was not known: where it came before, it is known from now on.
 * All its frames were found by the words that the places name. */
void ms_known_meet(struct ms_known *known, const struct ms_stack_place *places,
                   const uint64_t *addresses, uint32_t count, uint64_t hash);

#endif
