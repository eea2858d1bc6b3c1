/* SPDX-License-Identifier: Apache-2.0 */
/* Reports the program's own mappings as blocks. If this process is charged for them, the charge is
 * that of their chunks (MS_OWNER_APPLICATION). If another process is, the block is recorded like
 * one that the driver serves, without a charge. */
#include "shim/device/live_maps.h"

#include "allocator/base/ids.h"
#include "shim/process/session.h"

static void emit(enum ms_event_kind kind, const struct ms_live_map *map, uint32_t site)
{
    struct ms_event event = {
        .kind = (uint8_t)kind,
        .device = map->device->ordinal,
        .owner = map->charged ? MS_OWNER_APPLICATION : MS_OWNER_FORWARDED,
        .site = site,
        .id = map->id,
        .addr = map->addr,
        .bytes = map->bytes,
    };
    if (kind == MS_EVENT_BLOCK_ALLOC) {
        event.aux = map->charged ? map->bytes : 0;
    } else if (kind == MS_EVENT_BLOCK_FREE) {
        event.aux = map->arena;
    }
    ms_session_emit(&event);
}

void ms_live_map_begin(struct ms_live_map *map, struct ms_device *device, ms_addr_t addr,
                       uint64_t bytes, bool charged, uint32_t site)
{
    *map = (struct ms_live_map){
        .device = device, .addr = addr, .bytes = bytes, .id = ms_ids_take(1), .charged = charged};
    atomic_fetch_add(&device->mapped_live_bytes, bytes);
    if (charged) {
        atomic_store_explicit(&device->mapped, true, memory_order_relaxed);
    }
    emit(MS_EVENT_BLOCK_ALLOC, map, site);
}

void ms_live_map_arena(const struct ms_live_map *map)
{
    atomic_fetch_sub(&map->device->mapped_live_bytes, map->bytes);
    emit(MS_EVENT_BLOCK_ARENA, map, 0);
}

void ms_live_map_end(const struct ms_live_map *map)
{
    if (!map->arena) {
        atomic_fetch_sub(&map->device->mapped_live_bytes, map->bytes);
    }
    emit(MS_EVENT_BLOCK_FREE, map, 0);
}
