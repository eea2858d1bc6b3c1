/* SPDX-License-Identifier: Apache-2.0 */
/* The state of each granule of a segment that holds tensors, and the obligations of arenas. State
 * lock. */
#ifndef MEMSHIM_ALLOCATOR_BACKING_GRANULES_H
#define MEMSHIM_ALLOCATOR_BACKING_GRANULES_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/pool_state.h"
#include "allocator/space/segment.h"

/* The state of one granule of a segment that holds tensors. State lock. A granule is quiet when it
 * is an arena's, backed, not fresh, and touched by no live tensor: only quiet granules may be
 * taken. */
struct ms_granule {
    struct ms_arena *arena; /* the arena that all of it belongs to; null: none, or shared with other
                               ranges */
    uint64_t since; /* by the clock. With live tensors: its last use (an allocation or a reported
                       one); without: when its last tensor was freed, 0: none ever touched it */
    uint64_t epoch : 48; /* when its last tensor was freed, or it became an arena's. Earlier epochs'
                            work is known to be done up to ms_epochs.done */
    uint16_t ends_before;   /* live ones that end at most MS_OVERREAD_BYTES before it */
    uint32_t tensors;       /* live ones that touch it */
    uint32_t last_gap : 24; /* as in struct ms_candidate; as large as fits */
    bool asks : 1;          /* unbacked or on_host: a tensor on it needs backing */
    bool unbacked : 1;      /* an arena's, without accessible backing */
    bool pinned : 1;        /* its identity has left the process */
    bool refused : 1;       /* an allocation on it could not be backed, and the program does not
                               know */
    bool on_host : 1;       /* backed by the host; kept only if live memory is spilled */
    bool spanned : 1;       /* a hashed tensor that begins before it reaches into it */
    bool fresh : 1;         /* of a page that a framework's current request made */
    bool states : 1;        /* only optimizer state touched it when last computed */
    uint64_t summary[4];    /* of the marks in it: see tensors.c */
};
_Static_assert(sizeof(struct ms_granule) == 64, "one line of the cache, for each granule");

#define MS_LONGEST_GAP ((1u << 24) - 1)

/* Some kernels read a little past their end: a range that begins this close behind a live tensor is
 * taken last. */
#define MS_OVERREAD_BYTES 4096u

/* Makes sure that the segment has granules. False: the host has no memory. */
bool ms_granules_need(struct ms_pool *pool, struct ms_segment *segment) MS_REQUIRES(ms_state_role);
void ms_granules_drop(struct ms_pool *pool, struct ms_segment *segment) MS_REQUIRES(ms_state_role);

/* Makes an arena of the live block; null: the host has no memory. */
struct ms_arena *ms_granules_arena(struct ms_pool *pool, struct ms_range *range)
    MS_REQUIRES(ms_state_role);

/* Gives the slots to the arena, backed wherever a chunk stands; takes them from it. */
void ms_granules_enter(struct ms_pool *pool, struct ms_segment *segment, uint64_t from, uint64_t to,
                       struct ms_arena *arena, bool pinned) MS_REQUIRES(ms_state_role);
void ms_granules_leave(struct ms_pool *pool, struct ms_segment *segment, uint64_t from, uint64_t to)
    MS_REQUIRES(ms_state_role);

/* Marks the slots as a fresh proxy's, or as no longer that. */
void ms_granules_fresh(struct ms_pool *pool, struct ms_segment *segment, uint64_t from, uint64_t to,
                       bool fresh) MS_REQUIRES(ms_state_role);

/* Notes that the slots got or lost accessible backing. */
void ms_granules_backed(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                        uint64_t to) MS_REQUIRES(ms_state_role);
void ms_granules_unbacked(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                          uint64_t to) MS_REQUIRES(ms_state_role);
/* Notes where the slots' chunk is (null: nothing backs them). */
void ms_granules_place(const struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                       uint64_t to, const struct ms_chunk *chunk) MS_REQUIRES(ms_state_role);
void ms_granules_pin(struct ms_segment *segment, uint64_t from, uint64_t to, bool pinned)
    MS_REQUIRES(ms_state_role);

uint64_t ms_granules_unbacked_bytes(const struct ms_pool *pool, const struct ms_segment *segment,
                                    uint64_t from, uint64_t to) MS_REQUIRES(ms_state_role);

/* The slots that lie wholly in these bytes of the segment. */
void ms_granules_inside(const struct ms_pool *pool, const struct ms_segment *segment,
                        ms_addr_t addr, uint64_t bytes, uint64_t *from, uint64_t *to)
    MS_REQUIRES(ms_state_role);

/* Likewise, of an arena's range. */
static inline void ms_granules_inside_range(const struct ms_pool *pool,
                                            const struct ms_range *range, uint64_t *from,
                                            uint64_t *to) MS_REQUIRES(ms_state_role)
{
    ms_granules_inside(pool, range->segment, range->addr, range->bytes, from, to);
}

/* The alignment of framework allocators: 512 (PyTorch, CuPy) or 256 bytes (RMM, XLA). */
#define MS_TENSOR_UNIT_BYTES 256u

/* Marks: a bit for the unit that a tensor begins in, one for its last unit. Their words in a
 * granule: */
static inline uint64_t ms_marks_words(uint64_t granule_bytes)
{
    return granule_bytes / MS_TENSOR_UNIT_BYTES * 2 / 64;
}

static inline bool ms_quiet_test(const struct ms_segment *segment, uint64_t slot)
{
    return (segment->quiet[slot / 64] >> (slot % 64) & 1) != 0;
}

static inline void ms_quiet_set(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot)
    MS_REQUIRES(ms_state_role)
{
    segment->quiet[slot / 64] |= (uint64_t)1 << (slot % 64);
    pool->count.quiet_granules++;
}

static inline void ms_quiet_clear(struct ms_pool *pool, struct ms_segment *segment, uint64_t slot)
    MS_REQUIRES(ms_state_role)
{
    if (ms_quiet_test(segment, slot)) {
        segment->quiet[slot / 64] &= ~((uint64_t)1 << (slot % 64));
        pool->count.quiet_granules--;
    }
}

#endif
