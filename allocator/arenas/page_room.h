/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether a framework may have one more page. Growth lock held, state lock not. */
#ifndef MEMSHIM_ALLOCATOR_ARENAS_PAGE_ROOM_H
#define MEMSHIM_ALLOCATOR_ARENAS_PAGE_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/base/status.h"
#include "allocator/space/block.h"

enum ms_room {
    MS_ROOM_AT_ONCE, /* the budget has it */
    MS_ROOM_SECURED  /* an obligation is covered (obligations.h); the caller counts it */
};

/* Finds room for a page of `bytes`, beside the obligations to pages of current requests. With
 * may_wait it may wait, and move live memory to the host. MS_ERR_NO_MEMORY: there is no room. */
ms_status_t ms_room_for_page(struct ms_pool *pool, uint64_t bytes, bool may_wait,
                             enum ms_room *room) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

#endif
