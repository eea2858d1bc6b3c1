/* SPDX-License-Identifier: Apache-2.0 */
/* How long a request may wait for work that is queued. */
#ifndef MEMSHIM_ALLOCATOR_BACKING_WAIT_H
#define MEMSHIM_ALLOCATOR_BACKING_WAIT_H

#include <stdbool.h>
#include <stdint.h>

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

#endif
