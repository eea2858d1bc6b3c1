/* When the work of holes is done.
 *
 * Deaths are counted in epochs, not kept in lists: an epoch ends when a mark of the whole device is
 * taken, so that whatever died in it or before had all its work queued before the mark. When the
 * mark is done, so is the work of the epoch and of all before it. Marks are taken when memory is
 * short, never for a death. */
#include <string.h>

#include "allocator/clock.h"
#include "allocator/pool_internal.h"

static bool capturing(struct ms_pool *pool)
{
    return pool->ops->capturing(pool->ops->ctx);
}

static void pop_oldest(struct ms_repair *repair)
{
    repair->marks--;
    memmove(&repair->under_way[0], &repair->under_way[1],
            repair->marks * sizeof(repair->under_way[0]));
}

static void learn(struct ms_pool *pool, uint32_t epoch)
{
    ms_lock_acquire(&pool->state);
    if (pool->repair.done_epoch < epoch) {
        pool->repair.done_epoch = epoch;
    }
    ms_lock_release(&pool->state);
}

void ms_epochs_mark(struct ms_pool *pool)
{
    struct ms_repair *repair = &pool->repair;
    if (repair->marks == MS_EPOCHS_UNDER_WAY) {
        ms_epochs_poll(pool);
    }
    /* The last epoch there is never ends: what died in it is not taken, which only costs memory. */
    if (repair->marks == MS_EPOCHS_UNDER_WAY || repair->epoch == UINT32_MAX || capturing(pool)) {
        return;
    }
    ms_lock_acquire(&pool->state);
    /* What is not known to be done has no mark here where other threads wait for them all. */
    bool news = repair->clock != repair->marked_clock ||
                (repair->marks == 0 && repair->done_epoch + 1 < repair->epoch);
    uint64_t clock = repair->clock;
    /* The epoch ends before the mark is taken: what dies in between counts as later. */
    struct ms_epoch_mark made = {.epoch = repair->epoch};
    repair->epoch += news ? 1 : 0;
    ms_lock_release(&pool->state);
    if (news && pool->ops->mark(pool->ops->ctx, MS_STREAM_DEVICE, &made.mark) == MS_OK) {
        repair->marked_clock = clock;
        repair->under_way[repair->marks++] = made;
    }
}

void ms_epochs_poll(struct ms_pool *pool)
{
    struct ms_repair *repair = &pool->repair;
    if (repair->marks == 0 || capturing(pool)) {
        return;
    }
    while (repair->marks > 0 &&
           pool->ops->mark_query(pool->ops->ctx, repair->under_way[0].mark) == MS_OK) {
        struct ms_epoch_mark done = repair->under_way[0];
        pop_oldest(repair);
        pool->ops->mark_release(pool->ops->ctx, done.mark);
        learn(pool, done.epoch);
    }
}

bool ms_epochs_wait(struct ms_pool *pool, uint64_t *left_ns)
{
    struct ms_repair *repair = &pool->repair;
    if (repair->marks == 0) {
        /* There was no room for a mark of the last deaths until the others were done. */
        ms_epochs_mark(pool);
    }
    if (repair->marks == 0 || *left_ns == 0 || capturing(pool)) {
        return false;
    }
    /* Out of the list meanwhile, so that nobody else releases it. */
    struct ms_epoch_mark oldest = repair->under_way[0];
    pop_oldest(repair);
    uint64_t begin_ns = ms_clock_ns();
    ms_lock_release(&pool->growth);
    ms_status_t status = pool->ops->mark_wait(pool->ops->ctx, oldest.mark, *left_ns);
    ms_lock_acquire(&pool->growth);
    /* A device on virtual time has waited the whole time in no time at all. */
    uint64_t spent_ns = status == MS_OK ? ms_clock_ns() - begin_ns : *left_ns;
    *left_ns -= spent_ns < *left_ns ? spent_ns : *left_ns;
    if (status == MS_OK) {
        learn(pool, oldest.epoch);
    } else {
        /* The next mark covers it too. */
        repair->marked_clock = UINT64_MAX;
    }
    pool->ops->mark_release(pool->ops->ctx, oldest.mark);
    return true;
}

void ms_epochs_release_all(struct ms_pool *pool)
{
    while (pool->repair.marks > 0) {
        pool->ops->mark_release(pool->ops->ctx, pool->repair.under_way[0].mark);
        pop_oldest(&pool->repair);
    }
}
