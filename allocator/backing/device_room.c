/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out how much room the device has, when others hold so much of it that it is less than the
 * cap.
 *
 * This process does not see what others take. It learns that the device is full when the device
 * refuses a chunk that the budget allows. From then on the budget has a bound (budget.h): charged
 * bytes plus the device's free bytes. The bound acts as the cap does: the pool takes idle chunks
 * and holes, waits for frees and spills live memory. It is computed again whenever memory is short,
 * and ends when the device has the rest of the cap again. */
#include "allocator/backing/device_room.h"
#include "allocator/device/budget.h"
#include "allocator/pool_state.h"

/* A driver keeps back some of what it reports as free. If it refuses with more than this free,
 * another process has given memory back since. */
#define UNUSABLE_BYTES_MAX ((uint64_t)256 << 20)

/* A device that refuses what it reports as free may have had another reason, which is gone by now.
 * After so many such refusals in a row the pool believes them. */
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
    /* There may be room for a smaller chunk. */
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
    /* If the device does not report free bytes, the next refusal finds the bound anew. */
    bool ends = status != MS_OK || bound >= atomic_load(&budget->cap_bytes);
    ms_budget_bind(budget, ends ? UINT64_MAX : bound);
    pool->unusable_bytes = ends ? 0 : unusable;
}
