/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors inside blocks, as a framework's own allocator reports the ranges that it hands out.
 *
 * One per device, beside its pool. A range lies in a block of the pool, which becomes an arena at
 * its first reported tensor, in a proxy (proxy.h), or in memory that the program mapped itself.
 *
 * When memory is short the pool takes chunks out of an arena's holes, so an allocation may have to
 * back its range again before it returns: only then does it call the device. The first allocation
 * in an arena while a stream captures freezes the arena: nothing is taken out of it any more. The
 * first total that differs from our sum freezes all arenas, and all holes are backed. Thread-safe;
 * takes the pool's state lock. */
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
    uint64_t frozen_arenas;   /* ever: something was allocated in them during a capture */
    uint64_t kept_arenas;     /* ever */
    uint64_t invalid_reports; /* answered with MS_ERR_INVALID */
    bool mismatched;          /* for good: the framework's own total once differed from our sum */
};

/* pool may be null (MEMSHIM_POOL=off): then events go to `sink`. With a pool they go to the pool's
 * sink. */
ms_status_t ms_arenas_create(uint8_t device, ms_pool_t *pool, struct ms_event_sink sink,
                             ms_arenas_t **out);
void ms_arenas_destroy(ms_arenas_t *arenas);

/* A tensor was allocated or freed. total_bytes is the framework's own sum of live bytes on this
 * device after the report (UINT64_MAX: unknown). MS_ERR_INVALID: an allocation over a live range,
 * or a free of an unknown one; the statistics count it, and nothing is taken any more.
 * MS_ERR_NOT_READY, once: this report is the first whose total differs from our sum.
 * MS_ERR_NO_MEMORY: part of the range could not be backed, not even by host memory; or the host has
 * no memory for the tensor's entry, and then nothing is taken any more either. Any other status is
 * the device's. An allocation that host memory backs is MS_OK, and the pool's statistics count
 * it. */
ms_status_t ms_arenas_allocated(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes, uint32_t site,
                                uint64_t total_bytes);
ms_status_t ms_arenas_freed(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes,
                            uint64_t total_bytes);

/* For an allocator that may hand out more than it reports (CuPy's hooks belong to one thread). The
 * pool's block around addr becomes an arena that is kept: its live bytes are those of the reported
 * pieces, but nothing is taken out of it, and it is spilled as a whole. Does nothing without such a
 * block. */
void ms_arenas_keep(ms_arenas_t *arenas, ms_addr_t addr);

/* Reports a piece of a kept arena. An allocation ends pieces that still live in its range: their
 * free was missed. Ignores the free of an unreported piece, and pieces elsewhere. */
ms_status_t ms_arenas_kept_allocated(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes,
                                     uint32_t site);
void ms_arenas_kept_freed(ms_arenas_t *arenas, ms_addr_t addr);

/* The program unmapped a range that it had mapped itself: what lives there sleeps. Its owner counts
 * it on, but it is not live, until the program maps the range again. */
void ms_arenas_unmapped(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes);
void ms_arenas_mapped(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes);

/* The pool freed this block: tensors whose free its owner never reported end with it. */
void ms_arenas_block_gone(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes);

void ms_arenas_stats(ms_arenas_t *arenas, struct ms_arenas_stats *out);
bool ms_arenas_is_valid(ms_arenas_t *arenas, char *why, size_t why_bytes);

/* Calls act on the lock that arenas have without a pool: around fork. */
void ms_arenas_locks(ms_arenas_t *arenas, void (*act)(ms_lock_t *lock));

#endif
