/* SPDX-License-Identifier: Apache-2.0 */
/* Views: a partly used chunk mapped a second time, at another address, for its free bytes.
 *
 * A large block that begins or ends within a chunk leaves the rest of it free, and only a neighbour
 * can use that. If both neighbours live and the gap is too short, the rest is lost. A view uses it
 * elsewhere: the new block gets fresh addresses, its first or last granule (or both) maps such a
 * chunk a second time, and between them lie whole chunks.
 *
 *   first place    |XXXXXXXXXXXX........|            X: a live block
 *   the view                   |........VVVVVVVV|VVVVVVVV|...
 *
 * The rules:
 *   - A chunk of one granule is mapped at two places at most, and cut at one offset: the bytes
 *     before it belong to one place, those behind it to the other. At each place a lent range
 *     (MS_RANGE_LENT) covers what is the other's, so that no byte can be handed out twice, no
 *     chunk with a view is ever wholly free, and none is moved, spilled or taken.
 *   - Bytes go over to the other place only when the host has seen all work on them complete: they
 *     are idle when a view is made, and again when it is given back.
 *   - Either place is given back alone, when all its bytes are idle: it becomes a hole, and its
 *     bytes are the other's. That happens when memory is needed; until then a freed view stands
 *     ready for the next block of its size.
 *   - No view of a chunk that something pinned lies on; none while anything captures; none of
 *     arenas' chunks and of a framework's pages, in which blocks are not placed.
 *   - The budget is charged for a chunk once, however often it is mapped.
 *
 * The ladder makes views when neither idle chunks nor holes serve, and before it waits for anything
 * (ladder.c). The figures of the twelve jobs of tests/traces (memshim replay --mode tensor
 * --min-cap, smallest cap over peak live bytes):
 *
 *   no views                                                          at most 1.0079, median 1.0048
 *   where nothing else serves, all edges                                      1.0074         1.0042
 *   as soon as chunks have to move, all edges                                 1.0074         1.0037
 *
 * On other recordings the last variant needs more memory than no views (1.0196 for 1.0173, 1.0096
 * for 1.0087): an early view keeps chunks from being wholly free. A view made where nothing else
 * serves cannot need more. With it ten of the twelve need one or two chunks less, and none more;
 * the remaining free bytes lie between small blocks and in edges that no request fits. It costs
 * calls: at those caps a mixture of experts unmaps 5,420 times instead of 2,672.
 *
 * An option, off by default (ms_pool_config.views): CUDA documents that one chunk may be mapped at
 * several addresses, and that writes through one are seen through the others when the operation
 * that wrote is complete; for disjoint bytes written at the same time it promises no
 * granularity. */
#ifndef MEMSHIM_ALLOCATOR_BACKING_VIEWS_H
#define MEMSHIM_ALLOCATOR_BACKING_VIEWS_H

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/pool_state.h"

/* The free end of one chunk, or the free beginning of another: where a block may begin or end. */
struct ms_view_piece {
    struct ms_range *range; /* idle; the piece lies in it */
    ms_addr_t addr;
    uint64_t bytes; /* 0: the block has no such edge */
};

struct ms_view_plan {
    struct ms_range *hole; /* source of the block's whole granules */
    uint64_t chunks;       /* whole ones, between the edges */
    struct ms_view_piece head, tail;
};

/* One edge of a block under way. */
struct ms_view_edge {
    struct ms_range *lent;   /* the part that the first place lends; null: the block has no such
                                edge */
    struct ms_range *beside; /* the part of the new granule that stays the first place's */
    struct ms_chunk *twin;   /* the new mapping; null: not yet */
};

struct ms_view {
    struct ms_range *block; /* busy */
    struct ms_view_edge head, tail;
    uint64_t bytes; /* of the chunks between the edges */
};

/* Plans a request of `bytes` on fewer than `most` chunks that no live block touches yet. False:
 * impossible, or not now. State lock. */
bool ms_view_find(struct ms_pool *pool, uint64_t bytes, uint64_t most, struct ms_view_plan *out)
    MS_REQUIRES(ms_state_role);

/* Makes the plan's ranges busy. False: the host is out of memory, nothing changed. State lock. */
bool ms_view_claim(struct ms_pool *pool, const struct ms_view_plan *plan, struct ms_view *out)
    MS_REQUIRES(ms_state_role);

/* Maps the edges and backs what is between them, with chunks of one granule. On failure it undoes
 * all, as ms_backing_fill does, and gives the claim up. Growth lock held, state lock not. */
ms_status_t ms_view_back(struct ms_pool *pool, struct ms_view *view) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Gives up the claim before anything was mapped. Growth lock held, state lock not. */
void ms_view_give_up(struct ms_pool *pool, struct ms_view *view) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Gives back every place whose bytes are idle; true if there was one. Does nothing while anything
 * captures. Growth lock held, state lock not. */
bool ms_views_return(struct ms_pool *pool) MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

#endif
