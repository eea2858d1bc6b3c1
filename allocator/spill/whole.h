/* SPDX-License-Identifier: Apache-2.0 */
/* Many chunks become one, under the same addresses. Growth lock held, state lock not. */
#ifndef MEMSHIM_ALLOCATOR_SPILL_WHOLE_H
#define MEMSHIM_ALLOCATOR_SPILL_WHOLE_H

#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/space/block.h"
#include "allocator/space/segment.h"

/* One new chunk with these properties (see device_ops.h) takes the place of those in the slots, and
 * stands where there are none; contents move while the device stands still. On failure all is as it
 * was. MS_ERR_NO_MEMORY: there is no room for both, or it did not stand still;
 * MS_ERR_NOT_SUPPORTED: contents cannot move here. */
ms_status_t ms_spill_make_whole(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                uint64_t to, const void *properties) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

#endif
