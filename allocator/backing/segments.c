/* SPDX-License-Identifier: Apache-2.0 */
/* Reserves addresses; and allocates plain memory if the device has no virtual memory management. */
#include "allocator/backing/backing.h"
#include "allocator/base/arithmetic.h"
#include "allocator/device/budget.h"
#include "allocator/pool_state.h"
#include "allocator/space/range.h"
#include "allocator/space/tiling.h"

/* The size of a reservation, in multiples of the device's memory: addresses cost nothing, and
 * blocks that cannot grow in place move on to fresh ones. */
enum { RESERVE_TIMES_TOTAL = 4 };

#define PLAIN_SEGMENT_BYTES ((uint64_t)16 << 20) /* a segment that small requests share */
#define PLAIN_UNIT_BYTES    ((uint64_t)2 << 20)  /* the unit that large requests are rounded to */

static void emit_segment(struct ms_pool *pool, enum ms_event_kind kind, ms_addr_t addr,
                         uint64_t bytes) MS_REQUIRES(ms_state_role)
{
    ms_pool_emit(
        pool,
        (struct ms_event){
            .kind = (uint8_t)kind,
            .owner = MS_OWNER_POOL,
            .id = kind == MS_EVENT_RANGE_RESERVE || kind == MS_EVENT_RANGE_FREE ? 0 : addr,
            .addr = kind == MS_EVENT_CHUNK_CREATE || kind == MS_EVENT_CHUNK_RELEASE ? 0 : addr,
            .bytes = bytes});
}

ms_status_t ms_backing_reserve(struct ms_pool *pool, uint64_t bytes, enum ms_region region)
{
    const struct ms_device_ops *ops = pool->ops;
    uint64_t least_bytes = ms_round_up(bytes, pool->granule_bytes);
    uint64_t wanted_bytes =
        ms_round_up(RESERVE_TIMES_TOTAL * ops->total_bytes, pool->granule_bytes);
    if (wanted_bytes < least_bytes) {
        wanted_bytes = least_bytes;
    }
    ms_addr_t base = 0;
    ms_status_t status = ops->address_reserve(ops->ctx, wanted_bytes, pool->granule_bytes, &base);
    while (status == MS_ERR_NO_MEMORY && wanted_bytes > least_bytes) {
        wanted_bytes = ms_round_up(wanted_bytes / 2, pool->granule_bytes);
        wanted_bytes = wanted_bytes < least_bytes ? least_bytes : wanted_bytes;
        status = ops->address_reserve(ops->ctx, wanted_bytes, pool->granule_bytes, &base);
    }
    if (status != MS_OK) {
        return status;
    }
    struct ms_segment *segment = NULL;
    ms_state_acquire(pool);
    status = ms_segment_add(pool, base, wanted_bytes, false, &segment);
    if (status == MS_OK) {
        emit_segment(pool, MS_EVENT_RANGE_RESERVE, base, wanted_bytes);
        segment->region = region;
        ms_range_make_hole(pool, segment->first);
    }
    ms_state_release(pool);
    if (status != MS_OK) {
        /* Addresses hold no memory: a device that refuses to take them back keeps them. */
        (void)ops->address_free(ops->ctx, base, wanted_bytes);
    }
    return status;
}

ms_status_t ms_backing_reserve_staging(struct ms_pool *pool, uint64_t bytes,
                                       struct ms_segment **out)
{
    const struct ms_device_ops *ops = pool->ops;
    ms_addr_t base = 0;
    ms_status_t status = ops->address_reserve(ops->ctx, bytes, pool->granule_bytes, &base);
    if (status != MS_OK) {
        return status;
    }
    ms_state_acquire(pool);
    status = ms_segment_add(pool, base, bytes, false, out);
    if (status == MS_OK) {
        emit_segment(pool, MS_EVENT_RANGE_RESERVE, base, bytes);
        (*out)->first->state = MS_RANGE_STUCK; /* no block may have it */
    }
    ms_state_release(pool);
    if (status != MS_OK) {
        (void)ops->address_free(ops->ctx, base, bytes);
    }
    return status;
}

/* ---- plain segments */

static ms_status_t plain_make(struct ms_pool *pool, uint64_t bytes, struct ms_range **out)
    MS_REQUIRES(ms_growth_role)
{
    const struct ms_device_ops *ops = pool->ops;
    if (!ms_budget_charge(pool->config.budget, MS_OWNER_POOL, bytes)) {
        return MS_ERR_NO_MEMORY;
    }
    ms_addr_t base = 0;
    ms_status_t status = ops->plain_alloc(ops->ctx, bytes, &base);
    if (status != MS_OK) {
        ms_budget_discharge(pool->config.budget, MS_OWNER_POOL, bytes);
        return status;
    }
    struct ms_chunk *chunk = ms_slab_take(&pool->chunk_slab);
    struct ms_segment *segment = NULL;
    ms_state_acquire(pool);
    status = chunk == NULL ? MS_ERR_NO_MEMORY : ms_segment_add(pool, base, bytes, true, &segment);
    if (status == MS_OK) {
        *chunk = (struct ms_chunk){.handle = base, .bytes = bytes, .segment = segment};
        segment->slots[0] = chunk;
        pool->count.chunks_created++;
        pool->count.reserved_bytes += bytes;
        emit_segment(pool, MS_EVENT_CHUNK_CREATE, base, bytes);
        emit_segment(pool, MS_EVENT_MAP, base, bytes);
        *out = segment->first;
    }
    ms_state_release(pool);
    if (status != MS_OK) {
        if (chunk != NULL) {
            ms_slab_give(&pool->chunk_slab, chunk);
        }
        if (ops->plain_free(ops->ctx, base) == MS_OK) {
            ms_budget_discharge(pool->config.budget, MS_OWNER_POOL, bytes);
        }
    }
    return status;
}

ms_status_t ms_backing_plain_add(struct ms_pool *pool, uint64_t bytes, struct ms_range **out)
{
    uint64_t least_bytes = ms_round_up(bytes, PLAIN_UNIT_BYTES);
    if (least_bytes < PLAIN_SEGMENT_BYTES) {
        ms_status_t status = plain_make(pool, PLAIN_SEGMENT_BYTES, out);
        if (status != MS_ERR_NO_MEMORY) {
            return status;
        }
    }
    return plain_make(pool, least_bytes, out);
}

static bool whole_segment(const struct ms_range *range)
{
    return range->prev == NULL && range->next == NULL;
}

/* Removes the segment from the pool's books after its memory went. State lock. */
static void plain_forget(struct ms_pool *pool, struct ms_segment *segment)
    MS_REQUIRES(ms_growth_role, ms_state_role)
{
    struct ms_chunk *chunk = segment->slots[0];
    pool->count.chunks_released++;
    pool->count.reserved_bytes -= chunk->bytes;
    emit_segment(pool, MS_EVENT_UNMAP, segment->base, chunk->bytes);
    emit_segment(pool, MS_EVENT_CHUNK_RELEASE, segment->base, chunk->bytes);
    ms_segment_remove(pool, segment);
    ms_slab_give(&pool->chunk_slab, chunk);
}

uint64_t ms_backing_plain_release(struct ms_pool *pool, uint64_t enough_bytes)
{
    uint64_t released_bytes = 0;
    uint64_t past_bytes = 0;
    ms_addr_t past_addr = 0;
    while (released_bytes < enough_bytes) {
        ms_state_acquire(pool);
        struct ms_treap_node **root = &pool->orders.idle.bins[MS_REGION_LARGE].large;
        struct ms_range *range = ms_range_tree_at_least(*root, past_bytes, past_addr);
        while (range != NULL && !whole_segment(range)) {
            range = ms_range_tree_after(*root, range);
        }
        if (range != NULL) {
            past_bytes = range->bytes;
            past_addr = range->addr + 1;
            ms_range_take(pool, range);
        }
        ms_state_release(pool);
        if (range == NULL) {
            break;
        }
        uint64_t bytes = range->bytes;
        ms_status_t status = pool->ops->plain_free(pool->ops->ctx, range->addr);
        ms_state_acquire(pool);
        if (status == MS_OK) {
            plain_forget(pool, range->segment);
        } else {
            ms_range_make_free(pool, range, NULL);
        }
        ms_state_release(pool);
        if (status == MS_OK) {
            ms_budget_discharge(pool->config.budget, MS_OWNER_POOL, bytes);
            released_bytes += bytes;
        }
    }
    return released_bytes;
}
