/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks as such: new ones, and those that are mapped nowhere. Spares are on the device and wait to
 * be mapped again or released; the reserve is on the host: chunks of one granule for
 * obligations, and those and larger ones for what is spilled. Growth lock held, state lock not, but
 * where a function says something else. */
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
    bool large;      /* few and large ones, as long as memory is ample */
    bool for_tensor; /* for a tensor: the room kept for holes may be used */
    bool host;       /* where the device has none, from the reserve of host chunks */
};

/* Whether a chunk of so many bytes may be made at once: it cannot be split later. */
bool ms_backing_ample(const struct ms_pool *pool, uint64_t bytes);

/* A new chunk on the device, charged: a spare that is in no list. properties: see device_ops.h. */
ms_status_t ms_backing_chunk_make(struct ms_pool *pool, uint64_t bytes, bool for_tensor,
                                  const void *properties, struct ms_chunk **out)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);
/* A new one on the host, in the reserve. */
ms_status_t ms_backing_host_make(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
/* The largest of the reserve of at least and at most so many bytes. MS_ERR_NO_MEMORY: there is
 * none. */
ms_status_t ms_backing_host_take(struct ms_pool *pool, uint64_t least_bytes, uint64_t most_bytes,
                                 struct ms_chunk **out) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
/* Gives host chunks of the reserve back, those that have been there longest, until keep_bytes are
 * left; cover_bytes of them, or all there are, in chunks of one granule. */
void ms_backing_host_release(struct ms_pool *pool, uint64_t cover_bytes, uint64_t keep_bytes)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Puts a chunk that is mapped nowhere with the spares, one on the host with the reserve. */
void ms_backing_add_spare(struct ms_pool *pool, struct ms_chunk *chunk) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
/* Likewise all of a list, linked by `next`. */
void ms_backing_add_spares(struct ms_pool *pool, struct ms_chunk *list) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* A chunk for a place of `bytes`, of at most that size: a spare, else a new one, smaller where
 * budget or device have no room for a large one; else, where the fill allows it, one of the
 * reserve. */
ms_status_t ms_backing_chunk_get(struct ms_pool *pool, uint64_t bytes, const struct ms_fill *fill,
                                 struct ms_chunk **out) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Gives the spares back to the device; returns the bytes released. Where obligations are more than
 * is earmarked for them, the room is earmarked. */
uint64_t ms_backing_release_spares(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Records and counts a chunk's event once it has taken effect: its creation, release, mapping or
 * unmapping. The second one under the state lock. */
void ms_backing_record(struct ms_pool *pool, enum ms_event_kind kind, struct ms_chunk *chunk)
    MS_EXCLUDES(ms_state_role);
void ms_backing_record_locked(struct ms_pool *pool, enum ms_event_kind kind, struct ms_chunk *chunk)
    MS_REQUIRES(ms_state_role);
/* Likewise of its mapping among what is staged, before that is noted in it. State lock. */
void ms_backing_record_aside(struct ms_pool *pool, enum ms_event_kind kind, struct ms_chunk *chunk,
                             ms_addr_t addr) MS_REQUIRES(ms_state_role);

/* So much is not spilled any more; or, after a move that failed, is again, for which there was
 * room before it. State lock. */
void ms_backing_spilled_less(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_state_role);
void ms_backing_spilled_again(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_state_role);

#endif
