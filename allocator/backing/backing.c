/* SPDX-License-Identifier: Apache-2.0 */
/* Puts chunks behind addresses: mapping, access, filling ranges and holes, and the pool's end. */
#include "allocator/backing/backing.h"
#include "allocator/backing/granules.h"
#include "allocator/backing/obligations.h"
#include "allocator/device/budget.h"
#include "allocator/pool_state.h"
#include "allocator/space/range.h"
#include "allocator/space/tiling.h"

ms_status_t ms_backing_give_access(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                   uint64_t to)
{
    ms_addr_t addr = segment->base + from * pool->granule_bytes;
    uint64_t bytes = (to - from) * pool->granule_bytes;
    ms_status_t status = pool->ops->set_access(pool->ops->ctx, addr, bytes);
    if (status == MS_OK) {
        ms_state_acquire(pool);
        pool->count.set_accesses++;
        ms_pool_emit(pool, (struct ms_event){.kind = MS_EVENT_SET_ACCESS,
                                             .owner = MS_OWNER_POOL,
                                             .addr = addr,
                                             .bytes = bytes});
        if (segment->granules != NULL) {
            ms_granules_backed(pool, segment, from, to);
        }
        ms_state_release(pool);
    }
    return status;
}

static void set_slots(struct ms_pool *pool, struct ms_chunk *chunk, struct ms_chunk *value)
{
    uint64_t count = chunk->segment->plain ? 1 : chunk->bytes / pool->granule_bytes;
    ms_state_acquire(pool);
    for (uint64_t k = 0; k < count; k++) {
        chunk->segment->slots[chunk->slot + k] = value;
    }
    ms_granules_place(pool, chunk->segment, chunk->slot, chunk->slot + count, value);
    ms_state_release(pool);
}

void ms_backing_clear(struct ms_pool *pool, struct ms_chunk *chunk)
{
    set_slots(pool, chunk, NULL);
}

void ms_backing_stick(struct ms_pool *pool, struct ms_chunk *chunk)
{
    uint64_t end = chunk->slot + chunk->bytes / pool->granule_bytes;
    ms_state_acquire(pool);
    chunk->stuck = true;
    ms_granules_place(pool, chunk->segment, chunk->slot, end, chunk);
    ms_state_release(pool);
}

ms_status_t ms_backing_visit(const struct ms_pool *pool, const struct ms_segment *segment,
                             uint64_t from, uint64_t to, const struct ms_chunk_visitor *visitor)
{
    uint64_t slot = from;
    while (slot < to) {
        const struct ms_chunk *chunk = segment->slots[slot];
        if (chunk == NULL || chunk->host || chunk->stuck) {
            return MS_ERR_NOT_SUPPORTED;
        }
        if (!visitor->visit(visitor->ctx, chunk->handle, chunk->bytes)) {
            return MS_ERR_NO_MEMORY;
        }
        slot += chunk->bytes / pool->granule_bytes;
    }
    return MS_OK;
}

ms_status_t ms_backing_map(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot,
                           struct ms_chunk *chunk)
{
    ms_addr_t addr = segment->base + slot * pool->granule_bytes;
    ms_status_t status = pool->ops->map(pool->ops->ctx, addr, chunk->bytes, chunk->handle);
    if (status != MS_OK) {
        return status;
    }
    chunk->segment = segment;
    chunk->slot = slot;
    ms_backing_record(pool, MS_EVENT_MAP, chunk);
    set_slots(pool, chunk, chunk);
    return MS_OK;
}

ms_status_t ms_backing_unmap(struct ms_pool *pool, struct ms_chunk *const *chunks, size_t count)
{
    uint64_t bytes = 0;
    for (size_t at = 0; at < count; at++) {
        bytes += chunks[at]->bytes;
    }
    ms_addr_t addr = chunks[0]->segment->base + chunks[0]->slot * pool->granule_bytes;
    ms_status_t status = pool->ops->unmap(pool->ops->ctx, addr, bytes);
    if (status == MS_OK) {
        ms_state_acquire(pool);
        for (size_t at = 0; at < count; at++) {
            ms_backing_record_locked(pool, MS_EVENT_UNMAP, chunks[at]);
        }
        ms_state_release(pool);
    }
    return status;
}

ms_status_t ms_backing_map_aside(struct ms_pool *pool, struct ms_segment *staging, uint64_t slot,
                                 struct ms_chunk *chunk)
{
    ms_addr_t addr = staging->base + slot * pool->granule_bytes;
    ms_status_t status = pool->ops->map(pool->ops->ctx, addr, chunk->bytes, chunk->handle);
    if (status == MS_OK) {
        ms_state_acquire(pool);
        ms_backing_record_aside(pool, MS_EVENT_MAP, chunk, addr);
        chunk->aside = true;
        for (uint64_t k = 0; k < chunk->bytes / pool->granule_bytes; k++) {
            staging->slots[slot + k] = chunk;
        }
        ms_state_release(pool);
    }
    return status;
}

/* Empties the staging slots. State lock. */
static void forget_aside(struct ms_pool *pool, struct ms_segment *staging, uint64_t from,
                         uint64_t to) MS_REQUIRES(ms_state_role)
{
    for (uint64_t slot = from; slot < to; slot++) {
        struct ms_chunk *chunk = staging->slots[slot];
        if (chunk->aside) {
            ms_backing_record_aside(pool, MS_EVENT_UNMAP, chunk,
                                    staging->base + slot * pool->granule_bytes);
            chunk->aside = false;
        }
        staging->slots[slot] = NULL;
    }
}

ms_status_t ms_backing_unmap_aside(struct ms_pool *pool, struct ms_segment *staging, uint64_t from,
                                   uint64_t to)
{
    ms_addr_t addr = staging->base + from * pool->granule_bytes;
    ms_status_t status = pool->ops->unmap(pool->ops->ctx, addr, (to - from) * pool->granule_bytes);
    if (status == MS_OK) {
        ms_state_acquire(pool);
        forget_aside(pool, staging, from, to);
        ms_state_release(pool);
    }
    return status;
}

static void undo_fill(struct ms_pool *pool, struct ms_chunk *done) MS_REQUIRES(ms_growth_role)
{
    bool stuck = false;
    while (done != NULL) {
        struct ms_chunk *chunk = done;
        done = chunk->next;
        if (ms_backing_unmap(pool, &chunk, 1) != MS_OK) {
            ms_backing_stick(pool, chunk);
            stuck = true;
            continue;
        }
        set_slots(pool, chunk, NULL);
        ms_backing_add_spare(pool, chunk);
    }
    (void)ms_backing_release_spares(pool);
    if (stuck) {
        ms_obligations_cover(pool); /* it may have been made with bytes earmarked for a hole */
    }
}

/* Fills the slots [from, to), all of them empty. Adds chunks to *done as it maps them. */
static ms_status_t fill_gap(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                            uint64_t to, const struct ms_fill *fill, struct ms_chunk **done)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t slot = from;
    while (slot < to) {
        struct ms_chunk *chunk = NULL;
        ms_status_t status =
            ms_backing_chunk_get(pool, (to - slot) * pool->granule_bytes, fill, &chunk);
        if (status != MS_OK) {
            return status;
        }
        status = ms_backing_map(pool, segment, slot, chunk);
        if (status != MS_OK) {
            ms_backing_add_spare(pool, chunk);
            return status;
        }
        chunk->next = *done;
        *done = chunk;
        slot += chunk->bytes / pool->granule_bytes;
    }
    return ms_backing_give_access(pool, segment, from, to);
}

ms_status_t ms_backing_fill(struct ms_pool *pool, const struct ms_range *range, bool large)
{
    struct ms_segment *segment = range->segment;
    struct ms_fill fill = {.large = large};
    uint64_t first = (range->addr - segment->base) / pool->granule_bytes;
    uint64_t last = (range->addr + range->bytes - 1 - segment->base) / pool->granule_bytes;
    struct ms_chunk *done = NULL;
    uint64_t slot = first;
    while (slot <= last) {
        if (segment->slots[slot] != NULL) {
            slot++;
            continue;
        }
        uint64_t to = slot;
        while (to <= last && segment->slots[to] == NULL) {
            to++;
        }
        ms_status_t status = fill_gap(pool, segment, slot, to, &fill, &done);
        if (status != MS_OK) {
            undo_fill(pool, done);
            return status;
        }
        slot = to;
    }
    return MS_OK;
}

ms_status_t ms_backing_unstick(struct ms_pool *pool, struct ms_chunk *chunk)
{
    ms_status_t status = ms_backing_unmap(pool, &chunk, 1);
    if (status == MS_OK) {
        chunk->stuck = false;
        set_slots(pool, chunk, NULL);
        ms_backing_add_spare(pool, chunk);
    }
    return status;
}

static ms_status_t fill_hole(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                             uint64_t to, const struct ms_fill *fill) MS_REQUIRES(ms_growth_role)
{
    for (uint64_t slot = from; slot < to; slot++) {
        if (segment->slots[slot] != NULL) {
            ms_status_t status = ms_backing_unstick(pool, segment->slots[slot]);
            if (status != MS_OK) {
                return status;
            }
        }
    }
    struct ms_chunk *done = NULL;
    ms_status_t status = fill_gap(pool, segment, from, to, fill, &done);
    if (status != MS_OK) {
        undo_fill(pool, done);
        return status;
    }
    uint64_t chunks = 0;
    for (; done != NULL; done = done->next) {
        chunks++;
    }
    ms_state_acquire(pool);
    pool->count.holes_backed += chunks;
    ms_state_release(pool);
    return MS_OK;
}

/* Chunks must not reach from one proxy into the next: each proxy is unmapped by itself. */
static bool one_owner(const struct ms_segment *segment, uint64_t a, uint64_t b)
{
    return segment->proxies == NULL || segment->proxies[a] == segment->proxies[b];
}

ms_status_t ms_backing_fill_holes(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                  uint64_t to, const struct ms_fill *fill)
{
    ms_status_t status = MS_OK;
    uint64_t slot = from;
    /* Granules get or lose their backing only under the growth lock, which is held. */
    while (segment->granules != NULL && slot < to && status == MS_OK) {
        if (!segment->granules[slot].unbacked) {
            slot++;
            continue;
        }
        uint64_t end = slot + 1;
        while (end < to && segment->granules[end].unbacked && one_owner(segment, slot, end)) {
            end++;
        }
        status = fill_hole(pool, segment, slot, end, fill);
        slot = end;
    }
    return status;
}

void ms_backing_lose(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot,
                     struct ms_chunk *stuck)
{
    ms_state_acquire(pool);
    segment->slots[slot] = stuck;
    ms_granules_place(pool, segment, slot, slot + 1, NULL);
    struct ms_granule *granule = segment->granules != NULL ? &segment->granules[slot] : NULL;
    bool arena = granule != NULL && granule->arena != NULL;
    if (arena && !granule->unbacked) {
        ms_granules_unbacked(pool, segment, slot, slot + 1);
        granule->refused = granule->tensors > 0;
    }
    if (!arena || granule->tensors > 0) {
        pool->count.spill.lost_bytes += pool->granule_bytes;
        ms_pool_emit(pool, (struct ms_event){.kind = MS_EVENT_LOST,
                                             .owner = MS_OWNER_POOL,
                                             .addr = segment->base + slot * pool->granule_bytes,
                                             .bytes = pool->granule_bytes});
    }
    ms_state_release(pool);
    ms_obligations_cover(pool);
}

static bool accessible(const struct ms_chunk *chunk)
{
    return chunk != NULL && !chunk->stuck;
}

ms_status_t ms_backing_refresh_access(struct ms_pool *pool)
{
    ms_status_t status = MS_OK;
    for (size_t at = 0; at < pool->segment_count; at++) {
        struct ms_segment *segment = pool->segments[at];
        uint64_t slot = 0;
        while (!segment->plain && slot < segment->slot_count) {
            uint64_t from = slot;
            while (slot < segment->slot_count && accessible(segment->slots[slot])) {
                slot++;
            }
            ms_status_t one =
                slot == from ? MS_OK : ms_backing_give_access(pool, segment, from, slot);
            status = status == MS_OK ? one : status;
            slot += slot == from ? 1 : 0;
        }
    }
    return status;
}

/* ---- the end */

static void drop_chunk(struct ms_pool *pool, struct ms_chunk *chunk)
{
    ms_backing_record(pool, MS_EVENT_CHUNK_RELEASE, chunk);
    if (!chunk->host) {
        ms_budget_discharge(pool->config.budget, MS_OWNER_POOL, chunk->bytes);
    }
}

/* Chunks that are still staged have their place elsewhere, or are in a list. */
static void drop_aside(struct ms_pool *pool, bool device_gone) MS_REQUIRES(ms_growth_role)
{
    struct ms_segment *staging = pool->moving.staging;
    for (uint64_t slot = 0; staging != NULL && slot < staging->slot_count; slot++) {
        const struct ms_chunk *chunk = staging->slots[slot];
        if (chunk == NULL || !chunk->aside) {
            continue;
        }
        uint64_t slots = chunk->bytes / pool->granule_bytes;
        if (!device_gone) {
            (void)pool->ops->unmap(pool->ops->ctx, staging->base + slot * pool->granule_bytes,
                                   chunk->bytes);
        }
        ms_state_acquire(pool);
        forget_aside(pool, staging, slot, slot + slots);
        ms_state_release(pool);
    }
}

static void drop_segment(struct ms_pool *pool, struct ms_segment *segment, bool device_gone)
{
    const struct ms_device_ops *ops = pool->ops;
    for (uint64_t slot = 0; slot < segment->slot_count; slot++) {
        struct ms_chunk *chunk = segment->slots[slot];
        if (chunk == NULL || chunk->slot != slot) {
            continue;
        }
        /* Nobody is left to act upon a failure: the books are closed either way. */
        if (!device_gone && segment->plain) {
            (void)ops->plain_free(ops->ctx, segment->base);
        } else if (!device_gone) {
            (void)ops->unmap(ops->ctx, segment->base + slot * pool->granule_bytes, chunk->bytes);
        }
        ms_backing_record(pool, MS_EVENT_UNMAP, chunk);
        if (chunk->twin != NULL) {
            chunk->twin->twin = NULL; /* the last mapping ends the chunk */
            continue;
        }
        if (!device_gone && !segment->plain) {
            (void)ops->chunk_release(ops->ctx, chunk->handle);
        }
        drop_chunk(pool, chunk);
    }
    if (!segment->plain && segment->foreign == NULL) {
        if (!device_gone) {
            (void)ops->address_free(ops->ctx, segment->base, segment->bytes);
        }
        ms_state_acquire(pool);
        ms_pool_emit(pool, (struct ms_event){.kind = MS_EVENT_RANGE_FREE,
                                             .owner = MS_OWNER_POOL,
                                             .addr = segment->base,
                                             .bytes = segment->bytes});
        ms_state_release(pool);
    }
}

void ms_backing_drop_list(struct ms_pool *pool, struct ms_chunk *list, bool device_gone)
{
    for (; list != NULL; list = list->next) {
        if (!device_gone) {
            (void)pool->ops->chunk_release(pool->ops->ctx, list->handle);
        }
        drop_chunk(pool, list);
    }
}

void ms_backing_drop_all(struct ms_pool *pool, bool device_gone)
{
    drop_aside(pool, device_gone);
    ms_backing_drop_list(pool, pool->spares, device_gone);
    ms_backing_drop_list(pool, pool->obligations.reserve, device_gone);
    for (size_t at = 0; at < pool->segment_count; at++) {
        drop_segment(pool, pool->segments[at], device_gone);
    }
    ms_budget_release_earmark(pool->config.budget, pool->obligations.earmarked_bytes);
}
