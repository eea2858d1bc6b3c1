/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a thread has for itself, without taking it from its stack (as thread-local variables
 * do): stacks may be as small as 16 KiB.
 *
 * A thread that ended leaves its memory to the next one that needs any. No destructor tells of the
 * end: making one may allocate, and a first capture may be in a signal handler. */
#ifndef MEMSHIM_SHIM_SITES_THREAD_MEMORY_H
#define MEMSHIM_SHIM_SITES_THREAD_MEMORY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* What each thread's memory of a kind begins with. */
struct ms_thread_memory {
    struct ms_thread_memory *next; /* never changes once in the list */
    _Atomic uint64_t owner;        /* thread id in the lower half; the upper half counts owners */
};

/* All of a kind: they are never unmapped. */
typedef _Atomic(struct ms_thread_memory *) ms_thread_memories_t;

/* The calling thread's, of so many bytes: zeroed, or as its last owner left it. To be asked for
 * once in a thread's life. Null: the host has no memory. Async-signal-safe; errno stays. */
void *ms_thread_memory_claim(ms_thread_memories_t *all, size_t bytes);

#endif
