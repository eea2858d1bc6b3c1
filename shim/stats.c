/* memshim_stats(): a device of this process, read from its budget and its pool, so that it is there
 * without a trace, too. */
#include "shim/stats.h"

#include <stdatomic.h>
#include <string.h>

#include "shim/life.h"
#include "shim/serve/device.h"

static _Atomic uint64_t refusals[MS_DEVICES_MAX];

void ms_stats_note_refusal(int device)
{
    if (device >= 0 && device < MS_DEVICES_MAX) {
        atomic_fetch_add_explicit(&refusals[device], 1, memory_order_relaxed);
    }
}

/* As the trace's sums have it (ms_counters_reserved). */
static uint64_t reserved_bytes(struct ms_device *device, const struct ms_arenas_stats *arenas)
{
    uint64_t bytes = atomic_load(&device->budget.by_owner_bytes[MS_OWNER_POOL]);
    if (arenas->births > 0) {
        bytes += atomic_load(&device->budget.by_owner_bytes[MS_OWNER_APPLICATION]);
        if (bytes == 0) {
            bytes = atomic_load(&device->forwarded_call_bytes);
        }
    }
    return bytes;
}

void ms_stats_read(struct ms_device *device, struct memshim_stats *out)
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
                      atomic_load(&device->forwarded_live_bytes),
        .reserved_bytes = reserved_bytes(device, &arenas),
        .host_bytes = pool.host_reserve_bytes + pool.host_backed_bytes,
        .spilled_bytes = pool.spill.down_bytes,
        .promoted_bytes = pool.spill.up_bytes,
        .spill_wait_ns = pool.spill.stall_ns,
        .refusals = atomic_load_explicit(&refusals[device->ordinal], memory_order_relaxed),
        .status = (uint64_t)atomic_load(&device->threshold),
    };
    ms_stats_derive(out);
}

/* A caller that was built for a longer struct finds the members that this memshim does not have as
 * 0, one for a shorter struct gets what it knows. */
int memshim_stats(int device, struct memshim_stats *stats)
{
    struct memshim_stats now;
    if (stats == NULL || stats->size < sizeof(stats->size) || ms_life_inert()) {
        return -1;
    }
    struct ms_device *used = device >= 0 && device < MS_DEVICES_MAX ? ms_device_get(device) : NULL;
    if (used == NULL) {
        return -1;
    }
    ms_stats_read(used, &now);
    const size_t room = stats->size;
    const size_t known = room < sizeof(now) ? room : sizeof(now);
    memset((char *)stats + known, 0, room - known);
    memcpy((char *)stats + sizeof(stats->size), (const char *)&now + sizeof(now.size),
           known - sizeof(now.size));
    return 0;
}
