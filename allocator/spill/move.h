/* SPDX-License-Identifier: Apache-2.0 */
/* Moving contents to other chunks, under the same addresses. Growth lock held, state lock not. */
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
    bool under_way; /* changed under both locks: chunks behind live blocks are changing */
    struct ms_segment *
        staging MS_GUARDED_BY(ms_growth_role); /* addresses to copy to; null: never needed yet */
    uint64_t staged MS_GUARDED_BY(ms_growth_role); /* the first slots, which got chunks */
    uint64_t taken MS_GUARDED_BY(ms_growth_role);  /* of these slots: their chunks have a place or
                                                      are in a list */
    uint64_t room_bytes
        MS_GUARDED_BY(ms_growth_role); /* charged to the budget for spilling, and not spilled yet */
    uint64_t since_ns
        MS_GUARDED_BY(ms_growth_role); /* of the standstill: its time is accounted for up to here */
    uint64_t last_ns MS_GUARDED_BY(ms_growth_role); /* the end of the last standstill */
    struct ms_range *cut MS_GUARDED_BY(
        ms_growth_role); /* free memory that moves along, linked by free.batch_next; busy */
    bool refused MS_GUARDED_BY(
        ms_growth_role); /* the device did not stand still for the request under way */
    unsigned refusals MS_GUARDED_BY(ms_growth_role); /* how often in a row */
    uint64_t rest_until_ns
        MS_GUARDED_BY(ms_growth_role); /* no new request to the device before this time */
    /* Contents could not be put back: nothing moves any more. Set under the growth lock, read under
     * either. */
    _Atomic bool broken;
};

/* Stages new chunks for the contents of `list` (linked by `next`, taken by ms_search_pick), stops
 * the device, copies, and exchanges old and new chunks, in pieces of neighbours. Adds the bytes
 * exchanged to *moved_bytes; chunks without a place then are spares, or in the reserve. Any status
 * but MS_OK is the first failure: what moved before it, and the pieces after one whose exchange
 * failed, have moved all the same. */
ms_status_t ms_move(struct ms_pool *pool, struct ms_chunk *list, enum ms_location to,
                    uint64_t *moved_bytes) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* For the exchange of a piece: unmaps its new chunks from these slots of the staging segment.
 * False: the device refuses. */
bool ms_move_unstage(struct ms_pool *pool, uint64_t from, uint64_t to) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Parts of ms_move, for callers that move by themselves (whole.c). need_staging: makes sure that
 * nothing is staged and that so many bytes could be. hold: makes the device stand still, waiting at
 * most the configured time; MS_ERR_NOT_READY: it would not. copy: copies so many bytes. let_go:
 * ends the standstill. */
ms_status_t ms_move_need_staging(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
ms_status_t ms_move_hold(struct ms_pool *pool, enum ms_location to) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
ms_status_t ms_move_copy(struct ms_pool *pool, ms_addr_t to, ms_addr_t from, uint64_t bytes)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);
void ms_move_let_go(struct ms_pool *pool) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Whether the device refused to stand still more than once in a row, a short time ago. */
bool ms_move_rests(const struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* A request waited for queued work in vain, for so long. That counts as a standstill that was
 * refused: it would wait for the same work. */
void ms_move_give_up(struct ms_pool *pool, uint64_t waited_ns) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Records that so many bytes changed places in the current standstill. */
void ms_move_record(struct ms_pool *pool, enum ms_location to, ms_addr_t addr, uint64_t bytes)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

#endif
