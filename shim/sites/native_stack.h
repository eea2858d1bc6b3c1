/* SPDX-License-Identifier: Apache-2.0 */
/* Which addresses around the stack pointer may be read.
 *
 * A thread's own stack is there, from the stack pointer to its top, as long as the thread is: what
 * was once seen readable up to the top stays so. Of any other stack (an alternate one for signals,
 * a coroutine's) nothing is known but what is asked of the kernel, page by page, at each capture.
 */
#ifndef MEMSHIM_SHIM_SITES_NATIVE_STACK_H
#define MEMSHIM_SHIM_SITES_NATIVE_STACK_H

#include <stdbool.h>
#include <stdint.h>

struct ms_own_stack {
    uint64_t begin, end;             /* seen readable; end: the top. Both 0: not found yet */
    uint64_t other_begin, other_end; /* a place that turned out to be another stack */
};

struct ms_stack_part {
    uint64_t begin, end; /* may be read */
    bool own;            /* of the thread's own stack, up to its top */
};

/* Whether a word can be read there: one system call. */
bool ms_stack_readable(uint64_t address);

/* The part that a stack pointer points into; empty where that cannot be read. A system call for
 * each page of the thread's own stack that was not met before. */
struct ms_stack_part ms_stack_part_at(struct ms_own_stack *own, uint64_t pointer);

/* Makes the part reach beyond this address: false where it cannot. */
bool ms_stack_part_reach(struct ms_stack_part *part, uint64_t address);

#endif
