/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks as the trace records them: each frame under its caller once, and whatever a frame names.
 *
 * Stacks are kept in two trees, native and Python. Nodes that were added one after the other, each
 * called by the one before, lie side by side, so that a stack is compared run by run. Additions
 * need the lock of site.c; comparisons need none. */
#ifndef MEMSHIM_SHIM_SITES_INTERN_H
#define MEMSHIM_SHIM_SITES_INTERN_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock.h"
#include "report/write/writer.h"
#include "shim/sites/native/native.h"
#include "shim/sites/python/python.h"

/* The modules of a stack's frames, by frame: ids of MS_DEFINE_MODULE; 0: code made at run time. */
struct ms_stack_modules {
    uint32_t ids[MS_STACK_DEPTH_MAX];
};

/* To be called once, before anything else here. False: the process may not have the addresses. */
bool ms_intern_open(void);

/* Finds out from which modules a stack's code comes. Takes the loader's short lock, and `lock` in
 * between; the caller holds neither. */
void ms_intern_modules(const struct ms_native_stack *stack, ms_trace_t *trace,
                       struct ms_stack_modules *out);

/* The innermost node of a stack. Records its new parts in the trace first. False: no room, here or
 * in the trace. An empty stack is node 0. The caller holds the lock. */
bool ms_intern_native(const struct ms_native_stack *stack, const struct ms_stack_modules *modules,
                      ms_trace_t *trace, uint32_t *node) MS_REQUIRES(*MS_LOCK(SITES));
bool ms_intern_python(const struct ms_python_stack *stack, ms_trace_t *trace, uint32_t *node)
    MS_REQUIRES(*MS_LOCK(SITES));

/* Whether an optimizer's step, or its load_state_dict, asked for memory in that Python stack. The
 * innermost frame that report/fold/frame_hints.h knows decides. So a model that an optimizer calls
 * (in a closure) counts as the model. The caller holds the lock. */
bool ms_intern_is_optimizers(uint32_t node) MS_REQUIRES(*MS_LOCK(SITES));

/* Through which functions any Python stack of the process passed so far: enum ms_landmark, or-ed.
 */
uint32_t ms_intern_passed(void);

/* Whether that is the stack's innermost node. Compares every frame, not only hashes. */
bool ms_intern_is_native(uint32_t node, const struct ms_native_stack *stack);
/* The same of a Python stack that was read. */
bool ms_intern_has_frames(uint32_t node, const struct ms_python_stack *stack);

/* The same of any Python stack: a remembered or lent stack has its node, and the node of an empty
 * one is 0. */
static inline bool ms_intern_is_python(uint32_t node, const struct ms_python_stack *stack)
{
    if (stack->node != 0 || stack->count == 0) {
        return node == stack->node;
    }
    return ms_intern_has_frames(node, stack);
}

/* Take and release the lock. */
void ms_intern_lock(void) MS_ACQUIRE(*MS_LOCK(SITES));
void ms_intern_unlock(void) MS_RELEASE(*MS_LOCK(SITES));

#endif
