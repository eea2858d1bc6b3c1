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

/* A chunk that so many times in a row came back and soon had to go again is held on the host. */
enum { MS_THRASH_RETURNS = 3 };

/* Chunks that could move, from the device (down) or from the host. The caller sets the first
 * four. */
struct ms_search {
    bool down;
    bool held_too;        /* include chunks held on the host because they came and went too often */
    ms_addr_t begin, end; /* the range that they lie in, at least in part */
    struct ms_victim *heap;
    size_t count, room;
    uint64_t bytes;       /* of all that it found */
    bool foretold;        /* next uses have been looked for */
    uint64_t coldest_use; /* the earliest last use of all that it found, as in choice.h */
};

/* How many bytes it finds. */
uint64_t ms_search_bytes(struct ms_pool *pool, struct ms_search *search) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Makes room in the pool's heap for all that it can find. */
void ms_search_begin(struct ms_pool *pool, struct ms_search *search) MS_REQUIRES(ms_growth_role);

/* Finds all of them, into the heap, the best one first. */
void ms_search_rank(struct ms_pool *pool, struct ms_search *search)
    MS_REQUIRES(ms_growth_role, ms_state_role);

/* The best chunks for `enough_bytes`, all together at most `limit_bytes`; *bytes: their size. With
 * `take` it takes them, linked by `next`, and free memory on them moves along; ms_search_finish
 * must follow, whether they moved or not. */
struct ms_chunk *ms_search_pick(struct ms_pool *pool, struct ms_search *search, bool take,
                                uint64_t enough_bytes, uint64_t limit_bytes, uint64_t *bytes)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Ends the move: frees of moved blocks continue, and free memory becomes what its backing says. */
void ms_search_finish(struct ms_pool *pool) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

#endif
