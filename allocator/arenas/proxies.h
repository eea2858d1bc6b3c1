/* SPDX-License-Identifier: Apache-2.0 */
/* All proxies of a pool, for code inside the pool; proxy.h has the functions on one proxy. */
#ifndef MEMSHIM_ALLOCATOR_ARENAS_PROXIES_H
#define MEMSHIM_ALLOCATOR_ARENAS_PROXIES_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/containers/slab.h"
#include "allocator/base/locks/lock_annotations.h"
#include "allocator/space/block.h"
#include "allocator/space/segment.h"

struct ms_proxies {
    struct ms_slab slab MS_GUARDED_BY(ms_growth_role);
    struct ms_proxy *first MS_GUARDED_BY(ms_growth_role); /* all proxies */
    struct ms_proxy *fresh MS_GUARDED_BY(ms_state_role);  /* those of current requests, see
                                                             proxy.c */
};

/* Drops the state that tensors, granules and proxies keep of a segment that is about to be removed.
 * Both locks. */
void ms_arenas_leave_segment(struct ms_pool *pool, struct ms_segment *segment)
    MS_REQUIRES(ms_growth_role, ms_state_role);

void ms_proxies_init(struct ms_pool *pool);

/* At the pool's end. */
void ms_proxies_drop(struct ms_pool *pool, bool device_gone) MS_REQUIRES(ms_growth_role);

/* The obligations to proxies that are mapped nowhere; *chunks_bytes: their chunks. Growth lock. */
uint64_t ms_proxies_sum(const struct ms_pool *pool, uint64_t *chunks_bytes)
    MS_REQUIRES(ms_growth_role);

/* The obligations to fresh proxies that are mapped nowhere; *bytes: the size of all fresh ones.
 * Both locks. */
uint64_t ms_proxies_sum_fresh(const struct ms_pool *pool, uint64_t *bytes)
    MS_REQUIRES(ms_growth_role, ms_state_role);

/* The calling thread reports a tensor here, which ends its request. The pages of that request, and
 * those that the tensor touches, are no longer fresh: they may have holes from now on. State
 * lock. */
void ms_proxies_tensor_allocated(struct ms_pool *pool, ms_addr_t addr, uint64_t bytes)
    MS_REQUIRES(ms_state_role);

#endif
