/* SPDX-License-Identifier: Apache-2.0 */
/* How every room names parts of a device: addresses, chunks, streams, and a chunk's location. */
#ifndef MEMSHIM_ALLOCATOR_BASE_ADDRESS_H
#define MEMSHIM_ALLOCATOR_BASE_ADDRESS_H

#include <stdint.h>

typedef uint64_t ms_addr_t;   /* a device virtual address; 0 is none */
typedef uint64_t ms_handle_t; /* a chunk: one physical allocation of the device; 0 is none */

/* A stream, named by an id that is never used again in this process. (A driver uses the handle of a
 * destroyed stream again.) */
typedef uint64_t ms_stream_t;
#define MS_STREAM_DEVICE ((ms_stream_t)0) /* no stream: ordered after all work of the device */

enum ms_location {
    MS_LOCATION_DEVICE,
    MS_LOCATION_HOST /* host memory that the device reads and writes over the bus */
};

#endif
