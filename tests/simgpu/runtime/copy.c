/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills. Compiled for both stream flavours: the synchronous ones end in _ptds, those
 * that take a stream in _ptsz.
 */
#include "runtime.h"

#include <string.h>

static cudaError_t copy_now(const struct rt_driver *driver, void *to, const void *from,
                            size_t count, enum cudaMemcpyKind kind)
{
    if (!rt_kind_is_valid(kind)) {
        return cudaErrorInvalidMemcpyDirection;
    }
    if (count == 0) {
        return cudaSuccess;
    }
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return RT_TRY(driver, cuMemcpyHtoD, (CUdeviceptr)to, from, count);
    case cudaMemcpyDeviceToHost:
        return RT_TRY(driver, cuMemcpyDtoH, to, (CUdeviceptr)from, count);
    case cudaMemcpyDeviceToDevice:
        return RT_TRY(driver, cuMemcpyDtoD, (CUdeviceptr)to, (CUdeviceptr)from, count);
    default:
        return RT_TRY(driver, cuMemcpy, (CUdeviceptr)to, (CUdeviceptr)from, count);
    }
}

static cudaError_t copy_later(const struct rt_driver *driver, void *to, const void *from,
                              size_t count, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (!rt_kind_is_valid(kind)) {
        return cudaErrorInvalidMemcpyDirection;
    }
    if (count == 0) {
        return cudaSuccess;
    }
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return RT_TRY(driver, cuMemcpyHtoDAsync, (CUdeviceptr)to, from, count, stream);
    case cudaMemcpyDeviceToHost:
        return RT_TRY(driver, cuMemcpyDtoHAsync, to, (CUdeviceptr)from, count, stream);
    case cudaMemcpyDeviceToDevice:
        return RT_TRY(driver, cuMemcpyDtoDAsync, (CUdeviceptr)to, (CUdeviceptr)from, count, stream);
    default:
        return RT_TRY(driver, cuMemcpyAsync, (CUdeviceptr)to, (CUdeviceptr)from, count, stream);
    }
}

RT_STREAM_API(cudaMemcpy, _ptds,
              (void *to, const void *from, size_t count, enum cudaMemcpyKind kind))
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_enter(RT_FLAVOUR, &driver);
    return rt_note(error == cudaSuccess ? copy_now(driver, to, from, count, kind) : error);
}

RT_STREAM_API(cudaMemcpyAsync, _ptsz,
              (void *to, const void *from, size_t count, enum cudaMemcpyKind kind,
               cudaStream_t stream))
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_enter(RT_FLAVOUR, &driver);
    return rt_note(error == cudaSuccess ? copy_later(driver, to, from, count, kind, stream)
                                        : error);
}

RT_STREAM_API(cudaMemcpyToSymbol, _ptds,
              (const void *symbol, const void *from, size_t count, size_t offset,
               enum cudaMemcpyKind kind))
{
    const struct rt_driver *driver = NULL;
    CUdeviceptr address = 0;
    cudaError_t error = rt_enter(RT_FLAVOUR, &driver);
    if (error == cudaSuccess) {
        error = rt_symbol_range(driver, symbol, offset, count, &address);
    }
    return rt_note(error == cudaSuccess ? copy_now(driver, (void *)address, from, count, kind)
                                        : error);
}

RT_STREAM_API(cudaMemcpyFromSymbol, _ptds,
              (void *to, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind))
{
    const struct rt_driver *driver = NULL;
    CUdeviceptr address = 0;
    cudaError_t error = rt_enter(RT_FLAVOUR, &driver);
    if (error == cudaSuccess) {
        error = rt_symbol_range(driver, symbol, offset, count, &address);
    }
    return rt_note(error == cudaSuccess ? copy_now(driver, to, (void *)address, count, kind)
                                        : error);
}

RT_STREAM_API(cudaMemcpyToSymbolAsync, _ptsz,
              (const void *symbol, const void *from, size_t count, size_t offset,
               enum cudaMemcpyKind kind, cudaStream_t stream))
{
    const struct rt_driver *driver = NULL;
    CUdeviceptr address = 0;
    cudaError_t error = rt_enter(RT_FLAVOUR, &driver);
    if (error == cudaSuccess) {
        error = rt_symbol_range(driver, symbol, offset, count, &address);
    }
    return rt_note(error == cudaSuccess
                       ? copy_later(driver, (void *)address, from, count, kind, stream)
                       : error);
}

RT_STREAM_API(cudaMemcpyFromSymbolAsync, _ptsz,
              (void *to, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind,
               cudaStream_t stream))
{
    const struct rt_driver *driver = NULL;
    CUdeviceptr address = 0;
    cudaError_t error = rt_enter(RT_FLAVOUR, &driver);
    if (error == cudaSuccess) {
        error = rt_symbol_range(driver, symbol, offset, count, &address);
    }
    return rt_note(error == cudaSuccess
                       ? copy_later(driver, to, (void *)address, count, kind, stream)
                       : error);
}

RT_STREAM_API(cudaMemcpy3D, _ptds, (const struct cudaMemcpy3DParms *params))
{
    const struct rt_driver *driver = NULL;
    CUDA_MEMCPY3D copy;
    cudaError_t error = rt_enter(RT_FLAVOUR, &driver);
    if (error == cudaSuccess) {
        error = rt_copy_3d(driver, params, &copy);
    }
    return rt_note(error == cudaSuccess ? RT_TRY(driver, cuMemcpy3D, &copy) : error);
}

RT_STREAM_API(cudaMemcpy3DAsync, _ptsz,
              (const struct cudaMemcpy3DParms *params, cudaStream_t stream))
{
    const struct rt_driver *driver = NULL;
    CUDA_MEMCPY3D copy;
    cudaError_t error = rt_enter(RT_FLAVOUR, &driver);
    if (error == cudaSuccess) {
        error = rt_copy_3d(driver, params, &copy);
    }
    return rt_note(error == cudaSuccess ? RT_TRY(driver, cuMemcpy3DAsync, &copy, stream) : error);
}

/* A peer copy is a 3D copy in which each side names its device. */
static cudaError_t copy_3d_peer(const struct rt_driver **driver,
                                const struct cudaMemcpy3DPeerParms *params, CUDA_MEMCPY3D_PEER *out)
{
    if (!params) {
        return cudaErrorInvalidValue;
    }
    struct cudaMemcpy3DParms plain = {
        .srcArray = params->srcArray,
        .srcPos = params->srcPos,
        .srcPtr = params->srcPtr,
        .dstArray = params->dstArray,
        .dstPos = params->dstPos,
        .dstPtr = params->dstPtr,
        .extent = params->extent,
        .kind = cudaMemcpyDeviceToDevice,
    };
    CUDA_MEMCPY3D copy;
    cudaError_t error = rt_enter(RT_FLAVOUR, driver);
    memset(out, 0, sizeof(*out));
    if (error == cudaSuccess) {
        error = rt_copy_3d(*driver, &plain, &copy);
    }
    if (error == cudaSuccess) {
        /* cuda.h: the peer structure is the plain one with the two contexts in reserved places. */
        memcpy(out, &copy, sizeof(copy));
        error = rt_primary_context(*driver, params->srcDevice, &out->srcContext);
    }
    if (error == cudaSuccess) {
        error = rt_primary_context(*driver, params->dstDevice, &out->dstContext);
    }
    return error;
}

_Static_assert(offsetof(CUDA_MEMCPY3D, reserved0) == offsetof(CUDA_MEMCPY3D_PEER, srcContext) &&
                   offsetof(CUDA_MEMCPY3D, reserved1) == offsetof(CUDA_MEMCPY3D_PEER, dstContext) &&
                   sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER),
               "a peer copy is laid out as a plain one");

RT_STREAM_API(cudaMemcpy3DPeer, _ptds, (const struct cudaMemcpy3DPeerParms *params))
{
    const struct rt_driver *driver = NULL;
    CUDA_MEMCPY3D_PEER copy;
    cudaError_t error = copy_3d_peer(&driver, params, &copy);
    return rt_note(error == cudaSuccess ? RT_TRY(driver, cuMemcpy3DPeer, &copy) : error);
}

RT_STREAM_API(cudaMemcpy3DPeerAsync, _ptsz,
              (const struct cudaMemcpy3DPeerParms *params, cudaStream_t stream))
{
    const struct rt_driver *driver = NULL;
    CUDA_MEMCPY3D_PEER copy;
    cudaError_t error = copy_3d_peer(&driver, params, &copy);
    return rt_note(error == cudaSuccess ? RT_TRY(driver, cuMemcpy3DPeerAsync, &copy, stream)
                                        : error);
}

/* Structures of batched copies are the driver's on both sides, and passed on unread. */
#if RT_ABI == 12
RT_STREAM_API(cudaMemcpyBatchAsync, _ptsz,
              (void **to, void **from, size_t *sizes, size_t count, void *attributes,
               size_t *indices, size_t attribute_count, size_t *failed, cudaStream_t stream))
{
    return RT_CALL(cuMemcpyBatchAsync_failing, (CUdeviceptr *)to, (CUdeviceptr *)from, sizes, count,
                   attributes, indices, attribute_count, failed, stream);
}

RT_STREAM_API(cudaMemcpy3DBatchAsync, _ptsz,
              (size_t count, void *copies, size_t *failed, unsigned long long flags,
               cudaStream_t stream))
{
    return RT_CALL(cuMemcpy3DBatchAsync_failing, count, copies, failed, flags, stream);
}
#else
RT_STREAM_API(cudaMemcpyBatchAsync, _ptsz,
              (void **to, void **from, size_t *sizes, size_t count, void *attributes,
               size_t *indices, size_t attribute_count, cudaStream_t stream))
{
    return RT_CALL(cuMemcpyBatchAsync, (CUdeviceptr *)to, (CUdeviceptr *)from, sizes, count,
                   attributes, indices, attribute_count, stream);
}

RT_STREAM_API(cudaMemcpy3DBatchAsync, _ptsz,
              (size_t count, void *copies, unsigned long long flags, cudaStream_t stream))
{
    return RT_CALL(cuMemcpy3DBatchAsync, count, copies, flags, stream);
}

RT_STREAM_API(cudaMemcpyWithAttributesAsync, _ptsz,
              (void *to, const void *from, size_t size, void *attributes, cudaStream_t stream))
{
    return RT_CALL(cuMemcpyWithAttributesAsync, (CUdeviceptr)to, (CUdeviceptr)from, size,
                   attributes, stream);
}

RT_STREAM_API(cudaMemcpy3DWithAttributesAsync, _ptsz,
              (void *copy, unsigned long long flags, cudaStream_t stream))
{
    return RT_CALL(cuMemcpy3DWithAttributesAsync, copy, flags, stream);
}
#endif

RT_STREAM_API(cudaMemset, _ptds, (void *pointer, int value, size_t count))
{
    return RT_CALL(cuMemsetD8, (CUdeviceptr)pointer, (unsigned char)value, count);
}

RT_STREAM_API(cudaMemsetAsync, _ptsz, (void *pointer, int value, size_t count, cudaStream_t stream))
{
    return RT_CALL(cuMemsetD8Async, (CUdeviceptr)pointer, (unsigned char)value, count, stream);
}

RT_STREAM_API(cudaMemset2D, _ptds,
              (void *pointer, size_t pitch, int value, size_t width, size_t height))
{
    return RT_CALL(cuMemsetD2D8, (CUdeviceptr)pointer, pitch, (unsigned char)value, width, height);
}

RT_STREAM_API(cudaMemset2DAsync, _ptsz,
              (void *pointer, size_t pitch, int value, size_t width, size_t height,
               cudaStream_t stream))
{
    return RT_CALL(cuMemsetD2D8Async, (CUdeviceptr)pointer, pitch, (unsigned char)value, width,
                   height, stream);
}

/* A box is filled slice by slice, because its rows need not reach the next slice. */
static cudaError_t fill_3d(const struct cudaPitchedPtr *pitched, int value,
                           const struct cudaExtent *extent, const cudaStream_t *stream)
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_enter(RT_FLAVOUR, &driver);
    for (size_t z = 0; z < extent->depth && error == cudaSuccess; z++) {
        CUdeviceptr slice = (CUdeviceptr)pitched->ptr + z * pitched->pitch * pitched->ysize;
        error = stream ? RT_TRY(driver, cuMemsetD2D8Async, slice, pitched->pitch,
                                (unsigned char)value, extent->width, extent->height, *stream)
                       : RT_TRY(driver, cuMemsetD2D8, slice, pitched->pitch, (unsigned char)value,
                                extent->width, extent->height);
    }
    return error;
}

RT_STREAM_API(cudaMemset3D, _ptds,
              (struct cudaPitchedPtr pitched, int value, struct cudaExtent extent))
{
    return rt_note(fill_3d(&pitched, value, &extent, NULL));
}

RT_STREAM_API(cudaMemset3DAsync, _ptsz,
              (struct cudaPitchedPtr pitched, int value, struct cudaExtent extent,
               cudaStream_t stream))
{
    return rt_note(fill_3d(&pitched, value, &extent, &stream));
}
