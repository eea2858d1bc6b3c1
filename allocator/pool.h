/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of one device: blocks in expandable segments on chunks that can move.
 *
 * Thread-safe. Two locks: the state lock (short, never held across a device operation that may
 * block) and the growth lock (held by the one thread that changes backing). An allocation that a
 * free block serves takes the state lock once. */
#ifndef MEMSHIM_ALLOCATOR_POOL_H
#define MEMSHIM_ALLOCATOR_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/backing/choice.h"
#include "allocator/base/event.h"
#include "allocator/base/locks/lock.h"
#include "allocator/base/status.h"
#include "allocator/device/budget.h"
#include "allocator/device/device_ops.h"
#include "allocator/space/block.h"
#include "allocator/spill/choice.h"
#include "allocator/spill/promote.h"
#include "allocator/spill/touch.h"

struct ms_pool_config {
    uint8_t device;                  /* ordinal, for events */
    const struct ms_device_ops *ops; /* outlives the pool */
    struct ms_budget *budget;        /* shared with whoever else charges this device; outlives it */
    struct ms_event_sink sink;       /* emit may be null */
    uint64_t wait_limit_ns;    /* longest wait for queued work before an allocation fails, while
                                  none of it completes */
    uint64_t wait_most_ns;     /* longest wait in all, while some does; wait_limit_ns if that is
                                  longer */
    uint64_t host_limit_bytes; /* most host memory for backing holes again and for spilled memory,
                                  set aside or in use; 0: none */
    const struct ms_choice *choice; /* null: ms_choice_default; outlives the pool */
    uint64_t spill_limit_bytes;     /* most of it for spilled live memory; 0: no spilling, and only
                                       ms_proxy_show calls ops->halt */
    struct ms_budget *spill_budget; /* shared limit of what pools may spill; null: spill_limit_bytes
                                       is this pool's alone; outlives the pool */
    uint64_t halt_limit_ns;         /* longest wait for a standstill that makes room */
    const struct ms_spill_choice *spill_choice; /* null: ms_spill_choice_lru; outlives the pool */
    /* Whether the call site's memory was asked for in an optimizer's step. Called with the pool's
     * state lock held: short, no calls into the pool. Null: unknown for all sites. */
    bool (*is_optimizers)(void *sites, uint32_t site);
    void *sites;         /* outlives the pool */
    bool views;          /* a chunk may be mapped at two addresses: see views.h */
    uint64_t page_bytes; /* blocks of a MiB and more are set aside in multiples of it, so that they
                            begin on it wherever only such blocks lie: a power of two; 0: no such
                            pages */
};

/* What spilling moved, and its cost. All but the first are totals of the run. */
struct ms_spill_stats {
    uint64_t spilled_bytes; /* spilled, and on the host now */
    uint64_t peak_spilled_bytes;
    uint64_t down_bytes, up_bytes; /* spilled, promoted */
    uint64_t spills, promotions;   /* runs of neighbouring chunks, one event each */
    uint64_t halts, halts_refused; /* standstills; and requests for one that failed */
    uint64_t stall_ns;             /* in standstills */
    uint64_t lost_bytes;           /* contents lost because a device kept failing */
    uint64_t thrashed_bytes;       /* spilled again soon after they were promoted, several times */
};

struct ms_pool_stats {
    uint64_t live_blocks;
    uint64_t live_bytes;     /* as asked for, arenas by their whole size */
    uint64_t arena_bytes;    /* the part of live_bytes that is arenas */
    uint64_t reserved_bytes; /* device chunks held */
    uint64_t free_bytes;     /* backed, and in no block */
    uint64_t pending_bytes;  /* freed, but waiting for queued work */
    uint64_t largest_free_bytes;
    uint64_t allocations, frees, failed_allocations;
    uint64_t chunks_created, chunks_released, chunks_moved, maps, unmaps, set_accesses;
    uint64_t hole_bytes;  /* backed bytes of arenas in granules that no live tensor touches */
    uint64_t fresh_bytes; /* of pages that requests under way have made (proxy.h) */
    uint64_t fresh_unbacked_bytes; /* the part of them that has no backing yet */
    uint64_t front_bytes;    /* free bytes that the request would use whose page was refused last */
    uint64_t unbacked_bytes; /* of arenas: taken, or never backed */
    uint64_t earmarked_bytes;    /* the part of the budget that is kept for unbacked_bytes */
    uint64_t host_reserve_bytes; /* host chunks set aside for unbacked_bytes, mapped nowhere */
    uint64_t host_backed_bytes;  /* host chunks that stand behind arenas now */
    uint64_t peak_host_backed_bytes;
    uint64_t holes_taken, holes_backed; /* chunks taken out of holes, and chunks put (back) into
                                           them */
    uint64_t views, views_made;         /* chunks that are mapped twice: now, and ever */
    bool frozen;                        /* nothing is taken any more, for good */
    struct ms_spill_stats spill;
};

/* Takes nothing from the device before the first allocation. */
ms_status_t ms_pool_create(const struct ms_pool_config *config, ms_pool_t **out);

/* device_gone (the context was reset or the process ends): forgets everything without a device
 * call. Otherwise gives everything back; the caller has seen that all work of the device is done.
 * Either way events tell the sink that every block, mapping and chunk is gone, and the budget is
 * discharged. No call may be under way on other threads. */
void ms_pool_destroy(ms_pool_t *pool, bool device_gone);

/* Tries the rungs of the ladder (ladder.c): reuse; expand; wait for frees in flight; take free
 * chunks from holes; trim; spill; fail. MS_ERR_NO_MEMORY: nothing changed, and the caller decides
 * the verdict. MS_ERR_LIMIT: likewise, at the holder's limit. Any other status is the device's.
 * Rolled back completely on every failure. */
ms_status_t ms_pool_alloc(ms_pool_t *pool, const struct ms_request *request,
                          struct ms_block_info *out);

/* Frees the block that begins at addr, in the order of `stream`: MS_STREAM_DEVICE as cudaFree does
 * (nobody gets the memory before all earlier work of the device is known to be done).
 * MS_ERR_NOT_OURS: no live block begins there. MS_ERR_INVALID: it was freed already. */
ms_status_t ms_pool_free(ms_pool_t *pool, ms_addr_t addr, ms_stream_t stream);

/* Frees all blocks whose holder `match` accepts, as ms_pool_free does with MS_STREAM_DEVICE. match
 * must not call the pool. Linear in the pool's blocks. */
void ms_pool_free_held(ms_pool_t *pool, bool (*match)(void *ctx, const struct ms_holder *holder),
                       void *ctx);

/* The live block that holds addr anywhere inside. MS_ERR_NOT_OURS: there is none. */
ms_status_t ms_pool_find(ms_pool_t *pool, ms_addr_t addr, struct ms_block_info *out);

/* Sets or clears the caller's own mark on the live block that holds addr; ms_block_info has it. It
 * ends with the block. MS_ERR_NOT_OURS: no block holds addr. */
ms_status_t ms_pool_mark(ms_pool_t *pool, ms_addr_t addr, bool marked);

/* Gives free chunks back to the device until at most keep_bytes stay reserved beyond live blocks.
 * Only those go whose last use the host has seen end. Returns the bytes released. Does not wait. */
uint64_t ms_pool_trim(ms_pool_t *pool, uint64_t keep_bytes);

/* Gives chunks back until at most charged_bytes are charged: idle ones first, then those of holes,
 * whose room stays earmarked; so no host memory is made. Leaves more if no more is idle. Does not
 * wait; does nothing while anything captures. */
void ms_pool_lower(ms_pool_t *pool, uint64_t charged_bytes);

/* Makes the budget have `bytes` free for a charge of the caller's. First as ms_pool_trim does, then
 * by moving what is earmarked for holes to the host, then by taking chunks out of holes, then by
 * spilling; with may_wait also by waiting for queued work, at most the configured time. False: not
 * enough; what became free stays free. Does nothing while anything captures. */
bool ms_pool_make_room(ms_pool_t *pool, uint64_t bytes, bool may_wait);

/* Why no live memory can move to the host. */
enum ms_unmoved {
    MS_UNMOVED_NOTHING,   /* some can, or all of it that may is on the host already */
    MS_UNMOVED_NO_ACCESS, /* the device cannot, or not any more */
    MS_UNMOVED_CAPTURE,   /* a stream captures */
    MS_UNMOVED_NO_HOST,   /* the host had no memory for it */
    MS_UNMOVED_BUSY       /* the device did not stand still for the last request */
};

/* What of the pool's free memory serves any request: what waits for queued work, and granules that
 * are idle as a whole. The rest lies beside live memory, and serves what fits there. Asks which
 * work is done, without waiting; linear in the idle ranges. */
uint64_t ms_pool_whole_bytes(ms_pool_t *pool);

/* What of it could go back to the device now: chunks that are idle as a whole, and wait for
 * nothing. Linear in the idle ranges. */
uint64_t ms_pool_idle_bytes(ms_pool_t *pool);

/* The part of hole_bytes that could be taken now, or once queued work is done. The rest never can:
 * it is pinned, a graph replays into it, or something lives in the same chunk. Linear in the
 * granules of holes. */
uint64_t ms_pool_takeable_bytes(ms_pool_t *pool);

/* Bytes of live memory on the device that could move to the host, whatever the limits say: for a
 * verdict. Waits for the thread that changes backing; linear in the pool's chunks. */
uint64_t ms_pool_movable_bytes(ms_pool_t *pool, enum ms_unmoved *why);

/* When the coldest of that memory was last used, as a point of the run so far: 0 its beginning,
 * 2^32 now. False: none can move. Waits for the thread that changes backing; linear in the pool's
 * chunks. */
bool ms_pool_coldest(ms_pool_t *pool, uint64_t *place);

/* Prepares for a capture: from then on the pool asks nothing about queued work and unmaps nothing.
 * Finds out which work is done, and gives idle chunks back if they hold more than the budget has
 * free, so that they can serve anywhere. Where cudaFree would have waited for memory that may be
 * wanted, this waits too, at most the configured time. Does nothing if something captures
 * already. */
void ms_pool_settle(ms_pool_t *pool);

/* Pins the live block that holds addr, because its physical identity has left the process: none of
 * its chunks is taken or spilled any more, all of it is backed, and spilled parts are brought back.
 * MS_ERR_NOT_OURS: no block holds it. Any other failure: a part of the block could not be backed.
 * It is not pinned then, and its identity must not be shown. */
ms_status_t ms_pool_pin(ms_pool_t *pool, ms_addr_t addr);

/* Pins every live block that the range touches. A range that was rounded to pages may begin before
 * the block that is meant, in another one or in none. If one cannot be pinned, those pinned before
 * it stay so. A range that wraps around is empty. */
ms_status_t ms_pool_pin_range(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes);

/* Pins the live block that holds addr, as ms_pool_pin does, and visits its chunks, which stay
 * behind it for as long as it lives. *offset_bytes: where the block begins in the first of them;
 * the last may reach beyond its end. MS_ERR_NOT_SUPPORTED: not all of the block lies on device
 * chunks. */
ms_status_t ms_pool_pin_chunks(ms_pool_t *pool, ms_addr_t addr,
                               const struct ms_chunk_visitor *visitor, struct ms_block_info *out,
                               uint64_t *offset_bytes);

/* A stream ends after its queued work; to be called before the driver forgets it. From here on,
 * blocks freed in its order wait for a fence of it. */
void ms_pool_stream_gone(ms_pool_t *pool, ms_stream_t stream);

/* Sets access anew on every mapping of the pool: the caller has enabled or disabled a peer. */
ms_status_t ms_pool_refresh_access(ms_pool_t *pool);

void ms_pool_stats(ms_pool_t *pool, struct ms_pool_stats *out);

/* The spill statistics, without the walk over all orders: cheap enough for every allocation. */
void ms_pool_spill_stats(ms_pool_t *pool, struct ms_spill_stats *out);
uint64_t ms_pool_peak_host_backed_bytes(ms_pool_t *pool);

/* Checks the whole pool. False, with a sentence in `why` (why_bytes long, may be null), at the
 * first violation: overlap, misalignment, a live byte without backing, sums that do not add up. */
bool ms_pool_is_valid(ms_pool_t *pool, char *why, size_t why_bytes);

/* Calls act on the pool's lock of this rank, if it has one. For fork, around which all locks are
 * held (lock_rank.def). */
void ms_pool_locks(ms_pool_t *pool, enum ms_lock_rank rank, void (*act)(ms_lock_t *lock));

#endif
