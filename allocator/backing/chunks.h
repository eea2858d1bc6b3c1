/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks as such: new ones, and those that are mapped nowhere. Spares are on the device, to be
 * mapped again or released. The reserve is on the host: chunks of one granule for obligations, and
 * chunks of all sizes for spilled memory. Growth lock held, state lock not, unless a function says
 * otherwise. */
#ifndef MEMSHIM_ALLOCATOR_BACKING_CHUNKS_H
#define MEMSHIM_ALLOCATOR_BACKING_CHUNKS_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/event.h"
#include "allocator/base/locks/lock_annotations.h"
#include "allocator/base/status.h"
#include "allocator/space/block.h"
#include "allocator/space/segment.h"

/* How a fill gets its chunks: spares first, then new ones. */
struct ms_fill {
    bool large;      /* few and large chunks, while memory is ample */
    bool for_tensor; /* for a tensor: it may use the bytes earmarked for holes */
    bool host;       /* if the device has no room, use the reserve of host chunks */
};

/* Whether memory is ample enough for one chunk of so many bytes, which cannot be split later. */
bool ms_backing_ample(const struct ms_pool *pool, uint64_t bytes);

/* Makes a charged chunk on the device: a spare, but in no list. properties: see device_ops.h. */
ms_status_t ms_backing_chunk_make(struct ms_pool *pool, uint64_t bytes, bool for_tensor,
                                  const void *properties, struct ms_chunk **out)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);
/* Makes a chunk on the host, in the reserve. */
ms_status_t ms_backing_host_make(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
/* The largest chunk of the reserve between these two sizes. MS_ERR_NO_MEMORY: there is none. */
ms_status_t ms_backing_host_take(struct ms_pool *pool, uint64_t least_bytes, uint64_t most_bytes,
                                 struct ms_chunk **out) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
/* Gives back host chunks of the reserve, oldest first, until keep_bytes are left. cover_bytes of
 * these stay in chunks of one granule, or as many as there are. */
void ms_backing_host_release(struct ms_pool *pool, uint64_t cover_bytes, uint64_t keep_bytes)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Adds a chunk that is mapped nowhere to the spares, or to the reserve if it is on the host. */
void ms_backing_add_spare(struct ms_pool *pool, struct ms_chunk *chunk) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
/* Likewise all chunks of a list, linked by `next`. */
void ms_backing_add_spares(struct ms_pool *pool, struct ms_chunk *list) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Gets a chunk of at most `bytes` for a place: a spare, else a new one, smaller if budget or device
 * have no room for a large one, else one of the reserve if the fill allows that. */
ms_status_t ms_backing_chunk_get(struct ms_pool *pool, uint64_t bytes, const struct ms_fill *fill,
                                 struct ms_chunk **out) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Gives the spares back to the device; returns the bytes released. Room that obligations lack
 * becomes earmarked. */
uint64_t ms_backing_release_spares(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Records and counts a chunk's event after it took effect: its creation, release, mapping or
 * unmapping. The second function is for callers with the state lock. */
void ms_backing_record(struct ms_pool *pool, enum ms_event_kind kind, struct ms_chunk *chunk)
    MS_EXCLUDES(ms_state_role);
void ms_backing_record_locked(struct ms_pool *pool, enum ms_event_kind kind, struct ms_chunk *chunk)
    MS_REQUIRES(ms_state_role);
/* Likewise for a mapping in the staging segment, before the segment notes it. State lock. */
void ms_backing_record_aside(struct ms_pool *pool, enum ms_event_kind kind, struct ms_chunk *chunk,
                             ms_addr_t addr) MS_REQUIRES(ms_state_role);

/* Lowers the sum of spilled bytes; or raises it again after a failed move, since there was room for
 * it before. State lock. */
void ms_backing_spilled_less(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_state_role);
void ms_backing_spilled_again(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_state_role);

#endif
