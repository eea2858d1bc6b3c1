/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays and mipmapped arrays. The driver serves them, and they are charged. */
#include "shim/hooks/array_shapes.h"
#include "shim/hooks/serve.h"
#include "shim/policy/grant.h"

#define PAGE_BYTES        (64ULL << 10) /* arrays are laid out in tiles of this size */
#define SMALL_BELOW_BYTES (1ULL << 20)  /* several share a slab */

static uint64_t element_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    default:
        return 4; /* 32 bits: not less than any of the block-compressed and planar formats needs */
    }
}

static uint64_t at_least_one(uint64_t n)
{
    return n ? n : 1;
}

static uint64_t array_bytes(uint64_t width, uint64_t height, uint64_t depth, uint64_t channels,
                            CUarray_format format)
{
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(width, at_least_one(height), &bytes) ||
        __builtin_mul_overflow(bytes, at_least_one(depth), &bytes) ||
        __builtin_mul_overflow(bytes, at_least_one(channels) * element_bytes(format), &bytes) ||
        bytes > UINT64_MAX - PAGE_BYTES) {
        return 0; /* no array that a driver grants */
    }
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* The bytes of an array. 0 for sparse and deferred arrays, which have no memory of their own,
 * because chunks are mapped into them. Also 0 for an invalid descriptor, which only the driver can
 * answer. */
static uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR_v2 *d)
{
    if ((d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0) {
        return 0;
    }
    return array_bytes(d->Width, d->Height, d->Depth, d->NumChannels, d->Format);
}

static void destroy_array(uint64_t name)
{
    (void)MS_REAL(cuArrayDestroy)((CUarray)(uintptr_t)name);
}

static void destroy_mipmaps(uint64_t name)
{
    (void)MS_REAL(cuMipmappedArrayDestroy)((CUmipmappedArray)(uintptr_t)name);
}

/* A creation under way, with the charge that its descriptor gives. */
struct making {
    struct ms_context *context;
    struct ms_forward forward;
};

/* d: null if only the driver can answer. False: the answer is in `result`. */
static bool making_begin(struct making *making, const CUDA_ARRAY3D_DESCRIPTOR_v2 *d,
                         unsigned int levels, CUresult *result)
{
    uint64_t bytes = d ? bytes_of(d) : 0;
    if (levels > 1) {
        bytes += bytes / 3; /* each level is a quarter of the one above */
    }
    making->context = NULL;
    *result = bytes ? ms_context_query(&making->context) : CUDA_SUCCESS;
    if (*result != CUDA_SUCCESS || !making->context) {
        return *result == CUDA_SUCCESS;
    }
    *result = ms_forward_begin(&making->forward, making->context, MS_CHARGE_ARRAY,
                               bytes < SMALL_BELOW_BYTES ? MS_TAKING_SMALL : MS_TAKING_WHOLE, bytes,
                               levels > 0 && ms_array_shape_is_sound(making->context->device, d));
    making->forward.undo = destroy_array;
    return *result == CUDA_SUCCESS;
}

static bool making_again(struct making *making, CUresult result)
{
    return making->context && ms_forward_retry(&making->forward, result);
}

static CUresult making_end(struct making *making, CUresult result, const void *handle)
{
    return making->context ? ms_forward_end(&making->forward, result, MS_SPACE_HANDLE,
                                            (uint64_t)(uintptr_t)handle, 0)
                           : result;
}

static const CUDA_ARRAY3D_DESCRIPTOR_v2 no_array;

static CUDA_ARRAY3D_DESCRIPTOR_v2 widened(uint64_t width, uint64_t height, uint64_t depth,
                                          CUarray_format format, unsigned int channels,
                                          unsigned int flags)
{
    return (CUDA_ARRAY3D_DESCRIPTOR_v2){.Width = width,
                                        .Height = height,
                                        .Depth = depth,
                                        .Format = format,
                                        .NumChannels = channels,
                                        .Flags = flags};
}

CUresult ms_serve_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v2 *pAllocateArray)
{
    const CUDA_ARRAY_DESCRIPTOR_v2 *d = pAllocateArray;
    const CUDA_ARRAY3D_DESCRIPTOR_v2 wide =
        d ? widened(d->Width, d->Height, 0, d->Format, d->NumChannels, 0) : no_array;
    struct making making;
    CUresult result = CUDA_SUCCESS;
    if (!making_begin(&making, pHandle ? &wide : NULL, 1, &result)) {
        return result;
    }
    do {
        result = MS_REAL(cuArrayCreate_v2)(pHandle, pAllocateArray);
    } while (making_again(&making, result));
    return making_end(&making, result, pHandle && result == CUDA_SUCCESS ? *pHandle : NULL);
}

CUresult ms_serve_cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray)
{
    const CUDA_ARRAY_DESCRIPTOR_v1 *d = pAllocateArray;
    const CUDA_ARRAY3D_DESCRIPTOR_v2 wide =
        d ? widened(d->Width, d->Height, 0, d->Format, d->NumChannels, 0) : no_array;
    struct making making;
    CUresult result = CUDA_SUCCESS;
    if (!making_begin(&making, pHandle ? &wide : NULL, 1, &result)) {
        return result;
    }
    do {
        result = MS_REAL(cuArrayCreate)(pHandle, pAllocateArray);
    } while (making_again(&making, result));
    return making_end(&making, result, pHandle && result == CUDA_SUCCESS ? *pHandle : NULL);
}

CUresult ms_serve_cuArray3DCreate_v2(CUarray *pHandle,
                                     const CUDA_ARRAY3D_DESCRIPTOR_v2 *pAllocateArray)
{
    struct making making;
    CUresult result = CUDA_SUCCESS;
    if (!making_begin(&making, pHandle ? pAllocateArray : NULL, 1, &result)) {
        return result;
    }
    do {
        result = MS_REAL(cuArray3DCreate_v2)(pHandle, pAllocateArray);
    } while (making_again(&making, result));
    return making_end(&making, result, pHandle && result == CUDA_SUCCESS ? *pHandle : NULL);
}

CUresult ms_serve_cuArray3DCreate(CUarray *pHandle,
                                  const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray)
{
    const CUDA_ARRAY3D_DESCRIPTOR_v1 *d = pAllocateArray;
    const CUDA_ARRAY3D_DESCRIPTOR_v2 wide =
        d ? widened(d->Width, d->Height, d->Depth, d->Format, d->NumChannels, d->Flags) : no_array;
    struct making making;
    CUresult result = CUDA_SUCCESS;
    if (!making_begin(&making, pHandle ? &wide : NULL, 1, &result)) {
        return result;
    }
    do {
        result = MS_REAL(cuArray3DCreate)(pHandle, pAllocateArray);
    } while (making_again(&making, result));
    return making_end(&making, result, pHandle && result == CUDA_SUCCESS ? *pHandle : NULL);
}

CUresult ms_serve_cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                         const CUDA_ARRAY3D_DESCRIPTOR_v2 *pMipmappedArrayDesc,
                                         unsigned int numMipmapLevels)
{
    struct making making;
    CUresult result = CUDA_SUCCESS;
    if (!making_begin(&making, pHandle ? pMipmappedArrayDesc : NULL, numMipmapLevels, &result)) {
        return result;
    }
    making.forward.undo = destroy_mipmaps;
    do {
        result = MS_REAL(cuMipmappedArrayCreate)(pHandle, pMipmappedArrayDesc, numMipmapLevels);
    } while (making_again(&making, result));
    return making_end(&making, result, pHandle && result == CUDA_SUCCESS ? *pHandle : NULL);
}

CUresult ms_serve_cuArrayDestroy(CUarray hArray)
{
    struct ms_grant grant;
    bool known = ms_ledger_take(MS_SPACE_HANDLE, (uint64_t)(uintptr_t)hArray, &grant);
    if (known) {
        ms_forwarded_leaves(&grant);
    }
    CUresult result = MS_REAL(cuArrayDestroy)(hArray);
    if (known) {
        ms_forwarded_freed(&grant, result);
    }
    return result;
}

CUresult ms_serve_cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    struct ms_grant grant;
    bool known = ms_ledger_take(MS_SPACE_HANDLE, (uint64_t)(uintptr_t)hMipmappedArray, &grant);
    if (known) {
        ms_forwarded_leaves(&grant);
    }
    CUresult result = MS_REAL(cuMipmappedArrayDestroy)(hMipmappedArray);
    if (known) {
        ms_forwarded_freed(&grant, result);
    }
    return result;
}
