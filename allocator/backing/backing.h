/* SPDX-License-Identifier: Apache-2.0 */
/* Backing: chunks under addresses. Growth lock held, state lock not, unless a function says
 * otherwise. */
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

/* Backs every granule without a chunk under a busy range and gives access. A range that ends in a
 * hole must end on a granule. On failure it undoes all that it did, except in slots whose chunk is
 * stuck. */
ms_status_t ms_backing_fill(struct ms_pool *pool, const struct ms_range *range, bool large)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Backs the unbacked granules of arenas in the slots [from, to), one run after the other. If one
 * run fails, the runs before it stay backed. */
ms_status_t ms_backing_fill_holes(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                  uint64_t to, const struct ms_fill *fill)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Marks a chunk that cannot be unmapped: nobody may use it, and it is lost with its slots. */
void ms_backing_stick(struct ms_pool *pool, struct ms_chunk *chunk) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
/* Tries again to unmap a stuck chunk. On failure its slots stay lost. */
ms_status_t ms_backing_unstick(struct ms_pool *pool, struct ms_chunk *chunk)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Gives up the slot's contents after a device failed again and again. `stuck`: a chunk that is
 * mapped there without access; null: none is. An event reports it if something lives there. */
void ms_backing_lose(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot,
                     struct ms_chunk *stuck) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Visits the chunks of the slots [from, to); `from` is a chunk's first. MS_ERR_NOT_SUPPORTED: not
 * all of them lie on device chunks; MS_ERR_NO_MEMORY: the visitor has none. */
ms_status_t ms_backing_visit(const struct ms_pool *pool, const struct ms_segment *segment,
                             uint64_t from, uint64_t to, const struct ms_chunk_visitor *visitor)
    MS_REQUIRES(ms_growth_role);

/* Maps the chunk at its place and notes it there; does not set access. */
ms_status_t ms_backing_map(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot,
                           struct ms_chunk *chunk) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Makes the mapped slots [from, to) accessible: their granules have their backing from then on. A
 * block may have become an arena while its chunks were exchanged, and its granules, whose slots
 * were empty, unbacked. */
ms_status_t ms_backing_give_access(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                   uint64_t to) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
/* Unmaps neighbouring chunks in one call, and emits events; the caller updates slots and lists. */
ms_status_t ms_backing_unmap(struct ms_pool *pool, struct ms_chunk *const *chunks, size_t count)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Maps a chunk that is mapped nowhere in the staging segment; unmaps the chunks of these slots from
 * there. They may have been mapped at their final place meanwhile. */
ms_status_t ms_backing_map_aside(struct ms_pool *pool, struct ms_segment *staging, uint64_t slot,
                                 struct ms_chunk *chunk) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
ms_status_t ms_backing_unmap_aside(struct ms_pool *pool, struct ms_segment *staging, uint64_t from,
                                   uint64_t to) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Empties the slots of a chunk that the caller has unmapped. */
void ms_backing_clear(struct ms_pool *pool, struct ms_chunk *chunk) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Takes chunks out of idle ranges, which become holes, until it has enough_bytes or none is left.
 * The chunks become spares. Adds what it took to *taken_bytes. */
ms_status_t ms_backing_unmap_idle(struct ms_pool *pool, uint64_t enough_bytes,
                                  uint64_t *taken_bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Bytes of the chunks that ms_backing_unmap_idle could take, counted up to enough_bytes or a little
 * more. */
uint64_t ms_backing_idle_chunks(struct ms_pool *pool, uint64_t enough_bytes)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);
/* The same, without those that parked views hold, and for callers without the growth lock. */
uint64_t ms_backing_idle_now(struct ms_pool *pool, uint64_t enough_bytes)
    MS_EXCLUDES(ms_state_role);

/* Adds a segment of addresses, one hole, large enough for a request of `bytes`. */
ms_status_t ms_backing_reserve(struct ms_pool *pool, uint64_t bytes, enum ms_region region)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Reserves addresses at which the pool maps chunks for a while; they are in no tree and no set. */
ms_status_t ms_backing_reserve_staging(struct ms_pool *pool, uint64_t bytes,
                                       struct ms_segment **out) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Without virtual memory management: adds a segment of plain memory, large enough for a request of
 * `bytes`, as one busy range; gives back idle segments until they make up enough_bytes. */
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

/* At the pool's end: gives up the chunks of a list that are mapped nowhere. */
void ms_backing_drop_list(struct ms_pool *pool, struct ms_chunk *list, bool device_gone)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

#endif
