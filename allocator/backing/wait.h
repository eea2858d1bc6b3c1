/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for work that is queued on what was freed, and how long a request may. */
#ifndef MEMSHIM_ALLOCATOR_BACKING_WAIT_H
#define MEMSHIM_ALLOCATOR_BACKING_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/space/block.h"

/* The time of the device's table, or the host's. */
uint64_t ms_pool_now_ns(const struct ms_pool *pool);

/* How long a request may still wait for queued work: while none of it completes, and in all. */
struct ms_wait {
    uint64_t quiet_ns, left_ns;
};

/* The configured times; none if the caller may not wait. */
struct ms_wait ms_wait_begin(const struct ms_pool *pool, bool may_wait);

/* Notes time spent, and whether some of the work completed in it. */
void ms_wait_spend(const struct ms_pool *pool, struct ms_wait *wait, uint64_t spent_ns,
                   bool completed);

/* The longest wait allowed now; 0: the time is up. */
uint64_t ms_wait_left_ns(const struct ms_wait *wait);

/* The time is up, and it was no shorter than a standstill's. So that, which waits for all work,
 * would only wait for the same work once more. */
bool ms_wait_was_in_vain(const struct ms_pool *pool, const struct ms_wait *wait);

/* Takes fences of all that was freed, in holes too; and looks which of that is done. */
void ms_work_fence(struct ms_pool *pool) MS_REQUIRES(ms_growth_role);
void ms_work_poll(struct ms_pool *pool) MS_REQUIRES(ms_growth_role);

/* Both, with a wait for some of it in between, where it is `turn`'s turn (fences.h). The growth
 * lock is let go meanwhile. False: there is nothing to wait for, or no time. */
bool ms_work_wait(struct ms_pool *pool, unsigned turn, struct ms_wait *wait)
    MS_REQUIRES(ms_growth_role);

#endif
