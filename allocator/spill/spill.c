/* SPDX-License-Identifier: Apache-2.0 */
/* Moves live memory to the host when nothing else is left, and back when somebody needs its
 * identity.
 *
 *   how much            the bytes that the request lacks, and a little ahead of need, because a
 *                       standstill costs the same for one chunk and for many
 *   which               search.h finds chunks to spill; promote.c brings memory back by itself
 *   over and over       memory that came back and soon had to go again, several times, stays on the
 *                       host until there is room for all spilled memory: so the rest stays hot
 *
 * A block with a part on the host is freed in pieces, as an arena with holes is: its host chunks
 * drain (holes_drain.c). A host chunk under a freed tensor belongs to a hole from then on. */
#include "allocator/spill/spill.h"
#include "allocator/arenas/holes.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/device_room.h"
#include "allocator/backing/obligations.h"
#include "allocator/backing/wait.h"
#include "allocator/base/arithmetic.h"
#include "allocator/device/budget.h"
#include "allocator/pool_state.h"
#include "allocator/spill/ahead.h"
#include "allocator/spill/move.h"
#include "allocator/spill/search.h"
#include "allocator/spill/whole.h"

/* The most to move ahead of need, in bytes and as a part of the cap. */
#define AHEAD_BYTES ((uint64_t)64 << 20)
enum { AHEAD_PART = 128 };

/* Memory that has to go again within so many standstills came back only recently. */
enum { SOON_HALTS = 16 };

/* Why contents cannot move now, for the current request. */
static enum ms_unmoved obstacle(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    if (pool->ops->halt == NULL || pool->granule_bytes == 0 || pool->moving.broken) {
        return MS_UNMOVED_NO_ACCESS;
    }
    if (ms_device_captures(pool->ops)) {
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
    struct ms_search search = {.down = true, .held_too = true, .end = UINT64_MAX};
    ms_growth_acquire(pool);
    *why = obstacle(pool);
    uint64_t bytes = *why == MS_UNMOVED_NOTHING ? ms_search_bytes(pool, &search) : 0;
    ms_growth_release(pool);
    return bytes;
}

bool ms_pool_coldest(ms_pool_t *pool, uint64_t *place)
{
    struct ms_search search = {.down = true, .end = UINT64_MAX};
    ms_growth_acquire(pool);
    uint64_t bytes = ms_spill_possible(pool) ? ms_search_bytes(pool, &search) : 0;
    ms_growth_release(pool);
    *place = search.coldest_use;
    return bytes > 0;
}

/* The room on the host within the limits that others do not need. */
static uint64_t room_on_host(struct ms_pool *pool, uint64_t kept_bytes) MS_REQUIRES(ms_growth_role)
{
    const struct ms_budget *shared = pool->config.spill_budget;
    uint64_t room = ms_least(
        ms_less(pool->config.spill_limit_bytes, ms_pool_count_of_growth(pool)->spill.spilled_bytes),
        ms_less(ms_obligations_host_room(pool), kept_bytes));
    room = shared != NULL ? ms_least(room, ms_budget_free_bytes(shared)) : room;
    return room - room % pool->granule_bytes;
}

/* Takes room in the budget that pools share, before anything moves; returns the room of what did
 * not move. */
static bool take_room(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
{
    struct ms_budget *shared = pool->config.spill_budget;
    if (shared != NULL && !ms_budget_charge(shared, MS_OWNER_POOL, bytes)) {
        return false;
    }
    pool->moving.room_bytes = bytes;
    return true;
}

static void leave_room(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    struct ms_budget *shared = pool->config.spill_budget;
    if (shared != NULL) {
        ms_budget_discharge(shared, MS_OWNER_POOL, pool->moving.room_bytes);
    }
    pool->moving.room_bytes = 0;
}

/* Counts the return of chunks that came back only recently. Where steps are foretold nothing is
 * held on the host: memory that comes and goes in each step does not fit, and comes when it is
 * used. */
static void note_returns(struct ms_pool *pool, struct ms_chunk *list)
{
    struct ms_spill_stats *stats = &pool->count.spill;
    ms_state_acquire(pool);
    uint8_t most = ms_ahead_knows(pool) ? 1 : UINT8_MAX;
    for (struct ms_chunk *chunk = list; chunk != NULL; chunk = chunk->next) {
        bool soon = chunk->promoted != 0 && stats->halts - chunk->promoted <= SOON_HALTS;
        chunk->returns = !soon ? 0 : chunk->returns < most ? chunk->returns + 1 : most;
        stats->thrashed_bytes += chunk->returns >= MS_THRASH_RETURNS ? chunk->bytes : 0;
    }
    ms_state_release(pool);
}

/* The bytes needed, and those that will be needed soon. */
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

static ms_status_t make_room(struct ms_pool *pool, const struct ms_spill_need *need,
                             uint64_t *taken_bytes) MS_REQUIRES(ms_growth_role)
{
    uint64_t room = room_on_host(pool, need->kept_bytes);
    uint64_t enough = ms_least(ahead_of_need(pool, need), room);
    if (enough < need->bytes) {
        return MS_ERR_NO_MEMORY;
    }
    struct ms_search search = {.down = true, .held_too = true, .end = UINT64_MAX};
    uint64_t picked_bytes = 0;
    uint64_t moved_bytes = 0;
    struct ms_chunk *list = ms_search_pick(pool, &search, true, enough, room, &picked_bytes);
    if (picked_bytes < need->bytes || !take_room(pool, picked_bytes)) {
        return MS_ERR_NO_MEMORY;
    }
    note_returns(pool, list);
    ms_status_t status = ms_move(pool, list, MS_LOCATION_HOST, &moved_bytes);
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
    ms_search_finish(pool);
    return status;
}

ms_status_t ms_spill_beside_holes(struct ms_pool *pool, uint64_t bytes, uint64_t born_bytes,
                                  uint64_t *taken_bytes)
{
    uint64_t spilled_bytes = 0;
    uint64_t from_holes = ms_holes_room(pool, bytes); /* which the host must cover, too */
    if (bytes > from_holes) {
        struct ms_spill_need need = {
            .bytes = bytes - from_holes, .kept_bytes = from_holes, .born_bytes = born_bytes};
        ms_status_t status = ms_spill_make_room(pool, &need, &spilled_bytes);
        if (status != MS_OK) {
            return status;
        }
        *taken_bytes += spilled_bytes;
    }
    uint64_t left = ms_less(bytes, spilled_bytes);
    return left > 0 ? ms_holes_make_room(pool, left, taken_bytes) : MS_OK;
}

/* ---- back to the device, for identity */

uint64_t ms_spill_device_room(const struct ms_pool *pool)
{
    uint64_t room = ms_budget_free_bytes(pool->config.budget);
    return room - room % pool->granule_bytes;
}

void ms_spill_make_idle_room(struct ms_pool *pool, uint64_t bytes)
{
    uint64_t missing = ms_less(bytes, ms_spill_device_room(pool));
    uint64_t taken_bytes = 0;
    if (missing > 0) {
        ms_work_fence(pool);
        ms_work_poll(pool);
        (void)ms_backing_unmap_idle(pool, missing, &taken_bytes);
        missing = ms_holes_room(pool, ms_less(missing, taken_bytes));
        (void)ms_holes_make_room(pool, missing, &taken_bytes);
        (void)ms_backing_release_spares(pool);
    }
}

/* The host chunks in the slots, linked by `next`. */
static struct ms_chunk *hosts_in(struct ms_segment *segment, uint64_t from, uint64_t to,
                                 uint64_t *bytes)
{
    struct ms_chunk *list = NULL;
    *bytes = 0;
    for (uint64_t slot = from; slot < to; slot++) {
        struct ms_chunk *chunk = segment->slots[slot];
        bool first = chunk != NULL && (chunk->slot == slot || slot == from);
        if (first && chunk->host && !chunk->stuck) {
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
    ms_spill_make_idle_room(pool, bytes);
    uint64_t room = ms_spill_device_room(pool);
    if (room < bytes) {
        /* Chunks marked as immovable are not among the victims. */
        struct ms_spill_need need = {.bytes = bytes - room};
        (void)ms_spill_make_room(pool, &need, &moved_bytes);
        (void)ms_backing_release_spares(pool);
    }
    ms_status_t status = ms_spill_possible(pool) ? MS_OK : MS_ERR_NO_MEMORY;
    if (status == MS_OK) {
        moved_bytes = 0;
        ms_state_acquire(pool);
        pool->moving.under_way = true;
        struct ms_chunk *list = hosts_in(segment, from, to, &bytes);
        ms_state_release(pool);
        status = ms_move(pool, list, MS_LOCATION_DEVICE, &moved_bytes);
        ms_search_finish(pool);
        status = status == MS_OK && moved_bytes < bytes ? MS_ERR_NO_MEMORY : status;
    }
    return status < 0 ? MS_ERR_NO_MEMORY : status;
}

const struct ms_live_memory ms_spill_live = {.possible = ms_spill_possible,
                                             .make_room = ms_spill_make_room,
                                             .bring_back = ms_spill_bring_back,
                                             .make_whole = ms_spill_make_whole};
