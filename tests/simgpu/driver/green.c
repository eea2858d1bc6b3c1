/* SPDX-License-Identifier: Apache-2.0 */
/* Green contexts: a part of a device's processors, with streams of its own. A green context
 * converts to a context that is the primary one with other streams: memory, events and modules
 * belong to the primary one (cuda.h, cuCtxFromGreenCtx). */
#include "context.h"
#include "device.h"
#include "entry.h"
#include "stream.h"

enum { PROCESSORS = 132, LEAST_PROCESSORS = 8 };

struct CUdevResourceDesc_st {
    CUdevResource resource;
};

CUresult sim_green_check(CUgreenCtx green)
{
    return green && sim_object_is(&sim_greens, green) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    SIM_ENTER(cuDeviceGetDevResource);
    if (!sim_device_of(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!resource) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (type != CU_DEV_RESOURCE_TYPE_SM) {
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    *resource = (CUdevResource){.type = type,
                                .sm = {.smCount = PROCESSORS,
                                       .minSmPartitionSize = LEAST_PROCESSORS,
                                       .smCoscheduledAlignment = LEAST_PROCESSORS}};
    return CUDA_SUCCESS;
}

/* Every description means the whole device, because nothing here runs on processors. */
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
                                   unsigned int nbResources)
{
    static struct CUdevResourceDesc_st whole;
    SIM_ENTER(cuDevResourceGenerateDesc);
    if (!phDesc || !resources || nbResources == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *phDesc = &whole;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
                          unsigned int flags)
{
    SIM_ENTER(cuGreenCtxCreate);
    CUcontext primary;
    if (!sim_device_of(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!phCtx || !desc || flags != CU_GREEN_CTX_DEFAULT_STREAM) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = sim_primary_retain(&primary, dev);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    CUgreenCtx green = sim_object_new(&sim_greens);
    CUcontext context = green ? sim_context_green(primary) : NULL;
    if (!context) {
        if (green) {
            sim_object_free(&sim_greens, green);
        }
        (void)sim_primary_release(dev);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    green->context = context;
    context->green = green;
    *phCtx = green;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    SIM_ENTER(cuGreenCtxDestroy);
    CUresult status = sim_green_check(hCtx);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    CUdevice dev = hCtx->context->device->index;
    sim_object_destroy(&hCtx->object);
    hCtx->context->green = NULL;
    sim_context_green_end(hCtx->context);
    sim_object_free(&sim_greens, hCtx);
    return sim_primary_release(dev);
}

CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    SIM_ENTER(cuCtxFromGreenCtx);
    CUresult status = sim_green_check(hCtx);
    if (status == CUDA_SUCCESS && !pContext) {
        status = CUDA_ERROR_INVALID_VALUE;
    }
    if (status == CUDA_SUCCESS) {
        *pContext = hCtx->context;
    }
    return status;
}

#if CUDA_VERSION >= 12050
CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags,
                                int priority)
{
    SIM_JUDGE(phStream, CUDA_ERROR_INVALID_VALUE);
    SIM_JUDGE(greenCtx, CUDA_ERROR_INVALID_CONTEXT);
    SIM_ENTER(cuGreenCtxStreamCreate);
    CUresult status = sim_green_check(greenCtx);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (flags != CU_STREAM_NON_BLOCKING) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *phStream = sim_stream_create(greenCtx->context, flags, priority);
    return *phStream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
#endif
