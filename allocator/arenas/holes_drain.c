/* SPDX-License-Identifier: Apache-2.0 */
/* Draining ranges: host chunks under nothing live wait for the work on them, then become holes. */
#include "allocator/arenas/holes.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/device_room.h"
#include "allocator/backing/epochs.h"
#include "allocator/backing/fences.h"
#include "allocator/backing/granules.h"
#include "allocator/backing/obligations.h"
#include "allocator/pool_state.h"
#include "allocator/space/tiling.h"

static void forget_draining(struct ms_pool *pool, struct ms_range *range) MS_REQUIRES(ms_state_role)
{
    struct ms_range *next = range->draining.next;
    struct ms_range *prev = range->draining.prev;
    if (prev != NULL) {
        prev->draining.next = next;
    } else {
        pool->draining = next;
    }
    if (next != NULL) {
        next->draining.prev = prev;
    }
}

static struct ms_chunk *chunk_behind(const struct ms_pool *pool, const struct ms_range *range)
{
    const struct ms_segment *segment = range->segment;
    return segment->slots[(range->addr - segment->base) / pool->granule_bytes];
}

/* Whether the chunk behind a draining range begins there, and all that lies on it drains, with its
 * work known to be done. A chunk may have thousands of ranges: its first one answers for all. */
static bool drained(const struct ms_pool *pool, const struct ms_range *range)
    MS_REQUIRES(ms_state_role)
{
    const struct ms_chunk *chunk = chunk_behind(pool, range);
    const ms_addr_t begin = range->segment->base + chunk->slot * pool->granule_bytes;
    if (range->addr != begin) {
        return false;
    }
    while (range->state == MS_RANGE_DRAINING && range->draining.epoch <= pool->epochs.done) {
        if (range->addr + range->bytes >= begin + chunk->bytes) {
            return true;
        }
        range = range->next;
    }
    return false;
}

/* Makes one busy range of each chunk that has drained. Lists them by `draining.next`. */
static struct ms_range *take_drained(struct ms_pool *pool) MS_REQUIRES(ms_state_role)
{
    struct ms_range *list = NULL;
    struct ms_range *next = NULL;
    for (struct ms_range *range = pool->draining; range != NULL; range = next) {
        next = range->draining.next;
        if (drained(pool, range)) {
            forget_draining(pool, range);
            range->draining.next = list;
            list = range;
        }
    }
    for (struct ms_range *range = list; range != NULL; range = range->draining.next) {
        range->state = MS_RANGE_BUSY;
        while (range->bytes < chunk_behind(pool, range)->bytes) {
            forget_draining(pool, range->next);
            ms_range_absorb_next(pool, range);
        }
    }
    return list;
}

void ms_holes_drain_no_more(struct ms_pool *pool)
{
    ms_state_acquire(pool);
    struct ms_range *next = NULL;
    for (struct ms_range *range = pool->draining; range != NULL; range = next) {
        next = range->draining.next;
        const struct ms_chunk *chunk = chunk_behind(pool, range);
        if (chunk == NULL || chunk->stuck || !chunk->host) {
            forget_draining(pool, range);
            range->state = MS_RANGE_BUSY;
            ms_range_give_up(pool, range, NULL);
        }
    }
    ms_state_release(pool);
}

void ms_holes_drain(struct ms_pool *pool)
{
    ms_state_acquire(pool);
    struct ms_range *list = take_drained(pool);
    while (list != NULL) {
        struct ms_range *range = list;
        struct ms_chunk *chunk = chunk_behind(pool, range);
        list = range->draining.next;
        ms_state_release(pool);
        bool unmapped = ms_backing_unmap(pool, &chunk, 1) == MS_OK;
        if (unmapped) {
            ms_backing_clear(pool, chunk);
            ms_backing_add_spare(pool, chunk);
        }
        ms_state_acquire(pool);
        if (unmapped) {
            ms_range_make_hole(pool, range);
        } else {
            ms_range_drain(pool, range);
        }
    }
    ms_state_release(pool);
}
