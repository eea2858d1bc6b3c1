/* SPDX-License-Identifier: Apache-2.0 */
/* Searches the pool's segments for chunks that could move to the host, or back.
 *
 *   which may       a chunk with live memory on it, unless the identity of anything on it has left
 *                   the process, or a stream captured there. Free memory on it moves along, and
 *                   drains
 *   which is best   the one that is used last, by the configured choice (choice.h): a chunk counts
 *                   as used when anything on it was */
#include "allocator/spill/search.h"
#include "allocator/arenas/holes.h"
#include "allocator/arenas/states.h"
#include "allocator/arenas/tensors.h"
#include "allocator/backing/granules.h"
#include "allocator/base/arithmetic.h"
#include "allocator/pool_state.h"
#include "allocator/space/place.h"
#include "allocator/space/tiling.h"
#include "allocator/spill/ahead.h"
#include "allocator/spill/choice.h"
#include "allocator/spill/forecast.h"

/* Converts a time to a part of the run so far, in 2^-32. */
static uint64_t part_of(uint64_t at, uint64_t now)
{
    return now == 0 ? 0 : ms_share(ms_least(at, now), now, UINT64_C(1) << 32);
}

/* Converts the tick of a next use to a point of the run, like candidate->now. */
static uint64_t place_of(const struct ms_pool *pool, uint64_t tick) MS_REQUIRES(ms_state_role)
{
    uint64_t clock = pool->epochs.clock > 0 ? pool->epochs.clock : pool->next_id - pool->first_id;
    return tick == MS_NEVER || clock == 0
               ? UINT64_MAX
               : (UINT64_C(1) << 32) +
                     ms_share(ms_less(tick, pool->ahead.forecast.tick), clock, UINT64_C(1) << 32);
}

static const struct ms_spill_choice *choice_of(const struct ms_pool *pool)
{
    return pool->config.spill_choice != NULL ? pool->config.spill_choice : &ms_spill_choice_lru;
}

static void found(struct ms_pool *pool, struct ms_search *search, struct ms_chunk *chunk,
                  struct ms_range *live, struct ms_spill_candidate *candidate)
    MS_REQUIRES(ms_growth_role, ms_state_role)
{
    search->coldest_use = search->bytes == 0 ? candidate->last_use
                                             : ms_least(search->coldest_use, candidate->last_use);
    search->bytes += chunk->bytes;
    if (search->count == search->room) {
        return;
    }
    const struct ms_spill_choice *choice = choice_of(pool);
    uint64_t next_use =
        search->foretold && !candidate->state ? ms_ahead_next_use(pool, chunk) : MS_NEVER;
    candidate->addr = chunk->segment->base + chunk->slot * pool->granule_bytes;
    candidate->bytes = chunk->bytes;
    candidate->now = UINT64_C(1) << 32;
    candidate->next_use = place_of(pool, next_use);
    candidate->returns = chunk->returns;
    uint64_t rank = choice->rank(choice->ctx, candidate);
    search->heap[search->count++] =
        (struct ms_victim){.rank = search->down ? rank : UINT64_MAX - rank,
                           .next_use = next_use,
                           .addr = candidate->addr,
                           .state = candidate->state,
                           .chunk = chunk,
                           .live = live};
}

static bool wanted(const struct ms_pool *pool, const struct ms_search *search,
                   const struct ms_chunk *chunk)
{
    if (chunk == NULL || chunk->stuck) {
        return false;
    }
    ms_addr_t addr = chunk->segment->base + chunk->slot * pool->granule_bytes;
    return addr + chunk->bytes > search->begin && addr < search->end &&
           chunk->host != search->down && (search->held_too || chunk->returns < MS_THRASH_RETURNS);
}

/* For a chunk in an arena: whether it may move, its last use by the clock, and whether only
 * optimizer state lives there. */
static bool sample_granules(const struct ms_pool *pool, const struct ms_segment *segment,
                            const struct ms_chunk *chunk, uint64_t *last_use, bool *state)
{
    const struct ms_granule *first = &segment->granules[chunk->slot];
    uint64_t slots = chunk->bytes / pool->granule_bytes;
    bool live = false;
    *last_use = 0;
    *state = true;
    for (const struct ms_granule *granule = first; granule < first + slots; granule++) {
        if (granule->arena == NULL || granule->arena != first->arena || granule->arena->frozen ||
            granule->pinned || granule->unbacked) {
            return false;
        }
        if (granule->tensors > 0) {
            live = true;
            *last_use = granule->since > *last_use ? granule->since : *last_use;
            *state = *state && granule->states;
        }
    }
    return live;
}

/* A framework's reservation: all of it is one arena. */
static void search_foreign(struct ms_pool *pool, struct ms_search *search,
                           struct ms_segment *segment) MS_REQUIRES(ms_growth_role, ms_state_role)
{
    for (uint64_t slot = 0; slot < segment->slot_count; slot++) {
        struct ms_chunk *chunk = segment->slots[slot];
        uint64_t last_use = 0;
        bool state = false;
        if (wanted(pool, search, chunk) && chunk->slot == slot && !pool->frozen &&
            sample_granules(pool, segment, chunk, &last_use, &state)) {
            uint64_t used = part_of(last_use, pool->epochs.clock);
            struct ms_spill_candidate candidate = {.last_use = used, .state = state};
            found(pool, search, chunk, NULL, &candidate);
        }
    }
}

/* Whether all of the chunk lies in the arena's granules. */
static bool inside_arena(const struct ms_pool *pool, const struct ms_chunk *chunk,
                         const struct ms_arena *arena)
{
    uint64_t slots = chunk->bytes / pool->granule_bytes;
    for (uint64_t k = 0; k < slots; k++) {
        if (chunk->segment->granules[chunk->slot + k].arena != arena) {
            return false;
        }
    }
    return true;
}

/* Adds one live block's part to the candidate of its chunk. False: the chunk must stay. */
static bool sample_block(struct ms_pool *pool, const struct ms_chunk *chunk,
                         const struct ms_range *range, struct ms_spill_candidate *candidate)
    MS_REQUIRES(ms_state_role)
{
    const struct ms_arena *arena = ms_range_holes(range);
    uint64_t now = pool->next_id - pool->first_id;
    uint64_t used = ms_range_used(range);
    used = used > range->live.id ? used : range->live.id;
    uint64_t last_use = part_of(used - pool->first_id, now);
    if (range->pinned || (arena != NULL && (arena->frozen || pool->frozen))) {
        return false;
    }
    bool state = arena == NULL && ms_states_has_block(pool, range);
    if (arena != NULL && inside_arena(pool, chunk, arena)) {
        if (!sample_granules(pool, chunk->segment, chunk, &last_use, &state)) {
            return false;
        }
        last_use = part_of(last_use, pool->epochs.clock);
    }
    candidate->state = candidate->state && state;
    candidate->last_use = last_use > candidate->last_use ? last_use : candidate->last_use;
    return true;
}

/* Whether a chunk that begins in `range` may move; *live: a block on it. */
static bool sample_ranges(struct ms_pool *pool, const struct ms_search *search,
                          const struct ms_chunk *chunk, struct ms_range *range,
                          struct ms_range **live, struct ms_spill_candidate *candidate)
    MS_REQUIRES(ms_state_role)
{
    ms_addr_t end = chunk->segment->base + chunk->slot * pool->granule_bytes + chunk->bytes;
    enum ms_range_state along = search->down ? MS_RANGE_FREE : MS_RANGE_DRAINING;
    *live = NULL;
    for (; range != NULL && range->addr < end; range = range->next) {
        if (range->state == MS_RANGE_LIVE ? !sample_block(pool, chunk, range, candidate)
                                          : range->state != along) {
            return false;
        }
        if (range->state == MS_RANGE_LIVE) {
            *live = range;
        }
    }
    return *live != NULL;
}

static void search_blocks(struct ms_pool *pool, struct ms_search *search,
                          struct ms_segment *segment) MS_REQUIRES(ms_growth_role, ms_state_role)
{
    struct ms_range *range = segment->first;
    uint64_t slot = 0;
    while (slot < segment->slot_count) {
        ms_addr_t addr = segment->base + slot * pool->granule_bytes;
        while (range->addr + range->bytes <= addr) {
            range = range->next;
        }
        if (range->state == MS_RANGE_HOLE) {
            slot = (range->addr + range->bytes - segment->base) / pool->granule_bytes;
            continue;
        }
        struct ms_chunk *chunk = segment->slots[slot++];
        struct ms_range *live = NULL;
        struct ms_spill_candidate candidate = {.state = true};
        if (wanted(pool, search, chunk) && chunk->slot == slot - 1 &&
            sample_ranges(pool, search, chunk, range, &live, &candidate)) {
            found(pool, search, chunk, live, &candidate);
        }
    }
}

/* Finds next uses and optimizer state for all chunks at once, if the choice uses them. */
static void sample_uses(struct ms_pool *pool, struct ms_search *search) MS_REQUIRES(ms_state_role)
{
    search->foretold = ms_ahead_knows(pool);
    if (search->foretold) {
        ms_ahead_predict(pool);
    }
    if (choice_of(pool)->foretells) {
        ms_states_find(pool);
    }
}

static void search_segment(struct ms_pool *pool, struct ms_search *search,
                           struct ms_segment *segment) MS_REQUIRES(ms_growth_role, ms_state_role)
{
    if (segment->foreign != NULL) {
        search_foreign(pool, search, segment);
    } else if (!segment->plain && segment != pool->moving.staging) {
        search_blocks(pool, search, segment);
    }
}

static void search_all(struct ms_pool *pool, struct ms_search *search)
    MS_REQUIRES(ms_growth_role, ms_state_role)
{
    for (size_t at = 0; at < pool->segment_count; at++) {
        search_segment(pool, search, pool->segments[at]);
    }
}

uint64_t ms_search_bytes(struct ms_pool *pool, struct ms_search *search)
{
    ms_state_acquire(pool);
    search_all(pool, search);
    ms_state_release(pool);
    return search->bytes;
}

void ms_search_begin(struct ms_pool *pool, struct ms_search *search)
{
    uint64_t most = search->down ? ms_pool_count_of_growth(pool)->reserved_bytes
                                 : ms_pool_count_of_growth(pool)->host_backed_bytes;
    ms_victims_need(pool, most / pool->granule_bytes + 1);
    search->heap = pool->victims.heap;
    search->room = pool->victims.room;
}

void ms_search_rank(struct ms_pool *pool, struct ms_search *search)
{
    sample_uses(pool, search);
    search_all(pool, search);
    ms_victims_order(search->heap, search->count);
}

/* ---- victims */

/* Prepares the chunk's ranges for a move: live blocks are mixed from here on, and nobody gets its
 * free memory. False: the host has no memory. State lock. */
static bool take_along(struct ms_pool *pool, const struct ms_chunk *chunk, struct ms_range *range)
    MS_REQUIRES(ms_state_role) MS_REQUIRES(ms_growth_role)
{
    ms_addr_t begin = chunk->segment->base + chunk->slot * pool->granule_bytes;
    ms_addr_t end = begin + chunk->bytes;
    while (range->addr > begin) {
        range = range->prev;
    }
    for (; range != NULL && range->addr < end; range = range->next) {
        if (range->state == MS_RANGE_LIVE) {
            range->mixed = true;
        } else if (range->state == MS_RANGE_FREE) {
            if (!ms_slab_reserve(&pool->range_slab, 2)) {
                return false;
            }
            ms_addr_t from = range->addr > begin ? range->addr : begin;
            ms_addr_t to = range->addr + range->bytes < end ? range->addr + range->bytes : end;
            struct ms_batch *batch = range->free.batch;
            range = ms_range_cut(pool, range, from, to);
            range->free.batch = batch; /* if it stays here, its work may still run */
            range->free.batch_next = pool->moving.cut;
            pool->moving.cut = range;
        }
    }
    return true;
}

void ms_search_finish(struct ms_pool *pool)
{
    ms_state_acquire(pool);
    pool->moving.under_way = false;
    while (pool->moving.cut != NULL) {
        struct ms_range *range = pool->moving.cut;
        pool->moving.cut = range->free.batch_next;
        ms_range_give_up(pool, range, range->free.batch);
    }
    ms_state_release(pool);
    ms_holes_drain_no_more(pool);
}

/* How many chunks larger than the lacking bytes to skip, so that little more moves than was asked
 * for. */
enum { LOOK_PAST = 64 };

/* The next chunk to take: the best of the next few that is no larger than the lacking bytes; else
 * the best. False: there is none. */
static bool next_victim(struct ms_search *search, uint64_t lacking_bytes, uint64_t limit_bytes,
                        struct ms_victim *out)
{
    struct ms_victim first = {.chunk = NULL};
    unsigned past = 0;
    while (search->count > 0 && past < LOOK_PAST) {
        struct ms_victim victim = ms_victims_pop(search->heap, &search->count);
        if (victim.chunk->bytes <= ms_least(lacking_bytes, limit_bytes)) {
            *out = victim;
            return true;
        }
        if (victim.chunk->bytes <= limit_bytes) {
            first = first.chunk == NULL ? victim : first;
            past++;
        }
    }
    *out = first;
    return first.chunk != NULL;
}

struct ms_chunk *ms_search_pick(struct ms_pool *pool, struct ms_search *search, bool take,
                                uint64_t enough_bytes, uint64_t limit_bytes, uint64_t *bytes)
{
    struct ms_chunk *list = NULL;
    struct ms_victim best;
    *bytes = 0;
    ms_search_begin(pool, search);
    ms_state_acquire(pool);
    pool->moving.under_way = take;
    ms_search_rank(pool, search);
    while (*bytes < enough_bytes &&
           next_victim(search, enough_bytes - *bytes, limit_bytes - *bytes, &best)) {
        if (take && best.live != NULL && !take_along(pool, best.chunk, best.live)) {
            continue;
        }
        best.chunk->next = list;
        list = best.chunk;
        *bytes += best.chunk->bytes;
    }
    ms_state_release(pool);
    return list;
}
