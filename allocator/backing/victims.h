/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks by rank, to take out of holes or to move. Growth lock. */
#ifndef MEMSHIM_ALLOCATOR_BACKING_VICTIMS_H
#define MEMSHIM_ALLOCATOR_BACKING_VICTIMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/space/block.h"
#include "allocator/space/segment.h"

/* A chunk that may be taken or moved, by rank: see victims.c. */
struct ms_victim {
    uint64_t rank;
    uint64_t next_use; /* the tick of its next use, for a spill or a promotion */
    bool behind_live;  /* begins right behind a live tensor's end */
    bool state;        /* for a spill or a promotion: only optimizer state lies on it */
    ms_addr_t addr;    /* of equals the lowest goes first, so that neighbours go together; 0: no
                          preference */
    struct ms_chunk *chunk;
    struct ms_range *live; /* a live block on it; null in a framework's reservation */
};

struct ms_victims {
    struct ms_victim *heap; /* room for the current search */
    size_t room;
};

enum { MS_RUN_CHUNKS = 64 };

/* Makes room for so many in pool->victims.heap, or for fewer if the host has no memory. */
void ms_victims_need(struct ms_pool *pool, size_t wanted);
void ms_victims_order(struct ms_victim *heap, size_t count);
/* Removes the best from an ordered heap that is not empty. */
struct ms_victim ms_victims_pop(struct ms_victim *heap, size_t *count);

/* For mapped chunks linked by `next`. The first sorts them. The second takes neighbours off the
 * front of a sorted list: at least one, and at most so many bytes. */
struct ms_chunk *ms_chunks_by_address(struct ms_chunk *list);
size_t ms_chunks_take_run(const struct ms_pool *pool, struct ms_chunk **list, uint64_t most_bytes,
                          struct ms_chunk *run[MS_RUN_CHUNKS]);

#endif
