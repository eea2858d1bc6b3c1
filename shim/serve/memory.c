/* cuMemAlloc and its relatives. */
#include "shim/caller.h"
#include "shim/serve/birth.h"
#include "shim/serve/release.h"

#define PITCH_BYTES                                                              \
    512u /* what current drivers round a row to; meets every alignment they name \
          */

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* cuMemAlloc, answered by the driver. */
static CUresult forward_alloc(struct ms_context *context, enum ms_charge_reason reason,
                              CUdeviceptr_v2 *dptr, size_t bytes)
{
    struct ms_forward forward;
    CUresult result = ms_forward_begin(&forward, context, reason, MS_TAKING_SLABS, bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    do {
        result = MS_REAL(cuMemAlloc_v2)(dptr, bytes);
    } while (ms_forward_retry(&forward, result));
    return ms_forward_end(&forward, result, MS_SPACE_DEVICE, result == CUDA_SUCCESS ? *dptr : 0, 0);
}

/* Whether the call is one that only the driver can answer: it is wrong, or there is no context. */
static struct ms_context *context_for(const void *out, uint64_t bytes)
{
    return out && bytes != 0 ? ms_context_current() : NULL;
}

CUresult ms_serve_cuMemAlloc_v2(CUdeviceptr_v2 *dptr, size_t bytesize)
{
    struct ms_context *context = context_for(dptr, bytesize);
    if (!context) {
        return MS_REAL(cuMemAlloc_v2)(dptr, bytesize);
    }
    if (ms_library_at(ms_caller()) == MS_LIBRARY_NCCL) {
        return forward_alloc(context, MS_CHARGE_NCCL, dptr, bytesize);
    }
    if (!context->device->pool) {
        return forward_alloc(context, MS_CHARGE_ALLOCATION, dptr, bytesize);
    }
    return ms_grant_block(context->device, &context->holder, MS_STREAM_DEVICE, bytesize, dptr);
}

/* The driver's own allocation call, for a pitch: charged by what it answers. */
static CUresult forward_pitch(struct ms_context *context, CUdeviceptr_v2 *dptr, size_t *pitch,
                              size_t width, size_t height, unsigned int element)
{
    struct ms_forward forward;
    uint64_t bytes = round_up(width, PITCH_BYTES) * height;
    CUresult result =
        ms_forward_begin(&forward, context, MS_CHARGE_ALLOCATION, MS_TAKING_SLABS, bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    do {
        result = MS_REAL(cuMemAllocPitch_v2)(dptr, pitch, width, height, element);
    } while (ms_forward_retry(&forward, result));
    bool done = result == CUDA_SUCCESS;
    return ms_forward_end(&forward, result, MS_SPACE_DEVICE, done ? *dptr : 0,
                          done ? *pitch * height : 0);
}

CUresult ms_serve_cuMemAllocPitch_v2(CUdeviceptr_v2 *dptr, size_t *pPitch, size_t WidthInBytes,
                                     size_t Height, unsigned int ElementSizeBytes)
{
    bool sound = pPitch && WidthInBytes != 0 && Height != 0 &&
                 WidthInBytes <= SIZE_MAX - PITCH_BYTES &&
                 round_up(WidthInBytes, PITCH_BYTES) <= SIZE_MAX / Height &&
                 (ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16);
    struct ms_context *context = context_for(dptr, sound);
    if (!context) {
        return MS_REAL(cuMemAllocPitch_v2)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    }
    if (!context->device->pool) {
        return forward_pitch(context, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    }
    size_t pitch = round_up(WidthInBytes, PITCH_BYTES);
    CUresult result =
        ms_grant_block(context->device, &context->holder, MS_STREAM_DEVICE, pitch * Height, dptr);
    if (result == CUDA_SUCCESS) {
        *pPitch = pitch;
    }
    return result;
}

CUresult ms_serve_cuMemFree_v2(CUdeviceptr_v2 dptr)
{
    struct ms_grant grant;
    if (ms_release_block(ms_device_holding(dptr), dptr, MS_STREAM_DEVICE)) {
        return CUDA_SUCCESS;
    }
    if (!ms_ledger_take(MS_SPACE_DEVICE, dptr, &grant)) {
        return MS_REAL(cuMemFree_v2)(dptr);
    }
    if (ms_birth_is(&grant)) {
        return ms_birth_free(&grant);
    }
    CUresult result = MS_REAL(cuMemFree_v2)(dptr);
    ms_forwarded_freed(&grant, result);
    return result;
}

/* Managed memory may lie wholly on the device: it is charged in full. */
CUresult ms_serve_cuMemAllocManaged(CUdeviceptr_v2 *dptr, size_t bytesize, unsigned int flags)
{
    struct ms_context *context = context_for(dptr, bytesize);
    struct ms_forward forward;
    if (!context) {
        return MS_REAL(cuMemAllocManaged)(dptr, bytesize, flags);
    }
    CUresult result =
        ms_forward_begin(&forward, context, MS_CHARGE_MANAGED, MS_TAKING_WHOLE, bytesize);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    do {
        result = MS_REAL(cuMemAllocManaged)(dptr, bytesize, flags);
    } while (ms_forward_retry(&forward, result));
    return ms_forward_end(&forward, result, MS_SPACE_DEVICE, result == CUDA_SUCCESS ? *dptr : 0, 0);
}

/* --- 32-bit addresses (before CUDA 3.2): the driver's, charged ---------------------------------
 */

CUresult ms_serve_cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
    struct ms_context *context = context_for(dptr, bytesize);
    struct ms_forward forward;
    if (!context) {
        return MS_REAL(cuMemAlloc)(dptr, bytesize);
    }
    CUresult result =
        ms_forward_begin(&forward, context, MS_CHARGE_ALLOCATION, MS_TAKING_SLABS, bytesize);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = MS_REAL(cuMemAlloc)(dptr, bytesize);
    return ms_forward_end(&forward, result, MS_SPACE_DEVICE, result == CUDA_SUCCESS ? *dptr : 0, 0);
}

CUresult ms_serve_cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch,
                                  unsigned int WidthInBytes, unsigned int Height,
                                  unsigned int ElementSizeBytes)
{
    struct ms_context *context = context_for(dptr, pPitch && WidthInBytes && Height);
    struct ms_forward forward;
    if (!context) {
        return MS_REAL(cuMemAllocPitch)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    }
    uint64_t bytes = round_up(WidthInBytes, PITCH_BYTES) * Height;
    CUresult result =
        ms_forward_begin(&forward, context, MS_CHARGE_ALLOCATION, MS_TAKING_SLABS, bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = MS_REAL(cuMemAllocPitch)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    bool done = result == CUDA_SUCCESS;
    return ms_forward_end(&forward, result, MS_SPACE_DEVICE, done ? *dptr : 0,
                          done ? (uint64_t)*pPitch * Height : 0);
}

CUresult ms_serve_cuMemFree(CUdeviceptr_v1 dptr)
{
    struct ms_grant grant;
    bool ours = ms_ledger_take(MS_SPACE_DEVICE, dptr, &grant);
    CUresult result = MS_REAL(cuMemFree)(dptr);
    if (ours) {
        ms_forwarded_freed(&grant, result);
    }
    return result;
}
