/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether a framework may have one more page (proxy.c).
 *
 * Once a page is mapped nothing can be refused, so a request that does not fit is refused here. A
 * request may make many pages before its tensor is reported, and it will use all of them. So their
 * unbacked bytes count beside the new page, and no part of them counts as a hole.
 *
 * A request uses more than its new pages: its tensor begins in the free pages in front of them,
 * which were too small alone. The framework does not say where that is when it makes a page. So if
 * spilling is off, the free bytes in front count too, at the place that has the fewest: a request
 * refused then would have ended on host memory at any place. */
#include "allocator/arenas/page_room.h"
#include "allocator/arenas/holes.h"
#include "allocator/arenas/proxy_state.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/device_room.h"
#include "allocator/backing/epochs.h"
#include "allocator/backing/fences.h"
#include "allocator/backing/granules.h"
#include "allocator/backing/obligations.h"
#include "allocator/backing/wait.h"
#include "allocator/base/arithmetic.h"
#include "allocator/device/budget.h"
#include "allocator/pool_state.h"

/* A request asks for its pages one by one, and nobody knows how many there will be. A spill for one
 * of them moves at least this part of the pages made so far. So a request of any size needs few
 * standstills, and spills at most this part of its size in vain. */
enum { MORE_PART = 8 };

/* ---- what a request uses in front of its pages */

/* Bytes at the slot of a free page that count as room, or that it needs as backing. */
static uint64_t counted_at(const struct ms_pool *pool, const struct ms_segment *segment,
                           uint64_t slot) MS_REQUIRES(ms_growth_role, ms_state_role)
{
    const struct ms_granule *granule = &segment->granules[slot];
    if (granule->unbacked) {
        return granule->fresh ? 0 : pool->granule_bytes;
    }
    return ms_holes_takeable_at(pool, segment, slot);
}

/* A run of addresses in which no tensor lives. */
struct run {
    uint64_t unmapped; /* slots in it without a page */
    uint64_t bytes;    /* counted in front of the last needed slot */
};

/* The fewest bytes in the reservation that lie in front of so many unmapped slots in one run. */
static uint64_t least_in_front(const struct ms_pool *pool, const struct ms_segment *segment,
                               uint64_t needed) MS_REQUIRES(ms_growth_role, ms_state_role)
{
    uint64_t end = segment->foreign->reach_bytes / pool->granule_bytes;
    uint64_t least = UINT64_MAX;
    struct run run = {0};
    for (uint64_t slot = 0; slot < end; slot++) {
        if (segment->proxies[slot] == NULL) {
            run.unmapped++;
            least = run.unmapped == needed ? ms_least(least, run.bytes) : least;
        } else if (segment->granules[slot].tensors > 0) {
            run = (struct run){0};
        } else if (run.unmapped < needed) {
            run.bytes += counted_at(pool, segment, slot);
        }
    }
    bool reaches_on = run.unmapped < needed && segment->slot_count - end >= needed - run.unmapped;
    return reaches_on ? ms_least(least, run.bytes) : least;
}

/* The size of the pages in the reservation: a framework has one reservation for each size. */
static uint64_t page_bytes_of(const struct ms_pool *pool, const struct ms_segment *segment)
    MS_REQUIRES(ms_state_role)
{
    uint64_t end = segment->foreign->reach_bytes / pool->granule_bytes;
    for (uint64_t slot = 0; slot < end; slot++) {
        if (segment->proxies[slot] != NULL) {
            return segment->proxies[slot]->bytes;
        }
    }
    return 0;
}

/* The slots of the pages that this thread's request has made and not mapped, and of one more
 * page. */
static uint64_t slots_to_map(const struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_state_role)
{
    uint64_t all_bytes = bytes;
    for (const struct ms_proxy *page = pool->proxies.fresh; page != NULL; page = page->fresh_next) {
        bool waits = page->segment == NULL && page->bytes == bytes &&
                     pthread_equal(page->maker, pthread_self());
        all_bytes += waits ? page->bytes : 0;
    }
    return all_bytes / pool->granule_bytes;
}

/* The free bytes that a request which makes a page of `bytes` will use, wherever it maps the
 * page. */
static uint64_t in_front(const struct ms_pool *pool, uint64_t bytes)
    MS_REQUIRES(ms_growth_role, ms_state_role)
{
    uint64_t needed = slots_to_map(pool, bytes);
    uint64_t least = UINT64_MAX;
    for (size_t at = 0; at < pool->segment_count && least > 0; at++) {
        const struct ms_segment *segment = pool->segments[at];
        if (segment->foreign == NULL) {
            continue;
        }
        uint64_t page_bytes = page_bytes_of(pool, segment);
        if (page_bytes == bytes || page_bytes == 0) {
            least = ms_least(least, least_in_front(pool, segment, needed));
        }
    }
    return least == UINT64_MAX ? 0 : least;
}

/* ---- whether there is room */

/* The bytes that the device lacks if the framework uses the new page and all its fresh ones.
 * Earmarked room counts as available: its pages are fresh and counted, or not in use. */
static uint64_t lacking(struct ms_pool *pool, uint64_t bytes, bool *pending)
    MS_REQUIRES(ms_growth_role)
{
    ms_state_acquire(pool);
    uint64_t wanted = bytes + pool->count.fresh_unbacked_bytes;
    /* Memory that had to be allocated on the host lacks room on the device as well. */
    if (pool->config.spill_limit_bytes == 0) {
        pool->count.front_bytes = in_front(pool, bytes);
        /* A request may use little of its last page: only one granule is certain. */
        wanted += pool->count.host_backed_bytes +
                  ms_less(pool->count.front_bytes + pool->granule_bytes, bytes);
    }
    *pending = pool->count.pending_bytes > 0;
    ms_state_release(pool);
    uint64_t room = ms_budget_free_bytes(pool->config.budget) + ms_obligations_room(pool);
    room += room < wanted ? ms_backing_idle_chunks(pool, wanted - room) : 0;
    bool later = false;
    room += room < wanted ? ms_holes_takeable(pool, wanted - room, &later) : 0;
    *pending = *pending || later;
    return room < wanted ? wanted - room : 0;
}

/* Room that could be earmarked: free budget, bytes of idle chunks, and the host. */
static uint64_t coverable(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
{
    uint64_t room = ms_budget_free_bytes(pool->config.budget) + ms_obligations_host_room(pool);
    return room < bytes ? room + ms_backing_idle_chunks(pool, bytes - room) : room;
}

static bool has_room(struct ms_pool *pool, uint64_t bytes, bool *pending)
    MS_REQUIRES(ms_growth_role)
{
    return lacking(pool, bytes, pending) == 0 && coverable(pool, bytes) >= bytes;
}

/* Whether all of it could be used; waits for queued work if that may help. */
static bool await_room(struct ms_pool *pool, uint64_t bytes, bool may_wait)
    MS_REQUIRES(ms_growth_role)
{
    struct ms_wait wait = ms_wait_begin(pool, may_wait);
    bool pending = false;
    for (unsigned turn = 0; !has_room(pool, bytes, &pending); turn++) {
        if (!pending || ms_device_captures(pool->ops)) {
            return false;
        }
        ms_fences_take(pool, turn > 0);
        ms_epochs_fence(pool);
        (void)ms_fences_poll(pool);
        ms_epochs_poll(pool);
        if (has_room(pool, bytes, &pending)) {
            return true;
        }
        if (ms_wait_left_ns(&wait) == 0 ||
            (!ms_fences_wait(pool, turn, &wait) && !ms_epochs_wait(pool, &wait))) {
            return false;
        }
        (void)ms_fences_poll(pool);
        ms_epochs_poll(pool);
    }
    return true;
}

/* Secures a page that nothing backs yet, and makes room if idle chunks hold what could cover it. */
static ms_status_t secure_all(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
{
    uint64_t room = ms_budget_free_bytes(pool->config.budget);
    if (room < bytes && !ms_device_captures(pool->ops)) {
        uint64_t taken_bytes = 0;
        (void)ms_backing_unmap_idle(pool, bytes - room, &taken_bytes);
        (void)ms_backing_release_spares(pool);
    }
    return ms_obligations_secure(pool, bytes, true);
}

/* Spills live memory for the bytes that cannot be had otherwise. */
static ms_status_t spill_for(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
{
    bool pending = false;
    uint64_t missing = lacking(pool, bytes, &pending);
    uint64_t taken_bytes = 0;
    /* Host room that a spill uses can no longer cover obligations. */
    bool serves = missing > 0 && coverable(pool, bytes) >= bytes;
    ms_state_acquire(pool);
    uint64_t fresh_bytes = pool->count.fresh_bytes;
    ms_state_release(pool);
    struct ms_spill_need need = {
        .bytes = missing, .born_bytes = bytes + fresh_bytes, .more_bytes = fresh_bytes / MORE_PART};
    ms_status_t status =
        serves ? pool->live->make_room(pool, &need, &taken_bytes) : MS_ERR_NO_MEMORY;
    (void)ms_backing_release_spares(pool);
    if (status == MS_OK && !has_room(pool, bytes, &pending)) {
        status = MS_ERR_NO_MEMORY;
    }
    return status == MS_OK ? secure_all(pool, bytes) : status;
}

/* The request may also fill holes, so holes that only the host covers need device memory as
 * well. */
static bool covered_at_once(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
{
    bool pending = false;
    return pool->config.spill_limit_bytes > 0 ||
           ms_pool_count_of_growth(pool)->obligation_bytes <= pool->obligations.earmarked_bytes ||
           lacking(pool, bytes, &pending) == 0;
}

ms_status_t ms_room_for_page(struct ms_pool *pool, uint64_t bytes, bool may_wait,
                             enum ms_room *room)
{
    pool->moving.refused = false;
    (void)ms_backing_release_spares(pool);
    ms_device_room_sample(pool);
    ms_holes_recover(pool);
    *room = MS_ROOM_AT_ONCE;
    if (bytes <= ms_budget_free_bytes(pool->config.budget) && covered_at_once(pool, bytes)) {
        return MS_OK;
    }
    *room = MS_ROOM_SECURED;
    if (await_room(pool, bytes, may_wait)) {
        return secure_all(pool, bytes);
    }
    return may_wait ? spill_for(pool, bytes) : MS_ERR_NO_MEMORY;
}
