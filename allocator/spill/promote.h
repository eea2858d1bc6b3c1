/* SPDX-License-Identifier: Apache-2.0 */
/* Part of the interface of the pool (pool.h): when spilled memory comes back. */
#ifndef MEMSHIM_ALLOCATOR_SPILL_PROMOTE_H
#define MEMSHIM_ALLOCATOR_SPILL_PROMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/status.h"
#include "allocator/space/block.h"

/* Brings spilled memory back to the device, the most recently used first, while the budget has
 * room, at most max_bytes; one standstill for all of it. Returns the bytes promoted. */
uint64_t ms_pool_promote(ms_pool_t *pool, uint64_t max_bytes);

/* The program reports that a training step begins. Without such reports the forecast finds steps.
 * Returns what ms_pool_foretells does. */
bool ms_pool_step(ms_pool_t *pool);

/* Whether the next uses are foretold. Then ms_pool_promote_ahead decides what comes back, and when;
 * otherwise the caller does, by ms_pool_promote. */
bool ms_pool_foretells(ms_pool_t *pool);

/* Brings back memory that the forecast says is used soon, and memory that will have room until
 * then, in one standstill. Does nothing if the choice does not foretell. Costs one load while
 * nothing is due, so it may be called at every tensor allocation and launch. Returns the bytes
 * promoted. */
uint64_t ms_pool_promote_ahead(ms_pool_t *pool);

/* Brings back all spilled memory in the range. MS_ERR_NO_MEMORY: not all of it has room, and
 * nothing moved. */
ms_status_t ms_pool_promote_range(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes);

#endif
