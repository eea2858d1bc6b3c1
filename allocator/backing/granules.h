/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of each granule of a segment that holds tensors, and what arenas owe. State lock.
 */
#ifndef MEMSHIM_ALLOCATOR_BACKING_GRANULES_H
#define MEMSHIM_ALLOCATOR_BACKING_GRANULES_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/pool_state.h"
#include "allocator/space/segment.h"

/* A block, or a framework's reservation, with what its holes owe and whether they may be taken. */
struct ms_arena {
    ms_addr_t addr;
    uint64_t bytes;
    uint64_t id;          /* of its block; 0: a reservation */
    uint64_t reach_bytes; /* of a reservation: as in struct ms_candidate */
    uint64_t unbacked_bytes;
    bool frozen; /* nothing is taken out of it any more */
};

/* What is known of one granule of a segment that holds tensors. State lock. A granule is quiet when
 * it is an arena's, backed, not fresh, and touched by no live tensor: only such may be taken. */
struct ms_granule {
    struct ms_arena *arena; /* whose it wholly is; null: nobody's, or shared with other ranges */
    uint64_t since; /* by the clock. With live tensors: its last use, an allocation or one that was
                       told; without: when its last tensor was freed, 0: none ever touched it */
    uint64_t epoch : 48; /* when its last tensor was freed, or it became an arena's: work of earlier
                            epochs is known to be done up to ms_epochs.done */
    uint16_t ends_before;   /* live ones that end at most MS_OVERREAD_BYTES before it */
    uint32_t tensors;       /* live ones that touch it */
    uint32_t last_gap : 24; /* as in struct ms_candidate; as large as fits */
    bool asks : 1;          /* unbacked or on_host: a tensor on it needs backing */
    bool unbacked : 1;      /* an arena's, and nothing accessible behind it */
    bool pinned : 1;        /* its identity has left the process */
    bool refused : 1;       /* an allocation on it could not be backed: the program does not know */
    bool on_host : 1;       /* backed by the host; known where live memory is spilled */
    bool spanned : 1;       /* a hashed tensor reaches it that begins before it */
    bool fresh : 1;         /* of a page that a framework's request under way has made */
    bool states : 1;        /* all that touch it were optimizer state when it was looked for */
    uint64_t summary[4];    /* of the marks in it: see tensors.c */
};
_Static_assert(sizeof(struct ms_granule) == 64, "one line of the cache, for each granule");

#define MS_LONGEST_GAP ((1u << 24) - 1)

/* Kernels that read a little past their end exist: what begins so near behind a live tensor is
 * taken last. */
#define MS_OVERREAD_BYTES 4096u

/* Sees to it that the segment has granules. False: the host has no memory. */
bool ms_granules_need(struct ms_pool *pool, struct ms_segment *segment) MS_REQUIRES(ms_state_role);
void ms_granules_drop(struct ms_pool *pool, struct ms_segment *segment) MS_REQUIRES(ms_state_role);

/* An arena of the live block; null when the host is out of memory. */
struct ms_arena *ms_granules_arena(struct ms_pool *pool, struct ms_range *range)
    MS_REQUIRES(ms_state_role);

/* The slots become the arena's, backed where a chunk stands; and nobody's again. */
void ms_granules_enter(struct ms_pool *pool, struct ms_segment *segment, uint64_t from, uint64_t to,
                       struct ms_arena *arena, bool pinned) MS_REQUIRES(ms_state_role);
void ms_granules_leave(struct ms_pool *pool, struct ms_segment *segment, uint64_t from, uint64_t to)
    MS_REQUIRES(ms_state_role);

/* The slots become a fresh proxy's, or are that no more. */
void ms_granules_fresh(struct ms_pool *pool, struct ms_segment *segment, uint64_t from, uint64_t to,
                       bool fresh) MS_REQUIRES(ms_state_role);

/* The slots have got accessible backing, or have lost it. */
void ms_granules_backed(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                        uint64_t to) MS_REQUIRES(ms_state_role);
void ms_granules_unbacked(struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                          uint64_t to) MS_REQUIRES(ms_state_role);
/* Notes where the slots' chunk stands (null: nothing does). */
void ms_granules_place(const struct ms_pool *pool, struct ms_segment *segment, uint64_t from,
                       uint64_t to, const struct ms_chunk *chunk) MS_REQUIRES(ms_state_role);
void ms_granules_pin(struct ms_segment *segment, uint64_t from, uint64_t to, bool pinned)
    MS_REQUIRES(ms_state_role);

uint64_t ms_granules_unbacked_bytes(const struct ms_pool *pool, const struct ms_segment *segment,
                                    uint64_t from, uint64_t to) MS_REQUIRES(ms_state_role);

/* The slots that lie wholly in the range. */
void ms_granules_inside(const struct ms_pool *pool, const struct ms_segment *segment,
                        ms_addr_t addr, uint64_t bytes, uint64_t *from, uint64_t *to)
    MS_REQUIRES(ms_state_role);

/* What framework allocators align to: 512 (PyTorch, CuPy) or 256 bytes (RMM, XLA). */
#define MS_TENSOR_UNIT_BYTES 256u

/* Marks: a bit for the unit that a tensor begins in, one for its last. Words of them in a granule:
 */
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
