/* SPDX-License-Identifier: Apache-2.0 */
/* The room on the device, when it is less than the cap. Growth lock held, state lock not. */
#ifndef MEMSHIM_ALLOCATOR_BACKING_DEVICE_ROOM_H
#define MEMSHIM_ALLOCATOR_BACKING_DEVICE_ROOM_H

#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/space/block.h"

/* The device refused a chunk of `bytes` that the budget allowed. Binds the budget from here on, so
 * that every rung of the ladder counts with the actual room. If the device still reports enough
 * free bytes, only from the second refusal in a row on. */
void ms_device_room_refused(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Asks the device for its room again, if the budget has a bound. */
void ms_device_room_sample(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

#endif
