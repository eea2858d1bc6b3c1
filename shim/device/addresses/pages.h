/* SPDX-License-Identifier: Apache-2.0 */
/* How much the driver's own allocator takes from the device for what it hands out.
 *
 * It cuts small allocations out of slabs of 2 MiB and gives a slab back when the last of them is
 * gone; a large allocation has slabs of its own. So what is taken is told by the addresses: every
 * aligned 2 MiB that a live allocation touches. Thread-safe, no device calls. */
#ifndef MEMSHIM_SHIM_DEVICE_ADDRESSES_PAGES_H
#define MEMSHIM_SHIM_DEVICE_ADDRESSES_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#define MS_DRIVER_SLAB_BYTES (2ULL << 20)

/* An allocation came to be, or went: by how many bytes more, or fewer, the device is taken. Pages
 * for which there is no host memory to remember them count as taken by each allocation. */
uint64_t ms_pages_touch(uint64_t addr, uint64_t bytes);
uint64_t ms_pages_leave(uint64_t addr, uint64_t bytes);

#endif
