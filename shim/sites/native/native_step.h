/* SPDX-License-Identifier: Apache-2.0 */
/* Stepping from one frame of a stack to the next one out (x86-64). */
#ifndef MEMSHIM_SHIM_SITES_NATIVE_NATIVE_STEP_H
#define MEMSHIM_SHIM_SITES_NATIVE_NATIVE_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/sites/native/native_stack.h"
#include "shim/sites/native/unwind_rule.h"

/* The state of a walk: registers as in the frame that `address` returns to. */
struct ms_step_at {
    uint64_t address, sp, bp;
};

enum ms_step {
    MS_STEPPED,         /* as ms_step_plainly does, reading only the words at CFA - 8 and
                         *bp_slot */
    MS_STEPPED_BY_MORE, /* read other words, too, or is on a stack that is not the thread's own */
    MS_STEP_OUTERMOST,  /* nothing is further out, and no word was read to find that out */
    MS_STEP_ENDED,      /* the same, but a word had to be read */
    MS_STEP_UNKNOWN,    /* the address is in no table */
    MS_STEP_LOST        /* this cannot be a frame */
};

static inline uint64_t ms_word_at(uint64_t address)
{
    return *(const uint64_t *)(uintptr_t)address; // NOLINT(performance-no-int-to-ptr)
}

/* Steps out by a plain rule, if every word that it names lies in the frame and below `end`, up to
 * which the stack may be read. Otherwise returns false and changes nothing. bp_slot: where the
 * caller's bp was read; 0: it was kept. */
static inline __attribute__((always_inline)) bool
ms_step_plainly(struct ms_step_at *at, union ms_rule rule, uint64_t end, uint64_t *bp_slot)
{
    const uint64_t cfa = (rule.from_bp ? at->bp : at->sp) + (uint64_t)(rule.cfa_words * 8);
    uint64_t slot = 0, bp = at->bp;
    if (__builtin_expect(
            rule.kind != MS_RULE_PLAIN || cfa - at->sp - 1 >= end - at->sp || (cfa & 7) != 0, 0)) {
        return false;
    }
    if (rule.saves_bp) {
        slot = (rule.bp_from_bp ? bp : cfa) + (uint64_t)(rule.bp_words * 8);
        if (__builtin_expect(slot - at->sp >= cfa - at->sp || (slot & 7) != 0, 0)) {
            return false;
        }
        bp = ms_word_at(slot);
    }
    const uint64_t address = ms_word_at(cfa - 8);
    if (__builtin_expect(address == 0, 0)) {
        return false;
    }
    *bp_slot = slot;
    *at = (struct ms_step_at){address, cfa, bp};
    return true;
}

/* Steps out of any frame, also where the function above returns false. part: the stack on which
 * `at` is; changes if the next frame is on another. */
enum ms_step ms_step_out(struct ms_step_at *at, union ms_rule rule, struct ms_stack_part *part,
                         struct ms_own_stack *own);

#endif
