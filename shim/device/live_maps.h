/* SPDX-License-Identifier: Apache-2.0 */
/* Live memory that the program itself mapped or opened (cuMemCreate and cuMemMap, memory of other
 * processes). It is live from the call that mapped it, until it is unmapped or a framework reports
 * pieces in it. Thread-safe; the caller needs no lock. */
#ifndef MEMSHIM_SHIM_DEVICE_LIVE_MAPS_H
#define MEMSHIM_SHIM_DEVICE_LIVE_MAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/device/device.h"

struct ms_live_map {
    struct ms_device *device;
    ms_addr_t addr;
    uint64_t bytes;
    uint64_t id;  /* of its BLOCK_ALLOC event; 0: not recorded */
    bool charged; /* this process is charged for it; otherwise another one is */
    bool arena;   /* a framework reports what is live in it */
};

/* It is live from now on, for this call site (ms_site_capture, taken before any lock). The caller
 * keeps *map. */
void ms_live_map_begin(struct ms_live_map *map, struct ms_device *device, ms_addr_t addr,
                       uint64_t bytes, bool charged, uint32_t site);

/* A framework reported a piece of it: from here on its reports say what is live in it. Once. */
void ms_live_map_arena(const struct ms_live_map *map);

/* It is unmapped. */
void ms_live_map_end(const struct ms_live_map *map);

#endif
