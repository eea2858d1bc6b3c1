/* SPDX-License-Identifier: Apache-2.0 */
/* How much the driver's own allocator takes from the device for what it hands out.
 *
 * It cuts small allocations out of slabs of 2 MiB and gives a slab back when the last of them is
 * gone; a large allocation has slabs of its own. So the addresses tell what is taken: every
 * aligned 2 MiB that a live allocation touches. Thread-safe, no device calls. */
#ifndef MEMSHIM_SHIM_DEVICE_ADDRESSES_PAGES_H
#define MEMSHIM_SHIM_DEVICE_ADDRESSES_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#define MS_DRIVER_SLAB_BYTES (2ULL << 20)

/* An allocation of a call site came to be: by how many bytes more the device is taken. Pages for
 * which there is no host memory to remember them count as taken by each allocation. */
uint64_t ms_pages_touch(uint64_t addr, uint64_t bytes, uint32_t site);

/* What went with an allocation, by the site that was charged for it: that may be a neighbour's,
 * which is gone and left its page to this one. */
struct ms_pages_left {
    uint64_t own_bytes; /* of the allocation's own site */
    uint32_t others;    /* how many pages, each of MS_DRIVER_SLAB_BYTES, were another site's */
    uint32_t other_sites[2];
};

/* It went. `site` is the one that its coming named. */
struct ms_pages_left ms_pages_leave(uint64_t addr, uint64_t bytes, uint32_t site);

#endif
