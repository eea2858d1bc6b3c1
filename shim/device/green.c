/* SPDX-License-Identifier: Apache-2.0 */
/* The green contexts of the process. Records are read without a lock; they are never freed, but
 * used again. */
#include "shim/device/green.h"

#include <stdlib.h>

#include "allocator/base/cancel.h"
#include "allocator/base/locks/lock.h"
#include "shim/device/device.h"
#include "shim/device/heirs.h"
#include "shim/device/stream.h"
#include "shim/driver/driver.h"

#define GOING_NAPS   10000u
#define GOING_NAP_NS 100000u

struct green {
    struct green *next;
    _Atomic(CUcontext) handle; /* null: the record is free */
    CUgreenCtx green;          /* this and the next are set before the handle */
    CUdevice device;
    struct ms_context *_Atomic primary; /* held */
    _Atomic bool going;                 /* it is about to be destroyed: no visit may begin */
    _Atomic uint32_t visits;            /* under way */
    _Atomic ms_stream_t legacy;         /* in no table of streams: its fence is that of the
                                           device */
};

static struct green *_Atomic first;

/* A free record. The caller holds the lock. */
static struct green *record(void)
{
    for (struct green *g = first; g; g = g->next) {
        if (!g->handle) {
            return g;
        }
    }
    struct green *fresh = calloc(1, sizeof *fresh);
    if (fresh) {
        fresh->next = first;
        first = fresh;
    }
    return fresh;
}

void ms_green_add(CUgreenCtx green, CUdevice device, struct ms_context *primary)
{
    CUcontext handle = NULL;
    if (!ms_driver()->cuCtxFromGreenCtx ||
        ms_driver()->cuCtxFromGreenCtx(&handle, green) != CUDA_SUCCESS) {
        return;
    }
    ms_lock_acquire(MS_LOCK(CONTEXTS));
    struct green *g = record();
    if (g) {
        g->green = green;
        g->device = device;
        ms_context_hold(primary);
        g->primary = primary;
        g->legacy = ms_stream_new_id();
        g->going = false;
        g->handle = handle;
    }
    ms_lock_release(MS_LOCK(CONTEXTS));
}

static struct green *find(CUgreenCtx green)
{
    struct green *g = first;
    while (g && !(g->handle && g->green == green)) {
        g = g->next;
    }
    return g;
}

CUdevice ms_green_going(CUgreenCtx green)
{
    struct green *g = find(green);
    if (!g) {
        return -1;
    }
    ms_streams_end(g->primary, g->handle, g->legacy);
    ms_device_stream_gone(g->primary->device, g->legacy);
    ms_heirs_take_green(g->primary, green);
    g->going = true;
    for (unsigned naps = 0; naps < GOING_NAPS && atomic_load(&g->visits) != 0; naps++) {
        ms_nap(GOING_NAP_NS);
    }
    return g->device;
}

CUresult ms_greens_each(const struct ms_context *primary,
                        CUresult (*visit)(void *ctx, CUgreenCtx green), void *ctx)
{
    CUresult result = CUDA_SUCCESS;
    for (struct green *g = first; g && result == CUDA_SUCCESS; g = g->next) {
        /* As in ms_context_use: at least one of visit and end sees the other. */
        atomic_fetch_add(&g->visits, 1);
        if (g->handle && !g->going && g->primary == primary) {
            result = visit(ctx, g->green);
        }
        atomic_fetch_sub(&g->visits, 1);
    }
    return result;
}

void ms_green_gone(CUgreenCtx green)
{
    ms_lock_acquire(MS_LOCK(CONTEXTS));
    struct green *g = find(green);
    struct ms_context *primary = g ? g->primary : NULL;
    if (g) {
        g->handle = NULL;
    }
    ms_lock_release(MS_LOCK(CONTEXTS));
    if (primary) {
        ms_context_let(primary);
    }
}

struct ms_context *ms_green_primary(CUcontext handle, ms_stream_t *legacy)
{
    for (const struct green *g = first; g; g = g->next) {
        if (g->handle == handle) {
            struct ms_context *primary = g->primary;
            *legacy = g->legacy;
            return primary->dead ? NULL : primary;
        }
    }
    return NULL;
}
