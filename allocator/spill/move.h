/* SPDX-License-Identifier: Apache-2.0 */
/* Moving: contents go to other chunks, under the same addresses. Growth lock held, state lock not.
 */
#ifndef MEMSHIM_ALLOCATOR_SPILL_MOVE_H
#define MEMSHIM_ALLOCATOR_SPILL_MOVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/device/device_ops.h"
#include "allocator/space/block.h"
#include "allocator/space/segment.h"

/* Moving contents: see move.c and spill.c. */
struct ms_moving {
    bool under_way; /* both locks to change: chunks behind live blocks change */
    struct ms_segment *staging
        MS_GUARDED_BY(ms_growth_role); /* addresses to copy to; null: none were needed yet */
    uint64_t staged MS_GUARDED_BY(ms_growth_role); /* its first slots, which have had chunks */
    uint64_t taken MS_GUARDED_BY(ms_growth_role);  /* of these: have a place or are in a list */
    uint64_t room_bytes MS_GUARDED_BY(
        ms_growth_role); /* charged to the budget of all that is spilled, and not spilled */
    uint64_t since_ns MS_GUARDED_BY(
        ms_growth_role); /* of the standstill: up to where its time is accounted for */
    uint64_t last_ns MS_GUARDED_BY(ms_growth_role); /* the end of the last one */
    struct ms_range *cut MS_GUARDED_BY(
        ms_growth_role); /* free memory that moves along, linked by free.batch_next; busy */
    bool refused MS_GUARDED_BY(
        ms_growth_role); /* the device did not stand still for the request under way */
    unsigned refusals MS_GUARDED_BY(ms_growth_role); /* so often on end */
    uint64_t rest_until_ns
        MS_GUARDED_BY(ms_growth_role); /* and it is not asked again before this time */
    /* Contents could not be put back: nothing is moved any more. Set under the growth lock, read
     * under either. */
    _Atomic bool broken;
};

/* Makes room elsewhere for what lies on the chunks (linked by `next`, taken by ms_search_pick),
 * holds the device, copies, and lets old and new chunks change places; piece by piece of
 * neighbours. Adds the bytes of those that did to *moved_bytes; the chunks that have no place then
 * are spares, or in the reserve. Any status but MS_OK is the first failure: what moved before it,
 * and the pieces after one whose exchange failed, have moved all the same. */
ms_status_t ms_move(struct ms_pool *pool, struct ms_chunk *list, enum ms_location to,
                    uint64_t *moved_bytes) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* For the exchange of a piece: its new chunks, at these slots of what is staged, leave them. False:
 * the device refuses. */
bool ms_move_unstage(struct ms_pool *pool, uint64_t from, uint64_t to) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* The steps of it, for who moves by himself (whole.c): nothing is staged, and so many bytes could
 * be; the device stands still for at most the configured time, MS_ERR_NOT_READY where it would not;
 * so much is copied; it goes on. */
ms_status_t ms_move_need_staging(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
ms_status_t ms_move_hold(struct ms_pool *pool, enum ms_location to) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
ms_status_t ms_move_copy(struct ms_pool *pool, ms_addr_t to, ms_addr_t from, uint64_t bytes)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);
void ms_move_let_go(struct ms_pool *pool) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Whether the device has refused to stand still more than once on end, a short time ago. */
bool ms_move_rests(const struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* So many bytes have changed places in the standstill under way. */
void ms_move_record(struct ms_pool *pool, enum ms_location to, ms_addr_t addr, uint64_t bytes)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

#endif
