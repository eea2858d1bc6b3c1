/* SPDX-License-Identifier: Apache-2.0 */
/* Steps out of one frame by the rule for its return address. */
#include "shim/sites/native/native_step.h"

#include <ucontext.h>

#include "shim/sites/native/unwind_library.h"

#if defined(__x86_64__)

/* Below the stack pointer; signal handlers leave it alone. Source: System V ABI for AMD64, "The
 * Stack Frame". */
#    define RED_ZONE_BYTES UINT64_C(128)

/* Whether a register can be saved where the tables say. A signal may come when a function has
 * restored its registers but not returned. The tables still name their places, which are in the red
 * zone by then. */
static bool may_be_saved_at(const struct ms_step_at *at, const struct ms_stack_part *part,
                            uint64_t cfa, uint64_t slot)
{
    if (slot >= cfa || slot < at->sp - RED_ZONE_BYTES || (slot & 7) != 0) {
        return false;
    }
    return slot >= at->sp || slot >= part->begin || ms_stack_readable(slot);
}

/* Whether the CFA can be the frame's end: it is further out, and the word below it can be read. */
static bool may_end_at(const struct ms_step_at *at, struct ms_stack_part *part, uint64_t cfa)
{
    return cfa > at->sp && (cfa & 7) == 0 &&
           (cfa <= part->end || ms_stack_part_reach(part, cfa - 8));
}

static enum ms_step step_to(struct ms_step_at *at, union ms_rule rule, struct ms_stack_part *part,
                            uint64_t cfa)
{
    uint64_t bp = at->bp;
    if (!may_end_at(at, part, cfa)) {
        return MS_STEP_LOST;
    }
    if (rule.saves_bp) {
        const uint64_t slot = (rule.bp_from_bp ? bp : cfa) + (uint64_t)(rule.bp_words * 8);
        if (!may_be_saved_at(at, part, cfa, slot)) {
            return MS_STEP_LOST;
        }
        bp = ms_word_at(slot);
    }
    *at = (struct ms_step_at){ms_word_at(cfa - 8), cfa, bp};
    return at->address != 0 ? MS_STEPPED_BY_MORE : MS_STEP_ENDED;
}

static enum ms_step step_indirectly(struct ms_step_at *at, union ms_rule rule,
                                    struct ms_stack_part *part)
{
    const uint64_t slot = (rule.from_bp ? at->bp : at->sp) + (uint64_t)(rule.cfa_words * 8);
    if (!may_end_at(at, part, slot + 8)) {
        return MS_STEP_LOST;
    }
    return step_to(at, rule, part, ms_word_at(slot) + (uint64_t)(rule.add_words * 8));
}

/* The kernel saved the registers of the next frame, which may lie on another stack, above or
 * below. */
static enum ms_step step_over_signal(struct ms_step_at *at, struct ms_stack_part *part,
                                     struct ms_own_stack *own)
{
    const ucontext_t *saved = (const ucontext_t *)(uintptr_t)at->sp;
    if (!may_end_at(at, part, at->sp + sizeof(*saved))) {
        return MS_STEP_LOST;
    }
    const greg_t *registers = saved->uc_mcontext.gregs;
    *at = (struct ms_step_at){(uint64_t)registers[REG_RIP] + 1, (uint64_t)registers[REG_RSP],
                              (uint64_t)registers[REG_RBP]};
    *part = ms_stack_part_at(own, at->sp);
    return MS_STEPPED_BY_MORE;
}

static enum ms_step step_by_library(struct ms_step_at *at, struct ms_stack_part *part)
{
    struct ms_unwind_frame frame = {at->address, at->sp, at->bp};
    if (!ms_unwind_library_is_open() || !ms_unwind_library_step(&frame)) {
        return MS_STEP_LOST;
    }
    if (frame.address == 0) {
        return MS_STEP_ENDED;
    }
    if (!may_end_at(at, part, frame.sp)) {
        return MS_STEP_LOST;
    }
    *at = (struct ms_step_at){frame.address, frame.sp, frame.bp};
    return MS_STEPPED_BY_MORE;
}

enum ms_step ms_step_out(struct ms_step_at *at, union ms_rule rule, struct ms_stack_part *part,
                         struct ms_own_stack *own)
{
    switch ((enum ms_rule_kind)rule.kind) {
    case MS_RULE_NONE:
        return MS_STEP_UNKNOWN;
    case MS_RULE_PLAIN:
        return step_to(at, rule, part,
                       (rule.from_bp ? at->bp : at->sp) + (uint64_t)(rule.cfa_words * 8));
    case MS_RULE_INDIRECT:
        return step_indirectly(at, rule, part);
    case MS_RULE_OUTERMOST:
        return MS_STEP_OUTERMOST;
    case MS_RULE_SIGNAL:
        return step_over_signal(at, part, own);
    case MS_RULE_UNUSUAL:
        return step_by_library(at, part);
    }
    return MS_STEP_LOST;
}

#endif
