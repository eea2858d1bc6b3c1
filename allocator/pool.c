/* SPDX-License-Identifier: Apache-2.0 */
/* The pool's interface: creation and end, allocation and free. Requests that no free block serves
 * go to ladder.c; pool_room.c makes room for others, pool_stats.c has the statistics. */

#include <stdlib.h>
#include <string.h>

#include "allocator/arenas/arenas.h"
#include "allocator/arenas/holes.h"
#include "allocator/arenas/proxies.h"
#include "allocator/backing/backing.h"
#include "allocator/backing/device_room.h"
#include "allocator/backing/epochs.h"
#include "allocator/backing/fences.h"
#include "allocator/backing/granules.h"
#include "allocator/backing/obligations.h"
#include "allocator/backing/wait.h"
#include "allocator/base/arithmetic.h"
#include "allocator/base/assert.h"
#include "allocator/base/containers/pages.h"
#include "allocator/ladder.h"
#include "allocator/pool.h"
#include "allocator/pool_check.h"
#include "allocator/pool_state.h"
#include "allocator/space/block.h"
#include "allocator/space/orders.h"
#include "allocator/space/place.h"
#include "allocator/space/range.h"
#include "allocator/space/starts.h"
#include "allocator/space/tiling.h"
#include "allocator/spill/ahead.h"
#include "allocator/spill/spill.h"

/* The unit of backing: the device's granule, but large enough to be worth a driver call. */
#define SMALLEST_UNIT_BYTES ((uint64_t)2 << 20)

static uint64_t unit_of(const struct ms_device_ops *ops)
{
    uint64_t granule_bytes = ops->granule_bytes;
    bool small = granule_bytes != 0 && granule_bytes < SMALLEST_UNIT_BYTES;
    return small ? SMALLEST_UNIT_BYTES : granule_bytes;
}

ms_status_t ms_pool_create(const struct ms_pool_config *config, ms_pool_t **out)
{
    struct ms_pool *pool = ms_pages_map(sizeof(*pool));
    if (pool == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    pool->config = *config;
    if (pool->config.page_bytes == 0) {
        pool->config.page_bytes = MS_BLOCK_ALIGNMENT_BYTES;
    }
    pool->ops = config->ops;
    pool->granule_bytes = unit_of(config->ops);
    ms_lock_init(&pool->growth, MS_RANK_GROWTH);
    ms_lock_init(&pool->state, MS_RANK_STATE);
    ms_slab_init(&pool->range_slab, sizeof(struct ms_range));
    ms_slab_init(&pool->chunk_slab, sizeof(struct ms_chunk));
    ms_slab_init(&pool->segment_slab, sizeof(struct ms_segment));
    ms_slab_init(&pool->arena_slab, sizeof(struct ms_arena));
    ms_proxies_init(pool);
    ms_waits_told(pool, 0);
    pool->live = &ms_spill_live;
    pool->epochs.current = 1;
    bool index_made = ms_index_init(&pool->index);
    if (!index_made || !ms_orders_init(&pool->orders)) {
        if (index_made) {
            ms_index_destroy(&pool->index);
            ms_orders_destroy(&pool->orders);
        }
        ms_pages_unmap(pool, sizeof(*pool));
        return MS_ERR_NO_MEMORY;
    }
    *out = pool;
    return MS_OK;
}

static inline void emit_freed(struct ms_pool *pool, const struct ms_range *range,
                              ms_stream_t stream) MS_REQUIRES(ms_state_role)
{
    ms_pool_emit(pool, (struct ms_event){.kind = MS_EVENT_BLOCK_FREE,
                                         .owner = MS_OWNER_POOL,
                                         .id = range->live.id,
                                         .addr = range->addr,
                                         .bytes = ms_range_asked_bytes(range),
                                         .stream = stream,
                                         .aux = range->arena ? 1 : 0});
}

/* Clang does not check it: no other thread is in the pool, so it takes no state lock. */
MS_NO_THREAD_SAFETY void ms_pool_destroy(ms_pool_t *pool, bool device_gone)
{
    if (pool == NULL) {
        return;
    }
    ms_growth_acquire(pool);
    ms_state_acquire(pool);
    for (size_t at = 0; at < pool->segment_count; at++) {
        for (const struct ms_range *range = pool->segments[at]->first; range != NULL;
             range = range->next) {
            if (range->state == MS_RANGE_LIVE) {
                emit_freed(pool, range, MS_STREAM_DEVICE);
            }
        }
    }
    ms_state_release(pool);
    if (!device_gone) {
        ms_fences_release_all(pool);
        ms_epochs_release_all(pool);
    }
    ms_proxies_drop(pool, device_gone);
    ms_backing_drop_all(pool, device_gone);
    while (pool->segment_count > 0) {
        ms_arenas_leave_segment(pool, pool->segments[0]);
        ms_segment_remove(pool, pool->segments[0]);
    }
    if (pool->segments != NULL) {
        ms_pages_unmap(pool->segments, ms_pointers_bytes(pool->segment_room));
    }
    ms_ahead_end(pool);
    ms_index_destroy(&pool->index);
    ms_orders_destroy(&pool->orders);
    ms_slab_destroy(&pool->range_slab);
    ms_slab_destroy(&pool->chunk_slab);
    ms_slab_destroy(&pool->segment_slab);
    ms_slab_destroy(&pool->arena_slab);
    ms_slab_destroy(&pool->proxies.slab);
    ms_holes_forget(pool);
    ms_growth_release(pool);
    ms_pages_unmap(pool, sizeof(*pool));
}

static __attribute__((noinline, cold)) ms_status_t note_failure(struct ms_pool *pool,
                                                                ms_status_t status)
{
    ms_state_acquire(pool);
    pool->count.failed_allocations++;
    ms_state_release(pool);
    return status;
}

/* The bytes that a block adds to its holder's sums. */
static uint64_t held_bytes(uint64_t asked_bytes)
{
    return ms_round_up(asked_bytes, MS_BLOCK_ALIGNMENT_BYTES);
}

/* Plain reads and writes of the sums suffice: the state lock is held. The caller sets the limit. */
static bool holder_takes(struct ms_holder *holder, uint64_t bytes)
{
    if (holder == NULL) {
        return true;
    }
    uint64_t used = atomic_load_explicit(&holder->used_bytes, memory_order_relaxed) + bytes;
    uint64_t limit = atomic_load_explicit(&holder->limit_bytes, memory_order_relaxed);
    if (limit != 0 && used > limit) {
        return false;
    }
    atomic_store_explicit(&holder->used_bytes, used, memory_order_relaxed);
    if (used > atomic_load_explicit(&holder->used_high_bytes, memory_order_relaxed)) {
        atomic_store_explicit(&holder->used_high_bytes, used, memory_order_relaxed);
    }
    return true;
}

static void holder_gives(struct ms_holder *holder, uint64_t bytes)
{
    if (holder != NULL) {
        uint64_t used = atomic_load_explicit(&holder->used_bytes, memory_order_relaxed);
        atomic_store_explicit(&holder->used_bytes, used - bytes, memory_order_relaxed);
    }
}

/* `status`: why nothing could be reused. */
static __attribute__((noinline, cold)) ms_status_t alloc_slowly(struct ms_pool *pool,
                                                                const struct ms_request *request,
                                                                uint64_t bytes, ms_status_t status,
                                                                struct ms_block_info *out)
{
    if (status == MS_ERR_LIMIT) {
        return note_failure(pool, status);
    }
    if (status == MS_ERR_NO_MEMORY) {
        status = ms_ladder_climb(pool, request, bytes, out);
    }
    if (status == MS_OK) {
        return MS_OK;
    }
    ms_state_acquire(pool);
    holder_gives(request->holder, held_bytes(request->bytes));
    ms_state_release(pool);
    return note_failure(pool, status);
}

/* The driver's own allocations of that size begin on whole pages of the host, as a range given to a
 * network card (DMA-BUF) has to. It costs nothing measurable: of 17 recorded jobs, as many need a
 * chunk less as need one more. */
static inline uint64_t set_aside_bytes(const struct ms_pool *pool, uint64_t held)
{
    return held < MS_LARGE_BYTES ? held : ms_round_up(held, pool->config.page_bytes);
}

ms_status_t ms_pool_alloc(ms_pool_t *pool, const struct ms_request *request,
                          struct ms_block_info *out)
{
    if (request->bytes == 0) {
        return note_failure(pool, MS_ERR_INVALID);
    }
    if (request->bytes > pool->ops->total_bytes) {
        return note_failure(pool, MS_ERR_NO_MEMORY);
    }
    const uint64_t held = held_bytes(request->bytes);
    const uint64_t bytes = set_aside_bytes(pool, held);
    ms_state_acquire(pool);
    ms_status_t status = holder_takes(request->holder, held)
                             ? ms_pool_reuse(pool, request, bytes, false, out)
                             : MS_ERR_LIMIT;
    ms_state_release(pool);
    if (__builtin_expect(status == MS_OK, 1)) {
        return MS_OK;
    }
    return alloc_slowly(pool, request, bytes, status, out);
}

/* The slots that are wholly the block's. */
static void forget_arena(struct ms_pool *pool, struct ms_range *range) MS_REQUIRES(ms_state_role)
{
    uint64_t from = 0;
    uint64_t to = 0;
    ms_granules_inside_range(pool, range, &from, &to);
    ms_granules_leave(pool, range->segment, from, to);
    struct ms_arena *arena = range->live.holes;
    range->holed = false;
    range->live.holder = arena->holder;
    ms_slab_give(&pool->arena_slab, arena);
}

/* Ends a live block that has left the index: its range is busy from here on. State lock. */
static void end_block(struct ms_pool *pool, struct ms_range *range, ms_stream_t stream)
    MS_REQUIRES(ms_state_role)
{
    if (range->arena && pool->arenas != NULL) {
        ms_arenas_bury(pool->arenas, range->addr, range->bytes);
    }
    emit_freed(pool, range, stream);
    if (range->holed) {
        forget_arena(pool, range);
    }
    const uint64_t asked_bytes = ms_range_asked_bytes(range);
    struct ms_segment *segment = range->segment;
    ms_starts_clear(&segment->starts, (range->addr - segment->base) / MS_BLOCK_ALIGNMENT_BYTES);
    holder_gives(range->live.holder, held_bytes(asked_bytes));
    pool->count.live_blocks--;
    pool->count.live_bytes -= asked_bytes;
    if (range->arena) {
        pool->count.arena_bytes -= asked_bytes;
    }
    pool->count.set_aside_bytes -= range->bytes;
    pool->count.frees++;
    range->state = MS_RANGE_BUSY;
}

/* Why no block begins at addr. Inside a live block: nobody freed anything there. Elsewhere in a
 * segment: somebody freed it already. State lock. */
static ms_status_t not_live(struct ms_pool *pool, ms_addr_t addr) MS_REQUIRES(ms_state_role)
{
    const struct ms_segment *segment = ms_segment_of(pool, addr);
    bool freed = segment != NULL && segment->foreign == NULL && ms_block_around(pool, addr) == NULL;
    return freed ? MS_ERR_INVALID : MS_ERR_NOT_OURS;
}

/* A block without device memory behind all of it is freed in pieces, under both locks. */
static inline bool is_in_pieces(const struct ms_pool *pool, const struct ms_range *range)
    MS_REQUIRES(ms_state_role)
{
    const struct ms_arena *holes = ms_range_holes(range);
    return range->mixed &&
           ((holes != NULL && holes->unbacked_bytes > 0) || pool->count.host_backed_bytes > 0 ||
            pool->moving.under_way || pool->moving.broken);
}

/* Frees the range of a block that has left the index. */
static void free_range(struct ms_pool *pool, struct ms_range *range, ms_stream_t stream)
    MS_REQUIRES(ms_state_role)
{
    bool in_pieces = is_in_pieces(pool, range);
    end_block(pool, range, stream);
    struct ms_batch *batch = ms_orders_need(&pool->orders, stream)->open;
    if (in_pieces) {
        ms_range_give_up(pool, range, batch);
    } else {
        ms_range_make_free(pool, range, batch);
    }
}

static ms_status_t free_in_pieces(struct ms_pool *pool, ms_addr_t addr, ms_stream_t stream)
{
    ms_growth_acquire(pool);
    ms_state_acquire(pool);
    struct ms_range *range = ms_index_take(&pool->index, addr);
    ms_status_t status = range == NULL ? not_live(pool, addr) : MS_OK;
    if (range != NULL) {
        free_range(pool, range, stream);
    }
    ms_state_release(pool);
    ms_obligations_settle(pool);
    MS_ASSERT_WALK(ms_pool_books_hold(pool));
    ms_growth_release(pool);
    return status;
}

ms_status_t ms_pool_free(ms_pool_t *pool, ms_addr_t addr, ms_stream_t stream)
{
    ms_state_acquire(pool);
    struct ms_range *range = ms_index_take(&pool->index, addr);
    if (range == NULL) {
        ms_status_t status = not_live(pool, addr);
        ms_state_release(pool);
        return status;
    }
    if (__builtin_expect(is_in_pieces(pool, range), 0)) {
        ms_index_insert(&pool->index, range);
        ms_state_release(pool);
        return free_in_pieces(pool, addr, stream);
    }
    end_block(pool, range, stream);
    ms_range_make_free(pool, range, ms_orders_need(&pool->orders, stream)->open);
    ms_state_release(pool);
    return MS_OK;
}

/* The first live range from this one on. A freed range joins its neighbours, but never a live
 * one. */
static struct ms_range *live_from(struct ms_range *range)
{
    while (range != NULL && range->state != MS_RANGE_LIVE) {
        range = range->next;
    }
    return range;
}

void ms_pool_free_held(ms_pool_t *pool, bool (*match)(void *ctx, const struct ms_holder *holder),
                       void *ctx)
{
    ms_growth_acquire(pool);
    ms_state_acquire(pool);
    for (size_t at = 0; at < pool->segment_count; at++) {
        struct ms_range *range = live_from(pool->segments[at]->first);
        while (range != NULL) {
            struct ms_range *next = live_from(range->next);
            const struct ms_holder *holder = ms_range_holder(range);
            if (holder != NULL && match(ctx, holder)) {
                (void)ms_index_take(&pool->index, range->addr);
                free_range(pool, range, MS_STREAM_DEVICE);
            }
            range = next;
        }
    }
    ms_state_release(pool);
    ms_obligations_settle(pool);
    ms_growth_release(pool);
}

ms_status_t ms_pool_find(ms_pool_t *pool, ms_addr_t addr, struct ms_block_info *out)
{
    ms_state_acquire(pool);
    const struct ms_range *range = ms_block_around(pool, addr);
    if (range != NULL) {
        ms_range_info(range, out);
    }
    ms_state_release(pool);
    return range != NULL ? MS_OK : MS_ERR_NOT_OURS;
}

ms_status_t ms_pool_mark(ms_pool_t *pool, ms_addr_t addr, bool marked)
{
    ms_state_acquire(pool);
    struct ms_range *range = ms_block_around(pool, addr);
    if (range != NULL) {
        range->marked = marked;
    }
    ms_state_release(pool);
    return range != NULL ? MS_OK : MS_ERR_NOT_OURS;
}

void ms_pool_stream_gone(ms_pool_t *pool, ms_stream_t stream)
{
    ms_growth_acquire(pool);
    ms_fences_stream_gone(pool, stream);
    ms_growth_release(pool);
}

ms_status_t ms_pool_refresh_access(ms_pool_t *pool)
{
    ms_growth_acquire(pool);
    ms_status_t status = ms_backing_refresh_access(pool);
    ms_growth_release(pool);
    return status;
}

void ms_pool_locks(ms_pool_t *pool, enum ms_lock_rank rank, void (*act)(ms_lock_t *lock))
{
    if (rank == MS_RANK_GROWTH) {
        act(&pool->growth);
    } else if (rank == MS_RANK_STATE) {
        act(&pool->state);
    }
}
