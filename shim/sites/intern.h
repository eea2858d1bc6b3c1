/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks as the trace tells them: each frame with its caller once, and whatever a frame names.
 *
 * Stacks are kept in two trees, native and Python. Nodes that were added one after the other, each
 * called by the one before, lie side by side, so that a stack is compared run by run. Whoever adds
 * holds the lock of site.c; comparing takes none. */
#ifndef MEMSHIM_SHIM_SITES_INTERN_H
#define MEMSHIM_SHIM_SITES_INTERN_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock.h"
#include "report/write/writer.h"
#include "shim/sites/native.h"
#include "shim/sites/python.h"

/* The files of a stack's frames, by frame: ids of MS_DEFINE_MODULE; 0: code made at run time. */
struct ms_stack_modules {
    uint32_t ids[MS_STACK_DEPTH_MAX];
};

/* Once, before anything else here. False: the process may not have the addresses. */
bool ms_intern_open(void);

/* Finds out which files a stack's code is from. Takes the loader's short lock, and `lock` between;
 * the caller holds neither. */
void ms_intern_modules(const struct ms_native_stack *stack, ms_trace_t *trace,
                       struct ms_stack_modules *out);

/* The innermost node of a stack; what is new of it is recorded in the trace first. False: there is
 * no room, here or in the trace. An empty stack is node 0. Under the lock. */
bool ms_intern_native(const struct ms_native_stack *stack, const struct ms_stack_modules *modules,
                      ms_trace_t *trace, uint32_t *node) MS_REQUIRES(*MS_LOCK(SITES));
bool ms_intern_python(const struct ms_python_stack *stack, ms_trace_t *trace, uint32_t *node)
    MS_REQUIRES(*MS_LOCK(SITES));

/* Whether an optimizer's step, or its load_state_dict, asked for memory in that Python stack: of
 * the frames that report/fold/frame_hints.h knows the innermost decides, so a model that an
 * optimizer calls (a closure's) is the model's. Under the lock. */
bool ms_intern_is_optimizers(uint32_t node) MS_REQUIRES(*MS_LOCK(SITES));

/* Whether that is the stack's innermost node: by every frame, whatever the hashes say. */
bool ms_intern_is_native(uint32_t node, const struct ms_native_stack *stack);
bool ms_intern_is_python(uint32_t node, const struct ms_python_stack *stack);

/* The lock. */
void ms_intern_lock(void) MS_ACQUIRE(*MS_LOCK(SITES));
void ms_intern_unlock(void) MS_RELEASE(*MS_LOCK(SITES));

#endif
