/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for queued work, and how long a request may: see wait.h. */
#include "allocator/backing/wait.h"
#include "allocator/backing/epochs.h"
#include "allocator/backing/fences.h"
#include "allocator/base/arithmetic.h"
#include "allocator/base/clock.h"
#include "allocator/pool_state.h"

uint64_t ms_pool_now_ns(const struct ms_pool *pool)
{
    return pool->ops->now_ns != NULL ? pool->ops->now_ns(pool->ops->ctx) : ms_clock_ns();
}

struct ms_wait ms_wait_begin(const struct ms_pool *pool, bool may_wait)
{
    uint64_t quiet_ns = may_wait ? pool->config.wait_limit_ns : 0;
    uint64_t most_ns = pool->config.wait_most_ns;
    return (struct ms_wait){.quiet_ns = quiet_ns,
                            .left_ns = quiet_ns > 0 && most_ns > quiet_ns ? most_ns : quiet_ns};
}

uint64_t ms_wait_left_ns(const struct ms_wait *wait)
{
    return wait->quiet_ns < wait->left_ns ? wait->quiet_ns : wait->left_ns;
}

void ms_wait_spend(const struct ms_pool *pool, struct ms_wait *wait, uint64_t spent_ns,
                   bool completed)
{
    wait->left_ns = ms_less(wait->left_ns, spent_ns);
    wait->quiet_ns = completed ? pool->config.wait_limit_ns : ms_less(wait->quiet_ns, spent_ns);
}

bool ms_wait_was_in_vain(const struct ms_pool *pool, const struct ms_wait *wait)
{
    return ms_wait_left_ns(wait) == 0 && pool->config.wait_limit_ns >= MS_HALT_LEAST_NS;
}

void ms_work_fence(struct ms_pool *pool)
{
    ms_fences_take(pool, true);
    ms_epochs_fence(pool);
}

void ms_work_poll(struct ms_pool *pool)
{
    (void)ms_fences_poll(pool);
    ms_epochs_poll(pool);
}

bool ms_work_wait(struct ms_pool *pool, unsigned turn, struct ms_wait *wait)
{
    ms_work_fence(pool);
    if (!ms_fences_wait(pool, turn, wait) && !ms_epochs_wait(pool, wait)) {
        return false;
    }
    ms_work_poll(pool);
    return true;
}
