/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges in their segments: covers each segment with ranges, and splits, joins, takes and gives
 * them up. State lock, unless a function says otherwise. */
#ifndef MEMSHIM_ALLOCATOR_SPACE_TILING_H
#define MEMSHIM_ALLOCATOR_SPACE_TILING_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/base/status.h"
#include "allocator/space/block.h"
#include "allocator/space/orders.h"
#include "allocator/space/range.h"
#include "allocator/space/segment.h"

/* Either lock, which Clang cannot express. */
struct ms_segment *ms_segment_of(const struct ms_pool *pool, ms_addr_t addr);

/* Adds a segment covered by one busy range; both locks. MS_ERR_NO_MEMORY: the host has no room, and
 * nothing was added. */
ms_status_t ms_segment_add(struct ms_pool *pool, ms_addr_t base, uint64_t bytes, bool plain,
                           struct ms_segment **out) MS_REQUIRES(ms_growth_role, ms_state_role);
/* Removes a segment whose single range is in no set. */
void ms_segment_remove(struct ms_pool *pool, struct ms_segment *segment)
    MS_REQUIRES(ms_growth_role, ms_state_role);

/* Cuts `range`, which must be in no set, so that it keeps its first `bytes`; the rest becomes a new
 * range in the same state and in no set. Null: the host is out of memory. */
struct ms_range *ms_range_split(struct ms_pool *pool, struct ms_range *range, uint64_t bytes)
    MS_REQUIRES(ms_state_role);

/* Joins `range` with its next neighbour, both in no set, and frees the neighbour's node. */
void ms_range_absorb_next(struct ms_pool *pool, struct ms_range *range) MS_REQUIRES(ms_state_role);

/* Makes a range that is in no set free in `batch` (null: idle), or a hole, and joins it with
 * neighbours where possible. Returns the range that holds it now. */
struct ms_range *ms_range_make_free(struct ms_pool *pool, struct ms_range *range,
                                    struct ms_batch *batch) MS_REQUIRES(ms_state_role);
struct ms_range *ms_range_make_hole(struct ms_pool *pool, struct ms_range *range)
    MS_REQUIRES(ms_state_role);

/* Makes a range that is in no set, and lies on one host chunk, draining from now on. */
void ms_range_drain(struct ms_pool *pool, struct ms_range *range) MS_REQUIRES(ms_state_role);

/* Takes a free range or a hole out of its sets and makes it busy. */
void ms_range_take(struct ms_pool *pool, struct ms_range *range) MS_REQUIRES(ms_state_role);

/* The order of a free range. */
struct ms_order *ms_range_order(struct ms_pool *pool, const struct ms_range *range)
    MS_REQUIRES(ms_state_role);

/* So many bytes are known to wait. MS_EVENT_WAITS comes once pending_bytes differs from them by a
 * part of the device, or nothing waits any more. State lock, or nobody else has the pool yet. */
void ms_waits_told(struct ms_pool *pool, uint64_t bytes);

/* Whether a request on `stream` may use the free range at once. */
bool ms_range_usable(const struct ms_range *range, ms_stream_t stream) MS_REQUIRES(ms_state_role);

/* Turns the busy range into a live block of the request, and emits its event. */
void ms_range_make_live(struct ms_pool *pool, struct ms_range *range,
                        const struct ms_request *request, struct ms_block_info *out)
    MS_REQUIRES(ms_state_role);

void ms_range_info(const struct ms_range *range, struct ms_block_info *out)
    MS_REQUIRES(ms_state_role);

/* Takes `bytes` (rounded) from the beginning of a free range: that part becomes busy and in no set,
 * the rest stays free. False: the host is out of memory, and nothing changed. */
bool ms_range_claim(struct ms_pool *pool, struct ms_range *range, uint64_t bytes)
    MS_REQUIRES(ms_state_role);

/* Likewise, but makes a live block of that part. */
ms_status_t ms_range_carve(struct ms_pool *pool, struct ms_range *range, uint64_t bytes,
                           const struct ms_request *request, struct ms_block_info *out)
    MS_REQUIRES(ms_state_role);

/* Gives up the busy range. Each part becomes free in `batch` (null: idle) if device memory backs
 * it; otherwise draining, stuck or a hole, by its backing. State lock. */
void ms_range_give_up(struct ms_pool *pool, struct ms_range *range, struct ms_batch *batch)
    MS_REQUIRES(ms_state_role);
/* Gives up ranges that the host then had no memory to cut into parts, as frees in the device's
 * order. Growth lock held, state lock not. */
void ms_ranges_give_up_whole(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* The last live block of addr's segment that begins at or below addr; null: there is none. State
 * lock. */
struct ms_range *ms_block_at_or_below(struct ms_pool *pool, ms_addr_t addr)
    MS_REQUIRES(ms_state_role);

/* The live block around addr; null: there is none. State lock. */
struct ms_range *ms_block_around(struct ms_pool *pool, ms_addr_t addr) MS_REQUIRES(ms_state_role);

#endif
