/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemAlloc and its relatives. */
#include "allocator/base/arithmetic.h"
#include "allocator/base/cancel.h"
#include "shim/device/capture.h"
#include "shim/device/context.h"
#include "shim/device/operations/fences.h"
#include "shim/driver/driver.h"
#include "shim/hooks/serve.h"
#include "shim/policy/forwarding.h"
#include "shim/policy/grant.h"
#include "shim/policy/host_blocks.h"
#include "shim/policy/oom.h"

#define PITCH_BYTES                                                                              \
    512u /* the pitch of current drivers is a multiple of this, which meets every alignment that \
            they name */

/* Null if only the driver can answer the call: it is invalid, or there is no context. */
static CUresult context_for(const void *out, uint64_t bytes, struct ms_context **context)
{
    *context = NULL;
    return out && bytes != 0 ? ms_context_query(context) : CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr_v2 *dptr, size_t bytesize)
{
    struct ms_context *context = NULL;
    CUresult result = context_for(dptr, bytesize, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!context) {
        return MS_REAL(cuMemAlloc_v2)(dptr, bytesize);
    }
    const enum ms_forwarding forwarding = ms_forwarding_of_call();
    if (forwarding == MS_FORWARDING_NCCL) {
        return ms_forward_alloc(context, MS_CHARGE_NCCL, dptr, bytesize);
    }
    if (!context->device->pool || forwarding == MS_FORWARDING_ASKED) {
        return ms_forward_alloc(context, MS_CHARGE_ALLOCATION, dptr, bytesize);
    }
    if (ms_captures_running()) {
        result = ms_fences_ask_permission(context);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return ms_grant_block(context->device, &context->holder, MS_STREAM_DEVICE, bytesize, dptr);
}

CUresult ms_serve_cuMemAlloc_v2(CUdeviceptr_v2 *dptr, size_t bytesize)
{
    return ms_oom_answered(allocate(dptr, bytesize));
}

/* The driver's own pitched allocation, charged by the pitch that it returns. */
static CUresult forward_pitch(struct ms_context *context, CUdeviceptr_v2 *dptr, size_t *pitch,
                              size_t width, size_t height, unsigned int element)
{
    struct ms_forward forward;
    uint64_t bytes = ms_round_up(width, PITCH_BYTES) * height;
    CUresult result =
        ms_forward_begin(&forward, context, MS_CHARGE_ALLOCATION, MS_TAKING_SLABS, bytes, true);
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
                 ms_round_up(WidthInBytes, PITCH_BYTES) <= SIZE_MAX / Height &&
                 (ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16);
    struct ms_context *context = NULL;
    CUresult result = context_for(dptr, sound, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!context) {
        return MS_REAL(cuMemAllocPitch_v2)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    }
    if (!context->device->pool || ms_forwarding_of_call() != MS_FORWARDING_NOT) {
        return forward_pitch(context, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    }
    size_t pitch = ms_round_up(WidthInBytes, PITCH_BYTES);
    if (ms_captures_running()) {
        result = ms_fences_ask_permission(context);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result =
        ms_grant_block(context->device, &context->holder, MS_STREAM_DEVICE, pitch * Height, dptr);
    if (result == CUDA_SUCCESS) {
        *pPitch = pitch;
    }
    return result;
}

/* cuda.h, cuMemFree: no implicit synchronization for memory of cuMemAllocAsync and
 * cuMemAllocFromPoolAsync. For other memory it "may": cudaFree "causes the GPU to synchronize
 * across all executing CUDA streams" (CUDA programming guide, Stream-Ordered Memory Allocator). A
 * framework that carves tensors out of a block has synchronized before it frees it. */
static bool free_waits(const struct ms_block_info *block)
{
    return block->holder->kind == MS_HOLDER_CONTEXT && !block->arena;
}

/* A thread without a context may free memory like any other (seen: an H200, driver 580). A context
 * of the block's device asks in its place. */
static CUresult ask_permission_anywhere(const struct ms_device *device)
{
    CUcontext popped = NULL;
    struct ms_context *context = ms_context_any_used(device);
    if (!context) {
        return CUDA_SUCCESS;
    }
    const int cancellation = ms_cancel_hold();
    CUresult result = ms_driver()->cuCtxPushCurrent_v2(context->handle);
    if (result == CUDA_SUCCESS) {
        result = ms_fences_ask_permission(context);
        (void)ms_driver()->cuCtxPopCurrent_v2(&popped);
    }
    ms_context_leave(context);
    ms_cancel_let(cancellation);
    return result;
}

/* After an error the block is still live, and the call can be made again. context: null if the
 * thread has none. */
static CUresult free_block(struct ms_context *context, struct ms_device *device,
                           const struct ms_block_info *block)
{
    CUresult result = CUDA_SUCCESS;
    if (ms_captures_running()) {
        result = context ? ms_fences_ask_permission(context) : ask_permission_anywhere(device);
    } else if (free_waits(block)) {
        result = ms_fences_wait_for_work(device);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!ms_release_block(device, block->addr, MS_STREAM_DEVICE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (block->arena) {
        ms_note_given_back(device->ordinal, block->addr, block->bytes);
    }
    return CUDA_SUCCESS;
}

CUresult ms_serve_cuMemFree_v2(CUdeviceptr_v2 dptr)
{
    struct ms_grant grant;
    struct ms_block_info block;
    struct ms_device *device = NULL;
    struct ms_context *context = NULL;
    CUresult known = ms_context_query(&context);
    if (known != CUDA_SUCCESS) {
        return known;
    }
    bool found = ms_find_block(context ? context->device : NULL, dptr, &device, &block);
    if (device) {
        /* Where no block begins, the driver might free one of our chunks. */
        return found ? free_block(context, device, &block) : CUDA_ERROR_INVALID_VALUE;
    }
    if (!ms_ledger_take(MS_SPACE_DEVICE, dptr, &grant)) {
        return MS_REAL(cuMemFree_v2)(dptr);
    }
    if (ms_host_block_is(&grant)) {
        return ms_host_block_free(&grant);
    }
    ms_forwarded_leaves(&grant);
    CUresult result = MS_REAL(cuMemFree_v2)(dptr);
    ms_forwarded_freed(&grant, result);
    return result;
}

/* Managed memory may lie on the device entirely, so all of it is charged. */
CUresult ms_serve_cuMemAllocManaged(CUdeviceptr_v2 *dptr, size_t bytesize, unsigned int flags)
{
    struct ms_context *context = NULL;
    struct ms_forward forward;
    CUresult result = context_for(dptr, bytesize, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!context) {
        return MS_REAL(cuMemAllocManaged)(dptr, bytesize, flags);
    }
    const bool sound = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
    result =
        ms_forward_begin(&forward, context, MS_CHARGE_MANAGED, MS_TAKING_WHOLE, bytesize, sound);
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
    struct ms_context *context = NULL;
    struct ms_forward forward;
    CUresult result = context_for(dptr, bytesize, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!context) {
        return MS_REAL(cuMemAlloc)(dptr, bytesize);
    }
    result =
        ms_forward_begin(&forward, context, MS_CHARGE_ALLOCATION, MS_TAKING_SLABS, bytesize, true);
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
    struct ms_context *context = NULL;
    struct ms_forward forward;
    CUresult result = context_for(dptr, pPitch && WidthInBytes && Height, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!context) {
        return MS_REAL(cuMemAllocPitch)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    }
    uint64_t bytes = ms_round_up(WidthInBytes, PITCH_BYTES) * Height;
    result =
        ms_forward_begin(&forward, context, MS_CHARGE_ALLOCATION, MS_TAKING_SLABS, bytes, true);
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
    if (ours) {
        ms_forwarded_leaves(&grant);
    }
    CUresult result = MS_REAL(cuMemFree)(dptr);
    if (ours) {
        ms_forwarded_freed(&grant, result);
    }
    return result;
}
