/* The pool's insides, shared by the files that make it up and by arena.c. See pool.c for the plan.
 *
 * Locks: `state` covers everything but what is named here; `growth` is held by the one thread that
 * changes backing (segments, slots, chunks, marks) and is taken before `state`, never after. The
 * slots of a segment and the list of segments change under both locks and may be read under
 * either. */
#ifndef MEMSHIM_ALLOCATOR_POOL_INTERNAL_H
#define MEMSHIM_ALLOCATOR_POOL_INTERNAL_H

#include "allocator/lock.h"
#include "allocator/order.h"
#include "allocator/pool.h"
#include "allocator/range.h"
#include "allocator/slab.h"
#include "allocator/starts.h"

struct ms_chunk {
    ms_handle_t handle; /* the address, where the device has no virtual memory management */
    uint64_t bytes;
    struct ms_segment *segment; /* where it is mapped; null for a spare */
    uint64_t slot;              /* its first slot there */
    struct ms_chunk *next;      /* in a list of spares, or of what a fill has done so far */
    bool was_mapped;            /* the next mapping moves it */
    bool stuck;                 /* could not be unmapped: lost, with the addresses it backs */
};

struct ms_segment {
    ms_addr_t base;
    uint64_t bytes;
    struct ms_range *first;  /* ranges in address order cover it all */
    struct ms_starts starts; /* of live blocks */
    struct ms_chunk **slots; /* one for each granule: what backs it; null for nothing */
    uint64_t slot_count;
    bool plain; /* one chunk of plain_alloc: slot 0 stands for all of it */
};

/* Counters of the statistics that change with every block. */
struct ms_pool_counters {
    uint64_t live_blocks, live_bytes, arena_bytes, set_aside_bytes;
    uint64_t reserved_bytes, free_bytes, pending_bytes;
    uint64_t allocations, frees, failed_allocations;
    uint64_t chunks_created, chunks_released, chunks_moved, maps, unmaps, set_accesses;
};

struct ms_pool {
    struct ms_pool_config config;
    const struct ms_device_ops *ops;
    uint64_t granule_bytes; /* of our backing, 2 MiB or more; 0: no virtual memory management */

    ms_lock_t state;
    ms_lock_t growth;

    struct ms_index index;
    struct ms_orders orders;
    struct ms_treap_node *holes;
    struct ms_slab range_slab;
    struct ms_pool_counters count;
    uint64_t next_id, end_id; /* ids taken from the process's, not yet given to a block */

    struct ms_segment **segments; /* by address */
    size_t segment_count, segment_room;

    struct ms_slab chunk_slab, segment_slab; /* growth lock */
    struct ms_chunk *spares;                 /* growth lock: created, charged, mapped nowhere */
};

static inline uint64_t ms_round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* ---- ids.c: never used twice in this process. The first of `count` new ones. */
uint64_t ms_ids_take(uint64_t count);

/* ---- tiling.c: ranges in their segments. State lock. */

struct ms_segment *ms_segment_of(const struct ms_pool *pool, ms_addr_t addr);

/* Adds a segment covered by one range in `state` (hole or busy); both locks. MS_ERR_NO_MEMORY when
 * the host has no room, and then nothing was added. */
ms_status_t ms_segment_add(struct ms_pool *pool, ms_addr_t base, uint64_t bytes, bool plain,
                           struct ms_segment **out);
/* Removes one whose single range is in no set. */
void ms_segment_remove(struct ms_pool *pool, struct ms_segment *segment);

/* Cuts `range`, which must be in no set, so that it keeps its first `bytes`; the rest becomes a new
 * range in the same state and in no set. Null when the host is out of memory. */
struct ms_range *ms_range_split(struct ms_pool *pool, struct ms_range *range, uint64_t bytes);

/* Joins `range` with its next neighbour; both in no set. The neighbour's node is given back. */
void ms_range_absorb_next(struct ms_pool *pool, struct ms_range *range);

/* Makes a range that is in no set free in `batch` (null: idle), or a hole, joined with those
 * neighbours it can be joined with. Returns the range that holds it now. */
struct ms_range *ms_range_make_free(struct ms_pool *pool, struct ms_range *range,
                                    struct ms_batch *batch);
struct ms_range *ms_range_make_hole(struct ms_pool *pool, struct ms_range *range);

/* Takes a free range or a hole out of its sets; it is busy from then on. */
void ms_range_take(struct ms_pool *pool, struct ms_range *range);

/* The order that a free range is in. */
struct ms_order *ms_range_order(struct ms_pool *pool, const struct ms_range *range);

/* Whether a request on `stream` may use the free range at once. */
bool ms_range_usable(const struct ms_range *range, ms_stream_t stream);

/* Turns the busy range into a live block of the request, told to the sink. */
void ms_range_make_live(struct ms_pool *pool, struct ms_range *range,
                        const struct ms_request *request, struct ms_block_info *out);

void ms_range_info(const struct ms_range *range, struct ms_block_info *out);

/* Takes `bytes` (rounded) from the beginning of a free range for a block; the rest stays free. */
ms_status_t ms_range_carve(struct ms_pool *pool, struct ms_range *range, uint64_t bytes,
                           const struct ms_request *request, struct ms_block_info *out);

/* ---- marks.c: learning what has completed. Growth lock held, state lock not. */

/* Asks every sealed batch, oldest first, whether it is done; done ones become idle. True if any
 * range became idle. Nothing is asked while anything captures. */
bool ms_marks_poll(struct ms_pool *pool);

/* Seals and marks what has been freed up to now, in every order; without `all`, not in those that
 * have many marks under way already. Nothing while anything captures. */
void ms_marks_take(struct ms_pool *pool, bool all);

/* The best fit that `stream` may use behind a wait; the wait is queued. MS_ERR_NO_MEMORY: none. */
ms_status_t ms_marks_reuse_behind_wait(struct ms_pool *pool, const struct ms_request *request,
                                       uint64_t bytes, struct ms_block_info *out);

/* Waits for the oldest mark of one order, with the growth lock released meanwhile, and takes the
 * time from *left_ns. `turn` counts up over the calls of one allocation: the orders take turns, so
 * that one stream that stands still does not hide another that moves. False: nothing to wait for.
 */
bool ms_marks_wait(struct ms_pool *pool, unsigned turn, uint64_t *left_ns);

/* The stream's order ends: see ms_pool_stream_gone. */
void ms_marks_stream_gone(struct ms_pool *pool, ms_stream_t stream);

/* Gives every mark back, at the pool's end. */
void ms_marks_release_all(struct ms_pool *pool);

/* ---- backing.c: chunks under addresses. Growth lock held, state lock not. */

/* Backs every granule without a chunk under a busy range and gives access. The range ends on a
 * granule where it ends in a hole. Spares are used first, then chunks are created: few and large
 * ones for a `large` request while the budget lasts. On failure all that it did is undone; slots
 * whose chunk is stuck are the exception. */
ms_status_t ms_backing_fill(struct ms_pool *pool, const struct ms_range *range, bool large);

/* Takes chunks out of idle ranges, which become holes, until `enough_bytes` have been or none is
 * left; they become spares. Adds what it took to *taken_bytes. */
ms_status_t ms_backing_unmap_idle(struct ms_pool *pool, uint64_t enough_bytes,
                                  uint64_t *taken_bytes);

/* Whether at least `enough_bytes` lie in chunks that ms_backing_unmap_idle could take. */
bool ms_backing_idle_chunks(struct ms_pool *pool, uint64_t enough_bytes);

/* Gives the spares back to the device; returns the bytes released. */
uint64_t ms_backing_release_spares(struct ms_pool *pool);

/* Adds a segment of addresses, one hole, that a request of `bytes` fits in. */
ms_status_t ms_backing_reserve(struct ms_pool *pool, uint64_t bytes);

/* Without virtual memory management: a segment of plain memory that a request of `bytes` fits in,
 * as one busy range. And giving back those that are idle, until enough_bytes have been. */
ms_status_t ms_backing_plain_add(struct ms_pool *pool, uint64_t bytes, struct ms_range **out);
uint64_t ms_backing_plain_release(struct ms_pool *pool, uint64_t enough_bytes);

/* See ms_pool_refresh_access. */
ms_status_t ms_backing_refresh_access(struct ms_pool *pool);

/* Takes all chunks and segments apart at the pool's end. */
void ms_backing_drop_all(struct ms_pool *pool, bool device_gone);

/* ---- emit: state lock held. */
static inline void ms_pool_emit(struct ms_pool *pool, const struct ms_event *event)
{
    if (pool->config.sink.emit != NULL) {
        struct ms_event told = *event;
        told.device = pool->config.device;
        pool->config.sink.emit(pool->config.sink.ctx, &told);
    }
}

/* ---- ladder.c: what an allocation does that no free block fits. No lock held. */
ms_status_t ms_ladder_climb(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                            struct ms_block_info *out);

/* Best fit over what the request may use at once; state lock held. MS_ERR_NO_MEMORY: none. */
ms_status_t ms_pool_reuse(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                          struct ms_block_info *out);

/* ---- pool.c, for arena.c: the live block around addr becomes an arena, told to the sink the first
 * time. MS_ERR_NOT_OURS where no live block is. */
ms_status_t ms_pool_mark_arena(struct ms_pool *pool, ms_addr_t addr, struct ms_block_info *out);

#endif
