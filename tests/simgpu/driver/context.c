/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts of the simulated driver. See context.h. */
#include "context.h"

#include "capture.h"
#include "device.h"
#include "entry.h"
#include "event.h"
#include "memory.h"
#include "module.h"
#include "pool.h"
#include "stream.h"

#include <string.h>

#define STACK_DEPTH 64

static CUcontext first_context;
static uint64_t next_context_id = 1;
static _Thread_local CUcontext stack[STACK_DEPTH];
static _Thread_local unsigned depth; /* the current context is stack[depth - 1] */

CUcontext sim_first_context(void)
{
    return first_context;
}

CUcontext sim_current_of_streams(void)
{
    return depth ? stack[depth - 1] : NULL;
}

CUcontext sim_current(void)
{
    CUcontext context = sim_current_of_streams();
    return context && context->base ? context->base : context;
}

CUresult sim_context_check(CUcontext context)
{
    if (!context || !sim_object_is(&sim_contexts, context)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return context->active ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult sim_current_check(void)
{
    const struct CUctx_st *context = sim_current_of_streams();
    if (!context) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return context->active ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult sim_context_or_current(CUcontext *context)
{
    if (*context) {
        return sim_context_check(*context);
    }
    *context = sim_current();
    return sim_current_check();
}

CUcontext sim_context_retain(CUcontext context)
{
    context->object.references++;
    return context;
}

void sim_context_release(CUcontext context)
{
    if (--context->object.references == 0) {
        sim_object_free(&sim_contexts, context);
    }
}

CUstream sim_context_collector(CUcontext context)
{
    if (!context->collector) {
        context->collector = sim_stream_create(context, CU_STREAM_NON_BLOCKING, 0);
    }
    return context->collector;
}

static void set_default_limits(CUcontext context)
{
    static const struct {
        CUlimit limit;
        size_t value;
    } defaults[] = {
        {CU_LIMIT_STACK_SIZE, 1024},
        {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20},
        {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20},
        {CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2},
        {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048},
        {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64},
        {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0},
    };
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        context->limits[defaults[i].limit] = defaults[i].value;
    }
}

static CUresult activate(CUcontext context)
{
    context->changing = true;
    sim_pass_time_us(sim_settings.context_us);
    context->changing = false;
    sim_announce_progress();
    CUresult status = sim_account_charge(context->device->index, sim_settings.context_bytes);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    context->legacy = sim_stream_create(context, CU_STREAM_DEFAULT, 0);
    if (!context->legacy) {
        sim_account_uncharge(context->device->index, sim_settings.context_bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->legacy->legacy = true;
    context->active = true;
    context->id = next_context_id++;
    set_default_limits(context);
    context->next = first_context;
    first_context = context;
    return CUDA_SUCCESS;
}

/* From here on no handle of the context may be used, although its work still runs. */
static void destroy_handles(CUcontext context)
{
    if (!context->primary) { /* a primary context's handle is used again */
        sim_object_destroy(&context->object);
    }
    for (CUstream stream = context->streams; stream; stream = stream->next) {
        sim_object_destroy(&stream->object);
    }
    for (CUevent event = context->events; event; event = event->next) {
        sim_object_destroy(&event->object);
    }
    for (CUmodule module = context->modules; module; module = module->next) {
        sim_object_destroy(&module->object);
    }
}

static void unlink_context(CUcontext context)
{
    CUcontext *link = &first_context;
    while (*link != context) {
        link = &(*link)->next;
    }
    *link = context->next;
}

/* Ends everything that lives in the context, after its work is done. */
static void deactivate(CUcontext context)
{
    context->active = false;
    destroy_handles(context);
    context->changing = true;
    sim_capture_invalidate_context(context);
    sim_wait_context(context);
    unlink_context(context);
    sim_pools_forget_context(context);
    sim_modules_unload_all(context);
    sim_ranges_free_all(context);
    for (CUstream stream = context->streams, next; stream; stream = next) {
        next = stream->next;
        if (!stream->destroyed) {
            sim_stream_destroy(stream);
        }
    }
    while (context->events) {
        sim_event_destroy(context->events);
    }
    context->legacy = context->collector = NULL;
    context->peers = 0;
    sim_account_uncharge(context->device->index, sim_settings.context_bytes);
    context->changing = false;
    sim_announce_progress();
}

static CUcontext new_context(struct sim_device *device, unsigned flags)
{
    CUcontext context = sim_object_new(&sim_contexts);
    if (context) {
        context->device = device;
        context->flags = flags;
    }
    return context;
}

/* ---- primary contexts ----------------------------------------------------------------------- */

CUresult sim_primary_retain(CUcontext *pctx, CUdevice dev)
{
    struct sim_device *device = sim_device_of(dev);
    if (!device) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!pctx) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!device->primary) {
        device->primary = new_context(device, device->primary_flags);
        if (!device->primary) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        device->primary->primary = true;
    }
    while (device->primary->changing) {
        sim_wait_progress();
    }
    if (!device->primary->active) {
        device->primary->flags = device->primary_flags;
        CUresult status = activate(device->primary);
        if (status != CUDA_SUCCESS) {
            return status;
        }
    }
    device->primary_references++;
    *pctx = device->primary;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    SIM_ENTER(cuDevicePrimaryCtxRetain);
    sim_note_asked(dev);
    return sim_primary_retain(pctx, dev);
}

CUresult sim_primary_release(CUdevice dev)
{
    struct sim_device *device = sim_device_of(dev);
    if (!device) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!device->primary || device->primary_references == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (--device->primary_references == 0 && device->primary->active) {
        deactivate(device->primary);
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    SIM_ENTER(cuDevicePrimaryCtxRelease);
    return sim_primary_release(dev);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    SIM_ENTER(cuDevicePrimaryCtxRelease_v2);
    return sim_primary_release(dev);
}

/* "Resetting the primary context does not release it" (cuda.h): the references remain, and the next
 * retain makes a new context with the same handle. */
static CUresult reset_primary(CUdevice dev)
{
    struct sim_device *device = sim_device_of(dev);
    if (!device) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (device->primary && device->primary->active) {
        deactivate(device->primary);
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
    SIM_ENTER(cuDevicePrimaryCtxReset);
    return reset_primary(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    SIM_ENTER(cuDevicePrimaryCtxReset_v2);
    return reset_primary(dev);
}

static CUresult set_primary_flags(CUdevice dev, unsigned flags)
{
    struct sim_device *device = sim_device_of(dev);
    if (!device) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    device->primary_flags = flags;
    if (device->primary) {
        device->primary->flags = flags;
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
    SIM_ENTER(cuDevicePrimaryCtxSetFlags);
    return set_primary_flags(dev, flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    SIM_ENTER(cuDevicePrimaryCtxSetFlags_v2);
    return set_primary_flags(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    SIM_ENTER(cuDevicePrimaryCtxGetState);
    struct sim_device *device = sim_device_of(dev);
    if (!device) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!flags || !active) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = device->primary_flags;
    *active = device->primary && device->primary->active;
    return CUDA_SUCCESS;
}

/* ---- green contexts ------------------------------------------------------------------------- */

CUcontext sim_context_green(CUcontext primary)
{
    CUcontext context = new_context(primary->device, primary->flags);
    CUstream legacy = context ? sim_stream_create(context, CU_STREAM_DEFAULT, 0) : NULL;
    if (!legacy) {
        if (context) {
            sim_context_release(context);
        }
        return NULL;
    }
    legacy->legacy = true;
    context->legacy = legacy;
    context->base = primary;
    context->active = true;
    context->id = next_context_id++;
    context->next = first_context;
    first_context = context;
    return context;
}

void sim_context_green_end(CUcontext context)
{
    sim_object_destroy(&context->object);
    sim_capture_invalidate_context(context);
    sim_wait_context(context);
    context->active = false;
    unlink_context(context);
    sim_context_release(context);
}

/* ---- contexts of the application ------------------------------------------------------------ */

static CUresult push(CUcontext context)
{
    if (depth == STACK_DEPTH) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *result, unsigned flags, CUdevice dev)
{
    struct sim_device *device = sim_device_of(dev);
    if (!device) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!result || (flags & ~(unsigned)CU_CTX_FLAGS_MASK)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUcontext context = new_context(device, flags);
    if (!context) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult status = activate(context);
    if (status == CUDA_SUCCESS) {
        status = push(context);
    }
    if (status != CUDA_SUCCESS) {
        sim_context_release(context);
        return status;
    }
    *result = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    SIM_ENTER(cuCtxCreate_v2);
    return create(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
                        unsigned int flags, CUdevice dev)
{
    SIM_ENTER(cuCtxCreate_v3);
    return numParams ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(pctx, flags, dev);
}

#if CUDA_VERSION >= 12050
CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                        CUdevice dev)
{
    SIM_ENTER(cuCtxCreate_v4);
    if (ctxCreateParams && ctxCreateParams->numExecAffinityParams) {
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    }
    return create(pctx, flags, dev);
}
#endif

static CUresult destroy(CUcontext context)
{
    CUresult status = sim_context_check(context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (context->primary) {
        return CUDA_ERROR_INVALID_CONTEXT; /* cuDevicePrimaryCtxRelease releases these */
    }
    /* "If ctx is current to the calling thread then ctx will also be popped" (cuda.h). */
    if (sim_current() == context) {
        depth--;
    }
    deactivate(context);
    sim_context_release(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext ctx)
{
    SIM_JUDGE(ctx, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuCtxDestroy);
    return destroy(ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    SIM_JUDGE(ctx, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuCtxDestroy_v2);
    return destroy(ctx);
}

static CUresult push_checked(CUcontext context)
{
    CUresult status = sim_context_check(context);
    return status == CUDA_SUCCESS ? push(context) : status;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
    SIM_ENTER(cuCtxPushCurrent);
    return push_checked(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    SIM_ENTER(cuCtxPushCurrent_v2);
    return push_checked(ctx);
}

static CUresult pop(CUcontext *context)
{
    if (!depth) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    depth--;
    if (context) {
        *context = stack[depth];
    }
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *pctx)
{
    SIM_ENTER(cuCtxPopCurrent);
    return pop(pctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
    SIM_ENTER(cuCtxPopCurrent_v2);
    return pop(pctx);
}

/* Replaces the top of the stack; NULL pops it (cuda.h, cuCtxSetCurrent). */
CUresult cuCtxSetCurrent(CUcontext ctx)
{
    SIM_ENTER(cuCtxSetCurrent);
    if (!ctx) {
        depth -= depth ? 1 : 0;
        return CUDA_SUCCESS;
    }
    CUresult status = sim_context_check(ctx);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    depth -= depth ? 1 : 0;
    return push(ctx);
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
    SIM_ENTER(cuCtxGetCurrent);
    if (!pctx) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pctx = sim_current_of_streams();
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device, CUcontext context)
{
    if (!device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = sim_context_or_current(&context);
    if (status == CUDA_SUCCESS) {
        *device = context->device->index;
    }
    return status;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    SIM_ENTER(cuCtxGetDevice);
    return get_device(device, NULL);
}

#if CUDA_VERSION >= 13000
CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
    SIM_ENTER(cuCtxGetDevice_v2);
    return get_device(device, ctx);
}
#endif

static CUresult synchronize(CUcontext context)
{
    CUresult status = sim_context_or_current(&context);
    if (status == CUDA_SUCCESS) {
        status = sim_capture_check_unsafe();
    }
    if (status == CUDA_SUCCESS) {
        status = sim_capture_invalidate_context(context);
    }
    if (status == CUDA_SUCCESS) {
        sim_wait_context(context);
        sim_pools_at_synchronize(context->device);
    }
    return status;
}

CUresult cuCtxSynchronize(void)
{
    SIM_ENTER(cuCtxSynchronize);
    return synchronize(NULL);
}

#if CUDA_VERSION >= 13000
CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
    SIM_ENTER(cuCtxSynchronize_v2);
    return synchronize(ctx);
}
#endif

/* ---- properties ----------------------------------------------------------------------------- */

CUresult cuCtxGetFlags(unsigned int *flags)
{
    SIM_ENTER(cuCtxGetFlags);
    SIM_CURRENT(context);
    if (!flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    SIM_ENTER(cuCtxSetFlags);
    SIM_CURRENT(context);
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
    SIM_ENTER(cuCtxGetId);
    CUresult status = sim_context_or_current(&ctx);
    if (status == CUDA_SUCCESS && !ctxId) {
        status = CUDA_ERROR_INVALID_VALUE;
    }
    if (status == CUDA_SUCCESS) {
        *ctxId = ctx->id;
    }
    return status;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    SIM_ENTER(cuCtxGetApiVersion);
    CUresult status = sim_context_or_current(&ctx);
    if (status == CUDA_SUCCESS && !version) {
        status = CUDA_ERROR_INVALID_VALUE;
    }
    if (status == CUDA_SUCCESS) {
        *version = 3020;
    }
    return status;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    SIM_ENTER(cuCtxSetLimit);
    SIM_CURRENT(context);
    if ((unsigned)limit >= CU_LIMIT_MAX || (unsigned)limit >= SIM_LIMITS) {
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    SIM_ENTER(cuCtxGetLimit);
    SIM_CURRENT(context);
    if ((unsigned)limit >= CU_LIMIT_MAX || (unsigned)limit >= SIM_LIMITS) {
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
    if (!pvalue) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pvalue = context->limits[limit];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
    SIM_ENTER(cuCtxGetCacheConfig);
    SIM_CURRENT(context);
    if (!pconfig) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pconfig = context->cache_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    SIM_ENTER(cuCtxSetCacheConfig);
    SIM_CURRENT(context);
    context->cache_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *pConfig)
{
    SIM_ENTER(cuCtxGetSharedMemConfig);
    SIM_CURRENT(context);
    if (!pConfig) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pConfig = context->shared_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    SIM_ENTER(cuCtxSetSharedMemConfig);
    SIM_CURRENT(context);
    context->shared_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    SIM_ENTER(cuCtxResetPersistingL2Cache);
    SIM_CURRENT(context);
    (void)context;
    return CUDA_SUCCESS;
}
