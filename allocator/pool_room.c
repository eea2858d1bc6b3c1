/* SPDX-License-Identifier: Apache-2.0 */
/* Making room: the pool gives idle chunks back to the device, frees part of the budget for a charge
 * of its caller's, and waits for frees whose work is not done. */
#include "allocator/arenas/holes.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/device_room.h"
#include "allocator/backing/epochs.h"
#include "allocator/backing/fences.h"
#include "allocator/backing/obligations.h"
#include "allocator/backing/wait.h"
#include "allocator/base/arithmetic.h"
#include "allocator/device/budget.h"
#include "allocator/pool.h"
#include "allocator/pool_state.h"
#include "allocator/space/range.h"
#include "allocator/space/tiling.h"
#include "allocator/spill/move.h"
#include "allocator/spill/spill.h"

/* Free bytes beyond keep_bytes. */
static uint64_t excess_bytes(struct ms_pool *pool, uint64_t keep_bytes)
{
    ms_state_acquire(pool);
    uint64_t free_bytes = pool->count.free_bytes;
    ms_state_release(pool);
    return free_bytes > keep_bytes ? free_bytes - keep_bytes : 0;
}

/* Gives idle chunks back until it has released enough_bytes. */
static uint64_t release_idle(struct ms_pool *pool, uint64_t enough_bytes)
    MS_REQUIRES(ms_growth_role)
{
    if (pool->granule_bytes == 0) {
        return ms_backing_plain_release(pool, enough_bytes);
    }
    /* If the device refuses to unmap, the chunk stays idle; what was unmapped is released. */
    uint64_t taken_bytes = 0;
    (void)ms_backing_unmap_idle(pool, enough_bytes, &taken_bytes);
    return ms_backing_release_spares(pool);
}

uint64_t ms_pool_trim(ms_pool_t *pool, uint64_t keep_bytes)
{
    uint64_t released_bytes = 0;
    ms_growth_acquire(pool);
    ms_ranges_give_up_whole(pool);
    uint64_t enough_bytes = excess_bytes(pool, keep_bytes);
    if (enough_bytes > 0 && !ms_device_captures(pool->ops)) {
        ms_fences_take(pool, false);
        (void)ms_fences_poll(pool);
        released_bytes = release_idle(pool, enough_bytes);
    } else if (keep_bytes == 0 && pool->granule_bytes != 0) {
        released_bytes = ms_backing_release_spares(pool); /* that the device would not take back
                                                             earlier */
    }
    ms_growth_release(pool);
    return released_bytes;
}

/* The granules that lie wholly in the range. */
static uint64_t whole_granules(const struct ms_pool *pool, const struct ms_range *range)
{
    const uint64_t granule = pool->granule_bytes;
    const uint64_t offset = range->addr - range->segment->base;
    const uint64_t first = (offset + granule - 1) / granule;
    const uint64_t end = (offset + range->bytes) / granule;
    return end > first ? (end - first) * granule : 0;
}

static uint64_t count_whole(struct ms_pool *pool) MS_REQUIRES(ms_state_role)
{
    uint64_t bytes = pool->count.pending_bytes;
    for (int region = 0; region < MS_REGIONS; region++) {
        struct ms_treap_node *root = pool->orders.idle.bins[region].large;
        struct ms_range *range = ms_range_tree_at_least(root, pool->granule_bytes, 0);
        for (; range != NULL; range = ms_range_tree_after(root, range)) {
            bytes += whole_granules(pool, range);
        }
    }
    return bytes;
}

/* Not where somebody changes backing, who may wait for work, and sees what is done. */
static void see_what_is_done(struct ms_pool *pool)
{
    if (ms_growth_try(pool)) {
        if (!ms_device_captures(pool->ops)) {
            ms_fences_take(pool, false);
            (void)ms_fences_poll(pool);
        }
        ms_growth_release(pool);
    }
}

uint64_t ms_pool_whole_bytes(ms_pool_t *pool)
{
    see_what_is_done(pool);
    ms_state_acquire(pool);
    const uint64_t bytes = pool->granule_bytes != 0 ? count_whole(pool) : pool->count.free_bytes;
    ms_state_release(pool);
    return bytes;
}

uint64_t ms_pool_idle_bytes(ms_pool_t *pool)
{
    if (pool->granule_bytes != 0) {
        return ms_backing_idle_now(pool, UINT64_MAX);
    }
    ms_state_acquire(pool);
    const uint64_t bytes = pool->count.free_bytes - pool->count.pending_bytes;
    ms_state_release(pool);
    return bytes;
}

uint64_t ms_pool_takeable_bytes(ms_pool_t *pool)
{
    ms_state_acquire(pool);
    const uint64_t bytes = ms_holes_takeable_in_time(pool);
    ms_state_release(pool);
    return bytes;
}

static uint64_t charged_beyond(const struct ms_pool *pool, uint64_t bytes)
{
    return ms_less(atomic_load(&pool->config.budget->charged_bytes), bytes);
}

void ms_pool_lower(ms_pool_t *pool, uint64_t charged_bytes)
{
    ms_growth_acquire(pool);
    ms_ranges_give_up_whole(pool);
    if (!ms_device_captures(pool->ops)) {
        ms_work_fence(pool);
        ms_work_poll(pool);
        (void)release_idle(pool, charged_beyond(pool, charged_bytes));
        if (pool->granule_bytes != 0) {
            /* A chunk that is released leaves its room to the hole that it came from. */
            uint64_t taken_bytes = 0;
            (void)ms_holes_take(pool, charged_beyond(pool, charged_bytes), &taken_bytes);
            (void)ms_backing_release_spares(pool);
        }
        ms_obligations_settle(pool);
    }
    ms_growth_release(pool);
}

/* What the budget lacks for a charge of `bytes`. */
static uint64_t lacking_bytes(const struct ms_pool *pool, uint64_t bytes)
{
    return ms_budget_lacking_bytes(pool->config.budget, bytes);
}

/* Idle chunks first, then what is earmarked for holes, then chunks of holes. */
static void make_room(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
{
    (void)ms_fences_poll(pool);
    ms_epochs_poll(pool);
    (void)release_idle(pool, lacking_bytes(pool, bytes));
    uint64_t missing = lacking_bytes(pool, bytes);
    uint64_t taken_bytes = 0;
    if (missing > 0 && pool->granule_bytes != 0) {
        missing = ms_round_up(missing, pool->granule_bytes);
        (void)ms_holes_make_room(pool, missing, &taken_bytes);
        (void)ms_backing_release_spares(pool);
    }
}

bool ms_pool_make_room(ms_pool_t *pool, uint64_t bytes, bool may_wait)
{
    struct ms_wait wait = ms_wait_begin(pool, may_wait);
    ms_growth_acquire(pool);
    (void)ms_backing_release_spares(pool);
    ms_device_room_sample(pool);
    ms_ranges_give_up_whole(pool);
    ms_holes_recover(pool);
    pool->moving.refused = false;
    for (unsigned turn = 0; bytes <= atomic_load(&pool->config.budget->cap_bytes); turn++) {
        if (lacking_bytes(pool, bytes) == 0 || ms_device_captures(pool->ops)) {
            break;
        }
        ms_fences_take(pool, turn > 0);
        ms_epochs_fence(pool);
        make_room(pool, bytes);
        if (lacking_bytes(pool, bytes) == 0 || ms_wait_left_ns(&wait) == 0 ||
            (!ms_fences_wait(pool, turn, &wait) && !ms_epochs_wait(pool, &wait))) {
            break;
        }
    }
    if (may_wait && bytes <= atomic_load(&pool->config.budget->cap_bytes) &&
        lacking_bytes(pool, bytes) > 0 && pool->granule_bytes != 0) {
        uint64_t missing = ms_round_up(lacking_bytes(pool, bytes), pool->granule_bytes);
        uint64_t taken_bytes = 0;
        if (ms_wait_was_in_vain(pool, &wait)) {
            ms_move_give_up(pool, pool->config.wait_limit_ns);
        }
        (void)ms_spill_beside_holes(pool, missing, 0, &taken_bytes);
        (void)ms_backing_release_spares(pool);
    }
    bool enough = lacking_bytes(pool, bytes) == 0;
    if (!enough) {
        /* Otherwise the caller's charge comes first. Bytes that were earmarked in vain may be
         * enough. */
        ms_obligations_settle(pool);
        enough = lacking_bytes(pool, bytes) == 0;
    }
    ms_growth_release(pool);
    return enough;
}

/* Whether the budget lacks bytes that are pending: freed as cudaFree does, their work not done. */
static bool lacks_pending(struct ms_pool *pool)
{
    uint64_t free_bytes = ms_budget_free_bytes(pool->config.budget);
    ms_state_acquire(pool);
    bool lacks = pool->orders.device->ranges > 0 && pool->count.pending_bytes > free_bytes;
    ms_state_release(pool);
    return lacks;
}

void ms_pool_settle(ms_pool_t *pool)
{
    struct ms_wait wait = ms_wait_begin(pool, true);
    ms_growth_acquire(pool);
    if (!ms_device_captures(pool->ops)) {
        ms_work_fence(pool);
        ms_work_poll(pool);
        for (unsigned turn = 0; ms_wait_left_ns(&wait) > 0 && lacks_pending(pool); turn++) {
            if (!ms_work_wait(pool, turn, &wait)) {
                break;
            }
        }
    }
    uint64_t free_bytes = ms_budget_free_bytes(pool->config.budget);
    if (pool->granule_bytes != 0 && !ms_device_captures(pool->ops) &&
        ms_backing_idle_chunks(pool, free_bytes + 1) > free_bytes) {
        (void)release_idle(pool, UINT64_MAX);
    }
    ms_growth_release(pool);
}
