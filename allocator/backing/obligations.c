/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps obligations covered.
 *
 * A framework may fill a hole again without asking, so a granule may lose its backing, or go
 * without, only if replacement is certain. Obligations are the unbacked granules of arenas and the
 * unbacked parts of proxies that are mapped nowhere. Bytes earmarked in the budget cover them, and
 * so do host chunks set aside. When others need the earmarked bytes, host chunks replace them, up
 * to the configured limit.
 *
 *     obligations <= earmarked bytes + host chunks of one granule set aside
 *
 * Larger host chunks cover nothing, because a part of one cannot be mapped. They are set aside for
 * spilled memory, and are given back when the limit leaves no room for a covering chunk.
 *
 * This holds whenever the growth lock is free; while it is held, spares make up for what is
 * missing. The exception is a device that fails while the pool undoes a failure: backing may be
 * lost, or the device may not take back the spare that used an earmark. The pool then covers the
 * obligation as soon as it gets memory (ms_obligations.uncovered). */
#include "allocator/backing/obligations.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/wait.h"
#include "allocator/base/arithmetic.h"
#include "allocator/device/budget.h"
#include "allocator/pool_state.h"

/* Host chunks to keep beyond obligations: making one costs more than keeping it. */
#define SPARE_HOST_GRANULES 16u
#define KEPT_FOR_SPILL_NS   ((uint64_t)60000000000)

/* A host chunk costs by its pages, and once more for access: on an H200 76 us for 2 MiB, and 474
 * for 32 MiB. Beyond that there is little to gain, and all of a chunk comes back at once: so it is
 * also no larger than this part of the cap. */
enum { LARGEST_HOST_GRANULES = 16, LARGEST_HOST_PART = 16 };

/* While this part of the cap is free in the budget, obligations need no host memory. */
enum { AMPLE_PART = 8 };

static uint64_t obligation_bytes_of(const struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    return ms_pool_count_of_growth(pool)->obligation_bytes;
}

static uint64_t reserve_bytes(const struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    return ms_pool_count_of_growth(pool)->host_reserve_bytes;
}

/* Bytes of the reserve that can cover obligations. */
static uint64_t small_bytes(const struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    return reserve_bytes(pool) - ms_pool_count_of_growth(pool)->host_large_bytes;
}

static uint64_t covered(const struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    return pool->obligations.earmarked_bytes + small_bytes(pool);
}

/* Bytes that host chunks of one granule must cover. */
static uint64_t for_holes(const struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    return ms_less(obligation_bytes_of(pool), pool->obligations.earmarked_bytes);
}

bool ms_obligations_charge(struct ms_pool *pool, uint64_t bytes, bool for_tensor)
{
    struct ms_budget *budget = pool->config.budget;
    uint64_t kept = pool->obligations.earmarked_bytes;
    uint64_t from_kept = !for_tensor ? 0 : kept < bytes ? kept : bytes;
    if (from_kept > 0 && !ms_budget_charge_earmarked(budget, MS_OWNER_POOL, from_kept)) {
        return false;
    }
    if (bytes > from_kept && !ms_budget_charge(budget, MS_OWNER_POOL, bytes - from_kept)) {
        ms_budget_earmark_charged(budget, MS_OWNER_POOL, from_kept);
        return false;
    }
    pool->obligations.earmarked_bytes -= from_kept;
    return true;
}

void ms_obligations_discharge(struct ms_pool *pool, uint64_t bytes)
{
    uint64_t missing = ms_less(obligation_bytes_of(pool), covered(pool));
    uint64_t to_earmark = missing < bytes ? missing : bytes;
    if (to_earmark > 0) {
        ms_budget_earmark_charged(pool->config.budget, MS_OWNER_POOL, to_earmark);
        pool->obligations.earmarked_bytes += to_earmark;
    }
    if (bytes > to_earmark) {
        ms_budget_discharge(pool->config.budget, MS_OWNER_POOL, bytes - to_earmark);
    }
}

uint64_t ms_obligations_host_room(struct ms_pool *pool)
{
    if (pool->obligations.no_host) {
        return 0;
    }
    uint64_t used = reserve_bytes(pool) + ms_pool_count_of_growth(pool)->host_backed_bytes;
    uint64_t room = ms_less(pool->config.host_limit_bytes, used);
    return room - room % pool->granule_bytes + ms_less(covered(pool), obligation_bytes_of(pool)) +
           ms_pool_count_of_growth(pool)->host_large_bytes;
}

/* Makes host chunks within the limit; larger chunks of the reserve give way to those of a
 * granule. */
static ms_status_t make_on_host(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
{
    const struct ms_pool_counters *count = ms_pool_count_of_growth(pool);
    uint64_t limit = pool->config.host_limit_bytes;
    if (count->host_reserve_bytes + count->host_backed_bytes + bytes > limit &&
        bytes == pool->granule_bytes && count->host_large_bytes > 0) {
        ms_backing_host_release(pool, small_bytes(pool), small_bytes(pool));
    }
    if (pool->obligations.no_host ||
        count->host_reserve_bytes + count->host_backed_bytes + bytes > limit) {
        return MS_ERR_NO_MEMORY;
    }
    ms_status_t status = ms_backing_host_make(pool, bytes);
    if (status == MS_ERR_NOT_SUPPORTED) {
        pool->obligations.no_host = true;
        status = MS_ERR_NO_MEMORY;
    }
    return status;
}

static ms_status_t secure_on_host(struct ms_pool *pool, uint64_t wanted_bytes)
    MS_REQUIRES(ms_growth_role)
{
    while (covered(pool) < wanted_bytes) {
        ms_status_t status = make_on_host(pool, pool->granule_bytes);
        if (status != MS_OK) {
            return status;
        }
    }
    return MS_OK;
}

/* Gets a host chunk larger than a granule, as large as the place and the limit allow. */
static ms_status_t large_host_chunk(struct ms_pool *pool, uint64_t bytes, struct ms_chunk **out)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t granule = pool->granule_bytes;
    uint64_t limit = ms_budget_limit_bytes(pool->config.budget) / LARGEST_HOST_PART;
    bytes = bytes < limit ? bytes : limit;
    if (ms_pool_count_of_growth(pool)->host_large_bytes > 0 &&
        ms_backing_host_take(pool, 2 * granule, bytes, out) == MS_OK) {
        return MS_OK;
    }
    for (uint64_t size = LARGEST_HOST_GRANULES * granule; size > granule; size /= 2) {
        if (size <= bytes && make_on_host(pool, size) == MS_OK) {
            return ms_backing_host_take(pool, size, size, out);
        }
    }
    return MS_ERR_NO_MEMORY;
}

ms_status_t ms_obligations_host_chunk(struct ms_pool *pool, uint64_t bytes, struct ms_chunk **out)
{
    uint64_t granule = pool->granule_bytes;
    if (bytes > granule && large_host_chunk(pool, bytes, out) == MS_OK) {
        return MS_OK;
    }
    ms_status_t status =
        small_bytes(pool) >= for_holes(pool) + granule ? MS_OK : make_on_host(pool, granule);
    return status == MS_OK ? ms_backing_host_take(pool, granule, granule, out) : status;
}

ms_status_t ms_obligations_secure(struct ms_pool *pool, uint64_t bytes, bool budget)
{
    uint64_t wanted = obligation_bytes_of(pool) + bytes;
    uint64_t missing = ms_less(wanted, covered(pool));
    uint64_t room = ms_budget_free_bytes(pool->config.budget);
    uint64_t from_budget = !budget ? 0 : missing < room ? missing : room;
    from_budget -= from_budget % pool->granule_bytes;
    if (from_budget > 0 && ms_budget_earmark(pool->config.budget, from_budget)) {
        pool->obligations.earmarked_bytes += from_budget;
    }
    return secure_on_host(pool, wanted);
}

void ms_obligations_cover(struct ms_pool *pool)
{
    pool->obligations.uncovered = ms_obligations_secure(pool, 0, true) != MS_OK;
}

uint64_t ms_obligations_to_host(struct ms_pool *pool, uint64_t bytes)
{
    uint64_t kept = pool->obligations.earmarked_bytes;
    bytes = ms_round_up(bytes, pool->granule_bytes);
    bytes = bytes < kept ? bytes : kept;
    /* Add the new cover first, then release what it replaces. */
    (void)secure_on_host(pool, obligation_bytes_of(pool) + bytes);
    uint64_t surplus = ms_less(covered(pool), obligation_bytes_of(pool));
    bytes = bytes < surplus ? bytes : surplus;
    if (bytes > 0) {
        ms_budget_release_earmark(pool->config.budget, bytes);
        pool->obligations.earmarked_bytes -= bytes;
    }
    return bytes;
}

/* What was spilled recently will be spilled again: each step of training repeats it, and making a
 * host chunk costs four times as much as filling it. */
static uint64_t kept_for_spill(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    const struct ms_spill_stats *spill = &ms_pool_count_of_growth(pool)->spill;
    uint64_t bytes = spill->peak_spilled_bytes - spill->spilled_bytes;
    return bytes > 0 && ms_pool_now_ns(pool) - pool->moving.last_ns < KEPT_FOR_SPILL_NS ? bytes : 0;
}

/* When memory is ample again, the budget alone covers obligations. */
static void leave_host(struct ms_pool *pool, uint64_t obligation_bytes) MS_REQUIRES(ms_growth_role)
{
    struct ms_budget *budget = pool->config.budget;
    uint64_t missing = ms_less(obligation_bytes, pool->obligations.earmarked_bytes);
    uint64_t ample = missing + ms_budget_limit_bytes(budget) / AMPLE_PART;
    if (reserve_bytes(pool) > 0 && ms_budget_free_bytes(budget) >= ample &&
        ms_budget_earmark(budget, missing)) {
        pool->obligations.earmarked_bytes += missing;
        ms_backing_host_release(pool, 0, kept_for_spill(pool));
    }
}

uint64_t ms_obligations_overshoot(const struct ms_pool *pool)
{
    const struct ms_budget *budget = pool->config.budget;
    return ms_less(atomic_load(&budget->committed_bytes), ms_budget_limit_bytes(budget));
}

uint64_t ms_obligations_room(const struct ms_pool *pool)
{
    return ms_less(pool->obligations.earmarked_bytes, ms_obligations_overshoot(pool));
}

/* Imposed bytes have passed the cap, or others took device memory: the earmarked room is gone, and
 * other cover must replace it. */
static void leave_overshoot(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    uint64_t over = ms_obligations_overshoot(pool);
    if (over > 0 && pool->obligations.earmarked_bytes > 0) {
        (void)ms_obligations_to_host(pool, over);
    }
}

void ms_obligations_settle(struct ms_pool *pool)
{
    struct ms_obligations *obligations = &pool->obligations;
    uint64_t obligation_bytes = obligation_bytes_of(pool);
    if (obligation_bytes == 0 && obligations->earmarked_bytes == 0 && reserve_bytes(pool) == 0) {
        return;
    }
    leave_overshoot(pool);
    if (obligations->uncovered || obligation_bytes > covered(pool)) {
        ms_obligations_cover(pool);
    }
    uint64_t surplus = ms_less(covered(pool), obligation_bytes);
    uint64_t back = surplus < obligations->earmarked_bytes ? surplus : obligations->earmarked_bytes;
    if (back > 0) {
        ms_budget_release_earmark(pool->config.budget, back);
        obligations->earmarked_bytes -= back;
    }
    leave_host(pool, obligation_bytes);
    ms_backing_host_release(pool, for_holes(pool),
                            obligation_bytes + SPARE_HOST_GRANULES * pool->granule_bytes +
                                kept_for_spill(pool));
}
