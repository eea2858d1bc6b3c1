/* SPDX-License-Identifier: Apache-2.0 */
/* Obligations: what holes are owed, and what covers it. Growth lock held, state lock not. */
#ifndef MEMSHIM_ALLOCATOR_BACKING_OBLIGATIONS_H
#define MEMSHIM_ALLOCATOR_BACKING_OBLIGATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/base/status.h"
#include "allocator/space/block.h"

struct ms_chunk;

struct ms_obligations {
    struct ms_chunk *reserve MS_GUARDED_BY(ms_growth_role); /* host chunks, mapped nowhere */
    /* Our part of the budget's. Changed under the growth lock, read without it, too. */
    _Atomic uint64_t promised_bytes;
    bool uncovered MS_GUARDED_BY(ms_growth_role); /* see ms_obligations_cover */
    bool no_host MS_GUARDED_BY(ms_growth_role);   /* the device cannot reach host chunks */
};

/* Room for a chunk of `bytes` in the budget: for a tensor, from what is kept for holes first. */
bool ms_obligations_charge(struct ms_pool *pool, uint64_t bytes, bool for_tensor)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);
/* The chunk is gone; its room goes to holes that are owed more than is promised, else to all. */
void ms_obligations_discharge(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Cover for `bytes` that will be owed from now on: from the budget, or, without `budget`, from host
 * chunks alone. MS_ERR_NO_MEMORY: there is not enough; ms_obligations_settle gives the rest back.
 */
ms_status_t ms_obligations_secure(struct ms_pool *pool, uint64_t bytes, bool budget)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Backing is gone that was not given up: what is owed for it is covered now, or by a later
 * ms_obligations_settle. */
void ms_obligations_cover(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Replaces up to `bytes` promised in the budget by host chunks; returns what became free. */
uint64_t ms_obligations_to_host(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* A host chunk for a place of `bytes`, of at most that size, beyond what covers holes: of the
 * reserve, or a new one. It is in no list. MS_ERR_NO_MEMORY: there is none to be had. */
ms_status_t ms_obligations_host_chunk(struct ms_pool *pool, uint64_t bytes, struct ms_chunk **out)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* How much could still be covered by host chunks, or spilled to them. */
uint64_t ms_obligations_host_room(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* At the end of each operation that may have changed what is owed or what covers it: covers what is
 * not covered, if need be with a later call, and gives back what covers more than is owed. */
void ms_obligations_settle(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* By how much what is charged and promised has passed the limit; and what is promised below it. */
uint64_t ms_obligations_overshoot(const struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
uint64_t ms_obligations_room(const struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

#endif
