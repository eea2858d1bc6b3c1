/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of frameworks that a piece of their memory becomes or ceases to be a tensor. */
#include <stdatomic.h>

#include "shim/device/addresses/ledger.h"
#include "shim/device/device.h"
#include "shim/hooks/serve.h"
#include "shim/policy/grant.h"
#include "shim/policy/heat.h"
#include "shim/policy/spill.h"
#include "shim/policy/status.h"
#include "shim/process/hot.h"
#include "shim/process/log.h"
#include "shim/sites/site.h"

/* Each of these is logged once for the process: the consequences are the same for every device. */
static void say_status(const struct ms_device *device, ms_status_t status)
{
    switch (status) {
    case MS_OK:
        break;
    case MS_ERR_NOT_READY:
        MS_LOG_ONCE(MS_LOG_WARN,
                    "device %d: the framework's total of live bytes differs from the sum of its "
                    "reports; some of its tensors are missing from the report, and memshim takes "
                    "no more memory out of its segments",
                    device->ordinal);
        break;
    case MS_ERR_INVALID:
        MS_LOG_ONCE(MS_LOG_INFO,
                    "device %d: the framework reported a tensor on top of another, or the free of "
                    "one that did not exist; memshim takes no more memory out of its segments",
                    device->ordinal);
        break;
    default:
        MS_LOG_FATAL_ONCE(
            "ERROR: device %d: a new tensor lies on addresses whose memory could not be put back "
            "(error %d), not even with host memory; the program will fail when it uses the tensor",
            device->ordinal, status);
    }
}

void ms_serve_kept_block(int device, const void *addr)
{
    struct ms_device *d = ms_device_get(device);
    if (d != NULL) {
        ms_arenas_keep(d->arenas, (ms_addr_t)(uintptr_t)addr);
    }
}

void ms_serve_kept_range(int device, const void *addr, int64_t bytes)
{
    struct ms_device *d = ms_device_get(device);
    ms_addr_t at = (ms_addr_t)(uintptr_t)addr;
    if (d == NULL || bytes == 0) {
        return;
    }
    if (bytes < 0) {
        ms_arenas_kept_freed(d->arenas, at);
        return;
    }
    ms_status_t status =
        ms_arenas_kept_allocated(d->arenas, at, (uint64_t)bytes, ms_site_capture((uint64_t)bytes));
    if (status != MS_OK) {
        say_status(d, status);
    }
    ms_status_check();
}

static __attribute__((noinline, cold)) void born_forwarded(const struct ms_device *d, ms_addr_t at)
{
    if (!ms_device_holds(d, at)) {
        ms_forwarded_arena(at);
    }
}

static inline void after_report(struct ms_device *d, ms_status_t status)
{
    if (__builtin_expect(status != MS_OK, 0)) {
        say_status(d, status);
    }
    ms_device_check_emergency(d);
    ms_status_check();
}

MS_HOT void ms_serve_born(int device, const void *addr, uint64_t bytes, uint64_t total_bytes)
{
    struct ms_device *d = ms_device_get(device);
    if (!d || bytes == 0) {
        return;
    }
    ms_addr_t at = (ms_addr_t)(uintptr_t)addr;
    ms_serve_range_in_maps(at, bytes);
    if (atomic_load_explicit(&d->forwarded_live_bytes, memory_order_relaxed) != 0) {
        born_forwarded(d, at);
    }
    ms_status_t status =
        ms_arenas_allocated(d->arenas, at, bytes, ms_site_capture(bytes), total_bytes);
    if (atomic_load_explicit(&d->host_made, memory_order_relaxed)) {
        ms_spill_attend(d);
    }
    after_report(d, status);
}

MS_HOT void ms_serve_died(int device, const void *addr, uint64_t bytes, uint64_t total_bytes)
{
    struct ms_device *d = ms_device_get(device);
    if (d && bytes != 0) {
        after_report(d, ms_arenas_freed(d->arenas, (ms_addr_t)(uintptr_t)addr, bytes, total_bytes));
    }
}
