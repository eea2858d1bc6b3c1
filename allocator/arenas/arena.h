/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors inside blocks: what a framework's own allocator tells of the ranges it hands out.
 *
 * One per device, beside its pool. A range lies in a block of the pool, which becomes an arena at
 * its first reported tensor, in a proxy (proxy.h), or in memory that the program mapped itself.
 *
 * The chunks of an arena's holes are taken when memory is short, so an allocation may have to back
 * what it lies on again before it returns: only then does it call the device. An arena is frozen
 * (nothing is taken out of it any more) by the first allocation in it while a stream captures; all
 * of them are, and all holes backed, by the first total that differs from our sum. Thread-safe; the
 * pool's state lock. */
#ifndef MEMSHIM_ALLOCATOR_ARENAS_ARENA_H
#define MEMSHIM_ALLOCATOR_ARENAS_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/event.h"
#include "allocator/base/locks/lock.h"
#include "allocator/space/block.h"

typedef struct ms_arenas ms_arenas_t;

struct ms_arenas_stats {
    uint64_t live_tensors;
    uint64_t live_bytes;
    uint64_t peak_live_bytes;
    uint64_t allocations, frees;
    uint64_t frozen_arenas;   /* ever: something was allocated in them while a stream captured */
    uint64_t kept_arenas;     /* ever */
    uint64_t invalid_reports; /* answered with MS_ERR_INVALID */
    bool mismatched; /* the framework's own total once differed from our sum; set for good */
};

/* pool may be null (MEMSHIM_POOL=off): then events go to the sink, which is not used otherwise, for
 * they go to the pool's. */
ms_status_t ms_arenas_create(uint8_t device, ms_pool_t *pool, struct ms_event_sink sink,
                             ms_arenas_t **out);
void ms_arenas_destroy(ms_arenas_t *arenas);

/* A tensor was allocated or freed. total_bytes is the framework's own sum of live bytes on this
 * device after the report (UINT64_MAX: it does not say). MS_ERR_INVALID: an allocation over a live
 * range, a free of an unknown one; noted in the statistics, and nothing is taken any more.
 * MS_ERR_NOT_READY, once: this report is the first whose total differs from our sum.
 * MS_ERR_NO_MEMORY: some of the range could not be backed, not even by host memory, or the host has
 * no memory to note it, and then nothing is taken any more either; any other status is the
 * device's. An allocation that host memory had to back is MS_OK and stands in the pool's
 * statistics. */
ms_status_t ms_arenas_allocated(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes, uint32_t site,
                                uint64_t total_bytes);
ms_status_t ms_arenas_freed(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes,
                            uint64_t total_bytes);

/* For an allocator that may hand out more than it tells of (CuPy's hooks are a thread's own). The
 * pool's block around addr becomes an arena that is kept: its live bytes are those of the pieces
 * that were told, but nothing is taken out of it, and it is spilled as a whole. Nothing happens
 * where no such block is. */
void ms_arenas_keep(ms_arenas_t *arenas, ms_addr_t addr);

/* A piece of a kept arena. Its allocation ends what was told to live there, whose free was missed;
 * the free of one that was not told is nothing. Pieces elsewhere are left out. */
ms_status_t ms_arenas_kept_allocated(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes,
                                     uint32_t site);
void ms_arenas_kept_freed(ms_arenas_t *arenas, ms_addr_t addr);

/* The pool freed this block: tensors that its owner never reported free end with it. */
void ms_arenas_block_gone(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes);

void ms_arenas_stats(ms_arenas_t *arenas, struct ms_arenas_stats *out);
bool ms_arenas_is_valid(ms_arenas_t *arenas, char *why, size_t why_bytes);

/* Calls act for the lock that arenas have without a pool: around fork. */
void ms_arenas_locks(ms_arenas_t *arenas, void (*act)(ms_lock_t *lock));

#endif
