/* SPDX-License-Identifier: Apache-2.0 */
/* The span of addresses that the pools hand out, or whose pages they back. */
#ifndef MEMSHIM_SHIM_DEVICE_ADDRESSES_REACH_H
#define MEMSHIM_SHIM_DEVICE_ADDRESSES_REACH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern struct ms_reach {
    _Atomic uint64_t begin, end;
} ms_reach;

/* Adds these addresses to the span, for good. A value in the span may be no address of a pool any
 * more; then asking the pool finds nothing. */
void ms_reach_add(uint64_t addr, uint64_t bytes);

/* Whether a value may be an address of a pool. */
static inline bool ms_reach_may_hold(uint64_t value)
{
    return value >= atomic_load_explicit(&ms_reach.begin, memory_order_relaxed) &&
           value < atomic_load_explicit(&ms_reach.end, memory_order_relaxed);
}

#endif
