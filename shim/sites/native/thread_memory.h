/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for one thread that does not come from its stack (as thread-local variables do): stacks
 * may be as small as 16 KiB.
 *
 * The memory of a thread that ended goes to the next thread that needs some. No destructor marks
 * the end, because making one may allocate, and the first capture may be in a signal handler. */
#ifndef MEMSHIM_SHIM_SITES_NATIVE_THREAD_MEMORY_H
#define MEMSHIM_SHIM_SITES_NATIVE_THREAD_MEMORY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Each thread's memory begins with this. */
struct ms_thread_memory {
    struct ms_thread_memory *next; /* never changes once it is in the list */
    _Atomic uint64_t owner;        /* thread id in the lower half; the upper half counts owners */
};

/* All memories of one kind; they are never unmapped. */
typedef _Atomic(struct ms_thread_memory *) ms_thread_memories_t;

/* The calling thread's memory of this size: zeroed, or as its last owner left it. Call it once in a
 * thread's life. Null: no host memory. Async-signal-safe; keeps errno. */
void *ms_thread_memory_claim(ms_thread_memories_t *all, size_t bytes);

#endif
