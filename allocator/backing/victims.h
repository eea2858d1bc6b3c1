/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks by rank, for what is taken out of holes or moved. Growth lock. */
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
    uint64_t next_use; /* the tick of it, where something is to be spilled or promoted */
    bool behind_live;  /* begins right behind a live tensor's end */
    bool state;        /* of what is spilled or promoted: only optimizer state lies on it */
    ms_addr_t addr;    /* of equals the lowest goes first, so that neighbours do; 0: all the same */
    struct ms_chunk *chunk;
    struct ms_range *live; /* one that lies on it; null in a framework's reservation */
};

struct ms_victims {
    struct ms_victim *heap; /* room for the search under way */
    size_t room;
};

enum { MS_RUN_CHUNKS = 64 };

/* Room for so many in pool->victims.heap; less where the host has no memory. */
void ms_victims_need(struct ms_pool *pool, size_t wanted);
void ms_victims_order(struct ms_victim *heap, size_t count);
/* Takes the best out of an ordered heap that is not empty. */
struct ms_victim ms_victims_pop(struct ms_victim *heap, size_t *count);

/* Mapped chunks linked by `next`: sorts them; takes neighbours off the front of a sorted list, one
 * at least and together at most so many bytes. */
struct ms_chunk *ms_chunks_by_address(struct ms_chunk *list);
size_t ms_chunks_take_run(const struct ms_pool *pool, struct ms_chunk **list, uint64_t most_bytes,
                          struct ms_chunk *run[MS_RUN_CHUNKS]);

#endif
