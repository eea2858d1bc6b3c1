/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts are created and destroyed: charges what they take, and drops what dies with them. */
#include <sched.h>
#include <stdlib.h>

#include "allocator/base/cancel.h"
#include "allocator/base/locks/lock.h"
#include "shim/device/addresses/ledger.h"
#include "shim/device/context.h"
#include "shim/device/green.h"
#include "shim/device/group/device_group.h"
#include "shim/device/operations/fences.h"
#include "shim/device/overhead.h"
#include "shim/device/stream.h"
#include "shim/driver/driver.h"
#include "shim/driver/gate.h"
#include "shim/hooks/peer.h"
#include "shim/hooks/serve.h"
#include "shim/policy/grant.h"
#include "shim/policy/parameters.h"
#include "shim/process/log.h"
#include "shim/sharing/exports.h"
#include "shim/sharing/imports.h"
#include "shim/sharing/opened.h"

#define SWEEP_AT_ONCE 16u /* stacks may be small */

/* --- creation --------------------------------------------------------------------------------- */

struct creation {
    struct ms_device *device;
    struct ms_measure measure;
    uint64_t kept_bytes; /* set aside, in a group */
};

/* False: the cap has no room for it. */
static bool creation_begin(struct creation *creation, CUdevice ordinal)
{
    const CUresult used = ms_device_use(ordinal, &creation->device);
    if (used == CUDA_ERROR_OUT_OF_MEMORY && ms_device_group_wanted()) {
        return false;
    } /* otherwise the context is adopted at its first use */
    const bool room = ms_overhead_expect_context(creation->device, &creation->kept_bytes);
    ms_measure_begin(creation->device, &creation->measure);
    return room;
}

static CUresult creation_end(struct creation *creation, CUcontext *context, CUresult result)
{
    int64_t taken = 0;
    if (result == CUDA_SUCCESS && context && creation->device) {
        taken = ms_overhead_of_context(creation->device, &creation->measure, creation->kept_bytes);
        (void)ms_context_created(*context, taken > 0 ? (uint64_t)taken : 0);
    }
    ms_overhead_context_made(creation->device, creation->kept_bytes, taken);
    return result;
}

/* Whether a second attempt may succeed: the driver ran out of memory, and the pool has given some
 * back. */
static bool once_more(struct creation *creation, CUresult result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY && creation->device &&
           ms_device_make_room(creation->device, ms_options()->wait_ns);
}

CUresult ms_serve_cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice_v1 dev)
{
    struct creation creation;
    if (!creation_begin(&creation, dev)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = MS_REAL(cuCtxCreate)(pctx, flags, dev);
    if (once_more(&creation, result)) {
        result = MS_REAL(cuCtxCreate)(pctx, flags, dev);
    }
    return creation_end(&creation, pctx, result);
}

CUresult ms_serve_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice_v1 dev)
{
    struct creation creation;
    if (!creation_begin(&creation, dev)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = MS_REAL(cuCtxCreate_v2)(pctx, flags, dev);
    if (once_more(&creation, result)) {
        result = MS_REAL(cuCtxCreate_v2)(pctx, flags, dev);
    }
    return creation_end(&creation, pctx, result);
}

CUresult ms_serve_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
                                 unsigned int flags, CUdevice_v1 dev)
{
    struct creation creation;
    if (!creation_begin(&creation, dev)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = MS_REAL(cuCtxCreate_v3)(pctx, paramsArray, numParams, flags, dev);
    if (once_more(&creation, result)) {
        result = MS_REAL(cuCtxCreate_v3)(pctx, paramsArray, numParams, flags, dev);
    }
    return creation_end(&creation, pctx, result);
}

CUresult ms_serve_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams,
                                 unsigned int flags, CUdevice dev)
{
    struct creation creation;
    if (!creation_begin(&creation, dev)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = MS_REAL(cuCtxCreate_v4)(pctx, ctxCreateParams, flags, dev);
    if (once_more(&creation, result)) {
        result = MS_REAL(cuCtxCreate_v4)(pctx, ctxCreateParams, flags, dev);
    }
    return creation_end(&creation, pctx, result);
}

static struct ms_context *primary_of(const struct ms_device *device)
{
    struct ms_context *context = device ? ms_context_any(device) : NULL;
    return context && context->primary ? context : NULL;
}

/* How often the program holds each primary context, as far as memshim saw it. */
static _Atomic int retains[MS_DEVICES_MAX];

static CUresult retained(CUdevice ordinal, CUresult result)
{
    if (result == CUDA_SUCCESS && ordinal >= 0 && ordinal < MS_DEVICES_MAX) {
        atomic_fetch_add(&retains[ordinal], 1);
    }
    return result;
}

/* One thread at a time makes a device's primary context. The others wait, as they would in the
 * driver, and then find one that exists and needs no room. */
struct primary_turn {
    struct ms_device *device; /* null: it exists already, or cannot be made */
    int cancellation;
};

/* Clang cannot follow a lock that is taken only where there is a device. */
static struct primary_turn turn_begin(CUdevice ordinal) MS_NO_THREAD_SAFETY
{
    struct primary_turn turn = {.cancellation = ms_cancel_hold()};
    unsigned int flags = 0;
    int active = 0;
    if (!primary_of(ms_device_get(ordinal)) &&
        ms_driver()->cuDevicePrimaryCtxGetState(ordinal, &flags, &active) == CUDA_SUCCESS &&
        !active) {
        (void)ms_device_use(ordinal, &turn.device);
    }
    if (turn.device) {
        ms_lock_acquire(&turn.device->making_primary);
    }
    return turn;
}

static void turn_end(const struct primary_turn *turn) MS_NO_THREAD_SAFETY
{
    if (turn->device) {
        ms_lock_release(&turn->device->making_primary);
    }
    ms_cancel_let(turn->cancellation);
}

static CUresult retain(CUcontext *pctx, CUdevice dev)
{
    unsigned int flags = 0;
    int active = 0;
    if (primary_of(ms_device_get(dev)) ||
        ms_driver()->cuDevicePrimaryCtxGetState(dev, &flags, &active) != CUDA_SUCCESS) {
        return MS_REAL(cuDevicePrimaryCtxRetain)(pctx, dev);
    }
    if (active) {
        CUresult result = MS_REAL(cuDevicePrimaryCtxRetain)(pctx, dev);
        if (result == CUDA_SUCCESS) {
            struct ms_context *context = NULL;
            (void)ms_context_of(*pctx, &context);
        }
        return result;
    }
    struct creation creation;
    if (!creation_begin(&creation, dev)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = MS_REAL(cuDevicePrimaryCtxRetain)(pctx, dev);
    if (once_more(&creation, result)) {
        result = MS_REAL(cuDevicePrimaryCtxRetain)(pctx, dev);
    }
    return creation_end(&creation, pctx, result);
}

CUresult ms_serve_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice_v1 dev)
{
    const struct primary_turn turn = turn_begin(dev);
    const CUresult result = retain(pctx, dev);
    turn_end(&turn);
    return retained(dev, result);
}

static CUresult create_green(CUgreenCtx *green, CUdevResourceDesc desc, CUdevice dev,
                             unsigned int flags)
{
    unsigned int old_flags = 0;
    int active = 0;
    struct creation creation = {.device = NULL};
    if (ms_driver()->cuDevicePrimaryCtxGetState(dev, &old_flags, &active) == CUDA_SUCCESS &&
        !active && !creation_begin(&creation, dev)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = MS_REAL(cuGreenCtxCreate)(green, desc, dev, flags);
    if (once_more(&creation, result)) {
        result = MS_REAL(cuGreenCtxCreate)(green, desc, dev, flags);
    }
    CUcontext primary = NULL;
    struct ms_context *context = NULL;
    CUresult held =
        result == CUDA_SUCCESS ? MS_REAL(cuDevicePrimaryCtxRetain)(&primary, dev) : result;
    if (creation_end(&creation, &primary, held) != CUDA_SUCCESS) {
        return result;
    }
    (void)ms_context_of(primary, &context);
    if (context) {
        ms_green_add(*green, dev, context);
    }
    (void)MS_REAL(cuDevicePrimaryCtxRelease_v2)(dev);
    return result;
}

/* Retains the primary context, and creates it if there is none (cuda.h). */
CUresult ms_serve_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
                                   unsigned int flags)
{
    const struct primary_turn turn = turn_begin(dev);
    const CUresult result = create_green(phCtx, desc, dev, flags);
    turn_end(&turn);
    return retained(dev, result);
}

/* --- destruction ------------------------------------------------------------------------------ */

struct dying {
    const struct ms_context *context;
    bool everything;
};

static bool dies(void *ctx, const struct ms_grant *grant)
{
    const struct dying *dying = ctx;
    if (grant->kind == MS_GRANT_OUTSIDE) {
        return dying->everything && grant->device == dying->context->device->ordinal;
    }
    return grant->holder == dying->context;
}

/* Whether this block of the device's pool dies. */
static bool block_dies(void *ctx, const struct ms_holder *holder)
{
    const struct dying *dying = ctx;
    return holder == &dying->context->holder ||
           (dying->everything && holder->kind == MS_HOLDER_MEMPOOL);
}

/* The context was destroyed or reset, and its work is over: gives back its charges and frees the
 * memory that died with it. everything: also what outlives single contexts (a device reset).
 *
 * cuda.h, cuCtxDestroy: memory of cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged and cuMemAllocHost
 * goes with its context; that of cuMemCreate and cuMemAllocAsync does not. */
static void forget(struct ms_context *context, bool everything)
{
    struct ms_device *device = context->device;
    ms_context_hold(context);
    if (atomic_exchange(&context->dead, true)) {
        ms_context_let(context);
        return;
    }
    if (!atomic_exchange(&context->launched, true)) {
        atomic_fetch_sub(&ms_contexts_unlaunched, 1);
        ms_gate_watch_launches(false);
    }
    ms_streams_forget(context);
    ms_fences_forget(context);
    ms_imports_forget(context);
    ms_opened_forget(context);
    ms_peers_forget(context);
    bool alone = !ms_context_any(device);
    struct dying dying = {context, everything && alone};
    struct ms_grant grants[SWEEP_AT_ONCE];
    size_t count = 0;
    while ((count = ms_ledger_sweep(dies, &dying, grants, SWEEP_AT_ONCE)) != 0) {
        for (size_t i = 0; i < count; i++) {
            ms_release_dead(&grants[i]);
        }
    }
    if (device->pool) {
        ms_pool_free_held(device->pool, block_dies, &dying);
        ms_exports_prune(device);
        ms_device_check_thresholds(device);
    }
    ms_overhead_discharge(context, MS_CHARGE_CONTEXT, UINT64_MAX);
    if (alone && device->pool) {
        (void)ms_pool_trim(device->pool, 0);
    }
    ms_context_let(context);
}

/* Called before the driver destroys it; null: memshim does not know it. */
static struct ms_context *going(struct ms_context *context)
{
    ms_parameters_forget();
    if (context) {
        ms_context_close(context);
    }
    return context;
}

static CUresult went(struct ms_context *context, bool gone, bool everything, CUresult result)
{
    if (context && gone) {
        forget(context, everything);
    }
    if (context) {
        ms_context_reopen(context);
    }
    return result;
}

static CUresult destroy(CUcontext handle, CUresult (*real)(CUcontext))
{
    struct ms_context *context = going(ms_context_find(handle));
    CUresult result = real(handle);
    return went(context, result == CUDA_SUCCESS, false, result);
}

CUresult ms_serve_cuCtxDestroy(CUcontext ctx)
{
    return destroy(ctx, MS_REAL(cuCtxDestroy));
}

CUresult ms_serve_cuCtxDestroy_v2(CUcontext ctx)
{
    return destroy(ctx, MS_REAL(cuCtxDestroy_v2));
}

/* It may live on: cuCtxDetach destroys the context only with its last use, and does not say whether
 * it did. */
CUresult ms_serve_cuCtxDetach(CUcontext ctx)
{
    struct ms_context *context = going(ms_context_find(ctx));
    CUresult result = MS_REAL(cuCtxDetach)(ctx);
    bool gone = false;
    if (result == CUDA_SUCCESS && context) {
        gone = ms_driver()->cuCtxPushCurrent_v2(ctx) != CUDA_SUCCESS;
        if (!gone) {
            (void)ms_driver()->cuCtxPopCurrent_v2(&ctx);
        }
    }
    return went(context, gone, false, result);
}

/* Releases under way, except the last one of a context. */
static _Atomic int partings[MS_DEVICES_MAX];

/* Whether the context lives on because the program holds it once more. Libraries retain and release
 * it over and over, and no user of the context need stop for that. The last release waits for those
 * before it, so that it is the last one for the driver, too. */
static bool held_on(CUdevice ordinal)
{
    bool known = ordinal >= 0 && ordinal < MS_DEVICES_MAX;
    if (known) {
        atomic_fetch_add(&partings[ordinal], 1);
    }
    if (known && atomic_fetch_sub(&retains[ordinal], 1) > 1) {
        return true;
    }
    if (known) {
        atomic_fetch_sub(&partings[ordinal], 1);
    }
    while (known && atomic_load(&partings[ordinal]) != 0) {
        sched_yield();
    }
    return false;
}

/* What releases it: one of the driver's two functions for that, or the end of a green context. */
struct parting {
    CUresult (*release)(CUdevice); /* null: the other is used */
    CUgreenCtx green;
};

static CUresult part(const struct parting *parting, CUdevice ordinal)
{
    return parting->release ? parting->release(ordinal)
                            : MS_REAL(cuGreenCtxDestroy)(parting->green);
}

static CUresult release(CUdevice ordinal, const struct parting *parting)
{
    unsigned int flags = 0;
    int active = 1;
    if (held_on(ordinal)) {
        CUresult result = part(parting, ordinal);
        atomic_fetch_sub(&partings[ordinal], 1);
        return result;
    }
    struct ms_context *context = going(primary_of(ms_device_get(ordinal)));
    CUresult result = part(parting, ordinal);
    bool gone = result == CUDA_SUCCESS && context &&
                ms_driver()->cuDevicePrimaryCtxGetState(ordinal, &flags, &active) == CUDA_SUCCESS &&
                !active;
    return went(context, gone, false, result);
}

CUresult ms_serve_cuDevicePrimaryCtxRelease(CUdevice_v1 dev)
{
    return release(dev, &(struct parting){.release = MS_REAL(cuDevicePrimaryCtxRelease)});
}

CUresult ms_serve_cuDevicePrimaryCtxRelease_v2(CUdevice_v1 dev)
{
    return release(dev, &(struct parting){.release = MS_REAL(cuDevicePrimaryCtxRelease_v2)});
}

CUresult ms_serve_cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    CUdevice dev = ms_green_going(hCtx);
    if (dev < 0) {
        return MS_REAL(cuGreenCtxDestroy)(hCtx);
    }
    CUresult result = release(dev, &(struct parting){.green = hCtx});
    ms_green_gone(hCtx);
    return result;
}

static CUresult reset(CUdevice ordinal, CUresult (*real)(CUdevice))
{
    struct ms_context *context = going(primary_of(ms_device_get(ordinal)));
    CUresult result = real(ordinal);
    return went(context, result == CUDA_SUCCESS, true, result);
}

CUresult ms_serve_cuDevicePrimaryCtxReset(CUdevice_v1 dev)
{
    return reset(dev, MS_REAL(cuDevicePrimaryCtxReset));
}

CUresult ms_serve_cuDevicePrimaryCtxReset_v2(CUdevice_v1 dev)
{
    return reset(dev, MS_REAL(cuDevicePrimaryCtxReset_v2));
}
