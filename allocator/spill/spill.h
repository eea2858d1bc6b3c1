/* SPDX-License-Identifier: Apache-2.0 */
/* Spilling: live memory on the host. Growth lock held, state lock not. */
#ifndef MEMSHIM_ALLOCATOR_SPILL_SPILL_H
#define MEMSHIM_ALLOCATOR_SPILL_SPILL_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/arenas/live_memory.h"
#include "allocator/base/locks/lock_annotations.h"
#include "allocator/base/status.h"
#include "allocator/space/segment.h"

/* Whether contents can move now, for the current request. */
bool ms_spill_possible(struct ms_pool *pool) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* The budget's free bytes, in whole granules. */
uint64_t ms_spill_device_room(const struct ms_pool *pool);

/* Makes room for `bytes` in the budget out of idle memory and holes, as far as they go. */
void ms_spill_make_idle_room(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Makes spares of at least so many bytes of device chunks behind live memory, whose contents move
 * to the host; adds all to *taken_bytes. Waits for a standstill, a bounded time. MS_ERR_NO_MEMORY:
 * not enough can move, or not now. */
ms_status_t ms_spill_make_room(struct ms_pool *pool, const struct ms_spill_need *need,
                               uint64_t *taken_bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Makes room for a request that lacks `bytes` of budget: first out of holes (ms_holes_make_room),
 * then of live memory. born_bytes: as in ms_spill_need. Adds the spares among it to
 * *taken_bytes. */
ms_status_t ms_spill_beside_holes(struct ms_pool *pool, uint64_t bytes, uint64_t born_bytes,
                                  uint64_t *taken_bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Brings back all that these slots have on the host. MS_ERR_NO_MEMORY: there is no room, or not
 * now; MS_ERR_NOT_SUPPORTED: nothing ever moves here. */
ms_status_t ms_spill_bring_back(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                uint64_t to) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

extern const struct ms_live_memory ms_spill_live;

#endif
