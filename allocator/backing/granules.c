/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps what arenas know of each granule: see struct ms_granule. */
#include "allocator/backing/granules.h"
#include "allocator/base/assert.h"
#include "allocator/base/containers/pages.h"
#include "allocator/pool_state.h"

static size_t quiet_bytes(const struct ms_segment *segment)
{
    return (segment->slot_count / 64 + 1) * sizeof(*segment->quiet);
}

static size_t granules_bytes(const struct ms_segment *segment)
{
    return segment->slot_count * sizeof(*segment->granules);
}

static size_t marks_bytes(const struct ms_pool *pool, const struct ms_segment *segment)
{
    return segment->slot_count * ms_marks_words(pool->granule_bytes) * sizeof(*segment->marks);
}

static void unmap(void *pages, size_t bytes)
{
    if (pages != NULL) {
        ms_pages_unmap(pages, bytes);
    }
}

void ms_granules_drop(struct ms_pool *pool, struct ms_segment *segment)
{
    unmap(segment->granules, granules_bytes(segment));
    unmap(segment->quiet, quiet_bytes(segment));
    unmap(segment->marks, marks_bytes(pool, segment));
    segment->granules = NULL;
    segment->quiet = NULL;
    segment->marks = NULL;
}

bool ms_granules_need(struct ms_pool *pool, struct ms_segment *segment)
{
    if (segment->granules != NULL) {
        return true;
    }
    segment->granule_shift = (unsigned)__builtin_ctzll(pool->granule_bytes);
    segment->quiet = ms_pages_map(quiet_bytes(segment));
    segment->marks = ms_pages_map(marks_bytes(pool, segment));
    segment->granules = ms_pages_map(granules_bytes(segment));
    if (segment->quiet == NULL || segment->marks == NULL || segment->granules == NULL) {
        ms_granules_drop(pool, segment);
        return false;
    }
    return true;
}

void ms_granules_inside(const struct ms_pool *pool, const struct ms_segment *segment,
                        ms_addr_t addr, uint64_t bytes, uint64_t *from, uint64_t *to)
{
    uint64_t granule = pool->granule_bytes;
    *from = (addr - segment->base + granule - 1) / granule;
    *to = (addr + bytes - segment->base) / granule;
    *to = *to < *from ? *from : *to;
}

static bool quiet(const struct ms_granule *granule)
{
    return granule->arena != NULL && !granule->unbacked && !granule->fresh && granule->tensors == 0;
}

static void owe(struct ms_pool *pool, struct ms_granule *granule) MS_REQUIRES(ms_state_role)
{
    MS_ASSERT(!granule->unbacked);
    granule->unbacked = true;
    granule->asks = true;
    granule->arena->unbacked_bytes += pool->granule_bytes;
    pool->count.obligation_bytes += pool->granule_bytes;
    pool->count.fresh_unbacked_bytes += granule->fresh ? pool->granule_bytes : 0;
}

static void owe_no_more(struct ms_pool *pool, struct ms_granule *granule) MS_REQUIRES(ms_state_role)
{
    MS_ASSERT(granule->unbacked == true);
    granule->unbacked = false;
    granule->asks = granule->on_host;
    granule->refused = false;
    granule->arena->unbacked_bytes -= pool->granule_bytes;
    pool->count.obligation_bytes -= pool->granule_bytes;
    pool->count.fresh_unbacked_bytes -= granule->fresh ? pool->granule_bytes : 0;
}

void ms_granules_enter(struct ms_pool *pool, struct ms_segment *segment, uint64_t from, uint64_t to,
                       struct ms_arena *arena, bool pinned)
{
    for (uint64_t slot = from; slot < to; slot++) {
        struct ms_granule *granule = &segment->granules[slot];
        granule->arena = arena;
        granule->since = 0;
        granule->last_gap = 0;
        granule->pinned = pinned;
        /* Work that was queued before the first report is not known to be done. */
        granule->epoch = pool->epochs.current;
        const struct ms_chunk *chunk = segment->slots[slot];
        ms_granules_place(pool, segment, slot, slot + 1, chunk);
        if (chunk == NULL || chunk->stuck) {
            owe(pool, granule);
        } else if (quiet(granule)) {
            ms_quiet_set(pool, segment, slot);
        }
    }
    pool->epochs.clock++;
}

void ms_granules_leave(struct ms_pool *pool, struct ms_segment *segment, uint64_t from, uint64_t to)
{
    for (uint64_t slot = from; slot < to; slot++) {
        struct ms_granule *granule = &segment->granules[slot];
        if (granule->unbacked) {
            owe_no_more(pool, granule);
        }
        ms_quiet_clear(pool, segment, slot);
        granule->arena = NULL;
        granule->pinned = false;
    }
}

void ms_granules_fresh(struct ms_pool *pool, struct ms_segment *segment, uint64_t from, uint64_t to,
                       bool fresh)
{
    for (uint64_t slot = from; slot < to; slot++) {
        struct ms_granule *granule = &segment->granules[slot];
        uint64_t obligation_bytes = granule->unbacked ? pool->granule_bytes : 0;
        granule->fresh = fresh;
        if (fresh) {
            pool->count.fresh_unbacked_bytes += obligation_bytes;
            ms_quiet_clear(pool, segment, slot);
        } else {
            pool->count.fresh_unbacked_bytes -= obligation_bytes;
            if (quiet(granule)) {
                ms_quiet_set(pool, segment, slot);
            }
        }
    }
}

struct ms_arena *ms_granules_arena(struct ms_pool *pool, struct ms_range *range)
{
    struct ms_segment *segment = range->segment;
    struct ms_arena *arena = ms_slab_take(&pool->arena_slab);
    if (arena == NULL) {
        return NULL;
    }
    *arena = (struct ms_arena){.addr = range->addr,
                               .bytes = range->bytes,
                               .id = range->live.id,
                               .holder = range->live.holder};
    range->live.holes = arena;
    range->holed = true;
    range->mixed = true;
    uint64_t from = 0;
    uint64_t to = 0;
    ms_granules_inside_range(pool, range, &from, &to);
    ms_granules_enter(pool, segment, from, to, arena, range->pinned);
    return arena;
}

void ms_granules_backed(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                        uint64_t to)
{
    for (uint64_t slot = from; slot < to; slot++) {
        struct ms_granule *granule = &segment->granules[slot];
        if (granule->unbacked) {
            owe_no_more(pool, granule);
            if (quiet(granule)) {
                ms_quiet_set(pool, segment, slot);
            }
        }
    }
}

void ms_granules_unbacked(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                          uint64_t to)
{
    for (uint64_t slot = from; slot < to; slot++) {
        ms_quiet_clear(pool, segment, slot);
        owe(pool, &segment->granules[slot]);
    }
}

void ms_granules_place(const struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                       uint64_t to, const struct ms_chunk *chunk)
{
    bool on_host =
        chunk != NULL && chunk->host && !chunk->stuck && pool->config.spill_limit_bytes > 0;
    for (uint64_t slot = from; segment->granules != NULL && slot < to; slot++) {
        segment->granules[slot].on_host = on_host;
        segment->granules[slot].asks = on_host || segment->granules[slot].unbacked;
    }
}

void ms_granules_pin(struct ms_segment *segment, uint64_t from, uint64_t to, bool pinned)
{
    for (uint64_t slot = from; slot < to; slot++) {
        segment->granules[slot].pinned = pinned;
    }
}

uint64_t ms_granules_unbacked_bytes(const struct ms_pool *pool, const struct ms_segment *segment,
                                    uint64_t from, uint64_t to)
{
    uint64_t bytes = 0;
    for (uint64_t slot = from; slot < to; slot++) {
        bytes += segment->granules[slot].unbacked ? pool->granule_bytes : 0;
    }
    return bytes;
}
