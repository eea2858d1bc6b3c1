/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the time that a request may wait for queued work: see wait.h. */
#include "allocator/backing/wait.h"
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
