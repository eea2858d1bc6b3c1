/* SPDX-License-Identifier: Apache-2.0 */
/* Obligations: the backing that holes must get again when a framework fills them, and what covers
 * it: bytes earmarked in the budget, and host chunks set aside. Growth lock held, state lock not.
 */
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
    _Atomic uint64_t earmarked_bytes;
    bool uncovered MS_GUARDED_BY(ms_growth_role); /* see ms_obligations_cover */
    bool no_host MS_GUARDED_BY(ms_growth_role);   /* the device cannot reach host chunks */
};

/* Charges a chunk of `bytes`: for a tensor, from the earmarked bytes first. False: no room. */
bool ms_obligations_charge(struct ms_pool *pool, uint64_t bytes, bool for_tensor)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);
/* A chunk of `bytes` is gone. Its room is earmarked where obligations lack cover, else free. */
void ms_obligations_discharge(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Covers `bytes` of obligations to come: from the budget, or, without `budget`, from host chunks
 * alone. MS_ERR_NO_MEMORY: there is not enough; ms_obligations_settle gives the rest back. */
ms_status_t ms_obligations_secure(struct ms_pool *pool, uint64_t bytes, bool budget)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Backing was lost, and is an obligation from now on. It is covered now, or by a later
 * ms_obligations_settle. */
void ms_obligations_cover(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Replaces up to `bytes` earmarked in the budget by host chunks; returns what became free. */
uint64_t ms_obligations_to_host(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* A host chunk for a place of `bytes`, of at most that size, beyond what covers holes: of the
 * reserve, or a new one. It is in no list. MS_ERR_NO_MEMORY: there is none to be had. */
ms_status_t ms_obligations_host_chunk(struct ms_pool *pool, uint64_t bytes, struct ms_chunk **out)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* How much could still be covered by host chunks, or spilled to them. */
uint64_t ms_obligations_host_room(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Called at the end of each operation that may have changed obligations or their cover. Covers what
 * is not covered, where it can; else a later call does. Gives back cover that is not needed. */
void ms_obligations_settle(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* By how much charged and earmarked bytes have passed the limit. */
uint64_t ms_obligations_overshoot(const struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
/* The earmarked bytes that are below the limit. */
uint64_t ms_obligations_room(const struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

#endif
