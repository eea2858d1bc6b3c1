/* Contexts come and go: what they take is charged, what dies with them is forgotten. */
#include <stdlib.h>

#include "shim/gate.h"
#include "shim/log.h"
#include "shim/serve/context.h"
#include "shim/serve/driver.h"
#include "shim/serve/driver_ops.h"
#include "shim/serve/ledger.h"
#include "shim/serve/overhead.h"
#include "shim/serve/parameters.h"
#include "shim/serve/peer.h"
#include "shim/serve/release.h"
#include "shim/serve/stream.h"

#define SWEEP_AT_ONCE 16u /* stacks may be small */

/* --- coming ----------------------------------------------------------------------------------- */

struct creation {
    struct ms_device *device;
    struct ms_measure measure;
};

static void creation_begin(struct creation *creation, CUdevice ordinal)
{
    creation->device = ms_device_use(ordinal);
    ms_measure_begin(creation->device, &creation->measure);
}

static CUresult creation_end(struct creation *creation, CUcontext *context, CUresult result)
{
    if (result == CUDA_SUCCESS && context && creation->device) {
        int64_t taken = ms_measure_end(&creation->measure);
        (void)ms_context_created(*context, taken > 0 ? (uint64_t)taken : 0);
    }
    return result;
}

/* Whether a second attempt has a chance: the driver ran out, and the pool has given something
 * back. */
static bool once_more(struct creation *creation, CUresult result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY && creation->device &&
           ms_device_make_room(creation->device, ms_options()->wait_ns);
}

CUresult ms_serve_cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice_v1 dev)
{
    struct creation creation;
    creation_begin(&creation, dev);
    CUresult result = MS_REAL(cuCtxCreate)(pctx, flags, dev);
    if (once_more(&creation, result)) {
        result = MS_REAL(cuCtxCreate)(pctx, flags, dev);
    }
    return creation_end(&creation, pctx, result);
}

CUresult ms_serve_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice_v1 dev)
{
    struct creation creation;
    creation_begin(&creation, dev);
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
    creation_begin(&creation, dev);
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
    creation_begin(&creation, dev);
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

CUresult ms_serve_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice_v1 dev)
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
            (void)ms_context_of(*pctx);
        }
        return result;
    }
    struct creation creation;
    creation_begin(&creation, dev);
    CUresult result = MS_REAL(cuDevicePrimaryCtxRetain)(pctx, dev);
    if (once_more(&creation, result)) {
        result = MS_REAL(cuDevicePrimaryCtxRetain)(pctx, dev);
    }
    return creation_end(&creation, pctx, result);
}

/* --- going ------------------------------------------------------------------------------------ */

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

/* Of the blocks of the device's pool. */
static bool block_dies(void *ctx, const struct ms_holder *holder)
{
    const struct dying *dying = ctx;
    return holder == &dying->context->holder ||
           (dying->everything && holder->kind == MS_HOLDER_MEMPOOL);
}

/* cuda.h, cuCtxDestroy: memory of cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged and
 * cuMemAllocHost goes with its context; that of cuMemCreate and cuMemAllocAsync does not. */
void ms_context_gone(struct ms_context *context, bool everything)
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
    ms_marks_forget(context);
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
        ms_device_check_thresholds(device);
    }
    ms_overhead_discharge(context, MS_CHARGE_CONTEXT, UINT64_MAX);
    if (alone && device->pool) {
        (void)ms_pool_trim(device->pool, 0);
    }
    ms_context_let(context);
}

static CUresult destroyed(struct ms_context *context, CUresult result)
{
    if (result == CUDA_SUCCESS && context) {
        ms_context_gone(context, false);
    }
    return result;
}

static struct ms_context *known(CUcontext handle)
{
    for (struct ms_context *c = ms_context_first(); c; c = c->next) {
        if (c->handle == handle && !c->dead) {
            return c;
        }
    }
    return NULL;
}

CUresult ms_serve_cuCtxDestroy(CUcontext ctx)
{
    ms_parameters_forget();
    return destroyed(known(ctx), MS_REAL(cuCtxDestroy)(ctx));
}

CUresult ms_serve_cuCtxDestroy_v2(CUcontext ctx)
{
    ms_parameters_forget();
    return destroyed(known(ctx), MS_REAL(cuCtxDestroy_v2)(ctx));
}

/* Gone or not: cuCtxDetach destroys with the last use only, and says nothing about it. */
CUresult ms_serve_cuCtxDetach(CUcontext ctx)
{
    ms_parameters_forget();
    struct ms_context *context = known(ctx);
    CUresult result = MS_REAL(cuCtxDetach)(ctx);
    if (result == CUDA_SUCCESS && context) {
        if (ms_driver()->cuCtxPushCurrent_v2(ctx) != CUDA_SUCCESS) {
            ms_context_gone(context, false);
        } else {
            (void)ms_driver()->cuCtxPopCurrent_v2(&ctx);
        }
    }
    return result;
}

static CUresult released(CUdevice ordinal, CUresult result)
{
    unsigned int flags = 0;
    int active = 1;
    struct ms_context *context = primary_of(ms_device_get(ordinal));
    if (result == CUDA_SUCCESS && context &&
        ms_driver()->cuDevicePrimaryCtxGetState(ordinal, &flags, &active) == CUDA_SUCCESS &&
        !active) {
        ms_context_gone(context, false);
    }
    return result;
}

CUresult ms_serve_cuDevicePrimaryCtxRelease(CUdevice_v1 dev)
{
    ms_parameters_forget();
    return released(dev, MS_REAL(cuDevicePrimaryCtxRelease)(dev));
}

CUresult ms_serve_cuDevicePrimaryCtxRelease_v2(CUdevice_v1 dev)
{
    ms_parameters_forget();
    return released(dev, MS_REAL(cuDevicePrimaryCtxRelease_v2)(dev));
}

static CUresult was_reset(CUdevice ordinal, CUresult result)
{
    struct ms_context *context = primary_of(ms_device_get(ordinal));
    if (result == CUDA_SUCCESS && context) {
        ms_context_gone(context, true);
    }
    return result;
}

CUresult ms_serve_cuDevicePrimaryCtxReset(CUdevice_v1 dev)
{
    ms_parameters_forget();
    return was_reset(dev, MS_REAL(cuDevicePrimaryCtxReset)(dev));
}

CUresult ms_serve_cuDevicePrimaryCtxReset_v2(CUdevice_v1 dev)
{
    ms_parameters_forget();
    return was_reset(dev, MS_REAL(cuDevicePrimaryCtxReset_v2)(dev));
}
