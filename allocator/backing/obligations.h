/* SPDX-License-Identifier: Apache-2.0 */
/* Obligations: the backing that holes need when a framework fills them again, and its cover: bytes
 * earmarked in the budget, and host chunks set aside. Growth lock held, state lock not. */
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
    /* This pool's part of the budget's. Changed under the growth lock, read without it, too. */
    _Atomic uint64_t earmarked_bytes;
    bool uncovered MS_GUARDED_BY(ms_growth_role); /* see ms_obligations_cover */
    bool no_host MS_GUARDED_BY(ms_growth_role);   /* the device cannot reach host chunks */
};

/* Charges a chunk of `bytes`; for a tensor it uses earmarked bytes first. False: no room. */
bool ms_obligations_charge(struct ms_pool *pool, uint64_t bytes, bool for_tensor)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);
/* Discharges a chunk of `bytes`. Earmarks its room if obligations lack cover. */
void ms_obligations_discharge(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Covers `bytes` of obligations to come: from the budget, or, without `budget`, by host chunks
 * alone. MS_ERR_NO_MEMORY: there is not enough; ms_obligations_settle gives the rest back. */
ms_status_t ms_obligations_secure(struct ms_pool *pool, uint64_t bytes, bool budget)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Covers an obligation that arose because backing was lost; else a later ms_obligations_settle
 * does. */
void ms_obligations_cover(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Replaces up to `bytes` of earmarked budget by host chunks; returns the bytes freed. */
uint64_t ms_obligations_to_host(struct ms_pool *pool, uint64_t bytes) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Gets a host chunk of at most `bytes` for a place, beyond those that cover holes: from the
 * reserve, or a new one. It is in no list. MS_ERR_NO_MEMORY: there is none. */
ms_status_t ms_obligations_host_chunk(struct ms_pool *pool, uint64_t bytes, struct ms_chunk **out)
    MS_REQUIRES(ms_growth_role) MS_EXCLUDES(ms_state_role);

/* Bytes that host chunks could still cover, or that could be spilled to them. */
uint64_t ms_obligations_host_room(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* Called at the end of each operation that may have changed obligations or their cover. Covers what
 * it can; a later call covers the rest. Gives back cover that is not needed. */
void ms_obligations_settle(struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

/* By how much charged and earmarked bytes pass the limit. */
uint64_t ms_obligations_overshoot(const struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);
/* The earmarked bytes below the limit. */
uint64_t ms_obligations_room(const struct ms_pool *pool) MS_REQUIRES(ms_growth_role)
    MS_EXCLUDES(ms_state_role);

#endif
