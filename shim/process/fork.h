/* SPDX-License-Identifier: Apache-2.0 */
/* fork(): all locks are held meanwhile, so that the child finds what they guard whole. */
#ifndef MEMSHIM_SHIM_PROCESS_FORK_H
#define MEMSHIM_SHIM_PROCESS_FORK_H

#include <stdbool.h>

#include "allocator/base/locks/lock.h"

/* From here on forks are watched. False: they are not, since the host has no memory. Of handlers
 * that a caller registers afterwards (pthread_atfork), the child's run when all locks are free. */
bool ms_fork_watch(void);

/* What one part of the library has to do around a fork; either may be null. */
struct ms_fork_part {
    /* Calls act for each lock of this rank that belongs to an object (a device, a pool). */
    void (*locks)(enum ms_lock_rank rank, void (*act)(ms_lock_t *lock));
    /* In the child of a process that used the driver. All locks are free. */
    void (*in_child)(void);
    struct ms_fork_part *next; /* set by ms_fork_join */
};

/* From here on fork() calls the part; once for each part. Where the part has locks, the caller
 * holds OPENING, so that no fork is under way; so does everybody who makes another object with such
 * locks. */
void ms_fork_join(struct ms_fork_part *part);

#endif
