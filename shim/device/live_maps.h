/* SPDX-License-Identifier: Apache-2.0 */
/* What a program maps or opens by itself (cuMemCreate and cuMemMap, memory of other processes), as
 * live memory of the report: live from the call that mapped it, until it is unmapped or a framework
 * reports pieces in it. Thread-safe; no lock of the caller's is needed. */
#ifndef MEMSHIM_SHIM_DEVICE_LIVE_MAPS_H
#define MEMSHIM_SHIM_DEVICE_LIVE_MAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/device/device.h"

struct ms_live_map {
    struct ms_device *device;
    ms_addr_t addr;
    uint64_t bytes;
    uint64_t id;  /* of its BLOCK_ALLOC event; 0: it was not recorded */
    bool charged; /* this process is charged for it; else another one is */
    bool arena;   /* a framework reports what is live in it */
};

/* It is live from now on, at this call site (ms_site_capture, taken before any lock). The caller
 * keeps *map. */
void ms_live_map_begin(struct ms_live_map *map, struct ms_device *device, ms_addr_t addr,
                       uint64_t bytes, bool charged, uint32_t site);

/* A framework reported a piece of it: its reports say what is live in it from here on. Once. */
void ms_live_map_arena(const struct ms_live_map *map);

/* It is mapped no more. */
void ms_live_map_end(const struct ms_live_map *map);

#endif
