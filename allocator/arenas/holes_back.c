/* SPDX-License-Identifier: Apache-2.0 */
/* Holes in which a tensor is allocated: what is not backed there is backed again before the
 * framework hands the address out. holes.c has the plan. */
#include <string.h>

#include "allocator/arenas/holes.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/device_room.h"
#include "allocator/backing/epochs.h"
#include "allocator/backing/fences.h"
#include "allocator/backing/granules.h"
#include "allocator/backing/obligations.h"
#include "allocator/backing/wait.h"
#include "allocator/base/arithmetic.h"
#include "allocator/base/containers/pages.h"
#include "allocator/device/budget.h"
#include "allocator/pool_state.h"
#include "allocator/space/tiling.h"

/* Bytes that an allocation could get now: idle chunks of the pool, and of holes. */
static uint64_t at_hand(struct ms_pool *pool, uint64_t bytes, bool *pending)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t idle = ms_backing_idle_chunks(pool, bytes);
    uint64_t left = bytes > idle ? bytes - idle : 0;
    *pending = false;
    uint64_t holes = left > 0 ? ms_holes_takeable(pool, left, pending) : 0;
    ms_state_acquire(pool);
    *pending = *pending || pool->count.pending_bytes > 0;
    ms_state_release(pool);
    return idle + holes;
}

static void poll_work(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    (void)ms_fences_poll(pool);
    ms_epochs_poll(pool);
}

/* Waits until that many bytes are at hand, or no more will come. */
static void await_chunks(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
{
    struct ms_wait wait = ms_wait_begin(pool, true);
    bool pending = false;
    poll_work(pool);
    for (unsigned turn = 0; at_hand(pool, bytes, &pending) < bytes && pending; turn++) {
        ms_fences_take(pool, turn > 0);
        ms_epochs_fence(pool);
        poll_work(pool);
        if (at_hand(pool, bytes, &pending) >= bytes || !pending || ms_wait_left_ns(&wait) == 0 ||
            ms_device_captures(pool->ops)) {
            return;
        }
        /* Others may change backing meanwhile, so keep no spares of our own. */
        (void)ms_backing_release_spares(pool);
        if (!ms_fences_wait(pool, turn, &wait) && !ms_epochs_wait(pool, &wait)) {
            return;
        }
        poll_work(pool);
    }
}

/* Makes spares for `bytes` under an allocation, except what the budget will give. */
static void gather(struct ms_pool *pool, uint64_t bytes, uint64_t budget_bytes)
    MS_REQUIRES(ms_growth_role)
{
    if (bytes > budget_bytes) {
        await_chunks(pool, bytes - budget_bytes);
    }
    /* If this fails, the next means makes up for it. */
    uint64_t taken = 0;
    (void)ms_backing_unmap_idle(pool, bytes, &taken);
    if (bytes > taken + budget_bytes) {
        uint64_t from_holes = 0;
        (void)ms_holes_take(pool, bytes - taken - budget_bytes, &from_holes);
    }
}

static uint64_t unbacked_bytes(struct ms_pool *pool, const struct ms_segment *segment,
                               uint64_t from, uint64_t to)
{
    uint64_t bytes = 0;
    ms_state_acquire(pool);
    /* A reservation may have been given up during the wait. */
    if (segment->granules != NULL) {
        bytes = ms_granules_unbacked_bytes(pool, segment, from, to);
    }
    ms_state_release(pool);
    return bytes;
}

static void note_refused(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                         uint64_t to)
{
    ms_state_acquire(pool);
    for (uint64_t slot = from; segment->granules != NULL && slot < to; slot++) {
        segment->granules[slot].refused = segment->granules[slot].unbacked;
    }
    ms_state_release(pool);
}

/* Whether the slot's host chunk holds nothing, or only the tensor that is being allocated in [from,
 * to). State lock. */
static bool may_give_way(const struct ms_pool *pool, const struct ms_granule *granule, bool within)
    MS_REQUIRES(ms_state_role)
{
    return granule->on_host && granule->tensors == (within ? 1 : 0) && granule->arena != NULL &&
           !granule->arena->frozen && !granule->pinned && !pool->frozen &&
           granule->epoch <= pool->epochs.done;
}

/* The slot's host chunk, if it holds nothing but the tensor that is being allocated in [from, to);
 * else null. State lock. */
static struct ms_chunk *gives_way(const struct ms_pool *pool, const struct ms_segment *segment,
                                  uint64_t slot, uint64_t from, uint64_t to)
    MS_REQUIRES(ms_state_role)
{
    struct ms_chunk *chunk = segment->slots[slot];
    if (!segment->granules[slot].on_host) {
        return NULL;
    }
    uint64_t end = chunk->slot + chunk->bytes / pool->granule_bytes;
    for (uint64_t k = chunk->slot; k < end; k++) {
        if (!may_give_way(pool, &segment->granules[k], k >= from && k < to)) {
            return NULL;
        }
    }
    return chunk;
}

bool ms_holes_want_backing(struct ms_pool *pool, const struct ms_segment *segment, uint64_t from,
                           uint64_t to)
{
    bool wanted = false;
    /* The work on what was freed there is known to be done by now, or will be at the next
     * allocation. */
    ms_epochs_fence(pool);
    ms_epochs_poll(pool);
    ms_state_acquire(pool);
    for (uint64_t slot = from; segment->granules != NULL && slot < to && !wanted; slot++) {
        const struct ms_granule *granule = &segment->granules[slot];
        wanted = granule->unbacked || gives_way(pool, segment, slot, from, to) != NULL;
    }
    ms_state_release(pool);
    return wanted;
}

/* Bytes of host chunks larger than a granule that could give way: they cover no obligation then. */
static uint64_t large_that_give_way(struct ms_pool *pool, const struct ms_segment *segment,
                                    uint64_t from, uint64_t to)
{
    uint64_t bytes = 0;
    ms_state_acquire(pool);
    for (uint64_t slot = from; segment->granules != NULL && slot < to; slot++) {
        const struct ms_chunk *chunk = gives_way(pool, segment, slot, from, to);
        bool first = chunk != NULL && (chunk->slot == slot || slot == from);
        bytes += first && chunk->bytes > pool->granule_bytes ? chunk->bytes : 0;
    }
    ms_state_release(pool);
    return bytes;
}

static void give_way(struct ms_pool *pool, struct ms_segment *segment, uint64_t from, uint64_t to)
    MS_REQUIRES(ms_growth_role)
{
    uint64_t large_bytes = large_that_give_way(pool, segment, from, to);
    if (large_bytes > 0 && ms_obligations_secure(pool, large_bytes, true) != MS_OK) {
        large_bytes = 0;
    }
    struct ms_chunk *list = NULL;
    uint64_t bytes = 0;
    uint64_t chunks = 0;
    ms_state_acquire(pool);
    for (uint64_t slot = from; segment->granules != NULL && slot < to; slot++) {
        struct ms_chunk *chunk = gives_way(pool, segment, slot, from, to);
        bool large = chunk != NULL && chunk->bytes > pool->granule_bytes;
        if (chunk != NULL && (!large || chunk->bytes <= large_bytes)) {
            uint64_t end = chunk->slot + chunk->bytes / pool->granule_bytes;
            large_bytes -= large ? chunk->bytes : 0;
            ms_granules_unbacked(pool, segment, chunk->slot, end);
            ms_granules_place(pool, segment, chunk->slot, end, NULL);
            memset(&segment->slots[chunk->slot], 0, ms_pointers_bytes(end - chunk->slot));
            chunk->next = list;
            list = chunk;
        }
    }
    ms_state_release(pool);
    (void)ms_holes_unmap(pool, list, &bytes, &chunks);
}

/* The new tensor is hot: spill something colder for the bytes that budget (budget_bytes), idle
 * chunks and holes do not have. */
static ms_status_t spill_and_fill(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                  uint64_t to, uint64_t budget_bytes, const struct ms_fill *fill)
    MS_REQUIRES(ms_growth_role)
{
    bool pending = false;
    uint64_t bytes = unbacked_bytes(pool, segment, from, to);
    uint64_t others = ms_less(bytes, budget_bytes);
    struct ms_spill_need need = {.bytes = ms_less(others, at_hand(pool, others, &pending))};
    if (need.bytes == 0) {
        return MS_ERR_NO_MEMORY; /* it was tried already */
    }
    uint64_t taken_bytes = 0;
    ms_status_t status = pool->live->make_room(pool, &need, &taken_bytes);
    if (status == MS_OK) {
        gather(pool, ms_less(bytes, taken_bytes), budget_bytes);
        status = ms_backing_fill_holes(pool, segment, from, to, fill);
    }
    return status;
}

static uint64_t budget_bytes(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
{
    return ms_obligations_room(pool) + ms_budget_free_bytes(pool->config.budget);
}

/* Backs the slots by device memory. First trusts the budget, then does without it: the device may
 * have less than the cap. */
static ms_status_t back_on_device(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                                  uint64_t to) MS_REQUIRES(ms_growth_role)
{
    const struct ms_fill fill = {.for_tensor = true};
    ms_status_t status = MS_ERR_NO_MEMORY;
    for (int trusting = 1; trusting >= 0 && status != MS_OK; trusting--) {
        gather(pool, unbacked_bytes(pool, segment, from, to), trusting ? budget_bytes(pool) : 0);
        status = ms_backing_fill_holes(pool, segment, from, to, &fill);
    }
    for (int trusting = 1; trusting >= 0 && status != MS_OK && pool->live->possible(pool);
         trusting--) {
        status = spill_and_fill(pool, segment, from, to, trusting ? budget_bytes(pool) : 0, &fill);
    }
    return status;
}

ms_status_t ms_holes_back(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                          uint64_t to)
{
    pool->moving.refused = false;
    (void)ms_backing_release_spares(pool);
    ms_device_room_sample(pool);
    ms_holes_recover(pool);
    if (pool->live->possible(pool)) {
        give_way(pool, segment, from, to);
    }
    /* Memory is short: with this fence, memory freed by now will be known as idle when it is needed
     * next. */
    ms_epochs_fence(pool);
    ms_status_t status = back_on_device(pool, segment, from, to);
    if (status != MS_OK) {
        const struct ms_fill on_host = {.for_tensor = true, .host = true};
        status = ms_backing_fill_holes(pool, segment, from, to, &on_host);
    }
    if (status != MS_OK) {
        note_refused(pool, segment, from, to);
    }
    (void)ms_backing_release_spares(pool);
    ms_obligations_settle(pool);
    return status;
}

void ms_holes_freeze(struct ms_pool *pool)
{
    ms_state_acquire(pool);
    pool->frozen = true;
    ms_state_release(pool);
    for (size_t at = 0; at < pool->segment_count; at++) {
        struct ms_segment *segment = pool->segments[at];
        if (segment->granules != NULL) {
            (void)ms_holes_back(pool, segment, 0, segment->slot_count);
        }
    }
}
