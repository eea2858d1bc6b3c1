/* SPDX-License-Identifier: Apache-2.0 */
/* fork(): all locks are held meanwhile, so that the child finds what they guard in a consistent
 * state. */
#ifndef MEMSHIM_SHIM_PROCESS_FORK_H
#define MEMSHIM_SHIM_PROCESS_FORK_H

#include <stdbool.h>

#include "allocator/base/locks/lock.h"

/* Called when memshim is loaded: handlers that the program registers (pthread_atfork) run when all
 * locks are free, before ours in the parent and after ours in the child. The driver's own would run
 * before ours, too, and must not take a lock: libcuda.so.535.261.03 registers one for the child
 * only (null, null and a function go to __register_atfork in its machine code). */
void ms_fork_begin(void);

/* Starts to watch forks. False: there was no host memory for that. */
bool ms_fork_watch(void);

/* What one part of the library does around a fork; either member may be null. */
struct ms_fork_part {
    /* Calls act for each lock of this rank that belongs to an object (a device, a pool). */
    void (*locks)(enum ms_lock_rank rank, void (*act)(ms_lock_t *lock));
    /* Called in the child of a process that used the driver. All locks are free. */
    void (*in_child)(void);
    struct ms_fork_part *next; /* set by ms_fork_join */
};

/* From here on fork() calls the part; join each part once. If the part has locks, the caller holds
 * OPENING, so that no fork is under way. Whoever makes another object with such locks must hold it,
 * too. */
void ms_fork_join(struct ms_fork_part *part);

#endif
