/* SPDX-License-Identifier: Apache-2.0 */
/* The span of addresses that the pools may hand out, or whose pages they stand behind. */
#ifndef MEMSHIM_SHIM_DEVICE_ADDRESSES_REACH_H
#define MEMSHIM_SHIM_DEVICE_ADDRESSES_REACH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern struct ms_reach {
    _Atomic uint64_t begin, end;
} ms_reach;

/* These addresses belong to it from now on, for good: what lies there no more is asked of the pool
 * in vain. */
void ms_reach_add(uint64_t addr, uint64_t bytes);

/* Whether a value may be an address of a pool's. */
static inline bool ms_reach_may_hold(uint64_t value)
{
    return value >= atomic_load_explicit(&ms_reach.begin, memory_order_relaxed) &&
           value < atomic_load_explicit(&ms_reach.end, memory_order_relaxed);
}

#endif
