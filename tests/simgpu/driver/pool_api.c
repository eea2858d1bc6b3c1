/* SPDX-License-Identifier: Apache-2.0 */
/* The pool functions of the driver API; pool.c has the pools themselves. */
#include "capture.h"
#include "context.h"
#include "device.h"
#include "entry.h"
#include "ipc.h"
#include "pool.h"
#include "stream.h"

#if CUDA_VERSION >= 13000
static CUmemoryPool host_pool;
#endif

static CUmemoryPool current_pool(struct sim_device *device)
{
    return device->current_pool ? device->current_pool : sim_pool_default(device);
}

/* ---- allocation ------------------------------------------------------------------------------ */

static CUresult alloc(CUdeviceptr *result, size_t bytes, CUmemoryPool pool, CUstream handle)
{
    SIM_STREAM(handle, stream);
    /* "Imported memory pools do not support creating new allocations" (cuda.h,
     * cuMemPoolImportFromShareableHandle). */
    if (!result || bytes == 0 || (pool && pool->exporter != 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->capture) {
        return sim_capture_alloc(stream, bytes, result);
    }
    CUresult status = sim_capture_forbids_legacy(stream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct sim_range *range;
    pool = pool ? pool : current_pool(stream->context->device);
    if (!pool) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    status = sim_pool_alloc(pool, bytes, stream, &range);
    if (status == CUDA_SUCCESS) {
        *result = (CUdeviceptr)range->address;
    }
    return status;
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    SIM_ENTER(cuMemAllocAsync);
    return alloc(dptr, bytesize, NULL, hStream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    SIM_ENTER(cuMemAllocAsync_ptsz);
    return alloc(dptr, bytesize, NULL, sim_per_thread(hStream));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream)
{
    SIM_ENTER(cuMemAllocFromPoolAsync);
    return sim_pool_is(pool) ? alloc(dptr, bytesize, pool, hStream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream)
{
    SIM_ENTER(cuMemAllocFromPoolAsync_ptsz);
    return sim_pool_is(pool) ? alloc(dptr, bytesize, pool, sim_per_thread(hStream))
                             : CUDA_ERROR_INVALID_VALUE;
}

/* Memory of cuMemAlloc may be freed in stream order, too; it is freed when the stream gets
 * there. */
static CUresult free_plain_in_order(struct sim_range *range, CUstream stream)
{
    range->freeing = true;
    sim_wait_position(stream, stream->submitted);
    sim_range_free(range);
    return CUDA_SUCCESS;
}

static CUresult free_async(CUdeviceptr address, CUstream handle)
{
    SIM_STREAM(handle, stream);
    if (!address) {
        return CUDA_SUCCESS;
    }
    struct sim_range *range = sim_range_at(address);
    if (!range || (CUdeviceptr)range->address != address || range->freeing || range->of_library ||
        (range->kind != SIM_RANGE_POOL && range->kind != SIM_RANGE_DEVICE &&
         !sim_ipc_is_of_pool(range))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->capture) {
        return sim_capture_free(stream, range);
    }
    CUresult status = sim_capture_forbids_legacy(stream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (range->kind == SIM_RANGE_IPC) {
        sim_wait_position(stream, stream->submitted);
        sim_ipc_close(range);
        return CUDA_SUCCESS;
    }
    if (range->graph_references) {
        range->graph_live = false;
        struct sim_work work = {.kind = SIM_WORK_EMPTY};
        return sim_submit(stream, &work, NULL);
    }
    return range->kind == SIM_RANGE_POOL ? sim_pool_free_in_order(range, stream)
                                         : free_plain_in_order(range, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    SIM_ENTER(cuMemFreeAsync);
    return free_async(dptr, hStream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
    SIM_ENTER(cuMemFreeAsync_ptsz);
    return free_async(dptr, sim_per_thread(hStream));
}

/* ---- which pool ------------------------------------------------------------------------------ */

static CUresult give_pool(CUmemoryPool *result, CUmemoryPool pool)
{
    if (!result) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *result = pool;
    return pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    SIM_ENTER(cuDeviceGetDefaultMemPool);
    struct sim_device *device = sim_device_of(dev);
    return device ? give_pool(pool_out, sim_pool_default(device)) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    SIM_ENTER(cuDeviceGetMemPool);
    struct sim_device *device = sim_device_of(dev);
    return device ? give_pool(pool, current_pool(device)) : CUDA_ERROR_INVALID_DEVICE;
}

/* "The memory pool must be local to the specified device" (cuda.h). */
static CUresult set_pool(struct sim_device *device, CUmemoryPool pool)
{
    if (!device) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!sim_pool_is(pool) || pool->device != device || pool->exporter != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    device->current_pool = pool;
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    SIM_ENTER(cuDeviceSetMemPool);
    return set_pool(sim_device_of(dev), pool);
}

#if CUDA_VERSION >= 13000
static CUmemoryPool default_host_pool(void)
{
    if (!host_pool) {
        host_pool = sim_pool_new(NULL);
        if (host_pool) {
            host_pool->is_default = true;
        }
    }
    return host_pool;
}

/* CUDA_SUCCESS if pools of that kind exist; *device NULL: of the host. */
static CUresult pool_location(const CUmemLocation *location, CUmemAllocationType type,
                              struct sim_device **device)
{
    *device = NULL;
    if (!location) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        *device = sim_device_of(location->id);
        return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    }
    return location->type == CU_MEM_LOCATION_TYPE_HOST ||
                   location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                CUmemAllocationType type)
{
    SIM_ENTER(cuMemGetDefaultMemPool);
    struct sim_device *device;
    CUresult status = pool_location(location, type, &device);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    return give_pool(pool_out, device ? sim_pool_default(device) : default_host_pool());
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    SIM_ENTER(cuMemGetMemPool);
    struct sim_device *device;
    CUresult status = pool_location(location, type, &device);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    return give_pool(pool, device ? current_pool(device) : default_host_pool());
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    SIM_ENTER(cuMemSetMemPool);
    struct sim_device *device;
    CUresult status = pool_location(location, type, &device);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    return device ? set_pool(device, pool) : CUDA_ERROR_NOT_SUPPORTED;
}
#endif

/* ---- pools of the application ---------------------------------------------------------------- */

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    SIM_ENTER(cuMemPoolCreate);
    if (!pool || !poolProps || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_device *device = NULL;
    if (poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        device = sim_device_of(poolProps->location.id);
        if (!device) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
    } else if (poolProps->location.type != CU_MEM_LOCATION_TYPE_HOST &&
               poolProps->location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES */
    if ((unsigned)poolProps->handleTypes &
        ~(device ? (unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUmemoryPool created = sim_pool_new(device);
    if (!created) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    created->properties = *poolProps;
    *pool = created;
    return CUDA_SUCCESS;
}

/* "If the pool is the current mempool of its device, the device's default mempool becomes current;
 * its memory is freed when the last allocation out of it is" (in substance, cuda.h). */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    SIM_ENTER(cuMemPoolDestroy);
    if (!sim_pool_is(pool) || pool->is_default) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (pool->device && pool->device->current_pool == pool) {
        pool->device->current_pool = NULL;
    }
    pool->destroyed = true;
    sim_object_destroy(&pool->object);
    pool->release_threshold = 0;
    sim_pool_collect(pool);
    sim_pool_release_destroyed(pool);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    SIM_ENTER(cuMemPoolTrimTo);
    if (!sim_pool_is(pool)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_pool_collect(pool);
    sim_pool_trim(pool, minBytesToKeep);
    return CUDA_SUCCESS;
}

static int *flag_attribute(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return &pool->reuse_follow_event;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return &pool->reuse_opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return &pool->reuse_internal;
    default:
        return NULL;
    }
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    SIM_ENTER(cuMemPoolSetAttribute);
    if (!sim_pool_is(pool) || !value) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int *flag = flag_attribute(pool, attr);
    if (flag) {
        *flag = *(const int *)value;
        return CUDA_SUCCESS;
    }
    cuuint64_t number = *(const cuuint64_t *)value;
    switch (attr) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->release_threshold = number;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: /* "High watermark can only be reset to zero." */
        pool->reserved_high = pool->reserved;
        return number ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        pool->used_high = pool->used;
        return number ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    SIM_ENTER(cuMemPoolGetAttribute);
    if (!sim_pool_is(pool) || !value) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const int *flag = flag_attribute(pool, attr);
    if (flag) {
        *(int *)value = *flag;
        return CUDA_SUCCESS;
    }
    cuuint64_t number;
    switch (attr) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        number = pool->release_threshold;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        number = pool->reserved;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        number = pool->reserved_high;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        number = pool->used;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        number = pool->used_high;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    *(cuuint64_t *)value = number;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    SIM_ENTER(cuMemPoolSetAccess);
    if (!sim_pool_is(pool) || !count || !map) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        int device = map[i].location.id;
        if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_of(device)) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        bool granted = map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        bool own = pool->device && pool->device->index == device;
        if ((own && !granted) || (!own && granted && !sim_settings.peers)) {
            return CUDA_ERROR_INVALID_DEVICE; /* the pool's own device always has access */
        }
        pool->access_devices =
            (pool->access_devices & ~(1u << device)) | (granted ? 1u << device : 0);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
    SIM_ENTER(cuMemPoolGetAccess);
    if (!sim_pool_is(memPool) || !flags || !location) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_of(location->id)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    bool own = memPool->device && memPool->device->index == location->id;
    *flags = own || (memPool->access_devices & (1u << location->id))
                 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

/* ---- the memory of graphs -------------------------------------------------------------------- */

static bool is_idle(const struct sim_device *device)
{
    for (CUcontext context = sim_first_context(); context; context = context->next) {
        for (CUstream stream = context->streams; stream; stream = stream->next) {
            if (context->device == device && !sim_stream_is_idle(stream)) {
                return false;
            }
        }
    }
    return true;
}

/* "Blocks which are not in use by a graph that is either currently executing or scheduled to
 * execute are freed back to the operating system" (cuda.h, cuDeviceGraphMemTrim). What a graph has
 * allocated and nobody has freed stays. */
static void take_back(struct sim_device *device)
{
    struct sim_range *range = sim_range_from((CUdeviceptr)device->arena);
    while (range && range->address < device->arena + device->arena_bytes) {
        if (range->graph_backed && !range->graph_live) {
            sim_pool_unback(range);
        }
        range = sim_range_from((CUdeviceptr)range->address + 1);
    }
}

/* Which graphs execute is not noted, so nothing is taken while the device works. */
CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    SIM_ENTER(cuDeviceGraphMemTrim);
    struct sim_device *found = sim_device_of(device);
    if (!found) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (found->graph_pool) {
        if (is_idle(found)) {
            take_back(found);
        }
        sim_pool_collect(found->graph_pool);
        sim_pool_trim(found->graph_pool, 0);
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    SIM_ENTER(cuDeviceGetGraphMemAttribute);
    struct sim_device *found = sim_device_of(device);
    if (!found) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    CUmemoryPool pool = sim_pool_graph(found);
    if (!value || !pool) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const cuuint64_t values[] = {pool->used, pool->used_high, pool->reserved, pool->reserved_high};
    if ((unsigned)attr >= sizeof values / sizeof values[0]) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *(cuuint64_t *)value = values[attr];
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    SIM_ENTER(cuDeviceSetGraphMemAttribute);
    struct sim_device *found = sim_device_of(device);
    if (!found) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    CUmemoryPool pool = sim_pool_graph(found);
    if (!value || *(cuuint64_t *)value || !pool) {
        return CUDA_ERROR_INVALID_VALUE; /* "High watermark can only be reset to zero." */
    }
    if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
        pool->used_high = pool->used;
    } else if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
        pool->reserved_high = pool->reserved;
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
