/* SPDX-License-Identifier: Apache-2.0 */
/* Fences: learning which work queued before a free is done. Growth lock held, state lock not. */
#ifndef MEMSHIM_ALLOCATOR_BACKING_FENCES_H
#define MEMSHIM_ALLOCATOR_BACKING_FENCES_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/backing/wait.h"
#include "allocator/base/locks/lock_annotations.h"
#include "allocator/base/status.h"
#include "allocator/space/block.h"

/* Queries the fence of every sealed batch, oldest first; those that are done become idle. True:
 * some range became idle. Asks nothing while anything captures. */
bool ms_fences_poll(struct ms_pool *pool) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Seals all frees so far and takes a fence for them, in every order; without `all`, not in orders
 * that have many fences under way. Does nothing while anything captures. */
void ms_fences_take(struct ms_pool *pool, bool all) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Makes a block of the best fit that `stream` may use behind a wait, and queues that wait.
 * MS_ERR_NO_MEMORY: there is none. With a full queue the caller blocks until the device goes on,
 * and so do those who need the growth lock. */
ms_status_t ms_fences_reuse_behind_wait(struct ms_pool *pool, const struct ms_request *request,
                                        uint64_t bytes, struct ms_block_info *out)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Waits for the oldest fence of one order, with the growth lock released meanwhile, and polls all
 * of them; takes the time from *wait. `turn` counts up over the calls of one allocation: the orders
 * take turns, so that a stream that is stuck does not hide another that moves. False: there is no
 * fence to wait for. */
bool ms_fences_wait(struct ms_pool *pool, unsigned turn, struct ms_wait *wait)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Ends the stream's order: see ms_pool_stream_gone. */
void ms_fences_stream_gone(struct ms_pool *pool, ms_stream_t stream) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Releases every fence, at the pool's end. */
void ms_fences_release_all(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

#endif
