/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a pool's tensors, for arena.c, which changes it, and arena_check.c, which checks it.
 */
#ifndef MEMSHIM_ALLOCATOR_ARENAS_ARENAS_STATE_H
#define MEMSHIM_ALLOCATOR_ARENAS_ARENAS_STATE_H

#include "allocator/arenas/arena.h"
#include "allocator/arenas/tensors.h"
#include "allocator/pool_state.h"

struct ms_arenas {
    uint8_t device;
    ms_pool_t *pool;                  /* null: there is none */
    const struct ms_event_sink *sink; /* the pool's; without a pool its own */
    struct ms_event_sink own_sink;
    ms_lock_t *lock; /* the pool's state lock; without a pool its own */
    ms_lock_t own_lock;
    struct ms_segment *recent; /* the segment of the last report */
    bool distrusted;           /* nothing relies on the reports any more. Growth lock */
    struct ms_tensors tensors;
    struct ms_tensors asleep; /* what the program unmapped under their owner */
    uint64_t asleep_bytes;
    uint64_t next_id, end_id;
    struct ms_arenas_stats stats;
};

/* With a pool their lock is the pool's state lock; without, one that stands for it. Clang does not
 * analyse these: it would see another lock than the role. */
static inline void ms_arenas_acquire_at(struct ms_arenas *arenas, const char *place)
    MS_ACQUIRE(ms_state_role) MS_NO_THREAD_SAFETY
{
    ms_lock_acquire_at(arenas->lock, place);
}

static inline void ms_arenas_release(struct ms_arenas *arenas)
    MS_RELEASE(ms_state_role) MS_NO_THREAD_SAFETY
{
    ms_lock_release(arenas->lock);
}

#define ms_arenas_acquire(arenas) ms_arenas_acquire_at((arenas), MS_PLACE)

/* The slots [*from, *to) that the tensor touches. */
static inline void ms_tensor_slots(const struct ms_segment *segment, ms_addr_t addr, uint64_t bytes,
                                   uint64_t *from, uint64_t *to)
{
    unsigned shift = segment->granule_shift;
    *from = (addr - segment->base) >> shift;
    *to = ((addr - segment->base + bytes - 1) >> shift) + 1;
}

#endif
