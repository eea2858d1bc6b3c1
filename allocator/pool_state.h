/* SPDX-License-Identifier: Apache-2.0 */
/* The pool's insides, put together: the state of each module stands in its own header.
 *
 * Locks: `state` covers all that is not named here; `growth` is held by the one thread that changes
 * backing (segments, slots, chunks, fences) and is taken before `state`, never after. The slots of
 * a segment and the list of segments change under both locks and may be read under either. */
#ifndef MEMSHIM_ALLOCATOR_POOL_STATE_H
#define MEMSHIM_ALLOCATOR_POOL_STATE_H

#include "allocator/arenas/live_memory.h"
#include "allocator/arenas/proxies.h"
#include "allocator/arenas/states.h"
#include "allocator/backing/epochs.h"
#include "allocator/backing/obligations.h"
#include "allocator/backing/victims.h"
#include "allocator/base/cancel.h"
#include "allocator/base/containers/slab.h"
#include "allocator/base/locks/lock.h"
#include "allocator/pool.h"
#include "allocator/space/orders.h"
#include "allocator/space/range.h"
#include "allocator/space/segment.h"
#include "allocator/spill/ahead.h"
#include "allocator/spill/move.h"

struct ms_arenas;

/* Counters of the statistics that change with every block. */
struct ms_pool_counters {
    uint64_t live_blocks, live_bytes, arena_bytes, set_aside_bytes;
    uint64_t reserved_bytes, free_bytes, pending_bytes;
    /* MS_EVENT_WAITS: how many; and the least and the most of pending_bytes that is near enough to
     * the last one's. */
    uint64_t waits_recorded, waits_least_bytes, waits_most_bytes;
    uint64_t allocations, frees, failed_allocations;
    uint64_t chunks_created, chunks_released, chunks_moved, maps, unmaps, set_accesses;
    uint64_t quiet_granules;
    uint64_t obligation_bytes; /* of arenas and proxies, unbacked: see obligations.c */
    uint64_t fresh_bytes, fresh_unbacked_bytes; /* of fresh proxies: all, and the unbacked part */
    uint64_t front_bytes;                       /* see struct ms_pool_stats */
    uint64_t host_reserve_bytes, host_backed_bytes, peak_host_backed_bytes;
    uint64_t host_large_bytes; /* of the reserve: in chunks of more than a granule */
    uint64_t holes_taken, holes_backed;
    uint64_t views, views_made;
    struct ms_spill_stats spill;
};

struct ms_pool {
    struct ms_pool_config config;
    const struct ms_device_ops *ops;
    uint64_t granule_bytes; /* of our backing, 2 MiB or more; 0: no virtual memory management */

    ms_lock_t state;
    ms_lock_t growth;
    /* Of the thread that holds the growth lock. It cannot be cancelled (cancel.h), because it waits
     * and asks the host there. */
    int cancellation;

    struct ms_block_index index MS_GUARDED_BY(ms_state_role);
    struct ms_orders orders MS_GUARDED_BY(ms_state_role);
    struct ms_treap_node *holes[MS_REGIONS] MS_GUARDED_BY(ms_state_role);
    struct ms_slab range_slab MS_GUARDED_BY(ms_state_role);
    struct ms_range *whole MS_GUARDED_BY(
        ms_state_role); /* see ms_ranges_give_up_whole; linked by draining.next, stuck */
    struct ms_pool_counters count MS_GUARDED_BY(ms_state_role);
    /* Ids reserved from the process's counter and not yet given to a block; and the first one
     * ever. */
    uint64_t next_id MS_GUARDED_BY(ms_state_role);
    uint64_t end_id MS_GUARDED_BY(ms_state_role);
    uint64_t first_id MS_GUARDED_BY(ms_state_role);

    struct ms_segment **segments; /* by address */
    size_t segment_count, segment_room;

    struct ms_slab chunk_slab MS_GUARDED_BY(ms_growth_role);
    struct ms_slab segment_slab MS_GUARDED_BY(ms_growth_role);
    /* Chunks that are charged and mapped nowhere; and the size of the largest, or more. */
    struct ms_chunk *spares MS_GUARDED_BY(ms_growth_role);
    uint64_t spare_most_bytes MS_GUARDED_BY(ms_growth_role);
    struct ms_chunk *views MS_GUARDED_BY(ms_growth_role); /* one of each pair of twins */

    struct ms_arenas *arenas MS_GUARDED_BY(ms_state_role); /* null where nobody reports tensors */
    struct ms_slab arena_slab MS_GUARDED_BY(ms_state_role);
    bool frozen MS_GUARDED_BY(ms_state_role); /* for good: nothing is taken out of holes any more */
    struct ms_range *
        draining MS_GUARDED_BY(ms_state_role); /* on host chunks, until their work is done */

    struct ms_epochs epochs;
    struct ms_obligations obligations;
    struct ms_victims victims MS_GUARDED_BY(ms_growth_role);
    struct ms_proxies proxies;
    struct ms_moving moving;
    const struct ms_live_memory *live; /* ms_spill_live */
    /* What the device had free when it refused a chunk; how often in a row it refused what it had
     * free. */
    uint64_t unusable_bytes MS_GUARDED_BY(ms_growth_role);
    unsigned strange_refusals MS_GUARDED_BY(ms_growth_role);
    struct ms_ahead ahead;
    struct ms_states states MS_GUARDED_BY(ms_state_role);
};

/* These take and release the pool's locks, and also tell Clang's analysis. Clang does not analyse
 * their bodies: it would see a member locked instead of the role. */
static inline void ms_state_acquire_at(struct ms_pool *pool, const char *place)
    MS_ACQUIRE(ms_state_role) MS_NO_THREAD_SAFETY
{
    ms_lock_acquire_at(&pool->state, place);
}

static inline void ms_state_release(struct ms_pool *pool)
    MS_RELEASE(ms_state_role) MS_NO_THREAD_SAFETY
{
    ms_lock_release(&pool->state);
}

static inline void ms_growth_acquire_at(struct ms_pool *pool, const char *place)
    MS_ACQUIRE(ms_growth_role) MS_NO_THREAD_SAFETY
{
    const int before = ms_cancel_hold();
    ms_lock_acquire_at(&pool->growth, place);
    pool->cancellation = before;
}

static inline bool ms_growth_try(struct ms_pool *pool)
    MS_TRY_ACQUIRE(true, ms_growth_role) MS_NO_THREAD_SAFETY
{
    const int before = ms_cancel_hold();
    const bool taken = ms_lock_try(&pool->growth);
    if (taken) {
        pool->cancellation = before;
    } else {
        ms_cancel_let(before);
    }
    return taken;
}

static inline void ms_growth_release(struct ms_pool *pool)
    MS_RELEASE(ms_growth_role) MS_NO_THREAD_SAFETY
{
    const int before = pool->cancellation;
    ms_lock_release(&pool->growth);
    ms_cancel_let(before);
}

#define ms_state_acquire(pool)  ms_state_acquire_at((pool), MS_PLACE)
#define ms_growth_acquire(pool) ms_growth_acquire_at((pool), MS_PLACE)

/* Counters that change under both locks: the growth lock is enough to read them. They are
 * reserved_bytes, obligation_bytes, those of the host, and those of the spill. */
static inline const struct ms_pool_counters *ms_pool_count_of_growth(const struct ms_pool *pool)
    MS_REQUIRES(ms_growth_role) MS_NO_THREAD_SAFETY
{
    return &pool->count;
}

/* Takes the event by value: then it is put together where it is read, and not copied for its
 * device's sake. */
static inline __attribute__((always_inline)) void ms_pool_emit(struct ms_pool *pool,
                                                               struct ms_event event)
    MS_REQUIRES(ms_state_role)
{
    if (pool->config.sink.emit != NULL) {
        event.device = pool->config.device;
        pool->config.sink.emit(pool->config.sink.ctx, &event);
    }
}

#endif
