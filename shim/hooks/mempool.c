/* SPDX-License-Identifier: Apache-2.0 */
/* Calls about memory pools. The driver answers each call. For a pool that our pool serves, its
 * figures are replaced by ours. */
#include <string.h>

#include "shim/device/context.h"
#include "shim/device/mempools.h"
#include "shim/driver/driver.h"
#include "shim/hooks/peer.h"
#include "shim/hooks/serve.h"
#include "shim/process/log.h"

#define TRIM_WAIT_NS 2000000u

CUresult ms_serve_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice_v1 dev)
{
    CUresult result = MS_REAL(cuDeviceGetDefaultMemPool)(pool_out, dev);
    if (result == CUDA_SUCCESS && !ms_mempool_find(*pool_out)) {
        (void)ms_mempool_add(*pool_out, dev, true, 0);
    }
    return result;
}

CUresult ms_serve_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice_v1 dev)
{
    return MS_REAL(cuDeviceGetMemPool)(pool, dev);
}

CUresult ms_serve_cuDeviceSetMemPool(CUdevice_v1 dev, CUmemoryPool pool)
{
    CUresult result = MS_REAL(cuDeviceSetMemPool)(dev, pool);
    ms_mempool_forget_current(dev);
    return result;
}

/* Managed memory has default pools of its own. */
CUresult ms_serve_cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                         CUmemAllocationType type)
{
    CUresult result = MS_REAL(cuMemGetDefaultMemPool)(pool_out, location, type);
    if (result == CUDA_SUCCESS && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
        !ms_mempool_find(*pool_out)) {
        (void)ms_mempool_add(*pool_out, location->id, type == CU_MEM_ALLOCATION_TYPE_PINNED, 0);
    }
    return result;
}

CUresult ms_serve_cuMemGetMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                  CUmemAllocationType type)
{
    return MS_REAL(cuMemGetMemPool)(pool_out, location, type);
}

CUresult ms_serve_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type,
                                  CUmemoryPool pool)
{
    CUresult result = MS_REAL(cuMemSetMemPool)(location, type, pool);
    if (location && location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        ms_mempool_forget_current(location->id);
    }
    return result;
}

/* The pool's usage flags (CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS), which its attributes report.
 * Before CUDA 12.8 the member was reserved, and 0. */
static unsigned usage_of(const CUmemPoolProps_v1 *props)
{
    unsigned short usage;
    memcpy(&usage, (const char *)&props->maxSize + sizeof props->maxSize, sizeof usage);
    return usage;
}

CUresult ms_serve_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps_v1 *poolProps)
{
    CUresult result = MS_REAL(cuMemPoolCreate)(pool, poolProps);
    if (result == CUDA_SUCCESS) {
        struct ms_mempool *stale = ms_mempool_find(*pool);
        if (stale) {
            ms_mempool_end(stale); /* by a call without a hook, or it never was a pool */
        }
        bool on_device = poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
        bool served = on_device && poolProps->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                      poolProps->handleTypes == CU_MEM_HANDLE_TYPE_NONE && !usage_of(poolProps);
        (void)ms_mempool_add(*pool, on_device ? poolProps->location.id : -1, served,
                             poolProps->maxSize);
    }
    return result;
}

/* Blocks in use live on, as the driver's do (cuda.h, cuMemPoolDestroy). */
CUresult ms_serve_cuMemPoolDestroy(CUmemoryPool pool)
{
    struct ms_mempool *known = ms_mempool_find(pool);
    if (known) {
        ms_mempool_going(known);
    }
    CUresult result = MS_REAL(cuMemPoolDestroy)(pool);
    if (known && result != CUDA_SUCCESS) {
        known->destroyed = false;
    } else if (known) {
        ms_mempool_end(known);
    }
    return result;
}

/* Our pool, if it serves this pool; otherwise null. */
static ms_pool_t *ours(const struct ms_mempool *pool)
{
    struct ms_device *device = pool && pool->served ? ms_device_get(pool->ordinal) : NULL;
    return device ? device->pool : NULL;
}

/* Passes on the driver's answer to a call about the pool, and finds the pool's record. If the query
 * for it fails, the call fails: the program may make each of these calls again. */
static CUresult done(CUresult result, CUmemoryPool handle, struct ms_mempool **pool)
{
    *pool = NULL;
    return result == CUDA_SUCCESS ? ms_mempool_of(handle, pool) : result;
}

CUresult ms_serve_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    struct ms_mempool *known = NULL;
    CUresult result = done(MS_REAL(cuMemPoolTrimTo)(pool, minBytesToKeep), pool, &known);
    if (ours(known)) {
        uint64_t used = atomic_load(&known->holder.used_bytes);
        uint64_t keep = minBytesToKeep > used ? minBytesToKeep - used : 0;
        if (keep == 0) {
            /* Memory whose work the application has seen to be done must be released (cuda.h,
             * cuMemPoolTrimTo). memshim sees that by an event of its own, a moment later. */
            (void)ms_device_make_room(ms_device_get(known->ordinal), TRIM_WAIT_NS);
        } else {
            (void)ms_pool_trim(ours(known), keep);
        }
    } else if (known) {
        ms_mempool_correct(known, 0);
    }
    return result;
}

/* The driver's pool of this handle keeps the attributes, and refuses invalid ones. Our pool obeys
 * one of the reuse flags (cuda.h, CUmemPool_attribute): the one that allows waits which the
 * allocator inserts. It follows no event dependencies of the program's, so that flag has nothing to
 * switch off. And memory that other streams have freed and completed is always open to every
 * stream. */
CUresult ms_serve_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    struct ms_mempool *known = NULL;
    CUresult result = done(MS_REAL(cuMemPoolSetAttribute)(pool, attr, value), pool, &known);
    if (known && attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
        atomic_store(&known->holder.used_high_bytes, 0);
    } else if (known && attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
        atomic_store(&known->reserved_high_bytes, 0);
    } else if (known && attr == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
        atomic_store(&known->no_stream_waits, *(const int *)value == 0);
    }
    return result;
}

CUresult ms_serve_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    struct ms_mempool *known = NULL;
    CUresult result = done(MS_REAL(cuMemPoolGetAttribute)(pool, attr, value), pool, &known);
    if (!ours(known)) {
        return result;
    }
    uint64_t used = atomic_load(&known->holder.used_bytes);
    switch (attr) {
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = used;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = ms_mempool_used_high_bytes(known);
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = ms_mempool_reserved_bytes(known);
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        (void)ms_mempool_reserved_bytes(known);
        *(cuuint64_t *)value = atomic_load(&known->reserved_high_bytes);
        break;
    default:
        break;
    }
    return result;
}

CUresult ms_serve_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc_v1 *map, size_t count)
{
    struct ms_mempool *known = NULL;
    CUresult result = done(MS_REAL(cuMemPoolSetAccess)(pool, map, count), pool, &known);
    if (!ours(known)) {
        return result;
    }
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
            result = ms_peer_pool_access(ms_device_get(known->ordinal), map[i].location.id,
                                         map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
        }
    }
    return result;
}

CUresult ms_serve_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool,
                                     CUmemLocation_v1 *location)
{
    return MS_REAL(cuMemPoolGetAccess)(flags, memPool, location);
}

CUresult ms_serve_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
                                                   CUmemAllocationHandleType handleType,
                                                   unsigned long long flags)
{
    return MS_REAL(cuMemPoolExportToShareableHandle)(handle_out, pool, handleType, flags);
}

CUresult ms_serve_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                                     CUmemAllocationHandleType handleType,
                                                     unsigned long long flags)
{
    return MS_REAL(cuMemPoolImportFromShareableHandle)(pool_out, handle, handleType, flags);
}

/* To the driver, memory of our pool is no allocation of one of its pools, so its error is the right
 * answer. Only pools created for export can export anything. */
CUresult ms_serve_cuMemPoolExportPointer(CUmemPoolPtrExportData_v1 *shareData_out,
                                         CUdeviceptr_v2 ptr)
{
    return MS_REAL(cuMemPoolExportPointer)(shareData_out, ptr);
}

CUresult ms_serve_cuMemPoolImportPointer(CUdeviceptr_v2 *ptr_out, CUmemoryPool pool,
                                         CUmemPoolPtrExportData_v1 *shareData)
{
    return MS_REAL(cuMemPoolImportPointer)(ptr_out, pool, shareData);
}
