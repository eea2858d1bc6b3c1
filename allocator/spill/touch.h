/* SPDX-License-Identifier: Apache-2.0 */
/* Part of the interface of the pool (pool.h): the device's uses of memory. */
#ifndef MEMSHIM_ALLOCATOR_SPILL_TOUCH_H
#define MEMSHIM_ALLOCATOR_SPILL_TOUCH_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/space/block.h"

/* Notes that the device was asked to touch these bytes, so that they are spilled last. 0 bytes: the
 * whole tensor or block that holds addr; nothing if no live one does. Returns how many of the bytes
 * lie on the host. */
uint64_t ms_pool_touch(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes);

/* How many of these bytes lie on the host. */
uint64_t ms_pool_on_host_bytes(ms_pool_t *pool, ms_addr_t addr, uint64_t bytes);

/* The live tensor or block that holds each address; 0 bytes: none does. For some tens of addresses
 * at most. */
struct ms_touched {
    ms_addr_t addr;
    uint64_t bytes;
    uint64_t host_bytes; /* the part of it on the host */
};
void ms_pool_touch_each(ms_pool_t *pool, const ms_addr_t *addrs, size_t count,
                        struct ms_touched *out);

#endif
