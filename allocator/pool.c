#include "allocator/pool.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/pool_internal.h"

/* The unit of backing: the device's granule, but not smaller than is worth a driver call. */
#define SMALLEST_UNIT_BYTES ((uint64_t)2 << 20)

static uint64_t unit_of(const struct ms_device_ops *ops)
{
    uint64_t granule_bytes = ops->granule_bytes;
    bool small = granule_bytes != 0 && granule_bytes < SMALLEST_UNIT_BYTES;
    return small ? SMALLEST_UNIT_BYTES : granule_bytes;
}

ms_status_t ms_pool_create(const struct ms_pool_config *config, ms_pool_t **out)
{
    struct ms_pool *pool = ms_pages_map(sizeof(*pool));
    if (pool == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    pool->config = *config;
    pool->ops = config->ops;
    pool->granule_bytes = unit_of(config->ops);
    ms_slab_init(&pool->range_slab, sizeof(struct ms_range));
    ms_slab_init(&pool->chunk_slab, sizeof(struct ms_chunk));
    ms_slab_init(&pool->segment_slab, sizeof(struct ms_segment));
    bool index_made = ms_index_init(&pool->index);
    if (!index_made || !ms_orders_init(&pool->orders)) {
        if (index_made) {
            ms_index_destroy(&pool->index);
            ms_orders_destroy(&pool->orders);
        }
        ms_pages_unmap(pool, sizeof(*pool));
        return MS_ERR_NO_MEMORY;
    }
    *out = pool;
    return MS_OK;
}

static void tell_freed(struct ms_pool *pool, const struct ms_range *range, ms_stream_t stream)
{
    ms_pool_emit(pool, &(struct ms_event){.kind = MS_EVENT_BLOCK_FREE,
                                          .owner = MS_OWNER_POOL,
                                          .id = range->live.id,
                                          .addr = range->addr,
                                          .bytes = range->live.asked_bytes,
                                          .stream = stream,
                                          .aux = range->arena ? 1 : 0});
}

void ms_pool_destroy(ms_pool_t *pool, bool device_gone)
{
    if (pool == NULL) {
        return;
    }
    ms_lock_acquire(&pool->growth);
    ms_lock_acquire(&pool->state);
    for (size_t at = 0; at < pool->segment_count; at++) {
        for (const struct ms_range *range = pool->segments[at]->first; range != NULL;
             range = range->next) {
            if (range->state == MS_RANGE_LIVE) {
                tell_freed(pool, range, MS_STREAM_DEVICE);
            }
        }
    }
    ms_lock_release(&pool->state);
    if (!device_gone) {
        ms_marks_release_all(pool);
    }
    ms_backing_drop_all(pool, device_gone);
    while (pool->segment_count > 0) {
        ms_segment_remove(pool, pool->segments[0]);
    }
    if (pool->segments != NULL) {
        ms_pages_unmap(pool->segments, ms_pointers_bytes(pool->segment_room));
    }
    ms_index_destroy(&pool->index);
    ms_orders_destroy(&pool->orders);
    ms_slab_destroy(&pool->range_slab);
    ms_slab_destroy(&pool->chunk_slab);
    ms_slab_destroy(&pool->segment_slab);
    ms_pages_unmap(pool, sizeof(*pool));
}

ms_status_t ms_pool_reuse(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                          struct ms_block_info *out)
{
    struct ms_range *best = ms_bins_best(&pool->orders.idle.bins, bytes);
    if (request->stream != MS_STREAM_DEVICE && (best == NULL || best->bytes != bytes)) {
        const struct ms_order *own = ms_orders_find(&pool->orders, request->stream);
        struct ms_range *range = own == NULL ? NULL : ms_bins_best(&own->bins, bytes);
        /* The stream's own before what would serve everybody. */
        if (range != NULL && (best == NULL || range->bytes <= best->bytes)) {
            best = range;
        }
    }
    return best == NULL ? MS_ERR_NO_MEMORY : ms_range_carve(pool, best, bytes, request, out);
}

static ms_status_t note_failure(struct ms_pool *pool, ms_status_t status)
{
    ms_lock_acquire(&pool->state);
    pool->count.failed_allocations++;
    ms_lock_release(&pool->state);
    return status;
}

ms_status_t ms_pool_alloc(ms_pool_t *pool, const struct ms_request *request,
                          struct ms_block_info *out)
{
    if (request->bytes == 0) {
        return note_failure(pool, MS_ERR_INVALID);
    }
    if (request->bytes > pool->ops->total_bytes) {
        return note_failure(pool, MS_ERR_NO_MEMORY);
    }
    uint64_t bytes = ms_round_up(request->bytes, MS_BLOCK_ALIGNMENT_BYTES);
    ms_lock_acquire(&pool->state);
    ms_status_t status = ms_pool_reuse(pool, request, bytes, out);
    ms_lock_release(&pool->state);
    if (status == MS_ERR_NO_MEMORY) {
        status = ms_ladder_climb(pool, request, bytes, out);
    }
    return status == MS_OK ? MS_OK : note_failure(pool, status);
}

/* The live block around addr; null where there is none. State lock. */
static struct ms_range *block_around(struct ms_pool *pool, ms_addr_t addr)
{
    struct ms_range *range = ms_index_find(&pool->index, addr);
    if (range != NULL) {
        return range;
    }
    const struct ms_segment *segment = ms_segment_of(pool, addr);
    uint64_t position = 0;
    if (segment == NULL ||
        !ms_starts_at_or_below(&segment->starts, (addr - segment->base) / MS_BLOCK_ALIGNMENT_BYTES,
                               &position)) {
        return NULL;
    }
    range = ms_index_find(&pool->index, segment->base + position * MS_BLOCK_ALIGNMENT_BYTES);
    return addr - range->addr < range->live.asked_bytes ? range : NULL;
}

ms_status_t ms_pool_free(ms_pool_t *pool, ms_addr_t addr, ms_stream_t stream)
{
    ms_lock_acquire(&pool->state);
    struct ms_range *range = ms_index_take(&pool->index, addr);
    if (range == NULL) {
        /* Inside a live block nobody freed anything; elsewhere in a segment somebody has. */
        bool freed = ms_segment_of(pool, addr) != NULL && block_around(pool, addr) == NULL;
        ms_lock_release(&pool->state);
        return freed ? MS_ERR_INVALID : MS_ERR_NOT_OURS;
    }
    tell_freed(pool, range, stream);
    struct ms_segment *segment = range->segment;
    ms_starts_clear(&segment->starts, (addr - segment->base) / MS_BLOCK_ALIGNMENT_BYTES);
    pool->count.live_blocks--;
    pool->count.live_bytes -= range->live.asked_bytes;
    pool->count.arena_bytes -= range->arena ? range->live.asked_bytes : 0;
    pool->count.set_aside_bytes -= range->bytes;
    pool->count.frees++;
    ms_range_make_free(pool, range, ms_orders_need(&pool->orders, stream)->open);
    ms_lock_release(&pool->state);
    return MS_OK;
}

ms_status_t ms_pool_find(ms_pool_t *pool, ms_addr_t addr, struct ms_block_info *out)
{
    ms_lock_acquire(&pool->state);
    const struct ms_range *range = block_around(pool, addr);
    if (range != NULL) {
        ms_range_info(range, out);
    }
    ms_lock_release(&pool->state);
    return range != NULL ? MS_OK : MS_ERR_NOT_OURS;
}

ms_status_t ms_pool_pin(ms_pool_t *pool, ms_addr_t addr)
{
    ms_lock_acquire(&pool->state);
    struct ms_range *range = block_around(pool, addr);
    if (range != NULL) {
        range->pinned = true;
    }
    ms_lock_release(&pool->state);
    return range != NULL ? MS_OK : MS_ERR_NOT_OURS;
}

ms_status_t ms_pool_mark_arena(struct ms_pool *pool, ms_addr_t addr, struct ms_block_info *out)
{
    ms_lock_acquire(&pool->state);
    struct ms_range *range = block_around(pool, addr);
    if (range != NULL) {
        if (!range->arena) {
            range->arena = true;
            pool->count.arena_bytes += range->live.asked_bytes;
            ms_pool_emit(pool, &(struct ms_event){.kind = MS_EVENT_BLOCK_ARENA,
                                                  .owner = MS_OWNER_POOL,
                                                  .id = range->live.id,
                                                  .addr = range->addr,
                                                  .bytes = range->live.asked_bytes});
        }
        ms_range_info(range, out);
    }
    ms_lock_release(&pool->state);
    return range != NULL ? MS_OK : MS_ERR_NOT_OURS;
}

/* What is reserved beyond live blocks and beyond what may stay. */
static uint64_t excess_bytes(struct ms_pool *pool, uint64_t keep_bytes)
{
    ms_lock_acquire(&pool->state);
    uint64_t beyond_bytes = pool->count.reserved_bytes - pool->count.set_aside_bytes;
    ms_lock_release(&pool->state);
    return beyond_bytes > keep_bytes ? beyond_bytes - keep_bytes : 0;
}

uint64_t ms_pool_trim(ms_pool_t *pool, uint64_t keep_bytes)
{
    uint64_t released_bytes = 0;
    ms_lock_acquire(&pool->growth);
    uint64_t enough_bytes = excess_bytes(pool, keep_bytes);
    if (enough_bytes > 0 && !pool->ops->capturing(pool->ops->ctx)) {
        ms_marks_take(pool, false);
        (void)ms_marks_poll(pool);
        if (pool->granule_bytes == 0) {
            released_bytes = ms_backing_plain_release(pool, enough_bytes);
        } else {
            /* What a refusing device leaves mapped stays idle; what was unmapped is released. */
            uint64_t taken_bytes = 0;
            (void)ms_backing_unmap_idle(pool, enough_bytes, &taken_bytes);
            released_bytes = ms_backing_release_spares(pool);
        }
    }
    ms_lock_release(&pool->growth);
    return released_bytes;
}

void ms_pool_stream_gone(ms_pool_t *pool, ms_stream_t stream)
{
    ms_lock_acquire(&pool->growth);
    ms_marks_stream_gone(pool, stream);
    ms_lock_release(&pool->growth);
}

ms_status_t ms_pool_refresh_access(ms_pool_t *pool)
{
    ms_lock_acquire(&pool->growth);
    ms_status_t status = ms_backing_refresh_access(pool);
    ms_lock_release(&pool->growth);
    return status;
}

void ms_pool_stats(ms_pool_t *pool, struct ms_pool_stats *out)
{
    ms_lock_acquire(&pool->state);
    const struct ms_pool_counters *count = &pool->count;
    *out = (struct ms_pool_stats){.live_blocks = count->live_blocks,
                                  .live_bytes = count->live_bytes,
                                  .arena_bytes = count->arena_bytes,
                                  .reserved_bytes = count->reserved_bytes,
                                  .free_bytes = count->free_bytes,
                                  .pending_bytes = count->pending_bytes,
                                  .allocations = count->allocations,
                                  .frees = count->frees,
                                  .failed_allocations = count->failed_allocations,
                                  .chunks_created = count->chunks_created,
                                  .chunks_released = count->chunks_released,
                                  .chunks_moved = count->chunks_moved,
                                  .maps = count->maps,
                                  .unmaps = count->unmaps,
                                  .set_accesses = count->set_accesses};
    const struct ms_range *largest = ms_bins_largest(&pool->orders.idle.bins);
    out->largest_free_bytes = largest == NULL ? 0 : largest->bytes;
    for (const struct ms_order *order = pool->orders.first; order != NULL; order = order->next) {
        largest = ms_bins_largest(&order->bins);
        if (largest != NULL && largest->bytes > out->largest_free_bytes) {
            out->largest_free_bytes = largest->bytes;
        }
    }
    ms_lock_release(&pool->state);
}

void ms_pool_fork_prepare(ms_pool_t *pool)
{
    ms_lock_acquire(&pool->growth);
    ms_lock_acquire(&pool->state);
}

void ms_pool_fork_parent(ms_pool_t *pool)
{
    ms_lock_release(&pool->state);
    ms_lock_release(&pool->growth);
}

void ms_pool_fork_child(ms_pool_t *pool)
{
    ms_lock_reset(&pool->state);
    ms_lock_reset(&pool->growth);
}
