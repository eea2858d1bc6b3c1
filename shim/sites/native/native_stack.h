/* SPDX-License-Identifier: Apache-2.0 */
/* Which addresses around the stack pointer may be read.
 *
 * A thread's own stack exists as long as the thread. What was once readable, up to the stack's top,
 * stays readable. Of any other stack (an alternate one for signals, a coroutine's) nothing is
 * assumed: the kernel is asked page by page at each capture. */
#ifndef MEMSHIM_SHIM_SITES_NATIVE_NATIVE_STACK_H
#define MEMSHIM_SHIM_SITES_NATIVE_NATIVE_STACK_H

#include <stdbool.h>
#include <stdint.h>

struct ms_own_stack {
    uint64_t begin, end;             /* found readable; end: the top. Both 0: not found yet */
    uint64_t other_begin, other_end; /* an address that turned out to be on another stack */
};

struct ms_stack_part {
    uint64_t begin, end; /* readable */
    bool own;            /* part of the thread's own stack, up to its top */
};

/* Whether a word can be read there; one system call. */
bool ms_stack_readable(uint64_t address);

/* The part around a stack pointer; empty if that cannot be read. Takes a system call for each page
 * of the thread's own stack that was not met before. */
struct ms_stack_part ms_stack_part_at(struct ms_own_stack *own, uint64_t pointer);

/* Extends the part beyond this address; false if that is impossible. */
bool ms_stack_part_reach(struct ms_stack_part *part, uint64_t address);

#endif
