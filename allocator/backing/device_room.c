/* SPDX-License-Identifier: Apache-2.0 */
/* What the device has, where others hold so much of it that it has less than the cap.
 *
 * Nobody tells this process what another one takes. So the device is learned to be full when it
 * refuses a chunk that the budget allows; from then on the budget is bound (budget.h) by what is
 * charged and what the device has free besides, as if that were the cap: what is idle is taken,
 * holes give way, frees are waited for and live memory is spilled just as they are at the cap. The
 * bound is looked at again wherever memory is short, and ends when the device has the rest of the
 * cap again. */
#include "allocator/backing/device_room.h"
#include "allocator/device/budget.h"
#include "allocator/pool_state.h"

/* A driver keeps something back of what it says is free. What is more than this had been given back
 * by another process since the refusal. */
#define UNUSABLE_BYTES_MAX ((uint64_t)256 << 20)

/* A refusal of what the device says that it has may have had another reason, gone by now. So many
 * on end are believed. */
enum { STRANGE_REFUSALS = 2 };

static uint64_t charged_bytes(const struct ms_pool *pool)
{
    return atomic_load(&pool->config.budget->charged_bytes);
}

static ms_status_t device_free(const struct ms_pool *pool, uint64_t *bytes)
{
    return pool->ops->free_bytes != NULL ? pool->ops->free_bytes(pool->ops->ctx, bytes)
                                         : MS_ERR_NOT_SUPPORTED;
}

void ms_device_room_refused(struct ms_pool *pool, uint64_t bytes)
{
    uint64_t free_bytes = 0;
    bool known = device_free(pool, &free_bytes) == MS_OK;
    if ((!known || free_bytes >= bytes) && ++pool->strange_refusals < STRANGE_REFUSALS) {
        return;
    }
    if (bytes == pool->granule_bytes) {
        pool->unusable_bytes = known && free_bytes <= UNUSABLE_BYTES_MAX ? free_bytes : 0;
    }
    /* There may be room for a smaller one. */
    ms_budget_bind(pool->config.budget, charged_bytes(pool) + bytes - pool->granule_bytes);
}

void ms_device_room_sample(struct ms_pool *pool)
{
    struct ms_budget *budget = pool->config.budget;
    uint64_t free_bytes = 0;
    if (atomic_load(&budget->bound_bytes) == UINT64_MAX) {
        return;
    }
    ms_status_t status = device_free(pool, &free_bytes);
    if (status == MS_ERR_NOT_READY) {
        return;
    }
    uint64_t unusable = pool->unusable_bytes;
    uint64_t bound = charged_bytes(pool) + (free_bytes > unusable ? free_bytes - unusable : 0);
    /* Where the device does not say, the next refusal tells it anew. */
    bool ends = status != MS_OK || bound >= atomic_load(&budget->cap_bytes);
    ms_budget_bind(budget, ends ? UINT64_MAX : bound);
    pool->unusable_bytes = ends ? 0 : unusable;
}
