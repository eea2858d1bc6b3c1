/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and releases chunks, keeps those that are mapped nowhere, and counts all of them. */
#include "allocator/backing/chunks.h"
#include "allocator/backing/device_room.h"
#include "allocator/backing/obligations.h"
#include "allocator/device/budget.h"
#include "allocator/pool_state.h"

/* The largest chunk to make, in granules: 32 MiB if the granule is 2 MiB. A chunk costs some 230 us
 * whatever its size, so large requests should use few. But it cannot be split, so any live byte in
 * it keeps all of it. */
enum { LARGEST_CHUNK_GRANULES = 16 };

/* Chunks are large only while no more than this part of the cap is charged: a large chunk cannot be
 * split when memory is short. The overhead ratio of the eleven recorded jobs (memshim replay
 * --min-cap, traces of tests/traces), at worst and on the median:
 *
 *     part of the cap     native            tensor
 *     1/2                 1.029   1.0087    1.036   1.0111
 *     1/8                 1.025   1.0043    1.018   1.0059
 *     1/16                1.014   1.0043    1.009   1.0050
 *     1/32                1.014   1.0027    1.007   1.0047
 *     none                1.014   1.0027    1.007   1.0047
 *
 * A program that fills a device of 80 GB pays once, some 9 seconds, for the small chunks. */
enum { LARGE_CHUNKS_PART = 32 };

void ms_backing_spilled_less(struct ms_pool *pool, uint64_t bytes)
{
    pool->count.spill.spilled_bytes -= bytes;
    if (pool->config.spill_budget != NULL) {
        ms_budget_discharge(pool->config.spill_budget, MS_OWNER_POOL, bytes);
    }
}

void ms_backing_spilled_again(struct ms_pool *pool, uint64_t bytes)
{
    pool->count.spill.spilled_bytes += bytes;
    if (pool->config.spill_budget != NULL) {
        ms_budget_impose(pool->config.spill_budget, MS_OWNER_POOL, bytes);
    }
}

/* Counts host chunks. Counts a mapping only if the chunk has no other. */
static void count_host(struct ms_pool *pool, enum ms_event_kind kind, const struct ms_chunk *chunk)
    MS_REQUIRES(ms_state_role)
{
    struct ms_pool_counters *count = &pool->count;
    uint64_t bytes = chunk->bytes;
    uint64_t large_bytes = bytes > pool->granule_bytes ? bytes : 0;
    if (kind == MS_EVENT_CHUNK_CREATE || kind == MS_EVENT_UNMAP) {
        count->host_reserve_bytes += bytes;
        count->host_large_bytes += large_bytes;
    } else {
        count->host_reserve_bytes -= bytes;
        count->host_large_bytes -= large_bytes;
    }
    if (kind == MS_EVENT_MAP) {
        count->host_backed_bytes += bytes;
        if (count->peak_host_backed_bytes < count->host_backed_bytes) {
            count->peak_host_backed_bytes = count->host_backed_bytes;
        }
    } else if (kind == MS_EVENT_UNMAP) {
        count->host_backed_bytes -= bytes;
    }
}

void ms_backing_record_locked(struct ms_pool *pool, enum ms_event_kind kind, struct ms_chunk *chunk)
{
    struct ms_event event = {
        .kind = (uint8_t)kind, .owner = MS_OWNER_POOL, .id = chunk->handle, .bytes = chunk->bytes};
    uint64_t device_bytes = chunk->host ? 0 : chunk->bytes;
    if (kind == MS_EVENT_MAP || kind == MS_EVENT_UNMAP) {
        event.addr = chunk->segment->base + chunk->slot * pool->granule_bytes;
    } else {
        event.aux = chunk->host ? MS_LOCATION_HOST : MS_LOCATION_DEVICE;
    }
    switch (kind) {
    case MS_EVENT_CHUNK_CREATE:
        pool->count.chunks_created++;
        pool->count.reserved_bytes += device_bytes;
        break;
    case MS_EVENT_CHUNK_RELEASE:
        pool->count.chunks_released++;
        pool->count.reserved_bytes -= device_bytes;
        break;
    case MS_EVENT_MAP:
        pool->count.maps++;
        pool->count.chunks_moved += chunk->was_mapped ? 1 : 0;
        chunk->was_mapped = true;
        break;
    default:
        pool->count.unmaps++;
        break;
    }
    if (chunk->host && !chunk->aside) {
        count_host(pool, kind, chunk);
    }
    if (kind == MS_EVENT_UNMAP && chunk->spilled) {
        ms_backing_spilled_less(pool, chunk->bytes);
        chunk->spilled = false;
    }
    ms_pool_emit(pool, event);
}

void ms_backing_record_aside(struct ms_pool *pool, enum ms_event_kind kind, struct ms_chunk *chunk,
                             ms_addr_t addr)
{
    *(kind == MS_EVENT_MAP ? &pool->count.maps : &pool->count.unmaps) += 1;
    if (chunk->host && chunk->segment == NULL) {
        count_host(pool, kind, chunk);
    }
    ms_pool_emit(pool, (struct ms_event){.kind = (uint8_t)kind,
                                         .owner = MS_OWNER_POOL,
                                         .id = chunk->handle,
                                         .addr = addr,
                                         .bytes = chunk->bytes});
}

void ms_backing_record(struct ms_pool *pool, enum ms_event_kind kind, struct ms_chunk *chunk)
{
    ms_state_acquire(pool);
    ms_backing_record_locked(pool, kind, chunk);
    ms_state_release(pool);
}

bool ms_backing_ample(const struct ms_pool *pool, uint64_t bytes)
{
    uint64_t limit = ms_budget_limit_bytes(pool->config.budget) / LARGE_CHUNKS_PART;
    uint64_t charged = atomic_load(&pool->config.budget->charged_bytes);
    return charged <= limit && bytes <= limit - charged;
}

ms_status_t ms_backing_chunk_make(struct ms_pool *pool, uint64_t bytes, bool for_tensor,
                                  const void *properties, struct ms_chunk **out)
{
    struct ms_chunk *chunk = ms_slab_take(&pool->chunk_slab);
    if (chunk == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    *chunk = (struct ms_chunk){.bytes = bytes};
    if (!ms_obligations_charge(pool, bytes, for_tensor)) {
        ms_slab_give(&pool->chunk_slab, chunk);
        return MS_ERR_NO_MEMORY;
    }
    ms_status_t status = pool->ops->chunk_create(pool->ops->ctx, bytes, MS_LOCATION_DEVICE,
                                                 properties, &chunk->handle);
    if (status != MS_OK) {
        ms_obligations_discharge(pool, bytes);
        ms_slab_give(&pool->chunk_slab, chunk);
        if (status == MS_ERR_NO_MEMORY) {
            ms_device_room_refused(pool, bytes);
        }
        return status;
    }
    pool->strange_refusals = 0;
    ms_backing_record(pool, MS_EVENT_CHUNK_CREATE, chunk);
    *out = chunk;
    return MS_OK;
}

void ms_backing_add_spare(struct ms_pool *pool, struct ms_chunk *chunk)
{
    struct ms_chunk **list = chunk->host ? &pool->obligations.reserve : &pool->spares;
    chunk->segment = NULL;
    chunk->returns = 0;
    chunk->promoted = 0;
    chunk->next = *list;
    *list = chunk;
    if (!chunk->host && chunk->bytes > pool->spare_most_bytes) {
        pool->spare_most_bytes = chunk->bytes;
    }
}

void ms_backing_add_spares(struct ms_pool *pool, struct ms_chunk *list)
{
    while (list != NULL) {
        struct ms_chunk *chunk = list;
        list = list->next;
        ms_backing_add_spare(pool, chunk);
    }
}

/* Releases the first chunk of the list; false: the device refuses, now or an earlier time. */
static bool release_first(struct ms_pool *pool, struct ms_chunk **list) MS_REQUIRES(ms_growth_role)
{
    struct ms_chunk *chunk = *list;
    if (chunk->aside || pool->ops->chunk_release(pool->ops->ctx, chunk->handle) != MS_OK) {
        return false;
    }
    *list = chunk->next;
    ms_backing_record(pool, MS_EVENT_CHUNK_RELEASE, chunk);
    if (!chunk->host) {
        ms_obligations_discharge(pool, chunk->bytes);
    }
    ms_slab_give(&pool->chunk_slab, chunk);
    return true;
}

uint64_t ms_backing_release_spares(struct ms_pool *pool)
{
    uint64_t released_bytes = 0;
    struct ms_chunk **link = &pool->spares;
    while (*link != NULL) {
        uint64_t bytes = (*link)->bytes;
        if (release_first(pool, link)) {
            released_bytes += bytes;
        } else {
            link = &(*link)->next; /* still there and still charged: try again the next time */
        }
    }
    return released_bytes;
}

ms_status_t ms_backing_host_make(struct ms_pool *pool, uint64_t bytes)
{
    struct ms_chunk *chunk = ms_slab_take(&pool->chunk_slab);
    if (chunk == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    *chunk = (struct ms_chunk){.bytes = bytes, .host = true};
    ms_status_t status = pool->ops->chunk_create(pool->ops->ctx, chunk->bytes, MS_LOCATION_HOST,
                                                 NULL, &chunk->handle);
    if (status != MS_OK) {
        ms_slab_give(&pool->chunk_slab, chunk);
        return status;
    }
    ms_backing_record(pool, MS_EVENT_CHUNK_CREATE, chunk);
    ms_backing_add_spare(pool, chunk);
    return MS_OK;
}

void ms_backing_host_release(struct ms_pool *pool, uint64_t cover_bytes, uint64_t keep_bytes)
{
    if (ms_pool_count_of_growth(pool)->host_reserve_bytes <= keep_bytes) {
        return;
    }
    uint64_t kept_bytes = 0;
    struct ms_chunk **link = &pool->obligations.reserve;
    while (*link != NULL) {
        uint64_t bytes = (*link)->bytes;
        bool covers = bytes == pool->granule_bytes && cover_bytes > 0;
        bool kept = covers || kept_bytes + cover_bytes + bytes <= keep_bytes;
        if (kept || !release_first(pool, link)) {
            cover_bytes -= covers ? bytes : 0;
            kept_bytes += bytes;
            link = &(*link)->next;
        }
    }
}

/* Takes the largest spare of at most `bytes` off the list; null: there is none. A request of a
 * whole device takes tens of thousands, one by one, so the search ends at the first spare of the
 * largest possible size. */
static struct ms_chunk *take_spare(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
{
    uint64_t most_bytes = bytes < pool->spare_most_bytes ? bytes : pool->spare_most_bytes;
    struct ms_chunk **best = NULL;
    for (struct ms_chunk **link = &pool->spares; *link != NULL; link = &(*link)->next) {
        if ((*link)->bytes <= bytes && (best == NULL || (*link)->bytes > (*best)->bytes)) {
            best = link;
        }
        if (best != NULL && (*best)->bytes == most_bytes) {
            break;
        }
    }
    if (bytes >= pool->spare_most_bytes) {
        pool->spare_most_bytes = best != NULL ? (*best)->bytes : 0;
    }
    if (best == NULL) {
        return NULL;
    }
    struct ms_chunk *chunk = *best;
    *best = chunk->next;
    return chunk;
}

ms_status_t ms_backing_host_take(struct ms_pool *pool, uint64_t least_bytes, uint64_t most_bytes,
                                 struct ms_chunk **out)
{
    struct ms_chunk **best = NULL;
    struct ms_chunk **link = &pool->obligations.reserve;
    for (; *link != NULL && (best == NULL || (*best)->bytes < most_bytes); link = &(*link)->next) {
        uint64_t bytes = (*link)->bytes;
        if (bytes >= least_bytes && bytes <= most_bytes &&
            (best == NULL || bytes > (*best)->bytes)) {
            best = link;
        }
    }
    if (best == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    *out = *best;
    *best = (*out)->next;
    return MS_OK;
}

/* The number of granules for one chunk. */
static uint64_t granules_at_once(const struct ms_pool *pool, uint64_t bytes, bool large)
{
    uint64_t granules = large ? bytes / pool->granule_bytes : 1;
    granules = granules > LARGEST_CHUNK_GRANULES ? LARGEST_CHUNK_GRANULES : granules;
    return ms_backing_ample(pool, granules * pool->granule_bytes) ? granules : 1;
}

/* Gets a chunk of at most `bytes`; a smaller one if budget or device have no room for a large
 * one. */
static ms_status_t device_chunk_get(struct ms_pool *pool, uint64_t bytes,
                                    const struct ms_fill *fill, struct ms_chunk **out)
    MS_REQUIRES(ms_growth_role)
{
    *out = take_spare(pool, bytes);
    if (*out != NULL) {
        return MS_OK;
    }
    uint64_t granules = granules_at_once(pool, bytes, fill->large);
    for (;;) {
        ms_status_t status = ms_backing_chunk_make(pool, granules * pool->granule_bytes,
                                                   fill->for_tensor, NULL, out);
        if (status != MS_ERR_NO_MEMORY) {
            return status;
        }
        if (granules == 1) {
            /* Spares too large for this place still hold budget and device memory. */
            if (ms_backing_release_spares(pool) == 0) {
                return MS_ERR_NO_MEMORY;
            }
            continue;
        }
        granules /= 2;
    }
}

ms_status_t ms_backing_chunk_get(struct ms_pool *pool, uint64_t bytes, const struct ms_fill *fill,
                                 struct ms_chunk **out)
{
    ms_status_t status = device_chunk_get(pool, bytes, fill, out);
    return status != MS_OK && fill->host
               ? ms_backing_host_take(pool, pool->granule_bytes, pool->granule_bytes, out)
               : status;
}
