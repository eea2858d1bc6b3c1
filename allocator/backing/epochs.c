/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out when the work on memory in holes is done.
 *
 * Tensor frees are counted in epochs, not kept in lists. A fence of the whole device ends an epoch:
 * all work on tensors freed in it or before was queued before the fence. When the fence is done, so
 * is the work of its epoch and of all before it. Fences are taken when memory is short, never for a
 * single free. */
#include <string.h>

#include "allocator/backing/epochs.h"
#include "allocator/backing/wait.h"
#include "allocator/pool_state.h"

static void pop_oldest(struct ms_epochs *epochs) MS_REQUIRES(ms_growth_role)
{
    epochs->fences--;
    memmove(&epochs->under_way[0], &epochs->under_way[1],
            epochs->fences * sizeof(epochs->under_way[0]));
}

static void learn(struct ms_pool *pool, uint64_t epoch)
{
    ms_state_acquire(pool);
    if (pool->epochs.done < epoch) {
        pool->epochs.done = epoch;
    }
    ms_state_release(pool);
}

void ms_epochs_fence(struct ms_pool *pool)
{
    struct ms_epochs *epochs = &pool->epochs;
    if (epochs->fences == MS_EPOCHS_UNDER_WAY) {
        ms_epochs_poll(pool);
    }
    /* The last possible epoch never ends: frees in it are never taken, which only costs memory. */
    if (epochs->fences == MS_EPOCHS_UNDER_WAY || epochs->current == MS_EPOCH_LAST ||
        ms_device_captures(pool->ops)) {
        return;
    }
    ms_state_acquire(pool);
    /* Frees whose work is not known to be done have no fence if other threads are waiting for all
     * fences. */
    bool news = epochs->clock != epochs->fenced_clock ||
                (epochs->fences == 0 && epochs->done + 1 < epochs->current);
    uint64_t clock = epochs->clock;
    /* The epoch ends before the fence is taken, so frees in between count as later. */
    struct ms_epoch_fence made = {.epoch = epochs->current};
    epochs->current += news ? 1 : 0;
    ms_state_release(pool);
    if (news && pool->ops->fence_take(pool->ops->ctx, MS_STREAM_DEVICE, &made.fence) == MS_OK) {
        epochs->fenced_clock = clock;
        epochs->under_way[epochs->fences++] = made;
    }
}

void ms_epochs_poll(struct ms_pool *pool)
{
    struct ms_epochs *epochs = &pool->epochs;
    if (epochs->fences == 0 || ms_device_captures(pool->ops)) {
        return;
    }
    while (epochs->fences > 0 &&
           pool->ops->fence_query(pool->ops->ctx, epochs->under_way[0].fence) == MS_OK) {
        struct ms_epoch_fence done = epochs->under_way[0];
        pop_oldest(epochs);
        pool->ops->fence_release(pool->ops->ctx, done.fence);
        learn(pool, done.epoch);
    }
}

bool ms_epochs_wait(struct ms_pool *pool, struct ms_wait *wait)
{
    struct ms_epochs *epochs = &pool->epochs;
    if (epochs->fences == 0) {
        /* The last frees got no fence, because there was no room until the others were done. */
        ms_epochs_fence(pool);
    }
    uint64_t limit_ns = ms_wait_left_ns(wait);
    if (epochs->fences == 0 || limit_ns == 0 || ms_device_captures(pool->ops)) {
        return false;
    }
    /* Take it out of the list meanwhile, so that nobody else releases it. */
    struct ms_epoch_fence oldest = epochs->under_way[0];
    pop_oldest(epochs);
    uint64_t begin_ns = ms_pool_now_ns(pool);
    ms_growth_release(pool);
    ms_status_t status = pool->ops->fence_wait(pool->ops->ctx, oldest.fence, limit_ns);
    ms_growth_acquire(pool);
    ms_wait_spend(pool, wait, status == MS_OK ? ms_pool_now_ns(pool) - begin_ns : limit_ns,
                  status == MS_OK);
    if (status == MS_OK) {
        learn(pool, oldest.epoch);
    } else {
        /* The next fence covers it too. */
        epochs->fenced_clock = UINT64_MAX;
    }
    pool->ops->fence_release(pool->ops->ctx, oldest.fence);
    return true;
}

void ms_epochs_release_all(struct ms_pool *pool)
{
    while (pool->epochs.fences > 0) {
        pool->ops->fence_release(pool->ops->ctx, pool->epochs.under_way[0].fence);
        pop_oldest(&pool->epochs);
    }
}
