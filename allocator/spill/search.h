/* SPDX-License-Identifier: Apache-2.0 */
/* Which chunks behind live memory could move to the host, or back. Growth lock held. */
#ifndef MEMSHIM_ALLOCATOR_SPILL_SEARCH_H
#define MEMSHIM_ALLOCATOR_SPILL_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/backing/victims.h"
#include "allocator/base/locks/lock_annotations.h"
#include "allocator/space/block.h"

/* A chunk that came back soon, and had to go again, so many times on end is held on the host. */
enum { MS_THRASH_RETURNS = 3 };

/* Chunks that could be moved, from the device (down) or from the host. Its user sets the first
 * four. */
struct ms_search {
    bool down;
    bool held_too;        /* also what stays where it is because it came and went too often */
    ms_addr_t begin, end; /* where they lie, in part at least */
    struct ms_victim *heap;
    size_t count, room;
    uint64_t bytes;       /* of all that were found */
    bool foretold;        /* next uses have been looked for */
    uint64_t coldest_use; /* of all that were found: the earliest last use, as in choice.h */
};

/* How much it finds. */
uint64_t ms_search_bytes(struct ms_pool *pool, struct ms_search *search) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Room in the pool's heap for all that it can find. */
void ms_search_begin(struct ms_pool *pool, struct ms_search *search) MS_REQUIRES(ms_growth_role);

/* Finds all, in the heap, the best one first. */
void ms_search_rank(struct ms_pool *pool, struct ms_search *search)
    MS_REQUIRES(ms_growth_role, ms_state_role);

/* The best for `enough_bytes`, all together at most `limit_bytes`; *bytes: how much that is. With
 * `take` they are taken, linked by `next`, and what is free on them goes along: ms_search_finish is
 * called when they have moved, or not. */
struct ms_chunk *ms_search_pick(struct ms_pool *pool, struct ms_search *search, bool take,
                                uint64_t enough_bytes, uint64_t limit_bytes, uint64_t *bytes)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* The move is over: frees of blocks that it moved go on, and free memory is what stands behind
 * it. */
void ms_search_finish(struct ms_pool *pool) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

#endif
