/* SPDX-License-Identifier: Apache-2.0 */
/* Live memory on the host: what to move there when nothing else is left, and what to bring back.
 *
 *   what may be moved   a chunk with something live on it, all of it: not where the identity of
 *                       anything on it has left the process, nor where a stream captured. Free
 *                       memory on it goes along, and drains
 *   which one           the one that is used last, by the configured choice (spill_choice.h): a
 *                       chunk counts as used when anything on it was
 *   how much            what the request lacks, and a little ahead of need, for a standstill costs
 *                       the same for one chunk and for many
 *   back                by ms_pool_promote, hottest first, when the budget has room; or because
 *                       its identity is asked for
 *   over and over       what came back and soon had to go again, several times, stays where it is
 *                       until there is room for all that is spilled: the rest of it stays hot
 *
 * Blocks of which a part is on the host fall to pieces when they are freed, as arenas with holes
 * do: their host chunks drain (holes.c). A host chunk under a tensor that dies is one of a hole
 * from then on. */
#include "allocator/spill/spill.h"
#include "allocator/arenas/arenas.h"
#include "allocator/arenas/holes.h"
#include "allocator/arenas/states.h"
#include "allocator/arenas/tensors.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/device_room.h"
#include "allocator/backing/fences.h"
#include "allocator/backing/granules.h"
#include "allocator/backing/obligations.h"
#include "allocator/backing/victims.h"
#include "allocator/base/arithmetic.h"
#include "allocator/device/budget.h"
#include "allocator/pool_state.h"
#include "allocator/space/place.h"
#include "allocator/space/tiling.h"
#include "allocator/spill/ahead.h"
#include "allocator/spill/choice.h"
#include "allocator/spill/forecast.h"
#include "allocator/spill/move.h"
#include "allocator/spill/promote.h"

/* Moved ahead of need, at most, and as a part of the cap. */
#define AHEAD_BYTES ((uint64_t)64 << 20)
enum { AHEAD_PART = 128 };

/* Back soon: within so many standstills. Thrashing: so many times on end. */
enum { SOON_HALTS = 16, THRASH_RETURNS = 3 };

/* ---- what there is to move */

/* Chunks that could be moved, from the device (down) or from the host. */
struct search {
    bool down;
    bool held_too; /* also what stays where it is because it came and went too often */
    struct ms_victim *heap;
    size_t count, room;
    uint64_t bytes; /* of all that were found */
    uint64_t enough_bytes;
    ms_addr_t begin, end; /* where they begin */
    bool foretold;        /* next uses have been looked for */
};

/* As a part of the run so far, in 2^-32. */
static uint64_t part_of(uint64_t at, uint64_t now)
{
    uint64_t part =
        now == 0 ? 0 : (uint64_t)((double)at / (double)now * (double)(UINT64_C(1) << 32));
    return ms_least(part, UINT64_C(1) << 32);
}

/* Of the tick of a next use: as a place in the run, like candidate->now. */
static uint64_t place_of(const struct ms_pool *pool, uint64_t tick)
{
    uint64_t clock = pool->epochs.clock > 0 ? pool->epochs.clock : pool->next_id - pool->first_id;
    return tick == MS_NEVER || clock == 0
               ? UINT64_MAX
               : ((uint64_t)1 << 32) + (uint64_t)((double)(tick - pool->ahead.forecast.tick) /
                                                  (double)clock * (double)(UINT64_C(1) << 32));
}

static const struct ms_spill_choice *choice_of(const struct ms_pool *pool)
{
    return pool->config.spill_choice != NULL ? pool->config.spill_choice : &ms_spill_choice_lru;
}

static void found(struct ms_pool *pool, struct search *search, struct ms_chunk *chunk,
                  struct ms_range *live, struct ms_spill_candidate *candidate)
    MS_REQUIRES(ms_state_role)
{
    search->bytes += chunk->bytes;
    if (search->count == search->room) {
        return;
    }
    const struct ms_spill_choice *choice = choice_of(pool);
    uint64_t next_use =
        search->foretold ? ms_ahead_next_use(pool, chunk, candidate->state) : MS_NEVER;
    candidate->addr = chunk->segment->base + chunk->slot * pool->granule_bytes;
    candidate->bytes = chunk->bytes;
    candidate->now = UINT64_C(1) << 32;
    candidate->next_use = place_of(pool, next_use);
    candidate->returns = chunk->returns;
    uint64_t rank = choice->rank(choice->ctx, candidate);
    search->heap[search->count++] =
        (struct ms_victim){.rank = search->down ? rank : UINT64_MAX - rank,
                           .next_use = next_use,
                           .chunk = chunk,
                           .live = live};
}

static bool wanted(const struct ms_pool *pool, const struct search *search,
                   const struct ms_chunk *chunk)
{
    if (chunk == NULL || chunk->stuck) {
        return false;
    }
    ms_addr_t addr = chunk->segment->base + chunk->slot * pool->granule_bytes;
    return addr >= search->begin && addr < search->end && chunk->host != search->down &&
           (search->held_too || chunk->returns < THRASH_RETURNS);
}

/* Of a chunk in an arena: whether it may move, when it was used last, by the clock, and whether
 * all that lives there is optimizer state. */
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
static void search_foreign(struct ms_pool *pool, struct search *search, struct ms_segment *segment)
    MS_REQUIRES(ms_state_role)
{
    for (uint64_t slot = 0; slot < segment->slot_count && search->bytes < search->enough_bytes;
         slot++) {
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

/* What one live block says of a chunk that it lies on. False: the chunk stays. */
static bool sample_block(struct ms_pool *pool, const struct ms_chunk *chunk,
                         const struct ms_range *range, struct ms_spill_candidate *candidate)
    MS_REQUIRES(ms_state_role)
{
    const struct ms_arena *arena = range->live.holes;
    uint64_t now = pool->next_id - pool->first_id;
    uint64_t used = range->live.used > range->live.id ? range->live.used : range->live.id;
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

/* Of a chunk on which `range` lies first: whether it may move; *live: a block on it. */
static bool sample_ranges(struct ms_pool *pool, const struct search *search,
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

static void search_blocks(struct ms_pool *pool, struct search *search, struct ms_segment *segment)
    MS_REQUIRES(ms_state_role)
{
    struct ms_range *range = segment->first;
    uint64_t slot = 0;
    while (slot < segment->slot_count && search->bytes < search->enough_bytes) {
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

/* What the choice asks for of all at once. */
static void sample_uses(struct ms_pool *pool, struct search *search) MS_REQUIRES(ms_state_role)
{
    search->foretold = ms_ahead_knows(pool);
    if (search->foretold) {
        ms_ahead_predict(pool);
    }
    if (choice_of(pool)->foretells) {
        ms_states_find(pool);
    }
}

/* State lock. */
static void search_segment(struct ms_pool *pool, struct search *search, struct ms_segment *segment)
    MS_REQUIRES(ms_state_role)
{
    if (segment->foreign != NULL) {
        search_foreign(pool, search, segment);
    } else if (!segment->plain && segment != pool->moving.staging) {
        search_blocks(pool, search, segment);
    }
}

static void search_all(struct ms_pool *pool, struct search *search) MS_REQUIRES(ms_state_role)
{
    for (size_t at = 0; at < pool->segment_count && search->bytes < search->enough_bytes; at++) {
        search_segment(pool, search, pool->segments[at]);
    }
}

/* ---- victims */

/* What lies on the chunk is about to move: live blocks are mixed from here on, and free memory is
 * nobody's to have. False: the host has no memory. State lock. */
static bool take_along(struct ms_pool *pool, const struct ms_chunk *chunk, struct ms_range *range)
    MS_REQUIRES(ms_state_role)
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
            range->free.batch = batch; /* where it stays, its work may still run */
            range->free.batch_next = pool->moving.cut;
            pool->moving.cut = range;
        }
    }
    return true;
}

/* The move is over: frees of mixed blocks go on, and free memory is what stands behind it. */
static void finish(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
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

/* The best for `enough_bytes`, all together at most `limit_bytes`; *bytes: how much that is. With
 * `take` they are taken, linked by `next`: finish() is called when they have moved, or not. */
static struct ms_chunk *pick(struct ms_pool *pool, struct search *search, bool take,
                             uint64_t enough_bytes, uint64_t limit_bytes, uint64_t *bytes)
{
    uint64_t most = search->down ? pool->count.reserved_bytes : pool->count.host_backed_bytes;
    ms_victims_need(pool, most / pool->granule_bytes + 1);
    search->heap = pool->victims.heap;
    search->room = pool->victims.room;
    search->enough_bytes = UINT64_MAX;
    struct ms_chunk *list = NULL;
    *bytes = 0;
    ms_state_acquire(pool);
    pool->moving.under_way = take;
    sample_uses(pool, search);
    search_all(pool, search);
    ms_victims_order(search->heap, search->count);
    while (search->count > 0 && *bytes < enough_bytes) {
        struct ms_victim best = ms_victims_pop(search->heap, &search->count);
        if (best.chunk->bytes > limit_bytes - *bytes ||
            (take && best.live != NULL && !take_along(pool, best.chunk, best.live))) {
            continue;
        }
        best.chunk->next = list;
        list = best.chunk;
        *bytes += best.chunk->bytes;
    }
    ms_state_release(pool);
    return list;
}

static struct ms_chunk *pick_down(struct ms_pool *pool, bool take, uint64_t enough_bytes,
                                  uint64_t limit_bytes, uint64_t *bytes)
{
    struct search search = {.down = true, .held_too = true, .end = UINT64_MAX};
    return pick(pool, &search, take, enough_bytes, limit_bytes, bytes);
}

/* ---- down */

/* Why contents cannot move at this moment, for the request under way. */
static enum ms_unmoved obstacle(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    if (pool->ops->halt == NULL || pool->granule_bytes == 0 || pool->moving.broken) {
        return MS_UNMOVED_NO_ROAD;
    }
    if (pool->ops->capturing(pool->ops->ctx)) {
        return MS_UNMOVED_CAPTURE;
    }
    if (pool->obligations.no_host) {
        return MS_UNMOVED_NO_HOST;
    }
    return pool->moving.refused || ms_move_rests(pool) ? MS_UNMOVED_BUSY : MS_UNMOVED_NOTHING;
}

bool ms_spill_possible(struct ms_pool *pool)
{
    return pool->config.spill_limit_bytes > 0 && obstacle(pool) == MS_UNMOVED_NOTHING;
}

uint64_t ms_pool_movable_bytes(ms_pool_t *pool, enum ms_unmoved *why)
{
    struct search search = {
        .down = true, .held_too = true, .end = UINT64_MAX, .enough_bytes = UINT64_MAX};
    ms_growth_acquire(pool);
    *why = obstacle(pool);
    if (*why == MS_UNMOVED_NOTHING) {
        ms_state_acquire(pool);
        search_all(pool, &search);
        ms_state_release(pool);
    }
    ms_growth_release(pool);
    return search.bytes;
}

/* What the limits leave, and others do not need. */
static uint64_t room_on_host(struct ms_pool *pool, uint64_t kept_bytes) MS_REQUIRES(ms_growth_role)
{
    const struct ms_budget *shared = pool->config.spill_budget;
    uint64_t room =
        ms_least(ms_less(pool->config.spill_limit_bytes, pool->count.spill.spilled_bytes),
                 ms_less(ms_obligations_host_room(pool), kept_bytes));
    room = shared != NULL ? ms_least(room, ms_budget_free_bytes(shared)) : room;
    return room - room % pool->granule_bytes;
}

/* Room in the budget that pools share: taken before anything moves, and what did not move given
 * back. */
static bool take_room(struct ms_pool *pool, uint64_t bytes)
{
    struct ms_budget *shared = pool->config.spill_budget;
    if (shared != NULL && !ms_budget_charge(shared, MS_OWNER_POOL, bytes)) {
        return false;
    }
    pool->moving.room_bytes = bytes;
    return true;
}

static void leave_room(struct ms_pool *pool)
{
    struct ms_budget *shared = pool->config.spill_budget;
    if (shared != NULL) {
        ms_budget_discharge(shared, MS_OWNER_POOL, pool->moving.room_bytes);
    }
    pool->moving.room_bytes = 0;
}

/* Those that have come back soon before, and once more. Where steps are foretold nothing is held:
 * what comes and goes in each of them is what does not fit, and comes when it is used. */
static void note_returns(struct ms_pool *pool, struct ms_chunk *list)
{
    struct ms_spill_stats *stats = &pool->count.spill;
    ms_state_acquire(pool);
    uint8_t most = ms_ahead_knows(pool) ? 1 : UINT8_MAX;
    for (struct ms_chunk *chunk = list; chunk != NULL; chunk = chunk->next) {
        bool soon = chunk->promoted != 0 && stats->halts - chunk->promoted <= SOON_HALTS;
        chunk->returns = !soon ? 0 : chunk->returns < most ? chunk->returns + 1 : most;
        stats->thrashed_bytes += chunk->returns >= THRASH_RETURNS ? chunk->bytes : 0;
    }
    ms_state_release(pool);
}

/* With what will be wanted soon. */
static uint64_t ahead_of_need(struct ms_pool *pool, const struct ms_spill_need *need)
{
    uint64_t more =
        ms_least(atomic_load(&pool->config.budget->cap_bytes) / AHEAD_PART, AHEAD_BYTES);
    more = need->more_bytes > more ? need->more_bytes : more;
    ms_state_acquire(pool);
    if (ms_ahead_knows(pool)) {
        more = ms_ahead_more_bytes(pool, need);
    }
    ms_state_release(pool);
    return need->bytes + more - more % pool->granule_bytes;
}

/* Host chunks for the best victims, staged; *bytes: how much. */
static ms_status_t prepare(struct ms_pool *pool, const struct ms_spill_need *need, uint64_t *bytes)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t room = room_on_host(pool, need->kept_bytes);
    uint64_t enough = ms_least(ahead_of_need(pool, need), room);
    if (enough < need->bytes) {
        return MS_ERR_NO_MEMORY;
    }
    (void)pick_down(pool, false, enough, room, bytes);
    if (*bytes < need->bytes) {
        return MS_ERR_NO_MEMORY;
    }
    if (!take_room(pool, *bytes)) {
        return MS_ERR_NO_MEMORY;
    }
    ms_status_t status = ms_obligations_host_spare(pool, *bytes);
    return status == MS_OK ? ms_move_stage(pool, *bytes, MS_LOCATION_HOST) : status;
}

static ms_status_t make_room(struct ms_pool *pool, const struct ms_spill_need *need,
                             uint64_t *taken_bytes) MS_REQUIRES(ms_growth_role)
{
    uint64_t staged_bytes = 0;
    ms_status_t status = prepare(pool, need, &staged_bytes);
    if (status != MS_OK) {
        return MS_ERR_NO_MEMORY;
    }
    uint64_t picked_bytes = 0;
    uint64_t moved_bytes = 0;
    struct ms_chunk *list = pick_down(pool, true, staged_bytes, staged_bytes, &picked_bytes);
    if (picked_bytes < need->bytes) {
        ms_move_unstage(pool);
        return MS_ERR_NO_MEMORY;
    }
    note_returns(pool, list);
    status = ms_move(pool, list, MS_LOCATION_HOST, &moved_bytes);
    *taken_bytes += moved_bytes;
    if (moved_bytes >= need->bytes) {
        return MS_OK;
    }
    return status > 0 ? status : MS_ERR_NO_MEMORY;
}

ms_status_t ms_spill_make_room(struct ms_pool *pool, const struct ms_spill_need *need,
                               uint64_t *taken_bytes)
{
    if (!ms_spill_possible(pool)) {
        return MS_ERR_NO_MEMORY;
    }
    ms_ahead_begin(pool);
    pool->ahead.uses_known =
        pool->ops->report_uses == NULL || pool->ops->report_uses(pool->ops->ctx);
    struct ms_spill_need whole = *need;
    whole.bytes = ms_round_up(need->bytes, pool->granule_bytes);
    ms_status_t status = make_room(pool, &whole, taken_bytes);
    leave_room(pool);
    finish(pool);
    return status;
}

/* ---- up */

static uint64_t budget_room(struct ms_pool *pool)
{
    uint64_t room = ms_budget_free_bytes(pool->config.budget);
    return room - room % pool->granule_bytes;
}

/* Brings back what is found, at least `least_bytes` of it; returns how much it was. */
static uint64_t promote(struct ms_pool *pool, struct search search, uint64_t least_bytes,
                        uint64_t max_bytes) MS_REQUIRES(ms_growth_role)
{
    uint64_t moved_bytes = 0;
    uint64_t bytes = 0;
    struct search again = search;
    uint64_t limit = ms_least(budget_room(pool), max_bytes);
    (void)pick(pool, &search, false, limit, limit, &bytes);
    if (bytes == 0 || bytes < least_bytes ||
        ms_move_stage(pool, bytes, MS_LOCATION_DEVICE) != MS_OK) {
        return 0;
    }
    uint64_t picked_bytes = 0;
    struct ms_chunk *list = pick(pool, &again, true, bytes, bytes, &picked_bytes);
    if (picked_bytes > 0) {
        (void)ms_move(pool, list, MS_LOCATION_DEVICE, &moved_bytes);
    }
    ms_move_unstage(pool);
    finish(pool);
    return moved_bytes;
}

/* Room in the budget for so much, from what is idle and from holes, as far as they go. */
static void make_idle_room(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
{
    uint64_t missing = ms_less(bytes, budget_room(pool));
    uint64_t taken_bytes = 0;
    if (missing > 0) {
        ms_fences_take(pool, false);
        (void)ms_fences_poll(pool);
        (void)ms_backing_unmap_idle(pool, missing, &taken_bytes);
        missing = ms_holes_room(pool, ms_less(missing, taken_bytes));
        (void)ms_holes_make_room(pool, missing, &taken_bytes);
        (void)ms_backing_release_spares(pool);
    }
}

uint64_t ms_pool_promote(ms_pool_t *pool, uint64_t max_bytes)
{
    uint64_t moved_bytes = 0;
    ms_growth_acquire(pool);
    pool->moving.refused = false;
    if (pool->count.spill.spilled_bytes > 0 && ms_spill_possible(pool)) {
        (void)ms_backing_release_spares(pool);
        ms_device_room_sample(pool);
        ms_holes_recover(pool);
        make_idle_room(pool, ms_least(max_bytes, pool->count.spill.spilled_bytes));
        bool for_all = max_bytes >= pool->count.spill.spilled_bytes &&
                       budget_room(pool) >= pool->count.host_backed_bytes;
        struct search search = {.held_too = for_all, .end = UINT64_MAX};
        moved_bytes = promote(pool, search, 0, max_bytes);
    }
    (void)ms_backing_release_spares(pool);
    ms_obligations_settle(pool);
    ms_growth_release(pool);
    return moved_bytes;
}

bool ms_pool_step(ms_pool_t *pool)
{
    return ms_ahead_step(pool);
}

bool ms_pool_foretells(ms_pool_t *pool)
{
    ms_state_acquire(pool);
    bool foretells = ms_ahead_knows(pool);
    ms_state_release(pool);
    return foretells;
}

/* How much of what is on the host comes back now: see ahead.c. Growth lock. */
static uint64_t wanted_back(struct ms_pool *pool)
{
    uint64_t bytes = 0;
    struct search search = {.held_too = true, .end = UINT64_MAX};
    ms_victims_need(pool, pool->count.host_backed_bytes / pool->granule_bytes + 1);
    search.heap = pool->victims.heap;
    search.room = pool->victims.room;
    search.enough_bytes = UINT64_MAX;
    ms_state_acquire(pool);
    if (ms_ahead_knows(pool)) {
        sample_uses(pool, &search);
        search_all(pool, &search);
        ms_victims_order(search.heap, search.count);
        bytes = ms_ahead_promote_bytes(pool, search.heap, search.count);
    }
    ms_ahead_predicted(pool);
    ms_state_release(pool);
    return bytes;
}

uint64_t ms_pool_promote_ahead(ms_pool_t *pool)
{
    uint64_t moved_bytes = 0;
    if (!atomic_load_explicit(&pool->ahead.due, memory_order_relaxed)) {
        return 0;
    }
    ms_growth_acquire(pool);
    pool->moving.refused = false;
    if (ms_spill_possible(pool)) {
        (void)ms_backing_release_spares(pool);
        ms_device_room_sample(pool);
        ms_holes_recover(pool);
        uint64_t bytes = wanted_back(pool);
        make_idle_room(pool, bytes);
        struct search search = {.held_too = true, .end = UINT64_MAX};
        moved_bytes = bytes > 0 ? promote(pool, search, 0, bytes) : 0;
    }
    (void)ms_backing_release_spares(pool);
    ms_obligations_settle(pool);
    ms_growth_release(pool);
    return moved_bytes;
}

/* The host chunks in the slots, linked by `next`. */
static struct ms_chunk *hosts_in(struct ms_segment *segment, uint64_t from, uint64_t to,
                                 uint64_t *bytes)
{
    struct ms_chunk *list = NULL;
    *bytes = 0;
    for (uint64_t slot = from; slot < to; slot++) {
        struct ms_chunk *chunk = segment->slots[slot];
        if (chunk != NULL && chunk->host && !chunk->stuck) {
            chunk->next = list;
            list = chunk;
            *bytes += chunk->bytes;
        }
    }
    return list;
}

ms_status_t ms_spill_bring_back(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                uint64_t to)
{
    uint64_t bytes = 0;
    uint64_t moved_bytes = 0;
    (void)hosts_in(segment, from, to, &bytes);
    if (bytes == 0) {
        return MS_OK;
    }
    if (pool->config.spill_limit_bytes == 0 || pool->ops->halt == NULL) {
        return MS_ERR_NOT_SUPPORTED;
    }
    if (!ms_spill_possible(pool)) {
        return MS_ERR_NO_MEMORY;
    }
    (void)ms_backing_release_spares(pool);
    ms_device_room_sample(pool);
    uint64_t room = budget_room(pool);
    if (room < bytes) {
        /* What has been marked as not to be moved is not among the victims. */
        struct ms_spill_need need = {.bytes = bytes - room};
        (void)ms_spill_make_room(pool, &need, &moved_bytes);
        (void)ms_backing_release_spares(pool);
    }
    ms_status_t status =
        ms_spill_possible(pool) ? ms_move_stage(pool, bytes, MS_LOCATION_DEVICE) : MS_ERR_NO_MEMORY;
    if (status == MS_OK) {
        moved_bytes = 0;
        ms_state_acquire(pool);
        pool->moving.under_way = true;
        struct ms_chunk *list = hosts_in(segment, from, to, &bytes);
        ms_state_release(pool);
        status = ms_move(pool, list, MS_LOCATION_DEVICE, &moved_bytes);
        finish(pool);
        status = status == MS_OK && moved_bytes < bytes ? MS_ERR_NO_MEMORY : status;
    }
    return status < 0 ? MS_ERR_NO_MEMORY : status;
}

const struct ms_live_memory ms_spill_live = {.possible = ms_spill_possible,
                                             .make_room = ms_spill_make_room,
                                             .bring_back = ms_spill_bring_back};

ms_status_t ms_pool_promote_range(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes)
{
    ms_status_t status = MS_ERR_NOT_OURS;
    ms_growth_acquire(pool);
    pool->moving.refused = false;
    struct ms_segment *segment = ms_segment_of(pool, addr);
    if (segment != NULL && bytes > 0 && bytes <= segment->bytes - (addr - segment->base)) {
        uint64_t wanted_bytes = 0;
        struct search search = {.held_too = true,
                                .begin = addr - (addr - segment->base) % pool->granule_bytes,
                                .end = addr + bytes};
        struct search all = search;
        (void)pick(pool, &all, false, UINT64_MAX, UINT64_MAX, &wanted_bytes);
        uint64_t moved_bytes =
            ms_spill_possible(pool) ? promote(pool, search, wanted_bytes, UINT64_MAX) : 0;
        status = moved_bytes == wanted_bytes ? MS_OK : MS_ERR_NO_MEMORY;
        (void)ms_backing_release_spares(pool);
        ms_obligations_settle(pool);
    }
    ms_growth_release(pool);
    return status;
}
