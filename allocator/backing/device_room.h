/* SPDX-License-Identifier: Apache-2.0 */
/* What the device has, where that is less than the cap. Growth lock held, state lock not. */
#ifndef MEMSHIM_ALLOCATOR_BACKING_DEVICE_ROOM_H
#define MEMSHIM_ALLOCATOR_BACKING_DEVICE_ROOM_H

#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/space/block.h"

/* The device had no room for a chunk of `bytes` that the budget allowed: the budget is bound from
 * here on, so that every rung of the ladder counts with what there is. Where the device says that
 * it has room all the same, from the second time on end. */
void ms_device_room_refused(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Looks again at what the device has, where the budget is bound. */
void ms_device_room_sample(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

#endif
