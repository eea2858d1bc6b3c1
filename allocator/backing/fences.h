/* SPDX-License-Identifier: Apache-2.0 */
/* Fences: learning which of the work that was queued before a free has completed. Growth lock
 * held, state lock not. */
#ifndef MEMSHIM_ALLOCATOR_BACKING_FENCES_H
#define MEMSHIM_ALLOCATOR_BACKING_FENCES_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/backing/wait.h"
#include "allocator/base/locks/lock_annotations.h"
#include "allocator/base/status.h"
#include "allocator/space/block.h"

/* Asks every sealed batch, oldest first, whether it is done; done ones become idle. True if any
 * range became idle. Nothing is asked while anything captures. */
bool ms_fences_poll(struct ms_pool *pool) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Seals what has been freed up to now and takes a fence for it, in every order; without `all`, not
 * in those that have many fences under way already. Nothing while anything captures. */
void ms_fences_take(struct ms_pool *pool, bool all) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* The best fit that `stream` may use behind a wait; the wait is queued. MS_ERR_NO_MEMORY: none. A
 * full queue makes the caller wait for the device, and those that need the growth lock with it. */
ms_status_t ms_fences_reuse_behind_wait(struct ms_pool *pool, const struct ms_request *request,
                                        uint64_t bytes, struct ms_block_info *out)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Waits for the oldest fence of one order, with the growth lock released meanwhile, and polls all
 * of them; takes the time from *wait. `turn` counts up over the calls of one allocation: the orders
 * take turns, so that one stream that stands still does not hide another that moves. False: nothing
 * to wait for.
 */
bool ms_fences_wait(struct ms_pool *pool, unsigned turn, struct ms_wait *wait)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* The stream's order ends: see ms_pool_stream_gone. */
void ms_fences_stream_gone(struct ms_pool *pool, ms_stream_t stream) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Gives every fence back, at the pool's end. */
void ms_fences_release_all(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

#endif
