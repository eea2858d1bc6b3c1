/* SPDX-License-Identifier: Apache-2.0 */
/* How much device memory the driver's own allocator takes for what it hands out.
 *
 * It cuts small allocations out of slabs of 2 MiB and gives a slab back when the last of them is
 * freed; a large allocation has slabs of its own. So addresses show what is taken: every aligned 2
 * MiB that a live allocation touches. Thread-safe, no device calls. */
#ifndef MEMSHIM_SHIM_DEVICE_ADDRESSES_PAGES_H
#define MEMSHIM_SHIM_DEVICE_ADDRESSES_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#define MS_DRIVER_SLAB_BYTES (2ULL << 20)

/* A call site made an allocation. Returns how many more bytes of the device are taken now. A page
 * that cannot be kept for want of host memory counts as taken by each of its allocations. */
uint64_t ms_pages_touch(uint64_t addr, uint64_t bytes, uint32_t site);

/* The pages that became free with an allocation, by the site that was charged for them. That may be
 * a neighbour's site: the neighbour is gone and left its page to this allocation. */
struct ms_pages_left {
    uint64_t own_bytes; /* of the allocation's own site */
    uint32_t others;    /* the number of pages, each of MS_DRIVER_SLAB_BYTES, charged to another
                           site */
    uint32_t other_sites[2];
};

/* The allocation was freed. `site` is the one that ms_pages_touch got. */
struct ms_pages_left ms_pages_leave(uint64_t addr, uint64_t bytes, uint32_t site);

#endif
