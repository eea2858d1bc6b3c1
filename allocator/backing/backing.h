/* SPDX-License-Identifier: Apache-2.0 */
/* Backing: chunks under addresses. Growth lock held, state lock not, but where a function says
 * something else. */
#ifndef MEMSHIM_ALLOCATOR_BACKING_BACKING_H
#define MEMSHIM_ALLOCATOR_BACKING_BACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/backing/chunks.h"
#include "allocator/base/locks/lock_annotations.h"
#include "allocator/space/block.h"
#include "allocator/space/range.h"
#include "allocator/space/segment.h"

/* Backs every granule without a chunk under a busy range and gives access. The range ends on a
 * granule where it ends in a hole. On failure all that it did is undone; slots whose chunk is stuck
 * are the exception. */
ms_status_t ms_backing_fill(struct ms_pool *pool, const struct ms_range *range, bool large)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Backs the unbacked granules of arenas in the slots [from, to), one run after the other; what was
 * backed before one fails stays so. */
ms_status_t ms_backing_fill_holes(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                  uint64_t to, const struct ms_fill *fill)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* The chunk cannot be unmapped, and nobody may use it: it is lost, with its slots. */
void ms_backing_stick(struct ms_pool *pool, struct ms_chunk *chunk) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
/* A chunk that could not be unmapped some time ago leaves its slots now, or they stay lost. */
ms_status_t ms_backing_unstick(struct ms_pool *pool, struct ms_chunk *chunk)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* A device that failed again and again has left the slot without what stood there. `stuck`: a chunk
 * that is mapped there, and not accessible; null: none is. Where something lives an event says so.
 */
void ms_backing_lose(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot,
                     struct ms_chunk *stuck) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Maps the chunk at its place, and notes it there; no access yet. */
ms_status_t ms_backing_map(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot,
                           struct ms_chunk *chunk) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
ms_status_t ms_backing_give_access(struct ms_pool *pool, const struct ms_segment *segment,
                                   uint64_t from, uint64_t to) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
/* Unmaps neighbouring chunks in one call; tells, but leaves slots and lists to the caller. */
ms_status_t ms_backing_unmap(struct ms_pool *pool, struct ms_chunk *const *chunks, size_t count)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Maps a chunk that is mapped nowhere in the staging segment; and unmaps those in the slots from
 * there again. They may have been mapped at their final place meanwhile. */
ms_status_t ms_backing_map_aside(struct ms_pool *pool, struct ms_segment *staging, uint64_t slot,
                                 struct ms_chunk *chunk) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
ms_status_t ms_backing_unmap_aside(struct ms_pool *pool, struct ms_segment *staging, uint64_t from,
                                   uint64_t to) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Empties the slots of a chunk that the caller has unmapped. */
void ms_backing_clear(struct ms_pool *pool, struct ms_chunk *chunk) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Takes chunks out of idle ranges, which become holes, until `enough_bytes` have been or none is
 * left; they become spares. Adds what it took to *taken_bytes. */
ms_status_t ms_backing_unmap_idle(struct ms_pool *pool, uint64_t enough_bytes,
                                  uint64_t *taken_bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* How much, up to `enough_bytes` or a little more, lies in chunks that ms_backing_unmap_idle could
 * take. */
uint64_t ms_backing_idle_chunks(struct ms_pool *pool, uint64_t enough_bytes)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Adds a segment of addresses, one hole, that a request of `bytes` fits in. */
ms_status_t ms_backing_reserve(struct ms_pool *pool, uint64_t bytes, enum ms_region region)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Addresses where the pool maps chunks for a while, in no tree and no set. */
ms_status_t ms_backing_reserve_staging(struct ms_pool *pool, uint64_t bytes,
                                       struct ms_segment **out) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Without virtual memory management: a segment of plain memory that a request of `bytes` fits in,
 * as one busy range. And giving back those that are idle, until enough_bytes have been. */
ms_status_t ms_backing_plain_add(struct ms_pool *pool, uint64_t bytes, struct ms_range **out)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);
uint64_t ms_backing_plain_release(struct ms_pool *pool, uint64_t enough_bytes)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* See ms_pool_refresh_access. */
ms_status_t ms_backing_refresh_access(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Takes all chunks and segments apart at the pool's end. */
void ms_backing_drop_all(struct ms_pool *pool, bool device_gone) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* At the pool's end: chunks of a list that are mapped nowhere. */
void ms_backing_drop_list(struct ms_pool *pool, struct ms_chunk *list, bool device_gone)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

#endif
