/* SPDX-License-Identifier: Apache-2.0 */
/* A list of what is open, seldom more than some dozens. */
#include "shim/sharing/opened.h"

#include <stdlib.h>

#include "allocator/base/locks/lock.h"
#include "shim/device/live_maps.h"
#include "shim/sites/site.h"

struct opened {
    struct opened *next;
    const struct ms_context *context;
    uint64_t opens;
    struct ms_live_map live;
};

static struct opened *first; /* guarded by SHARING */

static struct opened **place_of(CUdeviceptr_v2 addr)
{
    struct opened **at = &first;
    while (*at && (*at)->live.addr != addr) {
        at = &(*at)->next;
    }
    return at;
}

static bool open_again(CUdeviceptr_v2 addr)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    struct opened *found = *place_of(addr);
    if (found) {
        found->opens++;
    }
    ms_lock_release(MS_LOCK(SHARING));
    return found != NULL;
}

void ms_opened_note(struct ms_context *context, CUdeviceptr_v2 addr, uint64_t bytes)
{
    struct opened *opened = open_again(addr) ? NULL : calloc(1, sizeof *opened);
    if (!opened) {
        return; /* only the report lacks it */
    }
    opened->context = context;
    opened->opens = 1;
    ms_live_map_begin(&opened->live, context->device, addr, bytes, false, ms_site_capture(bytes));
    ms_lock_acquire(MS_LOCK(SHARING));
    opened->next = first;
    first = opened;
    ms_lock_release(MS_LOCK(SHARING));
}

void ms_opened_closed(CUdeviceptr_v2 addr)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    struct opened **at = place_of(addr);
    struct opened *found = *at && --(*at)->opens == 0 ? *at : NULL;
    if (found) {
        *at = found->next;
    }
    ms_lock_release(MS_LOCK(SHARING));
    if (found) {
        ms_live_map_end(&found->live);
        free(found);
    }
}

static struct opened *take_of(const struct ms_context *context)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    struct opened **at = &first;
    while (*at && (*at)->context != context) {
        at = &(*at)->next;
    }
    struct opened *found = *at;
    if (found) {
        *at = found->next;
    }
    ms_lock_release(MS_LOCK(SHARING));
    return found;
}

void ms_opened_forget(const struct ms_context *context)
{
    struct opened *gone = NULL;
    while ((gone = take_of(context)) != NULL) {
        ms_live_map_end(&gone->live);
        free(gone);
    }
}
