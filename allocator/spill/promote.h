/* SPDX-License-Identifier: Apache-2.0 */
/* Part of the interface of the pool (pool.h): when spilled memory comes back. */
#ifndef MEMSHIM_ALLOCATOR_SPILL_PROMOTE_H
#define MEMSHIM_ALLOCATOR_SPILL_PROMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/status.h"
#include "allocator/space/block.h"

/* Brings spilled memory back to the device, the most recently used first, as far as the budget has
 * room, at most max_bytes; one standstill for all of it. Returns the bytes promoted. */
uint64_t ms_pool_promote(ms_pool_t *pool, uint64_t max_bytes);

/* A step of the training begins; where nobody says so, steps are found. Returns what
 * ms_pool_foretells does. */
bool ms_pool_step(ms_pool_t *pool);

/* Whether it is foretold what is used next. Then ms_pool_promote_ahead knows what comes back, and
 * when; else it is for the caller to say, by ms_pool_promote. */
bool ms_pool_foretells(ms_pool_t *pool);

/* Brings back what the last step foretells will be used soon, and what will have room until then,
 * in one standstill. Does nothing where the choice does not foretell. Costs one load while nothing
 * is due, so it may be called at every tensor allocation and launch. Returns the bytes promoted. */
uint64_t ms_pool_promote_ahead(ms_pool_t *pool);

/* Brings back all that lies in the range. MS_ERR_NO_MEMORY: not all of it has room, and nothing
 * moved. */
ms_status_t ms_pool_promote_range(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes);

#endif
