/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of an allocation that no free block fits, one after the other:
 *
 *   reuse     what other threads freed meanwhile, and frees whose work is done (fences are queried
 *             and taken here, not at each free)
 *   expand    new chunks, in the best place (place.c)
 *   take      chunks of idle ranges move there, if they and the budget suffice; then any place that
 *             is backed and has room, however much it wastes; then what is earmarked for holes
 *             moves to the host and chunks of holes move too (holes.c), if all that suffices
 *   view      if the pool may make views: a block on the free rest of partly used chunks (views.c)
 *   reuse behind a wait   another stream's memory, after expanding and taking failed: a wait
 *             that the program did not ask for may cost it overlap
 *   wait      on the host, bounded, for frees in flight; then the rungs above again
 *   trim      all idle chunks go back to the device, then one more try
 *   spill     live memory moves to the host (spill.c), if the caller may wait for the device
 *
 * Taking comes before waiting, so an allocation synchronizes only if nothing else serves it. */
#include "allocator/ladder.h"
#include "allocator/arenas/holes.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/device_room.h"
#include "allocator/backing/epochs.h"
#include "allocator/backing/fences.h"
#include "allocator/backing/obligations.h"
#include "allocator/backing/views.h"
#include "allocator/backing/wait.h"
#include "allocator/base/assert.h"
#include "allocator/device/budget.h"
#include "allocator/pool_check.h"
#include "allocator/pool_state.h"
#include "allocator/space/orders.h"
#include "allocator/space/place.h"
#include "allocator/space/tiling.h"
#include "allocator/spill/move.h"
#include "allocator/spill/spill.h"

/* Large chunks back requests of at least this many granules (32 MiB). For smaller ones they do not
 * pay: a chunk cannot be split, so one small block keeps all of it, which costs more than the saved
 * calls. */
enum { LARGE_REQUEST_GRANULES = 16 };

/* Makes the claim a block that begins at addr; the rest of its granules becomes idle. If the host
 * has no memory for the rest's node, the block keeps the rest. State lock. */
static void finish(struct ms_pool *pool, struct ms_range *range, ms_addr_t addr, uint64_t bytes,
                   const struct ms_request *request, struct ms_block_info *out)
    MS_REQUIRES(ms_state_role)
{
    struct ms_range *block =
        addr > range->addr ? ms_range_split(pool, range, addr - range->addr) : NULL;
    if (block != NULL) {
        ms_range_make_free(pool, range, NULL);
        range = block;
    }
    struct ms_range *rest = range->bytes > bytes ? ms_range_split(pool, range, bytes) : NULL;
    if (rest != NULL) {
        ms_range_make_free(pool, rest, NULL);
    }
    ms_range_make_live(pool, range, request, out);
}

/* Gives up the claim. Memory that was in the stream's order goes to the end of that order: later
 * than before, and so never too early. */
static void give_up(struct ms_pool *pool, struct ms_range *range, bool idle, ms_stream_t stream)
    MS_REQUIRES(ms_state_role)
{
    ms_range_give_up(pool, range, idle ? NULL : ms_orders_need(&pool->orders, stream)->open);
}

/* ---- reuse */

static ms_status_t reuse(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                         struct ms_block_info *out)
{
    ms_state_acquire(pool);
    ms_status_t status = ms_pool_reuse(pool, request, bytes, true, out);
    ms_state_release(pool);
    return status;
}

static ms_status_t reuse_any(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                             struct ms_block_info *out)
{
    ms_state_acquire(pool);
    ms_status_t status = ms_pool_reuse_any(pool, request, bytes, out);
    ms_state_release(pool);
    return status;
}

/* ---- expand and take */

static bool may_change_backing(struct ms_pool *pool)
{
    return !ms_device_captures(pool->ops);
}

/* The sources of a fill's chunks; each includes those before it. */
enum fill_source { BUDGET, IDLE, HOLES, LIVE };

/* Makes spares of `bytes` that stand behind some range. new_bytes: all chunks that the request
 * needs, these included. */
static ms_status_t take_backing(struct ms_pool *pool, uint64_t bytes, uint64_t new_bytes,
                                enum fill_source source, uint64_t *taken_bytes)
    MS_REQUIRES(ms_growth_role)
{
    switch (source) {
    case HOLES:
        return ms_holes_make_room(pool, bytes, taken_bytes);
    case LIVE:
        return ms_spill_beside_holes(pool, bytes, new_bytes, taken_bytes);
    default:
        return MS_ERR_NO_MEMORY;
    }
}

/* Makes spares of idle chunks, and of those in holes of arenas or behind live memory, if all that
 * and the budget suffice together. */
static ms_status_t take_chunks(struct ms_pool *pool, uint64_t new_bytes, enum fill_source source)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t taken_bytes = 0;
    uint64_t free_bytes = ms_budget_free_bytes(pool->config.budget);
    if (free_bytes < new_bytes) {
        uint64_t missing = new_bytes - free_bytes;
        uint64_t idle = ms_backing_idle_chunks(pool, missing);
        if (idle < missing) {
            ms_status_t status =
                take_backing(pool, missing - idle, new_bytes, source, &taken_bytes);
            if (status != MS_OK) {
                return status;
            }
        }
    }
    return ms_backing_unmap_idle(pool, new_bytes, &taken_bytes);
}

enum where { BEST, FRESH, VIEWED };

/* A block on claimed granules of which the first or the last, or both, are views. */
static ms_status_t fill_view(struct ms_pool *pool, const struct ms_request *request,
                             struct ms_view *view, enum fill_source source,
                             struct ms_block_info *out) MS_REQUIRES(ms_growth_role)
{
    ms_status_t status = take_chunks(pool, view->bytes, source);
    if (status != MS_OK) {
        ms_view_give_up(pool, view);
        return status;
    }
    status = ms_view_back(pool, view);
    if (status == MS_OK) {
        ms_state_acquire(pool);
        ms_range_make_live(pool, view->block, request, out);
        ms_state_release(pool);
    }
    (void)ms_backing_release_spares(pool);
    return status;
}

/* Finds a place and claims it, backs it, and makes the block. */
static ms_status_t fill_place(struct ms_pool *pool, const struct ms_request *request,
                              uint64_t bytes, enum where where, enum fill_source source,
                              struct ms_block_info *out) MS_REQUIRES(ms_growth_role)
{
    struct ms_placement place;
    bool idle = true;
    struct ms_range *range = NULL;
    struct ms_view_plan plan;
    struct ms_view view;
    bool viewed = where == VIEWED && may_change_backing(pool);
    ms_state_acquire(pool);
    bool found = where == FRESH ? ms_place_fresh(pool, bytes, &place)
                                : ms_place_best(pool, request->stream, bytes, true, &place);
    viewed = viewed && ms_view_find(pool, bytes, found ? place.new_chunks : UINT64_MAX, &plan) &&
             ms_view_claim(pool, &plan, &view);
    /* Do not begin what the budget cannot give: undoing costs as much as doing. */
    if (where != VIEWED && found &&
        (source != BUDGET || place.unbacked_bytes <= ms_budget_free_bytes(pool->config.budget))) {
        range = ms_place_claim(pool, &place, bytes, &idle);
    }
    ms_state_release(pool);
    if (viewed) {
        return fill_view(pool, request, &view, source, out);
    }
    if (range == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    ms_status_t status = source == BUDGET ? MS_OK : take_chunks(pool, place.unbacked_bytes, source);
    if (status == MS_OK) {
        bool large = bytes >= LARGE_REQUEST_GRANULES * pool->granule_bytes;
        status = ms_backing_fill(pool, range, large);
    }
    ms_state_acquire(pool);
    if (status == MS_OK) {
        finish(pool, range, place.addr, bytes, request, out);
    } else {
        give_up(pool, range, idle, request->stream);
    }
    ms_state_release(pool);
    (void)ms_backing_release_spares(pool);
    return status;
}

static ms_status_t grow_plain(struct ms_pool *pool, const struct ms_request *request,
                              uint64_t bytes, struct ms_block_info *out) MS_REQUIRES(ms_growth_role)
{
    struct ms_range *range = NULL;
    ms_status_t status = ms_backing_plain_add(pool, bytes, &range);
    if (status == MS_OK) {
        ms_state_acquire(pool);
        finish(pool, range, range->addr, bytes, request, out);
        ms_state_release(pool);
    }
    return status;
}

/* Reserves enough addresses for a fresh place of `bytes`. */
static ms_status_t need_hole(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
{
    struct ms_placement place;
    ms_state_acquire(pool);
    bool found = ms_place_fresh(pool, bytes, &place);
    ms_state_release(pool);
    return found ? MS_OK : ms_backing_reserve(pool, bytes, ms_region_of(pool, bytes));
}

static ms_status_t grow(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                        enum fill_source source, struct ms_block_info *out)
    MS_REQUIRES(ms_growth_role)
{
    if (pool->granule_bytes == 0) {
        return source != BUDGET ? MS_ERR_NO_MEMORY : grow_plain(pool, request, bytes, out);
    }
    /* With a hole for all of it there is always a place, whatever happens to its neighbours. */
    ms_status_t status = need_hole(pool, bytes);
    if (status == MS_OK) {
        status = fill_place(pool, request, bytes, BEST, source, out);
    }
    if (status == MS_ERR_NO_MEMORY && source != BUDGET) {
        /* A place beside free memory may cut a chunk that could have been taken whole. */
        status = fill_place(pool, request, bytes, FRESH, source, out);
    }
    return status;
}

/* Tried only after all places on whole chunks have failed. So a pool that makes views never needs
 * more memory for a request than one that does not. */
static ms_status_t grow_viewed(struct ms_pool *pool, const struct ms_request *request,
                               uint64_t bytes, struct ms_block_info *out)
    MS_REQUIRES(ms_growth_role)
{
    if (!pool->config.views || pool->granule_bytes == 0) {
        return MS_ERR_NO_MEMORY;
    }
    ms_status_t status = need_hole(pool, bytes);
    return status == MS_OK ? fill_place(pool, request, bytes, VIEWED, IDLE, out) : status;
}

/* ---- the rungs */

/* No rung can help a request that is larger than all that is free or could become free. */
static bool hopeless(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
{
    ms_state_acquire(pool);
    uint64_t free_bytes = pool->count.free_bytes;
    uint64_t holes_bytes = pool->frozen ? 0 : pool->count.quiet_granules;
    ms_state_release(pool);
    holes_bytes = holes_bytes * pool->granule_bytes + ms_obligations_room(pool);
    return bytes > free_bytes + holes_bytes + ms_budget_free_bytes(pool->config.budget);
}

static ms_status_t reuse_when_done(struct ms_pool *pool, const struct ms_request *request,
                                   uint64_t bytes, struct ms_block_info *out)
    MS_REQUIRES(ms_growth_role)
{
    ms_state_acquire(pool);
    bool awaits = ms_place_awaits(pool, request);
    ms_state_release(pool);
    if (awaits) {
        ms_fences_take(pool, false);
        (void)ms_fences_poll(pool);
    }
    ms_status_t status = reuse(pool, request, bytes, out);
    if (status != MS_ERR_NO_MEMORY) {
        return status;
    }
    ms_state_acquire(pool);
    bool worth_a_fence = pool->count.pending_bytes > 0 && pool->count.free_bytes >= bytes;
    ms_state_release(pool);
    if (!worth_a_fence) {
        return MS_ERR_NO_MEMORY;
    }
    /* Old fences first: they may cover enough, and then no new one is needed. */
    if (ms_fences_poll(pool)) {
        status = reuse(pool, request, bytes, out);
    }
    if (status == MS_ERR_NO_MEMORY) {
        ms_fences_take(pool, false);
        if (ms_fences_poll(pool)) {
            status = reuse(pool, request, bytes, out);
        }
    }
    return status;
}

/* Moves chunks under the request: idle ones first, and chunks of holes if nothing backed serves. */
static ms_status_t take(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                        struct ms_block_info *out) MS_REQUIRES(ms_growth_role)
{
    ms_status_t status = grow(pool, request, bytes, IDLE, out);
    if (status == MS_ERR_NO_MEMORY) {
        status = reuse_any(pool, request, bytes, out);
    }
    if (status == MS_ERR_NO_MEMORY && may_change_backing(pool)) {
        status = grow(pool, request, bytes, HOLES, out);
        ms_epochs_fence(pool); /* for the next request that finds memory short */
    }
    return status;
}

/* As take(), if fences show that more is idle by now than when the ladder began. */
static ms_status_t take_when_done(struct ms_pool *pool, const struct ms_request *request,
                                  uint64_t bytes, struct ms_block_info *out)
    MS_REQUIRES(ms_growth_role)
{
    if (!ms_fences_poll(pool)) {
        return MS_ERR_NO_MEMORY;
    }
    ms_status_t status = reuse(pool, request, bytes, out);
    return status == MS_ERR_NO_MEMORY ? take(pool, request, bytes, out) : status;
}

static ms_status_t wait_for_frees(struct ms_pool *pool, const struct ms_request *request,
                                  uint64_t bytes, struct ms_wait *wait, struct ms_block_info *out)
    MS_REQUIRES(ms_growth_role)
{
    ms_status_t status = MS_ERR_NO_MEMORY;
    for (unsigned turn = 0;
         ms_wait_left_ns(wait) > 0 && may_change_backing(pool) && !hopeless(pool, bytes); turn++) {
        if (!ms_work_wait(pool, turn, wait)) {
            break;
        }
        status = reuse(pool, request, bytes, out);
        if (status == MS_ERR_NO_MEMORY) {
            status = grow(pool, request, bytes, BUDGET, out);
        }
        if (status == MS_ERR_NO_MEMORY && may_change_backing(pool)) {
            status = take(pool, request, bytes, out);
        }
        if (status == MS_ERR_NO_MEMORY) {
            status = grow_viewed(pool, request, bytes, out);
        }
        if (status != MS_ERR_NO_MEMORY) {
            break;
        }
    }
    return status;
}

static ms_status_t trim_and_grow(struct ms_pool *pool, const struct ms_request *request,
                                 uint64_t bytes, struct ms_block_info *out)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t given_bytes = 0;
    if (pool->granule_bytes == 0) {
        given_bytes = ms_backing_plain_release(pool, UINT64_MAX);
    } else {
        ms_status_t status = ms_backing_unmap_idle(pool, UINT64_MAX, &given_bytes);
        if (status != MS_OK) {
            return status;
        }
        (void)ms_backing_release_spares(pool);
    }
    return given_bytes > 0 ? grow(pool, request, bytes, BUDGET, out) : MS_ERR_NO_MEMORY;
}

/* All rungs but the last. */
static ms_status_t climb(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                         struct ms_wait *wait, struct ms_block_info *out)
    MS_REQUIRES(ms_growth_role)
{
    /* Chunks that the device refused to release earlier would be missing from every sum below. */
    (void)ms_backing_release_spares(pool);
    ms_device_room_sample(pool);
    ms_ranges_give_up_whole(pool);
    ms_status_t status = reuse_when_done(pool, request, bytes, out);
    if (status == MS_ERR_NO_MEMORY) {
        status = grow(pool, request, bytes, BUDGET, out);
    }
    if (status == MS_ERR_NO_MEMORY && !may_change_backing(pool)) {
        return reuse_any(pool, request, bytes, out);
    }
    if (status != MS_ERR_NO_MEMORY || hopeless(pool, bytes)) {
        return status;
    }
    ms_holes_recover(pool);
    status = take(pool, request, bytes, out);
    if (status == MS_ERR_NO_MEMORY) {
        ms_fences_take(pool, true);
        status = take_when_done(pool, request, bytes, out);
    }
    if (status == MS_ERR_NO_MEMORY) {
        status = grow_viewed(pool, request, bytes, out);
    }
    if (status == MS_ERR_NO_MEMORY) {
        status = ms_fences_reuse_behind_wait(pool, request, bytes, out);
    }
    if (status == MS_ERR_NO_MEMORY && request->may_wait) {
        status = wait_for_frees(pool, request, bytes, wait, out);
    }
    if (status == MS_ERR_NO_MEMORY && may_change_backing(pool) && !hopeless(pool, bytes)) {
        status = trim_and_grow(pool, request, bytes, out);
    }
    return status;
}

/* Whether work may be queued on freed memory. */
static bool any_pending(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    bool in_holes = false;
    (void)ms_holes_takeable(pool, UINT64_MAX, &in_holes);
    ms_state_acquire(pool);
    bool pending = pool->count.pending_bytes > 0;
    ms_state_release(pool);
    return pending || in_holes;
}

/* Moves live memory to the host, because free memory and holes do not suffice. First waits for work
 * on freed memory: the standstill would wait for it anyway, and then less has to move. */
static ms_status_t spill(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                         struct ms_wait *wait, struct ms_block_info *out)
    MS_REQUIRES(ms_growth_role)
{
    for (unsigned turn = 0; ms_wait_left_ns(wait) > 0 && any_pending(pool); turn++) {
        if (!ms_work_wait(pool, turn, wait)) {
            break;
        }
    }
    if (ms_wait_was_in_vain(pool, wait)) {
        ms_move_give_up(pool, pool->config.wait_limit_ns);
    }
    return ms_spill_possible(pool) ? grow(pool, request, bytes, LIVE, out) : MS_ERR_NO_MEMORY;
}

ms_status_t ms_ladder_climb(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                            struct ms_block_info *out)
{
    ms_growth_acquire(pool);
    struct ms_wait wait = ms_wait_begin(pool, request->may_wait);
    ms_status_t status = climb(pool, request, bytes, &wait, out);
    pool->moving.refused = false;
    if (status == MS_ERR_NO_MEMORY && request->may_wait && ms_spill_possible(pool)) {
        status = spill(pool, request, bytes, &wait, out);
    }
    ms_obligations_settle(pool);
    MS_ASSERT_WALK(ms_pool_books_hold(pool));
    ms_growth_release(pool);
    return status;
}
