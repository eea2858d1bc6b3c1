/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a framework may have one more page. Growth lock held, state lock not. */
#ifndef MEMSHIM_ALLOCATOR_ARENAS_PAGE_ROOM_H
#define MEMSHIM_ALLOCATOR_ARENAS_PAGE_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/base/status.h"
#include "allocator/space/block.h"

enum ms_room {
    MS_ROOM_AT_ONCE, /* the budget has it */
    MS_ROOM_PROMISED /* it has been secured (obligations.c), and is the caller's to owe */
};

/* Room for a page of `bytes`, beside what pages of requests under way are owed. May wait, and move
 * live memory to the host, with may_wait. MS_ERR_NO_MEMORY: there is none. */
ms_status_t ms_room_for_page(struct ms_pool *pool, uint64_t bytes, bool may_wait,
                             enum ms_room *room) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

#endif
