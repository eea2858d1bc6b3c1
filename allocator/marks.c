#include "allocator/clock.h"
#include "allocator/pool_internal.h"

enum {
    MARKS_UNDER_WAY = 8,   /* of one order; what is freed after that many shares the next */
    RETIRE_AT_A_TIME = 256 /* ranges made idle under one hold of the state lock */
};

/* How long one order is waited for while others are pending too: at first, then longer and longer.
 */
#define WAIT_SLICE_NS ((uint64_t)1000000)

static bool capturing(struct ms_pool *pool)
{
    return pool->ops->capturing(pool->ops->ctx);
}

/* Drops a hold on a batch; the last one releases the mark, which is why the lock is let go. */
static void unhold(struct ms_pool *pool, struct ms_batch *batch)
{
    ms_mark_t mark = 0;
    if (ms_batch_unhold(&pool->orders, batch, &mark)) {
        ms_lock_release(&pool->state);
        pool->ops->mark_release(pool->ops->ctx, mark);
        ms_lock_acquire(&pool->state);
    }
}

/* The order's oldest batch, known complete, becomes idle range by range. State lock held; let go
 * now and then, for a batch may be as long as the program likes. */
static void retire_oldest(struct ms_pool *pool, struct ms_order *order)
{
    unsigned moved = 0;
    struct ms_range *range = NULL;
    while ((range = order->oldest->ranges) != NULL) {
        ms_range_take(pool, range);
        ms_range_make_free(pool, range, NULL);
        if (++moved % RETIRE_AT_A_TIME == 0) {
            ms_lock_release(&pool->state);
            ms_lock_acquire(&pool->state);
        }
    }
    unhold(pool, ms_order_drop_oldest(order));
}

/* State lock held. */
static bool poll_order(struct ms_pool *pool, struct ms_order *order)
{
    bool any = false;
    while (order->oldest->sealed) {
        struct ms_batch *batch = order->oldest;
        if (batch->ranges != NULL) {
            if (!batch->marked) {
                break;
            }
            /* Neither the batch nor its mark can go away meanwhile: that takes the growth lock. */
            ms_mark_t mark = batch->mark;
            ms_lock_release(&pool->state);
            ms_status_t status = pool->ops->mark_query(pool->ops->ctx, mark);
            ms_lock_acquire(&pool->state);
            if (status != MS_OK) {
                break;
            }
            any = true;
        }
        retire_oldest(pool, order);
    }
    return any;
}

bool ms_marks_poll(struct ms_pool *pool)
{
    if (capturing(pool)) {
        return false;
    }
    bool any = false;
    ms_lock_acquire(&pool->state);
    struct ms_order *order = pool->orders.first;
    while (order != NULL) {
        any |= poll_order(pool, order);
        struct ms_order *next = order->next;
        if (order->gone && order->ranges == 0 && !order->oldest->sealed) {
            ms_order_forget(&pool->orders, order);
        }
        order = next;
    }
    ms_lock_release(&pool->state);
    return any;
}

/* Marks the sealed batches that have none yet. State lock held; let go around the device's part. */
static void mark_sealed(struct ms_pool *pool, struct ms_order *order)
{
    for (struct ms_batch *batch = order->oldest; batch->sealed; batch = batch->next) {
        if (batch->marked || batch->ranges == NULL) {
            continue;
        }
        ms_lock_release(&pool->state);
        ms_mark_t mark = 0;
        ms_status_t status = pool->ops->mark(pool->ops->ctx, order->stream, &mark);
        ms_lock_acquire(&pool->state);
        if (status != MS_OK) {
            /* A capture has begun, or the device refuses: the work counts as unfinished. */
            return;
        }
        batch->mark = mark;
        batch->marked = true;
    }
}

void ms_marks_take(struct ms_pool *pool, bool all)
{
    if (capturing(pool)) {
        return;
    }
    ms_lock_acquire(&pool->state);
    for (struct ms_order *order = pool->orders.first; order != NULL; order = order->next) {
        if (all || order->sealed_batches < MARKS_UNDER_WAY) {
            ms_order_seal(&pool->orders, order);
        }
        mark_sealed(pool, order);
    }
    ms_lock_release(&pool->state);
}

ms_status_t ms_marks_reuse_behind_wait(struct ms_pool *pool, const struct ms_request *request,
                                       uint64_t bytes, struct ms_block_info *out)
{
    if (request->stream == MS_STREAM_DEVICE || request->no_stream_waits || capturing(pool)) {
        return MS_ERR_NO_MEMORY;
    }
    ms_lock_acquire(&pool->state);
    struct ms_range *best = NULL;
    enum ms_region region = ms_region_of(pool, bytes);
    for (struct ms_order *order = pool->orders.first; order != NULL; order = order->next) {
        struct ms_range *range = ms_bins_best(&order->bins[region], bytes);
        if (range != NULL && range->free.batch->marked &&
            (best == NULL || range->bytes < best->bytes)) {
            best = range;
        }
    }
    ms_status_t status = MS_ERR_NO_MEMORY;
    if (best != NULL) {
        status = pool->ops->stream_wait(pool->ops->ctx, request->stream, best->free.batch->mark);
        if (status == MS_OK) {
            status = ms_range_carve(pool, best, bytes, request, out);
        }
    }
    ms_lock_release(&pool->state);
    return status;
}

/* The order whose turn it is among those that have a mark under way; *others: whether more have. */
static struct ms_order *order_in_turn(struct ms_pool *pool, unsigned turn, bool *others)
{
    unsigned waiting = 0;
    for (struct ms_order *order = pool->orders.first; order != NULL; order = order->next) {
        waiting += order->oldest->marked ? 1 : 0;
    }
    *others = waiting > 1;
    if (waiting == 0) {
        return NULL;
    }
    unsigned left = turn % waiting;
    struct ms_order *order = pool->orders.first;
    while (!order->oldest->marked || left-- > 0) {
        order = order->next;
    }
    return order;
}

bool ms_marks_wait(struct ms_pool *pool, unsigned turn, uint64_t *left_ns)
{
    ms_lock_acquire(&pool->state);
    bool others = false;
    struct ms_order *order = order_in_turn(pool, turn, &others);
    if (order == NULL) {
        ms_lock_release(&pool->state);
        return false;
    }
    struct ms_batch *batch = order->oldest;
    batch->holds++;
    ms_lock_release(&pool->state);

    uint64_t slice_ns = WAIT_SLICE_NS << (turn / 2 < 20 ? turn / 2 : 20);
    slice_ns = others && *left_ns > slice_ns ? slice_ns : *left_ns;
    uint64_t begin_ns = ms_clock_ns();
    ms_lock_release(&pool->growth);
    ms_status_t status = pool->ops->mark_wait(pool->ops->ctx, batch->mark, slice_ns);
    ms_lock_acquire(&pool->growth);
    /* A device on virtual time has waited the slice in no time at all. */
    uint64_t spent_ns = ms_clock_ns() - begin_ns;
    if (status != MS_OK && spent_ns < slice_ns) {
        spent_ns = slice_ns;
    }
    *left_ns -= spent_ns < *left_ns ? spent_ns : *left_ns;

    ms_lock_acquire(&pool->state);
    unhold(pool, batch);
    ms_lock_release(&pool->state);
    return true;
}

void ms_marks_stream_gone(struct ms_pool *pool, ms_stream_t stream)
{
    ms_lock_acquire(&pool->state);
    struct ms_order *order =
        stream == MS_STREAM_DEVICE ? NULL : ms_orders_find(&pool->orders, stream);
    if (order != NULL) {
        order->gone = true;
        ms_order_seal(&pool->orders, order);
        if (order->ranges == 0 && !order->oldest->sealed) {
            ms_order_forget(&pool->orders, order);
        }
    }
    ms_lock_release(&pool->state);
    if (order != NULL) {
        ms_marks_take(pool, false);
        (void)ms_marks_poll(pool);
    }
}

void ms_marks_release_all(struct ms_pool *pool)
{
    for (struct ms_order *order = pool->orders.first; order != NULL; order = order->next) {
        for (struct ms_batch *batch = order->oldest; batch != NULL; batch = batch->next) {
            if (batch->marked) {
                pool->ops->mark_release(pool->ops->ctx, batch->mark);
            }
        }
    }
}
