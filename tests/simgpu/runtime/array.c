/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays and mipmapped arrays, the translation of 3D copies, and copies between devices. */
#include "runtime.h"

#include <string.h>

static int bits_are_uniform(const struct cudaChannelFormatDesc *desc, unsigned channels)
{
    const int bits[] = {desc->x, desc->y, desc->z, desc->w};
    for (unsigned i = 1; i < 4; i++) {
        if (bits[i] != (i < channels ? desc->x : 0)) {
            return 0;
        }
    }
    return 1;
}

unsigned rt_array_format(const struct cudaChannelFormatDesc *desc, CUarray_format *format)
{
    unsigned channels = desc->w ? 4 : desc->z ? 3 : desc->y ? 2 : 1;
    if (channels == 3 || !bits_are_uniform(desc, channels)) {
        return 0;
    }
    static const struct {
        enum cudaChannelFormatKind kind;
        int bits;
        CUarray_format format;
    } formats[] = {
        {cudaChannelFormatKindUnsigned, 8, CU_AD_FORMAT_UNSIGNED_INT8},
        {cudaChannelFormatKindUnsigned, 16, CU_AD_FORMAT_UNSIGNED_INT16},
        {cudaChannelFormatKindUnsigned, 32, CU_AD_FORMAT_UNSIGNED_INT32},
        {cudaChannelFormatKindSigned, 8, CU_AD_FORMAT_SIGNED_INT8},
        {cudaChannelFormatKindSigned, 16, CU_AD_FORMAT_SIGNED_INT16},
        {cudaChannelFormatKindSigned, 32, CU_AD_FORMAT_SIGNED_INT32},
        {cudaChannelFormatKindFloat, 16, CU_AD_FORMAT_HALF},
        {cudaChannelFormatKindFloat, 32, CU_AD_FORMAT_FLOAT},
    };
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (formats[i].kind == desc->f && formats[i].bits == desc->x) {
            *format = formats[i].format;
            return channels;
        }
    }
    return 0;
}

struct cudaChannelFormatDesc rt_channel_desc(CUarray_format format, unsigned channels)
{
    int bits = 32;
    enum cudaChannelFormatKind kind = cudaChannelFormatKindFloat;
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        bits = 8;
        break;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        bits = 16;
        break;
    default:
        break;
    }
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_UNSIGNED_INT32:
        kind = cudaChannelFormatKindUnsigned;
        break;
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT32:
        kind = cudaChannelFormatKindSigned;
        break;
    default:
        break;
    }
    return (struct cudaChannelFormatDesc){bits, channels > 1 ? bits : 0, channels > 2 ? bits : 0,
                                          channels > 3 ? bits : 0, kind};
}

RT_EXPORT(struct cudaChannelFormatDesc, cudaCreateChannelDesc,
          (int x, int y, int z, int w, enum cudaChannelFormatKind kind))
{
    return (struct cudaChannelFormatDesc){x, y, z, w, kind};
}

/* The flags of both sides have the same values (cudaArrayLayered is CUDA_ARRAY3D_LAYERED ...). */
static cudaError_t describe(const struct cudaChannelFormatDesc *desc,
                            const struct cudaExtent *extent, unsigned flags,
                            CUDA_ARRAY3D_DESCRIPTOR *out)
{
    *out = (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = extent->width, .Height = extent->height, .Depth = extent->depth, .Flags = flags};
    out->NumChannels = desc ? rt_array_format(desc, &out->Format) : 0;
    return out->NumChannels ? cudaSuccess : cudaErrorInvalidChannelDescriptor;
}

RT_API(cudaMallocArray, (cudaArray_t * array, const struct cudaChannelFormatDesc *desc,
                         size_t width, size_t height, unsigned flags))
{
    CUDA_ARRAY3D_DESCRIPTOR full;
    cudaError_t error = describe(desc, &(struct cudaExtent){width, height, 0}, flags, &full);
    if (error != cudaSuccess) {
        return rt_note(error);
    }
    if (flags != cudaArrayDefault) {
        return RT_CALL(cuArray3DCreate, (CUarray *)array, &full);
    }
    CUDA_ARRAY_DESCRIPTOR plain = {
        .Width = width, .Height = height, .Format = full.Format, .NumChannels = full.NumChannels};
    return RT_CALL(cuArrayCreate, (CUarray *)array, &plain);
}

RT_API(cudaMalloc3DArray, (cudaArray_t * array, const struct cudaChannelFormatDesc *desc,
                           struct cudaExtent extent, unsigned flags))
{
    CUDA_ARRAY3D_DESCRIPTOR full;
    cudaError_t error = describe(desc, &extent, flags, &full);
    return error == cudaSuccess ? RT_CALL(cuArray3DCreate, (CUarray *)array, &full)
                                : rt_note(error);
}

RT_API(cudaMallocMipmappedArray,
       (cudaMipmappedArray_t * array, const struct cudaChannelFormatDesc *desc,
        struct cudaExtent extent, unsigned levels, unsigned flags))
{
    CUDA_ARRAY3D_DESCRIPTOR full;
    cudaError_t error = describe(desc, &extent, flags, &full);
    return error == cudaSuccess
               ? RT_CALL(cuMipmappedArrayCreate, (CUmipmappedArray *)array, &full, levels)
               : rt_note(error);
}

RT_API(cudaGetMipmappedArrayLevel,
       (cudaArray_t * level, cudaMipmappedArray_const_t array, unsigned number))
{
    return RT_CALL(cuMipmappedArrayGetLevel, (CUarray *)level, (CUmipmappedArray)array, number);
}

RT_API(cudaFreeArray, (cudaArray_t array))
{
    if (!array) {
        return cudaSuccess;
    }
    return RT_CALL(cuArrayDestroy, (CUarray)array);
}

RT_API(cudaFreeMipmappedArray, (cudaMipmappedArray_t array))
{
    if (!array) {
        return cudaSuccess;
    }
    return RT_CALL(cuMipmappedArrayDestroy, (CUmipmappedArray)array);
}

RT_API(cudaArrayGetInfo, (struct cudaChannelFormatDesc * desc, struct cudaExtent *extent,
                          unsigned *flags, cudaArray_t array))
{
    CUDA_ARRAY3D_DESCRIPTOR full = {0};
    cudaError_t error = RT_CALL(cuArray3DGetDescriptor, &full, (CUarray)array);
    if (error != cudaSuccess) {
        return error;
    }
    if (desc) {
        *desc = rt_channel_desc(full.Format, full.NumChannels);
    }
    if (extent) {
        *extent = (struct cudaExtent){full.Width, full.Height, full.Depth};
    }
    if (flags) {
        *flags = full.Flags;
    }
    return cudaSuccess;
}

RT_API(cudaGetChannelDesc, (struct cudaChannelFormatDesc * desc, cudaArray_const_t array))
{
    CUDA_ARRAY3D_DESCRIPTOR full = {0};
    cudaError_t error = RT_CALL(cuArray3DGetDescriptor, &full, (CUarray)array);
    if (error == cudaSuccess) {
        *desc = rt_channel_desc(full.Format, full.NumChannels);
    }
    return error;
}

RT_API(cudaArrayGetPlane, (cudaArray_t * plane, cudaArray_t array, unsigned number))
{
    return RT_CALL(cuArrayGetPlane, (CUarray *)plane, (CUarray)array, number);
}

RT_API(cudaArrayGetMemoryRequirements,
       (struct cudaArrayMemoryRequirements * requirements, cudaArray_t array, int device))
{
    return RT_CALL(cuArrayGetMemoryRequirements, (CUDA_ARRAY_MEMORY_REQUIREMENTS *)requirements,
                   (CUarray)array, device);
}

RT_API(cudaMipmappedArrayGetMemoryRequirements,
       (struct cudaArrayMemoryRequirements * requirements, cudaMipmappedArray_t array, int device))
{
    return RT_CALL(cuMipmappedArrayGetMemoryRequirements,
                   (CUDA_ARRAY_MEMORY_REQUIREMENTS *)requirements, (CUmipmappedArray)array, device);
}

RT_API(cudaArrayGetSparseProperties,
       (struct cudaArraySparseProperties * properties, cudaArray_t array))
{
    return RT_CALL(cuArrayGetSparseProperties, (CUDA_ARRAY_SPARSE_PROPERTIES *)properties,
                   (CUarray)array);
}

RT_API(cudaMipmappedArrayGetSparseProperties,
       (struct cudaArraySparseProperties * properties, cudaMipmappedArray_t array))
{
    return RT_CALL(cuMipmappedArrayGetSparseProperties, (CUDA_ARRAY_SPARSE_PROPERTIES *)properties,
                   (CUmipmappedArray)array);
}

/* Bytes of an element: copies that involve an array count positions and extents in elements
 * (cudaMemcpy3D's documentation; bytes if there is no array). */
static cudaError_t element_bytes(const struct rt_driver *driver, cudaArray_t array, size_t *bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR full;
    cudaError_t error = RT_TRY(driver, cuArray3DGetDescriptor, &full, (CUarray)array);
    if (error == cudaSuccess) {
        struct cudaChannelFormatDesc desc = rt_channel_desc(full.Format, full.NumChannels);
        *bytes = (size_t)(desc.x + desc.y + desc.z + desc.w) / 8;
    }
    return error;
}

static CUmemorytype side_type(cudaArray_t array, enum cudaMemcpyKind kind, int is_host)
{
    if (array) {
        return CU_MEMORYTYPE_ARRAY;
    }
    if (kind == cudaMemcpyDefault) {
        return CU_MEMORYTYPE_UNIFIED;
    }
    return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

cudaError_t rt_copy_3d(const struct rt_driver *driver, const struct cudaMemcpy3DParms *params,
                       CUDA_MEMCPY3D *out)
{
    if (!params || !rt_kind_is_valid(params->kind)) {
        return params ? cudaErrorInvalidMemcpyDirection : cudaErrorInvalidValue;
    }
    size_t from_unit = 1, to_unit = 1;
    cudaError_t error = cudaSuccess;
    if (params->srcArray) {
        error = element_bytes(driver, params->srcArray, &from_unit);
    }
    if (error == cudaSuccess && params->dstArray) {
        error = element_bytes(driver, params->dstArray, &to_unit);
    }
    if (error != cudaSuccess) {
        return error;
    }
    enum cudaMemcpyKind kind = params->kind;
    memset(out, 0, sizeof(*out));
    out->srcXInBytes = params->srcPos.x * from_unit;
    out->srcY = params->srcPos.y;
    out->srcZ = params->srcPos.z;
    out->srcMemoryType = side_type(params->srcArray, kind, rt_kind_is_from_host(kind));
    out->srcHost = params->srcPtr.ptr;
    out->srcDevice = (CUdeviceptr)params->srcPtr.ptr;
    out->srcArray = (CUarray)params->srcArray;
    out->srcPitch = params->srcPtr.pitch;
    out->srcHeight = params->srcPtr.ysize;
    out->dstXInBytes = params->dstPos.x * to_unit;
    out->dstY = params->dstPos.y;
    out->dstZ = params->dstPos.z;
    out->dstMemoryType = side_type(params->dstArray, kind, rt_kind_is_to_host(kind));
    out->dstHost = params->dstPtr.ptr;
    out->dstDevice = (CUdeviceptr)params->dstPtr.ptr;
    out->dstArray = (CUarray)params->dstArray;
    out->dstPitch = params->dstPtr.pitch;
    out->dstHeight = params->dstPtr.ysize;
    out->WidthInBytes = params->extent.width * (params->srcArray ? from_unit : to_unit);
    out->Height = params->extent.height;
    out->Depth = params->extent.depth;
    return cudaSuccess;
}

/* Copies between devices: the device's primary context stands for each side. libcudart exports
 * these in one flavour only. */
static cudaError_t peer_contexts(const struct rt_driver **driver, int to, int from,
                                 CUcontext *to_context, CUcontext *from_context)
{
    cudaError_t error = rt_enter(RT_LEGACY_STREAM, driver);
    if (error == cudaSuccess) {
        error = rt_primary_context(*driver, to, to_context);
    }
    if (error == cudaSuccess) {
        error = rt_primary_context(*driver, from, from_context);
    }
    return error;
}

RT_API(cudaMemcpyPeer, (void *to, int to_device, const void *from, int from_device, size_t count))
{
    const struct rt_driver *driver = NULL;
    CUcontext to_context = NULL, from_context = NULL;
    cudaError_t error = peer_contexts(&driver, to_device, from_device, &to_context, &from_context);
    if (error == cudaSuccess && count > 0) {
        error = RT_TRY(driver, cuMemcpyPeer, (CUdeviceptr)to, to_context, (CUdeviceptr)from,
                       from_context, count);
    }
    return rt_note(error);
}

RT_API(cudaMemcpyPeerAsync, (void *to, int to_device, const void *from, int from_device,
                             size_t count, cudaStream_t stream))
{
    const struct rt_driver *driver = NULL;
    CUcontext to_context = NULL, from_context = NULL;
    cudaError_t error = peer_contexts(&driver, to_device, from_device, &to_context, &from_context);
    if (error == cudaSuccess && count > 0) {
        error = RT_TRY(driver, cuMemcpyPeerAsync, (CUdeviceptr)to, to_context, (CUdeviceptr)from,
                       from_context, count, stream);
    }
    return rt_note(error);
}
