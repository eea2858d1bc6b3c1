/* SPDX-License-Identifier: Apache-2.0 */
/* What lies at an address. See memory.h. */
#include "memory.h"

#include "array.h"
#include "call_site.h"
#include "capture.h"
#include "context.h"
#include "device.h"
#include "entry.h"
#include "ipc.h"
#include "pool.h"
#include "stream.h"
#include "vmm.h"

#include <sys/mman.h>
#include <unistd.h>

#define PITCH_BYTES 512u

static struct sim_tree ranges;
static uint64_t last_buffer_id;

/* ---- ranges --------------------------------------------------------------------------------- */

struct sim_range *sim_range_at(CUdeviceptr address)
{
    struct sim_node *node = sim_tree_floor(&ranges, address, UINT64_MAX);
    if (!node) {
        return NULL;
    }
    struct sim_range *range = SIM_OWNER(node, struct sim_range, node);
    return address < (CUdeviceptr)range->address + range->bytes ? range : NULL;
}

struct sim_range *sim_range_from(CUdeviceptr address)
{
    struct sim_node *node = sim_tree_ceiling(&ranges, address, 0);
    return node ? SIM_OWNER(node, struct sim_range, node) : NULL;
}

struct sim_range *sim_range_new(enum sim_range_kind kind, char *address, uint64_t bytes,
                                struct sim_device *device, CUcontext context)
{
    struct sim_range *range = sim_object_new(&sim_blocks);
    if (!range) {
        return NULL;
    }
    range->kind = kind;
    range->address = address;
    range->bytes = bytes;
    range->device = device;
    range->context = context;
    range->id = ++last_buffer_id;
    range->node.key = (uint64_t)address;
    sim_tree_insert(&ranges, &range->node);
    if (context) {
        range->next = context->ranges;
        range->link = &context->ranges;
        if (range->next) {
            range->next->link = &range->next;
        }
        context->ranges = range;
    }
    return range;
}

void sim_range_delete(struct sim_range *range)
{
    sim_tree_remove(&ranges, &range->node);
    if (range->link) {
        *range->link = range->next;
        if (range->next) {
            range->next->link = range->link;
        }
    }
    sim_object_free(&sim_blocks, range);
}

CUresult sim_device_memory_new(CUcontext context, uint64_t bytes, struct sim_range **result)
{
    struct sim_device *device = context->device;
    char *address;
    uint64_t occupied;
    CUresult status = sim_arena_alloc(device, bytes, &address, &occupied);
    if (status == CUDA_ERROR_OUT_OF_MEMORY && sim_pools_give_back(device)) {
        status = sim_arena_alloc(device, bytes, &address, &occupied);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct sim_range *range = sim_range_new(SIM_RANGE_DEVICE, address, bytes, device, context);
    if (!range) {
        sim_arena_free(device, address, occupied);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->occupied = occupied;
    *result = range;
    return CUDA_SUCCESS;
}

void sim_range_free(struct sim_range *range)
{
    switch (range->kind) {
    case SIM_RANGE_DEVICE:
        if (range->array) {
            sim_array_forget(range->array);
        }
        sim_arena_free(range->device, range->address, range->occupied);
        break;
    case SIM_RANGE_MANAGED:
        if (range->charged) {
            sim_account_uncharge(range->device->index, range->occupied);
        }
        munmap(range->address, range->occupied);
        break;
    case SIM_RANGE_HOST:
        munmap(range->address, range->occupied);
        break;
    case SIM_RANGE_IPC:
        sim_ipc_unmap(range);
        break;
    case SIM_RANGE_POOL:
    case SIM_RANGE_REGISTERED:
        break;
    }
    sim_range_delete(range);
}

void sim_ranges_free_all(CUcontext context)
{
    while (context->ranges) {
        sim_range_free(context->ranges);
    }
}

struct sim_location sim_locate(CUdeviceptr address)
{
    struct sim_location location = {.place = SIM_PLACE_PAGEABLE};
    struct sim_range *range = sim_range_at(address);
    location.range = range;
    if (range) {
        location.place = range->kind == SIM_RANGE_MANAGED ? SIM_PLACE_MANAGED
                         : range->kind == SIM_RANGE_HOST || range->kind == SIM_RANGE_REGISTERED
                             ? SIM_PLACE_HOST
                             : SIM_PLACE_DEVICE;
        location.device = location.place == SIM_PLACE_HOST ? NULL : range->device;
        return location;
    }
    location.mapping = sim_mapping_at(address);
    if (location.mapping) {
        location.place = SIM_PLACE_MAPPED;
        location.device = location.mapping->chunk->device;
        return location;
    }
    if (sim_reservation_at(address)) {
        location.place = SIM_PLACE_NOWHERE;
    }
    for (int i = 0; i < (int)sim_settings.devices; i++) {
        uint64_t arena = (uint64_t)sim_devices[i].arena;
        if (address >= arena && address < arena + sim_devices[i].arena_bytes) {
            location.place = SIM_PLACE_NOWHERE;
        }
    }
    return location;
}

bool sim_synchronizes(CUdeviceptr address)
{
    const struct sim_range *range = sim_range_at(address);
    return range && range->sync_memops;
}

/* False also where the end is beyond the last address. */
static bool ends_within(CUdeviceptr address, uint64_t bytes, const struct sim_range *range)
{
    return bytes <= (CUdeviceptr)range->address + range->bytes - address;
}

static bool is_mapped_for(CUdeviceptr address, uint64_t bytes, const struct sim_device *device)
{
    if (address + bytes < address) {
        return false;
    }
    for (CUdeviceptr at = address; at < address + bytes;) {
        const struct sim_mapping *mapping = sim_mapping_at(at);
        if (!mapping || mapping->chunk->team || !(mapping->read_devices & (1u << device->index))) {
            return false;
        }
        at = (CUdeviceptr)mapping->address + mapping->bytes;
    }
    return true;
}

bool sim_is_usable(CUdeviceptr address, uint64_t bytes, const struct sim_device *device)
{
    struct sim_location location = sim_locate(address);
    switch (location.place) {
    case SIM_PLACE_PAGEABLE:
        return true;
    case SIM_PLACE_NOWHERE:
        return false;
    case SIM_PLACE_MAPPED:
        return is_mapped_for(address, bytes, device);
    default:
        return ends_within(address, bytes, location.range);
    }
}

/* ---- device memory -------------------------------------------------------------------------- */

/* "cudaMalloc itself is around 100 us and more": a large one grows with its size. */
static uint64_t alloc_latency_ns(uint64_t bytes)
{
    return 100000 + (bytes >> 30) * 900000;
}

static CUresult alloc(CUdeviceptr *result, size_t bytes)
{
    SIM_CURRENT(context);
    CUresult status = sim_capture_check_unsafe();
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (!result || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_range *range;
    status = sim_device_memory_new(context, bytes, &range);
    if (status == CUDA_SUCCESS) {
        *result = (CUdeviceptr)range->address;
        sim_charge_latency(alloc_latency_ns(bytes));
    }
    return status;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    SIM_ENTER(cuMemAlloc_v2);
    return alloc(dptr, bytesize);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes)
{
    SIM_ENTER(cuMemAllocPitch_v2);
    SIM_CURRENT(context);
    (void)context;
    if (!pPitch || (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t pitch = (WidthInBytes + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES;
    size_t bytes;
    if (__builtin_mul_overflow(pitch, Height, &bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult status = alloc(dptr, bytes);
    if (status == CUDA_SUCCESS) {
        *pPitch = pitch;
    }
    return status;
}

/* The memory can be used again only when all earlier work of its device is done. The wait releases
 * the lock, so the range's mark keeps out a second free of the same address. "This API will not
 * perform any implicit synchronization when the pointer was allocated with cuMemAllocAsync or
 * cuMemAllocFromPoolAsync" (cuda.h, cuMemFree). */
static CUresult free_device_range(struct sim_range *range)
{
    if (range->freeing || range->of_library ||
        (range->kind == SIM_RANGE_IPC && !sim_ipc_is_of_pool(range))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (range->kind == SIM_RANGE_IPC) {
        sim_ipc_close(range);
        return CUDA_SUCCESS;
    }
    if (range->graph_references) {
        range->graph_live = false;
        sim_wait_device(range->device);
        return CUDA_SUCCESS; /* the next launch of its graph allocates it again, at the same
                                address */
    }
    if (range->kind == SIM_RANGE_POOL) {
        sim_pool_free_now(range);
        return CUDA_SUCCESS;
    }
    range->freeing = true;
    sim_wait_device(range->device);
    sim_charge_latency(100000);
    sim_range_free(range);
    return CUDA_SUCCESS;
}

/* SIMGPU_DESTROY_US: the call counts as one that destroys a handle. */
static void count_as_destroyed(void)
{
    if (sim_settings.destroy_us != 0) {
        sim_call_site_release(sim_call_site_here());
    }
}

/* Freeing needs no context, but fails if the current one was destroyed (seen: an H200, driver
 * 580). */
static CUresult check_free(void)
{
    CUresult status = sim_current_check();
    return status == CUDA_SUCCESS || status == CUDA_ERROR_INVALID_CONTEXT
               ? sim_capture_check_unsafe()
               : status;
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    SIM_ENTER(cuMemFree_v2);
    CUresult status = check_free();
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (!dptr) {
        return CUDA_SUCCESS;
    }
    struct sim_range *range = sim_range_at(dptr);
    if (!range || (CUdeviceptr)range->address != dptr || range->kind == SIM_RANGE_HOST ||
        range->kind == SIM_RANGE_REGISTERED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    count_as_destroyed();
    return free_device_range(range);
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    SIM_ENTER(cuMemGetInfo_v2);
    SIM_CURRENT(context);
    uint64_t used = sim_account_used_by_all(context->device->index);
    if (free) {
        *free = sim_settings.memory_bytes - used;
    }
    if (total) {
        *total = sim_settings.memory_bytes;
    }
    return CUDA_SUCCESS;
}

/* For mapped memory the driver returns the mapping, not an allocation (nccl#2332). */
CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    SIM_JUDGE(pbase || psize, CUDA_SUCCESS);
    SIM_ENTER(cuMemGetAddressRange_v2);
    SIM_CURRENT(context);
    (void)context;
    struct sim_location location = sim_locate(dptr);
    CUdeviceptr base;
    size_t bytes;
    if (location.range) {
        base = (CUdeviceptr)location.range->address;
        bytes = location.range->bytes;
    } else if (location.mapping) {
        base = (CUdeviceptr)location.mapping->address;
        bytes = location.mapping->bytes;
    } else {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (pbase) {
        *pbase = base;
    }
    if (psize) {
        *psize = bytes;
    }
    return CUDA_SUCCESS;
}

/* ---- host memory ---------------------------------------------------------------------------- */

static size_t page_round(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static CUresult map_host(enum sim_range_kind kind, size_t bytes, CUcontext context,
                         struct sim_range **result)
{
    size_t occupied = page_round(bytes);
    char *address = mmap(NULL, occupied, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_range *range = sim_range_new(kind, address, bytes, context->device, context);
    if (!range) {
        munmap(address, occupied);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->occupied = occupied;
    *result = range;
    return CUDA_SUCCESS;
}

static CUresult host_alloc(void **result, size_t bytes, unsigned flags)
{
    SIM_CURRENT(context);
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (!result || bytes == 0 || (flags & ~known)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = sim_capture_check_unsafe();
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct sim_range *range;
    status = map_host(SIM_RANGE_HOST, bytes, context, &range);
    if (status == CUDA_SUCCESS) {
        range->flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
        *result = range->address;
    }
    return status;
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    SIM_ENTER(cuMemAllocHost_v2);
    return host_alloc(pp, bytesize, 0);
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    SIM_ENTER(cuMemHostAlloc);
    return host_alloc(pp, bytesize, Flags);
}

CUresult cuMemFreeHost(void *p)
{
    SIM_ENTER(cuMemFreeHost);
    CUresult status = check_free();
    if (status != CUDA_SUCCESS || !p) {
        return status;
    }
    struct sim_range *range = sim_range_at((CUdeviceptr)p);
    if (!range || range->address != p || range->kind != SIM_RANGE_HOST || range->freeing) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    range->freeing = true;
    sim_wait_device(range->device);
    count_as_destroyed();
    sim_range_free(range);
    return CUDA_SUCCESS;
}

static CUresult host_register(void *pointer, size_t bytes, unsigned flags)
{
    SIM_CURRENT(context);
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                           CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    if (!pointer || bytes == 0 || (flags & ~known)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_range *next = sim_range_from((CUdeviceptr)pointer);
    if (sim_locate((CUdeviceptr)pointer).place != SIM_PLACE_PAGEABLE ||
        (next && (CUdeviceptr)next->address < (CUdeviceptr)pointer + bytes)) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    struct sim_range *range =
        sim_range_new(SIM_RANGE_REGISTERED, pointer, bytes, context->device, context);
    if (!range) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
    SIM_ENTER(cuMemHostRegister);
    return host_register(p, bytesize, Flags);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    SIM_ENTER(cuMemHostRegister_v2);
    return host_register(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void *p)
{
    SIM_ENTER(cuMemHostUnregister);
    if (!p) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_range *range = sim_range_at((CUdeviceptr)p);
    if (!range || range->address != p || range->kind != SIM_RANGE_REGISTERED || range->freeing) {
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    SIM_CURRENT(context);
    (void)context;
    range->freeing = true;
    sim_wait_device(range->device);
    count_as_destroyed();
    sim_range_delete(range);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    SIM_ENTER(cuMemHostGetDevicePointer_v2);
    SIM_CURRENT(context);
    (void)context;
    struct sim_location location = sim_locate((CUdeviceptr)p);
    if (!pdptr || Flags || location.place != SIM_PLACE_HOST) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pdptr = (CUdeviceptr)p;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    SIM_ENTER(cuMemHostGetFlags);
    SIM_CURRENT(context);
    (void)context;
    struct sim_location location = sim_locate((CUdeviceptr)p);
    if (!pFlags || location.place != SIM_PLACE_HOST) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pFlags = location.range->flags;
    return CUDA_SUCCESS;
}

/* ---- managed memory ------------------------------------------------------------------------- */

/* Host memory, charged to a device from its first prefetch there until a prefetch back to the host,
 * or its free. */
CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    SIM_JUDGE(dptr && bytesize != 0, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuMemAllocManaged);
    SIM_CURRENT(context);
    CUresult status = sim_capture_check_unsafe();
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_range *range;
    status = map_host(SIM_RANGE_MANAGED, bytesize, context, &range);
    if (status == CUDA_SUCCESS) {
        range->flags = flags;
        *dptr = (CUdeviceptr)range->address;
    }
    return status;
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, struct sim_device *to, CUstream handle)
{
    SIM_STREAM(handle, stream);
    struct sim_range *range = sim_range_at(address);
    if (!range || range->kind != SIM_RANGE_MANAGED || bytes == 0 ||
        !ends_within(address, bytes, range)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (range->charged && to != range->device) {
        sim_account_uncharge(range->device->index, range->occupied);
        range->charged = false;
    }
    if (to && !range->charged) {
        CUresult status = sim_account_charge(to->index, range->occupied);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        range->device = to;
        range->charged = true;
    }
    struct sim_work work = {.kind = SIM_WORK_EMPTY};
    return sim_submit(stream, &work, NULL);
}

static CUresult prefetch_to_device(CUdeviceptr address, size_t bytes, CUdevice dev, CUstream handle)
{
    struct sim_device *device = sim_device_of(dev);
    if (!device && dev != CU_DEVICE_CPU) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    return prefetch(address, bytes, device, handle);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    SIM_ENTER(cuMemPrefetchAsync);
    return prefetch_to_device(devPtr, count, dstDevice, hStream);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                 CUstream hStream)
{
    SIM_ENTER(cuMemPrefetchAsync_ptsz);
    return prefetch_to_device(devPtr, count, dstDevice, sim_per_thread(hStream));
}

static CUresult prefetch_to_location(CUdeviceptr address, size_t bytes, CUmemLocation location,
                                     CUstream handle)
{
    return prefetch_to_device(
        address, bytes, location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU,
        handle);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream)
{
    SIM_ENTER(cuMemPrefetchAsync_v2);
    return prefetch_to_location(devPtr, count, location, hStream);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                    unsigned int flags, CUstream hStream)
{
    SIM_ENTER(cuMemPrefetchAsync_v2_ptsz);
    return prefetch_to_location(devPtr, count, location, sim_per_thread(hStream));
}

#if CUDA_VERSION >= 13000
static CUresult prefetch_batch(CUdeviceptr *addresses, const size_t *sizes, size_t count,
                               const CUmemLocation *locations, const size_t *location_indices,
                               size_t location_count, CUstream handle)
{
    if (!addresses || !sizes || !locations || !location_indices || location_count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = CUDA_SUCCESS;
    for (size_t i = 0, at = 0; i < count && status == CUDA_SUCCESS; i++) {
        while (at + 1 < location_count && location_indices[at + 1] <= i) {
            at++;
        }
        status = prefetch_to_location(addresses[i], sizes[i], locations[at], handle);
    }
    return status;
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                 CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                 size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)
{
    SIM_JUDGE(hStream, CUDA_ERROR_INVALID_VALUE); /* as for batches of copies (copy.c) */
    SIM_ENTER(cuMemPrefetchBatchAsync);
    return prefetch_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs,
                          hStream);
}

CUresult cuMemPrefetchBatchAsync_ptsz(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                      CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                      size_t numPrefetchLocs, unsigned long long flags,
                                      CUstream hStream)
{
    SIM_ENTER(cuMemPrefetchBatchAsync_ptsz);
    return prefetch_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs,
                          sim_per_thread(hStream));
}
#endif

static CUresult advise(CUdeviceptr address, size_t bytes)
{
    const struct sim_range *range = sim_range_at(address);
    return range && range->kind == SIM_RANGE_MANAGED && bytes && ends_within(address, bytes, range)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
    SIM_ENTER(cuMemAdvise);
    (void)device;
    return advise(devPtr, count);
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location)
{
    SIM_ENTER(cuMemAdvise_v2);
    return advise(devPtr, count);
}

static CUresult attach(CUstream handle, CUdeviceptr address)
{
    SIM_STREAM(handle, stream);
    const struct sim_range *range = sim_range_at(address);
    if (!range || range->kind != SIM_RANGE_MANAGED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_work work = {.kind = SIM_WORK_EMPTY};
    return sim_submit(stream, &work, NULL);
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags)
{
    SIM_ENTER(cuStreamAttachMemAsync);
    return attach(hStream, dptr);
}

CUresult cuStreamAttachMemAsync_ptsz(CUstream hStream, CUdeviceptr dptr, size_t length,
                                     unsigned int flags)
{
    SIM_ENTER(cuStreamAttachMemAsync_ptsz);
    return attach(sim_per_thread(hStream), dptr);
}
