/* SPDX-License-Identifier: Apache-2.0 */
/* The pool's statistics: copies of its counters, and its largest free range. */
#include "allocator/pool.h"
#include "allocator/pool_state.h"
#include "allocator/space/orders.h"

static uint64_t largest_of(const struct ms_order *order)
{
    uint64_t bytes = 0;
    for (int region = 0; region < MS_REGIONS; region++) {
        const struct ms_range *range = ms_bins_largest(&order->bins[region]);
        bytes = range != NULL && range->bytes > bytes ? range->bytes : bytes;
    }
    return bytes;
}

void ms_pool_stats(ms_pool_t *pool, struct ms_pool_stats *out)
{
    ms_state_acquire(pool);
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
                                  .set_accesses = count->set_accesses,
                                  .hole_bytes = count->quiet_granules * pool->granule_bytes,
                                  .fresh_bytes = count->fresh_bytes,
                                  .fresh_unbacked_bytes = count->fresh_unbacked_bytes,
                                  .front_bytes = count->front_bytes,
                                  .unbacked_bytes = count->obligation_bytes,
                                  .earmarked_bytes = pool->obligations.earmarked_bytes,
                                  .host_reserve_bytes = count->host_reserve_bytes,
                                  .host_backed_bytes = count->host_backed_bytes,
                                  .peak_host_backed_bytes = count->peak_host_backed_bytes,
                                  .holes_taken = count->holes_taken,
                                  .holes_backed = count->holes_backed,
                                  .frozen = pool->frozen,
                                  .views = count->views,
                                  .views_made = count->views_made,
                                  .spill = count->spill};
    out->largest_free_bytes = largest_of(&pool->orders.idle);
    for (const struct ms_order *order = pool->orders.first; order != NULL; order = order->next) {
        uint64_t bytes = largest_of(order);
        out->largest_free_bytes = bytes > out->largest_free_bytes ? bytes : out->largest_free_bytes;
    }
    ms_state_release(pool);
}

void ms_pool_spill_stats(ms_pool_t *pool, struct ms_spill_stats *out)
{
    ms_state_acquire(pool);
    *out = pool->count.spill;
    ms_state_release(pool);
}

uint64_t ms_pool_peak_host_backed_bytes(ms_pool_t *pool)
{
    ms_state_acquire(pool);
    uint64_t bytes = pool->count.peak_host_backed_bytes;
    ms_state_release(pool);
    return bytes;
}
