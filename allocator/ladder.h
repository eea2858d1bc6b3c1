/* SPDX-License-Identifier: Apache-2.0 */
/* The ladder: the steps of an allocation that no free block fits. No lock held. */
#ifndef MEMSHIM_ALLOCATOR_LADDER_H
#define MEMSHIM_ALLOCATOR_LADDER_H

#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/base/status.h"
#include "allocator/space/block.h"

ms_status_t ms_ladder_climb(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                            struct ms_block_info *out) MS_EXCLUDES(ms_growth_role, ms_state_role);

#endif
