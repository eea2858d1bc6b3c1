/* SPDX-License-Identifier: Apache-2.0 */
/* How long a request may wait for work that is queued. */
#ifndef MEMSHIM_ALLOCATOR_BACKING_WAIT_H
#define MEMSHIM_ALLOCATOR_BACKING_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/space/block.h"

/* The time of the device's table, or the host's. */
uint64_t ms_pool_now_ns(const struct ms_pool *pool);

/* How long a request may wait for queued work still: as long as none of it is seen to complete, and
 * in all. */
struct ms_wait {
    uint64_t quiet_ns, left_ns;
};

/* What the configuration allows; nothing where the caller may not wait. */
struct ms_wait ms_wait_begin(const struct ms_pool *pool, bool may_wait);

/* Time that was spent; and whether some of the work completed in it. */
void ms_wait_spend(const struct ms_pool *pool, struct ms_wait *wait, uint64_t spent_ns,
                   bool completed);

/* The longest wait that is allowed now; 0: it is over. */
uint64_t ms_wait_left_ns(const struct ms_wait *wait);

#endif
