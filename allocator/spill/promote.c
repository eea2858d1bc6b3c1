/* SPDX-License-Identifier: Apache-2.0 */
/* Brings spilled memory back to the device: the hottest first when the budget has room, or before
 * its use if that is foretold (ahead.h). */
#include "allocator/spill/promote.h"
#include "allocator/arenas/holes.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/device_room.h"
#include "allocator/backing/obligations.h"
#include "allocator/base/arithmetic.h"
#include "allocator/device/budget.h"
#include "allocator/pool_state.h"
#include "allocator/space/tiling.h"
#include "allocator/spill/ahead.h"
#include "allocator/spill/move.h"
#include "allocator/spill/search.h"
#include "allocator/spill/spill.h"

/* Brings back the chunks found, at least `least_bytes` of them; returns how many bytes. */
static uint64_t promote(struct ms_pool *pool, struct ms_search search, uint64_t least_bytes,
                        uint64_t max_bytes) MS_REQUIRES(ms_growth_role)
{
    uint64_t moved_bytes = 0;
    uint64_t bytes = 0;
    uint64_t limit = ms_least(ms_spill_device_room(pool), max_bytes);
    struct ms_chunk *list = ms_search_pick(pool, &search, true, limit, limit, &bytes);
    if (bytes > 0 && bytes >= least_bytes) {
        (void)ms_move(pool, list, MS_LOCATION_DEVICE, &moved_bytes);
    }
    ms_search_finish(pool);
    return moved_bytes;
}

uint64_t ms_pool_promote(ms_pool_t *pool, uint64_t max_bytes)
{
    uint64_t moved_bytes = 0;
    ms_growth_acquire(pool);
    pool->moving.refused = false;
    if (ms_pool_count_of_growth(pool)->spill.spilled_bytes > 0 && ms_spill_possible(pool)) {
        (void)ms_backing_release_spares(pool);
        ms_device_room_sample(pool);
        ms_holes_recover(pool);
        ms_spill_make_idle_room(
            pool, ms_least(max_bytes, ms_pool_count_of_growth(pool)->spill.spilled_bytes));
        bool for_all =
            max_bytes >= ms_pool_count_of_growth(pool)->spill.spilled_bytes &&
            ms_spill_device_room(pool) >= ms_pool_count_of_growth(pool)->host_backed_bytes;
        struct ms_search search = {.held_too = for_all, .end = UINT64_MAX};
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

/* How many bytes on the host should come back now: see ahead.c. Growth lock. */
static uint64_t wanted_back(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    uint64_t bytes = 0;
    struct ms_search search = {.held_too = true, .end = UINT64_MAX};
    ms_search_begin(pool, &search);
    ms_state_acquire(pool);
    if (ms_ahead_knows(pool)) {
        ms_search_rank(pool, &search);
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
        ms_spill_make_idle_room(pool, bytes);
        struct ms_search search = {.held_too = true, .end = UINT64_MAX};
        moved_bytes = bytes > 0 ? promote(pool, search, 0, bytes) : 0;
    }
    (void)ms_backing_release_spares(pool);
    ms_obligations_settle(pool);
    ms_growth_release(pool);
    return moved_bytes;
}

ms_status_t ms_pool_promote_range(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes)
{
    ms_status_t status = MS_ERR_NOT_OURS;
    ms_growth_acquire(pool);
    pool->moving.refused = false;
    struct ms_segment *segment = ms_segment_of(pool, addr);
    if (segment != NULL && bytes > 0 && bytes <= segment->bytes - (addr - segment->base)) {
        uint64_t wanted_bytes = 0;
        struct ms_search search = {.held_too = true,
                                   .begin = addr - (addr - segment->base) % pool->granule_bytes,
                                   .end = addr + bytes};
        struct ms_search all = search;
        (void)ms_search_pick(pool, &all, false, UINT64_MAX, UINT64_MAX, &wanted_bytes);
        uint64_t moved_bytes =
            ms_spill_possible(pool) ? promote(pool, search, wanted_bytes, UINT64_MAX) : 0;
        status = moved_bytes == wanted_bytes ? MS_OK : MS_ERR_NO_MEMORY;
        (void)ms_backing_release_spares(pool);
        ms_obligations_settle(pool);
    }
    ms_growth_release(pool);
    return status;
}
