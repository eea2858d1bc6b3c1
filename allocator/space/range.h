/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges: the parts that tile a segment, and the sets that find them.
 *
 * Ranges cover a segment's addresses without gap, linked in address order. A range is live (a
 * block), free (backed, ready for a request), a hole (no backing, last use known to be done), busy
 * (the holder of the growth lock is changing its backing), stuck (a device call that must not fail
 * did: unusable for good), draining (a freed arena's range on host memory, where no block may go),
 * foreign (all of a framework's own reservation) or lent (bytes that a chunk's other mapping uses:
 * see views.h). The pool's state lock covers all of this. */
#ifndef MEMSHIM_ALLOCATOR_SPACE_RANGE_H
#define MEMSHIM_ALLOCATOR_SPACE_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/containers/treap.h"
#include "allocator/device/device_ops.h"

enum ms_range_state {
    MS_RANGE_LIVE,
    MS_RANGE_FREE,
    MS_RANGE_HOLE,
    MS_RANGE_BUSY,
    MS_RANGE_STUCK,
    MS_RANGE_DRAINING,
    MS_RANGE_FOREIGN,
    MS_RANGE_LENT
};

/* The state of the holes of a block, or of a framework's reservation. */
struct ms_arena {
    ms_addr_t addr;
    uint64_t bytes;
    uint64_t id;              /* of its block; 0: a reservation */
    struct ms_holder *holder; /* of its block; null: none */
    uint64_t reach_bytes;     /* of a reservation: as in struct ms_candidate */
    uint64_t unbacked_bytes;  /* the obligation */
    bool frozen;              /* nothing is taken out of it any more */
};

struct ms_range {
    ms_addr_t addr;               /* a multiple of MS_BLOCK_ALIGNMENT_BYTES */
    uint64_t bytes;               /* likewise; for a block, the bytes set aside */
    struct ms_range *prev, *next; /* neighbours by address in the segment; null at its ends */
    struct ms_segment *segment;
    uint8_t state; /* enum ms_range_state */
    bool arena : 1;
    bool pinned : 1;
    bool marked : 1;
    bool mixed : 1; /* a block: part of it may have other backing than device memory, or none */
    bool kept : 1;  /* an arena out of whose holes nothing is taken: see ms_arenas_keep */
    bool holed : 1; /* a block whose holes have a state, which then has its holder, too */
    /* Of a block: the value of the id counter at its last recorded use; less than its id: none. The
     * value may be left from an earlier block. Ids fit into 48 bits. */
    uint16_t used_above; /* the bits above used_below */
    uint32_t used_below;
    union {
        struct {
            struct ms_range *index_next;
            uint64_t id;
            ms_stream_t stream;
            union { /* few blocks are arenas: ms_range_holder, ms_range_holes */
                struct ms_holder *holder;
                struct ms_arena *holes; /* if holed */
            };
            uint32_t site;
            uint32_t spare_bytes; /* set aside and not asked for */
        } live;
        struct {
            struct ms_range *next, *prev;
            uint64_t epoch; /* of its free: see struct ms_granule */
        } draining;
        struct {
            struct ms_batch *batch; /* the batch whose fence it waits for; null: known to be done */
            struct ms_range *batch_prev, *batch_next;
            union {
                struct ms_treap_node node; /* for a large free range, or a hole */
                struct {
                    struct ms_range *bin_prev, *bin_next; /* for a small one */
                };
            };
        } free;
    };
};

_Static_assert(sizeof(struct ms_range) == 88, "a million of them may live");

static inline uint64_t ms_range_asked_bytes(const struct ms_range *range)
{
    return range->bytes - range->live.spare_bytes;
}

/* Of a block. Null: it has none. */
static inline struct ms_arena *ms_range_holes(const struct ms_range *range)
{
    return range->holed ? range->live.holes : NULL;
}

static inline struct ms_holder *ms_range_holder(const struct ms_range *range)
{
    return range->holed ? range->live.holes->holder : range->live.holder;
}

static inline uint64_t ms_range_used(const struct ms_range *range)
{
    return (uint64_t)range->used_above << 32 | range->used_below;
}

static inline void ms_range_note_use(struct ms_range *range, uint64_t next_id)
{
    range->used_above = (uint16_t)(next_id >> 32);
    range->used_below = (uint32_t)next_id;
}

/* Live blocks by the address they begin at: a hash table that grows by one bucket at a time (linear
 * hashing), so that no single insertion pays for the size of the table. */
enum { MS_INDEX_DIRECTORY = 40, MS_INDEX_FIRST_BUCKETS = 512 };

struct ms_block_index {
    struct ms_range *
        *directory[MS_INDEX_DIRECTORY]; /* [0]: the first buckets; [k]: as many again */
    uint64_t buckets;
    uint64_t power; /* of two, the largest that is <= buckets */
    uint64_t entries;
};

/* False when the host is out of memory. */
bool ms_index_init(struct ms_block_index *index);
void ms_index_destroy(struct ms_block_index *index);
void ms_index_insert(struct ms_block_index *index, struct ms_range *range);

/* The block that begins at addr; null: there is none. `take` also removes it. */
struct ms_range *ms_index_find(const struct ms_block_index *index, ms_addr_t addr);
struct ms_range *ms_index_take(struct ms_block_index *index, ms_addr_t addr);

/* Blocks of different sizes lie apart: see place.c. All of a segment belongs to one region. */
enum ms_region { MS_REGION_LARGE, MS_REGION_SMALL, MS_REGION_TINY, MS_REGIONS };

/* Free ranges of one order and region, by size. Up to MS_BIN_LIMIT_BYTES there is one list for each
 * possible size (a bitmap finds the next one in use); above, a tree by size and address. So the
 * best fit is exact. */
enum { MS_BIN_COUNT = 2048 };
#define MS_BIN_LIMIT_BYTES ((uint64_t)MS_BIN_COUNT * 512u)

struct ms_bins {
    uint32_t summary; /* bit w: map[w] is not zero */
    uint64_t map[MS_BIN_COUNT / 64];
    struct ms_range *head[MS_BIN_COUNT]; /* [i]: ranges of (i + 1) x 512 bytes */
    struct ms_treap_node *large;
};

/* An empty set is all zeros. */
void ms_bins_insert(struct ms_bins *bins, struct ms_range *range);
void ms_bins_remove(struct ms_bins *bins, struct ms_range *range);

/* The smallest range of at least `bytes`, not removed; among large ones of equal size the lowest.
 * Null: there is none. */
struct ms_range *ms_bins_best(const struct ms_bins *bins, uint64_t bytes);

/* The largest range; null in an empty set. */
struct ms_range *ms_bins_largest(const struct ms_bins *bins);

/* Trees of ranges by size, then address; null-safe, as ms_treap_* are. */
void ms_range_tree_insert(struct ms_treap_node **root, struct ms_range *range);
void ms_range_tree_remove(struct ms_treap_node **root, struct ms_range *range);
struct ms_range *ms_range_tree_at_least(struct ms_treap_node *root, uint64_t bytes, ms_addr_t addr);
struct ms_range *ms_range_tree_last(struct ms_treap_node *root);

/* The neighbours of a member in the order of its tree; null at the ends. */
struct ms_range *ms_range_tree_after(struct ms_treap_node *root, const struct ms_range *range);
struct ms_range *ms_range_tree_before(struct ms_treap_node *root, const struct ms_range *range);

#endif
