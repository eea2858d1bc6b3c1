/* SPDX-License-Identifier: Apache-2.0 */
/* Joins many chunks into one, under the same addresses. Growth lock held, state lock not. */
#ifndef MEMSHIM_ALLOCATOR_SPILL_WHOLE_H
#define MEMSHIM_ALLOCATOR_SPILL_WHOLE_H

#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/space/block.h"
#include "allocator/space/segment.h"

/* Puts one new chunk with these properties (see device_ops.h) in the place of the slots' chunks,
 * and behind unbacked slots; contents move while the device stands still. On failure nothing
 * changed. MS_ERR_NO_MEMORY: there is no room for both, or the device did not stand still;
 * MS_ERR_NOT_SUPPORTED: contents cannot move here. */
ms_status_t ms_spill_make_whole(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                uint64_t to, const void *properties) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

#endif
