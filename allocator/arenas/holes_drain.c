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

static void forget_draining(struct ms_pool *pool, struct ms_range *range)
{
    struct ms_range **link = &pool->draining;
    while (*link != range) {
        link = &(*link)->draining.next;
    }
    *link = range->draining.next;
}

static bool drained(const struct ms_pool *pool, const struct ms_range *range)
{
    return range->state == MS_RANGE_DRAINING && range->draining.epoch <= pool->epochs.done;
}

/* Makes all of the chunk behind a draining range one busy range; null: something else lies on it,
 * or its work is not known to be done. */
static struct ms_range *take_drained(struct ms_pool *pool, struct ms_range *range)
    MS_REQUIRES(ms_state_role)
{
    const struct ms_segment *segment = range->segment;
    const struct ms_chunk *chunk =
        segment->slots[(range->addr - segment->base) / pool->granule_bytes];
    ms_addr_t begin = segment->base + chunk->slot * pool->granule_bytes;
    while (drained(pool, range) && range->addr > begin) {
        range = range->prev;
    }
    const struct ms_range *last = range;
    while (drained(pool, last) && last->addr + last->bytes < begin + chunk->bytes) {
        last = last->next;
    }
    if (!drained(pool, range) || !drained(pool, last)) {
        return NULL;
    }
    forget_draining(pool, range);
    range->state = MS_RANGE_BUSY;
    while (range->bytes < chunk->bytes) {
        forget_draining(pool, range->next);
        ms_range_absorb_next(pool, range);
    }
    return range;
}

void ms_holes_drain_no_more(struct ms_pool *pool)
{
    ms_state_acquire(pool);
    struct ms_range **link = &pool->draining;
    while (*link != NULL) {
        struct ms_range *range = *link;
        const struct ms_segment *segment = range->segment;
        if (segment->slots[(range->addr - segment->base) / pool->granule_bytes]->host) {
            link = &range->draining.next;
        } else {
            *link = range->draining.next;
            range->state = MS_RANGE_BUSY;
            ms_range_make_free(pool, range, NULL);
        }
    }
    ms_state_release(pool);
}

void ms_holes_drain(struct ms_pool *pool)
{
    ms_state_acquire(pool);
    struct ms_range *next = pool->draining;
    while (next != NULL) {
        struct ms_range *range = take_drained(pool, next);
        if (range == NULL) {
            next = next->draining.next;
            continue;
        }
        struct ms_segment *segment = range->segment;
        uint64_t slot = (range->addr - segment->base) / pool->granule_bytes;
        struct ms_chunk *chunk = segment->slots[slot];
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
            range->state = MS_RANGE_DRAINING;
            range->draining.next = pool->draining;
            range->draining.epoch = pool->epochs.current;
            pool->draining = range;
        }
        /* Others may have changed the list meanwhile. */
        next = pool->draining;
    }
    ms_state_release(pool);
}
