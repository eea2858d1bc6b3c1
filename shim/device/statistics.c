/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the statistics of a device. */
#include "shim/device/statistics.h"

#include <stdatomic.h>

#include "allocator/base/arithmetic.h"
#include "shim/group/group.h"
#include "shim/process/session.h"
#include "shim/tables/stats.h"

#define MILLION 1000000u

/* As in the trace's sums (ms_counters_reserved). */
static uint64_t reserved_bytes(struct ms_device *device, const struct ms_arenas_stats *arenas)
{
    uint64_t bytes = atomic_load(&device->budget.by_owner_bytes[MS_OWNER_POOL]);
    if (arenas->allocations > 0 || atomic_load(&device->mapped)) {
        bytes += atomic_load(&device->budget.by_owner_bytes[MS_OWNER_APPLICATION]);
    }
    if (arenas->allocations > 0 && bytes == 0) {
        bytes = atomic_load(&device->forwarded_call_bytes);
    }
    return bytes;
}

/* The trace's sums know what was live when reserved bytes peaked. */
static double fragmentation(const struct ms_device *device)
{
    ms_trace_t *trace = ms_session_trace();
    const int64_t ppm = trace ? ms_trace_fragmentation_ppm(trace, device->ordinal) : -1;
    return ppm > 0 ? ms_ratio((uint64_t)ppm, MILLION) : 0;
}

void ms_statistics_read(struct ms_device *device, struct memshim_stats *out)
{
    struct ms_pool_stats pool = {0};
    struct ms_arenas_stats arenas = {0};
    if (device->pool != NULL) {
        ms_pool_stats(device->pool, &pool);
    }
    ms_arenas_stats(device->arenas, &arenas);
    *out = (struct memshim_stats){
        .size = sizeof(*out),
        .total_bytes = device->total_bytes,
        .cap_bytes = atomic_load(&device->budget.cap_bytes),
        .used_bytes = atomic_load(&device->budget.charged_bytes),
        .peak_used_bytes = atomic_load(&device->budget.peak_charged_bytes),
        .live_bytes = pool.live_bytes - pool.arena_bytes + arenas.live_bytes +
                      atomic_load(&device->forwarded_live_bytes) +
                      atomic_load(&device->mapped_live_bytes),
        .reserved_bytes = reserved_bytes(device, &arenas),
        .host_bytes = pool.host_reserve_bytes + pool.host_backed_bytes,
        .spilled_bytes = pool.spill.down_bytes,
        .promoted_bytes = pool.spill.up_bytes,
        .spill_wait_ns = pool.spill.stall_ns,
        .refusals = atomic_load_explicit(&device->refusals, memory_order_relaxed),
        .status = (uint64_t)atomic_load(&device->threshold),
        .others_bytes = device->group != NULL ? ms_group_used_by_others(device->group) : 0,
    };
    ms_stats_derive(out,
                    device->group != NULL ? ms_group_cap_bytes(device->group) : out->cap_bytes);
    out->fragmentation = fragmentation(device);
}

uint64_t ms_statistics_cached_bytes(struct ms_device *device)
{
    struct ms_pool_stats pool = {0};
    if (device->pool != NULL) {
        ms_pool_stats(device->pool, &pool);
    }
    return pool.hole_bytes;
}
