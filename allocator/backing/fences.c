/* SPDX-License-Identifier: Apache-2.0 */
/* Learns from the device's fences which freed memory no queued work can touch any more. */
#include "allocator/backing/fences.h"
#include "allocator/backing/wait.h"
#include "allocator/pool_state.h"
#include "allocator/space/orders.h"
#include "allocator/space/place.h"
#include "allocator/space/range.h"
#include "allocator/space/tiling.h"

enum {
    FENCES_UNDER_WAY = 8,  /* of one order; frees after that many share the next one */
    RETIRE_AT_A_TIME = 256 /* ranges made idle under one hold of the state lock */
};

/* How long to wait for one order while others are pending too: at first. Then longer and longer. */
#define WAIT_SLICE_NS ((uint64_t)1000000)

/* Drops a hold on a batch; the last one releases the fence, with the state lock released
 * meanwhile. */
static void unhold(struct ms_pool *pool, struct ms_batch *batch) MS_REQUIRES(ms_state_role)
{
    ms_fence_t fence = 0;
    if (ms_batch_unhold(&pool->orders, batch, &fence)) {
        ms_state_release(pool);
        pool->ops->fence_release(pool->ops->ctx, fence);
        ms_state_acquire(pool);
    }
}

/* Makes the order's oldest batch, whose work is done, idle range by range. State lock held, but
 * released now and then: the program decides how long a batch is. */
static void retire_oldest(struct ms_pool *pool, struct ms_order *order) MS_REQUIRES(ms_state_role)
{
    unsigned moved = 0;
    struct ms_range *range = NULL;
    while ((range = order->oldest->ranges) != NULL) {
        ms_range_take(pool, range);
        ms_range_make_free(pool, range, NULL);
        if (++moved % RETIRE_AT_A_TIME == 0) {
            ms_state_release(pool);
            ms_state_acquire(pool);
        }
    }
    unhold(pool, ms_order_drop_oldest(order));
}

/* State lock held. */
static bool poll_order(struct ms_pool *pool, struct ms_order *order) MS_REQUIRES(ms_state_role)
{
    bool any = false;
    while (order->oldest->sealed) {
        struct ms_batch *batch = order->oldest;
        if (batch->ranges != NULL) {
            if (!batch->fenced) {
                break;
            }
            /* Neither the batch nor its fence can go away meanwhile: that takes the growth lock. */
            ms_fence_t fence = batch->fence;
            ms_state_release(pool);
            ms_status_t status = pool->ops->fence_query(pool->ops->ctx, fence);
            ms_state_acquire(pool);
            if (status != MS_OK) {
                break;
            }
            any = true;
        }
        retire_oldest(pool, order);
    }
    return any;
}

bool ms_fences_poll(struct ms_pool *pool)
{
    if (ms_device_captures(pool->ops)) {
        return false;
    }
    bool any = false;
    ms_state_acquire(pool);
    struct ms_order *order = pool->orders.first;
    while (order != NULL) {
        any |= poll_order(pool, order);
        struct ms_order *next = order->next;
        if (order->gone && order->ranges == 0 && !order->oldest->sealed) {
            ms_order_forget(&pool->orders, order);
        }
        order = next;
    }
    ms_state_release(pool);
    return any;
}

/* Takes a fence for each sealed batch without one. State lock held, but released during device
 * calls. */
static void fence_sealed(struct ms_pool *pool, struct ms_order *order) MS_REQUIRES(ms_state_role)
{
    for (struct ms_batch *batch = order->oldest; batch->sealed; batch = batch->next) {
        if (batch->fenced || batch->ranges == NULL) {
            continue;
        }
        ms_state_release(pool);
        ms_fence_t fence = 0;
        ms_status_t status = pool->ops->fence_take(pool->ops->ctx, order->stream, &fence);
        ms_state_acquire(pool);
        if (status != MS_OK) {
            /* A capture has begun, or the device refuses: treat the work as unfinished. */
            return;
        }
        batch->fence = fence;
        batch->fenced = true;
    }
}

void ms_fences_take(struct ms_pool *pool, bool all)
{
    if (ms_device_captures(pool->ops)) {
        return;
    }
    ms_state_acquire(pool);
    for (struct ms_order *order = pool->orders.first; order != NULL; order = order->next) {
        if (all || order->sealed_batches < FENCES_UNDER_WAY) {
            ms_order_seal(&pool->orders, order);
        }
        fence_sealed(pool, order);
    }
    ms_state_release(pool);
}

/* Queues the wait, and then makes the claimed range live, or free again. Releases the state lock
 * meanwhile, because queueing may block. Neither the batch nor its fence can go away: that takes
 * the growth lock. */
static ms_status_t use_behind_wait(struct ms_pool *pool, struct ms_range *range,
                                   struct ms_batch *batch, const struct ms_request *request,
                                   struct ms_block_info *out)
{
    ms_status_t status = pool->ops->stream_wait(pool->ops->ctx, request->stream, batch->fence);
    ms_state_acquire(pool);
    if (status == MS_OK) {
        ms_range_make_live(pool, range, request, out);
    } else {
        ms_range_make_free(pool, range, batch);
    }
    ms_state_release(pool);
    /* A capture that begins just now, a stream that has no name for others: no other rung is barred
     * by that. */
    return status < MS_OK ? MS_ERR_NO_MEMORY : status;
}

ms_status_t ms_fences_reuse_behind_wait(struct ms_pool *pool, const struct ms_request *request,
                                        uint64_t bytes, struct ms_block_info *out)
{
    if (request->stream == MS_STREAM_DEVICE || request->no_stream_waits ||
        ms_device_captures(pool->ops)) {
        return MS_ERR_NO_MEMORY;
    }
    ms_state_acquire(pool);
    struct ms_range *best = NULL;
    enum ms_region region = ms_region_of(pool, bytes);
    for (struct ms_order *order = pool->orders.first; order != NULL; order = order->next) {
        struct ms_range *range = ms_bins_best(&order->bins[region], bytes);
        if (range != NULL && range->free.batch->fenced &&
            (best == NULL || range->bytes < best->bytes)) {
            best = range;
        }
    }
    struct ms_batch *batch = best != NULL ? best->free.batch : NULL;
    bool claimed = best != NULL && ms_range_claim(pool, best, bytes);
    ms_state_release(pool);
    return claimed ? use_behind_wait(pool, best, batch, request, out) : MS_ERR_NO_MEMORY;
}

/* The order whose turn it is among those with a fence under way; *others: whether more have one. */
static struct ms_order *order_in_turn(struct ms_pool *pool, unsigned turn, bool *others)
    MS_REQUIRES(ms_state_role)
{
    unsigned waiting = 0;
    for (struct ms_order *order = pool->orders.first; order != NULL; order = order->next) {
        waiting += order->oldest->fenced ? 1 : 0;
    }
    *others = waiting > 1;
    if (waiting == 0) {
        return NULL;
    }
    unsigned left = turn % waiting;
    struct ms_order *order = pool->orders.first;
    while (!order->oldest->fenced || left-- > 0) {
        order = order->next;
    }
    return order;
}

bool ms_fences_wait(struct ms_pool *pool, unsigned turn, struct ms_wait *wait)
{
    ms_state_acquire(pool);
    bool others = false;
    struct ms_order *order = order_in_turn(pool, turn, &others);
    if (order == NULL) {
        ms_state_release(pool);
        return false;
    }
    struct ms_batch *batch = order->oldest;
    batch->holds++;
    ms_state_release(pool);

    uint64_t slice_ns = WAIT_SLICE_NS << (turn / 2 < 20 ? turn / 2 : 20);
    uint64_t limit_ns = ms_wait_left_ns(wait);
    slice_ns = others && limit_ns > slice_ns ? slice_ns : limit_ns;
    uint64_t begin_ns = ms_pool_now_ns(pool);
    ms_growth_release(pool);
    ms_status_t status = pool->ops->fence_wait(pool->ops->ctx, batch->fence, slice_ns);
    ms_growth_acquire(pool);
    ms_state_acquire(pool);
    unhold(pool, batch);
    ms_state_release(pool);
    /* A wait that fails counts as its full slice, so that this ends. */
    uint64_t spent_ns = ms_pool_now_ns(pool) - begin_ns;
    spent_ns = status != MS_OK && spent_ns < slice_ns ? slice_ns : spent_ns;
    ms_wait_spend(pool, wait, spent_ns, ms_fences_poll(pool) || status == MS_OK);
    return true;
}

void ms_fences_stream_gone(struct ms_pool *pool, ms_stream_t stream)
{
    ms_state_acquire(pool);
    struct ms_order *order =
        stream == MS_STREAM_DEVICE ? NULL : ms_orders_find(&pool->orders, stream);
    if (order != NULL) {
        order->gone = true;
        ms_order_seal(&pool->orders, order);
        if (order->ranges == 0 && !order->oldest->sealed) {
            ms_order_forget(&pool->orders, order);
        }
    }
    ms_state_release(pool);
    if (order != NULL) {
        ms_fences_take(pool, false);
        (void)ms_fences_poll(pool);
    }
}

/* At the pool's end, when no other thread uses it: without the state lock, because it calls the
 * device. */
void ms_fences_release_all(struct ms_pool *pool) MS_NO_THREAD_SAFETY
{
    for (struct ms_order *order = pool->orders.first; order != NULL; order = order->next) {
        for (struct ms_batch *batch = order->oldest; batch != NULL; batch = batch->next) {
            if (batch->fenced) {
                pool->ops->fence_release(pool->ops->ctx, batch->fence);
            }
        }
    }
}
