/* SPDX-License-Identifier: Apache-2.0 */
/* Covers segments with ranges: splits, joins, takes and gives up ranges, and makes them live. */
#include <string.h>

#include "allocator/base/assert.h"
#include "allocator/base/containers/pages.h"
#include "allocator/base/ids.h"
#include "allocator/pool_state.h"
#include "allocator/space/block.h"
#include "allocator/space/range.h"
#include "allocator/space/starts.h"
#include "allocator/space/tiling.h"

struct ms_segment *ms_segment_of(const struct ms_pool *pool, ms_addr_t addr)
{
    size_t low = 0;
    size_t high = pool->segment_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pool->segments[middle]->base <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return NULL;
    }
    struct ms_segment *segment = pool->segments[low - 1];
    return addr - segment->base < segment->bytes ? segment : NULL;
}

static ms_status_t make_room(struct ms_pool *pool)
{
    if (pool->segment_count < pool->segment_room) {
        return MS_OK;
    }
    size_t room = pool->segment_room == 0 ? 512 : pool->segment_room * 2;
    struct ms_segment **segments = ms_pages_map(ms_pointers_bytes(room));
    if (segments == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    if (pool->segments != NULL) {
        memcpy(segments, pool->segments, ms_pointers_bytes(pool->segment_count));
        ms_pages_unmap(pool->segments, ms_pointers_bytes(pool->segment_room));
    }
    pool->segments = segments;
    pool->segment_room = room;
    return MS_OK;
}

static ms_status_t segment_init(struct ms_pool *pool, struct ms_segment *segment)
{
    segment->slot_count = segment->plain ? 1 : segment->bytes / pool->granule_bytes;
    segment->slots = ms_pages_map(ms_pointers_bytes(segment->slot_count));
    if (segment->slots == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    if (ms_starts_init(&segment->starts, segment->bytes / MS_BLOCK_ALIGNMENT_BYTES)) {
        segment->first = ms_slab_take(&pool->range_slab);
        if (segment->first != NULL) {
            *segment->first = (struct ms_range){.addr = segment->base,
                                                .bytes = segment->bytes,
                                                .segment = segment,
                                                .state = MS_RANGE_BUSY};
            return MS_OK;
        }
        ms_starts_destroy(&segment->starts);
    }
    ms_pages_unmap(segment->slots, ms_pointers_bytes(segment->slot_count));
    return MS_ERR_NO_MEMORY;
}

ms_status_t ms_segment_add(struct ms_pool *pool, ms_addr_t base, uint64_t bytes, bool plain,
                           struct ms_segment **out)
{
    struct ms_segment *segment = ms_slab_take(&pool->segment_slab);
    if (segment == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    *segment = (struct ms_segment){.base = base, .bytes = bytes, .plain = plain};
    if (make_room(pool) != MS_OK || segment_init(pool, segment) != MS_OK) {
        ms_slab_give(&pool->segment_slab, segment);
        return MS_ERR_NO_MEMORY;
    }
    size_t at = pool->segment_count++;
    while (at > 0 && pool->segments[at - 1]->base > base) {
        pool->segments[at] = pool->segments[at - 1];
        at--;
    }
    pool->segments[at] = segment;
    *out = segment;
    return MS_OK;
}

void ms_segment_remove(struct ms_pool *pool, struct ms_segment *segment)
{
    size_t at = 0;
    while (pool->segments[at] != segment) {
        at++;
    }
    pool->segment_count--;
    memmove(&pool->segments[at], &pool->segments[at + 1],
            ms_pointers_bytes(pool->segment_count - at));
    ms_slab_give(&pool->range_slab, segment->first);
    ms_starts_destroy(&segment->starts);
    if (segment->heat != NULL) {
        ms_pages_unmap(segment->heat, segment->slot_count * sizeof(*segment->heat));
    }
    ms_pages_unmap(segment->slots, ms_pointers_bytes(segment->slot_count));
    ms_slab_give(&pool->segment_slab, segment);
}

struct ms_range *ms_range_split(struct ms_pool *pool, struct ms_range *range, uint64_t bytes)
{
    MS_ASSERT(bytes > 0 && bytes < range->bytes);
    struct ms_range *rest = ms_slab_take(&pool->range_slab);
    if (rest == NULL) {
        return NULL;
    }
    /* Not all fields: clearing takes longer, and each state sets what it has besides. */
    rest->addr = range->addr + bytes;
    rest->bytes = range->bytes - bytes;
    rest->prev = range;
    rest->next = range->next;
    rest->segment = range->segment;
    rest->state = range->state;
    if (rest->next != NULL) {
        rest->next->prev = rest;
    }
    range->next = rest;
    range->bytes = bytes;
    return rest;
}

void ms_range_absorb_next(struct ms_pool *pool, struct ms_range *range)
{
    struct ms_range *next = range->next;
    MS_ASSERT(next != NULL && next->addr == range->addr + range->bytes);
    range->bytes += next->bytes;
    range->next = next->next;
    if (range->next != NULL) {
        range->next->prev = range;
    }
    ms_slab_give(&pool->range_slab, next);
}

enum backing { BACKED, UNBACKED, ON_HOST, LOST };

static enum backing backing_at(const struct ms_pool *pool, const struct ms_range *range,
                               uint64_t offset)
{
    const struct ms_segment *segment = range->segment;
    const struct ms_chunk *chunk =
        segment->slots[(range->addr + offset - segment->base) / pool->granule_bytes];
    if (chunk == NULL) {
        return UNBACKED;
    }
    return chunk->stuck ? LOST : chunk->host ? ON_HOST : BACKED;
}

/* Whether the range is not of whole granules. Where nothing backs it, a device that kept failing
 * lost its granule; other blocks may live there. */
static bool in_part(const struct ms_pool *pool, const struct ms_range *range)
{
    return ((range->addr - range->segment->base) | range->bytes) % pool->granule_bytes != 0;
}

static void become(struct ms_pool *pool, struct ms_range *range, enum backing kind,
                   struct ms_batch *batch) MS_REQUIRES(ms_state_role)
{
    switch (kind) {
    case BACKED:
        ms_range_make_free(pool, range, batch);
        break;
    case UNBACKED:
        if (in_part(pool, range)) {
            range->state = MS_RANGE_STUCK;
        } else {
            ms_range_make_hole(pool, range);
        }
        break;
    case ON_HOST:
        ms_range_drain(pool, range);
        pool->epochs.clock++;
        break;
    default:
        range->state = MS_RANGE_STUCK;
        break;
    }
}

void ms_range_give_up(struct ms_pool *pool, struct ms_range *range, struct ms_batch *batch)
{
    uint64_t granule = pool->granule_bytes;
    while (range != NULL) {
        enum backing kind = backing_at(pool, range, 0);
        uint64_t bytes = granule - (range->addr - range->segment->base) % granule;
        /* Host chunks are given up one by one. */
        while (kind != ON_HOST && bytes < range->bytes && backing_at(pool, range, bytes) == kind) {
            bytes += granule;
        }
        struct ms_range *rest = NULL;
        if (bytes < range->bytes) {
            rest = ms_range_split(pool, range, bytes);
            if (rest == NULL) {
                range->state = MS_RANGE_STUCK;
                range->draining.next = pool->whole;
                pool->whole = range;
                return;
            }
        }
        become(pool, range, kind, batch);
        range = rest;
    }
}

void ms_ranges_give_up_whole(struct ms_pool *pool)
{
    ms_state_acquire(pool);
    while (pool->whole != NULL && ms_slab_reserve(&pool->range_slab, MS_SLAB_RESERVE_MOST)) {
        struct ms_range *range = pool->whole;
        pool->whole = range->draining.next;
        range->state = MS_RANGE_BUSY;
        ms_range_give_up(pool, range, pool->orders.device->open);
    }
    ms_state_release(pool);
}

struct ms_order *ms_range_order(struct ms_pool *pool, const struct ms_range *range)
{
    return range->free.batch != NULL ? range->free.batch->order : &pool->orders.idle;
}

static void enter_batch(struct ms_batch *batch, struct ms_range *range)
{
    range->free.batch = batch;
    if (batch == NULL) {
        return;
    }
    range->free.batch_prev = NULL;
    range->free.batch_next = batch->ranges;
    if (batch->ranges != NULL) {
        batch->ranges->free.batch_prev = range;
    }
    batch->ranges = range;
}

static void leave_batch(struct ms_range *range)
{
    struct ms_batch *batch = range->free.batch;
    if (batch == NULL) {
        return;
    }
    if (range->free.batch_next != NULL) {
        range->free.batch_next->free.batch_prev = range->free.batch_prev;
    }
    if (range->free.batch_prev != NULL) {
        range->free.batch_prev->free.batch_next = range->free.batch_next;
    } else {
        batch->ranges = range->free.batch_next;
    }
}

void ms_range_take(struct ms_pool *pool, struct ms_range *range)
{
    MS_ASSERT(range->state == MS_RANGE_HOLE || range->state == MS_RANGE_FREE);
    if (range->state == MS_RANGE_HOLE) {
        ms_range_tree_remove(&pool->holes[range->segment->region], range);
    } else {
        struct ms_order *order = ms_range_order(pool, range);
        ms_bins_remove(&order->bins[range->segment->region], range);
        order->ranges--;
        leave_batch(range);
        pool->count.free_bytes -= range->bytes;
        pool->count.pending_bytes -= range->free.batch != NULL ? range->bytes : 0;
    }
    range->state = MS_RANGE_BUSY;
}

/* Whether neighbours of one order may become one range at no cost: both idle, or waiting for the
 * same fence, or of one live stream, which may use both at once anyway (the joined range waits for
 * the younger fence). Ranges of the device's order join only within a batch: nobody can use them
 * before their fence, and repeated joining would put that off for ever. */
static bool may_join(struct ms_pool *pool, const struct ms_range *neighbour,
                     const struct ms_batch *batch) MS_REQUIRES(ms_state_role)
{
    if (neighbour == NULL || neighbour->state != MS_RANGE_FREE) {
        return false;
    }
    const struct ms_batch *other = neighbour->free.batch;
    if (other == batch) {
        return true;
    }
    if (other == NULL || batch == NULL || other->order != batch->order) {
        return false;
    }
    return batch->order != pool->orders.device && !batch->order->gone;
}

static struct ms_batch *younger_of(struct ms_batch *a, struct ms_batch *b)
{
    return a == NULL || a->sequence > b->sequence ? a : b;
}

enum {
    WAITS_RECORDED_ALWAYS = 256,
    BLOCKS_A_WAIT = 32,
    WAITS_OF_DEVICE = 512 /* record a change by this part of the device */
};

MS_NO_THREAD_SAFETY void ms_waits_told(struct ms_pool *pool, uint64_t bytes)
{
    const uint64_t part = pool->ops->total_bytes / WAITS_OF_DEVICE;
    pool->count.waits_least_bytes = bytes > part ? bytes - part : bytes != 0;
    pool->count.waits_most_bytes = bytes + part;
}

static __attribute__((noinline, cold)) void emit_waits(struct ms_pool *pool)
    MS_REQUIRES(ms_state_role)
{
    struct ms_pool_counters *count = &pool->count;
    const uint64_t blocks = count->allocations + count->frees;
    if (count->waits_recorded < WAITS_RECORDED_ALWAYS + blocks / BLOCKS_A_WAIT) {
        count->waits_recorded++;
        ms_waits_told(pool, count->pending_bytes);
        ms_pool_emit(pool, (struct ms_event){.kind = MS_EVENT_WAITS,
                                             .owner = MS_OWNER_POOL,
                                             .bytes = count->pending_bytes});
    }
}

static inline void note_waits(struct ms_pool *pool) MS_REQUIRES(ms_state_role)
{
    const struct ms_pool_counters *count = &pool->count;
    if (__builtin_expect(count->pending_bytes < count->waits_least_bytes ||
                             count->pending_bytes > count->waits_most_bytes,
                         0)) {
        emit_waits(pool);
    }
}

struct ms_range *ms_range_make_free(struct ms_pool *pool, struct ms_range *range,
                                    struct ms_batch *batch)
{
    if (may_join(pool, range->prev, batch)) {
        struct ms_range *prev = range->prev;
        batch = younger_of(batch, prev->free.batch);
        ms_range_take(pool, prev);
        ms_range_absorb_next(pool, prev);
        range = prev;
    }
    if (may_join(pool, range->next, batch)) {
        batch = younger_of(batch, range->next->free.batch);
        ms_range_take(pool, range->next);
        ms_range_absorb_next(pool, range);
    }
    range->state = MS_RANGE_FREE;
    enter_batch(batch, range);
    struct ms_order *order = ms_range_order(pool, range);
    ms_bins_insert(&order->bins[range->segment->region], range);
    order->ranges++;
    pool->count.free_bytes += range->bytes;
    pool->count.pending_bytes += batch != NULL ? range->bytes : 0;
    note_waits(pool);
    return range;
}

struct ms_range *ms_range_make_hole(struct ms_pool *pool, struct ms_range *range)
{
    if (range->prev != NULL && range->prev->state == MS_RANGE_HOLE) {
        range = range->prev;
        ms_range_take(pool, range);
        ms_range_absorb_next(pool, range);
    }
    if (range->next != NULL && range->next->state == MS_RANGE_HOLE) {
        ms_range_take(pool, range->next);
        ms_range_absorb_next(pool, range);
    }
    range->state = MS_RANGE_HOLE;
    ms_range_tree_insert(&pool->holes[range->segment->region], range);
    return range;
}

void ms_range_drain(struct ms_pool *pool, struct ms_range *range)
{
    range->state = MS_RANGE_DRAINING;
    range->draining.epoch = pool->epochs.current;
    range->draining.next = pool->draining;
    range->draining.prev = NULL;
    if (pool->draining != NULL) {
        pool->draining->draining.prev = range;
    }
    pool->draining = range;
}

bool ms_range_usable(const struct ms_range *range, ms_stream_t stream)
{
    if (range->state != MS_RANGE_FREE) {
        return false;
    }
    const struct ms_batch *batch = range->free.batch;
    return batch == NULL || (stream != MS_STREAM_DEVICE && batch->order->stream == stream);
}

void ms_range_info(const struct ms_range *range, struct ms_block_info *out)
{
    *out = (struct ms_block_info){.id = range->live.id,
                                  .addr = range->addr,
                                  .bytes = ms_range_asked_bytes(range),
                                  .stream = range->live.stream,
                                  .holder = ms_range_holder(range),
                                  .site = range->live.site,
                                  .arena = range->arena,
                                  .pinned = range->pinned,
                                  .marked = range->marked};
}

enum { IDS_AT_A_TIME = 1024 };

static uint64_t next_id(struct ms_pool *pool) MS_REQUIRES(ms_state_role)
{
    if (pool->next_id == pool->end_id) {
        pool->next_id = ms_ids_take(IDS_AT_A_TIME);
        pool->end_id = pool->next_id + IDS_AT_A_TIME;
        pool->first_id = pool->first_id != 0 ? pool->first_id : pool->next_id;
    }
    return pool->next_id++;
}

void ms_range_make_live(struct ms_pool *pool, struct ms_range *range,
                        const struct ms_request *request, struct ms_block_info *out)
{
    const uint64_t spare_bytes = range->bytes - request->bytes;
    MS_ASSERT(range->state == MS_RANGE_BUSY && spare_bytes <= UINT32_MAX);
    range->state = MS_RANGE_LIVE;
    range->arena = false;
    range->kept = false;
    range->pinned = false;
    range->marked = false;
    range->mixed = false;
    range->holed = false;
    range->live.id = next_id(pool);
    range->live.stream = request->stream;
    range->live.holder = request->holder;
    range->live.site = request->site;
    range->live.spare_bytes = (uint32_t)spare_bytes;
    ms_index_insert(&pool->index, range);
    struct ms_segment *segment = range->segment;
    ms_starts_set(&segment->starts, (range->addr - segment->base) / MS_BLOCK_ALIGNMENT_BYTES);
    pool->count.live_blocks++;
    pool->count.live_bytes += request->bytes;
    pool->count.set_aside_bytes += range->bytes;
    pool->count.allocations++;
    *out = (struct ms_block_info){.id = range->live.id,
                                  .holder = request->holder,
                                  .addr = range->addr,
                                  .bytes = request->bytes,
                                  .stream = request->stream,
                                  .site = request->site};
    ms_pool_emit(pool, (struct ms_event){.kind = MS_EVENT_BLOCK_ALLOC,
                                         .owner = MS_OWNER_POOL,
                                         .site = request->site,
                                         .id = range->live.id,
                                         .addr = range->addr,
                                         .bytes = request->bytes,
                                         .stream = request->stream,
                                         .aux = range->bytes});
    note_waits(pool);
}

bool ms_range_claim(struct ms_pool *pool, struct ms_range *range, uint64_t bytes)
{
    struct ms_batch *batch = range->free.batch;
    ms_range_take(pool, range);
    if (range->bytes > bytes) {
        struct ms_range *rest = ms_range_split(pool, range, bytes);
        if (rest == NULL) {
            ms_range_make_free(pool, range, batch);
            return false;
        }
        ms_range_make_free(pool, rest, batch);
    }
    return true;
}

/* Nearly every allocation runs through here, and through nothing else of this file. With the calls
 * inlined (flatten) it saves registers once instead of five times. */
__attribute__((flatten)) ms_status_t ms_range_carve(struct ms_pool *pool, struct ms_range *range,
                                                    uint64_t bytes,
                                                    const struct ms_request *request,
                                                    struct ms_block_info *out)
{
    if (!ms_range_claim(pool, range, bytes)) {
        return MS_ERR_NO_MEMORY;
    }
    ms_range_make_live(pool, range, request, out);
    return MS_OK;
}

struct ms_range *ms_block_at_or_below(struct ms_pool *pool, ms_addr_t addr)
{
    const struct ms_segment *segment = ms_segment_of(pool, addr);
    uint64_t position = 0;
    if (segment == NULL ||
        !ms_starts_at_or_below(&segment->starts, (addr - segment->base) / MS_BLOCK_ALIGNMENT_BYTES,
                               &position)) {
        return NULL;
    }
    return ms_index_find(&pool->index, segment->base + position * MS_BLOCK_ALIGNMENT_BYTES);
}

struct ms_range *ms_block_around(struct ms_pool *pool, ms_addr_t addr)
{
    struct ms_range *range = ms_index_find(&pool->index, addr);
    if (range != NULL) {
        return range;
    }
    range = ms_block_at_or_below(pool, addr);
    return range != NULL && addr - range->addr < ms_range_asked_bytes(range) ? range : NULL;
}
