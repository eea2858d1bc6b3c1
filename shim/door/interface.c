/* SPDX-License-Identifier: Apache-2.0 */
/* The public interface of memshim.h. */
#include "shim/memshim.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "shim/device/statistics.h"
#include "shim/door/second_copy.h"
#include "shim/hooks/serve.h"
#include "shim/policy/status.h"
#include "shim/process/guard.h"
#include "shim/process/session.h"
#include "shim/sites/site.h"
#include "shim/sites/tag_names.h"
#include "shim/sites/tags.h"

/* Larger sizes are ignored: a program that computed a negative one gives it as such a size. */
#define LARGEST_RANGE_BYTES ((size_t)INT64_MAX)

void memshim_range_born(int device, const void *ptr, size_t bytes)
{
    if (ptr != NULL && bytes <= LARGEST_RANGE_BYTES && ms_guard_enter_here()) {
        ms_serve_born(device, ptr, bytes, UINT64_MAX);
        ms_guard_leave();
    }
}

void memshim_range_died(int device, const void *ptr, size_t bytes)
{
    if (ptr != NULL && bytes <= LARGEST_RANGE_BYTES && ms_guard_enter_here()) {
        ms_serve_died(device, ptr, bytes, UINT64_MAX);
        ms_guard_leave();
    }
}

/* The read may happen inside a call that memshim serves: then the guard is set already. */
void memshim_value_read(int device, const void *ptr, size_t bytes, unsigned reader, unsigned type)
{
    const bool entered = ms_guard_enter(__builtin_return_address(0));
    if ((entered || ms_guard.inside) && device >= 0 && device < MS_DEVICES_MAX) {
        ms_session_emit(&(struct ms_event){.kind = MS_EVENT_VALUE_READ,
                                           .device = (uint8_t)device,
                                           .site = ms_site_capture(bytes),
                                           .addr = (ms_addr_t)(uintptr_t)ptr,
                                           .bytes = bytes,
                                           .aux = reader | (uint64_t)type << 8});
    }
    if (entered) {
        ms_guard_leave();
    }
}

const char *memshim_version(void)
{
    return MEMSHIM_VERSION;
}

const char *ms_own_version(void) __attribute__((alias("memshim_version"), visibility("hidden")));

void memshim_tag_push(const char *name)
{
    (void)ms_tag_push(MS_TAG_PUBLIC, name, name != NULL ? strnlen(name, MS_TAG_NAME_BYTES + 1) : 0,
                      0);
}

void memshim_tag_pop(void)
{
    (void)ms_tag_pop(MS_TAG_PUBLIC);
}

void memshim_step(void)
{
    ms_step(MS_STEP_CALLED);
    ms_status_step();
}

/* If the caller was built for a longer struct, members that this memshim lacks become 0. If it was
 * built for a shorter one, it gets the members that it knows. */
int memshim_stats(int device, struct memshim_stats *stats)
{
    struct memshim_stats now;
    if (stats == NULL || stats->size < sizeof(stats->size) || ms_process_inert()) {
        return -1;
    }
    struct ms_device *used = device >= 0 && device < MS_DEVICES_MAX ? ms_device_get(device) : NULL;
    if (used == NULL) {
        return -1;
    }
    ms_statistics_read(used, &now);
    const size_t room = stats->size;
    const size_t known = room < sizeof(now) ? room : sizeof(now);
    memset((char *)stats + known, 0, room - known);
    memcpy((char *)stats + sizeof(stats->size), (const char *)&now + sizeof(now.size),
           known - sizeof(now.size));
    return 0;
}
