/* Tensors inside blocks: what a framework's own allocator tells of the ranges it hands out.
 *
 * One per device, beside its pool. A range lies in a block of the pool, which becomes an arena at
 * its first reported birth, or in memory that the program mapped itself. Thread-safe, one short
 * lock, no device calls. */
#ifndef MEMSHIM_ALLOCATOR_ARENA_H
#define MEMSHIM_ALLOCATOR_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/pool.h"

typedef struct ms_arenas ms_arenas_t;

struct ms_arenas_stats {
    uint64_t live_tensors;
    uint64_t live_bytes;
    uint64_t peak_live_bytes;
    uint64_t births, deaths;
    uint64_t invalid_reports; /* answered with MS_ERR_INVALID */
    bool mismatched; /* the framework's own total once differed from our sum; set for good */
};

/* pool may be null (MEMSHIM_POOL=off). */
ms_status_t ms_arenas_create(uint8_t device, ms_pool_t *pool, struct ms_event_sink sink,
                             ms_arenas_t **out);
void ms_arenas_destroy(ms_arenas_t *arenas);

/* A range was born or died. total_bytes is the framework's own sum of live bytes on this device
 * after the report (UINT64_MAX: it does not say). MS_ERR_INVALID: a birth over a live range, a
 * death of an unknown one; noted in the statistics, harmless. MS_ERR_NOT_READY, once: this report
 * is the first whose total differs from our sum. */
ms_status_t ms_arenas_born(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes, uint32_t site,
                           uint64_t total_bytes);
ms_status_t ms_arenas_died(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes,
                           uint64_t total_bytes);

/* The pool freed this block: tensors that its owner never reported dead die with it. */
void ms_arenas_block_gone(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes);

void ms_arenas_stats(ms_arenas_t *arenas, struct ms_arenas_stats *out);
bool ms_arenas_is_valid(ms_arenas_t *arenas, char *why, size_t why_bytes);

void ms_arenas_fork_prepare(ms_arenas_t *arenas);
void ms_arenas_fork_parent(ms_arenas_t *arenas);
void ms_arenas_fork_child(ms_arenas_t *arenas);

#endif
