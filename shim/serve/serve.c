/* What the serving half does for the door beside the hooks themselves. */
#include <stdatomic.h>

#include "shim/hook.h"
#include "shim/hot.h"
#include "shim/log.h"
#include "shim/serve/context.h"
#include "shim/serve/device.h"
#include "shim/serve/driver_ops.h"
#include "shim/serve/heat.h"
#include "shim/serve/ledger.h"
#include "shim/serve/mempool.h"
#include "shim/serve/pages.h"
#include "shim/serve/proxies.h"
#include "shim/serve/release.h"
#include "shim/serve/reservations.h"
#include "shim/serve/spill.h"
#include "shim/serve/stream.h"
#include "shim/serve/vmm.h"
#include "shim/sites/site.h"
#include "shim/status.h"

/* Each of these once for the process: what follows from it holds for all of it. */
static void say_status(const struct ms_device *device, ms_status_t status)
{
    switch (status) {
    case MS_OK:
        break;
    case MS_ERR_NOT_READY:
        MS_LOG_ONCE(MS_LOG_WARN,
                    "device %d: the framework's total of live bytes differs from the sum of its "
                    "reports; some of its tensors are missing in the report, and nothing is taken "
                    "out of its segments any more",
                    device->ordinal);
        break;
    case MS_ERR_INVALID:
        MS_LOG_ONCE(MS_LOG_INFO,
                    "device %d: the framework reported a tensor over another, or the death of one "
                    "that was not there; nothing is taken out of its segments any more",
                    device->ordinal);
        break;
    default:
        MS_LOG_ONCE(MS_LOG_WARN,
                    "ERROR: device %d: a new tensor lies on memory that could not be put back "
                    "(error %d), not even from the host; the program will fail where it uses it",
                    device->ordinal, status);
    }
}

MS_HOT void ms_serve_range(int device, const void *addr, int64_t bytes, uint64_t total_bytes)
{
    struct ms_device *d = ms_device_get(device);
    if (!d || bytes == 0) {
        return;
    }
    ms_addr_t at = (ms_addr_t)(uintptr_t)addr;
    if (bytes > 0 && !d->pool) {
        ms_forwarded_arena(at);
    }
    ms_status_t status = bytes > 0 ? ms_arenas_born(d->arenas, at, (uint64_t)bytes,
                                                    ms_site_capture((uint64_t)bytes), total_bytes)
                                   : ms_arenas_died(d->arenas, at, (uint64_t)-bytes, total_bytes);
    if (status != MS_OK) {
        say_status(d, status);
    }
    if (bytes > 0 && atomic_load_explicit(&d->host_made, memory_order_relaxed)) {
        ms_spill_look(d);
    }
    ms_status_look();
}

/* Locks in the order in which they are taken inside each other: what may hold another comes first.
 */
void ms_serve_fork_prepare(void)
{
    ms_vmm_fork_prepare();
    ms_proxies_fork_prepare();
    ms_mempools_fork_prepare();
    ms_contexts_fork_prepare();
    ms_streams_fork_prepare();
    ms_pages_fork_prepare();
    ms_ledger_fork_prepare();
    for (int d = 0; d < MS_DEVICES_MAX; d++) {
        struct ms_device *device = ms_device_get(d);
        if (device) {
            ms_arenas_fork_prepare(device->arenas);
        }
        if (device && device->pool) {
            ms_pool_fork_prepare(device->pool);
        }
    }
    ms_reservations_fork_prepare();
    ms_marks_fork_prepare();
}

void ms_serve_fork_parent(void)
{
    ms_marks_fork_parent();
    ms_reservations_fork_parent();
    for (int d = MS_DEVICES_MAX; d-- > 0;) {
        struct ms_device *device = ms_device_get(d);
        if (device && device->pool) {
            ms_pool_fork_parent(device->pool);
        }
        if (device) {
            ms_arenas_fork_parent(device->arenas);
        }
    }
    ms_ledger_fork_parent();
    ms_pages_fork_parent();
    ms_streams_fork_parent();
    ms_contexts_fork_parent();
    ms_mempools_fork_parent();
    ms_proxies_fork_parent();
    ms_vmm_fork_parent();
}

void ms_serve_fork_child(void)
{
    ms_heat_fork_child();
    ms_marks_fork_child();
    ms_reservations_fork_child();
    for (int d = MS_DEVICES_MAX; d-- > 0;) {
        struct ms_device *device = ms_device_get(d);
        if (device) {
            ms_arenas_fork_child(device->arenas);
        }
        if (device && device->pool) {
            ms_pool_fork_child(device->pool);
        }
    }
    ms_ledger_fork_child();
    ms_pages_fork_child();
    ms_streams_fork_child();
    ms_contexts_fork_child();
    ms_mempools_fork_child();
    ms_proxies_fork_child();
    ms_vmm_fork_child();
}

/* Nothing to give back: the driver frees what the process held, and may be gone already. */
void ms_serve_exit(void)
{
}
