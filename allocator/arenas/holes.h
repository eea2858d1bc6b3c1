/* SPDX-License-Identifier: Apache-2.0 */
/* Holes of arenas: takes their chunks and puts chunks back (holes.c has the plan). Growth lock
 * held, state lock not, where nothing else is said. */
#ifndef MEMSHIM_ALLOCATOR_ARENAS_HOLES_H
#define MEMSHIM_ALLOCATOR_ARENAS_HOLES_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/space/block.h"
#include "allocator/space/segment.h"

/* Bytes that could be taken now, counted up to `enough_bytes` or a little more. *pending: whether
 * more could be once queued work is done; may be null. */
uint64_t ms_holes_takeable(struct ms_pool *pool, uint64_t enough_bytes, bool *pending)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* The part of these bytes in the chunk that begins in this slot of a segment with granules. */
uint64_t ms_holes_takeable_at(const struct ms_pool *pool, const struct ms_segment *segment,
                              uint64_t slot) MS_REQUIRES(ms_growth_role, ms_state_role);

/* Bytes that could be taken now, or once queued work is done. */
uint64_t ms_holes_takeable_in_time(struct ms_pool *pool) MS_REQUIRES(ms_state_role);

/* Makes spares of the chunks of holes until it has enough_bytes or none is left. The caller covers
 * the obligations. Adds to *taken_bytes. */
ms_status_t ms_holes_take(struct ms_pool *pool, uint64_t enough_bytes, uint64_t *taken_bytes)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Unmaps chunks whose slots have been emptied, listed by `next`, and makes spares of them. A chunk
 * that cannot be unmapped returns to its slots. Adds to *taken_bytes and *chunks. */
ms_status_t ms_holes_unmap(struct ms_pool *pool, struct ms_chunk *list, uint64_t *taken_bytes,
                           uint64_t *chunks) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* The part of `bytes` for which ms_holes_make_room could make room now. */
uint64_t ms_holes_room(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Makes room for a request that lacks `bytes` of budget: obligations move to the host, then chunks
 * of holes become spares (*taken_bytes). Does not wait. MS_ERR_NO_MEMORY: not enough. */
ms_status_t ms_holes_make_room(struct ms_pool *pool, uint64_t bytes, uint64_t *taken_bytes)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Whether ms_holes_back has anything to do in the slots [from, to), where a tensor is being
 * allocated. */
bool ms_holes_want_backing(struct ms_pool *pool, const struct ms_segment *segment, uint64_t from,
                           uint64_t to) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Backs all unbacked granules in the slots [from, to), by any means; may wait. Device chunks
 * replace host chunks that hold nothing but the tensor being allocated. */
ms_status_t ms_holes_back(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                          uint64_t to) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);
/* Whether nothing is taken any more, for good. */
bool ms_holes_frozen(struct ms_pool *pool) MS_EXCLUDES(ms_state_role);
/* Backs all there are, and takes nothing any more. */
void ms_holes_freeze(struct ms_pool *pool) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Gets host chunks back that stand behind nothing live. */
void ms_holes_recover(struct ms_pool *pool) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Those of them in which no work is left become holes, and their chunks spares. */
void ms_holes_drain(struct ms_pool *pool) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Ranges wait here for the work on their host chunks. Those whose contents have moved to the device
 * meanwhile become free at once: the move waited for that work. */
void ms_holes_drain_no_more(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* At the pool's end. */
void ms_holes_forget(struct ms_pool *pool) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

#endif
