/* SPDX-License-Identifier: Apache-2.0 */
/* Memory without stream order: allocation of every kind, host registration, pointers, pools,
 * IPC. */
#include "runtime.h"

#include <string.h>

RT_API(cudaMemGetInfo, (size_t * free_bytes, size_t *total_bytes))
{
    return RT_CALL(cuMemGetInfo, free_bytes, total_bytes);
}

/* A request for 0 bytes succeeds with a null pointer; the driver would refuse it. */
RT_API(cudaMalloc, (void **pointer, size_t size_bytes))
{
    if (!pointer) {
        return rt_note(cudaErrorInvalidValue);
    }
    if (size_bytes == 0) {
        *pointer = NULL;
        const struct rt_driver *driver = NULL;
        return rt_note(rt_enter(RT_LEGACY_STREAM, &driver));
    }
    return RT_CALL(cuMemAlloc, (CUdeviceptr *)pointer, size_bytes);
}

/* Freeing a null pointer only makes the context exist, as every call does. */
RT_API(cudaFree, (void *pointer))
{
    if (!pointer) {
        const struct rt_driver *driver = NULL;
        return rt_note(rt_enter(RT_LEGACY_STREAM, &driver));
    }
    return RT_CALL(cuMemFree, (CUdeviceptr)pointer);
}

RT_API(cudaMallocManaged, (void **pointer, size_t size_bytes, unsigned flags))
{
    return RT_CALL(cuMemAllocManaged, (CUdeviceptr *)pointer, size_bytes, flags);
}

/* The driver asks for the largest access that will be coalesced; 4 bytes requires nothing beyond
 * rows. */
#define PITCH_ELEMENT_BYTES 4

RT_API(cudaMallocPitch, (void **pointer, size_t *pitch_bytes, size_t width_bytes, size_t height))
{
    if (!pointer || !pitch_bytes) {
        return rt_note(cudaErrorInvalidValue);
    }
    if (width_bytes == 0 || height == 0) {
        *pointer = NULL;
        *pitch_bytes = 0;
        return cudaSuccess;
    }
    return RT_CALL(cuMemAllocPitch, (CUdeviceptr *)pointer, pitch_bytes, width_bytes, height,
                   PITCH_ELEMENT_BYTES);
}

RT_API(cudaMalloc3D, (struct cudaPitchedPtr * pitched, struct cudaExtent extent))
{
    if (!pitched) {
        return rt_note(cudaErrorInvalidValue);
    }
    *pitched = (struct cudaPitchedPtr){.xsize = extent.width, .ysize = extent.height};
    if (extent.width == 0 || extent.height == 0 || extent.depth == 0) {
        return cudaSuccess;
    }
    if (extent.height > SIZE_MAX / extent.depth) {
        return rt_note(cudaErrorInvalidValue);
    }
    return RT_CALL(cuMemAllocPitch, (CUdeviceptr *)&pitched->ptr, &pitched->pitch, extent.width,
                   extent.height * extent.depth, PITCH_ELEMENT_BYTES);
}

RT_API(cudaMallocHost, (void **pointer, size_t size_bytes))
{
    if (pointer && size_bytes == 0) {
        *pointer = NULL;
        return cudaSuccess;
    }
    return RT_CALL(cuMemAllocHost, pointer, size_bytes);
}

RT_API(cudaHostAlloc, (void **pointer, size_t size_bytes, unsigned flags))
{
    if (pointer && size_bytes == 0) {
        *pointer = NULL;
        return cudaSuccess;
    }
    return RT_CALL(cuMemHostAlloc, pointer, size_bytes, flags);
}

RT_API(cudaFreeHost, (void *pointer))
{
    if (!pointer) {
        const struct rt_driver *driver = NULL;
        return rt_note(rt_enter(RT_LEGACY_STREAM, &driver));
    }
    return RT_CALL(cuMemFreeHost, pointer);
}

RT_API(cudaHostRegister, (void *pointer, size_t size_bytes, unsigned flags))
{
    return RT_CALL(cuMemHostRegister, pointer, size_bytes, flags);
}

RT_API(cudaHostUnregister, (void *pointer))
{
    return RT_CALL(cuMemHostUnregister, pointer);
}

RT_API(cudaHostGetDevicePointer, (void **device_pointer, void *host_pointer, unsigned flags))
{
    return RT_CALL(cuMemHostGetDevicePointer, (CUdeviceptr *)device_pointer, host_pointer, flags);
}

RT_API(cudaHostGetFlags, (unsigned *flags, void *pointer))
{
    return RT_CALL(cuMemHostGetFlags, flags, pointer);
}

/* cudaPointerAttributes without the tail that CUDA 13 reserved. */
struct pointer_attributes {
    enum cudaMemoryType type;
    int device;
    void *device_pointer, *host_pointer;
};

RT_API(cudaPointerGetAttributes, (struct pointer_attributes * attributes, const void *pointer))
{
    CUmemorytype type = (CUmemorytype)0;
    CUdeviceptr device_pointer = 0;
    void *host_pointer = NULL;
    int ordinal = cudaInvalidDeviceId;
    unsigned managed = 0;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER,   CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    };
    void *values[] = {&type, &device_pointer, &host_pointer, &managed, &ordinal};
    if (!attributes) {
        return rt_note(cudaErrorInvalidValue);
    }
    cudaError_t error =
        RT_CALL(cuPointerGetAttributes, 5, names, values, (CUdeviceptr)(uintptr_t)pointer);
    if (error != cudaSuccess) {
        return error;
    }
    /* Since CUDA 11 plain host memory is not an error but a type of its own, without a device. */
    if ((int)type == 0) {
        *attributes = (struct pointer_attributes){cudaMemoryTypeUnregistered, cudaInvalidDeviceId,
                                                  NULL, (void *)(uintptr_t)pointer};
        return cudaSuccess;
    }
    attributes->type = managed                        ? cudaMemoryTypeManaged
                       : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                                                      : cudaMemoryTypeHost;
    attributes->device = ordinal;
    attributes->device_pointer = (void *)device_pointer;
    attributes->host_pointer = host_pointer;
    return cudaSuccess;
}

RT_API(cudaMemRangeGetAttribute, (void *data, size_t data_bytes, enum cudaMemRangeAttribute name,
                                  const void *pointer, size_t count))
{
    return RT_CALL(cuMemRangeGetAttribute, data, data_bytes, (CUmem_range_attribute)name,
                   (CUdeviceptr)pointer, count);
}

RT_API(cudaMemRangeGetAttributes,
       (void **data, size_t *data_bytes, enum cudaMemRangeAttribute *names, size_t number,
        const void *pointer, size_t count))
{
    return RT_CALL(cuMemRangeGetAttributes, data, data_bytes, (CUmem_range_attribute *)names,
                   number, (CUdeviceptr)pointer, count);
}

static cudaError_t advise_at(const void *pointer, size_t count, enum cudaMemoryAdvise advice,
                             CUmemLocation location)
{
    return RT_CALL(cuMemAdvise, (CUdeviceptr)pointer, count, (CUmem_advise)advice, location);
}

#if RT_ABI == 12
RT_API(cudaMemAdvise, (const void *pointer, size_t count, enum cudaMemoryAdvise advice, int device))
{
    return RT_CALL(cuMemAdvise_device, (CUdeviceptr)pointer, count, (CUmem_advise)advice, device);
}

RT_API(cudaMemAdvise_v2,
       (const void *pointer, size_t count, enum cudaMemoryAdvise advice, CUmemLocation location))
{
    return advise_at(pointer, count, advice, location);
}
#else
RT_API(cudaMemAdvise,
       (const void *pointer, size_t count, enum cudaMemoryAdvise advice, CUmemLocation location))
{
    return advise_at(pointer, count, advice, location);
}
#endif

/* Memory pools: the runtime's structures are the driver's, field by field (driver_types.h). */
RT_API(cudaMemPoolCreate, (cudaMemPool_t * pool, const struct cudaMemPoolProps *props))
{
    return RT_CALL(cuMemPoolCreate, pool, (const CUmemPoolProps *)props);
}

RT_API(cudaMemPoolDestroy, (cudaMemPool_t pool))
{
    return RT_CALL(cuMemPoolDestroy, pool);
}

RT_API(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep_bytes))
{
    return RT_CALL(cuMemPoolTrimTo, pool, keep_bytes);
}

RT_API(cudaMemPoolSetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr name, void *value))
{
    return RT_CALL(cuMemPoolSetAttribute, pool, (CUmemPool_attribute)name, value);
}

RT_API(cudaMemPoolGetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr name, void *value))
{
    return RT_CALL(cuMemPoolGetAttribute, pool, (CUmemPool_attribute)name, value);
}

RT_API(cudaMemPoolSetAccess,
       (cudaMemPool_t pool, const struct cudaMemAccessDesc *access, size_t number))
{
    return RT_CALL(cuMemPoolSetAccess, pool, (const CUmemAccessDesc *)access, number);
}

RT_API(cudaMemPoolGetAccess,
       (enum cudaMemAccessFlags * flags, cudaMemPool_t pool, struct cudaMemLocation *location))
{
    return RT_CALL(cuMemPoolGetAccess, (CUmemAccess_flags *)flags, pool, (CUmemLocation *)location);
}

RT_API(cudaMemPoolExportToShareableHandle,
       (void *handle, cudaMemPool_t pool, enum cudaMemAllocationHandleType type, unsigned flags))
{
    return RT_CALL(cuMemPoolExportToShareableHandle, handle, pool, (CUmemAllocationHandleType)type,
                   flags);
}

RT_API(cudaMemPoolImportFromShareableHandle,
       (cudaMemPool_t * pool, void *handle, enum cudaMemAllocationHandleType type, unsigned flags))
{
    return RT_CALL(cuMemPoolImportFromShareableHandle, pool, handle,
                   (CUmemAllocationHandleType)type, flags);
}

RT_API(cudaMemPoolExportPointer, (struct cudaMemPoolPtrExportData * data, void *pointer))
{
    return RT_CALL(cuMemPoolExportPointer, (CUmemPoolPtrExportData *)data, (CUdeviceptr)pointer);
}

RT_API(cudaMemPoolImportPointer,
       (void **pointer, cudaMemPool_t pool, struct cudaMemPoolPtrExportData *data))
{
    return RT_CALL(cuMemPoolImportPointer, (CUdeviceptr *)pointer, pool,
                   (CUmemPoolPtrExportData *)data);
}

#if RT_ABI == 13
RT_API(cudaMemGetDefaultMemPool,
       (cudaMemPool_t * pool, CUmemLocation *location, enum cudaMemAllocationType type))
{
    return RT_CALL(cuMemGetDefaultMemPool, pool, location, (CUmemAllocationType)type);
}

RT_API(cudaMemGetMemPool,
       (cudaMemPool_t * pool, CUmemLocation *location, enum cudaMemAllocationType type))
{
    return RT_CALL(cuMemGetMemPool, pool, location, (CUmemAllocationType)type);
}

RT_API(cudaMemSetMemPool,
       (CUmemLocation * location, enum cudaMemAllocationType type, cudaMemPool_t pool))
{
    return RT_CALL(cuMemSetMemPool, location, (CUmemAllocationType)type, pool);
}
#endif

RT_API(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void *pointer))
{
    return RT_CALL(cuIpcGetMemHandle, (CUipcMemHandle *)handle, (CUdeviceptr)pointer);
}

RT_API(cudaIpcOpenMemHandle, (void **pointer, cudaIpcMemHandle_t handle, unsigned flags))
{
    CUipcMemHandle driver_handle;
    memcpy(&driver_handle, &handle, sizeof(driver_handle));
    return RT_CALL(cuIpcOpenMemHandle, (CUdeviceptr *)pointer, driver_handle, flags);
}

RT_API(cudaIpcCloseMemHandle, (void *pointer))
{
    return RT_CALL(cuIpcCloseMemHandle, (CUdeviceptr)pointer);
}

RT_API(cudaIpcGetEventHandle, (cudaIpcEventHandle_t * handle, cudaEvent_t event))
{
    return RT_CALL(cuIpcGetEventHandle, (CUipcEventHandle *)handle, event);
}

RT_API(cudaIpcOpenEventHandle, (cudaEvent_t * event, cudaIpcEventHandle_t handle))
{
    CUipcEventHandle driver_handle;
    memcpy(&driver_handle, &handle, sizeof(driver_handle));
    return RT_CALL(cuIpcOpenEventHandle, event, driver_handle);
}
